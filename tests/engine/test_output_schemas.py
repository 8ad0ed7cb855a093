"""Types of real programs as outputs: asked for in each mode on each wire, judged, and read as they were."""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import attrs
import httpx
import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are another package
from support.partials import begins
from typing_extensions import TypedDict

from turnwheel import Agent
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.notices import OutputDelta
from turnwheel.effects.output import VALUE_KEY, OutputMode
from turnwheel.performers import Output
from turnwheel.performers.output import OutputForm

# The types


@dataclass
class Line:
    item: str
    quantity: int
    price: float


@dataclass
class Invoice:
    number: str
    issued: dt.date
    lines: list[Line]
    total: float
    note: str | None = None


@attrs.frozen
class Address:
    street: str
    city: str
    postcode: str | None = None


@attrs.frozen
class User:
    name: str
    age: int
    addresses: tuple[Address, ...] = ()


class SearchKind(enum.Enum):
    VIDEO = "video"
    EMAIL = "email"


@dataclass
class Search:
    query: str
    kind: SearchKind


@dataclass
class Searches:
    searches: list[Search]


class UserDetail(pydantic.BaseModel):
    name: str
    age: int


class Character(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1, max_length=20)
    level: int = pydantic.Field(ge=1, le=99)
    skills: list[str] = pydantic.Field(description="what it can do", max_length=5)


class Support(pydantic.BaseModel):
    support_advice: str = pydantic.Field(description="Advice returned to the customer")
    block_card: bool = pydantic.Field(description="Whether to block their card")
    risk: int = pydantic.Field(description="Risk level of the query", ge=0, le=10)


class Cat(msgspec.Struct, tag_field="kind", tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag_field="kind", tag="dog"):
    name: str


class Owner(msgspec.Struct):
    name: str
    pet: Cat | Dog


class Card(pydantic.BaseModel):
    kind: Literal["card"]
    number: str


class Cash(pydantic.BaseModel):
    kind: Literal["cash"]
    amount: float


class Payment(pydantic.BaseModel):
    reference: str
    method: Annotated[Card | Cash, pydantic.Field(discriminator="kind")]


class Success(pydantic.BaseModel):
    sql_query: str
    explanation: str = ""


class InvalidRequest(pydantic.BaseModel):
    error_message: str


@dataclass
class Meeting:
    title: str
    start: dt.datetime
    attendees: list[str] = field(default_factory=list)


@dataclass
class Node:
    label: str
    children: list[Node] = field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: int


class Point(NamedTuple):
    x: float
    y: float


@dataclass
class Route:
    stops: list[Point]


@dataclass
class Query:
    id: int
    question: str
    dependencies: list[int]


@dataclass
class QueryPlan:
    queries: list[Query]


@dataclass
class Edge:
    source: int
    target: int
    label: str


@dataclass
class Graph:
    nodes: dict[str, str]
    edges: list[Edge]


@dataclass
class Fact:
    statement: str
    quotes: list[str]


@dataclass
class Answer:
    question: str
    facts: list[Fact]


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 3


@attrs.frozen
class Subtask:
    id: int
    name: str


@attrs.frozen
class Ticket:
    id: int
    name: str
    priority: Priority
    assignees: list[str]
    subtasks: list[Subtask] | None = None


@dataclass
class Receipt:
    total: Decimal
    paid_at: dt.time | None = None


@dataclass
class Reference:
    id: UUID
    ratio: Annotated[float, msgspec.Meta(gt=0, le=1)]


class Flight(pydantic.BaseModel):
    flight_number: str
    price: int = pydantic.Field(gt=0)
    origin: str = pydantic.Field(description="Three-letter airport code")
    destination: str = pydantic.Field(description="Three-letter airport code")
    date: dt.date


class Item(pydantic.BaseModel):
    name: str
    price: Decimal
    quantity: int = 1


class Bill(pydantic.BaseModel):
    items: list[Item]
    total: Decimal


class Range(pydantic.BaseModel):
    start: dt.date | None = None
    end: dt.date | None = None


class Filters(pydantic.BaseModel):
    published: Range | None = None
    domains: list[str] = []
    kind: SearchKind | None = None


class FilteredSearch(pydantic.BaseModel):
    rewritten_query: str
    filters: Filters = Filters()
    limit: int | None = None


class Comparison(pydantic.BaseModel):
    column: str
    operator: Literal["=", "<", ">"]
    value: str | float


class Condition(pydantic.BaseModel):
    all_of: list[Comparison | Condition]


class Entity(pydantic.BaseModel):
    id: int
    label: str
    color: Literal["blue", "red"] = "blue"


