"""The options of `turnwheel run` and `turnwheel chat`, checked against each other."""

from __future__ import annotations

import os
import shlex
import shutil
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

import attrs

from ...effects.config import Config, ModelSpec, Price
from ...effects.errors import ConfigError
from ...effects.permissions import PermissionMode, Rule
from ...engine.agent import DEFAULT_MODEL, shown_url
from ...performers.stores.place import StorePlace
from ...performers.tools.builtin import builtin_tools
from ...performers.tools.names import misfit
from ...settings import Settings
from ...settings.reading import FILE
from ..stand_in.script import MODELS, STAND_IN_MODEL
from ..terminal.sanitize import clean, without_password
from .option_types import HookOption
from .stores import default_store

STAND_IN = f"openai:{STAND_IN_MODEL}"
"""The model without any key."""

ANTHROPIC_MODEL = "anthropic:claude-sonnet-4-5"
"""The model if the only key is Anthropic's."""

BUILT_IN = {tool.spec.name: tool for tool in builtin_tools()}


@final
class OutputStyle(StrEnum):
    """What a run shows: everything to a person, only the last answer, or notices as JSON lines."""

    HUMAN = "human"
    QUIET = "quiet"
    JSON = "json"


@final
@attrs.frozen(kw_only=True)
class RunOptions:
    """
    The options of a run. None means: not given, so a resumed session keeps its own value.

    *resume* names a stored session, *session* a new one; *newest* stands for the session that worked last in
    this directory. *fallback* has at most one model. *rules* that allow replace the session's rules
    that do; those that deny or ask stay, but for those *lifted*. *settings*, read from *settings_file*,
    say the rest.
    """

    prompt: str | None = None
    files: tuple[Path, ...] = ()
    resume: str | None = None
    session: str | None = None
    newest: bool = False
    takeover: bool = False
    title: str | None = None
    store: StorePlace
    cwd: Path = Path()
    directories: tuple[Path, ...] = ()
    model: str | None = None
    models: tuple[ModelSpec, ...] = ()
    fallback: tuple[ModelSpec, ...] | None = None
    base_url: str | None = attrs.field(default=None, repr=shown_url)
    stand_in: bool = False
    system: str | None = None
    instructions: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    rules: tuple[Rule, ...] = ()
    lifted: tuple[Rule, ...] = ()
    sandbox: bool | None = None
    telemetry: bool = False
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
    output: OutputStyle = OutputStyle.HUMAN
    verbose: bool = False
    settings: Settings = Settings()
    settings_file: Path | None = None

    def __attrs_post_init__(self) -> None:
        checks = (
            _session_problem,
            _model_problem,
            _address_problem,
            _answer_problem,
            _tool_problem,
            _hook_problem,
        )
        problem = next(filter(None, (check(self) for check in checks)), "")
        if problem:
            raise ConfigError(problem)

    def trusts(self, key: str) -> bool:
        """Whether a person named the source of the setting *key*: a file that only lies here may narrow."""
        return self.settings_file is not None or self.settings.sources.get(key) != FILE

    def reach(self, verb: str, session: str) -> str:
        """The shell command for *verb* on *session*."""
        words = ["turnwheel", *verb.split(), session]
        if self.store != default_store():
            words += ["--store", str(self.store)]
        return clean(shlex.join(words))

    def again(self, verb: str, session: str) -> str:
        """
        The shell command that continues *session*, with the options that a session does not keep.

        The password of an address is not in it: the command may end up in a log.
        """
        if not self.settings.session.persist:
            return "nothing, since session.persist is off"
        words = [self.reach(verb, session)]
        if self.cwd != Path():
            words += ["--cwd", shlex.quote(str(self.cwd))]
        for directory in self.directories:
            words += ["--dir", shlex.quote(str(directory))]
        if self.base_url is not None:
            words += ["--base-url", shlex.quote(without_password(self.base_url))]
        for hook in self.hooks:
            words += ["--hook", shlex.quote(str(hook))]
        if self.settings_file is not None:
            words += ["--settings", shlex.quote(str(self.settings_file))]
        return clean(" ".join(words))


