"""Sessions: many runs over one history, questions, interrupts, and what happens when a process is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
import structlog

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    Deny,
    DoneReason,
    MemoryStore,
    Policy,
    Session,
    Tool,
    tool,
)
from turnwheel.effects.errors import (
    ArgumentError,
    JournalError,
    NewerVersion,
    SessionBusy,
    SessionClosed,
    StoreConflict,
    StoreError,
    UnknownRequest,
    UnknownSession,
)
from turnwheel.effects.events import Event
from turnwheel.effects.messages import Outcome, Role, ToolResult
from turnwheel.effects.notices import ApprovalRequested, TextDelta, ToolStarted
from turnwheel.effects.requests import CallModel, RunTool
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.engine.journal.fold import fold
from turnwheel.performers.base import PerformContext
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)
from turnwheel.testing.stores import FaultyStore

ran: list[str] = []


@tool(side_effect="read_only")
def look(at: str = "") -> str:
    """Look at something."""
    ran.append(f"look {at}".strip())
    return f"saw {at}"


@tool(side_effect="idempotent")
def put(value: str = "") -> str:
    """Put something."""
    ran.append(f"put {value}".strip())
    return "put"


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    ran.append(f"pay {amount}")
    return "paid"


Make = Callable[..., tuple[Agent, ScriptedModel]]


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def make() -> Make:
    """An agent over a script, with a store of its own unless one is given."""

    def made(*replies: Reply, **settings: Any) -> tuple[Agent, ScriptedModel]:
        model = ScriptedModel(*replies)
        given: dict[str, Any] = {
            "store": MemoryStore(),
            "clock": AutoClock(100.0),
            "tools": [look, put, pay],
        }
        agent = Agent(model="scripted", performers={CallModel: model}, **{**given, **settings})
        return agent, model

    return made


async def until(session: Session, kind: type, then: Callable[[], None], *, leave: bool = False) -> None:
    """Run *session*, and call *then* at each notice of *kind*, or *leave* at the first."""
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, kind):
                then()
                if leave:
                    return


def results(session: Session) -> list[ToolResult]:
    """All tool results of *session*, in order."""
    return [result for message in session.history for result in message.results]


async def test_runs_follow_each_other_over_one_history(make: Make) -> None:
    """The second run sees what was said in the first."""
    agent, model = make(says("hello"), says("again"))
    async with agent.session("s") as session:
        first = await session.run("hi")
        second = await session.run("and now?")

    assert (first.text, second.text) == ("hello", "again")
    assert [message.text for message in model.seen[1]] == ["hi", "hello", "and now?"]
    assert second.spent.turns == 1


async def test_a_session_goes_on_in_another_process(make: Make) -> None:
    """What is needed is in the store; nothing else is carried over."""
    store = MemoryStore()
    agent, _ = make(says("one"), store=store)
    async with agent.session("s") as session:
        await session.run("first")

    other, model = make(says("two"), store=store)
    async with other.session("s") as session:
        assert (await session.run("second")).text == "two"
    assert [message.text for message in model.seen[0]] == ["first", "one", "second"]


async def test_a_run_rests_on_a_question_and_goes_on_elsewhere(make: Make) -> None:
    """The answer names the request; the tool runs once, in the process that goes on."""
    store = MemoryStore()
    agent, _ = make(calls(("pay", {"amount": 3})), store=store)
    async with agent.session("s") as session:
        resting = await session.run("pay them")

    assert resting.reason is None
    assert ran == []
    assert [question.tool for question in resting.waiting] == ["pay"]

    other, _ = make(says("done"), store=store)
    async with other.session("s") as session:
        assert resting.waiting == session.waiting
        await session.approve(resting.waiting[0].id)
        done = await session.resume()
    assert DoneReason.END_TURN is done.reason
    assert ran == ["pay 3"]


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Approve(), ["pay 1"]),
        (Approve(arguments='{"amount": 9}'), ["pay 9"]),
        (Approve(arguments='{"amount": "much"}'), []),
        (Deny(message="too dear"), []),
    ],
)
async def test_an_answer_is_taken_up_while_the_stream_is_read(
    make: Make, decision: Approve | Deny, expected: list[str]
) -> None:
    """Whoever reads the notices may answer at once, and the run does not rest."""
    agent, _ = make(calls(("pay", {})), says("so be it"))
    async with agent.session("s") as session:
        async for notice in session.stream("go"):
            if isinstance(notice, ApprovalRequested):
                await session.approve(notice.request, decision)
        assert session.result().text == "so be it"
    assert expected == ran


async def test_always_is_remembered_over_runs_and_processes(make: Make) -> None:
    """A rule that was granted for good is part of the journal."""
    store = MemoryStore()
    agent, _ = make(calls(("pay", {})), says("ok"), store=store)
    async with agent.session("s") as session:
        question = (await session.run("go")).waiting[0]
        await session.approve(question.id, ApproveAlways())
        await session.resume()
    other, _ = make(calls(("pay", {})), says("ok"), store=store)
    async with other.session("s") as session:
        assert DoneReason.END_TURN is (await session.run("once more")).reason
    assert ran == ["pay 1", "pay 1"]


async def test_an_answer_to_no_open_question_is_refused(make: Make) -> None:
    """The error names what is open."""
    agent, _ = make(calls(("pay", {})))
    async with agent.session("s") as session:
        waiting = (await session.run("go")).waiting
        with pytest.raises(UnknownRequest, match=f"no open question 'x'; open: '{waiting[0].id}'"):
            await session.approve("x")


async def test_one_run_at_a_time(make: Make) -> None:
    """A second run is refused while one is under way, and while one rests."""
    agent, _ = make(calls(("pay", {})))
    async with agent.session("s") as session:
        async with aclosing(session.stream("go")) as notices:
            await anext(notices)
            with pytest.raises(SessionBusy, match="session 's' has a run under way"):
                await session.run("another")
        with pytest.raises(SessionBusy):
            await session.run("another")


async def test_an_interrupt_ends_the_run_and_keeps_the_partial_text(make: Make) -> None:
    """The next run goes on over what was read."""
    agent, model = make(stalls("Once upon"), says("a time"))
    async with agent.session("s") as session:
        async for notice in session.stream("tell"):
            if isinstance(notice, TextDelta):
                await session.interrupt()
        result = session.result()
        assert (result.reason, result.text) == (DoneReason.INTERRUPTED, "Once upon")
        await session.run("go on")
    assert [message.text for message in model.seen[1]] == ["tell", "Once upon", "go on"]


async def test_leaving_early_leaves_a_run_that_can_be_resumed(make: Make) -> None:
    """A watcher that goes away loses nothing: the model is asked again."""
    store = MemoryStore()
    agent, _ = make(stalls("half"), store=store)
    async with agent.session("s") as session:
        async with aclosing(session.stream("tell")) as notices:
            async for notice in notices:
                if isinstance(notice, TextDelta):
                    break
        assert session.unfinished

    other, _ = make(says("whole"), store=store)
    async with other.session("s") as session:
        assert (await session.resume()).text == "whole"


@pytest.mark.parametrize(
    ("name", "outcome", "again"),
    [("look", Outcome.OK, ["look"]), ("put", Outcome.OK, ["put"]), ("pay", Outcome.UNKNOWN, [])],
)
async def test_a_tool_whose_process_was_lost_by_its_side_effect(
    make: Make, name: str, outcome: Outcome, again: list[str]
) -> None:
    """Reads and idempotent tools run again; an unsafe one is reported as one that may have run."""
    store = MemoryStore()
    agent, _ = make(calls((name, {})), store=store, policy=Policy(mode="bypass"))
    async with agent.session("s") as session, aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, ToolStarted):
                break
    ran.clear()  # whether it ran is what nobody knows

    other, _ = make(says("on we go"), store=store)
    async with other.session("s") as session:
        result = await session.resume()
        assert [outcome] == [one.outcome for one in results(session)]
    assert ("on we go", again) == (result.text, ran)


async def test_two_processes_cannot_both_go_on(make: Make) -> None:
    """Whoever took over goes on; the other is told so, and can look at what came of it."""
    store = MemoryStore()
    agent, _ = make(calls(("look", {})), store=store)
    async with agent.session("s") as session:
        await until(session, ToolStarted, lambda: None, leave=True)
    ran.clear()

    one, _ = make(stalls("mine"), store=store)
    two, _ = make(says("no, mine"), says("well!"), store=store)
    first, second = one.session("s"), two.session("s")
    under_way = asyncio.ensure_future(first.resume())
    while not first.running:  # noqa: ASYNC110  # there is nothing to wait for but that
        await asyncio.sleep(0)
    assert (await second.resume()).text == "no, mine"
    with pytest.raises(StoreConflict, match="another process went on with it"):
        await under_way
    assert ran == ["look", "look"]
    assert (await second.run("well?")).text == "well!"
    assert (await first.resume()).text == "well!"


async def test_a_question_is_answered_once_whoever_answers_first(make: Make) -> None:
    """The answer is kept when `approve` returns, for whichever process goes on."""
    store = MemoryStore()
    agent, _ = make(calls(("pay", {})), store=store)
    async with agent.session("s") as session:
        question = (await session.run("go")).waiting[0]

    first, second = agent.session("s"), agent.session("s")
    await second.load()
    await first.approve(question.id, Approve(arguments='{"amount": 5}'))
    await first.close()
    with pytest.raises(UnknownRequest, match="open: none"):
        await second.approve(question.id, Deny())
    third, _ = make(says("paid"), store=store)
    async with third.session("s") as session:
        assert (await session.resume()).text == "paid"
    assert ran == ["pay 5"]


async def test_two_runs_at_once_in_one_process_are_one_and_a_refusal(make: Make) -> None:
    """The session is claimed before the first await; the refused one changes nothing."""
    agent, _ = make(stalls("one"))
    async with agent.session("s") as session:
        first = asyncio.ensure_future(session.run("a"))
        second = asyncio.ensure_future(session.run("b"))
        with pytest.raises(SessionBusy):
            await second
        await session.load()
        await session.interrupt()
        assert (await first).reason is DoneReason.INTERRUPTED
        assert session.history[0].text == "a"


async def test_an_interrupt_that_comes_while_a_run_is_being_opened_holds(make: Make) -> None:
    """It is remembered until there is something to stop; one for an earlier run is not."""
    agent, _ = make(stalls("once"), says("fine"))
    async with agent.session("s") as session:
        running = asyncio.ensure_future(session.run("go"))
        await asyncio.sleep(0)
        await session.interrupt()
        assert (await running).reason is DoneReason.INTERRUPTED
        await session.interrupt()
        assert (await session.run("again")).text == "fine"


async def test_a_stream_that_was_merely_dropped_can_be_resumed(make: Make) -> None:
    """A ``break`` without more is enough: whoever goes on waits until it has closed."""
    agent, _ = make(stalls("half"), says("whole"))
    async with agent.session("s") as session:
        async for notice in session.stream("tell"):
            if isinstance(notice, TextDelta):
                break
        assert (await session.resume()).text == "whole"


async def test_closing_a_session_leaves_its_run(make: Make) -> None:
    """The work stops, whoever waited is told, and another session goes on."""
    store = MemoryStore()
    agent, model = make(stalls("half"), says("whole"), store=store)
    session = agent.session("s")
    before = asyncio.all_tasks()
    running = asyncio.ensure_future(session.run("tell"))
    while not model.requests:  # noqa: ASYNC110  # until it is under way
        await asyncio.sleep(0)
    await session.close()
    with pytest.raises(SessionClosed):
        await running
    assert asyncio.all_tasks() == before
    async with agent.session("s") as other:
        assert (await other.resume()).text == "whole"


@pytest.mark.parametrize("wrong", ["yes", True, Approve])
async def test_what_is_no_decision_is_refused(make: Make, wrong: Any) -> None:  # wrong on purpose
    """Nothing but a decision counts as one."""
    agent, _ = make(calls(("pay", {})))
    async with agent.session("s") as session:
        question = (await session.run("go")).waiting[0]
        with pytest.raises(
            ArgumentError, match=r"decision must be Approve\(\), ApproveAlways\(\) or Deny\(\)"
        ):
            await session.approve(question.id, wrong)


async def test_a_performer_that_answers_something_else_does_not_hang_a_run() -> None:
    """What is no answer to the request is a crash of its performer."""

    async def broken(_: RunTool, __: PerformContext) -> Any:  # wrong on purpose
        return None

    model = ScriptedModel(calls(("look", {})), says("sorry"))
    agent = Agent(model="m", tools=[look], performers={CallModel: model, RunTool: broken})
    async with asyncio.timeout(5), agent.session("s") as session:
        assert (await session.run("go")).text == "sorry"
        assert "answered" in results(session)[0].content


async def test_a_store_that_fails_for_a_while_loses_nothing(make: Make) -> None:
    """What was not kept did not happen: the session reads its journal again and goes on from there."""
    store = FaultyStore()

    def store_fails() -> None:
        store.works = False

    agent, _ = make(calls(("look", {})), says("one"), says("two"), store=store)
    async with agent.session("s") as session:
        with pytest.raises(StoreError, match="no space left"):
            await until(session, ToolStarted, store_fails)
        store.works = True
        assert DoneReason.END_TURN is (await session.resume()).reason
        assert len(results(session)) == 1
        machine = session.machine
    assert machine == fold(await store.load("s"), "s").machine


async def test_another_configuration_takes_effect_and_is_in_the_journal(make: Make) -> None:
    """A tool that is gone after a restart is an error result, and the journal still folds."""
    store = MemoryStore()
    agent, _ = make(calls(("pay", {})), store=store)
    async with agent.session("s") as session:
        question = (await session.run("go")).waiting[0]

    other, _ = make(says("pity"), store=store, tools=[look])
    async with other.session("s") as session:
        await session.approve(question.id)
        await session.resume()
        assert "Tool not found: pay" in results(session)[0].content
        machine = session.machine
    assert machine == fold(await store.load("s"), "s").machine


async def test_a_journal_that_does_not_follow_is_refused(make: Make) -> None:
    """An entry that leads elsewhere than when it was written names its number and both places."""
    store = MemoryStore()
    agent, _ = make(says("hi"), store=store)
    async with agent.session("s") as session:
        await session.run("go")
    entries = list(await store.load("s"))
    stepped = Stepped(event=fold_event(entries[-1]), label="executing")
    await store.append("t", 0, [*entries[:-1], encode_entry(stepped)])

    with pytest.raises(JournalError, match=r"entry 4 of session 't': ModelFinished leads to done here"):
        await agent.session("t").load()


def fold_event(data: bytes) -> Event:
    """The event of an entry."""
    entry = decode_entry(data)
    assert isinstance(entry, Stepped)
    return entry.event


async def test_a_journal_of_a_newer_version_is_refused(make: Make) -> None:
    """It says what to do."""
    store = MemoryStore()
    agent, _ = make(says("hi"), store=store)
    async with agent.session("s") as session:
        await session.run("go")
    first, second, *_ = await store.load("s")
    await store.append("t", 0, [first, second.replace(b'"v":3', b'"v":99')])

    says_what = "entry 1 of session 't' has version 99, known here is 3: upgrade turnwheel"
    with pytest.raises(NewerVersion, match=says_what):
        await agent.session("t").load()


async def test_what_is_closed_or_unknown_says_so(make: Make) -> None:
    """A closed session and one without a run are errors of the caller's."""
    agent, _ = make()
    session = agent.session("s")
    with pytest.raises(UnknownSession, match="no session 's' in this store"):
        await session.resume()
    await session.close()
    await session.close()
    with pytest.raises(SessionClosed, match="session 's' is closed"):
        await session.run("hi")


