"""Agents that work for an agent: what they get, what they may do, and what becomes of it."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from behaviour.conftest import Stage

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
from turnwheel.effects import errors, events, notices, requests
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, fails, says, stalls

SCOUT = ChildSpec(name="scout", description="Looks around.")
PRICED = ModelSpec(name="scripted", price=Price(input=1, output=2))
"""Costs 0.00002 USD an answer of 15 tokens."""

PARALLEL: dict[str, Any] = {"policy": Policy(concurrency="parallel")}


def sends(*prompts: str, agent: str = "scout") -> Reply:
    return calls(*[("run_agent", {"agent": agent, "prompt": prompt}) for prompt in prompts])


class Cast:
    """
    A model in which each child has a script of its own, by what it was asked, and their parent has *parent*.

    *seen* is what each was shown, a list a request; *requests* are all requests in the order they came.
    """

    def __init__(self, *parent: Reply, **children: list[Reply]) -> None:
        self._models = {"": ScriptedModel(*parent)}
        self._models |= {name: ScriptedModel(*script) for name, script in children.items()}
        self.requests: list[requests.CallModel] = []

    def asked(self, name: str = "") -> list[requests.CallModel]:
        """What the child that was asked *name*, or the parent, was asked for."""
        return self._models[name].requests

    async def __call__(
        self, request: requests.CallModel, scene: PerformContext
    ) -> events.ModelFinished | events.ModelFailed:
        self.requests.append(request)
        name = scene.history[0].text if scene.config.agent else ""
        return await self._models[name](request, scene)


# What it is


@pytest.mark.behaviour("a-child-works-on-its-own")
async def test_a_child_has_a_conversation_of_its_own_and_its_answer_is_the_result_of_the_call(
    stage: Stage,
) -> None:
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
async def test_a_child_may_have_a_model_of_its_own(stage: Stage) -> None:
    own = ModelSpec(name="small", price=Price(input="0.1", output="0.2"))
    script = (sends("find"), says("here"), says("done"))
    children = [ChildSpec(name="scout", model=own)]
    result = await stage.session(*script, children=children, model=PRICED).run("go")
    assert [request.model for request in stage.model.requests] == ["scripted", "small", "scripted"]
    assert result.spent.cost == Decimal("0.000042")


# What it may do


@pytest.mark.behaviour("a-childs-tools-are-some-of-its-parents")
async def test_what_a_child_was_not_offered_does_not_run(stage: Stage) -> None:
    wishes = calls(
        ("put", {}), ("run_agent", {"agent": "scout", "prompt": "you do it"}), ("look", {}), wrong=True
    )
    session = stage.session(sends("find"), wishes, says("I may not"), says("done"), children=[SCOUT])
    await stage.play(session)

    assert stage.ran == ["look"]
    assert stage.shown(3)[-1].startswith("tool: Tool not found: put.")
    assert "Tool not found: run_agent." in stage.shown(3)[-1]
    assert len(stage.seen(notices.AgentStarted)) == 1


@pytest.mark.behaviour("a-childs-tools-are-some-of-its-parents")
async def test_the_rules_of_its_parent_hold_for_a_child(stage: Stage) -> None:
    script = (sends("find"), calls(("look", {"at": "secret"})), says("no"), says("done"))
    rules = [Rule(verdict="deny", tool="look")]
    await stage.session(*script, children=[SCOUT], rules=rules).run("go")
    assert stage.ran == []
    assert "Denied by a rule" in stage.shown(3)[-1]


@pytest.mark.behaviour("what-is-no-child-is-a-result")
@pytest.mark.parametrize(
    ("child", "limits", "outcome", "result"),
    [
        (
            [fails(events.Failure.AUTH)],
            Limits(),
            "error",
            "(the agent gave no answer)\n[ended: error: auth: scripted: auth]",
        ),
        ([says("")], Limits(), "ok", "(the agent gave no answer)"),
        ([calls(("look", {}), text="I see a"), says("")], Limits(), "ok", "(the agent gave no answer)"),
        ([calls(("look", {}), text="I see a")], Limits(turns=1), "ok", "I see a\n[ended: max_turns]"),
        (
            [calls(("look", {}), text="I see a", usage=Usage(input=1_000))],
            Limits(tokens=1_000),
            "ok",
            "I see a\n[ended: token_budget]",
        ),
    ],
    ids=["fails", "says nothing", "says nothing in the end", "turns", "tokens"],
)
async def test_however_a_child_ends_its_parent_reads_of_it_and_goes_on(
    stage: Stage, child: list[Reply], limits: Limits, outcome: str, result: str
) -> None:
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
    cast = Cast(
        sends("one", "two"),
        says("done"),
        one=[calls(("dig", {"at": "1"})), says("first")],
        two=[calls(("look", {"at": "2"})), says("second")],
    )
    policy = Policy(concurrency=concurrency)
    session = stage.session(children=[SCOUT], performers={requests.CallModel: cast}, policy=policy)

    async def second_is_over(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.RunEnded):
            stage.release()

    result = await stage.play(session, on={notices.AgentNoticed: second_is_over})
    assert (result.text, stage.ran) == ("done", ["dig 1", "look 2"])
    assert stage.said(session)[2] == "tool: first | second"


# What it may use


# While it works


@pytest.mark.behaviour("a-child-is-watched-through-its-parent")
async def test_what_a_child_does_is_told_as_that_of_the_call_it_works_for(stage: Stage) -> None:
    script = (sends("find"), calls(("look", {}), text="so"), says("here"), says("done"))
    session = stage.session(*script, children=[SCOUT])
    await stage.play(session)

    [started] = stage.seen(notices.AgentStarted)
    assert (started.agent, started.prompt) == ("scout", "find")
    assert {notice.call for notice in stage.seen(notices.AgentNoticed)} == {started.call}
    told = [type(one.notice).__name__ for one in stage.seen(notices.AgentNoticed)]
    assert told == [
        *("RunStarted", "InputTaken", "ModelCalled", "TextDelta", "CallDelta", "TurnEnded"),
        *("CallJudged", "ToolStarted", "CallSettled", "ModelCalled", "TextDelta", "TurnEnded", "RunEnded"),
    ]
    assert stage.order(
        notices.AgentStarted,
        notices.TextDelta,
        notices.ToolStarted,
        notices.CallSettled,
        notices.TurnEnded,
        notices.RunEnded,
    ) == [*("TurnEnded", "AgentStarted", "CallSettled", "TextDelta", "TurnEnded", "RunEnded")]


@pytest.mark.behaviour("who-stops-a-run-stops-its-children")
async def test_an_interrupt_stops_all_children_and_keeps_what_they_used(stage: Stage) -> None:
    before = asyncio.all_tasks()
    cast = Cast(sends("one", "two"), one=[stalls("I see")], two=[calls(("dig", {}))])
    session = stage.session(children=[SCOUT], performers={requests.CallModel: cast}, **PARALLEL)
    busy: list[str] = []

    async def stop(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.TextDelta | notices.ToolStarted):
            busy.append(notice.call)
            if len(busy) == 2:
                await session.interrupt()

    result = await stage.play(session, on={notices.AgentNoticed: stop})
    assert (result.reason, result.spent.turns) == (DoneReason.INTERRUPTED, 1)
    assert stage.outcomes(session) == ["run_agent: cancelled"] * 2
    assert result.spent.usage.output > 10
    assert asyncio.all_tasks() == before


@pytest.mark.behaviour("a-child-goes-on-where-it-was")
async def test_a_child_that_was_lost_with_its_parent_goes_on_with_it(stage: Stage) -> None:
    script = (sends("find"), calls(("look", {"at": "a"})), calls(("dig", {})))
    session = stage.session(*script, children=[SCOUT])
    async for notice in session.stream("go"):
        if isinstance(notice, notices.AgentNoticed) and stage.ran[-1:] == ["dig"]:
            break
    await session.close()
    stage.release()

    session = stage.session(says("here"), says("done"), children=[SCOUT])
    result = await stage.play(session, None)
    assert stage.ran == ["look a", "dig", "dig was stopped", "dig"]
    assert (result.text, stage.said(session)[2]) == ("done", "tool: here")
    assert (stage.shown(1)[0], len(stage.shown(1))) == ("user: find", 5)
    assert result.spent.usage.total == 5 * 15


PAYER: dict[str, Any] = {"children": [ChildSpec(name="scout", tools=("pay",))]}
BUYS = (sends("buy"), calls(("pay", {"amount": 3})), says("paid"), says("done"))


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_a_question_of_a_child_is_answered_through_its_parent(stage: Stage) -> None:
    session = stage.session(*BUYS, **PAYER)

    async def answer(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.ApprovalRequested):
            await session.approve(notice.notice.request)

    result = await stage.play(session, on={notices.AgentNoticed: answer}, wait=True)
    assert (result.text, stage.ran) == ("done", ["pay 3"])


@pytest.mark.behaviour("a-childs-question-is-its-parents")
@pytest.mark.parametrize(("decision", "ran"), [(Approve(), ["pay 3"]), (Deny(message="no"), [])])
async def test_a_run_rests_on_a_question_of_its_child(
    stage: Stage, decision: Approve | Deny, ran: list[str]
) -> None:
    async with stage.session(*BUYS[:2], **PAYER) as session:
        resting = await session.run("go")
        assert (resting.reason, [question.tool for question in resting.waiting]) == (None, ["pay"])
    async with await stage.session(**PAYER).load() as session:
        await session.approve(session.waiting[0].id, decision)
    result = await stage.session(*BUYS[2:], **PAYER).resume()
    assert (result.text, stage.ran) == ("done", ran)


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_an_approver_is_asked_about_a_childs_calls(stage: Stage) -> None:
    asked: list[requests.AskApproval] = []

    def yes(question: requests.AskApproval) -> Approve:
        asked.append(question)
        return Approve()

    result = await stage.session(*BUYS, approver=yes, **PAYER).run("go")
    assert (result.text, stage.ran) == ("done", ["pay 3"])
    [question] = asked
    assert (question.values, question.agent, question.session) == (
        {"amount": 3},
        "scout",
        f"s.{question.run}",
    )


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_a_wrong_answer_to_a_childs_question_stops_its_parent(stage: Stage) -> None:
    async with stage.session(*BUYS[:2], approver=lambda _: True, **PAYER) as session:
        with pytest.raises(errors.ArgumentError, match="got bool"):
            await session.run("go")
    async with await stage.session(**PAYER).load() as session:
        await session.approve(session.waiting[0].id, Approve())
    result = await stage.session(*BUYS[2:], **PAYER).resume()
    assert (result.text, stage.ran) == ("done", ["pay 3"])


@pytest.mark.behaviour("a-childs-question-is-its-parents")
async def test_time_that_a_child_waits_for_a_person_costs_it_nothing(stage: Stage, wall: ManualClock) -> None:
    children = [ChildSpec(name="scout", tools=("pay",), limits=Limits(seconds=60.0))]
    session = stage.session(*BUYS, clock=wall, children=children)

    async def answer(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.ApprovalRequested):
            wall.move(3_600.0)
            await session.approve(notice.notice.request)

    result = await stage.play(session, on={notices.AgentNoticed: answer}, wait=True)
    assert (result.text, stage.said(session)[2]) == ("done", "tool: paid")


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_what_is_said_to_a_child_is_read_by_it(stage: Stage) -> None:
    script = (sends("find"), calls(("dig", {}), ("look", {})), says("further on"), says("done"))
    session = stage.session(*script, children=[SCOUT])

    async def speak(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.ToolOutput):
            await session.child(notice.call).steer("look further")
            stage.release()

    await stage.play(session, on={notices.AgentNoticed: speak})
    assert stage.shown(3)[-1] == "user: look further"
    assert stage.ran == ["dig"]
    assert stage.said(session)[2:] == ["tool: further on", "assistant: done"]


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_one_child_can_be_interrupted(stage: Stage) -> None:
    cast = Cast(sends("one", "two"), says("done"), one=[stalls("I see")], two=[says("second")])
    session = stage.session(children=[SCOUT], performers={requests.CallModel: cast}, **PARALLEL)

    async def stop(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.TextDelta) and notice.notice.text == "I see":
            await session.child(notice.call).interrupt()

    result = await stage.play(session, on={notices.AgentNoticed: stop})
    assert (result.text, stage.outcomes(session)) == ("done", ["run_agent: cancelled", "run_agent: ok"])


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_a_mode_that_is_changed_holds_for_children_at_work(stage: Stage) -> None:
    script = (sends("buy"), calls(("dig", {})), calls(("pay", {})), says("I may not"), says("done"))
    children = [ChildSpec(name="scout", tools=("dig", "pay"))]
    session = stage.session(*script, children=children, policy=Policy(mode="bypass"))

    async def forbid(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.ToolOutput):
            await session.control(SetMode(mode=PermissionMode.PLAN))
            stage.release()

    result = await stage.play(session, on={notices.AgentNoticed: forbid})
    assert (result.text, stage.ran) == ("done", ["dig"])


@pytest.mark.behaviour("a-child-can-be-spoken-to")
async def test_the_children_at_work_are_known_by_their_calls(stage: Stage) -> None:
    session = stage.session(sends("find"), calls(("dig", {})), says("here"), says("done"), children=[SCOUT])

    async def look(notice: notices.AgentNoticed) -> None:
        if isinstance(notice.notice, notices.ToolOutput):
            assert [(link.call, link.agent) for link in session.children] == [(notice.call, "scout")]
            with pytest.raises(
                errors.UnknownCall, match=rf"no call 'x' under way; there are: '{notice.call}'"
            ):
                session.child("x")
            stage.release()

    await stage.play(session, on={notices.AgentNoticed: look})
    assert session.children == ()
