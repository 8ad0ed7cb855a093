"""What a person sees of a run: text as it comes, calls and what came of them, and the bill."""

from __future__ import annotations

import time
from typing import final

import attrs
from rich.text import Text

from ..effects.config import Price
from ..effects.messages import Outcome
from ..effects.notices import (
    AnswerDropped,
    ApprovalRequested,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InterruptRequested,
    ModelCalled,
    Notice,
    ReasoningDelta,
    RetryScheduled,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    Warned,
)
from ..effects.usage import Spent
from .gist import essence, gist, number, took
from .plain import clean, one_line
from .screen import INDENT, Screen, timer
from .wrap import Wrap

PROMPT_LINES = 6
"""Lines shown of the prompt: whoever wrote it knows it."""


STYLES: dict[type[Notice], str] = {ReasoningDelta: "dim italic"}
"""How running text looks that is not the answer."""


@final
@attrs.define
class _Call:
    """A call, as it was told."""

    tool: str
    arguments: str


@final
class Terminal:
    """
    Shows notices on *screen*. While `hold` is in effect, what comes is kept back: a question is being asked.
    """

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._calls: dict[str, _Call] = {}
        self._at_work: dict[str, str] = {}
        self._latest = ""
        self._speaking: type[Notice] | None = None
        self._held: list[Notice] | None = None
        self._wrap = Wrap(lambda: screen.width) if screen.is_terminal else None

    def begin(self, model: str, session: str, prompt: str | None) -> None:
        """Say who is asked, where it is kept, and what the question is."""
        self.screen.lines(Text.assemble((clean(model), "bold"), (clean(f"  session {session}"), "dim")))
        if prompt is not None:
            lines = prompt.strip().splitlines()
            shown = "\n".join(lines[:PROMPT_LINES])
            more = (
                f"\n... {number(len(lines) - PROMPT_LINES, 'more line')}" if len(lines) > PROMPT_LINES else ""
            )
            self.screen.line(f"> {shown}{more}", "cyan")
        self.screen.line()

    def know(self, call: str, tool: str, arguments: str) -> None:
        """Remember a call, so that its end can be told with what it was about."""
        self._calls[call] = _Call(tool, arguments)

    def hold(self) -> None:
        """Keep back what comes, until `release`."""
        self.screen.still()
        self.screen.start_of_line()
        self._held = []

    def release(self) -> None:
        """Show what was kept back, and go on."""
        held, self._held = self._held or [], None
        for notice in held:
            self.notice(notice)

    def notice(self, notice: Notice) -> None:
        """Show *notice*, where it is of interest."""
        if self._held is not None:
            self._held.append(notice)
            return
        match notice:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                self._say(text, type(notice))
            case ToolStarted() | ToolProgress() | ToolEnded():
                self._tool(notice)
            case ModelCalled() | TurnEnded() | RetryScheduled() | AnswerDropped():
                self._model(notice)
            case ApprovalRequested(call=call, tool=tool, arguments=arguments):
                self._silence()
                self.know(call, tool, arguments)
            case _:
                self._aside(notice)

    def _say(self, text: str, kind: type[Notice]) -> None:
        """Running text; thinking and speaking look different and begin on lines of their own."""
        if self._speaking is not kind:
            self._end_of_text()
            self.screen.still()
            self.screen.start_of_line()
            text = text.lstrip("\n")
            self._speaking = kind if text else None
        shown = text if self._wrap is None else self._wrap.feed(clean(text))
        if shown:
            self.screen.run_on(shown, STYLES.get(kind, ""))

    def _end_of_text(self) -> None:
        """Show the word that was held back."""
        if self._wrap is not None and self._speaking is not None and (rest := self._wrap.end()):
            self.screen.run_on(rest, STYLES.get(self._speaking, ""))

    def _silence(self) -> None:
        """End the text that is running, and leave a line free behind it."""
        if self._speaking is not None:
            self._end_of_text()
            self.screen.start_of_line()
            self.screen.line()
            self._speaking = None

    def _model(self, notice: ModelCalled | TurnEnded | RetryScheduled | AnswerDropped) -> None:
        screen = self.screen
        match notice:
            case ModelCalled():
                self._spin("thinking")
            case TurnEnded():
                screen.still()
                self._silence()
            case AnswerDropped():
                screen.still()
                self._silence()
                screen.line("what the model said is void: its answer broke off", "yellow")
            case RetryScheduled():
                self._retry(notice)

    def _retry(self, notice: RetryScheduled) -> None:
        wait = max(0.0, notice.due - time.time())
        if not wait:
            return
        screen = self.screen
        screen.line(one_line(f"{notice.failure}: {notice.message}", screen.width), "yellow")
        if not screen.can_spin:
            screen.line(f"{INDENT}try {notice.attempt} in {wait:.0f} s", "yellow")
        screen.spin(lambda: f"try {notice.attempt} in {max(0.0, notice.due - time.time()):.0f} s")

    def _tool(self, notice: ToolStarted | ToolProgress | ToolEnded) -> None:
        match notice:
            case ToolStarted():
                self._silence()
                self.know(notice.call, notice.tool, notice.arguments)
                self._at_work[notice.call] = notice.tool
                self._headline(notice.call)
                self._spin_for_tools()
            case ToolProgress():
                self.screen.line(f"{INDENT}{one_line(notice.text, self.screen.width - 2)}", "dim")
                self._spin_for_tools()
            case ToolEnded():
                self._silence()
                self._ended(notice)
                if self._at_work:
                    self._spin_for_tools()

    def _headline(self, call: str) -> None:
        told = self._calls[call]
        name = one_line(told.tool, 64)
        about = essence(told.tool, told.arguments, self.screen.width - len(name) - 4)
        self.screen.lines(Text.assemble((f"{self.screen.dot} ", "green"), (name, "bold"), f" {about}"))
        self._latest = call

    def _ended(self, notice: ToolEnded) -> None:
        """What came of a call, below its headline; that is told again where something else came between."""
        if notice.call not in self._calls:
            self.know(notice.call, notice.tool, "")
        if notice.call != self._latest:
            self._headline(notice.call)
        del self._calls[notice.call]
        self._at_work.pop(notice.call, None)
        self._latest = ""
        seconds = f"  {took(notice.seconds)}" if notice.seconds else ""
        room = self.screen.width - len(seconds) - 4
        came = gist(notice.tool, notice.outcome, notice.content, room)
        style = "dim" if notice.outcome is Outcome.OK else "red"
        elbow = f"{INDENT}{self.screen.elbow} "
        self.screen.lines(Text.assemble((elbow, "dim"), (came, style), (seconds, "dim")), Text())

    def _spin_for_tools(self) -> None:
        self._spin(one_line(", ".join(self._at_work.values()), self.screen.width // 2))

    def _aside(self, notice: Notice) -> None:
        match notice:
            case InterruptRequested():
                self.screen.still()
                self._silence()
                self.screen.line("stopping; Ctrl-C again leaves at once", "yellow")
            case Warned(text=text):
                self._silence()
                self.screen.line(text, "yellow")
            case CompactionStarted(size=size):
                self._silence()
                self.screen.line(f"summarising the conversation ({size:,} tokens)", "dim")
                self._spin("summarising")
            case Compacted(before=before, after=after):
                self.screen.line(f"summarised: {before:,} tokens are now {after:,}", "dim")
            case CompactionFailed(reason=reason):
                self.screen.line(f"the conversation stays as it is: {reason}", "yellow")
            case _:
                pass

    def _spin(self, what: str) -> None:
        passed = timer()
        self.screen.spin(lambda: f"{what} {passed()}")

    def bill(self, spent: Spent, price: Price | None) -> None:
        """Say what the run used: turns, tokens, money where a price is known, and active seconds."""
        self.screen.still()
        self._silence()
        usage = spent.usage
        cached = f" ({usage.cached:,} cached)" if usage.cached else ""
        parts = (
            number(spent.turns, "turn"),
            f"{usage.input:,} tokens in{cached}, {usage.output:,} out",
            "no price known" if price is None else f"${spent.cost:.4f}" if spent.cost else "$0",
            f"{spent.seconds:.1f} s active",
        )
        self.screen.line(f" {self.screen.middle} ".join(parts), "dim")
