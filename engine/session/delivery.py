"""
Delivers the notices of a session to its subscribers.

Theory of operation. A run must never wait for a subscriber. Each one has a bounded buffer. When it is full,
it drops deltas before anything else, since the notice at the end of an answer has all of its text. It never
drops what says how a run ended, and on which inputs. A subscriber without references is collected with its
buffer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing, suppress
from itertools import groupby
from sys import maxsize
from typing import TYPE_CHECKING, final
from weakref import WeakSet

import attrs

from ...effects.errors import ConfigError
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
    TextDelta,
    ToolOutput,
    TurnEnded,
)
from ...effects.validators import positive

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence


# Where a notice stands in a journal: the number of its entry, and its place among the notices of that.
Position = tuple[int, int]

# A place behind all notices of an entry.
BEHIND = maxsize

# Notices that a subscriber may lag behind by default: about a second of streamed text.
SUBSCRIBER_BUFFER = 64


@final
class Subscription:
    """
    The notices for one subscriber, from `Broker.subscribe` on. Leave with ``async with`` or `aclose`.

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
    def full(self) -> bool:
        """Whether the buffer has no room."""
        return len(self._waiting) >= self._size

    def put(self, notice: Notice, at: Position | None = None) -> None:
        """Keep *notice* if there is room, or if it counts for more than one that is here; *at* says where."""
        if self._over:
            return
        if not self.full or self._makes_room(notice):
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
            # Keeps this alive while a task waits in it: the broker itself holds it weakly.
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


@final
class Broker:
    """
    Passes notices on to subscribers, each with a buffer of *size* notices.

    A full buffer drops deltas first, and what says how a run ended never. All methods belong to
    one event loop, and none of them waits.
    """

    __slots__ = ("_at", "_awaited", "_closed", "_size", "_subscriptions", "used")

    def __init__(self, size: int = SUBSCRIBER_BUFFER) -> None:
        # `True` is an int, and a buffer of one notice is hardly what its caller wants.
        if type(size) is not int or size < 1:
            msg = f"Broker.size must be a whole number above 0; got {size!r}"
            raise ConfigError(msg)
        self._size = size
        self._closed = False
        # The position of the latest notice that has one.
        self._at: Position | None = None
        # Whether it ever had a subscriber: most sessions have none, and publish many notices.
        self.used = False
        # Weak: a subscriber that broke out of its loop and never closed must not be fed for ever. Like the
        # next, made for the first one: of a thousand sessions that wait here, most have none.
        self._subscriptions: WeakSet[Subscription] | tuple[()] = ()
        # Strong while a task waits: nothing else need hold a task whose only wish is the next notice.
        self._awaited: set[Subscription] | None = None

    def subscribe(self) -> Subscription:
        """A subscription to the notices from now on; on a closed broker, an empty one."""
        # Not an error: a subscriber may come a moment after the end, and has nothing to handle then.
        if self._awaited is None:
            self._awaited = set()
        made = Subscription(self._size, self._awaited)
        if self._closed:
            made.end()
            return made
        if isinstance(self._subscriptions, tuple):
            self._subscriptions = WeakSet()
        self._subscriptions.add(made)
        self.used = True
        return made

    def publish(self, notice: Notice, entry: int | None = None) -> None:
        """Pass *notice* on, of the journal's *entry*; no subscriber can make this wait or fail."""
        at = None if entry is None else self._position(notice, entry)
        # In the order of the run's own stream: it comes here before the caller gets it.
        for each in self._subscriptions:
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
        for each in self._subscriptions:
            each.end()
        self._subscriptions = ()


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

    def shown(self, steps: AsyncGenerator[Sequence[Notice], None]) -> AsyncGenerator[Sequence[Notice], None]:
        """The notices that subscribers get of each of *steps*."""
        # The same generator where nothing is to be held back: a filter costs a frame for each step.
        return steps if self.include_partial else _without_partial(steps)


async def _without_partial(
    steps: AsyncGenerator[Sequence[Notice], None],
) -> AsyncGenerator[Sequence[Notice], None]:
    held: list[TextDelta | ReasoningDelta] = []
    async with aclosing(steps):
        async for notices in steps:
            yield [*_completed(notices, held)]
        # A run that was drained ends without one of `ENDS`.
        yield [*_joined(held)]


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
OUTCOMES = InputTaken | InputBlocked | ENDS

# The notices that no journal leads to again: whether they came, and how many, was a matter of the moment.
PASSING = TextDelta | ReasoningDelta | CallDelta | ToolOutput | AgentNoticed | RequestDelayed | Ignored


def is_delta(notice: Notice) -> bool:
    """Whether *notice* is a bit of an answer, also of a child's."""
    while isinstance(notice, AgentNoticed):
        notice = notice.notice
    return isinstance(notice, TextDelta | ReasoningDelta | CallDelta)
