"""The host's own say: when its hooks are asked, what they can do, and what they cannot break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    Approve,
    ChildSpec,
    DoneReason,
    HookAnswer,
    HookCall,
    Limits,
    ModelSpec,
    Policy,
    Rule,
    hook,
)
from turnwheel.effects.config import Gates
from turnwheel.effects.events import Failure
from turnwheel.effects.hooks import Hook
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallJudged,
    Compacted,
    CompactionFailed,
    HookAsked,
    HookEnded,
    InputBlocked,
    InputTaken,
    InterruptRequested,
    TextDelta,
    ToolStarted,
    Warned,
)
from turnwheel.effects.usage import Usage
from turnwheel.performers.hooks import HostHook
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
    stalls,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel import Session

ABOUT_CALLS = (Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE, Hook.POST_TOOL_USE_FAILURE)
DENY = HookAnswer(verdict="deny", reason="not on Sundays")
NO_PAY = Rule(verdict="deny", tool="pay", where=(("amount", "13"),))


def says_at(
    place: Hook, *answers: HookAnswer | None, told: list[HookCall] | None = None, **about: Any
) -> HostHook[Any]:
    """A hook that gives *answers* in turn and then the last for ever, and notes what it is *told*."""
    left = list(answers)

    async def speak(about: HookCall) -> HookAnswer | None:
        if told is not None:
            told.append(about)
        if not left:
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    settings: dict[str, Any] = {"name": f"at {place}", **about}
    return hook(place, **settings)(speak)


def interrupts(session: Session) -> Callable[[object], Any]:
    """A reaction that interrupts *session*."""
    return lambda _: session.interrupt()


@pytest.mark.behaviour("hooks-stand-around-a-call")
@pytest.mark.parametrize(
    ("name", "arguments", "order", "end"),
    [
        ("look", {"at": "a"}, ["pre_tool_use", "look a", "post_tool_use"], {"tool_response": "saw a"}),
        (
            "fail",
            {"how": "hot"},
            ["pre_tool_use", "fail hot", "post_tool_use_failure"],
            {"error": "Tool raised an exception: hot"},
        ),
        ("look", {"at": 1}, [], None),
        ("nowhere", {}, [], None),
    ],
)
async def test_hooks_are_asked_before_a_call_runs_and_after_it_ended_well_or_not(
    stage: Stage, name: str, arguments: dict[str, object], order: list[str], end: dict[str, str] | None
) -> None:
    """Of a call that cannot run nobody is told: nothing happens."""
    told: list[HookCall] = []

    async def note(about: HookCall) -> None:
        stage.ran.append(about.hook)
        told.append(about)

    hooks = [hook(place, name=place)(note) for place in ABOUT_CALLS]
    await stage.session(calls((name, arguments)), says("done"), hooks=hooks).run("go")

    assert stage.ran == order
    assert [about.payload for about in told] == (
        [{"tool_name": name, "tool_input": arguments, **extra} for extra in ({}, end)] if end else []
    )
    assert {(about.session, about.tool) for about in told} <= {("s", name)}
    assert len({about.call for about in told}) <= 1


@pytest.mark.behaviour("hooks-stand-around-a-call")
async def test_a_hook_is_asked_about_the_calls_it_names_and_no_others(stage: Stage) -> None:
    """By the tool's name and by its arguments, as globs."""
    told: list[HookCall] = []
    named = says_at(Hook.PRE_TOOL_USE, told=told, tool="l*", where={"at": "*.md"})
    wishes = calls(("look", {"at": "a.md"}), ("look", {"at": "a.py"}), ("dig", {"at": "b.md"}))
    stage.release()
    await stage.session(wishes, says("done"), hooks=[named]).run("go")
    assert [about.arguments for about in told] == [{"at": "a.md"}]


