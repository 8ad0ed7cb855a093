"""
The vault that keeps secrets while placeholders stand for them, and the search for secrets in values and text.

Theory of operation. Whole values that have a secret's name are replaced: arguments, JSON anywhere in a tool's
text, and lines such as ``API_KEY=...``, as `env` prints them. In any other text a secret is found only where
its value is known already.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar, final

from ..effects import ArgumentError, Secrets, secrets as naming
from ..effects.secrets import Json

# Characters of secrets that are kept in memory; the oldest go first.
MAX_VAULT = 10_000_000

# Sessions that are known to have been at work in this process.
MAX_LOCAL_SESSIONS = 1_000

# Characters that each of them counts for, besides its own.
ENTRY_COST = 200

# Lists and objects of one text that may turn out to be no JSON; each is read up to where it goes wrong.
MAX_JSON_TRIES = 16

# Of each of `WORDS` a part: a text without any of them has no secret, and is not looked at twice.
STEMS = (
    *("pass", "pwd", "secret", "token", "jwt", "bearer", "key", "auth", "credential", "cookie"),
    "connection",
)

# Characters that a value has at least which is looked for in text, by its kind: shorter ones are words.
SHORTEST_SEARCHED = {"mixed": 6, "digits": 8, "any": 16}

# Characters that a value has at least which is looked for, as a word, in what its own call says.
SHORTEST_ECHOED = 3

# Gives the placeholder for a value that was found under a name.
Replace = Callable[[str, Json], str]


class Vault(Protocol):
    """
    Keeps the values that placeholders stand for, each by its *name* in its *session*.

    A host brings one that lasts, such as its secret manager, where a run is to go on in another process with
    the secrets it had. Both may raise anything: a value that was not kept is known in this process only, and
    one that cannot be found is not there.
    """

    async def keep(self, session: str, name: str, value: str) -> None:
        """Keep *value*, or have it in place of an equal one."""
        ...

    async def find(self, session: str, name: str) -> str | None:
        """What was kept by *name*; None where nothing was, or not any more."""
        ...


V = TypeVar("V", bound="Vault")


def checked_vault(vault: V) -> V:
    """*vault*, if it is one: something that can keep and find."""
    if not all(callable(getattr(vault, can, None)) for can in ("keep", "find")):
        msg = f"a vault has the methods keep and find, a {type(vault).__name__} has not; leave it out for one"
        raise ArgumentError(msg)
    return vault


@final
class MemoryVault:
    """Keeps values in this process, *most* characters of them: then the oldest go."""

    def __init__(self, most: int = MAX_VAULT) -> None:
        self._most = most
        self._here: dict[str, None] = {}
        self._kept: dict[tuple[str, str], str] = {}
        self._held = 0

    async def keep(self, session: str, name: str, value: str) -> None:
        """Keep *value*, also where an older one has to go for it."""
        if (before := self._kept.pop((session, name), None)) is not None:
            self._held -= len(before) + ENTRY_COST
        self._kept[session, name] = value
        self._held += len(value) + ENTRY_COST
        while self._held > self._most:
            self._held -= len(self._kept.pop(next(iter(self._kept)))) + ENTRY_COST

    async def find(self, session: str, name: str) -> str | None:
        """What was kept by *name*, if it still is."""
        return self._kept.get((session, name))

    def mark_local(self, session: str) -> None:
        """Know that *session* is at work in this process; of very many, the latest."""
        self._here.pop(session, None)
        self._here[session] = None
        while len(self._here) > MAX_LOCAL_SESSIONS:
            del self._here[next(iter(self._here))]

    def is_local(self, session: str) -> bool:
        """Whether *session* was at work in this process, so that it may be again."""
        return session in self._here

    def __repr__(self) -> str:
        # The usual one of a debugger or a log would show the values.
        return f"<MemoryVault of {len(self._kept)} values>"


# Values that are already taken apart: arguments


def secret_test(
    names: Iterable[str], secrets: Secrets, there: frozenset[str] = frozenset()
) -> Callable[[str], bool]:
    """
    Whether an argument is secret, for a tool whose secrets have these *names*.

    Of the names that are *there* no other is; any further name is judged by its words.
    """
    # A model may spell a name as it likes, or make one up, so a name that is not among the arguments is
    # judged by its words.
    named = frozenset(names)
    plain = frozenset() if naming.ANY in named else there - named
    words = {naming.words_of(name) for name in named - {naming.ANY}}

    def is_named(name: str) -> bool:
        return name not in plain and (name in named or secrets.names(name) or naming.words_of(name) in words)

    return is_named


def redact(value: Json, is_named: Callable[[str], bool], replace: Replace, inside: str = "") -> Json:
    """
    *value* with each text and number that stands below a name for which *is_named* given to *replace*.

    *inside* is the name below which it stands itself. A flag and nothing are no secrets, and what is a
    placeholder stays one.
    """
    match value:
        case dict():
            return {
                key: redact(each, is_named, replace, key if is_named(key) else inside)
                for key, each in value.items()
            }
        case list():
            return [redact(each, is_named, replace, inside) for each in value]
        # An empty text says nothing, and a flag is one of two values that every reader could guess.
        case str() if inside and value and not naming.is_placeholder(value):
            return replace(inside, value)
        case int() | float() if inside and not isinstance(value, bool):
            return replace(inside, value)
        case _:
            return value


def placeholders_in(value: Json) -> Iterator[re.Match[str]]:
    """The placeholders in *value*, also those with other text around them."""
    match value:
        case dict() | list():
            for each in value.values() if isinstance(value, dict) else value:
                yield from placeholders_in(each)
        case str() if naming.PLACEHOLDER_MARK in value:
            yield from naming.placeholders().finditer(value)
        case _:
            return


def fill_in(value: Json, known: Mapping[str, Json]) -> Json:
    """*value* with each placeholder replaced whose digits are *known*."""

    def written(found: re.Match[str]) -> str:
        value = known.get(found[1], found[0])
        return value if isinstance(value, str) else json.dumps(value)

    match value:
        case dict():
            return {key: fill_in(each, known) for key, each in value.items()}
        case list():
            return [fill_in(each, known) for each in value]
        case str() if naming.PLACEHOLDER_MARK in value:
            # A placeholder alone becomes the value itself, which may be a number; one in other text is part
            # of it.
            alone = naming.placeholders().fullmatch(value)
            return (
                known[alone[1]] if alone and alone[1] in known else naming.placeholders().sub(written, value)
            )
        case _:
            return value


# Text: what tools say


_KEYS = re.compile(rf'"([^"\\\n]{{1,{naming.LONGEST_NAME}}})"\s*:\s*')

# ``export API_KEY=...`` at the beginning of a line, behind which `grep` and `read` put a number. In capitals
# only, since ``token=token`` is code; and not where a shell has to work out the value.
_ASSIGNMENTS = re.compile(
    r"^(?:[ ]*\d+[\t:])?(?:export[ ]+)?([A-Z][A-Z0-9_]*)=(?![$`(])(\"[^\"\n]+\"|'[^'\n]+'|[^\s\"']\S*)",
    re.MULTILINE,
)

_DECODER = json.JSONDecoder()


def search_stems(secrets: Secrets) -> tuple[str, ...]:
    """`STEMS`, and those of the words of *secrets*."""
    return (*STEMS, *[words[0] for words in map(naming.words_of, secrets.words) if words])


def redact_text(text: str, secrets: Secrets, stems: Iterable[str], replace: Replace) -> str:
    """*text* with the values given to *replace* that have the name of a secret in it."""
    if '"' not in text and "=" not in text:
        return text
    small = text.lower()
    # A megabyte of tool output without any stem is passed on after one search per stem, without a parser.
    if not any(stem in small for stem in stems):
        return text
    if '"' in text:
        text = "".join(_replace_members(text, secrets, replace))
    return _replace_assignments(text, secrets, replace) if "=" in text else text


def _replace_members(text: str, secrets: Secrets, replace: Replace) -> Iterator[str]:
    """*text* in pieces, with the values of JSON replaced that stand behind a secret's key."""
    search, names = _KEYS.search, secrets.names
    at = done = 0
    tries = MAX_JSON_TRIES
    while found := search(text, at):
        at, name = found.end(), found[1]
        begins = text[at : at + 1]
        # Several values, as in ``"credentials": {...}``, are each one; ``"password": {...}`` describes one.
        describes = begins == "{" and not name.lower().endswith("s")
        if describes or (tries <= 0 and begins in {"[", "{"}) or not names(name):
            continue
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            # Of a text that was cut off, the rest of its line is taken; all else is no JSON.
            tries -= 1
            if begins != '"':
                continue
            value = text[at:].partition("\n")[0]
            end = at + len(value)
        if not (naming.is_counted(name) and isinstance(value, int | float)):
            value = redact(value, lambda _: False, replace, name)
        yield text[done:at]
        yield json.dumps(value, ensure_ascii=False)
        at = done = end
    yield text[done:]


