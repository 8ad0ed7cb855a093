"""What the store on a disk promises beyond what every store does."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from turnwheel import Agent, Limits, tool
from turnwheel.effects.errors import ConfigError, SessionGone, StoreError
from turnwheel.effects.requests import CallModel
from turnwheel.performers.stores import sqlite, sqlite_file, sqlite_records
from turnwheel.performers.stores.base import Durability
from turnwheel.performers.stores.sqlite import SQLiteStore
from turnwheel.performers.stores.sqlite_file import StoreFile
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import ScriptedModel, calls, says
from turnwheel.testing.stores import StoreOver


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


async def test_a_writer_in_the_way_of_opening_is_waited_for(path: Path) -> None:
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


async def test_opening_a_file_leaves_the_locks_of_this_process_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens a file and closes it gives up the locks that all of its connections have."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    await store.close()
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("pragma journal_mode = delete")
    writer.execute("begin exclusive")
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.0)
    locked = StoreFile(str(path), str(path), "power").read(lambda _: None)
    assert "is locked" in str(locked)
    other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0).execute('vacuum')"
    done = subprocess.run([sys.executable, "-c", other, path], check=False, capture_output=True, text=True)
    assert "database is locked" in done.stderr
    writer.close()


def test_what_is_no_lock_is_not_waited_for_where_a_file_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Disk(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if "journal_mode" not in sql:
                return super().execute(sql, *rest)
            asked.append(sql)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Disk))
    assert isinstance(StoreFile(str(path), str(path), "power").read(lambda _: None), StoreError)
    assert len(asked) == 1


async def test_a_look_at_a_lease_or_a_meter_writes_nothing(path: Path) -> None:
    """It is in no transaction, so it would write over what another process wrote since it looked."""
    store = SQLiteStore(path)
    await store.append("s", 0, [b"a"])
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma query_only = on")
        assert sqlite_records.lease("s", None, None, "", db) is None
        assert sqlite_records.meter("m", None, None, lambda: 0.0, db) == (None, 0.0)
    await store.close()


async def test_a_failure_is_told_even_to_a_cancelled_caller(tmp_path: Path) -> None:
    """An error of the file comes before the cancellation: it would be lost otherwise."""
    writer = asyncio.create_task(SQLiteStore(tmp_path).append("s", 0, [b"a"]))
    await asyncio.sleep(0)  # one step: the entries have been handed over
    writer.cancel()
    with pytest.raises(StoreError):
        await writer


def test_what_cannot_be_a_setting_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one of \('power', 'process'\); got 'much'"):
        SQLiteStore(path, "much")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what is tested
    for none in ("", ":memory:"):  # SQLite would keep it in memory, and every process would have its own
        with pytest.raises(ConfigError, match=f"'{none}' is no file; name one, or use MemoryStore"):
            SQLiteStore(none)


async def test_the_directories_above_the_file_are_made(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "a" / "b" / "agent.db")
    await store.append("s", 0, [b"a"])
    await store.close()
    assert (tmp_path / "a" / "b" / "agent.db").is_file()


def below_a_file(path: Path) -> None:
    path.parent.write_text("")


def another_programs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("create table entries (x)")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_text("Dear diary, " * 200), "file is not a database; name another path, or"),
        (another_programs, "is the database of another program; name another path"),
        (Path.mkdir, "unable to open database file; is it a directory.*name another path"),
        (below_a_file, "name a path whose directory is there or can be made"),
    ],
    ids=["text", "another program's", "directory", "below a file"],
)
async def test_a_bad_path_is_named_and_left(
    tmp_path: Path, make: Callable[[Path], object], says: str
) -> None:
    # What cannot be a store is refused and left as it was; the error names it and the way out.
    path = tmp_path / "place" / "agent.db"
    if make is not below_a_file:
        path.parent.mkdir()
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match=says) as caught:
        await store.append("s", 0, [b"a"])
    assert repr(str(path)) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else b"") == before
    await store.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Python 3.13 and later tell that it was not closed
async def test_a_dropped_store_takes_its_thread_along(path: Path) -> None:
    before = set(threading.enumerate())
    await SQLiteStore(path).list()
    gc.collect()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()


async def test_a_closed_store_has_no_thread_although_it_is_held(path: Path) -> None:
    before, at_work = set(threading.enumerate()), set(sqlite.at_work)
    store = SQLiteStore(path)
    await store.list()
    (thread,) = set(threading.enumerate()) - before
    assert set(sqlite.at_work) - at_work == {thread}
    await store.close()
    await asyncio.to_thread(thread.join, 2)
    assert not thread.is_alive()
    assert thread not in sqlite.at_work


@pytest.mark.parametrize(("durability", "level"), [("power", 2), ("process", 1)])
async def test_how_durable_it_is_sqlite_is_told(path: Path, durability: Durability, level: int) -> None:
    store = SQLiteStore(path, durability)
    names = ("journal_mode", "synchronous", "fullfsync")

    def told(db: sqlite3.Connection) -> list[object]:
        return [db.execute(f"pragma {name}").fetchone()[0] for name in names]

    assert await store._do(told) == ["wal", level, 1]  # pyright: ignore[reportPrivateUsage]  # nothing else tells
    await store.close()


# What an append costs


async def log_growth(store: SQLiteStore, path: Path, session: str, start: int, count: int) -> int:
    await store._do(lambda db: db.execute("pragma wal_checkpoint(truncate)").fetchall())  # pyright: ignore[reportPrivateUsage]  # the log would be emptied at some other time
    for length in range(start, start + count):
        await store.append(session, length, [b"x" * 300])
    return path.with_name("agent.db-wal").stat().st_size


PAGE = 4096 + 24
"""A page in the write-ahead log."""


async def test_an_append_writes_one_page_in_a_long_session_as_in_a_short_one(path: Path) -> None:
    # Now and then it begins another page; a session that another came before begins with four.
    store = SQLiteStore(path, "process")
    await store.append("other", 0, [b"x" * 300] * 100)
    await store.append("s", 0, [b"x" * 300])
    assert await log_growth(store, path, "s", 1, 5) == 32 + 5 * PAGE
    assert await log_growth(store, path, "s", 6, 1_000) < 1.35 * 1_000 * PAGE
    assert await log_growth(store, path, "other", 100, 1) == 32 + 4 * PAGE
    early = await log_growth(store, path, "other", 101, 300)
    await store.append("other", 401, [b"x" * 300] * 20_000)
    assert await log_growth(store, path, "other", 20_401, 300) == pytest.approx(early, rel=0.05)
    await store.close()


class Counted(StoreOver):
    """A store that counts the bytes of each append, what it says about the session included."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: list[int] = []

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        self.bytes.append(sum(map(len, entries)) + len(about or b""))
        return await super().append(session, expected, entries, about, incarnation)


