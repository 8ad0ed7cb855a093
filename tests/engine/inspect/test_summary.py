"""What a store says a session is about: always what its journal says, and never read from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import attrs
import pytest

from turnwheel import ChildSpec, DoneReason, MemoryStore, ModelSpec, SetThinking, SQLiteStore
from turnwheel.effects.config import Compaction
from turnwheel.effects.errors import StoreError
from turnwheel.effects.events import ApprovalGiven, Approve, Interrupted, UserSteered
from turnwheel.effects.notices import ToolStarted
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.inspect.listing import described, latest, listed
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted, RunOpened, Stepped
from turnwheel.engine.journal.fold import SessionState, fold
from turnwheel.engine.journal.summary import (
    Activity,
    SessionKind,
    SessionStatus,
    SessionSummary,
    activity_of,
    summarize,
    summary_key,
)
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.state_fixtures import PLACES, run_at
from turnwheel.testing.stores import StoreOver

if TYPE_CHECKING:
    from engine.inspect.conftest import Made


async def told(store: Store, session: str = "s") -> SessionSummary:
    """What the row of *session* says, which must be what its journal says."""
    (info,) = [info for info in await store.list() if info.session == session]
    row = decode(info.about, SessionSummary)
    assert isinstance(row, SessionSummary)
    read = summarize(fold(await store.load(session), session), session)
    if row.state is SessionStatus.UNFINISHED:  # while a run goes on, its account is not written at each step
        read = attrs.evolve(read, spent=row.spent, messages=row.messages)
    assert row == read
    return row


async def test_a_session_is_described_from_its_first_prompt_to_its_last_run(made: Made) -> None:
    agent = made(says("one"), says("two"))
    store = made.store
    async with agent.session("s") as session:
        await session.send("hello")
        assert await told(store) == SessionSummary(prompts=1)
        async for _ in session.stream():
            row = await told(store)
            assert (row.state, row.runs, row.title, row.reason) in {
                (SessionStatus.UNFINISHED, 1, "hello", None),
                (SessionStatus.IDLE, 1, "hello", DoneReason.END_TURN),
            }
        row = await told(store)
        assert (row.kind, row.parent, row.agent, row.cwd) == (SessionKind.MAIN, "", "", str(Path.cwd()))
        assert (row.runs, row.messages, row.spent, row.summary) == (1, 2, session.spent, 0)
        await session.run("more")
        row = await told(store)
        assert (row.runs, row.messages, row.spent.turns) == (2, 4, 2)


async def test_a_session_that_waits_for_people_says_for_how_many_answers(made: Made) -> None:
    agent = made(calls(("pay", {}), ("pay", {"amount": 2})), says("done"))
    store = made.store
    async with agent.session("s") as session, agent.session("s") as other:
        await session.run("pay twice")
        assert (await told(store)).state is SessionStatus.RESTING
        assert (await told(store)).questions == 1  # serially, one is asked at a time
        await other.load()
        await other.approve(other.waiting[0].id)
        assert (await told(store)).state is SessionStatus.UNFINISHED
        await session.resume()
        assert ((await told(store)).state, (await told(store)).questions) == (SessionStatus.RESTING, 1)
        await session.interrupt()
        assert (await told(store)).state is SessionStatus.UNFINISHED
        await session.resume()
        row = await told(store)
        assert (row.state, row.questions, row.reason) == (SessionStatus.IDLE, 0, DoneReason.INTERRUPTED)


RESTS = {"confirming, heard", "confirming, lost", "confirming.stopping"}
"""The places where people are all that a run waits for; a tool is at work in ``confirming``."""

DOES = {
    "done": Activity.IDLE,
    "streaming": Activity.STREAMING,
    "executing": Activity.EXECUTING_TOOLS,
    "confirming": Activity.EXECUTING_TOOLS,
    "dispatching": Activity.EXECUTING_TOOLS,
}


@pytest.mark.parametrize("place", PLACES)
def test_a_session_at_work_is_not_listed_as_resting(place: str) -> None:
    machine = run_at(place).machine
    state = SessionState(machine=machine, runs=1)
    if place == "done":
        expected = SessionStatus.IDLE
    else:
        expected = SessionStatus.RESTING if place in RESTS else SessionStatus.UNFINISHED
    assert summary_key(state)[0] is expected
    assert activity_of(machine.state) is DOES.get(place.partition(".")[0].partition(",")[0], Activity.RUNNING)
    assert activity_of(None) is Activity.IDLE
    row = summarize(state, "s")
    assert (row.state, row.questions) == (expected, len(state.questions))
    assert (row.reason is None) is (place != "done")
    assert summary_key(state) == row.key
    if not state.questions:
        return
    # Once the last of them has its answer, or a stop waits, a worker goes on.
    state.posted += [ApprovalGiven(at=9.0, request=one.id, decision=Approve()) for one in state.questions]
    assert (summary_key(state)[0], summarize(state, "s").questions) == (SessionStatus.UNFINISHED, 0)
    state.posted = [Interrupted(at=9.0)]
    assert summary_key(state)[0] is SessionStatus.UNFINISHED


async def test_prompts_that_wait_are_counted(made: Made) -> None:
    agent = made(calls(("look", {})), says("one"), says("two"), says("three"))
    store = made.store
    async with agent.session("s") as session:
        counts: list[int] = []
        async for notice in session.stream("a"):
            if isinstance(notice, ToolStarted):
                await session.send("b")
                await session.send("c")
            counts.append((await told(store)).prompts)
    assert [count for count, _ in itertools.groupby(counts)] == [0, 2, 1, 0]
    late = UserSteered(at=1.0, id="x", text="and this")
    await store.append("s", len(await store.load("s")), [encode_entry(Posted(event=late))])
    async with agent.session("s") as session:
        await session.send("d")
        assert (await told(store)).prompts == 2


async def test_a_summary_is_pointed_at(made: Made) -> None:
    replies = [says("word " * 300, usage=Usage(input=400 * turn, output=400)) for turn in (1, 2, 3)]
    small = ModelSpec(name="scripted", window=1_500)
    agent = made(*replies, model=small, compaction=Compaction(keep=0.3))
    store = made.store
    async with agent.session("s") as session:
        await session.run("a")
        await session.run("b")
        last = (await session.run("c")).run
        row = await told(store)
        assert (row.messages, len(session.history)) == (6, 4)
        entry = decode_entry((await store.load("s"))[row.summary])
        assert isinstance(entry, Stepped)
        assert type(entry.event).__name__ == "ModelFinished"
        before = fold((await store.load("s"))[: row.summary], "s").machine
        after = fold((await store.load("s"))[: row.summary + 1], "s").machine
        assert before is not None
        assert after is not None
        assert (before.memory.history.revision, after.memory.history.revision) == (0, 1)
        runs = await session.runs()
        await session.branch(runs[0].run)
        assert ((await told(store)).summary, (await told(store)).messages) == (0, 2)
        await session.branch(last)
        assert (await told(store)).summary == row.summary


async def test_branches_forks_and_titles_are_told(made: Made) -> None:
    agent = made(says("one"), says("two"), says("three"))
    store = made.store
    async with agent.session("s") as session:
        first = (await session.run("a")).run
        await session.run("b")
        await session.branch(first)
        assert ((await told(store)).messages, (await told(store)).reason) == (2, DoneReason.END_TURN)
        await session.branch()
        assert ((await told(store)).messages, (await told(store)).reason) == (0, None)
        await session.branch(first)
        await session.retitle("called")
        assert (await told(store)).title == "called"
        fork = await session.fork("t")
        row = await told(store, "t")
        assert (row.kind, row.parent, row.title, row.spent) == (SessionKind.FORK, "s", "called", Spent())
        assert (row.runs, row.messages) == (2, 2)
        await fork.run("c")
        row = await told(store, "t")
        assert (row.kind, row.parent, row.runs, row.spent.turns) == (SessionKind.FORK, "s", 3, 1)


async def test_two_that_disagree_on_a_title_leave_the_last_one(made: Made) -> None:
    agent = made()
    async with agent.session("s") as one, agent.session("s") as two:
        for session, title in ((one, "x"), (two, "y"), (one, "x"), (two, "y")):
            await session.retitle(title)
            assert (await told(made.store)).title == title


@final
class Counting(StoreOver):
    """A store in memory that counts what is asked of it; *refuses* appends when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.rows: list[bytes] = []
        self.refuses = False

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        if self.refuses:
            msg = "nobody may write here"
            raise StoreError(msg)
        if about is not None:
            self.rows.append(about)
        return await super().append(session, expected, entries, about, incarnation)

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.loads.append(session)
        return await super().load(session, start, end, incarnation)


