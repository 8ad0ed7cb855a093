"""
What the parsers of all dialects share, sans-I/O: the bytes of one answer in, decoded chunks out.

Theory of operation. Chunks are decoded to plain dicts and every field is looked at before it is used, since
many servers speak each dialect and no two of them alike. What can be read is read, what cannot is passed
over, and the answer is judged at its end. An answer that is one JSON object instead of a stream is read as a
stream of one chunk. Its first byte decides, and not its content type, which servers get wrong.

A chunk that decodes to many times its own size, or is nested deeper than the stack allows, is not read
either: `is_decodable` finds those before.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar, final

import attrs
import msgspec

from ...effects.history import Piece
from ...effects.messages import StopReason
from ...effects.usage import Usage
from ...effects.validators import clean
from .errors import is_refusal, stream_error
from .lenient_json import Object, SurrogateJoiner, as_object, decoded, objects
from .wire import AnswerEnd, Broken, Complete, cut_short

# Server-sent events, sans-I/O: bytes in at any split, events out.


# Bytes of one line, or of one event's data, that are kept before giving up.
# A whole answer of 128k tokens is under a megabyte; images in base64 are a few. More is no event stream.
MAX_EVENT = 8 * 1024 * 1024

BOM = b"\xef\xbb\xbf"

# An event's name, empty where none was given, and its data.
ServerEvent = tuple[bytes, bytes]


@final
@attrs.define(eq=False)
class EventSplitter:
    """
    Cuts one stream into its events; `feed` it what arrives, then call `end` once.

    The events do not depend on where the bytes were split. Where a line, or the data of an event, has more
    than `MAX_EVENT` bytes, it is *oversized*: what came before was given out, and nothing comes any more.
    """

    oversized: bool = False
    _tail: bytearray = attrs.Factory(bytearray)  # the line that has not ended
    _data: list[bytes] = attrs.Factory(list)  # the data lines of the event that has not ended
    _size: int = 0
    _name: bytes = b""
    _cr: bool = False  # the last byte was a CR: an LF that follows belongs to it
    _first: bool = True  # no line has ended: it may begin with a byte order mark
    _clean: bool = True  # nothing is kept, the next byte begins an event

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that *data* completes."""
        if b"\r" in data or len(data) > MAX_EVENT:
            return self._by_lines(data)
        events: list[ServerEvent] = []
        if not self._clean:
            # One read of the network ends anywhere: the event that the last one left open comes first.
            rest, end, data = data.partition(b"\n\n")
            events += self._by_lines(rest + end)
        whole, end, rest = data.rpartition(b"\n\n")
        if end and self._clean:
            found = _usual(whole)
            events += self._by_lines(whole + end) if found is None else found
            self._first = False
        return events + self._by_lines(rest) if rest else events

    def _by_lines(self, data: bytes) -> list[ServerEvent]:
        events = self._take(self._lines(data))
        if len(self._tail) > MAX_EVENT:
            self._give_up()
        self._clean = not (self._tail or self._data or self._name or self.oversized)
        return events

    def end(self) -> list[ServerEvent]:
        """The event that the end of the stream cut short of its blank line, if there is one."""
        # The standard drops it, but some servers forget the blank line behind their last event, which has
        # the usage.
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

    def _take(self, lines: list[bytes]) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        for line in [] if self.oversized else lines:
            # A comment's field name is empty; `id` and `retry` are for clients that reconnect.
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                self._data.append(value)
                self._size += len(value) + 1  # empty ones take room, too
            elif field == b"event":
                self._name = value
            elif not line:
                if self._data:
                    events.append((self._name, b"\n".join(self._data)))
                self._data, self._size, self._name = [], 0, b""
            if max(len(line), self._size) > MAX_EVENT:
                self._give_up()
                break
        return events


def _usual(data: bytes) -> list[ServerEvent] | None:
    """
    The events of *data*, where each is a line of data, with a name before it or without; else None.

    Nearly all are. Reading them line by line takes several times as long.
    """
    events: list[ServerEvent] = []
    for block in data.split(b"\n\n"):
        head, line = b"", block
        if not block.startswith(b"data: "):
            head, _, line = block.partition(b"\n")
            if not (head.startswith(b"event: ") and line.startswith(b"data: ")):
                return None
        if b"\n" in line:
            return None
        events.append((head[7:], line[6:]))
    return events