async def test_round_1000_of_a_run_is_kept_in_as_many_bytes_as_round_10() -> None:
    store, began = Counted(), list[int]()

    @tool(side_effect="read_only")
    def add(a: str, b: int) -> str:
        """Add two numbers."""
        began.append(sum(store.bytes))
        return f"{a} and {b}"

    script = [calls(("add", {"a": f"{number:06}", "b": 1})) for number in range(1_001)]
    agent = Agent(
        model="wire:model",
        tools=[add],
        performers={CallModel: ScriptedModel(*script, says("That is all."))},
        limits=Limits(turns=None),
        clock=AutoClock(100.0),
        store=store,
    )
    async with agent.session("s") as session:
        await session.run("add")
    await store.close()
    early, late = began[10] - began[9], began[1_000] - began[999]
    assert early > 0
    assert late == pytest.approx(early, rel=0.05)


# Appends that wait while the disk is busy share a transaction


@contextmanager
def locked(path: Path) -> Generator[None, None, None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        yield
        other.rollback()


async def traced(path: Path) -> tuple[SQLiteStore, list[str]]:
    store = SQLiteStore(path)
    await store.append("old", 0, [b"a"])
    statements: list[str] = []
    await store._do(lambda db: db.set_trace_callback(statements.append))  # pyright: ignore[reportPrivateUsage]  # nothing else tells
    return store, statements


async def handed_over(*work: Coroutine[None, None, object]) -> list[asyncio.Task[object]]:
    tasks = [asyncio.create_task(one) for one in work]
    await asyncio.sleep(0)
    return tasks


def length_in(path: Path, session: str) -> int:
    found = "select count(*) from entries join stretches on entries.id >> 32 = stretch"
    of_it = "join sessions on stretches.key >> 32 = sessions.id where session = ?"
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"{found} {of_it}", (session,)).fetchone()[0])


