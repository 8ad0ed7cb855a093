"""
What the host reads in its log: failures of its own code, and the steps of runs.

Theory of operation. A line goes to structlog where the host has configured that, else to the logger
``turnwheel`` of `logging`. Without any configuration, Python prints warnings and errors of that on stderr.

The text of an exception may hold a secret, and so may the lines of its traceback. Where the session's
redactor can be reached, both pass it. Elsewhere only the type and the frames are logged, and the text of our
own errors.
"""

from __future__ import annotations

import logging
import sys
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import attrs

from ..effects.errors import TurnwheelError

if TYPE_CHECKING:
    from collections.abc import Sequence

# A text with the secrets taken out.
Redact = Callable[[str], str]

# The logger of `logging`; that of structlog has the same name.
LOGGER = logging.getLogger("turnwheel")

# Characters kept of a traceback with the text of its exception.
MAX_TRACEBACK = 20_000

# Characters of that text in the line above the traceback.
MAX_LINE = 500

# Exceptions that end a task or the process. `on_error="raise"` does not pass them on.
EXITS = (CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)

# The ids of no span.
_NO_IDS: Mapping[str, str] = MappingProxyType({})

_METHODS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}


def _structlog() -> Any:  # noqa: ANN401  # whatever structlog was configured with
    """The logger of structlog; None where the host has not configured it."""
    # A host that has not imported structlog has not configured it, and need not wait for the import.
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    return structlog.get_logger("turnwheel")


def listens(level: int) -> bool:
    """Whether a line of *level* may be read by anyone."""
    return _structlog() is not None or LOGGER.isEnabledFor(level)


def write(level: int, event: str, about: Mapping[str, object], error: Sequence[str] = ()) -> None:
    """
    Log *event* at *level*, with the fields *about*; *error* is what `_described` gives.

    structlog gets *error* as the fields ``error`` and ``exception``, `logging` as ``error`` and ``exc_text``
    of the record, whose ``event`` is the message without arguments.
    """
    fields = {key: value for key, value in about.items() if value != ""}
    kind, line, frames = error or ("", "", "")
    if (log := _structlog()) is not None:
        failed = {"error": kind, "exception": frames} if kind else {}
        getattr(log, _METHODS[level])(event, **fields, **failed)
        return
    if not LOGGER.isEnabledFor(level):
        return
    told = ", ".join([f"{key}={value}" for key, value in fields.items()])
    # With arguments: error trackers group records by the text without them.
    texts = [(": %s", line), (" (%s)", told)]
    message = event + "".join([place for place, text in texts if text])
    fields |= {"event": event} | ({"error": kind} if kind else {})
    path, number, function, _ = LOGGER.findCaller(stacklevel=2)
    arguments = tuple([text for _, text in texts if text])
    record = LOGGER.makeRecord(LOGGER.name, level, path, number, message, arguments, None, function, fields)
    # Not `exc_info`: a handler would print the exception as it is, and its secrets with it.
    record.exc_text = frames or None
    LOGGER.handle(record)


def warn(
    fault: str,
    error: BaseException,
    redact: Redact | None = None,
    *,
    level: int = logging.WARNING,
    **about: str,
) -> None:
    """
    Log that code failed with *error*: *fault* says which, *about* are the fields of the line.

    Without *redact* the line has the text of *error* only where that is an error of ours.
    """
    if listens(level):
        write(level, fault, about, _described(error, redact))


def _described(error: BaseException, redact: Redact | None) -> tuple[str, str, str]:
    """The type of *error*, a line that says it, and its traceback with the text that may be shown."""
    kind = type(error).__name__
    if redact is not None:
        frames = redact("".join(traceback.format_exception(error)).rstrip())
        return kind, _line(kind, redact(_text_of(error))), _cut(frames, MAX_TRACEBACK)
    # Errors of ours name no secrets.
    text = _text_of(error) if isinstance(error, TurnwheelError) else "(its text may hold a secret)"
    stack = "".join(traceback.format_tb(error.__traceback__))
    frames = f"Traceback (most recent call last):\n{stack}" if stack else ""
    return kind, _line(kind, text), _cut(f"{frames}{kind}: {text}", MAX_TRACEBACK)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as another:  # noqa: BLE001  # __str__ is any code
        return f"(its text cannot be shown: {type(another).__name__})"


def _line(kind: str, text: str) -> str:
    first = text.partition("\n")[0]
    return _cut(f"{kind}: {first}" if first else kind, MAX_LINE)


def _cut(text: str, limit: int) -> str:
    """*text* without its middle, where it has more than *limit* characters."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n[...]\n{text[-half:]}"


@final
@attrs.frozen(kw_only=True)
class FaultLog:
    """
    Where performers report failures of the host's code in *run* of *session*; *redact* takes secrets out.

    *ends* ends the run with an error, where the host asked for that (`Agent.on_error`), and else logs it by
    calling its second argument. *ids* are further fields of each line. Each method may be called from any
    thread.
    """

    session: str = ""
    run: str = ""
    redact: Redact | None = None
    ends: Callable[[BaseException, Callable[[], None]], None] | None = None
    ids: Mapping[str, str] = _NO_IDS

    @property
    def _whose(self) -> dict[str, str]:
        return {"session": self.session, "run": self.run, **self.ids}

    def raised(self, fault: str, error: BaseException, **about: str) -> None:
        """Log that the host's code raised *error*, or end the run with it."""
        log = partial(self.report, fault, error, **about)
        if self.ends is None or isinstance(error, EXITS):
            log()
        else:
            self.ends(error, log)

    def report(self, fault: str, error: BaseException, **about: str) -> None:
        """Log *error*, with which no run ends."""
        warn(fault, error, self.redact, level=logging.WARNING, **self._whose, **about)

    def blocked(self, fault: str, about: Mapping[str, str], seconds: float) -> None:
        """Log that the host's code, as *fault* and *about* say, kept the event loop for *seconds*."""
        write(logging.WARNING, fault, {**self._whose, **about, "seconds": round(seconds, 3)})

    def failed(self, fault: str, **about: str) -> None:
        """Log a failure without an exception."""
        write(logging.WARNING, fault, {**self._whose, **about})
