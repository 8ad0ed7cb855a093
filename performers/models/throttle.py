"""
How many requests a provider gets at a time, and that none comes before the time it gave.

Theory of operation. Requests under way count against one limit, whatever model they ask; those that find no
room wait, first come, first served. A request that the provider turns away for its load closes the queue of
its model. None of that queue is sent before the time that the provider gave. Where it gave none, the settings
of the run say when the request may be tried again. Then the queue opens slowly: one request is sent, and each
that is accepted lets one more be out at a time, until none waits. The request that was turned away comes back
by itself when its own wait is over.

While a refusal is remembered, each request also looks for those of other processes on the same store, and
takes its turn with theirs; see `shared_refusals`.

A wait that is longer than the loop's own patience is none: such a request is answered as the one that was
turned away, so that its run can end or fall back. A provider may be asked from several threads, so there is a
lock, and each future is resolved in its own event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import NamedTuple, TypeVar, final

import attrs

from ...effects.config import Config, Retries
from ...effects.errors import ConfigError, WorldError
from ...effects.events import Failure, ModelFailed
from ...effects.notices import RequestDelayed
from ...effects.requests import CallModel, Purpose
from ...states.rules.retry import asked_wait
from ..base import PerformContext
from ..forks import renew_in_child
from ..meters import MeterChange, change, meters_of
from .shared_refusals import ACCEPTED_AFTER, REMEMBERED, Outlook, SharedRefusal, accepting, asking, closing
from .wire import Broken

T = TypeVar("T")

# Requests under way at one provider, unless a limit is given.
# It bounds what a crowd of sessions does to a provider, and is no matter of speed: the CPU of a request is
# the same with 32, 64 or 128 under way, and 200 sessions with answers of half a second are done sooner with
# 128. Only where a caller's own client of httpx asks does each request pay for all that are under way.
MAX_CONCURRENT = 64

# Seconds that all wait at most where the provider did not say how long.
MAX_GUESS = 60.0

_DOUBLINGS = 30  # of a wait that is guessed: by then it is the longest, whatever it began with


class LoadRefusal(NamedTuple):
    """A provider's refusal: nothing is sent before *until*, in seconds since the epoch."""

    until: float = -math.inf
    failure: Failure = Failure.OVERLOADED
    message: str = ""


@final
@attrs.define(eq=False)
class ProviderQueue:
    """
    The requests for one model: those that wait, in order, and how many may go.

    *refusal* is the last one, of *times* in a row. What was sent before it says nothing of now. Of those sent
    since, *out* were not accepted yet, and *room* is how many may be.
    """

    waiting: deque[Slot] = attrs.Factory(deque)
    refusal: LoadRefusal = LoadRefusal()
    times: int = 0
    room: float = math.inf
    out: set[Slot] = attrs.Factory(set)
    # The end of the last refusal that was shared, by the clock of the store.
    shared_until: float = -math.inf

    def close(self, refusal: LoadRefusal) -> None:
        """Let nothing go before the time of *refusal*, and then one request."""
        self.refusal = refusal
        self.room, self.out = 1, set()
        for slot in self.waiting:
            slot.wake()  # it looks at the time again

    def adopt(self, refusal: LoadRefusal, times: int) -> None:
        """As `close`, for a *refusal* that another process met, where it is the longer one."""
        self.times = max(self.times, times)
        if refusal.until > self.refusal.until:
            self.close(refusal)


