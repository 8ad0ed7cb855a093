"""What `turnwheel run` or `turnwheel chat` was asked to do, checked."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import final

import attrs

from ...effects.config import Config, ModelSpec, Price
from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Rule
from ...engine.agent import DEFAULT_MODEL
from ...performers.tools import builtin_tools
from ...settings import Settings
from ..stand_in.script import MODELS, STAND_IN_MODEL
from ..terminal.sanitize import clean
from .option_types import HookOption

STAND_IN = f"openai:{STAND_IN_MODEL}"
"""The model that is asked where there is no key."""

ANTHROPIC_MODEL = "anthropic:claude-sonnet-4-5"
"""The model that is asked where the only key is Anthropic's."""

INSTRUCTION_FILES = ("AGENTS.md",)
"""The instruction files that are read, where they are there, unless told."""

BUILT_IN = {tool.spec.name: tool for tool in builtin_tools()}


@final
class Output(StrEnum):
    """What is shown of a run: all of it to a person, the last answer only, or notices as JSON lines."""

    HUMAN = "human"
    QUIET = "quiet"
    JSON = "json"


@final
@attrs.frozen(kw_only=True)
class RunOptions:
    """
    What a command line asked for. What is None was not told: a session then goes on as it was set up.

    *resume* names a session that is there, *session* a new one; *newest* stands for the one that was last at
    work in this directory. *fallback* is at most one model. *rules* of one verdict take the place of
    those with the same verdict that the session had. *settings* say the rest, those of *settings_file* too.
    """

    prompt: str | None = None
    resume: str | None = None
    session: str | None = None
    newest: bool = False
    title: str | None = None
    store: Path
    cwd: Path = Path()
    directories: tuple[Path, ...] = ()
    model: str | None = None
    models: tuple[ModelSpec, ...] = ()
    fallback: tuple[ModelSpec, ...] | None = None
    base_url: str | None = None
    stand_in: bool = False
    system: str | None = None
    instructions: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    mode: PermissionMode | None = None
    hooks: tuple[HookOption, ...] = ()
    no_hooks: bool = False
    yes: bool = False
    answer_within: float | None = None
    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    price: Price | None = None
    parallel: bool = False
    output: Output = Output.HUMAN
    verbose: bool = False
    settings: Settings = Settings()
    settings_file: Path | None = None

    def __attrs_post_init__(self) -> None:
        checks = (_session_problem, _model_problem, _answer_problem, _tool_problem, _hook_problem)
        problem = next(filter(None, (check(self) for check in checks)), "")
        if problem:
            raise ConfigError(problem)

    def reach(self, verb: str, session: str) -> str:
        """The command that does *verb* to *session*."""
        words = ["turnwheel", *verb.split(), session]
        if self.store != default_store():
            words += ["--store", str(self.store)]
        return clean(shlex.join(words))

    def again(self, verb: str, session: str) -> str:
        """The command that goes on with *session*; what is not kept in it is told again."""
        if not self.settings.session.persist:
            return "nothing, since session.persist is off"
        words = [self.reach(verb, session)]
        if self.cwd != Path():
            words += ["--cwd", shlex.quote(str(self.cwd))]
        for directory in self.directories:
            words += ["--dir", shlex.quote(str(directory))]
        if self.base_url is not None:
            words += ["--base-url", shlex.quote(self.base_url)]
        for hook in self.hooks:
            words += ["--hook", shlex.quote(str(hook))]
        if self.settings_file is not None:
            words += ["--settings", shlex.quote(str(self.settings_file))]
        return clean(" ".join(words))


def default_store() -> Path:
    """Where sessions are kept unless told."""
    told = os.environ.get("TURNWHEEL_STORE", "").strip()
    if told:
        return Path(told)
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "turnwheel" / "sessions.db"


