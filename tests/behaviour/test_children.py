"""Agents that work for an agent: what they get, what they may do, and what becomes of it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    Approve,
    ChildSpec,
    Deny,
    DoneReason,
    Limits,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Rule,
    SetMode,
)
from turnwheel.effects.errors import UnknownCall
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    ApprovalRequested,
    CallSettled,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    fails,
    says,
    stalls,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel.testing.clocks import ManualClock

SCOUT = ChildSpec(name="scout", description="Looks around.")
PRICED = ModelSpec(name="scripted", price=Price(input=1, output=2))
"""Costs 0.00002 USD an answer of 15 tokens."""

PARALLEL: dict[str, Any] = {"policy": Policy(concurrency="parallel")}


def sends(*prompts: str, agent: str = "scout") -> Reply:
    """An answer that gives each of *prompts* to a child."""
    return calls(*[("run_agent", {"agent": agent, "prompt": prompt}) for prompt in prompts])


class Cast:
    """
    A model in which each child has a script of its own, by what it was asked, and their parent has *parent*.

    *seen* is what each was shown, a list a request; *requests* are all requests in the order they came.
    """

    def __init__(self, *parent: Reply, **children: list[Reply]) -> None:
        self._models = {"": ScriptedModel(*parent)}
        self._models |= {name: ScriptedModel(*script) for name, script in children.items()}
        self.requests: list[CallModel] = []

    def asked(self, name: str = "") -> list[CallModel]:
        """What the child that was asked *name*, or the parent, was asked for."""
        return self._models[name].requests

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """The next answer of whoever asks."""
        self.requests.append(request)
        name = scene.history[0].text if scene.config.agent else ""
        return await self._models[name](request, scene)


# What it is


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_a_child_has_a_conversation_of_its_own_and_its_answer_is_the_result_of_the_call(
    stage: Stage,
) -> None:
    """It is told its task and no more; of what it did its parent reads the answer and no more."""
    script = (sends("find it"), calls(("look", {"at": "a"})), says("it is there"), says("well done"))
    session = stage.session(*script, children=[SCOUT])
    result = await session.run("where is it?")

    assert stage.shown(2) == ["user: find it"]
    assert stage.shown(3) == ["user: find it", "assistant: [look]", "tool: saw a"]
    assert stage.said(session) == [
        *("user: where is it?", "assistant: [run_agent]", "tool: it is there", "assistant: well done")
    ]
    assert (result.text, result.spent.turns) == ("well done", 2)


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_a_child_is_told_who_it_is_and_which_there_are_is_told_its_parent(stage: Stage) -> None:
    """Its prompt is a short one, or one of its own; that of its parent is not for it."""
    other = ChildSpec(name="poet", system="You rhyme.")
    script = (sends("find"), says("x"), sends("write", agent="poet"), says("y"), says("done"))
    session = stage.session(*script, children=[SCOUT, other], system="You are a clerk.")
    await session.run("go")

    first, second = stage.model.requests[1].system, stage.model.requests[3].system
    assert first.startswith("You are scout, a helper of another agent. Looks around.")
    assert "clerk" not in first + second
    assert second == "You rhyme."
    spawn = session.machine and session.machine.config.tool("run_agent")
    assert spawn is not None
    assert "scout: Looks around.; poet" in spawn.description


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_a_child_reads_its_own_instructions_only(stage: Stage, tmp_path: Path) -> None:
    """Those of its parent are for its parent."""
    (tmp_path / "AGENTS.md").write_text("All of us.", "utf-8")
    (tmp_path / "CLERK.md").write_text("The clerk.", "utf-8")
    child = ChildSpec(name="scout", instructions=("AGENTS.md",))
    script = (sends("find"), says("here"), says("done"))
    files = ("AGENTS.md", "CLERK.md")
    await stage.session(*script, children=[child], instructions=files, cwd=tmp_path).run("go")
    parent, own = (stage.model.requests[number].system for number in (0, 1))
    assert ("All of us." in parent, "The clerk." in parent) == (True, True)
    assert ("All of us." in own, "The clerk." in own) == (True, False)


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_the_calls_behind_it_go_on_when_it_has_answered(stage: Stage) -> None:
    """What ran before it is kept, and the results are in the order of the calls."""
    wishes = calls(
        ("look", {"at": "a"}), ("run_agent", {"agent": "scout", "prompt": "find"}), ("look", {"at": "b"})
    )
    session = stage.session(wishes, says("it is there"), says("done"), children=[SCOUT])
    await session.run("go")
    assert stage.shown(3)[-1] == "tool: saw a | it is there | saw b"


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_a_child_may_have_a_model_of_its_own(stage: Stage) -> None:
    """At that one's price."""
    own = ModelSpec(name="small", price=Price(input="0.1", output="0.2"))
    script = (sends("find"), says("here"), says("done"))
    children = [ChildSpec(name="scout", model=own)]
    result = await stage.session(*script, children=children, model=PRICED).run("go")
    assert [request.model for request in stage.model.requests] == ["scripted", "small", "scripted"]
    assert result.spent.cost == Decimal("0.000042")


