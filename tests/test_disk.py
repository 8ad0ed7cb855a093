"""What goes wrong with a disk: each fault is told with the file and the way out, and loses nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from turnwheel import (
    Agent,
    Approve,
    DoneReason,
    SQLiteStore,
    tool,
)
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import Decision, ModelFinished, ModelStreamed
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.pieces import CallPiece, Piece, TextPiece
from turnwheel.effects.requests import AskApproval, CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.stores import StoreOver

if sys.platform == "win32":
    pytest.skip("these faults are those of other systems", allow_module_level=True)

import resource  # not there on every system, as said above

FULL = "free some space and try again; nothing was written"
FAILED = "the disk or its quota failed; look at the system's log and try again"
LOCKED = "another process kept it for 5 seconds; end that or try again"
GONE = "was deleted, moved or replaced while it was open; put it back to go on"
CUT = "was emptied or cut off, or lost its log, while it was open; try again, to see what is left"
EMPTY = "is gone or empty, and was not before; put it back, or make a new store to begin anew"
DAMAGED = "take a backup, or save what can be read with sqlite3's .recover"
LEFT = "is not there or is empty, and its log '.*-wal' is not; put the one back, or move the other away"
CLOSED = "you may not write in it, .*, or in its directory|or one you may not write in"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file is to be made."""
    return tmp_path / "agent.db"


def log_of(path: Path) -> Path:
    """The write-ahead log of the file at *path*."""
    return path.with_name(f"{path.name}-wal")


async def written(path: Path, count: int = 5) -> SQLiteStore:
    """A store at *path* whose session ``s`` has *count* entries, each a number and some more."""
    store = SQLiteStore(path)
    for number in range(count):
        await store.append("s", number, [entry(number)])
    return store


def entry(number: int) -> bytes:
    """The entry of this *number*."""
    return f"{number} ".encode() + b"x" * 500


def entries(count: int) -> list[bytes]:
    """The first *count* entries."""
    return [entry(number) for number in range(count)]


async def goes_on(store: Store, count: int) -> None:
    """All that had returned is in *store*, and more can be added."""
    assert list(await store.load("s")) == entries(count)
    assert await store.append("s", count, [entry(count)]) == count + 1


async def is_there(path: Path, count: int) -> None:
    """Whoever opens the file anew finds so many entries."""
    store = SQLiteStore(path)
    assert list(await store.load("s")) == entries(count)
    await store.close()


def named(path: Path, says: str) -> str:
    """What an error says that names the file at *path*."""
    return f"store '{path}'.*({says})"


# Full


