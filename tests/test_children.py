"""Children at work: asked about, spoken to, stopped, paid for, and gone on with after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Compaction,
    Concurrency,
    Deny,
    DoneReason,
    Limits,
    MemoryStore,
    ModelSpec,
    PermissionMode,
    Policy,
    Price,
    Result,
    Rule,
    Session,
    SetMode,
    SetModel,
    SQLiteStore,
    Steering,
    tool,
)
from turnwheel.effects.errors import (
    ConfigError,
    StoreConflict,
    StoreError,
    UnknownCall,
    UnknownRequest,
    UnknownSession,
)
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    Decision,
    Event,
    ModelFailed,
    ModelFinished,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import Outcome, Role, ToolResult
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    Notice,
    RunEnded,
    SettingChanged,
    TextDelta,
)
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    ReadInstructions,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.agent import Approver, sleep
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import Entry, Stepped
from turnwheel.engine.journal.fold import fold
from turnwheel.engine.open_work import ChildLink
from turnwheel.engine.session.children import Children, ChildRunner, child_config, refuse
from turnwheel.engine.session.environment import Environment
from turnwheel.performers.base import PerformContext
from turnwheel.performers.instructions import InstructionReader
from turnwheel.performers.stores.base import Store
from turnwheel.performers.tools import ToolRunner
from turnwheel.states.rules.history_check import history_faults
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)
from turnwheel.testing.stores import StoreOver

SIDE_BY_SIDE = Policy(concurrency=Concurrency.PARALLEL_READS)

READERS = (ChildSpec(name="asker", tools=("peek",)), ChildSpec(name="digger", tools=("dig", "peek")))
"""Children that only read, so that they may be at work at once; one of the reads is asked about."""

ASKS: dict[str, Any] = {"asker": (calls(("peek", {})), says("I peeked"))}

PAYER = ChildSpec(name="payer", tools=("look", "pay"))
SCOUT = ChildSpec(name="scout")
DIGGER = ChildSpec(name="digger")


def hires(*names: str) -> Reply:
    """An answer that gives a task to each of the children *names*."""
    return calls(*[("run_agent", {"agent": name, "prompt": f"{name}, go"}) for name in names])


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something *holds*."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  # it is turns of the event loop that are waited for
            await asyncio.sleep(0)


class Cast:
    """Performs `CallModel`: each agent says its own lines, the parent those of the empty name."""

    def __init__(self, lines: dict[str, Sequence[Reply]]) -> None:
        self.models = {name: ScriptedModel(*replies) for name, replies in lines.items()}

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """The next line of whoever is asked."""
        return await self.models[scene.config.agent](request, scene)

    def read(self, name: str) -> list[str]:
        """What people had said to *name* when it was asked last."""
        return [message.text for message in self.models[name].seen[-1] if message.role is Role.USER]


class House:
    """
    A session called ``s`` with children, as several processes have it, and what tools did there.

    `dig` waits for `release`; *poll* is how often each looks what others said.
    """

    def __init__(self, store: Callable[[], Store | None]) -> None:
        self._open = store
        self._reader: Store | None = None
        self._ids = count(1)
        self._gate = asyncio.Event()
        self.clock = AutoClock(100.0)
        self.poll = 0.0
        self.ran: list[str] = []
        self.cast = Cast({})

    @classmethod
    def over(cls, store: Store) -> House:
        """A house whose processes share *store* itself."""
        return cls(lambda: store)

    def release(self) -> None:
        """Let `dig` end, from now on."""
        self._gate.set()

    def process(
        self,
        *replies: Reply,
        children: Sequence[ChildSpec] = (PAYER, SCOUT, DIGGER),
        performers: dict[type, Any] | None = None,
        session: str = "s",
        **settings: Any,
    ) -> Session:
        """
        The session in one more process, whose model says *replies*.

        What its children say are settings with their names.
        """

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

        @tool(side_effect="read_only", approval="always")
        async def peek(at: str = "") -> str:
            """Look at what is private."""
            self.ran.append(f"peek {at}".strip())
            return "seen"

        @tool
        async def pay(amount: int = 1) -> str:
            """Pay."""
            self.ran.append(f"pay {amount}")
            return "paid"

        lines = {child.name: settings.pop(child.name, ()) for child in children}
        self.cast = Cast({"": replies, **lines})
        tools = (look, dig, peek, pay)
        who: dict[type, Any] = {
            CallModel: self.cast,
            RunTool: ToolRunner(tools),
            SetTimer: sleep,
            ReadInstructions: InstructionReader(settings.get("cwd", "."), ()),
            **(performers or {}),
        }
        agent = Agent(model="one", tools=tools, children=children, performers=who, **settings)
        setting = Environment(
            config=agent.config,
            performers=who,
            clock=self.clock,
            new_id=lambda: f"id{next(self._ids)}",
            poll=self.poll,
        )
        return Session(session, setting, self._open())

    async def entries(self, session: str = "s") -> list[Entry]:
        """The journal of *session*."""
        self._reader = self._reader or self._open()
        assert self._reader is not None
        return [decode_entry(data) for data in await self._reader.load(session)]

    async def steps(self) -> list[Event]:
        """What was applied in the session."""
        return [entry.event for entry in await self.entries() if isinstance(entry, Stepped)]


class Watch:
    """Drives *session* in the background and keeps what it says."""

    def __init__(self, session: Session, prompt: str | None = "go", *, wait: bool = True) -> None:
        self.notices: list[Notice] = []
        self.task = asyncio.ensure_future(self._watch(session, prompt, wait=wait))

    async def _watch(self, session: Session, prompt: str | None, *, wait: bool) -> None:
        async with aclosing(session.stream(prompt, wait=wait)) as notices:
            async for notice in notices:
                self.notices.append(notice)

    async def until(self, kind: type) -> None:
        """Wait for a notice of *kind*, the session's own or a child's."""
        await until(lambda: self.task.done() or self.got(kind))

    def got(self, kind: type) -> list[Any]:
        """The notices of *kind*, also children's."""
        plain = [one.notice if isinstance(one, AgentNoticed) else one for one in self.notices]
        return [notice for notice in plain if isinstance(notice, kind)]


