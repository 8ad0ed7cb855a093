"""What people have a say in, on every road: hooks, approvals, steers, interrupts, another model."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turnwheel import (
    Approve,
    Deny,
    DoneReason,
    HookAnswer,
    HookCall,
    ModelSpec,
    Session,
    SetModel,
    SetThinking,
    SQLiteStore,
    hook,
    tool,
)
from turnwheel.effects.config import Steering
from turnwheel.effects.messages import Binary, Outcome
from turnwheel.effects.notices import AnswerDropped, CallSettled, ModelCalled, TextDelta

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True)]


@tool
def book(city: str) -> str:
    """Book a flight."""
    return f"booked a flight to {city}"


async def test_a_hook_that_rewrites_an_input_has_the_last_word(road: Road) -> None:
    """The tool gets what the hook made of the model's wish; the model reads what came of it."""

    @hook("pre_tool_use", tool="book")
    def nearer(about: HookCall) -> HookAnswer:
        return HookAnswer(arguments='{"city": "Oslo"}', verdict="allow", context=f"not {about.arguments}")

    road.play(
        {"toolCalls": [road.call("call_1", "book", city="Rome")]}, {"content": "You fly to Oslo, then."}
    )
    async with road.agent(tools=[book], hooks=[nearer], system="Be brief.") as agent:
        result = await agent.run("Book me a flight.")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "You fly to Oslo, then.")
    last = road.heard()[-1]
    assert road.said(last)[-1] == ("tool", "booked a flight to Oslo")
    assert "not {'city': 'Rome'}" in road.said(last)[0][1]


async def test_an_approval_rests_until_another_agent_takes_it_up(road: Road, tmp_path: Path) -> None:
    """The one that asked is gone; another one over the same file is told yes, runs the call and goes on."""
    asking, answering = [SQLiteStore(tmp_path / "sessions.db") for _ in range(2)]
    road.play(
        {
            "content": "I book both.",
            "toolCalls": [road.call(f"call_{n}", "book", city=f"City {n}") for n in (1, 2)],
        },
        {"content": "You fly."},
    )
    async with road.agent(tools=[book], store=asking) as agent, agent.session("trip") as session:
        resting = await session.run("Book me two flights.")
    await asking.close()
    assert (resting.reason, [question.tool for question in resting.waiting]) == (None, ["book"])
    assert len(road.heard()) == 1

    async with road.agent(tools=[book], store=answering) as other, other.session("trip") as session:
        await session.approve(session.waiting[0].id, Approve(arguments='{"city": "Rome"}'))
        again = await session.resume()
        await session.approve(again.waiting[0].id)
        result = await session.resume()
    await answering.close()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "You fly.")
    assert road.said(road.heard()[-1])[1:] == [
        ("assistant", "I book both."),
        ("tool", "booked a flight to Rome"),
        ("tool", "booked a flight to City 2"),
    ]


async def test_a_denied_call_does_not_run_and_the_model_is_told(road: Road) -> None:
    """The run rests on the question, takes the no, and the words of it are on the wire."""
    road.play({"toolCalls": [road.call("call_1", "book", city="Rome")]}, {"content": "Then you stay."})
    async with road.agent(tools=[book]) as agent, agent.session() as session:
        resting = await session.run("Book me a flight to Rome.")
        await session.approve(resting.waiting[0].id, Deny(message="too expensive"))
        result = await session.resume()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "Then you stay.")
    assert road.said(road.heard()[-1])[-1] == ("tool", "too expensive")


async def test_a_steer_skips_the_rest_and_is_read_next(road: Road) -> None:
    """Said while the first of three calls is at work; results and steer are one turn to the model."""
    talk: list[Session] = []

    @tool(side_effect="read_only")
    async def look(at: str) -> str:
        """Look at something."""
        await talk[0].steer("Never mind the rest. Just the sum.")
        return f"{at}: 3"

    road.play(
        {"toolCalls": [road.call(f"call_{name}", "look", at=name) for name in "abc"]}, {"content": "3."}
    )
    async with road.agent(tools=[look]) as agent, agent.session() as session:
        talk.append(session)
        await road.watch(session, "Add up a, b and c.")
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "3.")
    assert sorted(ended.outcome for ended in road.seen(CallSettled)) == [Outcome.OK, *[Outcome.SKIPPED] * 2]
    said = road.said(road.heard()[-1])
    assert said[0] == ("user", "Add up a, b and c.")
    assert ("user", "Never mind the rest. Just the sum.") in said[2:]
    assert [words.partition(":")[0] for role, words in said if role == "tool"] == ["a", "Skipped", "Skipped"]


async def test_a_steer_that_cannot_wait_cuts_an_answer_short(road: Road) -> None:
    """What was read of it stays, and the model goes on from there with what the person said."""
    road.play({"content": "word " * 600, "chunkSize": 5, "latency": 30}, {"content": "fine now"})
    async with road.agent() as agent, agent.session() as session:
        async with aclosing(session.stream("Say a lot.")) as notices:
            async for notice in notices:
                if isinstance(notice, TextDelta) and notice.text.startswith("word"):
                    await session.steer("Less.", Steering.NOW, id="only once")
        result = session.result()
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    asked, cut, steered = road.said(road.heard()[-1])
    assert (asked, steered) == (("user", "Say a lot."), ("user", "Less."))
    assert cut[0] == "assistant"
    assert 5 <= len(cut[1]) < 500


