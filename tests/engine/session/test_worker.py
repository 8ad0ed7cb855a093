"""Several processes with one session: an input through any of them, at any moment, counts once."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing

import pytest
from provers.tasks import turns
from support.session_stage import House, Tape, Watch, asked, said, until

from turnwheel import Approve, Deny, MemoryStore, Policy, Result, Session
from turnwheel.effects.errors import (
    JournalError,
    QueueFull,
    SessionClosed,
    StoreConflict,
    StoreError,
    UnknownRequest,
)
from turnwheel.effects.events import ModelFinished, UserSteered
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    InputReceived,
    InterruptRequested,
    RunEnded,
    SettingChanged,
    TextDelta,
    ToolStarted,
)
from turnwheel.effects.records import SetModel
from turnwheel.engine.core.machine import Machine, calls_in
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted, RunOpened, Stepped, TakenOver
from turnwheel.engine.session.worker import POST_TRIES
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.clocks import ManualClock
from turnwheel.testing.scripted import Reply, calls, says, stalls
from turnwheel.testing.stores import StoreOver

pytestmark = pytest.mark.usefixtures("quiet")

MOMENTS = range(70)
"""Turns of the event loop that the longest run here takes, and some more."""

GO_ON = [says(f"answer {number}") for number in range(9)]
"""The answers to a process that goes on with a run."""


async def test_an_error_report_with_all_that_is_at_work_has_no_words_of_people(one: House) -> None:
    """Tools that capture local variables show them by their `repr`."""
    session = one.session(calls(("dig", {})))
    watch = Watch(session, "my words")
    await until(lambda: session.running)
    worker = session._worker  # pyright: ignore[reportPrivateUsage]  # as a traceback has it
    shown = [repr(each) for each in (session, worker, worker.log, worker.children, worker.environment)]
    assert "my words" not in "".join(shown)
    one.release()
    await watch.task


# Through one that does not drive


def machine_of(session: Session) -> Machine:
    assert session.machine is not None
    return session.machine


SAY: dict[str, Callable[[Session], Awaitable[object]]] = {
    "send": lambda session: session.send("and?", id="and?"),
    "steer": lambda session: session.steer("wait", id="wait"),
    "control": lambda session: session.control(SetModel(model="other")),
    "interrupt": lambda session: session.interrupt(),
    "cancel": lambda session: session.cancel(calls_in(machine_of(session).state)[0]),
    "approve": lambda session: session.approve(session.waiting[0].id),
}

NOTICED = {
    "send": InputReceived,
    "steer": InputReceived,
    "control": SettingChanged,
    "interrupt": InterruptRequested,
    "cancel": CallSettled,
    "approve": ApprovalResolved,
}

PLACES: dict[str, tuple[Reply, type]] = {
    "streaming": (says("half of it"), TextDelta),
    "running": (calls(("dig", {}), ("look", {})), ToolStarted),
    "asked": (calls(("pay", {})), ApprovalRequested),
    "resting": (calls(("pay", {})), ApprovalRequested),
    "finished": (says("all of it"), RunEnded),
}
"""The first answer of a run, and the notice after which an input comes."""

HEARD = [
    # When and which input; the texts that were read, what ran, why the last run ended, the models asked.
    ("streaming", "send", (["go", "and?"], [], "end_turn", "one one")),
    ("streaming", "steer", (["go", "wait"], [], "end_turn", "one one")),
    ("streaming", "control", (["go"], [], "end_turn", "one")),
    ("streaming", "interrupt", (["go"], [], "interrupted", "one")),
    ("running", "send", (["go", "and?"], ["dig", "look"], "end_turn", "one one one")),
    ("running", "steer", (["go", "wait"], ["dig"], "end_turn", "one one")),
    ("running", "control", (["go"], ["dig", "look"], "end_turn", "one other")),
    ("running", "interrupt", (["go"], ["dig"], "interrupted", "one")),
    ("running", "cancel", (["go"], ["dig", "look"], "end_turn", "one one")),
    ("asked", "send", (["go", "and?"], ["pay 1"], "end_turn", "one one one")),
    ("asked", "steer", (["go", "wait"], [], "end_turn", "one one")),
    ("asked", "control", (["go"], ["pay 1"], "end_turn", "one other")),
    ("asked", "interrupt", (["go"], [], "interrupted", "one")),
    ("asked", "cancel", (["go"], [], "end_turn", "one one")),
    ("asked", "approve", (["go"], ["pay 1"], "end_turn", "one one")),
    ("resting", "send", (["go", "and?"], ["pay 1"], "end_turn", "one one one")),
    ("resting", "steer", (["go", "wait"], [], "end_turn", "one one")),
    ("resting", "control", (["go"], ["pay 1"], "end_turn", "one other")),
    ("resting", "interrupt", (["go"], [], "interrupted", "one")),
    ("resting", "cancel", (["go"], [], "end_turn", "one one")),
    ("resting", "approve", (["go"], ["pay 1"], "end_turn", "one one")),
    ("finished", "send", (["go", "and?"], [], "end_turn", "one one")),
    ("finished", "steer", (["go", "wait"], [], "end_turn", "one one")),
    ("finished", "control", (["go"], [], "end_turn", "one")),
    ("finished", "interrupt", (["go"], [], "end_turn", "one")),
]


@pytest.mark.parametrize(("when", "what", "expected"), HEARD)
async def test_an_input_through_another_process_is_heard_by_the_one_that_drives(
    house: House, when: str, what: str, expected: tuple[list[str], list[str], str, str]
) -> None:
    house.held = {1} if when == "streaming" else ()
    script, reached = PLACES[when]
    here, there = house.process(script, *GO_ON), house.process()
    watch = Watch(here, wait=when != "resting")
    await watch.until(reached)
    if when in {"resting", "finished"}:
        await watch.task
    await until(lambda: when != "running" or house.ran)
    await there.load()
    await SAY[what](there)
    if when in {"asked", "running", "streaming"}:
        await watch.until(NOTICED[what])
    house.release()
    if when == "asked" and what in {"send", "control"}:
        await there.approve(here.waiting[0].id)
    await watch.task

    later = house.process(*GO_ON)
    await house.finish(later)
    asked = [request.model for model in house.models for request in model.requests]
    assert (said(later), house.ran, str(later.result().reason), " ".join(asked)) == expected


LATE = [
    ("send", ["go", "and?"], ["end_turn", "end_turn"]),
    ("steer", ["go", "wait"], ["end_turn", "end_turn"]),
    ("control", ["go"], ["end_turn"]),
    ("interrupt", ["go"], ["end_turn"]),
]


@pytest.mark.parametrize(("what", "read", "reasons"), LATE)
async def test_an_input_that_comes_too_late_for_a_run_is_for_the_next(
    house: House, what: str, read: list[str], reasons: list[str]
) -> None:
    house.held, house.poll = {1}, 3_600.0
    # Through a store of its own: what is written to the same object is known at once.
    here, there = house.process(*GO_ON), House(StoreOver(house.store)).process()
    watch = Watch(here)
    await watch.until(TextDelta)
    await SAY[what](there)
    house.release()
    await watch.task
    assert (said(here), watch.reasons) == (read, reasons)
    await here.run("more")
    assert (said(here), here.result().reason) == ([*read, "more"], "end_turn")
    asked = [request.model for request in house.models[0].requests]
    assert asked[-1] == ("other" if what == "control" else "one")


async def test_a_prompt_of_another_process_after_the_last_step_of_a_run_gets_a_run_at_once(
    house: House,
) -> None:
    house.poll = 3_600.0
    here, there = house.process(*GO_ON), house.process()
    ends = 0
    async for notice in here.stream("go"):
        if isinstance(notice, RunEnded):
            ends += 1
            if ends == 1:
                await there.send("and?")
    assert (said(here), ends) == (["go", "and?"], 2)


# At every moment


async def begun(house: House, moment: int) -> tuple[Session, Watch]:
    wishes = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}))
    here = house.process(wishes, *GO_ON)
    watch = Watch(here, wait=False)
    await turns(moment)
    return here, watch


@pytest.mark.parametrize("make", [MemoryStore, Tape])
@pytest.mark.parametrize("both", [False, True])
async def test_prompts_of_every_moment_get_a_run_each_in_their_order(
    make: Callable[[], Store], *, both: bool
) -> None:
    for moment in MOMENTS[1::2]:
        house = House(make())
        here, watch = await begun(house, moment)
        there = house.process()
        senders = {"one": there, "two": here} if both else {"one": there}
        await asyncio.gather(*[session.send(name, id=name) for name, session in senders.items()])
        await there.send("three", id="three")
        await watch.task

        later = house.process(*GO_ON)
        await house.finish(later)
        entries = await house.entries()
        posted = [getattr(entry.event, "id", "") for entry in entries if isinstance(entry, Posted)]
        posted = [name for name in posted if name]
        opened = [entry for entry in entries if isinstance(entry, RunOpened)]
        assert sorted(posted) == sorted(["go", *senders, "three"]), moment
        assert (said(later), len(opened)) == (posted, len(posted)), moment
        assert house.ran == ["look a", "pay 1", "look b"], moment


@pytest.mark.parametrize("make", [MemoryStore, Tape])
async def test_an_input_that_comes_twice_at_every_moment_is_one(make: Callable[[], Store]) -> None:
    for moment in MOMENTS[1:]:
        house = House(make())
        here, watch = await begun(house, moment)
        there = house.process()
        await asyncio.gather(
            there.send("once", id="x"), here.send("once", id="x"), there.steer("once", id="x")
        )
        await watch.task
        later = house.process(*GO_ON)
        await later.load()
        assert [mail.id for mail in later.queue].count("x") <= 1, moment
        await later.steer("once", id="x")
        await house.finish(later)
        assert said(later) == ["go", "once"], moment
        posted = [entry for entry in await house.entries() if isinstance(entry, Posted)]
        assert [getattr(entry.event, "id", "") for entry in posted].count("x") == 1, moment


@pytest.mark.parametrize("make", [MemoryStore, Tape])
async def test_of_two_answers_to_one_question_one_counts_and_the_other_raises(
    make: Callable[[], Store],
) -> None:
    for moment in MOMENTS[:12]:
        house = House(make())
        resting = await house.process(calls(("pay", {}))).run("go")
        question = resting.waiting[0].id
        one, two = house.process(), house.process()

        async def late(session: Session, moment: int, question: str) -> None:
            await turns(moment)
            await session.approve(question, Deny())

        first, second = await asyncio.gather(
            one.approve(question, Approve(arguments='{"amount": 5}')),
            late(two, moment, question),
            return_exceptions=True,
        )
        told = [type(each) for each in (first, second) if each is not None]
        assert told == [UnknownRequest], moment
        later = house.process(*GO_ON)
        await house.finish(later)
        assert house.ran == ([] if second is None else ["pay 5"]), moment


# What goes wrong


@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("fault", ["before", "after"])
async def test_an_input_that_could_not_be_kept_can_be_sent_again(
    tape: Tape, fault: str, *, driven: bool
) -> None:
    house = House(tape)
    here = house.process(calls(("dig", {})), *GO_ON)
    watch = Watch(here)
    await until(lambda: house.ran)
    session = here if driven else house.process()
    tape.fault = fault
    with pytest.raises(StoreError, match=fault):
        await session.send("hello", id="x")
    tape.fault = ""
    await session.send("hello", id="x")
    house.release()
    await watch.task
    assert (watch.reasons, said(here)) == (["end_turn", "end_turn"], ["go", "hello"])


@pytest.mark.parametrize("driven", [False, True])
async def test_a_post_that_is_given_up_at_any_moment_is_kept_once_or_not_at_all(*, driven: bool) -> None:
    kept = []
    for moment in range(12):
        house = House(Tape())
        here = house.process(calls(("dig", {})), *GO_ON)
        watch = Watch(here)
        await turns(20)
        session = here if driven else house.process()
        sending = asyncio.ensure_future(session.send("hello", id="x"))
        await turns(moment)
        sending.cancel()
        await asyncio.wait({sending})
        kept.append(sum(isinstance(entry, Posted) for entry in await house.entries()) - 1)
        await session.send("hello", id="x")
        house.release()
        await watch.task
        assert said(here) == ["go", "hello"], moment
    assert (kept[0], kept[-1]) == (0, 1)


async def test_an_input_is_given_up_where_others_write_to_the_journal_all_the_time() -> None:
    tape, tries = Tape(), list[str]()

    async def go_on(session: str, _: Sequence[bytes]) -> None:
        tries.append(session)
        await tape.kept.append(session, len(tries) - 1, [encode_entry(TakenOver(at=1.0))])

    tape.meddlers.append(go_on)
    with pytest.raises(StoreError, match="session 's': other processes keep writing to it; try again"):
        await House(tape).process().send("hello")
    assert len(tries) == POST_TRIES


class Counting(StoreOver):
    """Counts what it is asked; with *tells* a refused append says what came first."""

    def __init__(self, *, tells: bool) -> None:
        super().__init__()
        self.tells = tells
        self.asked: list[str] = []

    async def append(
        self,
        session: str,
        expected: int,
        entries: Sequence[bytes],
        about: bytes | None = None,
        incarnation: str = "",
    ) -> str:
        self.asked.append("append")
        try:
            return await super().append(session, expected, entries, about, incarnation)
        except StoreConflict as conflict:
            came = await self.kept.load(session, expected, None, incarnation) if self.tells else ()
            raise StoreConflict(session, expected, conflict.actual, came) from None

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        self.asked.append("load")
        return await super().load(session, start, end, incarnation)


@pytest.mark.parametrize(
    ("tells", "asked"), [(False, ["append", "load", "append"]), (True, ["append", "append"])]
)
async def test_an_input_is_sent_by_what_is_known_and_again_by_what_came_first(
    asked: list[str], *, tells: bool
) -> None:
    store = Counting(tells=tells)
    house = House(store)
    here, there = house.process(calls(("look", {})), *GO_ON), house.process()
    await there.send("go", id="go")
    store.asked.clear()
    await there.send("more", id="more")
    assert store.asked == ["append"]
    await here.resume()
    await here.close()
    store.asked.clear()
    await there.send("and?", id="and?")
    assert store.asked == asked
    assert [mail.id for mail in there.queue] == ["and?"]
    assert said(there) == ["go", "more"]


@pytest.mark.parametrize("tells", [False, True])
@pytest.mark.parametrize("saying", ["send", "steer", "control"])
async def test_an_input_follows_another_process_that_went_back(saying: str, *, tells: bool) -> None:
    house = House(Counting(tells=tells))
    here, there = house.process(*GO_ON), house.process()
    await here.run("first")
    await there.load()
    first = machine_of(there).memory.run
    await here.run("second")
    await here.branch(first)
    await SAY[saying](there)
    assert said(there) == ["first"]
    await here.close()


async def test_an_input_follows_another_process_also_where_a_caller_runs_the_session_meanwhile(
    tape: Tape,
) -> None:
    house = House(tape)
    here, there = house.process(*GO_ON), house.process(*GO_ON)
    await here.run("first")
    await there.load()
    runs = list[asyncio.Task[Result]]()

    async def go_on(session: str, _: Sequence[bytes]) -> None:
        del session
        tape.meddlers.clear()
        await here.run("second")
        runs.append(asyncio.ensure_future(there.run("third")))
        await turns(5)

    tape.meddlers.append(go_on)
    await there.send("and?", id="and?")
    await runs[0]
    assert said(there) == ["first", "second", "and?", "third"]
    await here.close()


async def test_an_input_is_not_decided_by_a_step_that_was_not_written(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(says("done")), house.process()
    steering = list[asyncio.Future[str]]()

    async def fail(_: str, entries: Sequence[bytes]) -> None:
        if not any(b"ModelFinished" in entry for entry in entries):
            return
        if steering:
            tape.meddlers.clear()
            msg = "the disk is full"
            raise StoreError(msg)
        # It waits for the last step of the run, and the step for what another process sends.
        steering.append(asyncio.ensure_future(here.steer("be quick", id="steer")))
        await turns(5)
        tape.meddlers.clear()
        await there.send("more")
        tape.meddlers.append(fail)

    tape.meddlers.append(fail)
    with pytest.raises(StoreError, match="full"):
        await here.run("go")
    await steering[0]
    last = (await house.entries())[-1]
    assert isinstance(last, Posted)
    assert isinstance(last.event, UserSteered)


async def test_an_input_is_refused_once_its_session_is_closed_while_others_write(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(), house.process()
    await here.send("first")

    async def write(*_: object) -> None:
        tape.meddlers.clear()
        await there.send("more")
        if len(there.queue) < 4:
            tape.meddlers.append(write)
        else:
            await here.close()

    tape.meddlers.append(write)
    with pytest.raises(SessionClosed):
        await here.send("late", id="late")
    assert "late" not in [mail.id for mail in there.queue]


@pytest.mark.parametrize("tells", [False, True])
async def test_an_input_that_an_older_state_refuses_is_judged_by_the_newest(
    monkeypatch: pytest.MonkeyPatch, *, tells: bool
) -> None:
    monkeypatch.setattr("turnwheel.effects.validators.MAX_WAITING", 2)
    house = House(Counting(tells=tells))
    here, there = house.process(*GO_ON), house.process()
    for word in ("one", "two"):
        await there.send(word)
    with pytest.raises(QueueFull):
        await there.send("three")
    await here.resume()
    # By what is known there, its queue is full.
    await there.send("four", id="four")
    assert [mail.id for mail in there.queue] == ["four"]
    await here.close()
    with pytest.raises(SessionClosed):
        await here.send("five")


async def test_a_look_into_the_store_that_fails_does_not_end_the_run(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(calls(("dig", {})), *GO_ON), house.process()
    watch = Watch(here)
    await until(lambda: house.ran)
    await there.send("hello")
    tape.fault = "load"
    await turns(50)
    assert here.running
    tape.fault = ""
    await watch.until(InputReceived)
    house.release()
    await watch.task
    assert said(here) == ["go", "hello"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_stream_that_has_ended_leaves_no_task(house: House, *, leaves: bool) -> None:
    here = house.process(says("a b c"))
    async with aclosing(here.stream("go")) as notices:
        async for notice in notices:
            if leaves and isinstance(notice, TextDelta):
                break
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_of_a_store_that_is_no_store_error_is_raised() -> None:
    class Broken(StoreOver):
        async def load(
            self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
        ) -> Entries:
            if start:
                msg = "a bug of the store's"
                raise TypeError(msg)
            return await super().load(session, start, end, incarnation)

    with pytest.raises(TypeError, match="a bug of the store's"):
        await House(Broken()).process(says("hi")).run("go")


@pytest.mark.parametrize(
    ("script", "reached"),
    [(stalls("half"), TextDelta), (calls(("dig", {})), ToolStarted), (calls(("pay", {})), ApprovalRequested)],
    ids=["model", "tool", "person"],
)
async def test_a_process_that_is_overtaken_stops_at_once(house: House, script: Reply, reached: type) -> None:
    here, there = house.process(script), house.process(says("mine"))
    watch = Watch(here)
    await watch.until(reached)
    other = Watch(there, None, wait=False, takeover=True)
    with pytest.raises(StoreConflict, match="another process went on with it"):
        await watch.task
    house.release()
    await other.task
    await house.finish(here)


@pytest.fixture
def deaf() -> House:
    """Processes with one database that hear nothing of each other but by what they write and read."""
    kept = MemoryStore()

    def open_() -> Store:
        store = StoreOver(kept)
        # A lease is lost by a cut network, too, and the process that has it cannot know.
        store.keeps_leases = False
        return store

    house = House(open_)
    house.poll = 3600.0
    return house


async def test_an_answer_is_not_refused_by_a_process_that_was_overtaken_and_does_not_know(
    deaf: House,
) -> None:
    """The question is open, but asked by the process that has the session now."""
    here, there = deaf.process(calls(("send", {}))), deaf.process(calls(("pay", {})), says("mine"))
    watch = Watch(here)
    await watch.until(ToolStarted)
    asks = await there.resume(takeover=True)
    with pytest.raises(StoreConflict):
        await here.approve(asks.waiting[0].id)
    with pytest.raises(StoreConflict):
        await here.cancel(asks.waiting[0].call)
    deaf.release()
    with pytest.raises(StoreConflict):
        await watch.task
    await here.approve(asks.waiting[0].id)
    assert (await there.resume()).text == "mine"


async def test_an_interrupt_is_heard_by_the_process_that_took_the_run_over(deaf: House) -> None:
    here, there = deaf.process(calls(("send", {}))), deaf.process(calls(("linger", {})), says("mine"))
    watch = Watch(here)
    await watch.until(ToolStarted)
    other = Watch(there, None, takeover=True)
    await other.until(ToolStarted)
    await here.interrupt()
    with pytest.raises(StoreConflict):
        await watch.task
    await there.load()
    deaf.release()
    await other.task
    assert other.reasons == ["interrupted"]


@pytest.mark.parametrize("overtaken", [False, True])
async def test_a_look_sees_no_question_that_is_not_stored(tape: Tape, *, overtaken: bool) -> None:
    house, reached, up = House(tape), asyncio.Event(), asyncio.Event()
    here, there = house.process(calls(("pay", {}))), house.process(says("mine"))

    async def cut(_: str, entries: Sequence[bytes]) -> None:
        steps = [entry for entry in map(decode_entry, entries) if isinstance(entry, Stepped)]
        if any(isinstance(step.event, ModelFinished) for step in steps):
            reached.set()
            await up.wait()

    tape.meddlers.append(cut)
    watch = Watch(here, wait=False)
    await reached.wait()
    await turns(20)
    assert asked(here) == []
    if overtaken:
        tape.meddlers.clear()
        await Watch(there, None, wait=False, takeover=True).task
        up.set()
        with pytest.raises(StoreConflict):
            await watch.task
        await here.load()
    else:
        up.set()
        await watch.task
    assert asked(here) == ([] if overtaken else ['pay {"amount": 1}'])


async def test_a_journal_that_cannot_be_read_further_is_refused_each_time(tape: Tape) -> None:
    house = House(tape)
    here, there = house.process(says("hi")), house.process()
    await here.run("go")
    await there.load()
    await here.send("hello")
    await tape.kept.append("s", len(await house.entries()), [b"{"])
    for _ in range(3):
        with pytest.raises(JournalError, match="entry 5 of session 's' cannot be read"):
            await there.load()
    assert [mail.text for mail in there.queue] == ["hello"]


# Who runs it


async def test_a_clock_that_is_ahead_delays_no_answer(house: House) -> None:
    house.clock.move(3_600.0)
    await house.process().send("soon", sender="a")
    house.clock.move(-3_600.0)
    here = house.process(says("now"), policy=Policy(coalesce=2.0))
    assert (await here.resume()).text == "now"
    assert house.clock.slept == []


async def test_an_interrupt_holds_from_the_first_moment_of_a_run_on() -> None:
    for moment in range(1, 12):
        house = House(Tape())
        here = house.process(stalls("once"))
        running = asyncio.ensure_future(here.run("go"))
        await turns(moment)
        await here.interrupt()
        assert (await running).reason == "interrupted", moment


async def test_a_sender_who_says_more_within_the_window_is_waited_for_again() -> None:
    house, clock = House(MemoryStore()), ManualClock()
    here = house.process(*GO_ON, policy=Policy(coalesce=2.0), clock=clock)
    await here.send("1", sender="a")
    running = asyncio.ensure_future(here.resume())
    for text, sender in (("2", "a"), ("3", "")):
        await turns(5)
        clock.move(1.5)
        await here.send(text, sender=sender)
    clock.move(0.25)
    await turns(5)
    assert not here.running
    clock.move(0.25)
    await running
    assert said(here) == ["1\n2", "3"]


async def test_a_sender_without_end_keeps_no_other_waiting() -> None:
    house, clock = House(MemoryStore()), ManualClock()
    here = house.process(*GO_ON, policy=Policy(coalesce=2.0, coalesce_longest=4.5), clock=clock)
    await here.send("0", sender="a")
    running = asyncio.ensure_future(here.resume())
    for second in range(1, 9):
        await turns(30)
        clock.move(1.0)
        await here.send(str(second), sender="a")
    assert said(here) == ["0\n1\n2\n3\n4"]
    await here.send("other", sender="b")
    await here.send("9", sender="a")
    clock.move(10.0)
    await running
    assert said(here)[1:] == ["5\n6\n7\n8", "other", "9"]


@pytest.mark.parametrize(("behind", "answered"), [("", 0), ("b", 1)])
async def test_a_prompt_that_nothing_can_be_added_to_is_answered_at_once(behind: str, answered: int) -> None:
    house, clock = House(MemoryStore()), ManualClock()
    policy = Policy(coalesce=2.0, coalesce_longest=5.0)
    here = house.process(says("one"), says("two"), policy=policy, clock=clock)
    await here.send("1", sender="a")
    if behind:
        await here.send("2", sender=behind)
    running = asyncio.ensure_future(here.resume())
    await turns(5)
    assert len(said(here)) == answered
    clock.move(2.0)
    await running


async def test_a_stream_that_was_dropped_is_waited_for_however_long_its_work_takes_to_stop(
    house: House,
) -> None:
    here = house.process(calls(("linger", {})), *GO_ON)
    async for notice in here.stream("go"):
        if isinstance(notice, ToolStarted):
            break
    sending = asyncio.ensure_future(here.send("more"))
    house.release()
    assert (await here.resume()).text == "answer 0"
    await sending
    assert (said(here), here.result().text) == (["go", "more"], "answer 1")


# Letting go of it


@pytest.mark.parametrize(
    ("script", "how", "reason"),
    [
        (says("hi"), "finish", "end_turn"),
        (stalls("hi"), "interrupt", "interrupted"),
        (stalls("hi"), "leave", "unfinished"),
        (calls(("pay", {})), "finish", "unfinished"),
    ],
)
async def test_the_end_of_a_session_is_reported_once_with_its_reason(
    house: House, script: Reply, how: str, reason: str
) -> None:
    here = house.process(script)
    watch = Watch(here, wait=False)
    if how != "finish":
        await watch.until(TextDelta)
    if how == "interrupt":
        await here.interrupt()
    if how != "leave":
        await watch.task
    await asyncio.gather(here.close(), here.close())
    await here.close()
    await watch.task
    assert house.ended == [("s", reason)]


async def test_a_session_that_never_ran_has_no_end(house: House) -> None:
    async with house.process() as there:
        await there.send("hello")
    assert house.ended == []


async def test_what_is_closed_says_so(house: House) -> None:
    here = house.process()
    await here.close()
    for what in ("send", "steer", "control", "interrupt"):
        with pytest.raises(SessionClosed, match="session 's' is closed"):
            await SAY[what](here)
    with pytest.raises(SessionClosed):
        await here.load()
    with pytest.raises(SessionClosed):
        await here.run("go")


@pytest.mark.parametrize("at", [TextDelta, RunEnded])
async def test_the_reader_of_a_stream_may_close_the_session(house: House, at: type) -> None:
    here = house.process(says("a b c"))
    async for notice in here.stream("go"):
        if isinstance(notice, at):
            await here.close()
    assert here.unfinished is (at is TextDelta)


async def test_letting_go_that_is_given_up_at_any_moment_still_lets_go() -> None:
    for moment in range(1, 60, 7):
        house = House(MemoryStore())
        here = house.process(calls(("linger", {})))
        watched, watch = here.subscribe(), Watch(here)
        await watch.until(ToolStarted)
        await turns(5)
        closing = asyncio.ensure_future(here.close())
        await turns(moment)
        closing.cancel()
        await asyncio.wait({closing})
        await here.close()
        await watch.task
        assert house.ended == [("s", "unfinished")], moment
        assert [notice async for notice in watched] == watch.notices


async def test_an_agent_holds_no_session_whose_run_has_ended(one: House) -> None:
    agent = one.agent(says("one"), says("two"))
    streamed, started = agent.session("a"), agent.session("b")
    await streamed.run("go")
    async with started.start("go") as handle:
        await handle.wait()
    held = [weakref.ref(streamed), weakref.ref(started)]
    del streamed, started, handle
    gc.collect()
    assert [ref() for ref in held] == [None, None]
