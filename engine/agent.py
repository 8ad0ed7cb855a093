"""The agent: settings and performers put together, and the three ways to run it."""

from __future__ import annotations

import uuid
from asyncio import gather
from contextlib import aclosing
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import attrs

from ..effects.config import (
    ChildSpec,
    Compaction,
    Config,
    Limits,
    Loops,
    ModelSpec,
    Policy,
    Retries,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from ..effects.errors import ArgumentError, ConfigError
from ..effects.events import ApprovalGiven, Decision, TimerFired
from ..effects.hooks import Hook
from ..effects.permissions import Rule
from ..effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    ReadInstructions,
    RunTool,
    SetTimer,
)
from ..effects.secrets import Secrets, as_secrets
from ..effects.validators import named
from ..performers.base import Clock, SystemClock
from ..performers.hooks import HookRunner, HostHook
from ..performers.instructions import InstructionReader
from ..performers.models.errors import without_login
from ..performers.models.router import DEFAULT_WIRE, Models, wire_of
from ..performers.models.throttle import MAX_CONCURRENT
from ..performers.tools.decorator import Tool
from ..performers.tools.runner import ToolRunner
from ..states.rules.hooks import told
from .inputs import approval_event
from .prices import priced
from .session.children import refuse
from .session.delivery import Delivery
from .session.environment import Drainable, Environment, Titles
from .session.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    import httpx

    from ..effects.notices import Notice
    from ..performers.base import PerformContext, Performer
    from ..performers.secrets import Vault
    from ..performers.stores.base import Store
    from .driver import Performers
    from .prices import PriceList
    from .session.redactor import Redactor, SecretNames
    from .session.session import Result

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


async def sleep(request: SetTimer, scene: PerformContext) -> TimerFired:
    """Perform a timer."""
    await scene.clock.sleep_until(request.due)
    return TimerFired(at=scene.clock.now(), request=request.id)


@final
class Approver:
    """Performs a question by calling the host's *approver*."""

    def __init__(self, approver: Callable[[AskApproval], Awaitable[Decision | None]]) -> None:
        self._approver = approver

    async def __call__(self, request: AskApproval, scene: PerformContext) -> ApprovalGiven | None:
        """Ask, however long it takes; None leaves the question to somebody else."""
        decision = await self._approver(request)
        if decision is None:
            return None
        return approval_event(request.id, decision, scene.clock.now(), "callback")


def _spec(model: str | ModelSpec) -> ModelSpec:
    return model if isinstance(model, ModelSpec) else ModelSpec(name=model)


def _specs(models: Iterable[str | ModelSpec]) -> tuple[ModelSpec, ...]:
    return tuple([_spec(model) for model in models])


def _tools(tools: Iterable[object]) -> tuple[Tool[..., Any], ...]:
    made = tuple(tools)
    for each in made:
        if not isinstance(each, Tool):
            msg = f"{each!r} is no tool: make one of it with @tool"
            raise ArgumentError(msg)
    return cast("tuple[Tool[..., Any], ...]", made)


def _hooks(hooks: Iterable[object]) -> tuple[HostHook[Any], ...]:
    made = tuple(hooks)
    for each in made:
        if not isinstance(each, HostHook):
            msg = f"{each!r} is no hook: make one of it with @hook"
            raise ArgumentError(msg)
    return cast("tuple[HostHook[Any], ...]", made)


def _titles(titles: str) -> Titles:
    try:
        return Titles(titles)
    except ValueError as error:
        msg = f"titles must be one of {[each.value for each in Titles]}; got {titles!r}"
        raise ConfigError(msg) from error


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        msg = f"several texts are wanted, not one: write ({texts!r},)"
        raise ArgumentError(msg)
    return tuple(texts)


