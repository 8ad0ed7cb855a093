"""What becomes of sessions: taken out whole, deleted with their children, pruned when they are old."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from turnwheel import Agent, ChildSpec, MemoryStore, SQLiteStore
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.messages import Binary
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.archive import delete, export, prune
from turnwheel.engine.journal.summary import SessionKind, SessionStatus, SessionSummary
from turnwheel.projections import AgentEvents
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.inspect.conftest import Made

    from turnwheel.performers.stores.base import SessionInfo, Store


RECORDED = Path(__file__).parent / "export.json"
SPAWN = calls(("run_agent", {"agent": "kid", "prompt": "go"}))


async def family(agent: Agent, session: str) -> None:
    async with agent.session(session) as parent:
        await parent.run("send a child")


def parents(made: Made, *names: str) -> tuple[Agent, list[str]]:
    """An agent whose sessions each start one child, and the *names* they are to have."""
    replies = [reply for _ in names for reply in (SPAWN, says("found"), says("done"))]
    return made(*replies, children=[ChildSpec(name="kid")]), list(names)


# Export


async def test_an_export_is_one_document_that_needs_nothing_of_this_library(made: Made) -> None:
    made.store = MemoryStore(now=lambda: 5.0)
    agent = made(calls(("look", {}), text="Let me see."), says("All is well."))
    picture = Binary(media_type="image/png", data=b"\x89PNG", name="a.png")
    async with agent.session("s") as session:
        result = await session.run("How is it?", files=(picture,))
    told = (await export(made.store, "s")).decode()
    told = told.replace(result.run, "RUN").replace(json.dumps(str(Path.cwd())), '"HERE"')
    if os.environ.get("RECORD"):
        RECORDED.write_text(json.dumps(json.loads(told), indent=1) + "\n", "utf-8")
    assert json.dumps(json.loads(told), indent=1) + "\n" == RECORDED.read_text("utf-8")


async def test_each_message_of_an_export_names_the_one_before_it_on_its_branch(made: Made) -> None:
    rounds = [reply for text in ("one", "two", "three") for reply in (calls(("look", {})), says(text))]
    agent, heard = made(*rounds), AgentEvents.of("s")
    async with agent.session("s") as session:
        first = await session.run("first")
        await session.run("second")
        await session.branch(first.run)
        events = [event async for notice in session.stream("third") for event in heard.take(notice)]
        kept = [message.text for message in session.history]
    document = json.loads(await export(made.store, "s"))
    by_id = {message["id"]: message for message in document["messages"]}
    assert len(by_id) == len(document["messages"]) == 12
    assert {message["session"] for message in by_id.values()} == {"s"}
    said = events[-1]["message"]
    assert isinstance(said, dict)
    path, at = [], said["id"]
    while at:
        path.append("".join(part.get("text", "") for part in by_id[at]["parts"]))
        at = by_id[at]["parent"]
    assert path[::-1] == kept
    assert kept[-1] == "three"


async def test_an_export_of_a_session_that_waits(made: Made) -> None:
    agent = made(calls(("pay", {})))
    store = made.store
    async with agent.session("s") as session:
        await session.send("pay")
        document = json.loads(await export(store, "s"))
        assert (document["runs"], document["messages"]) == ([], [])
        await session.resume()
    document = json.loads(await export(store, "s"))
    assert (document["about"]["state"], document["about"]["questions"]) == ("resting", 1)
    assert [run["reason"] for run in document["runs"]] == [None]


async def test_an_export_of_nothing() -> None:
    store = MemoryStore()
    with pytest.raises(UnknownSession, match="no session 's'"):
        await export(store, "s")
    await store.append("s", 0, [b"no json"])
    with pytest.raises(JournalError, match="entry 0 of session 's'"):
        await export(store, "s")


# Deleting


async def test_a_session_is_deleted_with_its_children_and_what_only_looks_like_one_stays(made: Made) -> None:
    agent, names = parents(made, "s", "t")
    store = made.store
    for name in names:
        await family(agent, name)
    async with agent.session("s") as session:
        await (await session.fork("s.fork")).close()
    assert await delete(store, "s") == 2
    (child,) = [info.session for info in await store.list() if info.session.startswith("t.")]
    assert {info.session for info in await store.list()} == {"s.fork", "t", child}
    assert (await delete(store, child), await delete(store, child), await delete(store, "none")) == (1, 0, 0)


async def test_what_is_left_of_a_family_goes_with_the_next_call(made: Made) -> None:
    agent, _ = parents(made, "s")
    store = made.store
    await family(agent, "s")
    assert await store.delete("s")  # its child is left behind
    assert await delete(store, "s") == 1
    assert not await store.list()


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
        return {info.session for info in await self.store.list()}


def child_of(parent: str, state: SessionStatus = SessionStatus.IDLE) -> SessionSummary:
    return SessionSummary(kind=SessionKind.CHILD, parent=parent, agent="kid", state=state)


KID, OVER, OPEN = child_of("a"), SessionSummary(), SessionSummary(prompts=1)
FAMILIES: list[tuple[dict[str, tuple[float, SessionSummary]], set[str], set[str]]] = [
    # The limit itself is not past it.
    ({"old": (49.0, OVER), "at the limit": (50.0, OVER), "new": (51.0, OVER)}, {"old"}, {"old"}),
    # A child goes with its parent and never before; one without a parent is on its own.
    ({"a": (1.0, OVER), "a.1": (1.0, KID)}, {"a", "a.1"}, {"a", "a.1"}),
    ({"a": (99.0, OVER), "a.1": (1.0, KID)}, set(), set()),
    ({"a": (1.0, OVER), "a.1": (99.0, KID)}, set(), set()),
    ({"a.1": (1.0, KID)}, {"a.1"}, {"a.1"}),
    # What is not over, or waits to be answered, is kept unless it shall not be, and its child too.
    *[
        ({"a": (1.0, SessionSummary(state=state)), "a.1": (1.0, KID)}, set[str](), {"a", "a.1"})
        for state in SessionStatus
        if state is not SessionStatus.IDLE
    ],
    ({"a": (1.0, OPEN)}, set(), {"a"}),
    # A child whose parent is over goes on never: it keeps no family.
    ({"a": (1.0, OVER), "a.1": (1.0, child_of("a", SessionStatus.RESTING))}, {"a", "a.1"}, {"a", "a.1"}),
    ({"a": (1.0, OVER), "a.1": (1.0, child_of("a", SessionStatus.UNFINISHED))}, {"a", "a.1"}, {"a", "a.1"}),
    # One that cannot be read may be a newer version's, and open.
    ({"a": (1.0, OVER), "a.1": (1.0, child_of("a", SessionStatus.UNREADABLE))}, set(), {"a", "a.1"}),
    # A row that makes a session its own parent, or that of another family, does not make it hang.
    ({"a": (1.0, KID), "b": (1.0, child_of("c")), "c": (1.0, child_of("b"))}, {*"abc"}, {*"abc"}),
]


@pytest.mark.parametrize(("sessions", "gone", "gone_unfinished"), FAMILIES)
async def test_old_sessions_are_pruned_by_families(
    sessions: dict[str, tuple[float, SessionSummary]], gone: set[str], gone_unfinished: set[str]
) -> None:
    for keep, expected in ((True, gone), (False, gone_unfinished)):
        shelf = Shelf()
        for name, (at, row) in sessions.items():
            await shelf.put(name, at, row)
        assert {*await prune(shelf.store, 50.0, 100.0, keep_unfinished=keep)} == expected
        assert await shelf.left() == sessions.keys() - expected


async def test_a_session_that_was_gone_on_with_or_cannot_be_read_is_kept() -> None:
    shelf = Shelf()
    await shelf.put("a", 10.0)
    await shelf.put("a", 90.0)
    await shelf.store.append("b", 0, [b"no json"])
    shelf.at = 1_000.0
    assert await prune(shelf.store, 50.0, 100.0) == ()
    assert {*await prune(shelf.store, 0.0, 1_001.0, keep_unfinished=False)} == {"a", "b"}


class BegunAnew(StoreOver):
    """Another process deletes each session, and begins another one under its name, while it is listed."""

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        found = await super().list(limit, after, prefix)
        for info in found:
            await self.kept.delete(info.session)
            await self.kept.append(info.session, 0, [b"new"])
        return found


@pytest.mark.parametrize("file", [False, True], ids=["memory", "file"])
async def test_what_is_begun_anew_after_it_was_listed_is_not_deleted(tmp_path: Path, *, file: bool) -> None:
    kept: Store = SQLiteStore(tmp_path / "a.db", "process", now=lambda: 0.0) if file else Shelf().store
    for name, about in (("a", OVER), ("a.1", KID)):
        await kept.append(name, 0, [b"{}"], encode(about, SessionSummary))
    assert await prune(BegunAnew(kept), 50.0, 100.0) == ()
    assert {info.session for info in await kept.list()} == {"a", "a.1"}
    # A person who names a session means the one that has the name; children are those that were listed.
    await kept.append("a.1", 1, [], encode(KID, SessionSummary))
    assert await delete(BegunAnew(kept), "a") == 1
    assert [info.session for info in await kept.list()] == ["a.1"]
    await kept.close()


async def test_pruning_a_real_store(made: Made, tmp_path: Path) -> None:
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