async def test_history_has_one_result_per_call_in_call_order(make: Make) -> None:
    """Whatever became of each call, all results are one message right behind theirs."""
    wishes = calls(("look", {"at": "a"}), ("nothing", {}), ("pay", {"amount": "x"}), ("pay", {}))
    agent, _ = make(wishes, says("well"))
    async with agent.session("s") as session:
        async for notice in session.stream("go"):
            if isinstance(notice, ApprovalRequested):
                await session.approve(notice.request, Deny())
        roles = [message.role for message in session.history]
        outcomes = [result.outcome for result in results(session)]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert outcomes == [Outcome.OK, Outcome.ERROR, Outcome.ERROR, Outcome.DENIED]


async def test_there_is_one_log_line_per_step_and_none_unless_asked(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line has session, run, step, event and state; a library that was told nothing is silent."""
    agent, _ = make(calls(("look", {})), says("hi"))
    async with agent.session("s") as session:
        await session.run("go")
    assert capsys.readouterr() == ("", "")

    agent, _ = make(calls(("look", {})), says("hi"))
    try:
        with structlog.testing.capture_logs() as lines:
            structlog.configure(processors=structlog.get_config()["processors"])
            async with agent.session("s") as session:
                run = (await session.run("go")).run
    finally:
        structlog.reset_defaults()
    steps = [(line["step"], line["event_type"], line["state"]) for line in lines]
    assert steps == [
        (1, "ModelStreamed", "streaming"),
        (2, "ModelFinished", "executing"),
        (3, "ToolFinished", "streaming"),
        (4, "ModelStreamed", "streaming"),
        (5, "ModelFinished", "done"),
    ]
    assert {("s", run)} == {(line["session"], line["run"]) for line in lines}


def test_the_tools_of_this_file_are_tools() -> None:
    """What the scripts call is what the agent was given."""
    assert all(isinstance(each, Tool) for each in (look, put, pay))