# What it may do


@pytest.mark.behaviour("a-childs-tools-are-some-of-its-parents")
@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (None, ("look", "fail", "dig")),
        (("look", "put", "nowhere", "run_agent"), ("look", "put")),
        ((), ()),
    ],
    ids=["not said", "named", "none"],
)
async def test_a_child_has_the_tools_of_its_parent_that_it_names_or_those_that_only_read(
    stage: Stage, tools: tuple[str, ...] | None, offered: tuple[str, ...]
) -> None:
    """Never one that its parent does not have, and never one that starts a child."""
    script = (sends("find"), says("here"), says("done"))
    await stage.session(*script, children=[ChildSpec(name="scout", tools=tools)]).run("go")
    assert stage.model.requests[1].tools == offered


@pytest.mark.behaviour("a-childs-tools-are-some-of-its-parents")
async def test_what_a_child_was_not_offered_does_not_run(stage: Stage) -> None:
    """Whatever its model says, it starts no child either."""
    wishes = calls(("put", {}), ("run_agent", {"agent": "scout", "prompt": "you do it"}), ("look", {}))
    session = stage.session(sends("find"), wishes, says("I may not"), says("done"), children=[SCOUT])
    await stage.play(session)

    assert stage.ran == ["look"]
    assert stage.shown(3)[-1].startswith("tool: Tool not found: put.")
    assert "Tool not found: run_agent." in stage.shown(3)[-1]
    assert len(stage.seen(AgentStarted)) == 1


@pytest.mark.behaviour("a-childs-tools-are-some-of-its-parents")
async def test_the_rules_of_its_parent_hold_for_a_child(stage: Stage) -> None:
    """What its parent may not do it may not have done."""
    script = (sends("find"), calls(("look", {"at": "secret"})), says("no"), says("done"))
    rules = [Rule(verdict="deny", tool="look")]
    await stage.session(*script, children=[SCOUT], rules=rules).run("go")
    assert stage.ran == []
    assert "Denied by a rule" in stage.shown(3)[-1]


@pytest.mark.behaviour("what-is-no-child-is-a-result")
@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"agent": "nobody", "prompt": "go"}, "No agent named 'nobody'. There are: scout."),
        ({"agent": "scout", "prompt": " "}, "prompt must be a text that says what to do"),
        ({"agent": "scout"}, "Invalid arguments for run_agent"),
    ],
)
async def test_a_call_for_a_child_that_cannot_be_is_a_result(
    stage: Stage, arguments: dict[str, object], result: str
) -> None:
    """That says why, so that the model can do better."""
    session = stage.session(calls(("run_agent", arguments)), says("oh"), children=[SCOUT])
    await stage.play(session)
    assert stage.outcomes(session) == ["run_agent: error"]
    assert result in stage.shown(2)[-1]
    assert stage.seen(AgentStarted) == []


@pytest.mark.behaviour("what-is-no-child-is-a-result")
@pytest.mark.parametrize(
    ("child", "limits", "outcome", "result"),
    [
        (
            [fails(Failure.AUTH)],
            Limits(),
            "error",
            "(the agent gave no answer)\n[ended: error: auth: scripted: auth]",
        ),
        ([says("")], Limits(), "ok", "(the agent gave no answer)"),
        ([calls(("look", {}), text="I see a")], Limits(turns=1), "ok", "I see a\n[ended: max_turns]"),
        ([calls(("look", {}), text="I see a")], Limits(tokens=15), "ok", "I see a\n[ended: token_budget]"),
    ],
    ids=["fails", "says nothing", "turns", "tokens"],
)
async def test_however_a_child_ends_its_parent_reads_of_it_and_goes_on(
    stage: Stage, child: list[Reply], limits: Limits, outcome: str, result: str
) -> None:
    """After a limit, what it has found is worth reading."""
    children = [ChildSpec(name="scout", limits=limits)]
    session = stage.session(sends("find"), *child, says("so be it"), children=children)
    assert (await session.run("go")).text == "so be it"
    assert stage.outcomes(session) == [f"run_agent: {outcome}"]
    assert stage.said(session)[2] == f"tool: {result}"


