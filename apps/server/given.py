"""Events and other values of the engine that a caller wrote in JSON, with their tags as in a journal."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, cast, get_args

import attrs

from ...effects import events
from ...effects.errors import CallerError
from ...effects.records import Change
from ...effects.spelling import hint
from ...engine.core.codec import TAG, UNREADABLE, converter, structure
from ...engine.inspect.fork import Replacement, check_replacement
from .problems import Refused

# Each kind by its tag. What a machine makes for itself is none of them.
EVENTS = {kind.__name__: events.Event for kind in get_args(events.Event) if kind is not events.Entered}
REPLACEMENTS: dict[str, Any] = {
    **EVENTS,
    **{kind.__name__: events.Decision for kind in get_args(events.Decision)},
    **{kind.__name__: Change for kind in get_args(Change)},
}
CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind for union in (events.Event, events.Decision, Change) for kind in get_args(union)
}

# Characters of a field's name that an error quotes.
MAX_NAMED = 100


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
        made = cast("object", structure(timed, kinds[tag]))
        # The converter makes a text of anything, and a number of a text.
        written = converter.unstructure(made, kinds[tag])
        same = _says(written, timed)
    except CallerError:
        raise
    # Of the converter's errors only that there is one: they repeat what was sent, which may be long.
    except UNREADABLE as error:
        detail = f"{what} is no {tag}: {_fault(timed, CLASSES[tag])}"
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
    if not same:
        wrong = ", ".join(
            [key for key, value in timed.items() if key in written and not _says(written[key], value)]
        )
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{what} is no {tag}: {wrong} is of another type")
    # An input that no session takes, such as an empty prompt, is not tried either.
    if isinstance(made, events.Post):
        check_replacement(made)
    return made


def _fault(given: dict[str, Any], kind: type[Any]) -> str:
    """What is wrong with *given*, of which no *kind* can be made."""
    fields = attrs.fields_dict(attrs.resolve_types(kind))
    if unknown := [key for key in given if key not in {*fields, TAG}]:
        return f"unknown field {unknown[0][:MAX_NAMED]!r}; {hint(unknown[0], fields)}"
    missing = [name for name, field in fields.items() if name not in given and field.default is attrs.NOTHING]
    if missing:
        return f"it lacks the field {missing[0]!r}"
    for name in [name for name in fields if name in given]:
        try:
            structure(given[name], cast("Any", fields[name].type))
        except UNREADABLE:
            return f"{name} is of another type"
    return "a field is of another type"


def _says(written: Any, given: Any) -> bool:  # noqa: ANN401  # what JSON is made of
    """Whether *written* says what was *given*, but for fields at their default, which it leaves out."""
    if isinstance(written, dict) and isinstance(given, dict):
        return all(key not in written or _says(written[key], value) for key, value in given.items())
    if isinstance(written, list) and isinstance(given, list):
        return len(written) == len(given) and all(map(_says, written, given))
    # True is 1 to Python, and a mistake in a number.
    kinds = (bool, int | float, str, type(None))
    kind = next((kind for kind in kinds if isinstance(written, kind)), object)
    return (
        isinstance(given, kind)
        and isinstance(written, bool) == isinstance(given, bool)
        and bool(written == given)
    )
