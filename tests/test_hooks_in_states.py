"""What the host's hooks can do to a call before it runs: look, forbid, ask, rewrite, add, end the run."""

from __future__ import annotations

import itertools
import json

import pytest

from turnwheel.effects.config import (
    Concurrency,
    Config,
    Gates,
    OnDenial,
    Policy,
    Steering,
)
from turnwheel.effects.events import (
    Approve,
    Deny,
    Failure,
    HookAnswered,
)
from turnwheel.effects.hooks import (
    Hook,
    HookAnswer,
    HookSaid,
    HookSpec,
)
from turnwheel.effects.notices import (
    ApprovalWithdrawn,
    CallSettled,
    HookAsked,
    HookEnded,
    Ignored,
    InterruptRequested,
)
from turnwheel.effects.permissions import Rule, Verdict
from turnwheel.effects.pieces import CallPiece, TextPiece
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    FireHook,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.states.rules import model_messages
from turnwheel.testing.harness import (
    MachineHarness,
    call,
    calls,
    config,
)

GUARD = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE)
SECOND = HookSpec(name="second", hook=Hook.PRE_TOOL_USE)
THIRD = HookSpec(name="third", hook=Hook.PRE_TOOL_USE)

NO = HookAnswer(verdict="deny", reason="no")
STOP = HookAnswer(verdict="deny", reason="stop", interrupt=True)

each_order = pytest.mark.parametrize("gates", Gates)


def guarded(
    *rules: Rule, gates: Gates = Gates.HOOKS_FIRST, hooks: tuple[HookSpec, ...] = (GUARD,)
) -> MachineHarness:
    """A run in which a hook is asked before each call, before or after the rules."""
    return MachineHarness(config(hooks=hooks, rules=rules, policy=Policy(gates=gates)))


def parallel(gates: Gates, *hooks: HookSpec, on_denial: OnDenial = OnDenial.SKIP_REST) -> MachineHarness:
    """As above, with calls that are judged ahead."""
    policy = Policy(gates=gates, concurrency=Concurrency.PARALLEL_READS, on_denial=on_denial)
    return MachineHarness(config(hooks=hooks or (GUARD,), policy=policy))


# Who is asked, and when


@each_order
def test_hooks_are_asked_before_a_call_runs(gates: Gates) -> None:
    """They are told the tool and its arguments; nothing starts until they have answered."""
    run = guarded(gates=gates, hooks=(GUARD, SECOND))
    run.say(call(0, "note", path="a", lines=["x"]))
    (request,) = run.got(FireHook)
    assert (request.hook, request.names) == (Hook.PRE_TOOL_USE, ("guard", "second"))
    assert json.loads(request.payload) == {
        "tool_name": "note",
        "tool_input": {"path": "a", "lines": ["x"]},
    }
    assert request.call == run.machine.memory.history[-1].calls[0].id
    assert run.got(HookAsked) == [
        HookAsked(request=request.id, hook=Hook.PRE_TOOL_USE, names=("guard", "second"), call=request.call)
    ]
    assert (run.all(RunTool), run.label) == ([], "executing")
    run.answer()
    assert run.started == ["note"]


WHEN = {
    (Gates.HOOKS_FIRST, "look"): ["hook", "run"],
    (Gates.HOOKS_FIRST, "write"): ["hook", "person", "run"],
    (Gates.HOOKS_FIRST, "forbidden"): ["hook", "denied"],
    (Gates.RULES_FIRST, "look"): ["hook", "run"],
    (Gates.RULES_FIRST, "write"): ["person", "hook", "run"],
    (Gates.RULES_FIRST, "forbidden"): ["denied"],
}
"""Who comes before whom: for a call that needs nobody, one that is asked about, one that a rule denies."""


@pytest.mark.parametrize(("gates", "case"), WHEN)
def test_hooks_are_asked_before_the_rules_or_after_them(gates: Gates, case: str) -> None:
    """First, and rules judge what they made of it; or last, and only about what may run otherwise."""
    run = guarded(Rule(verdict="deny", tool="*", where=(("path", "forbidden"),)), gates=gates)
    run.say(call(0, "note" if case == "forbidden" else case, path=case))
    went: list[str] = []
    while True:
        if run.got(FireHook):
            went.append("hook")
            run.answer()
        elif run.got(AskApproval):
            went.append("person")
            run.decide("write", Approve())
        else:
            went.append("run" if run.got(RunTool) else run.outcomes[0][1])
            break
    assert went == WHEN[gates, case]


