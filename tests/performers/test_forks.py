"""What a process and its forked child may go on with; each test forks in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from support.patience import PATIENCE
from support.postgres import ON_ONE_WORKER, PostgresServer, new_schema

BEGINNING = """
import asyncio, os, sys, threading
from turnwheel import Agent, SQLiteStore, tool
from turnwheel.effects import CallModel
from turnwheel.performers import PostgresStore
from turnwheel.testing import ScriptedModel, calls, says

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def entries(store, session):
    return [bytes(entry) for entry in asyncio.run(store.load(session))]
"""


def printed(code: str, *arguments: str) -> str:
    """What a process prints that runs *code*; it fails where it hangs."""
    program = BEGINNING + dedent(code)
    words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_an_agent_that_ran_before_a_fork_runs_in_the_parent_and_the_child(tmp_path: Path) -> None:
    code = """
        @tool(side_effect="read_only")
        def look() -> str:
            "Look."
            return "seen"

        model = ScriptedModel(*[reply for _ in range(3) for reply in (calls(("look", {})), says("done"))])
        agent = Agent(performers={CallModel: model}, tools=[look], store=sys.argv[1])
        print(agent.run_sync("before").text, flush=True)
        child = os.fork()
        text = agent.run_sync("after").text
        if not child:
            print("child", text, flush=True)
            sys.exit()
        assert ended(child) == 0
        print("parent", text, len(asyncio.run(agent.store.list())))
    """
    lines = printed(code, str(tmp_path / "agent.db")).splitlines()
    assert lines == ["done", "child done", "parent done 3"]


def test_a_fork_while_other_threads_write_loses_nothing_and_holds_no_lock(tmp_path: Path) -> None:
    code = """
        store, stop = SQLiteStore(sys.argv[1]), threading.Event()
        began = threading.Event()
        lengths = []

        def write():
            async def appends():
                while not stop.is_set():
                    await store.append("parent", len(lengths), [b"p"])
                    lengths.append(1)
                    began.set()
            asyncio.run(appends())

        writer = threading.Thread(target=write)
        writer.start()
        began.wait()
        for number in range(5):
            if not (child := os.fork()):
                for length in range(10):
                    asyncio.run(store.append(f"child {number}", length, [b"c"]))
                sys.exit()
            assert ended(child) == 0
        stop.set()
        writer.join()
        assert len(entries(store, "parent")) == len(lengths)
        print([len(entries(store, f"child {number}")) for number in range(5)])
    """
    assert printed(code, str(tmp_path / "agent.db")) == "[10, 10, 10, 10, 10]\n"


def test_a_child_takes_over_no_open_file_of_the_parent(tmp_path: Path) -> None:
    code = """
        store = SQLiteStore(sys.argv[1])
        asyncio.run(store.append("s", 0, [b"a"]))
        child = os.fork()
        names = [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{name}")]
        assert store.path not in names
        assert entries(store, "s") == [b"a"]
        if not child:
            sys.exit()
        print(ended(child))
    """
    assert printed(code, str(tmp_path / "agent.db")) == "0\n"


def test_a_file_that_is_deleted_during_a_fork_is_no_new_beginning(tmp_path: Path) -> None:
    code = """
        store = SQLiteStore(sys.argv[1])
        asyncio.run(store.append("s", 0, [b"a"]))
        child = os.fork()
        if child:
            sys.exit(ended(child))
        os.unlink(sys.argv[1])
        try:
            asyncio.run(store.append("s", 0, [b"b"]))
        except Exception as error:
            print(error, flush=True)
    """
    path = str(tmp_path / "agent.db")
    problem = "is gone or empty, and was not before; put it back, or make a new store to begin anew"
    assert printed(code, path) == f"store {path!r} {problem}\n"


def test_a_closed_store_stays_closed_in_a_child(tmp_path: Path) -> None:
    code = """
        async def used():
            await store.append("s", 0, [b"a"])
            await store.close()

        store = SQLiteStore(sys.argv[1])
        asyncio.run(used())
        if child := os.fork():
            sys.exit(ended(child))
        try:
            entries(store, "s")
        except Exception as error:
            print(error, flush=True)
    """
    path = str(tmp_path / "agent.db")
    assert printed(code, path) == f"store {path!r} is closed; make a new one to go on\n"


def test_work_of_the_parent_takes_no_room_in_the_child() -> None:
    code = """
        from turnwheel.performers.models.throttle import Throttle
        from turnwheel.performers.worker_pool import WorkerPool

        async def result(function):
            work = pool.thread(function)
            return await work.ended

        pool, throttle = WorkerPool(1), Throttle(1)
        throttle.under_way = 1
        hold, held = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(result(lambda: (held.set(), hold.wait()))))
        thread.start()
        held.wait()
        if not (child := os.fork()):
            print(asyncio.run(result(lambda: "done")), throttle.under_way, flush=True)
            os._exit(0)
        hold.set()
        thread.join()
        print(ended(child), throttle.under_way)
    """
    assert printed(code) == "done 0\n0 1\n"


@ON_ONE_WORKER
def test_a_postgres_store_goes_on_in_the_parent_and_the_child(postgres_server: PostgresServer) -> None:
    code = """
        store = PostgresStore(sys.argv[1], schema=sys.argv[2])
        asyncio.run(store.append("s", 0, [b"a"]))
        if not (child := os.fork()):
            asyncio.run(store.append("s", 1, [b"child"]))
            asyncio.run(store.close())
            sys.exit()
        assert ended(child) == 0
        asyncio.run(store.append("s", 2, [b"parent"]))
        print(entries(store, "s"))
    """
    assert printed(code, postgres_server.dsn, new_schema()) == "[b'a', b'child', b'parent']\n"
