"""
The children of a session: each is a session of its own, run as one request of its parent.

Theory of operation. A child's session is named after its parent and the call, and lies in the same store;
without a store of the parent, in memory. A child that this process runs is in `here`. A child that runs
elsewhere, rests or has ended is reached through the store, by a session object without a task. That object
runs nothing: it journals inputs, and the process that runs the child applies them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import attrs

from ...effects.config import Config, ToolKind
from ...effects.errors import (
    AnswerRefused,
    ArgumentError,
    ConfigError,
    NewerVersion,
    SessionClosed,
    StoreConflict,
    StoreError,
    TurnwheelError,
    UnknownCall,
    UnknownSession,
    WorldError,
)
from ...effects.events import AgentFinished, AgentProgressed
from ...effects.messages import Outcome, Role
from ...effects.notices import AgentNoticed, DoneReason, SettingChanged, TurnEnded
from ...effects.records import SetMode
from ...effects.usage import Spent
from ...performers.approvals import located
from ...performers.base import LEAVING
from ...performers.stores.memory import MemoryStore
from ...performers.worker_pool import finish
from ...states.batch.start import child_session
from ...states.rules import model_messages
from ..core.inputs import Input, closed, closers
from ..core.machine import ChildLink, agent_before, deadlines_in, links_of
from .environment import FAILED_REASONS, POLL_PAUSE, Titles

if TYPE_CHECKING:
    from ...effects.config import ChildSpec
    from ...effects.notices import Notice
    from ...effects.requests import AskApproval, RunAgent
    from ...performers.base import Clock, PerformContext
    from .environment import ChildSession, Environment, OpenSession
    from .session_log import SessionLog
    from .subscription import Position


@final
@attrs.define(eq=False)
class Children:
    """
    The children of the session of *log*, which works in *environment*, by the calls they work for.

    A `ChildRunner` runs them.
    """

    log: SessionLog
    _environment: Environment
    _opens: OpenSession
    # By call. Also children that a caller only looks at, until `load` finds them ended.
    here: dict[str, ChildSession] = attrs.field(factory=dict, init=False)
    # When the first of the questions was over that were open when it was closed.
    _left: float | None = attrs.field(default=None, init=False)

    @cached_property
    def _memory(self) -> MemoryStore | None:
        # A child always has a journal: it may be opened twice in one run, and must know what it did.
        return None if self.log.journal.kept else MemoryStore()

    @property
    def links(self) -> tuple[ChildLink, ...]:
        """The running children, in call order."""
        machine = self.log.state.machine
        return () if machine is None else links_of(machine.state, self.log.journal.session)

    @property
    def known(self) -> list[ChildSession]:
        """The sessions of the running children that are known here."""
        # By the links and not by `here` alone: a child of an earlier run may still be in there.
        return [self.here[link.call] for link in self.links if link.call in self.here]

    @property
    def waiting(self) -> tuple[AskApproval, ...]:
        """The open questions: the session's own, then those of its children."""
        # An interrupt that waits for `resume` withdraws theirs, too: an answer could change nothing.
        own, machine = self.log.state.questions, self.log.state.machine
        if machine is not None:
            session, run = self.log.journal.session, machine.memory.run
            own = tuple([located(asked, session, run, machine.config) for asked in own])
        return (*own, *[asked for child in self.answerable for asked in child.waiting])

    @property
    def answerable(self) -> list[ChildSession]:
        """Those of `known` whose questions count: nothing has told them to stop, or is about to."""
        stopped = closers(self.log.state)
        return [self.here[link.call] for link in self.links if link.call in {*self.here} - {*stopped}]

    def first_due(self) -> float | None:
        """When the first of the open questions, the session's own or theirs, is over; None for never."""
        machines = [self.log.state.machine, *[child.machine for child in self.known]]
        dues = [one.due for machine in machines if machine is not None for one in deadlines_in(machine.state)]
        return min(dues if self._left is None else [*dues, self._left], default=None)

    def asking(self, request: str, waiting: Iterable[AskApproval]) -> ChildSession | None:
        """
        The child that asks *request*, None where none does.

        Raises `UnknownRequest` with the questions that are *waiting* where that child is being stopped.
        """
        for link in self.links:
            child = self.here.get(link.call)
            if child is None or request not in [question.id for question in child.waiting]:
                continue
            if child not in self.answerable:
                raise closed(request, self.log.state, link.call, waiting)
            return child
        return None

    def session(self, call: str) -> ChildSession:
        """
        The session of the child of *call*, running or ended.

        Raises `UnknownCall` with the running ones.
        """
        # The same object for all callers while it runs here: only that one has its driver.
        if (known := self.here.get(call)) is not None:
            return known
        agents = {link.call: link.agent for link in self.links}
        agent = agents.get(call) or agent_before(call, self.log.state.machine)
        if not agent:
            raise UnknownCall(call, tuple(agents))
        # Without a task, so that it runs nothing; its real configuration is in its journal.
        config = attrs.evolve(self._environment.config, agent=agent, children=())
        return self._made(call, attrs.evolve(self._environment, config=config))

    def open(
        self, task: Input, config: Config, clock: Clock, rested: Callable[[], None]
    ) -> tuple[ChildSession, ChildSession | None]:
        """
        The session to run the child of *task* in, whose id is the call, and the session that it replaces.

        *rested* is called when it waits only for people.
        The caller closes the replaced one, which only looked at the child.
        """
        # The new session stands in `here` before the caller closes the old one. The old one only reads the
        # child's journal, so no caller may get it now.
        before = self.here.get(task.id)
        environment = attrs.evolve(self._environment, config=config, clock=clock, task=task, rested=rested)
        self.here[task.id] = self._made(task.id, environment)
        return self.here[task.id], before

    def _made(self, call: str, environment: Environment) -> ChildSession:
        # The hooks of the session's end are the parent's: a child is part of its work. It needs no title: a
        # person finds it through its parent, and in a list by its agent.
        environment = attrs.evolve(environment, ended=None, titles=Titles.OFF)
        store = self.log.journal.store if self._memory is None else self._memory
        made: ChildSession = self._opens(child_session(self.log.journal.session, call), environment, store)
        return made

    async def load(self) -> None:
        """Read the journals of the running children, and forget the others."""
        calls = [link.call for link in self.links]
        self.here = {call: session for call, session in self.here.items() if call in calls}
        for call in calls:
            child = self.here[call] = self.session(call)
            # It may end, and be closed, while the one before it is read.
            with suppress(SessionClosed):
                await child.load()

    async def pass_modes(self, notices: Iterable[Notice]) -> None:
        """Change the mode of the children known here as *notices* say of their parent's."""
        # After the parent's own step: a crash in between leaves them with the old one, which `take_over`
        # makes good. A model or a budget of thinking is the child's own; the mode is what a person allows for
        # all.
        for notice in notices:
            if isinstance(notice, SettingChanged) and isinstance(notice.change, SetMode):
                for child in self.known:
                    # It may have ended, or not begun: then it begins with the mode of its parent.
                    with suppress(ConfigError, SessionClosed, UnknownSession):
                        await child.take_mode(notice.change)

    async def close(self) -> None:
        """Close the children known here."""
        # What they ask is not known here any more.
        self._left = self.first_due()
        # One at a time from the dict: a child that ends meanwhile removes itself.
        while self.here:
            await self.here.popitem()[1].close()