async def test_an_interrupt_stops_a_stream_and_keeps_what_was_read(road: Road) -> None:
    """The answer would take long; the run ends at once, and the model is shown what it had said."""
    road.play({"content": "word " * 600, "chunkSize": 5, "latency": 30}, {"content": "fine now"})
    async with road.agent() as agent, agent.session() as session:
        async with aclosing(session.stream("Say a lot.")) as notices:
            async for notice in notices:
                if isinstance(notice, TextDelta):
                    await session.interrupt()
        stopped = session.result()
        result = await session.run("Enough.")
    assert stopped.reason is DoneReason.INTERRUPTED
    assert 5 <= len(stopped.text) < 500
    assert stopped.text.startswith("word ")
    assert (result.reason, result.text) == (DoneReason.END_TURN, "fine now")
    assert [words.strip() for _, words in road.said(road.heard()[-1])] == [
        "Say a lot.",
        stopped.text.strip(),
        "Enough.",
    ]


async def test_an_interrupt_stops_a_tool_and_the_session_goes_on(road: Road) -> None:
    """The call was begun, so it has a result; the next run shows that to the model."""
    begun = asyncio.Event()

    @tool(side_effect="read_only", timeout=None)
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    road.play({"toolCalls": [road.call("call_1", "wait")]}, {"content": "fine now"})
    async with road.agent(tools=[wait]) as agent, agent.session() as session:
        run = asyncio.create_task(session.run("Wait."))
        await begun.wait()
        await session.interrupt()
        stopped = await run
        result = await session.run("Enough.")
    assert stopped.reason is DoneReason.INTERRUPTED
    assert result.text == "fine now"
    # The journal puts what a user says with results in front of them; how it was sent is judged on each road.
    said = road.said(road.heard()[-1])
    assert said[:2] == [("user", "Wait."), ("assistant", "")]
    assert sorted(said[2:]) == [("tool", "Cancelled"), ("user", "Enough.")]


# Another model in the middle of it

OTHER = {
    "chat": "anthropic:claude-sonnet-4-5",
    "messages": "openai:gpt-5-mini",
    "chat-to-chat": "anthropic:anth/claude-sonnet-4-5",
    "chat-to-messages": "anthropic:oai/gpt-5-mini",
    "messages-to-messages": "openai:oai/gpt-5-mini",
    "messages-to-chat": "openai:anth/claude-sonnet-4-5",
    "thinking-chat-to-messages": "anthropic:anth/claude-sonnet-4-5",
}
"""For each road a model on the other wire of the same server."""

PICTURE = Binary(media_type="image/png", data=b"no picture, but nobody looks", name="shot.png")


@pytest.mark.parametrize("road", OTHER, indirect=True)
async def test_a_model_on_the_other_wire_takes_over_and_gives_back(road: Road) -> None:
    """
    In the middle of a run and of a session: what was said on one wire is taken on the other.

    Thinking with its proof, calls whose ids come twice, and pictures from both sides.
    """
    talk: list[Session] = []
    # Not so the first model: aimock wants thinking in all turns, where Anthropic wants it in the last alone.
    other = ModelSpec(name=OTHER[road.name], thinking=2_048)

    @tool(side_effect="read_only")
    async def look(at: str) -> list[str | Binary]:
        """Look at something."""
        if at == "b":
            await talk[0].control(SetModel(model=other.name))
        return [f"{at}: 3", PICTURE]

    def looks(*names: str) -> Json:
        calls = [road.call(f"call_{number}", "look", at=name) for number, name in enumerate(names)]
        return {"reasoning": "Look.", "reasoningSignature": f"proof-{names[0]}", "toolCalls": calls}

    road.play(
        looks("a", "b"),
        looks("c", "d"),
        {"reasoning": "Sum.", "content": "It is 12.", "chunkSize": 3},
        looks("e"),
        {"reasoning": "Sum.", "content": "It is 15."},
    )
    settings: Json = {"models": [other], "tools": [look], "performers": road.both_wires()}
    async with road.agent(**settings) as agent, agent.session() as session:
        talk.append(session)
        await road.watch(session, "Add up what you see.", files=(PICTURE,))
        first = session.result()
        await session.control(SetModel(model=road.model))
        await road.watch(session, "And with e?")
        second = session.result()

    assert (first.reason, first.text) == (DoneReason.END_TURN, "It is 12.")
    assert (second.reason, second.text) == (DoneReason.END_TURN, "It is 15.")
    asked = [notice.model for notice in road.seen(ModelCalled)]
    assert asked == [road.model, other.name, other.name, road.model, road.model]
    assert road.seen(AnswerDropped) == []
    wires = [request.url.path.rpartition("/")[2] for request in road.sent]
    assert wires == [
        {"openai": "completions", "anthropic": "messages"}[one.partition(":")[0]] for one in asked
    ]
    last = road.said(road.heard()[-1])
    assert [words.partition("\n")[0] for role, words in last if role == "tool"] == [
        f"{at}: 3" for at in "abcde"
    ]
    assert [words for role, words in last if role == "assistant"] == ["", "", "It is 12.", ""]


@pytest.mark.parametrize("road", ["chat", "messages", "chat-to-chat", "messages-to-messages"], indirect=True)
async def test_how_much_to_think_can_be_changed_in_between(road: Road) -> None:
    """In tokens on the one wire, as a word on the other, and back to the provider's own way."""
    road.play(*[{"content": f"Answer {turn}."} for turn in range(3)])
    async with road.agent() as agent, agent.session() as session:
        for tokens in (2_048, 20_000, None):
            await session.control(SetThinking(tokens=tokens))
            await session.run("Think.")
    asked = road.asked()
    if road.wire == "openai":
        assert [request.get("reasoning_effort") for request in asked] == ["low", "high", None]
    else:
        assert [request.get("thinking", {}).get("budget_tokens") for request in asked] == [
            2_048,
            20_000,
            None,
        ]
