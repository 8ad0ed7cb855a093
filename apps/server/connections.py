"""Connections to clients: one that sends no whole head of a request is closed after a while."""

from __future__ import annotations

import asyncio
from typing import final

from uvicorn.protocols.http.h11_impl import H11Protocol

# Seconds in which a head has to be there, from the connection or from its first byte.
HEAD_WITHIN = 10.0


@final
class BoundedHeads(H11Protocol):
    """HTTP on one connection, whose heads come within `HEAD_WITHIN`."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take in *data*, which may be a part of a head."""
        super().data_received(data)
        # There is no cycle before the first head is whole, whatever the types say.
        if not getattr(self.cycle, "response_complete", True):
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = asyncio.get_running_loop().call_later(HEAD_WITHIN, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