# Several of them


@pytest.mark.behaviour("children-work-side-by-side")
@pytest.mark.parametrize("concurrency", ["parallel_reads", "parallel"])
async def test_by_policy_children_that_only_read_work_at_the_same_time(
    stage: Stage, concurrency: str
) -> None:
    """The second asks its model before the first has ended; results are in the order of the calls."""
    cast = Cast(
        sends("one", "two"),
        says("done"),
        one=[calls(("dig", {"at": "1"})), says("first")],
        two=[calls(("look", {"at": "2"})), says("second")],
    )
    policy = Policy(concurrency=concurrency)
    session = stage.session(children=[SCOUT], performers={CallModel: cast}, policy=policy)

    async def second_is_over(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, RunEnded):
            stage.release()

    result = await stage.play(session, on={AgentNoticed: second_is_over})
    assert (result.text, stage.ran) == ("done", ["dig 1", "look 2"])
    assert stage.said(session)[2] == "tool: first | second"


@pytest.mark.behaviour("children-work-side-by-side")
async def test_otherwise_one_works_after_the_other(stage: Stage) -> None:
    """As all calls do."""
    cast = Cast(sends("one", "two"), says("done"), one=[says("first")], two=[says("second")])
    session = stage.session(children=[SCOUT], performers={CallModel: cast})
    await stage.play(session)
    told = [one.notice for one in stage.seen(AgentNoticed)]
    ends = [type(one).__name__ for one in told if isinstance(one, RunStarted | RunEnded)]
    assert ends == ["RunStarted", "RunEnded"] * 2


# What it may use


@pytest.mark.behaviour("a-childs-means-are-set-aside")
@pytest.mark.parametrize(
    ("limits", "wants", "reason"),
    [
        (Limits(tokens=250), Limits(tokens=100), "there is only 35 of 100 tokens left for 'scout'"),
        (
            Limits(usd="0.01"),
            Limits(usd="0.004"),
            "there is only 0.00198 of 0.004 USD left for 'scout'",
        ),
        (Limits(seconds=50.0), Limits(seconds=20.0), "there is only 10.0 of 20.0 seconds left for 'scout'"),
    ],
    ids=["tokens", "money", "time"],
)
async def test_of_three_children_at_once_the_one_too_many_is_refused_with_the_reason(
    stage: Stage, limits: Limits, wants: Limits, reason: str
) -> None:
    """What the others were promised cannot be given twice; the results are in the order of the calls."""
    cast = Cast(sends("one", "two", "three"), says("done"), one=[says("first")], two=[says("second")])
    children = [ChildSpec(name="scout", limits=wants)]
    session = stage.session(
        children=children, performers={CallModel: cast}, limits=limits, model=PRICED, **PARALLEL
    )
    result = await stage.play(session)

    assert (result.text, len(stage.seen(AgentStarted))) == ("done", 2)
    assert stage.outcomes(session) == ["run_agent: ok"] * 2 + ["run_agent: error"]
    assert stage.said(session)[2].startswith(f"tool: first | second | Not started: {reason}")
    assert stage.said(session)[2].endswith("ask again when they are done.")


@pytest.mark.behaviour("a-childs-means-are-set-aside")
async def test_what_children_did_not_use_is_given_back(stage: Stage) -> None:
    """So the one that was refused can be started when the others are done."""
    cast = Cast(
        sends("one", "two", "three"),
        sends("three"),
        says("done"),
        one=[says("first")],
        two=[says("second")],
        three=[says("third")],
    )
    children = [ChildSpec(name="scout", limits=Limits(tokens=100))]
    limits = Limits(tokens=250)
    session = stage.session(children=children, performers={CallModel: cast}, limits=limits, **PARALLEL)
    result = await session.run("go")
    assert (result.text, result.spent.usage.total) == ("done", 6 * 15)
    assert stage.said(session)[4] == "tool: third"


