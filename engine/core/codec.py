"""
Values to bytes and back: the one converter of this library. `journal.encoding` adds the version of entries.

Unions are tagged with the name of the class, fields at their default are left out, and the bytes are JSON, so
any tool can read a journal. Data that cannot be read is a `JournalError` that says where.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cache, lru_cache
from typing import Any, get_args

import cattrs
import msgspec
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from ... import effects, states
from ...effects.validators import MAX_ENTRY
from ...states.batch.batch import Forever
from ...states.context import AsConfigured, NotBegun
from ..journal.entries import Entry

TAG = "type"

# Every closed union that is stored or sent.
UNIONS: frozenset[Any] = frozenset(
    (
        effects.Piece,
        effects.Part,
        effects.Decision,
        effects.View,
        effects.Change,
        states.Timer | Forever,
        effects.SetThinking | AsConfigured,
        effects.SetInstructions | NotBegun,
        effects.OutputWish,
        states.Phase,
        states.Stage,
        states.Intake,
        states.CompactStage,
        effects.Event,
        effects.Post,
        effects.Request,
        effects.Record,
        effects.Notice,
        states.State,
        Entry,
    )
)


# Digits before or behind the point of an amount of money. Python's decimals round silently beyond their
# precision, and a budget with an exponent in the millions would cost minutes to add up.
MOST_DIGITS = 30

# Configurations that a process remembers as text, and the bytes that one may have for it: 4 MB in all. One
# with a dozen tools has some kilobytes.
MOST_CONFIGS, LARGEST_CONFIG = 64, 65_536

# The settings of a run.
SETTINGS: frozenset[Any] = frozenset(
    {
        *(effects.ToolSpec, effects.Limits, effects.Price, effects.ModelSpec, effects.Policy),
        *(effects.Retries, effects.Compaction, effects.Loops, effects.Rule, effects.HookSpec),
        *(effects.ChildSpec, effects.Config),
    }
)


def _unstructure_rope(rope: effects.Rope) -> dict[str, Any]:
    # As a flat list: how a rope is cut into chunks is of no concern to a reader, and may change.
    return {"count": rope.count, "pieces": converter.unstructure(rope.pieces, tuple[effects.Piece, ...])}


def _structure_rope(value: dict[str, Any], _: type[effects.Rope]) -> effects.Rope:
    # The count is stored beside the pieces: merged pieces are fewer than arrived. The next piece is checked
    # against the count, so a recount would refuse it.
    return effects.Rope.of(converter.structure(value["pieces"], tuple[effects.Piece, ...]), value["count"])


def _structure_decimal(value: object, _: type[Decimal]) -> Decimal:
    # Money is text in JSON. A float from other tools is read by its digits, not by its binary fraction.
    made = Decimal(str(value))
    # NaN compares as unequal to every limit, so a budget with it would never be reached.
    if not made.is_finite() or abs(made.adjusted()) > MOST_DIGITS:
        msg = f"no amount of money: {value!r:.50}"
        raise ValueError(msg)
    return made


@cache
def _config_reader() -> Callable[..., effects.Config]:
    return make_dict_structure_fn(effects.Config, converter)


def new_config(value: dict[str, Any]) -> effects.Config:
    """The configuration that the plain *value* is."""
    return _config_reader()(value, effects.Config)


@lru_cache(MOST_CONFIGS)
def _shared_config(text: bytes) -> effects.Config:
    """The configuration that *text* is; equal texts are one object."""
    return new_config(msgspec.json.decode(text))


def _structure_config(value: dict[str, Any], _: type[effects.Config]) -> effects.Config:
    # Each run of a journal has one, and the sessions of a process have few: as text it is found forty times
    # as quick as it is made.
    text = msgspec.json.encode(value)
    return _shared_config(text) if len(text) <= LARGEST_CONFIG else new_config(value)


def _unstructure_settings(kind: type) -> Callable[[Any], dict[str, Any]]:
    # In full: a default that changes one day must not change the settings of an old run.
    return make_dict_unstructure_fn(kind, converter)


# What cattrs offers for tagged unions generates the hooks of all members at once, which takes longer than a
# short command does its work in. Here each is generated when it is first needed.


class _Hooks(dict[Any, Callable[..., Any]]):
    """The hooks of *members*, by the keys of these; each is made by *make* when it is first needed."""

    def __init__(self, members: Mapping[Any, type], make: Callable[[type], Callable[..., Any]]) -> None:
        super().__init__()
        self._members, self._make = members, make

    def __missing__(self, key: object) -> Callable[..., Any]:
        # Without a default: an unknown tag is an error, and never read as some other event.
        hook = self[key] = self._make(self._members[key])
        return hook


def _unstructure_union(union: Any) -> Callable[[Any], dict[str, Any]]:  # noqa: ANN401  # a union is no type to a type checker
    """What makes a member of *union* plain, tagged with the name of its class."""
    write = _Hooks({member: member for member in get_args(union)}, converter.get_unstructure_hook)

    def unstructure(value: object) -> dict[str, Any]:
        kind = value.__class__
        plain: dict[str, Any] = write[kind](value)
        plain[TAG] = kind.__name__
        return plain

    return unstructure


def _structure_union(union: Any) -> Callable[[dict[str, Any], Any], object]:  # noqa: ANN401  # as above
    """What makes a member of *union* of a tagged plain value."""
    members = {member.__name__: member for member in get_args(union)}
    read = _Hooks(members, converter.get_structure_hook)

    def structure(value: dict[str, Any], _: object) -> object:
        value = value.copy()
        tag = value.pop(TAG)
        return read[tag](value, members[tag])

    return structure


# One for the whole process: generating the hooks costs more than the rest of the engine's set-up.
# An unknown key is refused: passing over a field of a newer version would lose what it says.
# Defaults are left out: most fields have theirs, and a journal has an entry for each step.
converter = cattrs.Converter(omit_if_default=True, forbid_extra_keys=True)
# As text: most readers take a JSON number for a binary fraction, and a sum of cents would drift.
converter.register_unstructure_hook(Decimal, str)
converter.register_structure_hook(Decimal, _structure_decimal)
# msgspec encodes bytes by itself, but decodes them as text: so both ways stand here.
converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode())
converter.register_structure_hook(bytes, lambda value, _: base64.b64decode(value))
converter.register_unstructure_hook(effects.Rope, _unstructure_rope)
converter.register_structure_hook(effects.Rope, _structure_rope)
converter.register_unstructure_hook_factory(SETTINGS.__contains__, _unstructure_settings)
converter.register_structure_hook(effects.Config, _structure_config)
converter.register_unstructure_hook_factory(UNIONS.__contains__, _unstructure_union)
converter.register_structure_hook_factory(UNIONS.__contains__, _structure_union)

# The errors of the converter for JSON of another shape. Found by trial: damaged JSON reaches constructors and
# validators, which raise errors of their own. An entry that nests deeply enough exhausts the stack.
UNREADABLE = (
    msgspec.MsgspecError,
    cattrs.BaseValidationError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)

# Typed anew: a union is no type to a type checker, which would refuse it at each call.
structure: Callable[..., Any] = converter.structure


# The union of each class that is a member of one. Members of several have the same tag in all of them.
UNION_OF: dict[object, Any] = {member: union for union in UNIONS for member in get_args(union)}


def encode(value: object, as_type: Any = None) -> bytes:  # noqa: ANN401  # a union is no type to a type checker
    """
    *value* as JSON bytes, written as *as_type*: a class, or one of the closed unions.

    Without *as_type* a notice, an event, an effect or a state is written as its union, any other value as its
    class.
    """
    if as_type is None:
        as_type = UNION_OF.get(type(value), type(value))
    # As the union and not as the value's own class: only the union's hook writes the tag.
    return in_json(converter.unstructure(value, as_type))


def in_json(plain: object) -> bytes:
    """*plain*, which is what JSON is made of, as bytes."""
    try:
        return msgspec.json.encode(plain)
    except UnicodeEncodeError:
        # Cleaned only now: a scan of every text, for what one in millions has, would slow each write.
        return msgspec.json.encode(_cleaned(plain))


def _cleaned(plain: Any) -> Any:  # noqa: ANN401  # what JSON is made of
    """*plain* with text that can be encoded."""
    # A lone surrogate from a tool's output is replaced: failing here would lose the run over one character.
    match plain:
        case str():
            return effects.clean(plain)
        case dict():
            return {effects.clean(key): _cleaned(value) for key, value in plain.items()}
        case list() | tuple():
            return [_cleaned(value) for value in plain]
        case _:
            return plain


def decode(data: bytes, as_type: Any, where: str = "this text") -> Any:  # noqa: ANN401  # as above
    """
    The value that `encode` wrote as *as_type*. *where* names the place in an error.

    Raises `JournalError` for bytes that are no JSON, have an unknown tag, or lack or exceed the fields known
    here: written by a newer version, or not by this library.
    """
    # Check the size before memory is spent: rows and snapshots may come from others.
    if len(data) > MAX_ENTRY:
        msg = f"{where} has {len(data):,} bytes, and may have {MAX_ENTRY:,}"
        raise effects.JournalError(msg)
    try:
        # msgspec reads the JSON; cattrs has the hooks for ropes, money and tagged unions.
        return structure(msgspec.json.decode(data), as_type)
    except UNREADABLE as error:
        # The beginning only: an entry may have megabytes, and the error ends up in logs.
        shown = data[:200]
        msg = f"{where} cannot be read, a newer version may have written it: {shown!r} ({error})"
        raise effects.JournalError(msg) from error
