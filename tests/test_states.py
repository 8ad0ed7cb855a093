"""What a user relies on, told state by state."""

from __future__ import annotations

from decimal import Decimal

import pytest

from turnwheel.effects.config import Config, Limits, ModelSpec, Price
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    UserSent,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import (
    Finish,
    Message,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    user,
)
from turnwheel.effects.notices import (
    AnswerDropped,
    CallSettled,
    Ignored,
    InputBlocked,
    InputReceived,
    InterruptRequested,
    ReasoningDelta,
    RetryScheduled,
    RunEnded,
    RunStarted,
    TextDelta,
    TurnEnded,
    Warned,
)
from turnwheel.effects.pieces import CallPiece, ReasoningPiece, TextPiece
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    Conversation,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.machine import Machine, drive
from turnwheel.testing.harness import (
    TEST_MODEL,
    MachineHarness,
    call,
    config,
)


def by_hand(limits: Limits = Limits()) -> MachineHarness:  # noqa: B008  # a frozen value
    """A run that has begun, with a tool of each kind."""
    return MachineHarness(config(limits=limits))


# From the beginning to the end


def test_a_question_and_an_answer() -> None:
    """The shortest run: one request, one answer, one account."""
    run = by_hand()
    (request,) = run.got(CallModel)
    assert request.view == Conversation(revision=0, length=1)
    assert request.tools == ("look", "peek", "write", "edit", "note", "send", "hire")
    run.say("hi there")
    assert run.talk == [("user", "hello"), ("assistant", "hi there")]
    assert run.reason == "end_turn"
    assert [type(notice) for notice in run.told if isinstance(notice, RunStarted | RunEnded)] == [
        RunStarted,
        RunEnded,
    ]
    assert run.got(RunEnded)[0].spent == Spent(turns=1, usage=Usage(input=10, output=5), unpriced=15)


def test_a_tool_and_its_result() -> None:
    """A call runs, its result is read, and the run goes on with it."""
    run = by_hand()
    run.say("let me see", call(0, "look", path="a"))
    (request,) = run.got(RunTool)
    assert (request.tool, request.arguments, request.timeout) == ("look", '{"path": "a"}', 30.0)
    run.end("look", "it is there")
    assert [message.role for message in run.machine.memory.history] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert run.got(CallModel)[0].view.length == 3
    run.say("it is there")
    assert run.reason == "end_turn"


def test_a_prompt_in_the_middle_waits_for_the_next_run() -> None:
    """It is acknowledged, kept, and not part of this conversation; the same post again is no second one."""
    run = by_hand()
    sent = UserSent(at=1.0, id="s", text="and then?")
    run.feed(sent)
    assert run.got(InputReceived) == [InputReceived(id="s")]
    run.feed(sent)
    assert run.got(Ignored) == [Ignored(event="UserSent", state="streaming")]
    run.say("done")
    assert [mail.text for mail in run.machine.memory.mail] == ["and then?"]


def test_history_given_at_the_start_is_continued() -> None:
    """A second run over the same conversation sees all of it and counts its own turns."""
    first = by_hand()
    first.say("hi")
    second = Machine.start(Config(model=TEST_MODEL), "more", run="r2", history=first.machine.memory.history)
    (request,) = [effect for effect in second.advance() if isinstance(effect, CallModel)]
    assert (request.id, request.view.length) == ("r2-1", 3)
    assert len(first.machine.memory.history) == 2


def test_drive_is_the_machine_as_a_generator() -> None:
    """Effects come out, events go in, the end is returned."""
    driven = drive(Machine.start(Config(model=TEST_MODEL), "hello", run="r"))
    next(driven)
    driven.send(ModelFinished(at=1.0, request="r-1", stop=StopReason.END_TURN, usage=Usage(input=1)))
    with pytest.raises(StopIteration) as end:
        next(driven)
    assert end.value.value.reason == "end_turn"


def test_nothing_wakes_a_run_that_is_over() -> None:
    """Done absorbs everything, each with one notice."""
    run = by_hand()
    run.say("bye")
    end = run.machine.state
    run.interrupt()
    assert run.effects == (Ignored(event="Interrupted", state="done"),)
    run.send("are you there?")
    assert run.machine.state is end
    assert run.machine.memory.mail == ()


