"""
The moments at which a process can be killed, and what is noted of its life outside of the store.

A process counts the moments it comes to, in memory that outlives it, and does at one of them what it was
told: it kills itself with -9, or it freezes. What it does to the world it notes in a file of its own, line by
line: what is there was done, whatever became of the process and of its journal.
"""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from turnwheel.effects.events import ApprovalGiven
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Posted, Stepped
from turnwheel.performers.stores.sqlite import SQLiteStore
from turnwheel.testing.stores import StoreOver

if TYPE_CHECKING:
    from mmap import mmap

    from turnwheel.performers import Durability
    from turnwheel.performers.stores.base import Entries, Mark

PAGE = 4_096
"""Bytes of the memory in which a process counts: a number and the name of the moment."""

CHANGING = {"alter", "commit", "create", "delete", "drop", "insert", "update"}
"""The statements that change what is in a database."""

HEAD = struct.Struct("=qq")
"""The number of moments, and the length of the name of the latest."""


@final
class Points:
    """
    Counts the moments of a process in the memory *shared*; the first is number 1, *names* are all of them.

    *busy* is how many calls of stores are under way.
    """

    def __init__(self, shared: mmap) -> None:
        self.names: list[str] = []
        self.busy = 0
        self._plans: list[tuple[int, Callable[[], None], bool]] = []
        self._shared = shared
        self._count = 0
        self._name = ""

    def at(self, number: int, act: Callable[[], None], *, room: bool = False) -> None:
        """
        Have *act* called at the moment with this *number*.

        Where there is *room*, at the first from there on at which no store is busy, here or in a thread.
        """
        self._plans.append((number, act, room))

    def within(self, what: str) -> None:
        """The process does *what* behind the latest moment and before the next."""
        name = self._name
        self(f"{name}, {what}")
        self._name = name

    def __call__(self, name: str) -> None:
        """The process has come to the moment called *name*."""
        self._name = name
        self._count += 1
        self.names.append(name)
        told = name.encode()[: PAGE - HEAD.size]
        self._shared[: HEAD.size + len(told)] = HEAD.pack(self._count, len(told)) + told
        for plan in self._plans[:]:
            number, act, room = plan
            if self._count >= number and not (room and self.busy):
                self._plans.remove(plan)
                act()


def counted(shared: mmap) -> tuple[int, str]:
    """How many moments a process came to that counted in *shared*, and the name of the latest."""
    count, length = HEAD.unpack(shared[: HEAD.size])
    return count, shared[HEAD.size : HEAD.size + length].decode(errors="replace")


@final
class Notebook:
    """
    The file at *path*, to which processes add JSON objects, here the *process* with this number.

    A line that was written is there, also after a kill.
    """

    def __init__(self, path: Path, process: int) -> None:
        self._process = process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **what: object) -> None:
        """Add one line, at once."""
        os.write(self._file, json.dumps({"kind": kind, "process": self._process, **what}).encode() + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    @staticmethod
    def read(path: Path, start: int = 0) -> list[dict[str, Any]]:
        """The lines of the file at *path* from the number *start* on; a last one that was cut off is none."""
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines[start:] if line.endswith(b"\n")]


def pointed_statements(points: Points) -> None:
    """From now on and for good, each statement of this process that changes a database is one of *points*."""

    def statement(text: str) -> None:
        verb = text.strip().partition(" ")[0].lower()
        if verb in CHANGING:
            points.within(verb)

    def opened(*where: Any, **how: Any) -> sqlite3.Connection:  # whatever is asked of sqlite3
        db: sqlite3.Connection = connect(*where, **how)
        db.set_trace_callback(statement)
        return db

    connect = sqlite3.connect
    sqlite3.connect = opened  # type: ignore[assignment]  # the process is to be killed, and nobody else sees it


@final
class PointedStore(StoreOver):
    """
    The store in the file *path*, with *points* around each call.

    *lengths* are those that sessions had when this process last heard of them. *who* uses it is part of the
    names of its moments.
    """

    def __init__(self, path: Path, durability: Durability, points: Points, who: str = "") -> None:
        super().__init__(SQLiteStore(path, durability))
        self.lengths: dict[str, int] = {}
        self._points = points
        self._who = who

    @contextmanager
    def _busy(self) -> Generator[None, None, None]:
        self._points.busy += 1
        try:
            yield
        finally:
            self._points.busy -= 1

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """As a store does."""
        name = f"{self._who}{expected} of {session}"
        self._points(f"append {name}: before")
        with self._busy():
            there = await super().append(session, expected, entries, about, incarnation)
        self.lengths[session] = expected + len(entries)
        self._points(f"append {name}: after")
        return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from *start* to before *end*."""
        with self._busy():  # the first that is asked of a store makes its file
            entries = await super().load(session, start, end, incarnation)
        self._points(f"load {session} from {start}")
        self.lengths[session] = start + len(entries)
        return entries

    async def settled(self) -> Sequence[str]:
        """The questions whose answers are kept."""
        found: list[str] = []
        for info in await self.list():
            for data in await self.load(info.session):
                if b"ApprovalGiven" in data:
                    entry = decode_entry(data, info.session)
                    if isinstance(entry, Posted | Stepped) and isinstance(entry.event, ApprovalGiven):
                        found.append(entry.event.request)
        return found

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        """As a store does; what it writes to the file are moments, too."""
        with self._busy():
            return await super().lease(session, held, wanted, incarnation)

    async def meter(self, name: str, held: bytes | None, wanted: bytes | None) -> tuple[bytes | None, float]:
        """As a store does; what it writes to the file are moments, too."""
        with self._busy():
            return await super().meter(name, held, wanted)

    async def set_deadline(self, session: str, due: float | None, incarnation: str = "") -> None:
        """As a store does; what it writes to the file are moments, too."""
        with self._busy():
            await super().set_deadline(session, due, incarnation)

    async def overdue(self, moment: float, skip: int = 0) -> Sequence[str]:
        """As a store does."""
        with self._busy():
            return await super().overdue(moment, skip)

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        """As a store does."""
        with self._busy():
            return await super().renew(renewals)

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        """As a store does."""
        with self._busy():
            return await super().news(sessions, since)

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        """As a store does; what it writes to the file are moments, too."""
        with self._busy():
            await super().keep_checkpoint(session, position, body, first, incarnation)

    async def checkpoints(self, session: str, incarnation: str = "") -> Sequence[bytes]:
        """The checkpoints of *session*."""
        with self._busy():
            return await super().checkpoints(session, incarnation)
