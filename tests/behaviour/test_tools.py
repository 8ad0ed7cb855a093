"""Tool calls: in which order they run, what their results are, and what never harms a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import Policy, ToolContext, tool
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.notices import (
    ApprovalRequested,
    CallSettled,
    ToolOutput,
    ToolStarted,
)
from turnwheel.effects.pieces import CallPiece
from turnwheel.testing.scripted import Reply, calls, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage


def call(name: str, arguments: str, number: int = 0, wire_id: str = "w") -> CallPiece:
    """A call as a model writes it, right or wrong."""
    return CallPiece(number, wire_id, name, arguments)


def wished(*pieces: CallPiece) -> Reply:
    """An answer of *pieces*."""
    return Reply(pieces=pieces, stop=StopReason.TOOL_USE)


@pytest.mark.behaviour("one-at-a-time-in-order")
async def test_the_next_call_starts_when_the_one_before_is_over(stage: Stage) -> None:
    """Reads, writes and tools that fail alike; all of them run, and all give a result."""
    wishes = calls(
        ("look", {"at": "a"}), ("put", {"value": "b"}), ("fail", {"how": "c"}), ("look", {"at": "d"})
    )
    session = stage.session(wishes, says("done"), policy=Policy(mode="bypass"))
    await stage.play(session)

    assert stage.ran == ["look a", "put b", "fail c", "look d"]
    assert stage.order(ToolStarted, CallSettled) == ["ToolStarted", "CallSettled"] * 4
    assert stage.shown(2)[-1] == "tool: saw a | put | Tool raised an exception: c | saw d"


@pytest.mark.behaviour("side-by-side-where-it-is-safe")
async def test_neighbouring_reads_run_together_and_nothing_overtakes_a_write(stage: Stage) -> None:
    """The first read ends last here, and its result still comes first."""
    wishes = calls(
        ("dig", {"at": "a"}), ("look", {"at": "b"}), ("put", {"value": "c"}), ("look", {"at": "d"})
    )
    policy = Policy(concurrency="parallel_reads", mode="bypass")
    session = stage.session(wishes, says("done"), policy=policy)

    async def ended(notice: CallSettled) -> None:
        if notice.tool == "look" and not stage.seen(CallSettled)[1:]:
            assert stage.ran == ["dig a", "look b"]
            stage.release()

    await stage.play(session, on={CallSettled: ended})

    assert stage.ran == ["dig a", "look b", "put c", "look d"]
    assert [notice.tool for notice in stage.seen(CallSettled)] == ["look", "dig", "put", "look"]
    assert stage.shown(2)[-1] == "tool: dig a done | saw b | put | saw d"


@pytest.mark.behaviour("side-by-side-where-it-is-safe")
@pytest.mark.parametrize(
    ("first", "second", "together"), [("1", "2", True), ("1", "1", False)], ids=["apart", "the same"]
)
async def test_calls_that_work_on_different_things_run_together_where_the_policy_says_so(
    stage: Stage, first: str, second: str, *, together: bool
) -> None:
    """Two that touch the same thing do not, whoever they are."""
    at_work: set[str] = set()
    most = 0

    @tool(resources=["account:{account}"], approval="never")
    async def book(account: str, note: str) -> str:
        """Book something."""
        nonlocal most
        at_work.add(f"{account} {note}")
        most = max(most, len(at_work))
        for _ in range(20):
            await asyncio.sleep(0)
        at_work.remove(f"{account} {note}")
        return note

    wishes = calls(("book", {"account": first, "note": "a"}), ("book", {"account": second, "note": "b"}))
    session = stage.session(wishes, says("done"), tools=[book], policy=Policy(concurrency="parallel"))
    await session.run("go")

    assert most == (2 if together else 1)
    assert stage.shown(2)[-1] == "tool: a | b"


@pytest.mark.behaviour("side-by-side-where-it-is-safe")
async def test_no_more_calls_run_at_once_than_the_policy_allows(stage: Stage) -> None:
    """The next starts when one is over."""
    policy = Policy(concurrency="parallel_reads", max_parallel=2)
    session = stage.session(calls(*[("dig", {"at": at}) for at in "abcd"]), says("done"), policy=policy)

    async def both(_: ToolOutput) -> None:
        if len(stage.seen(ToolOutput)) == policy.max_parallel:
            assert stage.ran == ["dig a", "dig b"]
            stage.release()

    await stage.play(session, on={ToolOutput: both})
    assert stage.ran == ["dig a", "dig b", "dig c", "dig d"]


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
    """Whatever a tool does, it harms neither the run nor the calls behind it."""

    @tool(side_effect="read_only", timeout=0.001)
    async def hang() -> None:
        """Never end."""
        await asyncio.Event().wait()

    after = call("look", "{}", 1)
    session = stage.session(wished(wish, after), says("I see"), tools=[*stage.tools, hang])
    result = await session.run("go")

    [failed, fine] = stage.model.seen[1][-1].results
    assert (failed.outcome, failed.is_error, fine.outcome) == (outcome, True, Outcome.OK)
    assert failed.content.startswith(content)
    assert result.text == "I see"


@pytest.mark.behaviour("arguments-are-checked-first")
@pytest.mark.parametrize(
    "arguments", ['{"amount": 1', "[1]", '"1"', '{"amount": "1"}', '{"amount": 1, "to": "me"}', "null", "NaN"]
)
async def test_arguments_that_do_not_fit_are_a_result_and_nobody_is_asked_about_them(
    stage: Stage, arguments: str
) -> None:
    """A person should not be bothered with what cannot run anyway."""
    session = stage.session(wished(call("pay", arguments)), says("sorry"))
    result = await stage.play(session)

    assert (result.text, stage.ran, stage.seen(ApprovalRequested)) == ("sorry", [], [])
    assert stage.outcomes(session) == ["pay: error"]
    assert stage.shown(2)[-1].startswith("tool: Invalid arguments for pay: ")
    assert stage.model.seen[1][1].calls[0].arguments == arguments


@pytest.mark.behaviour("only-what-was-offered-runs")
async def test_a_tool_that_came_later_does_not_run_for_an_earlier_call(stage: Stage) -> None:
    """The model could not have known of it: the name was made up."""
    quick = {each.spec.name: each for each in stage.tools}
    wishes = calls(("pay", {}), ("look", {}))
    resting = await stage.session(wishes, tools=[quick["pay"]]).run("go")

    session = await stage.session(says("done"), tools=[quick["pay"], quick["look"]]).load()
    await session.approve(resting.waiting[0].id)
    await session.resume()

    assert stage.ran == ["pay 1"]
    assert stage.shown(1)[-1] == "tool: paid 1 | Tool not found: look. Available: pay."
    assert stage.model.requests[0].tools == ("pay", "look")


@pytest.mark.behaviour("only-what-was-offered-runs")
async def test_a_tool_that_is_gone_does_not_run_although_it_was_approved(stage: Stage) -> None:
    """It is looked up again when its turn comes."""
    resting = await stage.session(calls(("pay", {}))).run("go")

    session = await stage.session(says("a pity"), tools=[]).load()
    await session.approve(resting.waiting[0].id)
    assert (await session.resume()).text == "a pity"
    assert (stage.ran, stage.outcomes(session)) == ([], ["pay: error"])


@pytest.mark.behaviour("a-call-has-an-id-of-ours")
@pytest.mark.parametrize("wire_id", ["call_0", ""])
async def test_calls_that_the_provider_gave_the_same_id_are_told_apart(stage: Stage, wire_id: str) -> None:
    """Within an answer and from one to the next; the provider gets its own ids back."""
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
    """What it is given is a value of its own: nothing in it reaches the agent."""
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
    assert [notice.text for notice in stage.seen(ToolOutput)] == ["3 deep"]
    assert stage.order(ToolStarted, ToolOutput, CallSettled) == ["ToolStarted", "ToolOutput", "CallSettled"]
    assert '"context"' not in survey.spec.schema
