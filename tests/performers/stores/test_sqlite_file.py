"""Work with the file of a store: what is kept together, what an error says, and what is opened anew."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnwheel import Agent, SQLiteStore
from turnwheel.effects import CallModel
from turnwheel.effects.errors import SessionGone, StoreError
from turnwheel.engine.inspect.archive import export, replay
from turnwheel.engine.inspect.listing import listed
from turnwheel.performers.stores import sqlite_file
from turnwheel.performers.stores.base import Durability
from turnwheel.performers.stores.sqlite_file import (
    APPLICATION_ID,
    LAYOUT_VERSION,
    StoreFile,
    is_mounted_read_only,
)
from turnwheel.testing.scripted import ScriptedModel, says


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@pytest.fixture
def file(path: Path) -> Iterator[StoreFile]:
    made = StoreFile("shown", str(path), "power")
    yield made
    made.close()


def raising(error: Exception) -> Callable[[sqlite3.Connection], Any]:
    def work(_: sqlite3.Connection) -> Any:
        raise error

    return work


def coded(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("what it says")
    error.sqlite_errorcode = code
    return error


def adding(name: str, then: Exception | None = None) -> Callable[[sqlite3.Connection], str]:
    def work(db: sqlite3.Connection) -> str:
        db.execute("insert into meters values (?, ?)", (name, b"x"))
        if then is not None:
            raise then
        return name

    return work


def names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("select name from meters order by name")]


def pragma(name: str) -> Callable[[sqlite3.Connection], Any]:
    return lambda db: db.execute(f"pragma {name}").fetchone()[0]


def connection(db: sqlite3.Connection) -> sqlite3.Connection:
    return db


@pytest.mark.parametrize(
    ("code", "way_out", "stays"),
    [
        (sqlite3.SQLITE_BUSY, "another process kept it for 5 seconds; end that or try again", True),
        (sqlite3.SQLITE_CANTOPEN, "is it a directory, or one you may not write in? name another path", False),
        (sqlite3.SQLITE_CORRUPT, "take a backup, or save what can be read with sqlite3's .recover", False),
        (sqlite3.SQLITE_ERROR, "another program changed the file", False),
        (sqlite3.SQLITE_FULL, "free some space and try again; nothing was written", True),
        (sqlite3.SQLITE_IOERR, "the disk or its quota failed; look at the system's log", False),
        (sqlite3.SQLITE_IOERR_WRITE, "the disk or its quota failed; look at the system's log", False),
        (sqlite3.SQLITE_NOTADB, "name another path, or move this file away", False),
        (sqlite3.SQLITE_READONLY, "you may not write in it, in what begins like it, or in its", False),
        (sqlite3.SQLITE_TOOBIG, "look at the file with the sqlite3 shell", True),
        (sqlite3.SQLITE_MISMATCH, "look at the file with the sqlite3 shell", False),
        (0, "look at the file with the sqlite3 shell", True),
    ],
)
def test_an_error_of_the_file_has_a_way_out_and_what_may_be_broken_is_opened_anew(
    code: int,
    way_out: str,
    stays: bool,  # noqa: FBT001  # a row
    file: StoreFile,
) -> None:
    before, error = file.read(connection), coded(code)
    for found in (file.read(raising(error)), *file.write([raising(error)])):
        assert type(found) is StoreError
        assert str(found).startswith(f"store 'shown': what it says; {way_out}")
        assert found.__cause__ is error
    assert (file.read(connection) is before) is stays


def test_an_error_of_another_kind_is_told_as_what_it_is(file: StoreFile) -> None:
    gone = SessionGone("s", begun_anew=True)
    found: Any = file.read(raising(gone))
    assert (type(found), str(found), found is gone) == (SessionGone, str(gone), False)
    odd = ValueError("odd")
    assert file.read(raising(odd)) is odd
    surrogate: Any = file.read(lambda _: "a\ud800".encode())
    assert type(surrogate) is StoreError
    assert str(surrogate) == (
        r"store 'shown': 'a\ud800' is no valid text; use a session name without surrogates"
    )
    denied: Any = file.read(raising(PermissionError("denied")))
    assert str(denied) == "store 'shown': denied; name a path whose directory is there or can be made"


def test_of_several_that_are_written_together_one_that_fails_leaves_nothing_behind(file: StoreFile) -> None:
    first, second, third = file.write([adding("a"), adding("b", KeyError("b")), adding("c")])
    assert (first, type(second), third) == ("a", KeyError, "c")
    assert file.read(names) == ["a", "c"]
    (alone,) = file.write([adding("d", KeyError("d"))])
    assert type(alone) is KeyError
    assert file.read(names) == ["a", "c"]
    assert file.write([]) == []


def test_where_all_of_a_transaction_is_taken_back_all_have_failed(file: StoreFile) -> None:
    def full(db: sqlite3.Connection) -> None:
        db.rollback()
        raise coded(sqlite3.SQLITE_FULL)

    outcomes = file.write([adding("a"), full, adding("c")])
    assert [type(one) for one in outcomes] == [StoreError] * 3
    assert len({id(one) for one in outcomes}) == 3, "each has an error of its own"
    assert file.read(names) == []
    assert file.write([adding("a")]) == ["a"]


@pytest.mark.parametrize(("durability", "full", "relaxed"), [("power", 2, 1), ("process", 1, 1)])
def test_what_need_not_last_waits_for_no_disk_and_what_comes_behind_it_does(
    durability: Durability, full: int, relaxed: int, path: Path
) -> None:
    file, level = StoreFile("shown", str(path), durability), pragma("synchronous")
    levels = [file.write([level], lasting=lasting)[0] for lasting in (True, False, True)]
    assert levels == [full, relaxed, full]
    file.write([raising(KeyError())], lasting=False)
    assert file.read(level) == full
    assert file.write([lambda db: db.in_transaction]) == [True]
    assert file.read(lambda db: db.in_transaction) is False
    file.close()


def test_a_file_says_whose_it_is_which_layout_it_has_and_is_synced_fully(file: StoreFile) -> None:
    told = [
        file.read(pragma(name)) for name in ("application_id", "user_version", "journal_mode", "fullfsync")
    ]
    assert told == [APPLICATION_ID, LAYOUT_VERSION, "wal", 1]
    assert int.from_bytes(b"twhl") == APPLICATION_ID


def test_a_file_is_let_go_of_and_found_again(file: StoreFile) -> None:
    assert file.close() is None
    file.write([adding("a")])
    before = file.read(connection)
    assert file.close() is None
    assert file.close() is None
    assert isinstance(before, sqlite3.Connection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        before.execute("select 1")
    assert file.read(names) == ["a"]


def test_text_of_any_bytes_is_read(file: StoreFile) -> None:
    def odd(db: sqlite3.Connection) -> Any:
        return db.execute("select cast(x'61ff' as text)").fetchone()[0]

    assert file.read(odd) == r"a\xff"


def test_a_writer_that_keeps_the_file_is_told(
    file: StoreFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnwheel.performers.stores.sqlite_file.BUSY_SECONDS", 0.01)
    file.write([adding("a")])
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("begin immediate")
        assert file.read(names) == ["a"], "who reads does not wait"
        (found,) = file.write([adding("b")])
        assert "another process kept it" in str(found)
        other.execute("rollback")
    other.close()
    assert file.write([adding("b")]) == ["b"]


# On a read-only file system


async def session_in(place: Path) -> SQLiteStore:
    """A store at *place*, still open, with a session that was answered."""
    store = SQLiteStore(place)
    performers: dict[type, Any] = {CallModel: ScriptedModel(says("hi"))}
    await Agent(model="scripted", store=store, performers=performers).session("s").run("go")
    return store


def mount_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing written from now on, as far as this process can see."""

    def refused(*_: object) -> None:
        raise coded(sqlite3.SQLITE_READONLY)

    monkeypatch.setattr(sqlite_file, "_prepare", refused)
    monkeypatch.setattr(sqlite_file, "is_mounted_read_only", lambda _: True)


