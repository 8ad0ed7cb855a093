"""Calls to a database server: which are sent again, by which connection, and what their errors say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import asyncpg  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]  # it brings no types
import pytest
from support.patience import PATIENCE

from turnwheel.effects.errors import ConfigError, NewerVersion, StoreError
from turnwheel.performers.stores.postgres.layout import SCHEMA_VERSION
from turnwheel.performers.stores.postgres.server import LONGEST_PAUSE, Server, passing

DSN = "postgresql://me:secret@here:5432/db"


class Refused(Exception):
    """An error of the server's, with its code by the SQL standard."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"refused with {sqlstate}")
        self.sqlstate = sqlstate


class InterfaceError(Exception):
    """As asyncpg calls what it says of a connection that was lost."""


class InternalClientError(Exception):
    """As asyncpg calls what it says of an answer that it does not understand."""


class Connection:
    """A connection to a server that answers with what *does* gives or raises."""

    def __init__(self, pid: int, does: Callable[[], Any], *, leaves: bool = True) -> None:
        self.pid = pid
        self.does = does
        self.leaves = leaves
        self.closed = False
        self.terminated = False
        self.asked: list[Any] = []

    async def fetch(self, *asked: object) -> Any:
        self.asked.append(asked)
        done = self.does()
        return await done if asyncio.iscoroutine(done) else done

    async def fetchrow(self, *_: object) -> dict[str, bool]:
        return {"ours": True, "made": True, "used": True}

    async def fetchval(self, _: str) -> int:
        return SCHEMA_VERSION

    def get_server_pid(self) -> int:
        return self.pid

    def is_closed(self) -> bool:
        return self.closed or self.terminated

    def terminate(self) -> None:
        self.terminated = True

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109  # as asyncpg has it
        assert timeout > 0
        if not self.leaves:
            raise InterfaceError
        self.closed = True


