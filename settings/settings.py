"""`Settings`: an agent as data, and the agent and the session that they describe."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, final

import attrs

from ..effects.config import (
    ChildSpec,
    Compaction,
    Limits,
    Loops,
    ModelSpec,
    Policy,
    Retries,
    Sandbox,
    SideEffect,
)
from ..effects.errors import ConfigError, UnknownSession
from ..effects.permissions import PermissionMode, Rule
from ..effects.secrets import Secrets
from ..effects.validators import as_file_names, as_texts, of_kind, positive, tuple_of
from ..engine.agent import DEFAULT_MODEL, Agent, shown_url
from ..engine.session.completed_texts import Delivery
from ..engine.session.session import Session
from ..performers.approvals import Approver
from ..performers.base import Clock, Performers
from ..performers.hooks import HostHook
from ..performers.models.prices import price_of
from ..performers.models.rate_limits import RateLimit
from ..performers.models.throttle import MAX_CONCURRENT
from ..performers.models.transport import Client
from ..performers.stores.base import Store
from ..performers.stores.place import StorePlace, open_place, store_place
from ..performers.tools.builtin import builtin_tools
from ..performers.tools.choice import ToolChoice
from ..performers.tools.decorator import Tool
from ..performers.tools.names import misfit
from .areas import CommandHook, Debug, Preset, Prices, SessionSettings, Telemetry
from .keys import SECRET
from .reading import read

if TYPE_CHECKING:
    from ..performers.secrets import Vault
    from ..performers.telemetry.otel import OpenTelemetry

Tools = list[Tool[..., Any]]

# A table of settings without tables in it.
T = TypeVar("T", ModelSpec, Limits, Policy, Retries, Compaction, Loops, Sandbox)


@final
class Host(TypedDict, total=False):
    """The parts of an agent that are no data; they win over settings."""

    approver: Approver | None
    client: Client
    clock: Clock
    deps: object
    lifted: tuple[Rule, ...]
    performers: Performers
    retired: tuple[str, ...]
    store: Store | None
    telemetry: OpenTelemetry | None
    tools_for: ToolChoice | None
    vault: Vault


def _spec(model: str | ModelSpec) -> ModelSpec:
    return ModelSpec(name=model) if isinstance(model, str) else model


def _specs(models: Iterable[str | ModelSpec]) -> tuple[ModelSpec, ...]:
    return tuple([_spec(model) for model in models])


def _all(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(items)


def _paths(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    return tuple([Path(path) for path in paths])


def _policy(settings: Settings) -> Policy:
    return settings.preset.policy


def _retries(settings: Settings) -> Retries:
    return settings.preset.retries


@final
@attrs.frozen(kw_only=True)
class Settings:
    """
    All of an agent that is data. Code is handed to `agent`; docs/settings.md describes each setting.

    Each setting has a key, such as ``limits.usd``. *sources* has the source of each one that was set.
    """

    model: ModelSpec = attrs.field(
        default=ModelSpec(name=DEFAULT_MODEL), converter=_spec, validator=of_kind(ModelSpec)
    )
    models: tuple[ModelSpec, ...] = attrs.field(default=(), converter=_specs, validator=tuple_of(ModelSpec))
    fallback: ModelSpec | None = attrs.field(
        default=None,
        converter=attrs.converters.optional(_spec),
        validator=attrs.validators.optional(of_kind(ModelSpec)),
    )
    base_url: str | None = attrs.field(default=None, repr=shown_url)
    api_key: str | None = attrs.field(default=None, repr=False, metadata=SECRET)
    betas: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))
    requests_at_once: int | None = attrs.field(default=MAX_CONCURRENT, validator=positive)
    rates: tuple[RateLimit, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(RateLimit))
    prices: Prices = attrs.field(default=Prices.OWN, converter=Prices)
    system: str = ""
    instructions: tuple[str, ...] = attrs.field(default=(), converter=as_file_names, validator=tuple_of(str))
    stop: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))
    tools: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))
    disallowed_tools: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))
    rules: tuple[Rule, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(Rule))
    hooks: tuple[CommandHook, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(CommandHook))
    agents: tuple[ChildSpec, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(ChildSpec))
    agent_name: str = ""
    cwd: Path = attrs.field(default=Path(), converter=Path)
    directories: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    session_limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    preset: Preset = attrs.field(default=Preset.DEFAULT, converter=Preset)
    ceiling: PermissionMode = attrs.field(default=PermissionMode.BYPASS, converter=PermissionMode)
    sandbox: Sandbox | None = attrs.field(default=None, validator=attrs.validators.optional(of_kind(Sandbox)))
    policy: Policy = attrs.field(default=attrs.Factory(_policy, takes_self=True), validator=of_kind(Policy))
    retries: Retries = attrs.field(
        default=attrs.Factory(_retries, takes_self=True), validator=of_kind(Retries)
    )
    compaction: Compaction = attrs.field(default=Compaction(), validator=of_kind(Compaction))
    loops: Loops = attrs.field(default=Loops(), validator=of_kind(Loops))
    secrets: Secrets = attrs.field(default=Secrets(), validator=of_kind(Secrets))
    store: StorePlace | None = attrs.field(default=None, converter=attrs.converters.optional(store_place))
    session: SessionSettings = attrs.field(default=SessionSettings(), validator=of_kind(SessionSettings))
    watch: Delivery = attrs.field(default=Delivery(), validator=of_kind(Delivery))
    debug: Debug = attrs.field(default=Debug(), validator=of_kind(Debug))
    telemetry: Telemetry | None = attrs.field(
        default=None, validator=attrs.validators.optional(of_kind(Telemetry))
    )
    sources: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        **told: Any,  # noqa: ANN401  # settings as they are, or as a file would have them
    ) -> Settings:
        """
        The settings in *told*, over the environment, over *file*, over the defaults.

        Without *file*, ``turnwheel.toml`` in the working directory is read if it is there. Without *env*, the
        environment of the process is; in it ``TURNWHEEL_LIMITS__USD`` is ``limits.usd``. A mapping is laid
        over the table below it, an object replaces that table. Raises one `ConfigError` for all mistakes.
        """
        settings, sources = read(cls, file, os.environ if env is None else env, told)
        return attrs.evolve(settings, sources=sources)

    def told(self, key: str) -> bool:
        """Whether a file, the environment or Python set *key*, or a key below it."""
        return any(f"{key}.".startswith(f"{each}.") or each.startswith(f"{key}.") for each in self.sources)

    def over(self, area: str, base: T) -> T:
        """*base* with those settings of *area* that were set, such as ``limits`` over some `Limits`."""
        mine = getattr(self, area)
        told = [each.name for each in attrs.fields(type(base)) if self.told(f"{area}.{each.name}")]
        return attrs.evolve(base, **{name: getattr(mine, name) for name in told})

    def agent(
        self,
        *,
        tools: Iterable[Tool[..., Any]] = (),
        hooks: Iterable[HostHook[Any]] = (),
        **host: Unpack[Host],
    ) -> Agent:
        """
        The agent of these settings, with *tools* and *hooks* besides theirs.

        With *store* and *persist* it has a store of its own, `Agent.store`, which the caller closes with the
        agent. Raises `ConfigError` if settings do not fit together, or fit no tool.
        """
        self.debug.begin()
        there, mine = _offered(self, tools)
        changed, offered = _as_named(self, mine)
        kept = changed.store if changed.session.persist else None
        if isinstance(kept, Path):
            kept = kept.expanduser()
        # An agent has most settings under the same name; `host` wins over the store.
        same = attrs.fields_dict(Agent).keys() & attrs.fields_dict(Settings).keys()
        parts: dict[str, Any] = {
            **{name: getattr(changed, name) for name in same},
            "model": _model(changed),
            "models": [spec for spec in changed.models if spec.name != changed.model.name],
            "tools": offered,
            "hooks": [*_made(changed), *hooks],
            "children": changed.agents,
            "prices": price_of if changed.prices is Prices.GENAI else None,
            "titles": changed.session.titles,
            "store": None if kept is None else open_place(kept),
            "telemetry": None if changed.telemetry is None else changed.telemetry.made(),
            **host,
            # What is there and not offered is left out on purpose, and rules for other agents may name it.
            "retired": (*host.get("retired", ()), *[tool.spec.name for tool in there]),
        }
        return Agent(**parts)

    async def open(self, agent: Agent) -> Session:
        """
        The session of *agent* that these settings name, or a new one.

        Raises `UnknownSession` if the session to resume is not in the store of *agent*.
        """
        name, store = self.session.id, agent.store
        if self.session.resume is not None:
            name = self.session.resume
            if store is None or not await store.load(name, 0, 1):
                raise UnknownSession(name)
        elif self.session.latest and store is not None:
            from ..engine.inspect.listing import latest  # noqa: PLC0415  # it needs cattrs

            name = await latest(store, agent.cwd)
        return agent.session(name)


def _made(settings: Settings) -> Iterator[HostHook[Any]]:
    """The hooks of *settings*; several of one program get a number in their names."""
    seen: Counter[str] = Counter()
    for hook in settings.hooks:
        seen[hook.called] += 1
        number = seen[hook.called]
        yield hook.made(settings.cwd, hook.called if number == 1 else f"{hook.called}-{number}")


def _model(settings: Settings) -> ModelSpec:
    """The model of *settings*; if only its name was set, the one of that name among *models*."""
    model = settings.model
    if model != ModelSpec(name=model.name):
        return model
    return next((spec for spec in settings.models if spec.name == model.name), model)


def _offered(settings: Settings, more: Iterable[Tool[..., Any]]) -> tuple[Tools, Tools]:
    """
    All tools there are, and those of them that are offered.

    These are the built-in tools that *settings* name and *more* of the host's, without the disallowed ones.

    Raises `ConfigError` for a glob that fits no tool.
    """
    mine = builtin_tools() if settings.tools or settings.disallowed_tools else ()
    given = [*more]
    _fits("tools", settings.tools, mine)
    _fits("disallowed_tools", settings.disallowed_tools, (*mine, *given))
    wanted = [*(tool for tool in mine if _named(tool, settings.tools)), *given]
    return [*mine, *given], [tool for tool in wanted if not _named(tool, settings.disallowed_tools)]


def _named(tool: Tool[..., Any], globs: Iterable[str]) -> bool:
    return any(fnmatchcase(tool.spec.name, glob) for glob in globs)


def _fits(key: str, globs: Iterable[str], tools: Sequence[Tool[..., Any]]) -> None:
    for glob in globs:
        # A misspelt glob would let in the tool that it was to keep out.
        if problem := misfit(glob, [tool.spec for tool in tools]):
            msg = f"{key}: {problem}"
            raise ConfigError(msg)


def _as_named(settings: Settings, tools: Tools) -> tuple[Settings, Tools]:
    """
    *settings* and *tools* of the child that `agent_name` names; as they are if it names none.

    That agent has the child's tools only and the stricter limits of both, and starts no children.
    """
    if not settings.agent_name:
        return settings, tools
    child = _child(settings)
    kept = [tool for tool in tools if _has(child, tool)]
    changed = attrs.evolve(
        settings,
        agent_name="",
        agents=(),
        model=child.model or settings.model,
        system=child.system or settings.system,
        instructions=child.instructions or settings.instructions,
        limits=stricter(settings.limits, child.limits),
    )
    return changed, kept


def _child(settings: Settings) -> ChildSpec:
    for child in settings.agents:
        if child.name == settings.agent_name:
            return child
    names = ", ".join(child.name for child in settings.agents) or "none"
    msg = f"agent_name must be one of the agents, which are: {names}; got {settings.agent_name!r}"
    raise ConfigError(msg)


def _has(child: ChildSpec, tool: Tool[..., Any]) -> bool:
    if child.tools is None:
        return tool.spec.side_effect is SideEffect.READ_ONLY
    return child.names(tool.spec.name)


def stricter(one: Limits, other: Limits) -> Limits:
    """The lower one of each limit."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in attrs.fields_dict(Limits)}
    return Limits(
        **{name: min((x for x in pair if x is not None), default=None) for name, pair in pairs.items()}
    )
