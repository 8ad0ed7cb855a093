"""An answer while it comes, and one that does not come to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turnwheel import DoneReason, Retries
from turnwheel.effects.events import Failure, ModelFinished
from turnwheel.effects.messages import Reasoning, StopReason
from turnwheel.effects.notices import (
    AnswerDropped,
    ModelCalled,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    TurnEnded,
)
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from turnwheel.effects.requests import CallModel
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


@pytest.mark.behaviour("text-as-it-arrives")
async def test_each_word_is_seen_when_it_comes_and_the_message_is_all_of_them(stage: Stage) -> None:
    """Here the answer only ends once its first word was seen."""
    stage.held = (1,)
    session = stage.session(says("one two three"))

    async def seen(_: TextDelta) -> None:
        stage.release()

    result = await stage.play(session, on={TextDelta: seen})

    assert [notice.text for notice in stage.seen(TextDelta)] == ["one ", "two ", "three"]
    assert stage.order(ModelCalled, TextDelta, TurnEnded) == ["ModelCalled", *["TextDelta"] * 3, "TurnEnded"]
    assert result.text == "one two three"
    assert stage.said(session) == ["user: go", "assistant: one two three"]


PIECES: tuple[Piece, ...] = (
    ReasoningPiece("let me "),
    ReasoningPiece("see", "proof"),
    TextPiece("I will "),
    TextPiece("look."),
    CallPiece(0, "w0", "look", '{"at"'),
    CallPiece(0, arguments=': "a"}'),
)


@pytest.mark.behaviour("text-as-it-arrives")
async def test_an_answer_in_one_piece_is_the_same_conversation(stage: Stage) -> None:
    """How a provider cuts its answer does not matter."""

    async def at_once(request: CallModel, scene: PerformContext) -> ModelFinished:
        pieces = PIECES if len(scene.history) == 1 else (TextPiece("done"),)
        stop = StopReason.TOOL_USE if len(scene.history) == 1 else StopReason.END_TURN
        usage = Usage(input=10, output=5)
        return ModelFinished(at=scene.clock.now(), request=request.id, stop=stop, usage=usage, pieces=pieces)

    streamed = stage.session(Reply(pieces=PIECES, stop=StopReason.TOOL_USE), says("done"), store=None)
    whole = stage.session(performers={CallModel: at_once}, store=None)
    first, second = await streamed.run("go"), await whole.run("go")

    assert stage.said(streamed) == stage.said(whole)
    assert [message.parts[:2] for message in streamed.history if message.text] == [
        message.parts[:2] for message in whole.history if message.text
    ]
    assert (first.text, first.spent) == (second.text, second.spent)


@pytest.mark.behaviour("thinking-goes-back-as-it-came")
async def test_thinking_is_seen_kept_with_its_proof_and_sent_back(stage: Stage) -> None:
    """Providers refuse a tool loop whose thinking was changed."""
    session = stage.session(Reply(pieces=PIECES, stop=StopReason.TOOL_USE), says("done"))
    await stage.play(session)

    assert [notice.text for notice in stage.seen(ReasoningDelta)] == ["let me ", "see"]
    sent = [part for part in stage.model.seen[1][1].parts if isinstance(part, Reasoning)]
    assert sent == [Reasoning(text="let me see", signature="proof")]
    assert "let me see" not in session.result().text


@pytest.mark.behaviour("thinking-goes-back-as-it-came")
async def test_thinking_that_the_provider_hides_goes_back_too(stage: Stage) -> None:
    """It is the provider's own, and wanted back whole."""
    pieces = (ReasoningPiece(redacted="sealed"), CallPiece(0, "w0", "look", "{}"))
    await stage.session(Reply(pieces=pieces, stop=StopReason.TOOL_USE), says("done")).run("go")

    sent = [part for part in stage.model.seen[1][1].parts if isinstance(part, Reasoning)]
    assert [part.redacted for part in sent] == ["sealed"]


