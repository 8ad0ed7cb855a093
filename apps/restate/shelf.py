"""
The journals of one object, in the state that Restate keeps for it: those of a session and of its children.

Theory of operation. Each read of the state is a message to the server and back, so keys are few: an entry has
one of its own while it is young, and so many together then become a page. Which keys there are follows from
the length of a journal. All that is done here is a function of the state and of what was asked, so that
Restate may do it again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, final

import attrs
import msgspec

from ...effects.errors import StoreError
from . import asks
from .asks import Accepted, Ask, AskAnswer, Bodies, Conflict, FoundInfo, Gone, Info

# Entries of a page, so many that a short journal and one of 250 entries take few reads.
PAGE_ENTRIES = 8

# Bytes of a page at most: where its entries have more, they stay as they are.
PAGE_BYTES = 4_000_000

# Bytes of entries after which an answer ends.
ANSWER_BYTES = 8_000_000

_decode_page = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


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
    # The entries that were kept by this shelf, by their keys, until there is a page of them.
    _young: dict[str, bytes] = attrs.field(factory=dict, init=False)

    async def answer(self, ask: Ask) -> AskAnswer:
        """Do what is asked."""
        if isinstance(ask, asks.EndTurn):
            return await self._ended(ask)
        info = await self.info(ask.session)
        known = "" if isinstance(ask, asks.Look) else ask.incarnation
        if known and (info is None or info.incarnation != known):
            return Gone(begun_anew=info is not None)
        if isinstance(ask, asks.Looks):
            return await self._look(ask, info)
        return await self._change(ask, info)

    async def _look(self, ask: asks.Looks, info: Info | None) -> AskAnswer:
        match ask:
            case asks.Look():
                return FoundInfo(info=info)
            case asks.Load() if info is not None:
                return await self._load(ask, info)
            case asks.LoadCheckpoints() if info is not None:
                keys = [_checkpoint(ask.session, position) for position in info.checkpoints]
                found = [body for body in await self._state.read(keys) if body]
                return Bodies(bodies=tuple(found), incarnation=info.incarnation)
            case _:
                return Bodies(bodies=(), incarnation="")

    async def _change(self, ask: asks.Changes, info: Info | None) -> AskAnswer:
        match ask:
            case asks.Append():
                return await self._append(ask, info)
            case asks.KeepCheckpoint() if info is not None:
                return self._keep_checkpoint(ask, info)
            case asks.Delete() if info is not None:
                return await self._delete(ask.session, info)
            case _:
                return Accepted()

    async def info(self, session: str) -> Info | None:
        """What is known of *session*."""
        if session not in self._infos:
            (found,) = await self._state.read([_info(session)])
            self._infos[session] = None if found is None else asks.decode_info(found)
        return self._infos[session]

    async def _ended(self, ask: asks.EndTurn) -> Accepted | Conflict:
        for session, length in ask.lengths.items():
            info = await self.info(session)
            if info is not None and info.length != length:
                return Conflict(actual=info.length)
        return Accepted()

    async def _append(self, ask: asks.Append, info: Info | None) -> Accepted | Conflict:
        length = 0 if info is None else info.length
        if length != ask.expected:
            return Conflict(actual=length)
        if info is None:
            if not ask.entries:
                return Accepted()
            info = Info(length=0, created=ask.at, updated=ask.at, incarnation=self._new_id())
        for number, entry in enumerate(ask.entries, length):
            key = _entry(ask.session, number)
            self._young[key] = entry
            self._state.keep(key, entry)
        after = length + len(ask.entries)
        self._note(
            ask.session,
            msgspec.structs.replace(
                info,
                length=after,
                updated=ask.at if ask.entries else info.updated,
                about=info.about if ask.about is None else ask.about,
            ),
        )
        for page in range(length // PAGE_ENTRIES, after // PAGE_ENTRIES):
            await self._bind(ask.session, page)
        return Accepted(incarnation=info.incarnation)

    async def _bind(self, session: str, page: int) -> None:
        """Make one page of the entries of *page*, unless they are too large."""
        numbers = range(page * PAGE_ENTRIES, (page + 1) * PAGE_ENTRIES)
        entries = await self._entries(session, numbers)
        for number in numbers:
            self._young.pop(_entry(session, number), None)
        if sum([len(entry) for entry in entries]) <= PAGE_BYTES:
            self._state.keep(_page(session, page), asks.encode(entries))
            for number in numbers:
                self._state.keep(_entry(session, number), None)

    async def _load(self, ask: asks.Load, info: Info) -> Bodies:
        # Whole pages at once, which is one exchange with the server; entries only where there is no page.
        wanted = range(ask.start // PAGE_ENTRIES, info.length // PAGE_ENTRIES)
        found: list[bytes] = []
        size, at = 0, ask.start
        for page in wanted:
            entries = await self._page(ask.session, page)
            found += entries[at - page * PAGE_ENTRIES :]
            at, size = (page + 1) * PAGE_ENTRIES, size + sum([len(entry) for entry in entries])
            if size > ANSWER_BYTES:
                break
        else:
            found += await self._entries(ask.session, range(at, info.length))
            at = max(at, info.length)
        return Bodies(bodies=tuple(found), incarnation=info.incarnation, more=at < info.length)

    async def _page(self, session: str, page: int) -> Sequence[bytes]:
        (bound,) = await self._state.read([_page(session, page)])
        if bound is not None:
            return _decode_page(bound)
        return await self._entries(session, range(page * PAGE_ENTRIES, (page + 1) * PAGE_ENTRIES))

    async def _entries(self, session: str, numbers: range) -> Sequence[bytes]:
        """The entries *numbers*, which are of one page."""
        keys = [_entry(session, number) for number in numbers]
        unknown = [key for key in keys if key not in self._young]
        read = await self._state.read(unknown)
        known = {**self._young, **dict(zip(unknown, read, strict=True))}
        found = [known[key] for key in keys]
        if None not in found:
            return [entry for entry in found if entry is not None]
        # A turn has made the page since this shelf looked how long the journal is.
        page, first = divmod(numbers.start, PAGE_ENTRIES)
        (bound,) = await self._state.read([_page(session, page)])
        if bound is None:
            msg = f"session {session!r} changed while it was read; read it again"
            raise StoreError(msg)
        return _decode_page(bound)[first : first + len(numbers)]

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


def _info(session: str) -> str:
    return f"info/{session}"


def _entry(session: str, number: int) -> str:
    return f"entry/{number}/{session}"


def _page(session: str, page: int) -> str:
    return f"page/{page}/{session}"


def _checkpoint(session: str, position: int) -> str:
    return f"checkpoint/{position}/{session}"
