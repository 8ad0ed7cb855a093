"""How much callers may ask: the size of bodies, open streams, and requests in a minute."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, final

import attrs

from ...effects.validators import MAX_ATTACHED, positive
from ...performers.base import SystemClock
from ...performers.meters import Bucket, change, meters_of, own_meters, taking
from .problems import Refused

if TYPE_CHECKING:
    from ...performers.stores.base import Store

# Bytes of a request: room for the files that may come with a prompt, in Base64, and for the longest prompt.
MAX_REQUEST = 40_000_000


@final
@attrs.frozen(kw_only=True)
class ServerLimits:
    """
    What a server takes: bytes of a *body*, event *streams* of all tenants and *tenant_streams* of one.

    *working* sessions may have a run at work at a time; *kept* stay open without work, to be quick. A tenant
    may send *tenant_requests* in a minute, and have *tenant_working* sessions at work at a time, over all
    servers on one store; None for any number.
    """

    body: int = attrs.field(default=MAX_REQUEST, validator=positive)
    streams: int = attrs.field(default=5_000, validator=positive)
    tenant_streams: int = attrs.field(default=2_000, validator=positive)
    working: int = attrs.field(default=500, validator=positive)
    kept: int = attrs.field(default=200, validator=positive)
    tenant_requests: int | None = attrs.field(default=None, validator=positive)
    tenant_working: int | None = attrs.field(default=None, validator=positive)

    @property
    def attached(self) -> int:
        """Bytes of the files that may come with a prompt: in a request they are in Base64."""
        return min(MAX_ATTACHED, self.body // 4 * 3)


@final
class Streams:
    """The event streams that are open, by tenant; a comment goes down each every *beat* seconds."""

    def __init__(self, limits: ServerLimits, beat: float) -> None:
        self.beat = beat
        self._limits = limits
        self._open: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._open.total()

    def check(self, tenant: str) -> None:
        """Refuse one more of *tenant* where there are as many as may be; raises `Refused`."""
        limits = self._limits
        for there, most in ((self.count, limits.streams), (self._open[tenant], limits.tenant_streams)):
            if there >= most:
                detail = f"no more than {most} event streams at a time; close one, or try again later"
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": "5"})

    @contextmanager
    def place(self, tenant: str) -> Generator[None, None, None]:
        """Count one more of *tenant* within it."""
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1


@final
class RequestRates:
    """How many requests each tenant has sent, counted in *store* where it keeps meters."""

    def __init__(self, limits: ServerLimits, store: Store) -> None:
        most = limits.tenant_requests
        self._most = most
        self._buckets = {} if most is None else {"requests": Bucket.of_minute(most)}
        self._meters = meters_of(store) or own_meters(SystemClock())

    async def enter(self, tenant: str) -> None:
        """Count one more of *tenant*; raises `Refused` where it has sent as many as it may."""
        if not self._buckets:
            return
        wait = await change(self._meters, f"tenant {tenant}", taking(self._buckets, {"requests": 1}, 0.0))
        if wait:
            detail = f"no more than {self._most} requests in a minute; send the next one in {wait:.0f} s"
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, detail, {"Retry-After": str(math.ceil(wait))})