async def test_a_run_writes_few_rows(made: Made) -> None:
    store = Counting()
    agent = made(*[calls(("look", {}))] * 9, says("done"), store=store)
    async with agent.session("s") as session:
        await session.run("a")
        assert len(store.rows) == 2
        await session.control(SetThinking(tokens=1_024))
        assert len(store.rows) == 2  # that changes nothing a list tells
    assert all(len(row) < 400 for row in store.rows)


async def test_a_list_reads_no_journal(made: Made) -> None:
    store = Counting()
    agent = made(says("one"), says("two"), store=store)
    for name in "ab":
        async with agent.session(name) as session:
            await session.run(name)
    store.loads.clear()
    rows = await listed(store)
    assert [(one.session, one.about.title) for one in rows] == [("b", "b"), ("a", "a")]
    assert store.loads == []


async def bare(made: Made, store: Counting) -> None:
    """A session `s` as an older version wrote it: without a row."""
    agent = made(says("one"))
    async with agent.session("s") as session:
        await session.run("hello")
    await store.kept.append("s", 0, await made.store.load("s"))


async def test_a_session_without_a_row_is_read_once(made: Made) -> None:
    store = Counting()
    await bare(made, store)
    before = (await store.list())[0].updated
    for one in [*await listed(store), *await listed(store)]:
        assert (one.about.title, one.about.runs, one.updated) == ("hello", 1, before)
        assert await described(store, "s") == one
    assert store.loads == ["s"]
    assert await described(store, "t") is None


