"""What the checks of a store are worth: a mistake is found, and by the check that is about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, final

import attrs
import pytest

from turnwheel import MemoryStore
from turnwheel.effects.errors import StoreConflict, StoreError
from turnwheel.performers.stores.base import SessionInfo, Store
from turnwheel.testing.store_contract import (
    BrokenStore,
    Check,
    Lasts,
    checks,
    survives_kill,
)
from turnwheel.testing.stores import StoreOver


@final
@attrs.frozen
class New:
    """What is to be appended."""

    session: str
    expected: int
    entries: Sequence[bytes]
    about: bytes | None

    async def to(self, store: Store, **otherwise: Any) -> int:
        """Append it to *store*, in part *otherwise*."""
        new = attrs.evolve(self, **otherwise)
        return await store.append(new.session, new.expected, new.entries, new.about)

    @property
    def length(self) -> int:
        """The length that is promised."""
        return self.expected + len(self.entries)


Mistake = Callable[..., Awaitable[Any]]
"""What a method does instead: it is handed the store below, and what it was asked."""


class Mistaken(StoreOver):
    """
    A store that does *instead* of what it is asked in one method or more, and else what it should.

    Only this one is closed, not the one below, which others use too. *memo* is for the mistake to use.
    """

    def __init__(self, kept: Store, instead: dict[str, Mistake]) -> None:
        super().__init__(kept)
        self.instead = instead
        self.memo: dict[str, Any] = {}
        self.closed = False

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """As a store does, or instead."""
        new = New(session, expected, entries, about)
        return int(await self._or("append", new.to, new))

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """As a store does, or instead."""
        loaded: Sequence[bytes] = await self._or(
            "load", lambda kept: kept.load(session, start), session, start
        )
        return loaded

    async def list(self) -> Sequence[SessionInfo]:
        """As a store does, or instead."""
        listed: Sequence[SessionInfo] = await self._or("list", lambda kept: kept.list())
        return listed

    async def delete(self, session: str) -> bool:
        """As a store does, or instead."""
        return bool(await self._or("delete", lambda kept: kept.delete(session), session))

    async def close(self) -> None:
        """As a store does, or instead."""
        if "close" in self.instead:
            await self.instead["close"](self)
        else:
            self.closed = True

    async def _or(self, method: str, properly: Callable[[Store], Awaitable[Any]], *asked: object) -> Any:
        if self.closed:
            msg = "it is closed"
            raise StoreError(msg)
        return await (self.instead[method](self, *asked) if method in self.instead else properly(self.kept))


# What may be wrong: each takes the store that it is a mistake of, and what was asked


async def loses_an_entry(store: Mistaken, new: New) -> int:
    """Of several entries the last is not kept."""
    await new.to(store.kept, entries=new.entries[: max(len(new.entries) - 1, 1)])
    return new.length


async def loses_the_empty(store: Mistaken, new: New) -> int:
    """An entry without bytes is taken for none."""
    return await new.to(store.kept, entries=[entry for entry in new.entries if entry])


async def turns(store: Mistaken, new: New) -> int:
    """The entries of one append are put the other way round."""
    return await new.to(store.kept, entries=new.entries[::-1])


async def keeps_lines(store: Mistaken, new: New) -> int:
    """What a line ends with is cut off."""
    return await new.to(store.kept, entries=[entry.rstrip(b"\r\n") for entry in new.entries])


async def keeps_the_beginning(store: Mistaken, new: New) -> int:
    """A column has an end."""
    return await new.to(store.kept, entries=[entry[:65_535] for entry in new.entries])


async def gives_text(store: Mistaken, session: str, start: int) -> list[bytes]:
    """Entries are taken for text."""
    return [entry.decode(errors="replace").encode() for entry in await store.kept.load(session, start)]


async def gives_nearly_bytes(store: Mistaken, session: str, start: int) -> list[Any]:
    """A driver has its own idea of bytes."""
    return [bytearray(entry) for entry in await store.kept.load(session, start)]


async def adds_anywhere(store: Mistaken, new: New) -> int:
    """Nothing is compared."""
    return await new.to(store.kept, expected=len(await store.kept.load(new.session)))


async def takes_fewer(store: Mistaken, new: New) -> int:
    """Only those are refused who are ahead."""
    return await new.to(store.kept, expected=max(new.expected, len(await store.kept.load(new.session))))


async def takes_nothing(store: Mistaken, new: New) -> int:
    """Where there is nothing to add nothing is compared."""
    return await new.to(store.kept) if new.entries or new.about is not None else new.expected


async def says_anything(store: Mistaken, new: New) -> int:
    """The length that was expected is told as the real one."""
    try:
        return await new.to(store.kept)
    except StoreConflict as conflict:
        raise StoreConflict(new.session, new.expected, new.expected) from conflict


async def looks_before(store: Mistaken, new: New) -> int:
    """It is compared first, and written later."""
    if (actual := len(await store.kept.load(new.session))) != new.expected:
        raise StoreConflict(new.session, new.expected, actual)
    await asyncio.sleep(0)
    return await adds_anywhere(store, new)


async def writes_one_by_one(store: Mistaken, new: New) -> int:
    """Each of several entries is kept by itself."""
    length = await new.to(store.kept, entries=new.entries[:1])
    for entry in new.entries[1:]:
        await asyncio.sleep(0)
        length = await new.to(store.kept, expected=length, entries=[entry], about=None)
    return length


async def tells_later(store: Mistaken, new: New) -> int:
    """What the session is about comes after the entries."""
    length = await new.to(store.kept, about=None)
    await asyncio.sleep(0)
    return await new.to(store.kept, expected=length, entries=())


async def keeps_later(store: Mistaken, new: New) -> int:
    """It returns, and then keeps what it was given."""
    actual = len(await store.kept.load(new.session))
    if actual != new.expected:
        raise StoreConflict(new.session, new.expected, actual)
    store.memo[f"{len(store.memo)}"] = asyncio.create_task(new.to(store.kept))
    return new.length


async def keeps_although_cancelled(store: Mistaken, new: New) -> int:
    """It goes on when whoever gave it something is told that it does not."""

    async def later() -> int:
        await asyncio.sleep(0.01)
        return await new.to(store.kept)

    store.memo[f"{len(store.memo)}"] = task = asyncio.create_task(later())
    return await asyncio.shield(task)


async def closes_when_that_is_done(store: Mistaken) -> None:
    """What was begun is kept in the end."""
    await asyncio.gather(*store.memo.values(), return_exceptions=True)
    store.closed = True


async def takes_its_time(store: Mistaken, new: New) -> int:
    """It is closed while something is under way."""
    await asyncio.sleep(0.001)
    if store.closed:
        msg = "it was closed meanwhile"
        raise StoreError(msg)
    return await new.to(store.kept)


async def counts_from_the_end(store: Mistaken, session: str, start: int) -> Sequence[bytes]:
    """A start below 0 is that of a list."""
    return (await store.kept.load(session))[start:]


async def starts_one_later(store: Mistaken, session: str, start: int) -> Sequence[bytes]:
    """The entry that is asked for is left out."""
    return await store.kept.load(session, start + 1 if start > 0 else start)


async def gives_its_own(store: Mistaken, session: str, start: int) -> Sequence[bytes]:
    """The list that it gives is the one that it has."""
    mine: list[bytes] = store.memo.setdefault(session, list(await store.kept.load(session)))
    return mine[start:] if start > 0 else mine


async def forgets(store: Mistaken, new: New) -> int:
    """Where nothing is said, a session is about nothing."""
    return await new.to(store.kept, about=new.about or b"")


async def keeps_the_first(store: Mistaken, new: New) -> int:
    """A session is about what was said first."""
    return await new.to(store.kept, about=None if new.expected else new.about)


async def counts_what_is_said(store: Mistaken, new: New) -> int:
    """Saying something takes an entry."""
    store.memo["said"] = store.memo.get("said", 0) + (not new.entries)
    return await new.to(store.kept)


async def lists_that_as_written(store: Mistaken) -> list[SessionInfo]:
    """The session was written to when something was said about it."""
    said = store.memo.get("said", 0)
    return [attrs.evolve(info, updated=info.updated + said) for info in await store.kept.list()]


async def remembers_who_asked(store: Mistaken, new: New) -> int:
    """A session is there as soon as anybody asks for it."""
    store.memo[new.session] = SessionInfo(session=new.session, length=0, created=0, updated=0)
    return await new.to(store.kept)


async def lists_who_asked(store: Mistaken) -> list[SessionInfo]:
    """Those too."""
    there = {info.session: info for info in await store.kept.list()}
    return list((store.memo | there).values())


async def deletes_nothing(store: Mistaken, session: str) -> bool:
    """It says that it did."""
    return bool(await store.kept.load(session))


async def deletes_more(store: Mistaken, session: str) -> bool:
    """All that begin alike are gone."""
    found = [info.session for info in await store.kept.list() if info.session.startswith(session)]
    return any([await store.kept.delete(name) for name in found])


async def says_yes(store: Mistaken, session: str) -> bool:
    """There was always something to delete."""
    return await store.kept.delete(session) or True


async def stays_open(_: Mistaken) -> None:
    """Closing does nothing."""


async def complains(store: Mistaken) -> None:
    """It may be closed once."""
    if store.closed:
        msg = "it is closed already"
        raise StoreError(msg)
    store.closed = True


def named(name: Callable[[str], str]) -> dict[str, Mistake]:
    """Names are taken for others."""

    async def append(store: Mistaken, new: New) -> int:
        return await new.to(store.kept, session=name(new.session))

    async def load(store: Mistaken, session: str, start: int) -> Sequence[bytes]:
        return await store.kept.load(name(session), start)

    return {"append": append, "load": load}


def listed(change: Callable[[list[SessionInfo]], Sequence[SessionInfo]]) -> dict[str, Mistake]:
    """The list is another."""

    async def list_(store: Mistaken) -> Sequence[SessionInfo]:
        return change(list(await store.kept.list()))

    return {"list": list_}


def each(**change: Callable[[SessionInfo], float]) -> dict[str, Mistake]:
    """Something else is listed of each session."""

    def changed(info: SessionInfo) -> SessionInfo:
        fields: dict[str, Any] = {field: of(info) for field, of in change.items()}
        return attrs.evolve(info, **fields)

    return listed(lambda infos: [changed(info) for info in infos])


LISTED = "sessions are listed last written first"
BYTES = "an entry is any bytes"
ENDS = "a writer that is not at the end writes nothing"
WHOLE = "a reader sees an append whole or not at all"
ABOUT = "a session is about what was said last"
DELETED = "a deleted session is gone and may come again"
NAMES = "a session has any name"

MISTAKES: dict[str, tuple[str, dict[str, Mistake]]] = {
    "loses an entry": ("entries come back in order", {"append": loses_an_entry}),
    "loses the empty": (BYTES, {"append": loses_the_empty}),
    "turns entries": ("entries come back in order", {"append": turns}),
    "keeps lines": (BYTES, {"append": keeps_lines}),
    "keeps the beginning": (BYTES, {"append": keeps_the_beginning}),
    "gives text": (BYTES, {"load": gives_text}),
    "gives nearly bytes": (BYTES, {"load": gives_nearly_bytes}),
    "adds anywhere": (ENDS, {"append": adds_anywhere}),
    "takes fewer": (ENDS, {"append": takes_fewer}),
    "takes nothing": ("a session is there once it has an entry", {"append": takes_nothing}),
    "says anything": (ENDS, {"append": says_anything}),
    "looks before": ("of many writers at once one goes on", {"append": looks_before}),
    "writes one by one": (WHOLE, {"append": writes_one_by_one}),
    "tells later": (WHOLE, {"append": tells_later}),
    "keeps later": ("entries come back in order", {"append": keeps_later}),
    "keeps although cancelled": (
        "a cancelled append is kept or never will be",
        {"append": keeps_although_cancelled, "close": closes_when_that_is_done},
    ),
    "closes at once": ("closing comes after what was asked before", {"append": takes_its_time}),
    "counts from the end": ("loading starts anywhere", {"load": counts_from_the_end}),
    "starts one later": ("loading starts anywhere", {"load": starts_one_later}),
    "gives its own": ("the store keeps its own copy", {"load": gives_its_own}),
    "names in any case": (NAMES, named(str.lower)),
    "names without blanks": (NAMES, named(str.strip)),
    "short names": (NAMES, named(lambda name: name[:255])),
    "names end at a nul": (NAMES, named(lambda name: name.partition("\0")[0])),
    "last first": (LISTED, listed(lambda infos: infos[::-1])),
    "by name": (LISTED, listed(lambda infos: sorted(infos, key=lambda info: info.session))),
    "twice": (NAMES, listed(lambda infos: infos * 2)),
    "milliseconds": (LISTED, each(created=lambda info: info.created * 1000)),
    "made anew": (LISTED, each(created=lambda info: info.updated)),
    "one too many": (LISTED, each(length=lambda info: info.length + 1)),
    "forgets": (ABOUT, {"append": forgets}),
    "keeps the first": (ABOUT, {"append": keeps_the_first}),
    "writes to tell": (
        "what a session is about may change by itself",
        {"append": counts_what_is_said, "list": lists_that_as_written},
    ),
    "leaves a trace": (
        "a session is there once it has an entry",
        {"append": remembers_who_asked, "list": lists_who_asked},
    ),
    "deletes nothing": (DELETED, {"delete": deletes_nothing}),
    "deletes more": (DELETED, {"delete": deletes_more}),
    "says yes": ("an unknown session is empty", {"delete": says_yes}),
    "stays open": ("a closed store says so", {"close": stays_open}),
    "complains": ("a closed store says so", {"close": complains}),
}
"""What a store does instead of what it should, and the check that is there to find it."""


async def found_by(check: Check, opens: Callable[[], Store]) -> str:
    """What *check* finds, or nothing."""
    try:
        await check(opens)
    except (BrokenStore, StoreError, StoreConflict) as found:
        return str(found)
    return ""


CHECKS = {check.name: check for check in checks()}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_is_found(mistake: str) -> None:
    """Where a store does otherwise in one thing, the check of this thing says so."""
    name, instead = MISTAKES[mistake]
    assert CHECKS[name].lasts is Lasts.WHILE_OPEN
    assert await found_by(CHECKS[name], lambda: Mistaken(MemoryStore(), instead))
    assert not await found_by(CHECKS[name], lambda: Mistaken(MemoryStore(), {}))


# The same of what is opened again, and of what others have open


async def writes_when_closed(store: Mistaken, new: New) -> int:
    """What is appended stays here until it is closed."""
    mine = await gives_what_is_here(store, new.session, 0)
    if len(mine) != new.expected:
        raise StoreConflict(new.session, new.expected, len(mine))
    store.memo.setdefault(new.session, []).extend(new.entries)
    return new.length


async def gives_what_is_here(store: Mistaken, session: str, start: int) -> Sequence[bytes]:
    """What is kept and what will be."""
    return [*await store.kept.load(session), *store.memo.get(session, ())][max(start, 0) :]


async def writes_then(store: Mistaken) -> None:
    """It is closed, and now all is kept."""
    store.closed = True
    for session, entries in store.memo.items():
        await store.kept.append(session, len(await store.kept.load(session)), entries)
    store.memo.clear()


async def compares_what_it_remembers(store: Mistaken, new: New) -> int:
    """The length is that of the last time."""
    remembered = store.memo.get(new.session, 0)
    if remembered != new.expected:
        raise StoreConflict(new.session, new.expected, remembered)
    await adds_anywhere(store, new)
    store.memo[new.session] = new.length
    return new.length


async def makes_the_place_anew(store: Mistaken, new: New) -> int:
    """Where nothing was there a moment ago."""
    if not await store.kept.list():
        await asyncio.sleep(0)
        for info in await store.kept.list():
            await store.kept.delete(info.session)
    return await new.to(store.kept)


async def closes_in_between(store: Mistaken) -> None:
    """What goes on although it was cancelled is kept before it is closed."""
    await asyncio.sleep(0.02)
    store.closed = True


LASTING: dict[str, tuple[str, dict[str, Mistake]]] = {
    "keeps although cancelled": (
        "what was cancelled is there or not when it is opened again",
        {"append": keeps_although_cancelled, "close": closes_in_between},
    ),
    "writes when closed": (
        "what returned is there for others",
        {"append": writes_when_closed, "load": gives_what_is_here, "close": writes_then},
    ),
    "compares what it remembers": (
        "of writers in many stores one goes on",
        {"append": compares_what_it_remembers},
    ),
    "makes the place anew": ("many may make the place at once", {"append": makes_the_place_anew}),
}


@pytest.mark.parametrize("mistake", LASTING)
async def test_a_mistake_of_one_that_lasts_is_found(mistake: str) -> None:
    """Closing, opening and using it together is part of what is checked."""
    name, instead = LASTING[mistake]
    place, sound = MemoryStore(), MemoryStore()
    assert await found_by(CHECKS[name], lambda: Mistaken(place, instead))
    assert not await found_by(CHECKS[name], lambda: Mistaken(sound, {}))


REOPENED = "what was kept is there when it is opened again"


async def test_one_that_begins_anew_is_found() -> None:
    """A store that keeps nothing when it is closed cannot be opened again."""
    assert await found_by(CHECKS[REOPENED], MemoryStore)
    sound = MemoryStore()
    assert not await found_by(CHECKS[REOPENED], lambda: Mistaken(sound, {}))


def test_each_promise_is_broken_by_a_mistake() -> None:
    """Nothing is checked that none of these fails, save what says again in other words what others say."""
    broken = {name for name, _ in (*MISTAKES.values(), *LASTING.values())} | {REOPENED}
    again = {"a long session is kept whole", "a long history is as it was told", "sessions share nothing"}
    assert CHECKS.keys() - broken == again


# What is told


async def test_what_is_found_says_what_was_promised() -> None:
    """An error names the matter, what was found and what was promised, each of bounded length."""
    found = await found_by(
        CHECKS["entries come back in order"], lambda: Mistaken(MemoryStore(), {"append": turns})
    )
    assert found == ("what is loaded: [b'b', b'a', b'c'], and promised is [b'a', b'b', b'c']")
    cut: dict[str, Mistake] = {"append": keeps_the_beginning}
    found = await found_by(CHECKS[BYTES], lambda: Mistaken(MemoryStore(), cut))
    assert "... (3,200,003 characters)" in found
    assert len(found) < 600


async def test_a_store_may_take_its_time_to_open() -> None:
    """What opens it may be a coroutine."""

    async def opened() -> Store:
        await asyncio.sleep(0)
        return MemoryStore()

    for check in checks(Lasts.WHILE_OPEN):
        await check(opened)


# Processes that are killed


BUFFERS = """
import asyncio
from turnwheel import MemoryStore, SQLiteStore
from turnwheel.testing.stores import StoreOver


