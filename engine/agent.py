"""The agent: settings and performers put together, and the three ways to run it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import Future
from contextlib import aclosing
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, final

import attrs

from ..effects.config import (
    ChildSpec,
    Config,
    Grant,
    Limits,
    ModelSpec,
    Policy,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from ..effects.errors import ArgumentError, ConfigError
from ..effects.events import ApprovalGiven, Decision, TimerFired
from ..effects.performers.base import Clock, SystemClock
from ..effects.performers.models import OpenAIChat
from ..effects.performers.tools import Tool, ToolRunner
from ..effects.requests import AskApproval, CallModel, RunAgent, RunTool, SetTimer
from .child import ChildRunner, refuse
from .session import Session, Setting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
    from pathlib import Path

    import httpx

    from ..effects.notices import Notice
    from ..effects.performers.base import Performer, Scene
    from ..effects.performers.stores.base import Store
    from .driver import Performers
    from .result import Result

DEFAULT_MODEL = "openai:gpt-5"

SPAWN = ToolSpec(
    name="run_agent",
    description="Give a task to another agent and get its findings.",
    schema='{"type":"object","properties":{"agent":{"type":"string","description":"Which agent."},'
    '"prompt":{"type":"string","description":"The task, with all it needs to know."}},'
    '"required":["agent","prompt"],"additionalProperties":false}',
    side_effect="unsafe",
    approval="never",
    timeout=None,
    kind=ToolKind.AGENT,
)
"""
The tool that starts a child; offered where an agent has children.

Nobody is asked about it: a child's own tools are asked about as its parent's are. It is a read where all of
its children's tools are.
"""


def _spawn(tools: Iterable[ToolSpec], children: Iterable[ChildSpec]) -> ToolSpec:
    """`SPAWN`, which names the *children* and has the side effect that they have with *tools*."""
    reads = {tool.name for tool in tools if tool.side_effect is SideEffect.READ_ONLY}
    named = {name for child in children for name in child.tools or ()}
    there = "; ".join(f"{child.name}: {child.description}".removesuffix(": ") for child in children)
    return attrs.evolve(
        SPAWN,
        description=f"{SPAWN.description} There are: {there}.",
        side_effect=SideEffect.READ_ONLY if named <= reads else SideEffect.UNSAFE,
    )


async def sleep(request: SetTimer, scene: Scene) -> TimerFired:
    """Perform a timer."""
    await scene.clock.sleep_until(request.due)
    return TimerFired(at=scene.clock.now(), request=request.id)


@final
class Asker:
    """Performs a question by calling the host's *approver*."""

    def __init__(self, approver: Callable[[AskApproval], Awaitable[Decision]]) -> None:
        self._approver = approver

    async def __call__(self, request: AskApproval, scene: Scene) -> ApprovalGiven:
        """Ask, however long it takes."""
        decision = await self._approver(request)
        return ApprovalGiven(at=scene.clock.now(), request=request.id, decision=decision)


