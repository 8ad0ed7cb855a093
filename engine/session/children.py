"""
The children of a session, and how one is run: a session of its own, performed as one request of its parent's.

Theory of operation. A child's session is named after its parent's and the call, and lies in the same store;
where its parent has none, in a store that ends with it. The process that runs a child here puts it into
`here`. A child that runs elsewhere, rests or is over is reached through the store by a session object without
a task, which runs nothing: inputs that come in through it are applied by the process that runs the child.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, final

import attrs

from ...effects.config import Config, ToolKind
from ...effects.errors import (
    ConfigError,
    NewerVersion,
    SessionClosed,
    StoreConflict,
    UnknownCall,
    UnknownSession,
    WorldError,
)
from ...effects.events import AgentFinished, AgentProgressed, ApprovalGiven, Deny
from ...effects.messages import Outcome, Role
from ...effects.notices import AgentNoticed, DoneReason, TurnEnded
from ...effects.records import SetMode
from ...effects.usage import Spent
from ...performers.base import LEAVING, noop
from ...performers.stores.memory import MemoryStore
from ...states.rules import model_messages
from ..inputs import Input
from ..open_work import ChildLink, agent_before, links_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ...effects.config import ChildSpec, ModelSpec
    from ...effects.history import History
    from ...effects.records import Change
    from ...effects.requests import AskApproval, RunAgent
    from ...performers.base import Clock, PerformContext
    from ...performers.stores.base import Store
    from ..machine import Machine
    from .environment import ChildSession, Environment, OpenSession


async def _owned() -> None:
    """No other process has the session: without a store it is this one's."""


@final
class Children:
    """
    The children of *session*, which works in *environment*, by the calls they work for.

    The parent's runner sets three callbacks: *wake* makes its driver look around, *check_ownership* raises
    `StoreConflict` where another process drives the session now, *abort* stops the driver and says why.
    """

    def __init__(
        self, session: str, environment: Environment, store: Store | None, opens: OpenSession
    ) -> None:
        self.here: dict[str, ChildSession] = {}
        self.wake: Callable[[], None] = noop
        self.check_ownership: Callable[[], Awaitable[None]] = _owned
        self.abort: Callable[[WorldError], None] = noop
        self._session = session
        self._environment = environment
        self._opens = opens
        self._store = MemoryStore() if store is None else store

    def name(self, call: str) -> str:
        """The id of the session of the child that works for *call*."""
        return f"{self._session}.{call}"

    def links(self, machine: Machine | None) -> tuple[ChildLink, ...]:
        """The children that are not over in *machine*, in call order."""
        return () if machine is None else links_of(machine.state, self._session)

    def session(self, call: str, machine: Machine | None) -> ChildSession:
        """
        The session of the child that works for *call* in *machine*, or did.

        Raises `UnknownCall` with the children that are not over.
        """
        if (known := self.here.get(call)) is not None:
            return known
        agents = {link.call: link.agent for link in self.links(machine)}
        agent = agents.get(call) or agent_before(call, machine)
        if not agent:
            raise UnknownCall(call, tuple(agents))
        return self._seen(call, agent)

    def _seen(self, call: str, agent: str) -> ChildSession:
        """The session of the child *agent*, for whoever looks at it or speaks to it."""
        config = attrs.evolve(self._environment.config, agent=agent, children=())
        return self._made(call, attrs.evolve(self._environment, config=config))

    def open(self, task: Input, config: Config, clock: Clock) -> tuple[ChildSession, ChildSession | None]:
        """
        The session of the child that is to be run here for *task*, which has the id of its call.

        With the one that it takes the place of, if there is one: that is to be closed.
        """
        before = self.here.get(task.id)
        environment = attrs.evolve(self._environment, config=config, clock=clock, task=task, rested=self.wake)
        self.here[task.id] = self._made(task.id, environment)
        return self.here[task.id], before

    async def over(self, call: str) -> None:
        """The child that was run here for *call* has come to its end."""
        if (child := self.here.pop(call, None)) is not None:  # else its parent was let go of
            await child.close()

    def drained(self, within: float | None) -> list[Coroutine[Any, Any, None]]:
        """What drains those that are known here; see `Session.drain`."""
        return [child.drain(within) for child in self.here.values()]

    async def close(self) -> None:
        """Let go of those that are known here."""
        while self.here:
            await self.here.popitem()[1].close()

    def _made(self, call: str, environment: Environment) -> ChildSession:
        made: ChildSession = self._opens(self.name(call), attrs.evolve(environment, ended=None), self._store)
        return made

    async def load(self, machine: Machine | None) -> None:
        """Read what is new of the children that are not over in *machine*, and forget the others."""
        calls = [link.call for link in self.links(machine)]
        self.here = {call: session for call, session in self.here.items() if call in calls}
        for call in calls:
            child = self.session(call, machine)
            self.here[call] = child
            with suppress(SessionClosed):  # it has come to its end meanwhile
                await child.load()

    # What they wait for

    def waiting(self, machine: Machine | None) -> tuple[AskApproval, ...]:
        """The questions that children ask, as far as is known here, and that nobody has answered."""
        known = [self.here[link.call] for link in self.links(machine) if link.call in self.here]
        return tuple([question for child in known for question in child.waiting])

    def asking(self, request: str, machine: Machine | None) -> ChildSession | None:
        """The child whose question *request* is, as far as is known here."""
        for link in self.links(machine):
            child = self.here.get(link.call)
            if child is not None and request in [question.id for question in child.waiting]:
                return child
        return None

    def rest(self, call: str) -> bool:
        """Whether the child at *call*, which is run here, waits for people and for nothing else."""
        child = self.here.get(call)
        return child is not None and child.resting

    # What is said to them

    async def follow(self, change: Change, machine: Machine | None) -> None:
        """Change the mode of the children that are known here, where *change* did so of their parent's."""
        if not isinstance(change, SetMode):
            return
        for link in self.links(machine):
            child = self.here.get(link.call)
            if child is not None:
                # It has come to its end meanwhile, or has not begun and will with the mode of its parent.
                with suppress(ConfigError, SessionClosed, UnknownSession):
                    await child.control(change)


