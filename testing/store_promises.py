"""
What a store promises, one function for each promise: a check opens stores and raises `BrokenStore`.

First the promises of every store, then those that depend on how long its contents last: while it is open,
until it is opened again, and for others at the same time. See `store_contract`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction, signature

from ..effects.errors import SessionGone, StoreConflict, StoreError
from ..performers.stores.base import Mark, SessionInfo, Store
from .store_checkpoints import (
    a_store_says_what_it_keeps,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # one of the checks below
    of_checkpoints_those_between_the_first_and_the_new_one_stay,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
)
from .store_deadlines import (
    a_deadline_is_there_for_others,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    a_session_is_overdue_from_its_deadline_on,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    of_many_that_are_overdue_some_are_told,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
)
from .store_leases import (
    a_lease_goes_only_from_the_one_that_is_there,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    leases_are_renewed_together,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    of_many_that_want_a_lease_one_gets_it,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    the_leases_are_those_that_are_held,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
)
from .store_meters import (
    DAY,
    a_meter_goes_only_from_the_one_that_is_there,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    a_time_counts_seconds_from_the_epoch,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
    of_many_that_change_a_meter_none_is_lost,  # noqa: F401  # pyright: ignore[reportUnusedImport]  # as above
)
from .store_parts import Check, Lasts, Opened, broken, same

# Promises of every store

# Names that look alike, or like a path, a pattern or SQL.
ODD_NAMES = ("", " ", "a", "A", "a ", "a\0b", "a\0c", "%", "a'b", 'a"b', "../x", "naïve", "nai\u0308ve", "🦊")

# Entries that look like an end of a line, of a text or of a file, or like SQL.
ENTRIES = (b"", b"\0", b"\n", b"a\r\n\n", b"a\n", bytes(range(256)), b"'; drop table s; --", b"\xff\xfe")

LARGE = b"0123456789abcdef" * 200_000


async def _kept(store: Store, session: str = "s", start: int = 0) -> list[bytes]:
    """The entries that *store* loads."""
    return list(await store.load(session, start))


async def _told(store: Store, session: str = "s") -> SessionInfo:
    """The line of *session* in the list of *store*."""
    found = [info for info in await store.list() if info.session == session]
    same(f"how often a session with entries is listed: {session!r}", len(found), 1)
    return found[0]


async def _refused(store: Store, expected: int, entries: Sequence[bytes], about: bytes | None = None) -> int:
    """The length that a conflict reports for session ``s`` to an append that expects another."""
    try:
        found = await store.append("s", expected, entries, about)
    except StoreConflict as conflict:
        same("whose conflict it is, and of what", (conflict.session, conflict.expected), ("s", expected))
        if conflict.entries:
            same("the entries of a conflict", [*conflict.entries], [*await store.load("s", expected)])
        return conflict.actual
    return broken(f"an append that expects {expected} entries", found, StoreConflict)


# What is kept


async def entries_come_back_in_order(store: Store) -> None:
    """Several appends are loaded as one sequence."""
    await store.append("s", 0, [b"a", b"b"])
    await store.append("s", 2, (b"c",))
    same("what is loaded", await _kept(store), [b"a", b"b", b"c"])


async def loading_starts_anywhere(store: Store) -> None:
    """`load` gives the entries at and behind its start, which may lie outside the session."""
    await store.append("s", 0, [b"a"])
    await store.append("other", 0, [b"x", b"y"])
    await store.append("s", 1, [b"b", b"c"])
    for start, promised in [(0, 3), (1, 2), (2, 1), (3, 0), (9, 0), (2**70, 0), (-1, 3), (-9, 3)]:
        rest = [b"a", b"b", b"c"][3 - promised :]
        same(f"what is loaded from {start}", await _kept(store, "s", start), rest)


async def loading_ends_anywhere(store: Store) -> None:
    """`load` gives the entries before its end, which may lie outside the session or before its start."""
    first = await store.append("s", 0, [b"a"])
    await store.append("other", 0, [b"x", b"y"])
    await store.append("s", 1, [b"b", b"c"])
    await store.append("other", 2, [b"z"])
    await store.append("s", 3, [b"d"])
    for start in (-1, 0, 1, 2, 3, 4, 9):
        for end in (None, -1, 0, 1, 2, 3, 4, 9, 2**70):
            bounds = slice(max(start, 0), None if end is None else max(end, 0))
            found = await store.load("s", start, end)
            same(f"what is loaded from {start} to {end}", [*found], [b"a", b"b", b"c", b"d"][bounds])
            same(f"the incarnation that is loaded from {start} to {end}", found.incarnation, first)
    same("a part of a session that is not there", [*await store.load("unknown", 0, 1)], [])


async def an_unknown_session_is_empty(store: Store) -> None:
    """It loads as empty, is not listed and cannot be deleted."""
    same("the entries of a session that is not there", await _kept(store, "unknown"), [])
    same("the sessions", list(await store.list()), [])
    same("whether it was deleted", await store.delete("unknown"), promised=False)
    same("the sessions", list(await store.list()), [])


async def a_session_is_there_once_it_has_an_entry(store: Store) -> None:
    """Appending no entries compares the length and leaves no trace."""
    same("the incarnation after nothing", await store.append("s", 0, []), "")
    same("the incarnation after nothing about something", await store.append("s", 0, [], b"about"), "")
    same("the sessions", list(await store.list()), [])
    await store.append("s", 0, [b"a"])
    before = await _told(store)
    await store.append("s", 1, [])
    same("what is listed after nothing more", await _told(store), before)
    same("the length in a conflict", await _refused(store, 0, []), 1)


async def an_entry_is_any_bytes(store: Store) -> None:
    """Entries are loaded as they were appended, byte by byte and as bytes."""
    await store.append("s", 0, [*ENTRIES, LARGE])
    await store.append("s", len(ENTRIES) + 1, [b"end"])
    for found, promised in zip(await _kept(store), [*ENTRIES, LARGE, b"end"], strict=True):
        same("an entry", found, promised)


async def a_session_has_any_name(store: Store) -> None:
    """Names that look alike, are empty, long or odd are different sessions."""
    names = [*ODD_NAMES, "n" * 3_000, "n" * 2_999]
    for name in names:
        await store.append(name, 0, [name.encode()])
    for name in names:
        same(f"the entries of {name!r}", await _kept(store, name), [name.encode()])
    same("the sessions", sorted(info.session for info in await store.list()), sorted(names))


async def sessions_share_nothing(store: Store) -> None:
    """Appending to many sessions at once keeps each one's own entries."""
    names = [f"s{number}" for number in range(12)]
    for length in range(3):
        rounds = (store.append(name, length, [f"{name} {length}".encode()]) for name in names)
        await asyncio.gather(*rounds)
    for name in names:
        promised = [f"{name} {length}".encode() for length in range(3)]
        same(f"the entries of {name}", await _kept(store, name), promised)


