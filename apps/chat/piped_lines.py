"""Read the lines of a chat from a pipe, a file, or a terminal that cannot draw a prompt."""

from __future__ import annotations

import asyncio
import codecs
import os
import threading
from collections.abc import AsyncGenerator, Generator, Iterable
from typing import final

import attrs

from ...effects.validators import MAX_PROMPT

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
    Lines of the file *descriptor*: a pipe, a file, or a terminal without a prompt below its text.

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
