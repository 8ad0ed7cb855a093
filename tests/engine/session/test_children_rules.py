"""What a parent knows of its children and does with them, with children that a test plays itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import attrs
import pytest
from provers.tasks import turns

from turnwheel import MemoryStore
from turnwheel.effects.config import (
    ChildSpec,
    Compaction,
    Concurrency,
    Config,
    Limits,
    ModelSpec,
    Policy,
    Price,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.errors import (
    ArgumentError,
    ConfigError,
    NewerVersion,
    SessionClosed,
    SessionGone,
    StoreConflict,
    StoreError,
    TurnwheelError,
    UnknownCall,
    UnknownRequest,
    UnknownSession,
)
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    Approve,
    CallCancelled,
    Decision,
    Deny,
    Event,
    Interrupted,
    ModelFinished,
    Post,
    UserSent,
)
from turnwheel.effects.history import CallPiece, History
from turnwheel.effects.messages import Outcome, Role, StopReason, user
from turnwheel.effects.notices import AgentNoticed, DoneReason, Notice, SettingChanged, TextDelta, TurnEnded
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import SetMode, SetModel
from turnwheel.effects.requests import AskApproval, RunAgent
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.inputs import Input
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.journal import Journal
from turnwheel.engine.session import children as module
from turnwheel.engine.session.children import Children, ChildRunner, child_config
from turnwheel.engine.session.environment import Environment, Result
from turnwheel.engine.session.feed import Reader
from turnwheel.engine.session.session_log import SessionLog
from turnwheel.performers.approvals import refuse
from turnwheel.performers.base import LEAVING, PassThroughNotice, PerformContext, noop
from turnwheel.performers.stores.base import Store
from turnwheel.states.context import Mail
from turnwheel.testing.clocks import AutoClock

SPAWN = ToolSpec(name="hire", approval="never", side_effect="read_only", kind=ToolKind.AGENT)
CONFIG = Config(
    model=ModelSpec(name="one"),
    tools=(SPAWN, ToolSpec(name="look", side_effect="read_only"), ToolSpec(name="pay")),
    children=(ChildSpec(name="scout"), ChildSpec(name="payer", tools=("pay",))),
    policy=Policy(concurrency=Concurrency.PARALLEL_READS),
)
MAIL = Mail.of(UserSent(at=1.0, id="more", text="more"))
QUESTION = AskApproval(id="q", call="c", tool="pay", arguments="{}", why="")


class Kid:
    """A child's session, as its parent uses it; *fault* is raised by whatever is asked of it."""

    def __init__(self, name: str, environment: Environment, store: Store | None) -> None:
        self.id, self.environment, self.store = name, environment, store
        self.machine: Machine | None = None
        self.waiting: tuple[AskApproval, ...] = ()
        self.history = History.of()
        self.unfinished = self.resting = False
        self.queue: tuple[Mail, ...] = ()
        self.spent = Spent(turns=2)
        self.done: list[object] = []
        self.fault: Exception | None = None
        self.notices: Sequence[Notice | Exception] = ()
        self.over = DoneReason.END_TURN
        self.text = "found"
        self.detail = ""
        # Whether its work begins a run, where it has none.
        self.begins = True
        # What its interrupts raise, and its work when it is cancelled.
        self.deaf: list[Exception] = []
        self.last: Exception | None = None
        # What it does when it is closed, or waits for in its work.
        self.closing: Callable[[], None] = noop
        self.holds: asyncio.Event | None = None

    def _do(self, what: object) -> None:
        self.done.append(what)
        if self.fault is not None:
            raise self.fault

    async def load(self) -> Self:
        self._do("load")
        await turns(3)
        return self

    async def take_mode(self, change: SetMode) -> None:
        self._do(change)

    async def approve(self, request: str, decision: Decision = Deny(), *, by: str = "") -> None:  # noqa: B008  # a frozen value
        self._do((request, decision, by))

    async def check_answer(self, request: str, decision: Decision) -> None:
        self._do((request, decision))

    async def drain(self, within: float | None = None) -> None:
        self._do(within)

    async def interrupt(self) -> None:
        self._do("interrupt")
        if self.deaf:
            raise self.deaf.pop()
        if self.holds is not None:
            self.holds.set()

    async def close(self) -> None:
        self.done.append("close")
        self.closing()

    def result(self) -> Result:
        return Result(
            session=self.id, run="r", text=self.text, reason=self.over, spent=self.spent, detail=self.detail
        )

    async def work(self, task: str | None, reader: Reader) -> None:
        self.done.append(task)
        for notice in self.notices:
            if isinstance(notice, Exception):
                raise notice
            reader.put(notice)
        if self.holds is not None:
            try:
                await self.holds.wait()
            except asyncio.CancelledError:
                await turns(3)
                self.done.append("left")
                if self.last is not None:
                    raise self.last from None
                raise
        if self.begins:
            self.machine = self.machine or machine_of(self.environment.config, None)


