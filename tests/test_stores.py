"""What every store promises, and what the one on a disk promises beyond that."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import get_args

import pytest

from turnwheel.effects.errors import ConfigError, JournalError, StoreConflict, StoreError
from turnwheel.effects.performers.stores.base import SessionInfo, Store
from turnwheel.effects.performers.stores.memory import MemoryStore
from turnwheel.effects.performers.stores.sqlite import SQLiteStore
from turnwheel.effects.performers.stores.sqlite_file import APPLICATION_ID, SCHEMA_VERSION, Durability


def ticking() -> Callable[[], float]:
    """A clock that goes on by one second each time it is read."""
    return itertools.count(1.0).__next__


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """One store of each kind, on a clock that ticks when it is read."""
    made: Store
    if request.param == "memory":
        made = MemoryStore(now=ticking())
    else:
        made = SQLiteStore(tmp_path / "agent.db", "process", now=ticking())
    yield made
    await made.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a file is to be made."""
    return tmp_path / "agent.db"


# What every store promises


async def test_entries_come_back_in_order(store: Store) -> None:
    """What is appended in several goes is loaded as one sequence."""
    assert await store.append("s", 0, [b"a", b"b"]) == 2
    assert await store.append("s", 2, (b"c",)) == 3
    assert list(await store.load("s")) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("start", "expected"), [(0, [b"a", b"b", b"c"]), (2, [b"c"]), (3, []), (9, []), (-1, [b"a", b"b", b"c"])]
)
async def test_loading_starts_anywhere(store: Store, start: int, expected: list[bytes]) -> None:
    """`load` gives what is at and behind its start, which may lie outside the session."""
    await store.append("s", 0, [b"a", b"b", b"c"])
    assert list(await store.load("s", start)) == expected


async def test_an_unknown_session_is_empty(store: Store) -> None:
    """A session that is not there loads as empty and is neither listed nor deleted."""
    assert list(await store.load("nobody")) == []
    assert list(await store.list()) == []
    assert await store.delete("nobody") is False


async def test_a_session_is_there_once_it_has_an_entry(store: Store) -> None:
    """Appending nothing compares the length and leaves no trace."""
    assert await store.append("s", 0, []) == 0
    assert list(await store.list()) == []
    await store.append("s", 0, [b"a"])
    assert await store.append("s", 1, []) == 1
    assert (await store.list())[0].updated == 1.0
    with pytest.raises(StoreConflict):
        await store.append("s", 0, [])


@pytest.mark.parametrize("expected", [-1, 0, 1, 3])
async def test_a_writer_that_is_not_at_the_end_writes_nothing(store: Store, expected: int) -> None:
    """An append with any other length than the real one is refused and changes nothing."""
    await store.append("s", 0, [b"a", b"b"])
    with pytest.raises(StoreConflict) as caught:
        await store.append("s", expected, [b"x"])
    assert (caught.value.session, caught.value.expected, caught.value.actual) == ("s", expected, 2)
    assert list(await store.load("s")) == [b"a", b"b"]


async def test_of_two_writers_at_once_one_goes_on(store: Store) -> None:
    """Of many appends that all expect the same length exactly one is kept."""
    tries = (store.append("s", 0, [str(number).encode()]) for number in range(20))
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert outcomes.count(1) == 1
    assert sum(isinstance(outcome, StoreConflict) for outcome in outcomes) == 19
    assert list(await store.load("s")) == [str(outcomes.index(1)).encode()]


async def test_sessions_share_nothing(store: Store) -> None:
    """Appending to many sessions at once keeps each one's own entries."""
    names = [f"s{number}" for number in range(10)]
    for length in range(3):
        await asyncio.gather(*(store.append(name, length, [name.encode()]) for name in names))
    assert [list(await store.load(name)) for name in names] == [[name.encode()] * 3 for name in names]


async def test_sessions_are_listed_last_written_first(store: Store) -> None:
    """`list` tells lengths and times; an append moves its session to the front."""
    await store.append("a", 0, [b"1"])
    await store.append("b", 0, [b"1", b"2"])
    await store.append("a", 1, [b"2"])
    assert list(await store.list()) == [
        SessionInfo(session="a", length=2, created=1.0, updated=3.0),
        SessionInfo(session="b", length=2, created=2.0, updated=2.0),
    ]


