"""
The spans of one run, for as long as one process works on it.

Theory of operation.

1. `RunTrace` opens the span ``invoke_agent`` before the entry is written with which the run begins, or is
   taken over: that entry has the name of the span. Where the entry is not written, the span never ends, and
   no exporter sees it.
2. The driver tells each step before its requests begin. Notices say when what began and how it ended.
3. The span of a model call, of a tool or of a child opens when its request begins. The task that performs the
   request is made in a context with that span, so other instrumentations and children find it there.
4. Where the run rests, all its spans end. When it goes on, the next ``invoke_agent`` has a link to the last.

An exception of the host's tracer turns this trace off, and never reaches the run.
"""

from __future__ import annotations

from contextvars import copy_context
from typing import TYPE_CHECKING, Any, final

from opentelemetry.context import attach
from opentelemetry.trace import Link, set_span_in_context

from ...effects import (
    AgentStarted,
    AnswerFailed,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallModel,
    CallSettled,
    DoneReason,
    FallbackUsed,
    ModelCalled,
    RetryScheduled,
    RunAgent,
    RunEnded,
    RunResumed,
    RunStarted,
    RunTool,
    SummaryEnded,
    ToolStarted,
    TurnEnded,
    UserSteered,
)
from . import conventions as words
from .chat_spans import ChatSpans, model
from .instruments import context_of, link_to, nanoseconds, told, traceparent_in
from .side_call import SideCall
from .tool_spans import ToolSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextvars import Context as Variables

    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext
    from opentelemetry.util.types import AttributeValue

    from ...effects import Config, Effect, Event, Request
    from ..base import PerformContext
    from .instruments import Instruments