@pytest.mark.behaviour("a-childs-means-are-set-aside")
@pytest.mark.parametrize(("used", "reason"), [(60, "token_budget"), (30, "token_budget"), (20, "end_turn")])
async def test_a_child_that_is_alone_gets_what_is_left(stage: Stage, used: int, reason: str) -> None:
    """Of 100 tokens, 15 went into sending it."""
    usage = Usage(input=used, output=15)
    cast = Cast(
        sends("one"),
        says("done"),
        one=[calls(("look", {"at": str(n)}), usage=usage) for n in range(2)] + [says("found")],
    )
    children = [ChildSpec(name="scout", limits=Limits(tokens=1_000))]
    session = stage.session(children=children, performers={CallModel: cast}, limits=Limits(tokens=100))
    await stage.play(session)
    [ended] = [one.notice for one in stage.seen(AgentNoticed) if isinstance(one.notice, RunEnded)]
    assert ended.reason == reason


@pytest.mark.behaviour("a-childs-means-are-set-aside")
async def test_without_anything_left_no_child_is_started(stage: Stage) -> None:
    """A budget of its parent's that its answers have used up stops its calls, too."""
    limits = Limits(tokens=15)
    session = stage.session(sends("one"), says("never"), children=[SCOUT], limits=limits)
    result = await stage.play(session)
    assert (result.reason, stage.seen(AgentStarted)) == (DoneReason.TOKEN_BUDGET, [])
    assert stage.outcomes(session) == ["run_agent: cancelled"]


@pytest.mark.behaviour("a-child-is-paid-by-its-parent")
async def test_what_a_child_used_is_in_the_account_of_its_parent_once(stage: Stage) -> None:
    """Tokens, money and time; its turns are its own."""
    script = (sends("one"), calls(("look", {})), says("here"), says("done"))
    session = stage.session(*script, children=[SCOUT], model=PRICED, limits=Limits(turns=2))
    result = await stage.play(session)
    [ended] = [one.notice for one in stage.seen(AgentNoticed) if isinstance(one.notice, RunEnded)]

    assert (ended.spent.turns, ended.spent.usage.total, ended.spent.cost) == (2, 30, Decimal("0.00004"))
    assert (result.spent.turns, result.spent.usage.total, result.spent.cost) == (2, 60, Decimal("0.00008"))


@pytest.mark.behaviour("a-child-is-paid-by-its-parent")
async def test_what_children_used_counts_for_the_budget_of_their_parent(stage: Stage) -> None:
    """The calls behind one that used it up do not run."""
    wishes = calls(("run_agent", {"agent": "scout", "prompt": "one"}), ("look", {}))
    usage = Usage(input=300, output=5)
    session = stage.session(
        wishes, says("here", usage=usage), says("never"), children=[SCOUT], limits=Limits(tokens=300)
    )
    result = await session.run("go")
    assert (result.reason, result.spent.usage.total, stage.ran) == (DoneReason.TOKEN_BUDGET, 320, [])
    assert stage.outcomes(session) == ["run_agent: ok", "look: cancelled"]


# While it works


@pytest.mark.behaviour("a-child-is-watched-through-its-parent")
async def test_what_a_child_does_is_told_as_that_of_the_call_it_works_for(stage: Stage) -> None:
    """All of it, between its start and its result, and marked as the child's."""
    script = (sends("find"), calls(("look", {}), text="so"), says("here"), says("done"))
    session = stage.session(*script, children=[SCOUT])
    await stage.play(session)

    [started] = stage.seen(AgentStarted)
    assert (started.agent, started.prompt) == ("scout", "find")
    assert {notice.call for notice in stage.seen(AgentNoticed)} == {started.call}
    told = [type(one.notice).__name__ for one in stage.seen(AgentNoticed)]
    assert told == [
        *("RunStarted", "InputTaken", "ModelCalled", "TextDelta", "TurnEnded", "CallJudged", "ToolStarted"),
        *("CallSettled", "ModelCalled", "TextDelta", "TurnEnded", "RunEnded"),
    ]
    assert stage.order(AgentStarted, TextDelta, ToolStarted, CallSettled, TurnEnded, RunEnded) == [
        *("TurnEnded", "AgentStarted", "CallSettled", "TextDelta", "TurnEnded", "RunEnded")
    ]