async def told(store: Store) -> dict[str, tuple[bytes, float]]:
    """What each session is about, and when it was written last."""
    return {info.session: (info.about, info.updated) for info in await store.list()}


async def test_a_session_is_about_what_was_said_last(store: Store) -> None:
    """`append` stores it along with the entries; where it says nothing, what was said before stays."""
    await store.append("a", 0, [b"1"])
    await store.append("b", 0, [b"1"], b"new")
    assert await told(store) == {"a": (b"", 1.0), "b": (b"new", 2.0)}
    await store.append("a", 1, [b"2"], b"of a")
    await store.append("b", 1, [b"2"])
    assert await told(store) == {"a": (b"of a", 3.0), "b": (b"new", 4.0)}
    await store.append("b", 2, [b"3"], b"")
    assert await told(store) == {"a": (b"of a", 3.0), "b": (b"", 5.0)}


async def test_what_a_session_is_about_may_change_by_itself(store: Store) -> None:
    """Without entries nothing was written to the session: neither its length nor its time changes."""
    assert await store.append("s", 0, [], b"of nothing") == 0
    assert list(await store.list()) == []
    await store.append("s", 0, [b"1"])
    assert await store.append("s", 1, [], b"of it") == 1
    assert await told(store) == {"s": (b"of it", 1.0)}
    assert list(await store.load("s")) == [b"1"]
    assert await store.append("s", 1, [b"2"]) == 2


@pytest.mark.parametrize("entries", [[], [b"x"]])
async def test_a_writer_that_is_not_at_the_end_changes_nothing_it_is_about(
    store: Store, entries: list[bytes]
) -> None:
    """All or nothing: where the entries are refused, so is what they were to be about."""
    await store.append("s", 0, [b"1", b"2"], b"true")
    for expected in (0, 1, 3):
        with pytest.raises(StoreConflict):
            await store.append("s", expected, entries, b"false")
    assert await told(store) == {"s": (b"true", 1.0)}


async def test_what_a_session_is_about_is_any_bytes_and_goes_with_it(store: Store) -> None:
    """It comes back as it was, and a session of the same name that comes later has none."""
    for number, about in enumerate([bytes(range(256)), b"'; drop table sessions; --", b"x" * 100_000]):
        await store.append("s", number, [b"1"], about)
        assert (await store.list())[0].about == about
    await store.delete("s")
    await store.append("s", 0, [b"1"])
    assert (await store.list())[0].about == b""


async def test_a_deleted_session_is_gone_and_may_come_again(store: Store) -> None:
    """`delete` takes one session and no other; its name is then as good as new."""
    await store.append("a", 0, [b"old", b"older"])
    await store.append("b", 0, [b"kept"])
    assert await store.delete("a") is True
    assert list(await store.load("a")) == []
    assert await store.append("a", 0, [b"new"]) == 1
    assert [list(await store.load(name)) for name in ("a", "b")] == [[b"new"], [b"kept"]]


@pytest.mark.parametrize(
    "entry",
    [b"", b"\0", bytes(range(256)), b"'; drop table entries; --", "é\u2028".encode(), b"x" * 5_000_000],
    ids=["empty", "nul", "all bytes", "quotes", "text", "large"],
)
async def test_an_entry_is_any_bytes(store: Store, entry: bytes) -> None:
    """What is loaded is what was appended, byte by byte."""
    await store.append("s", 0, [entry, b"end"])
    assert list(await store.load("s")) == [entry, b"end"]


async def test_a_session_has_any_name(store: Store) -> None:
    """Names that look alike, are empty or hold odd characters are different sessions."""
    names = ["", " ", "a", "A", "a ", "a\0b", "a\0c", "%", "a'b", 'a"b', "../x", "naïve", "nai\u0308ve", "🦊"]
    names.append("n" * 5000)
    for name in names:
        await store.append(name, 0, [name.encode()])
    assert [list(await store.load(name)) for name in names] == [[name.encode()] for name in names]
    assert {info.session for info in await store.list()} == set(names)


async def test_the_store_keeps_its_own_copy(store: Store) -> None:
    """Changing a list after appending it, or one that was loaded, changes nothing that is stored."""
    entries = [b"a"]
    await store.append("s", 0, entries)
    entries.append(b"b")
    loaded = await store.load("s")
    assert isinstance(loaded, list)
    loaded.clear()
    assert list(await store.load("s")) == [b"a"]