@pytest.mark.behaviour("a-hook-may-judge-a-call")
@pytest.mark.parametrize(
    ("name", "answers", "ran", "asked"),
    [
        ("pay", [HookAnswer(verdict="allow")], ["pay 1"], 0),
        ("pay", [None], [], 1),
        ("look", [HookAnswer(verdict="ask", reason="odd")], [], 1),
        ("look", [DENY], [], 0),
        ("look", [HookAnswer(verdict="allow"), DENY, HookAnswer(verdict="ask")], [], 0),
        ("look", [HookAnswer(verdict="allow"), HookAnswer(verdict="ask")], [], 1),
    ],
)
async def test_of_several_answers_the_strictest_holds(
    stage: Stage, name: str, answers: list[HookAnswer | None], ran: list[str], asked: int
) -> None:
    """A hook may let a call run that would have been asked about, have a person asked, or deny it."""
    hooks = [says_at(Hook.PRE_TOOL_USE, answer, name=f"hook {n}") for n, answer in enumerate(answers)]
    session = stage.session(calls((name, {})), says("I see"), hooks=hooks)
    result = await stage.play(session)

    assert (stage.ran, len(result.waiting)) == (ran, asked)
    if DENY in answers:
        number = answers.index(DENY)
        assert stage.shown(2)[-1] == f"tool: Denied by a hook: hook {number}: not on Sundays"


@pytest.mark.behaviour("a-hook-may-judge-a-call")
@pytest.mark.parametrize(("interrupt", "reason"), [(False, "end_turn"), (True, "interrupted")])
async def test_a_denial_stops_no_other_call_unless_the_hook_ends_the_run(
    stage: Stage, reason: str, *, interrupt: bool
) -> None:
    """Then the rest is cancelled, and what ran before keeps its result."""
    deny = HookAnswer(verdict="deny", interrupt=interrupt)
    wishes = calls(("look", {"at": "a"}), ("put", {}), ("look", {"at": "b"}))
    session = stage.session(wishes, says("well"), hooks=[says_at(Hook.PRE_TOOL_USE, deny, tool="put")])
    result = await stage.play(session)

    assert result.reason == reason
    assert stage.outcomes(session) == [
        "look: ok",
        "put: denied",
        f"look: {'cancelled' if interrupt else 'ok'}",
    ]
    assert len(stage.seen(InterruptRequested)) == interrupt


@pytest.mark.behaviour("a-hook-may-judge-a-call")
async def test_a_denial_by_a_rule_outvotes_a_hook_that_allows(stage: Stage) -> None:
    """Adding a denial is always safe."""
    allow = says_at(Hook.PRE_TOOL_USE, HookAnswer(verdict="allow"))
    session = stage.session(calls(("pay", {"amount": 13})), says("well"), hooks=[allow], rules=[NO_PAY])
    await session.run("go")
    assert (stage.ran, stage.outcomes(session)) == ([], ["pay: denied"])


@pytest.mark.behaviour("what-a-hook-made-of-a-call-is-judged")
@pytest.mark.parametrize("gates", list(Gates))
@pytest.mark.parametrize(
    ("made", "outcome", "ran"),
    [
        ('{"amount": 13}', "denied", []),
        ('{"amount": 2}', "ok", ["pay 2"]),
        ('{"amount": "much"}', "error", []),
    ],
)
async def test_arguments_that_a_hook_changed_pass_the_schema_and_the_denials_again(
    stage: Stage, gates: Gates, made: str, outcome: str, ran: list[str]
) -> None:
    """Whoever is asked first; the conversation keeps what the model wrote."""
    change = says_at(Hook.PRE_TOOL_USE, HookAnswer(arguments=made))
    rules = [NO_PAY, Rule(verdict="allow", tool="pay")]
    session = stage.session(
        calls(("pay", {"amount": 1})), says("well"), hooks=[change], rules=rules, policy=Policy(gates=gates)
    )
    await session.run("go")

    assert (stage.ran, stage.outcomes(session)) == (ran, [f"pay: {outcome}"])
    assert session.history[1].calls[0].arguments == '{"amount": 1}'


