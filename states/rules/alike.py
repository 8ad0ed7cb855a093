"""
When two calls of one tool are alike, by their arguments.

Arguments are text as a model wrote it. Those that mean the same are equal: in any order, with any white
space, 1 and 1.0 alike, but not 1 and ``true``.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING

from .schema import arguments_of

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE = 0.5
"""The share of the arguments that are equal in calls that are similar."""

LONG = 1_000
"""
Characters of arguments that are read; longer ones are only compared as they stand.

They are contents rather than parameters, and what is read is remembered.
"""

PAGES = frozenset(
    {
        *("offset", "limit", "page", "start_line", "end_line", "cursor", "after", "before"),
        *("next_page_token", "page_token", "skip"),
    }
)
"""Arguments that turn pages."""


# Made once: `json.dumps` would make one for every value.
_encode = json.JSONEncoder(sort_keys=True).encode


def alike(one: str, other: str) -> bool:
    """
    Whether calls with these arguments are the same or similar; turning pages is neither.

    Similar they are by what else they are told: many a call has the same limit.
    """
    if one == other:
        return True
    if len(one) > LONG or len(other) > LONG:
        return False
    mine, theirs = _values(one), _values(other)
    if mine is None or theirs is None:
        return mine is theirs  # neither is what a tool takes
    names = mine.keys() | theirs.keys()
    differing = {name for name in names if mine.get(name) != theirs.get(name)}
    if differing <= PAGES:
        return not differing
    names -= PAGES
    return len(names - differing) >= SHARE * len(names)


@lru_cache(maxsize=1_024)
def canonical(arguments: str) -> str:
    """*arguments*, which are not `LONG`, in a form in which those that mean the same are equal."""
    values = _values(arguments)
    return arguments if values is None else repr(sorted(values.items()))


@lru_cache(maxsize=1_024)
def _values(arguments: str) -> Mapping[str, str] | None:
    """The JSON text of each of *arguments*; None where they are no JSON object."""
    # The same texts come by at each turn.
    values = arguments_of(arguments)
    if values is None:
        return None
    return {name: _encode(_whole(value)) for name, value in values.items()}


def _whole(value: object) -> object:
    """*value* with each number that is whole as an integer."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_whole(each) for each in value]
        case dict():
            return {name: _whole(each) for name, each in value.items()}
        case _:
            return value
