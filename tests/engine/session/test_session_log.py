"""The log of a session: what is written, what another process wrote meanwhile, and what is kept in mind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import pytest
from provers.simulation.watched import copied
from provers.tasks import turns
from support.patience import PATIENCE
from support.session_stage import House, Watch, said

from turnwheel.effects.config import Config, ModelSpec, Steering, ToolSpec
from turnwheel.effects.errors import (
    ConfigError,
    JournalError,
    SessionGone,
    StoreConflict,
    StoreError,
    UnknownRun,
)
from turnwheel.effects.events import (
    Event,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import Outcome, StopReason
from turnwheel.effects.notices import ToolStarted
from turnwheel.effects.records import ReplaceHistory
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.codec import decode
from turnwheel.engine.journal import stored_checkpoints
from turnwheel.engine.journal.checkpoints import restored
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import (
    Branched,
    Entry,
    Forked,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.journal.summary import SessionSummary
from turnwheel.engine.session import session_log
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.stores.base import Entries
from turnwheel.testing.scripted import calls, says
from turnwheel.testing.stores import StoreOver

CONFIG = Config(
    model=ModelSpec(name="one"),
    tools=(ToolSpec(name="look", side_effect="read_only"),),
)
AT = 5.0


class Watched(StoreOver):
    """A store that notes what it is asked, and raises *fault* once, or *refuses* to append."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[SessionSummary | None] = []
        self.loads: list[int] = []
        self.fault: BaseException | None = None
        self.refuses = False
        # Turns of the event loop before an append.
        self.slow = 1

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        await turns(self.slow)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        if self.refuses:
            raise StoreConflict(session, expected, expected + 1)
        there = await super().append(session, expected, entries, about, incarnation)
        self.rows.append(None if about is None else decode(about, SessionSummary))
        return there

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.loads.append(start)
        return await super().load(session, start, end, incarnation)

    async def said(self) -> list[str]:
        """The kinds of the entries that are kept."""
        return [type(decode_entry(data)).__name__ for data in await self.kept.load("s")]

    async def write(self, *entries: Entry) -> None:
        """Add *entries* as another process does."""
        encoded = [encode_entry(entry) for entry in entries]
        await self.kept.append("s", len(await self.kept.load("s")), encoded)


@pytest.fixture
def store() -> Watched:
    return Watched()


def prompt(text: str = "go", name: str = "") -> UserSent:
    return UserSent(at=AT, id=name or text, text=text)


def opening(run: str, config: Config = CONFIG) -> RunOpened:
    return RunOpened(at=AT, run=run, config=config)


async def opened(store: Watched | None, *, titled: bool = False) -> SessionLog:
    """The log of a session with a run that has just begun."""
    log = SessionLog(Journal("s", store))
    await log.read()
    await log.open_run(partial(opening, "r"), prompt(), titled=titled)
    return log


async def step(log: SessionLog, event: Event, failed: str = "") -> int | None:
    """The number that the log tells, once the machine has applied *event*, or has *failed* at it."""
    machine = log.state.machine
    assert machine is not None
    return await log.keep(machine.failure(event, failed) if failed else machine.step(event))


def asked(log: SessionLog) -> str:
    """The request that is open."""
    assert log.state.machine is not None
    (request,) = log.state.machine.state.open
    return request


def piece(log: SessionLog, before: int = 0, text: str = "well") -> ModelStreamed:
    return ModelStreamed(at=AT, request=asked(log), before=before, count=1, pieces=(TextPiece(text),))


def answer(log: SessionLog, *tools: str) -> ModelFinished:
    stop = StopReason.TOOL_USE if tools else StopReason.END_TURN
    pieces = tuple([CallPiece(place, f"c{place}", tool, "{}") for place, tool in enumerate(tools)])
    return ModelFinished(at=AT, request=asked(log), stop=stop, usage=Usage(input=1), pieces=pieces)


# What is written


