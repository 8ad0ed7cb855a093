"""The spans of the calls of tools, and of children, that run."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs
from opentelemetry.trace import Link, SpanContext

from ...effects import AgentStarted, CallSettled, Outcome, RunAgent, RunTool, ToolStarted
from . import conventions as words
from .instruments import told

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from .instruments import Instruments

# The tool by which a model starts a child.
CHILD_TOOL = "run_agent"

# What a call has in common with the run; which model asked for it, the span of that says.
_OF_RUN = (words.CONVERSATION, words.AGENT_NAME, words.RUN)


@attrs.frozen
class _OpenTool:
    """A call of *tool* runs since *at*."""

    span: Span
    at: float
    tool: str


@final
class ToolSpans:
    """Makes the spans of calls by *instruments*; *shared* are the attributes that all spans have."""

    def __init__(self, instruments: Instruments, shared: dict[str, AttributeValue]) -> None:
        self.count = 0
        self._instruments = instruments
        self._shared = {
            **{name: shared[name] for name in _OF_RUN if name in shared},
            words.OPERATION: words.EXECUTE_TOOL,
            words.TOOL_TYPE: "function",
        }
        self._measured = {
            name: value for name, value in self._shared.items() if name in {words.AGENT_NAME, words.TOOL_TYPE}
        }
        # By call, as are the two below.
        self._open = dict[str, _OpenTool]()
        # When those began whose performers have not begun.
        self._started = dict[str, float]()
        # Those that ran when the run came to rest, each with its tool and its last span.
        self._left = dict[str, tuple[str, SpanContext]]()

    def started(self, notice: ToolStarted | AgentStarted) -> None:
        """A call is going to run."""
        self._started[notice.call] = notice.at

    def span(self, request: RunTool | RunAgent, at: float, within: Context | None) -> Span:
        """The span of *request*, part of the one in *within*; it begins *at* that time, if no notice says."""
        if request.call not in self._open:
            tool = request.tool if isinstance(request, RunTool) else CHILD_TOOL
            # The notice of a request that a takeover repeats came in another process.
            self._begin(request.call, tool, self._started.pop(request.call, at), within)
            self.count += 1
        span = self._open[request.call].span
        if self._instruments.content:
            arguments = request.arguments if isinstance(request, RunTool) else request.prompt
            span.set_attribute(words.TOOL_ARGUMENTS, arguments)
        return span

    def _begin(
        self, call: str, tool: str, at: float, within: Context | None, links: Sequence[Link] = ()
    ) -> None:
        attributes = {**self._shared, words.CALLED_TOOL: tool, words.TOOL_CALL: call}
        span = self._instruments.start(f"{words.EXECUTE_TOOL} {tool}", attributes, at, within, links)
        self._open[call] = _OpenTool(span, at, tool)

    def settled(self, notice: CallSettled) -> None:
        """A call has its result."""
        self._started.pop(notice.call, None)
        self._left.pop(notice.call, None)
        about = {words.TOOL_RESULT: notice.content} if self._instruments.content else {}
        failed = notice.outcome is not Outcome.OK
        self._end(notice.call, notice.at, about, str(notice.outcome) if failed else "")

    def rest(self, at: float, attributes: Mapping[str, AttributeValue]) -> None:
        """End all open spans *at* that time, with these *attributes*; `resume` opens them anew."""
        for call, tool in [*self._open.items()]:
            self._left[call] = tool.tool, tool.span.get_span_context()
            self._end(call, at, attributes)

    def resume(self, at: float, within: Context | None) -> None:
        """Open the spans anew that `rest` ended."""
        left, self._left = self._left, {}
        for call, (tool, last) in left.items():
            self._begin(call, tool, at, within, [Link(last)])

    def _end(self, call: str, at: float, attributes: Mapping[str, AttributeValue], error: str = "") -> None:
        tool = self._open.pop(call, None)
        if tool is None:
            return
        about = {**self._measured, words.CALLED_TOOL: tool.tool, **told({words.ERROR_TYPE: error})}
        measured = [(words.TOOL_DURATION[0], max(0.0, at - tool.at), about)]
        self._instruments.end(tool.span, at, attributes, measured, error=error)
