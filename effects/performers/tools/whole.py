"""
The built-in tool that reads on where a result was cut: `read_result`.

It reads text; the files of a result are shown whole, or not at all. Its docstring is what the model reads,
hence the ``Args:`` section.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...config import READER
from .context import ToolContext
from .define import tool
from .result import NOTE

CHARACTERS = 10_000
"""Characters read unless told: half of what a conversation holds of a result, unless it is set otherwise."""

NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


@tool(name=READER, side_effect="read_only", approval="never", resources=())
async def read_result(
    context: ToolContext[object],
    id: str,  # noqa: A002  # the model's word
    offset: NotNegative = 0,
    limit: Positive = CHARACTERS,
) -> str:
    """
    Read a part of a long tool result, of which only the beginning and the end are shown.

    Args:
        id: The id that stands where characters of the result are left out.
        offset: The first character to read; the first of the result is 0.
        limit: How many characters to read, 10000 unless told.
    """
    text = await context.whole(id)
    if text is None:
        msg = f"there is no long result {id[:50]!r}; its id stands where characters of it are left out"
        raise ValueError(msg)
    if offset >= len(text):
        msg = f"there is no character {offset}: the result has {len(text):,}; the first is 0"
        raise ValueError(msg)
    most = limit
    if context.room is not None:
        # What is read is a result itself, which must not be cut again.
        most = max(1, min(limit, context.room - NOTE))
    end = min(offset + most, len(text))
    return text[offset:end] + _note(offset, end, len(text))


def _note(first: int, end: int, length: int) -> str:
    """What stands below the characters from *first* up to *end* of *length*."""
    on = f"; offset={end} goes on" if end < length else ", its end"
    return f"\n[characters {first} to {end} of {length:,}{on}]"