def beside(place: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in place.parent.iterdir()}


@pytest.mark.parametrize("left", ["closed", "killed"])
async def test_a_store_on_a_read_only_file_system_is_read_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """One that was killed has its latest entries in the log."""
    written = await session_in(tmp_path / "written.db")
    if left == "closed":
        await written.close()
    (tmp_path / "fixed").mkdir()
    place = tmp_path / "fixed" / "s.db"
    for end in ("", "-wal") if left == "killed" else ("",):
        shutil.copy(f"{tmp_path / 'written.db'}{end}", f"{place}{end}")
    await written.close()
    mount_read_only(monkeypatch)
    before, store = beside(place), SQLiteStore(place)
    assert [one.session for one in await listed(store)] == ["s"]
    assert b'"hi"' in await export(store, "s")
    assert [step.label async for step in replay(store, "s")][-1] == "done"
    session = await Agent(model="scripted", store=store).session("s").load()
    assert session.history[-1].text == "hi"
    with pytest.raises(StoreError, match="you may not write in it"):
        await session.send("more")
    assert [one.session for one in await listed(store)] == ["s"]
    await store.close()
    assert beside(place) == before


async def test_a_file_that_is_written_to_elsewhere_is_copied_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a container of which another one has the file system to read."""
    place = tmp_path / "s.db"
    written = await session_in(place)
    mounted = SQLiteStore(place)
    with monkeypatch.context() as patch:
        mount_read_only(patch)
        length = len(await written.load("s"))
        assert len(await mounted.load("s")) == length
    await written.append("s", length, [b"more"])
    with monkeypatch.context() as patch:
        mount_read_only(patch)
        assert len(await mounted.load("s")) == length + 1
    await mounted.close()
    await written.close()


async def test_an_empty_file_on_a_read_only_file_system_is_no_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch()
    mount_read_only(monkeypatch)
    store = SQLiteStore(path)
    with pytest.raises(StoreError, match="is empty, and on a read-only file system; name another path"):
        await store.list()
    await store.close()


def test_a_file_that_is_not_there_is_on_no_read_only_file_system(path: Path) -> None:
    assert not is_mounted_read_only(str(path))
    path.touch()
    assert not is_mounted_read_only(str(path))
