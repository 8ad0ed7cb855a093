"""
Journals of every version: those in people's stores lead where they led, and go on from there.

They are made by ``tests/golden/make.py``, which says what they are. Those of the present version are made
again here: where that gives something else, write them with ``make golden`` and look at the difference.
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

from turnwheel import Agent, Approve, Deny, MemoryStore, Session
from turnwheel.effects.config import Limits, ModelSpec, Retries, SideEffect
from turnwheel.effects.events import Entered, Event, Failure, ToolProgressed
from turnwheel.effects.history import ReasoningPiece
from turnwheel.effects.messages import Outcome
from turnwheel.effects.notices import DoneReason, RunEnded
from turnwheel.effects.requests import CallModel
from turnwheel.engine.codec import SETTINGS
from turnwheel.engine.inspect.replay import line
from turnwheel.engine.journal.encoding import MARK, decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry, RunOpened, Stepped
from turnwheel.engine.journal.fold import SessionState, fold, initial_state, read
from turnwheel.engine.journal.migrations import CHANGES
from turnwheel.engine.session.archive import export, replay
from turnwheel.engine.snapshots import Snapshot
from turnwheel.states.batch.batch import Running
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.state import Done
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says

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

VERSIONS = sorted(int(folder.name[1:]) for folder in GOLDEN.glob("v[0-9]*"))
PRESENT = GOLDEN / f"v{VERSION}"
JOURNALS = sorted(GOLDEN.glob("v*/*.jsonl"))
EXPECTED = {
    version: json.loads((GOLDEN / f"v{version}/expected.json").read_text("utf-8")) for version in VERSIONS
}


def of_each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=[f"{path.parent.name}/{path.stem}" for path in paths])


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
    return EXPECTED[int(path.parent.name[1:])][path.stem]


@of_each(JOURNALS)
async def test_a_journal_leads_where_it_led(path: Path) -> None:
    """Every label on the way, and at the end state, conversation, account, runs, questions and title."""
    session = await make.reader(await stored(path), named(path)[1]).load()
    leads = await make.expected(session)
    if named(path)[0].startswith("random-"):
        leads = make.shortened(leads)
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
    """A migrated entry is one of today, and the restored machine is the one the rest happens to."""
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


async def test_a_run_that_was_given_up_after_thinking_stays_given_up() -> None:
    """Older turnwheels did not ask again then, which their journals say by the label of the step only."""
    store = MemoryStore()
    model = ScriptedModel(Reply(pieces=(ReasoningPiece("hm"),), failure=Failure.CUT))
    agent = Agent(model="m", performers={CallModel: model}, retries=Retries(failed=0), store=store)
    async with agent, agent.session("s") as session:
        assert [notice async for notice in session.stream("Hello")]
    written = [decode_entry(entry) for entry in await store.load("s")]
    config = attrs.evolve(agent.config, retries=Retries(), fallback="m2", models=(ModelSpec(name="m2"),))
    older = [attrs.evolve(one, config=config) if isinstance(one, RunOpened) else one for one in written]
    machine = fold([encode_entry(entry) for entry in older], "s").machine
    assert machine is not None
    assert machine.done


@pytest.mark.parametrize("tokens", [12, 30, 45])
async def test_what_was_asked_beyond_a_budget_was_asked(tokens: int) -> None:
    """Older turnwheels asked as long as anything was left, for the first answer too, which no label tells."""
    store = MemoryStore()
    agent = Agent(
        model="m", performers={CallModel: ScriptedModel(calls(("fly", {})), says("No."))}, store=store
    )
    async with agent, agent.session("s") as session:
        assert (await session.run("Fly")).text == "No."
        there = session.history
    written = [decode_entry(entry) for entry in await store.load("s")]
    config = attrs.evolve(agent.config, limits=Limits(tokens=tokens))
    older = [attrs.evolve(one, config=config) if isinstance(one, RunOpened) else one for one in written]
    machine = fold([encode_entry(entry) for entry in older], "s").machine
    assert machine is not None
    assert tuple(machine.memory.history) == tuple(there)


@pytest.mark.parametrize("newer", [True, False])
def test_what_older_turnwheels_did_is_not_done_otherwise(*, newer: bool) -> None:
    """What they summarised was no repetition, and a refusal an end as any other: which no label tells."""
    for name, differs in (("compaction", "summarised"), ("streaming", "refused")):
        written = [decode_entry(entry) for entry in lines(PRESENT / f"{name}.s.jsonl")]
        assert any(isinstance(one, Stepped) and one.newer for one in written)
        entries = [
            attrs.evolve(one, newer=one.newer and newer) if isinstance(one, Stepped) else one
            for one in written
        ]
        state, seen = SessionState(), set[str]()
        for _, effects in read([encode_entry(one) for one in entries], "s", state):
            if state.machine is not None and state.machine.memory.progress.summarised:
                seen.add("summarised")
            over = state.machine.state if state.machine is not None else None
            ended = [effect.reason for effect in effects if isinstance(effect, RunEnded)]
            assert not ended or (isinstance(over, Done) and ended == [over.reason])
            seen |= {"refused"} if DoneReason.REFUSAL in ended else set()
        assert seen == ({differs} if newer else set())


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
async def test_whenever_an_upgrade_came_it_goes_on(path: Path) -> None:
    entries = lines(path)
    opened = next(number for number, each in enumerate(entries) if b'"RunOpened"' in each)
    every = 9 if named(path)[0].startswith("random-") else 4 if path.parent == PRESENT else 2
    for cut in range(opened + 1 + len(entries) % every, len(entries) + 1, every):
        await goes_on(path, cut)


# The present version


@pytest.mark.parametrize("scenario", sorted(make.SCENARIOS))
async def test_a_scenario_writes_the_journals_that_are_committed(scenario: str) -> None:
    kept, leads = await make.played(scenario)
    there = {named(path)[1]: path.read_bytes() for path in PRESENT.glob(f"{scenario}.*.jsonl")}
    assert {name: make.in_lines(entries) for name, entries in kept.items()} == there
    told = {f"{scenario}.{name}": leads[name] for name in kept}
    assert json.loads(json.dumps(told)) == {name: EXPECTED[VERSION][name] for name in told}


def test_nothing_else_is_committed() -> None:
    stray = [path.name for path in PRESENT.glob("*.jsonl") if named(path)[0] not in make.SCENARIOS]
    assert stray == []
    assert [*CHANGES, VERSION] == VERSIONS


def test_every_word_is_in_a_journal() -> None:
    entries = [decode_entry(each) for path in PRESENT.glob("*.jsonl") for each in lines(path)]
    assert {type(entry) for entry in entries} == set(get_args(Entry))
    events = {type(event) for entry in entries if (event := getattr(entry, "event", None)) is not None}
    assert events == set(get_args(Event)) - {Entered, ToolProgressed}


# Fields that come and go


def words(version: int, name: str = "words") -> dict[str, list[str]]:
    """What the entries of *version* were made of, or what else has that *name*."""
    found: dict[str, list[str]] = json.loads((GOLDEN / f"v{version}/{name}.json").read_text("utf-8"))
    return found


def test_a_word_that_changes_is_seen() -> None:
    """Where a version is out, an older turnwheel cannot read a new field: raise the version."""
    assert make.words(Entry) == words(VERSION)
    assert make.words(Snapshot) == words(VERSION, "snapshot")


@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_a_field_that_comes_or_goes_is_migrated(version: int) -> None:
    """A new setting gets the value that an older version went by; other new fields may have a default."""
    before, after = words(version), words(version + 1)
    migrated = {changed.new.__name__ for changed in CHANGES[version]}
    both = before.keys() & {settings.__name__ for settings in SETTINGS}
    assert {name for name in both if set(after[name]) - set(before[name])} <= migrated
    assert {name for name in before if set(before[name]) - set(after.get(name, ()))} <= migrated
    ever = {changed.new for since in CHANGES for changed in CHANGES[since]}
    needed = {
        f"{name}.{field.name}"
        for name, word in make.classes(Entry).items()
        if name in before and attrs.has(word) and word not in ever
        for field in attrs.fields(word)
        if field.name not in before[name] and field.default is attrs.NOTHING
    }
    assert needed == set()