def results(session: Session) -> list[ToolResult]:
    """The results of the session's calls, in order."""
    return [result for message in session.history for result in message.results]


def told(session: Session) -> list[str]:
    """What the model read of each call."""
    return [result.content for result in results(session)]


def asked(session: Session | Result) -> list[str]:
    """What is asked about, with its arguments."""
    return [f"{question.tool} {question.arguments}" for question in session.waiting]


@pytest.fixture(autouse=True)
async def _quiet() -> AsyncIterator[None]:
    """Nothing is left at work, and no error is left that nobody was told of."""
    heard = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert heard == []


@pytest.fixture(params=["memory", "sqlite"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[House]:
    """A house with each kind of store; processes that share a file each open it for themselves."""
    if request.param == "memory":
        yield House.over(MemoryStore())
        return
    opened: list[SQLiteStore] = []

    def open_() -> SQLiteStore:
        opened.append(SQLiteStore(tmp_path / "s.db", "process"))
        return opened[-1]

    yield House(open_)
    for each in opened:
        await each.close()


@pytest.fixture
def home() -> House:
    """A house without a store."""
    return House(lambda: None)


@pytest.fixture
def one() -> House:
    """A house whose processes share one store in memory."""
    return House.over(MemoryStore())


# Questions


PAYS: dict[str, Any] = {"payer": (calls(("look", {"at": "it"}), ("pay", {"amount": 5})), says("it is paid"))}


async def test_a_childs_question_goes_to_the_approver(house: House) -> None:
    """As its parent's do; who answered is in the child's own journal."""
    questions: list[AskApproval] = []

    async def yes(question: AskApproval) -> Decision:
        questions.append(question)
        return Approve()

    session = house.process(hires("payer"), says("done"), performers={AskApproval: Approver(yes)}, **PAYS)
    assert (await session.run("go")).text == "done"
    assert [(question.tool, question.arguments) for question in questions] == [("pay", '{"amount": 5}')]
    assert house.ran == ["look it", "pay 5"]
    assert told(session) == ["it is paid"]


async def test_whoever_watches_the_parent_sees_a_childs_question_and_answers_it(house: House) -> None:
    """It is in `waiting`, and the answer is taken up at once."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    watch = Watch(session)
    await until(lambda: session.resting)
    (question,) = session.waiting
    (shown,) = watch.got(ApprovalRequested)
    assert (question.id, question.tool) == (shown.request, "pay")
    assert session.machine is not None
    assert session.machine.state.label == "dispatching"
    await session.approve(question.id, by="ann")
    await watch.task
    assert house.ran == ["look it", "pay 5"]
    assert [answered.by for answered in watch.got(ApprovalResolved)] == ["ann"]
    assert session.waiting == ()


async def test_a_childs_question_is_answered_from_another_process(house: House) -> None:
    """Through its parent, whoever runs that: the answer goes into the child's journal."""
    here, there = house.process(hires("payer"), says("done"), **PAYS), house.process()
    watch = Watch(here)
    await until(lambda: here.resting)
    await there.load()
    assert there.waiting == here.waiting
    await there.approve(there.waiting[0].id, Deny(message="too much"))
    await watch.task
    assert house.ran == ["look it"]
    child = here.child(results(here)[0].call)
    await child.load()
    assert told(child) == ["seen", "too much"]


async def test_a_handle_waits_for_the_answer_to_a_childs_question(house: House) -> None:
    """In the background, as for its parent's own."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    async with session.start("go") as handle:
        async for notice in handle:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, ApprovalRequested):
                await session.approve(notice.notice.request)
        assert handle.reason is DoneReason.END_TURN
    assert house.ran == ["look it", "pay 5"]


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize(
    ("decision", "ran"),
    [(Approve(), ["pay 5"]), (Approve(arguments='{"amount": 2}'), ["pay 2"]), (Deny(message="no"), [])],
)
async def test_a_run_rests_on_its_childs_question(
    house: House, decision: Decision, ran: list[str], *, elsewhere: bool
) -> None:
    """It names the question, holds nothing, and goes on where it was when it was answered."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    resting = await session.run("go")
    assert (resting.reason, asked(resting)) == (None, ['pay {"amount": 5}'])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    who = house.process() if elsewhere else session
    await who.approve(resting.waiting[0].id, decision)
    assert who.waiting == ()

    later = house.process(says("done"), payer=PAYS["payer"][1:])
    assert (await later.resume()).text == "done"
    assert house.ran == ["look it", *ran]
    assert told(later) == ["it is paid"]
    assert later.result().spent.usage == Usage(input=40, output=20)


async def test_the_same_object_goes_on_with_a_run_that_rested(house: House) -> None:
    """Also twice: each time the child rests where it is."""
    pays: dict[str, Any] = {
        "payer": (calls(("pay", {"amount": 5})), calls(("pay", {"amount": 6})), says("it is paid"))
    }
    session = house.process(hires("payer"), says("done"), **pays)
    await session.run("go")
    assert asked(await session.resume()) == ['pay {"amount": 5}']
    await session.approve(session.waiting[0].id)
    assert asked(await session.resume()) == ['pay {"amount": 6}']
    await session.approve(session.waiting[0].id)
    assert (await session.resume()).text == "done"
    assert house.ran == ["pay 5", "pay 6"]


async def test_a_run_without_a_store_rests_on_its_childs_question(home: House) -> None:
    """The child is in memory, as its parent is."""
    session = home.process(hires("payer"), says("done"), **PAYS)
    resting = await session.run("go")
    assert asked(resting) == ['pay {"amount": 5}']
    await session.approve(resting.waiting[0].id)
    assert (await session.resume()).text == "done"
    assert home.ran == ["look it", "pay 5"]


async def test_always_is_the_childs_own(house: House) -> None:
    """What was granted to a child holds for that child: its parent's questions are asked as before."""
    pays: dict[str, Any] = {"payer": (calls(("pay", {}), ("pay", {})), says("it is paid"))}
    session = house.process(hires("payer"), calls(("pay", {})), **pays)
    await session.run("go")
    await session.approve(session.waiting[0].id, ApproveAlways())
    resting = await session.resume()
    assert house.ran == ["pay 1", "pay 1"]
    assert asked(resting) == ["pay {}"]


async def test_where_nobody_can_ever_answer_a_child_is_told_no(home: House) -> None:
    """As its parent is: a run for once, without a store."""
    session = home.process(hires("payer"), says("done"), performers={AskApproval: refuse}, **PAYS)
    assert (await session.run("go")).text == "done"
    assert home.ran == ["look it"]


async def test_an_approver_may_leave_a_childs_question_to_others(house: House) -> None:
    """Then the run rests on it, although nothing is shown that would say so."""

    async def pass_on(_: AskApproval) -> None:
        await asyncio.sleep(0)

    session = house.process(hires("payer"), says("done"), performers={AskApproval: Approver(pass_on)}, **PAYS)
    async with asyncio.timeout(10):
        assert asked(await session.run("go")) == ['pay {"amount": 5}']


async def test_a_childs_deadline_is_kept(house: House) -> None:
    """While somebody waits, its time runs; a run that rests need not be driven."""
    policy = Policy(answer_within=5.0)
    session = house.process(hires("payer"), says("done"), policy=policy, **PAYS)
    assert asked(await session.run("go")) == ['pay {"amount": 5}']
    later = house.process(says("done"), policy=policy, payer=PAYS["payer"][1:])
    assert (await later.resume(wait=True)).text == "done"
    assert house.ran == ["look it"]


async def test_own_questions_come_before_those_of_children(one: House) -> None:
    """All are answered through the parent, by their ids, in any order."""
    pays: dict[str, Any] = {"payer": (calls(("pay", {"amount": 5})), says("it is paid"))}
    both = calls(("run_agent", {"agent": "payer", "prompt": "go"}), ("pay", {"amount": 1}))
    session = one.process(both, says("done"), policy=SIDE_BY_SIDE, **pays)
    resting = await session.run("go")
    assert asked(resting) == ['pay {"amount": 1}', 'pay {"amount": 5}']
    for question in reversed(resting.waiting):
        await session.approve(question.id)
    assert session.waiting == ()
    assert (await session.resume()).text == "done"
    assert one.ran == ["pay 5", "pay 1"]


async def test_an_answer_to_a_child_is_heard_while_another_one_works(one: House) -> None:
    """Also where the run would rest as soon as nobody works any more."""
    lines: dict[str, Any] = {"asker": ASKS["asker"], "digger": (calls(("dig", {})), says("dug"))}
    session = one.process(
        hires("asker", "digger"), says("done"), policy=SIDE_BY_SIDE, children=READERS, **lines
    )
    there = one.process(children=READERS)
    watch = Watch(session, wait=False)
    await until(lambda: "dig" in one.ran and session.waiting)
    assert not session.resting
    await there.load()
    await there.approve(there.waiting[0].id)
    await until(lambda: "peek" in one.ran)
    assert not watch.task.done()
    one.release()
    await watch.task
    assert told(session) == ["I peeked", "dug"]


async def test_a_run_rests_when_the_last_of_its_children_does(one: House) -> None:
    """While one asks and the other works it goes on; the questions of both are in call order."""
    peeks = (calls(("dig", {})), calls(("peek", {"at": "b"})), says("dug"))
    lines: dict[str, Any] = {"asker": ASKS["asker"], "digger": peeks}
    session = one.process(
        hires("digger", "asker"), says("done"), policy=SIDE_BY_SIDE, children=READERS, **lines
    )
    watch = Watch(session, wait=False)
    await until(lambda: "dig" in one.ran and session.waiting)
    one.release()
    await watch.task
    assert asked(session) == ['peek {"at": "b"}', "peek {}"]
    for question in session.waiting:
        await session.approve(question.id)
    assert (await session.resume()).text == "done"
    assert told(session) == ["dug", "I peeked"]


@pytest.mark.parametrize("wrong", ["x", ""])
async def test_an_answer_to_no_open_question_names_those_of_children(house: House, wrong: str) -> None:
    """And what was answered is no longer open."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    request = (await session.run("go")).waiting[0].id
    with pytest.raises(UnknownRequest) as failed:
        await session.approve(wrong)
    assert failed.value.open == (request,)
    await session.approve(request)
    with pytest.raises(UnknownRequest):
        await session.approve(request)


# Speaking to one of them


DIGS: dict[str, Any] = {"digger": (calls(("dig", {})), says("dug"))}


async def begun(house: House, *replies: Reply, **settings: Any) -> tuple[Session, Watch]:
    """A session whose child digs, and in which nothing else goes on."""
    session = house.process(hires("digger"), *replies, says("done"), **{**DIGS, **settings})
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    async with asyncio.timeout(10):
        while not any(isinstance(one, AgentProgressed) for one in await house.steps()):  # noqa: ASYNC110  # as above
            await asyncio.sleep(0)
    return session, watch


async def test_the_children_of_a_session_are_listed_while_they_are_at_work(house: House) -> None:
    """With the call, the session and the agent of each; also by whoever does not run it."""
    session, watch = await begun(house)
    there = await house.process().load()
    (call,) = [notice.call for notice in watch.got(AgentStarted)]
    link = ChildLink(call=call, session=f"s.{call}", agent="digger")
    assert list(session.children) == [link]
    assert there.children == session.children
    assert there.child(call).id == f"s.{call}"
    assert [notice.run for notice in watch.got(RunEnded)] == []
    house.release()
    await watch.task
    assert list(session.children) == []
    assert [notice.run for notice in watch.got(RunEnded)] == [call, watch.got(RunEnded)[1].run]


@pytest.mark.parametrize("way", ["here", "through its parent", "by its id"])
async def test_a_child_is_steered(house: House, way: str) -> None:
    """Its parent hears nothing of it but the child's answer."""
    session, watch = await begun(house)
    cast, call = house.cast, session.children[0].call
    other = await house.process().load()
    ways = {
        "here": lambda: session.child(call),
        "through its parent": lambda: other.child(call),
        "by its id": lambda: house.process(session=f"s.{call}"),
    }
    await ways[way]().steer("deeper")
    if way == "here":
        house.release()
    else:
        await until(lambda: any("deeper" in str(event) for event in known(session.child(call))))
        house.release()
    await watch.task
    assert cast.read("digger") == ["digger, go", "deeper"]
    assert cast.read("") == ["go"]
    assert told(session) == ["dug"]


def known(session: Session) -> list[Any]:
    """What the run of *session* has heard and not read yet."""
    assert session.machine is not None
    return list(session.machine.memory.mail)


async def test_a_child_may_be_spoken_to_as_soon_as_it_is_announced(one: House) -> None:
    """What is said before it has begun is read behind its task; its run is called after its call."""
    session = one.process(hires("scout"), says("done"), scout=(says("found"),))
    cast = one.cast
    async for notice in session.stream("go"):
        if isinstance(notice, AgentStarted):
            await session.child(notice.call).steer("quickly")
    assert cast.read("scout") == ["scout, go", "quickly"]
    call = results(session)[0].call
    child = await session.child(call).load()
    assert child.machine is not None
    assert child.machine.memory.run == call


async def test_a_child_is_stopped_and_its_parent_goes_on(house: House) -> None:
    """What it had found is what its parent reads."""
    session = house.process(hires("scout"), says("done"), scout=(stalls("I see"),))
    watch = Watch(session)
    await watch.until(TextDelta)
    await session.child(session.children[0].call).interrupt()
    await watch.task
    assert [(each.outcome, each.content) for each in results(session)] == [
        (Outcome.CANCELLED, "I see\n[ended: interrupted]")
    ]
    assert session.result().reason is DoneReason.END_TURN


async def too_late(children: Sequence[ChildSpec], *replies: Reply) -> Session:
    """A session to whose child somebody spoke elsewhere while its last answer was being written down."""
    tape = Tape()
    house = House.over(tape)
    session = house.process(hires("scout"), says("done"), children=children, scout=replies)

    async def speak(name: str, entries: Sequence[bytes]) -> None:
        if name != "s" and any(b'"ModelFinished"' in entry for entry in entries):
            tape.meddlers.clear()
            await House.over(tape.kept).process(children=children, session=name).steer("look again")

    tape.meddlers.append(speak)
    await session.run("go")
    assert tape.meddlers == []
    return session


async def test_what_comes_too_late_for_a_childs_run_is_answered_by_it_all_the_same() -> None:
    """Its parent reads the last answer, and pays for both."""
    session = await too_late((SCOUT,), says("found"), says("found more"))
    assert told(session) == ["found more"]
    assert session.result().spent.usage == Usage(input=40, output=20)


async def test_a_child_with_nothing_left_keeps_what_it_said() -> None:
    """Who speaks to it gets no answer then, and its parent still does."""
    session = await too_late((ChildSpec(name="scout", limits=Limits(turns=1)),), says("found"))
    assert told(session) == ["found\n[ended: max_turns]"]


SAYS: dict[str, Callable[[Session], Awaitable[object]]] = {
    "steer": lambda child: child.steer("more"),
    "send": lambda child: child.send("more"),
    "control": lambda child: child.control(SetMode(mode=PermissionMode.PLAN)),
}


@pytest.mark.parametrize("what", SAYS)
async def test_a_child_that_is_over_can_be_read_and_takes_nothing_any_more(house: House, what: str) -> None:
    """Nobody would ever answer; an interrupt stops nothing."""
    session = house.process(hires("scout"), says("done"), scout=(says("found"),))
    await session.run("go")
    call = results(session)[0].call
    for child in (session.child(call), house.process(session=f"s.{call}")):
        with pytest.raises(ConfigError, match="has ended; speak to its parent"):
            await SAYS[what](child)
        await child.interrupt()
        with pytest.raises(ConfigError, match="is a child; resume its parent"):
            await session.child(call).branch()
        assert child.result().text == "found"
        assert [message.text for message in child.history] == ["scout, go", "found"]


@pytest.mark.parametrize("over", [False, True])
async def test_nobody_but_its_parent_runs_a_child(house: House, *, over: bool) -> None:
    """It would be given what its parent has, and nobody would wait for its answer."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    await session.run("go")
    call = session.children[0].call
    if over:
        await session.approve(session.waiting[0].id)
        await session.resume()
    for child in (session.child(call), house.process(says("ha"), session=f"s.{call}")):
        with pytest.raises(ConfigError, match="is a child; resume its parent"):
            await child.resume()
        with pytest.raises(ConfigError, match="is a child; resume its parent"):
            await child.run("pay all of it")
    assert house.ran == ["look it", *["pay 5"] * over]


async def test_a_call_that_is_no_childs_has_no_session(house: House) -> None:
    """Also one that never came to start a child: nothing can be said to what does not exist."""
    both = calls(("look", {}), ("run_agent", {"agent": "nobody", "prompt": "go"}))
    session = house.process(both, says("no"))
    await session.run("go")
    look, spawn = [result.call for result in results(session)]
    for wrong in (look, "x", ""):
        with pytest.raises(UnknownCall):
            session.child(wrong)
    child = session.child(spawn)
    with pytest.raises(UnknownSession):
        await child.steer("hello?")
    assert await house.entries(f"s.{spawn}") == []


async def test_a_copy_of_a_childs_session_is_a_session_like_any_other(house: House) -> None:
    """Whoever wants to talk on with it does so there."""
    session = house.process(hires("scout"), says("done"), scout=(says("found"),))
    await session.run("go")
    child = await session.child(results(session)[0].call).load()
    await child.fork("mine")
    mine = house.process(says("of course"), session="mine")
    assert (await mine.run("tell me more")).text == "of course"
    assert [message.text for message in mine.history][:2] == ["scout, go", "found"]


# Modes

CAREFUL = SetMode(mode=PermissionMode.PLAN)
BOLD = SetMode(mode=PermissionMode.BYPASS)


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_mode_that_is_changed_holds_for_a_child_at_work(house: House, *, elsewhere: bool) -> None:
    """From its next call on; whoever is told which mode holds reads it of the child, too."""
    child = ChildSpec(name="digger", tools=("dig", "pay"))
    lines: dict[str, Any] = {"digger": (calls(("dig", {})), calls(("pay", {"amount": 5})), says("dug"))}
    session = house.process(hires("digger"), says("done"), children=(child,), **lines)
    there = house.process(children=(child,))
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    await (there if elsewhere else session).control(BOLD)
    await until(lambda: len(watch.got(SettingChanged)) >= 2)
    house.release()
    await watch.task
    assert house.ran == ["dig", "pay 5"]
    assert {notice.change for notice in watch.got(SettingChanged)} == {BOLD}


async def test_a_mode_that_is_changed_before_a_child_has_begun_holds_for_it(one: House) -> None:
    """As for one that is started behind it."""
    session = one.process(hires("payer"), says("done"), **PAYS)
    async for notice in session.stream("go"):
        if isinstance(notice, AgentStarted):
            await session.control(BOLD)
    assert one.ran == ["look it", "pay 5"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_mode_that_is_changed_while_a_child_rests_holds_when_it_goes_on(
    house: House, *, elsewhere: bool
) -> None:
    """The stricter one also for the question that was open: what may not run does not, whoever says yes."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    await session.run("go")
    who = await house.process().load() if elsewhere else session
    await who.control(BOLD)
    await who.control(CAREFUL)
    await who.approve(who.waiting[0].id)
    later = house.process(says("done"), payer=PAYS["payer"][1:])
    await later.resume()
    child = await later.child(results(later)[0].call).load()
    assert house.ran == ["look it"]
    assert [result.outcome for result in results(child)] == [Outcome.OK, Outcome.DENIED]


async def test_a_child_that_is_gone_on_with_has_the_mode_its_parent_has_now(house: House) -> None:
    """Its journal says which it had."""
    session, watch = await begun(house)
    call = session.children[0].call
    await session.child(call).control(CAREFUL)  # which its parent has not
    await watch.until(SettingChanged)
    await session.close()
    await watch.task
    later = house.process(says("done"), digger=(says("dug"),))
    house.release()
    await later.resume()
    child = await later.child(call).load()
    assert child.machine is not None
    assert child.machine.memory.mode is PermissionMode.DEFAULT


async def test_another_setting_of_its_parent_is_not_a_childs(house: House) -> None:
    """Its model is its own."""
    session, watch = await begun(house)
    await session.control(SetModel(model="other"))
    await watch.until(SettingChanged)
    house.release()
    await watch.task
    assert len(watch.got(SettingChanged)) == 1
    child = await session.child(results(session)[0].call).load()
    assert child.machine is not None
    assert child.machine.memory.model == "one"


# Stopping


async def test_an_interrupt_stops_children_and_keeps_what_they_used(house: House) -> None:
    """Each says how it ended, and the run ends when all have."""
    lines: dict[str, Any] = {"scout": (calls(("look", {})), stalls("I see")), "digger": (stalls("I dig"),)}
    session = house.process(hires("scout", "digger"), policy=SIDE_BY_SIDE, **lines, children=(SCOUT, DIGGER))
    watch = Watch(session)
    await until(lambda: len(watch.got(TextDelta)) == 2)
    await session.interrupt()
    await watch.task
    assert [result.outcome for result in results(session)] == [Outcome.CANCELLED, Outcome.CANCELLED]
    assert told(session) == ["I see\n[ended: interrupted]", "I dig\n[ended: interrupted]"]
    assert session.result().reason is DoneReason.INTERRUPTED
    assert session.result().spent.usage.total >= 30


async def test_a_second_interrupt_waits_for_no_child(house: House) -> None:
    """A child that does not come to its end is left where it is; the run is over at once."""

    class Deaf:
        """A model that does not stop when it is told to."""

        async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
            if not scene.config.agent:
                return await lead(request, scene)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as cancelled:
                heard.append(str(cancelled))
                if not cancelled.args:
                    await asyncio.Event().wait()
                raise
            raise AssertionError

    lead, heard = ScriptedModel(hires("scout")), list[str]()
    session = house.process(hires("scout"), performers={CallModel: Deaf()})
    watch = Watch(session)
    await until(lambda: session.children and session.child(session.children[0].call).running)
    await session.interrupt()
    await until(lambda: heard)
    assert not watch.task.done()
    await session.interrupt()
    async with asyncio.timeout(10):
        await watch.task
    assert session.result().reason is DoneReason.INTERRUPTED
    assert [result.outcome for result in results(session)] == [Outcome.UNKNOWN]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_child_that_rests_is_stopped_with_its_parent(house: House, *, elsewhere: bool) -> None:
    """When that is resumed; until then nothing is asked any more."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    resting = await session.run("go")
    who = await house.process().load() if elsewhere else session
    await who.interrupt()
    assert who.waiting == ()
    with pytest.raises(UnknownRequest):
        await who.approve(resting.waiting[0].id)
    later = house.process()
    assert (await later.resume()).reason is DoneReason.INTERRUPTED
    assert house.ran == ["look it"]
    assert [result.outcome for result in results(later)] == [Outcome.CANCELLED]
    assert later.result().spent.usage.total == 30


STEERED = [
    (Steering.NOW, [Outcome.CANCELLED, Outcome.SKIPPED]),
    (Steering.AFTER_TOOL, [Outcome.OK, Outcome.SKIPPED]),
    (Steering.WHEN_DONE, [Outcome.OK, Outcome.OK]),
]


@pytest.mark.parametrize(("how", "outcomes"), STEERED)
async def test_what_is_said_into_a_run_says_what_becomes_of_its_child(
    house: House, how: Steering, outcomes: list[Outcome]
) -> None:
    """It is stopped, or let finish; what comes behind it is skipped, or not."""
    both = calls(("run_agent", {"agent": "digger", "prompt": "dig"}), ("look", {}))
    session = house.process(both, says("done"), **DIGS)
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    await session.steer("listen", how)
    if how is not Steering.NOW:
        house.release()
    await watch.task
    assert [result.outcome for result in results(session)] == outcomes
    assert session.result().text == "done"


async def test_a_child_is_given_up_by_its_call(house: House) -> None:
    """Its parent goes on, and the others do."""
    lines: dict[str, Any] = {"scout": (stalls("I see"),), "digger": DIGS["digger"]}
    session = house.process(
        hires("scout", "digger"), says("done"), policy=SIDE_BY_SIDE, **lines, children=(SCOUT, DIGGER)
    )
    watch = Watch(session)
    await until(lambda: "dig" in house.ran and watch.got(TextDelta))
    await session.cancel(session.children[0].call)
    house.release()
    await watch.task
    assert [result.outcome for result in results(session)] == [Outcome.CANCELLED, Outcome.OK]


# What they may use


def trio(tokens: int = 400) -> tuple[ChildSpec, ...]:
    """Three children that dig, and may use so many *tokens* each."""
    return tuple([ChildSpec(name=name, limits=Limits(tokens=tokens)) for name in ("a", "b", "c")])


def digs(used: int) -> dict[str, Any]:
    """What each of the three says, and that it uses so many tokens, half of them for each answer."""
    usage = Usage(input=used // 2)
    return {name: (calls(("dig", {}), usage=usage), says(f"{name} dug", usage=usage)) for name in "abc"}


async def test_of_three_children_the_budget_suffices_for_two(house: House) -> None:
    """The third is refused and told why, nothing is overspent, and the results are in call order."""
    session = house.process(
        hires("a", "b", "c"),
        says("done"),
        children=trio(),
        limits=Limits(tokens=1_000),
        policy=SIDE_BY_SIDE,
        **digs(400),
    )
    watch = Watch(session)
    await until(lambda: house.ran == ["dig", "dig"])
    assert [link.agent for link in session.children] == ["a", "b"]
    house.release()
    await watch.task
    found = results(session)
    assert [result.outcome for result in found] == [Outcome.OK, Outcome.OK, Outcome.ERROR]
    assert [result.content for result in found][:2] == ["a dug", "b dug"]
    assert "185 of 400 tokens" in found[2].content
    assert session.result().spent.usage.total == 15 + 2 * 400 + 15
    assert history_faults(session.history) == []


async def test_what_a_child_did_not_use_is_the_next_ones(house: House) -> None:
    """One after the other, all three get what they want."""
    settings: dict[str, Any] = {"children": trio(), "limits": Limits(tokens=1_000), **digs(200)}
    session = house.process(hires("a", "b", "c"), says("done"), **settings)
    house.release()
    assert (await session.run("go")).text == "done"
    assert told(session) == ["a dug", "b dug", "c dug"]
    assert session.result().spent.usage.total == 15 + 3 * 200 + 15


async def test_a_child_that_reaches_what_was_set_aside_ends_there(house: House) -> None:
    """What it found until then is worth reading; its turns are its own."""
    child = ChildSpec(name="scout", limits=Limits(tokens=30, turns=10))
    lines: dict[str, Any] = {"scout": [*[calls(("look", {}), text=f"look {number}") for number in range(3)]]}
    session = house.process(
        hires("scout"), says("done"), children=(child,), limits=Limits(turns=2), scout=lines["scout"]
    )
    assert (await session.run("go")).text == "done"
    assert told(session) == ["look 1\n[ended: token_budget]"]
    assert session.result().spent.turns == 2


# What a child is told and has


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """A folder with instructions."""
    (tmp_path / "AGENTS.md").write_text("Be brief.", "utf-8")
    (tmp_path / "SCOUT.md").write_text("Look twice.", "utf-8")
    return tmp_path


async def test_a_child_gets_its_task_and_no_more(one: House, rules: Path) -> None:
    """A short prompt, no word of what was said to its parent, and only reads that need no question."""
    child = ChildSpec(name="scout", description="It looks.")
    session = one.process(
        hires("scout"),
        says("done"),
        children=(child,),
        scout=(says("found"),),
        system="You are great.",
        instructions=("AGENTS.md",),
        cwd=rules,
    )
    await session.run("find it")
    (request,) = one.cast.models["scout"].requests
    assert request.system.startswith("You are scout, a helper of another agent. It looks.\n")
    assert "great" not in request.system
    assert "brief" not in request.system
    assert request.tools == ("look", "dig")
    assert one.cast.read("scout") == ["scout, go"]
    assert "brief" in one.cast.models[""].requests[0].system


async def test_a_child_may_have_instructions_of_its_own(one: House, rules: Path) -> None:
    """Read as its parent's are, where the tools may read."""
    child = ChildSpec(name="scout", system="Scout.", instructions=("SCOUT.md",))
    session = one.process(hires("scout"), says("done"), children=(child,), scout=(says("found"),), cwd=rules)
    await session.run("go")
    (request,) = one.cast.models["scout"].requests
    assert request.system.startswith("Scout.")
    assert "Look twice." in request.system


HELPERS = [
    # The models of the parent, who takes over and who summarises; what a child has of it.
    ({"models": ("two",)}, "one", ((), "", "")),
    ({"fallback": "two"}, "one", (("two",), "two", "")),
    ({"models": ("two",), "compaction": Compaction(model="two")}, "one", (("two",), "", "two")),
    ({"fallback": "two"}, "two", ((), "two", "")),
    ({"fallback": "two"}, "three", (("two",), "two", "")),
    ({"models": ("two",), "compaction": Compaction(model="one")}, "three", (("one",), "", "one")),
]


@pytest.mark.parametrize(("settings", "model", "expected"), HELPERS)
def test_a_child_has_who_takes_over_and_who_summarises(
    settings: dict[str, Any], model: str, expected: tuple[tuple[str, ...], str, str]
) -> None:
    """And no other model: nobody switches it."""
    child = ChildSpec(name="scout", model=ModelSpec(name=model))
    parent = Agent(model="one", children=(child,), **settings).config
    request = RunAgent(id="r-1", call="r-0", agent="scout", prompt="go")
    config = child_config(parent, child, request)
    helpers = tuple([each.name for each in config.models])
    assert (config.model.name, (helpers, config.fallback, config.compaction.model)) == (model, expected)
    # Money is only set aside where it can be counted.
    dear = attrs.evolve(child, model=ModelSpec(name=model, price=Price(input=1, output=1)))
    poor = child_config(parent, dear, attrs.evolve(request, limits=Limits(usd=1)))
    assert poor.models == ()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (RunAgent(id="r-1", call="r-0", agent="nobody", prompt="go"), "No agent named 'nobody'."),
        (
            RunAgent(id="r-1", call="r-0", agent="scout", prompt=""),
            "the prompt is empty; give text or a file",
        ),
    ],
)
async def test_a_child_that_cannot_be_set_up_is_an_error(request_: RunAgent, said: str) -> None:
    """Its parent reads why; nobody starts it in that way but by hand."""
    agent, clock = Agent(model="one", children=(SCOUT,)), AutoClock(1.0)
    setting = Environment(config=agent.config, performers={}, clock=clock, new_id=lambda: "id")
    noticed: list[object] = []
    scene = PerformContext(
        session="s",
        run="r",
        config=agent.config,
        history=History.of(),
        clock=clock,
        emit=noticed.append,
    )
    answer = await ChildRunner(Children("s", setting, None, Session))(request_, scene)
    assert answer is not None
    assert (answer.outcome, answer.spent) == (Outcome.ERROR, Spent())
    assert said in answer.content
    assert noticed == []


