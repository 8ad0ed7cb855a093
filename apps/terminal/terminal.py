"""Show the notices of a run: text as it comes, calls with their outcomes, and the spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never, final

import attrs
from rich.text import Text

from ...effects.config import Steering
from ...effects.messages import Outcome
from ...effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    CompactionStarted,
    InputReceived,
    InputTaken,
    InterruptRequested,
    LoopDetected,
    ModelCalled,
    Notice,
    ReasoningDelta,
    RequestDelayed,
    RetryScheduled,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from ...effects.records import MailKind
from ...effects.requests import AskApproval
from ...effects.usage import Spent
from ...states.context import Mail
from ..cli.option_types import short
from .call_summary import (
    duration,
    essence,
    number,
    outcome_summary,
)
from .children import ChildrenView
from .countdown import Countdown, countdown, wait_lines
from .notice_lines import decision_text, notice_lines, source_lines, verbose_lines
from .sanitize import clean, first_lines, one_line, without_colors
from .screen import INDENT, Screen, timer
from .spend_format import bill
from .wrap import Wrap

PROMPT_LINES = 6
"""Lines shown of a prompt; its author knows it."""

TEXT_STYLES: dict[type[Notice], str] = {ReasoningDelta: "thought"}
"""The style of running text other than the answer."""

READ_WHEN = {
    Steering.NOW: "is read now",
    Steering.AFTER_TOOL: "is read after the running calls",
    Steering.WHEN_DONE: "is read when all calls are done",
}
"""The time when a steer is read, in words."""


@final
@attrs.define
class _ShownCall:
    """A call that notices have named."""

    tool: str
    arguments: str


@final
class Terminal:
    """
    Shows notices on *screen*. `hold` keeps them back while a question is on screen.

    *verbose* shows verdicts and hooks too. *by* is the approver here, whose answers are not shown again.
    *mail* returns a waiting input by its id, *name* the name of a call on screen by its id.
    """

    def __init__(
        self,
        screen: Screen,
        *,
        verbose: bool = False,
        by: str = "",
        mail: Callable[[str], Mail | None] | None = None,
        name: Callable[[str], str] = short,
    ) -> None:
        self.screen = screen
        self._verbose = verbose
        self._by = by
        self._mail = mail or (lambda _: None)
        self._name = name
        self._calls: dict[str, _ShownCall] = {}
        self._questions: dict[str, str] = {}
        self._changes: dict[str, list[Text]] = {}
        self._at_work: dict[str, str] = {}
        self._latest = ""
        self._children = ChildrenView(screen, name)
        self._loop: LoopDetected | None = None
        self._speaking: type[Notice] | None = None
        self._held: list[Notice] | None = None
        self._wrap = Wrap(lambda: screen.width) if screen.is_terminal else None

    def begin(self, model: str, session: str, more: str = "") -> None:
        """Show the model, the session, and *more* facts."""
        about = f"  session {session}{'  ' * bool(more)}{more}"
        self.screen.lines(Text.assemble((clean(model), "bold"), (clean(about), "dim")), Text())

    def remember(self, call: str, tool: str, arguments: str) -> None:
        """Remember a call, for the line at its end."""
        self._calls[call] = _ShownCall(tool, arguments)

    def remember_question(self, question: AskApproval) -> None:
        """Remember the call of a question, for the line of its answer."""
        self._questions[question.id] = question.call

    def remember_change(self, call: str, rows: list[Text]) -> None:
        """Remember the change of a file that a call makes, to show below its result if it succeeds."""
        self._changes[call] = rows

    def forget_change(self, call: str) -> None:
        """Do not show the change that a call makes: a person has seen it in a question."""
        self._changes.pop(call, None)

    def hold(self) -> None:
        """Keep notices back until `release`."""
        self.screen.still()
        self.screen.start_of_line()
        self._held = []

    def release(self) -> None:
        """Show the notices kept back, and continue."""
        held, self._held = self._held or [], None
        for notice in held:
            self.notice(notice)

    def notice(self, notice: Notice) -> None:
        """Show *notice* if it matters to a person."""
        if self._held is not None:
            self._held.append(notice)
            return
        match notice:
            case TextDelta(text=text) | ReasoningDelta(text=text):
                self._say(text, type(notice))
            case ToolStarted() | ToolOutput() | CallSettled():
                self._tool(notice)
            case ModelCalled() | TurnEnded() | AnswerDropped():
                self._model(notice)
            case RetryScheduled() | RequestDelayed():
                self._wait(notice)
            case ApprovalRequested() | ApprovalResolved():
                self._question(notice)
            case InputReceived() | InputTaken():
                self._input(notice)
            case AgentStarted() | AgentNoticed():
                self._child(notice)
            case _:
                self._aside(notice)

    # Text of the model

    def _say(self, text: str, kind: type[Notice]) -> None:
        """Write running text; reasoning and answers have their own styles and lines."""
        if self._speaking is not kind:
            self._end_of_text()
            self.screen.still()
            self.screen.start_of_line()
            text = text.lstrip("\n")
            self._speaking = kind if text else None
        shown = text if self._wrap is None else self._wrap.feed(clean(text))
        if shown:
            self.screen.run_on(shown, TEXT_STYLES.get(kind, ""))

    def _end_of_text(self) -> None:
        """Write the word that the wrapping holds back."""
        if self._wrap is not None and self._speaking is not None and (rest := self._wrap.end()):
            self.screen.run_on(rest, TEXT_STYLES.get(self._speaking, ""))

    def silence(self) -> None:
        """End running text, and leave an empty line after it."""
        if self._speaking is not None:
            self._end_of_text()
            self.screen.start_of_line()
            self.screen.line()
            self._speaking = None

    def _model(self, notice: ModelCalled | TurnEnded | AnswerDropped) -> None:
        screen = self.screen
        match notice:
            case ModelCalled():
                self._spin("thinking")
            case TurnEnded(calls=calls, message=message):
                for call in calls:
                    self.remember(call.id, call.name, call.arguments)
                screen.still()
                self.silence()
                # Not where each is told: that is in the middle of the text.
                for text, style in source_lines(message):
                    screen.say(text, style)
            case AnswerDropped():
                screen.still()
                self.silence()
                screen.line("the answer broke off; its text does not count", "warning")
            case _:
                assert_never(notice)

    def _wait(self, notice: Countdown) -> None:
        for text, style in wait_lines(notice, self.screen, self.screen.width):
            self.silence()
            self.screen.line(text, style)
            self.screen.spin(countdown(notice))

    # Calls, and questions about them

    def _tool(self, notice: ToolStarted | ToolOutput | CallSettled) -> None:
        match notice:
            case ToolStarted():
                self.remember(notice.call, notice.tool, notice.arguments)
                self._begins(notice.call)
                self._spin_for_tools()
            case ToolOutput():
                for line in without_colors(notice.text).splitlines():
                    self.screen.line(f"{INDENT}{one_line(line, self.screen.width - 2)}", "dim")
                self._spin_for_tools()
            case CallSettled():
                self.silence()
                self._ended(notice)
                if self._at_work:
                    self._spin_for_tools()
            case _:
                assert_never(notice)

    def _headline(self, call: str) -> None:
        self.screen.lines(self.named(call))
        self._latest = call

    def named(self, call: str, beside: int = 0) -> Text:
        """*call* as a line: its tool, its arguments, and its number, with *beside* columns left free."""
        known = self._calls[call]
        name = one_line(known.tool, 64)
        number_ = f"  #{clean(self._name(call))}"
        about = essence(
            known.tool, known.arguments, self.screen.width - len(name) - len(number_) - 4 - beside
        )
        return Text.assemble(
            (f"{self.screen.dot} ", "sign"), (name, "bold"), f" {about}".rstrip(), (number_, "dim")
        )

    def _ended(self, notice: CallSettled) -> None:
        """The outcome of a call below its headline, which is repeated if other lines came between."""
        if notice.call not in self._calls:
            self.remember(notice.call, notice.tool, "")
        # Other lines came between, so a reader could not tell whose outcome this is.
        if notice.call != self._latest:
            self._headline(notice.call)
        self._at_work.pop(notice.call, None)
        self._latest = ""
        self.screen.still()
        seconds = f"  {duration(notice.seconds)}" if notice.seconds else ""
        room = self.screen.width - len(seconds) - 4
        came = outcome_summary(notice.tool, notice.outcome, notice.content, room)
        style = "dim" if notice.outcome is Outcome.OK else "error"
        elbow = f"{INDENT}{self.screen.elbow} "
        self.screen.lines(Text.assemble((elbow, "dim"), (came, style), (seconds, "dim")))
        change = self._changes.pop(notice.call, [])
        if notice.outcome is Outcome.OK:
            self.screen.lines(*change)
        for text, looks in self._children.end_lines(notice.call):
            self.screen.line(text, looks)
        self.screen.line()

    def _spin_for_tools(self) -> None:
        self._spin(one_line(", ".join(self._at_work.values()), self.screen.width // 2))

    def _question(self, notice: ApprovalRequested | ApprovalResolved) -> None:
        self.silence()
        if isinstance(notice, ApprovalRequested):
            self.remember(notice.call, notice.tool, notice.arguments)
            self._questions[notice.request] = notice.call
        elif notice.by != self._by:
            call = self._questions.get(notice.request)
            named = short(notice.request) if call is None else self._name(call)
            by = notice.by or "another approver"
            self.screen.line(f"#{named} was answered by {by}: {decision_text(notice.decision)}", "setting")

    # Inputs

    def _input(self, notice: InputReceived | InputTaken) -> None:
        self.silence()
        self._latest = ""
        if isinstance(notice, InputTaken):
            for message in notice.messages:
                self.prompted(message.text)
        elif (mail := self._mail(notice.id)) is not None:
            how = "waits for its turn" if mail.lane is MailKind.PROMPT else READ_WHEN[mail.how]
            self.screen.line(one_line(f"{mail.text!r} {how}", self.screen.width), "dim")

    def prompted(self, text: str) -> None:
        """Show the prompt of a person."""
        lines, more = first_lines(text.strip(), PROMPT_LINES)
        rest = [f"... {number(more, 'more line')}"] if more else []
        first, *others = lines or [""]
        rows = [f"> {first}", *[f"{INDENT}{row}" for row in (*others, *rest)]]
        self.screen.line("\n".join(rows), "prompted")
        self.screen.line()

    # Children and other notices

    def _child(self, notice: AgentStarted | AgentNoticed) -> None:
        """Show the notices of a child below its own headline."""
        if isinstance(notice, AgentStarted):
            self.remember(notice.call, notice.agent, notice.prompt)
            self._begins(notice.call)
        elif isinstance(notice.notice, ApprovalRequested | ApprovalResolved):
            self._question(notice.notice)
        else:
            named = notice.call != self._latest or len(self._at_work) > 1
            for text, style in self._children.lines(notice, named=named and notice.call in self._at_work):
                if notice.call not in self._at_work:  # it continues after its process was lost
                    self._begins(notice.call)
                self.screen.line(text, style)
        self._spin_for_tools()

    def _begins(self, call: str) -> None:
        self.silence()
        self._at_work[call] = self._calls.setdefault(call, _ShownCall("a child", "")).tool
        self._headline(call)

    def _aside(self, notice: Notice) -> None:
        if isinstance(notice, LoopDetected):
            before, self._loop = self._loop, notice
            if before is not None and (before.tools, before.count) == (notice.tools, notice.count):
                return  # the model is warned before each answer; once is enough for a person
        if isinstance(notice, InterruptRequested):
            self._remark("stopping; Ctrl-C again leaves at once", "warning")
        for text, style in [*notice_lines(notice), *(verbose_lines(notice) if self._verbose else ())]:
            self._remark(text, style)
        if isinstance(notice, CompactionStarted):
            self._spin("summarising")

    def _remark(self, text: str, style: str) -> None:
        self.silence()
        self._latest = ""
        self.screen.say(text, style)

    def _spin(self, what: str) -> None:
        passed = timer()
        self.screen.spin(lambda: f"{what} {passed()}")

    def bill(self, spent: Spent) -> None:
        """Show the spend of the run."""
        self.screen.still()
        self.silence()
        self.screen.line(f" {self.screen.middle} ".join(bill(spent)), "dim")
