"""Whether a call's arguments are whole, valid JSON for its tool's schema."""

# Checks the part of JSON Schema that describes function arguments: types, required and unknown properties,
# enums, constants, bounds, array items, unions and local references. Patterns are not checked, nor keywords
# that are not known here: the tool's own decoder has the last word. Written here because a transition may
# import no validator.

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import isinf
from typing import cast, final

import attrs

from ...effects.secrets import ANY, Json, is_placeholder
from .bounds import BOUNDS, bound_problem

# Deeper values are refused: no tool takes them, and a reference may point at itself.
MAX_DEPTH = 64

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


@lru_cache(maxsize=1024)
def _parsed(schema: str) -> dict[str, Json]:
    # Parsed once, however often its tool is called. That it is an object, `ToolSpec` has seen to.
    return cast("dict[str, Json]", json.loads(schema))


# Digits of a place in a list, in a reference.
_PLACE_DIGITS = 10

# Problems of one call that a model reads at once.
MAX_PROBLEMS = 5

# How deep arguments may be nested: no tool wants more, and the decoder can do a few times that.
MAX_ARGUMENT_NESTING = 100

# A string, which may hold anything, or a bracket. It takes a string whole and remembers nothing of it.
_MARKS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def arguments_of(text: str) -> dict[str, object] | None:
    """The arguments in *text*, or None where it is no JSON object. Empty text is no arguments."""
    if not text.strip():
        return {}
    # Before decoding: the decoder recurses, and how deep it can go depends on the caller's stack. A replay
    # could then find another answer.
    if _depth(text) > MAX_ARGUMENT_NESTING:
        return None
    try:
        value: object = _decode(text)
    except ValueError:
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def same_arguments(one: str, other: str) -> bool:
    """Whether two texts are the same arguments, whatever their order; 1, 1.0 and true are three."""
    if one == other:
        return True
    # As text: to Python these three are equal, and to a rule they are not.
    decoded = [arguments_of(one), arguments_of(other)]
    first, second = [json.dumps(each, sort_keys=True) for each in decoded]
    return None not in decoded and first == second


@lru_cache(maxsize=1024)
def defaults_of(schema: str) -> dict[str, Json]:
    """The values that *schema* has for arguments that are left out."""
    declared = _parsed(schema).get("properties")
    there = declared.items() if isinstance(declared, dict) else ()
    found = {name: each["default"] for name, each in there if isinstance(each, dict) and "default" in each}
    # Null says that there is no value, and so does an argument that is not there: see `nulls_of`.
    return {name: value for name, value in found.items() if value is not None}


@lru_cache(maxsize=1024)
def nulls_of(schema: str) -> dict[str, Json]:
    """Null for each argument that has it as the default in *schema*."""
    declared = _parsed(schema).get("properties")
    there = declared.items() if isinstance(declared, dict) else ()
    return {name: None for name, each in there if isinstance(each, dict) and each.get("default", 0) is None}


def _refuse(constant: str) -> None:
    """``NaN`` and ``Infinity`` are no JSON, although the decoder takes them."""
    raise ValueError(constant)


def _finite(text: str) -> float:
    """``1e999`` is a number to the grammar, and to no tool."""
    number = float(text)
    if isinf(number):
        raise ValueError(text)
    return number


# Made once: `json.loads` would make one for every text.
_decode = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite).decode


def _depth(text: str) -> int:
    """How deep *text* is nested at most; whether it can be read must not depend on how deep we are."""
    opened = text.count("{") + text.count("[")
    # Brackets in strings are counted, too: this is only to spare most texts the search below.
    if opened <= MAX_ARGUMENT_NESTING:
        return opened
    depth = deepest = 0
    for mark in _MARKS.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark[0], 0)
        deepest = max(deepest, depth)
    return deepest


def problem(schema: str, arguments: dict[str, object], secrets: tuple[str, ...] = ()) -> str:
    """
    The problems of *arguments* by *schema*, in words for a model; empty where there are none.

    Names at most `MAX_PROBLEMS` problems.
    """
    # A placeholder is right for an argument whose name is among *secrets*, and for all that is inside it:
    # the tool's own decoder checks the value that takes its place.
    problems = _check(cast("Json", arguments), _parsed(schema), _SchemaPlace(schema, secrets))
    if not problems:
        return ""
    more = ("and more",) if len(problems) > MAX_PROBLEMS else ()
    return "; ".join((*problems[:MAX_PROBLEMS], *more))