class Relation(pydantic.BaseModel):
    source: int
    target: int
    label: str


class KnowledgeGraph(pydantic.BaseModel):
    nodes: list[Entity] | None = []
    edges: list[Relation] | None = []


class MaybeUser(pydantic.BaseModel):
    result: UserDetail | None = None
    error: bool = False
    message: str | None = None


class Click(pydantic.BaseModel):
    action: Literal["click"]
    selector: str


class Type(pydantic.BaseModel):
    action: Literal["type"]
    selector: str
    text: str


class Plan(pydantic.BaseModel):
    thought: str
    actions: list[Click | Type]


class Urgency(enum.StrEnum):
    HIGH = "High"
    LOW = "Low"


class ActionItem(pydantic.BaseModel):
    id: int
    name: str
    priority: Urgency
    assignees: list[str]
    depends_on: list[int] | None = None


class ActionItems(pydantic.BaseModel):
    items: list[ActionItem]


Label = Literal["spam", "urgent", "bug"]


@dataclass
class Labels:
    labels: list[Label]
    confidence: float


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
    "required": ["city", "country"],
    "additionalProperties": False,
}

# Each with a value, and the JSON of the value.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "an invoice": (
        Invoice,
        Invoice("A-7", dt.date(2026, 11, 3), [Line("nut", 2, 0.5), Line("bolt", 1, 1.5)], 2.5),
        {
            "number": "A-7",
            "issued": "2026-11-03",
            "lines": [
                {"item": "nut", "quantity": 2, "price": 0.5},
                {"item": "bolt", "quantity": 1, "price": 1.5},
            ],
            "total": 2.5,
        },
    ),
    "a user with addresses": (
        User,
        User("Ann", 7, (Address("Main", "Rome"), Address("Side", "Oslo", "01"))),
        {
            "name": "Ann",
            "age": 7,
            "addresses": [
                {"street": "Main", "city": "Rome"},
                {"street": "Side", "city": "Oslo", "postcode": "01"},
            ],
        },
    ),
    "a user without addresses": (User, User("Ann", 7), {"name": "Ann", "age": 7}),
    "search queries": (
        Searches,
        Searches([Search("cats", SearchKind.VIDEO), Search("bill", SearchKind.EMAIL)]),
        {"searches": [{"query": "cats", "kind": "video"}, {"query": "bill", "kind": "email"}]},
    ),
    "a model of pydantic": (UserDetail, UserDetail(name="Ann", age=7), {"name": "Ann", "age": 7}),
    "bounds of pydantic": (
        Character,
        Character(name="Bo", level=99, skills=["run"]),
        {"name": "Bo", "level": 99, "skills": ["run"]},
    ),
    "support": (
        Support,
        Support(support_advice="Call us", block_card=True, risk=10),
        {"support_advice": "Call us", "block_card": True, "risk": 10},
    ),
    "a tagged union": (Cat | Dog, Dog("Rex"), {"kind": "dog", "name": "Rex"}),
    "a tagged union in a field": (
        Owner,
        Owner("Ann", Cat(9)),
        {"name": "Ann", "pet": {"kind": "cat", "lives": 9}},
    ),
    "a discriminator of pydantic": (
        Payment,
        Payment(reference="r", method=Cash(kind="cash", amount=2.5)),
        {"reference": "r", "method": {"kind": "cash", "amount": 2.5}},
    ),
    "success or failure": (
        Success | InvalidRequest,
        InvalidRequest(error_message="no table"),
        {"error_message": "no table"},
    ),
    "a meeting": (
        Meeting,
        Meeting("Plan", dt.datetime(2026, 11, 3, 9, 30, tzinfo=dt.UTC), ["Ann"]),
        {"title": "Plan", "start": "2026-11-03T09:30:00Z", "attendees": ["Ann"]},
    ),
    "a tree": (
        Node,
        Node("a", [Node("b", [Node("c")]), Node("d")]),
        {
            "label": "a",
            "children": [{"label": "b", "children": [{"label": "c"}]}, {"label": "d", "children": []}],
        },
    ),
    "a typed dictionary": (Movie, {"title": "Alien", "year": 1979}, {"title": "Alien", "year": 1979}),
    "points": (Route, Route([Point(0.5, 1.5)]), {"stops": [{"x": 0.5, "y": 1.5}]}),
    "a plan of queries": (
        QueryPlan,
        QueryPlan([Query(1, "who?", []), Query(2, "where?", [1])]),
        {
            "queries": [
                {"id": 1, "question": "who?", "dependencies": []},
                {"id": 2, "question": "where?", "dependencies": [1]},
            ]
        },
    ),
    "a graph": (
        Graph,
        Graph({"1": "Ann", "2": "Bo"}, [Edge(1, 2, "knows")]),
        {"nodes": {"1": "Ann", "2": "Bo"}, "edges": [{"source": 1, "target": 2, "label": "knows"}]},
    ),
    "facts with quotes": (
        Answer,
        Answer("who?", [Fact('It was "Ann".', ["Ann\nsaid 😀"])]),
        {"question": "who?", "facts": [{"statement": 'It was "Ann".', "quotes": ["Ann\nsaid 😀"]}]},
    ),
    "a ticket": (
        Ticket,
        Ticket(1, "Fix", Priority.HIGH, ["Ann"], [Subtask(2, "Test")]),
        {
            "id": 1,
            "name": "Fix",
            "priority": 3,
            "assignees": ["Ann"],
            "subtasks": [{"id": 2, "name": "Test"}],
        },
    ),
    "money and time": (
        Receipt,
        Receipt(Decimal("12.50"), dt.time(9, 30)),
        {"total": "12.50", "paid_at": "09:30:00"},
    ),
    "an id and a ratio": (
        Reference,
        Reference(UUID(int=7), 0.25),
        {"id": "00000000-0000-0000-0000-000000000007", "ratio": 0.25},
    ),
    "a flight": (
        Flight,
        Flight(flight_number="BA 7", price=120, origin="LHR", destination="FCO", date=dt.date(2026, 11, 3)),
        {
            "flight_number": "BA 7",
            "price": 120,
            "origin": "LHR",
            "destination": "FCO",
            "date": "2026-11-03",
        },
    ),
    "a bill": (
        Bill,
        Bill(items=[Item(name="tea", price=Decimal("2.50"), quantity=2)], total=Decimal("5.00")),
        {"items": [{"name": "tea", "price": "2.50", "quantity": 2}], "total": "5.00"},
    ),
    "a search with filters": (
        FilteredSearch,
        FilteredSearch(
            rewritten_query="cats",
            filters=Filters(published=Range(start=dt.date(2026, 1, 1)), domains=["a.example"]),
            limit=5,
        ),
        {
            "rewritten_query": "cats",
            "filters": {"published": {"start": "2026-01-01"}, "domains": ["a.example"]},
            "limit": 5,
        },
    ),
    "conditions": (
        Condition,
        Condition(
            all_of=[
                Comparison(column="age", operator=">", value=7.5),
                Condition(all_of=[Comparison(column="city", operator="=", value="Rome")]),
            ]
        ),
        {
            "all_of": [
                {"column": "age", "operator": ">", "value": 7.5},
                {"all_of": [{"column": "city", "operator": "=", "value": "Rome"}]},
            ]
        },
    ),
    "a knowledge graph": (
        KnowledgeGraph,
        KnowledgeGraph(
            nodes=[Entity(id=1, label="Ann"), Entity(id=2, label="Bo", color="red")],
            edges=[Relation(source=1, target=2, label="knows")],
        ),
        {
            "nodes": [{"id": 1, "label": "Ann", "color": "blue"}, {"id": 2, "label": "Bo", "color": "red"}],
            "edges": [{"source": 1, "target": 2, "label": "knows"}],
        },
    ),
    "a user or why there is none": (
        MaybeUser,
        MaybeUser(error=True, message="no user is named"),
        {"result": None, "error": True, "message": "no user is named"},
    ),
    "actions": (
        Plan,
        Plan(
            thought="log in",
            actions=[
                Type(action="type", selector="#name", text="ann"),
                Click(action="click", selector="#go"),
            ],
        ),
        {
            "thought": "log in",
            "actions": [
                {"action": "type", "selector": "#name", "text": "ann"},
                {"action": "click", "selector": "#go"},
            ],
        },
    ),
    "action items": (
        ActionItems,
        ActionItems(items=[ActionItem(id=1, name="Fix", priority=Urgency.HIGH, assignees=["Ann"])]),
        {"items": [{"id": 1, "name": "Fix", "priority": "High", "assignees": ["Ann"]}]},
    ),
    "a score": (float, 0.75, 0.75),
    "labels": (Labels, Labels(["spam", "bug"], 0.9), {"labels": ["spam", "bug"], "confidence": 0.9}),
    "a sentiment": (Literal["good", "bad"], "good", "good"),
    "an enum": (SearchKind, SearchKind.EMAIL, "email"),
    "a list of users": (list[UserDetail], [UserDetail(name="Ann", age=7)], [{"name": "Ann", "age": 7}]),
    "a matrix": (list[list[float]], [[1.0, 2.5], []], [[1.0, 2.5], []]),
    "a number": (int, 7, 7),
    "yes or no": (bool, False, False),
    "perhaps a user": (UserDetail | None, None, None),
    "counts": (dict[str, int], {"a": 1, "b": 2}, {"a": 1, "b": 2}),
    "a number or a text": (int | str, "seven", "seven"),
    "a schema": (SCHEMA, {"city": "Rome", "country": "Italy"}, {"city": "Rome", "country": "Italy"}),
}

