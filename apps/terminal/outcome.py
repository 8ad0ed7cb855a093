"""Describe a run that is over, or that rests on questions."""

from __future__ import annotations

from ...effects.notices import DoneReason, RunEnded
from ...engine import Result, Session
from ...states.rules.permission import RUN_AGAIN
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import MEANINGS
from ..cli.option_types import ALL, short
from ..cli.run_options import RunOptions
from .call_summary import essence, number
from .sanitize import CUT, exact
from .screen import INDENT, Screen


def ending_line(end: Result | RunEnded) -> tuple[str, str]:
    """A line and its style for the *end* of a run that did not end by itself."""
    if end.reason is DoneReason.ERROR:
        return f"error: {end.detail}", "error"
    detail = f": {end.detail}" if end.detail else ""
    return f"{MEANINGS[exit_for(end.reason)]}{detail}", "warning"


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
