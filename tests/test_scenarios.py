"""
Each scenario leads to what was recorded of it, on every host.

The hosts of scenarios: each is put to the same commands, and has to do what the bare machine does.

A host for pure code is compared by its machine and all effects; a session by its machine, by what it asked of
performers, what it cancelled there, and the notices that its stream gave.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count, repeat
from pathlib import Path
from typing import Any, Final, final, get_args

import attrs
import pytest
from hypothesis import given, strategies as st
from support.patience import PATIENCE

from turnwheel.apps.cli import main
from turnwheel.apps.cli.scenario_export import scenario_of
from turnwheel.display.rendering import line_of, state_line
from turnwheel.effects import Effect, is_notice, is_request, requests
from turnwheel.effects.config import Config
from turnwheel.effects.errors import CallerError, ConfigError, TurnwheelError
from turnwheel.effects.events import (
    Answer,
    ApprovalGiven,
    CallCancelled,
    ControlReceived,
    Event,
    InputWithdrawn,
    Interrupted,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import Message
from turnwheel.effects.notices import PASSING, Notice, RunEnded
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.core.machine import Machine, drive, ignored
from turnwheel.engine.core.recovery import recover
from turnwheel.engine.inspect.archive import replay
from turnwheel.engine.inspect.replay import replayed
from turnwheel.engine.journal import stored_checkpoints
from turnwheel.engine.journal.checkpoints import checkpoint, restored
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import (
    VERSION,
    Branched,
    Entry,
    Forked,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
)
from turnwheel.engine.journal.fold import SessionState, fold
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.session import Session
from turnwheel.engine.session.subscription import Position, Subscription
from turnwheel.engine.session.watching import JournalReader
from turnwheel.performers.base import LEAVING, PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.performers.stores.sqlite import SQLiteStore
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.thinking import resumed
from turnwheel.testing.scenarios import Scenario, ScenarioError, read_scenario, rewritten
from turnwheel.testing.scenarios_world import (
    STORY_SESSION,
    Act,
    InputWaits,
    ProcessLost,
    ScenarioWorld,
    as_driven,
    asked_again,
    play_scenario,
)

TURNS = 600
"""Turns of the event loop that a session is given, at least, to get where the bare machine is."""

PAGE = 5
"""Steps that are read at a time where a session is read in pages."""

SOON = 20
"""Turns after which it is given real time, for a store with a thread."""


# Hosts without an event loop


class PureHost:
    """A machine that is advanced; to be derived from by what does something to it after each command."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.machine: Machine | None = None
        self.posted: list[Any] = []
        self.effects: list[Effect] = []
        self.requests: dict[str, requests.Request] = {}

    async def begin(self, opened: RunOpened) -> None:
        self.machine = Machine.open(opened, self.machine, self.posted, session=STORY_SESSION)
        self.posted = []
        self.effects += self.started(self.machine, opened.at)
        self.wrote(opened)

    async def put(self, act: Act) -> None:
        match act, self.machine:
            case InputWaits(event=event), _:
                self.posted.append(event)
                self.wrote(Posted(event=event))
            case ProcessLost(at=at, config=config), Machine() as machine:
                if config is not None:
                    machine.reconfigure(config)
                self.wrote(TakenOver(at=at, config=config))
                recovery = recover(machine, at)
                self.effects.append(resumed(machine.config, machine.memory, at))
                self.effects += (*recovery.again, *asked_again(recovery.again, at))
                for event in recovery.events:
                    self._happens(machine, event)
            case event, Machine() as machine if not isinstance(event, tuple | InputWaits | ProcessLost):
                self._happens(machine, event)
            case _:
                assert isinstance(act, tuple), "the world refuses what happens before the first run"

    def _happens(self, machine: Machine, event: Event) -> None:
        event = as_driven(event, self.requests)
        effects = self.advanced(machine, event)
        self.effects += effects
        if not ignored(effects):
            self.wrote(Stepped(event=event, label=machine.state.label))

    async def faults(self, world: ScenarioWorld) -> list[str]:
        found = differences(self.machine, self.effects, world.machine, world.effects)
        self.requests |= {effect.id: effect for effect in self.effects if is_request(effect)}
        self.effects = []
        if self.machine is not None:
            self.machine = self.after(self.machine)
        return found

    async def close(self) -> None:
        """Nothing is held."""

    # What others do otherwise

    def started(self, machine: Machine, at: float) -> tuple[Effect, ...]:
        return machine.advance(at=at)

    def advanced(self, machine: Machine, event: Event) -> tuple[Effect, ...]:
        return machine.advance(event)

    def wrote(self, entry: Entry) -> None:
        """Keep *entry*, where there is a journal."""

    def after(self, machine: Machine) -> Machine:
        return machine