# Streaming


def test_text_arrives_as_it_is_said() -> None:
    """Each piece is told at once, thinking apart from text, and the message has them in order."""
    run = by_hand()
    run.stream(ReasoningPiece("hm"), TextPiece("hel"))
    assert run.effects == (ReasoningDelta("hm"), TextDelta("hel"))
    run.say("lo")
    message = run.machine.memory.history[-1]
    assert message.parts == (Reasoning(text="hm"), Text(text="hello"), Finish(reason=StopReason.END_TURN))
    assert run.got(TextDelta) == [TextDelta("lo")]


@pytest.mark.parametrize("before", [0, 2])
def test_a_piece_that_came_before_or_too_early_is_ignored(before: int) -> None:
    """Pieces count themselves: a repeated one and one after a gap change nothing."""
    run = by_hand()
    run.stream(TextPiece("hel"))
    run.feed(ModelStreamed(at=2.0, request="r-1", before=before, count=1, pieces=(TextPiece("X"),)))
    assert run.effects == (Ignored(event="ModelStreamed", state="streaming"),)
    run.say("lo")
    assert run.talk[-1] == ("assistant", "hello")


def test_calls_that_arrive_interleaved_come_out_whole() -> None:
    """The arguments of two calls may alternate; each call has its own."""
    run = by_hand()
    run.stream(CallPiece(0, "a", "look", '{"pa'), CallPiece(1, "b", "look", '{"path"'))
    run.say(CallPiece(0, arguments='th": "1"}'), CallPiece(1, arguments=': "2"}'))
    calls = run.machine.memory.history[-1].calls
    assert [(one.wire_id, one.arguments) for one in calls] == [("a", '{"path": "1"}'), ("b", '{"path": "2"}')]


@pytest.mark.parametrize("wire", [("call_0", "call_0"), ("", "")])
def test_ids_of_providers_may_repeat(wire: tuple[str, str]) -> None:
    """Equal and empty wire ids are told apart by our own; each result has the wire id of its call."""
    run = by_hand()
    run.say(*[CallPiece(number, one, "look", '{"path": "a"}') for number, one in enumerate(wire)])
    run.end("look", "first")
    run.end("look", "second")
    assert [content for _, _, content in run.results] == ["first", "second"]
    results = run.machine.memory.history[-1].results
    assert len({result.call for result in results}) == 2
    assert tuple(result.wire_id for result in results) == wire


def test_an_interrupt_keeps_the_text_that_was_read() -> None:
    """Partial text stays in the history, marked; calls of the partial answer do not; no turn is counted."""
    run = by_hand()
    run.stream(TextPiece("once upon "), call(0, "look", path="a"))
    run.interrupt()
    assert run.effects == (Cancel(request="r-1"), InterruptRequested())
    run.stream(TextPiece("a time"))
    run.fail(Failure.CANCELLED)
    assert run.talk[-1] == ("assistant", "once upon a time")
    message = run.machine.memory.history[-1]
    assert message.parts[-1] == Finish(reason=StopReason.INTERRUPTED)
    assert message.calls == ()
    assert run.reason == "interrupted"
    assert run.machine.memory.spent.turns == 0
    assert run.machine.memory.spent.usage.estimated > 0


def test_an_interrupt_before_the_first_word_leaves_no_message() -> None:
    """There is nothing to keep, and an empty message would be refused by a provider."""
    run = by_hand()
    run.interrupt()
    run.fail(Failure.CANCELLED)
    assert run.talk == [("user", "hello")]
    assert run.reason == "interrupted"


def test_an_answer_that_comes_in_spite_of_an_interrupt_is_kept_and_not_acted_on() -> None:
    """It was completed, so it counts; its calls have results that say so and do not run."""
    run = by_hand()
    run.interrupt()
    run.say("well", call(0, "look", path="a"))
    assert run.all(RunTool) == []
    assert run.results == [("look", "cancelled", "Cancelled")]
    assert (run.reason, run.machine.memory.spent.turns) == ("interrupted", 1)