@pytest.mark.behaviour("what-a-hook-made-of-a-call-is-judged")
@pytest.mark.parametrize(
    ("gates", "order", "asked"),
    [
        (Gates.HOOKS_FIRST, ["HookAsked", "CallJudged", "ApprovalRequested", "CallJudged", "ToolStarted"], 2),
        (Gates.RULES_FIRST, ["CallJudged", "ApprovalRequested", "CallJudged", "HookAsked", "ToolStarted"], 1),
    ],
)
async def test_by_default_rules_and_people_see_what_the_hooks_made_of_a_call(
    stage: Stage, gates: Gates, order: list[str], asked: int
) -> None:
    """Or, by policy, the hooks come last; either way a person is asked once."""
    double = says_at(Hook.PRE_TOOL_USE, HookAnswer(arguments='{"amount": 2}'))
    session = stage.session(
        calls(("pay", {"amount": 1})), says("done"), hooks=[double], policy=Policy(gates=gates)
    )
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, Approve())})

    assert stage.order(HookAsked, CallJudged, ApprovalRequested, ToolStarted) == order
    [question] = stage.seen(ApprovalRequested)
    assert (question.arguments, stage.ran) == (f'{{"amount": {asked}}}', ["pay 2"])


@pytest.mark.behaviour("what-a-hook-made-of-a-call-is-judged")
async def test_nobody_is_asked_about_a_call_that_a_hook_made_impossible(stage: Stage) -> None:
    """As nobody is where the model did."""
    spoils = says_at(Hook.PRE_TOOL_USE, HookAnswer(arguments='{"amount": "much"}'))
    session = stage.session(calls(("pay", {})), says("well"), hooks=[spoils])
    result = await stage.play(session)
    assert (result.text, stage.seen(ApprovalRequested)) == ("well", [])


@pytest.mark.behaviour("what-a-hook-made-of-a-call-is-judged")
async def test_each_hook_sees_what_the_one_before_made_of_the_call(stage: Stage) -> None:
    """In the order in which they are given; what the last one made of it runs."""
    told: list[HookCall] = []
    made = [HookAnswer(arguments=f'{{"at": "{at}"}}') for at in "bc"]
    hooks = [says_at(Hook.PRE_TOOL_USE, answer, told=told, name=answer.arguments) for answer in made]
    await stage.session(calls(("look", {"at": "a"})), says("done"), hooks=hooks).run("go")
    assert [about.arguments for about in told] == [{"at": "a"}, {"at": "b"}]
    assert stage.ran == ["look c"]


@pytest.mark.behaviour("a-hooks-context-is-read-once")
@pytest.mark.parametrize(
    "place", [Hook.USER_PROMPT_SUBMIT, Hook.SESSION_START, Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE]
)
async def test_what_a_hook_adds_stands_in_the_next_request_until_it_is_answered(
    stage: Stage, place: Hook
) -> None:
    """An attempt that failed has not read it."""
    adds = says_at(place, HookAnswer(context="mind the gap"), None)
    script = [
        fails(Failure.SERVER),
        calls(("look", {})),
        fails(Failure.SERVER),
        calls(("look", {})),
        says("done"),
    ]
    await stage.session(*script, hooks=[adds]).run("go")

    read = [request.instructions for request in stage.model.requests]
    at = 2 if place in ABOUT_CALLS else 0
    assert read == [*[""] * at, "mind the gap", "mind the gap", *[""] * (3 - at)]
    assert all("mind the gap" not in line for line in stage.shown(5))


@pytest.mark.behaviour("a-hook-may-make-a-run-go-on")
async def test_a_run_that_was_about_to_stop_goes_on_with_the_hooks_reason(stage: Stage) -> None:
    """The model reads it as something that was said; the next stop is asked about anew."""
    told: list[HookCall] = []
    more = HookAnswer(go_on=True, reason="and the tests?")
    stop = says_at(Hook.STOP, more, None, told=told)
    result = await stage.session(says("done"), calls(("look", {})), says("all done"), hooks=[stop]).run("go")

    assert (result.text, result.reason, result.spent.turns) == ("all done", DoneReason.END_TURN, 3)
    assert stage.shown(2) == ["user: go", "assistant: done", "user: and the tests?"]
    assert [about.payload for about in told] == [
        {"reason": "end_turn", "continued": 0},
        {"reason": "end_turn", "continued": 1},
    ]


