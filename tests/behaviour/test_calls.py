"""Calls of tools: how they run, who is asked, what rules and hooks make of them."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import attrs
import pytest
from behaviour.conftest import Stage

from turnwheel import (
    Approve,
    ApproveAlways,
    ChildSpec,
    Deny,
    DoneReason,
    HookAnswer,
    HookCall,
    Policy,
    Rule,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects.errors import AnswerRefused, ArgumentError, UnknownRequest
from turnwheel.effects.events import ApprovalGiven, Decision, Failure
from turnwheel.effects.history import CallPiece
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.notices import (
    ApprovalResolved,
    CallJudged,
    CallSettled,
    HookEnded,
    ToolOutput,
    ToolStarted,
)
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.requests import AskApproval
from turnwheel.performers.base import PerformContext
from turnwheel.performers.hooks import HostHook
from turnwheel.states.state import Executing
from turnwheel.testing.scripted import Reply, calls, fails, says

# A person is asked, and answers: at once, next week, elsewhere, or not at all

TWO_READS_AROUND = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}))


@pytest.mark.behaviour("a-run-rests-on-a-question")
async def test_the_answer_may_come_next_week_in_another_process_before_a_process_goes_on(
    stage: Stage,
) -> None:
    async with stage.session(TWO_READS_AROUND) as session:
        await session.run("go")
    stage.clock.move(7 * 86_400.0)
    async with stage.session() as session:
        await session.approve(session.waiting[0].id, by="the boss")
        assert session.waiting == ()
    assert stage.ran == ["look a"]

    async with stage.session(says("done")) as session:
        result = await stage.play(session, None)

    assert (result.text, stage.ran) == ("done", ["look a", "pay 1", "look b"])
    assert stage.shown(1)[-1] == "tool: saw a | paid 1 | saw b"
    assert [notice.by for notice in stage.seen(ApprovalResolved)] == ["the boss"]
    assert result.spent.seconds == 0.0


@pytest.mark.behaviour("an-answer-names-its-question")
async def test_an_answer_to_no_open_question_is_refused_and_changes_nothing(stage: Stage) -> None:
    session = stage.session(calls(("pay", {})), says("done"))
    [question] = (await session.run("go")).waiting
    other = await stage.session().load()
    for wrong in ("", "x", question.call):
        with pytest.raises(UnknownRequest, match=f"open: '{question.id}'"):
            await other.approve(wrong)

    await other.approve(question.id, Deny(message="no"))
    for late in (session, other):
        with pytest.raises(UnknownRequest, match="open: none"):
            await late.approve(question.id, Approve())
    session = stage.session(says("so be it"))
    result = await stage.play(session, None)
    assert (result.text, stage.ran, stage.outcomes(session)) == ("so be it", [], ["pay: denied"])


@pytest.mark.behaviour("a-callback-may-answer")
@pytest.mark.parametrize(
    ("decision", "ran", "reason"),
    [
        (Approve(), ["pay 7"], DoneReason.END_TURN),
        (Approve(arguments={"amount": 2}), ["pay 2"], DoneReason.END_TURN),
        (Deny(), [], DoneReason.END_TURN),
        (Deny(interrupt=True), [], DoneReason.INTERRUPTED),
        (None, [], None),
    ],
)
@pytest.mark.parametrize("sync", [True, False])
async def test_a_hosts_own_function_is_asked_and_may_leave_the_answer_to_a_person(
    stage: Stage, decision: Decision | None, ran: list[str], reason: DoneReason | None, *, sync: bool
) -> None:
    asked: list[AskApproval] = []
    threads: list[int] = []

    def decides(question: AskApproval) -> Decision | None:
        asked.append(question)
        threads.append(threading.get_ident())
        return decision

    async def approver(question: AskApproval) -> Decision | None:
        return decides(question)

    script = (calls(("pay", {"amount": 7})), says("done"))
    result = await stage.session(*script, approver=decides if sync else approver).run("go")

    [question] = asked
    assert (question.tool, question.arguments, question.values) == ("pay", '{"amount": 7}', {"amount": 7})
    assert attrs.evolve(question, arguments="").values == {}  # some models write none where none are needed
    assert (question.session, question.run, question.agent) == ("s", question.id.rpartition("-")[0], "")
    assert (threads == [threading.get_ident()]) == (not sync)  # one that blocks holds up no other session
    assert (stage.ran, result.reason) == (ran, reason)
    assert result.waiting == (() if reason else (question,))


@pytest.mark.behaviour("a-callback-may-answer")
@pytest.mark.parametrize("wrong", [True, "yes", Approve, 0])
async def test_an_answer_that_is_no_decision_is_an_error_at_once(stage: Stage, wrong: Any) -> None:
    """It is a mistake of the host and no person's no: the question stays open for an approver that works."""
    session = stage.session(calls(("pay", {"amount": 7})), says("done"), approver=lambda _: wrong)
    with pytest.raises(ArgumentError, match=r"Approve\(\), ApproveAlways\(\) or Deny\(\); got"):
        await session.run("go")
    assert [question.tool for question in session.waiting] == ["pay"]
    await session.approve(session.waiting[0].id, Approve())
    assert ((await session.resume()).text, stage.ran) == ("done", ["pay 7"])


