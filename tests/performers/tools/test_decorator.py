"""Making a function a tool: what the model is shown, what it may pass, and which functions are refused."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_type, cast

import attrs
import msgspec
import pytest
from pydantic import BaseModel, Field

from turnwheel.effects.config import Approval, SideEffect, ToolSpec
from turnwheel.effects.errors import ToolDefinitionError
from turnwheel.performers import Tool, ToolContext, tool

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForCheckers

CONTEXT: ToolContext[object] = ToolContext(cwd=Path("/"), deps=None)


@dataclasses.dataclass
class Point:
    """A place on the map."""

    x: int
    y: int = 0


@attrs.frozen
class Line:
    """Two points."""

    start: Point
    end: Point


class Tree(msgspec.Struct):
    """A tree of trees."""

    name: str
    children: list[Tree] = []


class Yew(Tree):
    shoots: list[Yew] = []


class Oak(Tree):
    shoots: list[Oak] = []


class Elm(Tree):
    shoots: list[Elm] = []


class Ash(Tree):
    shoots: list[Ash] = []


class Fir(Tree):
    shoots: list[Fir] = []


class Colour(Enum):
    """Some colours."""

    RED = "red"
    BLUE = "blue"


def properties(made: Tool[..., object]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.spec.schema)["properties"]
    return found


@tool
def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@tool(
    side_effect="read_only",
    approval="never",
    timeout=None,
    name="wait-a-bit",
    description="Waits.",
    edits=True,
    resources=["clock", "text:{text}:{times}"],
)
async def wait(text: str, *, times: int = 1) -> str:
    """Not this."""
    await asyncio.sleep(0)
    return text * times


async def test_a_tool_is_the_function_it_was_and_its_specification() -> None:
    assert assert_type(double(2), int) == 4
    assert assert_type(await wait("a", times=2), str) == "aa"
    # What is not said is assumed at its worst.
    bare = ToolSpec(name="double", description="Twice the number.", schema=double.spec.schema, timeout=30.0)
    assert attrs.evolve(bare, side_effect=SideEffect.UNSAFE, approval=Approval.BY_SIDE_EFFECT) == double.spec
    assert (bare.edits, bare.resources) == (False, None)
    assert wait.spec == ToolSpec(
        name="wait-a-bit",
        description="Waits.",
        schema=wait.spec.schema,
        side_effect=SideEffect.READ_ONLY,
        approval=Approval.NEVER,
        timeout=None,
        edits=True,
        resources=("clock", "text:{text}:{times}"),
    )
    # The top of a schema is the object itself, not a reference, and it is closed.
    assert json.loads(double.spec.schema) == {
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    }


class Wanted(BaseModel):
    count: int = Field(gt=0)
    parts: list[Wanted] = []


@attrs.frozen
class Row:
    count: int


@attrs.frozen
class Order:
    cents: int
    rows: list[Row] = attrs.field(factory=list)
    by_name: dict[str, int] = attrs.field(factory=dict)
    size: int | str = 1
    level: Literal[1, 2] = 1
    price: Decimal | None = None
    ratio: float = 0.5
    more: Any = None


@tool
def pay_order(order: Order) -> None: ...


@attrs.frozen
class Numbered:
    number: int
    below: list[Numbered] = attrs.field(factory=list)


@tool
def buy(first: Wanted, more: list[Wanted] | None = None) -> str:
    return f"{first} {more}"


def test_models_of_pydantic_are_parameters() -> None:
    made = tool(buy.function)
    # One that contains itself is referred to.
    assert set(json.loads(made.spec.schema)["$defs"]) == {"Wanted.Wanted"}
    assert made.bind('{"first": {"count": 2}}', CONTEXT) == {"first": Wanted(count=2), "more": None}
    for wrong, why in (("0", "greater than 0"), ('"2"', "valid integer")):
        with pytest.raises(ValueError, match=why):
            made.bind(f'{{"first": {{"count": {wrong}}}}}', CONTEXT)


def whole(arguments: dict[str, Any], context: ToolContext[None]) -> str:
    return f"{arguments} {context.cwd}"


def test_a_tool_may_have_a_schema_of_its_own() -> None:
    schema = {"type": "object", "properties": {"a-b": {"type": "string"}, "pin": {}}, "required": ["pin"]}
    made = Tool.from_schema(schema, whole, resources=["{pin}"], timeout=None)
    assert (json.loads(made.spec.schema), made.spec.resources) == (schema, ("{pin}",))
    assert made.bind('{"pin": 1}', CONTEXT) == {"arguments": {"pin": 1}, "context": CONTEXT}
    with pytest.raises(ValueError, match=r"it takes: a-b \(optional\), pin$"):
        made.bind("[]", CONTEXT)
    with pytest.raises(ToolDefinitionError, match="it must have one parameter"):
        Tool.from_schema(schema, wait.function)


@tool
def rich(  # noqa: PLR0913, PLR0917  # one of each kind
    mode: Literal["fast", "slow"],
    names: list[str],
    line: Line,
    limit: int | None = None,
    ratio: Annotated[float, msgspec.Meta(ge=0, le=1, description="Between nothing and all.")] = 0.5,
    colour: Colour = Colour.RED,
    tags: list[str] = ["a"],  # noqa: B006  # it is what this is about
    anything: Any = None,  # it is one of the kinds
) -> None:
    """All kinds of types."""


def test_rich_signatures_become_rich_schemas() -> None:
    point = {
        "title": "Point",
        "description": "A place on the map.",
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
    }
    made = tool(rich.function)
    found = properties(made)
    assert found["mode"] == {"enum": ["fast", "slow"]}
    assert found["names"] == {"type": "array", "items": {"type": "string"}}
    assert found["line"]["properties"] == {"start": point, "end": point}
    assert found["limit"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert found["ratio"] == {
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "Between nothing and all.",
        "default": 0.5,
    }
    assert (found["colour"]["enum"], found["colour"]["default"]) == (["blue", "red"], "red")
    assert found["anything"] == {"default": None}
    assert json.loads(made.spec.schema)["required"] == ["mode", "names", "line"]
    assert "$ref" not in made.spec.schema


def test_rich_arguments_become_what_the_function_expects() -> None:
    line = {"start": {"x": 1}, "end": {"x": 2, "y": 3}}
    text = json.dumps({"mode": "fast", "names": ["n"], "line": line, "colour": "blue"})
    expected = {
        "mode": "fast",
        "names": ["n"],
        "line": Line(Point(1), Point(2, 3)),
        "limit": None,
        "ratio": 0.5,
        "colour": Colour.BLUE,
        "tags": ["a"],
        "anything": None,
    }
    made = tool(rich.function)
    for _ in range(2):
        bound = made.bind(text, CONTEXT)
        assert bound == expected
        cast("list[str]", bound["tags"]).append("b")  # a default is not shared between calls


def test_a_type_that_contains_itself_stays_a_reference() -> None:
    @tool
    def plant(tree: Tree, other: Tree | None = None) -> None:
        """Plant a tree."""

    schema = json.loads(plant.spec.schema)
    assert schema["properties"]["tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}
    assert plant.bind('{"tree":{"name":"a","children":[{"name":"b"}]}}', CONTEXT)["tree"] == Tree(
        "a", [Tree("b")]
    )


def test_references_stand_in_the_order_of_their_names() -> None:
    """So the schema is the same in every process, and a provider knows it again."""

    @tool
    def plant(yew: Yew, oak: Oak, elm: Elm, ash: Ash, fir: Fir) -> None:
        """Plant one of each."""

    assert list(json.loads(plant.spec.schema)["$defs"]) == ["Ash", "Elm", "Fir", "Oak", "Tree", "Yew"]


GOOGLE = """
    Read a file
    and say so.

    It does more than that, which the model need not know.

    Args:
        path (str): Where it is: a path,
            relative or not.

        count: How often.

    Returns:
        path: not this one.
    """
REST = """Read a file and say so.

    :param str path: Where it is: a path,
        relative or not.
    :param count: How often.
    :returns: nothing
    """
NO_BLANK_LINE = """Read a file and say so.
    Args:
      path: Where it is: a path, relative or not.
      count: How often.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, REST, NO_BLANK_LINE])