@final
class Throttle:
    """
    Lets *limit* requests at a time go to one provider, None for any number; the others wait.

    *account* gives the name by which other processes know that provider.
    """

    def __init__(self, limit: int | None = MAX_CONCURRENT, account: Callable[[], str] = str) -> None:
        if limit is not None and limit < 1:
            msg = f"limit must be at least 1 request at a time, or None for no limit; got {limit!r}"
            raise ConfigError(msg)
        self._limit = math.inf if limit is None else limit
        self.account = account
        self._numbers = count()
        self._renew()
        renew_in_child(self, Throttle._renew)

    def _renew(self) -> None:
        """Begin without any request, as in a forked child, where those of the parent never end."""
        self._queues: dict[str, ProviderQueue] = {}
        self.under_way = 0
        # Reentrant: while it is held, the garbage collector may close a forgotten task, which leaves its
        # slot.
        self.lock = threading.RLock()

    def slot(self, request: CallModel, scene: PerformContext) -> Slot:
        """The place of *request* in the queue, to be entered as a context and awaited."""
        with self.lock:
            # By model, because limits are: a fallback of the same provider must not wait for the model that
            # it is to get round.
            queue = self._queues.get(request.model)
            if queue is None:
                queue = self._queues[request.model] = ProviderQueue()
            slot = Slot(self, queue, next(self._numbers), request, scene)
            queue.waiting.append(slot)
            return slot

    def admit(self, now: float) -> None:
        """Send what may be sent at *now*, in the order it came."""
        while self.under_way < self._limit:
            heads = [
                queue.waiting[0]
                for queue in self._queues.values()
                if queue.waiting and now >= queue.refusal.until and len(queue.out) < queue.room
            ]
            if not heads:
                break
            # The oldest request goes first over all models, or a busy model would starve the others.
            slot = min(heads, key=lambda head: head.number)
            slot.queue.waiting.popleft()
            slot.queue.out.add(slot)
            slot.sent = slot.queue.refusal
            self.under_way += 1
            slot.wake()

    def put_back(self, slot: Slot, refusal: LoadRefusal, times: int) -> None:
        """Let *slot*, whose turn had come, wait again: another process met *refusal*, the last of *times*."""
        with self.lock:
            queue = slot.queue
            slot.sent = None
            self.under_way -= 1
            queue.out.discard(slot)
            queue.waiting = deque(sorted((slot, *queue.waiting), key=lambda each: each.number))
            queue.adopt(refusal, times)