def _replace_assignments(text: str, secrets: Secrets, replace: Replace) -> str:
    def replaced(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        bare = value[1:-1] if value[0] in "\"'" else value
        if not secrets.names(name) or found.string.startswith(naming.PLACEHOLDER_MARK, found.start(2)):
            return found[0]
        return found[0].removesuffix(value) + value.replace(bare, replace(name, bare))

    return _ASSIGNMENTS.sub(replaced, text)


# Values that are known


def is_searchable(value: str) -> bool:
    """Whether *value* is long enough not to be an ordinary word when it turns up in a text."""
    kind = "digits" if value.isdecimal() else "any" if value.isalpha() else "mixed"
    return len(value) >= SHORTEST_SEARCHED[kind]


def is_echoed(value: str) -> bool:
    """Whether a *value* that is too short to be looked for anywhere is long enough in what its call says."""
    return len(value) >= SHORTEST_ECHOED and not is_searchable(value)


def mask_words(text: str, known: Mapping[str, str]) -> str:
    """As `mask`, where a value stands as a word of its own, and in no placeholder."""
    if not any(value in text for value in known):
        return text
    # Of two that begin alike the longer one is first.
    values = "|".join([re.escape(value) for value in sorted(known, reverse=True)])
    # A value may be a word of a placeholder, such as "secret".
    words = re.compile(rf"{naming.placeholders().pattern}|(?<!\w)(?:{values})(?!\w)")
    return words.sub(lambda found: known.get(found[0], found[0]), text)


def mask(text: str, known: Mapping[str, str]) -> str:
    """*text* with placeholders in the place of the values that are *known*, by these."""
    # The longest first: a short one may be a part of it, and would leave the rest to be read.
    for value in sorted(known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, known[value])
    return text
