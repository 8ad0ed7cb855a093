"""What becomes of sessions: taken out whole, deleted with their children, pruned when they are old."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel import (
    Agent,
    Binary,
    ChildSpec,
    MemoryStore,
    ModelSpec,
    Price,
    SQLiteStore,
    tool,
)
from turnwheel.effects.config import Compaction
from turnwheel.effects.errors import JournalError, StoreConflict, UnknownSession
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.codec import encode
from turnwheel.engine.journal.summary import SessionKind, SessionStatus, SessionSummary
from turnwheel.engine.session.archive import delete, export, prune
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


def made(*replies: Reply, **settings: Any) -> Agent:
    """An agent over a script, with a store of its own unless one is given."""
    given: dict[str, Any] = {
        "model": ModelSpec(name="scripted", price=Price(input=Decimal(1), output=Decimal(2))),
        "performers": {CallModel: ScriptedModel(*replies)},
        "store": MemoryStore(),
        "clock": AutoClock(100.0),
        "tools": [pay, look],
    }
    return Agent(**{**given, **settings})


def kept_by(agent: Agent) -> Store:
    """Where *agent* keeps its sessions."""
    assert agent.store is not None
    return agent.store


SPAWN = calls(("run_agent", {"agent": "kid", "prompt": "go"}))


async def family(agent: Agent, session: str) -> None:
    """A session with one child."""
    async with agent.session(session) as parent:
        await parent.run("send somebody")


def parents(*names: str) -> tuple[Agent, list[str]]:
    """An agent whose sessions each start one child, and the *names* they are to have."""
    replies = [reply for _ in names for reply in (SPAWN, says("found"), says("done"))]
    return made(*replies, children=[ChildSpec(name="kid")]), list(names)


# Export


async def test_an_export_needs_nothing_of_this_library() -> None:
    """One JSON document: what the session is, its runs, and every message with its parts."""
    agent = made(
        calls(("look", {}), text="Let me see."), says("All is well."), store=MemoryStore(now=lambda: 5.0)
    )
    picture = Binary(media_type="image/png", data=b"\x89PNG", name="a.png")
    async with agent.session("s") as session:
        result = await session.run("How is it?", files=(picture,))
    document = json.loads(await export(kept_by(agent), "s"))

    assert list(document) == [
        "format",
        "version",
        "session",
        "created",
        "updated",
        "about",
        "runs",
        "messages",
    ]
    assert (document["format"], document["version"], document["session"]) == ("turnwheel session", 1, "s")
    assert (document["created"], document["updated"]) == (5.0, 5.0)
    about = document["about"]
    assert (about["kind"], about["title"], about["state"], about["cwd"]) == (
        "main",
        "How is it?",
        "idle",
        str(Path.cwd()),
    )
    assert about["spent"]["usage"] == {
        "input": 20,
        "output": 10,
        "cached": 0,
        "cache_write": 0,
        "reasoning": 0,
        "estimated": 0,
    }
    assert about["spent"]["cost"] == "0.00004"
    (run,) = document["runs"]
    assert (run["run"], run["parent"], run["prompt"], run["reason"]) == (
        result.run,
        "",
        "How is it?",
        "end_turn",
    )
    assert (run["head"], run["current"], run["copied"]) == (True, True, False)
    asked, wished, seen, said = document["messages"]
    assert {message["run"] for message in document["messages"]} == {result.run}
    assert [message["role"] for message in document["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert asked["parts"][0] == {"type": "Text", "text": "How is it?"}
    assert base64.b64decode(asked["parts"][1]["data"]) == b"\x89PNG"
    assert [part["type"] for part in wished["parts"]] == ["Text", "ToolCall", "Finish"]
    assert (seen["parts"][0]["content"], said["parts"][0]["text"]) == ("seen", "All is well.")


async def test_an_export_has_what_was_summarised_and_what_was_left() -> None:
    """Messages that a summary stands for and those of other branches are all there, each with its run."""
    replies = [
        says(f"{turn} " + "word " * 300, usage=Usage(input=400 * turn, output=400)) for turn in (1, 2, 3, 4)
    ]
    agent = made(*replies, model=ModelSpec(name="scripted", window=1_500), compaction=Compaction(keep=0.3))
    async with agent.session("s") as session:
        runs = [(await session.run(prompt)).run for prompt in "abc"]
        assert session.history.revision == 1
        await session.branch(runs[0])
        runs.append((await session.run("d")).run)
    document = json.loads(await export(kept_by(agent), "s"))
    told = [
        (message["run"], message["parts"][0]["text"][:1])
        for message in document["messages"]
        if not message["summary"]
    ]
    assert told == [(run, text) for run, *texts in zip(runs, "abcd", "1234", strict=True) for text in texts]
    (summary,) = [message for message in document["messages"] if message["summary"]]
    assert (summary["run"], summary["role"]) == (runs[2], "user")
    assert "They talked." in summary["parts"][0]["text"]
    assert [run["parent"] for run in document["runs"]] == ["", runs[0], runs[1], runs[0]]


async def test_an_export_of_a_session_that_waits() -> None:
    """One that rests, or has only been sent something, can be taken out as it is."""
    agent = made(calls(("pay", {})))
    store = kept_by(agent)
    async with agent.session("s") as session:
        await session.send("pay")
        document = json.loads(await export(store, "s"))
        assert (document["runs"], document["messages"]) == ([], [])
        await session.resume()
    document = json.loads(await export(store, "s"))
    assert (document["about"]["state"], document["about"]["questions"]) == ("resting", 1)
    assert [run["reason"] for run in document["runs"]] == [None]


async def test_an_export_of_nothing() -> None:
    """A session that is not there, or that cannot be read, is an error and no empty document."""
    store = MemoryStore()
    with pytest.raises(UnknownSession, match="no session 's'"):
        await export(store, "s")
    await store.append("s", 0, [b"no json"])
    with pytest.raises(JournalError, match="entry 0 of session 's'"):
        await export(store, "s")


# Deleting


async def test_a_session_is_deleted_with_its_children() -> None:
    """Those of other sessions, and sessions that only look like it, stay."""
    agent, names = parents("s", "t")
    store = kept_by(agent)
    for name in names:
        await family(agent, name)
    async with agent.session("s") as session:
        fork = await session.fork("s.fork")
        await fork.close()
    before = [info.session for info in await store.list()]
    assert await delete(store, "s") == 2
    left = {info.session for info in await store.list()}
    assert left == {name for name in before if not name.startswith("s")} | {"s.fork"}
    assert len(left) == 3


async def test_a_child_can_be_deleted_alone_and_what_is_not_there_not_at_all() -> None:
    """How many were deleted is told; what is left of a family goes with the next call."""
    agent, names = parents("s", "t")
    store = kept_by(agent)
    for name in names:
        await family(agent, name)
    (child,) = [info.session for info in await store.list() if info.session.startswith("t.")]
    assert await delete(store, child) == 1
    assert await delete(store, child) == 0
    assert await store.delete("s")  # its child is left behind
    assert await delete(store, "s") == 1
    assert [info.session for info in await store.list()] == ["t"]
    assert await delete(store, "nobody") == 0


async def test_whoever_drives_a_session_that_is_deleted_is_told() -> None:
    """Its next write is refused, and the session is gone."""
    store = MemoryStore()

    @tool(side_effect="read_only")
    async def forget() -> str:
        """Forget this very session."""
        await delete(store, "s")
        return "gone"

    async with made(calls(("forget", {})), says("done"), store=store, tools=[forget]).session("s") as session:
        with pytest.raises(StoreConflict):
            await session.run("a")
    assert list(await store.load("s")) == []


# Pruning


class Shelf:
    """A store on a clock that is set by hand, with sessions that were not really had."""

    def __init__(self) -> None:
        self.at = 0.0
        self.store = MemoryStore(now=lambda: self.at)

    async def put(self, session: str, at: float, about: SessionSummary | None = None) -> None:
        """Have *session* be written *at* a time."""
        self.at = at
        length = len(await self.store.load(session))
        await self.store.append(session, length, [b"{}"], encode(about or SessionSummary(), SessionSummary))

    async def left(self) -> set[str]:
        """The sessions that are there."""
        return {info.session for info in await self.store.list()}


def child_of(parent: str, state: SessionStatus = SessionStatus.IDLE) -> SessionSummary:
    """The row of a child."""
    return SessionSummary(kind=SessionKind.CHILD, parent=parent, agent="kid", state=state)


async def test_what_nobody_wrote_to_for_long_is_deleted() -> None:
    """The limit itself is not past it; what was written since stays."""
    shelf = Shelf()
    for name, at in (("old", 10.0), ("at the limit", 40.0), ("new", 41.0), ("gone on with", 10.0)):
        await shelf.put(name, at)
    await shelf.put("gone on with", 90.0)
    assert await prune(shelf.store, 60.0, 100.0) == ("old",)
    assert await shelf.left() == {"at the limit", "new", "gone on with"}
    assert await prune(shelf.store, 60.0, 100.0) == ()
    assert set(await prune(shelf.store, 0.0, 101.0)) == {"at the limit", "new", "gone on with"}


async def test_a_child_goes_with_its_parent_and_never_before() -> None:
    """While one of a family was written lately, all of it stays; a child without a parent is on its own."""
    shelf = Shelf()
    await shelf.put("a", 1.0)
    await shelf.put("a.1", 1.0, child_of("a"))
    await shelf.put("b", 99.0)
    await shelf.put("b.1", 1.0, child_of("b"))
    await shelf.put("c", 1.0)
    await shelf.put("c.1", 99.0, child_of("c"))
    await shelf.put("lost.1", 1.0, child_of("lost"))
    assert sorted(await prune(shelf.store, 50.0, 100.0)) == ["a", "a.1", "lost.1"]
    assert await shelf.left() == {"b", "b.1", "c", "c.1"}


@pytest.mark.parametrize("state", [state for state in SessionStatus if state is not SessionStatus.IDLE])
async def test_what_is_not_over_is_kept_unless_it_shall_not_be(state: SessionStatus) -> None:
    """A question that nobody answered yet is no reason to delete it, nor its child."""
    shelf = Shelf()
    await shelf.put("a", 1.0, SessionSummary(state=state))
    await shelf.put("a.1", 1.0, child_of("a"))
    assert await prune(shelf.store, 50.0, 100.0) == ()
    assert sorted(await prune(shelf.store, 50.0, 100.0, keep_unfinished=False)) == ["a", "a.1"]


@pytest.mark.parametrize("state", [SessionStatus.RESTING, SessionStatus.UNFINISHED])
async def test_a_child_that_nobody_waits_for_keeps_no_family(state: SessionStatus) -> None:
    """It goes on with its parent or never, and that is over: somebody interrupted it twice."""
    shelf = Shelf()
    await shelf.put("a", 1.0)
    await shelf.put("a.1", 1.0, child_of("a", state))
    assert sorted(await prune(shelf.store, 50.0, 100.0)) == ["a", "a.1"]


async def test_what_waits_to_be_answered_is_kept() -> None:
    """A prompt that was accepted and that nobody has run yet is not thrown away."""
    shelf = Shelf()
    await shelf.put("a", 1.0, SessionSummary(prompts=1))
    assert await prune(shelf.store, 50.0, 100.0) == ()
    assert await prune(shelf.store, 50.0, 100.0, keep_unfinished=False) == ("a",)


async def test_what_cannot_be_read_is_kept() -> None:
    """Nobody knows whether it was over."""
    shelf = Shelf()
    await shelf.store.append("a", 0, [b"no json"])
    assert await prune(shelf.store, 50.0, 100.0) == ()
    assert await prune(shelf.store, 50.0, 100.0, keep_unfinished=False) == ("a",)


async def test_a_parent_that_says_so_of_itself_is_nobodys_child() -> None:
    """A row that makes a session its own parent, or that of another family, does not make it hang."""
    shelf = Shelf()
    await shelf.put("a", 1.0, child_of("a"))
    await shelf.put("b", 1.0, child_of("c"))
    await shelf.put("c", 1.0, child_of("b"))
    assert sorted(await prune(shelf.store, 50.0, 100.0)) == ["a", "b", "c"]


async def test_pruning_a_real_store(tmp_path: Path) -> None:
    """The same with sessions that were had, on a disk."""
    at = [0.0]
    store = SQLiteStore(tmp_path / "agent.db", "process", now=lambda: at[0])
    agent = made(
        SPAWN, says("found"), says("done"), calls(("pay", {})), store=store, children=[ChildSpec(name="kid")]
    )
    await family(agent, "s")
    async with agent.session("t") as session:
        await session.run("pay")
    at[0] = 1_000.0
    gone = await prune(store, 500.0, at[0])
    assert len(gone) == 2
    assert gone[-1] == "s"  # behind its child, so that nothing is orphaned where this is cut short
    assert [info.session for info in await store.list()] == ["t"]
    await store.close()


@given(
    sessions=st.dictionaries(
        st.sampled_from(["a", "b", "a.1", "a.2", "b.1", "a.1.1"]),
        st.tuples(st.integers(0, 100), st.sampled_from(list(SessionStatus))),
    ),
    keep=st.booleans(),
)
async def test_a_family_is_pruned_whole_or_not_at_all(
    sessions: dict[str, tuple[int, SessionStatus]], *, keep: bool
) -> None:
    """Whatever is there: afterwards no child is without a parent that it had before."""
    shelf = Shelf()
    for name, (at, state) in sessions.items():
        parent = name.rpartition(".")[0]
        await shelf.put(name, float(at), child_of(parent, state) if parent else SessionSummary(state=state))
    gone = set(await prune(shelf.store, 50.0, 100.0, keep_unfinished=keep))
    left = await shelf.left()
    assert gone | left == set(sessions)
    assert not gone & left
    for name in sessions:
        parent = name.rpartition(".")[0]
        assert parent not in sessions or (parent in gone) == (name in gone)
    if keep:
        first = [name for name in gone if name.rpartition(".")[0] not in sessions]
        assert all(sessions[name][1] is SessionStatus.IDLE for name in first)
        assert all(sessions[name][1] is not SessionStatus.UNREADABLE for name in gone)
    assert all(sessions[name][0] < 50 for name in gone)