CHILD_SYSTEM = """\
You are {name}, a helper of another agent. {description}
Do what you are asked, with the tools you have, and end with a summary of your findings. No person can answer
questions."""

# How often a child is taken over from a process that has not noticed yet that it lost the session, and the
# seconds before the second time; they double, up to that many: such a process looks about as often.
TAKE_OVER_TRIES, FIRST_PAUSE, LONGEST_PAUSE = 20, 0.01, POLL_PAUSE


def child_config(parent: Config, child: ChildSpec, request: RunAgent) -> Config:
    """
    The configuration of *child*: the tools and limits that *request* grants, and no children of its own.

    Its system prompt is short, and it reads no instructions but its own: all it needs is in its task.
    """
    # Not by `children=()` alone: the spawning tool is a tool like any other, and could be granted by name.
    offered = tuple(
        [tool for tool in parent.tools if tool.name in request.tools and tool.kind is ToolKind.FUNCTION]
    )
    # The helper's prompt says that no person answers, or a model would end its work with a question.
    system = child.system or CHILD_SYSTEM.format(name=child.name, description=child.description).strip()
    model = child.model or parent.model
    # No person switches a child to another model. It keeps those for a fallback and for summaries, and under
    # a budget in money only such as have a price: the machine refuses any other.
    priced = request.limits.usd is not None
    wanted = {parent.fallback, parent.compaction.model} - {model.name}
    known = [each for each in (parent.model, *parent.models) if each.name in wanted]
    helpers = tuple([each for each in known if each.price is not None or not priced])
    names = [each.name for each in (model, *helpers)]
    return attrs.evolve(
        parent,
        model=model,
        models=helpers,
        fallback=parent.fallback if parent.fallback in names else "",
        compaction=attrs.evolve(
            parent.compaction, model=parent.compaction.model if parent.compaction.model in names else ""
        ),
        system=system,
        instructions=child.instructions,
        tools=offered,
        children=(),
        limits=request.limits,
        # For all its runs: a person may send it further prompts, and they are no reason for more.
        session_limits=request.limits,
        policy=attrs.evolve(parent.policy, mode=request.mode),
        agent=child.name,
        ceiling=request.mode,
        output=None,
    )


