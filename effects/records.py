"""Records: effects that change the memory of a run and nothing else. The memory is their fold."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeGuard, cast, final, get_args

import attrs

from .messages import Message
from .permissions import PermissionMode, Rule
from .usage import Spent
from .validators import spelled


@final
@attrs.frozen(kw_only=True)
class AppendMessage:
    """Add *message* at the end of the history."""

    message: Message


@final
@attrs.frozen(kw_only=True)
class AddUsage:
    """
    Add *spent* to the account. *context* is the size of the conversation in tokens where a model told it.
    """

    spent: Spent
    context: int = 0


@final
@attrs.frozen(kw_only=True)
class ReplaceHistory:
    """
    Put *head* in place of all messages before index *keep*.

    *summarised* are the calls among these, and their results, that still count as repetitions. *standing* are
    the lines of people that *head* has word for word.
    """

    head: tuple[Message, ...]
    keep: int
    summarised: tuple[Message, ...] = ()
    standing: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ClearResults:
    """Show a model only that there were tool results in the messages before index *before*."""

    before: int


@final
@attrs.frozen(kw_only=True)
class WithdrawTool:
    """Do not offer *tool* until the run has had *until* turns; it had been called alike *count* times."""

    tool: str
    until: int
    count: int


@final
@attrs.frozen(kw_only=True)
class UseFallback:
    """Ask *model* for the rest of the run."""

    model: str


@final
@attrs.frozen(kw_only=True)
class SetMaxOutput:
    """Ask for answers of at most *tokens* for the rest of the run: the model in use gives no longer ones."""

    tokens: int


class MailKind(StrEnum):
    """Where mail waits: `PROMPT` for a run of its own, `STEER` for the one under way."""

    PROMPT = "prompt"
    STEER = "steer"


@final
@attrs.frozen(kw_only=True)
class TakeMail:
    """Take the inputs with these *ids* out of the mail, and none of them in again."""

    ids: tuple[str, ...]


@final
@spelled
@attrs.frozen
class SetModel:
    """Use *model* from the next model call on."""

    model: str


@final
@spelled
@attrs.frozen
class SetMode:
    """Use permission *mode* from the next tool call on."""

    mode: PermissionMode = attrs.field(converter=PermissionMode)


@final
@spelled
@attrs.frozen
class SetThinking:
    """Let the model think *tokens* from the next model call on; None for the provider's own way."""

    tokens: int | None


@final
@attrs.frozen
class SetInstructions:
    """Add *text* to the system prompt, for the whole session."""

    text: str


@final
@attrs.frozen(kw_only=True)
class GrantRule:
    """
    Let *rule* answer from now on, in this run and the ones after it.

    *outvotes* are the rules that asked about the call which a person allowed for good: it answers these, too.
    """

    rule: Rule
    outvotes: tuple[Rule, ...] = ()


@final
@attrs.frozen(kw_only=True)
class AddContext:
    """Keep *text* for the instructions of the next model call."""

    text: str


@final
@attrs.frozen(kw_only=True)
class ClearContext:
    """Drop the pending context: a model has seen it and answered."""


@final
@attrs.frozen(kw_only=True)
class CountCompaction:
    """
    Set the compaction counters: *attempts* since the last completed response, *failures* in a row.
    """

    attempts: int
    failures: int


@final
@attrs.frozen(kw_only=True)
class CountContinue:
    """A hook made the run go on that was about to stop."""


@final
@attrs.frozen(kw_only=True)
class CountOutput:
    """An output was wrong, and is asked for again."""


@final
@attrs.frozen(kw_only=True)
class CountPauses:
    """The provider paused an answer *count* times in a row."""

    count: int


@final
@attrs.frozen(kw_only=True)
class UseIds:
    """Ids below *next* are in use."""

    next: int


# What a person can change while a run is under way; it holds until it is changed again.
Change = SetModel | SetMode | SetThinking

_OfConversation = AppendMessage | ReplaceHistory | ClearResults | AddContext | ClearContext
_OfSettings = Change | SetInstructions | GrantRule | UseFallback | SetMaxOutput | WithdrawTool
_OfAccount = AddUsage | CountCompaction | CountContinue | CountOutput | CountPauses | TakeMail | UseIds

# Every effect that changes the memory.
Record = _OfConversation | _OfSettings | _OfAccount

# By exact type, since the classes are final: a step asks this of every effect.
_RECORDS: frozenset[type] = frozenset(get_args(Record))


def is_record(effect: object) -> TypeGuard[Record]:
    """Whether *effect* changes the memory."""
    return type(effect) in _RECORDS


def records_in(effects: Iterable[object]) -> list[Record]:
    """The records among *effects*, in their order."""
    # One call for a step and not one for each effect.
    return cast("list[Record]", [effect for effect in effects if type(effect) in _RECORDS])
