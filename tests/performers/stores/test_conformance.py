"""What the checks of a store are worth: a mistake is found, and by the check that is about it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel import MemoryStore
from turnwheel.effects.errors import StoreConflict, StoreError
from turnwheel.performers.stores.base import Entries, Hear, Mark, SessionInfo, Store
from turnwheel.testing import store_promises
from turnwheel.testing.store_contract import BrokenStore, Check, Lasts, checks, survives_kill
from turnwheel.testing.stores import StoreOver


class Mistaken(StoreOver):
    """
    A store that makes one *mistake*, a row of the tables below, and else does what it should.

    Only this one is closed, not the one below, which others use too. *memo* is for the mistake to use.
    """

    def __init__(self, kept: Store, mistake: str = "") -> None:
        super().__init__(kept)
        self.mistake = mistake
        if mistake.startswith("does not say that it "):
            setattr(self, mistake.rpartition(" ")[2], False)
        self.calls_on_news = mistake == "listens when closed"
        self.keeps_time = mistake == "tells milliseconds"
        self.memo: dict[str, Any] = {}
        self.closed = False

    def _open(self) -> None:
        if self.closed:
            msg = "it is closed"
            raise StoreError(msg)

    async def append(  # noqa: C901, PLR0911, PLR0912, PLR0915  # a case for each mistake
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        self._open()
        append, kept = self.kept.append, list(await self.kept.load(session))
        match self.mistake:
            case "loses an entry":
                entries = entries[: max(len(entries) - 1, 1)]
            case "loses the empty":
                entries = [entry for entry in entries if entry]
            case "turns entries":
                entries = entries[::-1]
            case "keeps lines":
                entries = [entry.rstrip(b"\r\n") for entry in entries]
            case "keeps the beginning":
                entries = [entry[:65_535] for entry in entries]
            case "adds anywhere":
                expected = len(kept)
            case "takes fewer":  # only those are refused who are ahead
                expected = max(expected, len(kept))
            case "takes nothing":  # where there is nothing to add nothing is compared
                if not entries and about is None:
                    return incarnation
            case "says anything":  # the length that was expected is told as the real one
                if expected != len(kept):
                    raise StoreConflict(session, expected, expected)
            case "sends all along":  # and not those behind the expected ones
                if expected != len(kept):
                    raise StoreConflict(session, expected, len(kept), kept)
            case "looks before":  # it is compared first, and written later
                compare(session, expected, kept)
                await asyncio.sleep(0)
                expected = len(await self.kept.load(session))
            case "writes one by one":
                there = await append(session, expected, entries[:1], about)
                for number, entry in enumerate(entries[1:], expected + 1):
                    await asyncio.sleep(0)
                    await append(session, number, [entry])
                return there
            case "tells later":  # what the session is about comes after the entries
                await append(session, expected, entries)
                await asyncio.sleep(0)
                return await append(session, expected + len(entries), (), about)
            case "keeps later":  # it returns, and then keeps what it was given
                compare(session, expected, kept)
                self._begin(append(session, expected, entries, about))
                return incarnation
            case "keeps although cancelled" | "closes in between":
                return await asyncio.shield(self._begin(self._later(session, expected, entries, about)))
            case "closes at once":
                await asyncio.sleep(0.001)
                self._open()
            case "names in any case" | "names without blanks" | "short names" | "names end at a nul":
                session = self._name(session)
            case "forgets":  # where nothing is said, a session is about nothing
                about = about or b""
            case "keeps the first":  # a session is about what was said first
                about = None if expected else about
            case "writes to tell":
                self.memo["said"] = self.memo.get("said", 0) + (not entries)
            case "leaves a trace":
                self.memo[session] = SessionInfo(session=session, length=0, created=0, updated=0, stamp=0)
            case "writes when closed":
                compare(session, expected, [*kept, *self.memo.get(session, ())])
                self.memo.setdefault(session, []).extend(entries)
                return incarnation
            case "compares what it remembers":
                if (remembered := self.memo.get(session, 0)) != expected:
                    raise StoreConflict(session, expected, remembered)
                self.memo[session] = expected + len(entries)
                return await append(session, len(kept), entries, about)
            case "makes the place anew" if not await self.kept.list():
                await asyncio.sleep(0)
                for info in await self.kept.list():
                    await self.kept.delete(info.session)
            case "keeps the list":  # and not what is in it
                self.memo.setdefault(session, entries)
            case "knows names only":
                incarnation = ""
            case "says nothing of it":
                await append(session, expected, entries, about, incarnation)
                return ""
            case "calls all alike":
                await append(session, expected, entries, about)
                return "1"
            case _:
                pass
        return await append(session, expected, entries, about, incarnation)

    def _begin(self, work: Coroutine[Any, Any, str]) -> asyncio.Task[str]:
        self.memo[f"{len(self.memo)}"] = task = asyncio.create_task(work)
        return task

    async def _later(self, *new: Any) -> str:
        await asyncio.sleep(0.01)
        return await self.kept.append(*new)

    def _name(self, session: str) -> str:
        names: dict[str, Callable[[], str]] = {
            "names in any case": session.lower,
            "names without blanks": session.strip,
            "short names": lambda: session[:255],
            "names end at a nul": lambda: session.partition("\0")[0],
        }
        return names.get(self.mistake, lambda: session)()

    async def load(  # noqa: C901, PLR0912  # as above
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self._open()
        named = "" if self.mistake in {"reads any", "calls all alike"} else incarnation
        there = await self.kept.load(self._name(session), incarnation=named)
        kept = list(there)
        stop = None if end is None else max(end, 0)
        found: list[Any] = kept[max(start, 0) : stop]
        match self.mistake:
            case "gives text":
                found = [entry.decode(errors="replace").encode() for entry in found]
            case "gives nearly bytes":
                found = [bytearray(entry) for entry in found]
            case "counts from the end":  # a start below 0 is that of a list
                found = kept[start:]
            case "starts one later" if start > 0:
                found = found[1:]
            case "keeps the list":
                found = self.memo[session]
            case "reads to the last":
                found = kept[max(start, 0) :]
            case "reads the end, too" if stop is not None:
                found = kept[max(start, 0) : stop + 1]
            case "counts the end from the last":  # an end below 0 is that of a list
                found = kept[max(start, 0) : end]
            case "counts the end from the start" if stop is not None:  # an end is a length
                found = kept[max(start, 0) :][:stop]
            case "forgets the session of an empty part" if not found:
                return Entries()
            case "writes when closed":
                found = [*kept, *self.memo.get(session, ())][max(start, 0) :]
            case _:
                pass
        return Entries(found, "1" if self.mistake == "calls all alike" and kept else there.incarnation)

    async def list(  # noqa: C901, PLR0911, PLR0912  # a case for each mistake
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        self._open()
        match self.mistake:
            case "no pages":
                limit = None
            case "begins again":
                after = None
            case "ends with the page":  # the last one of a page begins the next one, too
                after = None if after is None else after + 1
            case "all names":
                prefix = ""
            case "patterns" if prefix:
                return [
                    info for info in await self.kept.list(limit, after) if fnmatch(info.session, f"{prefix}*")
                ]
            case _:
                pass
        infos = [*await self.kept.list(limit, after, prefix)]
        match self.mistake:
            case "stamps by name":
                return [attrs.evolve(info, stamp=ord(info.session[:1] or "a")) for info in infos]
            case "stamps again":  # the place of a deleted session is given to another one
                return [attrs.evolve(info, stamp=len(infos) - place) for place, info in enumerate(infos)]
            case "last first":
                return infos[::-1]
            case "by name":
                return sorted(infos, key=lambda info: info.session)
            case "twice":
                return infos * 2
            case "milliseconds":
                return [attrs.evolve(info, created=info.created * 1000) for info in infos]
            case "made anew":
                return [attrs.evolve(info, created=info.updated) for info in infos]
            case "one too many":
                return [attrs.evolve(info, length=info.length + 1) for info in infos]
            case "writes to tell":  # the session was written to when something was said about it
                return [attrs.evolve(info, updated=info.updated + self.memo.get("said", 0)) for info in infos]
            case "calls all alike":
                return [attrs.evolve(info, incarnation="1") for info in infos]
            case "leaves a trace":  # a session is there as soon as it is asked for
                return [*(self.memo | {info.session: info for info in infos}).values()]
            case _:
                return infos

    async def info(self, session: str) -> SessionInfo | None:
        self._open()
        found = await self.kept.info(session)
        match self.mistake:
            case "another one's":
                return next(iter(await self.kept.list(prefix=session[:1])), None)
            case "says nothing":
                return found and attrs.evolve(found, about=b"")
            case _:
                return found

    async def delete(self, session: str, incarnation: str = "") -> bool:
        self._open()
        match self.mistake:
            case "deletes any":
                return await self.kept.delete(session)
            case "deletes nothing":
                return bool(await self.kept.load(session))
            case "deletes more":  # all that begin alike are gone
                alike = [info.session for info in await self.kept.list() if info.session.startswith(session)]
                return any([await self.kept.delete(name) for name in alike])
            case _:
                return await self.kept.delete(session, incarnation) or self.mistake == "says yes"

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        self._open()
        match self.mistake:
            case "leases to all":
                held = await super().lease(session, None, None)
            case "leases once":  # a lease that is held is not given up
                wanted = held if wanted is None else wanted
            case "leases here":  # others do not see it
                self.memo.setdefault(session, held)
                self.memo[session] = wanted if self.memo[session] == held else self.memo[session]
                found: bytes | None = self.memo[session]
                return found
            case "leases of any":
                incarnation = ""
            case _:
                pass
        return await super().lease(session, held, wanted, incarnation)

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        self._open()
        there, now = await super().meter(name, None, None)
        match self.mistake:
            case "meters to all":
                held = there
            case "meters are leases":
                found = await super().lease(name, None, None)
                await super().lease(name, held, wanted)
                return found, now
            case "meters without a clock":
                return (await super().meter(name, held, wanted))[0], 0.0
            case "meters look before" if there == held:  # and another one writes in between
                await asyncio.sleep(0)
                held, _ = await super().meter(name, None, None)
                await super().meter(name, held, wanted)
                return there, now
            case _:
                pass
        return await super().meter(name, held, wanted)

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        self._open()
        match self.mistake:
            case "deadlines of any":
                incarnation = ""
            case "deadlines for ever" if due is None:
                return
            case "deadlines of what is deleted":
                self.memo[session] = due
            case "deadlines here" if due is not None:
                self.memo[session] = due
                return
            case _:
                pass
        await super().set_deadline(session, due, incarnation)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        self._open()
        if self.mistake in {"deadlines of what is deleted", "deadlines here"}:
            there = [(due, name) for name, due in self.memo.items() if due is not None and due <= moment]
            return [name for _, name in sorted(there)]
        skip = 0 if self.mistake == "deadlines from the first" else skip
        found = [*await super().overdue(1e12 if self.mistake == "deadlines to come" else moment, skip)]
        if self.mistake == "deadlines one less":
            return found[:99]
        return sorted(found) if self.mistake == "deadlines by name" else found

    async def time(self) -> float:
        return 1000 * await super().time()

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        self._open()
        match self.mistake:
            case "keeps them all":
                first = 0
            case "keeps the last":
                first = position
            case "keeps them for ever":
                self.memo.setdefault(session, {})[position] = body
            case _:
                pass
        await super().keep_checkpoint(session, position, body, first, incarnation)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        self._open()
        kept = await super().checkpoints(session, incarnation)
        if self.mistake == "keeps them for ever" and not kept:
            return [*self.memo.get(session, {}).values()]
        return kept

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        self._open()
        refused = await super().renew(renewals)
        return [] if self.mistake == "renews none" else refused

    async def leases(self) -> Mapping[str, bytes]:
        self._open()
        there = dict(await super().leases())
        match self.mistake:
            case "leases one less":
                there.pop("a", None)
            case "leases of old" if there:  # those that were given up
                there = {**dict.fromkeys("abcd", b"old"), **there}
            case _:
                pass
        return there

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        self._open()
        mark, found = await super().news(sessions, since)
        match self.mistake:
            case "no deletions":
                found = [name for name in found if await self.kept.load(name)]
            case "news once":
                found, self.memo = (
                    [name for name in found if name not in self.memo],
                    dict.fromkeys(found, 1),
                )
            case "news to all" if since:
                found = sessions
            case "news here":  # of others nothing is known
                found = [] if since else found
            case _:
                pass
        return mark, found

    def on_news(self, hear: Hear) -> Callable[[], None]:
        if self.mistake != "listens when closed":
            self._open()
        return super().on_news(hear)

    async def close(self) -> None:
        match self.mistake:
            case "stays open":
                return
            case "complains":  # it may be closed once
                self._open()
            case "keeps although cancelled":
                await asyncio.gather(*self.memo.values(), return_exceptions=True)
            case "closes in between":
                await asyncio.sleep(0.02)
            case "writes when closed":
                for session, entries in self.memo.items():
                    await self.kept.append(session, len(await self.kept.load(session)), entries)
                self.memo.clear()
            case _:
                pass
        self.closed = True


LISTENERS: list[tuple[StoreOver, Hear]] = []
"""Those of all `Calling`, of which there are those of one check at a time."""


class Calling(Mistaken):
    """One that calls those who listen at the others over the same store."""

    def __init__(self, kept: Store, mistake: str = "") -> None:
        super().__init__(kept, mistake)
        self.calls_on_news = True

    async def append(self, session: str, *rest: Any, **named: Any) -> str:
        kept = await super().append(session, *rest, **named)
        told = "another" if self.mistake == "calls of another" else session
        for store, hear in [*LISTENERS]:
            if isinstance(store, Mistaken) and store is not self and store.kept is self.kept:
                await asyncio.to_thread(hear, lambda name: name == told)
                if self.mistake == "calls once":
                    LISTENERS.remove((store, hear))
        return kept

    def on_news(self, hear: Hear) -> Callable[[], None]:
        super().on_news(hear)
        if self.mistake == "calls none":
            return lambda: None
        LISTENERS.append((self, hear))
        return lambda: None if self.mistake == "calls for ever" else LISTENERS.remove((self, hear))


def compare(session: str, expected: int, kept: Sequence[bytes]) -> None:
    if len(kept) != expected:
        raise StoreConflict(session, expected, len(kept))


# The check that is there to find each mistake

MISTAKES = {
    "entries come back in order": ["loses an entry", "turns entries", "keeps later"],
    "an entry is any bytes": [
        "loses the empty",
        "keeps lines",
        "keeps the beginning",
        "gives text",
        "gives nearly bytes",
    ],
    "a writer that is not at the end writes nothing": [
        "adds anywhere",
        "takes fewer",
        "says anything",
        "sends all along",
    ],
    "a session is there once it has an entry": ["takes nothing", "leaves a trace"],
    "of many writers at once one goes on": ["looks before"],
    "a reader sees an append whole or not at all": ["writes one by one", "tells later"],
    "a cancelled append is kept or never will be": ["keeps although cancelled"],
    "closing comes after what was asked before": ["closes at once"],
    "loading starts anywhere": ["counts from the end", "starts one later"],
    "loading ends anywhere": [
        "reads to the last",
        "reads the end, too",
        "counts the end from the last",
        "counts the end from the start",
        "forgets the session of an empty part",
    ],
    "the store keeps its own copy": ["keeps the list"],
    "a session has any name": [
        "names in any case",
        "names without blanks",
        "short names",
        "names end at a nul",
        "twice",
    ],
    "sessions are listed last written first": [
        "last first",
        "by name",
        "milliseconds",
        "made anew",
        "one too many",
    ],
    "a list comes in pages": [
        "no pages",
        "begins again",
        "ends with the page",
        "stamps by name",
        "stamps again",
    ],
    "a list may be of names that begin alike": ["all names", "patterns"],
    "one session is told as in the list": ["another one's", "says nothing"],
    "a session is about what was said last": ["forgets", "keeps the first"],
    "what a session is about may change by itself": ["writes to tell"],
    "a deleted session is gone and may come again": ["deletes nothing", "deletes more"],
    "a session keeps its incarnation": ["says nothing of it"],
    "of a deleted session all that knew it are told": [
        "knows names only",
        "reads any",
        "calls all alike",
        "leases of any",
        "deletes any",
    ],
    "an unknown session is empty": ["says yes"],
    "a store says what it keeps": [
        f"does not say that it {what}"
        for what in ("keeps_leases", "keeps_deadlines", "keeps_checkpoints", "keeps_meters")
    ],
    "a closed store says so": ["stays open", "complains", "listens when closed"],
    "a lease goes only from the one that is there": ["leases to all", "leases once"],
    "a meter goes only from the one that is there": [
        "meters to all",
        "meters are leases",
        "meters without a clock",
    ],
    "a session is overdue from its deadline on": [
        "deadlines of any",
        "deadlines for ever",
        "deadlines of what is deleted",
        "deadlines to come",
        "deadlines by name",
    ],
    "a time counts seconds from the epoch": ["tells milliseconds"],
    "of many that are overdue some are told": ["deadlines one less", "deadlines from the first"],
    "of checkpoints those between the first and the new one stay": [
        "keeps them all",
        "keeps the last",
        "keeps them for ever",
    ],
    "leases are renewed together": ["renews none"],
    "the leases are those that are held": ["leases one less", "leases of old"],
    "news are of what was written or deleted": ["no deletions", "news once", "news to all"],
}
LASTING = {  # of what is opened again, and of what others have open
    "what was cancelled is there or not when it is opened again": "closes in between",
    "what returned is there for others": "writes when closed",
    "of writers in many stores one goes on": "compares what it remembers",
    "many may make the place at once": "makes the place anew",
    "of many that want a lease one gets it": "leases here",
    "of many that change a meter none is lost": "meters look before",
    "a deadline is there for others": "deadlines here",
    "what others write is told": "news here",
}
CALLED = "who listens is called where another one wrote"
REOPENED = "what was kept is there when it is opened again"
CHECKS = {check.name: check for check in checks()}


async def found_by(check: Check, opens: Callable[[], Store]) -> str:
    try:
        await check(opens)
    except (BrokenStore, StoreError, StoreConflict) as found:
        return str(found)
    return ""


@pytest.mark.parametrize(("name", "mistake"), [(name, one) for name in MISTAKES for one in MISTAKES[name]])
async def test_a_mistake_is_found(name: str, mistake: str) -> None:
    assert CHECKS[name].lasts is Lasts.WHILE_OPEN
    assert await found_by(CHECKS[name], lambda: Mistaken(MemoryStore(), mistake))
    assert not await found_by(CHECKS[name], lambda: Mistaken(MemoryStore()))


@pytest.mark.parametrize("name", LASTING)
async def test_a_mistake_of_one_that_lasts_is_found(name: str) -> None:
    place, sound, again = MemoryStore(), MemoryStore(), MemoryStore()
    assert await found_by(CHECKS[name], lambda: Mistaken(place, LASTING[name]))
    assert not await found_by(CHECKS[name], lambda: Mistaken(sound))
    # One that begins anew cannot be opened again.
    assert await found_by(CHECKS[REOPENED], MemoryStore)
    assert not await found_by(CHECKS[REOPENED], lambda: Mistaken(again))


@pytest.mark.parametrize("mistake", ["calls none", "calls once", "calls of another", "calls for ever"])
async def test_a_mistake_of_one_that_calls_is_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_promises, "CALLED_WITHIN", 0.2)
    monkeypatch.setattr(store_promises, "LATER", 0.01)
    place, sound = MemoryStore(), MemoryStore()
    assert await found_by(CHECKS[CALLED], lambda: Calling(place, mistake))
    LISTENERS.clear()
    # A sound one is given all the time that it may take.
    monkeypatch.undo()
    assert not await found_by(CHECKS[CALLED], lambda: Calling(sound))
    assert not LISTENERS


def test_each_promise_is_broken_by_a_mistake() -> None:
    # Nothing is checked that none of these fails, save what says again in other words what others say.
    again = {"a long session is kept whole", "a long history is as it was told", "sessions share nothing"}
    assert CHECKS.keys() - MISTAKES.keys() - LASTING.keys() - {REOPENED, CALLED} == again


# What is told


async def test_what_is_found_says_what_was_promised() -> None:
    found = await found_by(
        CHECKS["entries come back in order"], lambda: Mistaken(MemoryStore(), "turns entries")
    )
    assert found == ("what is loaded: [b'b', b'a', b'c'], and promised is [b'a', b'b', b'c']")
    found = await found_by(
        CHECKS["an entry is any bytes"], lambda: Mistaken(MemoryStore(), "keeps the beginning")
    )
    assert "... (3,200,003 characters)" in found
    assert len(found) < 600


async def test_a_store_may_take_its_time_to_open() -> None:
    async def opened() -> Store:
        await asyncio.sleep(0)
        return MemoryStore()

    for check in checks(Lasts.WHILE_OPEN):
        await check(opened)


# Processes that are killed


KILLED = """
import asyncio
from turnwheel import MemoryStore, SQLiteStore
from turnwheel.testing.stores import StoreOver


