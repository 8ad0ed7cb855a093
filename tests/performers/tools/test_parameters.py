"""Types of parameters: the schema that a model sees, arguments that fit, and those that do not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    TypedDict,
    TypeVar,
)

import annotated_types as at
import attrs
import msgspec
import pydantic
import pytest
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import Doc

from turnwheel.effects import ToolDefinitionError
from turnwheel.performers import Tool, ToolContext, tool

CONTEXT: ToolContext[object] = ToolContext(cwd=Path("/"), deps=None)
T = TypeVar("T")


def taking(kind: Any, **options: Any) -> Tool[..., Any]:
    """A tool with one parameter, of the type *kind*."""

    def look(value: Any) -> object:
        return value

    look.__annotations__["value"] = kind
    return tool(**options)(look)


def schema(kind: Any) -> Any:
    return json.loads(taking(kind).spec.schema)["properties"]["value"]


def passed(kind: Any, value: object) -> object:
    return taking(kind).bind(json.dumps({"value": value}), CONTEXT)["value"]


class Place(NamedTuple):
    """A place."""

    x: int
    y: int = 0


@dataclasses.dataclass
class Cat:
    """A cat."""

    name: str
    lives: Annotated[int, at.Ge(1), "How many are left."] = 9


@dataclasses.dataclass
class Dog:
    name: str
    barks: bool = True
    size: int = 1


@attrs.frozen
class House:
    pets: list[Cat | Dog]
    home: Path
    number: Annotated[int, at.Gt(0)] = attrs.field(validator=attrs.validators.lt(100), default=1)


class Options(TypedDict):
    limit: Annotated[int, at.Interval(gt=0, le=5)]
    where: NotRequired[Path]


class Knot(msgspec.Struct, rename="camel"):
    line_length: Annotated[float, at.Gt(0)]
    next_knots: list[Knot] = []


class Wanted(pydantic.BaseModel):
    count: int = pydantic.Field(gt=0, description="How many.")
    parts: list[Wanted] = []


class Wished(pydantic.BaseModel):
    wish: str


class Numbers(pydantic.RootModel[list[int]]):
    pass


@pydantic_dataclass
class Account:
    name: Annotated[str, pydantic.StringConstraints(min_length=2)]
    pin: pydantic.SecretStr


@dataclasses.dataclass
class Basket:
    wanted: Wanted
    place: Place


class Shade(enum.Enum):
    DARK = "dark"
    LIGHT = "light"


Positive = NewType("Positive", int)
Limited = Annotated[int, at.Gt(0), at.Lt(5)]
LIMITED = {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5}
ID = uuid.UUID(int=7)
PLACE = Place(1)
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Annotated[int, at.Gt(0)], {"type": "integer", "exclusiveMinimum": 0}),
        (Annotated[int, at.Interval(ge=1, lt=5)], {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}),
        (
            Annotated[int, at.MultipleOf(3), "3"],
            {"type": "integer", "multipleOf": 3, "description": "3"},
        ),
        (Annotated[str, at.Len(1, 3)], {"type": "string", "minLength": 1, "maxLength": 3}),
        (Annotated[list[int], at.MinLen(1)], {"type": "array", "items": {"type": "integer"}, "minItems": 1}),
        (Annotated[str, Doc("A name.")], {"type": "string", "description": "A name."}),
        (Annotated[float, at.Unit("m")], {"type": "number", "description": "unit: m"}),
        (Annotated[int, msgspec.Meta(gt=0), at.Lt(5)], LIMITED),
        (
            list[Limited],
            {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 5}},
        ),
        (
            Annotated[int | None, at.Gt(0)],
            {"anyOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}]},
        ),
        (Annotated[Decimal, at.Gt(0)], {"type": "string", "format": "decimal", "exclusiveMinimum": 0}),
        (
            Annotated[int, pydantic.Field(gt=0, description="A count.")],
            {"type": "integer", "exclusiveMinimum": 0, "description": "A count."},
        ),
        (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
        (Path, {"type": "string", "format": "path"}),
        (Path | None, {"anyOf": [{"type": "string", "format": "path"}, {"type": "null"}]}),
        (Iterable[int], {"type": "array", "items": {"type": "integer"}}),
        (
            Place,
            {
                "title": "Place",
                "description": "A place.",
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
                "required": ["x"],
            },
        ),
    ],
)
def test_a_type_is_a_schema(kind: Any, expected: object) -> None:
    assert schema(kind) == expected


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (Limited, 4, 4),
        (Annotated[Decimal, at.Gt(0), at.MultipleOf(Decimal("0.5"))], "1.5", Decimal("1.5")),
        (Annotated[dt.date, at.Ge(dt.date(2026, 1, 1))], "2026-01-02", dt.date(2026, 1, 2)),
        (Annotated[Decimal | None, at.Gt(0)], None, None),
        (
            Annotated[dt.datetime, at.Timezone(...)],
            "2026-01-02T00:00:00Z",
            dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
        ),
        (Annotated[str, at.Predicate(str.isupper)], "A", "A"),
        (Positive, 3, 3),
        (Path, "a/b", Path("a/b")),
        (dict[str, Path], {"a": "b"}, {"a": Path("b")}),
        (tuple[Path, ...], ["a"], (Path("a"),)),
        (Place, {"x": 1}, Place(1)),
        (list[Place], [{"x": 1, "y": 2}], [Place(1, 2)]),
        (Cat, {"name": "a", "lives": 1}, Cat("a", 1)),
        (Cat | Dog, {"name": "a", "size": 3}, Dog("a", size=3)),
        (Cat | Dog | str | None, {"name": "a", "lives": 2}, Cat("a", 2)),
        (Cat | Dog | str | None, "a", "a"),
        (Cat | Dog | str | None, None, None),
        (
            House,
            {"pets": [{"name": "a"}, {"name": "b", "barks": False}], "home": "h", "number": 2},
            House([Cat("a"), Dog("b", barks=False)], Path("h"), 2),
        ),
        (Options, {"limit": 5, "where": "a"}, {"limit": 5, "where": Path("a")}),
        (Options, {"limit": 1}, {"limit": 1}),
        (Knot, {"lineLength": 1, "nextKnots": [{"lineLength": 2}]}, Knot(1.0, [Knot(2.0)])),
        (Wanted, {"count": 1, "parts": [{"count": 2}]}, Wanted(count=1, parts=[Wanted(count=2)])),
        (Wanted | Wished, {"wish": "a"}, Wished(wish="a")),
        (Wanted | Cat | int, {"count": 2}, Wanted(count=2)),
        (Wanted | Cat | int, 7, 7),
        (dict[str, list[Wanted]], {"a": [{"count": 1}]}, {"a": [Wanted(count=1)]}),
        (Basket, {"wanted": {"count": 1}, "place": {"x": 1}}, Basket(Wanted(count=1), Place(1))),
        (Numbers, [1], Numbers([1])),
        (Account, {"name": "ann", "pin": "1"}, Account(name="ann", pin=pydantic.SecretStr("1"))),
        (Annotated[ipaddress.IPv4Address, pydantic.Field()], "10.0.0.1", ipaddress.IPv4Address("10.0.0.1")),
        (int | str, "a", "a"),
        (dt.date | str, "2026-01-02", dt.date(2026, 1, 2)),
        (dt.date | str, "soon", "soon"),
        (dict[Shade, uuid.UUID], {"dark": str(ID)}, {Shade.DARK: ID}),
        (Sequence[int], [1], [1]),
        (Mapping[str, int], {"a": 1}, {"a": 1}),
        (set[Literal["a", "b"]], ["a"], {"a"}),
        (dt.timedelta | None, "P1D", dt.timedelta(days=1)),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_an_argument_becomes_a_value_of_the_type(kind: Any, given: object, value: object) -> None:
    found = passed(kind, given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "given", "complaint"),
    [
        (Limited, 5, "Expected `int` <= 4 - at `$.value`"),
        (list[Limited], [1, 0], "Expected `int` >= 1 - at `$.value[1]`"),
        (Annotated[Decimal, at.Gt(0)], "-1", "Expected > 0, got '-1' - at `$.value`"),
        (Annotated[str, at.Predicate(str.isupper)], "a", "Expected a value that passes str.isupper, got 'a'"),
        (Annotated[dt.datetime, at.Timezone(None)], "2026-01-02T00:00:00Z", "at `$.value`"),
        (Path, 5, "Expected a path as `str`, got `int` - at `$.value`"),
        (Place, [1, 2], "Expected `object`, got `array` - at `$.value`"),
        (Place, {"y": 1}, "Object missing required field `x` - at `$.value`"),
        (Cat, {"name": "a", "lives": 0}, "Expected `int` >= 1 - at `$.value.lives`"),
        (list[Cat], [{"name": 1}], "Expected `str`, got `int` - at `$.value[0].name`"),
        (House, {"pets": [], "home": "h", "number": 100}, "'number' must be < 100"),
        (Options, {"limit": 6}, "Expected `int` <= 5 - at `$.value.limit`"),
        (Knot, {"lineLength": 1, "nextKnots": [{"lineLength": 0}]}, "- at `$.value.nextKnots[0].lineLength`"),
        (Cat | Dog, {"name": 1}, "Expected one of 2 types: Expected `str`, got `int`"),
        (
            Wanted,
            {"count": 0, "parts": [{"count": "2"}]},
            "0 - at `$.value.count`; Input should be a valid integer - at `$.value.parts[0].count`",
        ),
        (Annotated[int, pydantic.Field(gt=0)], 0, "Input should be greater than 0 - at `$.value`"),
        (Annotated[int, pydantic.Field(gt=0)], "1", "Input should be a valid integer - at `$.value`"),
        (Account, {"name": "a", "pin": "1"}, "String should have at least 2 characters - at `$.value.name`"),
    ],
)
def test_an_argument_that_does_not_fit_is_explained(kind: Any, given: object, complaint: str) -> None:
    with pytest.raises(ValueError, match="Invalid arguments for look: ") as caught:
        passed(kind, given)
    assert complaint in str(caught.value)
    assert str(caught.value).endswith("; it takes: value")
    assert "not a JSON object" not in str(caught.value)


class Unknown:
    def __repr__(self) -> str:
        return "Unknown()"


@dataclasses.dataclass
class Deep:
    value: dict[str, Annotated[int, Unknown()]]


class Both(pydantic.BaseModel):
    value: int


@dataclasses.dataclass
class Box(Generic[T]):
    value: T
    size: Annotated[int, at.Gt(0)] = 1


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (
            Annotated[int, Unknown()],
            "has the metadata Unknown(), which is not understood; a text",
        ),
        (list[Annotated[int, Unknown()]], "has the metadata Unknown(), which is not understood"),
        (Deep, "has the metadata Unknown(), which is not understood"),
        (
            Annotated[Both, pydantic.Field(), Unknown()],
            "Unknown(), which pydantic does not read",
        ),
        (
            Annotated[list[Annotated[int, msgspec.Meta(gt=0)]], pydantic.Field(min_length=1)],
            "which pydantic does not read; write it as a Field",
        ),
        (
            Annotated[int, pydantic.Field(alias="count")],
            "has a Field with an alias",
        ),
        (Annotated[str, at.Gt(0)], "has the constraint gt=0, which does not fit the type <class 'str'>"),
        (
            Annotated[int, at.Gt(0), at.Gt(1)],
            "two constraints of one kind, the second is Gt(gt=1)",
        ),
        (Annotated[Place, at.MinLen(1)], "has the constraint min_length=1, which does not fit"),
        (Annotated[dt.datetime, at.Timezone("UTC")], "which is not understood"),
        (Box[int], "has the generic class"),
        (Place | Unknown, "has a type no JSON fits"),
        (ipaddress.IPv4Address, "has a type no JSON fits"),
    ],
)
def test_what_cannot_be_honoured_is_refused(kind: Any, problem: str) -> None:
    with pytest.raises(ToolDefinitionError, match="'value'") as caught:
        taking(kind)
    assert problem in str(caught.value)


def test_a_default_may_be_of_any_type_and_come_from_a_field() -> None:
    @tool
    def look(  # noqa: PLR0913  # one of each kind
        path: Path = Path(),
        place: Place = PLACE,
        count: int = pydantic.Field(5, gt=0, description="A count."),
        limit: Annotated[int, pydantic.Field(default=3)] = 4,
        tags: list[str] = pydantic.Field(default_factory=lambda: ["a"]),  # noqa: B008  # as its users write it
        *,
        size: Annotated[int, pydantic.Field(default=3)],
        must: int = pydantic.Field(..., lt=9),
    ) -> None:
        """Look."""

    found = json.loads(look.spec.schema)["properties"]
    shown = {name: each.get("default") for name, each in found.items()}
    assert json.loads(look.spec.schema)["required"] == ["must"]
    assert shown == {
        "path": ".",
        "place": {"x": 1, "y": 0},
        "count": 5,
        "limit": 4,
        "tags": None,
        "size": 3,
        "must": None,
    }
    assert found["count"]["description"] == "A count."
    bound = look.bind('{"must": 1}', CONTEXT)
    assert bound == {
        "path": Path(),
        "place": Place(1),
        "count": 5,
        "limit": 4,
        "size": 3,
        "must": 1,
        "tags": ["a"],
    }
    with pytest.raises(ValueError, match="greater than 0"):
        look.bind('{"count": 0, "must": 1}', CONTEXT)


def test_a_description_beside_the_type_goes_before_the_docstring() -> None:
    @tool
    def look(cat: Annotated[Cat, "A cat."], path: Annotated[Path, at.Predicate(Path.is_absolute)]) -> None:
        """
        Look.

        Args:
            cat: Not this.
            path: A path.
        """

    found = json.loads(look.spec.schema)["properties"]
    assert found["cat"]["description"] == "A cat."
    assert found["cat"]["properties"]["lives"]["description"] == "How many are left."
    assert found["path"] == {"type": "string", "format": "path", "description": "A path."}


def test_a_context_with_metadata_is_still_filled_in() -> None:
    made = taking(Annotated[ToolContext[int], "Not for the model."])
    assert json.loads(made.spec.schema)["properties"] == {}
    assert made.bind("{}", CONTEXT) == {"value": CONTEXT}


def test_a_type_that_contains_itself_is_a_reference() -> None:
    found = json.loads(taking(Knot).spec.schema)
    inner = found["$defs"]["Knot"]["properties"]
    assert inner["nextKnots"]["items"] == {"$ref": "#/$defs/Knot"}
    assert inner["lineLength"] == {"type": "number", "exclusiveMinimum": 0}
