"""The agent: settings and performers put together, and three ways to run it: await, stream, block."""

from __future__ import annotations

import uuid
from asyncio import CancelledError, gather, iscoroutine, timeout
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cached_property, partial
from glob import escape
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, Self, cast, final, overload

import attrs

from .. import effects
from ..effects.config import as_spec
from ..effects.secrets import as_secrets
from ..effects.validators import as_file_names, as_text, as_texts, seconds, session_named, spelled
from ..performers.approvals import Approver, ask, ask_or_refuse, warn_and_refuse
from ..performers.base import Clock, Performer, Performers, SystemClock, clock_of, noop, sleep, undecoded
from ..performers.callables import is_async, settled
from ..performers.hooks import HookRunner, HostHook
from ..performers.instructions import InstructionReader
from ..performers.logs import FaultLog
from ..performers.models.errors import without_login
from ..performers.models.extras import logs_in_itself
from ..performers.models.prices import PriceList, priced
from ..performers.models.rate_limits import RateLimit
from ..performers.models.router import DEFAULT_WIRE, Models, wire_of
from ..performers.models.throttle import MAX_CONCURRENT
from ..performers.processes import machine
from ..performers.stores.base import Store
from ..performers.tools.choice import ToolChoice, offer
from ..performers.tools.decorator import Tool
from ..performers.tools.inspection import Inspector
from ..performers.tools.names import check_names
from ..performers.tools.runner import ToolRunner
from ..performers.worker_pool import WorkerPool
from ..states.rules.hooks import told
from .agent_arguments import (
    as_children,
    as_hooks,
    as_most,
    as_paths,
    as_place,
    as_rates,
    as_rules,
    as_specs,
    as_telemetry,
    as_tools,
    as_vault,
    as_wanted,
    check_arguments,
    opened,
)
from .session.completed_texts import Delivery
from .session.environment import Drain, Environment, OnHostError, Output_co, Result, Titles
from .session.notice_stream import AgentStream
from .session.wanted_outputs import WantedOutputs