def test_docstrings_describe_the_tool_and_its_parameters(docstring: str) -> None:
    def look(path: str, count: int = 1) -> None: ...

    look.__doc__ = docstring
    made = tool(look)
    assert made.spec.description == "Read a file and say so."
    described = {name: found.get("description") for name, found in properties(made).items()}
    assert described == {"path": "Where it is: a path, relative or not.", "count": "How often."}


def test_what_a_function_may_leave_out() -> None:
    @tool(resources=())
    def silent(path: str) -> OnlyForCheckers:  # the type of a result is never evaluated
        raise NotImplementedError(path)

    @tool
    def now() -> None: ...

    assert (silent.spec.description, properties(silent)) == ("", {"path": {"type": "string"}})
    assert silent.spec.resources == ()  # no keys at all is not the same as not saying
    assert (
        now.bind("", CONTEXT) == now.bind(" \n", CONTEXT) == {}
    )  # as providers send a call without arguments


def test_a_context_is_filled_in_and_not_shown() -> None:
    @tool
    def inside(text: str, context: ToolContext[int], other: ToolContext) -> None:  # type: ignore[type-arg]  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType]  # as one may write
        """Look around."""

    assert list(properties(inside)) == ["text"]
    assert inside.bind('{"text":"a"}', CONTEXT) == {"text": "a", "context": CONTEXT, "other": CONTEXT}
    by_hand = ToolContext(cwd=Path("/here"), deps={"a": 1})
    by_hand.progress("half")
    assert (by_hand.directories, by_hand.deps["a"], by_hand.key) == ((Path("/here"),), 1, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("{}", "Object missing required field `number`; it takes: number"),
        ('{"number":"5"}', "Expected `int`, got `str` - at `$.number`; it takes: number"),
        ('{"number":5.5}', "Expected `int`, got `float` - at `$.number`; it takes: number"),
        ('{"number":1,"more":2}', "Object contains unknown field `more`; it takes: number"),
        ("[1]", "Expected `object`, got `array`; it takes: number"),
        ("", "Object missing required field `number`; it takes: number"),
        ('{"number":', "not a JSON object: Input data was truncated; it takes: number"),
        ("[" * 100_000, "Expected `object`, got `array`; it takes: number"),
    ],
)
def test_wrong_arguments_are_explained_to_the_model(arguments: str, complaint: str) -> None:
    """What is wrong, where, and what there would be to pass."""
    with pytest.raises(ValueError, match="Invalid arguments") as caught:
        double.bind(arguments, CONTEXT)
    assert str(caught.value) == f"Invalid arguments for double: {complaint}"