async def test_appends_that_wait_share_a_transaction(path: Path) -> None:
    store, statements = await traced(path)

    async def add(session: str) -> int:
        await store.append(session, 0, [b"1", b"2"])
        return length_in(path, session)

    with locked(path):
        waiting = await handed_over(*(add(f"s{number}") for number in range(60)))
    assert await asyncio.gather(*waiting) == [2] * 60
    assert statements.count("commit") <= 2
    assert len(await store.list()) == 61
    await store.close()


async def test_what_is_refused_spoils_nothing_else_in_its_transaction(path: Path) -> None:
    store, statements = await traced(path)
    with locked(path):
        waiting = await handed_over(
            store.append("first", 0, [b"a"]),  # perhaps by itself
            store.append("a", 0, [b"1"]),
            store.append("old", 0, [b"late"]),
            store.append("a", 1, [b"2"], b"told"),
            store.append("a", 1, [b"late"], b"too late"),
            store.append("b", 0, [b"1", object()]),  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # what is tested
            store.delete("old"),
            store.append("\ud800", 0, [b"1"]),
            store.append("old", 0, [b"new"]),
        )
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    first, a, old = [info.incarnation for info in sorted(await store.list(), key=lambda info: info.created)]
    assert [str(one) if isinstance(one, Exception) else one for one in (*outcomes[:5], outcomes[8])] == [
        first,
        a,
        "session 'old' has 1 entries, not 0: another process went on with it; load it again",
        a,
        "session 'a' has 2 entries, not 1: another process went on with it; load it again",
        old,
    ]
    assert [type(one) for one in outcomes[5:8]] == [StoreError, bool, StoreError]
    assert "type 'object' is not supported" in str(outcomes[5])
    assert "is no valid text; use a session name without surrogates" in str(outcomes[7])
    assert statements.count("commit") <= 2
    kept = {info.session: (info.length, info.about) for info in await store.list()}
    assert kept == {"first": (1, b""), "a": (2, b"told"), "old": (1, b"")}
    assert [list(await store.load(name)) for name in ("a", "old")] == [[b"1", b"2"], [b"new"]]
    await store.close()


async def test_where_the_transaction_fails_nothing_in_it_is_kept(path: Path) -> None:
    store, _ = await traced(path)

    def no_commit(action: int, said: str | None, *_: object) -> int:
        commits = (action, said) == (sqlite3.SQLITE_TRANSACTION, "COMMIT")
        return sqlite3.SQLITE_DENY if commits else sqlite3.SQLITE_OK

    await store._do(lambda db: db.set_authorizer(no_commit))  # pyright: ignore[reportPrivateUsage]  # nothing else fails there
    busy = threading.Event()
    _, *waiting = await handed_over(
        store._do(lambda _: busy.wait()),  # pyright: ignore[reportPrivateUsage]  # so that the others share one
        store.append("a", 0, [b"1"]),
        store.append("a", 1, [b"2"]),
        store.append("a", 1, [b"3"]),
    )
    busy.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3  # each raises its own
    assert list(await store.load("a")) == []
    await store.append("a", 0, [b"1"])
    await store.close()


async def test_reading_and_closing_come_after_what_was_asked_before(path: Path) -> None:
    store, _ = await traced(path)
    with locked(path):
        waiting = await handed_over(
            store.append("old", 1, [b"b"]),
            store.load("old"),
            store.append("old", 2, [b"c"]),
            store.append("old", 3, [b"d"]),
            store.load("old"),
            store.close(),
        )
    _, early, _, _, late, _ = await asyncio.gather(*waiting)
    assert (early, late) == ((b"a", b"b"), (b"a", b"b", b"c", b"d"))