@contextmanager
def no_room(size: int) -> Generator[None, None, None]:
    """No file of this process grows beyond *size*, as with a quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 24, 100, 2_000, 4_119])
async def test_where_a_file_may_not_grow_an_append_fails_whole(path: Path, room: int) -> None:
    """However much of it was written: all who share it are told, what was there is read, and it goes on."""
    store = await written(path)
    with no_room(log_of(path).stat().st_size + room):
        tries = (store.append(name, 0, [b"y" * 600] * 3) for name in "tuv")
        for outcome in await asyncio.gather(*tries, return_exceptions=True):
            assert isinstance(outcome, StoreError)
            assert str(outcome).endswith(f"disk I/O error; {FAILED}")
            assert repr(str(path)) in str(outcome)
        assert list(await store.load("s")) == entries(5)
        assert len(await store.list()) == 1
    await goes_on(store, 5)
    await store.close()
    await is_there(path, 6)


async def test_where_a_file_cannot_be_made_for_want_of_room_it_is_made_later(path: Path) -> None:
    """What is left of the first try is no obstacle."""
    store = SQLiteStore(path)
    for room in (0, 100, 4_096, 5_000, 8_192):
        with no_room(room), pytest.raises(StoreError, match=named(path, FAILED)):
            await store.append("s", 0, [entry(0)])
    assert await store.append("s", 0, [entry(0)]) == 1
    await store.close()
    await is_there(path, 1)


async def test_a_file_that_may_not_grow_is_full(path: Path) -> None:
    """What is too much for it fails, with all that share its transaction; what is not goes through."""
    store = await written(path)
    await store._do(lambda db: db.execute("pragma max_page_count = 12"))  # pyright: ignore[reportPrivateUsage]  # a disk of this size
    large, small = await asyncio.gather(
        store.append("large", 0, [b"x", b"y" * 100_000]),
        store.append("small", 0, [b"z"]),
        return_exceptions=True,
    )
    assert str(large) == str(small) == f"store {str(path)!r}: database or disk is full; {FULL}"
    assert await store.append("small", 0, [b"z"]) == 1
    assert [info.session for info in await store.list()] == ["small", "s"]
    await goes_on(store, 5)
    await store.close()


@pytest.fixture
def small_disk() -> Generator[Path, None, None]:
    """A disk of 300 kB; not everybody may make one."""
    place = Path(tempfile.mkdtemp())
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "none", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if not made:
            pytest.skip("needs the right to mount a disk")
        yield place
        subprocess.run(["umount", str(place)], check=True)  # noqa: S607  # wherever that is
    finally:
        place.rmdir()


async def filled_up(store: Store, count: int) -> int:
    """How many entries session ``s`` has once there is no room for more, *count* of them before."""
    try:
        while True:
            count = await store.append("s", count, [entry(count)])
    except StoreError:
        return count


async def test_a_disk_that_is_full_is_told_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    """The same with a real one, to its last page, again and again."""
    path = small_disk / "agent.db"
    store, count = await written(path), 5
    for round_ in range(3):
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"x" * (100_000 - 20_000 * round_))
        count = await filled_up(store, count)
        with pytest.raises(StoreError, match=named(path, FULL)):
            await store.append("s", count, [entry(count)])
        assert list(await store.load("s")) == entries(count)
        ballast.unlink()
        await goes_on(store, count)
        count += 1
    await store.close()
    await is_there(path, count)


# Not to be written to


@contextmanager
def somebody() -> Generator[Path, None, None]:
    """A directory of somebody who may not do everything, whom this process is inside."""
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


@pytest.mark.parametrize(("file", "folder"), [(0o400, 0o700), (0o400, 0o500), (0o600, 0o500), (0o000, 0o700)])
async def test_what_may_not_be_written_to_is_told(file: int, folder: int) -> None:
    """The error asks for permission; once it is given, the same store goes on."""
    with somebody() as place:
        path = place / "agent.db"
        await (await written(path)).close()
        path.chmod(file)
        place.chmod(folder)
        store = SQLiteStore(path)
        with pytest.raises(StoreError, match=named(path, CLOSED)):
            await store.append("s", 5, [entry(5)])
        place.chmod(0o700)
        for beside in place.iterdir():
            beside.chmod(0o600)
        await goes_on(store, 5)
        await store.close()


async def test_a_file_that_may_only_be_read_is_read() -> None:
    """To look at what is kept needs no right to change it, where the directory may be written to."""
    with somebody() as place:
        path = place / "agent.db"
        await (await written(path)).close()
        path.chmod(0o400)
        await is_there(path, 5)


async def test_a_file_cannot_be_made_in_a_directory_that_is_not_ours() -> None:
    """Once it may be, it is."""
    with somebody() as place:
        path = place / "agent.db"
        place.chmod(0o500)
        store = SQLiteStore(path)
        with pytest.raises(StoreError, match=named(path, CLOSED)):
            await store.append("s", 0, [entry(0)])
        place.chmod(0o700)
        await goes_on(store, 0)
        await store.close()


# In somebody else's hands


@contextmanager
def kept_locked(path: Path) -> Generator[None, None, None]:
    """Somebody else writes to the file at *path*, and takes their time."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    yield
    other.rollback()
    other.close()


async def impatient(store: SQLiteStore) -> None:
    """*store* waits for hundredths of a second."""
    await store._do(lambda db: db.execute("pragma busy_timeout = 30"))  # pyright: ignore[reportPrivateUsage]  # in a test, 5 seconds are long


async def test_a_file_that_stays_locked_is_told(path: Path) -> None:
    """Somebody else's lock is waited for, and then named; whoever only reads is not in its way."""
    store = await written(path)
    await impatient(store)
    with kept_locked(path):
        with pytest.raises(StoreError, match=named(path, f"database is locked; {LOCKED}")):
            await store.append("s", 5, [entry(5)])
        assert list(await store.load("s")) == entries(5)
    await goes_on(store, 5)
    await store.close()