def _rules(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(rules)


def _children(children: Iterable[ChildSpec]) -> tuple[ChildSpec, ...]:
    return tuple(children)


def _paths(paths: Iterable[str | Path]) -> tuple[str | Path, ...]:
    return tuple(paths)


def _runner_of(agent: Agent) -> ToolRunner:
    return ToolRunner(agent.tools, cwd=agent.cwd, directories=agent.directories, deps=agent.deps)


def _silent_of(agent: Agent) -> frozenset[str]:
    """The tools that emit nothing before they end."""
    return frozenset([tool.spec.name for tool in agent.tools if not tool.parameters.injected])


def _reader_of(agent: Agent) -> InstructionReader:
    return InstructionReader(agent.cwd, agent.directories)


def _own_vault() -> Vault:
    from ..performers.secrets import MemoryVault  # noqa: PLC0415  # not needed to import this library

    return MemoryVault()


def _vault(vault: Vault) -> Vault:
    from ..performers.secrets import checked_vault  # noqa: PLC0415  # as above

    return checked_vault(vault)


def _without_login(url: str | None) -> str:
    return repr(url and without_login(url))


def _host_of(agent: Agent) -> HookRunner:
    return HookRunner(agent.hooks)


def _models_of(agent: Agent) -> Models:
    """Who asks models; one that cannot be asked is said now, not when it is needed."""
    models = Models(
        wire_of(agent.model.name) or DEFAULT_WIRE,
        base_url=agent.base_url,
        api_key=agent.api_key,
        client=agent.client,
        limit=agent.requests_at_once,
        betas=agent.betas,
    )
    if CallModel not in agent.performers:
        children = [child.model for child in agent.children if child.model is not None]
        for model in (agent.model, *_others_of(agent), *children):
            models.check(model.name)
    return models


def _others_of(agent: Agent) -> tuple[ModelSpec, ...]:
    """The models that may be asked besides the first one; who takes over need not be named twice."""
    known = {each.name for each in (agent.model, *agent.models)}
    if agent.fallback is None or agent.fallback.name in known:
        return agent.models
    return (*agent.models, agent.fallback)


def _config_of(agent: Agent) -> Config:
    specs = tuple([tool.spec_with(agent.secrets) for tool in agent.tools])
    with_price = partial(priced, prices=agent.prices, first=agent.model.name, base_url=agent.base_url)
    return Config(
        model=with_price(agent.model),
        models=tuple([with_price(each) for each in _others_of(agent)]),
        fallback="" if agent.fallback is None else agent.fallback.name,
        system=agent.system,
        instructions=agent.instructions,
        tools=(*specs, _spawn(specs, agent.children)) if agent.children else specs,
        children=tuple(
            [
                child if child.model is None else attrs.evolve(child, model=with_price(child.model))
                for child in agent.children
            ]
        ),
        limits=agent.limits,
        session_limits=agent.session_limits,
        policy=agent.policy,
        retries=agent.retries,
        compaction=agent.compaction,
        loops=agent.loops,
        rules=agent.rules,
        hooks=tuple([each.spec for each in agent.hooks]),
        stop=agent.stop,
        cwd=str(Path(agent.cwd).absolute()),
    )


@final
@attrs.frozen(kw_only=True, eq=False)
class Agent:
    """
    An agent: a model, its tools and its rules. It does not change once it is made.

    *model* is a name such as ``openai:gpt-5`` or ``anthropic:claude-sonnet-4-5`` (also any compatible
    *base_url*; without *api_key* the environment's; *betas* are features that are asked for by name,
    *requests_at_once* how many any one provider gets of all sessions together) or a `ModelSpec` with window
    and price; *models* are others that a session may be switched to, *fallback* is one that takes over where
    the first one cannot answer. A model without a price of its own has the one that *prices* know, such as
    `price_of`; unless told nobody is asked, since a bill must not depend on what happens to be installed.
    *limits* are each run's, *session_limits* those of all runs of a session. *instructions* are files, such
    as ``AGENTS.md``, that are read when a session starts. *tools* are functions made with `tool`, *hooks*
    with `hook`. *rules* answer for calls, *approver* answers the questions that are left, or returns None to
    leave one to somebody else; without one a run rests on them. *cwd* and *directories* are what file tools
    may touch, *deps* is handed to tools that ask for it. *store* keeps sessions; without one they live in
    memory. *titles* says how they get theirs, *watch* what those are told who look on. *children* may be
    started by the model, each with tools of its parent's only. *secrets* says what is kept out of sight, and
    *vault* keeps what that is; without one it is gone with this process. *performers* replaces who performs
    what, by type of request.
    """

    model: ModelSpec = attrs.field(default=ModelSpec(name=DEFAULT_MODEL), converter=_spec)
    models: tuple[ModelSpec, ...] = attrs.field(default=(), converter=_specs)
    fallback: ModelSpec | None = attrs.field(default=None, converter=attrs.converters.optional(_spec))
    tools: tuple[Tool[..., Any], ...] = attrs.field(default=(), converter=_tools)
    system: str = ""
    instructions: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    limits: Limits = Limits()
    session_limits: Limits = Limits()
    policy: Policy = Policy()
    retries: Retries = Retries()
    compaction: Compaction = Compaction()
    loops: Loops = Loops()
    rules: tuple[Rule, ...] = attrs.field(default=(), converter=_rules)
    hooks: tuple[HostHook[Any], ...] = attrs.field(default=(), converter=_hooks)
    stop: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    children: tuple[ChildSpec, ...] = attrs.field(default=(), converter=_children)
    base_url: str | None = attrs.field(default=None, repr=_without_login)
    api_key: str | None = attrs.field(default=None, repr=False)
    betas: tuple[str, ...] = attrs.field(default=(), converter=_texts)
    requests_at_once: int | None = MAX_CONCURRENT
    client: httpx.AsyncClient | None = None
    prices: PriceList | None = None
    store: Store | None = None
    titles: Titles = attrs.field(default=Titles.INLINE, converter=_titles)
    watch: Delivery = Delivery()
    cwd: str | Path = "."
    directories: tuple[str | Path, ...] = attrs.field(default=(), converter=_paths)
    deps: object = attrs.field(default=None, repr=False)
    secrets: Secrets = attrs.field(default=Secrets(), converter=as_secrets)
    vault: Vault = attrs.field(factory=_own_vault, converter=_vault)
    approver: Callable[[AskApproval], Awaitable[Decision | None]] | None = None
    clock: Clock = attrs.field(factory=SystemClock)
    performers: Performers = attrs.field(factory=dict)
    config: Config = attrs.field(init=False, default=attrs.Factory(_config_of, takes_self=True))
    _runner: ToolRunner = attrs.field(init=False, default=attrs.Factory(_runner_of, takes_self=True))
    _reader: InstructionReader = attrs.field(init=False, default=attrs.Factory(_reader_of, takes_self=True))
    _host: HookRunner = attrs.field(init=False, default=attrs.Factory(_host_of, takes_self=True))
    _models: Models = attrs.field(init=False, default=attrs.Factory(_models_of, takes_self=True))
    _silent: frozenset[str] = attrs.field(init=False, default=attrs.Factory(_silent_of, takes_self=True))
    _at_work: set[Drainable] = attrs.field(init=False, factory=set, repr=False)

    def session(self, id: str | None = None, store: Store | None = None) -> Session:  # noqa: A002  # the field's word
        """
        A conversation called *id* (made up where None), kept in *store* or in this agent's.

        Nothing is read before it is used. An *id* that is in the store goes on where it was.
        """
        name = _new_id() if id is None else id
        named("the id of a session", name)
        return self._session(name, self.store if store is None else store, {})

    def _session(
        self,
        id: str,  # noqa: A002  # as above
        store: Store | None,
        fallback: Performers,
        *,
        fresh: bool = False,
    ) -> Session:
        performers, redactor = self._redacted({**fallback, **self._performers()}, id)
        environment = Environment(
            config=self.config,
            performers=performers,
            redactor=redactor,
            clock=self.clock,
            new_id=_new_id,
            ended=self._session_ended if self.hooks else None,
            titles=self.titles,
            watch=self.watch,
            at_work=self._at_work,
        )
        return Session(id, environment, store, fresh=fresh)

    @cached_property
    def _secret_names(self) -> SecretNames:
        # A process that only builds agents does not need the redactor, whose import is as dear as the driver's.
        from .session.redactor import SecretNames  # noqa: PLC0415  # see above

        plain = {tool.spec.name: tool.plain for tool in self.tools if tool.plain}
        return SecretNames(self.secrets, self.config.tools, plain)

    def _redacted(self, performers: Performers, session: str) -> tuple[Performers, Redactor]:
        """*performers* that let no secret of *session* and its children through, and what redacts them."""
        from .session.redactor import Redactor, redacting  # noqa: PLC0415  # see `_secret_names`

        redactor = Redactor(session, self.vault, self._secret_names)
        # A host's own performer of tools may emit what it likes: only this agent's is known to be silent.
        silent = self._silent if performers[RunTool] is self._runner else frozenset[str]()
        return redacting(performers, redactor, silent), redactor

    def _performers(self) -> dict[type, Performer[Any]]:
        found: dict[type, Performer[Any]] = {
            CallModel: self._models,
            RunTool: self._runner,
            FireHook: self._host,
            ReadInstructions: self._reader,
            SetTimer: sleep,
        }
        if self.approver is not None:
            found[AskApproval] = Approver(self.approver)
        return {**found, **self.performers}

    async def _session_ended(self, session: str, reason: str) -> None:
        """Tell the hooks that want to know; what goes wrong with one is its own affair by now."""
        await self._host.tell(Hook.SESSION_END, told(reason=reason), session)

    async def run(self, prompt: str) -> Result:
        """
        Run once, in a session of its own, until the end or until it rests on a question.

        With a store, ``agent.session(result.session)`` answers and goes on. Without one and without an
        approver nobody could ever answer, so a tool that must be asked about is refused.
        """
        session = self._once()
        try:
            return await session.run(prompt)
        finally:
            await session.close()

    async def stream(self, prompt: str) -> AsyncGenerator[Notice, None]:
        """As `run`, yielding notices as they come. Leaving early stops the work."""
        session = self._once()
        try:
            async with aclosing(session.stream(prompt)) as notices:
                async for notice in notices:
                    yield notice
        finally:
            await session.close()

    def _once(self) -> Session:
        fallback: Performers = {AskApproval: refuse} if self.store is None else {}
        return self._session(_new_id(), self.store, fallback, fresh=True)

    def run_sync(self, prompt: str) -> Result:
        """`run`, for code that is not async; it works where an event loop runs already, and blocks it."""
        from .sync import run_in_thread  # noqa: PLC0415  # needs threads, which others do not

        async def once() -> Result:
            try:
                return await self.run(prompt)
            finally:
                # Connections belong to the event loop they were made in, which ends here.
                await self.aclose()

        return run_in_thread(once())

    async def drain(self, within: float | None = None) -> None:
        """Drain all sessions of this agent of which a run is under way here, at once; see `Session.drain`."""
        await gather(*[run.drain(within) for run in self._at_work])

    async def aclose(self) -> None:
        """Close the connections to the model, where they are this agent's own. It can be used again."""
        await self._models.aclose()

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _new_id() -> str:
    return uuid.uuid4().hex[:12]
