"""
Journals lead where they led, and go on from there.

They are made by ``tests/golden/make.py``, which says what they are. They are made again here: where that
gives something else, write them with ``make golden`` and look at the difference.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import attrs
import pytest
from provers.steps import restore_from_snapshot

from turnwheel import Approve, Deny, MemoryStore, Session
from turnwheel.effects.config import SideEffect
from turnwheel.effects.events import Entered, Event, ToolProgressed
from turnwheel.effects.messages import Outcome
from turnwheel.engine.core.snapshots import Snapshot
from turnwheel.engine.inspect.archive import export, replay
from turnwheel.engine.inspect.replay import line
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry
from turnwheel.engine.journal.fold import SessionState, fold, initial_state, read
from turnwheel.states.batch.batch import Running
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.scripted import says

GOLDEN = Path(__file__).resolve().parents[2] / "golden"


def _loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # attrs and typing look their names up there
    spec.loader.exec_module(module)
    return module


make: Any = _loaded()

PRESENT = GOLDEN / f"v{VERSION}"
JOURNALS = sorted(PRESENT.glob("*.jsonl"))
EXPECTED = json.loads((PRESENT / "expected.json").read_text("utf-8"))


def of_each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[path.stem for path in paths])


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def named(path: Path) -> tuple[str, str]:
    scenario, _, session = path.stem.partition(".")
    return scenario, session


async def stored(path: Path, cut: int | None = None) -> MemoryStore:
    """A store with the sessions of the scenario of *path*; of its own only the first *cut* entries."""
    store = MemoryStore()
    for each in path.parent.glob(f"{named(path)[0]}.*.jsonl"):
        await store.append(named(each)[1], 0, lines(each)[: cut if each == path else None])
    return store


def expected(path: Path) -> Any:
    return EXPECTED[path.stem]


@of_each(JOURNALS)
async def test_a_journal_leads_where_it_led(path: Path) -> None:
    """Every label on the way, and at the end state, conversation, account, runs, questions and title."""
    session = await make.reader(await stored(path), named(path)[1]).load()
    leads = await make.expected(session)
    assert json.loads(json.dumps(leads)) == expected(path)


@of_each(JOURNALS)
async def test_a_journal_is_exported_and_replayed(path: Path) -> None:
    store, name = await stored(path), named(path)[1]
    document = json.loads(await export(store, name))
    assert (document["format"], document["version"]) == ("turnwheel session", 1)
    assert [run["run"] for run in document["runs"]] == [run[0] for run in expected(path)["runs"]]
    steps = [step async for step in replay(store, name)]
    assert len(steps) == len(lines(path))
    last = steps[-1].state
    assert (last.label if last is not None else "") == expected(path)["label"]
    assert all(json.loads(line(step)) for step in steps)


@of_each(JOURNALS)
def test_a_journal_can_be_written_again_or_left_for_a_snapshot_at_every_entry(path: Path) -> None:
    """The later entries lead the restored machine to the same end."""
    entries, name = [decode_entry(each) for each in lines(path)], named(path)[1]
    again = [encode_entry(entry) for entry in entries]
    assert [decode_entry(each) for each in again] == entries
    end = fold(lines(path), name).machine
    assert fold(again, name).machine == end
    folded = initial_state(lines(path))
    for _ in read(lines(path), name, folded):
        if (machine := folded.machine) is not None:
            folded.machine = restore_from_snapshot(machine)
    assert folded.machine == end


# Going on


def unsafe_at_work(folded: SessionState) -> set[str]:
    """The calls of unsafe tools that may have run: they are at work, and were not said to be unbegun."""
    machine = folded.machine
    batch = getattr(machine and machine.state, "batch", None)
    if machine is None or batch is None:
        return set()
    unsafe = {spec.name for spec in machine.config.tools if spec.side_effect is SideEffect.UNSAFE}
    return {
        call.call.id
        for call in batch.calls
        if isinstance(call.phase, Running)
        and call.phase.request not in folded.unbegun
        and call.call.name in unsafe
    }


async def goes_on(path: Path, cut: int) -> None:
    """After the first *cut* entries of *path* the process was lost; one of today takes over."""
    store, name = await stored(path, cut), named(path)[1]
    before = list(await store.load(name))
    folded = fold(before, name)
    assert folded.machine is not None
    config, perhaps = folded.machine.config, unsafe_at_work(folded)
    settings = {field.name: getattr(config, field.name) for field in attrs.fields(type(config)) if field.init}
    world = make.World(store, now=10_000.0, first=1_000)
    world.release()
    said = [says("So be it.")] * 40
    kids = {child.name: said for child in config.children}
    session: Session = await world.process(*said, session=name, lines=kids, **settings).load()
    while session.unfinished or session.queue:
        await session.resume()
        for question in session.waiting:
            await session.approve(question.id, Deny() if question.again else Approve())
    await session.close()

    machine = session.machine
    assert machine is not None
    assert machine.done
    assert history_faults(machine.memory.history) == []
    assert not perhaps & {ran.split()[1] for ran in world.ran}
    results = {result.call: result.outcome for one in machine.memory.history for result in one.results}
    assert {results[call] for call in perhaps} <= {Outcome.UNKNOWN}
    after = list(await store.load(name))
    assert after[: len(before)] == before
    assert {json.loads(each).get(MARK) for each in after[len(before) :]} <= {VERSION}
    assert fold(after, name).machine == machine


LEFT = [
    path
    for path in JOURNALS
    if "." not in named(path)[1]  # a child goes on with its parent
    and (not expected(path)["label"].startswith("done") or expected(path)["queue"])
]


@of_each(LEFT)
async def test_a_run_that_was_under_way_comes_to_its_end(path: Path) -> None:
    await goes_on(path, len(lines(path)))


@of_each([path for path in JOURNALS if len(list(path.parent.glob(f"{named(path)[0]}.*.jsonl"))) == 1])
async def test_a_run_goes_on_wherever_its_process_was_lost(path: Path) -> None:
    entries = lines(path)
    opened = next(number for number, each in enumerate(entries) if b'"RunOpened"' in each)
    for cut in range(opened + 1, len(entries) + 1, 2):
        await goes_on(path, cut)


# The present version


@pytest.mark.parametrize("scenario", sorted(make.SCENARIOS))
async def test_a_scenario_writes_the_journals_that_are_committed(scenario: str) -> None:
    kept, leads = await make.played(scenario)
    there = {named(path)[1]: path.read_bytes() for path in PRESENT.glob(f"{scenario}.*.jsonl")}
    assert {name: make.in_lines(entries) for name, entries in kept.items()} == there
    told = {f"{scenario}.{name}": leads[name] for name in kept}
    assert json.loads(json.dumps(told)) == {name: EXPECTED[name] for name in told}


def test_nothing_else_is_committed() -> None:
    stray = [path.name for path in PRESENT.glob("*.jsonl") if named(path)[0] not in make.SCENARIOS]
    assert stray == []


def test_every_word_is_in_a_journal() -> None:
    entries = [decode_entry(each) for path in PRESENT.glob("*.jsonl") for each in lines(path)]
    assert {type(entry) for entry in entries} == set(get_args(Entry))
    events = {type(event) for entry in entries if (event := getattr(entry, "event", None)) is not None}
    assert events == set(get_args(Event)) - {Entered, ToolProgressed}


@pytest.mark.parametrize(("name", "root"), [("words", Entry), ("snapshot", Snapshot)])
def test_the_fields_of_entries_and_snapshots_are_those_committed(name: str, root: Any) -> None:
    """An older turnwheel cannot read a new field: once the version is released, raise it."""
    assert make.words(root) == json.loads((PRESENT / f"{name}.json").read_text("utf-8"))
