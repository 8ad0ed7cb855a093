"""
Unpacking what a server compressed, a part at a time: a small body never becomes a large one at once.

No request asks for it: an answer is small and comes in bits, which compressing only holds up. Some servers do
it all the same, in the two ways that have always been there.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import final

PART = 64 * 1024
"""Bytes that are unpacked at once: as many as one read of the network brings."""

_AUTO = 32 + zlib.MAX_WBITS  # takes what begins as gzip does, and what begins as zlib does
_RAW = -zlib.MAX_WBITS  # what some servers take deflate for: no beginning at all

Unpack = Callable[[bytes], Iterable[bytes]]
"""Makes of the next bytes that came the parts of the body that they stand for."""


def unpacking(coding: str) -> Unpack | None:
    """How a body with the content-encoding *coding* is read; None where nobody here can."""
    match coding.strip().lower():
        case "" | "identity":
            return as_it_is
        case "gzip" | "x-gzip":
            return _Unpacker(_AUTO)
        case "deflate":
            return _Deflated()
        case _:
            return None


def as_it_is(data: bytes) -> tuple[bytes]:
    """*data*, which nobody packed."""
    return (data,)


async def unpacked(chunks: AsyncIterator[bytes], unpack: Unpack) -> AsyncGenerator[bytes]:
    """The parts that *chunks* unpack to; others get a turn in between, since one may become a thousand."""
    async for data in chunks:
        for number, part in enumerate(unpack(data)):
            if number:
                await asyncio.sleep(0)
            yield part


@final
class _Unpacker:
    """Unpacks one stream; raises `zlib.error` for what is none."""

    def __init__(self, bits: int) -> None:
        self._stream = zlib.decompressobj(bits)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """The parts that *data* is unpacked to, one by one: nobody has to take them all."""
        stream = self._stream
        while not stream.eof:
            part = stream.decompress(data, PART)
            data = stream.unconsumed_tail
            if part:
                yield part
            if len(part) < PART and not data:
                break


@final
class _Deflated:
    """Unpacks what is called deflate: mostly zlib's, but from some servers without its beginning."""

    def __init__(self) -> None:
        self._unpack: _Unpacker | None = None
        self._begun = b""

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """As of `_Unpacker`; its first two bytes tell which it is."""
        if self._unpack is None:
            data = self._begun = self._begun + data
            if len(data) < 2:  # noqa: PLR2004  # the beginning, which is a number that 31 divides
                return
            is_zlib = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2]) % 31 == 0
            self._unpack = _Unpacker(_AUTO if is_zlib else _RAW)
        yield from self._unpack(data)