@pytest.mark.behaviour("who-stops-a-run-stops-its-children")
async def test_an_interrupt_stops_all_children_and_keeps_what_they_used(stage: Stage) -> None:
    """Each has its result; nothing is left at work."""
    before = asyncio.all_tasks()
    cast = Cast(sends("one", "two"), one=[stalls("I see")], two=[calls(("dig", {}))])
    session = stage.session(children=[SCOUT], performers={CallModel: cast}, **PARALLEL)
    busy: list[str] = []

    async def stop(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, TextDelta | ToolStarted):
            busy.append(notice.call)
            if len(busy) == 2:
                await session.interrupt()

    result = await stage.play(session, on={AgentNoticed: stop})
    assert (result.reason, result.spent.turns) == (DoneReason.INTERRUPTED, 1)
    assert stage.outcomes(session) == ["run_agent: cancelled"] * 2
    assert result.spent.usage.output > 10
    assert asyncio.all_tasks() == before


@pytest.mark.behaviour("who-stops-a-run-stops-its-children")
async def test_one_child_can_be_given_up(stage: Stage) -> None:
    """The others go on, and so does the run."""
    cast = Cast(sends("one", "two"), says("done"), one=[stalls("I see")], two=[says("second")])
    session = stage.session(children=[SCOUT], performers={CallModel: cast}, **PARALLEL)

    async def cancel(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, TextDelta) and notice.notice.text == "I see":
            await session.cancel(notice.call)

    result = await stage.play(session, on={AgentNoticed: cancel})
    assert (result.text, stage.outcomes(session)) == ("done", ["run_agent: cancelled", "run_agent: ok"])
    assert stage.said(session)[2].startswith("tool: I see\n[ended: interrupted]")


@pytest.mark.behaviour("a-child-goes-on-where-it-was")
async def test_a_child_that_was_lost_with_its_parent_goes_on_with_it(stage: Stage) -> None:
    """It does not begin anew: what it did is done, and what it used is paid once."""
    script = (sends("find"), calls(("look", {"at": "a"})), calls(("dig", {})))
    session = stage.session(*script, children=[SCOUT])
    async for notice in session.stream("go"):
        if isinstance(notice, AgentNoticed) and stage.ran[-1:] == ["dig"]:
            break
    await session.close()
    stage.release()

    session = stage.session(says("here"), says("done"), children=[SCOUT])
    result = await stage.play(session, None)
    assert stage.ran == ["look a", "dig", "dig was stopped", "dig"]
    assert (result.text, stage.said(session)[2]) == ("done", "tool: here")
    assert (stage.shown(1)[0], len(stage.shown(1))) == ("user: find", 5)
    assert result.spent.usage.total == 5 * 15


@pytest.mark.behaviour("a-child-goes-on-where-it-was")
async def test_what_was_set_aside_stays_so_when_somebody_else_goes_on(stage: Stage) -> None:
    """The two at work go on, the third stays refused, and the results are in the order of the calls."""
    first = Cast(
        sends("one", "two", "three"),
        one=[calls(("dig", {"at": "1"}))],
        two=[calls(("look", {"at": "2"})), stalls("I")],
    )
    settings: dict[str, Any] = {
        "children": [ChildSpec(name="scout", limits=Limits(tokens=100))],
        "limits": Limits(tokens=250),
        **PARALLEL,
    }
    session = stage.session(performers={CallModel: first}, **settings)
    async for notice in session.stream("go"):
        if isinstance(notice, AgentNoticed) and isinstance(notice.notice, TextDelta):
            break
    await session.close()
    stage.release()

    second = Cast(says("done"), one=[says("first")], two=[says("second")])
    session = stage.session(performers={CallModel: second}, **settings)
    result = await stage.play(session, None)
    assert result.text == "done"
    assert stage.said(session)[2].startswith("tool: first | second | Not started: there is only 35 of 100")
    assert result.spent.usage.total <= 250
    assert stage.ran.count("look 2") == 1


PAYER: dict[str, Any] = {"children": [ChildSpec(name="scout", tools=("pay",))]}
BUYS = (sends("buy"), calls(("pay", {"amount": 3})), says("paid"), says("done"))


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_a_question_of_a_child_is_answered_through_its_parent(stage: Stage) -> None:
    """It is told with what the child does, and the child waits for the answer."""
    session = stage.session(*BUYS, **PAYER)

    async def answer(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, ApprovalRequested):
            await session.approve(notice.notice.request)

    result = await stage.play(session, on={AgentNoticed: answer}, wait=True)
    assert (result.text, stage.ran) == ("done", ["pay 3"])