@final
class RunTrace:
    """
    The spans of one run, which *instruments* make; *shared* are the attributes that all of them have.

    The first one begins *at* that time, is part of the span in the context *within*, and has *links*.
    """

    def __init__(
        self,
        instruments: Instruments,
        shared: dict[str, AttributeValue],
        at: float,
        within: Context | None,
        links: Sequence[Link] = (),
    ) -> None:
        self._instruments = instruments
        self._shared = shared
        self._within = within
        # When the latest step was.
        self._at = at
        self._off = False
        self._chats, self._tools = ChatSpans(instruments, shared), ToolSpans(instruments, shared)
        self._takes = self._by_kind()
        # The ids of the span and of its trace, as fields of log lines; always those of the latest span.
        self.ids = dict[str, str]()
        self._span = self._begin(at, links)
        # The name of the first span, for the journal; empty where there is no tracer.
        self.traceparent = traceparent_in(set_span_in_context(self._span))
        # That of the span under way, None where the run rests or is over.
        self._began: float | None = at
        # The span that ended when the run came to rest.
        self._last: SpanContext | None = None

    def _by_kind(self) -> Mapping[type, Callable[[Any], None]]:
        # By exact type, since a step has many effects, and most of them say nothing to a trace.
        return {
            RunStarted: self._opened,
            RunResumed: self._opened,
            RunEnded: self._ended,
            ApprovalRequested: self._asked,
            ApprovalResolved: self._resolved,
            ApprovalWithdrawn: self._withdrawn,
            FallbackUsed: self._fell_back,
            ModelCalled: self._chats.asks,
            TurnEnded: self._chats.answered,
            SummaryEnded: self._chats.answered,
            AnswerFailed: self._chats.failed,
            RetryScheduled: self._chats.retried,
            ToolStarted: self._tools.started,
            AgentStarted: self._tools.started,
            CallSettled: self._tools.settled,
        }

    # What the driver tells

    def step(self, event: Event | None, effects: Iterable[Effect]) -> None:
        """Take the *effects* of *event*, or those with which the run begins or goes on here."""
        if self._off:
            return
        try:
            if event is not None:
                self._at = event.at
                self._go_on()
            if isinstance(event, UserSteered):
                self._steered(event)
            for effect in effects:
                if (take := self._takes.get(type(effect))) is not None:
                    take(effect)
            self._chats.settle()
        except Exception as error:  # noqa: BLE001  # the host's tracer is any code
            self._fail(error)

    def began(self, request: Request, scene: PerformContext) -> Variables:
        """The context variables for the task that performs *request*, which begins now in *scene*."""
        variables = copy_context()
        if not self._off:
            try:
                variables.run(attach, set_span_in_context(self._span_of(request, scene)))
            except Exception as error:  # noqa: BLE001  # as in `step`
                self._fail(error)
        return variables

    def rest(self, at: float) -> None:
        """End all spans *at* that time: the run rests, or is left, and its next step opens others."""
        if self._off or self._began is None:
            return
        try:
            self._last = self._span.get_span_context()
            self._close(at, {words.RESTING: True})
        except Exception as error:  # noqa: BLE001  # as in `step`
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._off = True
        self._instruments.outbox.failed(error)

    # The span of the run

    def _begin(self, at: float, links: Sequence[Link]) -> Span:
        name = f"{words.INVOKE_AGENT} {self._shared.get(words.AGENT_NAME, '')}".rstrip()
        attributes = {**self._shared, words.OPERATION: words.INVOKE_AGENT}
        span = self._instruments.start(name, attributes, at, self._within, links)
        # The context of the spans inside of this one.
        self._here = set_span_in_context(span, self._within)
        about = span.get_span_context()
        if about.is_valid:
            self.ids.update(trace_id=f"{about.trace_id:032x}", span_id=f"{about.span_id:016x}")
        return span

    def _go_on(self) -> None:
        """Open the spans anew of a run that came to rest here."""
        if self._last is None:
            return
        links, self._last = [Link(self._last)], None
        self._span, self._began = self._begin(self._at, links), self._at
        self._tools.resume(self._at, self._here)

    def _span_of(self, request: Request, scene: PerformContext) -> Span:
        """The span of *request*, opened now; that of the run where the request has none of its own."""
        if isinstance(request, CallModel):
            return self._chats.span(request, scene, self._here) or self._span
        if isinstance(request, RunTool | RunAgent):
            return self._tools.span(request, self._at, self._here)
        return self._span

    def _close(
        self, at: float, attributes: Mapping[str, AttributeValue], error: str = "", message: str = ""
    ) -> None:
        """End every open span *at* that time; *attributes*, but for `RESTING`, are for that of the run."""
        resting = {name: value for name, value in attributes.items() if name == words.RESTING}
        self._chats.close(at, resting)
        self._tools.rest(at, resting)
        began, self._began = self._began, None
        if began is None:
            return
        names = (words.AGENT_NAME, words.PROVIDER)
        about = told({**{name: self._shared.get(name) for name in names}, words.ERROR_TYPE: error})
        measured = [
            (words.AGENT_DURATION[0], max(0.0, at - began), about),
            (words.AGENT_CHATS[0], self._chats.count, about),
            (words.AGENT_TOOLS[0], self._tools.count, about),
        ]
        self._chats.count = self._tools.count = 0
        self._instruments.end(self._span, at, attributes, measured, error=error, message=message)

    # Notices

    def _opened(self, notice: RunStarted | RunResumed) -> None:
        # The session may be asking another model than the configured one.
        asked = model(notice.model)
        self._shared.update(asked)
        self._span.set_attributes(asked)

    def _ended(self, notice: RunEnded) -> None:
        about: dict[str, AttributeValue] = {
            words.REASON: str(notice.reason),
            **words.tokens(notice.spent.usage),
        }
        if (cost := notice.spent.known_cost) is not None:
            about[words.COST] = float(cost)
        error = str(notice.reason) if notice.reason is DoneReason.ERROR else ""
        self._close(notice.at, about, error, notice.detail)

    def _steered(self, event: UserSteered) -> None:
        for link in link_to(event.trace):
            self._span.add_link(link.context)
        self._note("turnwheel.steered", {}, event.at)

    def _asked(self, notice: ApprovalRequested) -> None:
        about = {words.REQUEST: notice.request, words.CALLED_TOOL: notice.tool, words.TOOL_CALL: notice.call}
        self._note("turnwheel.approval.requested", about, notice.at)

    def _resolved(self, notice: ApprovalResolved) -> None:
        about = {words.REQUEST: notice.request, words.DECISION: type(notice.decision).__name__.lower()}
        self._note("turnwheel.approval.resolved", about, notice.at)

    def _withdrawn(self, notice: ApprovalWithdrawn) -> None:
        self._note("turnwheel.approval.withdrawn", {words.REQUEST: notice.request}, notice.at)

    def _fell_back(self, notice: FallbackUsed) -> None:
        self._note("turnwheel.fallback", model(notice.model), notice.at)

    def _note(self, name: str, attributes: Mapping[str, AttributeValue], at: float) -> None:
        self._span.add_event(name, attributes, nanoseconds(at))


def begin_run(
    instruments: Instruments, about: tuple[str, str, Config], at: float, *, sender: str, last: str
) -> RunTrace:
    """
    The trace of a run, *about* which is known: its session, its name and its settings.

    *at*, *sender* and *last* are as in `OpenTelemetry.begin`.
    """
    _, _, config = about
    # The current span is the better one of two equals: it is of this process, and has baggage.
    within = None if sender in {"", traceparent_in()} else context_of(sender)
    shared = {**_shared_by(about), **model(config.model.name)}
    return RunTrace(instruments, shared, at, within, link_to(last))


def side_call(instruments: Instruments, about: tuple[str, str, Config], last: str) -> SideCall:
    """A model call beside the run *about* which is known, part of the span of the run, which *last* names."""
    return SideCall(instruments, _shared_by(about), context_of(last))


def _shared_by(about: tuple[str, str, Config]) -> dict[str, AttributeValue]:
    session, run, config = about
    return told({words.CONVERSATION: session, words.RUN: run, words.AGENT_NAME: config.agent})
