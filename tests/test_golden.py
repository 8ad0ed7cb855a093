"""
Journals of every version: what is in people's stores leads where it led, and goes on from there.

They are made by ``tests/golden/make.py``, which says what they are. Those of the present version are made
again here: where that gives something else, write them with ``make golden`` and look at the difference.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import attrs
import pytest

from turnwheel import MemoryStore, Session
from turnwheel.effects.config import Config, SideEffect
from turnwheel.effects.events import (
    Approve,
    Deny,
    Entered,
    Event,
    HookAnswered,
    InstructionsRead,
    ModelFinished,
    TimerFired,
    ToolFinished,
    ToolProgressed,
)
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.requests import (
    CallModel,
    FireHook,
    ReadInstructions,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Usage
from turnwheel.engine.codec import SETTINGS
from turnwheel.engine.inspect.replay import line
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry
from turnwheel.engine.journal.fold import SessionState, initial_state, fold, read
from turnwheel.engine.journal.migrations import CHANGES
from turnwheel.engine.machine import Machine
from turnwheel.engine.session.archive import export, replay
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.snapshots import Snapshot
from turnwheel.performers.base import PerformContext
from turnwheel.states.batch.batch import Running
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.state import Confirming, Dispatching, Executing
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.harness import restore_from_snapshot

GOLDEN = Path(__file__).resolve().parent / "golden"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs and typing look their names up there
    spec.loader.exec_module(module)
    return module


make: Any = _loaded()

VERSIONS = sorted(int(folder.name[1:]) for folder in GOLDEN.glob("v[0-9]*"))
PRESENT = GOLDEN / f"v{VERSION}"
JOURNALS = sorted(GOLDEN.glob("v*/*.jsonl"))
IDS = [f"{path.parent.name}/{path.stem}" for path in JOURNALS]
EXPECTED = {
    version: json.loads((GOLDEN / f"v{version}/expected.json").read_text("utf-8")) for version in VERSIONS
}

every_journal = pytest.mark.parametrize("path", JOURNALS, ids=IDS)


def lines(path: Path) -> list[bytes]:
    """The entries in *path*."""
    return path.read_bytes().splitlines()


def named(path: Path) -> tuple[str, str]:
    """The scenario and the session of *path*."""
    scenario, _, session = path.stem.partition(".")
    return scenario, session


async def stored(path: Path, cut: int | None = None) -> MemoryStore:
    """A store with the sessions of the scenario of *path*; of its own only the first *cut* entries."""
    store = MemoryStore()
    for each in path.parent.glob(f"{named(path)[0]}.*.jsonl"):
        await store.append(named(each)[1], 0, lines(each)[: cut if each == path else None])
    return store


def expected(path: Path) -> Any:
    """What *path* leads to."""
    return EXPECTED[int(path.parent.name[1:])][path.stem]


# What they lead to


@every_journal
async def test_a_journal_leads_where_it_led(path: Path) -> None:
    """Every label on the way, and at the end state, conversation, account, runs, questions and title."""
    session = await make.reader(await stored(path), named(path)[1]).load()
    leads = await make.expected(session)
    if named(path)[0].startswith("random-"):
        leads = make.shortened(leads)
    assert json.loads(json.dumps(leads)) == expected(path)


@every_journal
async def test_a_journal_is_exported(path: Path) -> None:
    """In the one form that exports have, whatever version wrote it."""
    document = json.loads(await export(await stored(path), named(path)[1]))
    assert (document["format"], document["version"]) == ("turnwheel session", 1)
    assert [run["run"] for run in document["runs"]] == [run[0] for run in expected(path)["runs"]]


@every_journal
async def test_a_journal_is_replayed(path: Path) -> None:
    """Step by step, each with what can be read of it without this library, to where it led."""
    steps = [step async for step in replay(await stored(path), named(path)[1])]
    assert len(steps) == len(lines(path))
    last = steps[-1].state
    assert (last.label if last is not None else "") == expected(path)["label"]
    assert all(json.loads(line(step)) for step in steps)


@every_journal
def test_a_journal_written_again_leads_to_the_same(path: Path) -> None:
    """What was migrated is an entry of today like any: nothing of it is lost when it is written."""
    entries = [decode_entry(line) for line in lines(path)]
    again = [encode_entry(entry) for entry in entries]
    assert [decode_entry(line) for line in again] == entries
    name = named(path)[1]
    assert fold(again, name).machine == fold(lines(path), name).machine


@every_journal
def test_a_journal_can_be_left_for_a_snapshot_at_every_entry(path: Path) -> None:
    """The machine that is restored is the one the rest of the journal happens to."""
    entries, name = lines(path), named(path)[1]
    folded = initial_state(entries)
    for _ in read(entries, name, folded):
        if (machine := folded.machine) is not None:
            folded.machine = restore_from_snapshot(machine)
    assert folded.machine == fold(entries, name).machine


# Going on


class Onward:
    """A process of today, under *config*, that takes over *session* of *store* and agrees to everything."""

    def __init__(self, config: Config, session: str, store: MemoryStore) -> None:
        self.ran: list[str] = []
        self._ids = count(1)
        performers: dict[type, Any] = {
            CallModel: self._answer,
            RunTool: self._work,
            FireHook: self._ask,
            ReadInstructions: self._read,
            SetTimer: self._wait,
        }
        setting = Environment(
            config=config,
            performers=performers,
            clock=AutoClock(10_000.0),
            new_id=lambda: f"new{next(self._ids)}",
            poll=3_600.0,
        )
        self.session = Session(session, setting, store)

    async def _answer(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        return ModelFinished(
            at=scene.clock.now(),
            request=request.id,
            stop=StopReason.END_TURN,
            usage=Usage(input=1, output=1),
            pieces=(TextPiece("So be it."),),
        )

    async def _work(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        self.ran.append(request.call)
        return ToolFinished(at=scene.clock.now(), request=request.id, content="done")

    async def _ask(self, request: FireHook, scene: PerformContext) -> HookAnswered:
        return HookAnswered(at=scene.clock.now(), request=request.id)

    async def _read(self, request: ReadInstructions, scene: PerformContext) -> InstructionsRead:
        return InstructionsRead(at=scene.clock.now(), request=request.id, text="")

    async def _wait(self, request: SetTimer, scene: PerformContext) -> TimerFired:
        await scene.clock.sleep_until(request.due)
        return TimerFired(at=scene.clock.now(), request=request.id)

    async def to_the_end(self) -> Machine:
        """Go on until nothing waits any more; what may have run does not run again."""
        await self.session.load()
        while self.session.unfinished or self.session.queue:
            await self.session.resume()
            for question in self.session.waiting:
                await self.session.approve(question.id, Deny() if question.again else Approve())
        await self.session.close()
        assert self.session.machine is not None
        return self.session.machine


def unsafe_at_work(folded: SessionState) -> set[str]:
    """The calls of unsafe tools that may have run: they are at work, and nobody says that they are not."""
    machine = folded.machine
    state = None if machine is None else machine.state
    if machine is None or not isinstance(state, Executing | Confirming | Dispatching):
        return set()
    return {
        call.call.id
        for call in state.batch.calls
        if isinstance(call.phase, Running)
        and call.phase.request not in folded.unbegun
        and (spec := machine.config.tool(call.call.name)) is not None
        and spec.side_effect is SideEffect.UNSAFE
    }


async def goes_on(path: Path, cut: int) -> None:
    """After the first *cut* entries of *path* the process was lost; one of today takes over."""
    store, name = await stored(path, cut), named(path)[1]
    before = list(await store.load(name))
    folded = fold(before, name)
    left = folded.machine
    assert left is not None
    perhaps = unsafe_at_work(folded)
    onward = Onward(left.config, name, store)
    machine = await onward.to_the_end()

    assert machine.done
    assert history_faults(machine.memory.history) == []
    assert not perhaps & set(onward.ran)
    results = {result.call: result.outcome for one in machine.memory.history for result in one.results}
    assert {results[call] for call in perhaps} <= {Outcome.UNKNOWN}
    after = list(await store.load(name))
    assert after[: len(before)] == before
    assert {json.loads(line).get(MARK) for line in after[len(before) :]} <= {VERSION}
    assert fold(after, name).machine == machine


LEFT = [
    path for path in JOURNALS if not expected(path)["label"].startswith("done") or expected(path)["queue"]
]


@pytest.mark.parametrize("path", LEFT, ids=[f"{path.parent.name}/{path.stem}" for path in LEFT])
async def test_what_was_in_the_middle_of_something_comes_to_its_end(path: Path) -> None:
    """A run that was under way or at rest when an upgrade came; nothing unsafe is run again."""
    if "." not in named(path)[1]:  # a child goes on with its parent
        await goes_on(path, len(lines(path)))


ALONE = [path for path in JOURNALS if len(list(path.parent.glob(f"{named(path)[0]}.*.jsonl"))) == 1]


@pytest.mark.parametrize("path", ALONE, ids=[f"{path.parent.name}/{path.stem}" for path in ALONE])
async def test_whenever_an_upgrade_came_it_goes_on(path: Path) -> None:
    """A process that was lost after one entry or another, and one of today takes over."""
    entries = lines(path)
    opened = next(number for number, line in enumerate(entries) if b'"RunOpened"' in line)
    every = 9 if named(path)[0].startswith("random-") else 4 if path.parent == PRESENT else 2
    for cut in range(opened + 1 + len(entries) % every, len(entries) + 1, every):
        await goes_on(path, cut)


# The present version


@pytest.mark.parametrize("scenario", sorted(make.SCENARIOS))
async def test_what_is_written_is_what_is_committed(scenario: str) -> None:
    """Whatever changes in a journal is seen in a review; ``make golden`` writes it."""
    kept, leads = await make.played(scenario)
    there = {named(path)[1]: path.read_bytes() for path in PRESENT.glob(f"{scenario}.*.jsonl")}
    assert {name: make.in_lines(entries) for name, entries in kept.items()} == there
    told = {f"{scenario}.{name}": leads[name] for name in kept}
    assert json.loads(json.dumps(told)) == {name: EXPECTED[VERSION][name] for name in told}


def test_nothing_else_is_committed() -> None:
    """Each file has its scenario, and each version, from the oldest that is read to this one, its files."""
    stray = [path.name for path in PRESENT.glob("*.jsonl") if named(path)[0] not in make.SCENARIOS]
    assert stray == []
    assert [*CHANGES, VERSION] == VERSIONS


def test_every_word_is_in_a_journal() -> None:
    """Each entry, and each event that is written down."""
    entries = [decode_entry(line) for path in PRESENT.glob("*.jsonl") for line in lines(path)]
    assert {type(entry) for entry in entries} == set(get_args(Entry))
    events = {type(event) for entry in entries if (event := getattr(entry, "event", None)) is not None}
    assert events == set(get_args(Event)) - {Entered, ToolProgressed}


# Fields that come and go


def words(version: int, name: str = "words") -> dict[str, list[str]]:
    """What the entries of *version* were made of, or what else has that *name*."""
    found: dict[str, list[str]] = json.loads((GOLDEN / f"v{version}/{name}.json").read_text("utf-8"))
    return found


def test_a_word_that_changes_is_seen() -> None:
    """
    What entries are made of is what is committed.

    Where a version is out, an older turnwheel cannot read what has a new field in it: raise `VERSION`.
    """
    assert make.words(Entry) == words(VERSION)


def test_a_snapshot_that_changes_is_seen() -> None:
    """What it is made of is what is committed; where a version is out, raise that of snapshots."""
    assert make.words(Snapshot) == words(VERSION, "snapshot")


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_setting_that_is_new_says_what_was_done_before_it(version: int) -> None:
    """A migration gives it the value that an older version went by; a default may change one day."""
    before, after = words(version), words(version + 1)
    told = {settings.__name__ for settings in SETTINGS}
    new = {name for name in told if name in before and set(after[name]) - set(before[name])}
    migrated = {changed.new.__name__ for changed in CHANGES[version]}
    assert new <= migrated


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_field_that_is_new_is_migrated_or_has_a_default(version: int) -> None:
    """What was written before does not have it."""
    before, migrated = words(version), {changed.new for since in CHANGES for changed in CHANGES[since]}
    needed = {
        f"{name}.{field.name}"
        for name, word in make.classes(Entry).items()
        if name in before and attrs.has(word) and word not in migrated
        for field in attrs.fields(word)
        if field.name not in before[name] and field.default is attrs.NOTHING
    }
    assert needed == set()


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_field_that_is_gone_is_migrated(version: int) -> None:
    """Nothing that was written is in the way when it is read."""
    before, after = words(version), words(version + 1)
    changed = {name for name in before if set(before[name]) - set(after.get(name, ()))}
    assert changed <= {changed.new.__name__ for changed in CHANGES[version]}
