"""The OpenAPI document allows what the server takes: bodies drawn from each schema, valid and nearly so."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from jsonschema import (  # type: ignore[import-untyped]  # its types are another package
    Draft202012Validator,
    ValidationError,
    validators,
)
from support.http_server import Asking, scripted, serving

from turnwheel.testing.scripted import says

Json = dict[str, Any]
Bodies = st.SearchStrategy[Any]

# Longer strings take too long to be drawn and sent again and again.
LONGEST = 1_001

WRITABLE = st.characters(exclude_categories=["Cs"])
ODD = st.sampled_from([None, True, 0, 1.5, "", " ", "\n", "x\n", [], {}, [None], {"type": "text"}])


def check_pattern(_: Any, rule: str, value: Any, __: Any) -> Iterator[ValidationError]:
    """As in ECMAScript, where `$` does not match before a line end."""
    if isinstance(value, str) and not re.search(rule.replace("$", r"\Z"), value):
        yield ValidationError(f"{value!r} does not match {rule}")


Judge: Any = validators.extend(Draft202012Validator, {"pattern": check_pattern})


class Drawing:
    """Draws values of schemas with these *components*; *odd* ones have mistakes."""

    def __init__(self, components: Mapping[str, Any], *, odd: bool) -> None:
        self._components, self._odd = components, odd

    def of(self, schema: Json) -> Bodies:
        drawn = self._of(schema)
        return st.one_of(drawn, drawn, drawn, drawn, ODD) if self._odd else drawn

    def _of(self, schema: Json) -> Bodies:
        if "$ref" in schema:
            return self._of(self._components[schema["$ref"].rpartition("/")[2]])
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum") or [schema["const"]])
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                rest = {name: rule for name, rule in schema.items() if name != choice}
                return st.one_of([self.of(_merged(rest, one)) for one in schema[choice]])
        if "if" in schema:
            rest = {name: rule for name, rule in schema.items() if name not in {"if", "then", "else"}}
            right = _merged(rest, _merged(schema["if"], schema["then"]))
            return st.one_of(self.of(right), self.of(_merged(rest, schema["else"])))
        kinds = schema.get("type", "object")
        if isinstance(kinds, list):
            return st.one_of([self._of({**schema, "type": kind}) for kind in kinds])
        kind: Bodies = getattr(self, f"_{kinds}")(schema)
        return kind

    def _object(self, schema: Json) -> Bodies:
        for part in schema.get("allOf", ()):
            schema = _merged(schema, part)
        optional = {name: self.of(rule) for name, rule in schema.get("properties", {}).items()}
        required = {name: optional.pop(name, ODD) for name in schema.get("required", ())}
        whole = st.fixed_dictionaries(required, optional=optional)
        if not self._odd:
            return whole
        return whole | st.fixed_dictionaries({}, optional={**optional, **required, "more": ODD})

    def _array(self, schema: Json) -> Bodies:
        lists = st.lists(self.of(schema.get("items", {})), max_size=2)
        if "contains" not in schema:
            return lists
        return st.tuples(lists, self.of(schema["contains"])).map(lambda both: [*both[0], both[1]])

    def _string(self, schema: Json) -> Bodies:
        if "pattern" in schema:
            rule = re.compile(schema["pattern"].replace("$", r"\Z"))
            return st.from_regex(rule, alphabet=WRITABLE)
        least, most = schema.get("minLength", 0), schema.get("maxLength", LONGEST)
        lengths = [least, *([most] if most <= LONGEST else []), *([most + 1] if self._odd else [])]
        bounds = ["x" * length for length in lengths if length <= LONGEST]
        return st.text(WRITABLE, min_size=least, max_size=5) | st.sampled_from(bounds)

    def _integer(self, schema: Json) -> Bodies:
        least, most = schema.get("minimum", 0), schema.get("maximum", 9)
        beyond = [least - 1, most + 1] if self._odd else []
        return st.sampled_from([least, most, float(least), *beyond])

    def _boolean(self, _: Json) -> Bodies:
        return st.booleans()

    def _null(self, _: Json) -> Bodies:
        return st.none()


def _merged(one: Json, other: Json) -> Json:
    """Both schemas at once, as far as values are drawn from them."""
    parts = [each.get("properties", {}) for each in (one, other)]
    properties = {
        name: {**parts[0].get(name, {}), **parts[1].get(name, {})} for name in {**parts[0], **parts[1]}
    }
    required = [*one.get("required", ()), *other.get("required", ())]
    both = {**one, **other}
    if properties or required:
        both |= {"properties": properties, "required": list(dict.fromkeys(required))}
    return both


async def document() -> Json:
    async with serving(scripted()) as server:
        found: Json = await server.get("/openapi.json")
        return found


DOCUMENT = asyncio.run(document())
COMPONENTS = DOCUMENT["components"]["schemas"]
SCHEMAS: dict[str, Json] = {
    path: methods["post"]["requestBody"]["content"]["application/json"]["schema"]
    for path, methods in DOCUMENT["paths"].items()
    if "requestBody" in methods.get("post", {})
}


def read_part(body: Any) -> Any:
    """What the server reads of *body*: the last of the messages, or none beside the answers to questions."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return body
    return {**body, "messages": [] if body.get("resume") else body["messages"][-1:]}


def answers_twice(body: Any) -> bool:
    """Whether a question has two answers in *body*, which the document names as a refusal."""
    messages = body.get("messages") or []
    parts = [part for message in messages[-1:] for part in message.get("parts") or []]
    asked = [entry["interruptId"] for entry in body.get("resume") or []]
    asked += [part["approval"]["id"] for part in parts if part.get("state") == "approval-responded"]
    return len({*asked}) < len(asked)


async def begun(stack: AsyncExitStack) -> Asking:
    """A server with an idle session."""
    server = await stack.enter_async_context(serving(scripted(*[says("Well.")] * 10_000)))
    await server.post("/api/sessions", {"id": "s", "prompt": "Begin"}, 201)
    await server.done("s")
    return server


@pytest.mark.parametrize("path", SCHEMAS)
def test_the_server_takes_the_bodies_that_the_document_allows_and_no_others(path: str) -> None:
    schema = SCHEMAS[path]
    judge = Judge({**schema, "components": {"schemas": COMPONENTS}})
    right, wrong = (Drawing(COMPONENTS, odd=odd).of(schema) for odd in (False, True))
    where, seen = path.format(id="s", agent="default", question="none"), set[bool]()
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        server = runner.run(begun(stack))

        @settings(max_examples=60)
        @given(right | wrong)
        def check(body: Any) -> None:
            answer = runner.run(server.client.post(where, content=json.dumps(body)))
            refused = answer.status_code in {400, 413, 422}
            seen.add(refused)
            if judge.is_valid(body):
                assert not refused or answers_twice(body), answer.text
            elif not judge.is_valid(read_part(body)):
                assert refused, answer.text

        try:
            check()
        finally:
            runner.run(stack.aclose())
    assert seen == {True, False}


def test_refusals_that_no_schema_can_say_are_named_with_their_status() -> None:
    refusals = {
        path: methods["post"]["responses"] for path, methods in DOCUMENT["paths"].items() if "post" in methods
    }
    for path in SCHEMAS:
        assert {"400", "403", "409", "413", "422", "429", "503"} <= {*refusals[path]}
    for path in ("/api/sessions", "/api/sessions/{id}/interrupt"):
        assert "Idempotency-Key came with another body" in refusals[path]["422"]["description"]
    assert "a question has two answers" in refusals["/api/agents/{agent}/ag-ui"]["422"]["description"]
