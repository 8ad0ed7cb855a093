"""
Show a conversation above a prompt: finished blocks once, and what is in progress just above the prompt.

An answer is shown block by block, as each is complete; the block in progress is plain text until then. A call
at work is shown with the end of its output, and as one line with its result when it has ended.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import attrs
from rich.cells import cell_len
from rich.text import Text

from ...effects.messages import Message, Outcome, Role, ToolCall
from ...effects.notices import (
    AnswerDropped,
    AnswerKept,
    ApprovalRequested,
    CallSettled,
    Notice,
    ProviderCalled,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from ..terminal.approval_card import part_rows
from ..terminal.call_summary import OUTCOME_WORDS, change_preview, duration, number
from ..terminal.sanitize import clean, one_line, without_colors
from ..terminal.screen import INDENT, Screen
from ..terminal.terminal import Terminal
from .markdown_blocks import MarkdownBlocks
from .markdown_view import ChatMarkdown, thought

OUTPUT_ROWS = 3
"""Rows of a running tool's output that are shown."""

KEPT_RESULTS = 100
"""The latest results that can be shown in full; older ones are in the history."""

PROSE_WIDTH = 120
"""Columns of an answer at the most: longer rows are hard to read."""

RETOLD_PROMPTS, RETOLD_CALLS = 3, 5
"""The last prompts of a conversation that are shown again, and the calls of an answer among them."""

SHOW_HINT = "not shown"
"""Stands behind a cut in a change that was made."""

_ENDS_TEXT: Final = (TurnEnded, AnswerDropped, AnswerKept, RunEnded)
"""Notices after which no more of an answer comes."""


@final
@attrs.define
class _RunningCall:
    """A call at work: since when, and the end of its output."""

    since: float
    output: str = ""


