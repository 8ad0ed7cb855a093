"""Decoded JSON of unknown make: every look at it says what it expects and bears anything else."""

from __future__ import annotations

from typing import Any, cast

Object = dict[str, Any]
"""A JSON object."""


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


def number(holder: Object, *keys: str) -> int:
    """The first of *keys* that is a whole number above 0, else 0."""
    for key in keys:
        value = holder.get(key)
        if isinstance(value, int | float) and value > 0 and value == value // 1:
            return int(value)
    return 0