def without_nulls(schema: str, arguments: dict[str, object]) -> dict[str, object]:
    """*arguments* without each property that is null, need not be there, and may not be null by *schema*."""
    root = _parsed(schema)
    return cast("dict[str, object]", _without_nulls(cast("Json", arguments), root, _SchemaPlace(schema)))


def _without_nulls(value: Json, schema: Json, place: _SchemaPlace) -> Json:
    """*value* at *place* without the nulls that stand for nothing by *schema*."""
    if place.depth > MAX_DEPTH or not isinstance(value, dict | list):
        return value
    own = _target(schema, place)
    for keyword in ("anyOf", "oneOf"):
        options = own.get(keyword)
        for option in options if isinstance(options, list) else ():
            kept = _without_nulls(value, option, place.inside(""))
            if not _check(kept, option, place):
                return kept
    if isinstance(value, list):
        return [_without_nulls(item, own.get("items", True), place.inside("")) for item in value]
    kept_items: dict[str, Json] = {}
    for name, item in value.items():
        declared = _property(own, name)
        if item is not None or _requires(own, name) or not declared or not _check(None, declared, place):
            kept_items[name] = _without_nulls(item, declared, place.inside(""))
    return kept_items


# Problems of one value, none where it fits. All checks below return them.
_Problems = tuple[str, ...]


@final
@attrs.frozen
class _SchemaPlace:
    """
    Where a check by *schema* is, and by which references it came to this very value.

    *hidden*: it is inside an argument whose name is among the *secrets*.
    """

    schema: str
    secrets: tuple[str, ...] = ()
    path: str = ""
    depth: int = 0
    hidden: bool = False
    references: frozenset[str] = frozenset()

    def inside(self, step: str, name: str = "") -> _SchemaPlace:
        """One level deeper in the arguments, by *step*, which leads to the argument *name* if to any."""
        hidden = self.hidden or (bool(self.secrets) and (name in self.secrets or ANY in self.secrets))
        return _SchemaPlace(self.schema, self.secrets, self.path + step, self.depth + 1, hidden)

    def by(self, reference: str) -> _SchemaPlace:
        """The same value, by a *reference* of the schema."""
        references = self.references | {reference}
        return _SchemaPlace(self.schema, self.secrets, self.path, self.depth, self.hidden, references)

    def __str__(self) -> str:
        return self.path.removeprefix(".") or "the arguments"


def _check(value: Json, schema: Json, place: _SchemaPlace) -> _Problems:
    """The problems of *value* at *place* by *schema*."""
    if place.depth > MAX_DEPTH:
        return (f"{place} is nested too deeply",)
    if place.hidden and is_placeholder(value):
        return ()
    if not isinstance(schema, dict):
        # What is not understood is let through, here as everywhere in this module: a false alarm costs a
        # turn, and the tool has the last word.
        return (f"{place} is not allowed",) if schema is False else ()
    unmet = _check_value(value, schema, place) or _check_inside(value, schema, place)
    return unmet if unmet or _COMBINING.isdisjoint(schema) else _check_combined(value, schema, place)


# Keywords that name other schemas for the same value.
_COMBINING = frozenset({"$ref", "anyOf", "oneOf", "allOf"})


def _check_combined(value: Json, schema: dict[str, Json], place: _SchemaPlace) -> _Problems:
    """The problems of *value* by the first of the schemas beside *schema* that it does not meet."""
    if "$ref" in schema and (unmet := _check_reference(value, str(schema["$ref"]), place)):
        return unmet
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and (unmet := _check_union(value, schema, options, place)):
            return unmet
    others = schema.get("allOf")
    problems = [_check(value, other, place) for other in others] if isinstance(others, list) else []
    return next(filter(None, problems), ())