async def test_closing_twice_is_fine(store: Store) -> None:
    """`close` may be called again, also at the same time."""
    await asyncio.gather(store.close(), store.close())
    await store.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.append("s", 0, [b"a"]),
        lambda store: store.load("s"),
        lambda store: store.list(),
        lambda store: store.delete("s"),
    ],
    ids=["append", "load", "list", "delete"],
)
async def test_a_closed_store_says_so(store: Store, use: Callable[[Store], Awaitable[object]]) -> None:
    """Every method of a closed store raises an error that says what to do."""
    await store.close()
    with pytest.raises(StoreError, match=r"is closed.*make a new one"):
        await use(store)


async def test_a_cancelled_append_is_kept_and_the_order_with_it(store: Store) -> None:
    """Whoever is cancelled while appending knows that the entries are there, and can go on behind them."""
    writers = [asyncio.create_task(store.append("s", number, [str(number).encode()])) for number in range(5)]
    await asyncio.sleep(0)  # one step: all have handed over their entries
    for writer in writers:
        writer.cancel()
    outcomes = await asyncio.gather(*writers, return_exceptions=True)
    # The store in memory is done before anybody can cancel it.
    assert all(isinstance(outcome, asyncio.CancelledError | int) for outcome in outcomes)
    assert await store.append("s", 5, [b"5"]) == 6
    assert list(await store.load("s")) == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_store_outlives_an_event_loop(store: Store) -> None:
    """One loop after another may use a store, from different threads too."""

    def write(number: int) -> None:
        asyncio.run(store.append("s", number, [str(number).encode()]))

    for number in range(3):
        thread = threading.Thread(target=write, args=(number,))
        thread.start()
        thread.join()
    assert list(asyncio.run(store.load("s"))) == [b"0", b"1", b"2"]


# What the store on a disk promises beyond that


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_reopening_finds_what_was_written(path: Path, durability: Durability) -> None:
    """A second store on the file has the entries, lengths and times of the first."""
    first = SQLiteStore(path, durability, now=lambda: 7.0)
    await first.append("s", 0, [b"a", b"b"])
    await first.close()
    second = SQLiteStore(str(path), durability)
    assert list(await second.load("s")) == [b"a", b"b"]
    assert list(await second.list()) == [SessionInfo(session="s", length=2, created=7.0, updated=7.0)]
    assert await second.append("s", 2, [b"c"]) == 3
    await second.close()


async def test_two_stores_on_one_file_see_each_other(path: Path) -> None:
    """What one appends the other loads, and only one of them can go on from the same place."""
    one, two = SQLiteStore(path, "process"), SQLiteStore(path, "process")
    outcomes = await asyncio.gather(
        one.append("s", 0, [b"one"]), two.append("s", 0, [b"two"]), return_exceptions=True
    )
    assert sorted(map(type, outcomes), key=repr) == sorted([int, StoreConflict], key=repr)
    winner = b"one" if outcomes[0] == 1 else b"two"
    assert list(await one.load("s")) == list(await two.load("s")) == [winner]
    await one.close()
    await two.close()


async def test_many_stores_may_make_one_file_at_once(path: Path) -> None:
    """Stores that open a file that is not there yet all come to use the same one."""
    stores = [SQLiteStore(path) for _ in range(8)]
    await asyncio.gather(*(store.append(str(number), 0, [b"x"]) for number, store in enumerate(stores)))
    assert {info.session for info in await stores[0].list()} == set(map(str, range(8)))
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_writer_in_the_way_of_opening_is_waited_for(path: Path) -> None:
    """Putting the file into WAL mode waits for whoever writes it, which SQLite by itself would not."""
    first = SQLiteStore(path)
    await first.append("s", 0, [b"a"])
    await first.close()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("pragma journal_mode = delete")
    writer.execute("begin immediate")
    second = SQLiteStore(path)
    loading = asyncio.create_task(second.load("s"))
    asyncio.get_running_loop().call_later(0.05, writer.rollback)
    assert list(await loading) == [b"a"]
    writer.close()
    await second.close()