# After a crash


class Tape(StoreOver):
    """
    A store in memory that remembers in which order its sessions were written.

    It can be told to fail, or what else is to happen before a session is written to.
    """

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[str, bytes]] = []
        self.broken = ""
        self.meddlers: list[Callable[[str, Sequence[bytes]], Awaitable[None]]] = []

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """Add *entries*, unless it is this very session that is broken."""
        if session == self.broken:
            msg = "no space left"
            raise StoreError(msg)
        for meddle in list(self.meddlers):
            await meddle(session, entries)
        length = await super().append(session, expected, entries, about)
        self.written += [(session, entry) for entry in entries]
        return length

    async def close(self) -> None:
        """Let go."""

    async def until(self, length: int) -> MemoryStore:
        """What was kept when so many entries had been written, to whichever session."""
        cut = MemoryStore()
        for session, entry in self.written[:length]:
            await cut.append(session, len(await cut.load(session)), [entry])
        return cut


class Sage:
    """A model that says the same at the same point, whoever asks: by what it has read so far."""

    def __init__(self, **lines: Sequence[Reply]) -> None:
        self.lines = lines
        self.asked: list[str] = []

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """The line behind as many results as there are."""
        name = scene.config.agent or "parent"
        self.asked.append(name)
        read = scene.history.slice(0, request.view.length)
        number = sum(message.role is Role.TOOL for message in read)
        return await ScriptedModel(self.lines[name][number])(request, scene)


