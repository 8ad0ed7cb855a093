"""Outputs: which types they are, their schemas, and what makes their values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are another package

from turnwheel.effects import (
    ArgumentError,
    CallModel,
    ConfigError,
    Conversation,
    History,
    OutputMode,
    OutputSpec,
)
from turnwheel.effects.config import Config, ModelSpec, with_output
from turnwheel.engine.run_output import output_spec
from turnwheel.performers import AskAgain, Output, PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesWire
from turnwheel.performers.models.native_output import strict_form, takes_schema
from turnwheel.performers.models.openai import ChatWire
from turnwheel.performers.models.responses import ResponsesWire
from turnwheel.performers.output import OutputForm, value_of
from turnwheel.states.rules.output import candidate


@attrs.frozen
class Person:
    """Who wrote it."""

    name: str
    age: int = attrs.field(validator=attrs.validators.gt(0))
    nick: str = "none"


@dataclass
class Pair:
    first: Person
    others: list[Person]


class Tree(msgspec.Struct):
    leaf: int
    left: Tree | None = None


class Priced(pydantic.BaseModel):
    usd: Annotated[float, pydantic.Field(ge=0)]
    note: str | None = None


class Keys(TypedDict):
    key: str


def in_order(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(tags))


def stripped(name: str) -> str:
    return name.strip()


@attrs.frozen
class Tagged:
    tags: tuple[str, ...] = attrs.field(converter=in_order)
    name: str = attrs.field(default=" none ", converter=stripped, validator=attrs.validators.max_len(4))
    others: list[Tagged] = attrs.Factory(list)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
ANN = '{"name": "Ann", "age": 7}'
KINDS: list[tuple[Any, str, object, bool]] = [
    (Person, ANN, Person("Ann", 7), True),
    (Pair, f'{{"first": {ANN}, "others": [{ANN}]}}', Pair(Person("Ann", 7), [Person("Ann", 7)]), True),
    (Tree, '{"leaf": 1, "left": {"leaf": 2}}', Tree(1, Tree(2)), False),
    (Priced, '{"usd": 3, "note": null}', Priced(usd=3.0), True),
    (Keys, '{"key": "x"}', {"key": "x"}, True),
    (Colour, '{"value": "red"}', Colour.RED, True),
    (Literal["a", "b"], '{"value": "b"}', "b", True),
    (list[Person], f'{{"value": [{ANN}]}}', [Person("Ann", 7)], True),
    (dict[str, int], '{"value": {"x": 1}}', {"x": 1}, False),
    (Person | Keys, '{"value": {"key": "x"}}', {"key": "x"}, False),
    (int, '{"value": 3.0}', 3, True),
    (int | None, '{"value": null}', None, True),
    (SCHEMA, '{"n": 7}', {"n": 7}, True),
    ({"type": "array", "items": {"type": "integer"}}, '{"value": [1]}', [1], True),
]
"""A type, JSON that fits it, the value of that, and whether providers take its schema by themselves."""


def specified(kind: Any, model: str = "openai:gpt-5", **more: Any) -> OutputSpec:
    return output_spec(Config(model=ModelSpec(model)), Output(kind, **more), None, hosted=False)


@pytest.mark.parametrize(
    ("kind", "text", "value", "native"), KINDS, ids=lambda each: re.sub(r"\W+", " ", str(each))[-60:]
)
def test_each_type_has_a_schema_and_a_value(kind: Any, text: str, value: object, native: bool) -> None:  # noqa: FBT001  # a column of a table
    spec = specified(kind)
    Draft202012Validator.check_schema(json.loads(spec.schema))
    assert candidate(text, spec).fault == ""
    assert OutputForm.of(kind).read(text) == value
    assert value_of(text, spec, Output(kind)) == value
    assert spec.mode_of("openai:gpt-5") is (OutputMode.NATIVE if native else OutputMode.TOOL)


@pytest.mark.parametrize(
    "kind",
    [kind for kind, _, _, native in KINDS if native],
    ids=lambda each: re.sub(r"\W+", " ", str(each))[-60:],
)
def test_a_strict_schema_is_closed_and_needs_all(kind: Any) -> None:
    def objects(node: Any) -> Any:
        if isinstance(node, dict):
            yield from [node] if node.get("type") == "object" else []
            for each in node.values():
                yield from objects(each)
        elif isinstance(node, list):
            for each in node:
                yield from objects(each)

    strict = specified(kind).strict_schema
    for each in objects(json.loads(strict)):
        assert (each["additionalProperties"], sorted(each["required"])) == (False, sorted(each["properties"]))
    assert re.search(r'"(default|minimum|oneOf|\$ref)":', strict) is None


def test_bounds_move_into_the_description() -> None:
    strict = json.loads(strict_form(OutputForm.of(Priced).schema) or "")
    assert strict["properties"]["usd"]["description"] == "at least 0"


NAMED = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
EITHER = {"anyOf": [NAMED, {**NAMED, "properties": {"a": {"type": "integer"}}}]}


@pytest.mark.parametrize(
    "inner",
    [
        {**NAMED, "properties": {"b": {"type": "string"}}, "required": [], **EITHER},
        {"type": "object", "properties": {"b": {"type": "string"}}, "oneOf": [{"required": ["b"]}]},
        {**EITHER, "oneOf": [NAMED]},
        {"type": "array", "items": {"type": "string"}, "anyOf": [{"minItems": 1, "type": "array"}]},
        {**NAMED, "required": ["a", "b"]},
        {**NAMED, "patternProperties": {"^x": {"type": "string"}}},
        {**NAMED, "if": {"properties": {"a": {"const": "x"}}}, "then": {"properties": {"b": {}}}},
        {**NAMED, "dependentSchemas": {"a": {"properties": {"b": {}}}}},
        {**NAMED, "enum": [{"a": "x"}]},
    ],
    ids=str,
)
def test_a_schema_that_would_lose_properties_has_no_strict_form(inner: dict[str, Any]) -> None:
    """The model could not give what is lost there, and the output would never be right."""
    assert strict_form(json.dumps({"type": "object", "properties": {"x": inner}})) is None
    assert (
        specified({"type": "object", "properties": {"x": inner}}).mode_of("openai:gpt-5") is OutputMode.TOOL
    )


def test_a_union_at_the_root_has_no_strict_form() -> None:
    assert strict_form(json.dumps({"type": "object", **EITHER})) is None
    assert strict_form(json.dumps({"type": "object", "properties": {"x": EITHER}})) is not None


@pytest.mark.parametrize(
    ("model", "prefix", "url", "takes"),
    [
        ("openai:gpt-5", "openai", None, True),
        ("openai-responses:gpt-5", "openai-responses", None, True),
        ("openai-responses:gpt-5", "openai-responses", "http://localhost:8000/v1", False),
        ("openai-responses:gpt-5", "openai-responses", "https://api.openai.com/v1", True),
        ("gpt-4o-mini", "openai", "https://api.openai.com/v1", True),
        ("openai:gpt-5", "openai", "http://localhost:8000/v1", False),
        ("openai:gpt-3.5-turbo", "openai", None, False),
        ("anthropic:claude-sonnet-4-5", "anthropic", None, True),
        ("anthropic:claude-sonnet-4-0", "anthropic", None, False),
        ("gemini:gemini-2.5-pro", "gemini", None, False),
        ("vllm:qwen3", "vllm", None, False),
        ("own:model", "own", None, False),
    ],
)
def test_some_models_take_a_schema(model: str, prefix: str, url: str | None, *, takes: bool) -> None:
    assert takes_schema(model, prefix, url) is takes


def test_the_mode_follows_model_and_host() -> None:
    config = Config(
        model=ModelSpec("openai:gpt-5"),
        models=(ModelSpec("vllm:qwen3"), ModelSpec("ollama:tiny", tool_choice="none")),
    )
    ours = output_spec(config, Output(Person), None, hosted=False)
    theirs = output_spec(config, Output(Person), None, hosted=True)
    forced = output_spec(config, Output(Person, mode="prompted"), None, hosted=False)
    names = config.model_names
    assert [ours.mode_of(name).value for name in names] == ["native", "tool", "prompted"]
    assert [theirs.mode_of(name).value for name in names] == ["tool", "tool", "prompted"]
    assert {forced.mode_of(name).value for name in names} == {"prompted"}


def test_the_converters_of_an_attrs_class_run_before_its_validators() -> None:
    form = OutputForm.of(Tagged)
    others = '[{"tags": ["d", "c"], "name": " x"}]'
    made = form.read(f'{{"tags": ["b", "a"], "others": {others}}}')
    assert made == Tagged(("a", "b"), "none", [Tagged(("c", "d"), "x")])
    with pytest.raises(ValueError, match="must be <= 4"):
        form.read('{"tags": [], "name": " Annabel "}')


LISTED = {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (LISTED, "[1, [2, [3]]]", '[1, [2, ["a"]]]'),
        (
            {
                "type": "array",
                "items": {"$ref": "#/definitions/N"},
                "definitions": {"N": {"type": "integer"}},
            },
            "[1]",
            '["a"]',
        ),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/prefixItems/0"}]},
            "[1, 2]",
            '[1, "a"]',
        ),
        ({"type": "object", "additionalProperties": {"$ref": "#"}}, '{"a": {"b": {}}}', '{"a": {"b": 1}}'),
    ],
)
def test_references_of_a_schema_lead_where_they_led_before(
    schema: dict[str, Any], right: str, wrong: str
) -> None:
    """A schema of no object stands inside of one, and its root is not that of the whole any more."""
    spec = specified(schema)
    assert candidate(f'{{"value": {right}}}', spec).fault == ""
    assert candidate(f'{{"value": {wrong}}}', spec).fault != ""
    whole = Draft202012Validator(json.loads(spec.schema))
    assert [whole.is_valid({"value": json.loads(text)}) for text in (right, wrong)] == [True, False]


def test_what_cannot_be_an_output_is_refused_at_once() -> None:
    with pytest.raises(ArgumentError, match=r"cannot be an output: .*; use a type that has JSON"):
        Output(object)
    with pytest.raises(ArgumentError, match="the schema of an output must be JSON"):
        Output({"type": {1}})
    with pytest.raises(ArgumentError, match=r"Output\.validator must be a function; got 7"):
        Output(int, validator=7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the mistake
    with pytest.raises(ConfigError, match="has no schema that providers take by themselves"):
        specified(dict[str, int], mode="native")


# On the wire

CLAUDE = "anthropic:claude-opus-4-7"
WIRES: list[tuple[Callable[[], Any], str]] = [
    (ChatWire, "openai:gpt-5"),
    (MessagesWire, "anthropic:claude-opus-4-7"),
    (ResponsesWire, "openai-responses:gpt-5"),
]


def body(wire: Any, model: str, mode: OutputMode | None, **more: Any) -> dict[str, Any]:
    config = with_output(Config(model=ModelSpec(model)), specified(Person, model))
    request = CallModel(id="r-1", model=model, view=Conversation(revision=0, length=0), output=mode, **more)
    scene = PerformContext(
        session="s", run="r", config=config, history=History.of(), clock=SystemClock(), emit=lambda _: None
    )
    made: dict[str, Any] = json.loads(wire.encode(request, scene).body)
    return made


def test_chat_completions_have_the_schema_as_response_format() -> None:
    form = body(ChatWire(), "openai:gpt-5", OutputMode.NATIVE)["response_format"]
    assert (form["type"], form["json_schema"]["name"], form["json_schema"]["strict"]) == (
        "json_schema",
        "Person",
        True,
    )
    assert form["json_schema"]["schema"]["required"] == ["name", "age", "nick"]


def test_responses_have_the_schema_as_the_format_of_their_text() -> None:
    model = "openai-responses:gpt-5"
    form = body(ResponsesWire(), model, OutputMode.NATIVE)["text"]["format"]
    assert (form["type"], form["name"], form["strict"]) == ("json_schema", "Person", True)
    assert form["schema"]["required"] == ["name", "age", "nick"]
    terse = ResponsesWire().adding({"text": {"verbosity": "low"}})
    more = body(terse, model, OutputMode.NATIVE)["text"]
    assert more == {"verbosity": "low", "format": form}


def test_messages_have_the_schema_beside_the_effort() -> None:
    config = body(MessagesWire(), CLAUDE, OutputMode.NATIVE, thinking=5_000)["output_config"]
    assert config["effort"] == "medium"
    assert (config["format"]["type"], config["format"]["schema"]["required"]) == (
        "json_schema",
        ["name", "age", "nick"],
    )


@pytest.mark.parametrize(("wire", "model"), WIRES)
@pytest.mark.parametrize("mode", [None, OutputMode.TOOL, OutputMode.PROMPTED])
def test_no_schema_is_sent_in_another_mode(
    wire: Callable[[], Any], model: str, mode: OutputMode | None
) -> None:
    assert {"response_format", "output_config", "text"} & body(wire(), model, mode).keys() == set()


@pytest.mark.parametrize(("wire", "model"), WIRES)
@pytest.mark.parametrize("mode", [OutputMode.NATIVE, OutputMode.PROMPTED])
def test_without_its_tool_an_output_leaves_the_tools_alone(
    wire: Callable[[], Any], model: str, mode: OutputMode
) -> None:
    """A choice of none would switch the tools of the provider off, and some models take no tools at all."""
    assert {"tools", "tool_choice"} & body(wire(), model, mode).keys() == set()


def test_a_reason_to_ask_again_is_no_error_of_the_library() -> None:
    assert str(AskAgain("too young")) == "too young"
