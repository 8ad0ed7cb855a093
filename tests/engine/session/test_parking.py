"""A session that rests takes few bytes, and is what it was when it is looked at."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path

import attrs
import pytest
from support.session_stage import until

from turnwheel import Agent, Session, SQLiteStore, tool
from turnwheel.effects import Binary, CallModel, Config, History, ModelSpec, user
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.fold import RunEnd, SessionState
from turnwheel.engine.session.parking import MOST_BYTES, MOST_MESSAGES, PARK_AFTER, parked
from turnwheel.testing import ScriptedModel
from turnwheel.testing.scripted import calls, says

MANY = 50
MOST = 3_600
"""Bytes of a session that rests, with its name and what holds it: about 3,450, 100 more or less by chance."""


@tool(side_effect="unsafe")
async def pay(amount: int) -> str:
    """Pay *amount*."""
    return f"paid {amount}"


def agent(store: SQLiteStore, sessions: int, *, asks: bool) -> Agent:
    """An agent whose model answers so many *sessions*, each with a call that a person is asked about."""
    answer = calls(("pay", {"amount": 5})) if asks else says("hello")
    model = ScriptedModel(*[answer] * sessions, says("done"))
    return Agent(performers={CallModel: model}, tools=[pay], store=store)


def state_of(session: Session) -> SessionState:
    """The state of *session*, which is unpacked by this look."""
    return session._log.state  # pyright: ignore[reportPrivateUsage]  # whether it is packed shows nowhere else


def is_parked(session: Session) -> bool:
    """Whether the state of *session* is packed; this look unpacks nothing."""
    return session._log._parked is not None  # pyright: ignore[reportPrivateUsage]  # as above


async def resting(one: Agent, name: str, *, loaded: bool = False) -> Session:
    """A session that was run, or *loaded* after that."""
    session = one.session(name)
    await session.run("please pay five")
    return await one.session(name).load() if loaded else session


@pytest.mark.parametrize(("asks", "loaded"), [(True, False), (False, True)])
async def test_a_session_that_rests_takes_few_bytes(tmp_path: Path, *, asks: bool, loaded: bool) -> None:
    store = SQLiteStore(tmp_path / "a.db", "process")
    async with agent(store, MANY + 10, asks=asks) as one:
        warm = [await resting(one, f"warm-{number}", loaded=loaded) for number in range(10)]
        await until(lambda: all(map(is_parked, warm)))
        gc.collect()
        tracemalloc.start()
        try:
            kept = [await resting(one, f"s-{number}", loaded=loaded) for number in range(MANY)]
            await until(lambda: all(map(is_parked, (*warm, *kept))))
            # What the script keeps of each request is no part of a session.
            script = one.performers[CallModel]
            assert isinstance(script, ScriptedModel)
            script.requests.clear()
            script.seen.clear()
            gc.collect()
            each = tracemalloc.get_traced_memory()[0] / MANY
        finally:
            tracemalloc.stop()
        assert each < MOST


async def test_a_parked_session_is_what_it_was_and_goes_on(tmp_path: Path) -> None:
    async with agent(SQLiteStore(tmp_path / "a.db", "process"), 1, asks=True) as one:
        session = await resting(one, "s")
        before = state_of(session)
        watcher = session.subscribe()
        await until(lambda: is_parked(session))
        (question,) = session.waiting
        after = state_of(session)
        assert after is not before
        assert (after.runs, after.spent, after.title) == (before.runs, before.spent, before.title)
        assert after.machine is not None
        assert before.machine is not None
        assert after.machine.memory == before.machine.memory
        assert after.machine.state == before.machine.state
        assert after.machine.config is one.config
        await until(lambda: is_parked(session))
        assert not hasattr(session._log, "other")  # pyright: ignore[reportPrivateUsage]  # no other name unpacks it
        assert is_parked(session)
        await session.approve(question.id)
        assert (await session.resume()).text == "done"
        await session.close()
        assert [notice async for notice in watcher]


async def test_a_session_that_goes_on_is_not_parked(tmp_path: Path) -> None:
    async with agent(SQLiteStore(tmp_path / "a.db", "process"), 1, asks=True) as one:
        session = one.session("s")
        async with session.start("please pay five") as handle:
            await until(lambda: session.resting)
            await session.load()
            await asyncio.sleep(2 * PARK_AFTER)
            assert not is_parked(session)
            (question,) = session.waiting
            await session.approve(question.id)
            assert (await handle.wait()).text == "done"


async def test_a_large_file_is_not_packed(tmp_path: Path) -> None:
    async with agent(SQLiteStore(tmp_path / "a.db", "process"), 1, asks=False) as one:
        session = one.session("s")
        file = Binary(data=bytes(MOST_BYTES), media_type="image/png", name="x.png")
        await session.run("what is this?", files=(file,))
        assert parked(state_of(session), one.config) is None


CONFIG = Config(model=ModelSpec(name="one"))


def rested(messages: int = 1, text: str = "hello") -> SessionState:
    """The state of a session with so many *messages* of this *text*."""
    history = History.of(*[user(f"{text} {number}") for number in range(messages - 1)])
    machine = Machine.start(CONFIG, "go", history=history)
    machine.advance()
    assert len(machine.memory.history) == messages
    return SessionState(machine=machine, runs=3, title="a title")


def test_a_state_is_the_same_when_it_is_unpacked() -> None:
    state = rested()
    packed = parked(state, CONFIG)
    assert packed is not None
    again = packed.state
    assert again is not state
    assert (again.runs, again.title) == (3, "a title")
    assert again.machine is not None
    assert state.machine is not None
    assert (again.machine.state, again.machine.memory) == (state.machine.state, state.machine.memory)


def test_an_equal_configuration_is_shared_and_another_one_is_packed() -> None:
    equal, other = attrs.evolve(CONFIG), attrs.evolve(CONFIG, system="Be kind.")
    packed, with_its_own = parked(rested(), equal), parked(rested(), other)
    assert packed is not None
    assert with_its_own is not None
    assert packed.state.machine is not None
    assert packed.state.machine.config is equal
    assert with_its_own.state.machine is not None
    assert with_its_own.state.machine.config == CONFIG
    assert len(packed.data) < len(with_its_own.data)


@pytest.mark.parametrize(("messages", "packs"), [(MOST_MESSAGES, True), (MOST_MESSAGES + 1, False)])
def test_a_long_conversation_is_not_packed(messages: int, *, packs: bool) -> None:
    assert (parked(rested(messages), CONFIG) is not None) is packs


def test_a_long_text_is_not_packed() -> None:
    assert parked(rested(2, "x" * MOST_BYTES), CONFIG) is None


def test_a_session_that_may_be_gone_back_in_and_one_without_a_run_are_not_packed() -> None:
    assert parked(SessionState(), CONFIG) is None
    state = rested()
    assert state.machine is not None
    state.ends["r"] = RunEnd(state.machine.state, state.machine.memory.conversation, 1, 0)
    assert parked(state, CONFIG) is None