NO_FIVE = Rule(verdict="deny", tool="pay", where=(("amount", "5"),))
# Arguments with which a call of `pay` cannot run, and why not.
UNFIT = [
    (Approve(arguments={"amount": "much"}), "amount must be of type integer"),
    (Approve(arguments={"numbr": 7}), "numbr is not a parameter (there are: amount)"),
    (Approve(arguments="no object"), "they are no valid JSON object"),
    (Approve(arguments={"amount": 5}), "denied by the rule 'deny pay:amount=5'"),
    (ApproveAlways({"amont": "7"}), "no argument 'amont' of 'pay'; did you mean 'amount'? there are: amount"),
]


@pytest.mark.behaviour("a-person-may-change-the-arguments")
@pytest.mark.parametrize(("decision", "why"), UNFIT)
async def test_arguments_that_cannot_run_are_refused_and_the_question_stays_open(
    stage: Stage, decision: Decision, why: str
) -> None:
    """In any process: the schema and the rules of the run are in its journal."""
    session = stage.session(calls(("pay", {"amount": 7})), says("done"), rules=[NO_FIVE])
    [question] = (await session.run("go")).waiting
    before = len(await stage.store.load("s"))
    for who in (session, await stage.session().load()):
        with pytest.raises(AnswerRefused) as refused:
            await who.approve(question.id, decision)
        assert (refused.value.request, refused.value.tool, refused.value.problem) == (question.id, "pay", why)
        with pytest.raises(AnswerRefused):
            await who.check_answer(question.id, decision)
        assert [one.id for one in who.waiting] == [question.id]
    assert len(await stage.store.load("s")) == before
    await session.check_answer(question.id, Approve(arguments={"amount": 2}))
    await session.approve(question.id, Approve(arguments={"amount": 2}))
    assert ((await session.resume()).text, stage.ran) == ("done", ["pay 2"])


@pytest.mark.behaviour("a-callback-may-answer")
@pytest.mark.parametrize(("decision", "why"), UNFIT)
@pytest.mark.parametrize("performer", [True, False])
async def test_arguments_of_a_callback_that_cannot_run_are_an_error_and_the_question_stays_open(
    stage: Stage, decision: Decision, why: str, *, performer: bool
) -> None:
    async def performs(request: AskApproval, scene: PerformContext) -> ApprovalGiven:
        return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=decision)

    settings: dict[str, Any] = {"approver": lambda _: decision}
    if performer:
        settings = {"performers": {AskApproval: performs}}
    script = (calls(("pay", {"amount": 7})), says("done"))
    session = stage.session(*script, rules=[NO_FIVE], **settings)
    with pytest.raises(AnswerRefused, match=re.escape(why)):
        await session.run("go")
    assert [question.tool for question in session.waiting] == ["pay"]
    await session.approve(session.waiting[0].id, Approve())
    assert ((await session.resume()).text, stage.ran) == ("done", ["pay 7"])


