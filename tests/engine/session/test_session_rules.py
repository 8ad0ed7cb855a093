"""What a session says of itself, and what it refuses, one rule at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from provers.tasks import turns

from turnwheel import DoneReason, MemoryStore, Session
from turnwheel.effects.config import Config, ModelSpec, Policy, Steering, ToolSpec
from turnwheel.effects.errors import (
    ConfigError,
    SessionBusy,
    SessionClosed,
    UnknownCall,
    UnknownSession,
)
from turnwheel.effects.events import UserSent, UserSteered
from turnwheel.effects.history import History
from turnwheel.effects.messages import Message, Outcome, Role, ToolCall, ToolResult, user
from turnwheel.effects.notices import RunEnded, TextDelta
from turnwheel.effects.requests import CallModel, RunTool, SetTimer
from turnwheel.effects.usage import Spent
from turnwheel.engine.agent import sleep
from turnwheel.engine.inputs import Input
from turnwheel.engine.journal.summary import Activity
from turnwheel.engine.machine import Machine
from turnwheel.engine.session.environment import Environment
from turnwheel.performers.stores.base import Store
from turnwheel.states.context import ConversationMemory, Memory, SessionMemory
from turnwheel.states.state import Done
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, ScriptedTools, calls, says, stalls

CONFIG = Config(model=ModelSpec(name="one"), tools=(ToolSpec(name="pay"),))


def session_of(
    store: Store | None, *replies: Reply, config: Config = CONFIG, name: str = "s", **settings: Any
) -> Session:
    ids = iter(f"id{number}" for number in range(99))
    performers: dict[type, Any] = {
        CallModel: ScriptedModel(*replies, partial=True),
        RunTool: ScriptedTools(pay=lambda _: "paid"),
        SetTimer: sleep,
    }
    given: dict[str, Any] = {"clock": AutoClock(100.0), "new_id": lambda: next(ids), "poll": 3_600.0}
    environment = Environment(config=config, performers=performers, **{**given, **settings})
    return Session(name, environment, store)


def inside(session: Session) -> Any:
    """*session*, whose parts a test looks at or changes."""
    return session


# Results


def assistant(text: str = "", *ran: str) -> Message:
    message = attrs.evolve(user(text), role=Role.ASSISTANT)
    made = [ToolCall(id=call, wire_id=call, name="pay", arguments="{}") for call in ran]
    return attrs.evolve(message, parts=(*(message.parts if text else ()), *made))


def results(*outcomes: Outcome) -> Message:
    parts = [
        ToolResult(call=str(number), wire_id="", name="pay", content="", outcome=outcome)
        for number, outcome in enumerate(outcomes)
    ]
    return Message(role=Role.TOOL, parts=tuple(parts))


def over(reason: DoneReason | None, *messages: Message) -> Session:
    """A session whose latest run ended with these *messages* behind an earlier one's, or goes on."""
    session = session_of(None)
    history = History.of(user("before"), assistant("earlier"), user("go"), *messages)
    memory = Memory(run="r", session=SessionMemory(model="one"), conversation=ConversationMemory.of(history))
    state = Machine.start(CONFIG, "go").state
    if reason is not None:
        state = Done(reason=reason, spent=Spent(turns=3), detail="why")
    inside(session)._log.state.machine = Machine(CONFIG, state, attrs.evolve(memory, spent=Spent(turns=5)))
    return session


OK, SKIPPED = Outcome.OK, Outcome.SKIPPED


@pytest.mark.parametrize(
    ("reason", "messages", "text"),
    [
        (DoneReason.END_TURN, [assistant("found")], "found"),
        (DoneReason.END_TURN, [], ""),
        (DoneReason.END_TURN, [assistant("first"), assistant("second")], "second"),
        # An empty answer, which is not kept, came behind the results.
        (DoneReason.END_TURN, [assistant("wait", "0"), results(OK)], ""),
        (DoneReason.REFUSAL, [assistant("wait", "0", "1"), results(SKIPPED, OK)], ""),
        # A natural end whose calls were left out.
        (DoneReason.END_TURN, [assistant("done", "0"), results(SKIPPED)], "done"),
        # A limit was met behind them.
        (DoneReason.MAX_TURNS, [assistant("wait", "0"), results(OK)], "wait"),
        (None, [assistant("wait", "0"), results(OK)], "wait"),
    ],
)
def test_the_text_of_a_result_is_the_last_answer_of_its_run(
    reason: DoneReason | None, messages: list[Message], text: str
) -> None:
    result = over(reason, *messages).result()
    assert (result.session, result.run, result.text, result.reason) == ("s", "r", text, reason)
    assert (result.spent, result.detail) == (
        (Spent(turns=5), "") if reason is None else (Spent(turns=3), "why")
    )


