"""Several processes with one session: what is said through any of them, at any moment, counts once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from turnwheel import (
    Agent,
    Approve,
    Deny,
    MemoryStore,
    Policy,
    Session,
    SQLiteStore,
    tool,
)
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import (
    JournalError,
    SessionClosed,
    StoreConflict,
    StoreError,
    UnknownRequest,
)
from turnwheel.effects.events import (
    ControlReceived,
    ModelFailed,
    ModelFinished,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import (
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    InputReceived,
    InterruptRequested,
    Notice,
    RunEnded,
    SettingChanged,
    TextDelta,
    ToolStarted,
)
from turnwheel.effects.records import SetModel
from turnwheel.effects.requests import CallModel, RunTool, SetTimer
from turnwheel.engine.agent import sleep
from turnwheel.engine.driver import Performers
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import (
    Entry,
    Posted,
    RunOpened,
    TakenOver,
)
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.open_work import calls_of
from turnwheel.engine.session.environment import Environment
from turnwheel.engine.session.runner import POST_TRIES
from turnwheel.performers import ToolRunner
from turnwheel.performers.base import Clock, PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import AutoClock, ManualClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)
from turnwheel.testing.stores import StoreOver

MOMENTS = range(70)
"""Turns of the event loop that the longest run here takes, and some more."""

GO_ON = [says(f"answer {number}") for number in range(9)]
"""What a model says when a run is gone on with."""


async def turns(number: int) -> None:
    """Let others run for *number* turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something *holds*."""
    async with asyncio.timeout(10):
        while not holds():
            await turns(1)


class Slow(StoreOver):
    """A store that keeps all in memory and takes a turn of the event loop before and after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries*; with the *fault* ``before`` they are not kept, with ``after`` they are."""
        await asyncio.sleep(0)
        self._fail("before")
        length = await super().append(session, expected, entries, about)
        await asyncio.sleep(0)
        self._fail("after")
        return length

    def _fail(self, when: str) -> None:
        if self.fault == when:
            msg = f"failed {when} it was written"
            raise StoreError(msg)

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from *start* on; fails with the *fault* ``load``."""
        await asyncio.sleep(0)
        self._fail("load")
        entries = await super().load(session, start)
        await asyncio.sleep(0)
        return entries