async def test_what_was_moved_and_is_back_goes_on(path: Path) -> None:
    """Nothing new is made in its place, and nothing is written that nobody would find."""
    store = await written(path)
    path.rename(path.with_name("elsewhere.db"))
    for _ in range(2):
        with pytest.raises(StoreError, match=named(path, GONE)):
            await store.append("t", 0, [b"x"])
        with pytest.raises(StoreError, match=named(path, GONE)):
            await store.load("s")
    assert not path.exists()
    path.with_name("elsewhere.db").rename(path)
    await goes_on(store, 5)
    await store.close()
    await is_there(path, 6)


async def test_what_was_deleted_is_told_and_not_made_anew(path: Path) -> None:
    """An append into a file without a name would be lost, so it fails; nor is its log taken for another's."""
    store = await written(path)
    path.unlink()
    with pytest.raises(StoreError, match=named(path, GONE)):
        await store.append("s", 5, [entry(5)])
    await store.close()
    assert not path.exists()
    again = SQLiteStore(path)
    with pytest.raises(StoreError, match=named(path, LEFT)):
        await again.append("s", 0, [entry(0)])
    assert log_of(path).stat().st_size
    log_of(path).rename(path.with_name("aside"))
    await goes_on(again, 0)
    await again.close()


async def test_what_was_replaced_is_not_written_to(path: Path) -> None:
    """Another file under its name is left alone, by whoever has the first one open."""
    other = await written(path.with_name("other.db"), 2)
    await other.close()
    store = await written(path)
    before = path.with_name("other.db").read_bytes()
    path.rename(path.with_name("elsewhere.db"))
    path.with_name("other.db").rename(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=named(path, GONE)):
            await store.append("s", 5, [entry(5)])
    assert path.read_bytes() == before
    path.rename(path.with_name("other.db"))
    path.with_name("elsewhere.db").rename(path)
    assert list(await store.load("s")) in [entries(5), entries(6)]  # what failed then may be there
    await store.close()
    await is_there(path.with_name("other.db"), 2)


async def test_a_store_goes_with_the_directory_it_was_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path means the same file for as long as the store is open."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("agent.db")
    await store.append("s", 0, [entry(0)])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await goes_on(store, 1)
    await store.close()
    await is_there(tmp_path / "agent.db", 2)


async def test_a_lost_log_loses_nothing(path: Path) -> None:
    """What was in it is saved from whoever has it open, and the store begins another one."""
    store = await written(path)
    log_of(path).unlink()
    with pytest.raises(StoreError, match=named(path, CUT)):
        await store.load("s")
    await goes_on(store, 5)
    assert log_of(path).exists()
    await store.close()
    await is_there(path, 6)


async def test_a_file_that_is_emptied_comes_back_from_its_log(path: Path) -> None:
    """As far as the log has it; here that is all."""
    store = await written(path)
    os.truncate(path, 0)
    with pytest.raises(StoreError, match=named(path, CUT)):
        await store.append("t", 0, [b"x"])
    await goes_on(store, 5)
    await store.close()
    await is_there(path, 6)


def moved_into_the_file(path: Path) -> None:
    """What was in the log is in the file alone."""
    db = sqlite3.connect(path)
    db.execute("pragma wal_checkpoint(truncate)").fetchall()
    db.close()


async def test_a_file_that_is_emptied_for_good_is_no_new_beginning(path: Path) -> None:
    """The store that had it open does not take it for a new one; put back, it goes on."""
    store = await written(path)
    moved_into_the_file(path)
    assert list(await store.load("s")) == entries(5)
    saved = path.read_bytes()
    os.truncate(path, 0)
    with pytest.raises(StoreError, match=named(path, CUT)):
        await store.load("s")
    for _ in range(2):
        with pytest.raises(StoreError, match=named(path, EMPTY)):
            await store.append("s", 0, [entry(0)])
    path.write_bytes(saved)
    await goes_on(store, 5)
    await store.close()


