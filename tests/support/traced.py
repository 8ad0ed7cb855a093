"""A world whose spans are collected, and those as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from turnwheel import Agent, MemoryStore, ModelSpec, Price
from turnwheel.effects import Answer, CallModel
from turnwheel.performers import OpenTelemetry, PerformContext
from turnwheel.testing import ManualClock, Reply, ScriptedModel

START = 1_000.0
PRICE = Price(1, 2, source="made up", date="2026-11-21")


class World:
    """A store, a clock and an exporter, which outlive the agents that stand for processes."""

    def __init__(self, *, content: bool = False) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock(START)
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.metrics = InMemoryMetricReader()
        meters = MeterProvider([self.metrics])
        self.telemetry = OpenTelemetry(self.provider, meters, content=content)

    def agent(self, *replies: Reply, **arguments: Any) -> Agent:
        """An agent in a process of its own, whose model takes a second for each answer."""
        asked = partial(self._answered, ScriptedModel(*replies))
        given: dict[str, Any] = {
            "model": ModelSpec("openai:m1", price=PRICE),
            "store": self.store,
            "clock": self.clock,
            "telemetry": self.telemetry,
            "performers": {CallModel: asked},
        }
        return Agent(**given | arguments)

    async def _answered(
        self, model: ScriptedModel, request: CallModel, scene: PerformContext
    ) -> Answer | None:
        self.clock.move(1.0)
        return await model(request, scene)

    async def spans(self) -> list[ReadableSpan]:
        assert await self.telemetry.flush()
        return [*self.exporter.get_finished_spans()]


LEFT_OUT = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.stream", "gen_ai.tool.type"}
"""Attributes that tell no two spans of a kind apart; `test_conventions` has them."""


def tree(spans: Iterable[ReadableSpan]) -> str:
    """*spans* as lines: where each stands, when it was, and what it says."""
    known = [*spans]
    by_id = {span.context.span_id: span for span in known if span.context is not None}
    runs = dict[str, str]()
    lines = list[str]()

    def told(value: object) -> str:
        # Runs have random names, with which the ids of requests and calls begin.
        return re.sub(
            r"\b[0-9a-f]{12}\b", lambda name: runs.setdefault(name[0], f"run{len(runs)}"), f"{value}"
        )

    def begun(span: ReadableSpan) -> tuple[int, int, str]:
        about = span.attributes or {}
        return span.start_time or 0, span.end_time or 0, str(about.get("gen_ai.tool.call.id", span.name))

    def show(parent: int | None, depth: int) -> None:
        inner = [span for span in known if (span.parent.span_id if span.parent else None) == parent]
        for span in sorted(inner, key=begun):
            within = "  " * depth
            times = [(at or 0) / 1e9 - START for at in (span.start_time, span.end_time)]
            status = "" if span.status.is_unset else f" {span.status.status_code.name}"
            lines.append(f"{within}{span.name} ({span.kind.name}) {times[0]:g}..{times[1]:g}{status}")
            for link in span.links:
                last = by_id.get(link.context.span_id)
                lines.append(f"{within}  <- {'elsewhere' if last is None else last.name}")
            for name, value in sorted((span.attributes or {}).items()):
                if name not in LEFT_OUT:
                    lines.append(f"{within}  . {name}: {told(value)}")
            for event in span.events:
                about = {name: told(value) for name, value in (event.attributes or {}).items()}
                lines.append(
                    f"{within}  + {event.timestamp / 1e9 - START:g} {event.name} {about or ''}".rstrip()
                )
            if span.context is not None:
                show(span.context.span_id, depth + 1)

    show(None, 0)
    return "\n".join(lines)
