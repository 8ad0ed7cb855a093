"""A conversation as one text, for a model that is to summarise it and not to go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.messages import (
    Binary,
    Finish,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from .encoding import attachment_note

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ...effects.messages import Message, Part

CHARACTERS_PER_TOKEN = 4
"""What a token is taken for, as everywhere where no model has counted."""

ARGUMENTS_SHOWN = 500
"""Characters of a call's arguments that are shown: enough to see what was called with what."""

RESULT_SHOWN = 2_000
"""Characters of a tool's result that are shown: the gist; whole results are what made it too long."""

BEGIN, END = "<conversation>", "</conversation>"

BETWEEN = "\n\n"

_MARK = 80  # characters that are enough to say what is left out


def transcript(messages: Iterable[Message], limit: int | None = None) -> str:
    """
    All *messages* in one text inside a ``<conversation>`` tag, calls and results shortened.

    It has at most *limit* estimated tokens, None for any number. The beginning, where the task and an earlier
    summary stand, and the end, where the work stands, are what is kept then.
    """
    blocks = [f"[{message.role}]\n{shown}" for message in messages if (shown := _shown(message))]
    text = _framed(blocks)
    if limit is None or len(text) <= (most := max(limit, 1) * CHARACTERS_PER_TOKEN):
        return text
    return shorten_middle(_framed(_without_middle(blocks, most - len(_framed(())))), most)


def shorten_middle(text: str, limit: int) -> str:
    """The beginning and the end of *text*, in *limit* characters, with a mark that says what is missing."""
    if len(text) <= limit:
        return text
    kept = limit - len(_cut(len(text)))
    if kept <= 0:
        return text[: max(limit, 0)]
    end = kept // 2
    return text[: kept - end] + _cut(len(text) - kept) + text[len(text) - end :]


def _cut(characters: int) -> str:
    return f" [... {characters:,} characters cut ...] "


def _framed(blocks: Iterable[str]) -> str:
    return BETWEEN.join([BEGIN, *blocks, END])


def _without_middle(blocks: Sequence[str], room: int) -> list[str]:
    """
    The *blocks* of the beginning and of the end that have *room*, and a mark between them.

    No block takes more than a quarter of it, or of few blocks its share, so that one that is large does not
    take the place of all around it; but the first, which may be an earlier summary, may take a half.
    """
    room -= _MARK + len(BETWEEN)
    most = room // min(len(blocks) or 1, 4)
    most_first = max(most, room // 2)
    short = [
        shorten_middle(block, (most if number else most_first) - len(BETWEEN))
        for number, block in enumerate(blocks)
    ]
    begin = _fitting(short, room // 2)
    left = room - sum(_cost(block) for block in short[:begin])
    end = len(short) - _fitting(reversed(short[begin:]), left)
    missing = blocks[begin:end]
    if not missing:
        return short
    mark = f"[... {len(missing):,} messages of {sum(map(len, missing)):,} characters left out ...]"
    return [*short[:begin], mark, *short[end:]]


def _fitting(blocks: Iterable[str], room: int) -> int:
    """How many of *blocks*, taken one after the other, have *room*."""
    count = 0
    for block in blocks:
        room -= _cost(block)
        if room < 0:
            break
        count += 1
    return count


def _cost(block: str) -> int:
    return len(block) + len(BETWEEN)


def _shown(message: Message) -> str:
    return "\n".join([line for part in message.parts if (line := _line(part))])


def _line(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"[calls {part.name}] {shorten_middle(part.arguments, ARGUMENTS_SHOWN)}"
        case ToolResult():
            failed = f", {part.outcome}" if part.is_error else ""
            said = f"[result of {part.name}{failed}] {shorten_middle(part.content, RESULT_SHOWN)}"
            return "\n".join([said, *map(attachment_note, part.files)])
        case Binary():
            return attachment_note(part)
        case Reasoning() | Finish():
            return ""  # thinking is no part of what was said, and how it ended says nothing