@pytest.mark.parametrize(
    ("arguments", "bound"),
    [
        ('{"cents":5.0}', {"cents": 5}),
        ('{"cents":5e2,"rows":[{"count":1.0},{"count":2}]}', {"cents": 500, "rows": [Row(1), Row(2)]}),
        ('{"cents":1,"by_name":{"a":3.0},"size":2.0}', {"cents": 1, "by_name": {"a": 3}, "size": 2}),
        ('{"cents":1,"level":2.0}', {"cents": 1, "level": 2}),
        # Other numbers stay as they were written.
        (
            '{"cents":1.0,"price":0.10000000000000000001}',
            {"cents": 1, "price": Decimal("0.10000000000000000001")},
        ),
        ('{"cents":1.0,"ratio":2.0,"more":3.0}', {"cents": 1, "ratio": 2.0}),
    ],
)
def test_a_whole_number_is_an_integer_however_it_is_written(arguments: str, bound: dict[str, Any]) -> None:
    order = pay_order.bind(f'{{"order":{arguments}}}', CONTEXT)["order"]
    given = {name: getattr(order, name) for name in bound}
    assert given == bound
    assert [type(value) for value in given.values()] == [type(value) for value in bound.values()]


def test_a_tree_takes_whole_numbers_at_any_depth() -> None:
    @tool
    def plant(tree: Numbered) -> None: ...

    assert plant.bind('{"tree":{"number":1.0,"below":[{"number":2.0}]}}', CONTEXT)["tree"] == Numbered(
        1, [Numbered(2)]
    )