@final
class GeneratorHost(PureHost):
    """The machine as a generator that is sent what happened: `drive`."""

    _going: Generator[tuple[Effect, ...], Event, object] | None = None

    def started(self, machine: Machine, at: float) -> tuple[Effect, ...]:
        self._going = drive(machine, at)
        return next(self._going)

    def advanced(self, machine: Machine, event: Event) -> tuple[Effect, ...]:
        if machine.done or self._going is None:
            return machine.advance(event)
        return self._going.send(event)


@final
class SnapshotHost(PureHost):
    """The machine is thrown away after each command, and restored from a snapshot and the encoded history."""

    def after(self, machine: Machine) -> Machine:
        history = machine.memory.history
        messages = decode(encode(list(history), list[Message]), list[Message])
        again = History.of(*messages, revision=history.revision)
        return Machine.restore(machine.snapshot(), machine.config, again)


@final
class JournalHost(PureHost):
    """
    The machine is thrown away after each command, and rebuilt from the bytes of its journal.

    They are read from the checkpoint of the command before, and beside it without any: the state is the same.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._entries: list[bytes] = []
        self._known = 0
        self._whole = SessionState()
        self._bodies: list[bytes] = []

    def wrote(self, entry: Entry) -> None:
        self._entries.append(encode_entry(entry))

    def after(self, machine: Machine) -> Machine:
        if not self._entries:
            return machine
        new, known, end = self._entries[self._known :], self._known, len(self._entries)
        self._whole = fold(new, STORY_SESSION, self._whole, known)
        before = restored(self._bodies)
        state, chain = (SessionState(), None) if before is None else (before.state, before.chain)
        state = fold(new, STORY_SESSION, state, known)
        assert state == self._whole
        body, chain = checkpoint(state, end, self._entries[-1], chain)
        self._bodies = [*(self._bodies if chain.first < end else []), body]
        self._known = end
        return machine if state.machine is None else state.machine


def differences(
    machine: Machine | None, seen: list[Effect], expected: Machine | None, effects: list[Effect]
) -> list[str]:
    """What *machine* and the effects that were *seen* have otherwise than what was *expected*."""
    found: list[str] = []
    if seen != effects:
        found.append(f"effects: {lines_of(seen)}; not {lines_of(effects)}")
    if machine != expected:
        found.append(f"state: {shown_state(machine)}; not {shown_state(expected)}")
        if machine is not None and expected is not None:
            for field in attrs.fields(type(machine.memory)):
                mine, theirs = getattr(machine.memory, field.name), getattr(expected.memory, field.name)
                if mine != theirs:
                    found.append(f"memory.{field.name}: {mine!r}; not {theirs!r}")
    return found


def shown_state(machine: Machine | None) -> str:
    return "none" if machine is None else state_line(machine.state)


def lines_of(effects: Iterable[Effect]) -> str:
    return " | ".join(map(line_of, effects))


# Sessions


@final
class WorldClock:
    """The time of a story: it moves with its commands."""

    def __init__(self) -> None:
        self._now = 0.0
        self._moved = asyncio.Event()

    def now(self) -> float:
        return self._now

    def move_to(self, now: float) -> None:
        self._now = now
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep_until(self, due: float) -> None:
        while self._now < due:
            await self._moved.wait()


@final
class Gate:
    """Performs every request by waiting until the story answers it. What it was asked is kept in order."""

    def __init__(self) -> None:
        self.begun: list[requests.Request] = []
        self.cancelled: list[str] = []
        self.open: dict[str, asyncio.Future[Answer]] = {}
        self.emit: Callable[[Event], None] | None = None

    async def __call__(self, request: requests.Request, scene: PerformContext) -> Answer | None:
        """The answer of the story; what is cancelled still gives one, where the machine waits for it."""
        self.begun.append(request)
        self.emit = scene.emit
        if isinstance(request, requests.AskApproval):
            return None  # it is answered through the session
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.open[request.id] = answer
        while True:
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError as cancelled:
                if LEAVING in cancelled.args:
                    raise
                self.cancelled.append(request.id)
                if isinstance(request, requests.FireHook | requests.SetTimer | requests.ReadInstructions):
                    raise
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()


PERFORMED: Final[tuple[type[requests.Request], ...]] = get_args(requests.Request)


@final
@attrs.frozen
class Due:
    """What a command leads to: the machine, and what it tells, asks for and cancels."""

    machine: Machine | None
    notices: list[Effect]
    asked: list[Effect]
    cancels: set[str]

    @classmethod
    def of(cls, world: ScenarioWorld) -> Due:
        return cls(
            world.machine,
            [effect for effect in world.effects if is_notice(effect)],
            [effect for effect in world.effects if is_request(effect)],
            {effect.request for effect in world.effects if isinstance(effect, requests.Cancel)},
        )


@final
class SessionHost:
    """
    A session over *store*, driven by the asyncio driver.

    Where it *resumes*, its process is lost whenever that changes nothing: it is abandoned after each command
    at which nothing but questions, timers, hooks, children and reads is open, and another object goes on over
    the same store.
    """

    def __init__(self, config: Config, store: Store, *, resumes: bool = False) -> None:
        self._config = config
        self._store = store
        self._resumes = resumes
        self._clock = WorldClock()
        self._gate = Gate()
        self._names: list[str] = []
        self._notices: list[Notice] = []
        self._left: list[tuple[Session, asyncio.Task[None] | None]] = []
        self._watchers: list[Subscription] = []
        self._task: asyncio.Task[None] | None = None
        self._stray: list[Effect] = []
        self._runs = 0
        self._tools: set[str] = set()
        self._session = self._made()

    def _made(self) -> Session:
        performers: dict[type, Any] = dict.fromkeys(PERFORMED, self._gate)
        self._tools |= {spec.name for spec in self._config.tools}
        setting = Environment(
            config=self._config,
            performers=performers,
            clock=self._clock,
            new_id=self._new_id,
            poll=3_600.0,
            watch=Delivery(buffer=100_000),
            retired=tuple(self._tools),
        )
        session = Session(STORY_SESSION, setting, self._store)
        self._watchers.append(session.subscribe())
        return session

    def _new_id(self) -> str:
        if self._names:
            return self._names.pop()
        self._runs += 1
        return "run" if self._runs == 1 else f"run{self._runs}"

    # What is done to it

    async def begin(self, opened: RunOpened) -> None:
        if opened.config != self._config:
            self._config = opened.config
            self._leave()
        self._clock.move_to(opened.at)
        if self._task is None or self._task.done():
            self._go()

    def _go(self) -> None:
        self._task = asyncio.ensure_future(self._listen(self._session, self._notices))

    @staticmethod
    async def _listen(session: Session, notices: list[Notice]) -> None:
        # Taken over: the process that had it is lost, but for this process its lease is alive.
        async for notice in session.stream(wait=True, takeover=True):
            notices.append(notice)  # noqa: PERF401  # seen as they come, not once all are there

    async def put(self, act: Act) -> None:
        match act:
            case InputWaits(event=UserSent() as event):
                self._clock.move_to(event.at)
                await self._session.send(event.text, id=event.id, sender=event.sender)
            case InputWaits(event=ControlReceived() as event):
                self._clock.move_to(event.at)
                self._names.append(event.id)
                await self._session.control(event.change)
            case InputWaits(event=InputWithdrawn() as event):
                self._clock.move_to(event.at)
                await self._session.withdraw(event.input)
            case InputWaits():
                raise AssertionError(act)
            case ProcessLost(at=at, config=config):
                self._clock.move_to(at)
                self._config = config or self._config
                self._leave()
                await self._session.load()
                if self._session.unfinished:
                    self._go()
            case tuple():
                pass
            case _:
                self._clock.move_to(act.at)
                await self._happens(act)

    def _leave(self) -> None:
        """The process is lost: nothing that it holds is let go of, and another one begins."""
        self._left.append((self._session, self._task))
        self._task, self._gate = None, Gate()
        self._notices = []
        self._session = self._made()

    async def _happens(self, event: Event) -> None:
        machine = self._session.machine
        if machine is not None and (machine.done or machine.memory.has(event)):
            self._astray(event, machine)
            return
        try:
            if not await self._said(event):
                self._answered(event)
        except CallerError:
            # A session refuses what does not apply; a late answer comes in all the same.
            self._astray(event, machine)

    async def _said(self, event: Event) -> bool:
        match event:
            case UserSent():
                await self._session.send(event.text, id=event.id, sender=event.sender)
            case UserSteered():
                await self._session.steer(event.text, event.how, id=event.id)
            case InputWithdrawn():
                await self._session.withdraw(event.input)
            case Interrupted(aborted=aborted):
                await self._session.interrupt(abort=aborted)
            case ControlReceived():
                self._names.append(event.id)
                await self._session.control(event.change)
            case CallCancelled():
                await self._session.cancel(event.call)
            case ApprovalGiven():
                await self._session.approve(event.request, event.decision, by=event.by)
            case _:
                return False
        return True

    def _answered(self, event: Event) -> None:
        machine, request = self._session.machine, getattr(event, "request", "")
        answer = self._gate.open.get(request)
        if isinstance(event, Answer) and answer and machine is not None and request in machine.state.open:
            answer.set_result(event)
        elif self._gate.emit is not None:
            self._gate.emit(event)

    def _astray(self, event: Event, machine: Machine | None) -> None:
        """What arrives where the session has no way in for it: at the driver, or where none is, nowhere."""
        if machine is not None and machine.done:
            self._stray += Machine(machine.config, machine.state, machine.memory).advance(event)
        elif self._gate.emit is not None:
            self._gate.emit(event)

    # What came of it

    def _pauses(self) -> Iterator[float]:
        """Seconds to wait before each further look, as long as a session is given to get there."""
        yield from repeat(0.0, SOON)
        limit = time.monotonic() + (0.0 if isinstance(self._store, MemoryStore) else PATIENCE)
        for turn in count(SOON):
            if turn >= TURNS and time.monotonic() >= limit:
                return
            yield 0.001

    async def faults(self, world: ScenarioWorld) -> list[str]:
        self._clock.move_to(world.now)
        due = Due.of(world)
        for pause in self._pauses():
            if self._seems_there(due) and not self._differences(due) and self._at_rest:
                break
            await asyncio.sleep(pause)
            if self._task is not None and self._task.done() and self._task.exception() is not None:
                return [f"the session failed: {self._task.exception()!r}"]
        found = self._differences(due)
        self._notices.clear()
        self._stray.clear()
        self._gate.begun.clear()
        self._gate.cancelled.clear()
        if self._resumes and not found:
            found = await self._resumed()
        return found

    @property
    def _at_rest(self) -> bool:
        machine, task = self._session.machine, self._task
        ends = machine is not None and machine.done and not self._session.queue
        return not ends or task is None or task.done()

    def _seems_there(self, due: Due) -> bool:
        """Whether a look at the differences is worth its while: there is as much as is *due*."""
        seen = len(self._notices) + len(self._stray)
        return (seen, len(self._gate.begun)) == (len(due.notices), len(due.asked))

    def _differences(self, due: Due) -> list[str]:
        gate, cancels = self._gate, due.cancels & self._gate.open.keys()
        found = differences(self._session.machine, [*self._notices, *self._stray], due.machine, due.notices)
        if gate.begun != due.asked:
            found.append(f"asked: {lines_of(gate.begun)}; not {lines_of(due.asked)}")
        if set(gate.cancelled) != cancels:
            found.append(f"cancelled: {gate.cancelled}; not {sorted(cancels)}")
        return found

    async def _resumed(self) -> list[str]:
        """Lose the process where what is open is open again; what is told again of that is left out."""
        machine = self._session.machine
        if machine is None or machine.done:
            return []
        recovery = recover(machine, self._clock.now())
        again = [one for one in recovery.again if not isinstance(one, requests.Cancel)]
        if (
            recovery.events
            or len(again) < len(recovery.again)
            or any(getattr(one, "again", False) for one in again)
        ):
            return []
        self._leave()
        self._go()
        for pause in self._pauses():
            if self._gate.begun == again and self._session.machine == machine:
                asked = [one for one in again if isinstance(one, requests.AskApproval)]
                # Told again, behind the notice that the run goes on.
                if len(self._notices) == 1 + len(asked):
                    self._notices.clear()
                    self._gate.begun.clear()
                    return []
            await asyncio.sleep(pause)
        return [f"not resumed: {lines_of(self._gate.begun)}; not {lines_of(again)}"]

    async def watched(self) -> list[str]:
        """What the processes told one after another, where it is not what the journal tells of it all."""
        if not isinstance(self._store, MemoryStore):  # a journal reads alike from each kind of store
            return []
        shown: list[tuple[Position | None, Notice]] = []
        for watcher in self._watchers:
            watcher.end()
            while (notice := await watcher.next()) is not None:
                if watcher.at is not None and not isinstance(notice, PASSING):
                    shown.append((watcher.at, notice))
        kept = [each async for each in JournalReader(Journal(STORY_SESSION, self._store), 0).news()]
        return [] if shown == kept else [f"told: {shown}; not {kept}"]

    async def close(self) -> None:
        for session, task in [*self._left, (self._session, self._task)]:
            with suppress(TurnwheelError):
                await session.close()
            if task is not None:
                with suppress(TurnwheelError, asyncio.CancelledError):
                    await task
        if self._resumes:
            await self._read_in_pages()
        await self._store.close()

    async def _read_in_pages(self) -> None:
        """Each page begins at a checkpoint, and has the steps that are there where all is read."""
        for listed in await self._store.list():
            whole = [step async for step in replay(self._store, listed.session)]
            for since in range(0, len(whole), PAGE):
                page = [step async for step in replay(self._store, listed.session, since, PAGE)]
                assert page == whole[since : since + PAGE]


PURE: Final[Sequence[type[PureHost]]] = (PureHost, GeneratorHost, SnapshotHost, JournalHost)
"""The hosts that need no event loop. They are put to each story side by side."""

SESSIONS: Final = ("memory", "sqlite", "resumed")
"""The names of those that do."""

Recorded = tuple[tuple[str, ...], ...]


def unanswered(world: ScenarioWorld) -> list[str]:
    """The calls without a result right behind them that a model is shown now: no provider takes any."""
    memory = None if world.machine is None else world.machine.memory
    asked = [effect.view.length for effect in world.effects if isinstance(effect, requests.CallModel)]
    shown = [] if memory is None else [memory.history.slice(0, length) for length in asked]
    return [fault for messages in shown for fault in history_faults(messages)]


async def played(scenario: Scenario, *hosts: PureHost | SessionHost) -> Recorded:
    """What each block of *scenario* leads to, where all *hosts* do what the bare machine does."""
    world = ScenarioWorld(scenario.config)
    recorded: list[tuple[str, ...]] = []
    try:
        for block in scenario.blocks:
            lines: list[str] = []
            for command in block:
                lines += world.perform(command, scenario.name)
                found = unanswered(world)
                for host in hosts:
                    for act in world.acts:
                        await (host.begin(act) if isinstance(act, RunOpened) else host.put(act))
                    found += [f"{type(host).__name__}: {fault}" for fault in await host.faults(world)]
                assert not found, f"{scenario.name}:{command.line}: {command.text}: " + "; ".join(found)
            recorded.append(tuple(lines))
        for host in hosts:
            assert not isinstance(host, SessionHost) or not await host.watched(), scenario.name
    finally:
        for host in hosts:
            await host.close()
    return tuple(recorded)


HERE = Path(__file__).resolve().parent / "scenarios"
FILES = sorted(HERE.rglob("*.txt"))


of_each = pytest.mark.parametrize(
    "path", FILES, ids=lambda path: path.relative_to(HERE).with_suffix("").as_posix()
)


@of_each
def test_a_scenario_leads_to_what_was_recorded(path: Path) -> None:
    scenario = read(path)
    hosts = [host(scenario.config) for host in PURE]
    assert at_once(played(scenario, *hosts)) == scenario.recorded, "make scenarios records it anew"


@pytest.mark.parametrize("host", SESSIONS)
@of_each
def test_a_session_leads_to_what_was_recorded(
    path: Path, host: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = read(path)
    if host == "resumed":
        # Each object begins where the one before has left a checkpoint, and not at the first entry.
        monkeypatch.setattr(stored_checkpoints, "EVERY", 1)
    folder: Path | None = request.getfixturevalue("tmp_path") if host == "sqlite" else None
    assert asyncio.run(in_a_session(scenario, folder, resumes=host == "resumed")) == scenario.recorded


@cache
def read(path: Path) -> Scenario:
    return read_scenario(path.read_text("utf-8"), str(path.relative_to(HERE)))


async def in_a_session(scenario: Scenario, folder: Path | None, *, resumes: bool) -> Recorded:
    store = MemoryStore() if folder is None else SQLiteStore(folder / "story.db", "process")
    if resumes:
        # What is open while its process is lost all the time is not to be given up.
        policy = attrs.evolve(scenario.config.policy, takeovers=1_000)
        scenario = attrs.evolve(scenario, config=attrs.evolve(scenario.config, policy=policy))
    return await played(scenario, SessionHost(scenario.config, store, resumes=resumes))


def at_once(going: Coroutine[None, None, Recorded]) -> Recorded:
    """What *going*, which waits for nothing, comes to: no event loop is needed for it."""
    try:
        going.send(None)
    except StopIteration as ended:
        recorded: Recorded = ended.value
        return recorded
    msg = "a pure host waits for something"
    raise AssertionError(msg)


# What is wrong with a scenario is told with its line and column


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agent tools=look\n", "1:1: settings: 'look' has to stand in brackets"),
        ("agent tools=(look\n", "1:18: the bracket is not closed"),
        ("agent tols=(look)\n", "1:1: settings: "),
        ("agent tools=(look quickly)\n", "1:1: settings: a tool is read_only, idempotent, unsafe,"),
        ('\nprompt "Hello\n', "2:8: this is no JSON"),
        ('prompt "Hello" id=,\n', "1:20: an option needs a value"),
        ("prompt )\n", "1:9: ) is not expected here"),
        ("prompt }\n", "1:7: no word begins with '}'"),
        ("----\nstreaming\n", "1:1: no command stands before the divider"),
        ('hello "you"\n', "1:1: 'hello \"you\"' is not understood; commands are prompt, send"),
        ("tool look returns 5\n", "1:1: no run is under way; begin with a prompt"),
        ('prompt "Go" loud=true\n', "1:1: prompt takes no loud"),
        ('prompt "Go"\n\nmodel sings\n', "3:1: 'model sings' is not understood"),
        ('prompt "Go"\n\ntool look returns "x"\n', "3:1: no RunTool look is open; open are: CallModel run-1"),
        ('prompt "Go"\n\nmodel fails badly\n', "3:1: 'badly' is not a valid Failure"),
        ('prompt "Go"\n\ncancel look\n', "3:1: no call of 'look' is there"),
        (
            'agent hooks=(guard user_prompt_submit)\n\nprompt "Go"\n\nhook gard passes\n',
            "5:1: no hook gard is asked; there are: guard",
        ),
        ('agent hooks=(guard user_prompt_submit)\n\nprompt "Go"\n\nhook\n', "5:1: 'hook' is not understood"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_column(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        play_scenario(read_scenario(text, "story"))
    assert str(caught.value).startswith(f"story:{says}")


WORDS = "agent prompt model tool hook says calls look approve tools= at= used="  # what a line is made of
MARKS = ['"go"', '"', "(", ")", ",", "{}", "{", "1/", "#2", "*3", "----", "\n", "\n\n", " "]
PARTS = [*WORDS.split(), *MARKS, "repeat 2", "loops=never"]


@given(st.lists(st.sampled_from(PARTS), max_size=12).map(" ".join) | st.text(max_size=60))
def test_whatever_stands_in_a_story_is_played_or_is_a_mistake_with_its_place(text: str) -> None:
    with suppress(ScenarioError):
        play_scenario(read_scenario(text))


def test_what_was_recorded_is_replaced_and_all_else_stays() -> None:
    text = '# A story.\nagent loops=never\n\n# A remark.\nprompt "Hi"\n\nmodel ends\n----\nold\n'
    once = rewritten(text, play_scenario(read_scenario(text)))
    assert once.replace("old", "").startswith(
        '# A story.\nagent loops=never\n\n# A remark.\nprompt "Hi"\n----\nthinking'
    )
    assert read_scenario(once).recorded == tuple(map(tuple, play_scenario(read_scenario(once))))


# A session becomes a scenario

GOLDEN = sorted((Path(__file__).resolve().parent / "golden" / f"v{VERSION}").glob("*.jsonl"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_an_exported_session_replays_equal(path: Path) -> None:
    entries = path.read_bytes().splitlines()
    kept = [decode_entry(entry) for entry in entries]
    if any(isinstance(entry, Branched | Forked | HandedOver) for entry in kept):
        with pytest.raises(ConfigError, match="went back, was handed over or is a fork"):
            scenario_of(entries, "s")
        return
    scenario = read_scenario(scenario_of(entries, "s"))
    assert tuple(map(tuple, play_scenario(scenario))) == scenario.recorded
    ways = [line for lines in scenario.recorded for line in lines if line[:1] != " "]
    led = [entry.label for entry in kept if isinstance(entry, Stepped)]
    assert [label for way in ways for label in [way.split(" > ")[-1]] if label in led][-1:] == led[-1:]
    ended = [
        line.split(" ")[4].rstrip(":")
        for lines in scenario.recorded
        for line in lines
        if line.startswith("  RunEnded")
    ]
    assert ended == [
        each.reason for step in replayed(entries, "s") for each in step.effects if isinstance(each, RunEnded)
    ]


async def test_the_command_line_exports_a_scenario(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = (GOLDEN[0].parent / "tools.s.jsonl").read_bytes().splitlines()
    store = SQLiteStore(tmp_path / "sessions.db")
    await store.append("s", 0, entries)
    await store.close()

    def export(session: str) -> tuple[int, str]:
        code = main(["export", "--store", str(tmp_path / "sessions.db"), "--scenario", session])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    assert await asyncio.to_thread(export, "s") == (0, scenario_of(entries, "s"))
    code, said = await asyncio.to_thread(export, "t")
    assert code
    assert "no session 't'" in said