async def test_each_step_is_kept_and_numbered_but_pieces_wait_for_the_next(store: Watched) -> None:
    log = await opened(store)
    begun = ["Posted", "RunOpened"]
    assert (await store.said(), log.journal.length, log.begun) == (begun, 2, 1)
    told = [await step(log, piece(log)), await step(log, piece(log, 1))]
    assert (told, await store.said()) == ([1, 1], begun)
    assert await step(log, answer(log, "look")) == 3
    assert await store.said() == [*begun, "Stepped", "Stepped"]
    at_work = asked(log)
    assert await step(log, ToolProgressed(at=AT, request=at_work, text="half")) == 3
    assert await step(log, ToolFinished(at=AT, request=at_work, content="seen")) == 4
    kept = [decode_entry(data) for data in await store.kept.load("s")]
    labels = [one.label for one in kept if isinstance(one, Stepped)]
    assert labels == ["streaming", "executing", "streaming"]
    [streamed] = [
        one.event for one in kept if isinstance(one, Stepped) and isinstance(one.event, ModelStreamed)
    ]
    assert (streamed.count, streamed.pieces) == (2, (TextPiece("wellwell"),))


@pytest.mark.parametrize("progress", [False, True])
async def test_an_event_that_a_handler_failed_at_is_kept_whatever_it_is(
    store: Watched, *, progress: bool
) -> None:
    log = await opened(store)
    if progress:
        await step(log, answer(log, "look"))
    event = ToolProgressed(at=AT, request=asked(log), text="half") if progress else piece(log)
    assert await step(log, event, "a bug") == log.journal.length - 1
    state = fold(await store.kept.load("s"), "s")
    assert state.machine == log.state.machine
    assert not state.unfinished


async def test_without_a_store_nothing_is_numbered() -> None:
    log = await opened(None)
    assert await step(log, piece(log)) is None
    assert await step(log, answer(log)) is None
    await log.flush()
    await log.look()
    assert (log.journal.length, log.unread) == (0, False)
    with pytest.raises(ConfigError, match="session 's' has no store"):
        await log.journal.load()


async def test_pieces_are_kept_when_a_stream_is_left_and_dropped_where_the_run_ended_otherwise(
    store: Watched,
) -> None:
    log = await opened(store)
    await log.flush()
    assert log.journal.length == 2
    await step(log, piece(log))
    await log.flush()
    await log.flush()
    assert log.journal.length == 3
    assert log.state.machine is not None
    stored = copied(log.state.machine)
    await step(log, piece(log, 1))
    assert log.state.machine != stored
    store.fault = StoreError("full")
    with pytest.raises(StoreError):
        await log.flush()
    assert log.state.machine == stored
    await log.flush()
    assert await store.said() == ["Posted", "RunOpened", "Stepped"]


