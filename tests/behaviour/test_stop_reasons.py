"""What a model's answer leads to, by how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, ModelSpec, Policy
from turnwheel.effects.config import OnMaxTokens
from turnwheel.effects.events import Failure, ModelFinished
from turnwheel.effects.messages import StopReason
from turnwheel.effects.notices import (
    Compacted,
    CompactionFailed,
    CompactionStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

LOOK = CallPiece(0, "w0", "look", '{"at": "a"}')
CUT = CallPiece(1, "w1", "put", '{"value": "half a wo')
SMALL = ModelSpec(name="scripted", window=100)
FULL = Usage(input=85, output=10)
PROMPT = "Tell me all there is to know about it, please, from the very beginning to the end. " * 3


@pytest.mark.behaviour("each-stop-reason-has-its-way")
@pytest.mark.parametrize(
    ("stop", "reason", "warnings"),
    [
        (StopReason.END_TURN, DoneReason.END_TURN, 0),
        (StopReason.STOP_SEQUENCE, DoneReason.STOP_SEQUENCE, 0),
        (StopReason.MAX_TOKENS, DoneReason.MAX_TOKENS, 0),
        (StopReason.TOOL_USE, DoneReason.END_TURN, 0),
        (StopReason.REFUSAL, DoneReason.END_TURN, 1),
        (StopReason.UNKNOWN, DoneReason.END_TURN, 1),
    ],
)
async def test_an_answer_without_calls_ends_the_run_and_its_text_is_kept(
    stage: Stage, stop: StopReason, reason: DoneReason, warnings: int
) -> None:
    """Also one that claims to call tools and calls none; what is odd is said."""
    session = stage.session(says("so be it", stop=stop))
    result = await stage.play(session)

    assert (result.reason, result.text, stage.asked) == (reason, "so be it", 1)
    assert [notice.stop for notice in stage.seen(TurnEnded)] == [stop]
    assert len(stage.seen(Warned)) == warnings


@pytest.mark.behaviour("each-stop-reason-has-its-way")
async def test_the_stop_sequence_that_was_met_is_told(stage: Stage) -> None:
    """It is sent with each request's settings, and named when it was met."""

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
        assert scene.config.stop == ("END", "STOP")
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.STOP_SEQUENCE,
            usage=Usage(input=1, output=1),
            pieces=(TextPiece("so far"),),
            sequence="STOP",
        )

    session = stage.session(performers={CallModel: model}, stop=["END", "STOP"])
    result = await stage.play(session)
    assert (result.reason, result.text) == (DoneReason.STOP_SEQUENCE, "so far")
    assert [notice.sequence for notice in stage.seen(TurnEnded)] == ["STOP"]


@pytest.mark.behaviour("calls-win-over-the-stop-reason")
@pytest.mark.parametrize("stop", [StopReason.TOOL_USE, StopReason.END_TURN, StopReason.UNKNOWN])
async def test_whole_calls_run_whatever_the_model_says_its_answer_ended_with(
    stage: Stage, stop: StopReason
) -> None:
    """A conversation with calls that nobody answered is one that no provider takes."""
    session = stage.session(Reply(pieces=(LOOK,), stop=stop), says("done"))
    result = await session.run("go")
    assert (result.text, stage.ran) == ("done", ["look a"])


@pytest.mark.behaviour("cut-off-calls-never-run")
@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopReason.MAX_TOKENS, DoneReason.MAX_TOKENS),
        (StopReason.STOP_SEQUENCE, DoneReason.STOP_SEQUENCE),
        (StopReason.REFUSAL, DoneReason.END_TURN),
    ],
)
async def test_calls_of_an_answer_that_was_cut_off_do_not_run(
    stage: Stage, stop: StopReason, reason: DoneReason
) -> None:
    """A whole one gets a result that says so; half a one was never made, and somebody is told."""
    session = stage.session(Reply(pieces=(TextPiece("first"), LOOK, CUT), stop=stop), says("more"))
    result = await stage.play(session)

    assert (result.reason, stage.ran) == (reason, [])
    assert stage.outcomes(session) == ["look: skipped"]
    assert any("left out" in notice.text and "put" in notice.text for notice in stage.seen(Warned))
    await session.run("go on")
    assert stage.shown(2) == [
        "user: go",
        "assistant: first [look]",
        "tool: Not run: the answer ended before its calls could be trusted.",
        "user: go on",
    ]


