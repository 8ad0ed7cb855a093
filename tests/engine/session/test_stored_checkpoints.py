"""Checkpoints of a session: a reader begins there, and one that is of no use changes nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from provers.tasks import turns
from structlog.testing import capture_logs
from support.plain_store import PlainStore
from support.session_stage import House, Watch, said, until

from turnwheel import MemoryStore
from turnwheel.effects.errors import StoreError
from turnwheel.effects.notices import Notice, TextDelta, ToolStarted
from turnwheel.engine.journal import stored_checkpoints
from turnwheel.engine.journal.checkpoints import restored
from turnwheel.engine.journal.entries import VERSION
from turnwheel.engine.journal.fold import SessionState, fold
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.journal.stored_checkpoints import Checkpoints
from turnwheel.engine.session import session_log
from turnwheel.engine.session.subscription import Position
from turnwheel.engine.session.watching import JournalReader
from turnwheel.testing.scripted import Reply, calls, says
from turnwheel.testing.stores import StoreOver

pytestmark = pytest.mark.usefixtures("quiet", "often")

EVERY = 8
"""Entries between two checkpoints here."""


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_checkpoints, "EVERY", EVERY)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each fold had since."""
    counts: list[int] = []

    async def counted(entries: Sequence[bytes], *rest: Any) -> SessionState:
        counts.append(len(entries))
        return fold(entries, *rest)

    monkeypatch.setattr(stored_checkpoints, "fold_in_slices", counted)
    monkeypatch.setattr(session_log, "fold_in_slices", counted)
    return counts


def rounds(number: int) -> list[Reply]:
    """Answers with so many rounds."""
    return [*[calls(("look", {"at": f"{place}"})) for place in range(number)], says("seen")]


async def bodies(house: House, session: str = "s") -> list[bytes]:
    kept: Any = house.store
    return [*await kept.checkpoints(session)]


async def whole(house: House) -> SessionState:
    state = fold(await house.store.load("s"), "s")
    state.drop_ends()
    return state


async def test_another_object_begins_at_the_latest_checkpoint(house: House, folded: list[int]) -> None:
    """In the middle of a run and between two; what is read and gone on with is as if all had been read."""
    lengths: list[int] = []
    for number in range(6):
        session = house.process(*rounds(number % 3 + 1))
        folded.clear()
        await session.load()
        if number > 1:
            assert 0 <= sum(folded) < lengths[-1] - 2
            assert sum(folded) < 2 * EVERY + 3
        await session.run(f"go {number}")
        await session.close()
        lengths.append(len(await house.store.load("s")))
    assert said(await house.process().load()) == [f"go {number}" for number in range(6)]
    assert house.process().machine is None
    assert (await house.process().load()).machine == (await whole(house)).machine
    assert len(await bodies(house)) > 2


async def test_a_journal_goes_on_equally_with_checkpoints_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each round is one process's; their journals do not differ in a byte."""
    journals: list[list[bytes]] = []
    for every in (1, 1_000):
        monkeypatch.setattr(stored_checkpoints, "EVERY", every)
        house = House(MemoryStore())
        for number in range(4):
            for text in (f"go {number}", f"again {number}"):
                async with house.process(calls(("look", {}), ("peek", {})), says("seen")) as session:
                    await session.run(text)
                    await house.finish(session)
        journals.append([*await house.store.load("s")])
        assert bool(await bodies(house)) is (every == 1)
    assert journals[0] == journals[1]


# What does not go with the journal


def flipped(kept: list[bytes]) -> list[bytes]:
    middle = len(kept[-1]) // 2
    return [*kept[:-1], kept[-1][:middle] + bytes([kept[-1][middle] ^ 1]) + kept[-1][middle + 1 :]]


OTHERS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "damaged": flipped,
    "cut off": lambda kept: [*kept[:-1], kept[-1][:-1]],
    "empty": lambda kept: [*kept[:-1], b""],
    "no checkpoint": lambda kept: [*kept[:-1], b"x" * 100],
    "without the one before": lambda kept: kept[:-2] + kept[-1:],
    "of another journal": lambda kept: kept,
    "ahead of the journal": lambda kept: kept,
    "of another version": lambda kept: kept,
}