def test_a_second_interrupt_waits_for_nothing() -> None:
    """The run ends at once, with what was read."""
    run = by_hand()
    run.stream(TextPiece("once upon"))
    run.interrupt()
    run.interrupt()
    assert run.reason == "interrupted"
    assert run.talk[-1] == ("assistant", "once upon")
    run.feed(ModelFailed(at=9.0, request="r-1", failure=Failure.CANCELLED, message="late"))
    assert run.effects == (Ignored(event="ModelFailed", state="done"),)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        (StopReason.END_TURN, "end_turn"),
        (StopReason.TOOL_USE, "end_turn"),
        (StopReason.STOP_SEQUENCE, "stop_sequence"),
        (StopReason.REFUSAL, "end_turn"),
        (StopReason.UNKNOWN, "end_turn"),
        (StopReason.MAX_TOKENS, "max_tokens"),
    ],
)
def test_an_answer_without_calls_ends_the_run(stop: StopReason, reason: str) -> None:
    """Each stop reason has its end; the odd ones are warned about."""
    run = by_hand()
    run.say("well", stop=stop)
    assert run.reason == reason
    assert bool(run.all(Warned)) == (stop in {StopReason.REFUSAL, StopReason.UNKNOWN})


@pytest.mark.parametrize("stop", [StopReason.TOOL_USE, StopReason.END_TURN, StopReason.UNKNOWN])
def test_calls_win_over_a_finish_reason(stop: StopReason) -> None:
    """A finish reason is no reliable sign of calls: an offered call runs."""
    run = by_hand()
    run.say(call(0, "look", path="a"), stop=stop)
    assert run.label == "executing"


def test_a_server_tool_shown_under_end_turn_is_dropped() -> None:
    """A model that says it is done and shows a call nobody offered means its provider's own."""
    run = by_hand()
    run.say("the web says so", call(0, "web_search", q="x"), stop=StopReason.END_TURN)
    assert run.reason == "end_turn"
    assert run.machine.memory.history[-1].calls == ()
    assert "web_search" in run.all(Warned)[0].text


@pytest.mark.parametrize("stop", [StopReason.MAX_TOKENS, StopReason.STOP_SEQUENCE, StopReason.REFUSAL])
def test_calls_of_an_answer_that_was_cut_do_not_run(stop: StopReason) -> None:
    """A whole call has a result that says so, a half one was never made: the history stays valid."""
    run = by_hand()
    run.say("well", call(0, "look", path="a"), CallPiece(1, "w", "write", '{"path": "b'), stop=stop)
    assert run.all(RunTool) == []
    assert [result[:2] for result in run.results] == [("look", "skipped")]
    assert [one.name for one in run.machine.memory.history[1].calls] == ["look"]
    assert "write" in run.all(Warned)[0].text


def test_a_piece_that_says_nothing_leaves_no_part() -> None:
    """Providers send empty bits, and refuse empty text when it comes back."""
    run = by_hand()
    run.stream(TextPiece(""))
    assert run.effects == ()
    run.say(call(0, "look", path="a"))
    assert [type(part) for part in run.machine.memory.history[-1].parts] == [ToolCall, Finish]


def test_an_answer_of_thoughts_alone_leaves_no_message() -> None:
    """Providers refuse such a message when it comes back."""
    run = by_hand()
    run.say(ReasoningPiece("hm", "proof"))
    assert run.talk == [("user", "hello")]
    assert run.reason == "end_turn"


def test_thinking_goes_back_as_it_came() -> None:
    """With the provider's proof, and hidden thinking in its place: without them a tool loop is refused."""
    run = by_hand()
    run.stream(ReasoningPiece("hm, "), ReasoningPiece("so", "proof"), ReasoningPiece(redacted="x7f"))
    run.say(ReasoningPiece("and"), "well", call(0, "look", path="a"))
    assert run.machine.memory.history[-1].parts[:4] == (
        Reasoning(text="hm, so", signature="proof"),
        Reasoning(text="", redacted="x7f"),
        Reasoning(text="and"),
        Text(text="well"),
    )


