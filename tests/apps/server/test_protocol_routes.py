"""AG-UI and the AI SDK over HTTP: a post is answered with a run, up to its end or its questions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, MutableMapping
from typing import Any

import pytest
from support.http_server import Asking, pay, scripted, serving
from support.patience import PATIENCE
from support.protocol_clients import AgUiClient, UiClient
from support.session_stage import until

from turnwheel import Agent, MemoryStore, Policy, tool
from turnwheel.effects import CallModel, Concurrency
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says, stalls

PAY = calls(("pay", {"amount": 5}))

Json = dict[str, Any]


async def posted(server: Asking, path: str, body: Json) -> list[Json]:
    """The events that answer *body*."""
    async with asyncio.timeout(PATIENCE):
        text: str = await server.post(f"/api/agents/default/{path}", body)
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) for one in data if one != "[DONE]"]


def said(text: str, id: str = "u-1") -> Json:  # noqa: A002  # the word of messages
    return {"id": id, "role": "user", "content": text, "parts": [{"type": "text", "text": text}]}


async def test_an_ag_ui_client_runs_an_agent_and_answers_its_interrupt() -> None:
    async with serving(scripted(PAY, says("Paid."), says("Again."))) as server:
        client = AgUiClient()
        first = {"threadId": "t", "runId": "r-1", "messages": [said("Pay")]}
        client.hear(await posted(server, "ag-ui", first))
        (interrupt,) = client.ends[-1]["outcome"]["interrupts"]
        assert client.ends[-1]["runId"] == "r-1"
        # A repeated post begins nothing, and is answered as the first one.
        again = AgUiClient()
        again.hear(await posted(server, "ag-ui", first))
        assert again.ends == client.ends[-1:]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": True}]
        second = {"threadId": "t", "runId": "r-2", "messages": client.messages, "resume": resume}
        client.hear(await posted(server, "ag-ui", second))
        assert (client.ends[-1]["runId"], client.ends[-1]["outcome"]) == ("r-2", {"type": "success"})
        shown = [(one["role"], one["content"]) for one in client.messages]
        assert shown == [("user", "Pay"), ("assistant", ""), ("tool", "paid 5"), ("assistant", "Paid.")]
        third = {"threadId": "t", "runId": "r-3", "messages": [*client.messages, said("And?", "u-2")]}
        client.hear(await posted(server, "ag-ui", third))
        assert client.messages[-1]["content"] == "Again."
        assert len(client.messages) == 6


async def test_an_ai_sdk_client_chats_and_approves() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        client = UiClient()
        client.hear(await posted(server, "ui-messages", {"id": "t", "messages": [said("Pay")]}))
        (part,) = [part for part in client.parts if part["type"] == "tool"]
        assert part["state"] == "approval-requested"
        answered: Json = {"type": "dynamic-tool", "state": "approval-responded"}
        answered["approval"] = {"id": part["asked"], "approved": True}
        message = {"id": client.messages[-1]["id"], "role": "assistant", "parts": [answered]}
        client.hear(await posted(server, "ui-messages", {"id": "t", "messages": [said("Pay"), message]}))
        assert len(client.messages) == 1
        assert (part["state"], part["result"]) == ("output-available", "paid 5")
        assert client.parts[-1]["text"] == "Paid."
        # Nothing is under way any more.
        await server.get("/api/agents/default/ui-messages/t/stream", 204)
        await server.get("/api/agents/default/ui-messages/none/stream", 404)


@pytest.mark.parametrize(("then", "kind"), [(says("Well."), "finish"), (PAY, "tool-approval-request")])
async def test_a_stream_ends_where_the_run_goes_on_at_another_server(then: Reply, kind: str) -> None:
    store, go = MemoryStore(), asyncio.Event()

    @tool(side_effect="read_only")
    async def wait() -> str:
        """Wait."""
        await go.wait()
        return "waited"

    def agent() -> Agent:
        model = ScriptedModel(calls(("wait", {})), then)
        return Agent(model="openai:test", tools=[pay, wait], performers={CallModel: model})

    async with serving(agent(), store) as one, serving(agent(), store) as other:
        await one.post("/api/sessions", {"id": "t", "prompt": "Go"}, 201)
        await one.until("t", lambda found: found["state"] == "executing")
        resumed = asyncio.create_task(other.get("/api/agents/default/ui-messages/t/stream"))
        await until(lambda: other.server.streams.count == 1)
        go.set()
        async with asyncio.timeout(PATIENCE):
            assert f'"type":"{kind}"' in await resumed


async def test_a_question_that_was_asked_at_another_server_is_answered_at_this_one() -> None:
    store = MemoryStore()
    async with (
        serving(scripted(PAY, says("Paid.")), store) as one,
        serving(scripted(says("Paid.")), store, resume=False) as other,
    ):
        await one.post("/api/sessions", {"id": "t", "prompt": "Pay"}, 201)
        asked = (await one.question("t"))["id"]
        # Nothing is under way at any server.
        async with asyncio.timeout(PATIENCE):
            await other.get("/api/agents/default/ui-messages/t/stream", 204)
        answered = {"state": "approval-responded", "approval": {"id": asked, "approved": True}}
        message = {"id": "m", "role": "assistant", "parts": [{"type": "dynamic-tool", **answered}]}
        events = await posted(other, "ui-messages", {"id": "t", "messages": [said("Pay"), message]})
        assert [each["delta"] for each in events if each["type"] == "text-delta"] == ["Paid."]


async def test_the_ai_sdk_resumes_a_stream() -> None:
    async with serving(scripted(stalls("Well"))) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "t", "prompt": "Pay"}, 201)
        resumed = asyncio.create_task(server.get("/api/agents/default/ui-messages/t/stream"))
        await until(lambda: server.server.streams.count == 1)
        await server.post("/api/sessions/t/interrupt", None, 202)
        async with asyncio.timeout(PATIENCE):
            text: str = await resumed
        assert text.count('"type":"start"') == 1
        assert '"type":"abort"' in text
        assert text.endswith("data: [DONE]\n\n")


TWO = calls(("pay", {"amount": 5}), ("pay", {"amount": 6}))
SIDE_BY_SIDE = Policy(concurrency=Concurrency.PARALLEL)


def resumed(*answers: tuple[str, Any]) -> Json:
    resume = [{"interruptId": name, "status": "resolved", "payload": payload} for name, payload in answers]
    return {"threadId": "t", "runId": "r", "messages": [], "resume": resume}


def approved(*answers: tuple[str, Any]) -> Json:
    """The same in the words of the AI SDK, which knows no arguments."""
    parts = [
        {
            "type": "dynamic-tool",
            "state": "approval-responded",
            "approval": {"id": name, "approved": bool(payload), "reason": payload or "x" * 2_000_000},
        }
        for name, payload in answers
    ]
    return {"id": "t", "messages": [{"id": "a", "role": "assistant", "parts": parts}]}


def edited(amount: object) -> Json:
    return {"approved": True, "arguments": {"amount": amount}}


@pytest.mark.parametrize(
    ("path", "answers", "status"),
    [
        ("ag-ui", (("one", True), ("two", edited("much"))), 422),
        ("ag-ui", (("one", edited("much")),), 422),
        ("ag-ui", (("one", edited(7)), ("two", {"approved": True, "arguments": {}})), 422),
        ("ag-ui", (("one", True), ("none", True)), 404),
        ("ag-ui", (("one", True), ("two", True), ("one", False)), 422),
        ("ui-messages", (("one", "yes"), ("none", "yes")), 404),
        ("ui-messages", (("one", "yes"), ("two", "")), 422),
    ],
)
async def test_of_several_answers_all_are_taken_or_none(path: str, answers: Any, status: int) -> None:
    async with serving(scripted(TWO, says("Paid."), policy=SIDE_BY_SIDE)) as server:
        await server.post("/api/sessions", {"id": "t", "prompt": "Pay"}, 201)
        found = await server.until("t", lambda found: len(found["questions"]) == 2)
        names = dict(zip(("one", "two"), (asked["id"] for asked in found["questions"]), strict=True))
        before = await server.get("/api/sessions/t/steps")
        given = [(names.get(which, which), payload) for which, payload in answers]
        body = resumed(*given) if path == "ag-ui" else approved(*given)
        await server.post(f"/api/agents/default/{path}", body, status)
        assert await server.get("/api/sessions/t/steps") == before
        events = await posted(server, "ag-ui", resumed((names["one"], edited(7)), (names["two"], False)))
        assert events[-1]["outcome"] == {"type": "success"}
        assert "paid 7" in str((await server.get("/api/sessions/t/export"))["messages"])


async def test_an_answer_that_another_one_of_its_post_closes_is_no_mistake() -> None:
    async with serving(scripted(TWO, says("Paid."), policy=SIDE_BY_SIDE)) as server:
        await server.post("/api/sessions", {"id": "t", "prompt": "Pay"}, 201)
        found = await server.until("t", lambda found: len(found["questions"]) == 2)
        one, two = (asked["id"] for asked in found["questions"])
        events = await posted(
            server, "ag-ui", resumed((one, {"approved": True, "always": True}), (two, True))
        )
        assert events[-1]["outcome"] == {"type": "success"}
        messages = str((await server.get("/api/sessions/t/export"))["messages"])
        assert "paid 5" in messages
        assert "paid 6" in messages


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("default/ag-ui", {"runId": "r", "messages": []}, 422),
        ("default/ag-ui", {"threadId": "none", "runId": "r", "messages": []}, 404),
        ("other/ag-ui", {"threadId": "t", "runId": "r", "messages": [said("Pay")]}, 404),
        ("default/ag-ui", {"threadId": "a/b", "runId": "r", "messages": [said("Pay")]}, 422),
        ("default/ag-ui", {"threadId": "t\n", "runId": "r", "messages": [said("Pay")]}, 422),
        ("default/ui-messages", {"id": "t\n", "messages": [said("Pay")]}, 422),
        ("default/ui-messages", {"id": "t", "messages": [], "trigger": "regenerate-message"}, 422),
    ],
)
async def test_what_cannot_be_done_is_refused(path: str, body: Json, status: int) -> None:
    async with serving(scripted()) as server:
        refused = await server.post(f"/api/agents/{path}", body, status)
        assert refused["status"] == status


async def sent(server: Asking, path: str, body: Json) -> AsyncGenerator[bytes, None]:
    """The parts of the answer to a post of *body*, each when it is sent."""
    parts = asyncio.Queue[bytes | None]()
    given = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Json:
        if given:
            return given.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        parts.put_nowait(message.get("body"))

    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"host", b"test")]}
    asked = {**scope, "query_string": b"", "root_path": "", "scheme": "http", "server": ("test", 80)}
    answering = asyncio.create_task(server.app({**asked, "asgi": {"spec_version": "2.4"}}, receive, send))
    answering.add_done_callback(lambda _: parts.put_nowait(None))
    # The head has no body.
    assert await parts.get() is None
    while (part := await parts.get()) is not None:
        yield part
    await answering


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("ag-ui", {"threadId": "t", "runId": "r", "messages": [said("Wait")]}),
        ("ui-messages", {"id": "t", "messages": [said("Wait")]}),
    ],
)
async def test_an_answer_beats_while_the_run_is_silent(path: str, body: Json) -> None:
    async with serving(scripted(stalls("Well")), heartbeat=0.005) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "t"}, 201)
        # Comments, which clients of both protocols pass over.
        beats = 0
        async with asyncio.timeout(PATIENCE):
            async for part in sent(server, f"/api/agents/default/{path}", body):
                beats += part.startswith(b":")
                if beats == 3:
                    await server.post("/api/sessions/t/interrupt", None, 202)
        assert beats >= 3


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/sessions/t/events", None),
        ("POST", "/api/agents/default/ag-ui", {"threadId": "t", "runId": "r", "messages": [said("Wait")]}),
        ("POST", "/api/agents/default/ui-messages", {"id": "t", "messages": [said("Wait")]}),
        ("GET", "/api/agents/default/ui-messages/t/stream", None),
    ],
)
async def test_a_client_that_leaves_before_the_body_begins_gives_its_place_back(
    method: str, path: str, body: Json | None
) -> None:
    async with serving(scripted(stalls("Well"))) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "t", "prompt": "Begin"}, 201)
        given = [
            {"type": "http.request", "body": json.dumps(body).encode() if body else b"", "more_body": False}
        ]

        async def receive() -> Json:
            return given.pop() if given else {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            del message
            # As servers of this version tell that the client has left.
            raise OSError

        scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"test")]}
        whole = {**scope, "query_string": b"", "root_path": "", "scheme": "http", "server": ("test", 80)}
        async with asyncio.timeout(PATIENCE):
            await server.app({**whole, "asgi": {"spec_version": "2.4"}}, receive, send)
        assert server.server.streams.count == 0
        await server.post("/api/sessions/t/interrupt", None, 202)


async def test_open_streams_end_when_the_server_does() -> None:
    async with serving(scripted()) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "t"}, 201)
        reading = asyncio.create_task(server.get("/api/sessions/t/events"))
        while not server.server.streams.count:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await server.server.drain()
            assert ": still here" in await reading
        assert server.server.streams.count == 0
