"""The output of a run: its schema, how each model is asked for it, and which output a prompt asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast, final

import attrs

from .errors import Choice
from .validators import json_object, of_kind, spelled, tool_name

# The property that holds an output that is no JSON object: providers take objects only.
VALUE_KEY = "value"


class OutputMode(Choice):
    """
    How a model is asked for an output.

    `NATIVE`: by the provider's own field for a schema. `TOOL`: by a tool, a call of which ends the run.
    `PROMPTED`: by words in the instructions.
    """

    NATIVE = "native"
    TOOL = "tool"
    PROMPTED = "prompted"


def _as_modes(
    modes: Mapping[str, OutputMode | str] | Iterable[tuple[str, OutputMode | str]],
) -> tuple[tuple[str, OutputMode], ...]:
    pairs = cast(
        "Iterable[tuple[str, OutputMode | str]]", modes.items() if isinstance(modes, Mapping) else modes
    )
    return tuple([(name, OutputMode(mode)) for name, mode in pairs])


# By which two outputs are one: the name, whether it is wrapped, and the shape of the schema.
OutputIdentity = tuple[str, bool, str]

# Keywords of a schema that say nothing about which values fit.
_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)

# Keywords whose own keys are names, with schemas or lists of names, and those that hold a list in any order.
_KEYED_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependentRequired", "$defs", "definitions"}
)
_UNORDERED = frozenset({"required", "enum", "type", "anyOf", "oneOf", "allOf"})


@lru_cache(maxsize=256)
def shape_of(schema: str) -> str:
    """The JSON *schema* without annotations and with its lists in one order, as text."""
    return json.dumps(_shape(json.loads(schema)), sort_keys=True)


def _shape(node: object) -> object:
    match node:
        case dict():
            return {key: _keyword(key, each) for key, each in node.items() if key not in _ANNOTATIONS}
        case list():
            return [_shape(each) for each in node]
        case _:
            return node


def _keyword(key: str, value: object) -> object:
    """The shape of the *value* of the keyword *key*."""
    # Properties may have names of keywords, and values may look like schemas.
    if key in _KEYED_BY_NAME and isinstance(value, dict):
        return {
            name: _unordered(each) if isinstance(each, list) else _shape(each) for name, each in value.items()
        }
    shape = value if key in {"const", "enum"} else _shape(value)
    return _unordered(shape) if key in _UNORDERED and isinstance(shape, list) else shape


def _unordered(values: list[Any]) -> list[Any]:
    return sorted(values, key=_text)


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


@final
@spelled
@attrs.frozen(kw_only=True)
class OutputSpec:
    """
    The output of a run, as the loop knows it. *schema* is the JSON Schema of an object, as text.

    *strict_schema* says the same in the subset of JSON Schema that providers take by themselves. *mode* is
    how a model is asked that is not among *modes*. *name* is what the model knows the output by, and
    *description* what it is told of it. *wrapped*: the output itself is the value of `VALUE_KEY` in the
    object. *decoded*: a performer has the last word on whether an output is right.
    """

    schema: str = attrs.field(validator=json_object)
    strict_schema: str = attrs.field(default="{}", validator=json_object)
    name: str = attrs.field(default="output", validator=tool_name)
    description: str = attrs.field(default="", validator=of_kind(str))
    mode: OutputMode = attrs.field(default=OutputMode.PROMPTED, converter=OutputMode)
    modes: tuple[tuple[str, OutputMode], ...] = attrs.field(default=(), converter=_as_modes)
    wrapped: bool = False
    decoded: bool = False

    def mode_of(self, model: str) -> OutputMode:
        """How the model of this name is asked for the output."""
        return dict(self.modes).get(model, self.mode)

    def tool_for(self, model: str) -> str:
        """The name of the tool by which the model of this name gives the output; empty where none does."""
        return self.name if self.mode_of(model) is OutputMode.TOOL else ""

    @property
    def identity(self) -> OutputIdentity:
        """The name and shape of the output: equal also where docstrings or the order of fields differ."""
        return self.name, self.wrapped, shape_of(self.schema)


@final
@attrs.frozen
class AgentOutput:
    """The prompt asks for no output: its run comes to that of the agent."""


@final
@attrs.frozen
class TextOutput:
    """The prompt asks for text, also where the agent has an output."""


# The output that a prompt asks for.
OutputWish = OutputSpec | TextOutput | AgentOutput
