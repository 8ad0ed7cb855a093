"""
Your own store: a folder with a file for each session, and a line in it for each append.

``python examples/own_store.py`` runs every check of the store contract. See docs/stores.md.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import sys
import tempfile
import time
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from turnwheel.effects import SessionGone, StoreConflict, StoreError
from turnwheel.performers import Entries, SessionInfo, Store
from turnwheel.testing import store_contract


class FileStore(Store):
    """Keeps sessions in *folder*. It is simple, not quick: it blocks, and reads a session to append to it."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._closed = False

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        """Add *entries* to *session*. It must hold *expected* entries, or `StoreConflict` is raised."""
        with self._alone():
            lines, there = self._found(session, incarnation)
            actual = sum(len(line["entries"]) for line in lines)
            if actual != expected:
                raise StoreConflict(session, expected, actual)
            if entries or (lines and about is not None):
                there = there or uuid4().hex
                self._write(session, there, entries, about)
            return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        """The entries of *session* from index *start* to before *end*."""
        lines, there = self._found(session, incarnation)
        entries = [b64decode(entry) for line in lines for entry in line["entries"]]
        return Entries(entries[max(start, 0) : None if end is None else max(end, 0)], there)

    async def list(
        self, limit: int | None = None, after: int | None = None, prefix: str = ""
    ) -> Sequence[SessionInfo]:
        """The sessions whose names begin with *prefix*, last written first; see `Store.list`."""
        self._check_open()
        infos = [self._info(file) for file in self._folder.glob("*.jsonl")]
        found = [info for info in infos if info is not None and info.session.startswith(prefix)]
        behind = [info for info in found if after is None or info.stamp < after]
        return sorted(behind, key=lambda info: -info.stamp)[:limit]

    async def info(self, session: str) -> SessionInfo | None:
        """*session* as `list` has it; None where it is not there."""
        return self._info(self._file(session))

    async def delete(self, session: str, incarnation: str = "") -> bool:
        """Delete *session*; return whether the store had it."""
        with self._alone():
            lines, _ = self._found(session, incarnation)
            self._file(session).unlink(missing_ok=True)
            return bool(lines)

    async def close(self) -> None:
        """Refuse all later calls. Every line is on the disk already."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            msg = f"store {str(self._folder)!r} is closed; make a new one"
            raise StoreError(msg)

    @contextmanager
    def _alone(self) -> Generator[None, None, None]:
        """Keep all other writers out, in this process and in others."""
        self._check_open()
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _file(self, session: str) -> Path:
        self._check_open()
        return self._folder / f"{hashlib.sha256(session.encode()).hexdigest()}.jsonl"

    def _found(self, session: str, incarnation: str) -> tuple[Sequence[dict[str, Any]], str]:
        """The lines of *session* and its incarnation; `SessionGone` where the one that was named is gone."""
        lines = list(self._lines(self._file(session)))
        there = lines[0]["incarnation"] if lines else ""
        if incarnation and incarnation != there:
            raise SessionGone(session, bool(lines))
        return lines, there

    def _lines(self, file: Path) -> Iterator[dict[str, Any]]:
        """The whole lines of *file*. A killed process may have left half a line at the end."""
        text = b""
        with suppress(FileNotFoundError):
            text = file.read_bytes()
        return (json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n"))

    def _write(self, session: str, incarnation: str, entries: Sequence[bytes], about: bytes | None) -> None:
        line = {
            "session": session,
            "incarnation": incarnation,
            "at": time.time(),
            "stamp": time.time_ns(),
            "entries": [b64encode(entry).decode() for entry in entries],
            "about": None if about is None else b64encode(about).decode(),
        }
        with self._file(session).open("a+b") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)  # half a line of a killed process
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY)
        os.fsync(folder)  # the folder holds the name of a new file
        os.close(folder)

    def _info(self, file: Path) -> SessionInfo | None:
        lines = list(self._lines(file))
        if not lines:
            return None
        abouts = [line["about"] for line in lines if line["about"] is not None]
        return SessionInfo(
            session=lines[0]["session"],
            length=sum(len(line["entries"]) for line in lines),
            created=lines[0]["at"],
            updated=[line["at"] for line in lines if line["entries"]][-1],
            # Nanoseconds, taken while all others were kept out: no two are the same.
            stamp=max(line["stamp"] for line in lines if line["entries"]),
            about=b64decode(abouts[-1]) if abouts else b"",
            incarnation=lines[0]["incarnation"],
        )


async def main() -> None:
    """Run every check, each in a folder of its own, and kill processes that use the store."""
    with tempfile.TemporaryDirectory() as there:
        for number, check in enumerate(store_contract.checks()):
            await check(partial(FileStore, Path(there, str(number))))
            print(f"ok  {check}")
        sys.path.insert(0, str(Path(__file__).parent))  # the killed processes import the store from here
        survived = await store_contract.survives_kill("own_store:FileStore", str(Path(there, "killed")))
        print(f"ok  {survived} entries survived")


if __name__ == "__main__":
    asyncio.run(main())
