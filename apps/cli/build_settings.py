"""
Build the agent of a run: options over settings, over the configuration that its session has stored.

Options win over the environment, the environment over the file, and the file over the stored configuration.
Two things are different: a resumed session keeps its own model and mode, which a person may have chosen in
it, unless an option says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import attrs

from ...effects.config import AutoAllow, Concurrency, Config, Limits, ModelSpec, Policy, Price, Sandbox
from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Rule, Verdict
from ...engine.agent import SPAWN, Agent
from ...performers.base import Performer
from ...performers.instructions import INSTRUCTION_FILES
from ...performers.models.router import DEFAULT_WIRE, Models, wire_of
from ...performers.stores.base import Store
from ...settings import CommandHook, Prices, Settings, Telemetry
from ...settings.settings import stricter
from .run_options import (
    BUILT_IN,
    RunOptions,
    is_stand_in,
    model_of,
)

FREE = Price(input=0, output=0)
"""The price of the stand-in."""

SYSTEM_PROMPT = """\
You are an agent at work in a terminal. Look before you change things, use the tools you have rather than \
guess, and keep what you say short and plain. When you are done, say what you did and what is left.
Your working directory is """
"""The system prompt; the directory follows it. It has no date, so that equal runs stay equal."""


def agent_for(
    options: RunOptions,
    before: Config | None,
    *,
    base_url: str | None,
    store: Store,
    performers: Mapping[type, Performer[Any]],
) -> Agent:
    """
    The agent for *options*, over *before*, the stored configuration of its session (None for a new one).

    Raises `ConfigError` for invalid settings.
    """
    settings = settings_for(options, before, base_url=base_url)
    return settings.agent(
        store=store, performers=dict(performers), retired=_retired(before), lifted=_lifted(options, before)
    )


def settings_for(options: RunOptions, before: Config | None, *, base_url: str | None) -> Settings:
    """The settings for *options* over the stored configuration *before*; see `agent_for`."""
    name = model_of(options, before)
    model = _model(options, name, before)
    limits, ceiling, sandbox = _limits(options, before), _ceiling(options, before), _sandbox(options, before)
    if limits.usd is not None and model.price is None and options.settings.prices is Prices.OWN:
        msg = f"--max-usd: the price of {name!r} is unknown; pass --price IN,OUT"
        raise ConfigError(msg)
    return attrs.evolve(
        _with_session_settings(options, before),
        model=model,
        models=_others(options, name, before),
        fallback=_fallback(options, before),
        tools=_tools(options, before),
        system=_system(options, before),
        instructions=_instructions(options, before),
        limits=limits,
        ceiling=ceiling,
        sandbox=sandbox,
        telemetry=options.settings.telemetry or (Telemetry() if options.telemetry else None),
        policy=_policy(options, before, ceiling),
        rules=_rules(options, before),
        hooks=_hooks(options, before),
        base_url=base_url,
        # The address differs only for the stand-in, which must not see a key.
        api_key="" if base_url != options.base_url else options.settings.api_key,
        cwd=options.cwd,
        directories=options.directories,
    )


def _with_session_settings(options: RunOptions, before: Config | None) -> Settings:
    """Settings that no option covers, over those of the stored configuration *before*."""
    settings = options.settings
    if before is None:
        return settings
    return attrs.evolve(
        settings,
        session_limits=_lowered(options, "session_limits", before.session_limits),
        retries=settings.over("retries", before.retries),
        compaction=settings.over("compaction", before.compaction),
        loops=settings.over("loops", before.loops),
        stop=settings.stop if settings.told("stop") else before.stop,
        agents=settings.agents if settings.told("agents") else before.children,
    )


def _model(options: RunOptions, name: str, before: Config | None) -> ModelSpec:
    price = options.price or (FREE if is_stand_in(name) and options.base_url is None else None)
    spec = _model_spec(options, name, before)
    return spec if price is None else attrs.evolve(spec, price=price)


def _model_spec(options: RunOptions, name: str, before: Config | None) -> ModelSpec:
    """The specification of model *name*: from the settings, from *before*, or a bare one."""
    settings = options.settings
    specs = (*((before.model, *before.models) if before else ()), *settings.models)
    spec = {each.name: each for each in specs}.get(name) or ModelSpec(name=name)
    if settings.told("model.name") and settings.model.name != name:
        return spec  # the settings describe another model
    return attrs.evolve(settings.over("model", spec), name=name)


def _others(options: RunOptions, name: str, before: Config | None) -> tuple[ModelSpec, ...]:
    """The models that the session may switch to, without *name* itself."""
    others = options.models or options.settings.models or (before.models if before else ())
    return tuple([spec for spec in others if spec.name != name])


def _fallback(options: RunOptions, before: Config | None) -> ModelSpec | None:
    if options.fallback is not None:
        return options.fallback[0] if options.fallback else None
    if options.settings.told("fallback"):
        return options.settings.fallback
    return before.spec(before.fallback) if before is not None and before.fallback else None


def _tools(options: RunOptions, before: Config | None) -> tuple[str, ...]:
    if options.tools is not None:
        return options.tools
    names = [*BUILT_IN] if before is None else [tool.name for tool in before.tools if tool.name != SPAWN.name]
    if lacking := [name for name in names if name not in BUILT_IN]:
        msg = (
            f"the session has tools that are not here: {', '.join(map(repr, lacking))}; resume it with the "
            f"application that has them, or pass --tools {','.join(BUILT_IN)} or some of these instead"
        )
        raise ConfigError(msg)
    wanted = options.settings.tools
    if not options.settings.told("tools"):
        return tuple(names)
    if before is None or options.trusts("tools"):
        return wanted
    return tuple([name for name in names if any(fnmatchcase(name, glob) for glob in wanted)])


def _retired(before: Config | None) -> tuple[str, ...]:
    """What the stored configuration *before* may name, although this run was told to go on without it."""
    if before is None:
        return ()
    tools, rules = [tool.name for tool in before.tools], [rule.tool for rule in before.rules]
    return (*tools, *rules, *[glob for child in before.children for glob in child.tools or ()])


def _system(options: RunOptions, before: Config | None) -> str:
    """The prompt given now or earlier; else the default one, with the directories of this run."""
    if options.system is not None:
        return options.system
    if options.settings.told("system"):
        return options.settings.system
    if before is not None and not before.system.startswith(SYSTEM_PROMPT):
        return before.system
    also = "".join(f" You may also work in {directory.resolve()}." for directory in options.directories)
    return f"{SYSTEM_PROMPT}{options.cwd.resolve()}.{also}"


def _instructions(options: RunOptions, before: Config | None) -> tuple[str, ...]:
    if options.instructions is not None:
        return options.instructions
    if options.settings.told("instructions"):
        return options.settings.instructions
    return INSTRUCTION_FILES if before is None else before.instructions


def _limits(options: RunOptions, before: Config | None) -> Limits:
    limits = _lowered(options, "limits", Limits() if before is None else before.limits)
    return Limits(
        turns=limits.turns if options.turns is None else options.turns,
        tokens=limits.tokens if options.tokens is None else options.tokens,
        usd=limits.usd if options.usd is None else options.usd,
        seconds=limits.seconds if options.seconds is None else options.seconds,
    )


def _lowered(options: RunOptions, area: str, base: Limits) -> Limits:
    """*base* with the limits that were set; a file that was not named only lowers them."""
    told = options.settings.over(area, base)
    lower = stricter(told, base)
    found = [name for name in attrs.fields_dict(Limits) if not options.trusts(f"{area}.{name}")]
    return attrs.evolve(told, **{name: getattr(lower, name) for name in found})


def _ceiling(options: RunOptions, before: Config | None) -> PermissionMode:
    """The ceiling that was set, or the session's, which a file that was not named does not raise."""
    told = options.settings.ceiling
    if before is None:
        return told
    lowers = options.trusts("ceiling") or told.within(before.ceiling)
    return told if options.settings.told("ceiling") and lowers else before.ceiling