if TYPE_CHECKING:
    from ..performers.models.purposes import HostPerformers
    from ..performers.models.transport import Client
    from ..performers.output import Output
    from ..performers.redactor import Redactor, SecretNames
    from ..performers.secrets import Vault
    from ..performers.stores.place import StorePlace
    from ..performers.telemetry.otel import OpenTelemetry
    from .agent_arguments import AnyStore
    from .session.outputs import AnyKind, OutputKind, T, UntypedKind
    from .session.session import Session


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # The type of *deps*. `Agent` alone is any agent.
    Deps_co = TypeVar("Deps_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Deps_co = TypeVar("Deps_co", covariant=True)

DEFAULT_MODEL = "openai:gpt-5"

# Seconds in which a run whose caller was cancelled is brought to its end in the store.
ABORT_WITHIN = 5.0

# The tool that starts a child; offered where an agent has children.
SPAWN = effects.ToolSpec(
    name="run_agent",
    description="Give a task to another agent and get its findings.",
    schema='{"type":"object","properties":{"agent":{"type":"string","description":"Which agent."},'
    '"prompt":{"type":"string","description":"The task, with all it needs to know."}},'
    '"required":["agent","prompt"],"additionalProperties":false}',
    side_effect="unsafe",
    # The child's own tools are asked about, as the parent's are: asking here as well would ask twice.
    approval="never",
    # A child may wait for an approver for days.
    timeout=None,
    kind=effects.ToolKind.AGENT,
)


def _spawn(tools: Iterable[effects.ToolSpec], children: Iterable[effects.ChildSpec]) -> effects.ToolSpec:
    """`SPAWN`, with the *children* in its description and the side effect that they have with *tools*."""
    # Read-only where all their tools are: such children may run at the same time, and in a read-only mode.
    used = [tool for tool in tools if any(child.names(tool.name) for child in children)]
    reads = all(tool.side_effect is effects.SideEffect.READ_ONLY for tool in used)
    # The model chooses by name and description, so both have to be in the text that it reads.
    there = "; ".join(f"{child.name}: {child.description}".removesuffix(": ") for child in children)
    return attrs.evolve(
        SPAWN,
        description=f"{SPAWN.description} There are: {there}.",
        side_effect=effects.SideEffect.READ_ONLY if reads else effects.SideEffect.UNSAFE,
    )


def _usual_lease() -> float:
    # Where only time tells that a process of this machine is gone, it has to be short.
    return 15.0 if machine() else 2.0


def _own_vault() -> Vault:
    from ..performers.secrets import MemoryVault  # noqa: PLC0415  # not needed to import this library

    return MemoryVault()


def shown_url(url: str | None) -> str:
    """The `repr` of *url* without its login: agents and settings end up in logs and tracebacks."""
    return repr(url and without_login(url))


# Fields that follow from the others. Made once for all sessions: connections and limits hold across them.


def _runner_of(agent: Agent[Any, Any]) -> ToolRunner:
    return ToolRunner(agent.tools, cwd=agent.cwd, directories=agent.directories, deps=agent.deps)


def _awaited(performers: HostPerformers) -> dict[type, Any]:
    """*performers*, each with an answer that can be awaited."""
    return {
        # Whether a lambda returns a coroutine or the answer itself is known once it has done the work.
        kind: each if is_async(each) or hasattr(each, "resting") else partial(settled, each)
        for kind, each in performers.items()
    }


def _reader_of(agent: Agent[Any, Any]) -> InstructionReader:
    return InstructionReader(agent.cwd, agent.directories)


def _inspector_of(agent: Agent[Any, Any]) -> Inspector:
    return Inspector(agent.cwd)


def _host_of(agent: Agent[Any, Any]) -> HookRunner:
    return HookRunner(agent.hooks)


def _models_of(agent: Agent[Any, Any]) -> Models:
    """The performer of `CallModel`; raises for a model that it cannot ask."""
    # A first model without a prefix is asked by the default wire, and others without one by the first's.
    models = Models(
        wire_of(agent.model.name) or DEFAULT_WIRE,
        base_url=agent.base_url,
        api_key=agent.api_key,
        client=agent.client,
        # Here and not in a session: a provider counts the requests of all sessions together.
        limit=agent.requests_at_once,
        betas=agent.betas,
        rates=agent.rates,
    )
    # Checked now and not when it is needed: a fallback with a typing error would be found in an outage. A
    # host that asks models itself may call them what it likes.
    if effects.CallModel not in agent.performers:
        children = [child.model for child in agent.children if child.model is not None]
        specs = (agent.model, *_others_of(agent), *children)
        for spec in specs:
            models.check_spec(spec)
        names = [spec.name for spec in specs]
        if agent.betas and not any(models.takes_betas(name) for name in names):
            msg = f"betas: {names[0]!r} has none, only Anthropic's models and proxies do; leave them out"
            raise effects.ConfigError(msg)
    return models


def _others_of(agent: Agent[Any, Any]) -> tuple[effects.ModelSpec, ...]:
    """The models besides the first one: *models*, and the fallback where it is not among them."""
    # By name, since a caller may give the fallback as a text and again as a spec with a price.
    known = {each.name for each in (agent.model, *agent.models)}
    if agent.fallback is None or agent.fallback.name in known:
        return agent.models
    return (*agent.models, agent.fallback)


def _store_of(agent: Agent[Any, Any]) -> Store | None:
    # Outside of the class, as are all functions that make a field.
    by_place: dict[StorePlace, Store] = agent._opened  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # see above
    place = agent._place  # noqa: SLF001  # see above
    return None if place is None else opened(place, by_place)


def _specified(agent: Agent[Any, Any], output: Output[Any]) -> effects.OutputSpec:
    """*output* as the loop knows it, with the way in which each model of *agent* is asked for it."""
    from .run_output import output_spec  # noqa: PLC0415  # as in `_config_of`

    hosted = effects.CallModel in agent.performers
    return output_spec(agent.config, output, agent.base_url, hosted=hosted)


async def _session_ended(host: HookRunner, redactor: Redactor, session: str, reason: str) -> None:
    """Run the hooks of *host* for the end of a session."""
    # No request of a machine, and so no answer: the session is closed, and a fault could change nothing.
    faults = FaultLog(session=session, redact=redactor.logged)
    await host.tell(effects.Hook.SESSION_END, told(reason=reason), faults)


# What decides about later calls, or keeps what was: no mode lets these be edited unasked.
PROTECTED = ("*/.git", "*/.git/*", "*/turnwheel.toml")


def _protected_by(agent: Agent[Any, Any]) -> tuple[str, ...]:
    """The globs of paths whose edits are asked about: `PROTECTED`, and the files of the agent's store."""
    if agent.store is None or not agent.store.path:
        return PROTECTED
    # A bracket in a name is no range of characters here.
    return (*PROTECTED, f"{escape(agent.store.path)}*")


def _config_of(agent: Agent[Any, Any]) -> effects.Config:
    # First: what follows from a wrong argument has errors that do not name it.
    check_arguments(agent)
    # The config is journaled with each run: whatever a machine decides by must be in it, prices too.
    specs = tuple([tool.spec_with(agent.secrets) for tool in agent.tools])
    # Bound once: each model of the agent and of its children is priced in the same way.
    with_price = partial(priced, prices=agent.prices, first=agent.model.name, base_url=agent.base_url)
    config = effects.Config(
        model=with_price(agent.model),
        models=tuple([with_price(each) for each in _others_of(agent)]),
        # By name: the config has the spec among its models.
        fallback="" if agent.fallback is None else agent.fallback.name,
        system=agent.system,
        instructions=agent.instructions,
        # Last, so that a provider's cache of the other tools survives a change of the children.
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
        protected=_protected_by(agent),
        # Absolute: the next owner may stand in another directory.
        cwd=str(Path(agent.cwd).absolute()),
        ceiling=agent.ceiling,
        sandbox=agent.sandbox,
    )
    if agent.output is None:
        return config
    from .run_output import output_spec  # noqa: PLC0415  # most agents come to text

    hosted = effects.CallModel in agent.performers
    spec = output_spec(config, agent.output, agent.base_url, hosted=hosted)
    return effects.with_output(config, spec)


@final
@spelled
@attrs.frozen(kw_only=True, eq=False, repr=False)
class Agent(Generic[Deps_co, Output_co]):
    """
    An agent: a model, its tools and its rules. It is immutable; sessions do the work.

    Models. *model* is a name such as ``openai:gpt-5`` or ``anthropic:claude-sonnet-4-5``, or a `ModelSpec`
    with window and price. *models* are others that a session may switch to; *fallback* takes over where the
    first one is unavailable. *base_url* is any compatible server, *api_key* by default the environment's.
    *betas* are provider features by name; *requests_at_once* bounds the requests of all sessions to one
    provider, *rates* those to a model in a minute. *prices*, such as `price_of`, gives prices to models
    without one.

    Work. *tools* are made with `tool`, *hooks* with `hook`; *children* are agents that the model may start,
    with the parent's tools only. *instructions* are names of files such as ``AGENTS.md``, read when a
    session starts; the text of a prompt is *system*.
    File tools may touch *cwd* and *directories*; tools get *deps* on request. *tools_for* names those of the
    *tools* that a turn offers, given a `PerformContext`; without it each turn offers all. *limits* hold for
    each run, *session_limits* for all runs of a session. *stop* are stop sequences. *output* is what each run
    comes to: a type, or an `Output`; without it text.

    *sandbox* is what programs of tools run in; without one they may do what this process may. `ConfigError`
    where the system has none.

    People. *rules* decide calls; *ceiling* is the widest mode that can be set. *approver*, async or not,
    answers the other questions, or returns None to leave one open. A run rests on what is open; `run`,
    `run_sync` and `stream` of an agent without a *store* deny it, with a warning in the log.
    *titles* says how sessions get titles, *watch* what subscribers get. *secrets* names what is redacted;
    *vault* keeps the values, by default in memory.

    Exceptions of tools, hooks, approvers and performers are logged, and are answers that a run goes on with.
    With *on_error* "raise", for tests, the first one ends the work and is raised to the caller.

    *store* keeps sessions, by default memory does; the path of a SQLite file or the address of a database
    will do, which `aclose` closes. *performers* replaces performers by type of request; `Summarise` and
    `MakeTitle` are types there, too.
    *retired* are names of tools that are gone on purpose: rules may name them, and runs go on without them.
    A session keeps the rules of its earlier runs that deny or ask, but for those that are *lifted*.
    A process at work renews its *lease* of the session, and is taken for gone after so many seconds without:
    15, or 2 where only that tells that a process is gone. *worker* is its name for other processes.
    *telemetry* makes spans and metrics of the runs.
    """

    model: effects.ModelSpec = attrs.field(default=effects.ModelSpec(DEFAULT_MODEL), converter=as_spec)
    # Journaled with the config, so a later process can switch to one of them by name.
    models: tuple[effects.ModelSpec, ...] = attrs.field(default=(), converter=as_specs)
    fallback: effects.ModelSpec | None = attrs.field(
        default=None, converter=attrs.converters.optional(as_spec)
    )
    tools: tuple[Tool[..., Any, Deps_co], ...] = attrs.field(default=(), converter=as_tools)
    tools_for: ToolChoice | None = None
    system: str = attrs.field(default="", converter=as_text)
    instructions: tuple[str, ...] = attrs.field(default=(), converter=as_file_names)
    limits: effects.Limits = effects.Limits()
    session_limits: effects.Limits = effects.Limits()
    policy: effects.Policy = effects.Policy()
    sandbox: effects.Sandbox | None = None
    ceiling: effects.PermissionMode = attrs.field(
        default=effects.PermissionMode.BYPASS, converter=effects.PermissionMode
    )
    retries: effects.Retries = effects.Retries()
    compaction: effects.Compaction = effects.Compaction()
    loops: effects.Loops = effects.Loops()
    rules: tuple[effects.Rule, ...] = attrs.field(default=(), converter=as_rules)
    hooks: tuple[HostHook[Any], ...] = attrs.field(default=(), converter=as_hooks)
    stop: tuple[str, ...] = attrs.field(default=(), converter=as_texts)
    # Text, unless a type says what is wanted.
    output: Output[Output_co] | None = attrs.field(default=None, converter=as_wanted)
    children: tuple[effects.ChildSpec, ...] = attrs.field(default=(), converter=as_children)
    base_url: str | None = attrs.field(default=None, repr=shown_url)
    api_key: str | None = attrs.field(default=None, repr=False)
    betas: tuple[str, ...] = attrs.field(default=(), converter=as_texts)
    requests_at_once: int | None = attrs.field(default=MAX_CONCURRENT, converter=as_most)
    rates: tuple[RateLimit, ...] = attrs.field(default=(), converter=as_rates)
    # A caller's own client stays the caller's: `aclose` leaves it open.
    client: Client = attrs.field(default=None, repr=False)
    prices: PriceList | None = None
    # Given as a store or as its place; `store` is the store itself.
    _place: Store | StorePlace | None = attrs.field(default=None, alias="store", converter=as_place)
    titles: Titles = attrs.field(default=Titles.INLINE, converter=Titles)
    watch: Delivery = Delivery()
    cwd: str | Path = "."
    directories: tuple[str | Path, ...] = attrs.field(default=(), converter=as_paths)
    # Never in a repr, since it often holds connections and credentials.
    deps: Deps_co = attrs.field(default=None, repr=lambda deps: type(deps).__name__)
    # By name of argument, not by value: a value that is new to the agent is redacted, too.
    secrets: effects.Secrets = attrs.field(default=effects.Secrets(), converter=as_secrets)
    # Of the agent and not of a session: a session that is opened again in this process finds its secrets.
    vault: Vault = attrs.field(factory=_own_vault, converter=as_vault, repr=False)
    approver: Approver | None = None
    on_error: OnHostError = attrs.field(default=OnHostError.REPORT, converter=OnHostError)
    clock: Clock = attrs.field(factory=SystemClock, repr=False)
    performers: HostPerformers = attrs.field(factory=dict)
    retired: tuple[str, ...] = attrs.field(default=(), converter=as_texts)
    lifted: tuple[effects.Rule, ...] = attrs.field(default=(), converter=as_rules)
    lease: float = attrs.field(factory=_usual_lease, validator=seconds)
    worker: str = ""
    telemetry: OpenTelemetry | None = attrs.field(default=None, converter=as_telemetry)
    # Those of a place, which this agent opened and closes.
    _opened: dict[StorePlace, Store] = attrs.field(init=False, factory=dict, repr=False)
    store: Store | None = attrs.field(init=False, default=attrs.Factory(_store_of, takes_self=True))
    # Made with the agent: a mistake in the settings is raised where they stand, and not at the first run.
    config: effects.Config = attrs.field(init=False, default=attrs.Factory(_config_of, takes_self=True))
    _runner: ToolRunner = attrs.field(init=False, default=attrs.Factory(_runner_of, takes_self=True))
    _reader: InstructionReader = attrs.field(init=False, default=attrs.Factory(_reader_of, takes_self=True))
    _inspector: Inspector = attrs.field(init=False, default=attrs.Factory(_inspector_of, takes_self=True))
    _host: HookRunner = attrs.field(init=False, default=attrs.Factory(_host_of, takes_self=True))
    # Its own: approvers may wait for people, and would take the threads of tools and hooks.
    _approvals: WorkerPool = attrs.field(init=False, factory=WorkerPool, repr=False)
    _models: Models = attrs.field(init=False, default=attrs.Factory(_models_of, takes_self=True))
    # One set for all its sessions, which `drain` goes through.
    _at_work: set[Drain] = attrs.field(init=False, factory=set, repr=False)

    if not TYPE_CHECKING:
        # Parameters may be left out, which `typing.Generic` allows from Python 3.13 on.
        __class_getitem__ = classmethod(GenericAlias)

    def __attrs_post_init__(self) -> None:
        check_names(self.config, self.retired)
        if self.sandbox is not None:
            from ..performers.tools.sandbox import check_sandbox  # noqa: PLC0415  # most agents have none

            check_sandbox(self.sandbox)

    def __repr__(self) -> str:
        """What differs from ``Agent()``, and no secrets."""
        from ..display.arguments import made_of  # noqa: PLC0415  # for a person who looks

        return made_of(self)

    def session(self, id: str | None = None, store: AnyStore | None = None) -> Session[Output_co]:  # noqa: A002  # the field's word
        """
        The session *id* (generated where None), in *store* or in this agent's.

        The store is read when the session is first used. A known *id* goes on where it was: call `load`
        before a look at `waiting`, `history` and the like. A *store* that is a path is opened once, and
        `aclose` closes it.
        """
        # Not `fresh`, even where the id is generated: a caller may hand its name to another process at once.
        name = _new_session() if id is None else id
        session_named(name)
        place = as_place(store)
        kept = self.store if place is None else opened(place, self._opened)
        return self._session(name, kept, self._performers, named=id is not None)

    def _session(
        self,
        name: str,
        store: Store | None,
        performers: Performers,
        *,
        fresh: bool = False,
        named: bool = False,
    ) -> Session[Output_co]:
        # A process that only builds agents needs no session, whose import is half of this library's.
        from ..performers.redactor import Redactor  # noqa: PLC0415  # see above
        from .session.session import Session  # noqa: PLC0415  # see above

        # One redactor, which all performers of the session share.
        redactor = Redactor(name, self.vault, self._secret_names)
        environment = Environment(
            config=self.config,
            # Sessions of an agent share the mapping: thousands of them may wait in one process.
            performers=performers,
            redactor=redactor,
            clock=clock_of(self.clock, store),
            new_id=_new_id,
            # Without hooks closing a session stays free of an await.
            ended=partial(_session_ended, self._host, redactor) if self.hooks else None,
            titles=self.titles,
            watch=self.watch,
            at_work=self._at_work,
            retired=self.retired,
            lifted=self.lifted,
            lease=self.lease,
            worker=self.worker,
            # A host that asks models itself has its own keys.
            ready=noop if effects.CallModel in self.performers else self._ready,
            on_error=self.on_error,
            outputs=WantedOutputs.of(self.config.output, self.output),
            output_spec=self._output_spec,
            telemetry=self.telemetry,
        )
        return Session(name, environment, store, fresh=fresh, named=named)

    @cached_property
    def _output_spec(self) -> Callable[[Output[Any]], effects.OutputSpec]:
        # One function for all sessions.
        return partial(_specified, self)

    def _ready(self, *models: str) -> None:
        """Raise `ConfigError` where a key of one of *models* is missing."""
        # A header of the spec's own may log in in place of a key.
        without = [name for name in models if not logs_in_itself(self.config.spec(name))]
        self._models.ready(*without)

    @cached_property
    def _secret_names(self) -> SecretNames:
        from ..performers.redactor import SecretNames  # noqa: PLC0415  # see `_session`

        # Only tools that say so: looking a tool up in an empty mapping is what most calls do.
        plain = {tool.spec.name: tool.plain for tool in self.tools if tool.plain}
        # A tool without injected arguments has no way to emit before it ends. A host's own performer of tools
        # may emit at any time.
        ours = self.tools if self._performers[effects.RunTool] is self._runner else ()
        silent = frozenset([tool.spec.name for tool in ours if not tool.injected])
        return SecretNames(self.secrets, self.config.tools, plain, silent)

    @cached_property
    def _performers(self) -> dict[type, Performer[Any]]:
        found: dict[type, Performer[Any]] = {
            effects.CallModel: self._models,
            effects.RunTool: self._runner,
            effects.FireHook: self._host,
            effects.InspectCall: self._inspector,
            effects.ReadInstructions: self._reader,
            # For a run of another process: those that are begun here have one of their own.
            effects.DecodeOutput: undecoded,
            effects.SetTimer: sleep,
        }
        # Without one a question has no performer, and so the run rests on it.
        if self.approver is not None:
            found[effects.AskApproval] = partial(ask, self.approver, self._approvals)
        # The caller's last: a test replaces the model, a host runs tools elsewhere.
        made = found
        if self.performers:
            from ..performers.models.purposes import with_writers  # noqa: PLC0415  # most agents replace none

            made = with_writers({**found, **_awaited(self.performers)})
        if self.tools_for is not None:
            known = tuple([tool.name for tool in self.config.tools])
            made[effects.CallModel] = partial(offer, self.tools_for, known, made[effects.CallModel])
        return made

    @overload
    async def run(self, prompt: str, *, files: Sequence[effects.Binary] = ...) -> Result[Output_co]: ...
    @overload
    async def run(
        self, prompt: str, *, output: UntypedKind, files: Sequence[effects.Binary] = ...
    ) -> Result[Any]: ...
    @overload
    async def run(
        self, prompt: str, *, output: OutputKind[T], files: Sequence[effects.Binary] = ...
    ) -> Result[T]: ...
    async def run(
        self,
        prompt: str,
        *,
        output: AnyKind = None,
        files: Sequence[effects.Binary] = (),
    ) -> Result[Any]:
        """
        Run once, in a session of its own, until the end or until it rests on a question.

        The model reads *files*, pictures and documents, with the *prompt*. The run comes to *output*, a type
        or an `Output`, or to that of the agent.

        With a store, ``agent.session(result.session)`` answers and goes on. Without a store and an approver,
        a call that needs approval is denied, with a warning in the log. Where the caller is cancelled or its
        time is out, the run ends `aborted`, with its account in the store.
        """
        async with self._once() as session:
            return await session.run(prompt, output=output, files=files)

    def stream(
        self,
        prompt: str,
        *,
        output: AnyKind = None,
        files: Sequence[effects.Binary] = (),
    ) -> AgentStream:
        """
        As `run`, yielding notices as they come. Leaving early ends the run `aborted`.

        Leave it with ``async with agent.stream(prompt) as notices``, which waits for that end.
        """
        # Here and not where it is iterated: the traceback then shows the line that is wrong.
        as_text(prompt, "the prompt")
        return AgentStream(self._notices(prompt, output, files))

    async def _notices(
        self, prompt: str, output: AnyKind, files: Sequence[effects.Binary]
    ) -> AsyncGenerator[effects.Notice, None]:
        # `aclosing`: a caller that leaves the loop early must stop the work now, not when it is collected.
        async with (
            self._once() as session,
            aclosing(session.stream(prompt, output=output, files=files)) as notices,
        ):
            async for notice in notices:
                yield notice

    @asynccontextmanager
    async def _once(self) -> AsyncGenerator[Session[Output_co], None]:
        """A session for one run."""
        # Without a store the session is gone after this call: a question in it could never be answered.
        performers = self._performers
        if self.store is None:
            asks, told = performers.get(effects.AskApproval), set[str]()
            refuse = partial(ask_or_refuse, asks, told) if asks else partial(warn_and_refuse, told)
            performers = {**performers, effects.AskApproval: refuse}
        session = self._session(_new_session(), self.store, performers, fresh=True)
        try:
            yield session
        except (CancelledError, GeneratorExit):
            # The work has stopped. No caller knows the session and could go on with it, so its run ends here;
            # whatever stands against that, the caller's own end comes first.
            with suppress(TimeoutError, effects.TurnwheelError):
                async with timeout(ABORT_WITHIN):
                    await session.interrupt(abort=True)
                    if session.unfinished:
                        await session.resume()
            raise
        finally:
            # In any case: a run that rests is in the store by now, or denied its questions.
            await session.close()

    @overload
    def run_sync(self, prompt: str, *, files: Sequence[effects.Binary] = ...) -> Result[Output_co]: ...
    @overload
    def run_sync(
        self, prompt: str, *, output: UntypedKind, files: Sequence[effects.Binary] = ...
    ) -> Result[Any]: ...
    @overload
    def run_sync(
        self, prompt: str, *, output: OutputKind[T], files: Sequence[effects.Binary] = ...
    ) -> Result[T]: ...
    def run_sync(
        self,
        prompt: str,
        *,
        output: AnyKind = None,
        files: Sequence[effects.Binary] = (),
    ) -> Result[Any]:
        """`run` for callers that are not async; inside a running event loop it blocks that loop."""
        from .sync import run_in_thread  # noqa: PLC0415  # needs threads, which others do not

        def begin() -> Coroutine[Any, Any, Result[Any]]:
            return self.run(prompt, output=output, files=files)

        return run_in_thread(self._in_own_loop(begin))

    def await_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """
        The value of the coroutine *work*, for callers that are not async, such as a view of Flask.

        As `run_sync` it has a thread and an event loop of its own, so *work* opens the sessions that it uses.
        What it began in the background is cancelled at its end. Raises what *work* raises.
        """
        from .sync import run_in_thread  # noqa: PLC0415  # as in `run_sync`

        if not iscoroutine(cast("object", work)):
            fix = "call an async function, as in agent.await_sync(answer(question))"
            msg = f"Agent.await_sync: work must be a coroutine; got {work!r} ({fix})"
            raise effects.ArgumentError(msg)
        try:
            return run_in_thread(self._in_own_loop(lambda: work))
        finally:
            # Ctrl-C may come before it was begun.
            work.close()

    async def _in_own_loop(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The value of what *begin* begins, in an event loop that ends with it."""
        try:
            return await begin()
        finally:
            # Connections belong to the event loop they were made in, which ends here. A store does not.
            await self._models.aclose()

    async def drain(self, within: float | None = None) -> None:
        """Drain all running sessions of this agent in this process, together; see `Session.drain`."""
        # Of a copy: a session that ends takes itself out of the set.
        await gather(*[drain(within) for drain in self._at_work])

    async def aclose(self) -> None:
        """
        Close the connections to models, and the stores that were given as paths.

        A caller's own *client* and stores stay open. An agent without a path can be used again. With one, it
        first leaves the runs at work in this event loop, unfinished: `Session.resume` goes on with them.
        """
        if self._opened:
            # Sessions that a reader or a tool holds up, and those of other event loops, meet a closed store.
            with suppress(TimeoutError):
                async with timeout(ABORT_WITHIN):
                    await gather(*[drain(0.0) for drain in self._at_work], return_exceptions=True)
        await self._models.aclose()
        for store in self._opened.values():
            await store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _new_session() -> str:
    # A whole UUID: sessions of many processes meet in one store, and two of one name would be one.
    return uuid.uuid4().hex


def _new_id() -> str:
    # 48 random bits, for runs and inputs: short enough to type, and they meet within one session only.
    return uuid.uuid4().hex[:12]
