"""Lists, deletes and explains a few sessions of a store: what is read for it, and what is told."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from turnwheel import MemoryStore
from turnwheel.effects.errors import (
    JournalError,
    SessionGone,
    StoreConflict,
    StoreError,
    UnknownCall,
    UnknownSession,
)
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.archive import (
    bisect,
    bisect_versions,
    costs,
    delete,
    explain,
    export,
    prune,
    replay,
)
from turnwheel.engine.inspect.listing import PAGE, described, each_listed, latest, listed, newer, parent_of
from turnwheel.engine.journal.entries import VERSION
from turnwheel.engine.journal.summary import SessionKind, SessionStatus, SessionSummary
from turnwheel.performers.stores.base import Entries
from turnwheel.testing.stores import StoreOver

GOLDEN = Path(__file__).parents[2] / "golden"


def row(
    parent: str = "", *, cwd: str = "", prompts: int = 0, state: SessionStatus = SessionStatus.IDLE
) -> bytes:
    kind = SessionKind.CHILD if parent else SessionKind.MAIN
    about = SessionSummary(kind=kind, parent=parent, cwd=cwd, prompts=prompts, state=state)
    return encode(about, SessionSummary)


async def store_of(*names: str, now: Callable[[], float] = lambda: 0.0) -> MemoryStore:
    """A store with sessions of these *names*; one with a point in it is a child."""
    store = MemoryStore(now=now)
    for name in names:
        await store.append(name, 0, [b"x"], row(name.rpartition(".")[0]))
    return store


async def names_in(store: MemoryStore | StoreOver) -> list[str]:
    return [info.session for info in await store.list()]


# Lists


async def test_news_are_found_however_many_they_are() -> None:
    store = await store_of(*map(str, range(PAGE * 3)))
    found = await listed(store)
    assert len(found) == PAGE * 3
    for stamp, count in ((found[0].stamp, 0), (found[1].stamp, 1), (found[PAGE * 2].stamp, PAGE * 2)):
        assert await newer(store, stamp) == [*found[:count]]
        assert await newer(store, stamp, expected=1) == [*found[:count]]
    assert await newer(await store_of(), 0) == []


async def test_each_of_many_is_told_and_so_is_one_that_is_written_meanwhile() -> None:
    store = await store_of(*map(str, range(PAGE + 10)))
    told: list[str] = []
    async for one in each_listed(store):
        if not told:
            # The oldest one moves to the front: it is on no page that is still to come.
            await store.append("0", 1, [b"x"])
        told.append(one.session)
    assert told == [*map(str, range(PAGE + 9, 0, -1)), "0"]
    assert [one async for one in each_listed(await store_of())] == []
    quiet = [one.session async for one in each_listed(store, "20")]
    assert quiet == [f"20{number}" for number in range(9, -1, -1)] + ["20"]


async def test_a_list_has_no_more_than_it_is_asked_for_and_goes_on_behind_it() -> None:
    store = await store_of("a", "b", "c", "d")
    page = await listed(store, 2)
    assert [one.session for one in page] == ["d", "c"]
    assert [one.session for one in await listed(store, 5, page[-1].stamp)] == ["b", "a"]
    assert [one.session for one in await listed(store, 1, page[-1].stamp)] == ["b"]


async def test_the_latest_session_of_a_directory_is_found_by_any_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = MemoryStore()
    for name, parent, cwd in (
        ("first", "", tmp_path / "real"),
        ("second", "", tmp_path / "link"),
        ("second.c", "second", tmp_path / "real"),
        ("other", "", tmp_path),
    ):
        await store.append(name, 0, [b"x"], row(parent, cwd=os.fspath(cwd)))
    await store.append("nowhere", 0, [b"x"], row())
    for way in ("real", "link"):
        assert await latest(store, tmp_path / way) == "second"
    assert await latest(store, tmp_path) == "other"
    assert await latest(store, tmp_path / "none") is None


async def test_a_session_is_a_child_where_its_name_says_so_too() -> None:
    store = await store_of("a", "a.b")
    await store.append("odd", 0, [b"x"], row("a"))
    assert {one.session: parent_of(one) for one in await listed(store)} == {"a": "", "a.b": "a", "odd": ""}


class Counted(StoreOver):
    """Counts how often a store was *loaded* from and what was *written*, where it does not *refuse* that."""

    def __init__(self, refuses: Exception | None = None) -> None:
        super().__init__()
        self.loaded = 0
        self.written: list[tuple[int, int]] = []
        self.refuses = refuses

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.loaded += 1
        return await super().load(session, start, end, incarnation)

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        if self.refuses is not None:
            raise self.refuses
        self.written.append((expected, len(entries)))
        return await super().append(session, expected, entries, about, incarnation)


JOURNAL = (GOLDEN / f"v{VERSION}" / "approvals.s.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize(
    "refuses",
    [None, StoreError("read-only"), StoreConflict("s", 0, 1), SessionGone("s", begun_anew=False)],
)
async def test_a_summary_that_is_not_there_is_made_once_and_kept_where_it_can_be(
    refuses: Exception | None,
) -> None:
    store = Counted(refuses)
    await store.kept.append("s", 0, JOURNAL)
    found = await described(store, "s")
    assert found is not None
    assert found.about.state is SessionStatus.IDLE
    assert store.loaded == 1
    assert await described(store, "s") == found
    assert store.loaded == (1 if refuses is None else 2)
    assert store.written == ([(len(JOURNAL), 0)] if refuses is None else [])


async def test_a_summary_that_cannot_be_read_is_read_from_the_journal_and_left_as_it_is() -> None:
    store = Counted()
    await store.kept.append("s", 0, JOURNAL, b'{"of": "a newer version"}')
    found = await described(store, "s")
    assert found is not None
    assert found.about.state is SessionStatus.IDLE
    assert store.written == []


async def test_a_journal_that_cannot_be_read_is_listed_as_such_and_hides_no_other() -> None:
    store = MemoryStore()
    await store.append("bad", 0, [b"no entry"])
    await store.append("good", 0, JOURNAL)
    assert [(one.session, one.about.state) for one in await listed(store)] == [
        ("good", SessionStatus.IDLE),
        ("bad", SessionStatus.UNREADABLE),
    ]
    assert await described(store, "none") is None


# Deleting


class Quick(StoreOver):
    """A store in which another process deletes *first* what is deleted here."""

    def __init__(self, kept: MemoryStore, first: str) -> None:
        super().__init__(kept)
        self.first = first
        self.deleted: list[tuple[str, str]] = []

    async def delete(self, session: str, incarnation: str = "") -> bool:
        self.deleted.append((session, incarnation))
        if session == self.first:
            raise SessionGone(session, begun_anew=False)
        return await super().delete(session, incarnation)


async def test_a_session_is_deleted_with_its_children_the_lowest_first() -> None:
    kept = await store_of("a", "a.b", "a.b.c", "ab", "b")
    store = Quick(kept, "a.b")
    incarnations = {info.session: info.incarnation for info in await kept.list()}
    assert await delete(store, "a") == 2
    # The session itself is whichever has that name now; a child is the one that was listed.
    assert store.deleted == [("a.b.c", incarnations["a.b.c"]), ("a.b", incarnations["a.b"]), ("a", "")]
    assert await names_in(kept) == ["b", "ab", "a.b"]
    assert await delete(kept, "none") == 0


async def test_families_go_that_are_old_and_over() -> None:
    times = iter([10.0, 10.0, 10.0, 20.0, 10.0, 10.0, 10.0, 10.0, 11.0])
    store = MemoryStore(now=lambda: next(times))
    for name, about in (
        ("old", row()),
        ("old.child", row("old")),
        ("late", row()),
        ("late.child", row("late")),
        ("orphan.child", row("orphan")),
        ("open", row(state=SessionStatus.RESTING)),
        ("queued", row(prompts=1)),
        ("odd", row(state=SessionStatus.UNREADABLE)),
        ("edge", row()),
    ):
        await store.append(name, 0, [b"x"], about)
    assert await prune(store, 5.0, 16.0) == ("orphan.child", "old.child", "old")
    assert {*await names_in(store)} == {"late", "late.child", "open", "queued", "odd", "edge"}
    assert {*await prune(store, 5.0, 16.0, keep_unfinished=False)} == {"open", "queued", "odd"}


# Reading afterwards


@pytest.mark.parametrize(
    "do",
    [
        lambda store: bisect(store, "none", "s"),
        lambda store: bisect(store, "s", "none"),
        lambda store: bisect_versions(store, "none"),
        lambda store: explain(store, "none", "c"),
        lambda store: costs(store, "none"),
        lambda store: export(store, "none"),
        lambda store: anext(replay(store, "none")),
    ],
    ids=["bisect", "with none", "versions", "explain", "costs", "export", "replay"],
)
async def test_what_is_asked_of_a_session_that_is_not_there_is_refused(
    do: Callable[[MemoryStore], Awaitable[object]],
) -> None:
    store = MemoryStore()
    await store.append("s", 0, JOURNAL)
    with pytest.raises(UnknownSession):
        await do(store)


async def test_a_call_that_is_not_there_is_answered_with_those_that_are() -> None:
    store = MemoryStore()
    await store.append("s", 0, JOURNAL)
    for call in ("none", "id0-99", "id1-0"):
        with pytest.raises(UnknownCall) as unknown:
            await explain(store, "s", call)
        assert unknown.value.open


async def test_a_version_is_compared_by_its_journal_or_by_its_lines() -> None:
    store = MemoryStore()
    await store.append("s", 0, JOURNAL)
    assert await bisect_versions(store, "s") is None
    with pytest.raises(JournalError, match="no step to compare with"):
        await bisect_versions(store, "s", [])