@pytest.mark.behaviour("a-cut-off-answer-makes-room")
@pytest.mark.parametrize(
    ("policy", "usage", "goes_on"),
    [
        (OnMaxTokens.COMPACT_OVER_THRESHOLD, FULL, True),
        (OnMaxTokens.COMPACT_OVER_THRESHOLD, Usage(input=10, output=5), False),
        (OnMaxTokens.COMPACT, Usage(input=10, output=5), True),
        (OnMaxTokens.STOP, FULL, False),
    ],
)
async def test_after_an_answer_without_room_the_conversation_is_shortened_and_goes_on(
    stage: Stage, policy: OnMaxTokens, usage: Usage, *, goes_on: bool
) -> None:
    """By default where the context is nearly full; what the model got out stays, and it is asked for more."""
    cut = says("In the beginning", stop=StopReason.MAX_TOKENS, usage=usage)
    session = stage.session(cut, says("and the end."), model=SMALL, policy=Policy(on_max_tokens=policy))
    result = await stage.play(session, PROMPT)

    if goes_on:
        assert (result.reason, result.text) == (DoneReason.END_TURN, "and the end.")
        assert stage.order(TurnEnded, CompactionStarted, Compacted) == [
            *("TurnEnded", "CompactionStarted", "Compacted", "TurnEnded")
        ]
        assert stage.shown(3) == [
            "user: [Summary of the conversation so far]\nThey talked.",
            "assistant: In the beginning",
            "user: Continue where you left off.",
        ]
    else:
        assert (result.reason, result.text, stage.asked) == (DoneReason.MAX_TOKENS, "In the beginning", 1)


@pytest.mark.behaviour("a-cut-off-answer-makes-room")
async def test_half_a_call_is_gone_before_the_conversation_is_shortened(stage: Stage) -> None:
    """The loop goes on from a conversation in which each call has its result."""
    cut = Reply(pieces=(TextPiece("I will"), LOOK, CUT), stop=StopReason.MAX_TOKENS, usage=FULL)
    session = stage.session(cut, calls(("look", {"at": "b"})), says("done"), model=SMALL)
    result = await session.run(PROMPT)

    assert (result.text, stage.ran) == ("done", ["look b"])
    assert [line.partition(":")[0] for line in stage.shown(3)] == ["user", "assistant", "tool", "user"]
    assert stage.shown(3)[1] == "assistant: I will [look]"


@pytest.mark.behaviour("a-cut-off-answer-makes-room")
async def test_where_it_cannot_be_shortened_the_run_ends_and_says_why(stage: Stage) -> None:
    """What the model got out is still there."""
    cut = says("In the beginning", stop=StopReason.MAX_TOKENS, usage=FULL)
    session = stage.session(cut, model=SMALL, summary=" ")
    result = await stage.play(session, PROMPT)

    assert (result.reason, result.detail) == (DoneReason.MAX_TOKENS, "the summary was empty")
    assert [notice.reason for notice in stage.seen(CompactionFailed)] == ["the summary was empty"]
    assert stage.said(session)[1:] == ["assistant: In the beginning"]


@pytest.mark.behaviour("a-cut-off-answer-makes-room")
async def test_a_conversation_that_the_model_refuses_for_its_size_is_shortened_and_sent_again(
    stage: Stage,
) -> None:
    """Where that is not enough, and nothing more can be made smaller, the run ends."""
    session = stage.session(says("So."), *[fails(Failure.OVERFLOW)] * 2, model=SMALL)
    await session.run(PROMPT)
    result = await stage.play(session, "and then?")

    purposes = [request.purpose for request in stage.model.requests]
    assert purposes == [Purpose.TURN, Purpose.TURN, Purpose.SUMMARY, Purpose.TURN, Purpose.SUMMARY]
    assert (stage.shown(4)[0], stage.shown(4)[-1]) == (
        "user: [Summary of the conversation so far]\nThey talked.",
        "user: and then?",
    )
    assert result.reason is DoneReason.ERROR
    assert "larger than the model's window" in result.detail
