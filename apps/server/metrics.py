"""What Prometheus reads: requests, sessions, streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, generate_latest
from starlette.responses import Response

if TYPE_CHECKING:
    from .limits import Streams
    from .open_sessions import OpenSessions

# As what a request counts whose connection ended before there was an answer; proxies have this number, too.
UNANSWERED = 499


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

    def answer(self) -> Response:
        """All numbers, in the text format."""
        return Response(generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
