"""The sources of a chat's lines: a person at a terminal, or a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import final

import attrs
from rich.text import Text

from ...effects.validators import MAX_PROMPT
from ..terminal.screen import Dock, Screen
from .key_decoder import (
    PASTES_OFF,
    PASTES_ON,
    EditKey,
    KeyDecoder,
)
from .line_editor import LineEditor, lay_out
from .raw_input import Keyboard

PROMPT = "> "
"""Stands before the line that a person types."""

HINT = "ask for something, or /help"
"""Shown on an empty line while no run works."""

_PIPE_READ_BYTES = 65_536
"""Bytes of one read from a pipe."""

_MAX_WAITING_LINES = 1_000
"""Lines of a pipe that may wait; more than that stay in the pipe."""


@final
@attrs.frozen
class Typed:
    """A line, and the time of its first character, in seconds of the event loop's clock."""

    text: str
    started: float


@final
class PipedLines:
    """
    Lines of the file *descriptor*: a pipe, a file, or a terminal without a dock.

    A thread reads them, since an event loop cannot wait for a file. It is a daemon, so it never delays the
    end of the process.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._room = threading.Semaphore(_MAX_WAITING_LINES)

    async def read(self) -> AsyncGenerator[Typed, None]:
        """The lines as they come, without their ends; blank ones are skipped."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=self._pump, args=(loop, queue), name="turnwheel-stdin", daemon=True).start()
        while (line := await queue.get()) is not None:
            self._room.release()
            if line.strip():
                yield Typed(line, loop.time())

    def _pump(self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str | None]) -> None:
        for line in _split_lines(iter(self._chunk, b"")):
            self._room.acquire()  # so a long file is not read into memory at once
            _hand_over(loop, queue, line)
        _hand_over(loop, queue, None)

    def _chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _PIPE_READ_BYTES)
        except OSError:  # the terminal is gone
            return b""


def _split_lines(chunks: Iterable[bytes]) -> Generator[str]:
    """
    The lines in *chunks*; of one that is too long, one character more than the limit, so that it is refused.
    """
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest = ""
    for data in chunks:
        text = decode(data)
        if len(rest) > MAX_PROMPT and "\n" not in text:
            continue
        *lines, rest = (rest + text).split("\n")
        yield from [line.removesuffix("\r")[: MAX_PROMPT + 1] for line in lines]
    yield (rest + decode(b"", final=True))[: MAX_PROMPT + 1]


def _hand_over(loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[str | None], line: str | None) -> None:
    try:
        loop.call_soon_threadsafe(queue.put_nowait, line)
    except RuntimeError:  # the loop is closed: the chat has ended
        return


@final
class TypedLines:
    """
    Lines typed at *keyboard*, at the bottom of *screen*, below the text of *status*.

    *before* is the history for the arrow keys.
    """

    def __init__(
        self, keyboard: Keyboard, screen: Screen, status: Callable[[], Text | None], before: list[str]
    ) -> None:
        self._keyboard = keyboard
        self._screen = screen
        self._status = status
        self._line = LineEditor(before, lambda: asyncio.get_running_loop().time())

    async def read(self) -> AsyncGenerator[Typed, None]:
        """The lines as they are typed, until Ctrl-D; raises `EOFError` if the terminal is closed."""
        keys = KeyDecoder()
        with self._at_the_bottom():
            while True:
                for key in keys.feed(await self._keyboard.read()):
                    if key is EditKey.END_OF_INPUT and not self._line.text:
                        return
                    if key is EditKey.ENTER:
                        typed = Typed(self._line.text, self._line.started)
                        self._line.take()
                        self._screen.redraw()
                        if typed.text.strip():
                            yield typed
                    else:
                        self._pressed(key)
                self._screen.redraw()

    def _pressed(self, key: EditKey | str) -> None:
        if isinstance(key, EditKey):
            self._line.press(EditKey.DELETE if key is EditKey.END_OF_INPUT else key)
        else:
            self._line.put(key)

    def clear(self) -> bool:
        """Clear the line; returns whether it had text."""
        begun = bool(self._line.text)
        self._line.clear()
        self._screen.redraw()
        return begun

    def begin(self, text: str) -> None:
        """Put *text* on the line, for the person to change."""
        self._line.clear()
        self._line.put(text)
        self._screen.redraw()

    @contextmanager
    def lent(self) -> Generator[None]:
        """Leave the keyboard and the screen to another program."""
        with self._screen.undocked(), self._keyboard.lent():
            self._screen.control(PASTES_OFF)
            yield
            self._screen.control(PASTES_ON)

    @contextmanager
    def _at_the_bottom(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            stack.enter_context(self._keyboard.raw())
            stack.callback(self._screen.control, PASTES_OFF)
            self._screen.control(PASTES_ON)
            stack.enter_context(self._screen.dock(self._shown))
            for number, heeds in ((signal.SIGWINCH, self._screen.redraw), (signal.SIGCONT, self._back)):
                loop.add_signal_handler(number, heeds)
                stack.callback(loop.remove_signal_handler, number)
            yield

    def _back(self) -> None:
        """Take the terminal again after Ctrl-Z: the shell has changed its settings."""
        self._keyboard.raw_again()
        self._screen.control(PASTES_ON)
        self._screen.redraw_all()

    def _shown(self) -> Dock:
        status = self._status()
        above = () if status is None else (status,)
        if not self._line.text and status is None:
            return Dock((Text.assemble((PROMPT, "cyan"), (HINT, "dim")),), 0, len(PROMPT))
        width = self._screen.width - 1 - len(PROMPT)
        rows, row, column = lay_out(self._line.text, self._line.caret, width)
        typed = [
            Text.assemble((" " * len(PROMPT) if number else PROMPT, "cyan"), text)
            for number, text in enumerate(rows)
        ]
        return Dock((*above, *typed), len(above) + row, len(PROMPT) + column)


Lines = PipedLines | TypedLines
"""A source of lines."""