class World:
    """A server whose answers are those of *script*, in their order, by whatever connection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: list[Any]) -> None:
        self.script = script
        self.made: list[Connection] = []
        self.settings: list[dict[str, Any]] = []
        self.refused: list[BaseException] = []
        self.pauses: list[float] = []
        self.now = 0.0
        monkeypatch.setattr(asyncpg, "connect", self.connect)
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)
        monkeypatch.setattr(asyncio, "sleep", self.sleep)

    async def connect(self, dsn: str, **settings: Any) -> Connection:
        assert dsn == DSN
        self.settings.append(settings)
        if self.refused:
            raise self.refused.pop(0)
        self.made.append(Connection(len(self.made) + 1, self.answer))
        return self.made[-1]

    def answer(self) -> Any:
        given = self.script.pop(0)
        if isinstance(given, BaseException):
            raise given
        return given

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def server(connections: int = 2, patience: float = 10.0) -> Server:
    return Server(DSN, "mine", connections, patience, "turnwheel 1")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *[
            (Refused(state), True)
            for state in ("08000", "08006", "57P01", "57P03", "40001", "40P01", "53300")
        ],
        *[(Refused(state), False) for state in ("57014", "40002", "53100", "42P01", "23505", "28P01")],
        *[(error, True) for error in (OSError(), TimeoutError(), InterfaceError(), InternalClientError())],
        *[(error, False) for error in (ValueError(), StoreError("of ours, and an OSError too"))],
    ],
    ids=repr,
)
def test_what_a_lost_connection_or_a_busy_server_is_to_blame_for_passes(
    error: Exception,
    expected: bool,  # noqa: FBT001  # a row
) -> None:
    assert passing(error) is expected


async def test_a_call_is_sent_again_after_longer_and_longer_pauses_while_there_is_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [["first"], *[InterfaceError() for _ in range(14)]])
    here = server()
    assert await here.call("select $1", 5) == ["first"]
    assert world.made[0].asked == [("select $1", 5)]
    with pytest.raises(StoreError, match="what was asked for may have been done"):
        await here.call("select")
    # Together 9.55 seconds of 10: the next one would be too long.
    assert world.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, *[LONGEST_PAUSE] * 8]
    assert len(world.script) == 0


async def test_a_call_is_sent_again_up_to_the_end_of_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [["first"], InterfaceError(), InterfaceError(), ["second"]])
    here = server(patience=0.05 + 0.1)
    await here.call("select")
    assert await here.call("select") == ["second"]
    assert world.pauses == [0.05, 0.1]


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (Refused("57P03"), True),  # it starts
        (Refused("53300"), True),  # it has no room for one more
        (Refused("57P01"), False),
        (OSError("no route"), False),
    ],
    ids=repr,
)
async def test_who_never_reached_a_server_waits_only_for_one_that_starts(
    error: Exception,
    waits: bool,  # noqa: FBT001  # a row
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [["row"]])
    world.refused = [error]
    if waits:
        assert await server().call("select") == ["row"]
    else:
        with pytest.raises(StoreError, match="see whether the server runs and can be reached") as raised:
            await server().call("select")
        assert "may have been done" not in str(raised.value)
        assert raised.value.__cause__ is error
    assert len(world.pauses) == waits


@pytest.mark.parametrize(
    ("state", "way_out"),
    [
        ("28P01", "look at the user and the password of the DSN"),
        ("3D000", "create the database, or name another one"),
        ("25006", "the server is a standby that only reads; name the primary"),
        ("42501", "grant the user the right to it"),
        ("42P01", "another program changed the schema"),
        ("53100", "free some space and try again; nothing was written"),
        ("53200", "the server lacks memory or connections"),
        ("54000", "the name of a session may have 2,600 bytes"),
        ("22000", "look at the DSN, and at the server's log"),
    ],
)
async def test_what_the_server_refuses_is_told_with_a_way_out(
    state: str, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = Refused(state)
    world = World(monkeypatch, [error, ["row"]])
    here = server()
    with pytest.raises(StoreError) as raised:
        await here.call("select")
    assert str(raised.value).startswith(f"store 'postgresql://here:5432/db': refused with {state}; {way_out}")
    assert raised.value.__cause__ is error
    # The connection is as good as it was.
    assert await here.call("select") == ["row"]
    assert (len(world.made), world.pauses) == (1, [])
    # So it is where it refuses the connection itself.
    world.refused = [error]
    with pytest.raises(StoreError, match=way_out) as raised:
        await server().call("select")
    assert raised.value.__cause__ is error


async def test_what_is_wrong_with_an_address_is_told_without_quoting_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [["row"], ValueError("of ours")])
    world.refused = [ValueError("the port of me:secret@here")]
    here = server()
    with pytest.raises(StoreError) as raised:
        await here.call("select")
    assert str(raised.value) == (
        "store 'postgresql://here:5432/db': cannot be opened (ValueError); "
        "look at the DSN, and at the server's log"
    )
    assert raised.value.__cause__ is None
    await here.call("select")
    # Once it was reached, such an error is no matter of the address.
    with pytest.raises(ValueError, match="of ours") as own:
        await here.call("select")
    assert own.value.__cause__ is None


async def test_an_error_of_the_engines_own_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world, error = World(monkeypatch, []), ConfigError("as it is")
    world.refused = [error]
    with pytest.raises(ConfigError) as raised:
        await server().call("select")
    assert raised.value is error


async def test_a_server_that_is_silent_is_left_after_half_of_the_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Connection] = []

    async def connect(_: str, **settings: Any) -> Connection:
        assert settings["timeout"] == 0.03
        answer = asyncio.Event().wait if made else list[Any]
        made.append(Connection(len(made) + 1, answer))
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", connect)
    here = server(patience=0.06)
    assert await here.call("select") == []
    made[0].does = asyncio.Event().wait
    with pytest.raises(StoreError, match=r"no answer within 0\.03 seconds; see whether the server runs"):
        await here.call("select")
    assert made[0].terminated


async def test_what_one_connection_never_answers_is_asked_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Connection] = []
    passed = 0.0

    async def connect(_: str, **__: Any) -> Connection:
        made.append(Connection(len(made) + 1, list[Any]))
        return made[-1]

    async def silent() -> None:
        nonlocal passed
        passed = 0.6 * PATIENCE
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncpg, "connect", connect)
    # Time passes only while the first connection is asked.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: time.monotonic() + passed)
    here = server(patience=PATIENCE)
    await here.call("select")
    made[0].does = silent
    assert await here.call("select") == []
    assert [each.terminated for each in made] == [True, False]


async def test_connections_are_used_again_and_there_are_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way = [0, 0]

    async def slowly() -> list[str]:
        under_way[:] = under_way[0] + 1, max(under_way[1], under_way[0] + 1)
        for _ in range(5):
            await asyncio.sleep(0)
        under_way[0] -= 1
        return ["row"]

    made: list[Connection] = []

    async def connect(_: str, **__: Any) -> Connection:
        made.append(Connection(len(made) + 1, slowly))
        return made[-1]

    monkeypatch.setattr(asyncpg, "connect", connect)
    here = server(connections=2)
    assert await asyncio.gather(*[here.call("select") for _ in range(6)]) == [["row"]] * 6
    assert (under_way, len(made)) == ([0, 2], 2)
    assert here.pids == {1, 2}
    # One that was closed meanwhile is not used.
    made[0].closed = made[1].closed = True
    assert await here.call("select") == ["row"]
    assert len(made) == 3
    await here.close()
    assert made[2].closed
    assert not made[2].terminated


async def test_where_one_connection_is_lost_those_at_rest_are_dropped_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [["row"], ["row"], InterfaceError(), ["row"]])
    here, both = server(), asyncio.Barrier(2)

    async def together() -> list[str]:
        await both.wait()
        return ["row"]

    first, second = await here.connect(), await here.connect()
    assert here.pids == {1, 2}
    here.drop(second)
    assert (second.terminated, here.pids) == (True, {1})
    world.script[:2] = [together(), together()]
    await asyncio.gather(here.call("select"), here.call("select"))
    assert [len(each.asked) for each in world.made] == [0, 0, 1, 1]
    assert await here.call("select") == ["row"]
    assert [each.terminated for each in world.made] == [False, True, True, True, False]
    assert here.pids == {1, 5}
    here.drop_all()
    assert world.made[4].terminated
    assert here.pids == {1}
    assert not first.terminated, "it is in other hands"


async def test_a_connection_whose_server_shuts_down_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, [["row"], Refused("57P01"), ["row"]])
    here = server()
    for _ in range(2):
        assert await here.call("select") == ["row"]
    assert [each.terminated for each in world.made] == [True, False]


async def test_a_connection_that_does_not_take_leave_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [["row"]])
    here = server()
    await here.call("select")
    world.made[0].leaves = False
    await here.close()
    assert world.made[0].terminated


async def test_a_connection_is_to_the_schema_and_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, [])
    await Server(DSN, 'my "own"', 1, 10.0, "turnwheel 1").connect()
    (settings,) = world.settings
    assert settings["timeout"] == 5.0
    assert settings["server_settings"] == {
        "search_path": '"my ""own"""',
        "application_name": "turnwheel 1",
        "default_transaction_isolation": "read committed",
    }


async def test_the_layout_is_looked_at_once_and_a_connection_to_a_wrong_one_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, looks = World(monkeypatch, []), list[int]()
    versions = [SCHEMA_VERSION + 1, SCHEMA_VERSION]

    async def look(self: Connection, _: str) -> int:
        looks.append(self.pid)
        return versions.pop(0)

    monkeypatch.setattr(Connection, "fetchval", look)
    here = server()
    with pytest.raises(NewerVersion):
        await here.connect()
    assert world.made[0].terminated
    assert here.pids == set()
    for _ in range(3):
        await here.connect()
    assert (looks, here.pids) == ([1, 2], {2, 3, 4})