@pytest.mark.behaviour("a-failed-answer-leaves-nothing")
async def test_an_answer_that_breaks_off_is_void_and_not_asked_for_again(stage: Stage) -> None:
    """Words that were seen cannot be taken back, and a second answer would be another one."""
    wish = CallPiece(0, "w0", "pay", "{}")
    broken = Reply(pieces=(TextPiece("I will pay"), wish), failure=Failure.CUT)
    session = stage.session(broken, says("never"), rules=[])
    result = await stage.play(session)

    assert (result.reason, result.text, stage.asked) == (DoneReason.ERROR, "", 1)
    assert result.detail.startswith("cut: ")
    assert stage.order(TextDelta, AnswerDropped, TurnEnded) == ["TextDelta", "AnswerDropped"]
    assert (stage.said(session), stage.ran) == (["user: go"], [])


@pytest.mark.behaviour("tried-again-when-it-may-help")
@pytest.mark.parametrize(
    ("failure", "waits"),
    [
        (Failure.RATE_LIMIT, [2, 4, 8, 16, 32, 64, 128, 256]),
        (Failure.OVERLOADED, [2, 4, 8, 16, 32, 64, 128, 256]),
        (Failure.SERVER, [2, 4, 8]),
        (Failure.TIMEOUT, [2, 4, 8]),
        (Failure.CONNECTION, [2, 4, 8]),
        (Failure.AUTH, []),
        (Failure.NOT_FOUND, []),
        (Failure.BAD_REQUEST, []),
    ],
)
async def test_a_call_that_failed_is_made_again_after_longer_and_longer_waits(
    stage: Stage, failure: Failure, waits: list[int]
) -> None:
    """As often as its kind of failure deserves, and the last failure ends the run."""
    session = stage.session(*[fails(failure)] * 12)
    result = await stage.play(session)

    assert (stage.clock.slept, stage.asked) == (waits, len(waits) + 1)
    assert (result.reason, result.spent.turns) == (DoneReason.ERROR, 0)
    assert [notice.attempt for notice in stage.seen(ModelCalled)] == [*range(1, len(waits) + 2)]
    assert [notice.failure for notice in stage.seen(RetryScheduled)] == [failure] * len(waits)


@pytest.mark.behaviour("tried-again-when-it-may-help")
async def test_the_last_try_may_be_the_one_that_works(stage: Stage) -> None:
    """Each further call of the model begins to count anew."""
    busy = [fails(Failure.SERVER)] * 3
    result = await stage.session(*busy, calls(("look", {})), *busy, says("done")).run("go")
    assert (result.text, stage.clock.slept) == ("done", [2, 4, 8] * 2)


@pytest.mark.behaviour("tried-again-when-it-may-help")
@pytest.mark.parametrize(
    ("asked", "longest", "slept"),
    [(7.5, 60.0, [7.5]), (0.0, 60.0, []), (61.0, 60.0, None), (61.0, None, [61.0])],
)
async def test_a_wait_that_the_provider_asks_for_holds_unless_it_is_too_long(
    stage: Stage, asked: float, longest: float | None, slept: list[float] | None
) -> None:
    """Then the run ends and says why, at once."""
    script = (fails(Failure.RATE_LIMIT, retry_after=asked), says("done"))
    result = await stage.session(*script, retries=Retries(longest=longest)).run("go")

    assert stage.clock.slept == (slept or [])
    assert result.reason is (DoneReason.ERROR if slept is None else DoneReason.END_TURN)


@pytest.mark.behaviour("an-empty-answer-is-a-turn")
@pytest.mark.parametrize("pieces", [(), (TextPiece(""),), (ReasoningPiece("hm"),)])
async def test_an_answer_that_says_nothing_ends_the_run_and_is_not_kept(
    stage: Stage, pieces: tuple[Piece, ...]
) -> None:
    """No provider takes an empty message back; it was paid for all the same."""
    session = stage.session(Reply(pieces=pieces), says("now"))
    result = await session.run("go")
    assert (result.reason, result.text, result.spent.turns) == (DoneReason.END_TURN, "", 1)
    assert result.spent.usage.total == 15

    await session.run("well?")
    assert stage.shown(2) == ["user: go", "user: well?"]