def test_hooks_are_not_asked_about_what_a_person_denied() -> None:
    """Where the rules come first nothing is left to be asked about."""
    run = guarded(gates=Gates.RULES_FIRST)
    run.say(*calls("write"))
    run.decide("write", Deny())
    assert run.all(FireHook) == []


@each_order
@pytest.mark.parametrize(
    "piece",
    [call(0, "fly", path="a"), call(0, "note"), CallPiece(0, "w", "note", '{"path": 1}')],
)
def test_hooks_are_not_asked_about_what_cannot_run(gates: Gates, piece: CallPiece) -> None:
    """A tool that is not there, arguments that do not fit: the model reads it at once."""
    run = guarded(gates=gates)
    run.say(piece)
    assert run.all(FireHook) == []
    assert [outcome for _, outcome in run.outcomes] == ["error"]


@pytest.mark.parametrize(
    ("tool", "path", "asked"),
    [
        ("write", "a.md", ("prose", "any")),
        ("write", "a.py", ("any",)),
        ("note", "a.md", ("any",)),
        ("write", "docs/../a.md", ("prose", "any")),
        ("write", "/etc/a", ("any", "etc")),
        ("write", "/srv/../etc/a.md", ("prose", "any", "etc")),
        ("peek", "a.md", ()),
    ],
)
def test_only_the_hooks_that_match_are_asked(tool: str, path: str, asked: tuple[str, ...]) -> None:
    """By the tool and its arguments, however a path is written, in the order they are configured."""
    hooks = (
        HookSpec(name="prose", hook=Hook.PRE_TOOL_USE, tool="wr*", where=(("path", "*.md"),)),
        HookSpec(name="any", hook=Hook.PRE_TOOL_USE, tool="[wn]*"),
        HookSpec(name="etc", hook=Hook.PRE_TOOL_USE, where=(("path", "/etc/*"),)),
        HookSpec(name="after", hook=Hook.POST_TOOL_USE),
    )
    run = guarded(hooks=hooks)
    run.say(call(0, tool, path=path))
    assert run.asked == ([("pre_tool_use", asked)] if asked else [])


# What they say, together


@pytest.mark.parametrize("order", list(itertools.permutations([None, *Verdict], 3)))
def test_of_several_hooks_the_strictest_holds(order: tuple[Verdict | None, ...]) -> None:
    """A denial beats a question, a question beats a yes, a yes beats silence; the order does not matter."""
    run = guarded(hooks=(GUARD, SECOND, THIRD))
    run.say(*calls("write"))
    run.answer(*[HookAnswer(verdict=verdict) for verdict in order])
    names = dict(zip(order, ["guard", "second", "third"], strict=True))
    strictest = next(one for one in (Verdict.DENY, Verdict.ASK, Verdict.ALLOW) if one in order)
    assert run.judged == [("write", strictest.value, "hook")]
    followed = {
        Verdict.DENY: [outcome for _, outcome in run.outcomes],
        Verdict.ASK: [question.why for question in run.got(AskApproval)],
        Verdict.ALLOW: run.started,
    }
    assert {verdict: what for verdict, what in followed.items() if what} == {
        strictest: ["denied"]
        if strictest is Verdict.DENY
        else [f"hook: {names[strictest]}"]
        if strictest is Verdict.ASK
        else ["write"]
    }


def test_the_reason_is_that_of_the_first_of_the_strictest() -> None:
    """The model reads who said no, and why."""
    run = guarded(hooks=(GUARD, SECOND, THIRD))
    run.say(*calls("write"))
    run.answer(
        HookAnswer(verdict="ask", reason="careful"),
        HookAnswer(verdict="deny", reason="not there"),
        HookAnswer(verdict="deny", reason="nowhere"),
    )
    assert run.results == [("write", "denied", "Denied by a hook: second: not there")]


def test_a_denial_by_a_hook_concerns_one_call() -> None:
    """It is no person's no: the calls behind it are looked at and run, and the run goes on."""
    run = guarded()
    run.say(*calls("note", "note"))
    run.answer(NO)
    run.answer()
    run.end("note")
    assert run.outcomes == [("note", "denied"), ("note", "ok")]
    assert run.label == "streaming"