@pytest.mark.parametrize(
    ("error", "unsure"),
    [
        (StoreError("full"), True),
        (asyncio.CancelledError(), True),
        (SessionGone("s", begun_anew=False), False),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_an_append_that_failed_may_be_there_all_the_same_until_the_journal_is_read(
    store: Watched, error: BaseException, *, unsure: bool
) -> None:
    log = await opened(store)
    assert not log.unread
    store.fault = error
    with pytest.raises(type(error)):
        await log.write([Titled(at=AT, title="one")])
    assert log.unread is unsure
    await log.read()
    assert not log.unread


async def test_a_row_is_written_where_a_list_would_show_something_else(store: Watched) -> None:
    log = await opened(store, titled=True)
    await step(log, answer(log, "look"))
    await step(log, ToolFinished(at=AT, request=asked(log), content="seen"))
    await log.read()  # this finds nothing new, so the row is as it was
    await step(log, answer(log, "look"))
    # Of another writer: its row may lack what is known here.
    await store.write(Titled(at=AT, title="two"))
    await step(log, ToolFinished(at=AT, request=asked(log), content="seen"))
    await step(log, answer(log))
    written = [one and (one.title, one.state.value, one.runs, one.prompts) for one in store.rows]
    busy, over = ("two", "unfinished", 1, 0), ("two", "idle", 1, 0)
    assert written == [("go", "unfinished", 1, 0), None, None, None, busy, over]
    assert log.state.title == "two"


async def test_the_row_of_a_run_counts_the_prompts_that_it_leaves(store: Watched) -> None:
    log = await opened(store)
    await step(log, answer(log))
    assert await log.add(lambda: Posted(event=prompt("and")))
    assert await log.add(lambda: Posted(event=prompt("more")))
    await log.open_run(partial(opening, "r2"))
    assert [(row.runs, row.prompts) for row in store.rows if row] == [(1, 0), (1, 0), (1, 1), (1, 2), (2, 1)]


async def test_a_title_that_is_given_again_changes_no_row(store: Watched) -> None:
    log = await opened(store)
    for title in ("one", "one", "two"):
        assert await log.add(partial(titled, title))
    assert [row and row.title for row in store.rows[1:]] == ["one", None, "two"]


async def test_a_summary_of_older_messages_is_found_by_the_number_of_its_entry(store: Watched) -> None:
    log = await opened(store)
    await store.write(titled("other"))
    assert log.state.machine is not None
    made = log.state.machine.step(prompt("and"))
    number = await log.keep(attrs.evolve(made, effects=(ReplaceHistory(head=(), keep=0),)))
    assert number == log.state.summary == 3
    assert store.rows[-1] is not None
    assert store.rows[-1].summary == 3


def _entry_of(waiting: Titled | UserSent | UserSteered) -> Titled | Posted:
    return waiting if isinstance(waiting, Titled) else Posted(event=waiting)


# What another process wrote


def titled(title: str) -> Titled:
    return Titled(at=AT, title=title)


class Telling(Watched):
    """One that says what came first where it refuses."""

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        try:
            return await super().append(session, expected, entries, about, incarnation)
        except StoreConflict as conflict:
            came = await self.kept.load(session, expected)
            raise StoreConflict(session, expected, conflict.actual, came) from None


@pytest.mark.parametrize("kind", [Watched, Telling])
async def test_an_id_that_was_taken_all_the_same_is_known_from_then_on(kind: type[Watched]) -> None:
    store = kind()
    await store.write(Posted(event=prompt("mine")))
    log = SessionLog(Journal("s", store), fresh=True)
    assert await log.add(lambda: titled("two")) is False
    assert log.state.posted == [prompt("mine")]
    assert log.journal.incarnation == (await store.kept.load("s")).incarnation
    assert await log.add(lambda: titled("two"))


@pytest.mark.parametrize("way", ["read", "written"])
async def test_a_session_that_was_begun_anew_is_another_one(store: Watched, way: str) -> None:
    log = await opened(store)
    if way == "read":
        log = SessionLog(Journal("s", store))
        await log.read()
    await store.kept.delete("s")
    await store.write(Posted(event=prompt("mine")))
    for work in (
        log.read,
        log.look,
        lambda: log.add(lambda: titled("two")),
        lambda: log.write([titled("two")]),
    ):
        with pytest.raises(SessionGone):
            await work()
    assert (await store.said(), log.unread) == (["Posted"], False)


async def test_the_secrets_of_a_copy_are_those_of_the_session_it_was_copied_from(store: Watched) -> None:
    log = await opened(store)
    await step(log, answer(log))
    origins = list[str]()

    class Redactor:
        def add_origins(self, sessions: Sequence[str]) -> None:
            origins.extend(sessions)

    redactor: Any = Redactor()
    await SessionLog(Journal("s", store), redactor).read()
    assert origins == []
    await store.write(Forked(at=AT, session="original"))
    await SessionLog(Journal("s", store), redactor).read()
    assert origins == ["original"]
    plain = SessionLog(Journal("s", store))
    await plain.read()
    assert plain.state.copied == "original"


async def test_an_input_behind_the_run_of_another_process_is_decided_by_that(store: Watched) -> None:
    log = await opened(store)
    other = SessionLog(Journal("s", store))
    await other.read()
    await step(other, answer(other))
    assert await log.add(lambda: Posted(event=prompt("and"))) is False
    assert log.state.machine is not None
    assert (log.state.machine.done, log.state.posted) == (True, [])
    assert await log.add(lambda: Posted(event=prompt("and")))


async def test_what_another_process_added_is_taken_in_before_the_own_entry(store: Watched) -> None:
    log = await opened(store)
    heard: list[Event] = []
    log.listen(heard.append)
    await store.write(Posted(event=prompt("and")), titled("other"))
    await step(log, answer(log, "look"))
    assert (await store.said())[2:] == ["Posted", "Titled", "Stepped"]
    assert (log.journal.length, log.state.title) == (5, "other")
    assert heard == log.state.posted == [prompt("and")]
    await store.write(titled("third"))
    await log.look()
    assert (log.journal.length, log.state.title) == (6, "third")


async def test_an_input_is_refused_where_another_process_was_faster_also_while_it_waited(
    store: Watched,
) -> None:
    """Both may be the same prompt as the other process's: each sender decides anew, by what is known then."""
    log = await opened(store)
    await store.write(Posted(event=prompt("and")))

    def decide() -> Posted | None:
        return None if log.state.knows("and") else Posted(event=prompt("and"))

    assert [*await asyncio.gather(log.add(decide), log.add(decide))] == [False, True]
    assert log.state.posted == [prompt("and")]
    assert await log.add(lambda: Posted(event=prompt("more")))
    assert log.state.posted == [prompt("and"), prompt("more")]
    assert fold(await store.kept.load("s"), "s").posted == log.state.posted


@pytest.mark.parametrize("look", [False, True])
@pytest.mark.parametrize("other", [TakenOver(at=AT), Branched(at=AT, run="")], ids=["driven", "branched"])
async def test_what_only_an_owner_writes_means_that_the_session_is_lost(
    store: Watched, other: Entry, *, look: bool
) -> None:
    log = await opened(store)
    await store.write(titled("other"), other)
    with pytest.raises(StoreConflict) as caught:
        await (log.look() if look else log.write([titled("own")]))
    assert (caught.value.session, caught.value.expected, caught.value.actual) == ("s", 2, 4)
    # Nothing of it is acted on, not even the part that any process may write.
    assert (log.journal.length, log.state.title, log.unread) == (2, "", False)


async def test_a_store_that_refuses_without_a_reason_is_not_asked_for_ever(store: Watched) -> None:
    log = await opened(store)
    store.refuses = True
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(StoreConflict):
            await log.write([titled("own")])
        with pytest.raises(StoreConflict):
            await log.add(lambda: titled("own"))
    assert (log.journal.length, log.state.title) == (2, "")


async def test_an_entry_that_cannot_be_read_is_named(store: Watched) -> None:
    log = await opened(store)
    await store.write(titled("other"))
    await store.kept.append("s", 3, [b"{}"])
    with pytest.raises(JournalError, match="entry 3 of session 's'"):
        await log.look()
    assert log.journal.length == 2
    with pytest.raises(JournalError, match="entry 3 of session 's'"):
        await log.read()
    assert log.unread


async def test_a_session_with_a_new_id_reads_only_what_is_new(store: Watched) -> None:
    log = SessionLog(Journal("s", store), fresh=True)
    await log.read()
    await log.open_run(partial(opening, "r"), prompt())
    machine = log.state.machine
    await step(log, answer(log))
    assert store.loads == []
    await log.read()
    assert (store.loads, log.state.machine is machine) == ([log.journal.length], True)


async def test_only_what_is_new_is_read_but_for_a_branch(store: Watched) -> None:
    log = await opened(store)
    await step(log, answer(log))
    store.loads.clear()
    await log.read()
    await store.write(titled("other"))
    await log.read()
    assert (store.loads, log.state.title, log.journal.length) == ([3, 3], "other", 4)
    await store.write(Branched(at=AT, run=""))
    await log.read()
    assert (store.loads[2:], log.journal.length) == ([4, 0], 5)
    assert log.state.machine is not None
    assert len(log.state.machine.memory.history) == 0


# Runs


async def two_runs(store: Watched) -> SessionLog:
    log = await opened(store)
    for run in ("r2", ""):
        await step(log, answer(log))
        if run:
            await log.open_run(partial(opening, run), prompt(run))
    return log


async def test_going_back_keeps_an_entry_and_to_where_it_stands_none(store: Watched) -> None:
    log = await two_runs(store)
    await log.branch("r2", AT)
    assert "Branched" not in await store.said()
    with pytest.raises(UnknownRun) as caught:
        await log.branch("r3", AT)
    assert caught.value.runs == ("r", "r2")
    await log.branch("r", AT)
    assert (await store.said())[-1] == "Branched"
    assert log.state.machine is not None
    assert (log.state.machine.memory.run, log.state.messages) == ("r", 1)
    # What is only needed for a branch is not held: each has a whole history.
    assert (log.state.ends, log.state.keeps) == ({}, frozenset())
    await log.branch("", AT)
    assert log.state.messages == 0
    with pytest.raises(UnknownRun) as caught:
        await log.branch("r3", AT)
    assert caught.value.runs == ("r", "r2")


@pytest.mark.parametrize(
    ("waiting", "text", "wanted", "title"),
    [
        ((), "go", True, "go"),
        ((), "go", False, ""),
        ((prompt("first"),), "go", True, "first"),
        ((UserSteered(at=AT, id="late", text="too late", how=Steering.NOW),), "", True, "too late"),
        ((titled("named"),), "go", True, "named"),
        ((), " \n", True, ""),
    ],
)
async def test_a_title_comes_from_the_first_that_was_said(
    store: Watched, waiting: Sequence[Any], text: str, title: str, *, wanted: bool
) -> None:
    log = SessionLog(Journal("s", store))
    await log.read()
    for one in waiting:
        assert await log.add(partial(_entry_of, one))
    await log.open_run(partial(opening, "r"), prompt(text) if text else None, titled=wanted)
    assert log.state.title == fold(await store.kept.load("s"), "s").title == title
    kept = await store.said()
    assert (kept[log.begun], "Titled" in kept) == ("RunOpened", bool(title))


async def test_a_fresh_session_is_read_from_its_second_look_on(store: Watched) -> None:
    log = SessionLog(Journal("s", store), fresh=True)
    await log.read()
    assert store.loads == []
    await store.write(titled("other"))
    await log.read()
    assert log.state.title == "other"


# Results and checkpoints


@pytest.mark.parametrize("kept", [False, True])
async def test_the_full_text_of_a_result_is_found(store: Watched, *, kept: bool) -> None:
    reader = ToolSpec(name="read_result", side_effect="read_only")
    log = SessionLog(Journal("s", store if kept else None))
    await log.read()
    await log.open_run(partial(opening, "r", attrs.evolve(CONFIG, tools=(*CONFIG.tools, reader))), prompt())
    await step(log, answer(log, "look"))
    long = "x" * 30_000
    await step(log, ToolFinished(at=AT, request=asked(log), content=long))
    assert log.state.machine is not None
    # It is in the history once all calls of its batch are over.
    (result,) = log.state.machine.memory.history[-1].results
    assert result.content != long
    assert await log.full_result(result.call) == long
    assert await log.full_result("another") is None


async def test_an_entry_without_a_result_has_none(store: Watched) -> None:
    log = await opened(store)
    await step(log, answer(log, "look"))
    await step(log, ToolFinished(at=AT, request=asked(log), content="no", outcome=Outcome.ERROR))
    journal = Journal("s", store)
    assert [await journal.full_result(number) for number in range(5)] == [None, None, None, "no", None]
    await store.write(Posted(event=prompt("and")))
    await store.kept.append("s", 5, [b"{}"])
    with pytest.raises(JournalError, match="entry 5 of session 's'"):
        await journal.full_result(5)


async def positions(store: Watched) -> list[int]:
    """After how many entries there is a checkpoint."""
    kept: Any = store.kept
    bodies = list(await kept.checkpoints("s"))
    found = [restored(bodies[: number + 1]) for number in range(len(bodies))]
    return [one.position for one in found if one is not None]


async def test_a_checkpoint_is_kept_as_soon_as_it_is_due(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checkpoints, "EVERY", 4)
    log = await opened(store)
    await log.own(titled("one"))
    await log.journal.checkpoints.settled()
    assert await positions(store) == []
    await step(log, piece(log))
    await log.own(titled("two"))
    # With a piece held back, the machine is ahead of the journal.
    await log.journal.checkpoints.settled()
    assert await positions(store) == [4]


async def test_a_checkpoint_is_kept_with_the_step_that_it_is_due_with(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checkpoints, "EVERY", 4)
    log = await opened(store)
    await step(log, piece(log))
    await log.journal.checkpoints.settled()
    assert await positions(store) == []
    await step(log, answer(log))
    await log.journal.checkpoints.settled()
    # The piece and the step are an entry each.
    assert await positions(store) == [4]


@pytest.mark.parametrize("way", ["rests", "in use", "writes"])
async def test_a_state_is_packed_where_nothing_goes_on(
    store: Watched, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(session_log, "PARK_AFTER", 0.0)
    log = await opened(store)
    before = log.state
    log.in_use = way == "in use"
    store.slow = 20
    writing = [asyncio.ensure_future(log.add(lambda: titled("two")))] if way == "writes" else []
    await turns(1)
    log.park_soon(CONFIG)
    await turns(5)
    assert (log.state is before) is (way != "rests")
    assert log.state.machine is not None
    assert before.machine is not None
    assert log.state.machine.memory == before.machine.memory
    await asyncio.gather(*writing)
    # It goes on as it was.
    log.in_use = False
    await step(log, answer(log))
    assert log.state.machine == fold(await store.kept.load("s"), "s").machine


async def test_a_state_is_packed_again_after_a_look_at_it(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "PARK_AFTER", 0.0)
    log = await opened(store)
    log.park_soon(CONFIG)
    seen = []
    for _ in range(3):
        await turns(5)
        seen.append(log.state)
        assert log.state is seen[-1]
    assert len({*map(id, seen)}) == 3
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(log, "nothing")  # noqa: B009  # there is none


async def test_what_is_said_into_the_run_of_a_new_session_is_in_its_history(one: House) -> None:
    """No other process can know it, so its journal is not read while it is driven."""
    session = one.agent(calls(("dig", {})), says("found")).session()
    watch = Watch(session)
    await watch.until(ToolStarted)
    for text in ("left", "right"):
        await session.steer(text)
    one.release()
    await watch.task
    assert said(session) == ["go", "left", "right"]


async def test_a_session_is_read_from_its_checkpoint_with_one_look(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_checkpoints, "EVERY", 4)
    log = await opened(store)
    for title in ("one", "two", "three"):
        await log.own(titled(title))
    await log.journal.checkpoints.settled()
    store.loads.clear()
    other = SessionLog(Journal("s", store))
    await other.read()
    assert (store.loads, other.journal.length, other.state.title) == ([3], 5, "three")
    # Also which session of this name it is: another one is not written to.
    assert other.journal.incarnation == log.journal.incarnation != ""
    # The next one is as far behind that one as any other.
    for title in ("four", "five", "six", "seven"):
        await other.own(titled(title))
        await other.journal.checkpoints.settled()
    assert await positions(store) == [4, 8]


async def test_a_session_that_went_back_has_a_checkpoint_at_once(
    store: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One from before would not do: it does not know the end of the run that was gone back to."""
    monkeypatch.setattr(stored_checkpoints, "EVERY", 5)
    log = await two_runs(store)
    await log.journal.checkpoints.settled()
    await log.branch("r", AT)
    store.loads.clear()
    other = SessionLog(Journal("s", store))
    await other.read()
    assert (store.loads, other.journal.length) == ([6], 7)
    assert other.state == log.state
