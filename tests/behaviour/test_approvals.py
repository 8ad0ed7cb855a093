"""A person is asked, and answers: at once, next week, elsewhere, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import Approve, ApproveAlways, Deny, DoneReason, Limits, Policy, Rule
from turnwheel.effects.config import Concurrency, OnDenial
from turnwheel.effects.errors import UnknownRequest
from turnwheel.effects.events import Decision
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    RunEnded,
    ToolStarted,
)
from turnwheel.effects.requests import AskApproval
from turnwheel.testing.scripted import calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

    from turnwheel.testing.clocks import ManualClock

TWO_READS_AROUND = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}))


@pytest.mark.behaviour("a-run-rests-on-a-question")
async def test_a_run_that_needs_a_person_comes_back_with_the_question(stage: Stage) -> None:
    """It has no reason yet; what came before the call has run, what comes behind has not."""
    result = await stage.play(stage.session(TWO_READS_AROUND))

    assert (result.reason, stage.ran) == (None, ["look a"])
    [question] = result.waiting
    assert (question.tool, question.arguments) == ("pay", "{}")
    assert question.why == "tool: it may change anything"
    [asked] = stage.seen(ApprovalRequested)
    assert (asked.request, asked.call, asked.due) == (question.id, question.call, None)
    assert stage.seen(RunEnded) == []


@pytest.mark.behaviour("a-run-rests-on-a-question")
async def test_the_answer_may_come_next_week_in_another_process_before_anybody_goes_on(stage: Stage) -> None:
    """Three processes: one asks, one is told the answer, one goes on."""
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


@pytest.mark.behaviour("an-approved-call-runs-once")
async def test_a_call_that_was_approved_is_asked_about_once_and_runs_once(stage: Stage) -> None:
    """Whoever reads the notices may answer at once, and the run does not rest."""
    session = stage.session(TWO_READS_AROUND, calls(("pay", {})), says("done"))
    result = await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request)})

    assert (result.text, stage.ran) == ("done", ["look a", "pay 1", "look b", "pay 1"])
    asked = [notice.call for notice in stage.seen(ApprovalRequested)]
    assert len(asked) == len(set(asked)) == 2
    assert [(one.verdict, one.ground) for one in stage.seen(CallJudged) if one.call == asked[0]] == [
        ("ask", "tool"),
        ("allow", "person"),
    ]


@pytest.mark.behaviour("an-approved-call-runs-once")
async def test_a_process_that_is_lost_after_the_approval_does_not_ask_again(stage: Stage) -> None:
    """The tool was started: whether it ran nobody knows, and the model is told so."""
    session = stage.session(calls(("pay", {})))
    resting = await session.run("go")
    await session.approve(resting.waiting[0].id)
    await stage.leave(session, None, ToolStarted)
    stage.ran.clear()

    session = stage.session(says("I will look"))
    result = await stage.play(session, None)

    assert (result.text, stage.ran, stage.seen(ApprovalRequested)) == ("I will look", [], [])
    assert stage.outcomes(session) == ["pay: unknown"]
    assert "may have run" in stage.shown(1)[-1]


@pytest.mark.behaviour("a-person-may-change-the-arguments")
@pytest.mark.parametrize(
    ("edited", "ran", "result"),
    [
        ('{"amount": 2}', ["pay 2"], "paid 2"),
        ('{"amount": "much"}', [], "Invalid arguments for pay: "),
        ('{"amount": 9}', [], "Denied by a rule: deny pay:amount=9."),
    ],
)
async def test_what_a_person_made_of_a_call_is_checked_like_any_other_and_not_asked_about_again(
    stage: Stage, edited: str, ran: list[str], result: str
) -> None:
    """The conversation keeps what the model wrote, since that is what it said."""
    rules = [Rule(verdict="deny", tool="pay", where=(("amount", "9"),))]
    session = stage.session(calls(("pay", {"amount": 100})), says("so be it"), rules=rules)
    decision = Approve(arguments=edited)
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, decision)})

    assert (stage.ran, len(stage.seen(ApprovalRequested))) == (ran, 1)
    assert stage.shown(2)[-1].startswith(f"tool: {result}")
    assert session.history[1].calls[0].arguments == '{"amount": 100}'


@pytest.mark.behaviour("a-no-goes-back-to-the-model")
@pytest.mark.parametrize(
    ("policy", "decision", "reason", "outcomes"),
    [
        ("skip_rest", Deny(message="too dear"), DoneReason.END_TURN, ["ok", "denied", "skipped"]),
        ("go_on", Deny(message="too dear"), DoneReason.END_TURN, ["ok", "denied", "ok"]),
        ("interrupt", Deny(message="too dear"), DoneReason.INTERRUPTED, ["ok", "denied", "cancelled"]),
        (
            "go_on",
            Deny(message="too dear", interrupt=True),
            DoneReason.INTERRUPTED,
            ["ok", "denied", "cancelled"],
        ),
    ],
)
async def test_a_no_is_read_by_the_model_and_the_rest_goes_by_policy(
    stage: Stage, policy: str, decision: Deny, reason: DoneReason, outcomes: list[str]
) -> None:
    """What ran before keeps its result, and each call behind has one, whatever becomes of it."""
    policy_ = Policy(on_denial=OnDenial(policy))
    session = stage.session(TWO_READS_AROUND, says("as you like"), policy=policy_)
    result = await stage.play(
        session, on={ApprovalRequested: lambda one: session.approve(one.request, decision)}
    )

    assert result.reason is reason
    assert [line.partition(": ")[2] for line in stage.outcomes(session)] == outcomes
    assert stage.said(session)[2].startswith("tool: saw a | too dear | ")
    assert stage.ran == ["look a", "look b"][: outcomes.count("ok")]
    assert stage.asked == (2 if reason is DoneReason.END_TURN else 1)


@pytest.mark.behaviour("a-no-goes-back-to-the-model")
async def test_a_no_without_a_word_tells_the_model_not_to_try_again(stage: Stage) -> None:
    """And leaves other questions of the same answer open: each has its own answer."""
    wishes = calls(("pay", {"amount": 1}), ("pay", {"amount": 2}))
    session = stage.session(wishes, says("well"), policy=Policy(concurrency="parallel_reads"))
    first, second = (await session.run("go")).waiting
    await session.approve(first.id, Deny())
    assert [question.id for question in (await session.resume()).waiting] == [second.id]
    await session.approve(second.id)
    await session.resume()

    assert stage.ran == ["pay 2"]
    assert stage.shown(2)[-1] == "tool: Denied by the user. Do not try this again without asking. | paid 2"


@pytest.mark.behaviour("a-no-goes-back-to-the-model")
@pytest.mark.parametrize("concurrency", list(Concurrency))
async def test_what_nobody_was_asked_about_is_skipped_too(stage: Stage, concurrency: Concurrency) -> None:
    """However many calls may run at once: behind a no nothing starts that a person did not allow."""
    policy = Policy(concurrency=concurrency)
    session = stage.session(calls(("pay", {}), ("look", {})), says("well"), policy=policy)
    await stage.play(session, on={ApprovalRequested: lambda one: session.approve(one.request, Deny())})

    assert (stage.ran, stage.outcomes(session)) == ([], ["pay: denied", "look: skipped"])


@pytest.mark.behaviour("always-is-remembered")
async def test_who_said_always_is_not_asked_again_in_this_session(stage: Stage) -> None:
    """Neither for what is open already, nor in a later run, nor in another process."""
    parallel = Policy(concurrency="parallel_reads")
    session = stage.session(
        calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), says("done"), policy=parallel
    )
    resting = await session.run("go")
    assert len(resting.waiting) == 2
    await session.approve(resting.waiting[0].id, ApproveAlways())
    await session.resume()
    assert stage.ran == ["pay 1", "pay 2"]

    session = stage.session(calls(("pay", {"amount": 3}), ("put", {})), says("done"))
    resting = await stage.play(session, "more")
    assert stage.ran == ["pay 1", "pay 2", "pay 3"]
    assert [question.tool for question in resting.waiting] == ["put"]
    assert [one.ground for one in stage.seen(CallJudged)] == ["grant", "tool"]


@pytest.mark.behaviour("always-is-remembered")
async def test_always_may_be_for_certain_arguments_only_and_outvotes_no_denial(stage: Stage) -> None:
    """Nothing is granted that was not said."""
    rules = [Rule(verdict="deny", tool="pay", where=(("amount", "13"),))]
    wishes = calls(*[("pay", {"amount": amount}) for amount in (10, 13, 12, 20)])
    session = stage.session(wishes, rules=rules)
    decision = ApproveAlways(where=(("amount", "1?"),))
    resting = await session.run("go")
    await session.approve(resting.waiting[0].id, decision)
    resting = await session.resume()

    assert stage.ran == ["pay 10", "pay 12"]
    assert [question.arguments for question in resting.waiting] == ['{"amount": 20}']


@pytest.mark.behaviour("no-answer-in-time-is-a-no")
async def test_a_question_that_nobody_answers_in_time_counts_as_denied(
    stage: Stage, wall: ManualClock
) -> None:
    """Where a time is set; the model reads how long it was."""
    session = stage.session(TWO_READS_AROUND, says("well"), policy=Policy(answer_within=60.0), clock=wall)

    async def asked(notice: ApprovalRequested) -> None:
        assert notice.due == 160.0
        wall.move(60.0)

    result = await stage.play(session, on={ApprovalRequested: asked}, wait=True)

    assert (result.text, stage.outcomes(session)) == ("well", ["look: ok", "pay: denied", "look: skipped"])
    assert "nobody answered within 60 s" in stage.shown(2)[-1]
    assert [notice.late for notice in stage.seen(ApprovalWithdrawn)] == [True]


@pytest.mark.behaviour("no-answer-in-time-is-a-no")
async def test_the_time_runs_while_nobody_holds_the_run(stage: Stage, wall: ManualClock) -> None:
    """A run that rested too long is told so when it is resumed."""
    policy = Policy(answer_within=60.0)
    async with stage.session(calls(("pay", {})), policy=policy, clock=wall) as session:
        assert len((await session.run("go")).waiting) == 1
    wall.move(61.0)
    async with stage.session(says("well"), policy=policy, clock=wall) as session:
        assert (await session.resume(wait=True)).text == "well"
        assert stage.outcomes(session) == ["pay: denied"]


@pytest.mark.behaviour("no-answer-in-time-is-a-no")
async def test_without_a_time_set_a_question_waits_for_ever_and_waiting_costs_nothing(
    stage: Stage, wall: ManualClock
) -> None:
    """Time is what the agent takes, not what a person takes."""
    session = stage.session(calls(("pay", {})), says("done"), limits=Limits(seconds=5.0), clock=wall)

    async def much_later(notice: ApprovalRequested) -> None:
        wall.move(1e9)
        await session.approve(notice.request)

    result = await stage.play(session, on={ApprovalRequested: much_later}, wait=True)
    assert (result.text, stage.ran, result.spent.seconds) == ("done", ["pay 1"], 0.0)


@pytest.mark.behaviour("an-answer-names-its-question")
async def test_an_answer_to_no_open_question_is_refused_and_changes_nothing(stage: Stage) -> None:
    """The first answer holds, whoever gives it and in whichever process; a call's id is no question's."""
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
        (Approve(arguments='{"amount": 2}'), ["pay 2"], DoneReason.END_TURN),
        (Deny(), [], DoneReason.END_TURN),
        (Deny(interrupt=True), [], DoneReason.INTERRUPTED),
        (None, [], None),
    ],
)
async def test_a_hosts_own_function_is_asked_and_may_leave_the_answer_to_a_person(
    stage: Stage, decision: Decision | None, ran: list[str], reason: DoneReason | None
) -> None:
    """It sees tool and arguments."""
    asked: list[AskApproval] = []

    async def approver(question: AskApproval) -> Decision | None:
        asked.append(question)
        return decision

    settings: dict[str, Any] = {"approver": approver}
    result = await stage.session(calls(("pay", {"amount": 7})), says("done"), **settings).run("go")

    assert [(question.tool, question.arguments) for question in asked] == [("pay", '{"amount": 7}')]
    assert (stage.ran, result.reason) == (ran, reason)
    assert len(result.waiting) == (reason is None)


@pytest.mark.behaviour("a-callback-may-answer")
async def test_a_function_that_fails_has_said_no(stage: Stage) -> None:
    """Since nobody said yes."""

    async def approver(_: AskApproval) -> Decision:
        raise ConnectionError("the desk is closed")  # noqa: EM101, TRY003  # what is read further down

    session = stage.session(calls(("pay", {})), says("well"), approver=approver)
    assert (await session.run("go")).text == "well"
    assert (stage.ran, stage.outcomes(session)) == ([], ["pay: denied"])
    assert "the desk is closed" in stage.shown(2)[-1]
