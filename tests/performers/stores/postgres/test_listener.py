"""What processes on one database tell each other: that sessions were written to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from turnwheel.performers.stores.postgres import listener
from turnwheel.performers.stores.postgres.listener import MOST_TOLD, Listener, tag

Concerns = Callable[[str], bool]


class Connection:
    """A connection that notes who listens, and fails its heartbeat *beats* times later."""

    def __init__(self, pid: int, beats: int) -> None:
        self.pid, self.beats = pid, beats
        self.listening: dict[str, Any] = {}
        self.dropped = False

    async def add_listener(self, channel: str, heard: Any) -> None:
        self.listening[channel] = heard

    async def execute(self, _: str, timeout: float) -> None:  # noqa: ASYNC109  # as asyncpg has it
        assert timeout >= 0
        self.beats -= 1
        if self.beats < 0:
            raise ConnectionResetError


class World:
    """A server that notes what is told, and fails the first of *failing* times."""

    def __init__(self, failing: int = 0) -> None:
        self.failing = failing
        self.told: list[tuple[str, str]] = []
        self.pids: set[int] = {7}
        self.made: list[Connection] = []
        self.beats = 1_000_000
        server: Any = self
        self.listener = Listener(server, "mine")

    async def call(self, sql: str, channel: str, text: str) -> None:
        assert "pg_notify" in sql
        self.told.append((channel, text))
        await asyncio.sleep(0)
        if len(self.told) <= self.failing:
            raise ConnectionResetError

    async def connect(self) -> Connection:
        self.made.append(Connection(100 + len(self.made), self.beats))
        if len(self.made) <= self.failing:
            raise ConnectionRefusedError
        return self.made[-1]

    def drop(self, db: Connection) -> None:
        db.dropped = True


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


def names(number: int) -> list[bytes]:
    return [f"s{one}".encode() for one in range(number)]


async def test_sessions_are_told_by_hashes_and_together() -> None:
    world = World()
    world.listener.tell([])
    world.listener.tell([b"a", b"b"])
    world.listener.tell([b"b", "naïve".encode()])
    await world.listener.finish()
    ((channel, text),) = world.told
    assert channel == "mine"
    assert sorted(text.split()) == sorted([tag("a"), tag("b"), tag("naïve")])
    assert all(len(each) == 16 for each in text.split())


async def test_where_no_session_was_written_to_nothing_is_told() -> None:
    world = World()
    world.listener.tell([])
    await world.listener.finish()
    assert world.told == []


@pytest.mark.parametrize(("number", "told"), [(MOST_TOLD, MOST_TOLD), (MOST_TOLD + 1, 0)])
async def test_of_very_many_it_is_told_that_it_may_be_any(number: int, told: int) -> None:
    world = World()
    world.listener.tell(names(number))
    await world.listener.finish()
    ((_, text),) = world.told
    assert len(text.split()) == told
    assert len(text) < 8_000, "a server passes on no more"


async def test_what_comes_while_it_tells_is_told_next_and_a_failure_ends_nothing() -> None:
    world = World(failing=1)
    world.listener.tell([b"lost"])
    await asyncio.sleep(0)
    world.listener.tell([b"a"])
    await world.listener.finish()
    world.listener.tell([b"b"])
    await world.listener.finish()
    assert [text for _, text in world.told] == [tag("lost"), tag("a"), tag("b")]


async def test_who_listens_is_told_what_it_concerns_until_they_listen_no_more() -> None:
    world, heard, others = World(), list[Concerns](), list[Concerns]()
    world.listener.add(heard.append)
    world.listener.add(others.append)
    await turns()
    (db,) = world.made
    tell = db.listening["mine"]
    tell(db, 8, "mine", f"{tag('a')} {tag('b')}")
    tell(db, 8, "mine", "")
    tell(db, 7, "mine", tag("c"))  # from this process, which knows
    some, any_ = heard
    assert [some(name) for name in ("a", "b", "c")] == [True, True, False]
    assert any_("whichever")
    world.listener.remove(heard.append)
    await turns()
    assert [db.dropped] == [False]
    tell(db, 8, "mine", tag("a"))
    assert (len(heard), len(others)) == (2, 3)
    world.listener.remove(others.append)
    await turns()
    assert [db.dropped] == [True]
    # Who comes later has it listen again.
    world.listener.add(heard.append)
    await turns()
    assert len(world.made) == 2
    await world.listener.finish()
    assert world.made[1].dropped
    await world.listener.finish()


async def test_a_connection_that_is_lost_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LONGEST_PAUSE", 0.0)
    monkeypatch.setattr(listener, "HEARTBEAT", 0.0)
    world = World(failing=1)
    world.beats = 3
    world.listener.add(lambda _: None)
    while len(world.made) < 4:  # noqa: ASYNC110  # what is waited for is no event of ours
        await asyncio.sleep(0)
    assert [db.dropped for db in world.made] == [False, True, True, False]
    assert world.made[1].beats == -1
    await world.listener.finish()
