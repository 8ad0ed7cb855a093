"""A run whose provider pauses an answer in the middle of work with its own tools: what goes out again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import httpx
import pytest
from attrs import evolve

from turnwheel import Agent, Limits, ModelSpec, Policy
from turnwheel.effects.config import Steering
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import ProviderCalled, TurnEnded
from turnwheel.effects.records import SetModel
from turnwheel.effects.requests import CallModel
from turnwheel.performers import AnthropicMessages, Models, OpenAIChat, OpenAIResponses
from turnwheel.testing.wire_rules import chat_faults, messages_faults, responses_faults

Block = dict[str, Any]

CLAUDE = ModelSpec(
    "anthropic:claude-sonnet-4-5", provider_tools=({"type": "web_search_20250305", "name": "web_search"},)
)
THOUGHT: Block = {"type": "thinking", "thinking": "Let me search.", "signature": "s1"}
TEXT: Block = {"type": "text", "text": "I search. "}
SEARCH: Block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "a"}}
FOUND: Block = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u1"}]}
SECOND: Block = SEARCH | {"id": "srvtoolu_2", "input": {"query": "b"}}
FOUND_TOO: Block = FOUND | {"tool_use_id": "srvtoolu_2", "content": [{"url": "u2"}]}
SO: Block = {"type": "text", "text": "So it is."}
PAUSED = THOUGHT, TEXT, SEARCH, FOUND, SECOND


def answer(*blocks: Block, stop: str = "end_turn") -> httpx.Response:
    """An answer of Anthropic's in one piece, which is read as a stream is."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {"type": "message", "id": "m", "content": blocks, "stop_reason": stop, "usage": usage}
    return httpx.Response(200, text=json.dumps(message))


@final
class Server:
    """Gives *answers* one after the other, and keeps the requests."""

    def __init__(self, *answers: httpx.Response | Callable[[], Any]) -> None:
        self.answers = [*answers]
        self.bodies: list[bytes] = []

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        given = self.answers.pop(0)
        return given if isinstance(given, httpx.Response) else await given()

    def messages(self, number: int) -> list[Block]:
        """The messages of request *number*, without the marks up to which the provider shall cache."""
        assert messages_faults(self.bodies[number]) == []
        said: list[Block] = json.loads(self.bodies[number])["messages"]
        for block in (block for message in said for block in message["content"]):
            block.pop("cache_control", None)
        return said


def agent_of(server: Server, **settings: Any) -> Agent:
    transport = httpx.MockTransport(server)
    settings.setdefault("model", CLAUDE)
    return Agent(api_key="k", client=httpx.AsyncClient(transport=transport), **settings)


def user(text: str) -> Block:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def model(*blocks: Block) -> Block:
    return {"role": "assistant", "content": [*blocks]}


async def test_a_paused_answer_is_sent_as_it_came_and_goes_on() -> None:
    server = Server(answer(*PAUSED, stop="pause_turn"), answer(FOUND_TOO, SO), answer(SO))
    session = agent_of(server).session("s")
    notices = [notice async for notice in session.stream("Look")]
    result = session.result()
    assert (result.reason, result.text, result.spent.turns) == ("end_turn", "So it is.", 2)
    turns = [notice.stop for notice in notices if isinstance(notice, TurnEnded)]
    assert turns == [StopReason.PAUSED, StopReason.END_TURN]
    shown = [(one.id, one.arguments, one.status) for one in notices if isinstance(one, ProviderCalled)]
    assert shown == [
        ("srvtoolu_1", '{"query":"a"}', "completed"),
        ("srvtoolu_2", '{"query":"b"}', "incomplete"),
        ("srvtoolu_2", '{"query":"b"}', "completed"),
    ]
    assert server.messages(1) == [user("Look"), model(*PAUSED)]
    # Both halves are one turn of the model's from then on.
    await session.run("And?")
    assert server.messages(2) == [user("Look"), model(*PAUSED, FOUND_TOO, SO), user("And?")]


async def test_an_answer_may_pause_again() -> None:
    third = SEARCH | {"id": "srvtoolu_3"}
    found = FOUND | {"tool_use_id": "srvtoolu_3"}
    server = Server(
        answer(SEARCH, stop="pause_turn"),
        answer(FOUND, SECOND, stop="pause_turn"),
        answer(FOUND_TOO, third, found, TEXT, stop="pause_turn"),
        answer(SO),
    )
    assert (await agent_of(server).run("Look")).text == "So it is."
    assert server.messages(1) == [user("Look"), model(SEARCH)]
    assert server.messages(2) == [user("Look"), model(SEARCH, FOUND, SECOND)]
    assert server.messages(3) == [
        user("Look"),
        model(SEARCH, FOUND, SECOND, FOUND_TOO, third, found, TEXT),
    ]


@pytest.mark.parametrize("fallback", [None, "anthropic:claude-opus-4-1"])
async def test_an_answer_shows_no_search_that_only_the_one_before_made(fallback: str | None) -> None:
    """Whoever goes on without the result of the search did not search, be it the same model or another."""
    gone = {"type": "error", "error": {"type": "not_found_error", "message": "model gone"}}
    refused = [httpx.Response(404, json=gone)] if fallback else []
    server = Server(answer(SEARCH, stop="pause_turn"), *refused, answer(SO))
    session = agent_of(server, fallback=fallback).session("s")
    notices = [notice async for notice in session.stream("Look")]
    assert session.result().text == "So it is."
    shown = [(one.id, one.status) for one in notices if isinstance(one, ProviderCalled)]
    assert shown == [("srvtoolu_1", "incomplete")]
    messages = [one.message for one in notices if isinstance(one, TurnEnded)]
    assert [len(message.provider_calls) for message in messages] == [1, 0]


