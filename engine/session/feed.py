"""
Delivers the notices of a session to its readers and subscribers.

Theory of operation. The worker publishes the notices of each step. A `Subscription` never delays a run: its
buffer is bounded, and drops deltas when it is full before anything else, since the notice at the end of an
answer has all of its text. It never drops what says how a run ended, and on which inputs. A subscriber
without references is collected with its buffer. A `RunStream` owns its run and loses nothing: while its
reader is busy only deltas are buffered, and no other step is applied before the reader comes back, but inputs
of people and what stands before them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import groupby
from sys import maxsize
from typing import TYPE_CHECKING, Protocol, TypeAlias, final
from weakref import WeakSet

import attrs

from ...effects.errors import Choice, ConfigError
from ...effects.events import ModelStreamed
from ...effects.notices import (
    AgentNoticed,
    AnswerDropped,
    AnswerKept,
    CallDelta,
    Ignored,
    InputBlocked,
    InputTaken,
    Notice,
    NoticesMissed,
    ReasoningDelta,
    RequestDelayed,
    RunEnded,
    RunLeft,
    TextDelta,
    ToolOutput,
    TurnEnded,
)
from ...effects.validators import positive
from ...performers.base import PassThroughNotice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


# Where a notice stands in a journal: the number of its entry, and its place among the notices of that.
Position = tuple[int, int]

# A place behind all notices of an entry.
BEHIND = maxsize

# Notices that a subscriber may lag behind by default: about a second of streamed text.
SUBSCRIBER_BUFFER = 64


@final
class Subscription:
    """
    The notices for one subscriber, from `Feed.subscribe` on. Leave with ``async with`` or `aclose`.

    *dropped* counts those that this subscriber was too slow for, and a `NoticesMissed` stands in their place.
    A cancel while it waits ends it: put a time limit around the loop, not around each notice. So does
    dropping the last reference to it.
    """

    def __init__(self, size: int, awaited: set[Subscription]) -> None:
        self.dropped = 0
        # Where in the journal the notice stands that was read last.
        self.at: Position | None = None
        # Up to *size* unread notices and any number of outcomes; with each, how many were missed
        # just before it, and its position.
        self._waiting: deque[tuple[int, Notice, Position | None]] = deque()
        # Those missed after the last one here.
        self._missed = 0
        self._size = size
        self._awaited = awaited
        self._over = False
        self._news = asyncio.Event()

    @property
    def behind(self) -> bool:
        """Whether a task waits here that has had no turn yet to read what fills the buffer."""
        return self._full and self in self._awaited

    @property
    def _full(self) -> bool:
        return len(self._waiting) >= self._size

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Keep *notice* if there is room, or if it counts for more than one that is here; *at* says where."""
        if self._over:
            return
        if not self._full or self._makes_room(notice):
            self._waiting.append((self._missed, notice, at))
            self._missed = 0
            self._wake()
        else:
            self.dropped += 1
            self._missed += 1

    def _makes_room(self, notice: Notice) -> bool:
        """Whether *notice* comes in although the buffer is full; another one may have to go."""
        # Of deltas the new one is dropped: a subscriber that reads on finds one gap, and not a window that
        # slides away under it.
        if is_delta(notice):
            return False
        places = range(len(self._waiting))
        place = next((at for at in places if is_delta(self._waiting[at][1])), None)
        outcome = isinstance(notice, OUTCOMES)
        if place is None and outcome:
            place = next((at for at in places if not isinstance(self._waiting[at][1], OUTCOMES)), None)
        if place is None and isinstance(notice, TurnEnded) and isinstance(self._waiting[-1][1], TurnEnded):
            # The last answer counts. A long run grows the buffer no further.
            place = len(self._waiting) - 1
        if place is not None:
            missed = self._waiting[place][0] + 1
            del self._waiting[place]
            self.dropped += 1
            if place < len(self._waiting):
                before, following, at = self._waiting[place]
                self._waiting[place] = before + missed, following, at
            else:
                self._missed += missed
        # Outcomes must arrive: a caller that waits for one would wait for ever. Where all are, the buffer
        # grows by a few notices for each unread run.
        return outcome or place is not None

    def end(self) -> None:
        """Take no more notices; the ones here can still be read."""
        self._over = True
        self._wake()

    def reopen(self) -> None:
        """Take notices again, after an end."""
        self._over = False

    def _wake(self) -> None:
        # A reader in an event loop that was closed cannot be woken, and must not keep the others from it.
        with suppress(RuntimeError):
            self._news.set()

    async def aclose(self) -> None:
        """End the subscription and discard unread notices. A task that waits here gets its end."""
        self._leave()

    # Not async: a cancelled task must be able to leave without another await.
    def _leave(self) -> None:
        self.end()
        self._waiting.clear()
        self._missed = 0

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Notice:
        try:
            notice = await self.next()
        except asyncio.CancelledError:
            # The caller that cancels rarely comes back, and would keep a buffer filling.
            self._leave()
            raise
        if notice is None:
            raise StopAsyncIteration
        return notice

    async def next(self) -> Notice | None:
        """The next notice, None at the end; unlike the loop, a cancel here ends nothing."""
        # A loop: another task of the same subscription may take the notice first. Notices come before the
        # end, so a subscriber sees all of a session that was closed.
        while not (self._waiting or self._missed):
            if self._over:
                return None
            self._news.clear()
            # Keeps this alive while a task waits in it: the feed itself holds it weakly.
            self._awaited.add(self)
            try:
                await self._news.wait()
            finally:
                self._awaited.discard(self)
        missed, notice, at = self._waiting[0] if self._waiting else (self._missed, None, None)
        if notice is None:
            self._missed = 0
            return NoticesMissed(count=missed)
        if missed:
            self._waiting[0] = 0, notice, at
            return NoticesMissed(count=missed)
        self._waiting.popleft()
        self.at = at
        return notice

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._leave()