@final
@attrs.define(eq=False, repr=False)
class ChildRunner:
    """
    Performs `RunAgent`: opens the child's session among *children*, and runs it to its end.

    The child has a journal, so after a crash it goes on where it was, or its result is only read. It waits
    for answers to its questions as long as its parent is driven. A cancel interrupts it, and it still
    answers; where its parent is left, the child is left, too.

    *wake* has the parent's driver check whether it rests, *abort* ends its work with an error: a child that
    finds another owner ends its parent's run, too, because that owner drives both.
    """

    _children: Children
    _wake: Callable[[], None]
    _abort: Callable[[TurnwheelError], None]

    def resting(self, request: RunAgent) -> bool:
        """Whether the child of *request*, which runs here, waits only for people."""
        child = self._children.here.get(request.call)
        return child is not None and child.resting

    def __call__(self, request: RunAgent, scene: PerformContext) -> Coroutine[Any, Any, AgentFinished | None]:
        """
        Run the child that *request* names and return its findings; None where it goes on later.

        Not a coroutine function: the session exists at once, for a subscriber that sees the start.
        """
        # Both faults go to the model as the call's result: another call may do better.
        child = scene.config.child(request.agent)
        if child is None:
            return _failed(request, scene, f"No agent named {request.agent!r}.")
        try:
            config = child_config(scene.config, child, request)
            task = Input(text=request.prompt, id=request.call)
            opened = self._children.open(task, config, scene.clock, self._wake)
        except ConfigError as error:
            return _failed(request, scene, f"The agent {request.agent!r} cannot be started: {error}")
        return _Run(self._children, *opened, self._abort, request, scene).perform()