# The types of each row of the table on the page.
ROWS = {
    "a dataclass, an attrs class, a struct of msgspec": (
        *("an invoice", "a user with addresses", "a user without addresses", "search queries"),
        *("a plan of queries", "facts with quotes", "a ticket", "labels"),
    ),
    "a model of pydantic": (
        *("a model of pydantic", "a search with filters", "a knowledge graph"),
        *("a user or why there is none", "action items"),
    ),
    "a `TypedDict`": ("a typed dictionary",),
    "named tuples inside of these": ("points",),
    "dates, decimals and UUIDs inside of these": ("a meeting", "money and time", "a bill"),
    "bounds, such as `Field(ge=1)`": ("bounds of pydantic", "support", "an id and a ratio", "a flight"),
    "a union inside of these": ("a tagged union in a field", "a discriminator of pydantic", "actions"),
    "an enum, a `Literal`": ("a sentiment", "an enum"),
    "`int`, `float`, `bool`": ("a number", "a score", "yes or no"),
    "`list[T]`": ("a list of users", "a matrix"),
    "`T | None`": ("perhaps a user",),
    "a JSON Schema": ("a schema",),
    "a class that contains itself": ("a tree", "conditions"),
    "`dict[str, T]`, also inside of these": ("counts", "a graph"),
    "a union of several types": ("a tagged union", "success or failure", "a number or a text"),
}

