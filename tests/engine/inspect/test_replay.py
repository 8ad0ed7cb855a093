"""Replay: a session is read step by step as it was, and no call is made again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from provers.choices import Seeded
from provers.simulation.jobs import World, job
from provers.simulation.player import Player
from provers.simulation.watched import copied, happen

from turnwheel import Agent, ChildSpec, MemoryStore, SQLiteStore, tool
from turnwheel.diagrams import chart
from turnwheel.effects import Effect, is_notice
from turnwheel.effects.config import Config, ModelSpec, Steering
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.events import (
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import TextPiece
from turnwheel.effects.notices import AgentNoticed, Notice, TextDelta, ToolOutput
from turnwheel.effects.requests import CallModel
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.inspect.archive import replay
from turnwheel.engine.inspect.replay import ReplayedStep, as_plain, line, path_of, replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry, Posted, RunOpened, Stepped, TakenOver, Titled
from turnwheel.engine.journal.fold import fold
from turnwheel.performers.base import PerformContext, Performer
from turnwheel.performers.stores.base import Store
from turnwheel.states import streaming
from turnwheel.states.state import Start, Thinking
from turnwheel.states.table import TABLE
from turnwheel.testing.scripted import ScriptedModel, calls, says, stalls


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


def agent_of(model: Performer[CallModel], store: Store | None = None, **settings: Any) -> tuple[Agent, Store]:
    store = store or MemoryStore()
    performers: Any = {CallModel: model}
    return Agent(model="scripted", performers=performers, tools=[look], store=store, **settings), store


async def steps_of(store: Store, session: str = "s") -> list[ReplayedStep]:
    return [step async for step in replay(store, session)]


async def worked(seed: int) -> tuple[World, list[Notice]]:
    """A world in which a job was done, and the notices of its session."""
    world = World(Seeded(seed))
    async with world.agent().session("s") as session:
        seen = [notice async for notice in session.stream(job(1))]
    return world, seen


def kept(player: Player) -> tuple[list[bytes], list[Machine], Machine]:
    """The journal that *player* plays, the machine as it was after each of its entries, and at the end."""
    played = player.play()
    live = copied(played.began)
    machines = [copied(live)] * len(player.posts)
    live.advance()
    entries: list[Entry] = [Posted(event=post) for post in player.posts]
    entries.append(RunOpened(at=0.0, run=played.began.memory.run, config=player.config))
    machines.append(copied(live))
    for what in played.journal:
        happen(live, what)
        if isinstance(what, Config):
            entries.append(TakenOver(at=0.0, config=what))
        else:
            entries.append(Stepped(event=what, label=live.state.label))
        machines.append(copied(live))
    return [encode_entry(entry) for entry in entries], machines, played.end


def test_each_step_is_what_the_machine_was_and_did() -> None:
    """State, memory and settings after each entry, and all effects in their order, of any played run."""
    for seed in range(60):
        entries, machines, end = kept(Player(Seeded(seed)))
        steps = list(replayed(entries, ""))  # the played machine has no session
        begun = [(step, machine) for step, machine in zip(steps, machines, strict=True) if step.machine]
        assert [step.machine for step, _ in begun] == [machine for _, machine in begun], seed
        assert steps[-1].machine == end, seed
        assert [step.number for step in steps] == list(range(len(entries))), seed
        assert [step.before for step in steps[1:]] == [step.state for step in steps[:-1]], seed


def one_by_one(effects: Sequence[Effect]) -> list[Notice]:
    """The notices that a journal knows one by one: pieces of a stream are merged in it."""
    passing = TextDelta | ToolOutput | AgentNoticed
    return [each for each in effects if is_notice(each) and not isinstance(each, passing)]


@pytest.mark.parametrize("seed", range(3))
async def test_a_replay_gives_the_notices_again_and_changes_nothing(seed: int) -> None:
    world, seen = await worked(seed)
    store = world.store.kept
    before, ran = [await store.load("s"), await store.list()], dict(world.ran)
    steps = await steps_of(store)
    assert one_by_one([effect for step in steps for effect in step.effects]) == one_by_one(seen)
    session = await world.agent().session("s").load()
    assert (steps[-1].machine, steps[-1].spent) == (session.machine, session.spent)
    assert before == [await store.load("s"), await store.list()]
    assert world.ran == ran
    assert set(ran.values()) == {1}


async def test_a_step_has_its_event_its_effects_and_its_account() -> None:
    """Before the first run there is no machine. One can be led elsewhere, and the step stays as it is."""
    agent, store = agent_of(ScriptedModel(calls(("look", {})), says("It is there.")))
    run = (await agent.session("s").run("look", id="mine")).run
    steps = await steps_of(store)
    kinds = "UserSent RunOpened Titled ModelStreamed ModelFinished ToolFinished ModelStreamed ModelFinished"
    assert " ".join([type(step.event or step.entry).__name__ for step in steps]) == kinds
    labels = ["", *["streaming"] * 3, "executing", "streaming", "streaming", "done"]
    assert [step.label for step in steps] == labels
    assert [step.run for step in steps] == ["", *[run] * 7]
    assert [step.spent.turns for step in steps] == [0, 0, 0, 0, 1, 1, 1, 2]
    first, event = steps[0], steps[0].event
    assert (first.machine, first.config, first.effects, first.session) == (None, None, (), "s")
    assert "began" not in repr(steps[-1])  # which is another whole machine
    assert isinstance(event, UserSent)
    assert (event.id, first.at) == ("mine", event.at)
    machine, last = steps[-2].machine, steps[-1].event
    assert machine is not None
    assert isinstance(last, ModelFinished)
    machine.advance(last)
    assert (machine.done, steps[-2].label) == (True, "streaming")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"{", "entry 4 of session 's' cannot be read"),
        (b'{"v":1,"at":1.0,"run":"nowhere","type":"Branched"}', "entry 4 of session 's': branch"),
        (
            b'{"v":1,"event":{"at":1.0,"type":"Interrupted"},"label":"done","type":"Stepped"}',
            "entry 4 .* leads to",
        ),
    ],
)
async def test_a_damaged_journal_is_replayed_up_to_the_damage(broken: bytes, why: str) -> None:
    """All steps before it are given, then the error with its number; without a session there is none."""
    world, _ = await worked(1)
    steps = replayed([*(await world.store.kept.load("s"))[:4], broken], "s")
    assert [step.number for step in islice(steps, 4)] == [0, 1, 2, 3]
    with pytest.raises(JournalError, match=why):
        next(steps)
    with pytest.raises(UnknownSession):
        await steps_of(MemoryStore())


async def test_a_session_at_work_elsewhere_is_replayed_as_far_as_it_has_come(tmp_path: Path) -> None:
    model, asked = ScriptedModel(calls(("look", {})), stalls("Well")), asyncio.Event()

    async def ask(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        if model.requests:
            asked.set()
        return await model(request, scene)

    writing, reading = SQLiteStore(tmp_path / "s.db"), SQLiteStore(tmp_path / "s.db")
    agent, _ = agent_of(ask, writing)
    async with agent.session("s") as session:
        running = asyncio.ensure_future(session.run("look"))
        await asked.wait()
        steps = await steps_of(reading)
        labels = ["", "streaming", "streaming", "executing", "streaming"]
        assert [step.label for step in steps if not isinstance(step.entry, Titled)] == labels
        await session.interrupt()
        assert (await running).text == "Well"
    await reading.close()
    await writing.close()


async def test_a_child_is_named_with_its_session_which_can_be_replayed() -> None:
    """While it is at work; a fork names the session where it was at work."""
    hires = calls(("run_agent", {"agent": "scout", "prompt": "look"}))
    model = ScriptedModel(hires, calls(("look", {})), says("Seen."), says("Done."))
    agent, store = agent_of(model, children=[ChildSpec(name="scout", tools=("look",))])
    async with agent.session("s") as session:
        await session.run("go")
        await (await session.fork("t")).close()
    for name in ("s", "t"):
        steps = await steps_of(store, name)
        (link,) = {link for step in steps for link in step.children}
        assert link.session == f"s.{link.call}"
        assert {step.session for step in steps[:-1]} == {"s"}
        assert steps[-1].session == name
        child = await steps_of(store, link.session)
        assert (child[-1].label, child[-1].session) == ("done", link.session)


async def test_a_line_of_json_has_all_of_a_step_and_is_always_the_same() -> None:
    world, _ = await worked(2)
    entries = await world.store.kept.load("s")
    lines = [line(step) for step in replayed(entries, "s")]
    assert lines == [line(step) for step in replayed(entries, "s")]
    plain = [json.loads(each) for each in lines]
    assert plain == [as_plain(step) for step in replayed(entries, "s")]
    for number, (step, data) in enumerate(zip(plain, entries, strict=True)):
        assert step["number"] == number
        assert {"v": VERSION, **step["entry"]} == json.loads(data)
        assert all("type" in effect for effect in step["effects"])
    assert (plain[-1]["state"]["type"], plain[-1]["label"]) == ("Done", "done")


# The path


async def test_a_path_has_every_label_that_a_session_went_through() -> None:
    """Also those that wait for nothing, which no step of the journal names."""
    agent, store = agent_of(ScriptedModel(calls(("look", {})), says("seen")))
    async with agent.session("s") as session:
        await session.run("Look")
    steps = await steps_of(store)
    (opened,) = [step for step in steps if isinstance(step.entry, RunOpened)]
    assert opened.way == ("thinking.start", "thinking.prompt", "thinking.go", "streaming")
    assert steps[-1].way == ("streaming", "thinking.end", "done")
    assert path_of(steps) == {
        ("thinking.start", "thinking.prompt"): 1,
        ("thinking.prompt", "thinking.go"): 1,
        ("thinking.go", "streaming"): 2,
        ("streaming", "executing"): 1,
        ("executing", "thinking.go"): 1,
        ("streaming", "thinking.end"): 1,
        ("thinking.end", "done"): 1,
    }
    assert 'data-edge="thinking streaming"' in chart(steps[-1].label, path_of(steps))


@pytest.mark.parametrize("seed", range(4))
async def test_each_edge_of_a_path_is_in_the_table(seed: int) -> None:
    """Each way begins where the step before ended, unless a run begins there, and ends at its label."""
    world, _ = await worked(seed)
    edges = {(row.state, row.target) for row in TABLE}
    before = ""
    for step in await steps_of(world.store):
        if step.way:
            assert step.way[0] == ("thinking.start" if isinstance(step.entry, RunOpened) else before)
            assert step.way[-1] == step.label
        assert edges >= set(path_of([step]))
        before = step.label


def test_a_handler_that_fails_on_a_journal_is_a_fault_of_that_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader gets the steps before it, and the number."""
    opened = RunOpened(at=1.0, run="r", config=Config(model=ModelSpec(name="m")))
    stopped = Stepped(event=Interrupted(at=2.0), label="streaming.stopping")
    monkeypatch.setattr(streaming, "handle", lambda *_: (Thinking(stage=Start()), ()))
    steps = replayed([encode_entry(opened), encode_entry(stopped)], "s")
    assert next(steps).label == "streaming"
    why = "entry 1 of session 's' makes no sense here: no row for Interrupted in streaming"
    with pytest.raises(JournalError, match=why):
        next(steps)