class Audience(Protocol):
    """Takes the notices of the runs that a worker drives for one caller."""

    def put(self, notices: Sequence[Notice]) -> None:
        """Take the *notices* of one step."""
        ...

    def admits(self, event: object, /) -> bool:
        """Whether *event* may be applied now, which leads to more notices."""
        ...


@final
class RunBuffer:
    """
    The *unread* notices of a `RunStream`: of each step before the next, and of up to *size* deltas.

    *room* has the worker ask `admits` again.
    """

    def __init__(self, size: int, room: Callable[[], None]) -> None:
        self.unread: deque[Notice] = deque()
        # Set when there is something to read; there while the reader waits.
        self.news: asyncio.Future[None] | None = None
        # Whether an event was not let in, and waits for the reader.
        self.refused = False
        # Whether no more comes, since the work has ended or was left.
        self.ended = False
        self._size = size
        self.room = room

    def put(self, notices: Sequence[Notice]) -> None:
        """Keep the *notices* of one step."""
        if notices and not self.ended:
            self.unread.extend(notices)
            # As `wake`, which would be one more call for each delta.
            if (news := self.news) is not None:
                self.news = None
                with suppress(asyncio.InvalidStateError):
                    news.set_result(None)

    def admits(self, event: object) -> bool:
        """Whether the reader waits for more, or *event* is one of those of which some may be unread."""
        # First: each piece of a stream asks.
        if self.news is not None and not self.unread:
            return True
        passes = isinstance(event, ModelStreamed | PassThroughNotice) and len(self.unread) < self._size
        self.refused = not (passes or self.ended)
        return not self.refused

    def wake(self) -> None:
        """Have the reader look."""
        news, self.news = self.news, None
        if news is not None:
            # The reader may have been cancelled in this turn of the loop.
            with suppress(asyncio.InvalidStateError):
                news.set_result(None)

    def end(self, _: object = None) -> None:
        """Keep nothing more; what is here can be read."""
        self.ended = True
        self.wake()

    def leave(self) -> None:
        """Drop what is unread, and keep nothing more."""
        self.end()
        self.unread.clear()
        self.room()


# Begins the work, and lets go of it.
Begin: TypeAlias = "Callable[[], asyncio.Task[None]]"
Leave: TypeAlias = "Callable[[asyncio.Task[None]], None]"


class OnLeave(Choice):
    """What becomes of a run whose stream is left early."""

    LEAVE = "leave"
    """Its work stops, and it stays unfinished: `Session.resume` goes on with it."""
    CONTINUE = "continue"
    """It goes on in the background."""


