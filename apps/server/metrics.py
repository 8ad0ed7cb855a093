"""What Prometheus reads: requests, sessions, streams, and how late the event loop is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn, final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.responses import Response

if TYPE_CHECKING:
    from .limits import Streams
    from .open_sessions import OpenSessions

# As what a request counts whose connection ended before there was an answer; proxies have this number, too.
UNANSWERED = 499

# Seconds between two measurements of the event loop, and the bounds by which its delays are counted.
PAUSE = 0.1
LAGS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


@final
class Metrics:
    """The numbers of one app: each has a registry of its own, since a process may have several apps."""

    def __init__(self, opens: OpenSessions, streams: Streams) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "turnwheel_http_requests",
            "Requests, by how they were answered; 499 where the connection ended before.",
            ["method", "path", "status"],
            registry=self._registry,
        )
        self._lags = Histogram(
            "turnwheel_loop_lag_seconds",
            "How much later than it was due the event loop did something: so long all tenants waited.",
            registry=self._registry,
            buckets=LAGS,
        )
        gauges = {
            "turnwheel_sessions_open": ("Sessions that are open in this process.", lambda: opens.count),
            "turnwheel_sessions_working": (
                "Sessions whose run goes on in this process.",
                lambda: opens.working,
            ),
            "turnwheel_streams_open": ("Event streams that are open.", lambda: streams.count),
        }
        for name, (about, value) in gauges.items():
            Gauge(name, about, registry=self._registry).set_function(value)

    def count(self, method: str, path: str, status: int) -> None:
        """Count one request. *path* is that of the route: ids in it would make a number for each session."""
        self._requests.labels(method, path, str(status)).inc()

    async def measure(self) -> NoReturn:
        """Measure the event loop, until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + PAUSE
            await asyncio.sleep(PAUSE)
            self._lags.observe(max(clock() - due, 0.0))

    def answer(self) -> Response:
        """All numbers, in the text format."""
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
