"""`Settings`: all that can be told of an agent as data, and the agent that follows from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, final

import attrs

from ..effects.config import ChildSpec, Compaction, Limits, Loops, ModelSpec, Policy, Retries
from ..effects.errors import ArgumentError, UnknownSession
from ..effects.permissions import Rule
from ..effects.secrets import Secrets
from ..effects.validators import of_kind, positive, tuple_of
from ..engine.agent import DEFAULT_MODEL, Agent
from ..engine.session.delivery import Delivery
from ..performers.models.throttle import MAX_CONCURRENT
from ..performers.tools.decorator import Tool
from .areas import (
    CommandHook,
    Debug,
    Preset,
    Prices,
    SessionSettings,
)
from .parts import agent_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx
    from typing_extensions import Unpack

    from ..effects.events import Decision
    from ..effects.requests import AskApproval
    from ..engine.driver import Performers
    from ..engine.session.session import Session
    from ..performers.base import Clock
    from ..performers.hooks import HostHook
    from ..performers.secrets import Vault
    from ..performers.stores.base import Store

T = TypeVar("T", ModelSpec, Limits, Policy, Retries, Compaction, Loops)
"""A table of settings that all stand side by side."""

FILE = "turnwheel.toml"
"""The file that is read where no other one is named, if it is there."""

SECRET = {"secret": True}
"""Marks a setting that is never shown."""


@final
class Host(TypedDict, total=False):
    """What an agent is given that is no data; what is given here wins over a setting."""

    approver: Callable[[AskApproval], Awaitable[Decision | None]] | None
    client: httpx.AsyncClient | None
    clock: Clock
    deps: object
    performers: Performers
    store: Store | None
    vault: Vault


def _spec(model: str | ModelSpec) -> ModelSpec:
    return ModelSpec(name=model) if isinstance(model, str) else model


def _specs(models: Iterable[str | ModelSpec]) -> tuple[ModelSpec, ...]:
    return tuple([_spec(model) for model in models])


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    if isinstance(texts, str):
        msg = f"several texts are wanted, not one: write ({texts!r},)"
        raise ArgumentError(msg)
    return tuple(texts)


def _all(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(items)


def _paths(paths: Iterable[str | Path]) -> tuple[Path, ...]:
    return tuple([Path(path) for path in paths])


def _policy(settings: Settings) -> Policy:
    return settings.preset.policy


@final
@attrs.frozen(kw_only=True)
class Settings:
    """
    All that can be told of an agent as data. What needs code is handed to `agent`.

    *model*, *models* and *fallback* are whom to ask, at *base_url* with *api_key* where those are not the
    provider's own, with *betas* as features asked for by name and *requests_at_once* at most; *prices* says
    where the price of a model comes from that has none. *system* and the files *instructions* tell it who it
    is, *stop* are stop sequences. *tools* are the built-in ones it is offered, as globs, without
    *disallowed_tools*; *rules* judge their calls, *hooks* have a say. *agents* may be started by the model;
    *agent_name* makes this agent one of them. *cwd* and *directories* are what file tools may touch. *limits*
    are each run's, *session_limits* those of all runs of a session. *policy*, *retries*, *compaction* and
    *loops* say how it goes about its work; a *preset* is a whole policy that the policy's own settings are
    laid over. *secrets* says what is kept out of sight. *store* is the file that keeps sessions, *session*
    says which one. *watch* is what those are told who look on, *debug* the log.

    Each setting has a key, such as ``limits.usd``; *sources* says where those came from that were told.
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
    base_url: str | None = None
    api_key: str | None = attrs.field(default=None, repr=False, metadata=SECRET)
    betas: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=tuple_of(str))
    requests_at_once: int | None = attrs.field(default=MAX_CONCURRENT, validator=positive)
    prices: Prices = attrs.field(default=Prices.OWN, converter=Prices)
    system: str = ""
    instructions: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=tuple_of(str))
    stop: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=tuple_of(str))
    tools: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=tuple_of(str))
    disallowed_tools: tuple[str, ...] = attrs.field(default=(), converter=_texts, validator=tuple_of(str))
    rules: tuple[Rule, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(Rule))
    hooks: tuple[CommandHook, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(CommandHook))
    agents: tuple[ChildSpec, ...] = attrs.field(default=(), converter=_all, validator=tuple_of(ChildSpec))
    agent_name: str = ""
    cwd: Path = attrs.field(default=Path(), converter=Path)
    directories: tuple[Path, ...] = attrs.field(default=(), converter=_paths)
    limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    session_limits: Limits = attrs.field(default=Limits(), validator=of_kind(Limits))
    preset: Preset = attrs.field(default=Preset.DEFAULT, converter=Preset)
    policy: Policy = attrs.field(default=attrs.Factory(_policy, takes_self=True), validator=of_kind(Policy))
    retries: Retries = attrs.field(default=Retries(), validator=of_kind(Retries))
    compaction: Compaction = attrs.field(default=Compaction(), validator=of_kind(Compaction))
    loops: Loops = attrs.field(default=Loops(), validator=of_kind(Loops))
    secrets: Secrets = attrs.field(default=Secrets(), validator=of_kind(Secrets))
    store: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    session: SessionSettings = attrs.field(default=SessionSettings(), validator=of_kind(SessionSettings))
    watch: Delivery = attrs.field(default=Delivery(), validator=of_kind(Delivery))
    debug: Debug = attrs.field(default=Debug(), validator=of_kind(Debug))
    sources: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @classmethod
    def load(
        cls,
        file: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        **told: Any,  # noqa: ANN401  # settings as they are, or as a file would have them
    ) -> Settings:
        """
        The settings that are *told*, over those of the environment, over those of *file*, over the defaults.

        Without *file* it is ``turnwheel.toml`` in the working directory, if that is there. *env* is the
        process's environment unless told; in it ``TURNWHEEL_LIMITS__USD`` is ``limits.usd``. A table that is
        told as a mapping is laid over the one below it, one that is told as an object takes its place.
        Raises one `ConfigError` for all that is wrong.
        """
        from .reading import read  # noqa: PLC0415  # it needs cattrs and tomllib, which most agents do not
        from .sources import layers  # noqa: PLC0415  # as above

        return read(layers(file, os.environ if env is None else env, told))

    def told(self, key: str) -> bool:
        """Whether *key*, or anything below it, was told: by a file, by the environment or in Python."""
        parts = key.split(".")
        whole = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return any(each in self.sources for each in whole) or any(
            each.startswith(f"{key}.") for each in self.sources
        )

    def over(self, area: str, base: T) -> T:
        """*base* with what was told of *area* in its place, such as ``limits`` over some `Limits`."""
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
        The agent that follows from these settings, with *tools* and *hooks* of the host's besides theirs.

        It keeps sessions in a store of its own where *store* is set and *persist* is, which is `Agent.store`
        and to be closed by whoever closes the agent. Raises `ConfigError` where settings do not fit
        together, or fit no tool.
        """
        self.debug.begin()
        return agent_of(self, tools, hooks, host)

    async def open(self, agent: Agent) -> Session:
        """
        The session of *agent* that these settings name; a new one where they name none.

        Raises `UnknownSession` where the one to go on with is not in its store.
        """
        name, store = self.session.id, agent.store
        if self.session.resume is not None:
            name = self.session.resume
            if store is None or not await store.load(name):
                raise UnknownSession(name)
        elif self.session.latest and store is not None:
            from ..engine.session.listing import latest  # noqa: PLC0415  # it needs cattrs

            name = await latest(store, agent.cwd)
        return agent.session(name)