def machine_of(config: Config = CONFIG, *agents: str | None) -> Machine:
    """A machine whose model hires these *agents*, all at once; None: it has just begun."""
    machine = Machine.start(config, "go", run="r")
    machine.advance()
    if agents != (None,):
        hired = [f'{{"agent": "{agent}", "prompt": "go"}}' for agent in agents]
        finish(machine, *[CallPiece(number, "", "hire", given) for number, given in enumerate(hired)])
    return machine


def finish(machine: Machine, *pieces: CallPiece) -> None:
    (asked,) = machine.state.open
    stop = StopReason.TOOL_USE if pieces else StopReason.END_TURN
    usage = Usage(output=1)
    machine.advance(ModelFinished(at=1.0, request=asked, stop=stop, usage=usage, pieces=pieces))


def children_of(machine: Machine | None = None, store: Store | None = None, **settings: Any) -> Children:
    log = SessionLog(Journal("s", store))
    log.state.machine = machine
    given: dict[str, Any] = {"config": CONFIG, "performers": {}, "clock": AutoClock(9.0)}
    given |= {"new_id": lambda: "id", **settings}
    environment = Environment(**given)
    return Children(log, environment, Kid)


def kid(children: Children, call: str) -> Kid:
    """The session of *call*, known from now on."""
    children.here[call] = made = children.session(call)
    assert isinstance(made, Kid)
    return made


# Which there are


def test_a_session_without_a_run_has_no_children() -> None:
    children = children_of()
    assert (children.links, children.known, children.answerable) == ((), [], [])
    assert children.first_due() is None
    with pytest.raises(UnknownCall) as raised:
        children.session("r-2")
    assert raised.value.open == ()


def test_children_are_known_by_the_calls_that_run_in_the_order_of_those() -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    first, second = [link.call for link in children.links]
    assert [(link.session, link.agent) for link in children.links] == [
        (f"s.{first}", "scout"),
        (f"s.{second}", "payer"),
    ]
    assert children.known == []
    later, earlier = kid(children, second), kid(children, first)
    children.here["of an earlier run"] = later
    assert children.known == children.answerable == [earlier, later]


@pytest.mark.parametrize("stops", [CallCancelled(at=2.0, call=""), Interrupted(at=2.0)])
@pytest.mark.parametrize("applied", [True, False])
def test_a_child_that_is_told_to_stop_asks_nothing_that_counts(stops: Post, *, applied: bool) -> None:
    machine = machine_of(CONFIG, "scout", "payer")
    children = children_of(machine)
    first, second = [link.call for link in children.links]
    stopped, other = kid(children, first), kid(children, second)
    stopped.waiting, other.waiting = (QUESTION,), (attrs.evolve(QUESTION, id="p"),)
    assert children.asking("q", ()) is stopped
    if isinstance(stops, CallCancelled):
        stops = attrs.evolve(stops, call=first)
    if applied:
        machine.advance(stops)
    else:
        children.log.state.posted.append(stops)
    assert children.answerable == ([other] if isinstance(stops, CallCancelled) else [])
    with pytest.raises(UnknownRequest) as raised:
        children.asking("q", other.waiting)
    assert (raised.value.request, raised.value.open) == ("q", ("p",))


def test_a_question_is_that_of_the_child_that_asks_it() -> None:
    children = children_of(machine_of(CONFIG, "scout", "scout", "payer"))
    _, *calls = [link.call for link in children.links]
    first, second = [kid(children, call) for call in calls]
    second.waiting = (QUESTION,)
    assert children.asking("q", ()) is second
    assert children.asking("another", ()) is None
    assert first.done == second.done == []