def _sandbox(options: RunOptions, before: Config | None) -> Sandbox | None:
    """The sandbox that was set, over that of the session; `--no-sandbox` leaves it."""
    kept = None if before is None else before.sandbox
    if options.sandbox is False:
        return None
    if options.settings.sandbox is not None:
        return options.settings.over("sandbox", kept or Sandbox())
    return kept or (Sandbox() if options.sandbox else None)


def _policy(options: RunOptions, before: Config | None, ceiling: PermissionMode) -> Policy:
    """
    The policy of the run. The mode `bypass` is never inherited: a person has to ask for it each time.

    A mode that was not set for this run is no wider than *ceiling*.
    """
    policy = options.settings.over("policy", Policy() if before is None else before.policy)
    mode = policy.mode if before is None else before.policy.mode
    # A resumed session must not run everything just because it once did.
    if before is not None and mode is PermissionMode.BYPASS:
        mode = PermissionMode.DEFAULT
    if not mode.within(ceiling) and (before is not None or not options.settings.told("policy.mode")):
        mode = ceiling
    return attrs.evolve(
        policy,
        mode=mode if options.mode is None else options.mode,
        auto_allow=AutoAllow.NOTHING if options.sandbox is False else policy.auto_allow,
        answer_within=policy.answer_within if options.answer_within is None else options.answer_within,
        concurrency=Concurrency.PARALLEL_READS if options.parallel else policy.concurrency,
    )