async def yes(_: AskApproval) -> Approve:
    """Say yes."""
    return Approve()


async def account(store: Store, session: str) -> Usage:
    """What the journal of *session* says that it used."""
    machine = fold(await store.load(session), session).machine
    return Usage() if machine is None else machine.memory.earlier.usage + machine.memory.spent.usage


PAID = {(Outcome.OK, 1), (Outcome.OK, 0), (Outcome.UNKNOWN, 0)}
"""What became of the payment, and how often it ran in the process that went on: never a second time."""


async def test_parent_and_child_go_on_together_from_every_point_of_their_journals() -> None:
    """What was done is not done again, what was used is counted once, and a child that was over is read."""
    tape = Tape()
    sage = Sage(parent=(hires("payer"), says("done")), **PAYS)
    whole = House.over(tape).process(performers={CallModel: sage, AskApproval: Approver(yes)})
    await whole.run("go")
    (call,) = [result.call for result in results(whole)]
    child = f"s.{call}"

    read = 0
    for length in range(1, len(tape.written)):
        cut = await tape.until(length)
        before = fold(await cut.load(child), child).machine
        house, asked = House.over(cut), Sage(**sage.lines)
        later = house.process(performers={CallModel: asked, AskApproval: Approver(yes)})
        assert (await later.resume()).text == "done", length
        assert told(later) == ["it is paid"], length
        assert history_faults(later.history) == [], length
        worked = await later.child(results(later)[0].call).load()
        # Beside its children's, that is what its own two answers cost, and what was guessed of lost ones.
        total, used = later.result().spent.usage, await account(cut, worked.id)
        assert total.total - total.estimated == used.total - used.estimated + 30, length
        assert total.estimated >= used.estimated, length
        (paid,) = [result.outcome for result in results(worked) if result.name == "pay"]
        assert (paid, house.ran.count("pay 5")) in PAID, length
        if before is not None and before.done:
            parent = fold(await (await tape.until(length)).load("s"), "s").machine
            read += parent is not None and parent.state.label == "dispatching"
            assert "payer" not in asked.asked, length
            assert house.ran == [], length
    assert read >= 1  # between its end and the entry of its parent


