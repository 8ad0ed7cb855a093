"""
How many requests a provider gets at a time, and that none comes before the time it gave.

Theory of operation. Requests under way count against one limit, whatever model they ask; those that find no
room wait, first come, first served. A request that the provider turns away for its load closes the queue of
its model. None of that queue is sent before the time that the provider gave. Where it gave none, the settings
of the run say when the request may be tried again. Then the queue opens slowly: one request is sent, and each
that is accepted lets one more be out at a time, until none waits. The request that was turned away comes back
by itself when its own wait is over.

A wait that is longer than the loop's own patience is none: such a request is answered as the one that was
turned away, so that its run can end or fall back. A provider may be asked from several threads, so there is a
lock, and each future is resolved in its own event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import NamedTuple, final

from ...effects.config import Config, Retries
from ...effects.errors import ConfigError
from ...effects.events import Failure, ModelFailed
from ...effects.notices import RequestDelayed
from ...effects.requests import CallModel, Purpose
from ..base import PerformContext
from .wire import Broken

# Requests under way at one provider, unless a limit is given.
# With 200 sessions and answers of half a second this many are done soonest: in 6.8 s, where 32 take 12.7 s
# and any number 17 s (measured). What httpx looks through for each request grows with its connections, so
# that from about 80 on most of the time goes there.
MAX_CONCURRENT = 64

# Seconds that all wait at most where the provider did not say how long.
MAX_GUESS = 60.0

# Seconds after which a request counts as accepted: it is turned away at once, or for something else.
ACCEPTED_AFTER = 5.0

_DOUBLINGS = 30  # of a wait that is guessed: by then it is the longest, whatever it began with


class LoadRefusal(NamedTuple):
    """A provider's refusal: nothing is sent before *until*, in seconds since the epoch."""

    until: float = -math.inf
    failure: Failure = Failure.OVERLOADED
    message: str = ""


@final
class ProviderQueue:
    """
    The requests for one model: those that wait, in order, and how many may go.

    *refusal* is the last one, of *times* in a row, and *epoch* counts them: what was sent in an earlier epoch
    says nothing of this one. Of this epoch's, *out* were not accepted yet, and *room* is how many may be.
    """

    def __init__(self) -> None:
        self.waiting: deque[Slot] = deque()
        self.refusal = LoadRefusal()
        self.times = 0
        self.epoch = 0
        self.room = math.inf
        self.out = 0

    def head(self, now: float) -> Iterator[Slot]:
        """The request that may go next, if one may at *now*."""
        if self.waiting and now >= self.refusal.until and self.out < self.room:
            yield self.waiting[0]

    def close(self, refusal: LoadRefusal) -> None:
        """Let nothing go before the time of *refusal*, and then one request."""
        self.refusal = refusal
        self.epoch += 1
        self.room, self.out = 1, 0
        for slot in self.waiting:
            slot.wake()  # it looks at the time again


@final
class Throttle:
    """Lets *limit* requests at a time go to one provider, None for any number; the others wait."""

    def __init__(self, limit: int | None = MAX_CONCURRENT) -> None:
        if limit is not None and limit < 1:
            msg = f"limit must be at least 1 request at a time, or None for no limit; got {limit!r}"
            raise ConfigError(msg)
        self._limit = limit
        self._under_way = 0
        self._queued = 0
        self._queues: dict[str, ProviderQueue] = {}
        self._numbers = count()
        # Reentrant: while it is held, the garbage collector may close a forgotten task, which leaves its
        # slot.
        self._lock = threading.RLock()

    def slot(self, request: CallModel, scene: PerformContext) -> Slot:
        """The place of *request* in the queue, to be entered as a context and awaited."""
        with self._lock:
            # By model, because limits are: a fallback of the same provider must not wait for the model that
            # it is to get round.
            queue = self._queues.setdefault(request.model, ProviderQueue())
            slot = Slot(self, queue, next(self._numbers), request, scene)
            queue.waiting.append(slot)
            self._queued += 1
            return slot

    def look(self, slot: Slot, now: float) -> LoadRefusal | asyncio.Future[None] | None:
        """What *slot* waits for at *now*: a time, or its turn; None when that has come."""
        with self._lock:
            self._admit(now)
            if slot.sent:
                return None
            if now < slot.queue.refusal.until:
                return slot.queue.refusal
            slot.turn = asyncio.get_running_loop().create_future()
            return slot.turn

    def accepted(self, slot: Slot, now: float) -> None:
        """The provider works on the request of *slot*: one more may be sent."""
        with self._lock:
            queue = slot.queue
            if self._settle(slot):
                queue.times = 0
                queue.room = queue.room + 1 if queue.waiting else math.inf
                self._admit(now)

    def turned_away(self, slot: Slot, failed: ModelFailed, retries: Retries) -> None:
        """The provider refused the request of *slot* for its load, with *failed*."""
        with self._lock:
            queue, asked = slot.queue, failed.retry_after
            # A hundred requests may be out when the first is turned away. All of them will be, and that is
            # one refusal and not a hundred: the guess would double with each.
            is_news = slot.epoch == queue.epoch
            if is_news:
                queue.times += 1
            elif asked is None:
                return
            wait = _guess(queue.times, retries, failed.jitter) if asked is None else asked
            refusal = LoadRefusal(failed.at + wait, failed.failure, failed.message)
            if is_news or refusal.until > queue.refusal.until:
                queue.close(refusal)

    def leave(self, slot: Slot, now: float) -> None:
        """*slot* is done, or its request is given up before it was sent."""
        with self._lock:
            if slot.sent:
                self._under_way -= 1
                self._settle(slot)
            else:
                slot.queue.waiting.remove(slot)
                self._queued -= 1
            self._admit(now)

    def _admit(self, now: float) -> None:
        """Send what may be sent at *now*, in the order it came."""
        while self._queued and (self._limit is None or self._under_way < self._limit):
            # The oldest request goes first over all models, or a busy model would starve the others.
            heads = [slot for queue in self._queues.values() for slot in queue.head(now)]
            if not heads:
                break
            slot = min(heads, key=lambda head: head.number)
            slot.queue.waiting.popleft()
            self._queued -= 1
            slot.queue.out += 1
            slot.epoch = slot.queue.epoch
            slot.sent = slot.unsettled = True
            self._under_way += 1
            slot.wake()

    def _settle(self, slot: Slot) -> bool:
        """Note that the fate of *slot* is known; whether that is news, and about the present epoch."""
        counts = slot.unsettled and slot.epoch == slot.queue.epoch
        slot.queue.out -= counts
        slot.unsettled = False
        return counts


