"""Types of real programs as outputs: asked for in each mode on each wire, judged, and read as they were."""

from __future__ import annotations

import datetime as dt
import enum
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import attrs
import httpx
import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are another package
from typing_extensions import TypedDict

from turnwheel import Agent
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.output import VALUE_KEY, OutputMode
from turnwheel.performers import Output
from turnwheel.performers.models.native_output import strict_form
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

# The wires: how each says a text, or the arguments of a call where there is a tool.


def events(*data: dict[str, Any]) -> str:
    return "".join([f"data: {json.dumps(each)}\n\n" for each in data])


def chat(text: str, tool: str) -> str:
    call = {"index": 0, "id": "c", "function": {"name": tool, "arguments": text}}
    delta = {"tool_calls": [call]} if tool else {"content": text}
    end: dict[str, Any] = {"choices": [{"delta": {}, "finish_reason": "tool_calls" if tool else "stop"}]}
    return events({"choices": [{"delta": delta}]}, end) + "data: [DONE]\n\n"


def responses(text: str, tool: str) -> str:
    item: dict[str, Any] = {"type": "message", "id": "m", "content": [{"type": "output_text", "text": text}]}
    if tool:
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": tool, "arguments": text}
    return events({"type": "response.completed", "response": {"status": "completed", "output": [item]}})


def messages(text: str, tool: str) -> str:
    block = (
        {"type": "tool_use", "id": "c", "name": tool, "input": {}} if tool else {"type": "text", "text": ""}
    )
    delta = (
        {"type": "input_json_delta", "partial_json": text} if tool else {"type": "text_delta", "text": text}
    )
    return events(
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
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


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("mode", OutputMode)
@pytest.mark.parametrize("name", CASES)
async def test_an_output_is_asked_for_and_read_as_the_same_value(
    name: str, mode: OutputMode, wire: str
) -> None:
    kind, value, plain = CASES[name]
    form = OutputForm.of(kind)
    strict = None if form.is_union else strict_form(form.schema)
    output: Output[Any] = Output(kind, mode=mode, name="result")
    asked: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        given, tool = {VALUE_KEY: plain} if form.wrapped else plain, ""
        if mode is OutputMode.NATIVE:
            schema = native_schema(body)
            given = filled(given, schema)
        elif mode is OutputMode.TOOL:
            tool, schema = tool_schema(body)
        else:
            schema = prompted_schema(body)
        Draft202012Validator(schema).validate(given)
        asked.append(schema)
        return httpx.Response(200, text=WIRES[wire](json.dumps(given), tool))

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        if mode is OutputMode.NATIVE and strict is None:
            with pytest.raises(ConfigError, match="has no schema that providers take"):
                Agent(model=wire, client=client, api_key="k", output=output)
            return
        agent = Agent(model=wire, client=client, api_key="k", output=output)
        result = await agent.run("Go")
    assert result.output == value
    assert type(result.output) is type(value)
    assert (len(asked), result.spent.turns) == (1, 1)


def test_few_types_have_no_schema_that_providers_take() -> None:
    forms = {name: OutputForm.of(kind) for name, (kind, _, _) in CASES.items()}
    without = {name for name, form in forms.items() if form.is_union or strict_form(form.schema) is None}
    assert without == {
        "a tagged union",
        "success or failure",
        "a number or a text",
        "a tree",
        "a graph",
        "counts",
    }
