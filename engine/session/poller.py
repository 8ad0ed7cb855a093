"""Looking what others write to a session while a run of it is under way here."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self, final

from ...effects.errors import JournalError, StoreConflict, WorldError

if TYPE_CHECKING:
    from ..driver.driver import Driver
    from .session_state import SessionLog


@final
class StorePoller:
    """
    Looks every *poll* seconds what others posted to the session of *log*, which *driver* runs; use it around.

    Where somebody else goes on with the session, or says what cannot be read here, *driver* stops: the run
    stays as it is kept, and `found` is why.
    """

    def __init__(self, log: SessionLog, driver: Driver, poll: float) -> None:
        self.found: WorldError | None = None
        self._log = log
        self._driver = driver
        self._poll = poll
        self._task: asyncio.Task[None] | None = None

    def stop(self, error: WorldError) -> None:
        """Have the driver stop because of *error*."""
        self.found = error
        self._driver.inbox.close()

    async def _look(self) -> None:
        while self.found is None:
            await asyncio.sleep(self._poll)
            try:
                await self._log.look()
            except (StoreConflict, JournalError) as error:
                self.stop(error)
            except WorldError:
                continue  # the driver's next entry says so

    async def __aenter__(self) -> Self:
        if self._log.kept:
            self._task = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            with suppress(asyncio.CancelledError):
                self._task.result()  # a store that is broken is not passed over
