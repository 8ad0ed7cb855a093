"""A value as it was made: its class and the arguments that are not the defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import attrs

from ..effects.config import ModelSpec
from ..effects.permissions import Rule

# Characters shown of a text, and of a whole value.
MAX_TEXT = 60
MAX_ARGUMENTS = 300


def made_of(value: object) -> str:
    """
    *value*, of an attrs class, with its changed arguments, in at most `MAX_ARGUMENTS` characters.

    Fields without a repr are left out: they may hold secrets.
    """
    text = _call(value)
    return text if len(text) <= MAX_ARGUMENTS else f"{text[: MAX_ARGUMENTS - 4]}...)"


def _call(value: Any) -> str:  # noqa: ANN401  # any attrs class
    shown = [text if by_order else f"{name}={text}" for name, by_order, text in _changed(value)]
    return f"{type(value).__name__}({', '.join(shown)})"


def _changed(value: Any) -> Iterator[tuple[str, bool, str]]:  # noqa: ANN401  # any attrs class
    """The fields of *value* that are not the defaults: the name, whether it goes without it, and the text."""
    for field in attrs.fields(type(value)):
        given = getattr(value, field.name)
        if not field.init or field.repr is False or _is_default(value, field, given):
            continue
        text = str(field.repr(given)) if callable(field.repr) else _shown(given)
        yield field.alias or field.name, not field.kw_only, text


def _is_default(value: object, field: attrs.Attribute[Any], given: object) -> bool:
    default: Any = field.default
    # `attrs.Factory` is a function for type checkers.
    if hasattr(default, "takes_self"):
        default = default.factory(value) if default.takes_self else default.factory()
    return given is default or (type(given) is type(default) and given == default)


def _shown(value: Any) -> str:  # noqa: ANN401  # any value
    if attrs.has(type(value)) and not _name(value):
        return _shown_value(value)
    match value:
        case tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case Mapping():
            return f"{{{', '.join(f'{_shown(key)}: {_shown(each)}' for key, each in value.items())}}}"
        case Enum() | PurePath():
            text = repr(str(value))
        case str():
            text = repr(value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}...")
        case _:
            # Without the address of an object, which tells a reader nothing.
            bare = repr(value) == object.__repr__(value)
            text = _name(value) or (type(value).__name__ if bare else repr(value))
    return text


def _shown_value(value: object) -> str:
    """*value* of an attrs class, as a text where it may be written so."""
    if isinstance(value, Rule):
        return repr(str(value))
    if isinstance(value, ModelSpec) and value == ModelSpec(value.name):
        return repr(value.name)
    return _call(value)


def _name(value: object) -> str:
    """The name of a class, a function or a tool; empty for anything else."""
    name: object = getattr(value, "__name__", None) or getattr(getattr(value, "spec", None), "name", "")
    return str(name) if callable(value) else ""