@final
class ChatTranscript:
    """
    Shows notices on *screen*, by *face* except for text and running calls.

    *redraw* draws the rows in progress again. The paths of built-in tools begin in *cwd*.
    """

    def __init__(self, screen: Screen, face: Terminal, redraw: Callable[[], None], cwd: Path) -> None:
        self._screen = screen
        self._face = face
        self._redraw = redraw
        self._cwd = cwd
        self._blocks = MarkdownBlocks()
        self._thinks = False
        self._running: dict[str, _RunningCall] = {}
        self._results: OrderedDict[str, CallSettled] = OrderedDict()

    def notice(self, notice: Notice) -> None:
        """Show *notice* if it matters to a person."""
        match notice:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                self._say(text, thinks=isinstance(notice, ReasoningDelta))
            case ToolStarted():
                self._face.remember(notice.call, notice.tool, notice.arguments)
                self._running[notice.call] = _RunningCall(time.monotonic())
            case ProviderCalled():
                self.end_text()
                self._other(notice)
            case ApprovalRequested(call=call):
                self._face.forget_change(call)
                self._other(notice)
            case ToolOutput(call=call, text=text) if call in self._running:
                self._running[call].output = f"{self._running[call].output}\n{without_colors(text)}"[
                    -_most_output(self._screen) :
                ]
            case _:
                self._other(notice)
        self._redraw()

    def _other(self, notice: Notice) -> None:
        if isinstance(notice, _ENDS_TEXT):
            self.end_text()
        if isinstance(notice, TurnEnded):
            self._remember_changes(notice)
        if isinstance(notice, RunEnded):
            self._running.clear()
        if isinstance(notice, CallSettled):
            self._running.pop(notice.call, None)
            self._results[notice.call] = notice
            while len(self._results) > KEPT_RESULTS:
                self._results.popitem(last=False)
        self._face.notice(notice)

    def _remember_changes(self, turn: TurnEnded) -> None:
        # Before a call runs, since the file is what the change is shown against.
        for call in turn.calls:
            part = change_preview(call.name, call.arguments, self._cwd)
            if part is not None:
                rows = part_rows(part, self._screen.width, SHOW_HINT, whole=False)
                self._face.remember_change(call.id, [*rows])

    # Text of the model

    def _say(self, text: str, *, thinks: bool) -> None:
        if thinks is not self._thinks:
            self.end_text()
            self._thinks = thinks
        self._show(self._blocks.feed(clean(text)))

    def end_text(self) -> None:
        """Show what is left of an answer, which has ended."""
        self._show(self._blocks.end())

    def _show(self, blocks: list[str]) -> None:
        for block in blocks:
            self.answer(block, thinks=self._thinks)

    def answer(self, markup: str, *, thinks: bool = False) -> None:
        """Show a whole text of a model, and an empty line after it."""
        self._screen.show(thought(markup) if thinks else ChatMarkdown(markup), PROSE_WIDTH)
        self._screen.line()

    def retell(self, history: Sequence[Message]) -> None:
        """Show the last prompts of *history* with what came of each, for a person who returns."""
        prompts = [at for at, message in enumerate(history) if message.role is Role.USER]
        retold = prompts[-RETOLD_PROMPTS:]
        if earlier := len(prompts) - len(retold):
            self._screen.line(f"... {number(earlier, 'earlier prompt')}", "dim")
            self._screen.line()
        outcomes = {result.call: result.outcome for message in history for result in message.results}
        for message in history[retold[0] if retold else 0 :]:
            if message.role is Role.USER:
                self._face.prompted(message.text)
            elif message.role is Role.ASSISTANT:
                if text := message.text.strip():
                    self.answer(clean(text))
                self._retell_calls(message.calls, outcomes)

    def _retell_calls(self, calls: Sequence[ToolCall], outcomes: Mapping[str, Outcome]) -> None:
        for call in calls[:RETOLD_CALLS]:
            self._face.remember(call.id, call.name, call.arguments)
            outcome = outcomes.get(call.id, Outcome.OK)
            word = "" if outcome is Outcome.OK else f"  {OUTCOME_WORDS.get(outcome, outcome.value)}"
            self._screen.lines(self._face.named(call.id, len(word)).append(word, "error"))
        if more := len(calls[RETOLD_CALLS:]):
            self._screen.line(f"{INDENT}... {number(more, 'more call')}", "dim")
        if calls:
            self._screen.line()

    # What is in progress

    def live(self, width: int, rows: int) -> list[Text]:
        """The text and the calls in progress, in at most so many *rows* of *width* columns."""
        calls = [row for call in self._running for row in self._call_rows(call, width)]
        shown = calls[-rows:]
        room = rows - len(shown)
        if room and (tail := self._blocks.tail(room * width)).strip():
            style = "thought" if self._thinks else ""
            shown = [*[Text(row, style=style) for row in _rows(tail, width)[-room:]], *shown]
        return shown

    def _call_rows(self, call: str, width: int) -> Iterator[Text]:
        running = self._running[call]
        seconds = int(time.monotonic() - running.since)
        passed = f"  {duration(seconds)}" if seconds else ""
        # The live rows are one column narrower than the screen.
        yield self._face.named(call, len(passed) + 1).append(passed, "dim")
        lines = [line for line in running.output.split("\n") if line.strip()]
        for line in lines[-OUTPUT_ROWS:]:
            yield Text(f"{INDENT}{INDENT}{one_line(line, width - 4)}", style="dim")

    # Results

    def result(self, call: str) -> CallSettled | None:
        """The result of *call*, or the last one if that is empty; None if it is not kept."""
        return self._results.get(call or next(reversed(self._results), ""))


def _most_output(screen: Screen) -> int:
    """Characters of a running tool's output that can be needed for its rows."""
    return 4 * OUTPUT_ROWS * screen.width


def _rows(text: str, width: int) -> list[str]:
    """*text* as a terminal of *width* columns wraps it."""
    rows: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        row, used = "", 0
        for char in line:
            cells = cell_len(char)
            if used + cells > width:
                rows.append(row)
                row, used = "", 0
            row += char
            used += cells
        rows.append(row)
    return rows