def test_the_first_deadline_of_all_who_ask_counts_also_once_the_children_are_gone() -> None:
    policy = attrs.evolve(CONFIG.policy, answer_within=5.0)
    asks = attrs.evolve(CONFIG, policy=policy)
    children = children_of(machine_of(asks, "scout"))
    (link,) = children.links
    child = kid(children, link.call)
    assert children.first_due() is None
    child.machine = machine_of(asks, None)
    finish(child.machine, CallPiece(0, "", "pay", "{}"))
    assert children.first_due() == 6.0
    asyncio.run(children.close())
    assert (child.done, children.here) == (["close"], {})
    assert children.first_due() == 6.0


# Their sessions


def test_a_child_is_looked_at_without_its_task_and_outlives_no_hook_of_its_parent() -> None:
    store = MemoryStore()

    async def ended(session: str, reason: str) -> None:
        raise AssertionError(session, reason)

    children = children_of(machine_of(CONFIG, "scout"), store, ended=ended)
    (link,) = children.links
    made = children.session(link.call)
    assert isinstance(made, Kid)
    assert (made.id, made.store) == (link.session, store)
    environment = made.environment
    assert (environment.config.agent, environment.config.children) == ("scout", ())
    assert (environment.task, environment.ended) == (None, None)
    # Another object for each look, until it runs here.
    assert children.session(link.call) is not made
    children.here[link.call] = made
    assert children.session(link.call) is made


def test_a_child_that_is_over_is_found_by_its_call() -> None:
    machine = machine_of(CONFIG, "scout")
    children = children_of(machine)
    (link,) = children.links
    (asked,) = machine.state.open
    machine.advance(AgentFinished(at=2.0, request=asked, content="found", outcome=Outcome.OK))
    assert children.links == ()
    made = children.session(link.call)
    assert isinstance(made, Kid)
    assert made.environment.config.agent == "scout"
    with pytest.raises(UnknownCall):
        children.session("r-99")


def test_a_child_is_the_agent_that_a_person_made_of_it() -> None:
    asks = attrs.evolve(CONFIG, tools=(attrs.evolve(SPAWN, approval="always"), *CONFIG.tools[1:]))
    machine = machine_of(asks, "payer")
    (question,) = machine.state.open
    decision = Approve(arguments='{"agent": "scout", "prompt": "look only"}')
    machine.advance(ApprovalGiven(at=2.0, request=question, decision=decision))
    children = children_of(machine)
    (link,) = children.links
    made = children.session(link.call)
    assert isinstance(made, Kid)
    assert made.environment.config.agent == "scout"


def test_a_call_that_runs_no_child_is_answered_with_those_that_do() -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    with pytest.raises(UnknownCall) as raised:
        children.session("r-99")
    assert raised.value.open == tuple([link.call for link in children.links])


def test_without_a_store_all_children_have_one_in_memory() -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    one, two = [kid(children, link.call) for link in children.links]
    assert isinstance(one.store, MemoryStore)
    assert one.store is two.store


def test_a_child_is_opened_in_the_place_of_one_that_only_looked() -> None:
    children = children_of(machine_of(CONFIG, "scout"), MemoryStore())
    woken = list[int]()
    looked = kid(children, "r-2")
    task, config, clock = Input(id="r-2", text="go"), attrs.evolve(CONFIG, agent="scout"), AutoClock(3.0)
    opened, before = children.open(task, config, clock, lambda: woken.append(1))
    assert isinstance(opened, Kid)
    assert (before, children.here, opened.id) == (looked, {"r-2": opened}, "s.r-2")
    environment = opened.environment
    assert (environment.config, environment.clock, environment.task) == (config, clock, task)
    environment.rested()
    assert woken == [1]


# What is done with all of them


async def test_those_that_run_are_read_and_others_forgotten() -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    first, second = [link.call for link in children.links]
    known = kid(children, first)
    gone = Kid("s.gone", known.environment, None)
    known.fault = SessionClosed("s")
    children.here["gone"] = gone
    await children.load()
    assert list(children.here) == [first, second]
    assert children.here[first] is known
    made = children.here[second]
    assert isinstance(made, Kid)
    assert (known.done, made.done, gone.done) == (["load"], ["load"], [])


