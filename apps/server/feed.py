"""
What happens in one session, heard once for all of its readers.

Theory of operation. While a session has readers, one task watches it and hands each notice to all of them, so
a notice is encoded once, and each reader costs little more than its own write. A reader has first what the
journal tells, and then what it was handed meanwhile; what comes twice is known by its position. In between it
has what streamed before it came, if the journal told it that this answer began, and of no end. It takes all
that waits for it at once. One that does not take what it is handed loses it: the journal gives again what has
an id, and of the rest it is told how many there were. So it holds up nothing, and keeps little.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import groupby
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import TurnwheelError
from ...effects.notices import (
    ENDS,
    AnswerDropped,
    CallDelta,
    Delta,
    ModelCalled,
    Notice,
    NoticesMissed,
    ReasoningDelta,
    TextDelta,
)
from ...engine.core.codec import encode
from ...engine.session.watching import position
from ...performers.base import Clock
from ...states.state import Streaming
from ...states.streaming import deltas

if TYPE_CHECKING:
    from ...engine.session.session import Session
    from ...engine.session.subscription import Position
    from ...engine.session.watching import Watched
    from ...performers.stores.base import Store

# Notices that a reader may lag behind, above what the buffers of its connection hold: some seconds of a
# streamed text. All readers of a session keep the same ones.
READER_BUFFER = 256

# A comment, which readers pass over.
BEAT = b": still here\n\n"

# Notices of a journal that go out together.
PIECE = 32

DELTA = TextDelta | ReasoningDelta | CallDelta

# The notices at which an answer begins, or is under way no more.
BOUND = ModelCalled | AnswerDropped | ENDS


def id_line(id: str) -> bytes:  # noqa: A002  # the word of events
    """The line of a frame that has *id*; none for an empty one."""
    return f"id: {id}\n".encode() if id else b""


@final
@attrs.define(eq=False)
class Heard:
    """
    A *notice*, its *id*, and its position; one without an id has that of the notice before it.

    An *earlier* one is of the moment, and was there before its reader came.
    """

    notice: Notice
    id: str
    at: Position
    earlier: bool = False
    _frame: bytes = attrs.field(default=b"", init=False)

    @property
    def frame(self) -> bytes:
        """It as an event: the name of its class, its fields as the data."""
        if not self._frame:
            name = type(self.notice).__name__.encode()
            # JSON has no line break in it, so it is one line of data.
            data = encode(self.notice, Notice)
            self._frame = b"%sevent: %s\ndata: %s\n\n" % (id_line(self.id), name, data)
        return self._frame


def _heard(watched: Watched, last: Position) -> Heard:
    return Heard(watched.notice, watched.id, position(watched.id) if watched.id else last)


def _joined(found: Iterable[DELTA]) -> list[DELTA]:
    """*found* with neighbours of one kind as one."""
    made: list[DELTA] = []
    for _, same in groupby(found, lambda delta: (type(delta), getattr(delta, "index", 0))):
        first, *more = same
        if isinstance(first, CallDelta):
            every = [each for each in (first, *more) if isinstance(each, CallDelta)]
            tool = next((each.tool for each in every if each.tool), "")
            arguments = "".join([each.arguments for each in every])
            made.append(CallDelta(first.index, tool, arguments, at=every[-1].at))
        else:
            texts = [each for each in (first, *more) if not isinstance(each, CallDelta)]
            made.append(type(first)("".join([each.text for each in texts]), at=texts[-1].at))
    return made


@final
@attrs.define
class UnderWay:
    """What has streamed of the answer to *request*; nothing where none is under way or a part was missed."""

    request: str = ""
    streamed: list[DELTA] = attrs.field(factory=list)
    _first: dict[str, list[DELTA]] = attrs.field(factory=dict, init=False)

    def look(self, session: Session, at: float) -> None:
        """Begin with what *session* has *at* this time, if this process drives it."""
        state = None if session.machine is None else session.machine.state
        if session.running and isinstance(state, Streaming):
            self.request = state.request
            self.streamed = [each for each in deltas(state.pieces.pieces, at) if isinstance(each, DELTA)]
            self._first[self.request] = [*self.streamed]

    def hear(self, notice: Notice) -> None:
        """Go on with *notice*."""
        if isinstance(notice, DELTA):
            if self.request:
                self.streamed.append(notice)
        elif isinstance(notice, ModelCalled):
            # What was written just before it looked is told behind that, as the beginning of what it found.
            self.request, self.streamed = notice.request, self._first.pop(notice.request, [])
        elif isinstance(notice, BOUND | NoticesMissed):
            self.request, self.streamed = "", []

    def copy(self) -> UnderWay:
        """The same, to keep."""
        # A long answer is joined once, and not for each reader.
        self.streamed = _joined(self.streamed)
        return UnderWay(self.request, [*self.streamed])


class StreamReader:
    """What a stream waits in; every *beat* seconds it has to show that it lives."""

    def __init__(self, beat: float) -> None:
        self.over = False
        self._due = False
        self._beat = beat
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(beat, self._remind)

    def end(self) -> None:
        """Take no more; what waits is dropped."""
        self.over = True
        self._timer.cancel()
        self._wake()

    def _remind(self) -> None:
        self._due = True
        self._timer = self._loop.call_later(self._beat, self._remind)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _woken(self, *, ready: bool) -> None:
        """Wait, unless what it waits for is *ready*, for that, for a beat or for the end."""
        if not (ready or self._due or self.over):
            self._waiter = self._loop.create_future()
            await self._waiter


@final
class FeedReader(StreamReader):
    """One reader of *session*."""

    def __init__(self, session: Session, beat: float) -> None:
        super().__init__(beat)
        self._session = session
        self._waiting: list[Heard] = []
        # The answer under way when it comes, and where the journal told last that one begins or ends.
        self.under_way = UnderWay()
        self._bound: Heard | None = None
        # Whether something was not kept, and how many notices of it no journal has.
        self._gap = False
        self._missed = 0
        self._missed_at = 0.0

    def put(self, heard: Heard) -> None:
        """Keep *heard*, if there is room."""
        if self._gap or len(self._waiting) >= READER_BUFFER:
            # Nothing more before all of this is taken: what follows a gap is behind it in the journal.
            self._gap = True
            if not heard.id:
                self._missed += heard.notice.count if isinstance(heard.notice, NoticesMissed) else 1
                self._missed_at = heard.notice.at
            return
        self._waiting.append(heard)
        self._wake()

    async def follow(self, since: int | str) -> AsyncGenerator[Sequence[Heard], None]:
        """
        What comes behind *since*, as `Session.watch` has it, until the end.

        All that waits comes at once. An empty part is a beat: nothing else may have been written for a while.
        """
        last, gap, missed = position(since), True, 0
        while not self.over:
            if missed:
                yield (Heard(NoticesMissed(at=self._missed_at, count=missed), "", last),)
            if gap:
                async with aclosing(self._journal(last)) as parts:
                    async for part in parts:
                        last = part[-1].at
                        yield part
                if earlier := self._earlier():
                    yield earlier
            await self._woken(ready=bool(self._waiting) or self._gap)
            waiting, self._waiting = self._waiting, []
            gap, self._gap = self._gap, False
            missed, self._missed = self._missed, 0
            fresh: list[Heard] = []
            for heard in waiting:
                if heard.at > last if heard.id else self._is_open(heard, last):
                    fresh.append(heard)
                    last = max(last, heard.at)
            if fresh:
                yield fresh
            if self._due:
                self._due = False
                yield ()

    def _is_open(self, heard: Heard, last: Position) -> bool:
        """Whether *heard*, which is of the moment, is of no answer that the journal told to its end."""
        bound = self._bound
        if bound is not None and isinstance(bound.notice, ModelCalled) and isinstance(heard.notice, Delta):
            return heard.at >= bound.at
        return heard.at >= last

    def _earlier(self) -> list[Heard]:
        """Once, what had streamed of the answer that was told to begin, and is under way."""
        found, bound = self.under_way, self._bound
        self.under_way = UnderWay()
        if (
            bound is None
            or not isinstance(bound.notice, ModelCalled)
            or bound.notice.request != found.request
        ):
            return []
        return [Heard(delta, "", bound.at, earlier=True) for delta in found.streamed]

    async def _journal(self, last: Position) -> AsyncGenerator[list[Heard], None]:
        """What the journal has behind *last*."""
        entry, place = last
        part: list[Heard] = []
        kept = self._session.watch(entry if place < 0 else f"{entry}.{place}", follow=False)
        async with aclosing(kept) as watching:
            async for watched in watching:
                if self.over:
                    return
                part.append(heard := _heard(watched, last))
                if isinstance(heard.notice, BOUND):
                    self._bound = heard
                if len(part) == PIECE:
                    yield part
                    part = []
        if part:
            yield part


@final
class SessionFeed:
    """The readers of *session*, which is kept in *store*; without *partial* it has no deltas."""

    def __init__(self, session: Session, store: Store, clock: Clock, *, partial: bool = True) -> None:
        self._session = session
        self._store = store
        self._clock = clock
        self._partial = partial
        self._under_way = UnderWay()
        # The task hands on to the readers it was begun for: those that come while it ends have another one.
        self._readers: dict[FeedReader, None] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()

    @asynccontextmanager
    async def reader(self, beat: float) -> AsyncGenerator[FeedReader, None]:
        """A reader, handed within the context all that happens."""
        made, readers = FeedReader(self._session, beat), self._readers
        readers[made] = None
        if self._hearing is None or self._hearing.done():
            self._begun, self._under_way = asyncio.Event(), UnderWay()
            self._hearing = asyncio.create_task(self._hear(readers, self._begun, self._under_way))
        made.under_way = self._under_way.copy()
        try:
            # What the journal has got by then is not handed on.
            await self._begun.wait()
            yield made
        finally:
            made.end()
            del readers[made]
            if not readers and readers is self._readers:
                await self._stop()

    async def _stop(self) -> None:
        hearing, self._hearing, self._readers = self._hearing, None, {}
        if hearing is not None:
            hearing.cancel()
            await asyncio.wait({hearing})

    async def _hear(self, readers: dict[FeedReader, None], begun: asyncio.Event, under_way: UnderWay) -> None:
        """Hand on what happens, until the session is closed."""
        try:
            info = await self._store.info(self._session.id)
            last = 0 if info is None else info.length, -1
            async with aclosing(self._session.watch(last[0])) as watching:
                # The watch begins before a reader is woken by this, or a piece comes.
                begun.set()
                if self._partial:
                    under_way.look(self._session, self._clock.now())
                for reader in readers:
                    reader.under_way = under_way.copy()
                async for watched in watching:
                    heard = _heard(watched, last)
                    last = heard.at
                    under_way.hear(heard.notice)
                    for reader in readers:
                        reader.put(heard)
        except (TurnwheelError, OSError):
            # The store fails, or the session is gone: readers come again, behind their last ids.
            return
        finally:
            begun.set()
            self.end(readers)

    def end(self, readers: dict[FeedReader, None] | None = None) -> None:
        """End all *readers*, or those of now."""
        for reader in self._readers if readers is None else readers:
            reader.end()