async def test_a_search_goes_on_over_a_pause_in_which_nothing_came() -> None:
    server = Server(answer(SEARCH, stop="pause_turn"), answer(stop="pause_turn"), answer(FOUND, SO))
    session = agent_of(server).session("s")
    notices = [notice async for notice in session.stream("Look")]
    shown = [(one.id, one.arguments, one.status) for one in notices if isinstance(one, ProviderCalled)]
    assert shown[-1] == ("srvtoolu_1", '{"query":"a"}', "completed")


async def test_an_unfinished_search_is_left_out_where_something_else_comes_behind_it() -> None:
    """One without a result is refused there: behind it a person spoke, or another model goes on."""
    gone = asyncio.Event()

    async def late() -> httpx.Response:
        await session.steer("Rather left", how=Steering.AFTER_TOOL)
        gone.set()
        return answer(*PAUSED, stop="pause_turn")

    server = Server(late, answer(SO))
    session = agent_of(server).session("s")
    await session.run("Look")
    assert gone.is_set()
    assert server.messages(1) == [
        user("Look"),
        model(THOUGHT, TEXT, SEARCH, FOUND),
        user("Rather left"),
    ]


@pytest.mark.parametrize("other", ["openai:gpt-5", "openai-responses:gpt-5", "anthropic:claude-opus-4-7"])
async def test_another_model_is_asked_to_continue(other: str) -> None:
    # The provider has no room for long, so the fallback goes on with what is there.
    busy = {"error": {"message": "busy"}}
    refused = httpx.Response(429, json=busy, headers={"retry-after": "600"})
    server = Server(answer(*PAUSED, stop="pause_turn"), refused, httpx.Response(400, json=busy))
    client = httpx.AsyncClient(transport=httpx.MockTransport(server))
    models = Models(
        wires={
            "openai": OpenAIChat(api_key="k", client=client),
            "openai-responses": OpenAIResponses(api_key="k", client=client),
            "anthropic": AnthropicMessages(api_key="k", client=client),
        }
    )
    async with Agent(model=CLAUDE, fallback=other, performers={CallModel: models}) as agent:
        await agent.session("s").run("Look")
    body = json.loads(server.bodies[2])
    said = body.get("messages") or body["input"]
    faults = {"openai": chat_faults, "openai-responses": responses_faults, "anthropic": messages_faults}
    assert faults[other.partition(":")[0]](server.bodies[2]) == []
    assert [message["role"] for message in said] == ["user", "assistant", "user"]
    assert "I search." in json.dumps(said[1])
    assert "srvtoolu" not in json.dumps(said)
    assert "Continue." in json.dumps(said[2])


async def test_a_model_that_takes_over_between_runs_sees_no_unfinished_search() -> None:
    server = Server(answer(SEARCH, stop="pause_turn"), answer(SO), answer(SO))
    session = agent_of(server, limits=Limits(turns=1)).session("s")
    assert (await session.run("Look")).reason == "max_turns"
    await session.run("And?")
    assert server.messages(1) == [
        {**user("Look"), "content": [*user("Look")["content"], *user("And?")["content"]]}
    ]
    await session.control(SetModel("anthropic:claude-opus-4-7"))
    await session.run("Well?")
    assert "srvtoolu" not in json.dumps(server.messages(2))


async def test_thinking_stays_as_it_was_when_the_answer_began() -> None:
    """The API takes thinking in the middle of a turn only where the turn began with it."""
    spec = evolve(CLAUDE, thinking=2_000)
    for blocks, thinks in (((THOUGHT, SEARCH), True), ((SEARCH,), False)):
        server = Server(answer(*blocks, stop="pause_turn"), answer(SO))
        await agent_of(server, model=spec).run("Look")
        first, second = map(json.loads, server.bodies)
        assert ("thinking" in first, "thinking" in second) == (True, thinks)


async def test_a_pause_without_anything_to_go_on_with_is_answered_in_words() -> None:
    """A server that speaks of a pause and shows no work of its own would refuse to go on with its words."""
    server = Server(answer(TEXT, stop="pause_turn"), answer(SO))
    assert (await agent_of(server).run("Look")).text == "So it is."
    assert server.messages(1) == [user("Look"), model(TEXT), user("Continue.")]


async def test_another_process_goes_on_with_a_paused_answer(tmp_path: Path) -> None:
    store, asked = tmp_path / "agent.db", asyncio.Event()

    async def never() -> httpx.Response:
        asked.set()
        return await asyncio.Future[httpx.Response]()

    server = Server(answer(*PAUSED, stop="pause_turn"), never)
    first = agent_of(server, store=store)
    handle = first.session("s").start("Look")
    await asked.wait()
    await first.aclose()
    assert (await handle.wait()).reason is None
    later = Server(answer(FOUND_TOO, SO))
    async with agent_of(later, store=store) as agent:
        result = await agent.session("s").resume()
    assert (result.reason, result.text) == ("end_turn", "So it is.")
    assert later.messages(0) == [user("Look"), model(*PAUSED)]


async def test_a_provider_that_pauses_for_ever_is_left() -> None:
    server = Server(*[answer(SEARCH, stop="pause_turn") for _ in range(9)])
    result = await agent_of(server, policy=Policy(pauses=2)).run("Look")
    assert (result.reason, result.detail) == ("error", "the provider paused its answer 3 times in a row")
    assert len(server.bodies) == 3
