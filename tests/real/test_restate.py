"""What Restate's own workers and store promise beyond the suite of all hosts, on a real server."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path

import pytest
from hosts.desk import NOTES, make_agent
from hosts.host import Steer
from hosts.judge import by_session, faults
from hosts.pools import RestatePool
from hosts.scripts import Client
from provers.crash.points import Notebook
from support.ports import free_ports
from support.restate_cluster import answers, server_program

from turnwheel.apps import RestateStore
from turnwheel.effects.errors import ConfigError, StoreError, UnknownRequest
from turnwheel.effects.messages import Role

pytestmark = [pytest.mark.real, pytest.mark.timeout(120, func_only=True)]


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncGenerator[RestatePool]:
    """Two workers of the suite, behind a server of their own."""
    made = RestatePool(server_program())
    await made.start(tmp_path, 2, 0.02)
    yield made
    await made.stop()


@pytest.fixture
async def store(pool: RestatePool) -> AsyncGenerator[RestateStore]:
    """The way in of another process."""
    opened = RestateStore("assistant", pool.cluster.ingress, pool.cluster.admin)
    yield opened
    await opened.close()


async def one_fault(client: Client) -> list[str]:
    """What is wrong with the session of *client*."""
    journals = await client.host.journals(client.session)
    notes = by_session(Notebook.read(client.folder / NOTES))
    return [*faults(client.session, journals, notes, client.accepted)]


async def test_a_session_is_copied_renamed_and_deleted(store: RestateStore, tmp_path: Path) -> None:
    person = make_agent(tmp_path, 0.02)
    async with person.session("told", store) as session:
        await session.send("hello", id="first")
        await store.settled("told")
        await session.load()
        with pytest.raises(ConfigError, match="send"):
            await session.run("hello")
        with pytest.raises(UnknownRequest):
            await session.approve("unknown")
        (first,) = await session.runs()
        copied = await session.fork("copied")
        await session.branch(first.run)
        await session.retitle("A story")
        assert session.title == "A story"
    # The copy goes on by itself, in an object of its own.
    async with copied:
        await copied.send("hello", id="second")
        await store.settled("copied")
        await copied.load()
        assert len(await copied.runs()) == 2
    assert await store.delete("told")
    assert await store.info("told") is None
    closed = RestateStore("assistant", store.ingress, store.admin)
    await closed.close()
    for ask in (closed.list, partial(closed.load, "copied"), partial(closed.settled, "copied")):
        with pytest.raises(StoreError):
            await ask()


async def test_a_worker_that_is_told_to_end_leaves_nothing_in_doubt(
    pool: RestatePool, tmp_path: Path
) -> None:
    client = Client(pool, "left", tmp_path)
    await client.prompt("waits 1: go")
    await client.begun("wait")
    os.kill(Notebook.read(tmp_path / NOTES)[-1]["process"], signal.SIGTERM)
    # The drain waits for the tool.
    await asyncio.sleep(0.5)
    client.open_gate()
    await client.over()
    assert await one_fault(client) == []
    begun = [note["tool"] for note in Notebook.read(tmp_path / NOTES) if note["kind"] == "begun"]
    assert begun == ["wait", "burn", "peek"]
    (journal,) = (await pool.journals("left")).values()
    assert b"tool_lost" not in b"".join(journal)


async def test_inputs_of_many_processes_come_through(
    pool: RestatePool, store: RestateStore, tmp_path: Path
) -> None:
    client = Client(pool, "busy", tmp_path)
    await client.prompt("digs 1: go")
    await client.begun("dig")
    await asyncio.gather(*[client.put(Steer(f"steer {n}", f"steer: {n}")) for n in range(6)])
    await client.over()
    assert await one_fault(client) == []
    async with make_agent(tmp_path, 0.02).session("busy", store) as session:
        said = [message.text for message in session.history if message.role is Role.USER]
    assert sorted(said[1:]) == [f"steer: {number}" for number in range(6)]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "restate.md"

SCRIPTED = """Agent(performers={CallModel: ScriptedModel(says("Hello to you"), partial=True)})"""
IMPORTS = """from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel, says
"""


async def test_the_programs_of_the_page_run(pool: RestatePool, tmp_path: Path) -> None:
    """All but the model, which a script plays, and the ports."""
    cluster = pool.cluster
    worker, client = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert worker.count('Agent(model="openai:gpt-5")') == 1
    worker = IMPORTS + worker.replace('Agent(model="openai:gpt-5")', SCRIPTED)
    (port,) = free_ports(1)
    worker = worker.replace('"assistant"', '"of_the_page"').replace("9080", str(port))
    client = client.replace('"assistant"', '"of_the_page"')
    client = client.replace("http://127.0.0.1:8080", cluster.ingress).replace(
        "http://127.0.0.1:9070", cluster.admin
    )
    (tmp_path / "worker.py").write_text(worker, "utf-8")
    (tmp_path / "client.py").write_text(client, "utf-8")
    serving = await asyncio.create_subprocess_exec(sys.executable, str(tmp_path / "worker.py"))
    try:
        async with asyncio.timeout(30):
            ready = f"http://127.0.0.1:{port}/health"
            while not await asyncio.to_thread(answers, ready):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.1)
        await asyncio.to_thread(cluster.register, port)
        asking = await asyncio.create_subprocess_exec(
            sys.executable, str(tmp_path / "client.py"), stdout=subprocess.PIPE
        )
        said, _ = await asking.communicate()
        assert said == b"Hello to you\n"
    finally:
        serving.terminate()
        assert await serving.wait() == 0