@pytest.mark.parametrize("fault", [ConfigError("over"), SessionClosed("s"), UnknownSession("s")])
async def test_a_mode_is_for_all_children_and_another_setting_for_none(fault: Exception) -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    one, two = [kid(children, link.call) for link in children.links]
    one.fault = fault
    change = SetMode(mode=PermissionMode.PLAN)
    await children.pass_modes(
        [SettingChanged(change=SetModel(model="two"), at=0.0), SettingChanged(change=change, at=0.0)]
    )
    assert one.done == two.done == [change]


async def test_closing_closes_each_child_that_has_not_ended_meanwhile() -> None:
    children = children_of(machine_of(CONFIG, "scout", "payer"))
    first, second = [link.call for link in children.links]
    one, two = kid(children, first), kid(children, second)

    def end() -> None:
        del children.here[first]

    two.closing = end
    await children.close()
    assert children.here == {}
    assert (one.done, two.done) == ([], ["close"])


# What they are made with


REQUEST = RunAgent(
    id="r-3", call="r-2", agent="scout", prompt="go", tools=("look", "hire"), limits=Limits(turns=3)
)


def test_a_child_has_what_it_is_granted() -> None:
    child = ChildSpec(name="scout", description="Finds things.", instructions=("SCOUT.md",))
    request = attrs.evolve(REQUEST, mode=PermissionMode.PLAN)
    config = child_config(
        attrs.evolve(CONFIG, instructions=("AGENTS.md",), system="Be kind."), child, request
    )
    assert [tool.name for tool in config.tools] == ["look"]
    assert (config.children, config.agent, config.instructions) == ((), "scout", ("SCOUT.md",))
    assert (config.limits, config.session_limits) == (Limits(turns=3), Limits(turns=3))
    assert (config.policy.mode, config.ceiling) == (PermissionMode.PLAN, PermissionMode.PLAN)
    assert config.policy.concurrency is Concurrency.PARALLEL_READS
    assert config.model == CONFIG.model
    assert config.system.startswith("You are scout, a helper of another agent. Finds things.")
    assert config.system == config.system.strip()
    own = attrs.evolve(child, system="Just look.", model=ModelSpec(name="two"))
    config = child_config(CONFIG, own, request)
    assert (config.system, config.model.name) == ("Just look.", "two")


PRICE = Price(input=1, output=1)


@pytest.mark.parametrize(
    ("usd", "prices", "helpers"),
    [
        (None, (None, None), ["two", "three"]),
        (1, (None, PRICE), ["three"]),
        (1, (PRICE, PRICE), ["two", "three"]),
    ],
)
def test_a_child_with_a_budget_in_money_has_the_helpers_with_a_price(
    usd: int | None, prices: tuple[Price | None, Price | None], helpers: list[str]
) -> None:
    two, three = [
        ModelSpec(name=name, price=price) for name, price in zip(("two", "three"), prices, strict=True)
    ]
    parent = attrs.evolve(
        CONFIG,
        model=ModelSpec(name="one", price=PRICE),
        models=(two, ModelSpec(name="four"), three),
        fallback="two",
        compaction=Compaction(model="three"),
    )
    request = attrs.evolve(REQUEST, limits=Limits(usd=usd))
    config = child_config(parent, ChildSpec(name="scout"), request)
    assert [model.name for model in config.models] == helpers
    assert config.fallback == ("two" if "two" in helpers else "")
    assert config.compaction.model == "three"


def scene_of(config: Config = CONFIG) -> tuple[PerformContext, list[Event | PassThroughNotice]]:
    emitted = list[Event | PassThroughNotice]()
    scene = PerformContext(
        session="s", run="r", config=config, history=History.of(), clock=AutoClock(7.0), emit=emitted.append
    )
    return scene, emitted


async def test_a_run_that_no_person_can_be_asked_in_goes_on_without_the_tool() -> None:
    answer = await refuse(QUESTION, scene_of()[0])
    assert (answer.at, answer.request) == (7.0, "q")
    assert isinstance(answer.decision, Deny)
    assert answer.decision.message == "Denied: no person can be asked. Go on without it."


# One run of a child