@pytest.mark.parametrize(
    ("stop", "kept"), [(StopReason.TOOL_USE, ["look", "fly"]), (StopReason.STOP_SEQUENCE, ["look"])]
)
def test_whoever_watches_can_tell_the_turn_again(stop: StopReason, kept: list[str]) -> None:
    """The end of a turn names the calls that entered the history, and each of them ends before the run."""
    run = by_hand()
    request = run.machine.state.open[0]
    pieces = (call(0, "look", path="a"), call(1, "fly", to="moon"))
    run.feed(ModelFinished(at=1.0, request=request, stop=stop, usage=Usage(), pieces=pieces, sequence="END"))
    (ended,) = run.got(TurnEnded)
    assert ended.calls == run.machine.memory.history[1].calls
    assert [one.name for one in ended.calls] == kept
    assert (ended.turn, ended.stop, ended.sequence) == (1, stop, "END")
    run.interrupt()
    run.interrupt()
    over = [notice.call for notice in run.all(CallSettled)]
    assert sorted(over) == sorted(one.id for one in ended.calls)


def test_usage_that_was_not_told_is_estimated() -> None:
    """A wire that tells nothing does not make a run free."""
    run = by_hand()
    run.say("a" * 400, usage=Usage())
    usage = run.machine.memory.spent.usage
    assert usage.output == 100
    assert usage.estimated == usage.total > 100


# Failures of the model, and trying again


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (Failure.RATE_LIMIT, 8),
        (Failure.OVERLOADED, 8),
        (Failure.SERVER, 3),
        (Failure.TIMEOUT, 3),
        (Failure.CONNECTION, 3),
        (Failure.CUT, 3),
        (Failure.AUTH, 0),
        (Failure.NOT_FOUND, 0),
        (Failure.BAD_REQUEST, 0),
        (Failure.CANCELLED, 0),
        (Failure.INTERNAL, 0),
    ],
)
def test_each_failure_is_tried_again_as_often_as_it_may_help(failure: Failure, tries: int) -> None:
    """After so many tries the run ends with an error that says what failed."""
    run = by_hand()
    for attempt in range(tries):
        run.fail(failure)
        (timer,) = run.got(SetTimer)
        assert timer.due - run.now == 2.0 * 2**attempt
        run.wake(timer.due)
        assert run.got(CallModel)[0].attempt == attempt + 2
    run.fail(failure)
    assert run.reason == "error"
    assert run.got(RunEnded)[0].detail == f"{failure}: as told"
    assert run.talk == [("user", "hello")]


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_a_wait_is_within_its_bounds(jitter: float) -> None:
    """The wait before try n is between 2 * 2**(n-1) seconds and 1.2 times that."""
    run = by_hand()
    for attempt in range(8):
        run.fail(Failure.RATE_LIMIT, jitter=jitter)
        (timer,) = run.got(SetTimer)
        base = 2.0 * 2**attempt
        assert base <= timer.due - run.now <= 1.2 * base
        run.wake(timer.due)


def test_what_the_provider_asks_to_wait_is_waited() -> None:
    """Retry-After takes the place of our own wait, shorter or longer, with no jitter."""
    run = by_hand()
    run.fail(Failure.RATE_LIMIT, retry_after=0.25, jitter=0.9)
    assert run.got(SetTimer)[0].due == run.now + 0.25
    assert run.got(RetryScheduled)[0].attempt == 2


def test_an_answer_that_failed_in_its_middle_is_dropped_and_paid_for() -> None:
    """What was read is void and told to be; a half answer is not asked for again on its own accord."""
    run = by_hand()
    run.stream(TextPiece("once upon"))
    run.fail(Failure.CUT)
    assert run.got(AnswerDropped) == [AnswerDropped(request="r-1")]
    assert run.reason == "error"
    assert run.talk == [("user", "hello")]
    assert run.machine.memory.spent.usage.estimated > 0


def test_a_lost_answer_is_asked_for_again_at_once() -> None:
    """The process was gone: nobody refused, so nobody need wait; what had been read is dropped."""
    run = by_hand()
    run.stream(TextPiece("once upon"))
    run.fail(Failure.LOST, jitter=0.9)
    assert run.got(AnswerDropped)
    (timer,) = run.got(SetTimer)
    assert timer.due == run.now
    run.wake(timer.due)
    run.say("once upon a time")
    assert run.talk[-1] == ("assistant", "once upon a time")


@pytest.mark.parametrize("stopped", [False, True])
def test_an_answer_that_was_lost_before_its_first_piece_is_paid_for(*, stopped: bool) -> None:
    """Nobody knows whether it had begun, so all that it had to read is estimated; also if it was stopped."""
    run = by_hand()
    if stopped:
        run.interrupt()
    run.fail(Failure.LOST)
    usage = run.machine.memory.spent.usage
    assert (usage.estimated, usage.output) == (usage.input, 0)
    assert usage.input > 0


