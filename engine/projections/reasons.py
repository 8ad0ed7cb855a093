"""
Why a run ended and in which mode it works, in the words of each vocabulary.

One row for each of our own words, so that nothing can end a run without a name in every vocabulary.
"""

from __future__ import annotations

from typing import final

import attrs

from ...effects.notices import DoneReason
from ...effects.permissions import PermissionMode

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