# The wires: how each says a text, or the arguments of a call where there is a tool.


def events(*data: dict[str, Any]) -> str:
    return "".join([f"data: {json.dumps(each)}\n\n" for each in data])


def pieces(text: str) -> list[str]:
    return [text[begin : begin + 20] for begin in range(0, len(text), 20)]


def chat(text: str, tool: str) -> str:
    def delta(piece: str, **named: Any) -> dict[str, Any]:
        call = {"index": 0, **named, "function": {"arguments": piece, **({"name": tool} if named else {})}}
        return {"choices": [{"delta": {"tool_calls": [call]} if tool else {"content": piece}}]}

    end: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "tool_calls" if tool else "stop"}]}
    return events(delta("", id="c"), *map(delta, pieces(text)), end) + "data: [DONE]\n\n"


def responses(text: str, tool: str) -> str:
    content: list[Any] = [{"type": "output_text", "text": text}]
    item: dict[str, Any] = {"type": "message", "id": "m", "content": content}
    begun: dict[str, Any] = {**item, "content": []}
    kind = "response.output_text.delta"
    place: dict[str, Any] = {"item_id": "m", "output_index": 0, "content_index": 0}
    if tool:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": tool, "arguments": text}
        begun = {**item, "arguments": ""}
        kind, place = "response.function_call_arguments.delta", {"item_id": "f", "output_index": 0}
    return events(
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        *[{"type": kind, **place, "delta": piece} for piece in pieces(text)],
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    )


def messages(text: str, tool: str) -> str:
    block = (
        {"type": "tool_use", "id": "c", "name": tool, "input": {}} if tool else {"type": "text", "text": ""}
    )

    def delta(piece: str) -> dict[str, Any]:
        if tool:
            return {"type": "input_json_delta", "partial_json": piece}
        return {"type": "text_delta", "text": piece}

    return events(
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[{"type": "content_block_delta", "index": 0, "delta": delta(piece)} for piece in pieces(text)],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if tool else "end_turn"}},
        {"type": "message_stop"},
    )


def native_schema(body: dict[str, Any]) -> dict[str, Any]:
    if "response_format" in body:
        found = body["response_format"]["json_schema"]
        assert found["strict"] is True
    elif "text" in body:
        found = body["text"]["format"]
        assert found["strict"] is True
    else:
        found = body["output_config"]["format"]
    schema: dict[str, Any] = found["schema"]
    return schema


