"""The host's tracer and meters, as spans of runs are made and measured with them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from opentelemetry.context import Context
from opentelemetry.metrics import get_meter_provider
from opentelemetry.trace import (
    Link,
    SpanKind,
    StatusCode,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import conventions as words
from .outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.metrics import Histogram, MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from ...effects import Usage

    Attributes = Mapping[str, AttributeValue]


def nanoseconds(at: float) -> int:
    """The time *at*, in seconds since the epoch, as spans have it."""
    return round(at * 1e9)


_PROPAGATOR = TraceContextTextMapPropagator()


def context_of(traceparent: str) -> Context | None:
    """The context of the span that *traceparent* names; None where it names none."""
    return (_PROPAGATOR.extract({"traceparent": traceparent}, Context()) or None) if traceparent else None


def traceparent_in(context: Context | None = None) -> str:
    """The name of the span in *context*, or in the current one; empty where there is none."""
    carrier = dict[str, str]()
    _PROPAGATOR.inject(carrier, context)
    return carrier.get("traceparent", "")


def link_to(traceparent: str) -> list[Link]:
    """The link to the span that *traceparent* names, if it names one."""
    context = context_of(traceparent)
    return [] if context is None else [Link(get_current_span(context).get_span_context())]


def told(values: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Those of *values* that say something."""
    return {name: value for name, value in values.items() if value is not None and value != ""}


@final
class Instruments:
    """
    Makes spans with a *tracer*, and measures.

    Spans end, and measurements are taken, in the thread of an `Outbox`. With *content*, what models and tools
    are told goes into the spans.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, *, content: bool
    ) -> None:
        self.content = content
        self.outbox = Outbox()
        # The providers of the process, where the caller gives none: those that the host has set by now.
        tracers = get_tracer_provider() if tracer_provider is None else tracer_provider
        meters = get_meter_provider() if meter_provider is None else meter_provider
        self._tracer = tracers.get_tracer(words.SCOPE)
        meter = meters.get_meter(words.SCOPE)
        self._histograms = {
            name: meter.create_histogram(name, unit)
            for name, unit in (
                words.CHAT_DURATION,
                words.CHAT_FIRST_CHUNK,
                words.CHAT_INPUT,
                words.CHAT_OUTPUT,
                words.AGENT_DURATION,
                words.AGENT_CHATS,
                words.AGENT_TOOLS,
                words.TOOL_DURATION,
            )
        }
        self._used = {
            name: meter.create_counter(name.replace("gen_ai.usage", words.USED_TOKENS), "{token}")
            for name in words.TOKEN_KINDS
        }

    def start(
        self,
        name: str,
        attributes: Attributes,
        at: float,
        within: Context | None,
        links: Sequence[Link] = (),
    ) -> Span:
        """A span that begins *at* that time, in the context *within*."""
        kind = SpanKind.CLIENT if attributes[words.OPERATION] == words.ASK_MODEL else SpanKind.INTERNAL
        return self._tracer.start_span(name, within, kind, attributes, links, nanoseconds(at))

    def end(self, span: Span, at: float, attributes: Attributes, error: str = "", message: str = "") -> None:
        """End *span* with these *attributes*; *error* is the type of the error it ended with, if any."""
        span.set_attributes(attributes)
        if error:
            span.set_attribute(words.ERROR_TYPE, error)
            # The words of a provider may quote the conversation.
            span.set_status(StatusCode.ERROR, message if self.content and message else None)
        self.outbox.put(partial(span.end, nanoseconds(at)))

    def measure(self, name: str, amount: float, attributes: Attributes, span: Span) -> None:
        """Record *amount* for the metric *name*, as part of *span*."""
        histogram: Histogram = self._histograms[name]
        self.outbox.put(partial(histogram.record, amount, attributes, set_span_in_context(span)))

    def count(self, usage: Usage, attributes: Attributes, span: Span) -> None:
        """Add the tokens of *usage* to what was used, as part of *span*."""
        for name, count in words.tokens(usage).items():
            self.outbox.put(partial(self._used[name].add, count, attributes, set_span_in_context(span)))
