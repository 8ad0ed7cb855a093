"""Describe a run that is over, or that rests on questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...effects.config import Config
from ...effects.notices import DoneReason, RunEnded
from ...engine import Result, Session
from ...states.rules.limits import NO_LIMITS, over_budget
from ...states.rules.permission import RUN_AGAIN
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import MEANINGS, in_options
from ..cli.option_types import ALL, short
from ..cli.run_options import RunOptions
from .call_summary import essence, number
from .sanitize import CUT, exact
from .screen import INDENT, Screen

BUDGETS: Final[Mapping[DoneReason | None, str]] = {
    DoneReason.MAX_BUDGET: "--max-usd",
    DoneReason.TOKEN_BUDGET: "--max-tokens",
    DoneReason.TIME_BUDGET: "--max-seconds",
}
"""The option of each budget."""


def ending_line(end: Result | RunEnded, config: Config | None = None) -> tuple[str, str]:
    """A line and its style for the *end* of a run under *config* that did not end by itself."""
    detail = in_options(end.detail)
    if end.reason is DoneReason.ERROR:
        return f"error: {detail}", "error"
    line = _over_budget(end, config) if end.reason in BUDGETS else MEANINGS[exit_for(end.reason)]
    return f"{line}: {detail}" if detail else line, "warning"


def _over_budget(end: Result | RunEnded, config: Config | None) -> str:
    option = BUDGETS[end.reason]
    if config is not None and over_budget(config.limits, end.spent) is end.reason:
        return f"{option} is used up"
    # A request is refused before it is sent where it could cost more than is left. What the session spent
    # before is not known here.
    if config is not None and config.session_limits == NO_LIMITS:
        return f"what is left of {option} is too little for the next request, as estimated"
    return f"{option}, or that of the session, is used up or too little for the next request"


def show_resting(session: Session, options: RunOptions, screen: Screen) -> None:
    """Show on *screen* the open questions of the run of *session*, and the command that answers them."""
    waiting = session.waiting
    screen.line(f"the run rests on {number(len(waiting), 'question')}:", "warning")
    for question in waiting:
        name = f"{INDENT}#{short(question.call)}  {question.tool} "
        about = exact(essence(question.tool, question.arguments, screen.width - len(name)))
        screen.line(f"{name}{about}".rstrip())
        # One line may hide where a call leads, and the command below approves it.
        if about.endswith(CUT):
            screen.line(f"{INDENT * 2}all of it: {options.reach('questions', session.id)}", "dim")
        if question.again:
            screen.line(f"{INDENT * 2}{RUN_AGAIN.detail}", "warning")
    screen.line(f"answer with: {options.reach('approve', session.id)} CALL, or deny; CALL may be {ALL}")