def test_a_way_has_the_first_and_the_last_label_and_a_piece_of_an_answer_goes_nowhere() -> None:
    opened = RunOpened(at=1.0, run="r", config=Config(model=ModelSpec(name="m")))
    piece = ModelStreamed(at=2.0, request="r-1", before=0, count=1, pieces=(TextPiece("a"),))
    steer = UserSteered(at=3.0, id="q", text="left", how=Steering.WHEN_DONE)
    entries: list[Entry] = [
        opened,
        Stepped(event=piece, label="streaming"),
        Stepped(event=steer, label="streaming"),
    ]
    written = [encode_entry(entry) for entry in entries]
    steps = list(replayed(written, "s"))
    assert [step.way for step in steps][1:] == [("streaming",), ("streaming", "streaming")]
    assert [step.number for step in steps] == [0, 1, 2]
    # Also from where a reader has come to.
    assert list(replayed(written[1:], "s", fold(written[:1], "s"), 1)) == steps[1:]


def test_a_step_whose_handler_failed_goes_straight_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = RunOpened(at=1.0, run="r", config=Config(model=ModelSpec(name="m")))
    failed = Stepped(event=Interrupted(at=2.0), label="done", failed="a bug")
    *_, last = replayed([encode_entry(opened), encode_entry(failed)], "s")
    # It would fail again.
    monkeypatch.setattr(streaming, "handle", None)
    assert last.way == (last.before.label if last.before else "", "done")
