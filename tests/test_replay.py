"""Replay: a session gone through step by step is what it was, and nothing is done again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
from provers.choices import Seeded
from provers.simulation.jobs import World, job
from provers.simulation.player import Player
from provers.simulation.watched import copied, happen

from turnwheel import (
    Agent,
    ChildSpec,
    MemoryStore,
    SQLiteStore,
    tool,
)
from turnwheel.effects import Effect, is_notice
from turnwheel.effects.config import Config
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.events import (
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    UserSent,
)
from turnwheel.effects.notices import (
    AgentNoticed,
    Notice,
    TextDelta,
    ToolOutput,
)
from turnwheel.effects.requests import CallModel
from turnwheel.engine.inspect.replay import ReplayedStep, as_plain, line, replayed
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import (
    Entry,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from turnwheel.engine.machine import Machine
from turnwheel.engine.session.archive import replay
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing.scripted import (
    ScriptedModel,
    calls,
    says,
    stalls,
)


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


async def gone_through(store: Store, session: str = "s") -> list[ReplayedStep]:
    """All steps of *session*."""
    return [step async for step in replay(store, session)]


def kept(player: Player) -> tuple[list[bytes], list[Machine], Machine]:
    """The journal of what *player* plays, the machine as it was after each of its entries, and at the end."""
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


@pytest.mark.parametrize("seed", range(60))
def test_each_step_is_what_the_machine_was_and_did(seed: int) -> None:
    """State, memory and settings after each entry, and all effects in their order, of any played run."""
    player = Player(Seeded(seed))
    entries, machines, end = kept(player)
    steps = list(replayed(entries, "s"))
    begun = [(step, machine) for step, machine in zip(steps, machines, strict=True) if step.machine]
    assert [step.machine for step, _ in begun] == [machine for _, machine in begun]
    assert steps[-1].machine == end
    assert [step.number for step in steps] == list(range(len(entries)))
    assert [step.before for step in steps[1:]] == [step.state for step in steps[:-1]]


def told(notices: Sequence[Effect]) -> list[Notice]:
    """Those of *notices* that a journal knows one by one: pieces of a stream are merged in it."""
    passing = TextDelta | ToolOutput | AgentNoticed
    return [one for one in notices if is_notice(one) and not isinstance(one, passing)]


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_said_again_is_what_was_said(seed: int) -> None:
    """Whoever watched the session saw the same notices, in the same order."""
    world = World(Seeded(seed))
    async with world.agent().session("s") as session:
        seen = [notice async for notice in session.stream(job(1))]
    steps = await gone_through(world.store.kept)
    assert told([effect for step in steps for effect in step.effects]) == told(seen)
    assert (steps[-1].machine, steps[-1].spent) == (session.machine, session.spent)
    assert set(world.ran.values()) == {1}  # nothing was done again


async def test_a_step_tells_what_happened_and_what_came_of_it() -> None:
    """Its number, event, state, effects, run and account; before the first run there is no machine."""
    model = ScriptedModel(calls(("look", {})), says("It is there."))
    agent = Agent(model="scripted", performers={CallModel: model}, tools=[look], store=MemoryStore())
    async with agent.session("s") as session:
        run = (await session.run("look", id="mine")).run
    store = agent.store
    assert isinstance(store, MemoryStore)
    steps = await gone_through(store)

    assert [type(step.event or step.entry).__name__ for step in steps] == [
        "UserSent",
        "RunOpened",
        "Titled",
        "ModelStreamed",
        "ModelFinished",
        "ToolFinished",
        "ModelStreamed",
        "ModelFinished",
    ]
    labels = ["", *["streaming"] * 3, "executing", "streaming", "streaming", "done"]
    assert [step.label for step in steps] == labels
    assert [step.run for step in steps] == ["", *[run] * 7]
    assert [step.spent.turns for step in steps] == [0, 0, 0, 0, 1, 1, 1, 2]
    first, event = steps[0], steps[0].event
    assert (first.machine, first.config, first.effects, first.session) == (None, None, (), "s")
    assert isinstance(event, UserSent)
    assert (event.id, first.at) == ("mine", event.at)


async def test_a_machine_can_be_taken_from_any_step_and_led_elsewhere() -> None:
    """What would have followed from another answer is tried by hand; the step stays what it is."""
    agent = Agent(model="scripted", performers={CallModel: ScriptedModel(says("No."))}, store=MemoryStore())
    async with agent.session("s") as session:
        await session.run("Is it there?")
    store = agent.store
    assert isinstance(store, MemoryStore)
    *_, streamed, finished = await gone_through(store)
    machine = streamed.machine
    assert isinstance(streamed.event, ModelStreamed)
    assert isinstance(finished.event, ModelFinished)
    assert machine is not None
    machine.advance(finished.event)
    assert (machine.done, streamed.label) == (True, "streaming")


# Where it is read


async def test_a_session_that_is_not_there_is_said_to_be() -> None:
    """Nothing is made up."""
    with pytest.raises(UnknownSession):
        await gone_through(MemoryStore())


@pytest.mark.parametrize(
    ("broken", "says_what"),
    [
        (b"{", "entry 4 of session 's' cannot be read"),
        (b'{"v":3,"at":1.0,"run":"nowhere","type":"Branched"}', "entry 4 of session 's': branch"),
        (
            b'{"v":3,"event":{"at":1.0,"type":"Interrupted"},"label":"done","type":"Stepped"}',
            "entry 4 .* leads to",
        ),
    ],
)
async def test_a_journal_that_stops_making_sense_is_gone_through_up_to_there(
    broken: bytes, says_what: str
) -> None:
    """All steps before it are given, then the error with its number."""
    world = World(Seeded(1))
    async with world.agent().session("s") as session:
        await session.run(job(1))
    entries = [*(await world.store.kept.load("s"))[:4], broken]
    steps = replayed(entries, "s")
    assert [step.number for step in islice(steps, 4)] == [0, 1, 2, 3]
    with pytest.raises(JournalError, match=says_what):
        next(steps)


async def test_a_session_at_work_elsewhere_is_gone_through_as_far_as_it_has_come(tmp_path: Path) -> None:
    """The file is read beside its writer, which notices nothing."""
    model, asked = ScriptedModel(calls(("look", {})), stalls("Well")), asyncio.Event()

    async def ask(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        if model.requests:
            asked.set()
        return await model(request, scene)

    writing, reading = SQLiteStore(tmp_path / "s.db"), SQLiteStore(tmp_path / "s.db")
    agent = Agent(model="scripted", performers={CallModel: ask}, tools=[look], store=writing)
    async with agent.session("s") as session:
        running = asyncio.ensure_future(session.run("look"))
        await asked.wait()
        steps = await gone_through(reading)
        labels = ["", "streaming", "streaming", "executing", "streaming"]
        assert [step.label for step in steps if not isinstance(step.entry, Titled)] == labels
        await session.interrupt()
        assert (await running).text == "Well"
    await reading.close()
    await writing.close()


# Children


def parent(store: MemoryStore) -> tuple[Agent, ScriptedModel]:
    """An agent that starts a child, which looks."""
    model = ScriptedModel(
        calls(("run_agent", {"agent": "scout", "prompt": "look"})),
        calls(("look", {})),
        says("Seen."),
        says("Done."),
    )
    scout = ChildSpec(name="scout", tools=("look",))
    made = Agent(model="scripted", performers={CallModel: model}, tools=[look], children=[scout], store=store)
    return made, model


async def test_a_child_is_named_with_its_session_which_can_be_gone_through() -> None:
    """While it is at work, each step says where to go on; in a fork that is where it was at work."""
    store = MemoryStore()
    agent, _ = parent(store)
    async with agent.session("s") as session:
        await session.run("go")
        async with await session.fork("t"):
            pass
    for name in ("s", "t"):
        steps = await gone_through(store, name)
        (link,) = {link for step in steps for link in step.children}
        assert link.session == f"s.{link.call}"
        assert {step.session for step in steps[:-1]} == {"s"}
        assert steps[-1].session == name
        child = await gone_through(store, link.session)
        assert (child[-1].label, child[-1].session) == ("done", link.session)


# As data


async def test_a_line_of_json_has_all_of_a_step_and_is_always_the_same() -> None:
    """Entry, state and effects have the tags and fields of a journal, and reading it again gives the same."""
    world = World(Seeded(2))
    async with world.agent().session("s") as session:
        await session.run(job(1))
    entries = await world.store.kept.load("s")
    lines = [line(step) for step in replayed(entries, "s")]
    assert lines == [line(step) for step in replayed(entries, "s")]
    plain = [json.loads(each) for each in lines]
    assert plain == [as_plain(step) for step in replayed(entries, "s")]
    for number, (step, data) in enumerate(zip(plain, entries, strict=True)):
        assert step["number"] == number
        assert {"v": 3, **step["entry"]} == json.loads(data)
        assert all("type" in effect for effect in step["effects"])
    assert plain[-1]["state"]["type"] == "Done"
    assert plain[-1]["label"] == "done"


async def test_who_goes_through_it_leaves_the_store_as_it_was() -> None:
    """Nothing is written, no clock is read and no tool is run."""
    world = World(Seeded(3))
    async with world.agent().session("s") as session:
        await session.run(job(1))
    before, ran = [await world.store.kept.load("s"), await world.store.list()], dict(world.ran)
    await gone_through(world.store.kept)
    assert before == [await world.store.kept.load("s"), await world.store.list()]
    assert world.ran == ran
