"""Follow the runs that other processes work on, by the journal of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from typing import final

from ...effects.errors import SessionBusy
from ...effects.notices import InputReceived, Notice, RunEnded, RunStarted
from ..cli.workspace import Workspace

TURN_SECONDS = 1.0
"""Seconds in which another process may take up an input, before this one goes on with the run."""


@final
class Following:
    """The work of other processes in the session of *workspace*; *show* gets its notices, without deltas."""

    def __init__(self, workspace: Workspace, show: Callable[[Notice], None]) -> None:
        self._workspace = workspace
        self._session = workspace.session
        self._show = show
        self._behind: int | str | None = None
        self._run = self._latest

    @property
    def _latest(self) -> str:
        """The id of the latest run; empty before the first."""
        machine = self._session.machine
        return "" if machine is None else machine.memory.run

    @property
    def unseen(self) -> bool:
        """Whether there is a run that was not shown, or not to its end."""
        return self._session.unfinished or self._latest != self._run

    async def mark(self) -> None:
        """Count all that the session has now as shown."""
        self._run = self._latest
        info = await self._workspace.store.info(self._session.id)
        self._behind = 0 if info is None else info.length

    async def follow(self, news: asyncio.Event, seconds: float, leaves: Callable[[], bool]) -> bool:
        """
        Show the unseen runs until none is unfinished; read the session every so many *seconds*.

        Ends before that where *news*, an input from here, comes while no other process works on the run:
        returns whether this process is to go on with it. It ends, too, where there is news and *leaves*.
        """
        if self._behind is None:
            await self._begin()
        showing = asyncio.ensure_future(self._show_all(follow=True))
        try:
            while self._session.unfinished and not showing.done():
                if await _comes(news, seconds):
                    if leaves():
                        return False
                    news.clear()
                    await asyncio.sleep(TURN_SECONDS)
                    if await self._is_free():
                        # Its owner may have ended it right before it let go.
                        await self._session.load()
                        if self._session.unfinished:
                            return True
                await self._session.load()
        finally:
            showing.cancel()
            with suppress(asyncio.CancelledError):
                await showing
        await self._show_all(follow=False)
        self._run = self._latest
        return False

    async def _begin(self) -> None:
        """Show what the run under way has done so far."""
        run: list[Notice] = []
        async with aclosing(self._session.watch(follow=False)) as watching:
            async for watched in watching:
                if isinstance(watched.notice, RunStarted):
                    run = []
                run.append(watched.notice)
                self._behind = watched.id
        await self._session.load()
        for notice in run:
            self._show(notice)

    async def _show_all(self, *, follow: bool) -> None:
        async with aclosing(self._session.watch(self._behind or 0, follow=follow)) as watching:
            async for watched in watching:
                # Their text, and what the run has cost, are shown from the session.
                if isinstance(watched.notice, RunEnded | InputReceived):
                    await self._session.load()
                self._show(watched.notice)
                self._behind = watched.id or self._behind

    async def _is_free(self) -> bool:
        try:
            await self._session.check_free()
        except SessionBusy:
            return False
        return True


async def _comes(news: asyncio.Event, seconds: float) -> bool:
    """Whether *news* comes within so many *seconds*."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await news.wait()
    return news.is_set()
