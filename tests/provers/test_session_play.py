"""Sessions that are cancelled, cut off and played with: at every moment, and in every order a seed gives."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from math import inf
from typing import final

import pytest

from provers.audit.journals import Kept
from provers.choices import Seeded
from provers.planned import DONE
from provers.simulation.jobs import World, job, steer
from provers.simulation.player import Player, opened
from provers.simulation.sessions import (
    SESSION,
    SessionBroken,
    play_sessions,
    to_the_end,
)
from provers.simulation.watched import PromiseBroken, copied, happen
from provers.steps import Happening
from provers.tasks import at_work, turns
from turnwheel import Agent, DoneReason, MemoryStore, Result, Session
from turnwheel.effects.config import Concurrency, Config, Steering
from turnwheel.effects.errors import SessionClosed, StoreError
from turnwheel.effects.events import ModelStreamed
from turnwheel.effects.messages import Outcome
from turnwheel.effects.records import SetThinking
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.entries import Posted, RunOpened, TakenOver
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session import session_log
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers import slices

pytestmark = [pytest.mark.prover, pytest.mark.timeout(600)]

ROUNDS = 200
"""More often than that nobody is told to leave."""

each_concurrency = pytest.mark.parametrize("concurrency", list(Concurrency))

FIRST = "the first"
"""The id of the prompt that a session is begun with, however often it is sent."""


async def finished(world: World, agent: Agent) -> Session:
    """The session of *world*, brought to its end by an *agent* that knows only the store, and checked."""
    async with agent.session(SESSION) as session:
        if session.machine is None:
            await session.send(job(1), id=FIRST)
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
        running = asyncio.ensure_future(agent.session(SESSION).run(job(1), id=FIRST))
        over = await turns(moment, running.done)
        running.cancel()
        await asyncio.wait([running])
        session = await finished(world, agent if same else world.agent(concurrency, system="Be quick."))
        doubted.update(maybe_twice(session))
        moment += 1
    assert moment > 80  # a turn of the event loop each: every await of the run is among them
    assert {"pay", "peek", "put"} & set(doubted) == {"pay"}


def talk(session: Session) -> list[tuple[str, str, list[tuple[str, str, str]]]]:
    """What was said in *session*: who, which text, and for each result its tool, outcome and content."""
    return [
        (
            message.role.value,
            message.text,
            [(one.name, one.outcome.value, one.content) for one in message.results],
        )
        for message in session.history
    ]


@pytest.mark.parametrize(
    ("concurrency", "stay", "stride"),
    [
        *[(concurrency, 5_000, 4) for concurrency in Concurrency],
        (Concurrency.SERIAL, 30, 24),
        (Concurrency.PARALLEL, 7, 48),
    ],
    ids=["once, serial", "once, reads side by side", "once, side by side", "often", "all the time"],
)
async def test_a_run_that_is_drained_at_any_moment_is_as_one_that_nobody_left(
    concurrency: Concurrency, stay: int, stride: int
) -> None:
    """However often that is: all that began ended, all else begins once, and nobody can tell."""
    undisturbed = World(Seeded(0))
    whole = await finished(undisturbed, undisturbed.agent(concurrency))
    moment, over = 0, False
    while not over:
        world = World(Seeded(0))
        session = world.agent(concurrency).session(SESSION)
        running = asyncio.ensure_future(session.run(job(1), id=FIRST))
        over = await turns(moment, running.done)
        await session.drain()
        with suppress(SessionClosed):  # its prompt has not come in
            await running
        for _ in range(ROUNDS):
            session = world.agent(concurrency, system="Be quick.").session(SESSION)
            if not (await session.load()).unfinished:
                break
            running = asyncio.ensure_future(session.resume())
            await turns(stay, running.done)
            await session.drain()
            await running
        ended = await finished(world, world.agent(concurrency))
        assert talk(ended) == talk(whole)
        assert ended.spent.usage == whole.spent.usage
        assert set(world.ran.values()) == {1}
        assert world.ran == undisturbed.ran
        moment += stride
    assert moment > 80


def fails_at(failing: int, when: str, number: int) -> str:
    """When append *number* fails, where that is number *failing*."""
    return when if number == failing else ""


async def run_or_fail(session: Session) -> Result | StoreError:
    """What came of a job, or of the store."""
    try:
        return await session.run(job(1), id=FIRST)
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
            await session.run(job(1), id=FIRST)
        assert await to_the_end(session) == []
        assert await world.kept_faults(session) == []
    assert failing > 20


async def meddled_with(world: World, agent: Agent) -> Session:
    """The session of *world* after a job into which others, elsewhere, sent, steered and changed things."""
    other = agent.session(SESSION)
    async with agent.session(SESSION) as session:
        running = asyncio.ensure_future(session.run(job(1), id=FIRST))
        await turns(40)
        for _ in range(2):
            await other.send(job(2), id="the second")
        await turns(20)
        await other.steer(steer(1), Steering.AFTER_TOOL, id="the steer")
        await other.control(SetThinking(tokens=100))
        await running
    await other.close()
    world.accepted = dict.fromkeys((FIRST, "the second", "the steer"), "")
    return session


@each_concurrency
@pytest.mark.parametrize("system", ["", "Be quick."], ids=["same settings", "others"])
async def test_a_journal_that_is_cut_anywhere_is_gone_on_with(concurrency: Concurrency, system: str) -> None:
    """As after a crash: what was written is enough to end the run, with and without the child's journal."""
    whole = World(Seeded(0))
    whole.meddled = True
    session = await meddled_with(whole, whole.agent(concurrency))
    assert await whole.kept_faults(session) == []
    journals = {info.session: await whole.store.kept.load(info.session) for info in await whole.store.list()}
    assert len(journals) == 3
    assert any("[Summary" in message.text for message in session.history)
    length = len(journals[SESSION])
    for cut in range(1, length + 1):
        for share in (0.0, cut / length):
            world = World(Seeded(cut))
            for name, entries in journals.items():
                part = cut if name == SESSION else round(len(entries) * share)
                await world.store.kept.append(name, 0, entries[:part])
            world.trusting = True  # who said yes stands in the journal
            world.meddled = True
            ended = await finished(world, world.agent(concurrency, system=system))
            assert ended.result().reason is DoneReason.END_TURN