# Bytes of an unstreamed answer that are kept: twice the largest event of a stream.
MAX_UNSTREAMED = 16 * 1024 * 1024

# Values in a chunk: an empty object of two bytes is one of 64 when decoded, so bytes say too little.
MAX_VALUES = 1_000_000

# How deep a chunk may be nested, or up to twice as deep where objects and lists take turns.
# The deepest that a provider sends has ten levels. From some 900 on, the stack of the caller decides what
# can be read.
MAX_CHUNK_DEPTH = 200

# Characters of why a provider refused.
MAX_DETAIL = 2_000

_SMALL = 1_024  # bytes of a chunk that are borne, whatever they hold

# Characters of an answer's id, and of a model's name, that are kept. Some proxies have ids of 400.
MAX_PROVIDER_WORD = 512

_HEAD = 60  # bytes of a body's beginning that are kept, to be shown where it is no answer

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # taken whole, with nothing remembered
_NO_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))

_decode = msgspec.json.Decoder().decode


# What a word for the end means in either dialect; all others are `UNKNOWN`. Most of ours are Anthropic's.
STOPS = {
    "end_turn": StopReason.END_TURN,
    "tool_use": StopReason.TOOL_USE,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "refusal": StopReason.REFUSAL,
    "pause_turn": StopReason.PAUSED,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
}

# Ends at which nothing of the answer is missing.
WHOLE_ENDS = frozenset(STOPS.values()) - {StopReason.MAX_TOKENS}


