"""What goes wrong with a disk: each fault is told with the file and the way out, and loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwheel import Agent, Approve, DoneReason, SQLiteStore, tool
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import Decision, ModelFinished, ModelStreamed
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.stores import StoreOver

if sys.platform == "win32":
    pytest.skip("these faults are those of other systems", allow_module_level=True)

import resource  # not there on every system, as said above

SAYS = {
    "full": "database or disk is full; free some space and try again; nothing was written",
    "failed": "disk I/O error; the disk or its quota failed; look at the system's log and try again",
    "locked": "database is locked; another process kept it for 5 seconds; end that or try again",
    "gone": "was deleted, moved or replaced while it was open; put it back to go on",
    "cut": "was emptied or cut off, or lost its log, while it was open; try again, to see what is left",
    "empty": "is gone or empty, and was not before; put it back, or make a new store to begin anew",
    "damaged": "take a backup, or save what can be read with sqlite3's .recover",
    "left": "is not there or is empty, and its log '.*-wal' is not; put the one back, or move the other away",
    "forbidden": "you may not write in it, .*, or in its directory|or one you may not write in",
}


def entry(number: int) -> bytes:
    return f"{number} ".encode() + b"x" * 500


def entries(count: int) -> list[bytes]:
    return [entry(number) for number in range(count)]


async def goes_on(store: Store, count: int) -> None:
    """All that had returned is in *store*, and more can be added."""
    assert list(await store.load("s")) == entries(count)
    await store.append("s", count, [entry(count)])


async def impatient(store: SQLiteStore) -> None:
    await store._do(lambda db: db.execute("pragma busy_timeout = 30"))  # pyright: ignore[reportPrivateUsage]  # in a test, 5 seconds are long


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


ROOM = resource.getrlimit(resource.RLIMIT_FSIZE)


def let_grow(size: int | None) -> None:
    """No file of this process grows beyond *size*, as with a quota."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM[0] if size is None else size, ROOM[1]))


class Disk:
    """A file in *place*, and a store that has it open; `follow` does, or holds, what a line says."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store, self.path, self.saved = SQLiteStore(place / "agent.db"), place / "agent.db", b""
        self.lock: sqlite3.Connection | None = None

    async def follow(self, line: str) -> None:
        match line.split():
            case ["write", count]:
                for number in range(int(count)):
                    await self.store.append("s", number, [entry(number)])
            case ["reads", count]:
                assert list(await self.store.load("s")) == entries(int(count))
            case ["goes", "on", count]:
                await goes_on(self.store, int(count))
            case [act, "fails", says]:
                doing = self.store.load("s") if act == "load" else self.store.append("t", 0, [b"x"])
                with pytest.raises(StoreError, match=f"store '{self.path}'.*({SAYS[says]})"):
                    await doing
            case ["impatient"]:
                await impatient(self.store)
            case ["open", name]:  # anew, and what was open is closed
                await self.store.close()
                self.path = self.place / name
                self.store = SQLiteStore(self.path)
            case ["holds", *names]:
                there = {path.name for path in self.place.iterdir() if path.suffix != ".db-shm"}
                assert there == set(names), line
            case _:
                self.happen(*line.split())

    def happen(self, what: str, *to: str) -> None:  # noqa: C901, PLR0912  # a case for each word
        match what, *to:
            case "move", old, new:
                (self.place / old).rename(self.place / new)
            case "delete", name:
                (self.place / name).unlink()
            case ("checkpoint",):  # what was in the log is in the file alone
                with closing(sqlite3.connect(self.path)) as db:
                    db.execute("pragma wal_checkpoint(truncate)").fetchall()
            case ("save",):
                self.saved = self.path.read_bytes()
            case ("restore",):
                self.path.write_bytes(self.saved)
            case ("unchanged",):
                assert self.path.read_bytes() == self.saved
            case "leave", part:  # so much of it, or all but so many bytes
                size = self.path.stat().st_size
                os.truncate(self.path, int(float(part) * size) if float(part) >= 0 else size + int(part))
            case "chmod", mode, folder:
                for path in self.place.iterdir():
                    path.chmod(int(mode, 8))
                self.place.chmod(int(folder, 8))
            case ("permit",):
                self.place.chmod(0o700)
                self.happen("chmod", "600", "700")
            case ("lock",):
                self.lock = sqlite3.connect(self.path, isolation_level=None)
                self.lock.execute("begin immediate")
            case ("unlock",):
                assert self.lock is not None
                self.lock.close()
            case "room", "enough":
                let_grow(None)
            case "room", "now":  # as much as the log has
                let_grow(log_of(self.path).stat().st_size)
            case "room", size:
                let_grow(int(size))
            case _:
                pytest.fail(f"no such line: {what} {to}")


STORIES = """
a file that cannot be made for want of room is made later
    room 0, append fails failed, room 100, append fails failed, room 4096, append fails failed
    room 5000, append fails failed, room 8192, append fails failed
    room enough, goes on 0, open agent.db, reads 1
