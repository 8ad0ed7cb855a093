"""What every setting is checked with: validators that name the value and say what is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import wraps
from typing import Any, TypeGuard, TypeVar, cast

import attrs

from .errors import ArgumentError, CallerError, ConfigError, TooLarge
from .messages import Binary
from .spelling import hint, meant

# Text that can be written down.


def clean(text: str) -> str:
    """
    *text* with lone surrogates replaced by question marks.

    They come from halves of escaped pairs in JSON and from file names that are no UTF-8; no encoder takes
    them.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


# How large what comes from outside may be, where more than one place has to know it.


# Characters of a prompt, or of what is said into a run: as much as the largest windows take.
MAX_PROMPT = 4_000_000

# Characters of what names something: an id, a sender, a session, a file.
MAX_WORD = 1_000

# Files that come with a prompt.
MAX_PROMPT_FILES = 100

# Bytes of all files that come with a prompt: in Base64 no provider takes more in a request.
MAX_ATTACHED = 20_000_000

# Characters of the arguments of a call, a model's or a person's: room for a whole file.
MAX_CALL_ARGUMENTS = 2_000_000

# Characters of the message that comes with a no.
MAX_DENIAL = 100_000

# Arguments that a yes for all such calls names.
MAX_GLOBS = 100

# Posts that wait for a session to take them up.
MAX_WAITING = 10_000

# Bytes of one entry of a journal: twice as many as the longest answer, the worst to write down, comes to.
MAX_ENTRY = 128 * 1024 * 1024


def within(what: str, size: int, limit: int, unit: str = "characters") -> None:
    """Raise `TooLarge` where *what* has more than *limit* of *unit*."""
    if size > limit:
        raise TooLarge(what, size, limit, unit)


def named(what: str, text: object) -> None:
    """Raise `TooLarge` where *text*, which is *what*, is longer than any name; it has to be a text."""
    if not isinstance(text, str):
        msg = f"{what} is text; got {text!r}"
        raise ArgumentError(msg)
    within(what, len(text), MAX_WORD)


# In a line of a log or of a list, a line end or an escape says what is not so. Half of a pair no file takes.
_UNPRINTED = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def session_named(name: object) -> None:
    """Refuse *name* where it cannot be the id of a session: as `named`, and what is empty or has controls."""
    named("the id of a session", name)
    if not name:
        msg = "the id of a session must not be empty; leave it out for a new session"
        raise ConfigError(msg)
    if _UNPRINTED.search(str(name)):
        msg = f"the id of a session must not have control characters; got {name!r} (leave them out)"
        raise ConfigError(msg)


def attached(files: tuple[Binary, ...]) -> None:
    """Raise `TooLarge` where *files* are more, or hold more, than may come with a prompt."""
    within("a prompt", len(files), MAX_PROMPT_FILES, "files")
    within("the files of a prompt", sum([len(file.data) for file in files]), MAX_ATTACHED, "bytes")
    for file in files:
        named("the name of a file", file.name)
        named("the media type of a file", file.media_type)


T = TypeVar("T")


def spelled(kind: type[T]) -> type[T]:
    """
    Make the attrs class *kind* say which of its arguments are wrong, and what they are to be.

    A misspelled keyword is an `ArgumentError` that names the nearest one. The error of a converter, such as
    "texts must be a list; got 'a'", names the field instead: "Agent.stop must be a list; got 'a'".
    """
    made: Callable[..., None] = kind.__init__
    fields = [each for each in attrs.fields(cast("Any", kind)) if each.init]

    @wraps(made)
    def init(self: T, *args: object, **kwargs: object) -> None:
        try:
            made(self, *args, **kwargs)
        except CallerError as error:
            if refusal := _refused(kind.__name__, _given(fields, args, kwargs)):
                raise refusal from error
            raise
        except TypeError as error:
            if problem := _misspelled(fields, args, kwargs):
                msg = f"{kind.__name__}: {problem}"
                raise ArgumentError(msg) from error
            raise

    setattr(kind, "__init__", init)  # noqa: B010  # both type checkers refuse an assignment to a method
    return kind