class BodyParser(ABC):
    """Reads one answer; a dialect says what a chunk means and how it all ended. No bytes make it raise."""

    last: ClassVar[str]  # what a stream ends with

    def __init__(self) -> None:
        self.done = False  # the stream has ended or failed: anything behind that is not read
        self._answered = False  # a part of the answer has come, however small
        self._ended = False  # the answer has said that it came to its own end, so no error makes it void
        self._words: Object = {}  # what came in the place of an answer
        self._sequence = ""  # the stop sequence that was met
        self._detail = ""  # why the provider refused
        self._response = ""  # the provider's id of the answer
        self._model = ""  # its name of the model that gave it
        self._broken: Broken | None = None
        self._head = b""
        self._started = False  # the body's first byte is known
        self._events = EventSplitter()
        self._halves: SurrogateJoiner | None = None  # from the first torn character on
        self._whole: bytearray | None = None  # the body so far, where it is one JSON object

    @property
    @abstractmethod
    def usage(self) -> Usage | None:
        """The usage that the answer reported so far, or None."""

    @abstractmethod
    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        """Read *chunk*: add its pieces to *pieces*, call `_fail` for an error, and set `done` at the end."""

    @abstractmethod
    def _stop(self) -> StopReason | Broken | None:
        """Why an answer without an error ended, or that it failed; None where it did not come to its end."""

    def _rest(self) -> list[Piece]:
        """The pieces that were held back until the answer is over."""
        return []

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that *data*, the next bytes of the body, completes."""
        if len(self._head) < _HEAD:
            data = self._start(data)
        if self.done:
            return []
        if self._whole is None:
            return self._read(self._events.feed(data))
        self._whole += data
        if len(self._whole) > MAX_UNSTREAMED:
            self._whole.clear()
            self._fail(cut_short(f"an unstreamed answer is larger than {MAX_UNSTREAMED} bytes"))
        return []

    def end(self, cut: Broken | None = None) -> AnswerEnd:
        """How the answer ended; *cut* is why its bytes stopped, where that was not their end."""
        rest: list[ServerEvent] = []
        if not self.done:
            rest = self._events.end() if self._whole is None else [(b"", bytes(self._whole))]
        pieces = self._read(rest)
        held = self._rest()
        pieces += held if self._halves is None else [*self._halves.join(held), *self._halves.rest()]
        ending = self._broken or self._stop()
        if isinstance(ending, StopReason):
            usage = self.usage or Usage()
            response, model, detail = self._response, self._model, self._detail
            if self._halves is not None:
                response, model, detail = clean(response), clean(model), clean(detail)
            return Complete(
                stop=ending,
                usage=usage,
                sequence=self._sequence,
                pieces=tuple(pieces),
                response=response,
                model=model,
                detail=detail,
            )
        broken = ending or (None if self.done else cut) or self._nothing()
        return attrs.evolve(broken, usage=self.usage)

    def _introduce(self, chunk: Object) -> None:
        """Note the id of the answer and the name of its model, where *chunk* has them."""
        # By their classes and not by `first_text`: each answer of each run comes by.
        if "id" in chunk and chunk["id"].__class__ is str:
            self._response = chunk["id"][:MAX_PROVIDER_WORD]
        if "model" in chunk and chunk["model"].__class__ is str:
            self._model = chunk["model"][:MAX_PROVIDER_WORD]

    def _fail(self, broken: Broken) -> None:
        """It failed as *broken* says, unless it had come to its own end before."""
        self._broken, self.done = None if self._ended else broken, True

    def _nothing(self) -> Broken:
        """The ending of an answer that holds nothing, or lacks its end."""
        if not self._started:
            return cut_short("the answer is empty")
        if self._answered:
            return cut_short(f"the stream ended without {self.last}")
        if self._words:
            return stream_error(self._words)
        return cut_short(f"the answer holds nothing; it began with {self._head.decode('utf-8', 'replace')!r}")

    def _start(self, data: bytes) -> bytes:
        if self._started:
            self._head = (self._head + data)[:_HEAD]
            return data
        # White space may come for a while before an unstreamed answer, to keep the connection alive.
        begun = (self._head + data).lstrip().removeprefix(BOM).lstrip()
        if BOM.startswith(begun):
            self._head = begun
            return b""
        self._started = True
        self._head = begun[:_HEAD]
        if begun.startswith((b"{", b"[")):
            self._whole = bytearray()
        return begun

    def _read(self, events: list[ServerEvent]) -> list[Piece]:
        pieces: list[Piece] = []
        for name, data in events:
            # Passed over like any chunk that is no JSON: what it was for is not known, and the end is judged
            # anyway.
            if len(data) > _SMALL and not is_decodable(data):
                chunk: Object = {}
            elif data.startswith(b"{"):
                try:
                    chunk = _decode(data)
                except (ValueError, RecursionError):
                    # msgspec refuses half a surrogate pair, which servers send that cut text by UTF-16 units.
                    chunk = as_object(decoded(data.decode("utf-8", "replace")))
                    self._halves = self._halves or SurrogateJoiner()
            else:
                chunk = self._other(data)
            if name == b"error" and not self.done:
                self._fail(stream_error(chunk or data.decode("utf-8", "replace")))
            elif chunk:
                self._chunk(chunk, pieces)
                self._words = self._words if self._answered or not is_refusal(chunk) else chunk
            if self.done:
                break
        else:
            if self._events.oversized and not self.done:
                # Passing over it would leave a gap in the answer that no reader of the pieces could see.
                self._fail(cut_short(f"an event of the stream is larger than {MAX_EVENT} bytes"))
        return pieces if self._halves is None else self._halves.join(pieces)

    def _other(self, data: bytes) -> Object:
        data = data.strip()
        if data == b"[DONE]":
            self.done = True
            return {}
        # Gemini's compatible endpoint wraps an error in a list.
        value = decoded(data.decode("utf-8", "replace"))
        return next(iter(objects(value)), as_object(value))


def is_decodable(data: bytes) -> bool:
    """Whether the JSON *data*, once it is decoded, has bounded size and depth; what is none is borne."""
    opened = data.count(b"{") + data.count(b"[")
    if opened + data.count(b",") > MAX_VALUES:
        return False
    if opened <= MAX_CHUNK_DEPTH:
        return True
    # Only brackets count, outside of strings. Each round takes the innermost pairs away, so the
    # number of rounds is the depth, and no character is looked at in Python.
    brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    for _ in range(MAX_CHUNK_DEPTH):
        outer = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(outer) == len(brackets):
            return True  # there are none any more, or they do not match
        brackets = outer
    return not brackets
