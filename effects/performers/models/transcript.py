"""A conversation as one text, for a model that is to summarise it and not to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...messages import Binary, Finish, Reasoning, Text, ToolCall, ToolResult
from .encoding import named

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...messages import Message, Part

MAX_ARGUMENTS = 200
"""Characters of a call's arguments that are shown: enough to see what was called with what."""

MAX_RESULT = 2_000
"""Characters of a tool's result that are shown: the gist; whole results are what made it too long."""


def transcript(messages: Iterable[Message]) -> str:
    """All *messages* in one text inside a ``<conversation>`` tag, calls and results shortened."""
    blocks = [f"[{message.role}]\n{shown}" for message in messages if (shown := _shown(message))]
    return "\n\n".join(["<conversation>", *blocks, "</conversation>"])


def _shown(message: Message) -> str:
    return "\n".join([line for part in message.parts if (line := _line(part))])


def _line(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[calls {part.name}] {_shorten(part.arguments, MAX_ARGUMENTS)}"
        case ToolResult():
            failed = f", {part.outcome}" if part.is_error else ""
            said = f"[result of {part.name}{failed}] {_shorten(part.content, MAX_RESULT)}"
            return "\n".join([said, *map(named, part.files)])
        case Binary():
            return named(part)
        case Reasoning() | Finish():
            return ""  # thinking is no part of what was said, and how it ended says nothing


def _shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}... [{len(text) - limit} characters cut]"