@final
class RunStream:
    """
    The notices of a run that is worked on while they are read; from `Session.stream`.

    Iterate it with ``async for``. Nothing begins before the first notice is asked for. It is left early by
    `aclose`, by a cancel of its reader's wait or where it is dropped; *leave* is then called with the task.
    """

    def __init__(self, begin: Begin, leave: Leave, buffer: RunBuffer, on_leave: OnLeave) -> None:
        self._begin = begin
        self._leave = leave
        self._stops = on_leave is OnLeave.LEAVE
        # The worker has this one and not the stream, whose last reference is its reader's.
        self._buffer = buffer
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._over = False

    def __aiter__(self) -> RunStream:
        return self

    async def __anext__(self) -> Notice:
        buffer, unread = self._buffer, self._buffer.unread
        while not unread:
            if self._over:
                raise StopAsyncIteration
            if self._task is None:
                self._task, self._loop = self._begin(), asyncio.get_running_loop()
                self._task.add_done_callback(buffer.end)
            elif buffer.ended:
                self._over = True
                # Raises what ended the work.
                self._task.result()
                raise StopAsyncIteration
            if buffer.news is not None:
                msg = "another task waits for the next notice of this stream"
                raise RuntimeError(msg)
            # Here and not in a method: it is awaited for nearly each delta.
            buffer.news = news = self._loop.create_future()
            if buffer.refused:
                buffer.room()
            try:
                await news
            except asyncio.CancelledError:
                await self._left()
                raise
        return unread.popleft()

    async def aclose(self) -> None:
        """Leave the run; where that stops the work, it has stopped when this returns."""
        if self._over:
            return
        await self._left()
        task = self._task
        # What went wrong while the work stopped. An error that ended it before was raised to the reader.
        if task is not None and self._stops and not task.cancelled() and (error := task.exception()):
            raise error

    async def _left(self) -> None:
        self._over = True
        task = self._task
        if task is None:
            return
        _let_go(self._buffer, self._leave, task)
        if self._stops:
            # May be cancelled, such as by the work that stops here: the next caller waits for that anyway.
            task.add_done_callback(_seen)
            await asyncio.wait({task})

    def __del__(self) -> None:
        task = self._task
        if self._over or task is None or task.done():
            return
        with suppress(RuntimeError):
            loop = task.get_loop()
            if loop is _running_loop():
                _let_go(self._buffer, self._leave, task)
            else:
                loop.call_soon_threadsafe(_let_go, self._buffer, self._leave, task)


def _seen(task: asyncio.Task[None]) -> None:
    """Take the error of *task*, whose caller is gone, for seen."""
    if not task.cancelled():
        task.exception()


# Not a method: a stream that is collected holds on to nothing of itself.
def _let_go(buffer: RunBuffer, leave: Leave, task: asyncio.Task[None]) -> None:
    buffer.leave()
    leave(task)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


class Reader(Protocol):
    """Gets the notices of a feed."""

    @property
    def behind(self) -> bool:
        """Whether a task waits here that has had no turn yet to read what fills the buffer."""
        ...

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Take *notice*, which stands *at* that position; never waits."""
        ...

    def end(self) -> None:
        """Take no more notices."""
        ...


@final
class Unheard:
    """The audience of a run in the background, whose readers subscribe."""

    def put(self, notices: Sequence[Notice]) -> None:
        """Drop *notices*."""

    def admits(self, _: object) -> bool:
        """Always: there is no reader."""
        return True


@final
class Feed:
    """
    Passes notices on to subscribers, each with a buffer of *size* notices.

    A full buffer drops deltas first, and what says how a run ended never. All methods belong to
    one event loop.
    """

    __slots__ = ("_at", "_awaited", "_closed", "_readers", "_size", "used")

    def __init__(self, size: int = SUBSCRIBER_BUFFER) -> None:
        # `True` is an int, and a buffer of one notice is hardly what its caller wants.
        if type(size) is not int or size < 1:
            msg = f"Feed.size must be a whole number above 0; got {size!r}"
            raise ConfigError(msg)
        self._size = size
        self._closed = False
        # The position of the latest notice that has one.
        self._at: Position | None = None
        # Whether it ever had a subscriber: most sessions have none, and publish many notices.
        self.used = False
        # Weak: a subscriber that broke out of its loop and never closed must not be fed for ever. Like the
        # next, made for the first one: of a thousand sessions that wait here, most have none.
        self._readers: WeakSet[Reader] | tuple[()] = ()
        # Strong while a task waits: nothing else need hold a task whose only wish is the next notice.
        self._awaited: set[Subscription] | None = None

    def subscribe(self) -> Subscription:
        """A subscription to the notices from now on; on a closed feed, an empty one."""
        # Not an error: a subscriber may come a moment after the end, and has nothing to handle then.
        if self._awaited is None:
            self._awaited = set()
        made = Subscription(self._size, self._awaited)
        self.attach(made)
        return made

    def attach(self, reader: Reader) -> None:
        """Pass notices on to *reader* from now on, for as long as something else holds it."""
        if self._closed:
            reader.end()
            return
        if isinstance(self._readers, tuple):
            self._readers = WeakSet()
        self._readers.add(reader)
        self.used = True

    async def pass_on(self, notices: Iterable[Notice], entry: int | None) -> None:
        """Publish *notices*; a reader that waits gets a turn of the loop before it misses one."""
        for notice in notices:
            if any(each.behind for each in self._readers):
                await asyncio.sleep(0)
            self.publish(notice, entry)

    def publish(self, notice: Notice, entry: int | None = None) -> None:
        """Pass *notice* on, of the journal's *entry*; no subscriber can make this wait or fail."""
        at = None if entry is None else self._position(notice, entry)
        # In the order of the run's own stream: it comes here before the caller gets it.
        for each in self._readers:
            each.put(notice, at)

    def _position(self, notice: Notice, entry: int) -> Position:
        """Where *notice* stands; one that no journal has stands behind the notice before it."""
        if isinstance(notice, PASSING):
            return (entry, BEHIND) if self._at is None else max(self._at, (entry, -1))
        # Too low for the rest of an entry of which only a part came through here. What subscribes meanwhile
        # finds all of it in the journal.
        place = self._at[1] + 1 if self._at is not None and self._at[0] == entry else 0
        self._at = entry, place
        return self._at

    def close(self) -> None:
        """End every subscription after its unread notices. Closing twice is fine."""
        self._closed = True
        for each in self._readers:
            each.end()
        self._readers = ()