async def test_a_failed_append_leaves_nothing_behind(path: Path) -> None:
    """Where one entry of several cannot be written none is, and the store works on."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    with pytest.raises(StoreError, match="type 'object' is not supported"):
        await store.append("s", 1, [b"b", object()])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # what is tested
    assert await store.append("s", 1, [b"c"]) == 2
    assert list(await store.load("s")) == [b"a", b"c"]
    assert (await store.list())[0].length == 2
    await store.close()


async def test_a_failure_is_told_even_to_a_cancelled_caller(tmp_path: Path) -> None:
    """An error of the file comes before the cancellation: it would be lost otherwise."""
    writer = asyncio.create_task(SQLiteStore(tmp_path).append("s", 0, [b"a"]))
    await asyncio.sleep(0)  # one step: the entries have been handed over
    writer.cancel()
    with pytest.raises(StoreError):
        await writer


def test_a_durability_that_does_not_exist_is_refused(path: Path) -> None:
    """What an append survives is chosen by name; another name is an error at once."""
    with pytest.raises(ConfigError, match=r"one of \('power', 'process'\); got 'much'"):
        SQLiteStore(path, "much")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested


async def test_directories_are_made(tmp_path: Path) -> None:
    """The directories above the file need not be there."""
    store = SQLiteStore(tmp_path / "a" / "b" / "agent.db")
    await store.append("s", 0, [b"a"])
    await store.close()
    assert (tmp_path / "a" / "b" / "agent.db").is_file()


def not_a_database(path: Path) -> Path:
    """A file of text."""
    path.write_text("Dear diary, " * 200)
    return path


def another_programs(path: Path) -> Path:
    """A database with a table that is not ours."""
    with sqlite3.connect(path) as db:
        db.execute("create table entries (x)")
    db.close()
    return path


def a_directory(path: Path) -> Path:
    """A directory where the file should be."""
    path.mkdir()
    return path


def below_a_file(path: Path) -> Path:
    """A path whose directory cannot be made."""
    path.write_text("")
    return path / "agent.db"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (not_a_database, "file is not a database; name another path, or move this file away"),
        (another_programs, "is the database of another program; name another path"),
        (a_directory, "unable to open database file; is it a directory.*name another path"),
        (below_a_file, "name a path whose directory is there or can be made"),
    ],
)
async def test_a_path_that_will_not_do_is_named(path: Path, make: Callable[[Path], Path], says: str) -> None:
    """What cannot be a store is refused and left as it was; the error names it and the way out."""
    bad = make(path)
    before = path.read_bytes() if path.is_file() else b""
    store = SQLiteStore(bad)
    with pytest.raises(StoreError, match=says) as caught:
        await store.append("s", 0, [b"a"])
    assert repr(str(bad)) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    await store.close()


def of_the_first_layout(path: Path) -> None:
    """A file as the first layout had it, with one session."""
    db = sqlite3.connect(path)
    db.executescript(
        """
        create table sessions (
            session text primary key, length integer not null, created real not null, updated real not null
        ) without rowid;
        create table entries (
            session text not null, seq integer not null, at real not null, body blob not null,
            primary key (session, seq)
        );
        insert into sessions values ('s', 1, 7.0, 7.0);
        insert into entries values ('s', 0, 7.0, x'61');
        pragma user_version = 1;
        """
    )
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    db.close()


async def test_a_file_of_an_older_layout_is_brought_up_to_date(path: Path) -> None:
    """What is in it stays, and it is about nothing yet; several that open it at once do so once."""
    of_the_first_layout(path)
    stores = [SQLiteStore(path, "process") for _ in range(4)]
    old = SessionInfo(session="s", length=1, created=7.0, updated=7.0)
    assert await asyncio.gather(*(store.list() for store in stores)) == [[old]] * 4
    assert await stores[0].append("s", 1, [b"b"], b"told") == 2
    assert list(await stores[1].load("s")) == [b"a", b"b"]
    assert (await stores[2].list())[0].about == b"told"
    await asyncio.gather(*(store.close() for store in stores))
    with sqlite3.connect(path) as db:
        assert db.execute("pragma user_version").fetchone() == (SCHEMA_VERSION,)
    db.close()


async def test_a_file_of_a_newer_layout_is_refused(path: Path) -> None:
    """A file that a newer turnwheel laid out is not touched; the error says to upgrade."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("pragma application_id").fetchone() == (APPLICATION_ID,)
        db.execute(f"pragma user_version = {SCHEMA_VERSION + 1}")
    db.close()
    newer = SQLiteStore(path)
    says = f"has layout {SCHEMA_VERSION + 1} and this turnwheel knows {SCHEMA_VERSION}: .*; upgrade turnwheel"
    with pytest.raises(JournalError, match=says):
        await newer.load("s")
    await newer.close()