async def a_long_session_is_kept_whole(store: Store) -> None:
    """Thousands of entries, in one go and one by one, and what is behind most of them."""
    entries = [str(number).encode() for number in range(3_000)]
    await store.append("s", 0, entries)
    for number in range(3_000, 3_020):
        entries.append(str(number).encode())
        await store.append("s", number, entries[number:])
    same("its entries", await _kept(store), entries)
    same("its last entries", await _kept(store, "s", 2_990), entries[2_990:])


async def the_store_keeps_its_own_copy(store: Store) -> None:
    """A list that changes after it was appended changes nothing in the store."""
    entries = [b"a"]
    await store.append("s", 0, entries)
    entries.append(b"b")
    same("the entries", await _kept(store), [b"a"])


# Compare-and-set


async def a_writer_that_is_not_at_the_end_writes_nothing(store: Store) -> None:
    """An append that expects another length gets the real one in a conflict, and changes nothing."""
    same("the length of a session that is not there", await _refused(store, 1, [b"x"]), 0)
    same("the sessions", list(await store.list()), [])
    await store.append("s", 0, [b"a", b"b"], b"true")
    before = await _told(store)
    for expected in (-1, 0, 1, 3):
        same("the length in a conflict", await _refused(store, expected, [b"x"], b"false"), 2)
        same("the length in a conflict", await _refused(store, expected, [], b"false"), 2)
    same("the entries", await _kept(store), [b"a", b"b"])
    same("what is listed", await _told(store), before)