def _session_problem(options: RunOptions) -> str:
    """Why what *job* says of prompt and session cannot be done; empty where it can."""
    for what, text in (("prompt", options.prompt), ("title", options.title)):
        if text is not None and not text.strip():
            return f"the {what} is empty"
    for text in (options.prompt, options.system, options.title, options.resume, options.session):
        if text is not None and not is_unicode(text):
            return f"{text!r} is no valid text in the encoding of this terminal"
    if (options.resume is not None or options.newest) and not options.settings.session.persist:
        return "session.persist is off, so there is no session to go on with; turn it on"
    if options.resume is not None and options.session is not None:
        return "--session names a new session and --resume one that is there; give one of them"
    if options.newest and (named := options.resume or options.session) is not None:
        return f"--continue means the newest session of this directory, and not {named!r}; give one of them"
    return ""


def _model_problem(options: RunOptions) -> str:
    """Why what *job* says of the model cannot be done; empty where it can."""
    if options.stand_in and options.base_url is not None:
        return "--stand-in is asked at an address of its own; leave out --base-url"
    if options.stand_in and options.model is not None and not is_stand_in(options.model):
        played = ", ".join(f"openai:{name}" for name in MODELS)
        return f"--stand-in cannot play {options.model!r}; it plays {played}"
    if options.fallback and options.fallback[0].name == options.model:
        return f"--fallback is asked where --model cannot answer; name another one than {options.model!r}"
    return ""


def _answer_problem(options: RunOptions) -> str:
    """Why nobody could answer as *job* says; empty where it can be done."""
    if options.yes and options.mode is PermissionMode.DONT_ASK:
        return "--yes answers questions and --mode dont_ask asks none; give one of them"
    return ""


def is_unicode(text: str) -> bool:
    """Whether *text* can be written down: what a shell passes on need not be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tool_problem(options: RunOptions) -> str:
    """Why the tools of *job* and the rules for them do not fit what there is; empty where they do."""
    there = tuple(BUILT_IN) if options.tools is None else options.tools
    for name in there:
        if name not in BUILT_IN:
            return f"no tool {name!r}; there are: {', '.join(BUILT_IN)}"
    for rule in options.rules:
        covered = [name for name in there if fnmatchcase(name, rule.tool)]
        if not covered:
            names = ", ".join(there) or "none"
            return f"--{rule.verdict} names {rule.tool!r}, which is no tool of this run; there are: {names}"
        takes = dict.fromkeys(name for tool in covered for name in _arguments(tool))
        for name, _ in rule.where:
            if name not in takes:
                return f"--{rule.verdict} names an argument {name!r}; {rule.tool!r} takes: {', '.join(takes)}"
    return ""


def _arguments(tool: str) -> list[str]:
    return list(json.loads(BUILT_IN[tool].spec.schema)["properties"])


def _hook_problem(options: RunOptions) -> str:
    """Why a hook of *job* could not be asked, which would guard nothing then; empty where all can."""
    if options.hooks and options.no_hooks:
        return "--hook adds hooks and --no-hooks goes without; give one of them"
    for hook in options.hooks:
        if shutil.which(hook.command[0]) is None:
            return f"the command of --hook {str(hook)!r} is not there, or may not be run"
    return ""


def is_stand_in(model: str) -> bool:
    """Whether *model* is one that the scripted stand-in plays."""
    return model.removeprefix("openai:") in MODELS


def model_of(options: RunOptions, before: Config | None) -> str:
    """Which model *job* asks; *before* is how its session was set up, None for a new one."""
    if options.model is not None:
        return options.model
    if options.stand_in:
        return STAND_IN
    if before is not None:
        return before.model.name
    return options.settings.model.name if options.settings.told("model.name") else _by_key(options)


def _by_key(options: RunOptions) -> str:
    """The model that can be asked with what is in the environment."""
    if options.base_url is not None or os.environ.get("OPENAI_API_KEY", "").strip():
        return DEFAULT_MODEL
    return ANTHROPIC_MODEL if os.environ.get("ANTHROPIC_API_KEY", "").strip() else STAND_IN