def _check_union(value: Json, schema: dict[str, Json], options: list[Json], place: _SchemaPlace) -> _Problems:
    if not options:
        return ()
    problems: list[_Problems] = []
    for option in options:
        if not (unmet := _check(value, option, place)):
            return ()
        # Kept: a second check at each level of a nested union would double with each of them.
        problems.append(unmet)
    targets = [_target(option, place) for option in options]
    # What is of another type than the value was not meant, unless all members are.
    fitting = [at for at, target in enumerate(targets) if _has_type(value, target.get("type"))]
    if not fitting:
        return (f"{place} must be of type {_names(_merged([target['type'] for target in targets]))}",)
    members = [targets[at] for at in fitting]
    theirs = [problems[at] for at in fitting]
    if isinstance(value, dict) and (tag := _tag_of(schema, members)):
        return _tagged_problems(value, tag, list(zip(members, theirs, strict=True)), place)
    values = [_allowed(target) for target in members]
    if [] not in values:
        return (f"{place} must be one of {json.dumps(_merged(values))}",)
    return _closest(theirs)


def _closest(problems: list[_Problems]) -> _Problems:
    """The shortest of *problems*, which each member of a union has; as one where several are as short."""
    fewest = min(map(len, problems))
    best = list(dict.fromkeys([each for each in problems if len(each) == fewest]))
    return best[0] if len(best) == 1 else (" or ".join(map("; ".join, best[:MAX_PROBLEMS])),)


def _target(option: Json, place: _SchemaPlace) -> dict[str, Json]:
    """The schema that *option* is or refers to; empty where it says nothing."""
    for _ in range(MAX_DEPTH):
        if not isinstance(option, dict) or "$ref" not in option:
            break
        option = _referenced(str(option["$ref"]), _parsed(place.schema))
    return option if isinstance(option, dict) else {}


def _tag_of(schema: dict[str, Json], targets: list[dict[str, Json]]) -> str:
    """The property whose value tells the members *targets* of a union apart; empty where there is none."""
    named = schema.get("discriminator")
    told = named.get("propertyName") if isinstance(named, dict) else None
    first = targets[0].get("properties") if targets else None
    names = [told] if isinstance(told, str) else list(first) if isinstance(first, dict) else []
    for name in names:
        tags = [_allowed(_property(target, name)) for target in targets]
        texts = [json.dumps(value) for values in tags for value in values]
        if len(targets) > 1 and [] not in tags and len({*texts}) == len(texts):
            return name
    return ""


def _tagged_problems(
    value: dict[str, Json], tag: str, members: list[tuple[dict[str, Json], _Problems]], place: _SchemaPlace
) -> _Problems:
    """The problems of that of the *members* whose *tag* the *value* has."""
    # A tag with a default may be left out, and then says nothing.
    if tag not in value and not all(_requires(target, tag) for target, _ in members):
        return _closest([problems for _, problems in members])
    for target, problems in members:
        if tag in value and any(_same(value[tag], other) for other in _allowed(_property(target, tag))):
            return problems
    tags = json.dumps(_merged([_allowed(_property(target, tag)) for target, _ in members]))
    named = place.inside(f".{tag}")
    return (f"{named} must be one of {tags}" if tag in value else f"{named} is missing; it is one of {tags}",)


def _property(schema: dict[str, Json], name: str) -> dict[str, Json]:
    properties = schema.get("properties")
    declared = properties.get(name) if isinstance(properties, dict) else None
    return declared if isinstance(declared, dict) else {}


def _requires(schema: dict[str, Json], name: str) -> bool:
    required = schema.get("required")
    return isinstance(required, list) and name in required


