"""Keys and lines from a terminal, read without stopping the event loop, so that Ctrl-C works meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
import tty
from collections.abc import Callable, Collection, Generator
from typing import final

_KEY_READ_BYTES = 4_096
"""Bytes of one read: more than a key sends, and the longest line a terminal lets one type."""


@final
class Keyboard:
    """The terminal open as *descriptor*. One may read at a time; cancelling leaves the terminal as it was."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)

    async def key(self, accepted: Collection[str], ask: Callable[[], None]) -> str:
        """
        The key pressed after *ask* has shown what can be: one that is *accepted*, in lower case.

        What was typed before the question could be read is no answer to it and is thrown away, as is what a
        cursor key or a paste sends. Raises `EOFError` where the terminal is gone.
        """
        with self.raw():
            ask()
            while True:
                pressed = (await self.read()).decode(errors="replace").strip().lower()
                if pressed in accepted:
                    return pressed

    async def line(self, ask: Callable[[], None]) -> str:
        """The line typed after *ask* has shown what for, with its end; what Ctrl-D ended has none."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        ask()
        try:
            return (await self.read()).decode(errors="replace")
        except EOFError:
            return ""

    @contextlib.contextmanager
    def raw(self) -> Generator[None]:
        """Keys come one by one and are not shown; Ctrl-C is still a signal."""
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        try:
            yield
        finally:
            self._as_before()

    @contextlib.contextmanager
    def lent(self) -> Generator[None]:
        """Within `raw`: another program has the terminal, as it was before."""
        self._as_before()
        try:
            yield
        finally:
            self.raw_again()

    def raw_again(self) -> None:
        """Within `raw`: whoever had the terminal meanwhile has changed it."""
        with contextlib.suppress(termios.error):
            tty.setcbreak(self._descriptor, termios.TCSADRAIN)

    def _as_before(self) -> None:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    async def read(self) -> bytes:
        """What was typed next. Raises `EOFError` where the terminal is gone."""
        loop = asyncio.get_running_loop()
        ready = loop.create_future()
        loop.add_reader(self._descriptor, _set, ready)
        try:
            await ready
        finally:
            loop.remove_reader(self._descriptor)
        try:
            data = os.read(self._descriptor, _KEY_READ_BYTES)
        except OSError as error:  # the terminal was closed
            raise EOFError(str(error)) from error
        if not data:
            raise EOFError
        return data


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
