"""
Every error of this library, by whose fault it is.

    TurnwheelError
        CallerError            what you asked cannot be done as asked
            ConfigError        (ValueError) a setting is wrong
            ToolDefinitionError (TypeError) a function cannot be made a tool
            ArgumentError      (TypeError) an argument is of the wrong kind
            UnknownSession     (LookupError) there is no such session
            UnknownRequest     (LookupError) no open question has this id
            UnknownCall        (LookupError) no call under way has this id
            UnknownRun         (LookupError) no run of the session has this id
            SessionBusy        (RuntimeError) a run is already under way
            SessionClosed      (RuntimeError) the session was closed
            TooLarge           (ValueError) something is larger than its limit
            QueueFull          (RuntimeError) the input queue is full
        WorldError             something outside failed
            StoreError         (OSError) the store cannot be read or written
            StoreConflict      another process wrote to the session first
            JournalError       (ValueError) what is stored cannot be understood
                NewerVersion   a later turnwheel wrote it
        InternalError          (AssertionError) a bug of ours; please report it
            IllegalTransition  a handler went where the table has no row
            NoPerformer        nothing performs an effect of this type

What a model or a tool does wrong is never an exception: it is an event.
"""

from __future__ import annotations

from typing import final

import attrs

# The `__init__` that attrs makes calls the only one there is in these bases.
# pyright: reportUnsafeMultipleInheritance=false

# An error with fields keeps them in its `args` too, in their order, so it can be pickled to another process.


class TurnwheelError(Exception):
    """The base of all errors here; never raised itself."""


class CallerError(TurnwheelError):
    """What was asked cannot be done as asked."""


@final
class ConfigError(CallerError, ValueError):
    """A setting is wrong."""


@final
class ToolDefinitionError(CallerError, TypeError):
    """A function cannot be made a tool."""


@final
class ArgumentError(CallerError, TypeError):
    """An argument is of the wrong kind."""


@final
@attrs.define(eq=False)
class UnknownSession(CallerError, LookupError):
    """There is no session *session*."""

    session: str

    def __str__(self) -> str:
        return f"no session {self.session!r} in this store"


@final
@attrs.define(eq=False)
class UnknownRequest(CallerError, LookupError):
    """No open question has the id *request*; *open* are those there are."""

    request: str
    open: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(map(repr, self.open)) or "none"
        return f"no open question {self.request!r}; open: {there}"


@final
@attrs.define(eq=False)
class UnknownCall(CallerError, LookupError):
    """No call under way has the id *call*; *open* are those there are."""

    call: str
    open: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(map(repr, self.open)) or "none"
        return f"no call {self.call!r} under way; there are: {there}"


@final
@attrs.define(eq=False)
class UnknownRun(CallerError, LookupError):
    """The session has no run *run*; *runs* are those there are."""

    run: str
    runs: tuple[str, ...]

    def __str__(self) -> str:
        there = ", ".join(map(repr, self.runs)) or "none"
        return f"no run {self.run!r} in this session; there are: {there}"


@final
@attrs.define(eq=False)
class SessionBusy(CallerError, RuntimeError):
    """A run of session *session* is under way."""

    session: str

    def __str__(self) -> str:
        return f"session {self.session!r} has a run under way; wait for it or interrupt it"


@final
@attrs.define(eq=False)
class SessionClosed(CallerError, RuntimeError):
    """Session *session* was closed."""

    session: str

    def __str__(self) -> str:
        return f"session {self.session!r} is closed; open it again from its store"


@final
@attrs.define(eq=False)
class TooLarge(CallerError, ValueError):
    """*what* has *size* of *unit*, and may have *limit*."""

    what: str
    size: int
    limit: int
    unit: str

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} {self.unit}, and may have {self.limit:,}"


@final
@attrs.define(eq=False)
class QueueFull(CallerError, RuntimeError):
    """The input queue of *session* is full: *waiting* prompts wait."""

    session: str
    waiting: int

    def __str__(self) -> str:
        return f"session {self.session!r} has {self.waiting} prompts waiting; send this one again later"


class WorldError(TurnwheelError):
    """Something outside failed."""


@final
class StoreError(WorldError, OSError):
    """The store cannot be read or written."""


@final
@attrs.define(eq=False)
class StoreConflict(WorldError):
    """Session *session* has *actual* entries where the writer expected *expected*: another one wrote."""

    session: str
    expected: int
    actual: int

    def __str__(self) -> str:
        return (
            f"session {self.session!r} has {self.actual} entries, not {self.expected}: "
            "another process went on with it; load it again"
        )


class JournalError(WorldError, ValueError):
    """What is stored cannot be understood."""


@final
@attrs.define(eq=False)
class NewerVersion(JournalError):
    """What is stored at *where* has *version*, of which nothing is known here: *known* is the newest."""

    where: str
    version: int
    known: int

    def __str__(self) -> str:
        return (
            f"{self.where} has version {self.version}, known here is {self.known}: "
            "upgrade turnwheel, or go on with the one that wrote it"
        )


class InternalError(TurnwheelError, AssertionError):
    """A bug of ours; please report it."""


@final
@attrs.define(eq=False)
class IllegalTransition(InternalError):
    """A handler went from *state* on *event* to *target*, which the table does not have."""

    state: str
    event: str
    target: str

    def __str__(self) -> str:
        return f"no row for {self.event} in {self.state} leading to {self.target}"


@final
@attrs.define(eq=False)
class NoPerformer(InternalError):
    """Nothing performs effects of type *effect*."""

    effect: str

    def __str__(self) -> str:
        return f"no performer for {self.effect}: was one left out when the driver was built?"