@pytest.mark.parametrize("left", [0.3, 0.5, 0.9])
async def test_a_file_that_is_cut_off_is_told(path: Path, left: float) -> None:
    """Whoever has it open sees that at once, and does not go on with what is left as if it were all."""
    store = await written(path, 100)
    moved_into_the_file(path)
    assert len(await store.load("s")) == 100
    saved = path.read_bytes()
    os.truncate(path, int(left * len(saved)))
    with pytest.raises(StoreError, match=named(path, CUT)):
        await store.append("t", 0, [b"x"])
    for _ in range(2):
        with pytest.raises(StoreError, match=named(path, DAMAGED)):
            await store.append("t", 0, [b"x"])
    path.write_bytes(saved)
    await goes_on(store, 100)
    await store.close()


@pytest.mark.parametrize("missing", [1, 100, 4_095, 4_096, 5_000])
async def test_a_file_whose_end_was_torn_off_is_told(path: Path, missing: int) -> None:
    """Whoever opens it does not find less than there was, but an error; put back, it is read."""
    await (await written(path, 100)).close()
    saved = path.read_bytes()
    os.truncate(path, len(saved) - missing)
    store = SQLiteStore(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=named(path, DAMAGED)):
            await store.load("s")
        with pytest.raises(StoreError, match=named(path, DAMAGED)):
            await store.append("s", 0, [b"x"])
    path.write_bytes(saved)
    await goes_on(store, 100)
    await store.close()


# To the end: sessions whose disk fails in the middle of a run, and works again


class Failing(StoreOver):
    """A store whose disk fails from the append of this *number* on; *fault* is what happens then."""

    def __init__(self, kept: Store, number: int, fault: Callable[[], None]) -> None:
        super().__init__(kept)
        self.left = number
        self.fault = fault

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """As a store does, on a disk that may fail."""
        self.left -= 1
        if self.left == 0:
            self.fault()
        return await super().append(session, expected, entries, about)


class Shop:
    """Where a session works: which tools were run, and a model that says the same to the same."""

    def __init__(self, store: Store) -> None:
        self.ran: list[str] = []

        @tool(side_effect="read_only")
        def look() -> str:
            """Look at the price."""
            self.ran.append("look")
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
        """Say yes."""
        return Approve()

    async def speak(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        """Look, pay, and say so, by what was said before."""
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


class Quota:
    """No file grows any more."""

    def __init__(self, path: Path) -> None:
        self.log = log_of(path)
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def begin(self) -> None:
        """From now on."""
        size = self.log.stat().st_size if self.log.exists() else 0
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self.limits[1]))

    def end(self) -> None:
        """There is room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


class Moved:
    """The file is somewhere else."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.away = path.with_name("elsewhere.db")

    def begin(self) -> None:
        """From now on."""
        if self.path.exists():
            self.path.rename(self.away)

    def end(self) -> None:
        """It is back."""
        if self.away.exists():
            self.away.rename(self.path)


class Locked:
    """Somebody else writes to the file."""

    def __init__(self, path: Path) -> None:
        self.other = sqlite3.connect(path, isolation_level=None)

    def begin(self) -> None:
        """From now on."""
        self.other.execute("begin immediate")

    def end(self) -> None:
        """They are done."""
        self.other.close()


@pytest.mark.parametrize("kind", [Quota, Moved, Locked])
async def test_a_session_goes_on_when_the_fault_is_over(
    tmp_path: Path, kind: type[Quota | Moved | Locked]
) -> None:
    """From every moment of its run: nothing unsafe is done twice, and it ends as it should."""
    outcomes: set[Outcome] = set()
    for number in range(2, 40):
        path = tmp_path / f"{number}.db"
        fault = kind(path)
        kept = SQLiteStore(path, "process")
        await impatient(kept)
        store = Failing(kept, number, fault.begin)
        shop = Shop(store)
        session = shop.agent.session("s")
        try:
            result = await session.run("buy it")
            assert store.left > 0, "the fault was not noticed"
        except StoreError as error:
            assert repr(str(path)) in str(error)  # noqa: PT017  # whether it is raised is not known
            fault.end()
            if not await store.load("s"):
                await session.send("buy it")
            result = await session.resume()
        finally:
            fault.end()
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