def test_an_interrupt_ends_the_wait() -> None:
    """The timer is cancelled, and the run ends interrupted; a prompt that waits is left for the next run."""
    run = by_hand()
    run.fail(Failure.SERVER)
    timer = run.got(SetTimer)[0].id
    run.send("and then?")
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=timer)]
    assert run.got(InputBlocked) == []
    assert run.reason == "interrupted"
    assert [mail.text for mail in run.machine.memory.mail] == ["and then?"]


def test_a_new_attempt_is_no_new_turn() -> None:
    """A failed answer does not count against the turns."""
    run = by_hand(limits=Limits(turns=1))
    run.fail(Failure.SERVER)
    run.wake(run.got(SetTimer)[0].due)
    run.say("hi")
    assert (run.reason, run.machine.memory.spent.turns) == ("end_turn", 1)


# Limits


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_limit_of_turns_is_so_many_answers(turns: int) -> None:
    """Exactly so many requests leave, each is answered, and the last one's tools have run."""
    run = by_hand(limits=Limits(turns=turns))
    for _ in range(turns):
        run.say(call(0, "look", path="a"))
        run.end("look")
    assert run.reason == "max_turns"
    assert len(run.all(CallModel)) == len(run.all(TurnEnded)) == len(run.results) == turns


def test_a_run_that_ends_with_its_last_turn_ends_well() -> None:
    """The limit is no reason where the answer was the end."""
    run = by_hand(limits=Limits(turns=1))
    run.say("hi")
    assert run.reason == "end_turn"


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(tokens=15), "token_budget"),
        (Limits(usd=Decimal("0.00015")), "max_budget"),
    ],
)
def test_a_budget_is_read_before_tools_run(limits: Limits, reason: str) -> None:
    """The answer that used it up stands, its calls are answered and do not run."""
    model = ModelSpec(name="wire:model", price=Price(input="10", output="10"))
    run = MachineHarness(config(model=model, limits=limits))
    run.say(call(0, "look", path="a"), call(1, "write", path="b"))
    assert run.all(RunTool) + run.all(AskApproval) == []
    assert [result[1] for result in run.results] == ["cancelled", "cancelled"]
    assert run.reason == reason


def test_time_is_what_work_took() -> None:
    """The tool that used up the time keeps its result, the one behind it does not start."""
    run = by_hand(limits=Limits(seconds=5.0))
    run.say(call(0, "note", path="a"), call(1, "note", path="b"))
    run.end("note", seconds=5.0)
    assert [result[1] for result in run.results] == ["ok", "cancelled"]
    assert run.reason == "time_budget"


def test_waiting_for_a_person_costs_no_time() -> None:
    """A question may stay open for days."""
    run = by_hand(limits=Limits(seconds=5.0))
    run.say(call(0, "write", path="a"))
    request = run.machine.state.open[0]
    run.feed(ApprovalGiven(at=1e6, request=request, decision=Approve()))
    run.end("write")
    run.say("done")
    assert run.reason == "end_turn"


def test_a_history_that_no_provider_takes_is_refused() -> None:
    """A call without a result has no place in what a run begins with."""
    wish = ToolCall(id="x", wire_id="x", name="look", arguments="{}")
    history = History.of(user("a"), Message(role=Role.ASSISTANT, parts=(wish,)))
    with pytest.raises(ConfigError, match=r"cannot be gone on with: .* open calls \['x'\]"):
        Machine.start(Config(model=TEST_MODEL), "hello", history=history)


@pytest.mark.parametrize("asked", [-5.0, 0.0])
def test_no_provider_sends_us_into_the_past(asked: float) -> None:
    """A wait is never less than none."""
    run = by_hand()
    run.fail(Failure.RATE_LIMIT, retry_after=asked)
    assert run.got(SetTimer)[0].due == run.now


def test_a_provider_that_asks_for_too_much_patience_ends_the_run() -> None:
    """A wait that is longer than the longest allowed is told, not slept."""
    run = by_hand()
    run.fail(Failure.RATE_LIMIT, retry_after=1e12)
    assert run.reason == "error"
