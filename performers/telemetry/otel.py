"""`OpenTelemetry`, which an agent is given, and which makes the trace of each of its runs."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING, final

from ...effects.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from ...effects import Config
    from .run_trace import RunTrace
    from .side_call import SideCall

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
        if find_spec("opentelemetry") is None:
            msg = "OpenTelemetry needs 'opentelemetry-api': pip install 'turnwheel[otel]'"
            raise ConfigError(msg)
        from .instruments import Instruments  # noqa: PLC0415  # an extra

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
        from .instruments import traceparent_in  # noqa: PLC0415  # as above

        return traceparent_in()

    def begin(
        self, session: str, run: str, config: Config, at: float, *, sender: str = "", last: str = ""
    ) -> RunTrace | None:
        """
        The trace of *run*, which begins, or goes on, *at* that time; None where the tracer fails.

        It is part of the span that the prompt was sent in (*sender*), else of the current one. *last* is the
        span of the process that worked on the run before.
        """
        from .run_trace import begin_run  # noqa: PLC0415  # as above

        try:
            return begin_run(self._instruments, (session, run, config), at, sender=sender, last=last)
        except Exception as error:  # noqa: BLE001  # the host's tracer is any code
            self._instruments.outbox.failed(error)
            return None

    def beside(self, session: str, run: str, config: Config, last: str) -> SideCall:
        """A model call beside *run*, such as that for a title; it is part of the span that *last* names."""
        from .run_trace import side_call  # noqa: PLC0415  # as above

        return side_call(self._instruments, (session, run, config), last)
