"""What is known to have gone wrong in other agents, each as a test that would fail on it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from behaviour.conftest import Stage

from turnwheel import Agent, ChildSpec, DoneReason, Limits, ModelSpec, PermissionMode, Policy, Price
from turnwheel.effects.errors import StoreError
from turnwheel.effects.notices import InterruptRequested, TextDelta, ToolOutput, ToolStarted, TurnEnded
from turnwheel.effects.usage import Usage
from turnwheel.engine.inspect.listing import listed
from turnwheel.testing.scripted import Reply, calls, says
from turnwheel.testing.stores import FaultyStore


@pytest.mark.behaviour("an-abort-replaces-a-natural-end")
@pytest.mark.parametrize("at", [TextDelta, TurnEnded])
async def test_an_abort_does_not_replace_a_natural_end(stage: Stage, at: type) -> None:
    session = stage.session(says("done"))

    async def stop(_: object) -> None:
        for _ in range(5):  # by now the answer is whole, whether that has been seen or not
            await asyncio.sleep(0)
        await session.interrupt()

    result = await stage.play(session, on={at: stop})
    assert (result.reason, result.text) == (DoneReason.END_TURN, "done")
    assert stage.seen(InterruptRequested) == []


@pytest.mark.behaviour("an-aborted-tool-runs-on")
async def test_an_aborted_tool_does_not_run_on(stage: Stage) -> None:
    before = asyncio.all_tasks()
    session = stage.session(calls(("build", {})))
    await stage.play(session, on={ToolOutput: lambda _: session.interrupt()})
    assert stage.ran == ["build", "build was stopped"]
    assert asyncio.all_tasks() == before


# Of runs and conversations that are long


# Of models that fail


# Of agents that work for an agent


def sends(prompt: str) -> Reply:
    return calls(("run_agent", {"agent": "scout", "prompt": prompt}))


@pytest.mark.behaviour("a-child-may-do-what-its-parent-may-not")
@pytest.mark.parametrize("mode", [mode for mode in PermissionMode if mode is not PermissionMode.BYPASS])
async def test_a_child_may_not_do_what_its_parent_may_not(stage: Stage, mode: PermissionMode) -> None:
    script = (sends("buy"), calls(("pay", {})), says("I may not"), says("done"))
    children = [ChildSpec(name="scout", tools=("pay",))]
    agent = stage.agent(*script, children=children, policy=Policy(mode=mode), store=None)
    await agent.run("go")
    assert stage.ran == []


@pytest.mark.behaviour("a-child-overspends-its-parent")
async def test_a_child_does_not_overspend_its_parent(stage: Stage) -> None:
    rounds = [calls(("look", {"at": str(number)}), usage=Usage(input=200)) for number in range(9)]
    children = [ChildSpec(name="scout", limits=Limits(tokens=10_000))]
    session = stage.session(sends("look"), *rounds, children=children, limits=Limits(tokens=1_000))
    result = await session.run("go")
    assert (result.reason, stage.asked) == (DoneReason.TOKEN_BUDGET, 6)
    assert result.spent.usage.total == 1_015  # the last request was larger than estimated


@pytest.mark.behaviour("children-of-one-id-are-one")
async def test_children_of_one_id_are_not_one(stage: Stage) -> None:
    script = (sends("one"), says("first"), says("so"), sends("two"), says("second"), says("and so"))
    session = stage.session(*script, children=[ChildSpec(name="scout")])
    await session.run("a")
    await session.run("b")
    assert [stage.shown(number) for number in (2, 5)] == [["user: one"], ["user: two"]]
    assert [call.wire_id for message in session.history for call in message.calls] == ["call_0"] * 2


# Of sessions


@pytest.mark.behaviour("a-title-is-a-session")
async def test_a_title_is_no_session_in_the_list(stage: Stage) -> None:
    session = stage.session(says("I will"), says("A roof"), titles="model")
    await session.run("the roof leaks")
    await stage.until(lambda: session.title)
    await session.close()
    assert [one.session for one in await listed(stage.store)] == ["s"]


# Of what stands around a run


@pytest.mark.behaviour("unanswerable-questions-are-a-yes")
async def test_what_no_person_can_be_asked_about_does_not_run(stage: Stage) -> None:
    agent = stage.agent(calls(("pay", {}), ("look", {})), says("well"), store=None)
    assert (await agent.run("go")).text == "well"
    assert stage.ran == []
    assert stage.shown(2)[-1].startswith("tool: Denied: no person can be asked.")


@pytest.mark.behaviour("a-store-that-fails-is-passed-over")
async def test_a_store_that_fails_is_not_passed_over(stage: Stage) -> None:
    store = FaultyStore()
    session = stage.session(calls(("look", {})), calls(("put", {})), says("done"), store=store)

    async def fill_the_disk(_: ToolStarted) -> None:
        store.works = False

    with pytest.raises(StoreError, match="no space left"):
        await stage.play(session, on={ToolStarted: fill_the_disk})
    assert (stage.ran, stage.asked) == (["look"], 1)
    store.works = True
    assert len(await store.load("s")) > 0


def chunks(*deltas: dict[str, Any], usage: dict[str, Any] | None = None) -> bytes:
    choices: list[dict[str, Any]] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices[-1]["finish_reason"] = "tool_calls" if "tool_calls" in deltas[-1] else "stop"
    events: list[dict[str, Any]] = [{"choices": [choice]} for choice in choices]
    events.append({"choices": [], "usage": usage or {"prompt_tokens": 10, "completion_tokens": 5}})
    return b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + b"data: [DONE]\n\n"


def provider(*answers: bytes) -> httpx.AsyncClient:
    """A client of a provider that gives *answers*, one after the other."""
    left = iter(answers)
    return httpx.AsyncClient(
        transport=httpx.MockTransport(
            lambda _: httpx.Response(
                200,
                headers={"content-type": "text/event-stream"},
                stream=httpx.ByteStream(next(left)),
            )
        )
    )


@pytest.mark.behaviour("arguments-that-come-in-bits-are-lost")
async def test_arguments_that_come_in_bits_are_not_lost(stage: Stage) -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    bits = [{"index": 0, "function": {"arguments": bit}} for bit in ('{"at"', ': "a', ' b"}')]
    deltas = [{"tool_calls": [one]} for one in (call, *bits)]
    async with provider(chunks(*deltas), chunks({"content": "done"})) as client:
        agent = Agent(model="openai:m", client=client, api_key="k", tools=stage.tools, clock=stage.clock)
        assert (await agent.run("go")).text == "done"
    assert stage.ran == ["look a b"]


@pytest.mark.behaviour("cached-tokens-are-taken-for-others")
async def test_cached_tokens_are_not_taken_for_others(stage: Stage) -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 80}}
    told = {"prompt_tokens": 100, "completion_tokens": 5, **details}
    price = Price(input=1, output=100, cached="0.1")
    async with provider(chunks({"content": "done"}, usage=told)) as client:
        model = ModelSpec(name="openai:m", price=price)
        result = await Agent(model=model, client=client, api_key="k", clock=stage.clock).run("go")
    assert result.spent.usage == Usage(input=100, output=5, cached=80)
    assert str(result.spent.cost) == "0.000528"
