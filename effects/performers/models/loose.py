"""Decoded JSON of unknown make: every look at it says what it expects and bears anything else."""

from __future__ import annotations

from typing import Any, cast

Object = dict[str, Any]
"""A JSON object."""

MOST = 1_000_000_000
"""The largest number that is believed: no answer has a thousand times the tokens of the largest window."""

LONGEST = 1_000
"""Characters of a word that are kept: the id of a call, the name of a tool, a stop sequence that was met."""


def an_object(value: object) -> Object:
    """*value* where it is an object, else an empty one."""
    return cast("Object", value) if isinstance(value, dict) else {}


def objects(value: object) -> list[Object]:
    """The objects in *value*, where that is a list."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Object", item) for item in items if isinstance(item, dict)]


def first_text(holder: Object, *keys: str) -> str:
    """The first of *keys* that is a text and not empty, else an empty one."""
    for key in keys:
        value = holder.get(key)
        if value and isinstance(value, str):
            return value
    return ""


def first_word(holder: Object, *keys: str) -> str:
    """As `first_text`, for what is a word: of a longer one the beginning, with a mark."""
    return word(first_text(holder, *keys))


def word(text: str) -> str:
    """*text*, or its beginning with a mark where it is longer than any word."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def number(holder: Object, *keys: str) -> int:
    """The first of *keys* that is a whole number above 0 and can be believed, else 0."""
    for key in keys:
        value = holder.get(key)
        if isinstance(value, int | float) and value is not True and 0 < value <= MOST and value == value // 1:
            return int(value)
    return 0
