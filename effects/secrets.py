"""
What is kept out of sight: which arguments and results are secret, and what stands in their place.

Theory of operation. A secret is known by its name: that of an argument, or of a key in a result. Before the
machine sees it, a placeholder takes its place, such as ``[secret password 9f2c41d07b3e]``; so neither history
nor journal, notice, log, hook or provider ever has it. When a tool runs, the values are put back wherever it
is passed a placeholder. Distinct values have distinct placeholders and equal ones the same, so that calls can
be compared, in one session and process; the value cannot be had from its placeholder.

Names are taken apart into words: ``apiKey``, ``API_KEY`` and ``X-Api-Key`` are the words ``api key`` with
more or less around them. Of a name that speaks *about* a secret, such as ``token_limit`` or
``password_file``, nothing is hidden.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from typing import TypeAlias, cast, final

import attrs

from .errors import ArgumentError
from .validators import as_texts, of_kind, spelled, tuple_of

# What arguments and schemas are made of.
Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

# What is secret by its name; of each its plural, too, but for tokens, which are mostly something else.
SECRET_WORDS = (
    *("password", "passwd", "pwd", "passphrase", "passcode", "secret", "token", "jwt", "bearer"),
    *("api_key", "apikey", "access_key", "private_key", "signing_key", "encryption_key", "session_key"),
    *("authorization", "credential", "cookie", "connection_string"),
)

# What is so often counted that no number is one, and its plural none at all.
COUNTED_WORD = "token"

# First words of a name that speaks about a secret.
ABOUT_BEFORE = frozenset(
    {
        *("max", "min", "num", "n", "count", "total", "has", "is", "use", "with", "no", "page", "next"),
        *("prev", "previous", "continuation", "pagination", "sync", "public", "needs", "requires"),
    }
)

# Last words of a name that speaks about a secret.
ABOUT_BEHIND = frozenset(
    {
        *("name", "id", "ids", "type", "kind", "count", "limit", "limits", "size", "length", "path", "file"),
        *("filename", "url", "uri", "endpoint", "policy", "policies", "expiry", "expires", "expiration"),
        *("ttl", "age", "at", "field", "fields", "hint", "label", "title", "description", "format", "env"),
        *("required", "enabled", "var", "variable", "index", "budget", "usage", "used", "version", "scope"),
        *("scopes", "provider", "manager", "arn", "ref", "status", "strength", "rules", "domain", "banner"),
    }
)

# Stands among the secrets of a tool that takes arguments of any name: those are looked at one by one.
ANY = "*"

# What a placeholder begins with.
PLACEHOLDER_MARK = "[secret "

# Characters of a key that may be the name of a secret.
LONGEST_NAME = 64

# Characters of the name in a placeholder.
LABEL = 40

# Hexadecimal digits by which a placeholder is known.
PLACEHOLDER_DIGITS = 12


@final
@spelled
@attrs.frozen(kw_only=True)
class Secrets:
    """
    What an agent takes for a secret.

    With *redact* false nothing is. A value is looked for in texts only where it is no ordinary word: it has 6
    characters, 8 digits or 16 letters at least. What its own call says is searched for any of 3 characters or
    more. *words* are secret beside those that are known anyway, such as ``pin`` or
    ``account_number``: a name is secret that has them next to each other. *plain* are names that are none,
    whatever their words.
    """

    redact: bool = attrs.field(default=True, validator=of_kind(bool))
    words: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))
    plain: tuple[str, ...] = attrs.field(default=(), converter=as_texts, validator=tuple_of(str))

    def names(self, name: str) -> bool:
        """Whether *name* is that of a secret."""
        return self.redact and name not in self.plain and is_secret(name, self.words)


def as_secrets(secrets: Secrets) -> Secrets:
    """*secrets*, if that says what a secret is."""
    given: object = cast("object", secrets)
    if not isinstance(given, Secrets):
        msg = f"secrets must be a Secrets; got {type(given).__name__} (write Secrets(words=[...]))"
        raise ArgumentError(msg)
    return secrets


# Names


# Where one word of a name ends and the next begins.
SEAMS = r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"


def _ends(name: str) -> str:
    """*name*; of one that is longer than any name its ends, so that a hostile one costs no time."""
    return name if len(name) <= 2 * LONGEST_NAME else f"{name[:LONGEST_NAME]} {name[-LONGEST_NAME:]}"


def words_of(name: str) -> tuple[str, ...]:
    """
    The words of *name* in lower case, without numbers behind them: ``apiKey2`` is ``api key``.

    Of one that is longer than any name, those at its ends.
    """
    return _words_of(_ends(name))


@lru_cache(maxsize=4_096)
def _words_of(name: str) -> tuple[str, ...]:
    words = [word.rstrip("0123456789").lower() for word in re.split(SEAMS, name)]
    return tuple([word for word in words if word])


def is_secret(name: str, more: tuple[str, ...] = ()) -> bool:
    """Whether *name* is that of a secret: it has the words of one of `SECRET_WORDS`, or of *more*."""
    return _is_secret(_ends(name), more)


@lru_cache(maxsize=4_096)
def _is_secret(name: str, more: tuple[str, ...]) -> bool:
    words = _words_of(name)
    if any(_has(words, words_of(each)) for each in more):
        return True
    if not words or words[0] in ABOUT_BEFORE or words[-1] in ABOUT_BEHIND:
        return False
    return any(_has(words, words_of(each)) for each in SECRET_WORDS)


def _has(words: tuple[str, ...], phrase: tuple[str, ...]) -> bool:
    """Whether *phrase*, or its plural, stands somewhere in *words*."""
    if not phrase:
        return False
    plural = (*phrase[:-1], phrase[-1] if phrase[-1] == COUNTED_WORD else f"{phrase[-1]}s")
    size = len(phrase)
    return any(words[at : at + size] in (phrase, plural) for at in range(len(words) - size + 1))


def is_counted(name: str) -> bool:
    """Whether a number of that *name* is no secret."""
    return COUNTED_WORD in words_of(name)


# Schemas

# Keywords that hold a schema or a list of some.
INSIDE = frozenset({"items", "prefixItems", "anyOf", "oneOf", "allOf", "additionalProperties"})

# Keywords that hold schemas by name.
MAPS = frozenset({"properties", "$defs"})

# Keywords one of which a schema has that does not take everything.
CHECKING_KEYWORDS = frozenset({"type", "properties", "anyOf", "oneOf", "allOf", "enum", "const", "$ref"})


def secrets_in(schema: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
    """
    The names of the secrets among the arguments of *schema*, JSON Schema as text, at any depth.

    *more* are words of secrets beside `SECRET_WORDS`. `ANY` is among the names where it takes any argument.
    """
    found: set[str] = set()
    for node in _nodes(json.loads(schema)):
        if _takes_any(node):
            found.add(ANY)
        named = [(name, inner) for name, inner in _properties(node) if is_secret(name, more)]
        found.update(name for name, inner in named if _may_hide(name, inner))
    return tuple(sorted(found))


def flags_in(schema: str) -> frozenset[str]:
    """The names of the arguments of *schema* that are true or false wherever they stand: none is redacted."""
    nodes = _nodes(json.loads(schema))
    named = [(name, _is_flag(inner)) for node in nodes for name, inner in _properties(node)]
    return frozenset([name for name, _ in named]) - {name for name, is_flag in named if not is_flag}


def _is_flag(schema: Json) -> bool:
    several = schema.get("anyOf", [schema]) if isinstance(schema, dict) else []
    each = several if isinstance(several, list) else []
    kinds = {kind for one in each for kind in (_kinds(one) if isinstance(one, dict) else {""})}
    return "boolean" in kinds and kinds <= {"boolean", "null"}


@lru_cache(maxsize=1_024)
def arguments_in(schema: str) -> frozenset[str]:
    """The names of all arguments of *schema*, at any depth."""
    return frozenset(name for node in _nodes(json.loads(schema)) for name, _ in _properties(node))


def _nodes(schema: Json) -> Iterator[dict[str, Json]]:
    """*schema* and all schemas in it."""
    if isinstance(schema, list):
        for each in schema:
            yield from _nodes(each)
    if not isinstance(schema, dict):
        return
    yield schema
    for key, value in schema.items():
        if key in INSIDE:
            yield from _nodes(value)
        elif key in MAPS and isinstance(value, dict):
            yield from _nodes(list(value.values()))


def _properties(node: dict[str, Json]) -> Iterable[tuple[str, Json]]:
    properties = node.get("properties")
    return properties.items() if isinstance(properties, dict) else ()


def _takes_any(node: dict[str, Json]) -> bool:
    """Whether a value of the schema *node* may have keys that it does not name."""
    if not CHECKING_KEYWORDS & node.keys():
        return True
    kinds = _kinds(node)
    if "object" in kinds and node.get("additionalProperties", "properties" not in node) is not False:
        return True
    return "array" in kinds and not {"items", "prefixItems"} & node.keys()


def _kinds(node: dict[str, Json]) -> set[str]:
    told = node.get("type")
    return set(map(str, told)) if isinstance(told, list) else {str(told)}


def _may_hide(name: str, schema: Json) -> bool:
    """Whether an argument called *name* may be a secret by its *schema*: not a flag, nor one of a few."""
    if not isinstance(schema, dict):
        return True
    if "enum" in schema or "const" in schema:
        return False
    numbers = {"integer", "number"} if is_counted(name) else set[str]()
    return bool(_kinds(schema) - {"null", "boolean"} - numbers)


# Placeholders


@cache
def placeholders() -> re.Pattern[str]:
    """A placeholder, with the digits by which it is known as its group."""
    return re.compile(rf"\[secret [^\[\]\s\"\\]{{1,{LABEL}}} ([0-9a-f]{{{PLACEHOLDER_DIGITS}}})\]")


def placeholder(name: str, digits: str) -> str:
    """What stands in the place of a value that was called *name*."""
    label = "_".join(words_of(name))[:LABEL] or "value"
    return f"{PLACEHOLDER_MARK}{label} {digits}]"


def is_placeholder(value: object) -> bool:
    """Whether *value* is a placeholder and nothing else."""
    return (
        isinstance(value, str)
        and value.startswith(PLACEHOLDER_MARK)
        and bool(placeholders().fullmatch(value))
    )