CHILD_SYSTEM = """\
You are {name}, a helper of another agent. {description}
Do what you are asked, with the tools you have, and end with a summary of your findings. Nobody can answer
questions."""

FAILED_REASONS = frozenset({DoneReason.ERROR, DoneReason.ABORTED, DoneReason.BLOCKED})
"""Ends after which a child's answer is no answer. After a limit, what it found is worth reading."""


TAKE_OVER_TRIES = 20
"""How often a child is taken over from a process that has not noticed yet that it lost the session."""


def child_config(parent: Config, child: ChildSpec, request: RunAgent) -> Config:
    """
    The configuration of *child*: the tools and limits that *request* grants, and no way to start another.

    Its prompt is a short one, and it reads no instructions but its own: it gets its task and no more.
    """
    offered = tuple(
        [tool for tool in parent.tools if tool.name in request.tools and tool.kind is not ToolKind.AGENT]
    )
    system = child.system or CHILD_SYSTEM.format(name=child.name, description=child.description).strip()
    model = child.model or parent.model
    helpers = _helpers(parent, model, priced=request.limits.usd is not None)
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
        session_limits=request.limits,  # somebody may give it more to do, and that is no reason for more
        policy=attrs.evolve(parent.policy, mode=request.mode),
        agent=child.name,
    )


def _helpers(parent: Config, model: ModelSpec, *, priced: bool) -> tuple[ModelSpec, ...]:
    """
    Nobody switches a child that is asked *model*, but it may need who takes over and who summarises.

    *priced*: they need a price, since what it may use is counted in money.
    """
    wanted = {parent.fallback, parent.compaction.model} - {model.name}
    known = [each for each in (parent.model, *parent.models) if each.name in wanted]
    return tuple([each for each in known if each.price is not None or not priced])


async def refuse(request: AskApproval, scene: PerformContext) -> ApprovalGiven:
    """Answer a question where there is nobody to ask: nobody said yes."""
    denied = Deny(message="Denied: nobody can be asked. Go on without it.")
    return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=denied)


@final
class ChildRunner:
    """
    Performs `RunAgent`: opens the child's session among *children*, runs it to its end, tells its parent.

    What is kept of the child is its own, so one whose process was lost goes on where it was, and of one that
    came to its end the result is read. Its questions are questions of its session: it waits for the answers
    as long as its parent is driven. Cancelled, it is interrupted and still answers; where its parent is only
    left, so is the child.
    """

    def __init__(self, children: Children) -> None:
        self._children = children

    def resting(self, request: RunAgent) -> bool:
        """Whether the child of *request*, which runs here, waits for people and for nothing else."""
        return self._children.rest(request.call)

    def __call__(self, request: RunAgent, scene: PerformContext) -> Coroutine[Any, Any, AgentFinished | None]:
        """
        Run the child that *request* names and return what it found; None where it is left to later.

        Its session is there as soon as this is called: whoever sees that it was started may speak to it.
        """
        child = scene.config.child(request.agent)
        if child is None:
            return _failed(request, scene, f"No agent named {request.agent!r}.")
        try:
            run = _Run(self._children, child_config(scene.config, child, request), request, scene)
        except ConfigError as error:
            return _failed(request, scene, f"The agent {request.agent!r} cannot be started: {error}")
        return _perform(run)


