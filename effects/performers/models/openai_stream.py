"""
The parser of the chat-completions dialect, sans-I/O: bytes of one answer in, pieces and an ending out.

Theory of operation. Chunks are decoded to plain dicts and every field is looked at before it is used, since
two dozen servers speak this dialect and no two of them alike. What can be read is read, what cannot is passed
over, and the stream is judged at its end: by its finish reason, by ``[DONE]``, by an error in its middle.
An answer that is one JSON object instead of a stream is read as a stream of one chunk; its first byte, not
its content type, tells the two apart.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs
import msgspec

from ...events import Failure
from ...messages import StopReason
from ...pieces import Piece, TextPiece
from .errors import in_stream
from .halves import Halves
from .loose import an_object, objects
from .openai_deltas import CallGatherer, content_pieces, reasoning_pieces, usage_of
from .sse import BOM, Event, EventSplitter, OversizedEvent
from .wire import Broken, Complete, Ending

if TYPE_CHECKING:
    from ...usage import Usage
    from .loose import Object

FINISHES: dict[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
    "eos": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "tool_use": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "stop_sequence": StopReason.STOP_SEQUENCE,
}
"""What a `finish_reason` means, in lower case; all others are `UNKNOWN`. None is a reliable sign of calls."""

MAX_ANSWER = 64 * 1024 * 1024
"""Bytes of an unstreamed answer that are kept: eight times the largest event of a stream."""

_HEAD = 60  # bytes of a body's beginning that are kept, to be shown where it is no answer

_decode = msgspec.json.Decoder().decode


@final
class ChatParser:
    """Reads one answer. *stops* are the stop sequences that were asked for. No bytes make it raise."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self.done = False
        self._stops = stops
        self._head = b""
        self._started = False  # the body's first byte is known
        self._events = EventSplitter()
        self._halves: Halves | None = None  # from the first torn character on
        self._whole: bytearray | None = None  # the body so far, where it is one JSON object
        self._calls = CallGatherer()
        self._answered = False
        self._refused = False
        self._finish = ""
        self._sequence = ""
        self._usage: Object | None = None
        self._broken: Broken | None = None

    @property
    def usage(self) -> Usage | None:
        """What the answer said it used so far, or None."""
        return None if self._usage is None else usage_of(self._usage)

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that *data*, the next bytes of the body, completes."""
        if len(self._head) < _HEAD:
            data = self._start(data)
        if self.done or self._broken is not None:
            return []
        if self._whole is not None:
            self._keep(self._whole, data)
            return []
        try:
            events = self._events.feed(data)
        except OversizedEvent as error:
            self._broken = Broken(failure=Failure.CUT, message=str(error))
            return []
        return self._read(events)

    def end(self, cut: Broken | None = None) -> Ending:
        """
        How the answer ended; *cut* is why its bytes stopped, where that was not their end.

        An answer that has its finish reason is whole, whatever happened to the connection afterwards.
        """
        pieces = self._read(self._rest())
        if self._halves is not None:
            pieces += self._halves.rest()
        if self._broken is None and self._finish == "error":
            self._broken = Broken(failure=Failure.CUT, message="the provider ended the answer with an error")
        if self._broken is not None:
            return attrs.evolve(self._broken, usage=self.usage)
        if not self._finish and cut is not None and not self.done:
            return attrs.evolve(cut, usage=self.usage)
        if not self._finish and not (self.done and self._answered):
            return Broken(failure=Failure.CUT, message=self._nothing(), usage=self.usage)
        usage = usage_of(self._usage or {})
        return Complete(stop=self._stop(), usage=usage, sequence=self._sequence, pieces=tuple(pieces))

    def _start(self, data: bytes) -> bytes:
        if self._started:
            self._head = (self._head + data)[:_HEAD]
            return data
        # White space may come for a while before an unstreamed answer, to keep the connection alive.
        begun = (self._head + data).lstrip()
        if BOM.startswith(begun):
            self._head = begun
            return b""
        begun = begun.removeprefix(BOM)
        self._started = True
        self._head = begun[:_HEAD]
        if begun.startswith((b"{", b"[")):
            self._whole = bytearray()
        return begun

    def _keep(self, whole: bytearray, data: bytes) -> None:
        whole += data
        if len(whole) > MAX_ANSWER:
            whole.clear()
            self._broken = Broken(
                failure=Failure.CUT, message=f"an unstreamed answer is larger than {MAX_ANSWER} bytes"
            )

    def _rest(self) -> list[Event]:
        if self.done or self._broken is not None:
            return []
        return self._events.end() if self._whole is None else [(b"", bytes(self._whole))]

    def _read(self, events: list[Event]) -> list[Piece]:
        pieces: list[Piece] = []
        for name, data in events:
            if data.startswith(b"{"):
                try:
                    chunk = _decode(data)
                except (ValueError, RecursionError):
                    chunk = an_object(_decode_leniently(data))
                    self._halves = self._halves or Halves()
            else:
                chunk = self._other(data)
            if name == b"error" and not self.done:
                self._broken = in_stream(chunk or data.decode("utf-8", "replace"))
            elif chunk:
                self._chunk(chunk, pieces)
            if self.done or self._broken is not None:
                break
        return pieces if self._halves is None else self._halves.join(pieces)

    def _other(self, data: bytes) -> Object:
        data = data.strip()
        if data == b"[DONE]":
            self.done = True
            return {}
        # Gemini's compatible endpoint wraps an error in a list.
        value: object = _decode_leniently(data) if data.startswith((b"{", b"[")) else None
        return next(iter(objects(value)), an_object(value))

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self._count(chunk)
            self._broken = in_stream(chunk)
            return
        for choice in objects(chunk.get("choices")):
            # Only one answer is asked for; others that came all the same are not mixed into it.
            if not choice.get("index"):
                self._choice(choice, pieces)
        self._count(chunk)
        if groq := chunk.get("x_groq"):
            self._count(an_object(groq))

    def _choice(self, choice: Object, pieces: list[Piece]) -> None:
        delta = an_object(choice.get("delta") or choice.get("message"))
        if delta:
            self._answered = True
            self._delta(delta, pieces)
        if finish := choice.get("finish_reason"):
            self._finish = str(finish).lower()
            met = choice.get("stop_reason") or choice.get("matched_stop")
            if isinstance(met, str) and (met in self._stops or self._finish == "stop_sequence"):
                self._sequence = met
        self._count(choice)

    def _delta(self, delta: Object, pieces: list[Piece]) -> None:
        content = delta.get("content")
        if content.__class__ is str and len(delta) == 1:  # nearly every chunk there is
            if content:
                pieces.append(TextPiece(content))
            return
        pieces += reasoning_pieces(delta)
        pieces += content_pieces(content)
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            self._refused = True
            pieces.append(TextPiece(refusal))
        pieces += self._calls.read(delta)

    def _count(self, holder: Object) -> None:
        if usage := holder.get("usage"):  # what is told is the total so far, so the last word counts
            self._usage = an_object(usage) or self._usage

    def _stop(self) -> StopReason:
        if self._refused:
            return StopReason.REFUSAL
        if self._sequence:
            return StopReason.STOP_SEQUENCE
        return FINISHES.get(self._finish, StopReason.UNKNOWN)

    def _nothing(self) -> str:
        if not self._started:
            return "the answer is empty"
        if self._answered:
            return "the stream ended without a finish reason or [DONE]"
        return f"the answer holds nothing; it began with {self._head.decode('utf-8', 'replace')!r}"


def _decode_leniently(data: bytes) -> object:
    """What the standard library makes of *data*, or None: it takes NaN and half a surrogate pair."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
