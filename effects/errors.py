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
            UnknownInput       (LookupError) no input that waits has this id
            InputConflict      (ValueError) another input of the session has this id
            UnknownRun         (LookupError) no run of the session has this id
            SessionBusy        (RuntimeError) a run is already under way, or was left
            SessionNotRead     (RuntimeError) the journal of the session was not read yet
            SessionClosed      (RuntimeError) the session was closed
            AnswerRefused      (ValueError) a call cannot run with the arguments of an answer
            TooLarge           (ValueError) something is larger than its limit
            QueueFull          (RuntimeError) the input queue is full
        WorldError             something outside failed
            StoreError         (OSError) the store cannot be read or written
            StoreConflict      another process wrote to the session first
            SessionGone        the session was deleted
            JournalError       (ValueError) what is stored cannot be understood
                NewerVersion   a later turnwheel wrote it
            RunFailed          (RuntimeError) a run has no answer, as `Result.raise_for_error` tells
        InternalError          (AssertionError) a bug of ours; please report it
            IllegalTransition  a handler went where the table has no row
            NoPerformer        nothing performs an effect of this type

What a model or a tool does wrong is never an exception: it is an event.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NoReturn, final

import attrs

from .spelling import meant


class Choice(StrEnum):
    """A setting that is one of some words; any other value is a `ConfigError` that lists them."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        near = meant(value, cls) if isinstance(value, str) else ""
        msg = f"{cls.__name__} must be one of {', '.join(cls)}; got {value!r}{near and f' ({near})'}"
        raise ConfigError(msg)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names)) or "none"


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
class UnknownSession(CallerError, LookupError):
    """There is no session *session*."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(session)

    def __str__(self) -> str:
        return f"no session {self.session!r} in this store"


@final
class UnknownRequest(CallerError, LookupError):
    """
    No open question has the id *request*; *open* are those there are.

    Where an input that waits in the session closes the question, *closed_by* names it: ``"a steer"``.
    """

    def __init__(self, request: str, open: tuple[str, ...], closed_by: str = "") -> None:  # noqa: A002  # the word of the field
        self.request = request
        self.open = open
        self.closed_by = closed_by
        super().__init__(request, open, closed_by)

    def __str__(self) -> str:
        why = f": {self.closed_by} came before and closes it" if self.closed_by else ""
        return f"no open question {self.request!r}{why}; open: {_listed(self.open)}"


@final
class UnknownCall(CallerError, LookupError):
    """No call under way has the id *call*; *open* are those there are."""

    def __init__(self, call: str, open: tuple[str, ...]) -> None:  # noqa: A002  # the word of the field
        self.call = call
        self.open = open
        super().__init__(call, open)

    def __str__(self) -> str:
        return f"no call {self.call!r} under way; there are: {_listed(self.open)}"


@final
class UnknownInput(CallerError, LookupError):
    """
    No input that waits has the id *input*; *waiting* are those that wait.

    *known*: it was sent, and was read or taken back since.
    """

    def __init__(self, input: str, waiting: tuple[str, ...], known: bool = False) -> None:  # noqa: A002, FBT001, FBT002  # the word of the field, and as an error is pickled
        self.input = input
        self.waiting = waiting
        self.known = known
        super().__init__(input, waiting, known)

    def __str__(self) -> str:
        problem = "does not wait any more: it was read or taken back" if self.known else "does not wait"
        return f"input {self.input!r} {problem}; waiting: {_listed(self.waiting)}"


@final
class InputConflict(CallerError, ValueError):
    """Another input of *session* has the id *input*: it has another text, or other files."""

    def __init__(self, session: str, input: str) -> None:  # noqa: A002  # the word of the field
        self.session = session
        self.input = input
        super().__init__(session, input)

    def __str__(self) -> str:
        problem = f"another input was sent with the id {self.input!r}, and not this one"
        return f"session {self.session!r}: {problem}; choose another id"


@final
class UnknownRun(CallerError, LookupError):
    """The session has no run *run*; *runs* are those there are."""

    def __init__(self, run: str, runs: tuple[str, ...]) -> None:
        self.run = run
        self.runs = runs
        super().__init__(run, runs)

    def __str__(self) -> str:
        return f"no run {self.run!r} in this session; there are: {_listed(self.runs)}"


class Workplace(Choice):
    """Where a session is at work: in this process, in another one, or in none, where its run was left."""

    HERE = "here"
    ELSEWHERE = "elsewhere"
    NOWHERE = "nowhere"


@final
@attrs.frozen
class SessionOwner:
    """The process *pid* of *host*, at work since *since* (epoch seconds), and its own name for itself."""

    host: str
    pid: int
    worker: str
    since: float

    def __str__(self) -> str:
        minutes, seconds = divmod(int(self.since) % 86_400, 60)
        named = f" ({self.worker})" if self.worker else ""
        since = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02} UTC"
        return f"process {self.pid} of {self.host!r}{named} since {since}"


@final
class SessionBusy(CallerError, RuntimeError):
    """
    Session *session* has a run that is not over; *at_work* says where, and *owner* which other process.

    *questions* are the ids of those that a run asks which is at work nowhere.
    """

    def __init__(
        self,
        session: str,
        at_work: Workplace,
        owner: SessionOwner | None = None,
        questions: tuple[str, ...] = (),
    ) -> None:
        self.session = session
        self.at_work = at_work
        self.owner = owner
        self.questions = questions
        super().__init__(session, at_work, owner, questions)

    def __str__(self) -> str:
        if self.at_work is Workplace.HERE:
            problem = "has a run under way in this process; wait for it, send() to it, or interrupt() it"
        elif self.at_work is Workplace.ELSEWHERE:
            problem = f"is at work in {self.owner}; send() to it, or call resume(takeover=True)"
        elif self.questions:
            problem = f"waits for answers to {_listed(self.questions)}; approve() each, then call resume()"
        else:
            problem = "has a run that was left unfinished; call resume()"
        return f"session {self.session!r} {problem}"