@pytest.mark.behaviour("a-callback-may-answer")
@pytest.mark.parametrize("sync", [True, False])
async def test_a_function_that_fails_has_said_no(stage: Stage, *, sync: bool) -> None:

    def fails_to(_: AskApproval) -> Decision:
        raise ConnectionError("the desk is closed")  # noqa: EM101, TRY003  # what is read further down

    async def fails_later(question: AskApproval) -> Decision:
        return fails_to(question)

    approver = fails_to if sync else fails_later
    session = stage.session(calls(("pay", {})), says("well"), approver=approver)
    assert (await session.run("go")).text == "well"
    assert (stage.ran, stage.outcomes(session)) == ([], ["pay: denied"])
    assert "the desk is closed" in stage.shown(2)[-1]


# Tool calls: in which order they run, what their results are, and what never harms a run


def call(name: str, arguments: str, number: int = 0, wire_id: str = "w") -> CallPiece:
    """A call as a model writes it, right or wrong."""
    return CallPiece(number, wire_id, name, arguments)


def wished(*pieces: CallPiece) -> Reply:
    """An answer of *pieces*."""
    return Reply(pieces=pieces, stop=StopReason.TOOL_USE)


@pytest.mark.behaviour("what-goes-wrong-is-a-result")
@pytest.mark.parametrize(
    ("wish", "outcome", "content"),
    [
        (call("fail", '{"how": "too hot"}'), Outcome.ERROR, "Tool raised an exception: too hot"),
        (call("fail", '{"how": "exit"}'), Outcome.CRASHED, "Tool execution crashed: SystemExit: exit"),
        (call("nowhere", "{}"), Outcome.ERROR, "Tool not found: nowhere. Available: "),
        (call("hang", "{}"), Outcome.TIMED_OUT, "Tool timed out after 0.001 s"),
    ],
)
async def test_the_model_reads_what_went_wrong_and_the_run_goes_on(
    stage: Stage, wish: CallPiece, outcome: Outcome, content: str
) -> None:

    @tool(side_effect="read_only", timeout=0.001)
    async def hang() -> None:
        """Never end."""
        await asyncio.Event().wait()

    after = call("look", "{}", 1)
    reply = attrs.evolve(wished(wish, after), wrong=True)
    session = stage.session(reply, says("I see"), tools=[*stage.tools, hang])
    result = await session.run("go")

    [failed, fine] = stage.model.seen[1][-1].results
    assert (failed.outcome, failed.is_error, fine.outcome) == (outcome, True, Outcome.OK)
    assert failed.content.startswith(content)
    assert result.text == "I see"


@pytest.mark.behaviour("a-call-has-an-id-of-ours")
@pytest.mark.parametrize("wire_id", ["call_0", ""])
async def test_calls_that_the_provider_gave_the_same_id_are_told_apart(stage: Stage, wire_id: str) -> None:
    pair = wished(call("look", '{"at": "a"}', 0, wire_id), call("pay", "{}", 1, wire_id))
    session = stage.session(pair, wished(call("look", '{"at": "b"}', 0, wire_id)), says("done"))
    resting = await stage.play(session)
    await session.approve(resting.waiting[0].id)
    await stage.play(session, None)

    assert stage.ran == ["look a", "pay 1", "look b"]
    ended = [notice.call for notice in stage.seen(CallSettled)]
    assert len(set(ended)) == 3
    assert stage.shown(3)[1:] == [
        "assistant: [look, pay]",
        "tool: saw a | paid 1",
        "assistant: [look]",
        "tool: saw b",
    ]
    assert {result.wire_id for message in stage.model.seen[2] for result in message.results} == {wire_id}


