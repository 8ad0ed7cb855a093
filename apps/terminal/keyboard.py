"""Read keys and lines from a terminal without blocking the event loop, so that Ctrl-C still works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import termios
import tty
from collections.abc import Callable, Collection, Generator
from typing import final

_KEY_READ_BYTES = 4_096
"""Bytes of one read: more than a key or the longest line of a terminal in line mode."""


@final
class Keyboard:
    """The terminal at *descriptor*, for one reader at a time. Cancelling a read restores the terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before = termios.tcgetattr(descriptor)

    async def key(self, accepted: Collection[str], ask: Callable[[], None]) -> str:
        """
        The key pressed after *ask* has shown the choices: one that is *accepted*, in lower case.

        Input from before the question was visible is discarded, since it cannot be an answer. So are cursor
        keys, pasted text and Enter. Raises `EOFError` if the terminal is closed.
        """
        # As single keys: "ne", and the nothing that is left of a blank, are found in the text "yanes", too.
        keys = tuple(accepted)
        with self._raw():
            ask()
            while True:
                pressed = (await self._read()).decode(errors="replace").strip().lower()
                if pressed in keys:
                    return pressed

    async def line(self, ask: Callable[[], None]) -> str:
        """The line typed after *ask*, with its line end; Ctrl-D ends it without one."""
        termios.tcflush(self._descriptor, termios.TCIFLUSH)
        ask()
        try:
            return (await self._read()).decode(errors="replace")
        except EOFError:
            return ""

    @contextlib.contextmanager
    def _raw(self) -> Generator[None]:
        """Read keys one by one without echo; Ctrl-C is still a signal."""
        self._before = termios.tcgetattr(self._descriptor)
        tty.setcbreak(self._descriptor, termios.TCSAFLUSH)
        try:
            yield
        finally:
            self._as_before()

    def _as_before(self) -> None:
        with contextlib.suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    async def _read(self) -> bytes:
        """The next input. Raises `EOFError` if the terminal is closed."""
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
