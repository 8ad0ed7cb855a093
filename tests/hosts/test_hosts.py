"""The same sessions on every host: all end, inputs come in once and in order, and the journals are equal."""

from __future__ import annotations

import asyncio
import difflib
import pprint
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from provers.crash.points import Notebook

from hosts.desk import NOTES
from hosts.host import Host
from hosts.judge import faults, story
from hosts.kills import Harm, harm_often
from hosts.known import HOSTS
from hosts.processes import InProcess
from hosts.scripts import SCRIPTS, Client, play

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

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
    notes = Notebook.read(folder / NOTES)
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
    figures = await harm_often(host, tmp_path, harm, times=2, sessions=40, seed=1)
    assert figures.wrong == []
    assert figures.seconds
    # The bar is that of `make hosts`: tests run beside others, and their machine may be busy.
    print(figures)
