"""What a tool returns, as the model reads it: values of every usual type, and the error for all others."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import datetime as dt
import enum
import sqlite3
import uuid
from collections import Counter, OrderedDict, UserDict, deque, namedtuple
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict, cast

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given, strategies as st
from pydantic.dataclasses import dataclass as pydantic_dataclass
from support.odd_values import fail

from turnwheel.effects import Binary, Outcome, RunTool
from turnwheel.performers import ErrorResult, PerformContext, ToolContext, ToolRunner, tool


class Level(enum.IntEnum):
    LOW = 1


class Shade(enum.Enum):
    DARK = "dark"
    PAIR = (1, 2)


class Point(NamedTuple):
    x: int
    y: int = 0


Untyped = namedtuple("Untyped", ["a", "b"])  # pyright: ignore[reportUntypedNamedTuple]  # noqa: PYI024  # as older code has it


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    at: Point
    tags: frozenset[str] = frozenset()


@attrs.define
class Owner:
    name: str
    _kept: str = "inside"


class Part(msgspec.Struct, rename="camel", tag="part"):
    part_name: str
    place: Point
    note: str | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int
    b: Point


class Account(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr
    since: dt.date
    owner: Account | None = None


class Numbers(pydantic.RootModel[list[int]]):
    pass


@pydantic_dataclass
class Login:
    user: str
    password: pydantic.SecretStr
    page: pydantic.HttpUrl


class Settings(TypedDict):
    path: Path


class Scalar:
    """As numpy has them."""

    dtype = "int64"

    def tolist(self) -> list[int]:
        return [1, 2]


class Text(str):
    __slots__ = ()


class Moment(dt.datetime):
    pass


def a_row() -> sqlite3.Row:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row: sqlite3.Row = connection.execute("select 1 as a, 'x' as b").fetchone()
    connection.close()
    return row


ID = uuid.UUID(int=7)
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
ACCOUNT = Account(name="ann", password=pydantic.SecretStr("pw"), since=dt.date(2026, 1, 2))
LOGIN = Login(user="ann", password=pydantic.SecretStr("pw"), page=pydantic.HttpUrl("https://example.org/"))
SHOWN_ACCOUNT = '{"name":"ann","password":"**********","since":"2026-01-02","owner":null}'
SHOWN_LOGIN = '{"user":"ann","password":"**********","page":"https://example.org/"}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        # Texts, and values with a text of their own, are written without quotes.
        (Text("plain"), "plain"),
        (Shade.DARK, "dark"),
        (NOON, "2026-01-02T12:00:00Z"),
        (NOON.date(), "2026-01-02"),
        (NOON.time(), "12:00:00"),
        (Moment(2026, 1, 2, 12), "2026-01-02T12:00:00"),
        (dt.timedelta(days=1, seconds=2), "P1DT2S"),
        (ID, str(ID)),
        (Decimal("1.50"), "1.50"),
        (Path("a/b"), "a/b"),
        (PurePosixPath("a"), "a"),
        ("ä".encode(), "ä"),
        (b"\xff\x00", "/wA="),
        (bytearray(b"ab"), "ab"),
        (memoryview(b"ab"), "ab"),
        (pydantic.SecretStr("pw"), "**********"),
        # Numbers.
        (Level.LOW, "1"),
        (2**70, str(2**70)),
        (float("nan"), "null"),
        ([float("inf"), -0.5], "[null,-0.5]"),
        # Lists.
        (Shade.PAIR, "[1,2]"),
        ({3, 1, 2}, "[1,2,3]"),
        (frozenset({"b", "a"}), '["a","b"]'),
        (deque([1, "a"]), '[1,"a"]'),
        (range(3), "[0,1,2]"),
        (array.array("i", [1, 2]), "[1,2]"),
        ({"a": 1}.values(), "[1]"),
        ({"b": 1, "a": 2}.keys(), '["a","b"]'),
        (Scalar(), "[1,2]"),
        # Objects.
        (Point(1), '{"x":1,"y":0}'),
        (Untyped(1, Point(2)), '{"a":1,"b":{"x":2,"y":0}}'),
        (Order(ID, Point(1, 2), frozenset("ba")), f'{{"id":"{ID}","at":{{"x":1,"y":2}},"tags":["a","b"]}}'),
        (Owner("ann"), '{"name":"ann"}'),
        (Part("wheel", Point(1)), '{"type":"part","partName":"wheel","place":{"x":1,"y":0}}'),
        (Row(1, Point(2)), '[1,{"x":2,"y":0}]'),
        (ACCOUNT, SHOWN_ACCOUNT),
        ([LOGIN], f"[{SHOWN_LOGIN}]"),
        (Numbers([1, 2]), "[1,2]"),
        (Settings(path=Path("a")), '{"path":"a"}'),
        (OrderedDict(b=1, a=Counter("aa")), '{"b":1,"a":{"a":2}}'),
        (MappingProxyType({"a": (Point(1),)}), '{"a":[{"x":1,"y":0}]}'),
        (UserDict(a=1), '{"a":1}'),
        (a_row(), '{"a":1,"b":"x"}'),
        # Keys.
        (
            {Shade.DARK: 1, ID: 2, NOON.date(): 3, 4: 5, None: 6, True: 7, 1.5: 8},
            f'{{"dark":1,"{ID}":2,"2026-01-02":3,"4":5,"null":6,"true":7,"1.5":8}}',
        ),
        ({"half a pair \ud83d": ["\ud83d"]}, '{"half a pair ?":["?"]}'),
    ],
)
async def test_a_value_is_read_as_text_or_json(value: object, text: str, scene: PerformContext) -> None:
    for returned, outcome in ((value, Outcome.OK), (ErrorResult(value), Outcome.ERROR)):
        answer = await returning(returned, scene)
        assert (answer.outcome, answer.content) == (outcome, text)
    nested = await returning({"in": [value]}, scene)
    assert nested.outcome is Outcome.OK


async def returning(value: object, scene: PerformContext) -> Any:
    @tool
    async def look() -> object:
        await asyncio.sleep(0)
        return value

    request = RunTool(id="r-1-7", call="call-3", tool="look", arguments="{}", timeout=60.0)
    return await ToolRunner([look])(request, scene)


class Foo:
    """A class like any other."""


class Stubborn(dict[str, int]):
    def items(self) -> Any:
        return fail(ValueError("not now"))


def endless() -> list[Any]:
    found: list[Any] = []
    found.append({"again": found})
    return found


def numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Foo(), "a Foo, which has no JSON form"),
        ([1, {"a": Foo()}], "a list with a Foo in it, which has no JSON form"),
        (Order(ID, cast("Any", Foo())), "an Order with a Foo in it, which has no JSON form"),
        (numbers(), "a generator, which has no JSON form"),
        (Foo, "a type, which has no JSON form"),
        (numbers, "a function, which has no JSON form"),
        (ValueError("no"), "a ValueError, which has no JSON form"),
        ({(1, 2): 3}, "a dict with a tuple in it, which has no JSON form"),
        ({1: 2, "1": 3}, "a dict, which cannot be written as JSON: two keys of a dict are both '1' in JSON"),
        (endless(), "a list that contains itself, or is nested too deep"),
        (Stubborn(), "a Stubborn, which cannot be written as JSON: not now"),
    ],
)
async def test_a_value_without_a_json_form_is_an_error_with_the_way_out(
    value: object, problem: str, scene: PerformContext
) -> None:
    answer = await returning(value, scene)
    assert answer.outcome is Outcome.ERROR
    assert answer.content == (
        f"tool 'look' returned {problem}; return text, a number, a list, a dict, a dataclass, "
        "an attrs class, a pydantic model, or a Binary"
    )


async def test_a_long_value_is_cut_and_files_stand_beside_objects(scene: PerformContext) -> None:
    answer = await returning([Point(number) for number in range(200_000)], scene)
    assert 1_000_000 < len(answer.content) < 1_000_100
    file = Binary(media_type="image/png", data=b"x")
    answer = await returning([Point(1), file, NOON], scene)
    assert answer.content == '{"x":1,"y":0}\n[image/png, 1 bytes]\n2026-01-02T12:00:00Z'
    assert answer.files == (file,)


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.datetimes(),
        st.timedeltas(),
        st.uuids(),
        st.decimals(),
        st.sampled_from([Foo(), Foo, Shade.PAIR, endless(), ACCOUNT, LOGIN, Stubborn(), numbers(), a_row()]),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.none(), st.binary()), inner),
        st.builds(Point, inner, inner),
        st.builds(Order, inner, inner),
        st.builds(Part, inner, inner),
        st.builds(ErrorResult, inner),
        st.tuples(inner, st.just(Binary(media_type="a/b", data=b"x"))),
    ),
    max_leaves=10,
)


def test_every_value_gives_an_answer(scene: PerformContext) -> None:
    @given(value=VALUES)
    def check(value: object) -> None:
        answer = asyncio.run(returning(value, scene))
        assert answer.outcome in {Outcome.OK, Outcome.ERROR}
        answer.content.encode()  # it can be written down

    check()


def test_progress_is_text() -> None:
    context = ToolContext(cwd=Path("/"), deps=None)
    with pytest.raises(TypeError, match="progress is text; got int: 5"):
        context.progress(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # what it is about