def _allowed(schema: dict[str, Json]) -> list[Json]:
    """The values that *schema* lists; empty where it allows others."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) else []


def _merged(lists: list[Json] | list[list[Json]]) -> list[Json]:
    """The items of *lists*, each once, in order; an item that is not a list stands for itself."""
    items = [item for each in lists for item in (each if isinstance(each, list) else [each])]
    return [item for at, item in enumerate(items) if not any(_same(item, other) for other in items[:at])]


def _check_reference(value: Json, reference: str, place: _SchemaPlace) -> _Problems:
    if reference in place.references:
        # It led here already without going into the value: it would lead here for ever.
        return (f"{place} cannot be checked: the schema refers to itself",)
    return _check(value, _referenced(reference, _parsed(place.schema)), place.by(reference))


def _check_value(value: Json, schema: dict[str, Json], place: _SchemaPlace) -> _Problems:
    if not _has_type(value, schema.get("type")):
        return (f"{place} must be of type {_names(schema.get('type'))}",)
    if isinstance(allowed := schema.get("enum"), list) and not any(_same(value, one) for one in allowed):
        return (f"{place} must be one of {json.dumps(allowed)}",)
    if "const" in schema and not _same(value, schema["const"]):
        return (f"{place} must be {json.dumps(schema['const'])}",)
    # Most schemas bound nothing, and each call of a model is checked.
    if BOUNDS.isdisjoint(schema):
        return ()
    unmet = bound_problem(value, schema)
    return (f"{place} {unmet}",) if unmet else ()


def _same(value: Json, other: Json) -> bool:
    """Equality of JSON, where true is not 1."""
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _check_inside(value: Json, schema: dict[str, Json], place: _SchemaPlace) -> _Problems:
    if isinstance(value, dict):
        return _check_object(value, schema, place)
    problems: _Problems = ()
    if isinstance(value, list) and ("items" in schema or "prefixItems" in schema):
        # Of a tuple the first items have schemas of their own, and `items` is for those behind them.
        first = schema.get("prefixItems")
        own = first if isinstance(first, list) else []
        for index, item in enumerate(value):
            declared = own[index] if index < len(own) else schema.get("items", True)
            problems += _check(item, declared, place.inside(f"[{index}]"))
            if len(problems) > MAX_PROBLEMS:
                break
    return problems


def _check_object(value: dict[str, Json], schema: dict[str, Json], place: _SchemaPlace) -> _Problems:
    required = schema.get("required")
    missing = [name for name in required if name not in value] if isinstance(required, list) else []
    # All that are missing in one problem: the model adds them in one go.
    problems: _Problems = (_named(missing, place, "is missing", "are missing"),) if missing else ()
    named = schema.get("properties")
    properties = named if isinstance(named, dict) else {}
    # By `patternProperties` a regular expression says what other properties are, and none is run here: it may
    # take for ever. The decoder has the last word.
    others = True if schema.get("patternProperties") else schema.get("additionalProperties", True)
    unknown: list[Json] = []
    for name, item in value.items():
        if name not in properties and others is False:
            unknown.append(name)
            # A model may send thousands of them.
            if len(unknown) == MAX_PROBLEMS:
                break
            continue
        declared = properties.get(name, others)
        if place.depth < MAX_DEPTH and _is_plain(item, declared):
            continue
        problems += _check(item, declared, place.inside(f".{name}", name))
        if len(problems) > MAX_PROBLEMS:
            break
    if unknown:
        known = f"(there are: {', '.join(properties) or 'none'})"
        problems += (_named(unknown, place, f"is not a parameter {known}", f"are not parameters {known}"),)
    return problems


def _named(names: list[Json], place: _SchemaPlace, singular: str, plural: str) -> str:
    """One problem that all of *names* inside *place* have."""
    verb = singular if len(names) == 1 else plural
    return f"{', '.join([str(place.inside(f'.{name}')) for name in names])} {verb}"


# Keywords of a schema that say nothing about a value but its type.
_TYPE_ONLY = frozenset({"type", "description", "title", "default"})


def _is_plain(value: Json, schema: Json) -> bool:
    """Whether *value* has nothing inside and is of the type that *schema* declares, which says no more."""
    # Most arguments are, and a place to name in a complaint costs more than this look.
    if not isinstance(schema, dict) or isinstance(value, dict | list):
        return False
    return schema.keys() <= _TYPE_ONLY and _has_type(value, schema.get("type"))


def _referenced(reference: str, root: dict[str, Json]) -> Json:
    """The schema that *reference* names in *root*; True, which allows all, where it leads nowhere."""
    # Without the steps of a path, `#` is the whole.
    node: Json = root
    for escaped in reference.removeprefix("#").split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        match node:
            case dict():
                node = node.get(step, True)
            case list() if step.isdecimal() and len(step) < _PLACE_DIGITS and int(step) < len(node):
                node = node[int(step)]
            case _:
                return True
    # Another document: the tool has the last word.
    return node if reference.startswith("#") else True


def _has_type(value: Json, declared: Json) -> bool:
    names = declared if isinstance(declared, list) else [declared]
    for name in names:
        types = _TYPES.get(str(name))
        if types is None:
            return True
        # To Python true is an integer, to JSON it is not.
        if isinstance(value, types) and (bool in types or not isinstance(value, bool)):
            return True
        # Models write 3.0 where they mean 3, and JSON Schema takes it for an integer.
        if name == "integer" and isinstance(value, float) and value.is_integer():
            return True
    return False


def _names(declared: Json) -> str:
    return " or ".join(map(str, declared)) if isinstance(declared, list) else str(declared)
