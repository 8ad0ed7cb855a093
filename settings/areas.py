"""The settings that belong to no word of the machine's: hooks that are commands, the session, the log."""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import attrs

from ..effects import config
from ..effects.config import Policy
from ..effects.errors import ConfigError
from ..effects.hooks import Hook
from ..effects.permissions import Rule, Verdict
from ..effects.validators import globs, not_empty, positive
from ..engine.session.environment import Titles
from ..performers.hooks import HostHook, command_hook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from ..performers.hooks import HookReturn

# What a setting may be written as, in one line of text: a rule.


Where = tuple[tuple[str, str], ...]
"""For each named argument a glob, as a `Rule` has them."""

_NEXT = re.compile(r",(?=\w+=)")
"""Ends an argument's glob, which may itself have commas: the next one has to follow."""


def pairs(text: str) -> Where | None:
    """The arguments of ``ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for anything else."""
    parts = [part.partition("=") for part in _NEXT.split(text)]
    if not all(name and equals for name, equals, _ in parts):
        return None
    return tuple([(name, glob) for name, _, glob in parts])


def rule(text: str, verdict: Verdict) -> Rule | None:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for anything else."""
    tool, colon, rest = text.partition(":")
    where = pairs(rest) if colon else ()
    if not tool.strip() or where is None:
        return None
    return Rule(verdict=verdict, tool=tool, where=where)


def judged_rule(text: str) -> Rule | None:
    """The rule that a verdict stands before, as `Rule` itself is written; None for anything else."""
    verdict, _, rest = text.strip().partition(" ")
    return rule(rest.strip(), Verdict(verdict)) if verdict in tuple(Verdict) else None


@final
class Preset(StrEnum):
    """A whole policy by name, which single settings of the policy are laid over."""

    DEFAULT = "default"
    SDK = "sdk"
    STEERED = "steered"
    CONFIRMED = "confirmed"
    SINGLETON = "singleton"

    @property
    def policy(self) -> Policy:
        """The policy it stands for."""
        return POLICIES[self]


POLICIES: Mapping[Preset, Policy] = {
    Preset.DEFAULT: Policy(),
    Preset.SDK: config.SDK,
    Preset.STEERED: config.STEERED,
    Preset.CONFIRMED: config.CONFIRMED,
    Preset.SINGLETON: config.SINGLETON,
}
"""What each preset stands for."""


@final
class Prices(StrEnum):
    """Where the price of a model comes from that has none of its own: nowhere, or the list `genai_prices`."""

    OWN = "own"
    GENAI = "genai"


@final
class Level(StrEnum):
    """How much is logged: nothing, each step, or each piece of a stream too."""

    OFF = "off"
    INFO = "info"
    DEBUG = "debug"


def _words(command: Iterable[str]) -> tuple[str, ...]:
    return (command,) if isinstance(command, str) else tuple(command)


def _program(_: object, __: attrs.Attribute[tuple[str, ...]], command: tuple[str, ...]) -> None:
    """A program and its arguments."""
    if not command or not command[0].strip():
        msg = f"CommandHook.command must be a program and its arguments; got {list(command)!r}"
        raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class CommandHook:
    """
    A hook that is a program: *command* and its arguments, asked *at* a place, as `command_hook` says.

    *tool* and *where* are globs and say about which calls. *timeout* is in seconds. It is called *name*, or
    as its program is where that is empty.
    """

    at: Hook = attrs.field(converter=Hook)
    command: tuple[str, ...] = attrs.field(converter=_words, validator=_program)
    tool: str = attrs.field(default="*", validator=not_empty)
    where: tuple[tuple[str, str], ...] = attrs.field(default=(), validator=globs)
    timeout: float | None = attrs.field(default=60.0, validator=positive)
    name: str = ""

    @property
    def called(self) -> str:
        """Its name, or its program's."""
        return self.name or Path(self.command[0]).name

    def made(self, cwd: Path, name: str) -> HostHook[Awaitable[HookReturn]]:
        """
        The hook, called *name* and run in *cwd*; raises `ConfigError` where its program is not there.

        It would guard nothing then. The program is looked for from here, not from *cwd*.
        """
        program, *more = self.command
        found = shutil.which(os.path.expanduser(program))  # noqa: PTH111  # a Path forgets the ./ before a name
        if found is None:
            msg = f"hooks: the program {program!r} of {self.at} is not there, or may not be run"
            raise ConfigError(msg)
        return command_hook(
            self.at,
            command=(str(Path(found).absolute()), *more),
            cwd=cwd,
            tool=self.tool,
            where=dict(self.where),
            timeout=self.timeout,
            name=name,
        )


@final
@attrs.frozen(kw_only=True)
class SessionSettings:
    """
    Which conversation this is.

    *id* is what to call a new session, *resume* names one that is there to go on with; with *latest* that is
    the newest one of the working directory. Without *persist* nothing of it is kept. *titles* says how
    sessions get theirs.
    """

    id: str | None = None
    resume: str | None = None
    latest: bool = False
    persist: bool = True
    titles: Titles = attrs.field(default=Titles.INLINE, converter=Titles)

    def __attrs_post_init__(self) -> None:
        told = [
            name
            for name, value in (("id", self.id), ("resume", self.resume), ("latest", self.latest))
            if value
        ]
        if len(told) > 1:
            msg = f"SessionSettings.{told[0]} must stand alone: {' and '.join(told)} each name a session"
            raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Debug:
    """
    What is logged of each step: at *level*, as lines of JSON, into *file* or to stderr.

    A *file* without a level logs everything.
    """

    file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    level: Level = attrs.field(
        default=attrs.Factory(
            lambda debug: Level.OFF if debug.file is None else Level.DEBUG, takes_self=True
        ),
        converter=Level,
    )

    def begin(self) -> None:
        """
        Log from now on, in this whole process, unless the host has configured structlog: then that holds.
        """
        if self.level is Level.OFF:
            return
        import structlog  # noqa: PLC0415  # needed by those only who log

        if structlog.is_configured():
            return
        structlog.configure(
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.JSONRenderer(),
            ],
            wrapper_class=structlog.make_filtering_bound_logger(self.level.value),
            logger_factory=structlog.WriteLoggerFactory(file=self._lines()),
        )

    def _lines(self) -> Any:  # noqa: ANN401  # as much of a text file as a log needs
        if self.file is None:
            return sys.stderr
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.open("a", encoding="utf-8").close()
        except OSError as error:
            msg = f"debug.file must be a file that can be written; got {str(self.file)!r} ({error.strerror})"
            raise ConfigError(msg) from error
        return _Appended(self.file)


@final
class _Appended:
    """
    The end of *file*, opened for each line: nothing is held, so the file may be moved away meanwhile.

    What cannot be written any more is let go of: a log is not worth a run.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Add *text*."""
        with suppress(OSError), self._file.open("a", encoding="utf-8") as lines:
            lines.write(text)

    def flush(self) -> None:
        """It was written when it was added."""