@pytest.mark.parametrize("how", OTHERS)
async def test_one_that_does_not_go_with_the_journal_is_logged_and_passed_over(
    house: House, folded: list[int], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the journal is read then; the next one begins anew, and is used again."""
    # One that is due while another is being written is passed over, so each is given its time.
    for number in range(4):
        async with house.process(*rounds(3)) as session:
            await session.run(f"go {number}")
    kept: Any = house.store
    entries, there = [*await kept.load("s")], OTHERS[how](await bodies(house))
    assert len(there) > 2
    if how == "of another journal":
        await kept.delete("s")
        async with house.process(*rounds(13)) as session:
            await session.run("other")
    elif how == "ahead of the journal":
        await kept.delete("s")
        await kept.append("s", 0, entries[:9])
    for place, body in enumerate(there):
        await kept.keep_checkpoint("s", 1_000 + place, body, 1_000)
    if how == "of another version":
        monkeypatch.setattr("turnwheel.engine.journal.checkpoints.VERSION", VERSION + 1)
    folded.clear()
    length = len(await kept.load("s"))
    with capture_logs() as logs:
        session = await house.process(*rounds(8)).load()
    assert [(one["log_level"], one["event"]) for one in logs] == [("warning", "a checkpoint was passed over")]
    assert folded == [length]
    assert session.machine == (await whole(house)).machine
    await house.finish(session)
    await session.run("more")
    await session.close()
    folded.clear()
    assert (await house.process().load()).machine == (await whole(house)).machine
    assert sum(folded) < length


async def test_a_session_that_went_back_has_the_history_of_its_branch(
    house: House, folded: list[int]
) -> None:
    for number in range(4):
        async with house.process(*rounds(2)) as session:
            await session.run(f"go {number}")
    async with house.process() as session:
        first, *_ = await session.runs()
        await session.branch(first.run)
    folded.clear()
    for number in range(4):
        async with house.process(*rounds(2)) as session:
            # The branch itself has one.
            assert number or sum(folded) < EVERY
            assert session.machine == (await whole(house)).machine
            await session.run(f"other {number}")
    session = await house.process().load()
    assert said(session) == ["go 0", *[f"other {number}" for number in range(4)]]


async def test_a_branch_behind_a_checkpoint_has_all_of_the_journal_read(
    house: House, folded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint has no earlier ends, which is no fault of it."""
    for number in range(4):
        async with house.process(*rounds(2)) as session:
            await session.run(f"go {number}")
    monkeypatch.setattr(stored_checkpoints, "EVERY", 1_000)
    async with house.process() as session:
        first, *_ = await session.runs()
        await session.branch(first.run)
    folded.clear()
    with capture_logs() as logs:
        assert said(await house.process().load()) == ["go 0"]
    assert folded == [len(await house.store.load("s"))]
    assert logs == []


async def short_runs(house: House, number: int) -> None:
    """
    Have *number* runs of two rounds, each by a process of its own.

    A process ends behind its checkpoint, so also a slow store keeps one for each run.
    """
    for _ in range(number):
        async with house.process(*rounds(2)) as session:
            await session.run("go")


async def test_a_fork_begins_at_a_checkpoint_and_has_it_too(house: House, folded: list[int]) -> None:
    await short_runs(house, 6)
    async with house.process() as session:
        length = len(await house.store.load("s"))
        for at in (length, length // 2, 5):
            folded.clear()
            fork = await session.fork(f"f{at}", at=at)
            # Once for the copy, and once for its object.
            assert sum(folded) < 4 * EVERY or at == 5
            there = fold(await house.store.load(fork.id), fork.id).machine
            assert fork.machine == there
            assert bool(await bodies(house, fork.id)) is (at > EVERY)


async def told(house: House, since: int) -> list[tuple[Position, Notice]]:
    reader = JournalReader(Journal("s", house.store), since)
    return [each async for each in reader.news()]


async def test_a_watcher_that_comes_back_is_told_the_rest_and_no_more_is_read(
    house: House, folded: list[int]
) -> None:
    await short_runs(house, 8)
    length, all_told = len(await house.store.load("s")), await told(house, 0)
    # A checkpoint that is kept slowly makes the next one come later, in the next run.
    most = 3 * EVERY
    assert length > most
    for since in range(length + 2):
        folded.clear()
        rest = [each for each in all_told if each[0] >= (since, 0)]
        # Before the first checkpoint there is none to begin at.
        assert await told(house, since) in ([rest] if since > most else [rest, all_told])
        assert sum(folded) <= most


# Keeping them


class Odd(StoreOver):
    """A store whose `keep_checkpoint` fails while it *fails*, and otherwise waits for *gate*."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.fails, self.begun = asyncio.Event(), False, 0

    async def keep_checkpoint(
        self, session: str, position: int, body: bytes, first: int, incarnation: str = ""
    ) -> None:
        self.begun += 1
        await self.gate.wait()
        if self.fails:
            msg = "no space left"
            raise StoreError(msg)
        await super().keep_checkpoint(session, position, body, first, incarnation)


async def test_no_step_waits_for_a_checkpoint_and_the_end_of_the_stream_does() -> None:
    """One at a time is kept, and none is lost that the next reader counts on."""
    store = Odd()
    house = House(store)
    session = house.process(*rounds(12))
    watch = Watch(session)
    await watch.until(ToolStarted, 12)
    await until(lambda: not session.unfinished)
    assert (len(house.ran), store.begun, watch.task.done()) == (12, 1, False)
    store.gate.set()
    await watch.task
    await session.close()
    assert len(await bodies(house)) == 1


FIRST = """
import asyncio, sys
from turnwheel import Agent, MemoryStore
from turnwheel.effects import CallModel
from turnwheel.engine.journal import stored_checkpoints
from turnwheel.testing import ScriptedModel, says

calls, spans, step, keep = 0, [], asyncio.Handle._run, stored_checkpoints.Checkpoints.keep

def count(*_):
    global calls
    calls += 1

def counted(handle):
    before = calls
    step(handle)
    spans.append(calls - before)

def kept(*given):
    asyncio.Handle._run = counted
    sys.setprofile(count)
    return keep(*given)

async def main():
    stored_checkpoints.EVERY, stored_checkpoints.Checkpoints.keep = 20, kept
    model = ScriptedModel(*[says(str(turn)) for turn in range(8)])
    async with Agent(performers={CallModel: model}, store=MemoryStore()).session("s") as session:
        for turn in range(8):
            await session.run(str(turn))

asyncio.run(main())
sys.setprofile(None)
assert 'turnwheel.engine.journal.checkpoints' in sys.modules
print(sum(spans), max(spans))
"""


def test_what_makes_the_first_checkpoint_is_loaded_bit_by_bit() -> None:
    """In calls of functions, since a busy machine makes no more of them: other sessions go on in between."""
    command = [sys.executable, "-c", FIRST]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    total, longest = map(int, printed.split())
    assert longest < total / 3


async def test_one_that_cannot_be_kept_is_made_up_for_by_the_next(folded: list[int]) -> None:
    store = Odd()
    store.gate.set()
    house = House(store)
    async with house.process(*[reply for _ in range(6) for reply in rounds(4)]) as session:
        for number in range(6):
            store.fails = number in {1, 3}
            with capture_logs() as told:
                assert (await session.run(f"go {number}")).text == "seen"
            said = [(line["event"], line["error"]) for line in told if line["log_level"] == "warning"]
            assert {*said} == ({("a checkpoint was not kept", "StoreError")} if store.fails else set())
            folded.clear()
            with capture_logs() as logs:
                assert (await house.process().load()).machine == (await whole(house)).machine
            assert (logs, sum(folded) < 4 * EVERY) == ([], True)


async def test_a_checkpoint_has_what_the_journal_has_by_then_and_no_more(
    one: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of an answer that are held back are not in it."""
    monkeypatch.setattr(stored_checkpoints, "EVERY", 0)
    one.held = {2}
    watch = Watch(one.process(calls(("look", {})), says("seen it all")))
    await watch.until(TextDelta)
    await turns(5)
    found = restored(await bodies(one))
    assert found is not None
    assert found.position == len(await one.store.load("s"))
    assert found.state == await whole(one)
    one.release()
    await watch.task


async def test_a_session_that_goes_on_meanwhile_does_not_change_what_is_kept(one: House) -> None:
    async with one.process(*rounds(4)) as session:
        await session.run("go")
    entries, store = await one.store.load("s"), MemoryStore()
    await store.append("s", 0, entries)
    state = fold(entries[:-2], "s")
    then = fold(entries[:-2], "s")
    Checkpoints("s", store).keep(state, len(entries) - 2, entries[-3], "")
    fold(entries[-2:], "s", state, len(entries) - 2)
    await until(lambda: len(asyncio.all_tasks()) == 1)
    found = restored(await store.checkpoints("s"))
    assert found is not None
    assert found.state == then != state


async def test_none_is_kept_in_the_middle_of_a_batch(one: House) -> None:
    """Its results are at full length there, and are cut when it ends."""
    async with one.process(*rounds(1)) as session:
        await session.run("go")
    entries, kept = await one.store.load("s"), dict[str, int]()
    for length in range(2, len(entries) + 1):
        state, store = fold(entries[:length], "s"), Odd()
        store.gate.set()
        await store.append("s", 0, entries[:length])
        Checkpoints("s", store).keep(state, length, entries[length - 1], "")
        await until(lambda: len(asyncio.all_tasks()) == 1)
        kept[state.machine.state.label if state.machine else ""] = store.begun
    assert kept == {"streaming": 1, "executing": 0, "done": 1}


async def test_checkpoints_grow_with_the_journal_and_not_with_its_square(one: House) -> None:
    """Each has what is new."""
    sizes: list[int] = []
    for _ in range(3):
        async with one.process(*rounds(60)) as session:
            await session.run("go")
        sizes.append(sum(map(len, await bodies(one))))
    assert sizes[1] < 2.3 * sizes[0]
    assert sizes[2] < 1.7 * sizes[1]


async def test_a_store_may_do_without(folded: list[int]) -> None:
    store = PlainStore()
    house = House(store)
    async with house.process(*rounds(12)) as session:
        await session.run("go")
        assert (await session.fork("f")).machine is not None
    folded.clear()
    assert (await house.process().load()).machine == (await whole(house)).machine
    assert folded == [len(await store.load("s"))]