LEAVES = """
import asyncio, sys
from turnwheel.performers.stores.sqlite import SQLiteStore

loop, store = asyncio.new_event_loop(), SQLiteStore(sys.argv[1])
for length in range(50):
    loop.create_task(store.append("s", length, [b"x"]))
loop.call_soon(loop.stop)
loop.run_forever()
"""


async def test_what_was_handed_over_is_done_before_the_interpreter_exits(path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEAVES, str(path)], stderr=subprocess.DEVNULL, check=True)
    assert not path.with_name("agent.db-wal").exists(), "it was not closed"
    assert length_in(path, "s") == 50


def test_sqlite_is_imported_with_the_first_use_of_a_store() -> None:
    code = "import sys, turnwheel; turnwheel.SQLiteStore('agent.db'); print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


async def test_a_lease_alone_waits_for_no_disk_and_an_append_after_it_does(path: Path) -> None:
    file = StoreFile(str(path), str(path), "power")
    synchronous = partial(one_number, "pragma synchronous")
    assert file.write([synchronous], lasting=False) == [1]
    assert file.write([synchronous]) == [2]
    assert file.close() is None


def one_number(question: str, db: sqlite3.Connection) -> int:
    answer: int = db.execute(question).fetchone()[0]
    return answer


Asking = Callable[[SQLiteStore], Coroutine[None, None, object]]
LOOKS: dict[str, Asking] = {
    "lease": lambda store: store.lease("old", b"mine", b"mine"),
    "meter": lambda store: store.meter("m", None, None),
    "load": lambda store: store.load("old"),
    "list": lambda store: store.list(),
    "info": lambda store: store.info("old"),
    "leases": lambda store: store.leases(),
    "overdue": lambda store: store.overdue(1.0),
    "checkpoints": lambda store: store.checkpoints("old"),
    "news": lambda store: store.news(("old",), None),
}
CHANGES: dict[str, tuple[Asking, bool]] = {
    "append": (lambda store: store.append("old", 1, [b"b"]), True),
    "delete": (lambda store: store.delete("old"), True),
    "deadline": (lambda store: store.set_deadline("old", 5.0), True),
    "lease": (lambda store: store.lease("old", None, b"mine"), False),
    "renew": (lambda store: store.renew({"old": (b"mine", b"still mine")}), False),
    "meter": (lambda store: store.meter("m", None, b"5"), False),
    "checkpoint": (lambda store: store.keep_checkpoint("old", 1, b"c", 0), False),
}


@pytest.mark.parametrize("name", LOOKS)
async def test_who_only_looks_is_in_no_transaction(name: str, path: Path) -> None:
    """So it waits for no other process that writes."""
    store, statements = await traced(path)
    await LOOKS[name](store)
    assert [one for one in statements if one.startswith(("begin", "commit"))] == []
    await store.close()


@pytest.mark.parametrize("name", CHANGES)
async def test_what_can_be_made_again_waits_for_no_disk_and_all_else_does(name: str, path: Path) -> None:
    store, statements = await traced(path)
    change, lasting = CHANGES[name]
    await change(store)
    assert statements.count("begin immediate") == statements.count("commit") == 1
    assert ("pragma synchronous = normal" in statements) is not lasting
    assert statements[-1] == ("commit" if lasting else "pragma synchronous = full")
    await store.close()


async def test_who_knows_another_incarnation_learns_whether_the_session_was_begun_anew(path: Path) -> None:
    store = SQLiteStore(path)
    known = await store.append("s", 0, [b"a"])
    await store.delete("s")
    for begun_anew in (False, True):
        with pytest.raises(SessionGone) as raised:
            await store.append("s", 1, [b"b"], None, known)
        assert raised.value.begun_anew is begun_anew
        if not begun_anew:
            await store.append("s", 0, [b"new"])
    await store.close()


async def test_a_hundred_overdue_sessions_are_told_at_a_time(path: Path) -> None:
    store = SQLiteStore(path)
    names = [f"s{number:03}" for number in range(102)]
    for number, name in enumerate(names):
        await store.append(name, 0, [b"x"])
        await store.set_deadline(name, float(number))
    assert await store.overdue(101.0) == names[:100]
    assert await store.overdue(101.0, 100) == names[100:]
    await store.close()