_Fields = Sequence["attrs.Attribute[Any]"]


def _alias(field: attrs.Attribute[Any]) -> str:
    return field.alias or field.name


def _given(
    fields: _Fields, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> list[tuple[attrs.Attribute[Any], object]]:
    """The *fields* that the arguments set, with their values."""
    in_order = zip([field for field in fields if not field.kw_only], args, strict=False)
    return [*in_order, *[(field, kwargs[_alias(field)]) for field in fields if _alias(field) in kwargs]]


def _refused(
    kind: str, given: Iterable[tuple[attrs.Attribute[Any], object]]
) -> ConfigError | ArgumentError | None:
    """The error of the converter that refuses one of the arguments, with the name of the field."""
    for field, value in given:
        try:
            if field.converter is not None:
                cast("Callable[[object], object]", field.converter)(value)
        except (ConfigError, ArgumentError) as error:
            subject, must_be, problem = str(error).partition(" must be ")
            # One that speaks of a part of the value says more than the name of the field would.
            if not must_be or "'" in subject:
                return None
            return type(error)(f"{kind}.{_alias(field)}{must_be}{problem}")
    return None


def _misspelled(fields: _Fields, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """What is wrong with the names or the number of the arguments; empty where nothing is."""
    known = [_alias(field) for field in fields]
    for name in kwargs:
        if name not in known:
            return f"no argument {name!r}; {meant(name, known) or hint(name, known)}"
    in_order = [_alias(field) for field in fields if not field.kw_only]
    if len(args) > len(in_order):
        others = [f"{name}=..." for name in known if name not in in_order]
        most = f"at most {len(in_order)}" if in_order else "no"
        return f"takes {most} arguments without a name; write {' or '.join(others[:2]) or 'no more'}"
    there = {_alias(field) for field, _ in _given(fields, args, kwargs)}
    for field in fields:
        if field.default is attrs.NOTHING and _alias(field) not in there:
            return f"{_alias(field)} is missing; give {_alias(field)}=..."
    return ""


def must(
    rule: str, holds: Callable[[Any], bool], error: type[Exception] = ConfigError
) -> Callable[[object, attrs.Attribute[T], T], None]:
    """A validator that raises *error* where *holds* is false of a value; *rule* says what it must be."""

    def check(instance: object, attribute: attrs.Attribute[T], value: T) -> None:
        if not holds(value):
            msg = f"{type(instance).__name__}.{attribute.name} must {rule}; got {value!r}"
            raise error(msg)

    return check


def _is_number(value: object) -> TypeGuard[float]:
    # True is a number to Python, and a mistake in a limit.
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)  # noqa: PLR2004  # a pair


positive = must(
    "be a number above 0, or None for no limit",
    lambda value: value is None or (_is_number(value) and value > 0),
)
not_negative = must("be a number, and not negative", lambda value: _is_number(value) and value >= 0)
seconds = must("be a number of seconds above 0", lambda value: _is_number(value) and value > 0)
not_empty = must("not be empty", lambda value: isinstance(value, str) and bool(value.strip()))
share = must("be a number above 0 and at most 1", lambda value: _is_number(value) and 0 < value <= 1)
share_or_none = attrs.validators.optional(share)
# What every provider takes as the name of a tool.
tool_name = must(
    "be 1 to 64 letters, digits, '_' or '-'",
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", value)),
)
globs = must(
    "be globs by the names of arguments, such as {'path': 'src/*'}",
    lambda value: isinstance(value, tuple) and all(map(_is_pair, value)),
    ArgumentError,
)


def of_kind(kind: type) -> Callable[[object, attrs.Attribute[T], T], None]:
    """A validator for one value of *kind*."""
    return must(f"be a {kind.__name__}", lambda value: isinstance(value, kind), ArgumentError)


def tuple_of(kind: type) -> Callable[[object, attrs.Attribute[T], T], None]:
    """A validator for a tuple of values of *kind*."""

    def holds(value: object) -> bool:
        return isinstance(value, tuple) and all(isinstance(each, kind) for each in value)

    return must(f"be a tuple of {kind.__name__}", holds, ArgumentError)


def json_object(instance: object, attribute: attrs.Attribute[str], value: str) -> None:
    """The text of a JSON object."""
    name = getattr(instance, "name", "")
    try:
        parsed: object = json.loads(value)
    except ValueError as error:
        msg = f"the {attribute.name} of tool {name!r} is no JSON: {value!r} ({error})"
        raise ConfigError(msg) from error
    if not isinstance(parsed, dict):
        msg = f"the {attribute.name} of tool {name!r} must be a JSON object; got {value!r}"
        raise ConfigError(msg)


def as_money(value: Decimal | float | str) -> Decimal:
    """*value* as an exact amount; a float is taken as it is written."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation as error:
        msg = f"{value!r} is no amount of money; write it as 0.25 or '0.25'"
        raise ConfigError(msg) from error
    if not amount.is_finite():
        msg = f"{value!r} is no amount of money"
        raise ConfigError(msg)
    return amount


def as_money_or_none(value: Decimal | float | str | None) -> Decimal | None:
    """As `as_money`; None stays None."""
    return None if value is None else as_money(value)


def as_text(value: object, what: str = "it") -> str:
    """*value*, which is *what*, as text that can be encoded; `ArgumentError` where it is no text."""
    if not isinstance(value, str):
        fix = " (decode it)" if isinstance(value, bytes) else ""
        msg = f"{what} must be text; got {value!r:.200}{fix}"
        raise ArgumentError(msg)
    # A lone surrogate from a terminal cannot be encoded, and the journal would refuse it after the prompt was
    # accepted.
    return clean(value)


def as_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """*texts* as a tuple; `ArgumentError` for a single one."""
    # A text is a sequence of texts, too: `stop="END"` would stop at each E, N and D.
    if isinstance(texts, str) or not isinstance(cast("object", texts), Iterable):
        msg = f"texts must be a list; got {texts!r} (write [{texts!r}])"
        raise ArgumentError(msg)
    every = tuple(texts)
    for each in cast("tuple[object, ...]", every):
        if not isinstance(each, str):
            # A tool, as is usual, where its name is wanted.
            name = getattr(getattr(each, "spec", None), "name", "")
            msg = f"texts must be a list of texts; got {each!r:.80} in it" + f" (write {name!r})" * bool(name)
            raise ArgumentError(msg)
    return every


def as_file_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names of instruction files as a tuple; `ArgumentError` for a single text, which may be the prompt."""
    if isinstance(names, str) or not isinstance(cast("object", names), Iterable):
        fix = "write ['AGENTS.md']; the text of a prompt is system='...'"
        msg = f"instructions must be a list of names of files; got {names!r:.80} ({fix})"
        raise ArgumentError(msg)
    return tuple(names)


def as_arguments(given: Mapping[str, object] | str) -> str:
    """The arguments of a call as JSON text, which is what is stored; a text stays as it is."""
    if isinstance(given, str):
        return given
    # Without the value in the error: it may be a secret, and errors end up in logs.
    if not isinstance(cast("object", given), Mapping):
        msg = f"arguments must be a dict, or the JSON text of one; got {type(given).__name__}"
        raise ArgumentError(msg)
    try:
        return json.dumps(dict(given), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"arguments must be a dict that JSON can hold: {error}"
        raise ArgumentError(msg) from error


def as_globs(given: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Globs by the names of arguments, as pairs; what is no mapping stays as it is."""
    return tuple(given.items()) if isinstance(given, Mapping) else given


def once(what: str, names: Sequence[str]) -> None:
    """Raise `ConfigError` where one of *names* stands there twice; *what* they are the names of."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        msg = f"two {what} of one name: {', '.join(map(repr, twice))}; rename one of each"
        raise ConfigError(msg)