class Buffers(StoreOver):
    'Keeps entries in memory and never writes them.'

    def __init__(self, path):
        super().__init__(SQLiteStore(path, "process"))
        self.buffer = MemoryStore()

    async def append(self, session, expected, entries, about=None, incarnation=""):
        return await self.buffer.append(session, expected, entries, about)


class Halves(StoreOver):
    'Writes one of the two entries of an append to session a, and stops.'

    def __init__(self, path):
        super().__init__(SQLiteStore(path, "process"))
        self.written = asyncio.Event()

    async def append(self, session, expected, entries, about=None, incarnation=""):
        if session == "a" and len(entries) > 1:
            await self.kept.append(session, expected, entries[:1])
            self.written.set()
            await asyncio.Event().wait()
        elif session != "a":
            # The process is killed after five appends or more: these come after the half of one.
            await self.written.wait()
        return await self.kept.append(session, expected, entries)
"""


@pytest.mark.parametrize(
    ("opens", "says"), [("Buffers", "entries are left more"), ("Halves", "whole appends")]
)
async def test_a_kill_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: str, says: str
) -> None:
    (tmp_path / "mistaken_stores.py").write_text(KILLED, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BrokenStore, match=says):
        await survives_kill(f"mistaken_stores:{opens}", str(tmp_path / "agent.db"), kills=1)