async def of_many_writers_at_once_one_goes_on(store: Store) -> None:
    """All entries of one writer are kept; the others get their number in a conflict."""
    several = [[f"{writer} {entry}".encode() for entry in range(4)] for writer in range(20)]
    tries = (store.append("s", 0, entries) for entries in several)
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, str)]
    same("how many of 20 writers went on", len(winners), 1)
    others = {getattr(outcome, "actual", 4) for outcome in outcomes}
    same("the lengths that are told", others, {4})
    same("the entries", await _kept(store), several[winners[0]])


async def a_reader_sees_an_append_whole_or_not_at_all(store: Store) -> None:
    """Also while the append is made, and together with the summary of the session."""
    await store.append("s", 0, [b"first"], b"1")
    writing = asyncio.create_task(store.append("s", 1, [b"second"] * 5, b"6"))
    for _ in range(10):
        await asyncio.sleep(0)
        length, info = len(await _kept(store)), await _told(store)
        if length not in {1, 6} or (info.length, info.about) not in {(1, b"1"), (6, b"6")}:
            broken("what is there while 5 are appended to 1", (length, info), "1 or 6")
    await writing
    same("the length in the end", len(await _kept(store)), 6)


# What is listed


async def _moved_on(store: Store, session: str) -> float:
    """Append to *session* until its time is later than before, and return that time."""
    before = await _told(store, session)
    for length in range(before.length, before.length + 2_000):
        await store.append(session, length, [b"x"])
        if (now := await _told(store, session)).updated > before.updated:
            same("when it was created", now.created, before.created)
            return now.updated
        await asyncio.sleep(0.001)  # a clock may be coarse
    return broken("the time of 2,000 appends one after the other", before.updated, "it goes on")


async def sessions_are_listed_last_written_first(store: Store) -> None:
    """With lengths and times; an append moves its session to the front."""
    for name in ("b", "c", "a"):
        await store.append(name, 0, [b"1", b"2"])
        await _moved_on(store, name)
    for name in ("b", "a", "c"):
        same("when it was written to", await _moved_on(store, name), (await _told(store, name)).updated)
        infos = list(await store.list())
        same("the session that is listed first", infos[0].session, name)
        times = [info.updated for info in infos]
        same("the times", times, sorted(times, reverse=True))
    for info in await store.list():
        same("the length that is listed", info.length, len(await _kept(store, info.session)))
        near = abs(info.created - time.time()) < DAY and info.created <= info.updated
        same(f"whether {info} tells seconds since the epoch", near, promised=True)


async def _paged(store: Store, size: int, prefix: str = "") -> list[SessionInfo]:
    """All sessions of *store*, read in pages of this *size*."""
    found: list[SessionInfo] = []
    page = list(await store.list(size, None, prefix))
    while page:
        same("whether a page has more than it should", len(page) > size, promised=False)
        stamps = [info.stamp for info in (*found[-1:], *page)]
        same("the stamps", stamps, sorted({*stamps}, reverse=True))
        found += page
        page = list(await store.list(size, page[-1].stamp, prefix))
    return found


async def a_list_comes_in_pages(store: Store) -> None:
    """Each page goes on behind a stamp, also where its session is gone. No stamp is given twice."""
    names = [f"s{number}" for number in range(7)]
    for name in (*names, "s2", "s2", "s4"):
        await store.append(name, 0 if (there := await store.info(name)) is None else there.length, [b"x"])
    order = ["s4", "s2", "s6", "s5", "s3", "s1", "s0"]
    for size in (1, 2, 7, 9):
        paged = [info.session for info in await _paged(store, size)]
        same(f"the sessions in pages of {size}", paged, order)
    stamps = [info.stamp for info in await store.list()]
    same("a page of none", list(await store.list(0)), [])
    for name in ("s4", "s3"):
        await store.delete(name)
    await store.append("new", 0, [b"x"])
    front, *_ = await store.list(1)
    same("the session that was written last", front.session, "new")
    same("whether its stamp is above all before", front.stamp > stamps[0], promised=True)
    rest = [info.session for info in await store.list(9, stamps[4])]
    same("the sessions behind one that is gone", rest, order[5:])


async def a_list_may_be_of_names_that_begin_alike(store: Store) -> None:
    """Letter by letter, and in pages."""
    names = ["a", "a.", "a.1", "a.\0", "a.1.2", "a.􏿿", "ab", "A.", "a*", "a_", "b"]
    for name in names:
        await store.append(name, 0, [b"x"])
    for prefix in ("a.", "a", "", "a.1", "a*", "a_", "%", "a.􏿿", "c"):
        promised = [name for name in reversed(names) if name.startswith(prefix)]
        found = [info.session for info in await store.list(prefix=prefix)]
        same(f"the sessions that begin with {prefix!r}", found, promised)
        paged = [info.session for info in await _paged(store, 2, prefix)]
        same(f"the sessions that begin with {prefix!r}, in pages", paged, promised)