async def _perform(run: _Run) -> AgentFinished | None:
    """The answer of *run*, None where it was drained; a cancellation is passed on to it."""
    work = asyncio.ensure_future(run.to_the_end())
    while not work.done():
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError as cancelled:
            if cancelled.args == (LEAVING,):
                work.cancel(LEAVING)
                await asyncio.gather(work, return_exceptions=True)
                raise
            _uncancel()
            run.interrupt()
    return work.result()


@final
class _Run:
    """
    One child on its way, which may be told to stop at any moment, also before it has begun.

    Its session is the one that *children* opened, in place of one that was there before, if any was.
    """

    def __init__(self, children: Children, config: Config, request: RunAgent, scene: PerformContext) -> None:
        task = Input(text=request.prompt, id=request.call)
        self._session, self._before = children.open(task, config, scene.clock)
        self._children = children
        self._request = request
        self._scene = scene
        self._interrupted = False
        self._stops: list[asyncio.Future[None]] = []

    def interrupt(self) -> None:
        """Stop; asked twice, wait for nothing."""
        self._interrupted = True
        self._stops.append(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        with suppress(SessionClosed, WorldError):  # it has come to its end meanwhile, one way or another
            await self._session.interrupt()

    async def to_the_end(self) -> AgentFinished | None:
        """Begin, or go on where a lost process was, and say what came of it; None where it was let go of."""
        if self._before is not None:
            await self._before.close()
        try:
            answer = await self._answered(await self._session.load())
        except SessionClosed:
            return None
        except NewerVersion as error:
            self._children.abort(error)  # whoever can read it goes on, with its parent as with the child
            raise
        except WorldError as error:
            # What it used is known all the same.
            fault = f"The agent's session failed: {error}"
            answer = _answer(self._request, self._scene, fault, Outcome.CRASHED, self._session.spent)
        if answer is not None:
            await self._children.over(self._request.call)  # one that is left can still be spoken to
        return answer

    async def _answered(self, session: ChildSession) -> AgentFinished | None:
        if self._interrupted and session.machine is None:
            return _answer(self._request, self._scene, model_messages.CANCELLED, Outcome.CANCELLED)
        if session.machine is not None and session.machine.config.agent != self._request.agent:
            fault = f"The session {session.id!r} is not one of the agent {self._request.agent!r}."
            return _answer(self._request, self._scene, fault, Outcome.ERROR)
        await self._take_over(session)
        drained = session.machine is None or session.unfinished or session.queue
        return None if drained else self._finished(session)

    async def _take_over(self, session: ChildSession) -> None:
        """Go on, also where a process still writes that has not seen yet that it was overtaken."""
        for _ in range(TAKE_OVER_TRIES):
            try:
                return await self._go_on(session)
            except StoreConflict:
                await self._children.check_ownership()  # raises where this is that process
        return await self._go_on(session)

    async def _go_on(self, session: ChildSession) -> None:
        request, machine = self._request, session.machine
        if self._interrupted:
            await session.interrupt()
        prompt = request.prompt if machine is None else None
        async with aclosing(session.stream(prompt, id=request.call, wait=True)) as notices:
            async for notice in notices:
                self._scene.emit(AgentNoticed(call=request.call, notice=notice))
                if isinstance(notice, TurnEnded):
                    at = self._scene.clock.now()
                    self._scene.emit(AgentProgressed(at=at, request=request.id, spent=session.spent))

    def _finished(self, session: ChildSession) -> AgentFinished:
        result = session.result()
        outcome = Outcome.OK
        if result.reason is DoneReason.INTERRUPTED:
            outcome = Outcome.CANCELLED
        elif result.reason in FAILED_REASONS:
            outcome = Outcome.ERROR
        text = result.text or _last_said(session.history) or "(the agent gave no answer)"
        if result.reason is not DoneReason.END_TURN:
            text += f"\n[ended: {result.reason}{': ' * bool(result.detail)}{result.detail}]"
        # Of all its runs: there is more than one where somebody spoke to it.
        return _answer(self._request, self._scene, text, outcome, session.spent)


def _last_said(history: History) -> str:
    """The last text that was not said by a person."""
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if message.role is Role.ASSISTANT and message.text:
            return message.text
    return ""


async def _failed(request: RunAgent, scene: PerformContext, why: str) -> AgentFinished:
    return _answer(request, scene, why, Outcome.ERROR)


def _answer(
    request: RunAgent, scene: PerformContext, content: str, outcome: Outcome, spent: Spent | None = None
) -> AgentFinished:
    return AgentFinished(
        at=scene.clock.now(), request=request.id, content=content, outcome=outcome, spent=spent or Spent()
    )


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
