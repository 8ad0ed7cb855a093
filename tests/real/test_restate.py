"""Sessions on a real server of Restate, with two workers at one address, which are killed or stopped."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest
from support.restate_agents import agent, shape
from support.restate_cluster import Cluster, answers, free_ports, server_program

from turnwheel import Agent, MemoryStore, Session
from turnwheel.apps import RestateStore
from turnwheel.effects.errors import ConfigError, StoreError, UnknownRequest
from turnwheel.engine.inspect.replay import replayed
from turnwheel.performers.stores.base import SessionInfo

pytestmark = [pytest.mark.real, pytest.mark.timeout(120, func_only=True)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(server_program(), tmp_path_factory.mktemp("restate"))
    try:
        made.start_server()
        made.start_worker("a")
        made.start_worker("b")
        made.register(made.ports[3])
        yield made
    finally:
        made.stop()


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[RestateStore]:
    # What a test killed is there again for the next one.
    for name, process in cluster.processes.items():
        if process.poll() is not None:
            cluster.start_server() if name == "server" else cluster.start_worker(name)
    opened = RestateStore("assistant", cluster.ingress, cluster.admin)
    yield opened
    await opened.close()


@pytest.fixture
def person(cluster: Cluster, store: RestateStore) -> Agent:
    """The agent in a process that runs nothing."""
    return attrs.evolve(agent(str(cluster.ledger)), store=store)


def lines(cluster: Cluster, session: str) -> list[list[str]]:
    """What the tools of *session* did: what, session, key, pid."""
    text = cluster.ledger.read_text("utf-8") if cluster.ledger.exists() else ""
    return [line.split() for line in text.splitlines() if line.split()[1].startswith(session)]


async def done(cluster: Cluster, session: str, what: str) -> int:
    """The worker that has done *what* for *session*, once it has."""
    async with asyncio.timeout(30):
        while True:
            for event, _, _, pid in lines(cluster, session):
                if event == what:
                    return int(pid)
            await asyncio.sleep(0.02)


def lost(entries: object) -> int:
    return len(re.findall("tool_lost", repr(entries)))


STORY = [
    [["look", {"seconds": 0.3}]],
    [["run_agent", {"agent": "helper", "prompt": '[[["look", {"seconds": 0}]]]'}]],
    [["ask", {"seconds": 0}]],
]


def length(info: SessionInfo) -> int:
    return info.length


async def story(cluster: Cluster, session: Session, settle: Callable[[], Awaitable[object]]) -> None:
    """A prompt, a steer while a tool runs, a question, its answer, another prompt and an interrupt."""

    async def settled() -> None:
        await settle()
        await session.load()

    await session.send(json.dumps(STORY), id="first")
    going = asyncio.ensure_future(settled())
    await done(cluster, session.id, "began-look")
    await session.load()
    await session.steer("steer: be quick", id="steer")
    await going
    (question,) = session.waiting
    await session.approve(question.id, by="ann")
    await settled()
    assert session.result().text == "done steer: be quick"
    await session.send(json.dumps([[["pay", {"seconds": 30}]]]), id="second")
    going = asyncio.ensure_future(settled())
    await done(cluster, session.id, "began-pay")
    await session.load()
    await session.interrupt()
    await going
    assert session.result().reason == "interrupted"


async def test_a_story_has_the_journal_that_it_has_elsewhere(cluster: Cluster, person: Agent) -> None:
    plain, store = MemoryStore(), person.store
    assert isinstance(store, RestateStore)
    async with (
        person.session("elsewhere", plain) as session,
        person.session(session.id, plain) as worker,
    ):
        await story(cluster, session, worker.resume)
    async with person.session("told", store) as session:
        await story(cluster, session, lambda: store.settled("told"))
        with pytest.raises(ConfigError, match="send"):
            await session.run("hello")
        with pytest.raises(UnknownRequest):
            await session.approve("unknown")
    told, elsewhere = await store.list(prefix="told"), await plain.list(prefix="elsewhere")
    # The child's name begins with its parent's.
    assert len(told) == len(elsewhere) == 2
    for one, other in zip(sorted(told, key=length), sorted(elsewhere, key=length), strict=True):
        entries = await store.load(one.session)
        assert len(entries) == one.length
        assert shape(entries) == shape(await plain.load(other.session))
        # It folds, step by step, to the labels that were written.
        assert len([*replayed(entries, one.session)]) == len(entries)
    async with person.session("told", store) as session:
        first, *_ = await session.runs()
        copied = await session.fork("copied")
        await session.branch(first.run)
        await session.retitle("A story")
        assert session.title == "A story"
        # The copy goes on by itself, in an object of its own.
        await copied.send(json.dumps([]), id="third")
        await store.settled("copied")
        await copied.load()
        assert copied.result().text.startswith("done")
        assert len(await copied.runs()) == 3
        await copied.close()
    closed = RestateStore("assistant", store.ingress, store.admin)
    await closed.close()
    for ask in (closed.list, partial(closed.load, "told"), partial(closed.settled, "told")):
        with pytest.raises(StoreError):
            await ask()
    assert await store.delete("told")
    assert await store.info("told") is None


PAYS = json.dumps([[["look", {"seconds": 0.4}], ["pay", {"seconds": 0.4}]], [["pay", {"seconds": 0.2}]]])
MANY = 20


async def driven(store: RestateStore, person: Agent, name: str) -> bytes:
    """The journal of the session *name*, which plays `PAYS` to its end."""
    async with person.session(name, store) as session:
        # The server may be away for a while. The id of the prompt makes it one, however often it is sent.
        async with asyncio.timeout(60):
            while True:
                try:
                    await session.send(PAYS, id="prompt")
                    await store.settled(name)
                    await session.load()
                    break
                except StoreError:
                    await asyncio.sleep(0.2)
        assert session.result().text == "done"
        return b"".join(await store.load(name))


@pytest.mark.parametrize("killed", [["a"], ["server"], ["a", "b", "server"]], ids="+".join)
async def test_after_a_kill_every_session_ends(
    cluster: Cluster, store: RestateStore, person: Agent, killed: list[str]
) -> None:
    first = f"killed-{'-'.join(killed)}"

    async def kill() -> None:
        await done(cluster, first, "began-pay")
        await asyncio.to_thread(cluster.kill, *killed)
        if killed != ["a"]:
            for name in killed:
                await asyncio.to_thread(cluster.start_server if name == "server" else lambda: None)
                if name != "server":
                    await asyncio.to_thread(cluster.start_worker, name)

    names = [f"{first}-{number:02}" for number in range(MANY)]
    *journals, _ = await asyncio.gather(*[driven(store, person, name) for name in names], kill())
    for name, journal in zip(names, journals, strict=True):
        assert journal is not None
        ended = [line for line in lines(cluster, name) if line[0] == "ended-pay"]
        # What ended twice was begun once more because a person or a model was told that it may have run.
        assert len(ended) <= 2 + journal.count(b"tool_lost"), name
        assert len({key for _, _, key, _ in ended}) == len(ended)


async def test_a_worker_that_hung_does_nothing_more(
    cluster: Cluster, store: RestateStore, person: Agent
) -> None:
    plan = [[["pay", {"seconds": 1.0}]], [["pay", {"seconds": 0}]]]
    async with person.session("hung", store) as session:
        await session.send(json.dumps(plan), id="prompt")
        hung = cluster.name_of(await done(cluster, "hung", "began-pay"))
        cluster.processes[hung].send_signal(signal.SIGSTOP)
        try:
            await store.settled("hung")
            await session.load()
            assert session.result().text == "done"
            length = len(await store.load("hung"))
        finally:
            cluster.processes[hung].send_signal(signal.SIGCONT)
        # Its own tool ends, and it is late: nothing follows from that.
        await asyncio.sleep(2)
        assert len(await store.load("hung")) == length
        began = [pid for what, _, _, pid in lines(cluster, "hung") if what == "began-pay"]
        assert Counter(began)[str(cluster.processes[hung].pid)] == 1


async def test_a_worker_that_is_told_to_end_leaves_nothing_in_doubt(
    cluster: Cluster, store: RestateStore, person: Agent
) -> None:
    plan = [[["pay", {"seconds": 1.0}]], [["pay", {"seconds": 0}]]]
    async with person.session("left", store) as session:
        await session.send(json.dumps(plan), id="prompt")
        left = cluster.name_of(await done(cluster, "left", "began-pay"))
        await asyncio.to_thread(cluster.kill, left, how=signal.SIGTERM)
        await store.settled("left")
        await session.load()
        assert session.result().text == "done"
    ended = [line for line in lines(cluster, "left") if line[0] == "ended-pay"]
    assert len(ended) == 2
    assert b"tool_lost" not in b"".join(await store.load("left"))


async def test_inputs_of_many_processes_come_through(
    cluster: Cluster, store: RestateStore, person: Agent
) -> None:
    async with person.session("busy", store) as session:
        # For longer than Restate waits without a sign of life.
        await session.send(json.dumps([[["look", {"seconds": 3.0}]]]), id="prompt")
        await done(cluster, "busy", "began-look")

        async def steer(number: int) -> None:
            async with person.session("busy", store) as one:
                await one.steer(f"steer-{number}", id=f"steer-{number}")

        await asyncio.gather(*[steer(number) for number in range(6)])
        await store.settled("busy")
        await session.load()
        said = session.result().text.split()
    assert len(lines(cluster, "busy")) == 2
    assert sorted(said[1:]) == [f"steer-{number}" for number in range(6)]


PAGE = Path(__file__).resolve().parents[2] / "docs" / "restate.md"

SCRIPTED = """Agent(performers={CallModel: ScriptedModel(says("Hello to you"), partial=True)})"""
IMPORTS = """from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel, says
"""


@pytest.mark.usefixtures("store")
async def test_the_programs_of_the_page_run(cluster: Cluster, tmp_path: Path) -> None:
    """All but the model, which a script plays, and the ports."""
    worker, client = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert worker.count('Agent(model="openai:gpt-5")') == 1
    worker = IMPORTS + worker.replace('Agent(model="openai:gpt-5")', SCRIPTED)
    (port,) = free_ports(1)
    worker = worker.replace('"assistant"', '"of_the_page"').replace("9080", str(port))
    client = client.replace('"assistant"', '"of_the_page"')
    client = client.replace("8080", str(cluster.ports[0])).replace("9070", str(cluster.ports[1]))
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
