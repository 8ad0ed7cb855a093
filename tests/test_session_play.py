"""Sessions that are cancelled, cut off and played with: at every moment, and in every order a seed gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import final

import pytest

from turnwheel import Agent, Concurrency, DoneReason, MemoryStore, Result, Session
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import Event, ModelStreamed
from turnwheel.effects.messages import Outcome
from turnwheel.engine.entries import VERSION, RunOpened
from turnwheel.engine.journal import Journal, fold
from turnwheel.engine.machine import Machine
from turnwheel.testing.choices import Seeded
from turnwheel.testing.jobs import DONE, World, job
from turnwheel.testing.player import Player, PromiseBroken
from turnwheel.testing.sessions import SESSION, SessionBroken, at_work, play_sessions, to_the_end, turns

each_concurrency = pytest.mark.parametrize("concurrency", list(Concurrency))


async def finished(world: World, agent: Agent) -> Session:
    """The session of *world*, brought to its end by an *agent* that knows only the store, and checked."""
    async with agent.session(SESSION) as session:
        if session.machine is None:
            await session.run(job(1))
        assert await to_the_end(session) == []
    assert await turns(100, lambda: not at_work()), f"left over: {at_work()}"
    assert await world.kept_faults(session) == []
    assert session.result().text == DONE
    return session


def maybe_twice(session: Session) -> list[str]:
    """The tools whose result says that they may have run."""
    results = [result for message in session.history for result in message.results]
    return [result.name for result in results if result.outcome is Outcome.UNKNOWN]


# At every moment


@each_concurrency
@pytest.mark.parametrize("same", [True, False], ids=["same", "another"])
@pytest.mark.parametrize("seed", range(2))
async def test_a_run_that_is_cancelled_at_any_moment_is_ended_by_whoever_goes_on(
    concurrency: Concurrency, seed: int, *, same: bool
) -> None:
    """Wherever it was cut off, no unsafe tool runs twice and every call has its one result."""
    doubted: Counter[str] = Counter()
    moment, over = 0, False
    while not over:
        world = World(Seeded(seed))
        agent = world.agent(concurrency)
        running = asyncio.ensure_future(agent.session(SESSION).run(job(1)))
        over = await turns(moment, running.done)
        running.cancel()
        await asyncio.wait([running])
        session = await finished(world, agent if same else world.agent(concurrency, system="Be quick."))
        doubted.update(maybe_twice(session))
        moment += 1
    assert moment > 80  # a turn of the event loop each: every await of the run is among them
    assert {"pay", "peek", "put"} & set(doubted) == {"pay"}


def fails_at(failing: int, when: str, number: int) -> str:
    """When append *number* fails, where that is number *failing*."""
    return when if number == failing else ""


async def run_or_fail(session: Session) -> Result | StoreError:
    """What came of a job, or of the store."""
    try:
        return await session.run(job(1))
    except StoreError as error:
        return error


@each_concurrency
@pytest.mark.parametrize("same", [True, False], ids=["same", "another"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_store_that_fails_at_any_write_loses_nothing(
    concurrency: Concurrency, when: str, *, same: bool
) -> None:
    """Whether the write took effect or not; the session itself goes on as another process would."""
    failing, failed = 0, True
    while failed:
        failing += 1
        world = World(Seeded(failing), partial(fails_at, failing, when))
        session = world.agent(concurrency).session(SESSION)
        await run_or_fail(session)
        failed = world.store.failed
        if not same:
            await finished(world, world.agent(concurrency))
            continue
        if (await session.load()).machine is None:
            await session.run(job(1))
        assert await to_the_end(session) == []
        assert await world.kept_faults(session) == []
    assert failing > 20


@each_concurrency
@pytest.mark.parametrize("system", ["", "Be quick."], ids=["same settings", "others"])
async def test_a_journal_that_is_cut_anywhere_is_gone_on_with(concurrency: Concurrency, system: str) -> None:
    """As after a crash: what was written is enough to end the run, with and without the child's journal."""
    whole = World(Seeded(0))
    async with whole.agent(concurrency).session(SESSION) as session:
        await session.run(job(1))
    journals = {info.session: await whole.store.kept.load(info.session) for info in await whole.store.list()}
    assert len(journals) == 2
    assert any("[Summary" in message.text for message in session.history)
    length = len(journals[SESSION])
    for cut in range(1, length + 1):
        for share in (0.0, cut / length):
            world = World(Seeded(cut))
            for name, entries in journals.items():
                part = cut if name == SESSION else round(len(entries) * share)
                await world.store.kept.append(name, 0, entries[:part])
            world.trusting = True  # who said yes stands in the journal
            ended = await finished(world, world.agent(concurrency, system=system))
            assert ended.result().reason is DoneReason.END_TURN


