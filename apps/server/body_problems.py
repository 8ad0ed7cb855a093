"""What is wrong with the body of a request, in words that name what is allowed in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import inspect

from ...effects.spelling import hint
from .bodies import SESSION_ID, SPOKEN

# What a pattern of a text asks for; the pattern itself tells a person little.
ASKED_BY_PATTERN = {
    SPOKEN: "must have some text besides blanks",
    SESSION_ID: "must be 1 to 200 of the letters A to Z, digits and ._~:@+=,- (and neither . nor ..)",
}

_WITH_PLACE = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<place>[^`]*)`)?", re.DOTALL)
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING_FIELD = re.compile(r"Object missing required field `(.*)`", re.DOTALL)
_UNKNOWN_VALUE = re.compile(r"Invalid (?:enum )?value '(.*)'", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex .*", re.DOTALL)
# A field, or an element of a list.
_PLACE_STEP = re.compile(r"\.([^.\[]+)|\[[^\]]*\]")

# Characters of a value that an error quotes.
_MOST_QUOTED = 100


def body_problem(data: bytes, kind: object, error: Exception) -> str:
    """What *error* says of the body *data*, which was to be of *kind*."""
    if not data.strip():
        names = ", ".join(_fields([inspect.type_info(kind)]))
        return f"the body is empty; send a JSON object with some of: {names}"
    if not isinstance(error, msgspec.ValidationError):
        return f"the body is malformed: {error}"
    parts = _WITH_PLACE.fullmatch(str(error))
    problem, place = (str(error), "") if parts is None else (parts["problem"], parts["place"] or "")
    where, root = place.removeprefix("."), inspect.type_info(kind)
    if not place and (field := _UNKNOWN_FIELD.fullmatch(problem)) and (holders := _tags_with(field[1], root)):
        return f"the body is malformed: {field[1]} goes only with {' or '.join(holders)}"
    known = _wrong_field(problem, where, root, place) or _wrong_value(problem, where, _at(root, place))
    return f"the body is malformed: {known or error}"


def _wrong_field(problem: str, where: str, root: inspect.Type, place: str) -> str:
    """A *problem* with the fields of the object at *place*; empty for another one."""
    if field := _UNKNOWN_FIELD.fullmatch(problem):
        holder = f" in {where}" if where else ""
        return (
            f"unknown field {field[1][:_MOST_QUOTED]!r}{holder}; {hint(field[1], _fields(_at(root, place)))}"
        )
    if field := _MISSING_FIELD.fullmatch(problem):
        values = _values(_at(root, f"{place}.{field[1]}"))
        holder = where or "it"
        return f"{holder} lacks the field {field[1]!r}{', one of ' * bool(values)}{', '.join(values)}"
    return ""


def _tags_with(field: str, root: inspect.Type) -> list[str]:
    """Those of several objects that *root* may be which have *field*, as ``decision 'approve'``."""
    structs = [each for each in _members(root) if isinstance(each, inspect.StructType) and each.tag_field]
    return [f"{each.tag_field} {each.tag!r}" for each in structs if field in _fields([each])]


def _wrong_value(problem: str, where: str, types: Sequence[Any]) -> str:
    """A *problem* with the value of the field *where*, of one of *types*; empty for another one."""
    if (value := _UNKNOWN_VALUE.fullmatch(problem)) and (values := _values(types)):
        return f"{where} cannot be {value[1][:_MOST_QUOTED]!r}; {hint(value[1], values)}"
    if _PATTERN.fullmatch(problem):
        patterns = [each.pattern for each in types if isinstance(each, inspect.StrType)]
        asked = next((ASKED_BY_PATTERN[each] for each in patterns if each in ASKED_BY_PATTERN), "")
        return f"{where} {asked}" if asked else ""
    return ""


def _at(root: inspect.Type, place: str) -> list[Any]:
    """The types that a value at *place* in one of *root* may have; of a tag, the literal of its words."""
    types = _members(root)
    for step in _PLACE_STEP.finditer(place):
        types = [each for holder in types for each in _below(holder, step[1])]
    return types


def _below(holder: inspect.Type, field: str | None) -> Sequence[Any]:
    if field is None:
        element = getattr(holder, "item_type", None)
        return [] if element is None else _members(element)
    if not isinstance(holder, inspect.StructType):
        return []
    if field == holder.tag_field:
        return [inspect.LiteralType((str(holder.tag),))]
    return [each for one in holder.fields if one.encode_name == field for each in _members(one.type)]


def _members(type_: inspect.Type) -> list[Any]:
    if isinstance(type_, inspect.Metadata):
        return _members(type_.type)
    return [*type_.types] if isinstance(type_, inspect.UnionType) else [type_]


def _fields(types: Iterable[Any]) -> list[str]:
    """The names of the fields that objects of *types* may have."""
    structs = [each for kind in types for each in _members(kind) if isinstance(each, inspect.StructType)]
    names = [name for each in structs for name in (each.tag_field, *[one.encode_name for one in each.fields])]
    return [*dict.fromkeys(name for name in names if name)]


def _values(types: Iterable[Any]) -> list[str]:
    """The words that a value of one of *types* may be; none where it may be any text."""
    words: list[str] = []
    for each in types:
        if isinstance(each, inspect.LiteralType):
            words += [str(value) for value in each.values]
        elif isinstance(each, inspect.EnumType):
            words += [str(member.value) for member in each.cls]
    return words