@pytest.mark.parametrize("wrong", ["5.5", "1e400", "-1e30", '"5.0"'])
def test_what_is_no_whole_number_is_no_integer(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"^Invalid arguments for double: .*number"):
        double.bind(f'{{"number":{wrong}}}', CONTEXT)


@pytest.mark.parametrize("kind", [ToolContext[None] | None, Annotated[ToolContext[None] | None, "where"]])
def test_a_context_that_may_be_missing_is_refused_with_how_to_write_it(kind: Any) -> None:
    def look(path: str, context: Any = None) -> None: ...

    look.__annotations__["context"] = kind
    with pytest.raises(ToolDefinitionError, match=r"'context' .* annotate it as ToolContext, without None$"):
        tool(look)


def test_a_docstring_that_describes_no_parameter_is_refused() -> None:
    def look(path: str, context: ToolContext[None]) -> None:
        """
        Look.

        Args:
            path: where
            context: who
            pth: what
        """

    def peek(path: str) -> None:
        """
        Peek.

        :param pathh: where
        """

    for function, name in ((look, "pth"), (peek, "pathh")):
        with pytest.raises(ToolDefinitionError, match=f"docstring describes '{name}', which is no parameter"):
            tool(function)


def test_a_docstring_may_describe_what_is_bound_and_what_a_schema_has() -> None:
    def look(path: str, depth: int) -> None:
        """
        Look.

        Args:
            path: where
            depth: how deep
        """

    def ask(arguments: dict[str, Any]) -> None:
        """
        Ask.

        Args:
            city: where
        """

    assert "how deep" not in tool(functools.partial(look, depth=2)).spec.schema
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    assert Tool.from_schema(schema, ask).spec.name == "ask"


def test_each_wrong_argument_is_explained_and_five_at_most() -> None:
    @tool
    def book(
        day: date, nights: int, *, name: str = "", beds: int = 1, pets: int = 0, cots: int = 0
    ) -> None: ...

    with pytest.raises(ValueError, match="Invalid arguments for book: ") as caught:
        book.bind('{"name":"Ann","nights":"2","day":"soon"}', CONTEXT)
    assert "Expected `int`, got `str` - at `$.nights`; " in str(caught.value)
    assert "date - at `$.day`; it takes: day, nights, name (optional)" in str(caught.value)
    with pytest.raises(ValueError, match="Invalid arguments for book: ") as caught:
        book.bind('{"day":[],"nights":[],"name":[],"beds":[],"pets":[],"cots":[]}', CONTEXT)
    assert [name in str(caught.value) for name in ("`$.day`", "`$.pets`", "`$.cots`")] == [True, True, False]


def test_a_tool_shows_what_it_takes_in_one_line() -> None:
    def look(arguments: dict[str, Any]) -> None: ...

    schema = {"type": "object", "properties": {f"argument_{number}": {} for number in range(100)}}
    assert repr(double) == "<Tool 'double': unsafe, takes number>"
    assert "takes argument_0, " in repr(Tool.from_schema(schema, look, side_effect="read_only"))
    assert len(repr(Tool.from_schema(schema, look, side_effect="read_only"))) <= 300
    assert repr(Tool.from_schema({}, look)) == "<Tool 'look': unsafe, takes nothing>"


