"""What the host's hooks can do when a call is over, and when the run is about to end."""

from __future__ import annotations

import json

import pytest

from turnwheel.effects.config import Concurrency, Limits, Policy, Steering
from turnwheel.effects.events import (
    Deny,
    Failure,
    HookAnswered,
    ToolFinished,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.notices import (
    CallSettled,
    HookEnded,
    Ignored,
    RunEnded,
    Warned,
)
from turnwheel.effects.records import CountContinue
from turnwheel.effects.requests import CallModel, Cancel, FireHook
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import MachineHarness, calls, config

AUDIT = HookSpec(name="audit", hook=Hook.POST_TOOL_USE)
NURSE = HookSpec(name="nurse", hook=Hook.POST_TOOL_USE_FAILURE)
COACH = HookSpec(name="coach", hook=Hook.STOP)
JUDGE = HookSpec(name="judge", hook=Hook.STOP)
PARENT = HookSpec(name="parent", hook=Hook.SUBAGENT_STOP)
MORE = HookAnswer(go_on=True, reason="the tests are red")


def reviewed() -> MachineHarness:
    """A run in which hooks look at every call that is over."""
    return MachineHarness(config(hooks=(AUDIT, NURSE)))


# A call is over


@pytest.mark.parametrize("outcome", Outcome)
def test_hooks_look_at_what_a_call_came_to(outcome: Outcome) -> None:
    """One place for success, one for everything else; both are told the tool, its arguments and the end."""
    run = reviewed()
    run.say(*calls("note"))
    run.end("note", "that much", outcome)
    (request,) = run.got(FireHook)
    well = outcome is Outcome.OK
    assert (request.hook, request.names) == (
        (Hook.POST_TOOL_USE, ("audit",)) if well else (Hook.POST_TOOL_USE_FAILURE, ("nurse",))
    )
    told = json.loads(request.payload)
    assert (told["tool_name"], told["tool_input"]["path"]) == ("note", "a")
    assert told["tool_response" if well else "error"] == "that much"
    assert ("error" in told, "tool_response" in told) == (not well, well)
    run.answer()
    assert run.results == [("note", outcome.value, "that much")]
    assert run.label == "streaming"


def test_hooks_look_at_what_a_child_came_to() -> None:
    """It is a call like any other."""
    run = reviewed()
    run.say(*calls("send"))
    run.report("send")
    assert run.asked == [("post_tool_use", ("audit",))]
    run.answer()
    assert run.outcomes == [("send", "ok")]


def test_the_end_of_a_call_is_told_when_it_is_over_and_once() -> None:
    """Whoever watches need not wait for the hooks, and does not see a second end."""
    run = reviewed()
    run.say(*calls("note"))
    run.end("note", "that much", seconds=2.0)
    assert [(notice.content, notice.seconds) for notice in run.got(CallSettled)] == [("that much", 2.0)]
    run.answer()
    assert run.got(CallSettled) == []


@pytest.mark.parametrize(
    "answer",
    [
        HookAnswer(verdict="deny", reason="no", interrupt=True),
        HookAnswer(verdict="ask"),
        HookAnswer(arguments='{"path": "b"}'),
        HookAnswer(go_on=True),
        "it hangs",
    ],
)
def test_what_has_happened_has_happened(answer: HookAnswer | str) -> None:
    """A hook cannot take back, ask about or rewrite a call that has run, nor end the run with it."""
    run = reviewed()
    run.say(*calls("note", "look"))
    run.end("note", "that much")
    run.answer(answer)
    assert run.started == ["look"]
    run.end("look")
    run.answer(answer)
    assert run.outcomes == [("note", "ok"), ("look", "ok")]
    assert run.label == "streaming"


def test_what_hooks_add_is_read_by_the_model() -> None:
    """In the instructions of the next request, not in the result, which is the tool's own."""
    run = reviewed()
    run.say(*calls("note"))
    run.end("note", "that much")
    run.answer(HookAnswer(context="format it"))
    assert run.results == [("note", "ok", "that much")]
    assert [request.instructions for request in run.got(CallModel)] == ["format it"]


def test_the_next_call_waits_until_the_hooks_have_looked() -> None:
    """One after the other means with all that belongs to it."""
    run = reviewed()
    run.say(*calls("note", "write"))
    run.end("note")
    assert (run.started, run.label) == ([], "executing")
    run.answer()
    assert run.label == "confirming"


def test_hooks_do_not_look_at_what_never_ran() -> None:
    """No such tool, denied, skipped: nothing happened that could be looked at."""
    run = reviewed()
    run.say(*calls("fly", "write", "note"))
    run.decide("write", Deny())
    assert run.outcomes == [("fly", "error"), ("write", "denied"), ("note", "skipped")]
    assert run.all(FireHook) == []


def test_after_an_interrupt_hooks_are_not_asked() -> None:
    """A person wants it to stop: the result is kept, and nothing else begins."""
    run = reviewed()
    run.say(*calls("note"))
    run.interrupt()
    run.end("note", "that much")
    assert run.all(FireHook) == []
    assert (run.results, run.reason) == ([("note", "ok", "that much")], "interrupted")


def test_an_interrupt_does_not_wait_for_hooks_that_are_looking() -> None:
    """The result is the tool's; what they say later changes nothing."""
    run = reviewed()
    run.say(*calls("note", "look"))
    run.end("note", "that much")
    (request,) = run.got(FireHook)
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=request.id)]
    assert run.results == [("note", "ok", "that much"), ("look", "cancelled", model_messages.CANCELLED)]
    assert run.reason == "interrupted"
    run.feed(HookAnswered(at=run.now + 1, request=request.id))
    assert run.effects == (Ignored(event="HookAnswered", state="done"),)


