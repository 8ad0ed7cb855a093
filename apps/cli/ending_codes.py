"""The exit code of a run, by the reason it ended for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...effects.notices import DoneReason
from .exit_codes import Exit

BY_REASON: Final[Mapping[DoneReason, Exit]] = {
    DoneReason.END_TURN: Exit.ENDED,
    DoneReason.STOP_SEQUENCE: Exit.ENDED,
    DoneReason.REFUSAL: Exit.REFUSED,
    DoneReason.MAX_TOKENS: Exit.MAX_TOKENS,
    DoneReason.MAX_TURNS: Exit.MAX_TURNS,
    DoneReason.TOKEN_BUDGET: Exit.BUDGET,
    DoneReason.MAX_BUDGET: Exit.BUDGET,
    DoneReason.TIME_BUDGET: Exit.BUDGET,
    DoneReason.INTERRUPTED: Exit.INTERRUPTED,
    DoneReason.ABORTED: Exit.FAILED,
    DoneReason.BLOCKED: Exit.BLOCKED,
    DoneReason.LOOP_DETECTED: Exit.LOOP,
    DoneReason.OUTPUT_INVALID: Exit.OUTPUT_INVALID,
    DoneReason.ERROR: Exit.FAILED,
}
"""The code for each reason that a run can end with."""


def exit_for(reason: DoneReason | None) -> Exit:
    """The code for a run that ended with *reason*; None means that it rests on a question."""
    return Exit.RESTING if reason is None else BY_REASON[reason]