async def test_what_is_said_from_elsewhere_is_in_the_run_that_was_under_way() -> None:
    """The journal that is cut above has all that was said, once, and it led to something."""
    world = World(Seeded(0))
    await meddled_with(world, world.agent())
    kept = Kept.of(await world.store.kept.load(SESSION), SESSION)
    assert kept.taken == [FIRST, "the steer", "the second"]
    assert set(kept.applied.values()) == {1}
    assert kept.folded.machine is not None
    assert kept.folded.machine.memory.session.thinking == SetThinking(tokens=100)


# In any order


@pytest.fixture
def timeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing depends on the real time that passes: a seed is one play."""
    monkeypatch.setattr(slices, "SECONDS", inf)
    monkeypatch.setattr(session_log, "PARK_AFTER", 1e6)


@pytest.mark.usefixtures("timeless")
def test_sessions_survive_whatever_is_done_with_them() -> None:
    """Runs, answers, interrupts, leaving in all ways, other processes and failing stores, many seeds."""
    moves: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        for seed in range(250):
            try:
                moves.update(runner.run(play_sessions(seed)))
            except SessionBroken as broken:
                pytest.fail(f"seed {seed}: {broken}")
    told = {"SessionBusy", "SessionClosed", "StoreError"}
    assert {name for name in told if moves[f"resume was told {name}"]} == told
    assert any(move.endswith("was told StoreConflict") for move in moves)
    assert moves["resume was cancelled"]


@pytest.mark.usefixtures("timeless")
def test_the_same_seed_is_the_same_play() -> None:
    """Every move and its result."""
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
        self._journal = SessionLog(Journal(SESSION, MemoryStore()), fresh=True)
        self._written = 0
        self.machine = opened(Player(Seeded(0)).config, ())

    def opened(self, player: Player, run: str) -> Machine:
        """The machine of the run that *player* is about to play, as the store gives it."""
        opening = RunOpened(at=0.0, run=run, config=player.config)
        self._runner.run(self._journal.own(*[Posted(event=event) for event in player.posts], opening))
        self._written = 0
        return self._runner.run(self._folded())

    def __call__(self, began: Machine, journal: list[Happening]) -> Machine:
        """The machine after *journal*; as a player's `Rebuild`."""
        if not journal:
            self.machine = copied(began)
            self.machine.advance()
        for what in journal[self._written :]:
            happen(self.machine, what)
            self._runner.run(self._keep(what))
        self._written = len(journal)
        held_back = bool(journal) and isinstance(journal[-1], ModelStreamed) and not self._flush
        return copied(self.machine) if held_back else self._runner.run(self._folded())

    async def _keep(self, what: Happening) -> None:
        if isinstance(what, Config):
            await self._journal.flush()  # as its process was lost, and left what it held back
            await self._journal.own(TakenOver(at=0.0, config=what))
            return
        machine = self._journal.state.machine
        assert machine is not None
        await self._journal.keep(machine.step(what))
        if self._flush:
            await self._journal.flush()

    async def _folded(self) -> Machine:
        machine = fold(await self._journal.journal.store.load(SESSION), SESSION).machine
        assert machine is not None
        return machine


@pytest.mark.parametrize("flush", [True, False], ids=["piece by piece", "as it is driven"])
def test_throwing_the_machine_away_and_reading_the_store_changes_nothing(*, flush: bool) -> None:
    """After every step of two runs over one history, the machine is what the store gives back."""
    with asyncio.Runner() as runner:
        for seed in range(60):
            stored = Stored(runner, flush=flush)
            first = Player(Seeded(seed), stored, session=SESSION)
            begun = stored.opened(first, "r")
            before = first.play()
            assert begun == after_beginning(before.began)
            second = Player(Seeded(seed + 1_000), stored, before=before.end, run="r2")
            stored.opened(second, "r2")
            assert second.play().end.done


def after_beginning(machine: Machine) -> Machine:
    """*machine*, set going."""
    begun = copied(machine)
    begun.advance()
    return begun


def test_a_store_that_forgets_an_event_is_found() -> None:
    """The mode above can fail."""
    with asyncio.Runner() as runner:
        stored = Stored(runner, flush=True)
        player = Player(Seeded(1), lambda began, journal: stored(began, journal[:-1]), session=SESSION)
        stored.opened(player, "r")
        with pytest.raises(PromiseBroken, match="rebuilt it is"):
            player.play()