def test_a_session_without_a_run_says_that_nothing_is_there() -> None:
    session = session_of(None)
    assert (session.machine, len(session.history), session.queue, session.title) == (None, 0, (), "")
    assert (session.unfinished, session.running, session.resting) == (False, False, False)
    assert (session.waiting, session.children, session.spent) == ((), (), Spent())
    assert (session.unbegun, session.tries, session.activity) == (frozenset(), {}, Activity.IDLE)
    with pytest.raises(UnknownSession):
        session.result()


async def test_a_run_that_rests_says_where_its_question_is_from() -> None:
    session = session_of(MemoryStore(), calls(("pay", {})))
    result = await session.run("go")
    (question,) = session.waiting
    assert result.waiting == (question,)
    assert (question.session, question.run, question.agent, question.tool) == ("s", result.run, "", "pay")
    assert (session.unfinished, session.running, session.resting) == (True, False, False)


# Inputs


@pytest.mark.parametrize("known", [True, False])
async def test_a_prompt_is_sent_once_with_the_id_of_its_sender(*, known: bool) -> None:
    session = session_of(MemoryStore())
    given = "mine" if known else None
    names = [await session.send("hi", id=given, sender="ann") for _ in range(2)]
    assert names == (["mine", "mine"] if known else ["id0", "id1"])
    assert [mail.id for mail in session.queue] == [*dict.fromkeys(names)]


@pytest.mark.parametrize(
    ("how", "policy", "expected"),
    [
        (None, Steering.NOW, Steering.NOW),
        (None, Steering.WHEN_DONE, Steering.WHEN_DONE),
        ("now", Steering.WHEN_DONE, Steering.NOW),
        (Steering.WHEN_DONE, Steering.NOW, Steering.WHEN_DONE),
    ],
)
async def test_a_steer_is_read_as_it_says_or_as_the_policy_does(
    how: Any, policy: Steering, expected: Steering
) -> None:
    session = session_of(
        MemoryStore(), calls(("pay", {})), config=attrs.evolve(CONFIG, policy=Policy(steering=policy))
    )
    await session.run("go")
    await session.steer("wait", how, id="x")
    assert inside(session)._log.state.posted == [UserSteered(at=100.0, id="x", text="wait", how=expected)]


@pytest.mark.parametrize("agent", ["", "helper"])
async def test_a_steer_without_a_run_is_a_prompt_but_to_a_child(agent: str) -> None:
    task = Input(id="task", text="task") if agent else None
    session = session_of(MemoryStore(), config=attrs.evolve(CONFIG, agent=agent), task=task)
    await session.steer("wait", id="x")
    kind = UserSteered if agent else UserSent
    assert isinstance(inside(session)._log.state.posted[-1], kind)


async def test_an_interrupt_without_a_run_does_nothing() -> None:
    store = MemoryStore()
    session = session_of(store)
    await session.interrupt()
    assert await store.list() == []


@pytest.mark.parametrize("abort", [True, False])
async def test_a_run_that_rests_is_stopped_when_it_is_gone_on_with(*, abort: bool) -> None:
    session = session_of(MemoryStore(), calls(("pay", {})))
    await session.run("go")
    await session.interrupt(abort=abort)
    assert session.waiting == ()
    assert (await session.resume()).reason is (DoneReason.ABORTED if abort else DoneReason.INTERRUPTED)


# Begun in the background


async def test_an_input_begins_a_run_where_none_goes_on_and_that_is_wanted() -> None:
    session = session_of(MemoryStore(), says("one"), says("two"))
    await session.send("go")
    await turns(30)
    assert not session.running
    await session.send("and", start=True)
    await session.send("more", start=True)
    assert await turns(300, lambda: session.queue == () and not session.running)
    assert [message.text for message in session.history][:4] == ["go", "one", "and", "two"]
    await session.close()


async def test_an_input_begins_none_beside_a_run_that_rests() -> None:
    session = session_of(MemoryStore(), calls(("pay", {})))
    await session.run("go")
    await session.send("more", start=True)
    await turns(30)
    assert not session.running
    assert [mail.text for mail in session.queue] == ["more"]


async def test_a_handle_tells_of_its_own_run_only() -> None:
    session = session_of(MemoryStore(), says("one"), says("two"))
    await session.run("go")
    handle = session.start("more")
    assert (handle.done, handle.reason, handle.spent, handle.turns) == (False, None, Spent(), 0)
    assert (handle.cost, handle.usage) == (Spent().cost, Spent().usage)
    result = await handle.wait()
    assert (result.text, handle.done, handle.reason, handle.turns) == ("two", True, "end_turn", 1)
    assert handle.usage == handle.spent.usage == result.spent.usage
    kinds = [type(notice) for notice in [notice async for notice in handle]]
    assert kinds[-1] is RunEnded
    assert handle.dropped == 0
    await handle.close()
    await handle.close()


