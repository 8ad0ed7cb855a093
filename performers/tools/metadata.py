"""
What `Annotated` says of a parameter besides its type: constraints and descriptions, of several libraries.

None of the libraries but msgspec is imported: their classes are known by module, name and attributes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, final

import attrs
import msgspec

# The classes of annotated_types that msgspec can check, with the keyword of `msgspec.Meta`.
_BOUNDS = {
    "Gt": "gt",
    "Ge": "ge",
    "Lt": "lt",
    "Le": "le",
    "MultipleOf": "multiple_of",
    "MinLen": "min_length",
    "MaxLen": "max_length",
}

# How each bound reads, how it is checked where msgspec does not, and its keyword in a JSON Schema.
_COMPARED: Mapping[str, tuple[str, Callable[[Any, Any], bool], str]] = {
    "gt": (">", operator.gt, "exclusiveMinimum"),
    "ge": (">=", operator.ge, "minimum"),
    "lt": ("<", operator.lt, "exclusiveMaximum"),
    "le": ("<=", operator.le, "maximum"),
    "multiple_of": ("a multiple of", lambda value, factor: value % factor == 0, "multipleOf"),
}

_NUMERIC = (int, float, Decimal)

UNDERSTOOD = (
    "a text, typing_extensions.Doc, msgspec.Meta, pydantic's Field, and of annotated_types Gt, Ge, Lt, Le, "
    "Interval, MultipleOf, MinLen, MaxLen, Len, Predicate, Timezone and Unit are understood"
)


@final
@attrs.frozen
class ValueCheck:
    """A condition on a decoded value: *passes* says whether it holds, *says* what it is."""

    says: str
    passes: Callable[[Any], bool]
    schema: Mapping[str, object] = attrs.field(factory=dict)


@final
@attrs.define
class Metadata:
    """What was understood: keywords of `msgspec.Meta`, what to check ourselves, descriptions."""

    metas: list[msgspec.Meta] = attrs.field(factory=list)
    bounds: dict[str, Any] = attrs.field(factory=dict)
    checks: list[ValueCheck] = attrs.field(factory=list)
    texts: list[str] = attrs.field(factory=list)


def text_of(each: object) -> str | None:
    """The description that *each* is or has; None where it is none."""
    told = each if isinstance(each, str) else getattr(each, "documentation", None)
    return told if isinstance(told, str) else None


def from_annotated_types(each: object) -> bool:
    """Whether *each* is a constraint of annotated_types."""
    return type(each).__module__.partition(".")[0] == "annotated_types"


def understood(metadata: Iterable[object]) -> Metadata:
    """*metadata*, sorted; raises `ValueError` for what is not understood."""
    found = Metadata()
    for each in metadata:
        if isinstance(each, msgspec.Meta):
            found.metas.append(each)
        elif (text := text_of(each)) is not None:
            found.texts.append(text)
        elif each is not None:  # pydantic's own types have a None where a constraint is not given
            _constrain(found, each)
    return found


def _constrain(found: Metadata, each: Any) -> None:  # noqa: ANN401  # whatever was written
    """Add the constraint *each* to *found*."""
    name = type(each).__name__ if from_annotated_types(each) else ""
    if name in _BOUNDS:
        keyword = _BOUNDS[name]
        if keyword in found.bounds:
            msg = f"has two constraints of one kind, the second is {each!r}; keep one"
            raise ValueError(msg)
        found.bounds[keyword] = getattr(each, keyword)
    elif name in {"Interval", "Len"}:
        for part in each:
            _constrain(found, part)
    elif name == "Predicate":
        function = each.func
        says = f"a value that passes {getattr(function, '__qualname__', repr(function))}"
        found.checks.append(ValueCheck(says, function))
    elif name == "Timezone" and each.tz in {None, ...}:
        found.bounds["tz"] = each.tz is ...
    elif name == "Unit":
        found.texts.append(f"unit: {each.unit}")
    else:
        msg = f"has the metadata {each!r}, which is not understood; {UNDERSTOOD}"
        raise ValueError(msg)


def check_of(keyword: str, bound: object, kinds: Iterable[Any]) -> ValueCheck:
    """The check of a bound on *kinds* that msgspec has no bounds for; raises `ValueError` for a misfit."""
    sign, compare, schema = _COMPARED.get(keyword, ("", operator.eq, ""))
    for kind in kinds:
        numeric = kind in _NUMERIC and isinstance(bound, _NUMERIC)
        if not sign or not (numeric or (isinstance(kind, type) and isinstance(bound, kind))):
            msg = f"has the constraint {keyword}={bound!r}, which does not fit the type {kind!r}"
            raise ValueError(msg)
    shown = msgspec.to_builtins(bound)
    return ValueCheck(
        f"{sign} {shown}", lambda value: value is None or compare(value, bound), {schema: shown}
    )
