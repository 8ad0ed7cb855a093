"""The thread in which the file of a store is used, and the jobs that are handed over to it."""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from itertools import groupby
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from .sqlite import Durability
    from .sqlite_file import StoreFile

T = TypeVar("T")

Work: TypeAlias = "Callable[[sqlite3.Connection], T]"
"""What is to be done with an open file."""

Jobs: TypeAlias = "SimpleQueue[Job[Any] | None]"
"""What a thread is handed; None ends it."""


class Kind(Enum):
    """What a job does. Those that write, one behind the other, may share a transaction."""

    READ = auto()
    WRITE = auto()
    END = auto()


@final
class Job(Generic[T]):
    """*work* for a thread to do, asked for by a task of the event loop that is running."""

    value: T

    def __init__(self, work: Work[T], kind: Kind) -> None:
        self.work = work
        self.kind = kind
        self.error: Exception | None = None
        self.loop = asyncio.get_running_loop()
        self._told = False
        self._waiting: asyncio.Future[None] | None = None

    async def done(self) -> T:
        """
        What came of it, waited for even when the waiting task is cancelled: then that is raised at the end.

        So a cancelled caller knows that its work is done, and a failure is told rather than lost.
        """
        cancelled: asyncio.CancelledError | None = None
        while not self._told:
            self._waiting = self.loop.create_future()
            try:
                await self._waiting
            except asyncio.CancelledError as error:
                cancelled = error
        if self.error is not None:
            raise self.error
        if cancelled is not None:
            raise cancelled
        return self.value

    def settle(self, outcome: T | Exception) -> None:
        """Note what came of it, in the thread."""
        if isinstance(outcome, Exception):
            self.error = outcome
        else:
            self.value = outcome

    def tell(self) -> None:
        """Wake whoever waits, in the event loop, now that it is settled."""
        self._told = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


at_work: dict[threading.Thread, Jobs] = {}
"""The threads that have not ended, and what each is handed."""


def start(path: str, durability: Durability) -> Jobs:
    """A thread that does what it is handed with the file at *path*, until it is handed None."""
    from .sqlite_file import StoreFile  # noqa: PLC0415  # whoever keeps nothing on a disk need not import sqlite3

    jobs: Jobs = SimpleQueue()
    thread = threading.Thread(
        target=_serve, args=(jobs, StoreFile(path, durability)), name="turnwheel-sqlite", daemon=True
    )
    at_work[thread] = jobs
    thread.start()
    return jobs


@atexit.register
def _finish() -> None:
    """Have all done that was handed over: when the interpreter exits, daemon threads stop anywhere."""
    for thread, jobs in list(at_work.items()):
        jobs.put(None)
        thread.join()


def _serve(jobs: Jobs, file: StoreFile) -> None:
    while _worked_off(_waiting(jobs), file):
        pass  # and nothing of the last jobs is held on to while it waits for the next
    at_work.pop(threading.current_thread(), None)


def _waiting(jobs: Jobs) -> list[Job[Any] | None]:
    """All jobs there are, at least one, in the order they were handed over."""
    waiting = [jobs.get()]
    while not jobs.empty():  # nobody else takes any
        waiting.append(jobs.get())
    return waiting


def _worked_off(waiting: Iterable[Job[Any] | None], file: StoreFile) -> bool:
    """Do the jobs that are *waiting*; whether there will be others."""
    for kind, alike in groupby(waiting, lambda job: Kind.END if job is None else job.kind):
        group = [job for job in alike if job is not None]
        if kind is Kind.WRITE:
            outcomes = file.write([job.work for job in group])
            for job, outcome in zip(group, outcomes, strict=True):
                job.settle(outcome)
        elif kind is Kind.READ:
            for job in group:
                job.settle(file.read(job.work))
        else:
            closed = file.close()
            for job in group:
                job.settle(closed)
        _tell(group)
        if kind is Kind.END:
            return False
    return True


def _tell(group: Iterable[Job[Any]]) -> None:
    """Wake those who wait for the jobs of *group*: one call for each event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Job[Any]]] = {}
    for job in group:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, nobody waits
            loop.call_soon_threadsafe(_tell_all, told)


def _tell_all(told: Iterable[Job[Any]]) -> None:
    for job in told:
        job.tell()
