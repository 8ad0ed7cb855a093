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

from ...effects import Usage
from ..forks import renew_in_child
from . import conventions as words
from .outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, TracerProvider
    from opentelemetry.util.types import AttributeValue

    Attributes = Mapping[str, AttributeValue]
    Measured = tuple[str, float, Attributes]


def nanoseconds(at: float) -> int:
    """The time *at*, in seconds since the epoch, as spans have it."""
    return round(at * 1e9)


_NO_SPAN = Context()

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
class _UsedTokens:
    """
    The counters of tokens, whose amounts are added up before the SDK is called: each call of it is slow.

    All is done in the thread of *outbox*: amounts that wait there already are added to the first one.
    """

    def __init__(self, meter: Meter, outbox: Outbox) -> None:
        self._outbox = outbox
        self._counters = {
            name: meter.create_counter(name.replace("gen_ai.usage", words.USED_TOKENS), "{token}")
            for name in words.TOKEN_KINDS
        }
        self._reset()
        renew_in_child(self, _UsedTokens._reset)

    def _reset(self) -> None:
        # Also in a forked child, whose outbox is empty.
        self._sums = dict[tuple[object, ...], Usage]()

    def add(self, usage: Usage, attributes: Attributes) -> None:
        """Add *usage*, that of a model call with these *attributes*."""
        key = (*attributes.items(),)
        summed = self._sums.get(key)
        self._sums[key] = usage if summed is None else summed + usage
        count = partial(self._count, key, attributes)
        # Behind those that wait; at once where too many do.
        if summed is None and not self._outbox.offer(count):
            count()

    def _count(self, key: tuple[object, ...], attributes: Attributes) -> None:
        for name, count in words.tokens(self._sums.pop(key)).items():
            # No exemplars: the histograms of the same tokens have them.
            self._counters[name].add(count, attributes, _NO_SPAN)


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
        self._used = _UsedTokens(meter, self.outbox)
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

    def end(
        self,
        span: Span,
        at: float,
        attributes: Attributes,
        measured: Iterable[Measured] = (),
        *,
        error: str = "",
        message: str = "",
    ) -> None:
        """
        End *span* with these *attributes*, and record what was *measured* as part of it.

        *error* is the type of the error it ended with, if any.
        """
        span.set_attributes(attributes)
        if error:
            span.set_attribute(words.ERROR_TYPE, error)
            # The words of a provider may quote the conversation.
            span.set_status(StatusCode.ERROR, message if self.content and message else None)
        within = set_span_in_context(span, _NO_SPAN)
        records = [
            partial(self._histograms[name].record, amount, about, within) for name, amount, about in measured
        ]
        self.outbox.put(*records, partial(span.end, nanoseconds(at)))

    def count(self, usage: Usage, attributes: Attributes) -> None:
        """Add the tokens of *usage* to what was used."""
        self.outbox.put(partial(self._used.add, usage, attributes))