# In any order


def test_sessions_survive_whatever_is_done_with_them() -> None:
    """Runs, answers, interrupts, leaving in all ways, other processes and failing stores, many seeds."""
    moves: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        for seed in range(300):
            try:
                moves.update(runner.run(play_sessions(seed)))
            except SessionBroken as broken:
                pytest.fail(f"seed {seed}: {broken}")
    told = {"SessionBusy", "SessionClosed", "StoreError", "StoreConflict"}
    assert {name for name in told if moves[f"run was told {name}"]} == told
    assert moves["run was cancelled"]


def test_the_same_seed_is_the_same_play() -> None:
    """What is done and what comes of it."""
    for seed in range(20):
        assert asyncio.run(play_sessions(seed)) == asyncio.run(play_sessions(seed))


# The pure player, with a store behind it


@final
class Stored:
    """
    Writes what a player does into a store and gives it the machine that comes out again.

    Where it does not *flush*, pieces of a stream are held back as they are while a run is driven, and the
    machine of that moment is one that is lost with its process: then the one that was played goes on.
    """

    def __init__(self, runner: asyncio.Runner, *, flush: bool) -> None:
        self._runner = runner
        self._flush = flush
        self._journal = Journal(MemoryStore(), SESSION)
        self._written = 0
        self.machine = Machine.start(Player(Seeded(0)).machine.config, "unused")

    def opened(self, player: Player, before: Machine | None, run: str) -> Machine:
        """The machine of a run over the one *before*, as the store gives it."""
        opened = RunOpened(
            at=0.0,
            run=run,
            sender=f"{run}-prompt",
            prompt="the prompt",
            config=player.machine.config,
            version=VERSION,
        )
        self._runner.run(self._journal.write(opened))
        self._written = 0
        return Machine.open(opened, before)

    def __call__(self, began: Machine, journal: list[Event]) -> Machine:
        """The machine after *journal*; as a player's `Rebuild`."""
        if not journal:
            self.machine = Machine(began.config, began.state, began.memory)
            self.machine.advance()
        for event in journal[self._written :]:
            self.machine.advance(event)
            self._runner.run(self._keep(event))
        self._written = len(journal)
        held_back = bool(journal) and isinstance(journal[-1], ModelStreamed) and not self._flush
        if held_back:
            return Machine(self.machine.config, self.machine.state, self.machine.memory)
        return self._runner.run(self._folded())

    async def _keep(self, event: Event) -> None:
        await self._journal.applied(event, self.machine.state.label)
        if self._flush:
            await self._journal.flush()

    async def _folded(self) -> Machine:
        machine = fold(await self._journal.store.load(SESSION), SESSION).machine
        assert machine is not None
        return machine


@pytest.mark.parametrize("flush", [True, False], ids=["piece by piece", "as it is driven"])
def test_throwing_the_machine_away_and_reading_the_store_changes_nothing(*, flush: bool) -> None:
    """After every step of two runs over one history, the machine is what the store gives back."""
    with asyncio.Runner() as runner:
        for seed in range(150):
            stored = Stored(runner, flush=flush)
            first = Player(Seeded(seed), stored)
            assert stored.opened(first, None, "r") == first.began
            before = first.play().end
            if before.memory.granted:
                continue  # a player takes what a person allowed in an earlier run for nobody's yes
            player = Player(Seeded(seed + 10_000))  # for its settings
            machine = stored.opened(player, before, "r2")
            assert Player(Seeded(seed), stored, machine).play().end.done


def test_a_store_that_forgets_an_event_is_found() -> None:
    """The mode above can fail."""
    with asyncio.Runner() as runner:
        stored = Stored(runner, flush=True)
        player = Player(Seeded(1), lambda began, journal: stored(began, journal[:-1]))
        stored.opened(player, None, "r")
        with pytest.raises(PromiseBroken, match="rebuilt it is"):
            player.play()