class Place:
    """
    A session called ``s`` as several processes have it, and what tools did there.

    `dig` and the answer number *held* wait for `release`; *poll* is how often each looks what others said.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._open = store
        self._ids = count(1)
        self._gate = asyncio.Event()
        self.clock = AutoClock(100.0)
        self.ran: list[str] = []
        self.models: list[ScriptedModel] = []
        self.held = 0
        self.poll = 0.0
        self.ended: list[tuple[str, str]] = []

    @classmethod
    def over(cls, store: Store) -> Place:
        """A place whose processes share *store* itself."""
        return cls(lambda: store)

    def release(self) -> None:
        """Let whatever waits go on, from now on."""
        self._gate.set()

    def process(
        self,
        *replies: Reply,
        policy: Policy = Policy(),  # noqa: B008  # a frozen value
        clock: Clock | None = None,
    ) -> Session:
        """The session in one more process, whose model says *replies*."""

        @tool(side_effect="read_only")
        async def look(at: str = "") -> str:
            """Look at something."""
            self.ran.append(f"look {at}".strip())
            return "seen"

        @tool(side_effect="read_only")
        async def dig() -> str:
            """Take long."""
            self.ran.append("dig")
            await self._gate.wait()
            return "found"

        @tool(side_effect="read_only")
        async def linger() -> str:
            """Take long, also to stop."""
            try:
                return await dig.function()
            finally:
                await turns(50)

        @tool
        async def pay(amount: int = 1) -> str:
            """Pay."""
            self.ran.append(f"pay {amount}")
            return "paid"

        model, tools = ScriptedModel(*replies), (look, dig, linger, pay)
        self.models.append(model)

        async def answer(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            answered = await model(request, scene)
            if len(model.requests) == self.held:
                await self._gate.wait()
            return answered

        performers: Performers = {CallModel: answer, RunTool: ToolRunner(tools), SetTimer: sleep}
        agent = Agent(model="one", models=("other",), tools=tools, policy=policy, performers=performers)
        setting = Environment(
            config=agent.config,
            performers=performers,
            clock=clock or self.clock,
            new_id=lambda: f"id{next(self._ids)}",
            ended=self._ended,
            poll=self.poll,
        )
        return Session("s", setting, self._open())

    async def _ended(self, session: str, reason: str) -> None:
        self.ended.append((session, reason))

    async def entries(self) -> list[Entry]:
        """The journal."""
        return [decode_entry(data) for data in await self._open().load("s")]

    async def finish(self, session: Session) -> None:
        """Go on with *session*, saying yes to everything, until nothing is left to do."""
        await session.load()
        async with asyncio.timeout(10):
            while session.unfinished or session.queue:
                result = await session.resume()
                for question in result.waiting:
                    await session.approve(question.id)
        assert session.machine == fold(await self._open().load("s"), "s").machine


class Watch:
    """Drives *session* in the background and keeps what it says."""

    def __init__(self, session: Session, prompt: str | None = "go", *, wait: bool = True) -> None:
        self.notices: list[Notice] = []
        self.task = asyncio.ensure_future(self._watch(session, prompt, wait=wait))

    async def _watch(self, session: Session, prompt: str | None, *, wait: bool) -> None:
        async with aclosing(session.stream(prompt, id=prompt, wait=wait)) as notices:
            async for notice in notices:
                self.notices.append(notice)

    async def until(self, kind: type) -> None:
        """Wait for a notice of *kind*."""
        await until(lambda: self.task.done() or any(isinstance(notice, kind) for notice in self.notices))

    @property
    def reasons(self) -> list[str]:
        """Why its runs ended."""
        return [str(notice.reason) for notice in self.notices if isinstance(notice, RunEnded)]


def said(session: Session) -> list[str]:
    """What people said, in order."""
    return [message.text for message in session.history if message.role is Role.USER]


@pytest.fixture(autouse=True)
async def _quiet() -> AsyncIterator[None]:
    """Nothing is left at work, and no error is left that nobody was told of."""
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    gc.freeze()  # what was there before needs no look
    yield
    gc.collect()
    gc.unfreeze()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


@pytest.fixture(params=["memory", "slow", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A place with each kind of store; processes that share a file each open it for themselves."""
    if request.param != "sqlite":
        yield Place.over(MemoryStore() if request.param == "memory" else Slow())
        return
    opened: list[SQLiteStore] = []

    def open_() -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "s.db", "process"))
        return opened[-1]

    yield Place(open_)
    for each in opened:
        await each.close()


@pytest.fixture
def slow() -> Slow:
    """A store that takes its time."""
    return Slow()


# Through one that does not drive