@pytest.mark.behaviour("a-tool-knows-its-place")
async def test_a_tool_is_told_where_and_for_whom_it_runs_and_can_say_how_far_it_is(
    stage: Stage, tmp_path: Path
) -> None:
    told: list[ToolContext[Any]] = []

    @tool(side_effect="read_only")
    async def survey(depth: int, context: ToolContext[Any]) -> str:
        """Look around."""
        told.append(context)
        context.progress(f"{depth} deep")
        return "all clear"

    session = stage.session(
        calls(("survey", {"depth": 3})), says("done"), tools=[survey], cwd=tmp_path, deps="db"
    )
    await stage.play(session)

    [context] = told
    [started] = stage.seen(ToolStarted)
    assert (context.cwd, context.deps, context.session) == (tmp_path, "db", "s")
    assert context.call == started.call
    assert context.key not in {"", context.call}
    assert isinstance(context.state, Executing)
    assert context.memory is not None
    assert context.key in context.state.open
    assert (context.config, context.memory.spent.turns) == (session.machine and session.machine.config, 1)
    assert [notice.text for notice in stage.seen(ToolOutput)] == ["3 deep"]
    assert stage.order(ToolStarted, ToolOutput, CallSettled) == ["ToolStarted", "ToolOutput", "CallSettled"]
    assert '"context"' not in survey.spec.schema


# Which calls run, which are asked about and which are denied, and on what ground

RUNS, ASKED, DENIED = "runs", "asked", "denied"


async def becomes(stage: Stage, name: str, arguments: dict[str, object], **settings: object) -> str:
    """What becomes of one call of *name* in an agent with *settings*."""
    session = stage.session(calls((name, arguments)), says("done"), **settings)
    result = await stage.play(session)
    if result.waiting:
        assert stage.ran == []
        return ASKED
    assert result.reason is DoneReason.END_TURN
    return {"ok": RUNS, "denied": DENIED}[stage.outcomes(session)[0].partition(": ")[2]]


def rule(verdict: str, tool_: str = "pay", **where: str) -> Rule:
    """A rule in one line."""
    return Rule(verdict=Verdict(verdict), tool=tool_, where=tuple(where.items()))


@pytest.mark.behaviour("a-judgement-names-its-ground")
@pytest.mark.parametrize(
    ("name", "settings", "judged"),
    [
        ("look", {}, "allow, by tool: it only reads"),
        ("pay", {}, "ask, by tool: it may change anything"),
        ("pay", {"policy": Policy(mode="plan")}, "deny, by mode: plan"),
        ("pay", {"policy": Policy(mode="bypass")}, "allow, by mode: bypass"),
        ("pay", {"rules": [rule("deny", amount="1")]}, "deny, by rule: deny pay:amount=1"),
        ("pay", {"rules": [rule("allow")]}, "allow, by rule: allow pay"),
        ("pay", {"rules": [rule("ask", "p?y")]}, "ask, by rule: ask p?y"),
    ],
)
async def test_each_judgement_is_told_with_what_it_rests_on(
    stage: Stage, name: str, settings: dict[str, object], judged: str
) -> None:
    await becomes(stage, name, {"amount": 1} if name == "pay" else {}, **settings)
    told = [f"{notice.verdict}, by {notice.ground}: {notice.detail}" for notice in stage.seen(CallJudged)]
    assert told == [judged]


# The host's own say: when its hooks are asked, what they can do, and what they cannot break

ABOUT_CALLS = (Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE, Hook.POST_TOOL_USE_FAILURE)
DENY = HookAnswer(verdict="deny", reason="not on Sundays")


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
    told: list[HookCall] = []
    named = says_at(Hook.PRE_TOOL_USE, told=told, tool="l*", where={"at": "*.md"})
    wishes = calls(("look", {"at": "a.md"}), ("look", {"at": "a.py"}), ("dig", {"at": "b.md"}))
    stage.release()
    await stage.session(wishes, says("done"), hooks=[named]).run("go")
    assert [about.arguments for about in told] == [{"at": "a.md"}]


