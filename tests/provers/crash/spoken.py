"""Answers that are spoken on the wire of Responses, event by event, as a provider streams them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, final

import attrs
import httpx

from turnwheel.effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from turnwheel.effects.usage import Usage

OVERLOADED = {"type": "error", "code": "server_is_overloaded", "message": "as it happens"}
"""The event with which an answer fails once it has begun."""


def spoken(pieces: Sequence[Piece], usage: Usage, *, fails: bool) -> list[dict[str, Any]]:
    """The events of an answer of *pieces* that used so much; one that *fails* says nothing before."""
    began = {"type": "response.created", "response": {"status": "in_progress"}}
    if fails:
        return [began, OVERLOADED]
    events = [event for number, piece in enumerate(pieces) for event in _events(number, piece)]
    used = {"input_tokens": usage.input, "output_tokens": usage.output}
    return [
        began,
        *events,
        {"type": "response.completed", "response": {"status": "completed", "usage": used}},
    ]


def _events(number: int, piece: Piece) -> list[dict[str, Any]]:
    if isinstance(piece, TextPiece | ReasoningPiece):
        return [{"type": "response.output_text.delta", "item_id": "message", "delta": piece.text}]
    if not isinstance(piece, CallPiece):
        return []  # no script has what a provider does with its own tools
    own = {"id": f"item_{number}", "type": "function_call", "call_id": piece.wire_id, "name": piece.name}
    half = len(piece.arguments) // 2
    deltas = [
        {"type": "response.function_call_arguments.delta", "item_id": own["id"], "delta": part}
        for part in (piece.arguments[:half], piece.arguments[half:])
    ]
    done = {"type": "response.output_item.done", "item": {**own, "arguments": piece.arguments}}
    return [{"type": "response.output_item.added", "item": own}, *deltas, done]


@final
@attrs.frozen
class Spoken(httpx.AsyncBaseTransport):
    """Answers each request with these *events*; *told* is called behind each of them."""

    events: Sequence[dict[str, Any]]
    told: Callable[[], None]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, as it is streamed."""
        await request.aread()
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=self._bytes())

    async def _bytes(self) -> AsyncIterator[bytes]:
        for event in self.events:
            yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            await asyncio.sleep(0)
            self.told()
