"""The store in a database: its promises, its layout, who else uses it, and what it says where it fails."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from support.patience import PATIENCE
from support.postgres import ON_ONE_WORKER, PostgresServer, new_schema
from support.session_stage import told, until

from turnwheel import Agent, tool
from turnwheel.effects import CallModel, Policy
from turnwheel.effects.errors import ConfigError, NewerVersion, SessionGone, StoreConflict, StoreError
from turnwheel.engine.session.poller import POLLERS
from turnwheel.performers import PostgresStore, base
from turnwheel.performers.base import SystemClock
from turnwheel.performers.steady import SteadyTime
from turnwheel.performers.stores.postgres.listener import MOST_TOLD
from turnwheel.performers.stores.postgres.store import (
    _StoreThread,  # pyright: ignore[reportPrivateUsage]  # its calls are held back here
    at_work,
)
from turnwheel.testing import ScriptedModel
from turnwheel.testing.scripted import Reply, calls, says
from turnwheel.testing.store_contract import Check, checks

pytestmark = ON_ONE_WORKER

Open = Callable[[], PostgresStore]


@tool(approval="always")
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.mark.parametrize("check", checks(), ids=str)
async def test_it_keeps_the_promises_of_a_store(check: Check, open_postgres: Open) -> None:
    await check(open_postgres)


async def test_a_process_whose_wall_clock_is_an_hour_ahead_does_not_deny_at_once(
    open_postgres: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    def paying(*replies: Reply) -> Agent:
        return Agent(
            performers={CallModel: ScriptedModel(*replies)},
            tools=[pay],
            store=open_postgres(),
            policy=Policy(answer_within=60.0),
        )

    async with paying(calls(("pay", {}))) as agent, agent.session("s") as session:
        (question,) = (await session.run("go")).waiting
    ahead = time.time() + 3600.0
    monkeypatch.setattr(time, "time", lambda: ahead)
    monkeypatch.setattr(base, "wall_time", SteadyTime(ahead))
    assert SystemClock().now() >= ahead
    async with paying(says("done")) as agent, agent.session("s") as session:
        assert (await session.resume()).waiting
        await session.approve(question.id)
        assert (await session.resume()).text == "done"
        assert told(session) == ["paid"]


def test_a_store_outlives_an_event_loop(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.dsn, schema=new_schema())
    asyncio.run(store.append("s", 0, [b"a"]))
    asyncio.run(store.append("s", 1, [b"b"]))
    assert [*asyncio.run(store.load("s"))] == [b"a", b"b"]
    asyncio.run(store.close())


def test_one_that_is_forgotten_ends_its_thread(postgres_server: PostgresServer) -> None:
    store = PostgresStore(postgres_server.dsn, schema=new_schema())
    before = {*at_work}
    asyncio.run(store.append("s", 0, [b"a"]))
    (thread,) = at_work - before
    del store
    gc.collect()
    thread.join()
    assert thread not in at_work


CALLS: dict[str, tuple[str, Callable[[PostgresStore], Any]]] = {
    "append": ("append", lambda store: store.append("s", 0, [b"a"])),
    "load": ("call", lambda store: store.load("s")),
}


@pytest.mark.parametrize(("name", "ask"), CALLS.values(), ids=CALLS)
async def test_a_call_that_another_thread_closes_behind_is_done(
    open_postgres: Open, monkeypatch: pytest.MonkeyPatch, name: str, ask: Callable[[PostgresStore], Any]
) -> None:
    store = open_postgres()
    await store.load("s")
    passed, closed = getattr(_StoreThread, name), threading.Event()

    def close() -> None:
        asyncio.run(store.close())
        closed.set()

    def late(*given: Any) -> Any:
        # The call has found its store open.
        threading.Thread(target=close).start()
        closed.wait(0.3)
        return passed(*given)

    monkeypatch.setattr(_StoreThread, name, late)
    await asyncio.wait_for(ask(store), PATIENCE)
    monkeypatch.undo()
    assert closed.wait(PATIENCE)
    with pytest.raises(StoreError, match="is closed"):
        await ask(store)


# What waits at the same time shares a transaction


async def test_appends_that_wait_share_a_transaction_and_one_that_is_refused_spoils_no_other(
    open_postgres: Open,
) -> None:
    store = open_postgres()
    await store.append("taken", 0, [b"x"])
    gone = await store.append("gone", 0, [b"x"])
    await store.delete("gone")
    stamp = max(info.stamp for info in await store.list())
    several = {f"s{number}": store.append(f"s{number}", 0, [b"1", b"2"]) for number in range(50)}
    refused = [
        store.append("taken", 0, [b"y"]),
        store.append("gone", 1, [b"y"], None, gone),
        store.append("n" * 100 + os.urandom(4_000).hex(), 0, [b"too long a name"]),
    ]
    outcomes = await asyncio.gather(*several.values(), *refused, return_exceptions=True)
    assert [type(one) for one in outcomes[:50]] == [str] * 50
    assert [type(one) for one in outcomes[50:]] == [StoreConflict, SessionGone, StoreError]
    assert "the name of a session may have 2,600 bytes" in str(outcomes[-1])
    assert {info.session for info in await store.list()} == {"taken", *several}
    assert all([[*await store.load(name)] == [b"1", b"2"] for name in several])
    assert len({info.stamp for info in await store.list() if info.stamp > stamp}) == 50


async def test_processes_that_append_to_the_same_sessions_wait_for_each_other_in_one_order(
    open_postgres: Open,
) -> None:
    names = [f"s{number}" for number in range(30)]
    stores = [open_postgres() for _ in range(3)]

    async def work(store: PostgresStore, order: list[str]) -> int:
        won = 0
        for length in range(4):
            tries = [store.append(name, length, [b"x"]) for name in order]
            outcomes = await asyncio.gather(*tries, return_exceptions=True)
            assert {type(one) for one in outcomes} <= {str, StoreConflict}
            won += sum(isinstance(one, str) for one in outcomes)
            assert all([len(await store.load(name)) > length for name in order])
        return won

    orders = [names, names[::-1], names[15:] + names[:15]]
    won = await asyncio.gather(*[work(*each) for each in zip(stores, orders, strict=True)])
    assert sum(won) == 120
    assert {info.length for info in await stores[0].list()} == {4}


# What other processes wrote


async def test_what_another_process_writes_is_called_out_at_once(open_postgres: Open) -> None:
    here, there = open_postgres(), open_postgres()
    called = asyncio.Queue[Callable[[str], bool]]()
    loop = asyncio.get_running_loop()
    stop = here.on_news(lambda concerns: loop.call_soon_threadsafe(called.put_nowait, concerns))
    # It takes a moment until it listens.
    for length in range(1_000):
        await there.append("other", length, [b"x"])
        with suppress(TimeoutError):
            concerns = await asyncio.wait_for(called.get(), 0.05)
            break
    else:
        pytest.fail("a thousand appends were not heard")
    assert concerns("other")
    assert not concerns("one")
    # A slow machine hears several of these appends, the last of them before this one.
    await there.append("last", 0, [b"x"])
    while not concerns("last"):
        concerns = await asyncio.wait_for(called.get(), PATIENCE)
    # Its own appends are no news, nor is a summary.
    await here.append("one", 0, [b"x"])
    await there.append("one", 1, [], b"about")
    await there.delete("one")
    concerns = await asyncio.wait_for(called.get(), PATIENCE)
    assert concerns("one")
    several = [there.append(f"s{number}", 0, [b"x"]) for number in range(MOST_TOLD + 1)]
    await asyncio.gather(*several)
    told = list[Callable[[str], bool]]()
    while not all(any(concerns(f"s{number}") for concerns in told) for number in range(MOST_TOLD + 1)):
        told.append(await asyncio.wait_for(called.get(), PATIENCE))
    stop()


async def test_a_session_that_waits_is_woken_by_another_process_and_looks_seldom(open_postgres: Open) -> None:
    model = ScriptedModel(calls(("pay", {})), says("done"))
    agent = Agent(store=open_postgres(), tools=[pay], performers={CallModel: model}, lease=600.0)
    session = agent.session("s")
    task = asyncio.create_task(session.run("pay", wait=True))
    await until(lambda: session.resting)
    [poller] = POLLERS[id(agent.store)]
    poller.pause = 600.0
    # The look that was on its way is over.
    timer = poller._timer  # pyright: ignore[reportPrivateUsage]  # nothing else says when it looks
    await until(lambda: poller._timer is not timer)  # pyright: ignore[reportPrivateUsage]  # as above
    other = Agent(store=open_postgres(), tools=[pay]).session("s")
    await other.load()
    await other.approve(other.waiting[0].id)
    assert (await asyncio.wait_for(task, PATIENCE)).text == "done"


# The layout of a schema


async def test_another_programs_schema_is_refused(postgres_server: PostgresServer) -> None:
    schema = new_schema()
    await postgres_server.run(f"create schema {schema}; create table {schema}.sessions (theirs text)")
    store = PostgresStore(postgres_server.dsn, schema=schema)
    with pytest.raises(StoreError, match="has tables of another program; name another schema"):
        await store.list()
    await store.close()


async def test_a_schema_that_is_empty_is_taken(postgres_server: PostgresServer) -> None:
    schema = f'{new_schema()} "odd"'
    quoted = schema.replace('"', '""')
    await postgres_server.run(f'create schema "{quoted}"')
    store = PostgresStore(postgres_server.dsn, schema=schema)
    await store.append("s", 0, [b"a"])
    assert [*await store.load("s")] == [b"a"]
    await store.close()


async def test_a_newer_layout_is_refused(postgres_server: PostgresServer) -> None:
    schema = new_schema()
    store = PostgresStore(postgres_server.dsn, schema=schema)
    await store.append("s", 0, [b"a"])
    await store.close()
    await postgres_server.run(f"update {schema}.turnwheel_layout set version = 99")  # noqa: S608  # a name of ours
    later = PostgresStore(postgres_server.dsn, schema=schema)
    with pytest.raises(NewerVersion, match="has version 99"):
        await later.list()
    await later.close()


async def test_a_schema_that_was_dropped_is_no_new_beginning(postgres_server: PostgresServer) -> None:
    schema = new_schema()
    store = PostgresStore(postgres_server.dsn, schema=schema)
    await store.append("s", 0, [b"a"])
    await postgres_server.run(f"drop schema {schema} cascade")
    for _ in range(2):
        with pytest.raises(StoreError, match="another program changed the schema"):
            await store.append("s", 1, [b"b"])
    await store.close()


# What it says


SECRET = "pa:ss/wo@rd?#"  # noqa: S105  # of no server
"""With each character that has a meaning in an address."""


@pytest.mark.parametrize(
    ("dsn", "place"),
    [
        (f"postgresql://me:{SECRET}@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db"),
        ("postgresql://me:pa%3Ass@127.0.0.1:1/db?sslmode=disable", "postgresql://127.0.0.1:1/db"),
        ("postgresql:///db?host=/nowhere&password=s3cr3t&user=me", "postgresql:///nowhere/db"),
    ],
)
async def test_an_error_names_the_server_and_a_way_out_and_no_password(dsn: str, place: str) -> None:
    store = PostgresStore(dsn, patience=0.5)
    with pytest.raises(StoreError) as raised:
        await store.load("s")
    shown = "".join(traceback.format_exception(raised.value)) + repr(store)
    assert place in str(raised.value)
    assert place in repr(store)
    assert "; " in str(raised.value)
    assert "wo@rd" not in shown
    assert "pa:ss" not in shown
    assert "may have been done" not in shown
    assert "s3cr3t" not in shown
    await store.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dsn": "host=here password=secret"}, "a DSN must begin with postgresql://"),
        ({"schema": "pg_mine"}, "not beginning with pg_; got 'pg_mine'"),
        ({"schema": ""}, "a name of 1 to 63 bytes"),
        ({"connections": 0}, "must be above 0; got 0"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], says: str) -> None:
    make: Any = PostgresStore
    with pytest.raises(ConfigError, match=says) as raised:
        make(**{"dsn": "postgresql://here/db", **given})
    assert "secret" not in str(raised.value)


async def test_a_name_that_is_no_text_is_refused(open_postgres: Open) -> None:
    with pytest.raises(StoreError, match="use a session name without surrogates"):
        await open_postgres().append("\ud800", 0, [b"x"])


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(ConfigError, match=r"pip install 'turnwheel\[postgres\]'"):
        PostgresStore("postgresql://here/db")
