"""The same sessions on every host: all end, inputs come in once and in order, and the journals are equal."""

from __future__ import annotations

import asyncio
import difflib
import pprint
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from provers.crash.points import Notebook

from hosts.desk import NOTES
from hosts.host import Answer, Harm, Host
from hosts.judge import by_session, faults, story
from hosts.kills import Trial, harm_often
from hosts.known import HOSTS, LARGE
from hosts.newer import become_newer
from hosts.processes import InProcess
from hosts.scripts import SCRIPTS, Client, play
from turnwheel.engine.journal import entries

pytestmark = [pytest.mark.real, pytest.mark.timeout(300, func_only=True)]

Journals = Mapping[str, Sequence[bytes]]


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Each host in turn."""
    with HOSTS[request.param]() as made:
        yield made


async def played(host: Host, folder: Path) -> dict[str, Journals]:
    """The journals of all scripts, played on *host* at the same time, in which nothing is wrong."""
    folder.mkdir()
    await host.start(folder, 2, 0.02)
    try:
        clients = {name: Client(host, name, folder) for name in SCRIPTS}
        await asyncio.gather(*[play(client, SCRIPTS[name]) for name, client in clients.items()])
        found = {name: await host.journals(name) for name in SCRIPTS}
    finally:
        await host.stop()
    notes = by_session(Notebook.read(folder / NOTES))
    wrong = [each for name in SCRIPTS for each in faults(name, found[name], notes, clients[name].accepted)]
    assert wrong == []
    return found


async def test_every_host_tells_the_same_stories(host: Host, tmp_path: Path) -> None:
    alone, hosted = await played(InProcess(), tmp_path / "alone"), await played(host, tmp_path / "hosted")
    for name in SCRIPTS:
        due, told = [pprint.pformat(story(found[name])).splitlines() for found in (alone, hosted)]
        assert told == due, f"{name}:\n" + "\n".join(difflib.unified_diff(due, told, lineterm=""))


@pytest.mark.parametrize("harm", Harm)
async def test_every_session_ends_whatever_dies(
    host: Host, tmp_path: Path, harm: Harm, request: pytest.FixtureRequest
) -> None:
    if harm in {Harm.CRASH, Harm.CUT} and "sqlite" in request.node.name:
        pytest.skip("a file has no server")
    trial = Trial(harm=harm, times=2, sessions=40, pace=0.5, early=True)
    figures = await harm_often(host, tmp_path, trial)
    assert figures.wrong == []
    assert figures.seconds
    # The bar is that of `make hosts`: tests run beside others, and their machine may be busy.
    print(figures)


async def test_every_session_ends_where_nodes_of_restate_die(tmp_path: Path) -> None:
    """First the one that clients ask, and then another one; each stays away for a while."""
    with LARGE["three-nodes"]() as host:
        figures = await harm_often(host, tmp_path, Trial(harm=Harm.CRASH, times=2, sessions=40, pace=0.5))
    assert figures.wrong == []
    assert figures.seconds


# One job while all workers are old, one while some are, and one for when none is.
AGES = ("busy old: go", "pays mixed: go", "child new: go")


async def test_a_newer_version_follows_an_older_one(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker after the other is replaced while sessions are at work; the clients are newer by then."""
    ages = [asyncio.Event() for _ in AGES]

    async def works(client: Client) -> None:
        for job, age in zip(AGES, ages, strict=True):
            await age.wait()
            await client.prompt(job, job)
        await client.put(Answer(await client.question()))
        await client.over()

    await host.start(tmp_path, 2, 0.2, Harm.KILL)
    try:
        clients = [Client(host, f"s{number}", tmp_path, pause=5.0) for number in range(20)]
        async with asyncio.TaskGroup() as working:
            for client in clients:
                working.create_task(works(client))
            ages[0].set()
            await clients[0].begun("peek")
            become_newer(monkeypatch.setattr)
            for worker, age in enumerate(ages[1:]):
                await host.upgrade(worker)
                age.set()
                await asyncio.sleep(2.0)
        found = {client.session: await host.journals(client.session) for client in clients}
    finally:
        await host.stop()
    notes = by_session(Notebook.read(tmp_path / NOTES))
    assert [
        fault for one in clients for fault in faults(one.session, found[one.session], notes, one.accepted)
    ] == []
    versions = {
        msgspec.json.decode(entry)["v"] for each in found.values() for one in each.values() for entry in one
    }
    assert versions == {entries.VERSION, entries.VERSION + 1}
