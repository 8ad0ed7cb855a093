"""Read keys and lines from a terminal without blocking the event loop, so that Ctrl-C still works."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import termios
import tty
from collections.abc import Callable, Collection, Generator
from typing import final

_KEY_READ_BYTES = 4_096
"""Bytes of one read: more than a key or the longest line of a terminal in line mode."""


_MAX_TYPED_AHEAD = 100_000
"""Bytes, at most, of what is typed before there is a prompt."""

_LOCAL_MODES = 3
"""The index of the local modes in the attributes of a terminal."""

_KEY_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.|.)?")
"""What a terminal sends for a key such as an arrow."""


@contextlib.contextmanager
def without_echo(descriptor: int) -> Generator[None]:
    """
    Within the context, the terminal at *descriptor* does not echo keys, and keeps them for `typed_ahead`.

    A row with keys that were echoed before is erased.
    """
    before = termios.tcgetattr(descriptor)
    mode = termios.tcgetattr(descriptor)
    mode[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)
    try:
        if _has_keys(descriptor):
            with contextlib.suppress(OSError):  # open for reading only
                os.write(descriptor, b"\r\x1b[K")
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def typed_ahead(descriptor: int) -> str:
    """The text typed at *descriptor* so far, edited as its keys say; the terminal is not in line mode."""
    data = b""
    while _has_keys(descriptor) and len(data) < _MAX_TYPED_AHEAD:
        read = os.read(descriptor, _KEY_READ_BYTES)
        if not read:
            break
        data += read
    text = ""
    for char in _KEY_SEQUENCE.sub("", data.decode(errors="replace").replace("\r", "\n")):
        if char in "\b\x7f":
            text = text[:-1]
        elif char == "\x15":
            text = ""
        elif char.isprintable() or char == "\n":
            text += char
    return text.strip("\n")


def _has_keys(descriptor: int) -> bool:
    ready, _, _ = select.select([descriptor], [], [], 0)
    return bool(ready)


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
