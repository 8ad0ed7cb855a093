"""
What the vocabularies share: events as JSON, arguments without secrets, and the words for reasons and modes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import NamedTuple, final

from ..effects.errors import ArgumentError
from ..effects.notices import DoneReason
from ..effects.permissions import PermissionMode
from ..effects.secrets import is_secret
from ..effects.validators import clean
from ..states.rules.schema import arguments_of

# One event of a vocabulary: strings, numbers, booleans, None, lists and dicts; *type* is its name.
JsonEvent = dict[str, object]

Events = tuple[JsonEvent, ...]

REDACTED = "[redacted]"

# Levels of an argument that are shown: a model may nest deeper than a reader of JSON can.
DEEP = 32


def shown(arguments: str, *, hide: bool = False) -> object:
    """
    The object in the JSON text *arguments*; the text itself if it is no object.

    With *hide* it has no values of secrets, and no text that is no object.
    """
    parsed = arguments_of(arguments)
    if parsed is None:
        return REDACTED if hide else arguments
    return plain(parsed, hide=hide)


def plain(value: object, depth: int = 0, *, hide: bool) -> object:
    """*value*, which is JSON, at this *depth* of an event; with *hide* without the values of secrets."""
    match value:
        case dict() | list() if depth == DEEP:
            return "[...]"
        case dict():
            return {
                key: REDACTED if hide and is_secret(key) else plain(inner, depth + 1, hide=hide)
                for key, inner in value.items()
            }
        case list():
            return [plain(inner, depth + 1, hide=hide) for inner in value]
        case float() if not isfinite(value):
            return str(value)  # 1e999 is JSON, but the infinity that Python reads is not
        case _:
            return value


def to_sse(event: Mapping[str, object], id: str = "") -> bytes:  # noqa: A002  # the field's name
    """
    *event*, of any vocabulary, as a frame of a `text/event-stream`: its type, and all of it as one line.

    With the *id* of a `Watched`, a browser that lost the connection says in `Last-Event-ID` how far it came.
    Raises `ArgumentError` if it is no event, and for an *id* of more than one line.
    """
    if not id.isprintable():
        msg = f"the id of a frame is one line; got {id!r:.100}"
        raise ArgumentError(msg)
    name = event.get("type")
    if not isinstance(name, str) or not name or not name.isprintable():
        msg = f"an event has a 'type' that names it; got {event!r}"
        raise ArgumentError(msg)
    try:
        data = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        msg = f"an event is made of what JSON is made of; got {event!r} ({error})"
        raise ArgumentError(msg) from error
    head = f"id: {id}\n" if id else ""
    return clean(f"{head}event: {name}\ndata: {data}\n\n").encode()


SUCCESS = "success"
BUDGET = "error_max_budget"
# The name of the subtype `BUDGET` for some readers of `sdk` messages.
BUDGET_USD = "error_max_budget_usd"
FAILED = "error_during_execution"


@final
class ReasonWords(NamedTuple):
    """
    The words of the vocabularies for one `DoneReason`.

    *exit* and *subtype* stand in an `sdk` result, *done* in an `sse` done. *finish* is the finish reason of
    the last message in an `agent_events` response: after a limit, it is that of a model that continues.
    """

    exit: str
    subtype: str
    done: str
    finish: str


# Every reason in every vocabulary: a new one without a row fails at its first run.
REASON_WORDS = {
    DoneReason.END_TURN: ReasonWords("end_turn", SUCCESS, "model_stop", "end_turn"),
    DoneReason.STOP_SEQUENCE: ReasonWords("stop_sequence", FAILED, "model_stop", "end_turn"),
    DoneReason.REFUSAL: ReasonWords("refusal", FAILED, "error", "error"),
    DoneReason.MAX_TOKENS: ReasonWords("max_tokens", FAILED, "error", "max_tokens"),
    DoneReason.MAX_TURNS: ReasonWords("max_turns", "error_max_turns", "max_turns", "tool_use"),
    DoneReason.TOKEN_BUDGET: ReasonWords("token_budget", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.MAX_BUDGET: ReasonWords("error_max_budget_usd", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.TIME_BUDGET: ReasonWords("time_budget", BUDGET, "budget_exceeded", "tool_use"),
    DoneReason.INTERRUPTED: ReasonWords("interrupted", FAILED, "user_abort", "canceled"),
    DoneReason.ABORTED: ReasonWords("aborted", FAILED, "user_abort", "canceled"),
    DoneReason.BLOCKED: ReasonWords("blocked", FAILED, "error", "permission_denied"),
    DoneReason.LOOP_DETECTED: ReasonWords("loop_detected", FAILED, "loop_detected", "tool_use"),
    DoneReason.OUTPUT_INVALID: ReasonWords("output_invalid", FAILED, "error", "error"),
    DoneReason.ERROR: ReasonWords("error", FAILED, "error", "error"),
}

# A person ended the run.
WANTED_ENDS = frozenset({DoneReason.INTERRUPTED, DoneReason.ABORTED})

# Ends that get an error event, too: neither the model nor a person nor a limit wanted them.
ERROR_ENDS = frozenset(
    reason for reason, words in REASON_WORDS.items() if words.done in {"error", "loop_detected"}
)

# Every permission mode in `sdk` messages.
MODE_WORDS = {
    PermissionMode.DEFAULT: "default",
    PermissionMode.ACCEPT_EDITS: "acceptEdits",
    PermissionMode.PLAN: "plan",
    PermissionMode.DONT_ASK: "dontAsk",
    PermissionMode.BYPASS: "bypassPermissions",
}


def subtype(reason: DoneReason, budget: str = BUDGET) -> str:
    """The subtype of an `sdk` result for *reason*, with *budget* in place of `BUDGET`."""
    named = REASON_WORDS[reason].subtype
    return budget if named == BUDGET else named
