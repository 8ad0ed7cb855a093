"""
Requests with an `Idempotency-Key`: each is done once, and a repeat is answered as the first one was.

Theory of operation. What came under keys for a session stands in a journal beside its own, named as that of a
child, so it goes when the session goes. A request is noted there with a digest of its body before it is done,
and its answer behind it. The digest is keyed with the key of the client, which the store has not: a plain one
would tell a body of a few letters, such as a PIN. A request that is refused frees its key, for it has changed
nothing, and so does who deletes the session that it made. A crash leaves a note without an answer: then the
same request is done again, and the ids that are derived from the key make it the same message, session or
fork.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from typing import TYPE_CHECKING, final
from weakref import WeakValueDictionary

import attrs
import msgspec

from ...effects.errors import SessionGone, StoreConflict, StoreError
from ...effects.validators import clean
from ...engine.core.codec import encode
from ...engine.inspect.listing import NOTES
from ...engine.journal.summary import SessionKind, SessionSummary
from .problems import Refused

if TYPE_CHECKING:
    from .open_sessions import OpenSessions
    from .operations import HttpCall, Operation

# How often a note is tried again where another process noted something for the same session.
NOTE_TRIES = 20

# Journals of notes of which it is remembered where each key stands.
KNOWN = 100


@final
class Note(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    What is known of a *key*: the digest of the *body* it came with, and the *answer* once there is one.

    Without a body it is free again.
    """

    key: str
    body: str = ""
    answer: str = ""


@final
class _Made(msgspec.Struct):
    """What the answer that made a session says of it; *created* tells it from others of its name."""

    id: str
    agent: str
    created: float


@final
@attrs.frozen
class _Notes:
    """A journal of notes as far as it was read: for each key that is taken, where its latest note stands."""

    incarnation: str = ""
    length: int = 0
    places: dict[str, int] = attrs.field(factory=dict)


def _digest(*parts: bytes) -> str:
    return sha256(b"\n".join(parts)).hexdigest()


@final
class KeyedAnswers:
    """The answers to requests with a key about the sessions that it *opens*."""

    def __init__(self, opens: OpenSessions) -> None:
        self._opens = opens
        # A repeat waits for the first one, where that is under way here.
        self._under_way = WeakValueDictionary[str, asyncio.Lock]()
        # In the order of their latest use.
        self._known: dict[str, _Notes] = {}

    async def once(
        self, operation: Operation, call: HttpCall, answer: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        """What *answer* gives to *call*, or gave to the first one with its key; raises `Refused`."""
        session = await self._session(call)
        # One key may be used for several requests of other kinds.
        path = operation.path.format(**call.request.path_params)
        key = _digest(operation.method.encode(), clean(path).encode(), call.key.encode())
        body = msgspec.json.encode(call.body, order="deterministic")
        asked = Note(key=key, body=hmac.digest(call.key.encode(), body, "sha256").hex())
        async with self._under_way.setdefault(f"{session}\n{key}", asyncio.Lock()):
            known = await self._write(session, asked, first=True)
            if known is not None and await self._outlived(operation, call, known):
                known = await self._write(session, asked, first=True, outlived=known)
            if known is not None and known.body != asked.body:
                detail = "this Idempotency-Key came with another body before; take a new key"
                raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
            if known is not None and known.answer:
                return known.answer.encode()
            try:
                data = await answer()
            except Exception:
                # The refusal is what the caller has to hear of.
                with suppress(StoreError):
                    await self._write(session, Note(key=key))
                raise
            await self._write(session, Note(key=key, body=asked.body, answer=data.decode()))
            return data

    async def _outlived(self, operation: Operation, call: HttpCall, known: Note) -> bool:
        """Whether what is *known* of *operation* is of a session that it made and that is gone."""
        # The note stands with what the key names: with its source, or under a name that it did not get.
        if operation.status is not HTTPStatus.CREATED or not known.answer:
            return False
        made = msgspec.json.decode(known.answer, type=_Made)
        info = await self._opens.store.info(call.names.stored(made.agent, made.id))
        return info is None or info.created != made.created

    async def _session(self, call: HttpCall) -> str:
        """The name of the session that *call* is about; of one that is to begin, as its key decides."""
        if "id" in call.request.path_params:
            return (await self._opens.find(call.names, call.session))[1]
        return call.names.stored(call.names.agents[0], call.keyed("session") or "")

    async def _write(
        self, session: str, note: Note, *, first: bool = False, outlived: Note | None = None
    ) -> Note | None:
        """
        Write *note* and give None; or, where it is to be the *first* and is not, what is there.

        What is *outlived* counts as not there.
        """
        store, journal = self._opens.store, session + NOTES
        about = encode(SessionSummary(kind=SessionKind.CHILD, parent=session), SessionSummary)
        for _ in range(NOTE_TRIES):
            # Others write to it, too, and it may be deleted with its session: then it is looked at again.
            with suppress(StoreConflict, SessionGone):
                known = await self._read(journal)
                if first and (place := known.places.get(note.key)) is not None:
                    entries = await store.load(journal, place, place + 1, known.incarnation)
                    there = msgspec.json.decode(entries[0], type=Note)
                    if there != outlived:
                        return there
                if not (first or known.length):
                    # Deleted meanwhile, with what was the first: nothing of it may be left.
                    return None
                entry = msgspec.json.encode(note)
                await store.append(journal, known.length, [entry], about, known.incarnation)
                return None
        msg = f"session {session!r}: other processes keep writing to it; try again"
        raise StoreError(msg)

    async def _read(self, journal: str) -> _Notes:
        """What *journal* has; only what came since it was read last is loaded."""
        # Taken out meanwhile: where it cannot be read, it is read from its beginning the next time.
        before = self._known.pop(journal, None) or _Notes()
        entries = await self._opens.store.load(journal, before.length, incarnation=before.incarnation)
        known = _Notes(entries.incarnation, before.length + len(entries), before.places)
        for place, entry in enumerate(entries, before.length):
            note = msgspec.json.decode(entry, type=Note)
            if note.body:
                known.places[note.key] = place
            else:
                known.places.pop(note.key, None)
        self._known[journal] = known
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]
        return known