@final
class SessionNotRead(CallerError, RuntimeError):
    """The journal of session *session* was not read yet, so nothing is known of it."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(session)

    def __str__(self) -> str:
        return f"session {self.session!r} was not read yet; await session.load() first"


@final
class SessionClosed(CallerError, RuntimeError):
    """Session *session* was closed."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(session)

    def __str__(self) -> str:
        return f"session {self.session!r} is closed; open it again from its store"


@final
class AnswerRefused(CallerError, ValueError):
    """
    A call of *tool* cannot run with the arguments that came as the answer to question *request*.

    *problem* says why: its schema, a rule that denies, or a yes for all calls with an argument that the tool
    does not have. The question stays open.
    """

    def __init__(self, request: str, tool: str, problem: str) -> None:
        self.request = request
        self.tool = tool
        self.problem = problem
        super().__init__(request, tool, problem)

    def __str__(self) -> str:
        return f"invalid arguments for {self.tool!r}: {self.problem}; the question stays open"


@final
class TooLarge(CallerError, ValueError):
    """*what* has *size* of *unit*, and may have *limit*."""

    def __init__(self, what: str, size: int, limit: int, unit: str) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        self.unit = unit
        super().__init__(what, size, limit, unit)

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} {self.unit}, and may have {self.limit:,}"


@final
class QueueFull(CallerError, RuntimeError):
    """The input queue of *session* is full: *waiting* prompts wait."""

    def __init__(self, session: str, waiting: int) -> None:
        self.session = session
        self.waiting = waiting
        super().__init__(session, waiting)

    def __str__(self) -> str:
        return f"session {self.session!r} has {self.waiting} prompts waiting; send this one again later"


class WorldError(TurnwheelError):
    """Something outside failed."""


@final
class StoreError(WorldError, OSError):
    """The store cannot be read or written."""


@final
class StoreConflict(WorldError):
    """
    Session *session* has *actual* entries where the writer expected *expected*: another one wrote.

    *entries* are all of those behind the expected ones, where the store sent them along, else none.
    """

    def __init__(self, session: str, expected: int, actual: int, entries: Sequence[bytes] = ()) -> None:
        self.session = session
        self.expected = expected
        self.actual = actual
        # Not among the arguments: a journal has no place in what is printed.
        self.entries = entries
        super().__init__(session, expected, actual)

    def __str__(self) -> str:
        return (
            f"session {self.session!r} has {self.actual} entries, not {self.expected}: "
            "another process went on with it; load it again"
        )


@final
class SessionGone(WorldError):
    """Session *session* was deleted; *begun_anew* is whether another one was begun under its name."""

    def __init__(self, session: str, begun_anew: bool) -> None:  # noqa: FBT001  # as an error is pickled
        self.session = session
        self.begun_anew = begun_anew
        super().__init__(session, begun_anew)

    def __str__(self) -> str:
        if self.begun_anew:
            return f"session {self.session!r} was deleted and begun anew: open it again for the new one"
        return f"session {self.session!r} was deleted; open it again to begin a new one"


class JournalError(WorldError, ValueError):
    """What is stored cannot be understood."""


@final
class NewerVersion(JournalError):
    """What is stored at *where* has *version*, of which nothing is known here: *known* is the newest."""

    def __init__(self, where: str, version: int, known: int) -> None:
        self.where = where
        self.version = version
        self.known = known
        super().__init__(where, version, known)

    def __str__(self) -> str:
        return (
            f"{self.where} has version {self.version}, known here is {self.known}: "
            "upgrade turnwheel, or go on with the one that wrote it"
        )


@final
class RunFailed(WorldError, RuntimeError):
    """
    Run *run* of session *session* has no answer: it ended for *reason*, which *detail* says more of.

    *reason* is empty where the run is not over: *detail* names the open questions then, and what to call.
    """

    def __init__(self, session: str, run: str, reason: str, detail: str) -> None:
        self.session = session
        self.run = run
        self.reason = reason
        self.detail = detail
        super().__init__(session, run, reason, detail)

    def __str__(self) -> str:
        end = f"ended with {self.reason}" if self.reason else "is not over"
        return f"run {self.run!r} {end}: {self.detail}".removesuffix(": ")


class InternalError(TurnwheelError, AssertionError):
    """A bug of ours; please report it."""


@final
class IllegalTransition(InternalError):
    """A handler went from *state* on *event* to *target*, which the table does not have."""

    def __init__(self, state: str, event: str, target: str) -> None:
        self.state = state
        self.event = event
        self.target = target
        super().__init__(state, event, target)

    def __str__(self) -> str:
        return f"no row for {self.event} in {self.state} leading to {self.target}"


@final
class NoPerformer(InternalError):
    """Nothing performs effects of type *effect*."""

    def __init__(self, effect: str) -> None:
        self.effect = effect
        super().__init__(effect)

    def __str__(self) -> str:
        return f"no performer for {self.effect}: was one left out when the driver was built?"