@pytest.mark.behaviour("a-childs-question-is-its-parents")
@pytest.mark.parametrize(("decision", "ran"), [(Approve(), ["pay 3"]), (Deny(message="no"), [])])
async def test_a_run_rests_on_a_question_of_its_child(
    stage: Stage, decision: Approve | Deny, ran: list[str]
) -> None:
    """As on one of its own: the answer may come tomorrow, in another process."""
    async with stage.session(*BUYS[:2], **PAYER) as session:
        resting = await session.run("go")
        assert (resting.reason, [question.tool for question in resting.waiting]) == (None, ["pay"])
    async with await stage.session(**PAYER).load() as session:
        await session.approve(session.waiting[0].id, decision)
    result = await stage.session(*BUYS[2:], **PAYER).resume()
    assert (result.text, stage.ran) == ("done", ran)


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_an_approver_is_asked_about_a_childs_calls(stage: Stage) -> None:
    """As about its parent's."""
    asked: list[str] = []

    async def yes(question: AskApproval) -> Approve:
        asked.append(question.arguments)
        return Approve()

    result = await stage.session(*BUYS, approver=yes, **PAYER).run("go")
    assert (result.text, asked, stage.ran) == ("done", ['{"amount": 3}'], ["pay 3"])


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_time_that_a_child_waits_for_a_person_costs_it_nothing(stage: Stage, wall: ManualClock) -> None:
    """Its limit of time is one of work."""
    children = [ChildSpec(name="scout", tools=("pay",), limits=Limits(seconds=60.0))]
    session = stage.session(*BUYS, clock=wall, children=children)

    async def answer(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, ApprovalRequested):
            wall.move(3_600.0)
            await session.approve(notice.notice.request)

    result = await stage.play(session, on={AgentNoticed: answer}, wait=True)
    assert (result.text, stage.said(session)[2]) == ("done", "tool: paid")


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_what_is_said_to_a_child_is_read_by_it(stage: Stage) -> None:
    """By the child that is meant, as a steer of its own; its parent reads the answer only."""
    script = (sends("find"), calls(("dig", {}), ("look", {})), says("further on"), says("done"))
    session = stage.session(*script, children=[SCOUT])

    async def speak(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, ToolOutput):
            await session.child(notice.call).steer("look further")
            stage.release()

    await stage.play(session, on={AgentNoticed: speak})
    assert stage.shown(3)[-1] == "user: look further"
    assert stage.ran == ["dig"]
    assert stage.said(session)[2:] == ["tool: further on", "assistant: done"]


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_one_child_can_be_interrupted(stage: Stage) -> None:
    """The parent reads that, and goes on."""
    cast = Cast(sends("one", "two"), says("done"), one=[stalls("I see")], two=[says("second")])
    session = stage.session(children=[SCOUT], performers={CallModel: cast}, **PARALLEL)

    async def stop(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, TextDelta) and notice.notice.text == "I see":
            await session.child(notice.call).interrupt()

    result = await stage.play(session, on={AgentNoticed: stop})
    assert (result.text, stage.outcomes(session)) == ("done", ["run_agent: cancelled", "run_agent: ok"])


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_a_mode_that_is_changed_holds_for_children_at_work(stage: Stage) -> None:
    """Who forbids changes forbids them to all."""
    script = (sends("buy"), calls(("dig", {})), calls(("pay", {})), says("I may not"), says("done"))
    children = [ChildSpec(name="scout", tools=("dig", "pay"))]
    session = stage.session(*script, children=children, policy=Policy(mode="bypass"))

    async def forbid(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, ToolOutput):
            await session.control(SetMode(mode=PermissionMode.PLAN))
            stage.release()

    result = await stage.play(session, on={AgentNoticed: forbid})
    assert (result.text, stage.ran) == ("done", ["dig"])


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_the_children_at_work_are_known_by_their_calls(stage: Stage) -> None:
    """One that is none is refused, with those there are."""
    session = stage.session(sends("find"), calls(("dig", {})), says("here"), says("done"), children=[SCOUT])

    async def look(notice: AgentNoticed) -> None:
        if isinstance(notice.notice, ToolOutput):
            assert [(link.call, link.agent) for link in session.children] == [(notice.call, "scout")]
            with pytest.raises(UnknownCall, match=rf"no call 'x' under way; there are: '{notice.call}'"):
                session.child("x")
            stage.release()

    await stage.play(session, on={AgentNoticed: look})
    assert session.children == ()
