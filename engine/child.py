"""A child agent: a session of its own, performed as one request of its parent's."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Config, ToolKind
from ..effects.errors import SessionClosed
from ..effects.events import AgentFinished, ApprovalGiven, Deny
from ..effects.messages import Outcome
from ..effects.notices import AgentNoticed, DoneReason
from ..effects.performers.base import LEAVING
from ..effects.requests import AskApproval
from ..effects.usage import Spent
from ..states.rules import texts
from .conductor import Setting
from .session import Session

if TYPE_CHECKING:
    from ..effects.config import ChildSpec
    from ..effects.performers.base import Scene
    from ..effects.performers.stores.base import Store
    from ..effects.requests import RunAgent
    from .driver import Performers

SYSTEM = """\
You are {name}, a helper of another agent. {description}
Do what you are asked, with the tools you have, and end with a summary of your findings. Nobody can answer
questions."""

FAILED = frozenset({DoneReason.ERROR, DoneReason.ABORTED})
"""Ends after which a child's answer is no answer. After a limit, what it found is worth reading."""


def child_config(parent: Config, child: ChildSpec, request: RunAgent) -> Config:
    """
    The configuration of *child*: the tools and limits that *request* grants, and no way to start another.
    """
    offered = tuple(
        [tool for tool in parent.tools if tool.name in request.tools and tool.kind is not ToolKind.AGENT]
    )
    system = child.system or SYSTEM.format(name=child.name, description=child.description).strip()
    model = child.model or parent.model
    return attrs.evolve(
        parent,
        model=model,
        models=(),  # nobody switches a child
        system=system,
        instructions=(),  # a child gets its task and no more
        tools=offered,
        children=(),
        limits=request.limits,
        policy=attrs.evolve(parent.policy, mode=request.mode),
        agent=child.name,
    )


async def refuse(request: AskApproval, scene: Scene) -> ApprovalGiven:
    """Answer a question where there is nobody to ask: nobody said yes."""
    denied = Deny(message="Denied: nobody can be asked. Go on without it.")
    return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=denied)


@final
class ChildRunner:
    """
    Performs `RunAgent`: opens the child's session, runs it to its end, passes its notices on.

    The child's session is named after its parent's and the call and kept in the same *store*, so a child
    whose process was lost goes on where it was. *performers* are its parent's. Cancelled, the child is
    interrupted and still answers; where its parent is only left, so is the child.
    """

    def __init__(self, performers: Performers, store: Store | None) -> None:
        # A question that nobody can answer would keep parent and child waiting for ever.
        self._performers = {AskApproval: refuse, **performers}
        self._store = store

    async def __call__(self, request: RunAgent, scene: Scene) -> AgentFinished:
        """Run the child that *request* names and return what it found."""
        child = scene.config.child(request.agent)
        if child is None:
            return _answer(request, scene, f"No agent named {request.agent!r}.", Outcome.ERROR)
        setting = Setting(
            config=child_config(scene.config, child, request),
            performers=self._performers,
            clock=scene.clock,
            new_id=lambda: request.call,
        )
        run = _Run(Session(f"{scene.session}.{request.call}", setting, self._store), request, scene)
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
    """One child on its way, which may be told to stop at any moment, also before it has begun."""

    def __init__(self, session: Session, request: RunAgent, scene: Scene) -> None:
        self._session = session
        self._request = request
        self._scene = scene
        self._interrupted = False
        self._stops: list[asyncio.Future[None]] = []

    def interrupt(self) -> None:
        """Stop; asked twice, wait for nothing."""
        self._interrupted = True
        self._stops.append(asyncio.ensure_future(self._stop()))

    async def _stop(self) -> None:
        with suppress(SessionClosed):  # it has come to its end meanwhile
            await self._session.interrupt()

    async def to_the_end(self) -> AgentFinished:
        """Begin, or go on where a lost process was, and say what came of it."""
        request, scene = self._request, self._scene
        async with self._session as session:
            prompt = request.prompt if session.machine is None else None
            if self._interrupted:
                if prompt is not None:
                    return _answer(request, scene, texts.CANCELLED, Outcome.CANCELLED)
                await session.interrupt()
            async with aclosing(session.stream(prompt, wait=True)) as notices:
                async for notice in notices:
                    scene.emit(AgentNoticed(call=request.call, notice=notice))
            return self._finished(session)

    def _finished(self, session: Session) -> AgentFinished:
        result = session.result()
        outcome = Outcome.OK
        if result.reason is DoneReason.INTERRUPTED:
            outcome = Outcome.CANCELLED
        elif result.reason in FAILED:
            outcome = Outcome.ERROR
        text = result.text or "(the agent gave no answer)"
        if result.reason is not DoneReason.END_TURN:
            text += f"\n[ended: {result.reason}{': ' * bool(result.detail)}{result.detail}]"
        return _answer(self._request, self._scene, text, outcome, result.spent)


def _answer(
    request: RunAgent, scene: Scene, content: str, outcome: Outcome, spent: Spent | None = None
) -> AgentFinished:
    return AgentFinished(
        at=scene.clock.now(), request=request.id, content=content, outcome=outcome, spent=spent or Spent()
    )


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