@pytest.mark.behaviour("what-a-hook-made-of-a-call-is-judged")
async def test_each_hook_sees_what_the_one_before_made_of_the_call(stage: Stage) -> None:
    told: list[HookCall] = []
    made = [HookAnswer(arguments={"at": "b"}), HookAnswer(arguments='{"at": "c"}')]
    hooks = [says_at(Hook.PRE_TOOL_USE, answer, told=told, name=answer.arguments) for answer in made]
    await stage.session(calls(("look", {"at": "a"})), says("done"), hooks=hooks).run("go")
    assert [about.arguments for about in told] == [{"at": "a"}, {"at": "b"}]
    assert stage.ran == ["look c"]


@pytest.mark.behaviour("a-hook-may-make-a-run-go-on")
async def test_the_end_of_a_child_has_a_hook_of_its_own(stage: Stage) -> None:
    told: list[HookCall] = []
    stop = says_at(Hook.STOP, told=told)
    subagent = says_at(Hook.SUBAGENT_STOP, HookAnswer(go_on=True, reason="look closer"), None, told=told)
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look"}))
    script = (spawn, says("nothing"), says("a mouse"), says("a mouse, then"))
    session = stage.session(*script, children=[ChildSpec(name="scout")], hooks=[stop, subagent])
    await session.run("go")

    assert [about.hook for about in told] == ["subagent_stop", "subagent_stop", "stop"]
    assert stage.said(session)[2] == "tool: a mouse"


async def raises(_: HookCall) -> None:
    """Fail."""
    raise RuntimeError("out of order")  # noqa: EM101, TRY003  # what is read further down


async def hangs(_: HookCall) -> None:
    """Never answer."""
    await asyncio.Event().wait()


async def babbles(_: HookCall) -> Any:
    """Answer what is no answer."""
    return "yes"


async def garbles(_: HookCall) -> HookAnswer:
    """Answer with arguments that no JSON can hold."""
    return HookAnswer(arguments={"at": {"a", "b"}})


FAULTS: list[tuple[Any, str]] = [
    (raises, "out of order"),
    (hangs, "0.001"),
    (babbles, "'yes'"),
    (garbles, "Object of type set is not JSON serializable"),
]


@pytest.mark.behaviour("a-broken-guard-denies")
@pytest.mark.parametrize(("function", "fault"), FAULTS)
@pytest.mark.parametrize(("on_error", "ran"), [(None, []), ("deny", []), ("allow", ["look a"])])
async def test_a_call_does_not_run_where_its_guard_fails(
    stage: Stage, function: Any, fault: str, on_error: Any, ran: list[str]
) -> None:
    guard = hook(Hook.PRE_TOOL_USE, timeout=0.001 if function is hangs else None, on_error=on_error)(function)
    session = stage.session(calls(("look", {"at": "a"})), says("done"), hooks=[guard])
    await stage.play(session)
    assert stage.ran == ran
    [replied] = stage.seen(HookEnded)
    assert fault in replied.said[0].fault
    shown = stage.shown(2)[-1]
    assert (f"{function.__name__}: it failed: " in shown, fault in shown) == (not ran, not ran)


@pytest.mark.behaviour("a-broken-hook-has-no-say")
@pytest.mark.parametrize(("function", "fault"), FAULTS)
@pytest.mark.parametrize("place", [Hook.POST_TOOL_USE, Hook.STOP, Hook.USER_PROMPT_SUBMIT])
async def test_a_hook_that_fails_hangs_or_talks_nonsense_harms_no_run(
    stage: Stage, place: Hook, function: Any, fault: str
) -> None:
    told: list[HookCall] = []
    timeout = 0.001 if function is hangs else None
    hooks = [hook(place, timeout=timeout)(function), says_at(place, told=told)]
    result = await stage.play(stage.session(calls(("look", {})), says("done"), hooks=hooks))

    assert (result.text, stage.ran, len(told)) == ("done", ["look"], 1)
    [replied] = stage.seen(HookEnded)
    assert [bool(said.fault) for said in replied.said] == [True, False]
    assert fault in replied.said[0].fault