async def one_session_is_told_as_in_the_list(store: Store) -> None:
    """Also by a name that others begin with; None where it is not there."""
    for name in ("a", "b", "ab", "a.b"):
        await store.append(name, 0, [b"x"], name.encode())
    for promised in await store.list():
        found = await store.info(promised.session)
        same("a session", found, promised)
        same("its stamp", found and found.stamp, promised.stamp)
    same("a session that is not there", await store.info("a."), None)
    await store.delete("a")
    same("a session that was deleted", await store.info("a"), None)


async def a_session_is_about_what_was_said_last(store: Store) -> None:
    """The summary is kept with the entries; an append without one leaves the one before."""
    promised = b""
    for length, about in enumerate((None, b"one", None, bytes(range(256)), b"", LARGE)):
        promised = promised if about is None else about
        await store.append("s", length, [b"x"], about)
        same("what it is about", (await _told(store)).about, promised)
    await store.append("new", 0, [b"x"], b"from the first")
    same("what a new one is about", (await _told(store, "new")).about, b"from the first")
    same("what the other is about", (await _told(store)).about, LARGE)


async def what_a_session_is_about_may_change_by_itself(store: Store) -> None:
    """A summary without entries changes neither the length nor the times of the session."""
    await store.append("s", 0, [b"1"], b"one")
    before = await _told(store)
    await asyncio.sleep(0.002)
    await store.append("s", 1, [], b"two")
    after = await _told(store)
    same("what it is about", after.about, b"two")
    same("its times", (after.created, after.updated), (before.created, before.updated))
    same("its entries", await _kept(store), [b"1"])


async def a_deleted_session_is_gone_and_may_come_again(store: Store) -> None:
    """`delete` removes one session and no other; its name can be used again."""
    for name in ("a", "ab", "b"):
        await store.append(name, 0, [b"old", b"older"], b"about")
    same("whether it was deleted", await store.delete("a"), promised=True)
    same("whether it was deleted again", await store.delete("a"), promised=False)
    known = await store.append("c", 0, [b"old"])
    same("whether the one that is known was deleted", await store.delete("c", known), promised=True)
    same("its entries", await _kept(store, "a"), [])
    same("the sessions", sorted(info.session for info in await store.list()), ["ab", "b"])
    await store.append("a", 0, [b"new"])
    same("what a new one is about", (await _told(store, "a")).about, b"")
    same("its entries", await _kept(store, "a"), [b"new"])
    for name in ("ab", "b"):
        same("the entries of another", await _kept(store, name), [b"old", b"older"])


# Incarnations


async def a_session_keeps_its_incarnation(store: Store) -> None:
    """It gets one with its first entry, a text that is not empty, and is told it by each method."""
    first = await store.append("s", 0, [b"a"])
    same("the type of an incarnation, and whether it is empty", (type(first), first == ""), (str, False))
    same("the incarnation", await store.append("s", 1, [b"b"], None, first), first)
    same("the incarnation for one that names none", await store.append("s", 2, [b"c"]), first)
    same("the incarnation that is loaded", (await store.load("s")).incarnation, first)
    behind = await store.load("s", 3, None, first)
    same("the incarnation that is loaded at the end", behind.incarnation, first)
    same("the incarnation that is listed", (await _told(store)).incarnation, first)
    same("the entries", list(await store.load("s", 1, None, first)), [b"b", b"c"])
    same("the incarnation of no session", (await store.load("t")).incarnation, "")
    same("whether that of another is another", await store.append("t", 0, [b"a"]) != first, promised=True)
    same("the length in a conflict", await _refused(store, 1, [b"x"]), 3)


