"""
Hands spans and measurements to the host's telemetry, in a thread of its own.

Theory of operation. A span processor may export a span inside of ``span.end``, and an exporter may wait for a
server that is gone. So each such call goes into a bounded queue, which one thread empties. Where that thread
is stuck, the queue fills up and further calls are dropped: telemetry is lost, and no run waits.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import final
from weakref import ref

from ..forks import renew_in_child
from ..logs import warn

# Calls that wait for the thread: a few minutes of a busy process, in about ten megabytes.
MOST_WAITING = 10_000

# Seconds after which a thread without work ends.
IDLE = 5.0

# Seconds in which calls gather before the thread does them. If it woke for each, it would take turns with the
# event loop all the time.
GATHER = 0.05

# Seconds that the exit of the process waits for the calls that are left.
AT_EXIT = 2.0


@final
class Outbox:
    """Calls functions of the host in their order, in one thread; *most* of them may wait."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        self.dropped = 0
        self._most = most
        self._warned = False
        self._reset()
        renew_in_child(self, Outbox._reset)
        # By a weak reference: the exit must not keep the outbox of each agent that ever was.
        atexit.register(_flush_at_exit, ref(self))

    def _reset(self) -> None:
        # Also in a forked child, which has neither the thread nor, perhaps, the lock.
        self._waiting = deque[Callable[[], object]]()
        # Reentrant: a signal handler of the host may put or flush in the middle of either.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Whether there is a thread, whether it is in the middle of calls, and whether `flush` waits for it.
        self._works = self._calls = self._hurries = False

    def put(self, *calls: Callable[[], object]) -> None:
        """
        Have the thread call *calls*; all are dropped where too many wait.

        Never waits for a call.
        """
        if self.offer(*calls):
            return
        with self._lock:
            self.dropped += len(calls)
            warned, self._warned = self._warned, True
        # Without the lock: a log handler of the host may wait for another thread that puts.
        if not warned:
            error = RuntimeError(f"{self._most:,} spans and measurements wait for an exporter")
            warn("telemetry is lost", error)

    def offer(self, *calls: Callable[[], object]) -> bool:
        """Have the thread call *calls*, unless too many wait; returns whether it will."""
        with self._lock:
            before = len(self._waiting)
            if before + len(calls) > self._most:
                return False
            self._waiting.extend(calls)
            works, self._works = self._works, True
            if works:
                if not before:
                    self._changed.notify_all()
                return True
        try:
            threading.Thread(target=self._work, name="turnwheel-telemetry", daemon=True).start()
        except RuntimeError:
            # The interpreter ends, or the process has no thread left.
            self._works = False
        return True

    def flush(self, within: float) -> bool:
        """Wait up to *within* seconds until all calls are done; whether they are."""
        deadline = monotonic() + within
        with self._lock:
            while self._waiting or self._calls:
                left = deadline - monotonic()
                if left <= 0:
                    return False
                self._hurries = True
                self._changed.notify_all()
                self._changed.wait(left)
            return True

    def _work(self) -> None:
        while self._gathered():
            # No other thread takes calls away, and a deque needs no lock for one at a time.
            while self._waiting:
                try:
                    self._waiting.popleft()()
                except BaseException as error:  # noqa: BLE001  # the host's exporter is any code
                    # `SystemExit`, too: it would end this thread alone, and `put` would wait for it for ever.
                    self.failed(error)
            self._rests()

    def _gathered(self) -> bool:
        """Wait until there are calls to do; False where there are none for a while."""
        with self._lock:
            self._changed.wait_for(lambda: bool(self._waiting), IDLE)
            if not self._waiting:
                # Under the lock: the next `put` starts another thread.
                self._works = False
                return False
            self._changed.wait_for(lambda: self._hurries, GATHER)
            self._calls = True
            return True

    def _rests(self) -> None:
        """Tell those who flush, where all calls are done."""
        with self._lock:
            self._calls = False
            if not self._waiting:
                self._hurries = False
                self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """Log that the host's telemetry raised *error*, the first time."""
        if not self._warned:
            self._warned = True
            warn("telemetry failed", error)


def _flush_at_exit(outbox: ref[Outbox]) -> None:
    if (there := outbox()) is not None:
        there.flush(AT_EXIT)
