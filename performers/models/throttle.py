"""
How many requests a provider gets at a time, and that none comes before the time it gave.

Theory of operation. Requests under way count against one limit, whatever model they ask; those that find no
room wait, first come, first served. A request that the provider turns away for its load closes the lane of
its model: none of that lane is sent before the time the provider gave, or, where it gave none, before the one
that was turned away may be tried again by the settings of its run. Then the lane opens slowly: one request is
sent, and each that is taken up lets one more be out at a time, until nobody waits any more. Whoever was
turned away comes back by itself when its own wait is over, which is never before that time.

Lanes are by model because limits are: a fallback model of the same provider must not wait for what it is to
get round. Nor is anything waited here that the loop would not wait: such a request is answered as the one
that was turned away, so that its run can end or fall back.

There is a lock, and a future belongs to its event loop: a provider may be asked from several threads.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, NamedTuple, final

from ...effects.errors import ConfigError
from ...effects.events import Failure
from ...effects.notices import RequestDelayed
from ...effects.requests import Purpose
from .wire import Broken

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from ...effects.config import Config, Retries
    from ...effects.events import ModelFailed
    from ...effects.requests import CallModel
    from ..base import PerformContext

MAX_CONCURRENT = 64
"""
Requests under way at one provider where nothing else is said.

With 200 sessions and answers of half a second this many are done soonest: in 6.8 s, where 32 take 12.7 s and
any number 17 s (measured). What httpx looks through for each request grows with its connections, so that from
about 80 on most of the time goes there.
"""

MAX_GUESS = 60.0
"""Seconds that all wait at most where the provider did not say how long."""

ACCEPTED_AFTER = 5.0
"""Seconds after which a request counts as taken up: it is turned away at once, or for something else."""

_DOUBLINGS = 30  # of a wait that is guessed: by then it is the longest, whatever it began with


class LoadRefusal(NamedTuple):
    """Why nothing is sent before *until*, in seconds since the epoch: what the provider said."""

    until: float = -math.inf
    failure: Failure = Failure.OVERLOADED
    message: str = ""


@final
class ProviderQueue:
    """
    The requests for one model: those that wait, in order, and how many may go.

    *refusal* is the last one, of *times* in a row, and *epoch* counts them: what was sent in an earlier epoch
    says nothing of this one. Of this epoch's, *out* were not taken up yet, and *room* is how many may be.
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
        self._lanes: dict[str, ProviderQueue] = {}
        self._numbers = count()
        # Taken again in the same thread where a task that nobody ended is collected under it.
        self._lock = threading.RLock()

    def slot(self, request: CallModel, scene: PerformContext) -> Slot:
        """The place of *request* in the queue, to be entered as a context and awaited."""
        with self._lock:
            lane = self._lanes.setdefault(request.model, ProviderQueue())
            slot = Slot(self, lane, next(self._numbers), request, scene)
            lane.waiting.append(slot)
            self._queued += 1
            return slot

    def look(self, slot: Slot, now: float) -> LoadRefusal | asyncio.Future[None] | None:
        """What *slot* waits for at *now*: a time, or its turn; None when that has come."""
        with self._lock:
            self._admit(now)
            if slot.sent:
                return None
            if now < slot.lane.refusal.until:
                return slot.lane.refusal
            slot.turn = asyncio.get_running_loop().create_future()
            return slot.turn

    def taken_up(self, slot: Slot, now: float) -> None:
        """The provider works on the request of *slot*: one more may be sent."""
        with self._lock:
            lane = slot.lane
            if self._settle(slot):
                lane.times = 0
                lane.room = lane.room + 1 if lane.waiting else math.inf
                self._admit(now)

    def turned_away(self, slot: Slot, failed: ModelFailed, retries: Retries) -> None:
        """The provider refused the request of *slot* for its load, with *failed*."""
        with self._lock:
            lane, asked = slot.lane, failed.retry_after
            is_news = slot.epoch == lane.epoch
            if is_news:
                lane.times += 1
            elif asked is None:
                return  # one of many that were sent before the first refusal came
            wait = _guess(lane.times, retries, failed.jitter) if asked is None else asked
            refusal = LoadRefusal(failed.at + wait, failed.failure, failed.message)
            if is_news or refusal.until > lane.refusal.until:
                lane.close(refusal)

    def leave(self, slot: Slot, now: float) -> None:
        """*slot* is done, or its request is given up before it was sent."""
        with self._lock:
            if slot.sent:
                self._under_way -= 1
                self._settle(slot)
            else:
                slot.lane.waiting.remove(slot)
                self._queued -= 1
            self._admit(now)

    def _admit(self, now: float) -> None:
        """Send what may be sent at *now*, in the order it came."""
        while self._queued and (self._limit is None or self._under_way < self._limit):
            heads = [slot for lane in self._lanes.values() for slot in lane.head(now)]
            if not heads:
                break
            slot = min(heads, key=lambda head: head.number)
            slot.lane.waiting.popleft()
            self._queued -= 1
            slot.lane.out += 1
            slot.epoch = slot.lane.epoch
            slot.sent = slot.unsettled = True
            self._under_way += 1
            slot.wake()

    def _settle(self, slot: Slot) -> bool:
        """What becomes of *slot* is known now; whether that was not known, and says something of its lane."""
        counts = slot.unsettled and slot.epoch == slot.lane.epoch
        slot.lane.out -= counts
        slot.unsettled = False
        return counts


@final
class Slot:
    """
    A request's place, as a context: inside, `wait` for its turn, and say what came of it.

    *sent*: its turn has come, in that *epoch* of its *lane*. *unsettled*: whether the provider takes it is
    not known yet. *turn* is what it waits for, where that is not a time.
    """

    def __init__(
        self, throttle: Throttle, lane: ProviderQueue, number: int, request: CallModel, scene: PerformContext
    ) -> None:
        self.lane = lane
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
        if self.lane.room < math.inf:
            self._alarm = asyncio.get_running_loop().call_later(ACCEPTED_AFTER, self.taken_up)
        return None

    def taken_up(self) -> None:
        """Say that the provider works on it."""
        self._throttle.taken_up(self, self._scene.clock.now())

    def turned_away(self, failed: ModelFailed) -> None:
        """Say that the provider refused it for its load, with *failed*."""
        self._throttle.turned_away(self, failed, self._scene.config.retries)

    def wake(self) -> None:
        """Let it look again, in its own event loop."""
        turn, self.turn = self.turn, None
        if turn is not None:
            with suppress(RuntimeError):  # the loop is closed, nobody waits
                turn.get_loop().call_soon_threadsafe(_resolve, turn)

    def __enter__(self) -> Slot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