a file that may not be written to, nor read
    write 5, open agent.db, chmod 400 700, append fails forbidden, permit, goes on 5
    open agent.db, chmod 400 500, append fails forbidden, permit, goes on 6
    open agent.db, chmod 600 500, append fails forbidden, permit, goes on 7
    open agent.db, chmod 000 700, append fails forbidden, permit, goes on 8
a file that may only be read is read, where the directory may be written to
    write 5, open agent.db, chmod 400 700, reads 5
a file cannot be made in a directory that is not ours, and is once it may be
    chmod 600 500, append fails forbidden, permit, goes on 0
a file that stays locked can be read
    write 5, impatient, lock, append fails locked, reads 5, unlock, goes on 5
what was moved is not made anew, and goes on when it is back
    write 5, move agent.db away.db, append fails gone, load fails gone, append fails gone, load fails gone
    holds away.db agent.db-wal, move away.db agent.db, goes on 5, open agent.db, reads 6
what was deleted is not made anew, nor is its log taken for another's
    write 5, delete agent.db, append fails gone, open agent.db, holds agent.db-wal, append fails left
    holds agent.db-wal, move agent.db-wal aside, goes on 0
what was replaced is left alone
    open other.db, write 2, open agent.db, write 5, move agent.db away.db, move other.db agent.db, save
    append fails gone, append fails gone, unchanged, move agent.db other.db, move away.db agent.db, reads 5
    open other.db, reads 2
a lost log loses nothing
    write 5, delete agent.db-wal, load fails cut, goes on 5, holds agent.db agent.db-wal
    open agent.db, reads 6
a file that is emptied comes back from its log
    write 5, leave 0, append fails cut, goes on 5, open agent.db, reads 6
a file that is emptied for good is no new beginning, and goes on when it is put back
    write 5, checkpoint, reads 5, save, leave 0, load fails cut, append fails empty, append fails empty
    restore, goes on 5
a file that is cut off is not taken for all there was
    write 100, checkpoint, reads 100, save, leave {part}, append fails cut, append fails damaged
    append fails damaged, restore, goes on 100
a file whose end was torn off is not read, and is when it is put back
    write 100, open agent.db, holds agent.db, save, leave {missing}, load fails damaged, append fails damaged
    load fails damaged, append fails damaged, restore, goes on 100
