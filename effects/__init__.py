"""
The words spoken to the world and back: four closed unions of frozen values.

`Effect` is what a transition returns: a `Request` that gets one answer, a `Cancel`, a `Record` that changes
the memory, or a `Notice` for subscribers. `Event` is what comes back or in. Who does the work is in
`performers`.
"""

from __future__ import annotations

from typing import TypeGuard, get_args

from .notices import Notice
from .records import Record
from .requests import Cancel, Request

# Everything a transition can return.
Effect = Request | Cancel | Record | Notice

# By exact type, since the classes are final: a step asks this of every effect.
_REQUESTS: frozenset[type] = frozenset(get_args(Request))
_RECORDS: frozenset[type] = frozenset(get_args(Record))
_NOTICES: frozenset[type] = frozenset(get_args(Notice))


def is_request(effect: Effect) -> TypeGuard[Request]:
    """Whether *effect* gets an answer."""
    return type(effect) in _REQUESTS


def is_record(effect: Effect) -> TypeGuard[Record]:
    """Whether *effect* changes the memory."""
    return type(effect) in _RECORDS


def is_notice(effect: Effect) -> TypeGuard[Notice]:
    """Whether *effect* is for subscribers and readers."""
    return type(effect) in _NOTICES