class Picky:
    """Whatever is no type of data."""

    def yielding(self, number: int) -> Iterator[int]:
        yield number


def _positional(number: int, /) -> None: ...
def _many(*numbers: int) -> None: ...
def _named(**numbers: int) -> None: ...
def _untyped(number) -> None: ...  # type: ignore[no-untyped-def]  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]  # noqa: ANN001  # what it is about
def _strange(number: Picky) -> None: ...
def _nested(numbers: list[Picky]) -> None: ...
def _calling(number: Callable[[], int]) -> None: ...
def _unknown(number: NoSuchThing) -> None: ...  # type: ignore[name-defined]  # pyright: ignore[reportUndefinedVariable, reportUnknownParameterType]  # noqa: F821  # what it is about
def _unnatural(number: OnlyForCheckers) -> None: ...
def _yielding(number: int) -> Iterator[int]:
    yield number


async def _streaming(number: int) -> AsyncIterator[int]:
    yield number


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (_positional, ["'_positional'", "'number'", "spell each one out"]),
        (_many, ["'_many'", "'*numbers'", "spell each one out"]),
        (_named, ["'_named'", "'**numbers'", "spell each one out"]),
        (_untyped, ["'_untyped'", "'number'", "annotate it"]),
        (_strange, ["'_strange'", "'number'", "Picky", "use str, int"]),
        (_nested, ["'_nested'", "'numbers'", "Picky", "use str, int"]),
        (_calling, ["'_calling'", "'number'", "Callable", "use str, int"]),
        (_unknown, ["'_unknown'", "'NoSuchThing'", "'number'", "at the top of the module"]),
        (_unnatural, ["'_unnatural'", "'OnlyForCheckers'", "'number'", "at the top of the module"]),
        (_yielding, ["'_yielding'", "return one value"]),
        (_streaming, ["'_streaming'", "return one value"]),
        (double, ["'double'", "it is a tool already; use it as it is"]),
        (Picky, ["'Picky'", "it is a class; write a function that calls it"]),
        (
            cast("Callable[..., object]", "look"),
            ["'str'", "it is not callable; write a function that calls it"],
        ),
        (functools.partial(_streaming, 1), ["'_streaming'", "return one value"]),
        (Picky.yielding, ["return one value"]),
    ],
)
def test_functions_no_model_could_call_are_refused(function: Callable[..., object], parts: list[str]) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(function)
    assert [part for part in parts if part not in str(caught.value)] == []
    assert "model_json_schema" not in str(caught.value)


def test_a_function_that_another_module_wraps_is_read_where_it_was_written() -> None:
    scope: dict[str, Any] = {"wraps": functools.wraps}
    wrapping = (
        "def logged(function):\n    return wraps(function)(lambda *args, **named: function(*args, **named))"
    )
    exec(wrapping, scope)  # noqa: S102  # a module that knows none of the types here

    def draw(line: Line) -> str:
        return str(line.start.x)

    made: Tool[..., str] = tool(scope["logged"](draw))
    assert made(**made.bind('{"line": {"start": {"x": 1}, "end": {"x": 2}}}', CONTEXT)) == "1"


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"name": "no spaces, please"}, "no spaces, please"),
        ({"side_effect": "harmless"}, "'harmless'"),
        ({"approval": "sometimes"}, "'sometimes'"),
        ({"timeout": 0}, "timeout must be a number above 0"),
        ({"resources": ["account:{id}"]}, "'account:{id}' names no argument 'id'; there are: number"),
        ({"resources": ["{number}", "{context}"]}, "'{context}' names no argument 'context'"),
        ({"resources": ["number:{number"]}, "'number:{number' has a brace that belongs to no {name}"),
        ({"resources": ["{number.real}"]}, "'{number.real}' has a brace"),
        ({"resources": ["{}"]}, "'{}' has a brace"),
        ({"resources": [5]}, "the resource 5 is no text"),
        ({"resources": "clock"}, "its resources are several keys; write ['clock']"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], part: str) -> None:
    with pytest.raises(ToolDefinitionError, match="positional_or_not") as caught:

        @tool(**settings)
        def positional_or_not(number: int, context: ToolContext[object]) -> None:
            """Nothing."""

    assert part in str(caught.value)