async def test_a_handle_raises_the_error_of_its_run_once_where_it_was_not_seen() -> None:
    for seen in True, False:
        session = session_of(MemoryStore())
        await session.close()
        handle = session.start("go")
        if seen:
            with pytest.raises(SessionClosed):
                await handle.wait()
            await handle.close()
        else:
            await turns(10)
            with pytest.raises(SessionClosed):
                await handle.close()


async def test_the_error_inside_a_block_is_not_hidden_by_that_of_the_run() -> None:
    session = session_of(MemoryStore())
    await session.close()

    async def fail() -> None:
        async with session.start("go"):
            await turns(10)
            raise KeyError

    with pytest.raises(KeyError):
        await fail()


async def test_a_run_that_was_left_is_as_far_as_it_came() -> None:
    session = session_of(MemoryStore(), stalls("half"))
    async with session.start("go") as handle:
        async for notice in handle:
            if isinstance(notice, TextDelta):
                break
    result = await handle.wait()
    assert (result.reason, session.unfinished, handle.done) == (None, True, True)


# Children, copies and titles


async def test_what_a_parent_lends_may_be_looked_at_and_spoken_to_and_nothing_more() -> None:
    session = session_of(MemoryStore(), says("hi"))
    inside(session)._lent = True
    refused: list[Callable[[], Any]] = [
        lambda: session.stream("go"),
        lambda: session.start("go"),
        session.branch,
        session.drain,
    ]
    for do in refused:
        with pytest.raises(ConfigError, match="session 's' is a child; resume its parent"):
            await do()
    await session.close()
    await session.send("hi")
    with pytest.raises(UnknownCall):
        session.child("none")


async def test_a_copy_is_another_session_and_overwrites_none() -> None:
    store = MemoryStore()
    session = session_of(store, says("one"), says("two"))
    await session.run("go")
    copy = await session.fork("copy")
    assert (copy.id, [message.text for message in copy.history]) == ("copy", ["go", "one"])
    assert (await session.fork()).id.startswith("id")
    with pytest.raises(ConfigError, match="session 'copy' already exists; choose another id"):
        await session.fork("copy")
    with pytest.raises(ConfigError):
        await session.fork("no/../name\n")
    await copy.run("more")
    assert len(session.history) == 2


async def test_a_title_is_one_line() -> None:
    session = session_of(MemoryStore())
    await session.retitle("  one\nline  ")
    assert session.title == "one"
    await session.retitle("")
    assert session.title == ""


async def test_a_session_goes_back_to_any_of_its_runs() -> None:
    session = session_of(MemoryStore(), says("one"), says("two"), says("three"))
    first = (await session.run("go")).run
    await session.run("more")
    await session.branch(first)
    assert len(session.history) == 2
    await session.run("other")
    assert [run.head for run in await session.runs()] == [False, True, True]
    assert [run.run for run in await session.heads()] == [run.run for run in (await session.runs())[1:]]
    await session.branch()
    assert len(session.history) == 0


async def test_what_needs_a_store_says_so_without_one() -> None:
    session = session_of(None)
    for do in session.runs, session.heads, session.branch, session.fork:
        with pytest.raises(ConfigError, match="has no store"):
            await do()
    with pytest.raises(ConfigError, match="has no store"):
        session.watch()


# Whose result it is


async def test_the_result_is_that_of_the_prompt_and_not_of_one_behind_it() -> None:
    session = session_of(MemoryStore(), says("zero"), says("one"), says("two"))
    await session.send("before")
    running = asyncio.ensure_future(session.run("mine"))
    await turns(4)
    await session.send("behind")
    result = await running
    assert result.text == "one"
    assert [message.text for message in session.history][-1] == "two"
    assert (await session.resume()).text == "two"


async def test_a_prompt_that_had_no_turn_is_in_the_queue_of_a_session_that_was_closed() -> None:
    session = session_of(MemoryStore(), stalls())
    await session.send("before")
    running = asyncio.ensure_future(session.run("mine"))
    await turns(30, lambda: session.running)
    await session.close()
    with pytest.raises(SessionClosed):
        await running
    with pytest.raises(SessionClosed):
        await session.run("more")


async def test_a_session_in_a_block_is_read_at_its_beginning_and_closed_at_its_end() -> None:
    store = MemoryStore()
    await session_of(store).send("hi")
    async with session_of(store) as session:
        assert [mail.text for mail in session.queue] == ["hi"]
    with pytest.raises(SessionClosed):
        await session.load()


async def test_the_lease_of_a_run_that_rested_is_taken_where_it_is_asked_for() -> None:
    session = session_of(MemoryStore())
    inside(session)._runner.lease.wanted = True
    await session.keep_lease()
    assert inside(session)._runner.lease.held
    with pytest.raises(SessionBusy):
        await session_of(inside(session)._log.journal.store).check_free()
    await inside(session)._runner.lease.release()
    await session_of(inside(session)._log.journal.store).check_free()
