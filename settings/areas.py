"""The classes of settings that only `Settings` has: presets, commands as hooks, the session, the log."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import attrs

from ..effects import config
from ..effects.errors import Choice, ConfigError
from ..effects.hooks import Hook, OnError
from ..effects.validators import globs, not_empty, positive
from ..engine.session.environment import Titles
from ..performers.hooks import HookReturn, HostHook, command_hook

if TYPE_CHECKING:
    from ..performers.telemetry.otel import OpenTelemetry


@final
class Preset(Choice):
    """
    A whole policy, and retries, by their name in `effects.config`; single settings are laid over them.
    """

    DEFAULT = "default"
    SDK = "sdk"
    STEERED = "steered"
    CONFIRMED = "confirmed"
    SINGLETON = "singleton"

    @property
    def policy(self) -> config.Policy:
        """The policy it stands for."""
        return (
            config.Policy() if self is Preset.DEFAULT else cast("config.Policy", getattr(config, self.name))
        )

    @property
    def retries(self) -> config.Retries:
        """The retries it stands for."""
        return config.SINGLETON_RETRIES if self is Preset.SINGLETON else config.Retries()


@final
class Prices(Choice):
    """The source of the price of a model without one: none, or the list `genai_prices`."""

    OWN = "own"
    GENAI = "genai"


@final
class Level(Choice):
    """How much is logged: nothing, each step, or each piece of a stream, too."""

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
    A program as a hook: *command* and its arguments, asked *at* a place; see `command_hook`.

    The globs *tool* and *where* select calls. *timeout* is in seconds. The default *name* is the program's.
    *on_error* says what a hook that fails comes to, None for what is usual at its place.
    """

    at: Hook = attrs.field(converter=Hook)
    command: tuple[str, ...] = attrs.field(converter=_words, validator=_program)
    tool: str = attrs.field(default="*", validator=not_empty)
    where: tuple[tuple[str, str], ...] = attrs.field(default=(), validator=globs)
    timeout: float | None = attrs.field(default=60.0, validator=positive)
    name: str = ""
    on_error: OnError | None = attrs.field(default=None, converter=attrs.converters.optional(OnError))

    @property
    def called(self) -> str:
        """Its name, or that of its program."""
        return self.name or Path(self.command[0]).name

    def made(self, cwd: Path, name: str) -> HostHook[Awaitable[HookReturn]]:
        """
        The hook, called *name* and run in *cwd*; raises `ConfigError` if its program is missing.

        The program is looked for from the current directory, not from *cwd*.
        """
        program, *more = self.command
        found = shutil.which(os.path.expanduser(program))  # noqa: PTH111  # a Path forgets the ./ before a name
        if found is None:  # a hook that cannot run would guard nothing
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
            on_error=self.on_error,
        )


@final
@attrs.frozen(kw_only=True)
class SessionSettings:
    """
    The session to open: a new one called *id*, the one to *resume*, or the *latest* of the working directory.

    Without *persist* it is not stored. *titles* says how sessions get theirs.
    """

    id: str | None = None
    resume: str | None = None
    latest: bool = False
    persist: bool = True
    titles: Titles = attrs.field(default=Titles.INLINE, converter=Titles)

    def __attrs_post_init__(self) -> None:
        told = [name for name in ("id", "resume", "latest") if getattr(self, name)]
        if len(told) > 1:
            msg = f"SessionSettings.{told[0]} must stand alone: {' and '.join(told)} each name a session"
            raise ConfigError(msg)


def _level(debug: Debug) -> Level:
    return Level.OFF if debug.file is None else Level.DEBUG


@final
@attrs.frozen(kw_only=True)
class Debug:
    """
    The log of steps at *level*, as lines of JSON, in *file* or on stderr.

    With a *file* and no level, everything is logged.
    """

    file: Path | None = attrs.field(default=None, converter=attrs.converters.optional(Path))
    level: Level = attrs.field(default=attrs.Factory(_level, takes_self=True), converter=Level)

    def begin(self) -> None:
        """Log from now on, in the whole process; if the host has configured structlog, that holds instead."""
        if self.level is Level.OFF:
            return
        import structlog  # noqa: PLC0415  # 30 ms, for a log only

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
@attrs.frozen(kw_only=True)
class Telemetry:
    """
    Spans and metrics of runs, by the OpenTelemetry providers of the process.

    With *content*, spans have what models and tools are told and answer.
    """

    content: bool = False

    def made(self) -> OpenTelemetry:
        """The telemetry that an agent takes; raises `ConfigError` where the extra `otel` is not installed."""
        from ..performers.telemetry.otel import OpenTelemetry as Made  # noqa: PLC0415  # most agents have none

        return Made(content=self.content)


@final
@attrs.frozen
class _Appended:
    """
    The end of *file*, opened for each line, so that the file may be moved away.

    A line that cannot be written is dropped: a log is not worth a run.
    """

    file: Path

    def write(self, text: str) -> None:
        """Add *text*."""
        with suppress(OSError), self.file.open("a", encoding="utf-8") as lines:
            lines.write(text)

    def flush(self) -> None:
        """Lines are not buffered."""