async def test_a_child_that_came_to_its_end_while_its_parent_was_left_is_read(house: House) -> None:
    """Whoever leaves while the child says its last word finds it when going on."""
    session = house.process(hires("scout"), scout=(says("found"),))
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, RunEnded):
                break
    assert session.unfinished
    later = house.process(says("done"))
    assert (await later.resume()).text == "done"
    assert told(later) == ["found"]
    assert later.result().spent.usage == Usage(input=30, output=15)


async def test_a_child_whose_session_cannot_be_kept_is_an_error_and_is_paid_for() -> None:
    """Its parent goes on; what is known of the bill is on it."""
    tape = Tape()
    house = House.over(tape)
    lines: dict[str, Any] = {"digger": (calls(("dig", {})), says("dug"))}
    session = house.process(hires("digger"), says("done"), **lines)
    watch = Watch(session)
    await until(lambda: "dig" in house.ran)
    tape.broken = session.children[0].session
    house.release()
    await watch.task
    (result,) = results(session)
    assert (result.outcome, result.content) == (Outcome.CRASHED, "The agent's session failed: no space left")
    assert session.result().text == "done"
    assert session.result().spent.usage == Usage(input=30, output=15)


@pytest.mark.parametrize("rules", ["mode", "rule"])
async def test_a_child_that_may_not_work_any_more_is_stopped_and_says_what_it_did(
    house: House, rules: str
) -> None:
    """Where the configuration changed meanwhile; what it used is on the bill."""
    session = house.process(hires("payer"), **PAYS)
    await session.run("go")
    denied: dict[str, Any] = (
        {"policy": Policy(mode=PermissionMode.PLAN)}
        if rules == "mode"
        else {"rules": [Rule(verdict="deny", tool="run_agent")]}
    )
    later = house.process(says("done"), **denied)
    await later.resume()
    assert [result.outcome for result in results(later)] == [Outcome.CANCELLED]
    assert house.ran == ["look it"]
    assert later.result().spent.usage == Usage(input=30, output=15)


