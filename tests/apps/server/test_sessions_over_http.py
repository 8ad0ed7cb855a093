"""Sessions over HTTP: each call of the table, what it answers, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from support.http_server import scripted, serving
from support.patience import PATIENCE

from turnwheel import ChildSpec, MemoryStore, Policy, Rule
from turnwheel.apps.server.limits import ServerLimits
from turnwheel.effects.config import Concurrency
from turnwheel.engine.core.codec import encode
from turnwheel.engine.journal.summary import SessionStatus, SessionSummary
from turnwheel.performers.stores.base import SessionInfo, Store
from turnwheel.testing.scripted import calls, says, stalls
from turnwheel.testing.stores import StoreOver

PAY = calls(("pay", {"amount": 5}))
FILE = {"media_type": "text/plain", "data": "SGk=", "name": "hi.txt"}


async def test_a_session_is_begun_asked_and_answered() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        made = await server.post("/api/sessions", {"agent": "default", "id": "s", "prompt": "Pay"}, 201)
        assert (made["id"], made["agent"]) == ("s", "default")
        asked = await server.question("s")
        assert (asked["tool"], asked["arguments"], asked["due"]) == ("pay", {"amount": 5}, None)
        answer = {"decision": "approve", "arguments": {"amount": 6}}
        await server.post(f"/api/sessions/s/questions/{asked['id']}", answer)
        over = await server.done("s")
        assert (over["reason"], over["questions"], over["spend"]["turns"]) == ("end_turn", [], 2)
        messages = (await server.get("/api/sessions/s/export"))["messages"]
        [result] = [part for each in messages for part in each["parts"] if part["type"] == "ToolResult"]
        assert (result["content"], result["outcome"], result["is_error"]) == ("paid 6", "ok", False)


async def test_agents_are_listed_with_their_tools() -> None:
    async with serving({"payer": scripted()}) as server:
        (agent,) = (await server.get("/api/agents"))["items"]
        assert (agent["name"], agent["model"], agent["tools"]) == ("payer", "openai:test", ["pay", "look"])
        assert agent["specs"][0]["parameters"]["required"] == ["amount"]


async def test_a_message_to_an_idle_session_begins_a_run() -> None:
    async with serving(scripted(says("One."), says("Two."))) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "s"}, 201)
        assert (await server.get("/api/sessions/s"))["state"] == "new"
        sent = await server.post("/api/sessions/s/messages", {"text": "One?", "id": "mine"}, 202)
        assert sent == {"id": "mine"}
        await server.done("s")
        sent = await server.post("/api/sessions/s/messages", {"text": "Two?", "mode": "steer"}, 202)
        over: Any = await server.done("s")
        assert sent["id"]
        assert over["spend"]["turns"] == 2


async def test_what_was_put_in_twice_answers_as_the_first_time() -> None:
    agent = scripted(says("One."), says("Two."), calls(("pay", {"amount": 5})), says("Paid."))
    key = {"Idempotency-Key": "first"}
    async with serving(agent) as server:
        begin = {"agent": "default", "prompt": "One?"}
        made = await server.post("/api/sessions", begin, 201, headers=key)
        name = made["id"]
        await server.done(name)
        again = await server.post("/api/sessions", begin, 201, headers=key)
        assert again["id"] == name
        await server.post("/api/sessions", {**begin, "prompt": "Other?"}, 422, headers=key)
        at = f"/api/sessions/{name}"
        sent = await server.post(f"{at}/messages", {"text": "Two?"}, 202, headers=key)
        assert await server.post(f"{at}/messages", {"text": "Two?"}, 202, headers=key) == sent
        await server.post(f"{at}/messages", {"text": "Three?"}, 422, headers=key)
        await server.done(name)
        await server.post(f"{at}/messages", {"text": "Pay", "id": "mine"}, 202)
        await server.post(f"{at}/messages", {"text": "Pay", "id": "mine"}, 202)
        question = f"{at}/questions/{(await server.question(name))['id']}"
        answered = await server.post(question, {"decision": "approve"}, headers=key)
        assert await server.post(question, {"decision": "approve"}, headers=key) == answered
        await server.post(question, {"decision": "deny"}, 422, headers=key)
        assert "answered by" in (await server.post(question, {"decision": "approve"}, 409))["detail"]
        assert (await server.done(name))["spend"]["turns"] == 4
        forked = await server.post(f"{at}/fork", None, 201, headers=key)
        assert (await server.post(f"{at}/fork", None, 201, headers=key))["id"] == forked["id"]


async def test_the_same_id_is_the_same_session() -> None:
    async with serving({"default": scripted(says("One.")), "other": scripted()}) as server:
        begin = {"agent": "default", "id": "s", "prompt": "One?"}
        for _ in range(2):
            await server.post("/api/sessions", begin, 201)
            assert (await server.done("s"))["spend"]["turns"] == 1
        await server.post("/api/sessions", {"agent": "other", "id": "s"}, 409)
        await server.post("/api/sessions", {"agent": "other", "id": "t"}, 201)
        assert (await server.get("/api/sessions/t"))["agent"] == "other"


@pytest.mark.parametrize(
    "first", [{}, {"prompt": "One?"}, {"files": [FILE]}, {"prompt": "One?", "files": [FILE]}]
)
async def test_only_the_request_that_began_a_session_may_come_again_under_its_id(
    first: dict[str, Any],
) -> None:
    bodies: list[dict[str, Any]] = [
        {},
        {"prompt": "One?"},
        {"prompt": "Another?"},
        {"files": [FILE]},
        {"prompt": "One?", "files": [FILE]},
    ]
    store = MemoryStore()
    async with serving(scripted(says("One.")), store) as server, serving(scripted(), store) as second_server:
        made = await server.post("/api/sessions", {"id": "s", **first}, 201)
        if first:
            await server.done("s")
        entries = await store.load("s")
        for asked in (server, second_server):
            for body in bodies:
                answer = await asked.post("/api/sessions", {"id": "s", **body}, 201 if body == first else 409)
                if body == first:
                    assert answer["created"] == made["created"]
                else:
                    assert "session 's' is there already" in answer["detail"]
                    assert "POST /api/sessions/s/messages" in answer["detail"]
        assert await store.load("s") == entries


async def test_the_id_of_a_session_that_was_begun_elsewhere_is_refused() -> None:
    store = MemoryStore()
    async with serving(scripted(says("One."), says("Two.")), store) as server:
        session = scripted(says("Mine.")).session("elsewhere", store)
        async with session:
            await session.run("One?")
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.done("s")
        await server.post("/api/sessions/s/fork", {"id": "copy"}, 201)
        for name in ("elsewhere", "copy"):
            before = await store.load(name)
            for body in ({"id": name}, {"id": name, "prompt": "One?"}):
                await server.post("/api/sessions", body, 409)
            assert await store.load(name) == before


async def test_of_two_first_prompts_for_one_id_at_once_the_other_is_refused() -> None:
    async with serving(scripted(says("One."))) as server:
        answers = await asyncio.gather(
            *[
                server.client.post("/api/sessions", json={"id": "s", "prompt": prompt})
                for prompt in ("One?", "Two?")
            ]
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409]
        assert (await server.done("s"))["spend"]["turns"] == 1


@pytest.mark.parametrize(
    ("send", "by"),
    [
        (("/messages", {"text": "Not that", "mode": "now"}), "a steer"),
        (("/interrupt", None), "an interrupt"),
    ],
)
async def test_a_withdrawn_question_says_what_withdrew_it(send: tuple[str, object], by: str) -> None:
    async with serving(scripted(PAY, says("Fine."), partial=True)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        await server.post(f"/api/sessions/s{send[0]}", send[1], 202)
        await server.done("s")
        refused = await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"}, 409)
        assert by in refused["detail"]


MALFORMED: list[tuple[str, object]] = [
    ("/api/sessions", {"prompt": 7}),
    ("/api/sessions", {"prompt": "Go", "unknown": 1}),
    ("/api/sessions", []),
    ("/api/sessions", {"id": "a b"}),
    ("/api/sessions/s/messages", {}),
    ("/api/sessions/s/messages", {"text": ""}),
    ("/api/sessions/s/messages", {"text": "x", "mode": "later"}),
    ("/api/sessions/s/messages", {"text": "x", "files": [{"media_type": "a/b", "data": "*"}]}),
    ("/api/sessions/s/questions/{q}", {"decision": "maybe"}),
    ("/api/sessions/s/questions/{q}", {"decision": "approve", "arguments": {"amount": "much"}}),
    ("/api/sessions/s/questions/{q}", {"decision": "deny", "arguments": {"amount": 1}}),
    ("/api/sessions/s/control", {}),
    ("/api/sessions/s/control", {"mode": "wild"}),
    ("/api/sessions/s/control", {"thinking": 1e308}),
    ("/api/sessions/s/fork", {"at": "x"}),
    ("/api/sessions/s/fork", {"at": 10**30}),
    ("/api/sessions/s/fork", {"instead": {"type": "Nonsense"}}),
    ("/api/sessions/s/preview", {"event": {"type": "Entered"}}),
    ("/api/sessions/s/preview", {"event": {"type": "UserSent", "id": 3}}),
    ("/api/sessions/s/preview", {"event": {"type": "UserSent", "id": "i", "text": {}}}),
    ("/api/sessions/s/fork", {"instead": {"type": "UserSteered", "id": "i", "text": None}}),
]


async def test_what_is_malformed_is_refused_and_changes_nothing() -> None:
    async with serving(scripted(PAY, partial=True)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        before = await server.get("/api/sessions/s")
        for path, body in MALFORMED:
            refused = await server.post(path.format(q=asked["id"]), body, 422)
            assert (refused["status"], refused["type"]) == (422, "about:blank"), path
            assert refused["detail"]
        for query in ("limit=0", "limit=x", "cursor=-1", "limit=1000000000000000000000"):
            await server.get(f"/api/sessions?{query}", 422)
        for query, says in (
            ("state=streming", "state cannot be 'streming'; did you mean 'streaming'? there are: new, "),
            ("children=maybe", "children cannot be 'maybe'; there are: yes, no"),
            ("bogus=1", "unknown parameter 'bogus'; there are: state, q, children, limit, cursor"),
        ):
            assert says in (await server.get(f"/api/sessions?{query}", 422))["detail"]
        assert await server.get("/api/sessions/s") == before


@pytest.mark.parametrize(
    ("event", "says"),
    [
        (
            {"type": "UserSent", "id": "i", "txt": "Hi"},
            "is no UserSent: unknown field 'txt'; did you mean 'text'?",
        ),
        ({"type": "UserSent", "id": "i"}, "is no UserSent: it lacks the field 'text'"),
        ({"type": "UserSent", "id": "i", "text": 7}, "is no UserSent: text is of another type"),
        ({"type": "UserSent", "id": "i", "text": "Hi", "at": "x"}, "is no UserSent: at is of another type"),
        (
            {"type": "ApprovalGiven", "request": "r", "decision": {"type": "Maybe"}},
            "is no ApprovalGiven: decision is of another type",
        ),
    ],
)
async def test_a_malformed_event_is_told_which_field_is_wrong(event: Any, says: str) -> None:
    async with serving(scripted()) as server:
        await server.post("/api/sessions", {"id": "s"}, 201)
        for path, body in (("preview", {"event": event}), ("fork", {"instead": event})):
            assert says in (await server.post(f"/api/sessions/s/{path}", body, 422))["detail"]


async def test_arguments_that_cannot_run_are_refused_with_the_reason() -> None:
    rules = [Rule(verdict="deny", tool="pay", where=(("amount", "9"),))]
    async with serving(scripted(PAY, says("Paid."), rules=rules)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        for arguments, why in (
            ({"amount": 1, "numbr": 7}, "numbr is not a parameter (there are: amount)"),
            ({"amount": 9}, "denied by the rule 'deny pay:amount=9'"),
        ):
            answer = {"decision": "approve", "arguments": arguments}
            refused = await server.post(f"/api/sessions/s/questions/{asked['id']}", answer, 422)
            assert refused["detail"] == f"invalid arguments for 'pay': {why}; the question stays open"
            assert await server.question("s") == asked
        answer = {"decision": "approve", "arguments": {"amount": 7}}
        await server.post(f"/api/sessions/s/questions/{asked['id']}", answer)
        assert (await server.done("s"))["reason"] == "end_turn"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/api/sessions/none", None, 404),
        ("POST", "/api/sessions/none/messages", {"text": "Hi"}, 404),
        ("POST", "/api/sessions/none/resume", None, 404),
        ("DELETE", "/api/sessions/none", None, 404),
        ("POST", "/api/sessions", {"agent": "none"}, 404),
        ("POST", "/api/sessions/s/questions/none", {"decision": "approve"}, 404),
        ("POST", "/api/sessions/s/calls/none/cancel", None, 404),
        ("POST", "/api/sessions/s/branch", {"run": "none"}, 404),
        ("GET", "/api/sessions/s/steps/99", None, 404),
        ("GET", "/api/sessions/s/steps/%D9%A1", None, 404),
        ("GET", "/nothing", None, 404),
        ("PUT", "/api/sessions", None, 405),
        ("POST", "/api/sessions/s/control", {"model": "none"}, 404),
        ("POST", "/api/sessions/s/fork", {"at": 10_000}, 409),
        ("POST", "/api/sessions/s/preview", {"event": {"type": "Interrupted"}}, 409),
    ],
)
async def test_what_is_not_there_or_over_is_refused(
    method: str, path: str, body: object, status: int
) -> None:
    async with serving(scripted(says("Hi."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Hi"}, 201)
        await server.done("s")
        refused = await server.ask(method, path, body, status)
        assert refused["status"] == status


async def test_a_call_is_cancelled_once() -> None:
    async with serving(scripted(PAY, says("Fine."), partial=True)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        cancel = f"/api/sessions/s/calls/{asked['call']}/cancel"
        await server.post(cancel, None, 202)
        await server.done("s")
        await server.post(cancel, None, 409)


async def test_a_prompt_that_waits_is_taken_back_once() -> None:
    async with serving(scripted(PAY, says("Fine."), partial=True)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        for name in ("a/b?c", "later", "last"):
            await server.post("/api/sessions/s/messages", {"text": name, "mode": "queue", "id": name}, 202)
        await server.ask("DELETE", f"/api/sessions/s/queue/{quote('a/b?c', safe='')}", None, 200)
        # An address with it would be that of the session, which would be deleted.
        await server.post("/api/sessions/s/messages", {"text": "up", "id": ".."}, 422)
        left = await server.ask("DELETE", "/api/sessions/s/queue/later", None, 200)
        assert [mail["id"] for mail in left["queue"]] == ["last"]
        refused = await server.ask("DELETE", "/api/sessions/s/queue/later", None, 409)
        assert "read or taken back; waiting: 'last'" in refused["detail"]
        await server.ask("DELETE", "/api/sessions/s/queue/other", None, 404)
        await server.ask("DELETE", "/api/sessions/s/queue/last", None, 200)
        await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        await server.done("s")
        messages = (await server.get("/api/sessions/s/export"))["messages"]
        said = [each["parts"] for each in messages if each["role"] == "user"]
        assert [part["text"] for parts in said for part in parts] == ["Pay"]


async def test_steps_are_numbered_and_show_the_memory_and_the_picture() -> None:
    async with serving(scripted(calls(("look", {})), says("Seen."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Look"}, 201)
        await server.done("s")
        at = "/api/sessions/s/steps"
        steps = (await server.get(at))["items"]
        assert [step["number"] for step in steps] == [*range(len(steps))]
        assert [step["state"] for step in steps[:-1]] == [step["before"] for step in steps[1:]]
        assert steps[0]["event"]["text"] == "Look"
        assert steps[-1]["state"] == "done"
        part = await server.get(f"{at}?from=2&limit=2")
        assert (part["items"], part["next"]) == (steps[2:4], 4)
        assert (await server.get(f"{at}?cursor=4&limit=2"))["items"] == steps[4:6]
        described = (await server.get("/openapi.json"))["paths"]["/api/sessions/{id}/steps"]["get"]
        assert {each["name"] for each in described["parameters"]} == {"id", "from", "limit", "cursor"}
        last = await server.get(f"{at}/{len(steps) - 1}")
        assert last["history"][-1]["parts"][0]["text"] == "Seen."
        assert last["memory"]["spent"]["turns"] == 2
        picture = await server.get(f"{at}/{len(steps) - 1}/diagram.svg")
        assert "<title>The machine, at done</title>" in picture


async def test_every_move_can_be_previewed_and_changes_nothing() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        before = await server.get("/api/sessions/s/steps")
        found = (await server.get("/api/sessions/s/moves"))["items"]
        titles = [move["title"] for move in found]
        assert titles[:3] == ["approve pay", "always pay", "deny pay"]
        seen = {
            move["title"]: await server.post("/api/sessions/s/preview", {"event": move["event"]})
            for move in found
        }
        assert "RunTool" in [effect["type"] for effect in seen["approve pay"]["effects"]]
        assert seen["interrupt"]["state"] == "done"
        assert await server.get("/api/sessions/s/steps") == before
        await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        await server.done("s")
        (prompt,) = (await server.get("/api/sessions/s/moves"))["items"]
        after = await server.post("/api/sessions/s/preview", {"event": prompt["event"]})
        assert after["state"] == "streaming"


async def test_a_fork_goes_on_in_another_way() -> None:
    async with serving(scripted(PAY, says("Paid."), says("Kept."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        await server.done("s")
        steps = (await server.get("/api/sessions/s/steps"))["items"]
        at = next(step["number"] for step in steps if step["event"]["type"] == "ApprovalGiven")
        no = {"type": "Deny", "message": "Keep it"}
        made = await server.post("/api/sessions/s/fork", {"at": at, "instead": no}, 201)
        assert made["parent"] == "s"
        await server.post(f"/api/sessions/{made['id']}/resume", None, 202)
        await server.done(made["id"])
        assert "Kept." in str((await server.get(f"/api/sessions/{made['id']}/export"))["messages"])


async def test_lists_are_filtered_and_come_in_parts() -> None:
    async with serving(scripted(PAY, says("A."), says("B."), partial=True)) as server:
        for name in ("one", "two", "three"):
            await server.post("/api/sessions", {"id": name, "prompt": f"Do {name}"}, 201)
            await server.until(name, lambda found: found["state"] in {"confirming", "done"})
        await server.post("/api/sessions", {"id": "idle"}, 201)

        async def ids(query: str) -> list[str]:
            return [item["id"] for item in (await server.get(f"/api/sessions?{query}"))["items"]]

        assert await ids("") == ["idle", "three", "two", "one"]
        assert await ids("state=done") == ["three", "two"]
        assert await ids("state=confirming") == ["one"]
        assert await ids("state=new") == ["idle"]
        assert await ids("q=DO%20t") == ["three", "two"]
        first = await server.get("/api/sessions?limit=3")
        assert await ids(f"limit=3&cursor={first['next']}") == ["one"]
        (asked,) = (await server.get("/api/sessions?state=confirming"))["items"]
        assert asked["questions"][0]["tool"] == "pay"
        await server.ask("DELETE", "/api/sessions/two", None, 204)
        assert await ids("state=done") == ["three"]


async def test_two_servers_on_one_store_behave() -> None:
    store = MemoryStore()
    async with serving(scripted(PAY, says("Paid.")), store) as one, serving(scripted(), store) as other:
        await one.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await other.question("s")
        # The first server has the run, and reads the answer in the journal.
        await other.post("/api/sessions/s/resume", None, 409)
        await other.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "approve"})
        over = await other.done("s")
        assert over["spend"]["turns"] == 2


@pytest.mark.parametrize("begins", ["here", "there"])
@pytest.mark.parametrize("rests", [False, True])
async def test_a_session_of_the_name_of_one_that_another_server_deleted_is_another_one(
    begins: str, *, rests: bool
) -> None:
    store = MemoryStore()
    agent = scripted(PAY if rests else says("Well."), says("Hi."))
    async with serving(agent, store) as here, serving(scripted(), store) as there:
        await here.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        await (here.question("s") if rests else here.done("s"))
        await there.ask("DELETE", "/api/sessions/s", None, 204)
        await here.get("/api/sessions/s", 404)
        await (here if begins == "here" else there).post("/api/sessions", {"id": "s"}, 201)
        await here.ask("HEAD", "/api/sessions/s/events", None, 200)
        await here.post("/api/sessions/s/messages", {"text": "Hello"}, 202)
        assert (await here.done("s"))["spend"]["turns"] == 1
        assert "Pay" not in str(await here.get("/api/sessions/s/export"))


async def test_a_server_that_drains_leaves_runs_that_the_next_one_takes_up() -> None:
    store = MemoryStore()
    async with serving(scripted(stalls("Half")), store) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        await server.until("s", lambda found: found["state"] == "streaming")
        await server.server.drain(0.01)
        await server.get("/readyz", 503)
        await server.post("/api/sessions", {"id": "t", "prompt": "Go"}, 503)
    async with serving(scripted(says("Whole.")), store) as server:
        assert (await server.done("s"))["reason"] == "end_turn"


async def test_what_is_left_open_is_bounded() -> None:
    agent = scripted(PAY, PAY, PAY, *[says("Paid.")] * 3)
    async with serving(agent, limits=ServerLimits(kept=1)) as server:
        for name in ("a", "b", "c"):
            await server.post("/api/sessions", {"id": name, "prompt": "Pay"}, 201)
            await server.question(name)
        await server.get("/api/sessions/a")
        assert server.server.opens.count == 1
        # A run that rests is rows in the store, and its answer opens it again.
        for name in ("a", "b", "c"):
            asked = await server.question(name)
            await server.post(f"/api/sessions/{name}/questions/{asked['id']}", {"decision": "approve"})
            await server.done(name)


async def test_the_document_has_every_operation() -> None:
    async with serving(scripted()) as server:
        document = await server.get("/openapi.json")
        assert "/api/sessions/{id}/questions/{question}" in document["paths"]
        assert all(each["summary"] for path in document["paths"].values() for each in path.values())
        assert document["servers"] == [{"url": "/"}]
        begun = document["paths"]["/api/sessions"]["post"]["responses"]["201"]["links"]
        known = {"id": "$response.body#/id"}
        assert begun["interrupt"] == {"operationId": "interrupt", "parameters": known}
        assert begun["step"] == {"operationId": "step", "parameters": {**known, "number": "0"}}
        resumed = document["paths"]["/api/agents/{agent}/ui-messages/{id}/stream"]["get"]["responses"]
        assert {*resumed} == {"200", "204", "403", "404", "429", "503", "default"}
        assert "turnwheel_sessions_open 0.0" in await server.get("/metrics")
        assert await server.get("/healthz") == await server.get("/readyz") == {"status": "ok"}


async def test_a_question_of_a_child_is_answered_at_the_child_or_at_its_parent() -> None:
    task = calls(("run_agent", {"agent": "helper", "prompt": "pay it"}))
    agent = scripted(
        task, PAY, says("Paid."), says("Done."), children=[ChildSpec(name="helper", tools=("pay",))]
    )
    token = {"Authorization": "Bearer secret"}
    async with serving(agent, headers=token, tokens={"secret": "ann"}) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        asked = await server.question("s")
        child = asked["session"]
        assert (asked["agent"], (await server.get(f"/api/sessions/{child}"))["parent"]) == ("helper", "s")
        there = {each["id"] for each in (await server.get("/api/sessions"))["items"]}
        without = {each["id"] for each in (await server.get("/api/sessions?children=no"))["items"]}
        assert (there, without) == ({"s", child}, {"s"})
        await server.post(f"/api/sessions/{child}/questions/{asked['id']}", {"decision": "approve"})
        await server.done("s")
        refused = await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "deny"}, 409)
        assert "answered by ann" in refused["detail"]


async def test_a_question_is_answered_where_it_is_asked_or_above() -> None:
    both = calls(("run_agent", {"agent": "helper", "prompt": "pay it"}), ("pay", {"amount": 5}))
    at_once = Policy(concurrency=Concurrency.PARALLEL)
    agent = scripted(both, PAY, children=[ChildSpec(name="helper", tools=("pay",))], policy=at_once)
    async with serving(agent) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        found = await server.until("s", lambda found: len(found["questions"]) == 2)
        of = {question["session"]: question["id"] for question in found["questions"]}
        (child,) = of.keys() - {"s"}
        await server.post(f"/api/sessions/{child}/questions/{of['s']}", {"decision": "approve"}, 404)
        await server.post(f"/api/sessions/s/questions/{of[child]}", {"decision": "approve"})


class Deaf(StoreOver):
    """Keeps no more entries of children while its *ears* are shut."""

    def __init__(self) -> None:
        super().__init__()
        self.ears = asyncio.Event()
        self.ears.set()

    async def append(self, session: str, *rest: Any, **named: Any) -> str:
        if "." in session:
            await self.ears.wait()
        return await super().append(session, *rest, **named)


@pytest.mark.parametrize("at_parent", [False, True])
async def test_a_child_that_is_being_stopped_takes_no_answer(*, at_parent: bool) -> None:
    task = calls(("run_agent", {"agent": "helper", "prompt": "pay it"}))
    agent, store = scripted(task, PAY, children=[ChildSpec(name="helper", tools=("pay",))]), Deaf()
    async with serving(agent, store) as server, serving(scripted(), store.kept) as other:
        await server.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        asked = await other.question("s")
        store.ears.clear()
        await server.post("/api/sessions/s/interrupt", None, 202)
        await other.until("s", lambda found: found["state"] == "dispatching.stopping")
        at = "s" if at_parent else asked["session"]
        question = f"/api/sessions/{at}/questions/{asked['id']}"
        refused = await other.post(question, {"decision": "approve"}, 409)
        store.ears.set()
        assert "an interrupt came before and closes it" in refused["detail"]
        assert (await server.done("s"))["reason"] == "interrupted"
        refused = await other.post(question, {"decision": "approve"}, 409)
        assert "was withdrawn by an interrupt" in refused["detail"]


class PagesHeldBack(StoreOver):
    """A store of which lists have no page behind the first before *more* is set."""

    def __init__(self, kept: Store) -> None:
        super().__init__(kept)
        self.more = asyncio.Event()

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        if after is not None:
            await self.more.wait()
        return await super().list(limit, after, prefix)


async def test_a_server_answers_before_it_has_looked_at_all_sessions() -> None:
    store = MemoryStore()
    async with scripted(stalls("Well")).session("left", store) as session:
        session.start("Pay")
        while not session.running:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0)
    about = encode(SessionSummary(state=SessionStatus.IDLE), SessionSummary)
    for number in range(5_000):
        await store.append(f"s{number}", 0, (b"{}",), about)
    held: Any = PagesHeldBack(store)
    async with serving(scripted(says("Paid.")), held) as server:
        assert (await server.get("/readyz"))["resuming"]
        assert (await server.get("/api/sessions?limit=1"))["items"][0]["id"] == "s4999"
        await server.post("/api/sessions", {"id": "new"}, 201)
        assert (await server.get("/api/sessions/left"))["state"] != "done"
        held.more.set()
        assert (await server.done("left"))["reason"] == "end_turn"
        async with asyncio.timeout(PATIENCE):
            while await server.get("/readyz") != {"status": "ok"}:  # noqa: ASYNC110  # as an operator would
                await asyncio.sleep(0)
    # One that ends meanwhile looks no further.
    held.more.clear()
    async with asyncio.timeout(PATIENCE), serving(scripted(), held) as server:
        await server.get("/readyz")


@pytest.mark.parametrize("asked", ["here", "there"])
async def test_a_session_at_work_is_deleted_only_where_that_is_meant(asked: str) -> None:
    store = MemoryStore()
    async with serving(scripted(stalls("Well")), store) as here, serving(scripted(), store) as there:
        await here.post("/api/sessions", {"id": "s", "prompt": "Go"}, 201)
        await here.until("s", lambda found: found["state"] == "streaming")
        server = here if asked == "here" else there
        refused = await server.ask("DELETE", "/api/sessions/s", None, 409)
        assert "session 's' is at work in " in refused["detail"]
        assert "?unfinished=yes" in refused["detail"]
        await server.ask("DELETE", "/api/sessions/s?unfinished=maybe", None, 422)
        await server.ask("DELETE", "/api/sessions/s?unfinished=yes", None, 204)
        await server.get("/api/sessions/s", 404)


async def test_another_message_with_the_id_of_one_is_refused() -> None:
    async with serving(scripted(says("One."), says("Two."))) as server:
        await server.post("/api/sessions", {"id": "s"}, 201)
        for mode in ("queue", "steer"):
            message = {"text": f"By {mode}", "id": mode, "mode": mode, "files": [FILE]}
            for _ in range(2):
                assert await server.post("/api/sessions/s/messages", message, 202) == {"id": mode}
            others: tuple[dict[str, Any], ...] = ({"text": "Other"}, {"files": []})
            for other in others:
                refused = await server.post("/api/sessions/s/messages", {**message, **other}, 409)
                assert f"another input was sent with the id '{mode}'" in refused["detail"]
        await server.until("s", lambda found: found["spend"]["turns"] == 2)
