"""
What a session asks of the object that keeps its journal, and the answers: the words of this room.

Theory of operation. A session knows its journal only through the methods of a store. Here each of them is a
value: a worker has Restate keep it as the result of a step, and another process sends it over HTTP.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeAlias, TypeVar, final

import attrs
import msgspec

from ...effects.errors import SessionGone, StoreConflict, StoreError, TooLarge
from ...performers.stores.base import Entries, SessionInfo, Store
from ...performers.worker_pool import finish

# Bytes of entries in one message. A turn gets an input twice, and with all that it reads it may hold 32 MiB
# in Restate's server: beyond that it stands still, without an error.
MOST_APPENDED = 10_000_000

# Bytes of a checkpoint: some are read at once. Without a larger one, more entries are read.
MOST_KEPT = 4_000_000


class _Word(msgspec.Struct, tag=True, kw_only=True):
    pass


@final
class Append(_Word):
    """As `Store.append`, at the time *at*."""

    session: str
    expected: int
    entries: tuple[bytes, ...]
    about: bytes | None
    incarnation: str
    at: float


@final
class Load(_Word):
    """As `Store.load`; the answer may have the first of the entries only."""

    session: str
    start: int
    incarnation: str
    end: int | None = None


@final
class Look(_Word):
    """As `Store.info`."""

    session: str


@final
class KeepCheckpoint(_Word):
    """As `Store.keep_checkpoint`."""

    session: str
    position: int
    body: bytes
    first: int
    incarnation: str


@final
class LoadCheckpoints(_Word):
    """As `Store.checkpoints`."""

    session: str
    incarnation: str


@final
class LoadJournal(_Word):
    """Both at once: the checkpoints, and the entries from the one on that the last of them ends with."""

    session: str
    incarnation: str


@final
class Delete(_Word):
    """As `Store.delete`."""

    session: str
    incarnation: str


@final
class EndTurn(_Word):
    """
    The run is over or rests, for a worker that knows as many entries of each journal as *lengths* says.

    *wake* is in how many seconds a question runs out, None where none does.
    """

    lengths: dict[str, int]
    wake: float | None


# What any process may ask, and what changes a journal.
Looks: TypeAlias = Load | Look | LoadCheckpoints
Changes: TypeAlias = Append | KeepCheckpoint | Delete
StoreAsk: TypeAlias = Looks | LoadJournal | Changes
Ask: TypeAlias = StoreAsk | EndTurn


@final
class Info(_Word):
    """What is known of a journal without reading it; see `SessionInfo`. *checkpoints* are positions."""

    length: int
    created: float
    updated: float
    incarnation: str
    about: bytes = b""
    checkpoints: tuple[int, ...] = ()

    def of(self, session: str) -> SessionInfo:
        """As the engine has it."""
        return SessionInfo(
            session=session,
            length=self.length,
            created=self.created,
            updated=self.updated,
            about=self.about,
            incarnation=self.incarnation,
            # Microseconds: of two sessions, the one that was written last has the higher one.
            stamp=int(self.updated * 1e6),
        )


@final
class Accepted(_Word):
    """It was done; *incarnation* is that of the session, empty where there is none."""

    incarnation: str = ""


@final
class Conflict(_Word):
    """It was refused: the journal has *actual* entries; all *entries* behind the expected ones, or none."""

    actual: int
    entries: tuple[bytes, ...] = ()


@final
class Gone(_Word):
    """It was refused: the session was deleted, and perhaps *begun_anew*."""

    begun_anew: bool


@final
class Bodies(_Word):
    """The *bodies* of entries or checkpoints, and whether *more* follow."""

    bodies: tuple[bytes, ...]
    incarnation: str
    more: bool = False


@final
class FoundJournal(_Word):
    """The *checkpoints* of a session, and its *entries* from the number *start* on."""

    checkpoints: tuple[bytes, ...]
    start: int
    entries: Bodies


@final
class FoundInfo(_Word):
    """What a look found."""

    info: Info | None


AskAnswer: TypeAlias = Accepted | Conflict | Gone | Bodies | FoundJournal | FoundInfo


@final
class Given(_Word):
    """An *append* from another process, whose answer goes to the awakeable *answer*; None to go on only."""

    append: Append | None = None
    answer: str = ""
    # Whether a run may follow from it. A title or a copy begins none.
    runs: bool = True


encode = msgspec.msgpack.Encoder().encode
decode_asks = msgspec.msgpack.Decoder(tuple[Ask, ...]).decode
decode_look = msgspec.msgpack.Decoder(Looks).decode
decode_delete = msgspec.msgpack.Decoder(Delete).decode
decode_answer = msgspec.msgpack.Decoder(AskAnswer).decode
decode_input = msgspec.msgpack.Decoder(Given).decode
decode_info = msgspec.msgpack.Decoder(Info).decode

A = TypeVar("A")


@attrs.define(eq=False)
class AskingStore(Store):
    """A store, without `list`, whose methods are asks."""

    keeps_checkpoints = True

    _closed: bool = attrs.field(default=False, init=False)
    # How many asks are under way, and whether it is none.
    _under_way: int = attrs.field(default=0, init=False)
    _quiet: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)

    @abstractmethod
    async def _ask(self, ask: StoreAsk) -> AskAnswer:
        """Have *ask* done; raises `StoreError` where that cannot be."""

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*, which must hold exactly *expected*; see `Store.append`."""
        size = sum([len(entry) for entry in entries])
        if size > MOST_APPENDED:
            what = "an append to a journal in Restate"
            raise TooLarge(what, size, MOST_APPENDED, "bytes")
        ask = Append(
            session=session,
            expected=expected,
            entries=tuple(entries),
            about=about,
            incarnation=incarnation,
            at=time.time(),
        )
        answer = await self._answer(ask)
        if isinstance(answer, Conflict):
            raise StoreConflict(session, expected, answer.actual, answer.entries)
        return expect(Accepted, answer).incarnation

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*; see `Store.load`."""
        entries: list[bytes] = []
        more = True
        while more:
            first = max(start, 0) + len(entries)
            ask = Load(session=session, start=first, incarnation=incarnation, end=end)
            found = expect(Bodies, await self._answer(ask))
            entries += found.bodies
            # The rest of that one, and not of another one that took its place meanwhile.
            incarnation, more = found.incarnation, found.more
        return Entries(entries, incarnation)

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        info = expect(FoundInfo, await self._answer(Look(session=session))).info
        return info and info.of(session)

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """Keep *body* as a checkpoint of *session*, unless it is too large for Restate."""
        if len(body) > MOST_KEPT:
            return
        ask = KeepCheckpoint(
            session=session, position=position, body=body, first=first, incarnation=incarnation
        )
        await self._answer(ask)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*, by their positions."""
        ask = LoadCheckpoints(session=session, incarnation=incarnation)
        return expect(Bodies, await self._answer(ask)).bodies

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Forget *session*; whether there was one."""
        ask = Delete(session=session, incarnation=incarnation)
        return bool(expect(Accepted, await self._answer(ask)).incarnation)

    async def close(self) -> None:
        """Ask nothing more, once what was asked is answered. Closing twice is fine."""
        self._closed = True
        if self._under_way:
            self._quiet.clear()
            await self._quiet.wait()

    async def _answer(self, ask: StoreAsk) -> AskAnswer:
        if self._closed:
            msg = "the store is closed; open another one"
            raise StoreError(msg)
        self._under_way += 1
        try:
            # However often the caller is cancelled meanwhile: a store leaves its work in no doubt.
            answer = await finish(self._ask(ask))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()
        if isinstance(answer, Gone):
            raise SessionGone(ask.session, answer.begun_anew)
        return answer


def expect(kind: type[A], answer: object) -> A:
    """The *answer*, which is one of that *kind*; raises `StoreError` where it is not."""
    if not isinstance(answer, kind):
        msg = f"{answer!r:.200} is no answer here; use workers and stores of the same version"
        raise StoreError(msg)
    return answer