SAY: dict[str, Callable[[Session], Awaitable[object]]] = {
    "send": lambda session: session.send("and?", id="and?"),
    "steer": lambda session: session.steer("wait", id="wait"),
    "control": lambda session: session.control(SetModel(model="other")),
    "interrupt": lambda session: session.interrupt(),
    "cancel": lambda session: session.cancel(open_calls(session)[0]),
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

SCRIPTS = {
    "streaming": (says("half of it"), *GO_ON),
    "running": (calls(("dig", {}), ("look", {})), *GO_ON),
    "asked": (calls(("pay", {})), *GO_ON),
    "resting": (calls(("pay", {})), *GO_ON),
    "finished": (says("all of it"), *GO_ON),
}
REACHED = {
    "streaming": TextDelta,
    "running": ToolStarted,
    "asked": ApprovalRequested,
    "resting": ApprovalRequested,
    "finished": RunEnded,
}

HEARD = [
    # When and what is said; what was read, what ran, why the last run ended, and which models were asked.
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


def open_calls(session: Session) -> tuple[str, ...]:
    """The calls of *session* that are not over."""
    return () if session.machine is None else calls_of(session.machine)


@pytest.mark.parametrize(("when", "what", "expected"), HEARD)
async def test_what_is_said_elsewhere_is_heard_by_whoever_drives(
    place: Place, when: str, what: str, expected: tuple[list[str], list[str], str, str]
) -> None:
    """While a model answers, a tool runs or a question waits; and otherwise by whoever goes on."""
    place.held = 1 if when == "streaming" else 0
    here, there = place.process(*SCRIPTS[when]), place.process()
    watch = Watch(here, wait=when != "resting")
    await watch.until(REACHED[when])
    if when in {"resting", "finished"}:
        await watch.task
    await until(lambda: when != "running" or place.ran)
    await there.load()
    await SAY[what](there)
    if when in {"asked", "running", "streaming"}:
        await watch.until(NOTICED[what])
    place.release()
    if when == "asked" and what in {"send", "control"}:
        await there.approve(here.waiting[0].id)
    await watch.task

    later = place.process(*GO_ON)
    await place.finish(later)
    asked = [request.model for model in place.models for request in model.requests]
    assert (said(later), place.ran, str(later.result().reason), " ".join(asked)) == expected


LATE = [
    ("send", ["go", "and?"], ["end_turn", "end_turn"]),
    ("steer", ["go", "wait"], ["end_turn", "end_turn"]),
    ("control", ["go"], ["end_turn"]),
    ("interrupt", ["go"], ["end_turn"]),
]


@pytest.mark.parametrize(("what", "read", "reasons"), LATE)
async def test_what_was_heard_too_late_for_a_run_is_for_the_next(
    place: Place, what: str, read: list[str], reasons: list[str]
) -> None:
    """What is to be answered gets a run of its own; nobody is stopped who was not meant."""
    place.held, place.poll = 1, 3_600.0
    here, there = place.process(*GO_ON), place.process()
    watch = Watch(here)
    await watch.until(TextDelta)
    await SAY[what](there)
    place.release()
    await watch.task
    assert (said(here), watch.reasons) == (read, reasons)
    await here.run("more")
    assert (said(here), here.result().reason) == ([*read, "more"], "end_turn")
    asked = [request.model for request in place.models[0].requests]
    assert asked[-1] == ("other" if what == "control" else "one")


# At every moment


async def begun(place: Place, moment: int) -> tuple[Session, Watch]:
    """A process that has driven a run with a question for *moment* turns."""
    wishes = calls(("look", {"at": "a"}), ("pay", {}), ("look", {"at": "b"}))
    here = place.process(wishes, *GO_ON)
    watch = Watch(here, wait=False)
    await turns(moment)
    return here, watch


@pytest.mark.parametrize("make", [MemoryStore, Slow])
@pytest.mark.parametrize("both", [False, True])
async def test_prompts_of_every_moment_get_a_run_each_in_their_order(
    make: Callable[[], Store], *, both: bool
) -> None:
    """Whether one or both processes send them while one drives, opens, rests, or is done."""
    for moment in MOMENTS[1:]:
        place = Place.over(make())
        here, watch = await begun(place, moment)
        there = place.process()
        senders = {"one": there, "two": here} if both else {"one": there}
        await asyncio.gather(*[session.send(name, id=name) for name, session in senders.items()])
        await there.send("three", id="three")
        await watch.task

        later = place.process(*GO_ON)
        await place.finish(later)
        entries = await place.entries()
        posted = [getattr(entry.event, "id", "") for entry in entries if isinstance(entry, Posted)]
        posted = [name for name in posted if name]
        opened = [entry for entry in entries if isinstance(entry, RunOpened)]
        assert sorted(posted) == sorted(["go", *senders, "three"]), moment
        assert (said(later), len(opened)) == (posted, len(posted)), moment
        assert place.ran == ["look a", "pay 1", "look b"], moment


@pytest.mark.parametrize("make", [MemoryStore, Slow])
async def test_an_input_that_comes_twice_at_every_moment_is_one(make: Callable[[], Store]) -> None:
    """Through two processes at once, or again later, or as a prompt here and a steer there."""
    for moment in MOMENTS[1:]:
        place = Place.over(make())
        here, watch = await begun(place, moment)
        there = place.process()
        await asyncio.gather(
            there.send("once", id="x"), here.send("once", id="x"), there.steer("once", id="x")
        )
        await watch.task
        later = place.process(*GO_ON)
        await later.load()
        assert [mail.id for mail in later.queue].count("x") <= 1, moment
        await later.steer("once", id="x")
        await place.finish(later)
        assert said(later) == ["go", "once"], moment
        posted = [entry for entry in await place.entries() if isinstance(entry, Posted)]
        assert [getattr(entry.event, "id", "") for entry in posted].count("x") == 1, moment


@pytest.mark.parametrize("make", [MemoryStore, Slow])
async def test_of_two_answers_to_one_question_one_counts_and_the_other_is_told(
    make: Callable[[], Store],
) -> None:
    """However close they come, and whether or not somebody drives."""
    for moment in MOMENTS[:12]:
        place = Place.over(make())
        resting = await place.process(calls(("pay", {}))).run("go")
        question = resting.waiting[0].id
        one, two = place.process(), place.process()

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
        later = place.process(*GO_ON)
        await place.finish(later)
        assert place.ran == ([] if second is None else ["pay 5"]), moment


async def test_a_session_can_be_gone_on_with_from_every_point_of_its_journal() -> None:
    """Whenever its process was killed, also right after something was said: nothing is lost or read twice."""
    store = MemoryStore()
    place = Place.over(store)
    place.held = 1
    here, there = place.process(calls(("look", {}), ("pay", {}), text="well"), *GO_ON), place.process()
    watch = Watch(here)
    await watch.until(TextDelta)
    await there.send("one", id="one")
    await there.steer("slowly", Steering.WHEN_DONE, id="slowly")
    await there.control(SetModel(model="other"))
    place.release()
    await watch.until(ApprovalRequested)
    await there.approve(here.waiting[0].id)
    await there.send("two", id="two")
    await watch.task
    journal = await store.load("s")

    for length in range(1, len(journal)):
        cut = MemoryStore()
        await cut.append("s", 0, journal[:length])
        again = Place.over(cut)
        later = again.process(calls(("pay", {})), *GO_ON)
        await again.finish(later)
        inputs = [entry.event for entry in await again.entries() if isinstance(entry, Posted)]
        texts = [event.text for event in inputs if isinstance(event, UserSent | UserSteered)]
        assert sorted(said(later)) == sorted(texts), length
        changed = any(isinstance(event, ControlReceived) for event in inputs)
        assert later.machine is not None
        assert later.machine.memory.model == ("other" if changed else "one"), length


# What goes wrong


@pytest.mark.parametrize("driven", [False, True])
@pytest.mark.parametrize("fault", ["before", "after"])
async def test_what_could_not_be_kept_is_told_and_can_be_said_again(
    slow: Slow, fault: str, *, driven: bool
) -> None:
    """Under its own id it is one input, also where it had been kept and only the answer was lost."""
    place = Place.over(slow)
    here = place.process(calls(("dig", {})), *GO_ON)
    watch = Watch(here)
    await until(lambda: place.ran)
    session = here if driven else place.process()
    slow.fault = fault
    with pytest.raises(StoreError, match=fault):
        await session.send("hello", id="x")
    slow.fault = ""
    await session.send("hello", id="x")
    place.release()
    await watch.task
    assert (watch.reasons, said(here)) == (["end_turn", "end_turn"], ["go", "hello"])


@pytest.mark.parametrize("driven", [False, True])
async def test_a_post_that_is_given_up_at_any_moment_is_kept_once_or_not_at_all(*, driven: bool) -> None:
    """And so it can be said again."""
    kept = []
    for moment in range(12):
        place = Place.over(Slow())
        here = place.process(calls(("dig", {})), *GO_ON)
        watch = Watch(here)
        await turns(20)
        session = here if driven else place.process()
        sending = asyncio.ensure_future(session.send("hello", id="x"))
        await turns(moment)
        sending.cancel()
        await asyncio.wait({sending})
        kept.append(sum(isinstance(entry, Posted) for entry in await place.entries()) - 1)
        await session.send("hello", id="x")
        place.release()
        await watch.task
        assert said(here) == ["go", "hello"], moment
    assert (kept[0], kept[-1]) == (0, 1)


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_who_leaves_at_any_moment_leaves_a_session_to_go_on_with(how: str) -> None:
    """While it opens, runs, or goes from one run to the next; and no task is left."""
    told = set()
    for moment in MOMENTS:
        place = Place.over(Slow())
        await place.process().send("first", id="first", sender="her")
        here = place.process(*GO_ON, policy=Policy(coalesce=1.0))
        before = asyncio.all_tasks()
        running = asyncio.ensure_future(here.run("go", id="go"))
        await turns(moment)
        running.cancel() if how == "cancel" else await here.close()
        await asyncio.wait({running})
        told.add("" if running.cancelled() or running.exception() is None else repr(running.exception()))
        assert asyncio.all_tasks() == before, moment

        later = place.process(*GO_ON)
        await later.send("go", id="go")
        await place.finish(later)
        assert said(later) == ["first", "go"], moment
    assert told <= {"", "SessionClosed('s')"}


async def test_a_journal_that_is_written_to_all_the_time_is_said_to_be() -> None:
    """Whoever posts does not try for ever."""

    class Busy(Slow):
        """Somebody else goes on with the session whenever anybody writes."""

        tries = 0

        async def append(
            self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
        ) -> int:
            """Come second."""
            self.tries += 1
            await self.kept.append(session, expected, [encode_entry(TakenOver(at=1.0))])
            return await self.kept.append(session, expected, entries, about)

    busy = Busy()
    with pytest.raises(StoreError, match="session 's': other processes keep writing to it; try again"):
        await Place.over(busy).process().send("hello")
    assert busy.tries == POST_TRIES


async def test_a_look_into_the_store_that_fails_does_not_end_the_run(slow: Slow) -> None:
    """What others said meanwhile is seen when it works again."""
    place = Place.over(slow)
    here, there = place.process(calls(("dig", {})), *GO_ON), place.process()
    watch = Watch(here)
    await until(lambda: place.ran)
    await there.send("hello")
    slow.fault = "load"
    await turns(50)
    assert here.running
    slow.fault = ""
    await watch.until(InputReceived)
    place.release()
    await watch.task
    assert said(here) == ["go", "hello"]


@pytest.mark.parametrize("leaves", [False, True])
async def test_nobody_looks_into_the_store_any_more_when_a_stream_has_ended(
    place: Place, *, leaves: bool
) -> None:
    """By itself, or because its reader has left: by then all work has ended."""
    here = place.process(says("a b c"))
    async with aclosing(here.stream("go")) as notices:
        async for notice in notices:
            if leaves and isinstance(notice, TextDelta):
                break
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_store_that_is_broken_is_not_passed_over() -> None:
    """An error that is none of a store's is raised, at the latest when the run is over."""

    class Broken(Slow):
        """It breaks once something is there."""

        async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
            """Break, where there is anything."""
            if start:
                msg = "a bug of the store's"
                raise TypeError(msg)
            return await super().load(session, start)

    broken = Broken()
    with pytest.raises(TypeError, match="a bug of the store's"):
        await Place.over(broken).process(says("hi")).run("go")


@pytest.mark.parametrize(
    ("script", "reached"),
    [(stalls("half"), TextDelta), (calls(("dig", {})), ToolStarted), (calls(("pay", {})), ApprovalRequested)],
    ids=["model", "tool", "person"],
)
async def test_whoever_is_overtaken_is_told_at_once(place: Place, script: Reply, reached: type) -> None:
    """Also while a model, a tool or a person takes their time; and the work is stopped."""
    here, there = place.process(script), place.process(says("mine"))
    watch = Watch(here)
    await watch.until(reached)
    other = Watch(there, None, wait=False)
    with pytest.raises(StoreConflict, match="another process went on with it"):
        await watch.task
    place.release()
    await other.task
    await place.finish(here)


async def test_what_is_said_through_one_that_was_overtaken_is_refused_or_kept() -> None:
    """Never is it lost in between, nor written behind the back of whoever goes on."""
    told = set()
    for moment in range(12):
        place = Place.over(Slow())
        here, there = place.process(stalls("half")), place.process(says("mine"), says("yours"))
        watch = Watch(here)
        await watch.until(TextDelta)
        going_on = Watch(there, None)
        await turns(moment)
        sending = asyncio.ensure_future(here.send("hello"))
        await asyncio.wait({sending})
        error = sending.exception()
        await asyncio.wait({watch.task, going_on.task})
        assert isinstance(watch.task.exception(), StoreConflict), moment
        await place.finish(place.process(*GO_ON))
        later = await place.process().load()
        assert said(later) == ["go", *["hello"] * (error is None)], moment
        told.add(type(error))
    assert told == {type(None), StoreConflict}


async def test_a_journal_that_cannot_be_read_further_is_refused_each_time(slow: Slow) -> None:
    """What was read before it counts once, however often somebody tries."""
    place = Place.over(slow)
    here, there = place.process(says("hi")), place.process()
    await here.run("go")
    await there.load()
    await here.send("hello")
    await slow.kept.append("s", len(await place.entries()), [b"{"])
    for _ in range(3):
        with pytest.raises(JournalError, match="entry 5 of session 's' cannot be read"):
            await there.load()
    assert [mail.text for mail in there.queue] == ["hello"]


async def test_what_is_said_to_a_session_that_was_deleted_begins_it_again(slow: Slow) -> None:
    """A process that still knew the old one reads that it is gone."""
    place = Place.over(slow)
    here, there = place.process(says("hi")), place.process(says("new"))
    await here.run("go")
    await there.load()
    await slow.delete("s")
    await there.send("hello")
    assert (await there.resume()).text == "new"
    assert said(there) == ["hello"]


# Who runs it


async def test_a_run_gives_the_result_of_its_own_prompt(place: Place) -> None:
    """Whatever waited before, and whatever comes while it is under way."""
    there = place.process()
    await there.send("before", sender="them")
    here = place.process(says("to before"), says("to mine"), says("to after"), says("to others"))
    place.held = 2
    running = asyncio.ensure_future(here.run("mine"))
    await until(lambda: len(place.models[1].requests) == 2)
    await there.send("after")
    await here.send("others")
    place.release()
    assert (await running).text == "to mine"
    assert said(here) == ["before", "mine", "after", "others"]
    assert here.result().text == "to others"


async def test_prompts_of_one_sender_within_the_window_become_one(place: Place) -> None:
    """Each gives its sender so much time again; others wait for theirs, and nobody's never comes."""
    here = place.process(*GO_ON, policy=Policy(coalesce=2.0))
    for sender, text in (("a", "1"), ("b", "2"), ("a", "3"), ("", "4"), ("", "5")):
        await here.send(text, sender=sender)
        place.clock.move(1.0)
    await here.resume()
    assert said(here) == ["1\n3", "2", "4", "5"]
    assert place.clock.slept == []
    await here.send("6", sender="b")
    await here.send("7")
    await here.resume()
    assert said(here)[4:] == ["6", "7"]
    assert place.clock.slept == [2.0]


async def test_a_clock_that_is_ahead_holds_up_nobody(place: Place) -> None:
    """What another process says it will have heard in an hour is answered now."""
    place.clock.move(3_600.0)
    await place.process().send("soon", sender="a")
    place.clock.move(-3_600.0)
    here = place.process(says("now"), policy=Policy(coalesce=2.0))
    assert (await here.resume()).text == "now"
    assert place.clock.slept == []


async def test_an_interrupt_holds_from_the_first_moment_of_a_run_on() -> None:
    """Also while the store takes its time to open it."""
    for moment in range(1, 12):
        place = Place.over(Slow())
        here = place.process(stalls("once"))
        running = asyncio.ensure_future(here.run("go"))
        await turns(moment)
        await here.interrupt()
        assert (await running).reason == "interrupted", moment


async def test_whoever_says_more_within_the_window_is_waited_for_again() -> None:
    """From the last thing said; what others say meanwhile comes behind it."""
    place, clock = Place.over(MemoryStore()), ManualClock()
    here = place.process(*GO_ON, policy=Policy(coalesce=2.0), clock=clock)
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


async def test_a_stream_that_was_dropped_is_waited_for_however_long_its_work_takes_to_stop(
    place: Place,
) -> None:
    """Whoever goes on next does not find the session busy, and meanwhile it can be spoken to."""
    here = place.process(calls(("linger", {})), *GO_ON)
    async for notice in here.stream("go"):
        if isinstance(notice, ToolStarted):
            break
    sending = asyncio.ensure_future(here.send("more"))
    place.release()
    assert (await here.resume()).text == "answer 1"
    await sending
    assert said(here) == ["go", "more"]


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
async def test_who_wants_to_know_is_told_once_why_a_session_ended(
    place: Place, script: Reply, how: str, reason: str
) -> None:
    """However often it is closed; a run that was left, or that rests, is one that is not over."""
    here = place.process(script)
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
    assert place.ended == [("s", reason)]


async def test_a_session_that_nobody_ran_ends_untold(place: Place) -> None:
    """Who only looked, or said something, began nothing."""
    async with place.process() as there:
        await there.send("hello")
    assert place.ended == []


async def test_what_is_closed_says_so(place: Place) -> None:
    """Whatever it is asked to do."""
    here = place.process()
    await here.close()
    for what in ("send", "steer", "control", "interrupt"):
        with pytest.raises(SessionClosed, match="session 's' is closed"):
            await SAY[what](here)
    with pytest.raises(SessionClosed):
        await here.load()
    with pytest.raises(SessionClosed):
        await here.run("go")


@pytest.mark.parametrize("at", [TextDelta, RunEnded])
async def test_whoever_reads_a_stream_may_close_the_session(place: Place, at: type) -> None:
    """The stream ends there."""
    here = place.process(says("a b c"))
    async for notice in here.stream("go"):
        if isinstance(notice, at):
            await here.close()
    assert here.unfinished is (at is TextDelta)


async def test_letting_go_that_is_given_up_at_any_moment_still_lets_go() -> None:
    """Whoever watches and whoever wants to know is told, once; and the work stops."""
    for moment in range(1, 60, 7):
        place = Place.over(MemoryStore())
        here = place.process(calls(("linger", {})))
        watched, watch = here.subscribe(), Watch(here)
        await watch.until(ToolStarted)
        await turns(5)
        closing = asyncio.ensure_future(here.close())
        await turns(moment)
        closing.cancel()
        await asyncio.wait({closing})
        await here.close()
        await watch.task
        assert place.ended == [("s", "unfinished")], moment
        assert [notice async for notice in watched] == watch.notices