"""
VARIANTS = {"{part}": ["0.3", "0.5", "0.9"], "{missing}": ["-1", "-100", "-4095", "-4096", "-5000"]}


def stories() -> list[Any]:
    """Each story, as often as there are values for the word in it that varies."""
    found: list[Any] = []
    for story in re.findall(r"^\w.*(?:\n +.*)+", STORIES, re.MULTILINE):
        title, _, lines = story.partition("\n")
        [(word, values)] = [one for one in VARIANTS.items() if one[0] in lines] or [("", [""])]
        for value in values:
            told = lines.replace(word, value) if word else lines
            found.append(pytest.param(told, id=f"{title} {value}".strip().replace(" ", "_")))
    return found


@contextmanager
def unprivileged() -> Generator[Path, None, None]:
    """A directory of a user who may not do everything, whom this process is inside."""
    place = Path(tempfile.mkdtemp())
    mighty = os.geteuid() == 0
    if mighty:
        os.chown(place, 65_534, -1)
        os.seteuid(65_534)
    try:
        yield place
    finally:
        if mighty:
            os.seteuid(0)
        shutil.rmtree(place)


@pytest.mark.parametrize("story", stories())
async def test_a_fault_of_the_disk_is_told_and_loses_nothing(story: str) -> None:
    with unprivileged() as place:
        disk = Disk(place)
        try:
            for line in re.split(r",|\n", story):
                await disk.follow(line)
        finally:
            let_grow(None)
            await disk.store.close()


@pytest.mark.parametrize("room", [0, 1, 24, 100, 2_000, 4_119])
async def test_where_a_file_may_not_grow_an_append_fails_whole(tmp_path: Path, room: int) -> None:
    # However much of it was written: all who share it are told, what was there is read, and it goes on.
    disk = Disk(tmp_path)
    await disk.follow("write 5")
    let_grow(log_of(disk.path).stat().st_size + room)
    try:
        tries = (disk.store.append(name, 0, [b"y" * 600] * 3) for name in "tuv")
        for outcome in await asyncio.gather(*tries, return_exceptions=True):
            assert isinstance(outcome, StoreError)
            assert str(outcome) == f"store {str(disk.path)!r}: {SAYS['failed']}"
        assert list(await disk.store.load("s")) == entries(5)
        assert len(await disk.store.list()) == 1
    finally:
        let_grow(None)
    for line in ("goes on 5", "open agent.db", "reads 6"):
        await disk.follow(line)
    await disk.store.close()


async def test_a_file_that_may_not_grow_is_full(tmp_path: Path) -> None:
    # What is too much for it fails, with all that share its transaction; what is not goes through.
    disk = Disk(tmp_path)
    await disk.follow("write 5")
    store = disk.store
    await store._do(lambda db: db.execute("pragma max_page_count = 12"))  # pyright: ignore[reportPrivateUsage]  # a disk of this size
    large, small = await asyncio.gather(
        store.append("large", 0, [b"x", b"y" * 100_000]),
        store.append("small", 0, [b"z"]),
        return_exceptions=True,
    )
    assert str(large) == str(small) == f"store {str(disk.path)!r}: {SAYS['full']}"
    await store.append("small", 0, [b"z"])
    assert [info.session for info in await store.list()] == ["small", "s"]
    await goes_on(store, 5)
    await store.close()


@pytest.fixture
def small_disk() -> Generator[Path, None, None]:
    """A disk of 300 kB; not every user may make one."""
    place = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(place)]
    try:
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("needs the right to mount a disk")
        yield place
        subprocess.run(["umount", str(place)], check=True)  # wherever that is
    finally:
        place.rmdir()


async def test_a_real_disk_that_is_full_goes_on_when_there_is_room(small_disk: Path) -> None:
    # To its last page, again and again.
    disk, count = Disk(small_disk), 5
    await disk.follow("write 5")
    for round_ in range(3):
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (100_000 - 20_000 * round_))
        with contextlib.suppress(StoreError):
            while True:
                await disk.store.append("s", count, [entry(count)])
                count += 1
        for line in ("append fails full", f"reads {count}"):
            await disk.follow(line)
        ballast.unlink()
        await goes_on(disk.store, count)
        count += 1
    await disk.follow("open agent.db")
    await disk.follow(f"reads {count}")
    await disk.store.close()


@pytest.mark.parametrize("target", ["there.db", "nowhere.db"])
async def test_a_link_is_refused_by_its_name(tmp_path: Path, target: str) -> None:
    (tmp_path / "there.db").touch()
    link = tmp_path / "link.db"
    link.symlink_to(target)
    store = SQLiteStore(link)
    with pytest.raises(
        StoreError, match=rf"link\.db' is a symbolic link; name the file itself, '.*{target}'"
    ):
        await store.list()
    await store.close()


@pytest.mark.parametrize("used", [True, False], ids=["used", "new"])
async def test_a_store_stays_where_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, used: bool
) -> None:
    # A relative path means the same file as long as there is the store, also before it is opened.
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("agent.db")
    if used:
        await store.append("s", 0, [entry(0)])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await goes_on(store, int(used))
    await store.close()
    assert (tmp_path / "agent.db").exists()


# To the end: sessions whose disk fails in the middle of a run, and works again


class Failing(StoreOver):
    """A store whose disk fails from the append of this *number* on; *fault* is what happens then."""

    def __init__(self, kept: Store, number: int, fault: Callable[[], None]) -> None:
        super().__init__(kept)
        self.left = number
        self.fault = fault

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        self.left -= 1
        if self.left == 0:
            self.fault()
        return await super().append(session, expected, entries, about, incarnation)


class Shop:
    """Where a session works: which tools were run, and a model that says the same to the same."""

    def __init__(self, store: Store) -> None:
        self.ran: list[str] = []

        @tool(side_effect="read_only")
        def look() -> str:
            """Look at the price."""
            return "it is 5"

        @tool(side_effect="unsafe")
        def pay() -> str:
            """Pay the price."""
            self.ran.append("pay")
            return "it is paid"

        self.agent = Agent(
            model="wire:model",
            tools=[look, pay],
            performers={CallModel: self.speak},
            approver=self.approve,
            store=store,
        )

    async def approve(self, _: AskApproval) -> Decision:
        return Approve()

    async def speak(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        shown = scene.history.slice(0, request.view.length)
        assert history_faults(shown) == []
        done = sum(message.role is Role.TOOL for message in shown)
        said: Sequence[Piece] = [
            (CallPiece(0, "call_0", "look", "{}"),),
            (TextPiece("So I pay. "), CallPiece(0, "call_0", "pay", "{}")),
            (TextPiece("Done."),),
        ][done]
        at = scene.clock.now()
        scene.emit(ModelStreamed(at=at, request=request.id, before=0, count=len(said), pieces=tuple(said)))
        stop = StopReason.END_TURN if done == 2 else StopReason.TOOL_USE
        return ModelFinished(at=at, request=request.id, stop=stop, usage=Usage(input=10, output=5))


FAULTS = {
    "quota": ("room now", "room enough"),
    "moved": ("move agent.db away.db", "move away.db agent.db"),
    "locked": ("lock", "unlock"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_session_outlives_the_fault(tmp_path: Path, fault: str) -> None:
    # From every moment of its run: nothing unsafe is done twice, and it ends as it should.
    begin, end = FAULTS[fault]
    outcomes: set[Outcome] = set()
    for number in range(2, 40):
        disk = Disk(tmp_path / f"{number}")
        disk.place.mkdir()
        disk.store = SQLiteStore(disk.path, "process")
        await impatient(disk.store)
        store = Failing(disk.store, number, partial(disk.happen, *begin.split()))
        shop = Shop(store)
        session = shop.agent.session("s")
        try:
            result = await session.run("buy it")
            assert store.left > 0, "the fault was not noticed"
        except StoreError as error:
            assert repr(str(disk.path)) in str(error)  # noqa: PT017  # whether it is raised is not known
            disk.happen(*end.split())
            if not await store.load("s"):
                await session.send("buy it")
            result = await session.resume()
        finally:
            let_grow(None)
        assert (result.reason, result.text) == (DoneReason.END_TURN, "Done.")
        assert shop.ran.count("pay") <= 1
        assert history_faults(session.history) == []
        outcomes |= {one.outcome for message in session.history for one in message.results}
        await session.close()
        await store.close()
        if store.left > 0:
            break
    else:
        pytest.fail("a run has fewer appends")
    assert outcomes == {Outcome.OK, Outcome.UNKNOWN}
