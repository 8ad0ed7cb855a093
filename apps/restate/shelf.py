"""
The journals of one object, in the state that Restate keeps for it: those of a session and of its children.

Theory of operation. Each read and each change of a key is a message to the server, so keys are few: so many
entries share a page, and an append keeps the latest page anew with one more. A large entry would be sent with
each of them, so it has a key of its own. Which pages there are follows from the length of a journal. All that
is done here is a function of the state and of what was asked, so that Restate may do it again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol, TypeAlias, assert_never, final

import attrs
import msgspec

from ...effects.errors import StoreError
from . import asks
from .asks import Accepted, Ask, AskAnswer, Bodies, Conflict, FoundInfo, FoundJournal, Gone, Info

# Entries of a page, so many that a short journal and one of 250 entries take few reads.
PAGE_ENTRIES = 8

# Bytes that an entry may have in its page. Most entries of a round have fewer than a thousand.
SMALL_ENTRY = 4_000

# Pages that are read in one exchange: half a megabyte at most.
PAGES_AT_ONCE = 16

# Bytes of entries in an answer at most, unless one alone has more.
ANSWER_BYTES = 8_000_000

# Entries, one behind the other; of one that has a key of its own, its size.
Page: TypeAlias = tuple[bytes | int, ...]

_decode_page = msgspec.msgpack.Decoder(Page).decode


class ObjectState(Protocol):
    """The state of an object, by keys."""

    async def read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """What is kept under *keys*."""
        ...

    async def keys(self) -> Sequence[str]:
        """The keys under which something is kept, always in the same order."""
        ...

    def keep(self, key: str, value: bytes | None) -> None:
        """Keep *value* under *key*; None for nothing."""
        ...


@final
@attrs.define(eq=False)
class Shelf:
    """The journals in *state*; *new_id* makes incarnations, the same when it is done again."""

    _state: ObjectState
    _new_id: Callable[[], str]
    # None for one that is not there.
    _infos: dict[str, Info | None] = attrs.field(factory=dict, init=False)
    # The number and the entries of the page that this shelf kept last, by its session.
    _latest: dict[str, tuple[int, Page]] = attrs.field(factory=dict, init=False)

    async def answer(self, ask: Ask) -> AskAnswer:
        """Do what is asked."""
        if isinstance(ask, asks.EndTurn):
            return await self._ended(ask)
        info = await self.info(ask.session)
        if not isinstance(ask, asks.Look) and (gone := _gone(ask.incarnation, info)) is not None:
            return gone
        if isinstance(ask, asks.Looks | asks.LoadJournal):
            return await self._look(ask, info)
        return await self._change(ask, info)

    async def _look(self, ask: asks.Looks | asks.LoadJournal, info: Info | None) -> AskAnswer:
        match ask:
            case asks.Look():
                return FoundInfo(info=info)
            case asks.Load():
                return await self._load(ask.session, ask.start, info, ask.end)
            case asks.LoadCheckpoints():
                found = await self._checkpoints(ask.session, info)
                return Bodies(bodies=found, incarnation="" if info is None else info.incarnation)
            case asks.LoadJournal():
                checkpoints = await self._checkpoints(ask.session, info)
                # A reader holds the last entry that a checkpoint is of against it.
                start = info.checkpoints[-1] - 1 if info is not None and checkpoints else 0
                entries = await self._load(ask.session, start, info)
                return FoundJournal(checkpoints=checkpoints, start=start, entries=entries)

    async def _checkpoints(self, session: str, info: Info | None) -> tuple[bytes, ...]:
        if info is None or not info.checkpoints:
            return ()
        keys = [_checkpoint(session, position) for position in info.checkpoints]
        return tuple([body for body in await self._state.read(keys) if body])

    async def _change(self, ask: asks.Changes, info: Info | None) -> AskAnswer:
        match ask:
            case asks.Append():
                return await self._append(ask, info)
            case asks.KeepCheckpoint():
                return Accepted() if info is None else self._keep_checkpoint(ask, info)
            case asks.Delete():
                return Accepted() if info is None else await self._delete(ask.session, info)
            case _:
                assert_never(ask)

    async def info(self, session: str) -> Info | None:
        """What is known of *session*."""
        if session not in self._infos:
            (found,) = await self._state.read([_info(session)])
            self._infos[session] = None if found is None else asks.decode_info(found)
        return self._infos[session]

    async def refusal(self, ask: asks.Append) -> Conflict | Gone | None:
        """How *ask* would be refused, with what came first; None where it would not be now."""
        info = await self.info(ask.session)
        refused = _gone(ask.incarnation, info) or _conflict(ask, info)
        # A sender that knows no incarnation reads the journal from its beginning.
        if isinstance(refused, Conflict) and ask.incarnation:
            news = await self._load(ask.session, ask.expected, info)
            refused.entries = () if news.more else news.bodies
        return refused

    async def _ended(self, ask: asks.EndTurn) -> Accepted | Conflict:
        for session, length in ask.lengths.items():
            info = await self.info(session)
            if info is not None and info.length != length:
                return Conflict(actual=info.length)
        return Accepted()

    async def _append(self, ask: asks.Append, info: Info | None) -> Accepted | Conflict:
        if (refused := _conflict(ask, info)) is not None:
            return refused
        if info is None:
            if not ask.entries:
                return Accepted()
            info = Info(length=0, created=ask.at, updated=ask.at, incarnation=self._new_id())
        await self._keep_entries(ask.session, info.length, ask.entries)
        self._note(
            ask.session,
            msgspec.structs.replace(
                info,
                length=info.length + len(ask.entries),
                updated=ask.at if ask.entries else info.updated,
                about=info.about if ask.about is None else ask.about,
            ),
        )
        return Accepted(incarnation=info.incarnation)

    async def _keep_entries(self, session: str, length: int, entries: Sequence[bytes]) -> None:
        """Keep *entries* behind those that *session* has, *length* of them."""
        page = await self._latest_page(session, length)
        for at, entry in enumerate(entries, length):
            if len(entry) <= SMALL_ENTRY:
                page = (*page, entry)
            else:
                self._state.keep(_entry(session, at), entry)
                page = (*page, len(entry))
            number, place = divmod(at, PAGE_ENTRIES)
            if place == PAGE_ENTRIES - 1 or at == length + len(entries) - 1:
                self._state.keep(_page(session, number), asks.encode(page))
                self._latest[session] = number, page
                page = ()

    async def _latest_page(self, session: str, length: int) -> Page:
        """The latest page of *session*, which has *length* entries; empty where a new one begins."""
        number, there = divmod(length, PAGE_ENTRIES)
        if not there:
            return ()
        known, page = self._latest.get(session, (None, ()))
        if known != number:
            (page,) = await self._pages(session, range(number, number + 1))
        # A turn that ended between two changes left an entry there that the journal does not have.
        return page[:there]

    async def _load(self, session: str, start: int, info: Info | None, end: int | None = None) -> Bodies:
        if info is None:
            return Bodies(bodies=(), incarnation="")
        end = info.length if end is None else min(max(end, 0), info.length)
        found: list[bytes] = []
        size, more = 0, False
        pages = range(start // PAGE_ENTRIES, -(-end // PAGE_ENTRIES))
        for first in pages[::PAGES_AT_ONCE]:
            some = range(first, min(first + PAGES_AT_ONCE, pages.stop))
            together = chain.from_iterable(await self._pages(session, some))
            fit = list[tuple[int, bytes | int]]()
            for at, entry in enumerate(together, first * PAGE_ENTRIES):
                # A turn may have added to the page since this shelf looked how long the journal is.
                if not start <= at < end:
                    continue
                size += entry if isinstance(entry, int) else len(entry)
                more = bool(found or fit) and size > ANSWER_BYTES
                if more:
                    break
                fit.append((at, entry))
            found += await self._whole(session, fit)
            if more:
                break
        return Bodies(bodies=tuple(found), incarnation=info.incarnation, more=more)

    async def _whole(self, session: str, entries: Sequence[tuple[int, bytes | int]]) -> Sequence[bytes]:
        """The *entries*, by their numbers, those with a key of their own in one exchange."""
        large = [_entry(session, at) for at, entry in entries if isinstance(entry, int)]
        read = iter(await self._state.read(large) if large else ())
        return [_there(session, next(read)) if isinstance(entry, int) else entry for _, entry in entries]

    async def _pages(self, session: str, numbers: range) -> Sequence[Page]:
        found = await self._state.read([_page(session, number) for number in numbers])
        return [_decode_page(_there(session, page)) for page in found]

    def _keep_checkpoint(self, ask: asks.KeepCheckpoint, info: Info) -> Accepted:
        kept = [position for position in info.checkpoints if ask.first <= position < ask.position]
        for position in info.checkpoints:
            if position not in kept:
                self._state.keep(_checkpoint(ask.session, position), None)
        self._state.keep(_checkpoint(ask.session, ask.position), ask.body)
        self._note(ask.session, msgspec.structs.replace(info, checkpoints=(*kept, ask.position)))
        return Accepted(incarnation=info.incarnation)

    async def _delete(self, session: str, info: Info) -> Accepted:
        for key in await self._state.keys():
            # A name may have a slash, a kind and a number have none.
            if key == _info(session) or key.split("/", 2)[2:] == [session]:
                self._state.keep(key, None)
        self._infos[session] = None
        return Accepted(incarnation=info.incarnation)

    def _note(self, session: str, info: Info) -> None:
        self._infos[session] = info
        self._state.keep(_info(session), asks.encode(info))


def _gone(known: str, info: Info | None) -> Gone | None:
    """The refusal of a caller that knows the incarnation *known*, if any; None where the journal has that."""
    if not known or (info is not None and info.incarnation == known):
        return None
    return Gone(begun_anew=info is not None)


def _conflict(ask: asks.Append, info: Info | None) -> Conflict | None:
    """The refusal of *ask* where the journal has another length; None where it has the expected one."""
    length = 0 if info is None else info.length
    return None if length == ask.expected else Conflict(actual=length)


def _there(session: str, found: bytes | None) -> bytes:
    """What was *found* of *session*; raises where it was deleted meanwhile."""
    if found is None:
        msg = f"session {session!r} changed while it was read; read it again"
        raise StoreError(msg)
    return found


def _info(session: str) -> str:
    return f"info/{session}"


def _entry(session: str, number: int) -> str:
    return f"entry/{number}/{session}"


def _page(session: str, page: int) -> str:
    return f"page/{page}/{session}"


def _checkpoint(session: str, position: int) -> str:
    return f"checkpoint/{position}/{session}"
