"""What the vocabularies share: events as plain data, and how values of ours look in them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Protocol

from ...effects.errors import ArgumentError
from ...effects.notices import Notice
from ...effects.text import clean
from ...states.rules.schema import arguments_of

Plain = dict[str, object]
"""One event of a vocabulary: strings, numbers, booleans, None, lists and dicts; *type* is its name."""

Events = tuple[Plain, ...]

REDACTED = "[redacted]"

SECRET = re.compile("token|secret|password|key|auth", re.IGNORECASE)
"""Names of arguments that are secrets. One too many is hidden (`max_tokens`), rather than one too few."""

DEEP = 32
"""Levels of an argument that are shown: a model may nest deeper than whoever reads can."""


class Projection(Protocol):
    """Notices in, events of one vocabulary out. Feed it the notices of one session, in order."""

    def take(self, notice: Notice) -> Events:
        """What *notice* is in this vocabulary: mostly one event, often none, sometimes some."""
        ...


def shown(arguments: str) -> object:
    """What *arguments*, JSON text, say; the text itself where it is no JSON object."""
    parsed = arguments_of(arguments)
    return arguments if parsed is None else _plain(parsed)


def redacted(arguments: str) -> object:
    """As `shown`, with the values of secrets left out, and nothing of what is no JSON object."""
    parsed = arguments_of(arguments)
    return REDACTED if parsed is None else _plain(parsed, hide=True)


def _plain(value: object, depth: int = 0, *, hide: bool = False) -> object:
    match value:
        case dict() | list() if depth == DEEP:
            return "[...]"
        case dict():
            return {
                key: REDACTED if hide and SECRET.search(key) else _plain(inner, depth + 1, hide=hide)
                for key, inner in value.items()
            }
        case list():
            return [_plain(inner, depth + 1, hide=hide) for inner in value]
        case float() if not isfinite(value):
            return str(value)  # 1e999 is JSON, and what it is read as is not
        case _:
            return value


def to_sse(event: Mapping[str, object]) -> bytes:
    """
    *event*, of any vocabulary, as one frame of a `text/event-stream`: its type, and all of it as one line.

    Raises `ArgumentError` for what is no event.
    """
    name = event.get("type")
    if not isinstance(name, str) or not name or not name.isprintable():
        msg = f"an event has a 'type' that names it; got {event!r}"
        raise ArgumentError(msg)
    try:
        data = json.dumps(event, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        msg = f"an event is made of what JSON is made of; got {event!r} ({error})"
        raise ArgumentError(msg) from error
    return clean(f"event: {name}\ndata: {data}\n\n").encode()
