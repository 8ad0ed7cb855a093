"""A child agent: a session of its own, performed as one request of its parent's."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Config, ModelSpec, ToolKind
from ..effects.events import AgentFinished, ApprovalGiven, Deny
from ..effects.messages import Outcome
from ..effects.notices import AgentNoticed, DoneReason
from ..effects.performers.base import LEAVING
from ..effects.requests import AskApproval
from .session import Session, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

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
    model = parent.model if child.model is None else ModelSpec(name=child.model)
    return attrs.evolve(parent, model=model, system=system, tools=offered, children=(), limits=request.limits)


async def refuse(request: AskApproval, scene: Scene) -> ApprovalGiven:
    """Answer a child's question where there is no approver: nobody said yes."""
    denied = Deny(message="Denied: nobody can be asked on behalf of this agent.")
    return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=denied)


@final
class ChildRunner:
    """
    Performs `RunAgent`: opens the child's session, runs it to its end, passes its notices on.

    The child's session is named after its parent's and the call, so a child whose process was lost goes on
    where it was. *performers* are its parent's. Cancelled, the child is interrupted and still answers; where
    its parent is only left, so is the child.
    """

    def __init__(self, performers: Callable[[], Performers], store: Callable[[], Store | None]) -> None:
        self._performers = performers
        self._store = store

    async def __call__(self, request: RunAgent, scene: Scene) -> AgentFinished:
        """Run the child that *request* names and return what it found."""
        child = scene.config.child(request.agent)
        if child is None:
            return self._answer(request, scene, f"No agent named {request.agent!r}.", Outcome.ERROR)
        setting = Setting(
            config=child_config(scene.config, child, request),
            # A question that nobody can answer would keep parent and child waiting for ever.
            performers={AskApproval: refuse, **self._performers()},
            clock=scene.clock,
            new_id=lambda: request.call,
        )
        async with Session(f"{scene.session}.{request.call}", setting, self._store()) as session:
            running = asyncio.ensure_future(self._run(session, request, scene))
            while not running.done():
                try:
                    await asyncio.shield(running)
                except asyncio.CancelledError as cancelled:
                    if cancelled.args == (LEAVING,):
                        running.cancel(LEAVING)
                        await asyncio.gather(running, return_exceptions=True)
                        raise
                    _uncancel()
                    session.interrupt()
            running.result()
            return self._finished(session, request, scene)

    async def _run(self, session: Session, request: RunAgent, scene: Scene) -> None:
        prompt = None if session.machine is not None else request.prompt
        async with aclosing(session.stream(prompt, wait=True)) as notices:
            async for notice in notices:
                scene.emit(AgentNoticed(call=request.call, notice=notice))

    def _finished(self, session: Session, request: RunAgent, scene: Scene) -> AgentFinished:
        result = session.result()
        outcome = Outcome.OK
        if result.reason is DoneReason.INTERRUPTED:
            outcome = Outcome.CANCELLED
        elif result.reason in FAILED:
            outcome = Outcome.ERROR
        text = result.text or "(the agent gave no answer)"
        ended = "" if result.reason is DoneReason.END_TURN else f"\n[ended: {result.reason}. {result.detail}]"
        answer = self._answer(request, scene, text + ended, outcome)
        return attrs.evolve(answer, spent=result.spent)

    @staticmethod
    def _answer(request: RunAgent, scene: Scene, content: str, outcome: Outcome) -> AgentFinished:
        return AgentFinished(at=scene.clock.now(), request=request.id, content=content, outcome=outcome)


def _uncancel() -> None:
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