def _rules(options: RunOptions, before: Config | None) -> tuple[Rule, ...]:
    """
    The rules given now, those of the session that deny or ask, and where none allows now, those that allow.

    Rules of a file that was not named are besides those of the session: they deny or ask.
    """
    now = (*options.rules, *options.settings.rules)
    replaced = now if options.trusts("rules") else options.rules
    given = {rule.verdict for rule in replaced} & {Verdict.ALLOW}
    there = before.rules if before else ()
    lifted = _lifted(options, before)
    kept = [rule for rule in there if rule.verdict not in given]
    return (*now, *[rule for rule in kept if rule not in (*now, *lifted)])


def _lifted(options: RunOptions, before: Config | None) -> tuple[Rule, ...]:
    """The rules of the session that are lifted, each by its tool and its globs."""
    lasting = [rule for rule in (before.rules if before else ()) if rule.verdict is not Verdict.ALLOW]
    lifted: list[Rule] = []
    for named in options.lifted:
        found = [rule for rule in lasting if (rule.tool, rule.where) == (named.tool, named.where)]
        if not found:
            there = ", ".join(map(str, lasting)) or "none"
            what = str(named).removeprefix(f"{named.verdict} ")
            msg = f"--lift must name a rule of the session that denies or asks: {there}; got {what!r}"
            raise ConfigError(msg)
        lifted += found
    return tuple(lifted)


def _hooks(options: RunOptions, before: Config | None) -> tuple[CommandHook, ...]:
    """The hooks of the run; raises `ConfigError` if the session had hooks and none are given now."""
    if options.no_hooks:
        return ()
    hooks = (
        *options.settings.hooks,
        *(CommandHook(at=each.at, command=each.command, tool=each.tool) for each in options.hooks),
    )
    if before is not None and before.hooks and not hooks:
        names = ", ".join(spec.name for spec in before.hooks)
        msg = f"session has hooks ({names}); pass them with --hook again, or --no-hooks"
        raise ConfigError(msg)
    return hooks


def switch_problem(config: Config, model: str, base_url: str | None = None) -> str:
    """
    Why a session with *config* cannot switch to *model*; empty if it can.

    *base_url* is the address of its model, if it is not the provider's.
    """
    if base_url is None and is_stand_in(config.model.name) != is_stand_in(model):
        if is_stand_in(model):
            return "only sessions started with the stand-in can use it; start a new session"
        if wire_of(model) in {None, DEFAULT_WIRE}:
            return "this session uses the scripted stand-in; start a new session for a model"
    try:
        Models(wire_of(config.model.name) or DEFAULT_WIRE, base_url=base_url, api_key="").check(model)
    except ConfigError as error:
        return str(error)
    return ""