@final
class Slot:
    """
    A request's place, as a context: inside, `wait` for its turn, and say what came of it.

    *sent*: its turn has come, in that *epoch* of its *queue*. *unsettled*: whether the provider takes it is
    not known yet. *turn* is what it waits for, where that is not a time.
    """

    def __init__(
        self, throttle: Throttle, queue: ProviderQueue, number: int, request: CallModel, scene: PerformContext
    ) -> None:
        self.queue = queue
        self.number = number
        self.epoch = 0
        self.sent = self.unsettled = False
        self.turn: asyncio.Future[None] | None = None
        self._throttle = throttle
        self._request = request
        self._scene = scene
        self._alarm: asyncio.TimerHandle | None = None

    async def wait(self) -> Broken | None:
        """Return when the request may be sent; else what it is answered with, unsent."""
        scene, told = self._scene, False
        patience = _patience(self._request, scene.config)
        while (held := self._throttle.look(self, now := scene.clock.now())) is not None:
            if isinstance(held, asyncio.Future):
                await held
                continue
            if held.until - now > patience:
                message = f"not sent, since another request was turned away: {held.message}"
                return Broken(failure=held.failure, message=message, retry_after=held.until - now)
            if not told:
                reason = f"another request was turned away: {held.message}"
                scene.emit(RequestDelayed(request=self._request.id, due=held.until, reason=reason))
                told = True
            await scene.clock.sleep_until(held.until)
        if self.queue.room < math.inf:
            # A provider that accepts a request may be silent for minutes before its first byte, and the queue
            # cannot stand still for so long.
            self._alarm = asyncio.get_running_loop().call_later(ACCEPTED_AFTER, self.accepted)
        return None

    def accepted(self) -> None:
        """Say that the provider works on it."""
        self._throttle.accepted(self, self._scene.clock.now())

    def turned_away(self, failed: ModelFailed) -> None:
        """Say that the provider refused it for its load, with *failed*."""
        self._throttle.turned_away(self, failed, self._scene.config.retries)

    def wake(self) -> None:
        """Let it look again, in its own event loop."""
        turn, self.turn = self.turn, None
        if turn is not None:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                turn.get_loop().call_soon_threadsafe(_resolve, turn)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._throttle.leave(self, self._scene.clock.now())


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _guess(times: int, retries: Retries, jitter: float) -> float:
    """How long all wait after *times* refusals in a row: as long as a run that was refused so often."""
    delay = retries.base * 2.0 ** min(times - 1, _DOUBLINGS)
    return min(delay, MAX_GUESS) * (1.0 + retries.jitter * jitter)


def _patience(request: CallModel, config: Config) -> float:
    """How many seconds *request* may be held: there may be a fallback, or it may not be worth the wait."""
    retries = config.retries
    if request.purpose is not Purpose.TURN or config.fallback not in {"", request.model}:
        return retries.fallback_after
    return math.inf if retries.longest is None else retries.longest
