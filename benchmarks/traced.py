"""The telemetry of a host: the SDK of OpenTelemetry, with an exporter that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from turnwheel.performers import OpenTelemetry

if TYPE_CHECKING:
    from collections.abc import Sequence


class Host(SpanExporter):
    """Spans go in batches to an exporter that counts them, metrics to a reader in memory."""

    def __init__(self) -> None:
        self.spans = 0
        self._tracers = TracerProvider()
        self._tracers.add_span_processor(BatchSpanProcessor(self))
        self.telemetry = OpenTelemetry(self._tracers, MeterProvider([InMemoryMetricReader()]))

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count *spans*."""
        self.spans += len(spans)
        return SpanExportResult.SUCCESS

    def exported(self) -> int:
        """The number of spans since the last call."""
        self._tracers.force_flush()
        count, self.spans = self.spans, 0
        return count