@pytest.mark.parametrize("how", [Steering.NOW, Steering.AFTER_TOOL])
def test_who_steers_waits_for_hooks_that_are_looking(how: Steering) -> None:
    """They were asked already and what they add may matter; the rest is skipped at once."""
    run = reviewed()
    run.say(*calls("note", "look"))
    run.end("note", "that much")
    run.steer("left", how)
    assert run.got(Cancel) == []
    run.answer(HookAnswer(context="format it"))
    assert run.outcomes == [("note", "ok"), ("look", "skipped")]
    assert [request.instructions for request in run.got(CallModel)] == ["format it"]


def test_calls_side_by_side_are_looked_at_each_for_itself() -> None:
    """A call is settled when its own hooks have answered, whichever that is."""
    policy = Policy(concurrency=Concurrency.PARALLEL_READS)
    run = MachineHarness(config(hooks=(AUDIT,), policy=policy))
    run.say(*calls("look", "look"))
    first, second = run.machine.state.open
    run.feed(ToolFinished(at=5.0, request=second, content="two"))
    later = run.got(FireHook)[0]
    run.feed(ToolFinished(at=6.0, request=first, content="one"))
    sooner = run.got(FireHook)[0]
    run.feed(HookAnswered(at=7.0, request=later.id))
    assert run.label == "executing"
    run.feed(HookAnswered(at=8.0, request=sooner.id))
    assert [content for _, _, content in run.results] == ["one", "two"]


# The run is about to end


def coached(
    *hooks: HookSpec, continues: int = 3, limits: Limits = Limits(), agent: str = ""
) -> MachineHarness:  # noqa: B008  # a frozen value
    """A run whose end hooks have a say in."""
    policy = Policy(continues=continues)
    return MachineHarness(config(hooks=hooks or (COACH,), policy=policy, limits=limits, agent=agent))


@pytest.mark.parametrize("stop", [StopReason.END_TURN, StopReason.STOP_SEQUENCE])
def test_hooks_are_asked_whether_a_run_may_end(stop: StopReason) -> None:
    """They are told why it would; where they say nothing it ends as it would have."""
    run = coached()
    run.say("done", stop=stop)
    (request,) = run.got(FireHook)
    assert (request.hook, request.names, request.call) == (Hook.STOP, ("coach",), "")
    assert json.loads(request.payload) == {"reason": stop.value, "continued": 0}
    assert run.label == "thinking.ending"
    run.answer()
    assert run.reason == stop.value
    assert len(run.got(RunEnded)) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [(MORE, "the tests are red"), (HookAnswer(go_on=True), model_messages.CONTINUE)],
)
def test_a_hook_makes_a_run_go_on(answer: HookAnswer, told: str) -> None:
    """The model reads why, as something a user said, and what the hook adds as instructions."""
    run = coached(COACH, JUDGE)
    run.say("done")
    run.answer(HookAnswer(context="be thorough"), answer)
    assert run.talk[-2:] == [("assistant", "done"), ("user", told)]
    assert run.got(CountContinue) == [CountContinue()]
    assert [request.instructions for request in run.got(CallModel)] == ["be thorough"]