def login(user: str, password: str, pin: int = 0, *, stay: bool = False) -> str:
    """Log in."""
    return f"{user} {password} {pin} {stay}"


@pytest.mark.parametrize(
    ("options", "secrets"),
    [
        ({}, ("password",)),
        ({"secrets": ["pin"]}, ("password", "pin")),
        ({"secrets": ["user", "pin", "password"]}, ("password", "pin", "user")),
        ({"plain": ["password"]}, ()),
        ({"plain": ["password", "pin"], "secrets": ["user", "pin"]}, ("user",)),
    ],
)
def test_arguments_are_secret_by_their_names_and_as_is_said(
    options: dict[str, Any], secrets: tuple[str, ...]
) -> None:
    made = tool(**options)(login)
    assert (made.spec.secrets, made.plain) == (secrets, tuple(options.get("plain", ())))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        # A word of the schema is no argument.
        ({"secrets": ["type"]}, "the secret 'type' names no argument; there are: password, pin, stay, user"),
        (
            {"secrets": ["pin", "pun"]},
            "the secret 'pun' names no argument; there are: password, pin, stay, user",
        ),
        ({"secrets": ["stay"]}, "the secret 'stay' is true or false, which is never redacted"),
        ({"secrets": "pin"}, "several names are wanted, not one: write ['pin']"),
        ({"secrets": [5]}, "a name is text, not 5"),
        ({"plain": "pin"}, "several names are wanted, not one: write ['pin']"),
        ({"plain": [None]}, "a name is text, not None"),
    ],
)
def test_a_secret_is_an_argument_that_can_be_hidden(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        tool(**options)(login)
    assert str(caught.value) == f"'login' cannot be a tool: {problem}"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"secrets": ["pin"]}, "the secret 'pin' names no argument; there are: none"),
        ({"paths": ["where"]}, "'where' names no argument; there are: none"),
        ({"resources": ["{id}"]}, "the resource '{id}' names no argument 'id'; there are: none"),
    ],
)
def test_where_a_function_has_no_arguments_that_is_said(options: dict[str, Any], problem: str) -> None:
    def now() -> None: ...

    with pytest.raises(ToolDefinitionError, match="now") as caught:
        tool(**options)(now)
    assert str(caught.value).endswith(f"cannot be a tool: {problem}")


def test_a_context_shows_where_it_is_and_is_equal_whoever_listens() -> None:
    """Its conversation and its configuration would fill a page."""
    assert repr(CONTEXT) == (
        "ToolContext(cwd=PosixPath('/'), deps=None, directories=(PosixPath('/'),), session='', call='', "
        "tool='', key='', result_limit=None)"
    )
    assert attrs.evolve(CONTEXT, emit=print) == CONTEXT
    assert attrs.evolve(CONTEXT, key="k") != CONTEXT


@pytest.mark.parametrize(
    "options", [{"paths": ["where"]}, {"command": "where"}, {"paths": ["path", "where"]}]
)
def test_a_path_or_a_command_is_an_argument(options: dict[str, Any]) -> None:
    def look(path: str) -> str:
        return path

    with pytest.raises(ToolDefinitionError, match="'where' names no argument; there are: path"):
        tool(**options)(look)
    made = tool(paths=["path"])(look)
    assert (made.spec.paths, made.spec.command, made.spec.fills) == (("path",), "", True)
