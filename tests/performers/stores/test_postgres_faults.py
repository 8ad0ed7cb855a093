"""The store in a database, while servers, connections, networks or processes are lost: no entry is."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from support.patience import PATIENCE
from support.postgres import ON_ONE_WORKER, PostgresServer, new_schema
from support.proxy import Proxy

from turnwheel.effects.errors import StoreConflict, StoreError
from turnwheel.performers import PostgresStore
from turnwheel.testing.store_contract import survives_kill

pytestmark = [ON_ONE_WORKER, pytest.mark.real]

SESSIONS = 20
"""Sessions that are appended to at the same time."""


@pytest.fixture(scope="module")
def durable_server() -> Iterator[PostgresServer]:
    """A server that waits for its disk, and may be stopped."""
    server = PostgresServer(durable=True)
    yield server
    server.remove()


def entry(session: str, number: int) -> bytes:
    return f"{session} {number};".encode() * (1 + number % 40)


class Writers:
    """Append to sessions of *store*, of which each entry is another one, until they are stopped."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.lengths = dict.fromkeys([f"s{number}" for number in range(SESSIONS)], 0)
        self.stopped = False
        self.faults: list[str] = []

    async def write(self, session: str) -> None:
        while not self.stopped:
            length = self.lengths[session]
            added = [entry(session, length + more) for more in range(1 + length % 3)]
            try:
                await self.store.append(session, length, added)
            except StoreError as error:
                # What became of it is known to the journal alone.
                self.faults.append(str(error))
                there = await self.read(session)
                assert there in {length, length + len(added)}, session
                self.lengths[session] = there
            else:
                self.lengths[session] += len(added)

    async def read(self, session: str) -> int:
        while True:
            with suppress(StoreError):
                return len(await self.store.load(session))

    async def check(self) -> None:
        """Each session has what was told, once and in order."""
        for session, length in self.lengths.items():
            assert [*await self.store.load(session)] == [entry(session, each) for each in range(length)]


@asynccontextmanager
async def writing(store: PostgresStore, rounds: int = 3) -> AsyncGenerator[Writers, None]:
    """Writers at work, at first and at the end for so many appends of each."""
    writers = Writers(store)
    tasks = [asyncio.create_task(writers.write(session)) for session in writers.lengths]

    async def go_on() -> None:
        before = dict(writers.lengths)
        while any(writers.lengths[session] < before[session] + rounds for session in before):
            await asyncio.sleep(0.01)
            for task in tasks:
                if task.done():
                    await task

    async with asyncio.timeout(60):
        await go_on()
        yield writers
        await go_on()
        writers.stopped = True
        await asyncio.gather(*tasks)
        await writers.check()


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_the_server_is_restarted_during_appends(durable_server: PostgresServer, how: str) -> None:
    store = PostgresStore(durable_server.dsn, schema=new_schema())
    async with writing(store) as writers:
        for _ in range(3):
            await asyncio.to_thread(durable_server.stop, how)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(durable_server.start)
            await asyncio.sleep(0.2)
    assert writers.faults == []
    await store.close()


async def test_the_server_is_restarted_between_appends(durable_server: PostgresServer) -> None:
    store = PostgresStore(durable_server.dsn, schema=new_schema())
    known = await store.append("s", 0, [b"a"])
    assert await store.lease("s", None, b"mine", known) == b"mine"
    await asyncio.to_thread(durable_server.stop)
    await asyncio.to_thread(durable_server.start)
    assert await store.append("s", 1, [b"b"], None, known) == known
    assert [*await store.load("s")] == [b"a", b"b"]
    with pytest.raises(StoreConflict):
        await store.append("s", 1, [b"c"])
    await store.close()


async def test_a_server_that_stays_away_is_an_error_within_the_time_that_was_given(
    durable_server: PostgresServer,
) -> None:
    store = PostgresStore(durable_server.dsn, schema=new_schema(), patience=1.0)
    await store.append("s", 0, [b"a"])
    await asyncio.to_thread(durable_server.stop)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(StoreError, match="see whether the server runs and can be reached"):
            await store.append("s", 1, [b"b"])
    await asyncio.to_thread(durable_server.start)
    await store.append("s", 1, [b"b"])
    await store.close()


async def test_connections_are_ended_by_the_server_during_groups(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.dsn, schema=(schema := new_schema()))
    draw, ended = random.Random(7), 0
    async with writing(store) as writers:
        while ended < 8:
            # Only those that are at work for this test: others ask the same server.
            table = f"'{schema}.sessions'::regclass and pid <> pg_backend_pid()"
            sql = f"select count(pg_terminate_backend(pid)) from pg_locks where relation = {table}"  # noqa: S608  # ours
            ended += (await postgres_server.run(sql))[0][0]
            await asyncio.sleep(draw.random() / 20)
    assert writers.faults == []
    await store.close()


async def test_answers_that_are_lost_on_the_way_are_of_appends_that_are_done_once(
    postgres_server: PostgresServer,
) -> None:
    draw = random.Random(7)
    async with Proxy(postgres_server.socket) as proxy:
        store = PostgresStore(postgres_server.dsn_at(proxy.port), schema=new_schema())
        async with writing(store) as writers:
            for _ in range(40):
                await asyncio.sleep(draw.random() / 20)
                proxy.drop()
        assert writers.faults == []
        await store.close()