@pytest.mark.behaviour("a-hook-may-make-a-run-go-on")
@pytest.mark.parametrize("continues", [0, 1, 3])
async def test_a_hook_that_never_lets_go_does_so_a_few_times_only(stage: Stage, continues: int) -> None:
    """As often as the policy says, and somebody is told."""
    stop = says_at(Hook.STOP, HookAnswer(go_on=True))
    policy = Policy(continues=continues)
    session = stage.session(*[says("done")] * 9, hooks=[stop], policy=policy)
    result = await stage.play(session)

    assert (result.reason, stage.asked) == (DoneReason.END_TURN, continues + 1)
    assert [f"{continues} times" in notice.text for notice in stage.seen(Warned)] == [True]
    assert stage.said(session)[2:3] == (["user: Continue where you left off."] if continues else [])


@pytest.mark.behaviour("a-hook-may-make-a-run-go-on")
@pytest.mark.parametrize(
    ("reply", "limits"),
    [
        (fails(Failure.AUTH), Limits()),
        (calls(("look", {})), Limits(turns=1)),
        (stalls("once"), Limits()),
    ],
)
async def test_an_end_that_was_forced_is_not_up_to_a_hook(stage: Stage, reply: Reply, limits: Limits) -> None:
    """Limits, errors and people have the last word."""
    told: list[HookCall] = []
    stop = says_at(Hook.STOP, HookAnswer(go_on=True), told=told)
    session = stage.session(reply, hooks=[stop], limits=limits)
    on: dict[type, Any] = {TextDelta: interrupts(session)} if reply.stalls else {}
    assert (await stage.play(session, on=on)).reason is not DoneReason.END_TURN
    assert (told, stage.asked) == ([], 1)


@pytest.mark.behaviour("a-hook-may-make-a-run-go-on")
async def test_the_end_of_a_child_has_a_hook_of_its_own(stage: Stage) -> None:
    """The hooks of a run's end are not asked about its children."""
    told: list[HookCall] = []
    stop = says_at(Hook.STOP, told=told)
    subagent = says_at(Hook.SUBAGENT_STOP, HookAnswer(go_on=True, reason="look closer"), None, told=told)
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look"}))
    script = (spawn, says("nothing"), says("a mouse"), says("a mouse, then"))
    session = stage.session(*script, children=[ChildSpec(name="scout")], hooks=[stop, subagent])
    await session.run("go")

    assert [about.hook for about in told] == ["subagent_stop", "subagent_stop", "stop"]
    assert stage.said(session)[2] == "tool: a mouse"


@pytest.mark.behaviour("a-prompt-may-be-refused")
@pytest.mark.parametrize("place", [Hook.USER_PROMPT_SUBMIT, Hook.SESSION_START])
async def test_a_prompt_that_a_hook_refuses_is_not_part_of_the_conversation(
    stage: Stage, place: Hook
) -> None:
    """The model is not asked, and the next prompt is judged for itself."""
    told: list[HookCall] = []
    gate = says_at(place, DENY, None, told=told)
    session = stage.session(says("hello"), hooks=[gate])
    refused = await stage.play(session, "secret")
    result = await stage.play(session, "hi")

    assert (refused.reason, refused.detail) == (DoneReason.BLOCKED, f"at {place}: not on Sundays")
    assert [(one.reason) for one in stage.seen(InputBlocked)] == [f"at {place}: not on Sundays"]
    assert (result.text, stage.shown(1)) == ("hello", ["user: hi"])
    assert len(told) == 2
    if place is Hook.USER_PROMPT_SUBMIT:
        assert [about.payload["prompts"] for about in told] == [["secret"], ["hi"]]
    assert stage.order(InputBlocked, InputTaken) == ["InputBlocked", "InputTaken"]