@pytest.mark.behaviour("a-broken-guard-denies")
async def test_arguments_that_are_none_are_a_fault_of_their_hook(stage: Stage) -> None:
    half = says_at(Hook.PRE_TOOL_USE, HookAnswer(arguments='{"at": '))
    await stage.play(stage.session(calls(("look", {"at": "a"})), says("done"), hooks=[half]))
    assert stage.ran == []
    assert [said.fault != "" for one in stage.seen(HookEnded) for said in one.said] == [True]


@pytest.mark.behaviour("a-sessions-end-is-told")
async def test_a_sessions_end_is_told_once_with_the_reason_of_its_last_run(stage: Stage) -> None:
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


@pytest.mark.behaviour("a-turn-offers-what-a-function-names")
@pytest.mark.parametrize("sync", [True, False])
async def test_a_turn_offers_the_tools_that_a_function_names(stage: Stage, *, sync: bool) -> None:
    asked: list[int] = []

    def as_it_stands(context: PerformContext) -> list[str]:
        asked.append(len(context.history))
        return ["put", "look"] if any(message.results for message in context.history) else ["look"]

    async def later(context: PerformContext) -> list[str]:
        return as_it_stands(context)

    script = (
        calls(("put", {"value": "a"}), ("look", {}), wrong=True),
        calls(("put", {"value": "b"})),
        says("done"),
    )
    tools_for = as_it_stands if sync else later
    async with stage.session(*script, tools_for=tools_for, policy=Policy(mode="accept_edits")) as session:
        result = await session.run("go")
        told = stage.said(session)

    assert (result.text, stage.ran) == ("done", ["look", "put b"])
    assert [request.tools for request in stage.model.requests] == [("look",), *[("look", "put")] * 2]
    assert stage.outcomes(session) == ["put: error", "look: ok", "put: ok"]
    assert "Tool not found: put. Available: look." in told[2]
    # Read again from its journal, it is what it was, and the function is not asked.
    async with await stage.session(tools_for=tools_for).load() as again:
        assert (stage.said(again), asked) == (told, [1, 3, 5])
        assert again.machine == session.machine


@pytest.mark.behaviour("a-turn-offers-what-a-function-names")
@pytest.mark.parametrize(
    ("names", "fault"), [(["stok"], "no tool 'stok'; there are: look, put"), ("look", "write ['look']")]
)
async def test_a_name_that_is_no_tools_ends_the_run_with_an_error(
    stage: Stage, names: Any, fault: str
) -> None:
    result = await stage.session(says("done"), tools_for=lambda _: names).run("go")
    assert (result.reason, fault in result.detail) == (DoneReason.ERROR, True)


@pytest.mark.behaviour("a-turn-offers-what-a-function-names")
async def test_a_child_is_offered_what_it_has_of_the_tools_that_a_function_names(stage: Stage) -> None:
    spawn = calls(("run_agent", {"agent": "scout", "prompt": "look"}))
    children = [ChildSpec(name="scout", tools=("look", "pay"))]
    session = stage.session(
        *(spawn, calls(("pay", {}), wrong=True), says("seen"), says("done")),
        children=children,
        tools_for=lambda context: ["look", "put"] if context.config.agent else ["put", "run_agent"],
    )
    await session.run("go")
    assert [one.tools for one in stage.model.requests] == [
        ("put", "run_agent"),
        ("look",),
        ("look",),
        ("put", "run_agent"),
    ]
    assert stage.ran == []