async def of_a_deleted_session_all_that_knew_it_are_told(store: Store) -> None:
    """Also where another one has its name, with as many entries; nothing is read or written then."""
    more: list[tuple[Callable[..., Awaitable[object]], tuple[object, ...]]] = []
    if store.keeps_leases:
        more.append((store.lease, (None, b"mine")))
    if store.keeps_checkpoints:
        more += [(store.keep_checkpoint, (1, b"x", 1)), (store.checkpoints, ())]
    known: set[str] = set()
    for number in range(4):
        incarnation = await store.append("s", 0, [b"old", b"older"])
        same("whether an incarnation was there before", incarnation in known, promised=False)
        known.add(incarnation)
        await store.delete("s")
        if number % 2:
            await store.append("s", 0, [b"new", b"newer"], b"about")
        before = await _everything(store)
        calls: list[tuple[Callable[..., Awaitable[object]], tuple[object, ...]]] = [
            (store.append, (2, [b"x"], b"x")),
            (store.append, (2, [], b"x")),
            (store.append, (0, [b"x"], None)),
            (store.load, (0, None)),
            (store.load, (0, 1)),
            (store.load, (2, None)),
            (store.delete, ()),
            *more,
        ]
        for call, given in calls:
            try:
                found = await call("s", *given, incarnation)
            except SessionGone as gone:
                same("what is said of it", (gone.session, gone.begun_anew), ("s", bool(number % 2)))
            else:
                broken(f"{call.__name__} of a deleted session with {given}", found, SessionGone)
        same("what is kept", await _everything(store), before)
        same("its lease", await store.lease("s", None, None), None)
        await store.delete("s")


# News, of a store that tells them


async def _news(store: Store, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, list[str]]:
    """The mark and the sessions, sorted, that `news` of *store* tells."""
    mark, found = await store.news(sessions, since)
    return mark, sorted({*found})


async def news_are_of_what_was_written_or_deleted(store: Store) -> None:
    """By name, after a mark; also where a session goes on by itself, is begun anew or was never there."""
    if not store.tells_news:
        return
    names = ("a", "b", "c", "none")
    # The first mark may be of a store that has no session yet.
    mark, _ = await _news(store, names, None)
    for name in names[:3]:
        await store.append(name, 0, [b"1"])
        mark, found = await _news(store, names, mark)
        same(f"whether {name!r} was begun", name in found, promised=True)
    same("the news of nothing", (await _news(store, names, mark))[1], [])
    for written, promised in (("c", ["c"]), ("a", ["a"]), ("a", ["a"]), ("b", ["b"])):
        length = len(await _kept(store, written))
        await store.append(written, length, [b"more"])
        same("the news to who does not ask for it", (await _news(store, ("none",), mark))[1], [])
        mark, found = await _news(store, names, mark)
        same(f"the news after {written!r} was written to", found, promised)
    for deleted in ("b", "a"):  # the last one written to, and another
        await store.delete(deleted)
        mark, found = await _news(store, names[:3], mark)
        same(f"whether {deleted!r} was deleted", deleted in found, promised=True)
    await store.delete("c")
    await store.append("c", 0, [b"anew"])
    mark, found = await _news(store, names, mark)
    same("whether 'c' was begun anew", "c" in found, promised=True)


# Seconds in which work that was left behind would show.
LATER = 0.05


async def _everything(store: Store) -> dict[str, tuple[SessionInfo, list[bytes]]]:
    """The line in the list and the entries of each session."""
    return {info.session: (info, await _kept(store, info.session)) for info in await store.list()}


# While it is open


async def a_closed_store_says_so(store: Store) -> None:
    """Each of its methods raises `StoreError`; closing it again, also at the same time, is fine."""
    await store.append("s", 0, [b"a"])
    await asyncio.gather(store.close(), store.close())
    await store.close()
    calls: dict[str, tuple[object, ...]] = {
        "append": ("s", 1, [b"b"]),
        "load": ("s",),
        "list": (),
        "info": ("s",),
        "delete": ("s",),
    }
    if store.keeps_leases:
        calls |= {"lease": ("s", None, b"mine"), "renew": ({"s": (b"a", b"b")},), "leases": ()}
    if store.keeps_meters:
        calls["meter"] = ("m", None, b"mine")
    if store.keeps_deadlines:
        calls |= {"set_deadline": ("s", 1.0), "overdue": (1.0,)}
    if store.keeps_time:
        calls["time"] = ()
    if store.keeps_checkpoints:
        calls |= {"keep_checkpoint": ("s", 1, b"x", 1), "checkpoints": ("s",)}
    if store.tells_news:
        calls["news"] = (("s",), None)
    if store.calls_on_news:
        calls["on_news"] = (lambda _: None,)
    for name, given in calls.items():
        try:
            found = getattr(store, name)(*given)
            found = await found if isawaitable(found) else found
        except StoreError:
            continue
        broken(f"{name} of a closed store", found, StoreError)