@final
@attrs.define(eq=False, repr=False)
class _Run:
    """
    The run of one child, which may be interrupted at any moment, also before it has begun.
    """

    _children: Children
    _session: ChildSession
    # What only looked at the child until now.
    _before: ChildSession | None
    _abort: Callable[[TurnwheelError], None]
    _request: RunAgent
    _scene: PerformContext
    # One for each interrupt. Held here: the event loop keeps only weak references to tasks.
    _stops: list[asyncio.Future[None]] = attrs.field(factory=list, init=False)
    # The latest pause before a try to take the child over.
    _pausing: asyncio.Future[None] | None = attrs.field(default=None, init=False)

    async def perform(self) -> AgentFinished | None:
        """The answer, None where it was drained; a cancellation is passed on to the child."""
        # A cancel of this request is an interrupt of the child, which then ends by itself and answers. A
        # person may cancel twice, and the second one cuts the child's own work short.
        work = asyncio.ensure_future(self._to_the_end())
        try:
            return await finish(work, self._cancel)
        except asyncio.CancelledError:
            work.cancel(LEAVING)
            await asyncio.gather(work, return_exceptions=True)
            raise

    def _cancel(self, cancelled: asyncio.CancelledError) -> None:
        # The parent is left, not interrupted: the child stops where it is, and goes on with its parent.
        if cancelled.args == (LEAVING,):
            raise cancelled
        # Known by a child that has not begun, and a task for one that has: this must not block.
        self._stops.append(asyncio.ensure_future(self._stop()))
        if self._pausing is not None:
            self._pausing.cancel()

    async def _stop(self) -> None:
        # It may have ended by now. A store that fails ends the child's own stream, which says so.
        with suppress(SessionClosed, WorldError):
            await self._session.interrupt()

    async def _to_the_end(self) -> AgentFinished | None:
        """Begin, or go on after a lost process, and return the answer; None where the child was closed."""
        # It only looked at the child: two objects for one journal in one process would conflict.
        if self._before is not None:
            await self._before.close()
        try:
            await self._session.load()
            answer = await self._answered()
        except SessionClosed:
            return None
        except (NewerVersion, AnswerRefused, ArgumentError, StoreError, StoreConflict) as error:
            # A failure would be final for the parent. It stops instead, for a process of the newer version,
            # for a decision that the question can have, or for the time when the store is well again.
            self._abort(error)
            raise
        except WorldError as error:
            # The tokens up to here are paid for, so they count.
            fault = f"The agent's session failed: {error}"
            answer = _answer(self._request, self._scene, fault, Outcome.CRASHED, self._session.spent)
        # A child that was left stays in `here`: inputs may come until its parent is closed. One that ended is
        # gone already where that happened first.
        if answer is not None and self._children.here.pop(self._request.call, None) is not None:
            await self._session.close()
        return answer

    async def _answered(self) -> AgentFinished | None:
        session = self._session
        # Nothing has been spent yet, and a child that is not begun leaves no journal.
        if self._stops and session.machine is None:
            return _answer(self._request, self._scene, model_messages.CANCELLED, Outcome.CANCELLED)
        # The name can be taken: a person may have made a session that is called so.
        if session.machine is not None and session.machine.config.agent != self._request.agent:
            fault = f"The session {session.id!r} is not one of the agent {self._request.agent!r}."
            return _answer(self._request, self._scene, fault, Outcome.ERROR)
        await self._take_over()
        # The stream ended early: answering now would make half of its work the result.
        drained = session.machine is None or session.unfinished or session.queue
        return None if drained else self._finished()

    async def _take_over(self) -> None:
        """Go on, also where a process still writes that has not noticed its takeover."""
        # Its parent's journal was taken over first, so it stops at its next look there.
        tries = 0
        while True:
            stops = len(self._stops)
            try:
                return await self._go_on()
            except StoreConflict as conflict:
                # Raises where this is the process that lost its session.
                await self._children.log.look()
                if tries == TAKE_OVER_TRIES:
                    msg = f"session {self._session.id!r}: another process goes on writing to it; try again"
                    raise StoreError(msg) from conflict
            # An interrupt came meanwhile: now it is its turn.
            if len(self._stops) == stops:
                await self._pause(min(FIRST_PAUSE * 2**tries, LONGEST_PAUSE))
            tries += 1

    async def _pause(self, seconds: float) -> None:
        """Wait for *seconds*, or until the child is interrupted."""
        clock = self._scene.clock
        self._pausing = asleep = asyncio.ensure_future(clock.sleep_until(clock.now() + seconds))
        try:
            await asyncio.wait({asleep})
        finally:
            # Where the parent is left, nothing waits for it any more.
            asleep.cancel()

    async def _go_on(self) -> None:
        request, session = self._request, self._session
        # Before the stream: the interrupt is then the first event that the child's run applies.
        if self._stops:
            await session.interrupt()
        # After a crash it has its task: a second prompt would ask for the work twice.
        await session.work(request.prompt if session.machine is None else None, self)

    # A reader of the child's feed. So the parent has a question before the child rests.

    behind = False

    def put(self, notice: Notice, at: Position | None = None) -> None:  # noqa: ARG002  # as readers have it
        """Pass *notice* on to the parent."""
        request, scene = self._request, self._scene
        scene.emit(AgentNoticed(call=request.call, notice=notice, at=notice.at))
        # The parent's budget must see the spend while the child works, and not when it is too late.
        if isinstance(notice, TurnEnded):
            now, spent = scene.clock.now(), self._session.spent
            scene.emit(AgentProgressed(at=now, request=request.id, spent=spent))

    def end(self) -> None:
        """Nothing: the answer of the child says so."""

    def _finished(self) -> AgentFinished:
        session, result = self._session, self._session.result()
        outcome = Outcome.OK
        if result.reason is DoneReason.INTERRUPTED:
            outcome = Outcome.CANCELLED
        elif result.reason in FAILED_REASONS:
            outcome = Outcome.ERROR
        text = result.text or "(the agent gave no answer)"
        if result.reason is not DoneReason.END_TURN:
            # A child that met a limit in the middle of its work has often written something before.
            texts = (one.text for one in reversed(session.history) if one.role is Role.ASSISTANT and one.text)
            text = result.text or next(texts, text)
            text += f"\n[ended: {result.reason}{': ' * bool(result.detail)}{result.detail}]"
        # Of all its runs: there are several where a person sent it prompts.
        return _answer(self._request, self._scene, text, outcome, session.spent)


async def _failed(request: RunAgent, scene: PerformContext, why: str) -> AgentFinished:
    # A coroutine, since a performer's answer is awaited.
    return _answer(request, scene, why, Outcome.ERROR)


def _answer(
    request: RunAgent, scene: PerformContext, content: str, outcome: Outcome, spent: Spent | None = None
) -> AgentFinished:
    return AgentFinished(
        at=scene.clock.now(), request=request.id, content=content, outcome=outcome, spent=spent or Spent()
    )