@final
@attrs.define(eq=False)
class Slot:
    """
    A request's place, as a context: inside, `wait` for its turn, and say what came of it.

    *sent* is None until its turn has come, and then the last refusal in its *queue* at that time. It holds a
    *permit* where processes open the queue together.
    """

    throttle: Throttle
    queue: ProviderQueue
    number: int
    request: CallModel
    scene: PerformContext
    sent: LoadRefusal | None = None
    permit: str = ""
    _turn: asyncio.Future[None] | None = None
    _alarm: asyncio.TimerHandle | None = None

    async def wait(self) -> Broken | None:
        """Return when the request may be sent; else what it is answered with, unsent."""
        scene, told = self.scene, False
        patience = patience_of(self.request, scene.config)
        while True:
            held = self.look(now := scene.clock.now())
            if held is None:
                # Compared here and not in a method: each request of each run comes by.
                if now >= self.queue.refusal.until + REMEMBERED or await self._let_through():
                    break
                continue
            if isinstance(held, asyncio.Future):
                await held
                continue
            reason = f"another request was turned away: {held.message}"
            if held.until - now > patience:
                message, wait = f"not sent, since {reason}", held.until - now
                return Broken(failure=held.failure, message=message, retry_after=wait)
            if not told:
                scene.emit(RequestDelayed(at=now, request=self.request.id, due=held.until, reason=reason))
                told = True
            await scene.clock.sleep_until(held.until)
        if self.queue.room < math.inf:
            # A provider that accepts a request may be silent for minutes before its first byte, and the queue
            # cannot stand still for so long.
            self._alarm = asyncio.get_running_loop().call_later(ACCEPTED_AFTER, self.accepted)
        return None

    def look(self, now: float) -> LoadRefusal | asyncio.Future[None] | None:
        """What it waits for at *now*: a time, or its turn; None when that has come."""
        with self.throttle.lock:
            self.throttle.admit(now)
            if self.sent:
                return None
            if now < self.queue.refusal.until:
                return self.queue.refusal
            self._turn = asyncio.get_running_loop().create_future()
            return self._turn

    async def _let_through(self) -> bool:
        """Whether it may go as far as other processes are concerned; else it is back in its queue."""
        clock, permit = self.scene.clock, uuid.uuid4().hex[:12]
        while True:
            found = await self._change(asking(permit, self.queue.shared_until), Outlook())
            if not found.wait:
                self.permit = found.permit
                return True
            if (there := found.refusal) is not None:
                # Its time is waited for by this clock, and not looked at again by the store's.
                self.queue.shared_until = there.until
                refusal = LoadRefusal(clock.now() + found.wait, Failure(there.failure), there.message)
                self.throttle.put_back(self, refusal, there.times)
                return False
            await clock.sleep_until(clock.now() + found.wait)

    async def _change(self, work: MeterChange[T], otherwise: T) -> T:
        """What *work* made of the refusal that all processes share; *otherwise* where they share none."""
        meters = meters_of(self.scene.store)
        if meters is not None:
            name = f"refusal {self.throttle.account()} {self.request.model}"
            with suppress(WorldError):  # a store that fails leaves each process with its own
                return await change(meters, name, work)
        return otherwise

    async def pass_on(self) -> None:
        """Tell other processes that the provider works on it, where it holds a permit."""
        permit, self.permit = self.permit, ""
        await self._change(accepting(permit), None)

    async def share(self) -> None:
        """Tell other processes of the refusal that closed its queue; theirs counts where it is longer."""
        queue, clock = self.queue, self.scene.clock
        mine, wait = queue.refusal, queue.refusal.until - clock.now()
        told = SharedRefusal(
            since=0.0, until=0.0, times=queue.times, failure=mine.failure, message=mine.message
        )
        all_wait, there = await self._change(closing(told, wait), (wait, told))
        queue.shared_until = max(queue.shared_until, there.until)
        if all_wait > wait:
            with self.throttle.lock:
                until = clock.now() + all_wait
                queue.adopt(LoadRefusal(until, Failure(there.failure), there.message), there.times)

    def accepted(self) -> None:
        """Say that the provider works on it: one more may be sent."""
        with self.throttle.lock:
            queue = self.queue
            if self in queue.out:
                queue.out.remove(self)
                queue.times = 0
                queue.room = queue.room + 1 if queue.waiting else math.inf
                if queue.waiting:
                    self.throttle.admit(self.scene.clock.now())

    def turned_away(self, failed: ModelFailed) -> bool:
        """Say that the provider refused it for its load, with *failed*; whether that closed the queue."""
        with self.throttle.lock:
            queue, wait = self.queue, asked_wait(self.scene.config.retries, failed)
            # A hundred requests may be out when the first is turned away. All of them will be, and that is
            # one refusal and not a hundred: the guess would double with each.
            is_news = self.sent is queue.refusal
            queue.times += is_news
            if wait is None and is_news:
                wait = _guess(queue.times, self.scene.config.retries, failed.jitter)
            closes = wait is not None and (is_news or failed.at + wait > queue.refusal.until)
            if closes and wait is not None:
                queue.close(LoadRefusal(failed.at + wait, failed.failure, failed.message))
            return closes

    def wake(self) -> None:
        """Let it look again, in its own event loop."""
        turn, self._turn = self._turn, None
        if turn is not None:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                turn.get_loop().call_soon_threadsafe(_resolve, turn)

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        with self.throttle.lock:
            if self.sent:
                self.throttle.under_way -= 1
                self.queue.out.discard(self)
            else:
                self.queue.waiting.remove(self)
            self.throttle.admit(self.scene.clock.now())


def _resolve(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


def _guess(times: int, retries: Retries, jitter: float) -> float:
    """How long all wait after *times* refusals in a row: as long as a run that was refused so often."""
    delay = retries.base * 2.0 ** min(times - 1, _DOUBLINGS)
    return min(delay, MAX_GUESS) * (1.0 + retries.jitter * jitter)


def patience_of(request: CallModel, config: Config) -> float:
    """How many seconds *request* may be held: there may be a fallback, or it may not be worth the wait."""
    retries = config.retries
    if request.purpose is not Purpose.TURN or config.fallback not in {"", request.model}:
        return retries.fallback_after
    return math.inf if retries.longest is None else retries.longest