@final
@attrs.frozen(kw_only=True)
class Delivery:
    """
    Which notices subscribers get, and how.

    Without *include_partial* a text comes once, when the model has answered; the text of an answer that broke
    off is left out. A subscriber may lag *buffer* notices behind.
    """

    # On by default: a person who waits wants to see that something happens.
    include_partial: bool = True
    buffer: int = attrs.field(default=SUBSCRIBER_BUFFER, validator=positive)

    def filter(self) -> CompletedTexts | None:
        """What makes the notices that subscribers get of those of each step; None: they get these."""
        return None if self.include_partial else CompletedTexts()


@final
class CompletedTexts:
    """Holds the text of an answer back until its end."""

    def __init__(self) -> None:
        self._held: list[TextDelta | ReasoningDelta] = []

    def shown(self, notices: Sequence[Notice]) -> Sequence[Notice]:
        """*notices* with the text of an answer at its end."""
        return [*_completed(notices, self._held)]

    def rest(self) -> Sequence[Notice]:
        """The text of an answer that was left: a run that was drained ends without one of `ENDS`."""
        return [*_joined(self._held)]


def _completed(notices: Iterable[Notice], held: list[TextDelta | ReasoningDelta]) -> Iterator[Notice]:
    """*notices* with the text of an answer at its end; until then it is *held*."""
    for notice in notices:
        # Held, not joined at once: the answer may be dropped, and then none of it was ever shown.
        if isinstance(notice, TextDelta | ReasoningDelta):
            held.append(notice)
            continue
        # The whole call comes with the end of the turn.
        if isinstance(notice, CallDelta):
            continue
        # The model is asked again: its text so far is no part of the conversation.
        if isinstance(notice, AnswerDropped):
            held.clear()
            continue
        if isinstance(notice, ENDS):
            yield from _joined(held)
        yield notice


def _joined(held: list[TextDelta | ReasoningDelta]) -> Iterator[Notice]:
    """Empty *held*: neighbours of one kind as one notice, so that text and reasoning keep their order."""
    for kind, deltas in groupby(held, type):
        yield kind("".join([delta.text for delta in deltas]))
    held.clear()


# The notices that complete the text of an answer; others, such as an input, do not wait for it.
ENDS = TurnEnded | AnswerKept | RunEnded

# The notices without which a reader could not say which answer a run gave, and to what.
OUTCOMES = InputTaken | InputBlocked | RunLeft | ENDS

# The notices that no journal leads to again: whether they came, and how many, was a matter of the moment.
PASSING = (
    TextDelta | ReasoningDelta | CallDelta | ToolOutput | AgentNoticed | RequestDelayed | Ignored | RunLeft
)


def is_delta(notice: Notice) -> bool:
    """Whether *notice* is a bit of an answer, also of a child's."""
    while isinstance(notice, AgentNoticed):
        notice = notice.notice
    return isinstance(notice, TextDelta | ReasoningDelta | CallDelta)