async def closing_comes_after_what_was_asked_before(store: Store) -> None:
    """Appends that are under way are done by then, and have succeeded."""
    writing = [asyncio.create_task(store.append("s", length, [b"x"])) for length in range(5)]
    await asyncio.sleep(0)
    await store.close()
    done = [task.done() for task in writing]
    same("which appends are over when it is closed", done, [True] * 5)
    same("how they went", [task.exception() for task in writing], [None] * 5)


async def a_cancelled_append_is_kept_or_never_will_be(store: Store) -> None:
    """When the cancellation is raised, the append is kept or never will be. The store still works."""
    for turns in range(12):
        session = f"s{turns}"
        await store.append(session, 0, [b"first"])
        writing = asyncio.create_task(store.append(session, 1, [b"second"] * 3))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        at_once = len(await _kept(store, session))
        if at_once not in {1, 4} or (at_once == 1 and not writing.cancelled()):
            broken("what is kept of 3 entries behind 1, appended and cancelled", at_once, "1 or 4")
        await asyncio.sleep(LATER if turns % 4 == 1 else 0)
        same("what is kept of it later", len(await _kept(store, session)), at_once)
        await store.append(session, at_once, [b"x"])


async def a_long_history_is_as_it_was_told(store: Store) -> None:
    """After any appends, conflicts, deletions and summaries in any order, each session is as expected."""
    draw = random.Random(7)  # noqa: S311  # the same in each run
    promised: dict[str, list[bytes]] = {}
    about: dict[str, bytes] = {}
    for number in range(250):
        session = draw.choice("abcd")
        length = len(promised.get(session, ()))
        said = draw.choice([None, str(number).encode()])
        match draw.randrange(8):
            case 0:
                same("whether it was deleted", await store.delete(session), promised=bool(length))
                promised.pop(session, None)
                about.pop(session, None)
            case 1:
                with suppress(StoreConflict):
                    wrong = length + draw.choice([-1, 1, 2])
                    broken("a wrong length", await store.append(session, wrong, [b"x"]), "refused")
            case 2:
                await store.append(session, length, [], said)
                if length and said is not None:
                    about[session] = said
            case _:
                added = [f"{number} {one}".encode() for one in range(draw.randrange(1, 5))]
                await store.append(session, length, added, said)
                promised.setdefault(session, []).extend(added)
                about[session] = about.get(session, b"") if said is None else said
        start, end = draw.randrange(length + 1), draw.choice([None, draw.randrange(length + 2)])
        part = [*await store.load(session, start, end)]
        same("what is loaded", part, promised.get(session, [])[start:end])
    found = await _everything(store)
    same("what is kept", {name: entries for name, (_, entries) in found.items()}, promised)
    same("what it is about", {name: info.about for name, (info, _) in found.items()}, about)
    same("the lengths", [info.length for info, _ in found.values()], [len(promised[name]) for name in found])


# Until it is opened again


async def what_was_kept_is_there_when_it_is_opened_again(reopen: Opened) -> None:
    """With its times, summary and incarnation, without deleted sessions; and appends continue it."""
    store = await reopen()
    await store.append("s", 0, [b"a", b""], b"about")
    await store.append("t", 0, [b"x"])
    await store.append("gone", 0, [b"x"])
    await store.append("s", 2, [b"c"])
    await store.delete("gone")
    before = await _everything(store)
    await store.close()
    again = await reopen()
    same("what is kept", await _everything(again), before)
    await again.append("s", 3, [b"d"])
    same("its entries", await _kept(again), [b"a", b"", b"c", b"d"])


async def what_was_cancelled_is_there_or_not_when_it_is_opened_again(reopen: Opened) -> None:
    """As it was when the cancellation was raised."""
    store = await reopen()
    writing = [asyncio.create_task(store.append(f"s{number}", 0, [b"x"])) for number in range(8)]
    await asyncio.sleep(0)
    for task in writing:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    before = await _everything(store)
    await store.close()
    same("what is kept", await _everything(await reopen()), before)


# For others at the same time