class Buffers(StoreOver):
    'Writes what it was given a little later.'

    def __init__(self, path):
        super().__init__(SQLiteStore(path, "process"))
        self.mine, self.later = MemoryStore(), {}

    async def append(self, session, expected, entries, about=None):
        if not await self.mine.load(session):
            await self.mine.append(session, 0, await self.kept.load(session))
        self.later.setdefault(session, []).extend(entries)
        if len(self.later[session]) > 20:
            there = await self.kept.load(session)
            await self.kept.append(session, len(there), self.later.pop(session))
        return await self.mine.append(session, expected, entries, about)


class Halves(StoreOver):
    'Writes several entries one by one.'

    def __init__(self, path):
        super().__init__(SQLiteStore(path, "process"))

    async def append(self, session, expected, entries, about=None):
        for number, entry in enumerate(entries, expected):
            await self.kept.append(session, number, [entry])
            await asyncio.sleep(0.01)
        return expected + len(entries)
"""


@pytest.mark.parametrize(
    ("opens", "says"), [("Buffers", "entries are left more"), ("Halves", "whole appends")]
)
async def test_a_kill_finds_what_was_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str, says: str
) -> None:
    """A store that returns too early loses what had returned, and one that is not atomic keeps a part."""
    (tmp_path / "mistaken_stores.py").write_text(BUFFERS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BrokenStore, match=says):
        await survives_kill(f"mistaken_stores:{opens}", str(tmp_path / "agent.db"), kills=10)