@each_order
@pytest.mark.parametrize("tool", ["note", "write"])
def test_a_hook_at_fault_has_no_say_and_is_reported(gates: Gates, tool: str) -> None:
    """Things take their course as if it had not been asked, whatever it may have meant to say."""
    run = guarded(gates=gates)
    run.say(*calls(tool))
    if run.got(AskApproval):
        run.decide(tool, Approve())
    request = run.got(FireHook)[0]
    said = (HookSaid(name="guard", answer=STOP, fault="it hangs"),)
    run.feed(HookAnswered(at=run.now + 1, request=request.id, said=said))
    assert run.got(HookEnded) == [
        HookEnded(request=request.id, hook=Hook.PRE_TOOL_USE, said=said, call=request.call)
    ]
    if run.got(AskApproval):
        run.decide(tool, Approve())
    assert run.started == [tool]


def test_a_hook_at_fault_does_not_silence_the_others() -> None:
    """What they say holds."""
    run = guarded(hooks=(GUARD, SECOND))
    run.say(*calls("note"))
    run.answer("it hangs", NO)
    assert run.results == [("note", "denied", "Denied by a hook: second: no")]


# What they make of it


@each_order
def test_rewritten_arguments_run_in_place_of_the_models(gates: Gates) -> None:
    """The last rewriting holds; the history keeps what the model wrote, since it is what the model said."""
    run = guarded(gates=gates, hooks=(GUARD, SECOND))
    run.say(call(0, "note", path="a"))
    run.answer(HookAnswer(arguments='{"path": "b"}'), HookAnswer(arguments='{"path": "c"}'))
    assert [request.arguments for request in run.got(RunTool)] == ['{"path": "c"}']
    assert run.machine.memory.history[1].calls[0].arguments == '{"path": "a"}'


@each_order
@pytest.mark.parametrize("arguments", ["{", "[]", "{}", '{"path": 7}'])
@pytest.mark.parametrize("verdict", [None, Verdict.ALLOW, Verdict.ASK])
def test_rewritten_arguments_that_do_not_fit_run_nothing(
    gates: Gates, arguments: str, verdict: Verdict | None
) -> None:
    """A hook's slip does not reach the tool, and nobody is asked about it."""
    run = guarded(gates=gates)
    run.say(*calls("note"))
    run.answer(HookAnswer(verdict=verdict, arguments=arguments))
    assert run.all(RunTool) + run.all(AskApproval) == []
    ((_, outcome, content),) = run.results
    assert outcome == "error"
    assert content.startswith("Invalid arguments for note: ")


def test_a_denial_is_a_denial_whatever_was_made_of_the_arguments() -> None:
    """The model reads that it was denied, and not what was wrong with arguments that it never wrote."""
    run = guarded(hooks=(GUARD, SECOND))
    run.say(*calls("note"))
    run.answer(HookAnswer(arguments="{"), NO)
    assert run.results == [("note", "denied", "Denied by a hook: second: no")]


def test_a_rewritten_call_is_what_a_person_is_shown() -> None:
    """Whoever says yes says it to what would run."""
    run = guarded()
    run.say(call(0, "write", path="a"))
    run.answer(HookAnswer(arguments='{"path": "b"}'))
    assert [question.arguments for question in run.got(AskApproval)] == ['{"path": "b"}']
    run.decide("write", Approve())
    assert [request.arguments for request in run.got(RunTool)] == ['{"path": "b"}']


def test_a_child_may_be_told_something_else() -> None:
    """The prompt that a hook wrote is what it begins with."""
    run = guarded()
    run.say(call(0, "send", agent="kid", prompt="go"))
    run.answer(HookAnswer(arguments='{"agent": "kid", "prompt": "go slowly"}'))
    assert [request.prompt for request in run.got(RunAgent)] == ["go slowly"]


@each_order
def test_hooks_that_are_for_what_was_made_of_it_are_asked_too(gates: Gates) -> None:
    """Each is asked once; what the first one said still counts, and the last rewriting holds."""
    etc = HookSpec(name="etc", hook=Hook.PRE_TOOL_USE, where=(("path", "/etc/*"),))
    run = guarded(gates=gates, hooks=(GUARD, etc))
    run.say(call(0, "note", path="a"))
    assert run.asked == [("pre_tool_use", ("guard",))]
    run.answer(HookAnswer(verdict="ask", reason="look", arguments='{"path": "/etc/x"}'))
    assert run.asked == [("pre_tool_use", ("etc",))]
    assert json.loads(run.got(FireHook)[0].payload)["tool_input"] == {"path": "/etc/x"}
    run.answer(HookAnswer(arguments='{"path": "/etc/y"}'))
    (question,) = run.got(AskApproval)
    assert (question.why, question.arguments) == ("hook: guard: look", '{"path": "/etc/y"}')
    run.decide("note", Approve())
    assert (run.started, len(run.all(FireHook))) == (["note"], 2)


# People and hooks


