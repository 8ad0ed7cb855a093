"""
The keys of all settings, read off the classes that hold them.

A key is the way to a setting: ``limits.usd`` in a file is ``usd`` in the table ``limits``, and
``TURNWHEEL_LIMITS__USD`` in the environment. The keys of agents have a ``NAME`` in them, and the keys of
items of a list ``[]``. The class of all settings is an argument, *root*: this module does not know it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, final, get_args, get_origin, get_type_hints

import attrs

from ..effects.config import ChildSpec
from ..effects.permissions import Rule
from ..effects.request_extras import HeaderPairs, JSONObjectText, ProviderTools
from ..effects.validators import not_empty, not_negative, positive, share, share_or_none
from ..performers.stores.place import StorePlace

# The way to a setting, such as ``("limits", "usd")``; items of a list have their number in it.
Way = tuple[str, ...]

# The metadata of a setting that is never shown.
SECRET = {"secret": True}

# The beginning of a variable that is a setting.
ENV_PREFIX = "TURNWHEEL_"

# Stands in a variable for the dot of a key.
NESTED = "__"

# Stands in a key for the name of an agent.
ANY_NAME = "NAME"

# Stands behind a key for each item of its list.
ITEM = "[]"

# The word for no limit, if there is one by default; TOML has none.
NONE_WORD = "none"

# The table of a pyproject.toml in which tools have theirs.
PYPROJECT: Way = ("tool",)

# The kind of the one list that is written as a table, by the names of its items.
AGENTS = tuple[ChildSpec, ...]

# The likeness to a key, from 0 to 1, from which on a name is taken for a misspelt key.
NEAR = 0.75

# Names that other tools have for a setting, and its key.
OTHER_NAMES: Mapping[str, str] = {
    "additional_dirs": "directories",
    "auto_title": "session.titles",
    "allowed_tools": "rules",
    "auto_save": "session.persist",
    "coalescing_window": "policy.coalesce",
    "continue": "session.latest",
    "debug_file": "debug.file",
    "fallback_model": "fallback",
    "include_partial": "watch.include_partial",
    "max_budget_usd": "limits.usd",
    "max_output_tokens": "model.max_output",
    "max_retries": "retries.overloaded",
    "max_session_tokens": "session_limits.tokens",
    "max_thinking_tokens": "model.thinking",
    "max_turns": "limits.turns",
    "permission_mode": "policy.mode",
    "persist_session": "session.persist",
    "session_dir": "store",
    "session_id": "session.id",
    "system_prompt": "system",
}

# Settings of other tools that are none here, and why.
NOT_DATA: Mapping[str, str] = {
    "can_use_tool": "it is code, and handed to Settings.agent as its approver",
    "context": "a run is stopped with Session.interrupt, or by cancelling the task that waits for it",
    "mcp_servers": "tools of MCP servers cannot be had yet",
    "setting_sources": "the sources are Python, the environment and one file, which Settings.load names",
}


@final
class SettingKey(NamedTuple):
    """
    A setting: the *path* to it, its *kind*, and whether it may be none. An item of a list has no *attribute*.
    """

    path: Way
    kind: Any
    optional: bool = False
    attribute: Any = None

    def __str__(self) -> str:
        return ".".join(self.path).replace(f".{ITEM}", ITEM)

    @property
    def secret(self) -> bool:
        """Whether its value is never shown."""
        return self.attribute is not None and self.attribute.metadata == SECRET

    @property
    def accepts(self) -> str:
        """The values that it accepts, in words."""
        more = "" if self.attribute is None else MORE.get(self.attribute.validator, "")
        none = self.optional and self.kind not in ANY_TEXT and not is_area(self.kind)
        return f"{_words(self.kind)}{more}{f', or {NONE_WORD!r}' if none else ''}"


def variable(path: Way) -> str:
    """The name in the environment of the setting at *path*; parts of a list have none."""
    return ENV_PREFIX + NESTED.join(path).upper()


def item_of(kind: Any) -> Any:  # noqa: ANN401  # an annotation
    """The kind of the items of the list *kind*; None if it is no list."""
    return get_args(kind)[0] if get_origin(kind) is tuple else None


@cache
def fields_of(area: type) -> Mapping[str, SettingKey]:
    """The settings of *area*, each as seen from there."""
    hints = get_type_hints(area)
    fields: dict[str, SettingKey] = {}
    for each in attrs.fields(area):
        kind, optional = hints[each.name], NoneType in get_args(hints[each.name])
        if optional:
            kind = reduce(or_, [one for one in get_args(kind) if one is not NoneType])
        fields[each.name] = SettingKey((each.name,), kind, optional, each)
    fields.pop("sources", None)
    return fields


def is_area(kind: Any) -> bool:  # noqa: ANN401  # an annotation
    """Whether *kind* is a table of settings; a rule is not, as it is written in one line."""
    return isinstance(kind, type) and attrs.has(kind) and kind is not Rule


def keys(area: type, path: Way = ()) -> Iterator[SettingKey]:
    """The keys of *area*, which stands at *path*, and of the tables in it."""
    for name, key in fields_of(area).items():
        here, item = (*path, name), item_of(key.kind)
        if key.kind == AGENTS:
            named = (*here, ANY_NAME)
            yield from (each for each in keys(ChildSpec, named) if each.path != (*named, "name"))
        elif is_area(key.kind):
            yield from keys(key.kind, here)
        else:
            yield key._replace(path=here)
            if is_area(item):
                yield from keys(item, (*here, ITEM))


# Kinds of which any text is one, also the word for none.
ANY_TEXT = (str, Path, StorePlace)

# The kinds of settings, in words.
KIND_NAMES: Mapping[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Decimal: "an amount in USD",
    Path: "a path",
    StorePlace: "a path, or an address such as postgresql://host/database",
    Rule: "a rule such as 'allow write:path=docs/*'",
    tuple[str, ...]: "a list of texts",
    tuple[Path, ...]: "a list of paths",
    tuple[Rule, ...]: "a list of rules such as 'allow write:path=docs/*'",
    tuple[tuple[str, str], ...]: "a table of globs by the names of arguments",
    HeaderPairs: "a table of texts by the names of headers",
    JSONObjectText: "a table, or a JSON object as text",
    ProviderTools: "a list of tables",
}

# The words that a validator adds.
MORE: Mapping[Any, str] = {
    positive: " above 0",
    not_negative: ", not negative",
    share: " above 0 and at most 1",
    share_or_none: " above 0 and at most 1",
    not_empty: " that is not empty",
}


def _words(kind: Any) -> str:  # noqa: ANN401  # an annotation
    if kind in KIND_NAMES:
        return KIND_NAMES[kind]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return f"one of {', '.join(kind)}"
    table = "a table" if is_area(kind) else "a list of tables"
    return f"{table} with some of {', '.join(fields_of(item_of(kind) or kind))}"


def suggestion(root: type, way: Way, area: type, *, of_variable: bool = False) -> str:
    """
    A hint at what the unknown setting of *area* at the end of *way* may mean.

    *of_variable*: it stood in a variable, and so does the hint.
    """
    if way == PYPROJECT:
        return "settings stand at the top of the file, without [tool.turnwheel]"
    if way[-1] in NOT_DATA:
        return NOT_DATA[way[-1]]
    if way[-1] in OTHER_NAMES:
        other = OTHER_NAMES[way[-1]]
        return f"it is {variable(tuple(other.split('.'))) if of_variable else other} here"
    near = nearest(root, way)
    if near is None:
        return f"there are {', '.join(fields_of(area))}"
    return f"did you mean {variable(near) if of_variable else '.'.join(near)}?"


def nearest(root: type, way: Way) -> Way | None:
    """The way to the setting or table that looks most like *way*; None if none does."""
    ways = {key.path[:end] for key in keys(root) for end in range(1, len(key.path) + 1)}
    # No key leads to an item of a list, nor to one of the agents that have no name yet.
    ordered = sorted(sorted(each for each in ways if not {ITEM, ANY_NAME} & {*each}), key=len)
    same = [each for each in ordered if each[-1] == way[-1] and len(each) > 1]
    if same:
        # Several tables have the fields of a model: that of the first model is meant.
        return next((each for each in same if each[0] == "model"), same[0])
    told = {"_".join(each): each for each in ordered if each != way[: len(each)]}
    near = get_close_matches("_".join(way), told, n=1, cutoff=NEAR)
    return told[near[0]] if near else None