async def test_a_child_that_is_over_counts_also_where_it_may_not_work_any_more(one: House) -> None:
    """Nothing is to be stopped there."""
    session = one.process(hires("scout"), scout=(says("found"),))
    async with aclosing(session.stream("go")) as notices:
        async for notice in notices:
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, RunEnded):
                break
    later = one.process(says("done"), rules=[Rule(verdict="deny", tool="run_agent")])
    await later.resume()
    assert [(result.outcome, result.content) for result in results(later)] == [(Outcome.OK, "found")]


async def test_two_processes_do_not_both_go_on_with_a_child(house: House) -> None:
    """Whoever takes over its parent takes it over; the other is told, and writes nothing any more."""
    here, watch = await begun(house)
    there = house.process(says("done"), digger=(says("dug"),))
    other = Watch(there, None)
    await until(lambda: house.ran == ["dig", "dig"])
    house.release()
    await other.task
    with pytest.raises(StoreConflict):
        await watch.task
    assert told(there) == ["dug"]
    await here.load()
    assert told(here) == ["dug"]
    assert sum(isinstance(event, AgentFinished) for event in await house.steps()) == 1


async def test_a_child_is_taken_over_from_a_process_that_does_not_know_yet_that_it_lost() -> None:
    """It writes once more, between the look into the child's journal and the entry that takes it over."""
    tape = Tape()
    mine, theirs = House.over(tape.kept), House.over(tape)
    mine.poll = 3_600.0
    here, watch = await begun(mine)
    (link,) = here.children

    async def write(name: str, _: Sequence[bytes]) -> None:
        if name == link.session:
            tape.meddlers.clear()
            length = len(await tape.load(name))
            mine.release()
            while len(await tape.load(name)) == length:  # noqa: ASYNC110  # turns are waited for, as above
                await asyncio.sleep(0)

    tape.meddlers.append(write)
    theirs.release()
    there = theirs.process(says("done"), digger=(says("dug"),))
    async with asyncio.timeout(10):
        await there.resume()
        with pytest.raises(StoreConflict):
            await watch.task
    assert tape.meddlers == []
    assert told(there) == ["dug"]