def test_hooks_see_what_a_person_edited_where_they_come_last() -> None:
    """They are the last to look before it runs."""
    run = guarded(gates=Gates.RULES_FIRST)
    run.say(call(0, "write", path="a"))
    run.decide("write", Approve(arguments='{"path": "b"}'))
    (request,) = run.got(FireHook)
    assert json.loads(request.payload)["tool_input"] == {"path": "b"}


@each_order
def test_hooks_are_asked_once_about_a_call(gates: Gates) -> None:
    """Once before it runs, whoever comes first and whatever a person made of it meanwhile."""
    run = guarded(gates=gates)
    run.say(*calls("write"))
    if gates is Gates.HOOKS_FIRST:
        run.answer()
    run.decide("write", Approve(arguments='{"path": "b"}'))
    if gates is Gates.RULES_FIRST:
        run.answer()
    assert run.started == ["write"]
    assert len(run.all(FireHook)) == len(run.all(AskApproval)) == 1


def test_a_hook_that_was_not_concerned_is_asked_about_what_a_person_edited() -> None:
    """It is about the path that the person wrote, and nobody has asked it yet."""
    etc = HookSpec(name="etc", hook=Hook.PRE_TOOL_USE, where=(("path", "/etc/*"),))
    run = guarded(hooks=(etc,))
    run.say(call(0, "write", path="a"))
    assert run.asked == []
    run.decide("write", Approve(arguments='{"path": "/etc/x"}'))
    assert run.asked == [("pre_tool_use", ("etc",))]
    run.answer(NO)
    assert run.results == [("write", "denied", "Denied by a hook: etc: no")]


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (HookAnswer(verdict="allow"), "ok"),
        (HookAnswer(verdict="ask"), "ok"),
        (NO, "denied"),
        (HookAnswer(arguments='{"path": "secret"}'), "denied"),
    ],
)
def test_a_person_is_not_asked_twice_and_a_denial_still_holds(answer: HookAnswer, outcome: str) -> None:
    """After a person's yes a hook can deny and rewrite, and what it made of it a rule can deny."""
    deny = Rule(verdict="deny", tool="*", where=(("path", "secret"),))
    run = guarded(deny, gates=Gates.RULES_FIRST)
    run.say(*calls("write"))
    run.decide("write", Approve())
    run.answer(answer)
    assert run.got(AskApproval) == []
    if outcome == "ok":
        run.end("write")
    assert run.outcomes == [("write", outcome)]


# The end of the run


def test_a_denial_may_end_the_run() -> None:
    """Every call has its result; what ran keeps its own."""
    run = guarded()
    run.say(*calls("note", "write", "look"))
    run.answer()
    run.end("note", "kept")
    run.answer(STOP)
    assert run.results == [
        ("note", "ok", "kept"),
        ("write", "denied", "Denied by a hook: guard: stop"),
        ("look", "cancelled", model_messages.CANCELLED),
    ]
    assert run.got(InterruptRequested) == [InterruptRequested()]
    assert run.reason == "interrupted"


@each_order
def test_a_denial_that_ends_the_run_cancels_what_is_at_work(gates: Gates) -> None:
    """Tools are told to stop, questions and other hooks are withdrawn, and the end waits for the tools."""
    only_write = HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[wp]*")
    run = parallel(gates, only_write, on_denial=OnDenial.GO_ON)
    run.say(*calls("look", "peek", "write"))
    if gates is Gates.HOOKS_FIRST:
        run.answer(tool="peek")
        run.answer(STOP, tool="write")
    else:
        run.decide("write", Approve())
        run.answer(STOP, tool="write")
    assert len(run.got(ApprovalWithdrawn)) == 1
    assert run.label == "executing.stopping"
    run.end("look")
    assert run.outcomes == [("look", "ok"), ("peek", "cancelled"), ("write", "denied")]
    assert run.reason == "interrupted"


@pytest.mark.parametrize("verdict", [None, Verdict.ALLOW, Verdict.ASK])
def test_only_a_denial_ends_the_run(verdict: Verdict | None) -> None:
    """What else is said with it does not."""
    run = guarded()
    run.say(*calls("write"))
    run.answer(HookAnswer(verdict=verdict, interrupt=True))
    assert not run.machine.done
    assert run.outcomes == []


# What they add


