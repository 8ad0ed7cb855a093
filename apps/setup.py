"""The agent that follows from what a command line asked for, over how its session was set up before."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from ..effects.config import Concurrency, Config, Limits, ModelSpec, Policy, Price
from ..effects.errors import ConfigError
from ..effects.performers.base import Performer
from ..effects.performers.hooks import HostHook, command_hook
from ..effects.performers.models.router import DEFAULT, Models, wire_of
from ..effects.performers.stores.base import Store
from ..effects.performers.tools import Tool
from ..effects.permissions import PermissionMode, Rule
from ..engine.agent import Agent
from .job import BUILT_IN, INSTRUCTIONS, Job, is_stand_in, model_of
from .values import HookOption

FREE = Price(input=0, output=0)
"""What the stand-in costs."""

SYSTEM = """\
You are an agent at work in a terminal. Look before you change things, use the tools you have rather than \
guess, and keep what you say short and plain. When you are done, say what you did and what is left.
Your working directory is """
"""The system prompt, to which the directory is added. It names no date, so that equal runs stay equal."""


def agent_for(
    job: Job,
    before: Config | None,
    *,
    base_url: str | None,
    store: Store,
    performers: Mapping[type, Performer[Any]],
) -> Agent:
    """
    The agent that *job* asks for, over how its session was set up *before*.

    Raises `ConfigError` where a setting is wrong.
    """
    name = model_of(job, before)
    model = _model(job, name, before)
    limits = _limits(job, before)
    if limits.usd is not None and model.price is None:
        msg = f"--max-usd needs to know what {name!r} costs; say it with --price IN,OUT"
        raise ConfigError(msg)
    return Agent(
        model=model,
        models=_others(job, name, before),
        tools=_tools(job, before),
        system=_system(job, before),
        instructions=_instructions(job, before),
        limits=limits,
        policy=_policy(job, before),
        rules=_rules(job, before),
        hooks=_hooks(job, before),
        base_url=base_url,
        api_key="" if base_url != job.base_url else None,
        cwd=job.cwd,
        directories=job.directories,
        store=store,
        performers=performers,
    )


def _model(job: Job, name: str, before: Config | None) -> ModelSpec:
    price = job.price or (FREE if is_stand_in(name) and job.base_url is None else None)
    spec = ModelSpec(name=name) if before is None else attrs.evolve(_known(before, name), name=name)
    return spec if price is None else attrs.evolve(spec, price=price)


def _known(before: Config, name: str) -> ModelSpec:
    """The model *name* as it was set up *before*, or as nobody has set it up."""
    known = {spec.name: spec for spec in (before.model, *before.models)}
    return known.get(name) or ModelSpec(name=name)


def _others(job: Job, name: str, before: Config | None) -> tuple[ModelSpec, ...]:
    """The models that the session may be switched to; without one that is asked already."""
    others = job.models or (before.models if before else ())
    return tuple([spec for spec in others if spec.name != name])


def _tools(job: Job, before: Config | None) -> list[Tool[..., Any]]:
    names = job.tools
    if names is None:
        names = tuple(BUILT_IN) if before is None else tuple(tool.name for tool in before.tools)
    return [BUILT_IN[name] for name in dict.fromkeys(names) if name in BUILT_IN]


def _system(job: Job, before: Config | None) -> str:
    """What was told, now or before; else ours, which names the directory of this very run."""
    if job.system is not None:
        return job.system
    if before is not None and not before.system.startswith(SYSTEM):
        return before.system
    also = "".join(f" You may also work in {directory.resolve()}." for directory in job.directories)
    return f"{SYSTEM}{job.cwd.resolve()}.{also}"


def _instructions(job: Job, before: Config | None) -> tuple[str, ...]:
    if job.instructions is not None:
        return job.instructions
    return INSTRUCTIONS if before is None else before.instructions


def _limits(job: Job, before: Config | None) -> Limits:
    limits = Limits() if before is None else before.limits
    return Limits(
        turns=limits.turns if job.turns is None else job.turns,
        tokens=limits.tokens if job.tokens is None else job.tokens,
        usd=limits.usd if job.usd is None else job.usd,
        seconds=limits.seconds if job.seconds is None else job.seconds,
    )


def _policy(job: Job, before: Config | None) -> Policy:
    """To let everything run is never taken over: it has to be said each time."""
    policy = Policy() if before is None else before.policy
    mode = PermissionMode.DEFAULT if policy.mode is PermissionMode.BYPASS else policy.mode
    return attrs.evolve(
        policy,
        mode=mode if job.mode is None else job.mode,
        answer_within=policy.answer_within if job.answer_within is None else job.answer_within,
        concurrency=Concurrency.PARALLEL_READS if job.parallel else policy.concurrency,
    )


def _rules(job: Job, before: Config | None) -> tuple[Rule, ...]:
    """
    What was told; for each verdict that nothing was told of, what held before.

    So a rule that denies is not lost where one that allows is told anew.
    """
    told = {rule.verdict for rule in job.rules}
    kept = before.rules if before else ()
    return (*job.rules, *[rule for rule in kept if rule.verdict not in told])


def _hooks(job: Job, before: Config | None) -> list[HostHook[Any]]:
    """The hooks that were told; raises `ConfigError` where a session would have to go on without its own."""
    if before is not None and before.hooks and not job.hooks and not job.no_hooks:
        names = ", ".join(spec.name for spec in before.hooks)
        msg = f"this session has hooks ({names}), whose commands are not kept: tell them again, or --no-hooks"
        raise ConfigError(msg)
    seen: Counter[str] = Counter()
    made: list[HostHook[Any]] = []
    for told in job.hooks:
        name = Path(told.command[0]).name
        seen[name] += 1
        made.append(_hook(told, name if seen[name] == 1 else f"{name}-{seen[name]}", job.cwd))
    return made


def _hook(told: HookOption, name: str, cwd: Path) -> HostHook[Any]:
    """The hook *told*, whose program is looked for from where the command was typed."""
    program, *more = told.command
    command = (str(Path(shutil.which(program) or program).absolute()), *more)
    return command_hook(told.at, command=command, cwd=cwd, tool=told.tool, name=name)


def unfit(config: Config, model: str, base_url: str | None = None) -> str:
    """
    Why a session of *config* cannot be switched to *model*; empty where it can.

    *base_url* is where its first model is asked, where that is not its provider.
    """
    if base_url is None and is_stand_in(config.model.name) != is_stand_in(model):
        if is_stand_in(model):
            return "the stand-in is asked by sessions that began with it, and by no others"
        if wire_of(model) in {None, DEFAULT}:
            return "this session asks the scripted stand-in; begin another one for a model"
    try:
        Models(wire_of(config.model.name) or DEFAULT, base_url=base_url, api_key="").check(model)
    except ConfigError as error:
        return str(error)
    return ""
