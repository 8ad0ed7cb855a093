"""The agent that follows from settings: with the tools that they name, and as the agent that they name."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs

from ..effects.config import Limits, ModelSpec, SideEffect
from ..effects.errors import ConfigError
from ..engine.agent import Agent
from ..engine.prices import price_of
from ..performers.stores.sqlite import SQLiteStore
from ..performers.tools.builtin import builtin_tools
from ..performers.tools.decorator import Tool
from .areas import Prices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..effects.config import ChildSpec
    from ..performers.hooks import HostHook
    from .settings import Host, Settings

Tools = list[Tool[..., Any]]


def agent_of(
    settings: Settings, more: Iterable[Tool[..., Any]], hooks: Iterable[HostHook[Any]], host: Host
) -> Agent:
    """The agent of *settings*, with *more* tools and *hooks* of the host's, as `Settings.agent` has it."""
    changed, tools = as_named(settings, offered(settings, more))
    kept = changed.store if changed.session.persist else None
    given: dict[str, Any] = {"store": None if kept is None else SQLiteStore(kept.expanduser()), **host}
    return Agent(
        model=asked(changed),
        models=tuple([spec for spec in changed.models if spec.name != changed.model.name]),
        fallback=changed.fallback,
        tools=tools,
        system=changed.system,
        instructions=changed.instructions,
        limits=changed.limits,
        session_limits=changed.session_limits,
        policy=changed.policy,
        retries=changed.retries,
        compaction=changed.compaction,
        loops=changed.loops,
        rules=changed.rules,
        secrets=changed.secrets,
        hooks=(*_made(changed), *hooks),
        stop=changed.stop,
        children=changed.agents,
        base_url=changed.base_url,
        api_key=changed.api_key,
        betas=changed.betas,
        requests_at_once=changed.requests_at_once,
        prices=price_of if changed.prices is Prices.GENAI else None,
        cwd=changed.cwd,
        directories=changed.directories,
        titles=changed.session.titles,
        watch=changed.watch,
        **given,
    )


def _made(settings: Settings) -> Iterator[HostHook[Any]]:
    """The hooks of *settings*, of which those with one program are told apart by a number."""
    seen: Counter[str] = Counter()
    for hook in settings.hooks:
        seen[hook.called] += 1
        number = seen[hook.called]
        yield hook.made(settings.cwd, hook.called if number == 1 else f"{hook.called}-{number}")


def asked(settings: Settings) -> ModelSpec:
    """The model of *settings*, as it stands among their models where no more than its name was told."""
    model = settings.model
    if model != ModelSpec(name=model.name):
        return model
    return next((spec for spec in settings.models if spec.name == model.name), model)


def offered(settings: Settings, more: Iterable[Tool[..., Any]]) -> Tools:
    """
    The built-in tools that *settings* name, and *more* of the host's, without those that are disallowed.

    Raises `ConfigError` for a glob that fits no tool: what it was to keep out would be let in.
    """
    mine = builtin_tools() if settings.tools or settings.disallowed_tools else ()
    told = [*more]
    _fits("tools", settings.tools, mine)
    _fits("disallowed_tools", settings.disallowed_tools, (*mine, *told))
    there = [*(tool for tool in mine if _named(tool, settings.tools)), *told]
    return [tool for tool in there if not _named(tool, settings.disallowed_tools)]


def _named(tool: Tool[..., Any], globs: Iterable[str]) -> bool:
    return any(fnmatchcase(tool.spec.name, glob) for glob in globs)


def _fits(key: str, globs: Iterable[str], tools: Sequence[Tool[..., Any]]) -> None:
    for glob in globs:
        if not any(_named(tool, (glob,)) for tool in tools):
            names = ", ".join(tool.spec.name for tool in tools)
            msg = f"{key} must be names or globs of tools, which are {names}; got {glob!r}"
            raise ConfigError(msg)


def as_named(settings: Settings, tools: Tools) -> tuple[Settings, Tools]:
    """
    *settings* and *tools* of the agent that `agent_name` names, or as they are where it names none.

    It is what it would be as a child, but that it begins by itself: it has the child's tools only, the
    stricter of its limits and those of the settings, and starts no other agent.
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
    return tool.spec.name in child.tools


def stricter(one: Limits, other: Limits) -> Limits:
    """Of each limit the lower one."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in attrs.fields_dict(Limits)}
    return Limits(
        **{name: min((x for x in pair if x is not None), default=None) for name, pair in pairs.items()}
    )