def tool_schema(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    (tool,) = body["tools"]
    tool = tool.get("function", tool)
    return tool["name"], tool.get("parameters") or tool["input_schema"]


def prompted_schema(body: dict[str, Any]) -> dict[str, Any]:
    (found,) = re.findall(
        r"JSON Schema, without any text around it:\\n(\{.*?\})(?:\"[,}\]])", json.dumps(body)
    )
    schema: dict[str, Any] = json.loads(json.loads(f'"{found}"'))
    return schema


WIRES: dict[str, Callable[[str, str], str]] = {
    "openai:gpt-5": chat,
    "openai-responses:gpt-5": responses,
    "anthropic:claude-sonnet-4-5": messages,
}


def filled(value: Any, schema: dict[str, Any]) -> Any:
    """*value*, with null for each property that a strict *schema* has and *value* has not."""
    if isinstance(value, dict):
        options = [schema, *schema.get("anyOf", [])]
        for option in options:
            properties = option.get("properties", {})
            made = {name: filled(value.get(name), each) for name, each in properties.items()}
            if value.keys() <= made.keys() and Draft202012Validator(option).is_valid(made):
                return made
        return value
    if isinstance(value, list):
        items = [option["items"] for option in [schema, *schema.get("anyOf", [])] if "items" in option]
        return [filled(each, items[0]) for each in value] if items else value
    return value


# The page: what it says of each type, by the words of its table.

PAGE = Path(__file__).parents[2] / "docs" / "output.md"
PREFIXES = {"openai:": "openai:gpt-5", "openai-responses:": "openai-responses:gpt-5"} | {
    "anthropic:": "anthropic:claude-sonnet-4-5"
}


def cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def page_table() -> dict[str, dict[tuple[str, OutputMode], str]]:
    """For each type of the page, what it says of it on a wire in a mode."""
    lines = PAGE.read_text("utf-8").split("\n## Types\n")[1].split("\n## ")[0].splitlines()
    head, _, *rows = [cells(line) for line in lines if line.startswith("|")]
    columns = [
        (PREFIXES[prefix], OutputMode(mode)) for prefix, mode in re.findall(r"`(\S+)` (\w+)", " ".join(head))
    ]
    return {first: dict(zip(columns, row, strict=True)) for first, *row in rows}


TABLE = page_table()


def test_the_page_has_a_cell_for_each_type_in_each_mode_on_each_wire() -> None:
    assert [*TABLE] == [*ROWS]
    assert sorted(name for names in ROWS.values() for name in names) == sorted(CASES)
    for row in TABLE.values():
        assert row.keys() == {(wire, mode) for wire in WIRES for mode in OutputMode}
        assert set(row.values()) <= {"yes", "by a tool"}


def answering(wire: str, name: str, asked: list[OutputMode]) -> Callable[[httpx.Request], httpx.Response]:
    """A provider that gives the value *name* in the way it is *asked*, by the schema in the request."""
    kind, _, plain = CASES[name]
    form = OutputForm.of(kind)

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        given, tool = {VALUE_KEY: plain} if form.wrapped else plain, ""
        if body.get("tools"):
            asked.append(OutputMode.TOOL)
            tool, schema = tool_schema(body)
        elif "response_format" in body or "text" in body or "format" in body.get("output_config", {}):
            asked.append(OutputMode.NATIVE)
            schema = native_schema(body)
            given = filled(given, schema)
        else:
            asked.append(OutputMode.PROMPTED)
            schema = prompted_schema(body)
        Draft202012Validator(schema).validate(given)
        return httpx.Response(200, text=WIRES[wire](json.dumps(given), tool))

    return answer


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mode", OutputMode)
@pytest.mark.parametrize(("row", "name"), [(row, name) for row, names in ROWS.items() for name in names])
async def test_an_output_is_asked_for_as_the_page_says_and_read_as_the_same_value(
    row: str, name: str, mode: OutputMode, wire: str
) -> None:
    kind, value, _ = CASES[name]
    asked: list[OutputMode] = []
    output: Output[Any] = Output(kind, mode=mode, name="result")
    wanted = mode if TABLE[row][wire, mode] == "yes" else OutputMode.TOOL
    async with httpx.AsyncClient(transport=httpx.MockTransport(answering(wire, name, asked))) as client:
        if wanted is not mode:
            with pytest.raises(ConfigError, match="has no schema that providers take"):
                Agent(model=wire, client=client, api_key="k", output=output)
            # Without a mode, as most callers have it.
            output = Output(kind, name="result")
        session = Agent(model=wire, client=client, api_key="k", output=output).session("s")
        notices = [notice async for notice in session.stream("Go")]
        result = session.result()
    assert result.output == value
    assert type(result.output) is type(value)
    assert (asked, result.spent.turns) == ([wanted], 1)
    # What streams grows to the output.
    *partials, last = [notice.partial for notice in notices if isinstance(notice, OutputDelta)]
    given = json.loads(result.text)
    assert last == (given[VALUE_KEY] if OutputForm.of(kind).wrapped else given)
    assert [partial for partial in partials if not begins(partial, last)] == []
