"""Events and other values of the engine that a caller wrote in JSON, with their tags as in a journal."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast, get_args

from ...effects import events
from ...effects.errors import CallerError
from ...effects.records import Change
from ...engine.codec import TAG, UNREADABLE, structure, tag_of
from ...engine.inspect.fork import Replacement
from .problems import Refused

# Each kind by its tag. What a machine makes for itself is none of them.
EVENTS = {tag_of(kind): events.Event for kind in get_args(events.Event) if kind is not events.Entered}
REPLACEMENTS: dict[str, Any] = {
    **EVENTS,
    **{tag_of(kind): events.Decision for kind in get_args(events.Decision)},
    **{tag_of(kind): Change for kind in get_args(Change)},
}


def event_of(plain: dict[str, Any], at: float) -> events.Event:
    """The event that *plain* is, which happens *at* a time unless it says when."""
    return cast("events.Event", _value_of(plain, EVENTS, at, "event"))


def replacement_of(plain: dict[str, Any], at: float) -> Replacement:
    """What happens instead of a step: an event, as `event_of`, a decision or a change."""
    return cast("Replacement", _value_of(plain, REPLACEMENTS, at, "instead"))


def _value_of(plain: dict[str, Any], kinds: dict[str, Any], at: float, what: str) -> object:
    tag = plain.get(TAG)
    if not isinstance(tag, str) or tag not in kinds:
        detail = f"{what} must have a type, one of {', '.join(kinds)}; got {str(tag)[:50]!r}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    timed = {"at": at, **plain} if tag in EVENTS else plain
    try:
        return cast("object", structure(timed, kinds[tag]))
    except CallerError:
        raise
    # Of the converter's errors only that there is one: they repeat what was sent, which may be long.
    except UNREADABLE as error:
        detail = f"{what} is no {tag}: a field is missing, unknown or of another type"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