async def raises(_: HookCall) -> None:
    """Fail."""
    raise RuntimeError("out of order")  # noqa: EM101, TRY003  # what is read further down


async def hangs(_: HookCall) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def babbles(_: HookCall) -> Any:
    """Answer what is no answer."""
    return "yes"


@pytest.mark.behaviour("a-broken-hook-has-no-say")
@pytest.mark.parametrize(
    ("function", "fault"), [(raises, "out of order"), (hangs, "0.001"), (babbles, "'yes'")]
)
@pytest.mark.parametrize("place", [Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE, Hook.STOP, Hook.USER_PROMPT_SUBMIT])
async def test_a_hook_that_fails_hangs_or_talks_nonsense_harms_no_run(
    stage: Stage, place: Hook, function: Any, fault: str
) -> None:
    """Things take their course, the other hooks are heard, and whoever watches is told."""
    told: list[HookCall] = []
    timeout = 0.001 if function is hangs else None
    hooks = [hook(place, timeout=timeout)(function), says_at(place, told=told)]
    result = await stage.play(stage.session(calls(("look", {})), says("done"), hooks=hooks))

    assert (result.text, stage.ran, len(told)) == ("done", ["look"], 1)
    [replied] = stage.seen(HookEnded)
    assert [bool(said.fault) for said in replied.said] == [True, False]
    assert fault in replied.said[0].fault


@pytest.mark.behaviour("a-broken-hook-has-no-say")
async def test_arguments_that_are_none_are_a_fault_of_their_hook(stage: Stage) -> None:
    """The call stays what the model wrote."""
    garbles = says_at(Hook.PRE_TOOL_USE, HookAnswer(arguments='{"at": '))
    await stage.play(stage.session(calls(("look", {"at": "a"})), says("done"), hooks=[garbles]))
    assert stage.ran == ["look a"]
    assert [said.fault != "" for one in stage.seen(HookEnded) for said in one.said] == [True]


@pytest.mark.behaviour("a-sessions-end-is-told")
async def test_a_sessions_end_is_told_once_with_the_reason_of_its_last_run(stage: Stage) -> None:
    """One that had no run has no end; what goes wrong in the hook harms nobody."""
    told: list[HookCall] = []
    hooks = [hook(Hook.SESSION_END)(raises), says_at(Hook.SESSION_END, DENY, told=told)]
    async with stage.session(hooks=hooks):
        pass
    async with stage.session(says("one"), fails(Failure.AUTH), hooks=hooks) as session:
        await session.run("first")
        await session.run("second")
        assert told == []
    await session.close()

    assert [(about.session, about.payload) for about in told] == [("s", {"reason": "error"})]


@pytest.mark.behaviour("a-hook-may-speak-to-a-summary")
@pytest.mark.parametrize("deny", [False, True])
async def test_before_a_conversation_is_shortened_hooks_may_add_a_wish_or_be_against_it(
    stage: Stage, *, deny: bool
) -> None:
    """Where one is, the conversation stays as it is and the run goes on."""
    told: list[HookCall] = []
    answer = DENY if deny else HookAnswer(context="keep the numbers")
    model = ModelSpec(name="scripted", window=100)
    long = says("a long story " * 15, usage=Usage(input=60, output=30))
    session = stage.session(
        long, says("done"), model=model, hooks=[says_at(Hook.PRE_COMPACT, answer, told=told)]
    )
    await session.run("tell " * 40)
    result = await stage.play(session, "and then?")

    assert (result.text, [about.payload["reason"] for about in told]) == ("done", ["threshold"])
    if deny:
        assert [one.reason for one in stage.seen(CompactionFailed)] == [
            "a hook denied it: at pre_compact: not on Sundays"
        ]
        assert len(stage.shown(2)) == 3
    else:
        assert stage.model.requests[1].instructions.endswith("\nkeep the numbers")
        assert len(stage.seen(Compacted)) == 1