def test_of_several_hooks_that_want_to_go_on_the_first_is_heard() -> None:
    """The run goes on once."""
    run = coached(COACH, JUDGE)
    run.say("done")
    run.answer(HookAnswer(go_on=True, reason="one"), HookAnswer(go_on=True, reason="two"))
    assert run.talk[-1] == ("user", "one")
    assert len(run.machine.memory.history) == 3


@pytest.mark.parametrize("continues", [0, 1, 3])
def test_hooks_make_a_run_go_on_only_so_often(continues: int) -> None:
    """Then it ends and says so; a hook that never has enough keeps nobody busy for ever."""
    run = coached(continues=continues)
    for number in range(continues):
        run.say("done")
        assert json.loads(run.got(FireHook)[0].payload)["continued"] == number
        run.answer(MORE)
    run.say("done")
    assert run.got(FireHook) == []
    assert run.reason == "end_turn"
    assert len(run.got(Warned)) == 1
    assert len(run.all(CallModel)) == continues + 1


@pytest.mark.parametrize("answer", ["it hangs", HookAnswer(verdict="deny", reason="no", interrupt=True)])
def test_a_run_ends_where_no_hook_wants_to_go_on(answer: HookAnswer | str) -> None:
    """A fault is no wish, and a denial is not either: to go on has a word of its own."""
    run = coached()
    run.say("done")
    run.answer(answer)
    assert run.reason == "end_turn"


@pytest.mark.parametrize("end", ["max_turns", "max_tokens", "error", "interrupted", "token_budget"])
def test_an_end_that_something_forces_is_not_asked_about(end: str) -> None:
    """Nothing could follow it."""
    limits = {"max_turns": Limits(turns=1), "token_budget": Limits(tokens=15)}.get(end, Limits())
    run = coached(limits=limits)
    if end == "interrupted":
        run.interrupt()
    if end in {"interrupted", "error"}:
        run.fail(Failure.AUTH)
    elif end == "max_tokens":
        run.say("half a", stop=StopReason.MAX_TOKENS)
    else:
        run.say(*calls("fly"))
    assert run.reason == end
    assert run.all(FireHook) == []


def test_a_hook_that_goes_on_does_not_get_past_a_limit() -> None:
    """Its wish is written down, and the run ends for the limit."""
    run = coached(limits=Limits(turns=1))
    run.say("done")
    run.answer(MORE)
    assert (run.reason, len(run.all(CallModel))) == ("max_turns", 1)


@pytest.mark.parametrize("answer", [HookAnswer(), MORE])
def test_what_is_said_while_hooks_are_asked_is_heard(answer: HookAnswer) -> None:
    """The run goes on with it, whether or not the hooks want that too; they are asked again at its end."""
    run = coached()
    run.say("done")
    run.steer("and the docs")
    run.answer(answer)
    said = ["the tests are red", "and the docs"] if answer is MORE else ["and the docs"]
    assert [text for role, text in run.talk if role == "user"] == ["hello", *said]
    run.say("done, too")
    assert json.loads(run.got(FireHook)[0].payload)["continued"] == (1 if answer is MORE else 0)


def test_an_interrupt_does_not_wait_for_hooks_at_the_end() -> None:
    """They are told to stop; what they say later changes nothing."""
    run = coached()
    run.say("done")
    (request,) = run.got(FireHook)
    run.interrupt()
    assert run.got(Cancel) == [Cancel(request=request.id)]
    assert run.reason == "interrupted"
    run.feed(HookAnswered(at=run.now + 1, request=request.id))
    assert run.effects == (Ignored(event="HookAnswered", state="done"),)


@pytest.mark.parametrize(
    ("agent", "asked"), [("kid", ("subagent_stop", ("parent",))), ("", ("stop", ("coach",)))]
)
def test_the_end_of_a_child_is_asked_about_in_a_place_of_its_own(
    agent: str, asked: tuple[str, tuple[str, ...]]
) -> None:
    """A hook for the end of the whole is not asked about that of a part, nor the other way round."""
    run = coached(COACH, PARENT, agent=agent)
    run.say("done")
    assert run.asked == [asked]
    run.answer(MORE)
    assert [(notice.hook.value, len(notice.said)) for notice in run.got(HookEnded)] == [(asked[0], 1)]
    assert run.talk[-1] == ("user", "the tests are red")
