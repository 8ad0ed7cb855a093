"""`OpenTelemetry`, which an agent is given, and which makes the trace of each of its runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

from . import conventions as words
from .chat_spans import model
from .instruments import Instruments, context_of, link_to, told, traceparent_in
from .run_trace import RunTrace

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from ...effects import Config

# Seconds that `OpenTelemetry.flush` waits for an exporter.
FLUSH_WITHIN = 5.0


@final
class OpenTelemetry:
    """
    Makes spans and metrics of runs, by the GenAI semantic conventions v0.1.0.

    *tracer_provider* and *meter_provider* are by default those of the process. With *content*, spans have
    what models and tools are told and answer, secrets taken out. One object serves any number of agents.

    No exporter delays or fails a run: spans end in a thread, and are dropped where that is stuck.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        content: bool = False,
    ) -> None:
        self._instruments = Instruments(tracer_provider, meter_provider, content=content)

    def __repr__(self) -> str:
        return f"OpenTelemetry(content={self._instruments.content})"

    @property
    def dropped(self) -> int:
        """How many spans and measurements were dropped, since an exporter was stuck."""
        return self._instruments.outbox.dropped

    async def flush(self, within: float = FLUSH_WITHIN) -> bool:
        """
        Wait up to *within* seconds until all spans that have ended are with their processor.

        False where they are not.

        The exit of the process waits for two seconds by itself.
        """
        return await asyncio.to_thread(self._instruments.outbox.flush, within)

    def sender(self) -> str:
        """The span in which a prompt is sent, for the journal; empty where there is none."""
        return traceparent_in()

    def begin(
        self, session: str, run: str, config: Config, at: float, *, sender: str = "", last: str = ""
    ) -> RunTrace:
        """
        The trace of *run*, which begins, or goes on, *at* that time.

        It is part of the span that the prompt was sent in (*sender*), else of the current one. *last* is the
        span of the process that worked on the run before.
        """
        shared = told(
            {
                words.CONVERSATION: session,
                words.RUN: run,
                words.AGENT_NAME: config.agent,
                **model(config.model.name),
            }
        )
        # The current span is the better one of two equals: it is of this process, and has baggage.
        within = None if sender in {"", traceparent_in()} else context_of(sender)
        return RunTrace(self._instruments, shared, at, within, link_to(last))
