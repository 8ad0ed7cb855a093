"""
Server-sent events, sans-I/O: bytes in at any split, events out.

Theory of operation. Model servers send one small event per network chunk, so a chunk that is nothing but
whole ``data:`` events is cut with `bytes.split` and never looked at line by line. Everything else (torn
chunks, CR line ends, comments, names, data over several lines) goes through `_lines`, which keeps the
unfinished line, and `_take`, which keeps the unfinished event.
"""

from __future__ import annotations

from typing import final

MAX_LINE = 8 * 1024 * 1024
"""
Bytes of one line, or of one event's data, that are kept before giving up.

A whole answer of 128k tokens is under a megabyte; images in base64 are a few. More is no event stream.
"""

BOM = b"\xef\xbb\xbf"

Event = tuple[bytes, bytes]
"""An event's name, empty where none was given, and its data."""


@final
class EventSplitter:
    """
    Cuts one stream into its events; `feed` it what arrives, then call `end` once.

    The events do not depend on where the bytes were split. Where a line, or the data of an event, has more
    than `MAX_LINE` bytes, it is *oversized*: what came before was given out, and nothing comes any more.
    """

    __slots__ = ("_clean", "_cr", "_data", "_first", "_name", "_size", "_tail", "oversized")

    def __init__(self) -> None:
        self.oversized = False
        self._tail = bytearray()  # the line that has not ended
        self._data: list[bytes] = []  # the data lines of the event that has not ended
        self._size = 0
        self._name = b""
        self._cr = False  # the last byte was a CR: an LF that follows belongs to it
        self._first = True  # no line has ended: it may begin with a byte order mark
        self._clean = True  # nothing is kept, the next byte begins an event

    def feed(self, data: bytes) -> list[Event]:
        """The events that *data* completes."""
        if self._clean and data.endswith(b"\n\n") and len(data) <= MAX_LINE and b"\r" not in data:
            events: list[Event] = []
            for block in data[:-2].split(b"\n\n"):
                if not block.startswith(b"data: ") or b"\n" in block:
                    break
                events.append((b"", block[6:]))
            else:
                self._first = False
                return events
        events = self._take(self._lines(data))
        if len(self._tail) > MAX_LINE:
            self._give_up()
        self._clean = not (self._tail or self._data or self._name or self._cr or self.oversized)
        return events

    def end(self) -> list[Event]:
        """The event that the end of the stream cut short of its blank line, if there is one."""
        # The standard drops it, but some servers forget the blank line behind their last event.
        line, self._tail = bytes(self._tail), bytearray()
        return self._take([line, b""])

    def _give_up(self) -> None:
        self.oversized = True
        self._tail, self._data = bytearray(), []

    def _lines(self, data: bytes) -> list[bytes]:
        if self._cr and data:
            data = data.removeprefix(b"\n")
            self._cr = False
        if b"\r" in data:
            self._cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        head, *rest = data.split(b"\n")
        self._tail += head
        if not rest:
            return []
        lines = [bytes(self._tail), *rest]
        self._tail = bytearray(lines.pop())
        if self._first:
            lines[0] = lines[0].removeprefix(BOM)
            self._first = False
        return lines

    def _take(self, lines: list[bytes]) -> list[Event]:
        events: list[Event] = []
        for line in lines:
            if self.oversized:
                break
            if line:
                self._field(line)
            elif self._data:
                events.append((self._name, b"\n".join(self._data)))
                self._data, self._size, self._name = [], 0, b""
            else:
                self._name = b""
        return events

    def _field(self, line: bytes) -> None:
        if len(line) > MAX_LINE:
            self._give_up()
            return
        # A comment's field name is empty; `id` and `retry` are for clients that reconnect.
        field, _, value = line.partition(b":")
        if field == b"data":
            value = value.removeprefix(b" ")
            self._size += len(value) + 1  # empty ones take room, too
            if self._size > MAX_LINE:
                self._give_up()
            else:
                self._data.append(value)
        elif field == b"event":
            self._name = value.removeprefix(b" ")
