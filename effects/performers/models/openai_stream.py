"""
The parser of the chat-completions dialect, sans-I/O: bytes of one answer in, pieces and an ending out.

Theory of operation. An answer is chunks with a choice each, and a choice has a delta of text, thinking or
calls. The stream is judged at its end: by its finish reason, by ``[DONE]``, by an error in its middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ...events import Failure
from ...messages import StopReason
from ...pieces import Piece, TextPiece
from ...text import clean
from ...usage import Usage
from .body import BodyParser
from .errors import in_stream
from .loose import an_object, objects, word
from .openai_deltas import CallGatherer, content_pieces, reasoning_pieces, usage_of
from .wire import Broken, Complete, Ending

if TYPE_CHECKING:
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
    "model_context_window_exceeded": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
    "refusal": StopReason.REFUSAL,
    "stop_sequence": StopReason.STOP_SEQUENCE,
}
"""What a `finish_reason` means, in lower case; all others are `UNKNOWN`. None is a reliable sign of calls."""


@final
class ChatParser(BodyParser):
    """Reads one answer. *stops* are the stop sequences that were asked for. No bytes make it raise."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._stops = stops
        self._calls = CallGatherer()
        self._answered = False
        self._refused = False
        self._finish = ""
        self._sequence = ""
        self._usage: Object | None = None

    @property
    def usage(self) -> Usage | None:
        """What the answer said it used so far, or None."""
        return None if self._usage is None else usage_of(self._usage)

    def _ending(self, cut: Broken | None, pieces: tuple[Piece, ...]) -> Ending:
        # An answer that has its finish reason is whole, whatever happened to the connection afterwards.
        if self._finish == "error":
            return Broken(failure=Failure.CUT, message="the provider ended the answer with an error")
        if self._finish or (self.done and self._answered):
            usage = self.usage or Usage()
            return Complete(stop=self._stop(), usage=usage, sequence=self._sequence, pieces=pieces)
        if cut is not None and not self.done:
            return cut
        return self._nothing("a finish reason or [DONE]" if self._answered else "")

    def _chunk(self, chunk: Object, pieces: list[Piece]) -> None:
        if chunk.get("error") or chunk.get("object") == "error":
            self._count(chunk)
            self._fail(in_stream(chunk))
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
            self._finish = finish.lower() if isinstance(finish, str) else type(finish).__name__
            met = choice.get("stop_reason") or choice.get("matched_stop")
            if isinstance(met, str) and (met in self._stops or self._finish == "stop_sequence"):
                self._sequence = met if met in self._stops else clean(word(met))
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
