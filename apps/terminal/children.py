"""Show children at work: a line for each call and each problem, and their spend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import final

from ...effects.messages import Outcome
from ...effects.notices import (
    AgentNoticed,
    CallSettled,
    Notice,
    RequestDelayed,
    RetryScheduled,
    RunEnded,
    ToolStarted,
)
from ..cli.ending_codes import exit_for
from ..cli.exit_codes import Exit
from .call_summary import essence, failed_summary
from .countdown import wait_lines
from .notice_lines import StyledLine, notice_lines
from .sanitize import clean, one_line
from .screen import INDENT, Screen
from .spend_format import brief


@final
class ChildrenView:
    """
    Shows the notices of children on *screen*, and remembers how each ended, by its call.

    *name* returns the name of a call on screen.
    """

    def __init__(self, screen: Screen, name: Callable[[str], str]) -> None:
        self._name = name
        self._screen = screen
        self._ended: dict[str, RunEnded] = {}

    def lines(self, noticed: AgentNoticed, *, named: bool) -> Iterator[StyledLine]:
        """The lines for a child's notice; if *named*, they begin with the number of its call."""
        if isinstance(noticed.notice, RunEnded):
            self._ended[noticed.call] = noticed.notice
        whose = f"#{clean(self._name(noticed.call))} " if named else ""
        room = self._screen.width - len(INDENT) - len(whose)
        for text, style in self._lines(noticed.notice, room):
            yield f"{INDENT}{whose}{text}", style

    def _lines(self, notice: Notice, room: int) -> Iterator[StyledLine]:
        match notice:
            case ToolStarted(tool=tool, arguments=arguments):
                about = essence(tool, arguments, room - len(tool) - 4)
                yield f"{self._screen.dot} {one_line(tool, 64)} {about}".rstrip(), "dim"
            case CallSettled(outcome=outcome, content=content) if outcome is not Outcome.OK:
                came = failed_summary(outcome, content, room - len(INDENT) - 2)
                yield f"{INDENT}{self._screen.elbow} {came}", "error"
            case RetryScheduled() | RequestDelayed():
                yield from wait_lines(notice, self._screen, room)
            case _:
                yield from ((one_line(text, room), style) for text, style in notice_lines(notice))

    def end_lines(self, call: str) -> Iterator[StyledLine]:
        """The spend of the finished child on *call*, and its reason unless it ended by itself."""
        ended = self._ended.pop(call, None)
        if ended is not None:
            facts = [*brief(ended.spent)]
            if exit_for(ended.reason) is not Exit.ENDED:
                facts.insert(0, f"ended: {ended.reason}")
            yield f"{INDENT * 2}{f' {self._screen.middle} '.join(facts)}", "dim"
