"""A child agent: a session of its own, performed as one request of its parent's."""

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
    WorldError,
)
from ...effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    Deny,
)
from ...effects.messages import Outcome, Role
from ...effects.notices import AgentNoticed, DoneReason, TurnEnded
from ...effects.usage import Spent
from ...performers.base import LEAVING
from ...states.rules import model_messages
from .inputs import Input

if TYPE_CHECKING:
    from ...effects.config import ChildSpec, ModelSpec
    from ...effects.history import History
    from ...effects.requests import AskApproval, RunAgent
    from ...performers.base import PerformContext
    from .children import Children
    from .session import Session

SYSTEM = """\
You are {name}, a helper of another agent. {description}
Do what you are asked, with the tools you have, and end with a summary of your findings. Nobody can answer
questions."""

FAILED = frozenset({DoneReason.ERROR, DoneReason.ABORTED, DoneReason.BLOCKED})
"""Ends after which a child's answer is no answer. After a limit, what it found is worth reading."""


TRIES = 20
"""How often a child is taken over from a process that does not know yet that it was overtaken."""


def child_config(parent: Config, child: ChildSpec, request: RunAgent) -> Config:
    """
    The configuration of *child*: the tools and limits that *request* grants, and no way to start another.

    Its prompt is a short one, and it reads no instructions but its own: it gets its task and no more.
    """
    offered = tuple(
        [tool for tool in parent.tools if tool.name in request.tools and tool.kind is not ToolKind.AGENT]
    )
    system = child.system or SYSTEM.format(name=child.name, description=child.description).strip()
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
            self._children.leave(error)  # whoever can read it goes on, with its parent as with the child
            raise
        except WorldError as error:
            # What it used is known all the same.
            fault = f"The agent's session failed: {error}"
            answer = _answer(self._request, self._scene, fault, Outcome.CRASHED, self._session.spent)
        if answer is not None:
            await self._children.over(self._request.call)  # one that is left can still be spoken to
        return answer

    async def _answered(self, session: Session) -> AgentFinished | None:
        if self._interrupted and session.machine is None:
            return _answer(self._request, self._scene, model_messages.CANCELLED, Outcome.CANCELLED)
        if session.machine is not None and session.machine.config.agent != self._request.agent:
            fault = f"The session {session.id!r} is not one of the agent {self._request.agent!r}."
            return _answer(self._request, self._scene, fault, Outcome.ERROR)
        await self._take_over(session)
        drained = session.machine is None or session.unfinished or session.queue
        return None if drained else self._finished(session)

    async def _take_over(self, session: Session) -> None:
        """Go on, also where a process still writes that has not seen yet that it was overtaken."""
        for _ in range(TRIES):
            try:
                return await self._go_on(session)
            except StoreConflict:
                await self._children.ours()  # raises where this is that process
        return await self._go_on(session)

    async def _go_on(self, session: Session) -> None:
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

    def _finished(self, session: Session) -> AgentFinished:
        result = session.result()
        outcome = Outcome.OK
        if result.reason is DoneReason.INTERRUPTED:
            outcome = Outcome.CANCELLED
        elif result.reason in FAILED:
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