@final
@attrs.define(kw_only=True, eq=False)
class Agent:
    """
    An agent: a model, its tools and its rules.

    *model* is a name such as ``openai:gpt-5`` (any OpenAI-compatible *base_url*; without *api_key* the
    environment's ``OPENAI_API_KEY``) or a `ModelSpec` with window and price. *tools* are functions made with
    `tool`. *cwd* and *directories* are what file tools may touch, *deps* is handed to tools that ask for
    it. *approver* answers questions; without one a run rests on them. *store* keeps sessions; without one
    they live in memory. *children* may be started by the model, each with tools of its parent's only.
    *performers* replaces who performs what, by type of request.
    """

    model: str | ModelSpec = DEFAULT_MODEL
    tools: Iterable[Tool[..., Any]] = ()
    system: str = ""
    limits: Limits = Limits()
    policy: Policy = Policy()
    retries: Retries = Retries()
    allow: tuple[Grant, ...] = ()
    stop: tuple[str, ...] = ()
    children: tuple[ChildSpec, ...] = ()
    base_url: str | None = None
    api_key: str | None = None
    client: httpx.AsyncClient | None = None
    store: Store | None = None
    cwd: str | Path = "."
    directories: Iterable[str | Path] = ()
    deps: object = None
    approver: Callable[[AskApproval], Awaitable[Decision]] | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    performers: Performers = attrs.field(factory=dict)
    config: Config = attrs.field(init=False)
    _all: dict[type, Performer[Any]] = attrs.field(init=False)
    _chat: OpenAIChat = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        tools = ToolRunner(self._checked(), cwd=self.cwd, directories=self.directories, deps=self.deps)
        specs = (*tools.specs, _spawn(tools.specs, self.children)) if self.children else tools.specs
        self.config = Config(
            model=self.model if isinstance(self.model, ModelSpec) else ModelSpec(name=self.model),
            system=self.system,
            tools=specs,
            children=self.children,
            limits=self.limits,
            policy=self.policy,
            retries=self.retries,
            allow=self.allow,
            stop=self.stop,
        )
        self._chat = OpenAIChat(base_url=self.base_url, api_key=self.api_key, client=self.client)
        self._all = {
            CallModel: self._chat,
            RunTool: tools,
            SetTimer: sleep,
        }
        if self.approver is not None:
            self._all[AskApproval] = Asker(self.approver)
        self._all.update(self.performers)

    def _checked(self) -> tuple[Tool[..., Any], ...]:
        """The tools; what an agent cannot be made of is said before anything is made."""
        tools = tuple(self.tools)
        for each in tools:
            _must_be_a_tool(each)
        name = self.model.name if isinstance(self.model, ModelSpec) else self.model
        wire, colon, _ = name.partition(":")
        if colon and wire != "openai" and self.base_url is None and CallModel not in self.performers:
            msg = f"no wire {wire!r} for {name!r}: known is 'openai'; for another server give its base_url"
            raise ConfigError(msg)
        return tools

    def session(self, id: str | None = None, store: Store | None = None) -> Session:  # noqa: A002  # the field's word
        """
        A conversation called *id* (made up where None), kept in *store* or in this agent's.

        Nothing is read before it is used. An *id* that is in the store goes on where it was.
        """
        return self._session(_new_id() if id is None else id, self.store if store is None else store, {})

    def _session(self, id: str, store: Store | None, fallback: Performers) -> Session:  # noqa: A002  # as above
        performers = {RunAgent: ChildRunner(self._all, store), **fallback, **self._all}
        setting = Setting(config=self.config, performers=performers, clock=self.clock, new_id=_new_id)
        return Session(id, setting, store)

    async def run(self, prompt: str) -> Result:
        """
        Run once, in a session of its own, until the end or until it rests on a question.

        With a store, ``agent.session(result.session)`` answers and goes on. Without one and without an
        approver nobody could ever answer, so a tool that must be asked about is refused.
        """
        async with self._once() as session:
            return await session.run(prompt)

    async def stream(self, prompt: str) -> AsyncGenerator[Notice, None]:
        """As `run`, yielding notices as they come. Leaving early stops the work."""
        async with self._once() as session, aclosing(session.stream(prompt)) as notices:
            async for notice in notices:
                yield notice

    def _once(self) -> Session:
        return self._session(_new_id(), self.store, {AskApproval: refuse} if self.store is None else {})

    def run_sync(self, prompt: str) -> Result:
        """`run`, for code that is not async; it works where an event loop runs already, and blocks it."""

        async def once() -> Result:
            try:
                return await self.run(prompt)
            finally:
                # Connections belong to the event loop they were made in, which ends here.
                await self.aclose()

        return _in_thread(once())

    async def aclose(self) -> None:
        """Close the connections to the model, where they are this agent's own. It can be used again."""
        await self._chat.aclose()

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _must_be_a_tool(given: object) -> None:
    if not isinstance(given, Tool):
        msg = f"{given!r} is no tool: make one of it with @tool"
        raise ArgumentError(msg)


def _new_id() -> str:
    return uuid.uuid4().hex[:12]


def _in_thread(work: Coroutine[Any, Any, Result]) -> Result:
    """
    Run *work* in an event loop of its own, in a thread of its own, with the caller's context variables.

    Whoever waits may be interrupted (Ctrl-C); then the work is cancelled, and has ended when this raises.
    """
    done: Future[Result] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Future[Result]]] = Future()

    async def watched() -> Result:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        started.set_result((loop, task))
        return await task

    def target() -> None:
        try:
            done.set_result(asyncio.run(watched()))
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            done.set_exception(error)

    thread = threading.Thread(target=copy_context().run, args=(target,), name="turnwheel-run")
    try:
        thread.start()
        return done.result()
    except KeyboardInterrupt:
        loop, task = started.result()
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        raise