async def what_returned_is_there_for_others(share: Opened) -> None:
    """An append, also one of a summary alone, is kept when it returns, not when the store closes."""
    store, other = await share(), await share()
    for length in range(5):
        await store.append("s", length, [b"x"], str(length).encode())
        same("what another one loads", len(await _kept(other)), length + 1)
        same("what another one lists", (await _told(other)).about, str(length).encode())
        same("what a new one loads", len(await _kept(await share())), length + 1)
    await store.append("s", 5, [], b"told")
    same("what another one lists", (await _told(other)).about, b"told")
    await store.delete("s")
    same("what another one lists", list(await other.list()), [])


async def of_writers_in_many_stores_one_goes_on(share: Opened) -> None:
    """Comparing the length and writing are one step, also for stores that are open at the same time."""
    opened = [await share() for _ in range(6)]
    for length in range(0, 9, 3):
        tries = (store.append("s", length, [f"{n}".encode()] * 3) for n, store in enumerate(opened))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        winners = [
            str(number).encode() for number, outcome in enumerate(outcomes) if isinstance(outcome, str)
        ]
        same("how many of 6 writers went on", len(winners), 1)
        others = {type(outcome) for outcome in outcomes if not isinstance(outcome, str)}
        same("what the others are told", others, {StoreConflict})
        same("the last entries", await _kept(opened[length % 6], "s", length), winners * 3)


async def what_others_write_is_told(share: Opened) -> None:
    """To each store that is open, at once."""
    store, other = await share(), await share()
    if not store.tells_news:
        return
    await other.append("s", 0, [b"a"])
    mark, _ = await _news(store, ("s", "t"), None)
    for length in (1, 2):
        await other.append("s", length, [b"b"])
        mark, found = await _news(store, ("s", "t"), mark)
        same("what was written to by another", found, ["s"])
    await other.append("t", 0, [b"x"])
    same("what was begun by another", (await _news(store, ("s", "t"), mark))[1], ["t"])


# Seconds within which a store has called, and writings until one that is no longer listened to is not called.
CALLED_WITHIN, MOST_CALLED = 10.0, 20


async def who_listens_is_called_where_another_one_wrote(share: Opened) -> None:
    """From any thread, with what is true of that session, until they listen no more."""
    store, other = await share(), await share()
    if not store.calls_on_news:
        return
    loop, calls = asyncio.get_running_loop(), asyncio.Queue[Callable[[str], bool]]()
    stop = store.on_news(lambda concerns: loop.call_soon_threadsafe(calls.put_nowait, concerns))
    for session in ("s", "t"):
        heard = await _heard(other, session, calls)
        same(f"whether it called where {session!r} was written to", heard, promised=True)
    stop()
    for length in range(MOST_CALLED):
        await other.append("u", length, [b"x"])
        # One that was under way may still come.
        await asyncio.sleep(LATER)
        if calls.empty():
            return
        while not calls.empty():
            calls.get_nowait()
    broken(f"how often it called after it was told to stop, of {MOST_CALLED} times", MOST_CALLED, 0)


async def _heard(writer: Store, session: str, calls: asyncio.Queue[Callable[[str], bool]]) -> bool:
    """Whether a call concerns *session*, which *writer* writes to until then."""
    length, until = 0, time.monotonic() + CALLED_WITHIN
    # It may take a moment until it listens, and a call may be lost.
    while time.monotonic() < until:
        await writer.append(session, length, [b"x"])
        length += 1
        with suppress(TimeoutError):
            async with asyncio.timeout(LATER):
                concerns = await calls.get()
            if concerns(session):
                return True
    return False


async def many_may_make_the_place_at_once(share: Opened) -> None:
    """Stores that are opened first, at the same time, all have the same contents."""
    opened = [await share() for _ in range(6)]
    await asyncio.gather(*(store.append(f"s{number}", 0, [b"x"]) for number, store in enumerate(opened)))
    for store in opened:
        same("the sessions", sorted(one.session for one in await store.list()), [f"s{n}" for n in range(6)])


_LASTS = {"store": Lasts.WHILE_OPEN, "reopen": Lasts.REOPENED, "share": Lasts.SHARED}

# All promises above. As with fixtures of pytest, the name of its parameter says what one needs.
CHECKS = tuple(
    [
        Check(name.replace("_", " "), _LASTS[next(iter(signature(promise).parameters))], promise)
        for name, promise in list(globals().items())
        if iscoroutinefunction(promise) and not name.startswith("_")
    ]
)
