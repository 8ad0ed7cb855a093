"""A run and its session, as their caller sees them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    DoneReason,
    HookCall,
    Limits,
    MemoryStore,
    SQLiteStore,
    hook,
)
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    HookAsked,
    InputTaken,
    RunEnded,
    RunStarted,
    TextDelta,
)
from turnwheel.effects.usage import Usage
from turnwheel.performers.stores.base import Store
from turnwheel.testing.scripted import (
    Reply,
    calls,
    fails,
    says,
    stalls,
)

if TYPE_CHECKING:
    from behaviour.conftest import Stage

MakeStore = Callable[[Path], Store]

each_store = pytest.mark.parametrize(
    "make",
    [lambda _: MemoryStore(), lambda folder: SQLiteStore(folder / "agent.db")],
    ids=["memory", "sqlite"],
)


@pytest.mark.behaviour("rounds-until-no-call")
async def test_the_model_is_asked_again_with_the_results_until_it_calls_no_tool(stage: Stage) -> None:
    """Each request has all that was said before, and the answer without a call is the run's."""
    first, second = calls(("look", {"at": "a"}), text="well"), calls(("look", {"at": "b"}))
    session = stage.session(first, second, says("done"), system="Be kind.")

    result = await session.run("go")

    assert stage.shown(1) == ["user: go"]
    assert stage.shown(2) == ["user: go", "assistant: well [look]", "tool: saw a"]
    assert stage.shown(3) == [*stage.shown(2), "assistant: [look]", "tool: saw b"]
    assert (result.text, result.reason, stage.asked) == ("done", DoneReason.END_TURN, 3)
    assert [request.system for request in stage.model.requests] == ["Be kind."] * 3


@pytest.mark.behaviour("begins-and-ends-once")
@pytest.mark.parametrize(
    ("replies", "limits", "reason"),
    [
        ([calls(("look", {})), says("done")], Limits(), DoneReason.END_TURN),
        ([fails(Failure.AUTH)], Limits(), DoneReason.ERROR),
        ([calls(("look", {}))], Limits(turns=1), DoneReason.MAX_TURNS),
    ],
)
async def test_the_first_notice_says_what_a_run_works_with_and_the_last_why_it_ended(
    stage: Stage, replies: list[Reply], limits: Limits, reason: DoneReason
) -> None:
    """However it ends, and there is one of each."""
    await stage.play(stage.session(*replies, limits=limits, cwd="tests"))

    first, last = stage.notices[0], stage.notices[-1]
    assert isinstance(first, RunStarted)
    assert (first.model, first.cwd, first.mode) == ("scripted", str(Path("tests").absolute()), "default")
    assert first.tools == ("look", "put", "pay", "fail", "dig", "build")
    assert isinstance(last, RunEnded)
    assert (last.run, last.reason) == (first.run, reason)
    assert stage.order(RunStarted, RunEnded) == ["RunStarted", "RunEnded"]


@pytest.mark.behaviour("begins-and-ends-once")
async def test_a_run_that_rests_and_goes_on_elsewhere_still_begins_once(stage: Stage) -> None:
    """Two processes, one run."""
    await stage.play(stage.session(calls(("pay", {}))))
    assert stage.order(RunStarted, RunEnded) == ["RunStarted"]

    other = await stage.session(says("done")).load()
    await other.approve(other.waiting[0].id)
    await stage.play(other, None)

    assert stage.order(RunStarted, RunEnded) == ["RunStarted", "RunEnded"]
    assert stage.ran == ["pay 1"]


@pytest.mark.behaviour("a-session-opens-once")
async def test_instructions_are_read_and_hooks_asked_before_the_first_prompt_only(
    stage: Stage, tmp_path: Path
) -> None:
    """What the file said then holds for the whole session."""
    told: list[HookCall] = []

    @hook("session_start")
    async def greet(about: HookCall) -> None:
        told.append(about)

    (tmp_path / "AGENTS.md").write_text("Write tests.")
    session = stage.session(
        says("one"), says("two"), hooks=[greet], instructions=["AGENTS.md"], cwd=tmp_path, system="Be kind."
    )
    await stage.play(session, "first")
    (tmp_path / "AGENTS.md").write_text("Write none.")
    await stage.play(session, "second")

    assert [about.payload for about in told] == [{"source": "startup"}]
    assert stage.order(RunStarted, HookAsked, InputTaken, RunEnded) == [
        *("RunStarted", "HookAsked", "InputTaken", "RunEnded"),
        *("RunStarted", "InputTaken", "RunEnded"),
    ]
    for request in stage.model.requests:
        assert request.system.startswith("Be kind.")
        assert "Write tests." in request.system


