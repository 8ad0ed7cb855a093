"""What `turnwheel run` was asked to do, checked; and the agent that follows from it."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, final

import attrs

from ..effects.config import Concurrency, Config, Grant, Limits, ModelSpec, PermissionMode, Policy, Price
from ..effects.errors import ConfigError
from ..effects.events import Decision
from ..effects.performers.stores.base import Store
from ..effects.performers.tools import Tool, builtin_tools
from ..effects.requests import AskApproval
from ..engine.agent import DEFAULT_MODEL, Agent
from .standin_script import MODEL, MODELS
from .values import Answer

STAND_IN = f"openai:{MODEL}"
"""The model that is asked where there is no key."""

FREE = Price(input=0, output=0)
"""What the stand-in costs."""

SYSTEM = """\
You are an agent at work in a terminal. Look before you change things, use the tools you have rather than \
guess, and keep what you say short and plain. When you are done, say what you did and what is left.
Your working directory is """
"""The system prompt, to which the directory is added. It names no date, so that equal runs stay equal."""

BUILT_IN = {tool.spec.name: tool for tool in builtin_tools()}


@final
class Output(StrEnum):
    """What is shown of a run: all of it to a person, the last answer only, or notices as JSON lines."""

    HUMAN = "human"
    QUIET = "quiet"
    JSON = "json"


@final
@attrs.frozen(kw_only=True)
class Job:
    """
    What a command line asked for. What is None was not told: a session then goes on as it was set up.

    *answers* are given to questions that are open when the job begins.
    """

    prompt: str | None
    resume: str | None = None
    session: str | None = None
    store: Path
    cwd: Path = Path()
    directories: tuple[Path, ...] = ()
    model: str | None = None
    base_url: str | None = None
    stand_in: bool = False
    system: str | None = None
    tools: tuple[str, ...] | None = None
    allow: tuple[Grant, ...] = ()
    yes: bool = False
    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    price: Price | None = None
    parallel: bool = False
    answers: tuple[Answer, ...] = ()
    output: Output = Output.HUMAN

    def __attrs_post_init__(self) -> None:
        problem = next(
            filter(None, (check(self) for check in (_about_session, _about_model, _about_tools))), ""
        )
        if problem:
            raise ConfigError(problem)


def _about_session(job: Job) -> str:
    """Why what *job* says of prompt and session cannot be done; empty where it can."""
    if job.prompt is None and job.resume is None:
        return "nothing to do: give a prompt, or a session to --resume"
    if job.prompt is not None and not job.prompt.strip():
        return "the prompt is empty"
    for text in (job.prompt, job.system, job.resume, job.session):
        if text is not None and not _is_unicode(text):
            return f"{text!r} is no valid text in the encoding of this terminal"
    if job.resume is not None and job.session is not None:
        return "--session names a new session and --resume one that is there; give one of them"
    if job.answers and job.resume is None:
        return "--approve and --deny answer the questions of a session; say which one with --resume"
    return ""


def _about_model(job: Job) -> str:
    """Why what *job* says of the model cannot be done; empty where it can."""
    if job.stand_in and job.base_url is not None:
        return "--stand-in is asked at an address of its own; leave out --base-url"
    if job.stand_in and job.model is not None and not is_stand_in(job.model):
        played = ", ".join(f"openai:{name}" for name in MODELS)
        return f"--stand-in cannot play {job.model!r}; it plays {played}"
    return ""


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _about_tools(job: Job) -> str:
    """Why the tools of *job* and the rules for them do not fit what there is; empty where they do."""
    there = tuple(BUILT_IN) if job.tools is None else job.tools
    for name in there:
        if name not in BUILT_IN:
            return f"no tool {name!r}; there are: {', '.join(BUILT_IN)}"
    for grant in job.allow:
        if grant.tool not in there:
            return (
                f"--allow names {grant.tool!r}, which is no tool of this run; there are: {', '.join(there)}"
            )
        takes = json.loads(BUILT_IN[grant.tool].spec.schema)["properties"]
        for name, _ in grant.where:
            if name not in takes:
                return f"--allow names an argument {name!r}; {grant.tool!r} takes: {', '.join(takes)}"
    return ""


def is_stand_in(model: str) -> bool:
    """Whether *model* is one that the scripted stand-in plays."""
    return model.removeprefix("openai:") in MODELS


def model_of(job: Job, before: Config | None) -> str:
    """Which model *job* asks; *before* is how its session was set up, None for a new one."""
    if job.model is not None:
        return job.model
    if job.stand_in:
        return STAND_IN
    if before is not None:
        return before.model.name
    told = os.environ.get("TURNWHEEL_MODEL", "").strip()
    able = job.base_url is not None or os.environ.get("OPENAI_API_KEY", "").strip()
    return told or (DEFAULT_MODEL if able else STAND_IN)


def agent_for(
    job: Job,
    before: Config | None,
    *,
    base_url: str | None,
    store: Store,
    approver: Callable[[AskApproval], Awaitable[Decision]] | None,
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
        tools=_tools(job, before),
        system=_system(job, before),
        limits=limits,
        policy=_policy(job, before),
        allow=job.allow or (before.allow if before else ()),
        base_url=base_url,
        api_key="" if base_url != job.base_url else None,
        cwd=job.cwd,
        directories=job.directories,
        store=store,
        approver=approver,
    )


def _model(job: Job, name: str, before: Config | None) -> ModelSpec:
    price = job.price or (FREE if is_stand_in(name) and job.base_url is None else None)
    if before is not None and before.model.name == name:
        return before.model if price is None else attrs.evolve(before.model, price=price)
    return ModelSpec(name=name, price=price)


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


def _limits(job: Job, before: Config | None) -> Limits:
    limits = Limits() if before is None else before.limits
    return Limits(
        turns=limits.turns if job.turns is None else job.turns,
        tokens=limits.tokens if job.tokens is None else job.tokens,
        usd=limits.usd if job.usd is None else job.usd,
        seconds=limits.seconds if job.seconds is None else job.seconds,
    )


def _policy(job: Job, before: Config | None) -> Policy:
    """A yes to everything is never taken over: it has to be said each time."""
    policy = Policy() if before is None else before.policy
    return attrs.evolve(
        policy,
        mode=PermissionMode.BYPASS if job.yes else PermissionMode.DEFAULT,
        concurrency=Concurrency.PARALLEL_READS if job.parallel else policy.concurrency,
    )