def test_context_is_for_the_next_request_and_no_other() -> None:
    """The instructions of one model call have it, in the order it came, and those after that do not."""
    run = guarded(hooks=(GUARD, SECOND))
    run.say(*calls("note", "note"))
    run.answer(HookAnswer(context="one"), HookAnswer(context="two"))
    run.end("note")
    run.answer(HookAnswer(verdict="deny", context="three"), "it hangs")
    assert [request.instructions for request in run.got(CallModel)] == ["one\ntwo\nthree"]
    run.say(*calls("fly"))
    assert [request.instructions for request in run.got(CallModel)] == [""]
    assert all("one" not in text for _, text in run.talk)


@pytest.mark.parametrize("what", ["failed", "lost", "cut"])
def test_context_stays_until_an_answer_has_come(what: str) -> None:
    """A request that failed, was lost or was cut short was not answered: the next one has it again."""
    run = guarded()
    run.say(*calls("note"))
    run.answer(HookAnswer(context="mind the gap"))
    run.end("note")
    if what == "cut":
        run.stream(TextPiece("well"))
        run.steer("left", Steering.NOW)
        run.fail(Failure.CANCELLED)
    else:
        run.fail(Failure.LOST if what == "lost" else Failure.SERVER)
        run.wake(run.got(SetTimer)[0].due)
    assert [request.instructions for request in run.got(CallModel)] == ["mind the gap"]
    run.say(*calls("fly"))
    assert [request.instructions for request in run.got(CallModel)] == [""]


# Several calls at once


@each_order
def test_each_call_has_its_own_answer(gates: Gates) -> None:
    """Hooks of calls that are judged ahead may answer in any order, each about its call."""
    run = parallel(gates)
    run.say(*calls("look", "look", "look"))
    first, second, third = run.got(FireHook)
    assert len({request.call for request in (first, second, third)}) == 3
    assert run.machine.state.open == (first.id, second.id, third.id)
    for request, answer in ((third, HookAnswer()), (first, NO), (second, HookAnswer())):
        said = (HookSaid(name="guard", answer=answer),)
        run.feed(HookAnswered(at=run.now + 1, request=request.id, said=said))
    run.end("look")
    run.end("look")
    assert run.outcomes == [("look", "denied"), ("look", "ok"), ("look", "ok")]


@each_order
@pytest.mark.parametrize("how", ["steer", "interrupt", "cancel"])
def test_a_call_that_is_given_up_does_not_wait_for_its_hooks(gates: Gates, how: str) -> None:
    """They are told to stop, the call has its result once, and what they say later changes nothing."""
    run = guarded(gates=gates)
    run.say(*calls("note"))
    (request,) = run.got(FireHook)
    if how == "steer":
        run.steer("left")
    elif how == "interrupt":
        run.interrupt()
    else:
        run.cancel("note")
    assert run.got(Cancel) == [Cancel(request=request.id)]
    assert run.outcomes == [("note", "skipped" if how == "steer" else "cancelled")]
    assert len(run.got(CallSettled)) == 1
    run.feed(HookAnswered(at=run.now + 1, request=request.id))
    assert run.effects == (Ignored(event="HookAnswered", state=run.label),)
    assert run.all(RunTool) == []


def test_a_persons_no_skips_what_hooks_are_still_judging() -> None:
    """Where the hooks come first nothing is decided about those calls yet."""
    run = parallel(Gates.HOOKS_FIRST, HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="note"))
    run.say(*calls("write", "note"))
    (request,) = run.got(FireHook)
    run.decide("write", Deny())
    assert run.got(Cancel) == [Cancel(request=request.id)]
    assert run.outcomes == [("write", "denied"), ("note", "skipped")]


@pytest.mark.parametrize(("tool", "outcome"), [("note", "skipped"), ("edit", "ok")])
def test_a_persons_no_leaves_alone_what_a_person_allowed(tool: str, outcome: str) -> None:
    """Hooks still look at it, and it runs; what was merely allowed by its tool is skipped with the rest."""
    run = parallel(Gates.RULES_FIRST, HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="[ne]*"))
    run.say(*calls("write", tool))
    if tool == "edit":
        run.decide("edit", Approve())
    (request,) = run.got(FireHook) or run.all(FireHook)
    run.decide("write", Deny())
    assert run.got(Cancel) == ([] if tool == "edit" else [Cancel(request=request.id)])
    if tool == "edit":
        assert run.label == "executing.stopping"
        run.answer(HookAnswer(verdict="ask"))
        run.end("edit")
    assert run.outcomes == [("write", "denied"), (tool, outcome)]


def test_where_there_are_no_hooks_none_is_asked() -> None:
    """A call is judged and started in one step."""
    run = MachineHarness(Config(model=config().model, tools=config().tools))
    run.say(*calls("note"))
    assert (run.started, run.all(FireHook)) == (["note"], [])