@pytest.mark.behaviour("what-was-said-is-kept")
@each_store
async def test_a_session_goes_on_in_another_process_over_what_the_store_has(
    stage: Stage, make: MakeStore, tmp_path: Path
) -> None:
    """The end of the first process takes nothing with it; a file is opened again."""
    store = make(tmp_path)
    async with stage.session(calls(("look", {"at": "a"})), says("one"), store=store) as session:
        await session.run("first")
        said = stage.said(session)

    if isinstance(store, SQLiteStore):
        await store.close()
        store = make(tmp_path)
    async with stage.session(says("two"), store=store) as session:
        assert stage.said(session) == said
        result = await session.run("second")

    assert stage.shown(1) == [*said, "user: second"]
    assert said == ["user: first", "assistant: [look]", "tool: saw a", "assistant: one"]
    assert (result.text, result.spent.turns) == ("two", 1)
    await store.close()


@pytest.mark.behaviour("what-was-said-is-kept")
async def test_without_a_store_a_session_lives_as_long_as_its_object(stage: Stage) -> None:
    """Its runs follow each other as they do with one."""
    session = stage.session(says("one"), says("two"), store=None)
    await session.run("first")
    await session.run("second")

    assert stage.shown(2) == ["user: first", "assistant: one", "user: second"]
    assert stage.session(store=None).machine is None


@pytest.mark.behaviour("a-failure-is-an-end")
@pytest.mark.parametrize("failure", [fails(Failure.AUTH), fails(Failure.CUT, after="half an answ")])
async def test_after_a_failed_run_the_session_takes_the_next_prompt(stage: Stage, failure: Reply) -> None:
    """The provider's words are in the result, and nothing of its answer in the conversation."""
    session = stage.session(failure, says("better"))
    failed = await session.run("go")
    result = await session.run("again")

    assert (failed.reason, failed.text) == (DoneReason.ERROR, "")
    assert "scripted" in failed.detail
    assert stage.shown(2) == ["user: go", "user: again"]
    assert (result.reason, result.text) == (DoneReason.END_TURN, "better")


@pytest.mark.behaviour("the-end-tells-what-was-used")
@pytest.mark.parametrize(
    ("replies", "limits", "used"),
    [
        ([calls(("look", {})), says("done", usage=Usage(input=30, output=2))], Limits(), (2, 40, 7)),
        ([calls(("look", {})), fails(Failure.AUTH)], Limits(), (1, 10, 5)),
        ([calls(("look", {}))], Limits(turns=1), (1, 10, 5)),
    ],
)
async def test_result_and_last_notice_have_the_sum_of_all_answers(
    stage: Stage, replies: list[Reply], limits: Limits, used: tuple[int, int, int]
) -> None:
    """Whatever the reason."""
    result = await stage.play(stage.session(*replies, limits=limits))

    spent = result.spent
    assert (spent.turns, spent.usage.input, spent.usage.output) == used
    assert [notice.spent for notice in stage.seen(RunEnded)] == [spent]


@pytest.mark.behaviour("the-end-tells-what-was-used")
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (stalls("twelve chars"), DoneReason.INTERRUPTED),
        (fails(Failure.CUT, after="twelve chars"), DoneReason.ERROR),
    ],
)
async def test_an_answer_that_was_cut_is_accounted_for_by_an_estimate(
    stage: Stage, reply: Reply, reason: DoneReason
) -> None:
    """It was paid for, although nobody told how much; what is estimated says so."""
    session = stage.session(calls(("look", {})), reply)
    on: dict[type, Any] = {TextDelta: lambda _: session.interrupt()} if reply.stalls else {}
    result = await stage.play(session, on=on)

    usage = result.spent.usage
    assert (result.reason, result.spent.turns, usage.output) == (reason, 1, 5 + 3)
    assert usage.estimated == usage.total - 15
    assert usage.estimated > 3
    assert [notice.spent for notice in stage.seen(RunEnded)] == [result.spent]