async def test_a_file_that_stays_locked_is_told(path: Path) -> None:
    """Another process's lock is waited for, and then named."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store._do(lambda db: db.execute("pragma busy_timeout = 10"))  # pyright: ignore[reportPrivateUsage]  # in a test, 5 seconds are long
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreError, match="database is locked; another process kept it for 5 seconds"):
        await store.append("s", 1, [b"b"])
    other.rollback()
    other.close()
    assert await store.append("s", 1, [b"b"]) == 2
    await store.close()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="this user can write anywhere")
async def test_a_directory_without_write_permission_is_told(tmp_path: Path) -> None:
    """Where no file can be made the error says that permission is missing."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    store = SQLiteStore(closed / "agent.db")
    with pytest.raises(StoreError, match="may not write"):
        await store.append("s", 0, [b"a"])
    await store.close()


async def test_a_full_disk_is_told_and_nothing_is_written(path: Path) -> None:
    """Where the file may not grow the append fails whole, and goes through once there is room."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store._do(lambda db: db.execute("pragma max_page_count = 8"))  # pyright: ignore[reportPrivateUsage]  # no other way to a full disk
    with pytest.raises(StoreError, match="disk is full; free some space and try again; nothing was written"):
        await store.append("s", 1, [b"x", b"y" * 100_000])
    assert list(await store.load("s")) == [b"a"]
    assert await store.append("s", 1, [b"b"]) == 2
    await store.close()


async def test_a_session_name_that_is_no_text_is_refused(path: Path) -> None:
    """A lone surrogate cannot be stored; the error says so."""
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match="is no valid text; use a session name without surrogates"):
        await store.append("\ud800", 0, [b"a"])
    await store.close()


async def test_an_append_writes_as_much_in_a_long_session_as_in_a_short_one(path: Path) -> None:
    """The journal's cost does not grow with its length: the same pages are written early and late."""
    store = SQLiteStore(path, "process")

    async def growth(start: int) -> int:
        """Bytes in the write-ahead log after 100 appends from *start* on."""
        await store._do(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())  # pyright: ignore[reportPrivateUsage]  # the log would be emptied at some other time
        for length in range(start, start + 100):
            await store.append("s", length, [b"x" * 500])
        return path.with_name("agent.db-wal").stat().st_size

    early = await growth(0)
    await store.append("s", 100, [b"x" * 500] * 20_000)
    assert await growth(20_100) < 1.5 * early
    await store.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python 3.13 and later tell that nobody closed it
async def test_a_dropped_store_takes_its_thread_along(path: Path) -> None:
    """A store that nobody closed ends its thread when it is collected."""
    before = set(threading.enumerate())
    await SQLiteStore(path).list()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


WRITER = """
import asyncio, sys
from turnwheel.effects.performers.stores.sqlite import SQLiteStore

async def write() -> None:
    store = SQLiteStore(sys.argv[1], sys.argv[2])
    for length in range(1_000_000):
        await store.append("s", length, [str(length).encode()])
        print(length, flush=True)

asyncio.run(write())
"""


@pytest.mark.parametrize("durability", get_args(Durability))
async def test_what_was_appended_survives_kill_9(path: Path, durability: Durability) -> None:
    """A process killed in the middle of its appends has lost none that returned, and the file is whole."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), durability], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(50)]
        process.send_signal(signal.SIGKILL)
        told += [int(line) for line in process.stdout.read().split(b"\n")[:-1]]
    store = SQLiteStore(path)
    kept = [int(entry) for entry in await store.load("s")]
    assert kept == list(range(len(kept)))
    assert len(kept) - len(told) in {0, 1}  # the one under way may be there too
    assert await store.append("s", len(kept), [b"on"]) == len(kept) + 1
    await store.close()