async def test_a_store_that_cannot_be_written_is_listed_all_the_same(made: Made) -> None:
    store = Counting()
    await bare(made, store)
    store.refuses = True
    for _ in range(2):
        (one,) = await listed(store)
        assert one.about.runs == 1
    assert store.loads == ["s", "s"]


@pytest.mark.parametrize("row", [b"", b'{"kind":"a new one"}', b'{"more":1}', b"no json", b"\xff"])
@pytest.mark.parametrize(
    "entry", [b"no json", b'{"type":"Branched","at":1.0,"run":"r"}', b"{}", b"\xff", b"[]"]
)
async def test_what_cannot_be_read_hides_nothing_else(made: Made, row: bytes, entry: bytes) -> None:
    store = Counting()
    await bare(made, store)
    await store.kept.append("broken", 0, [entry], row)
    states = {one.session: one.about.state for one in await listed(store)}
    assert states == {"s": SessionStatus.IDLE, "broken": SessionStatus.UNREADABLE}
    (info,) = [info for info in await store.list() if info.session == "broken"]
    assert info.about == row


async def test_a_row_of_a_newer_version_does_not_matter_where_the_journal_can_be_read(made: Made) -> None:
    store = Counting()
    await bare(made, store)
    await store.kept.append("s", len(await store.kept.load("s")), [], b'{"runs":1,"mood":"good"}')
    (one,) = await listed(store)
    assert one.about.title == "hello"
    assert (await store.list())[0].about == b'{"runs":1,"mood":"good"}'


async def test_the_newest_session_of_a_directory_is_the_one_to_go_on_with(made: Made, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (tmp_path / "link").symlink_to(one)
    store = SQLiteStore(tmp_path / "agent.db", "process")
    for name, cwd in (("a", one), ("b", one), ("c", two), ("d", tmp_path / "link")):
        agent = made(
            calls(("run_agent", {"agent": "kid", "prompt": "go"})),
            says("found"),
            says("done"),
            store=store,
            cwd=cwd,
            children=[ChildSpec(name="kid")],
        )
        async with agent.session(name) as session:
            await session.run(name)
    assert await latest(store, one) == "d"
    assert await latest(store, f"{two}/../two/") == "c"
    assert await latest(store, tmp_path) is None
    async with made(says("x"), store=store, cwd=one).session("b") as session:
        await session.run("again")
    assert await latest(store, str(one)) == "b"
    await store.close()


async def test_a_session_that_moved_is_where_it_worked_last(made: Made, tmp_path: Path) -> None:
    store = MemoryStore()
    agent = made(calls(("pay", {})), store=store, cwd=tmp_path)
    async with agent.session("s") as session:
        await session.run("a")
    async with made(says("paid"), store=store).session("s") as session:
        await session.approve(session.waiting[0].id)
        await session.resume()
    assert await latest(store, tmp_path) is None
    assert await latest(store, ".") == "s"


def test_a_row_in_full() -> None:
    row = SessionSummary(
        kind=SessionKind.FORK,
        parent="p",
        title="t",
        runs=1,
        messages=2,
        spent=Spent(turns=1, usage=Usage(input=3)),
        summary=4,
        cwd="/w",
        agent="a",
        state=SessionStatus.RESTING,
        questions=5,
        prompts=6,
        reason=DoneReason.ERROR,
    )
    assert encode(row, SessionSummary) == (
        b'{"kind":"fork","parent":"p","title":"t","runs":1,"messages":2,'
        b'"spent":{"turns":1,"usage":{"input":3}},"summary":4,"cwd":"/w","agent":"a","state":"resting",'
        b'"questions":5,"prompts":6,"reason":"error"}'
    )
    assert decode(encode(row, SessionSummary), SessionSummary) == row
    assert encode(SessionSummary(), SessionSummary) == b"{}"


async def test_rows_are_right_when_two_processes_take_turns(made: Made) -> None:
    agent = made(*[calls(("pay", {})), says("done")] * 3)
    store = made.store
    async with agent.session("s") as one, agent.session("s") as two:
        for number, (driver, other) in enumerate([(one, two), (two, one), (one, two)], 1):
            await driver.run(f"go {number}")
            assert (await told(store)).state is SessionStatus.RESTING
            await other.load()
            await other.approve(other.waiting[0].id)
            assert (await told(store)).state is SessionStatus.UNFINISHED
            await other.resume()
            row = await told(store)
            assert (row.state, row.runs, row.messages) == (SessionStatus.IDLE, number, 4 * number)
    opened = [decode_entry(data) for data in await store.load("s")]
    assert sum(isinstance(entry, RunOpened) for entry in opened) == 3