def _session_problem(options: RunOptions) -> str:
    """Why the prompt and the session of *options* are invalid; empty if they are not."""
    for what, text in (("prompt", options.prompt), ("title", options.title)):
        if text is not None and not text.strip():
            return f"the {what} is empty; give some text"
    for text in (options.prompt, options.system, options.title, options.resume, options.session):
        if text is not None and not is_unicode(text):
            return f"invalid text {text!r}; use the encoding of this terminal"
    if (options.resume is not None or options.newest) and not options.settings.session.persist:
        return "no stored session, since session.persist is off; turn it on"
    if options.resume is not None and options.session is not None:
        return "--session is for a new session and --resume for a stored one; give one of them"
    if options.newest and (named := options.resume or options.session) is not None:
        return f"--continue takes the newest session of this directory, not {named!r}; give one of them"
    return ""


def _model_problem(options: RunOptions) -> str:
    """Why the model of *options* is invalid; empty if it is not."""
    if options.stand_in and options.base_url is not None:
        return "--stand-in has an address of its own; leave out --base-url"
    if options.stand_in and options.model is not None and not is_stand_in(options.model):
        played = ", ".join(f"openai:{name}" for name in MODELS)
        return f"--stand-in cannot play {options.model!r}; it plays {played}"
    if options.fallback and options.fallback[0].name == options.model:
        return f"--fallback must differ from --model; got {options.model!r} for both"
    return ""


def _address_problem(options: RunOptions) -> str:
    """Why the address of *options* cannot be asked; empty if it can."""
    if options.base_url is None:
        return ""
    try:
        parts = urlsplit(options.base_url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    url = without_password(options.base_url)
    return "" if usable else f"--base-url {url!r} is not an address of a server; write http://HOST:PORT/v1"


def _answer_problem(options: RunOptions) -> str:
    """Why the approval options of *options* exclude each other; empty if they do not."""
    if options.yes and options.mode is PermissionMode.DONT_ASK:
        return "--yes answers questions and --mode dont_ask allows none; give one of them"
    return ""


def is_unicode(text: str) -> bool:
    """Whether *text* can be encoded: a shell may pass on bytes that are no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _tool_problem(options: RunOptions) -> str:
    """Why the tools and rules of *options* do not fit the built-in tools; empty if they do."""
    specs = [tool.spec for tool in BUILT_IN.values()]
    globs = ("*",) if options.tools is None else options.tools
    there = [spec for spec in specs if any(fnmatchcase(spec.name, glob) for glob in globs)]
    problems = [
        *[("tools", misfit(glob, specs)) for glob in globs],
        *[(rule.verdict.value, misfit(rule.tool, there, rule.where)) for rule in options.rules],
    ]
    return next((f"--{option}: {problem}" for option, problem in problems if problem), "")


def _hook_problem(options: RunOptions) -> str:
    """Why a hook of *options* cannot run, since it would guard nothing; empty if all can."""
    if options.hooks and options.no_hooks:
        return "--hook and --no-hooks exclude each other; give one of them"
    for hook in options.hooks:
        if shutil.which(hook.command[0]) is None:
            return f"--hook {str(hook)!r}: its command is missing or not executable"
    return ""


def is_stand_in(model: str) -> bool:
    """Whether *model* is a model of the scripted stand-in."""
    return model.removeprefix("openai:") in MODELS


def model_of(options: RunOptions, before: Config | None) -> str:
    """
    The model of the run; *before* is the stored configuration of its session, None for a new one.

    Raises `ConfigError` if none is named and no key says which provider has the default one.
    """
    name = model_or_none(options, before)
    if name is None:
        # A stand-in that is not asked for would let a job that lost its key succeed.
        msg = (
            "no model: none is named, and neither $OPENAI_API_KEY nor $ANTHROPIC_API_KEY is set; set one of "
            "them, pass --model NAME or --base-url URL, or try turnwheel without a model: --stand-in"
        )
        raise ConfigError(msg)
    return name


def model_or_none(options: RunOptions, before: Config | None) -> str | None:
    """As `model_of`; None where that raises."""
    if options.model is not None:
        return options.model
    if options.stand_in:
        return STAND_IN
    if before is not None:
        return before.model.name
    return options.settings.model.name if options.settings.told("model.name") else _by_key(options)


def _by_key(options: RunOptions) -> str | None:
    """The default model for the keys in the environment; None without any."""
    if options.base_url is not None or os.environ.get("OPENAI_API_KEY", "").strip():
        return DEFAULT_MODEL
    return ANTHROPIC_MODEL if os.environ.get("ANTHROPIC_API_KEY", "").strip() else None