async def test_whoever_lets_go_of_a_child_leaves_it_alone(house: House) -> None:
    """It is its parent's; what is said to it later is heard."""
    session, watch = await begun(house)
    async with session.child(session.children[0].call) as child:
        assert child.running
    await child.steer("deeper")
    house.release()
    await watch.task
    assert told(session) == ["dug"]
    assert house.ran == ["dig"]


async def test_whoever_watches_a_child_is_told_when_it_is_over(house: House) -> None:
    """As with any session that is closed; one that rests goes on being watched until it is gone on with."""
    session = house.process(hires("payer"), says("done"), **PAYS)
    seen: list[Notice] = []

    async def look(child: Session) -> None:
        seen.extend([notice async for notice in child.subscribe()])

    tasks: list[asyncio.Task[None]] = []
    async with session:
        async for notice in session.stream("go", wait=True):
            if isinstance(notice, AgentStarted):
                tasks.append(asyncio.ensure_future(look(session.child(notice.call))))
                await asyncio.sleep(0)
            if isinstance(notice, AgentNoticed) and isinstance(notice.notice, ApprovalRequested):
                await session.approve(notice.notice.request)
    await asyncio.gather(*tasks)
    assert isinstance(seen[-1], RunEnded)


async def test_a_session_that_is_let_go_of_lets_its_children_go(house: House) -> None:
    """Whoever watches one that rests is not left waiting."""
    session = house.process(hires("payer"), **PAYS)
    async with session:
        await session.run("go")
        watched = session.child(session.children[0].call).subscribe()
    async with asyncio.timeout(10):
        assert [notice async for notice in watched] == []