class Work:
    """One request to run a child, whose session the test plays."""

    def __init__(
        self, *, request: RunAgent = REQUEST, looked: bool = False, store: Store | None = None
    ) -> None:
        self.children = children_of(machine_of(CONFIG, "scout"), store)
        self.aborted = list[TurnwheelError]()
        self.looked = kid(self.children, "r-2") if looked else None
        self.scene, self.emitted = scene_of()
        self.runner = ChildRunner(self.children, noop, self.aborted.append)
        self.work = self.runner(request, self.scene)
        known = self.children.here.get(request.call)
        assert isinstance(known, Kid)
        self.kid: Kid = known

    async def answer(self) -> AgentFinished:
        answer = await self.work
        assert answer is not None
        assert (answer.at, answer.request) == (self.scene.clock.now(), "r-3")
        return answer


async def test_a_child_is_run_to_its_end_and_closed() -> None:
    work = Work(looked=True)
    ended = TurnEnded(
        request="r-1", turn=1, message=user("found"), stop=StopReason.END_TURN, usage=Usage(), at=0.0
    )
    delta = TextDelta(text="f", at=0.0)
    work.kid.notices = (delta, ended)
    answer = await work.answer()
    assert (answer.content, answer.outcome, answer.spent) == ("found", Outcome.OK, Spent(turns=2))
    assert work.looked is not None
    assert work.looked.done == ["close"]
    assert work.kid.done == ["load", "go", "close"]
    assert work.emitted == [
        AgentNoticed(call="r-2", notice=delta, at=0.0),
        AgentNoticed(call="r-2", notice=ended, at=0.0),
        AgentProgressed(at=7.0, request="r-3", spent=Spent(turns=2)),
    ]
    assert work.children.here == {}


async def test_a_child_that_has_begun_is_not_given_its_task_twice() -> None:
    work = Work()
    work.kid.machine = machine_of(work.kid.environment.config, None)
    await work.answer()
    assert None in work.kid.done


@pytest.mark.parametrize("left", ["closed", "unbegun", "unfinished", "queue"])
async def test_a_child_that_was_left_has_no_answer_yet_and_takes_inputs(left: str) -> None:
    work = Work()
    work.kid.unfinished, work.kid.queue = left == "unfinished", (MAIL,) * (left == "queue")
    work.kid.begins = left != "unbegun"
    if left == "closed":
        work.kid.notices = (SessionClosed("s.r-2"),)
    assert await work.work is None
    assert work.children.here == {"r-2": work.kid}
    assert "close" not in work.kid.done


@pytest.mark.parametrize(
    ("over", "text", "detail", "outcome", "content"),
    [
        (DoneReason.END_TURN, "found", "", Outcome.OK, "found"),
        (DoneReason.END_TURN, "", "", Outcome.OK, "(the agent gave no answer)"),
        (DoneReason.INTERRUPTED, "half", "", Outcome.CANCELLED, "half\n[ended: interrupted]"),
        (DoneReason.MAX_TURNS, "half", "3", Outcome.OK, "half\n[ended: max_turns: 3]"),
        (DoneReason.MAX_TURNS, "", "", Outcome.OK, "before\n[ended: max_turns]"),
        (DoneReason.ERROR, "", "why", Outcome.ERROR, "before\n[ended: error: why]"),
    ],
)
async def test_the_model_reads_what_a_child_found_and_why_it_ended(
    over: DoneReason, text: str, detail: str, outcome: Outcome, content: str
) -> None:
    work = Work()
    work.kid.over, work.kid.text, work.kid.detail = over, text, detail
    early, said, silent = [attrs.evolve(user(words), role=Role.ASSISTANT) for words in ("no", "before", "")]
    work.kid.history = History.of(user("go"), early, said, user("more"), silent)
    answer = await work.answer()
    assert (answer.outcome, answer.content) == (outcome, content)


async def test_a_session_that_is_another_agents_is_left_alone() -> None:
    work = Work()
    work.kid.machine = machine_of(attrs.evolve(CONFIG, agent="payer"), None)
    answer = await work.answer()
    assert answer.outcome is Outcome.ERROR
    assert answer.content == "The session 's.r-2' is not one of the agent 'scout'."
    assert answer.spent == Spent()
    assert work.kid.done == ["load", "close"]


@pytest.mark.parametrize(
    "fault",
    [
        NewerVersion("entry 1", 9, 4),
        ArgumentError("no decision"),
        StoreError("full"),
    ],
)
async def test_a_fault_that_may_pass_stops_the_parent_and_is_no_result(fault: TurnwheelError) -> None:
    work = Work()
    work.kid.notices = (fault,)
    with pytest.raises(type(fault)):
        await work.work
    assert work.aborted == [fault]
    assert work.children.here == {"r-2": work.kid}


