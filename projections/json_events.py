"""
Why a run ended and in which mode it works, in the words of each vocabulary.

One row for each of our own words, so that nothing can end a run without a name in every vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Protocol, final

import attrs

from ..effects.errors import ArgumentError
from ..effects.notices import DoneReason, Notice
from ..effects.permissions import PermissionMode
from ..effects.secrets import is_secret
from ..effects.validators import clean
from ..states.rules.schema import arguments_of

# What the vocabularies share: events as plain data, and how values of ours look in them.


Plain = dict[str, object]
"""One event of a vocabulary: strings, numbers, booleans, None, lists and dicts; *type* is its name."""

Events = tuple[Plain, ...]

REDACTED = "[redacted]"

DEEP = 32
"""Levels of an argument that are shown: a model may nest deeper than whoever reads can."""


class Projection(Protocol):
    """Notices in, events of one vocabulary out. Feed it the notices of one session, in order."""

    def take(self, notice: Notice) -> Events:
        """What *notice* is in this vocabulary: mostly one event, often none, sometimes some."""
        ...


def shown(arguments: str) -> object:
    """What *arguments*, JSON text, say; the text itself where it is no JSON object."""
    parsed = arguments_of(arguments)
    return arguments if parsed is None else _plain(parsed)


def redacted(arguments: str) -> object:
    """As `shown`, with the values of secrets left out, and nothing of what is no JSON object."""
    parsed = arguments_of(arguments)
    return REDACTED if parsed is None else _plain(parsed, hide=True)


def _plain(value: object, depth: int = 0, *, hide: bool = False) -> object:
    match value:
        case dict() | list() if depth == DEEP:
            return "[...]"
        case dict():
            return {
                key: REDACTED if hide and is_secret(key) else _plain(inner, depth + 1, hide=hide)
                for key, inner in value.items()
            }
        case list():
            return [_plain(inner, depth + 1, hide=hide) for inner in value]
        case float() if not isfinite(value):
            return str(value)  # 1e999 is JSON, and what it is read as is not
        case _:
            return value


def to_sse(event: Mapping[str, object]) -> bytes:
    """
    *event*, of any vocabulary, as one frame of a `text/event-stream`: its type, and all of it as one line.

    Raises `ArgumentError` for what is no event.
    """
    name = event.get("type")
    if not isinstance(name, str) or not name or not name.isprintable():
        msg = f"an event has a 'type' that names it; got {event!r}"
        raise ArgumentError(msg)
    try:
        data = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        msg = f"an event is made of what JSON is made of; got {event!r} ({error})"
        raise ArgumentError(msg) from error
    return clean(f"event: {name}\ndata: {data}\n\n").encode()


SUCCESS = "success"
BUDGET = "error_max_budget"
BUDGET_USD = "error_max_budget_usd"
"""What some readers of `sdk` messages know the subtype `BUDGET` as."""
FAILED = "error_during_execution"


@final
@attrs.frozen
class Words:
    """
    What the vocabularies call one `DoneReason`.

    *exit* and *subtype* stand in an `sdk` result, *done* in an `sse` done; *finish* is the finish reason of
    the last message in an `agent_events` response, and says what the model wanted: a run that met a limit
    ended with a model that wanted to go on.
    """

    exit: str
    subtype: str
    done: str
    finish: str


WORDS = {
    DoneReason.END_TURN: Words("end_turn", SUCCESS, "model_stop", "end_turn"),
    DoneReason.STOP_SEQUENCE: Words("stop_sequence", FAILED, "model_stop", "end_turn"),
    DoneReason.MAX_TOKENS: Words("max_tokens", FAILED, "error", "max_tokens"),
    DoneReason.MAX_TURNS: Words("max_turns", "error_max_turns", "max_turns", "tool_use"),
    DoneReason.TOKEN_BUDGET: Words("token_budget", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.MAX_BUDGET: Words("error_max_budget_usd", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.TIME_BUDGET: Words("time_budget", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.INTERRUPTED: Words("interrupted", FAILED, "user_abort", "canceled"),
    DoneReason.ABORTED: Words("aborted", FAILED, "user_abort", "canceled"),
    DoneReason.BLOCKED: Words("blocked", FAILED, "error", "permission_denied"),
    DoneReason.LOOP_DETECTED: Words("loop_detected", FAILED, "loop_detected", "tool_use"),
    DoneReason.ERROR: Words("error", FAILED, "error", "error"),
}
"""Every reason in every vocabulary."""

NATURAL = frozenset({DoneReason.END_TURN, DoneReason.STOP_SEQUENCE})
"""Ends that the model came to by itself."""

STOPPED = frozenset({DoneReason.INTERRUPTED, DoneReason.ABORTED})
"""Ends that somebody wanted."""

BROKEN = frozenset(reason for reason, words in WORDS.items() if words.done in {"error", "loop_detected"})
"""Ends that are told as an error, too: neither the model nor a person nor a limit wanted them."""

MODES = {
    PermissionMode.DEFAULT: "default",
    PermissionMode.ACCEPT_EDITS: "acceptEdits",
    PermissionMode.PLAN: "plan",
    PermissionMode.DONT_ASK: "dontAsk",
    PermissionMode.BYPASS: "bypassPermissions",
}
"""Every permission mode in `sdk` messages."""


def subtype(reason: DoneReason, budget: str = BUDGET) -> str:
    """The subtype of the `sdk` result of a run that ended for *reason*, where `BUDGET` is called *budget*."""
    named = WORDS[reason].subtype
    return budget if named == BUDGET else named