@pytest.mark.parametrize("patience", [30.0, 1.0])
async def test_the_network_is_cut_for_as_long_as_some_wait(
    postgres_server: PostgresServer, patience: float
) -> None:
    async with Proxy(postgres_server.socket) as proxy:
        dsn = postgres_server.dsn_at(proxy.port)
        store = PostgresStore(dsn, schema=new_schema(), patience=patience)
        async with writing(store) as writers:
            proxy.up.clear()
            if patience > 5:
                await asyncio.sleep(5)
            while patience < 5 and not writers.faults:  # noqa: ASYNC110  # the writers have no event
                await asyncio.sleep(0.01)
            proxy.up.set()
        # Those who wait for less are told that it may have been done, and read what was.
        assert (writers.faults == []) is (patience > 5)
        assert all("may have been done" in fault for fault in writers.faults)
        await store.close()


async def test_what_is_cancelled_while_the_network_is_cut_is_in_no_doubt(
    postgres_server: PostgresServer,
) -> None:
    async with Proxy(postgres_server.socket) as proxy:
        store = PostgresStore(postgres_server.dsn_at(proxy.port), schema=new_schema())
        await store.append("s", 0, [b"a"])
        proxy.up.clear()
        appending = asyncio.create_task(store.append("s", 1, [b"b"]))
        await asyncio.sleep(0.1)
        appending.cancel()
        await asyncio.sleep(0.1)
        assert not appending.done()
        proxy.up.set()
        with pytest.raises(asyncio.CancelledError):
            await appending
        assert [*await store.load("s")] == [b"a", b"b"]
        await store.close()


OPENS = """
from turnwheel.performers import PostgresStore

def opened(place):
    dsn, _, schema = place.partition(" ")
    return PostgresStore(dsn, schema=schema)
"""


async def test_it_survives_kill_9(
    durable_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "survivors_in_a_database.py").write_text(OPENS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    place = f"{durable_server.dsn} {new_schema()}"
    assert await survives_kill("survivors_in_a_database:opened", place, kills=5, seed=1) > 15


LIVES = """
import asyncio, sys
from turnwheel.performers import PostgresStore

async def main():
    dsn, schema = sys.argv[1:]
    store = PostgresStore(dsn, schema=schema)
    while True:
        await store.info("s")
        print(store.presence, flush=True)
        await asyncio.sleep(0.1)

asyncio.run(main())
"""


async def test_a_process_is_absent_once_it_is_dead_and_not_where_it_stands_still(
    durable_server: PostgresServer,
) -> None:
    schema, marks = new_schema(), list[str]()
    store = PostgresStore(durable_server.dsn, schema=schema, patience=1.0)
    given = (sys.executable, "-c", LIVES, durable_server.dsn, schema)
    others = [await asyncio.create_subprocess_exec(*given, stdout=asyncio.subprocess.PIPE) for _ in range(3)]
    for other in others:
        assert other.stdout is not None
        marks.append((await other.stdout.readline()).decode().strip())
    dead, still, _ = marks
    try:
        # Nothing is said of others while its own connections are new.
        assert await store.absent([*marks, "nobody"]) == ()
        async with asyncio.timeout(PATIENCE):
            while not await store.absent(["nobody"]):  # noqa: ASYNC110  # no event tells it
                await asyncio.sleep(0.05)
        assert await store.absent([*marks, "nobody"]) == {"nobody"}
        others[0].kill()
        others[1].send_signal(signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE):
            while not await store.absent(marks):  # noqa: ASYNC110  # no event tells it
                await asyncio.sleep(0.01)
        assert await store.absent(marks) == {dead}
        # All lose their connections, and whoever lives connects again.
        await asyncio.to_thread(durable_server.crash)
        assert await store.absent([dead]) == ()
        async with asyncio.timeout(PATIENCE):
            while await store.absent(marks) != {dead, still}:  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.01)
    finally:
        for other in others:
            with suppress(ProcessLookupError):
                other.kill()
            await other.wait()
        await store.close()


RACER = """
import asyncio, sys
from turnwheel.effects.errors import StoreConflict
from turnwheel.performers import PostgresStore

async def race(dsn, schema, me, rounds):
    store = PostgresStore(dsn, schema=schema)
    won = 0
    for length in range(int(rounds)):
        try:
            await store.append("s", length, [f"{me} {length}".encode()])
        except StoreConflict as conflict:
            assert conflict.actual > length, conflict
        else:
            print(me, length, flush=True)
    await store.close()

asyncio.run(race(*sys.argv[1:]))
"""


async def test_of_two_processes_that_race_one_wins_each_time(
    postgres_server: PostgresServer,
) -> None:
    store = PostgresStore(postgres_server.dsn, schema=(schema := new_schema()))
    await store.list()
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RACER, postgres_server.dsn, schema, me, "300"),
            stdout=asyncio.subprocess.PIPE,
        )
        for me in ("one", "two")
    ]
    said = [line for racer in racers for line in (await racer.communicate())[0].splitlines()]
    assert [racer.returncode for racer in racers] == [0, 0]
    kept = [*await store.load("s")]
    assert len(kept) == 300
    assert sorted(said) == sorted(kept)
    await store.close()