async def test_a_child_whose_session_is_gone_is_a_result_and_is_paid_for() -> None:
    work = Work()
    work.kid.notices = (SessionGone("s.r-2", begun_anew=False),)
    answer = await work.answer()
    assert (answer.outcome, answer.spent) == (Outcome.CRASHED, Spent(turns=2))
    assert answer.content.startswith("The agent's session failed: ")
    assert work.aborted == []
    assert work.kid.done[-1] == "close"


async def test_a_child_that_was_closed_meanwhile_is_not_closed_again() -> None:
    work = Work()
    work.children.here.clear()
    assert (await work.answer()).content == "found"
    assert "close" not in work.kid.done


async def test_a_cancel_before_a_child_has_begun_ends_it_unbegun() -> None:
    work = Work()
    running = asyncio.ensure_future(work.work)
    await turns(2)
    running.cancel()
    answer = await running
    assert answer is not None
    assert (answer.outcome, answer.spent) == (Outcome.CANCELLED, Spent())
    assert not any(isinstance(each, tuple) for each in work.kid.done)


async def test_a_cancel_of_a_child_at_work_is_an_interrupt_and_has_its_answer() -> None:
    work = Work()
    work.kid.holds, work.kid.over = asyncio.Event(), DoneReason.INTERRUPTED
    running = asyncio.ensure_future(work.work)
    await turns(10)
    running.cancel()
    answer = await running
    assert answer is not None
    assert (answer.outcome, answer.content) == (Outcome.CANCELLED, "found\n[ended: interrupted]")
    assert work.kid.done.count("interrupt") == 1


async def test_a_stop_that_could_not_be_written_yet_is_the_first_thing_a_child_hears() -> None:
    work = Work()
    work.kid.machine = machine_of(work.kid.environment.config, None)
    work.kid.deaf = [StoreConflict("s.r-2", 1, 2)]
    running = asyncio.ensure_future(work.work)
    await turns(2)
    running.cancel()
    await running
    assert work.kid.done == ["load", "interrupt", "interrupt", None, "close"]


async def test_a_child_that_fails_as_it_is_left_hides_nothing() -> None:
    work = Work()
    work.kid.holds, work.kid.last = asyncio.Event(), StoreError("full")
    running = asyncio.ensure_future(work.work)
    await turns(10)
    running.cancel(LEAVING)
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_child_is_left_with_its_parent() -> None:
    work = Work()
    work.kid.holds = asyncio.Event()
    running = asyncio.ensure_future(work.work)
    await turns(10)
    running.cancel(LEAVING)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert work.kid.done == ["load", "go", "left"]
    assert work.children.here == {"r-2": work.kid}


@pytest.mark.parametrize("refusals", [1, module.TAKE_OVER_TRIES, module.TAKE_OVER_TRIES + 1])
async def test_a_child_is_taken_from_a_process_that_still_writes_for_a_while(refusals: int) -> None:
    work = Work()
    conflict = StoreConflict("s.r-2", 1, 2)
    left = [conflict] * refusals
    works = work.kid.work

    async def refused(task: str | None, reader: Reader) -> None:
        work.kid.notices = (left.pop(),) if left else ()
        await works(task, reader)

    work.kid.work = refused  # type: ignore[method-assign]  # a test plays it
    if refusals <= module.TAKE_OVER_TRIES:
        assert (await work.answer()).content == "found"
    else:
        with pytest.raises(
            StoreError, match=r"session 's\.r-2': another process goes on writing to it; try again"
        ):
            await work.work
        assert len(work.aborted) == 1
    clock = work.scene.clock
    assert isinstance(clock, AutoClock)
    pauses = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, *[0.5] * 20][: min(refusals, module.TAKE_OVER_TRIES)]
    assert clock.slept == pytest.approx(pauses)


def test_a_child_rests_where_it_runs_here_and_waits_for_people() -> None:
    children = children_of(machine_of(CONFIG, "scout"))
    runner = ChildRunner(children, noop, noop)
    assert not runner.resting(REQUEST)
    child = kid(children, "r-2")
    assert not runner.resting(REQUEST)
    child.resting = True
    assert runner.resting(REQUEST)
