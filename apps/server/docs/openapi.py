"""The OpenAPI document, made of the operations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from ..bodies import RULES, SessionBody
from ..operations import KEY, Operation
from ..problems import PROBLEM_TYPE, ProblemBody
from .examples import IN_PATH, examples
from .groups import GROUP_OF, GROUPS

REFERENCE = "#/components/schemas/{name}"

REFUSALS = {
    HTTPStatus.BAD_REQUEST: "The body is nested too deeply",
    HTTPStatus.UNAUTHORIZED: "No token, or an unknown one",
    HTTPStatus.FORBIDDEN: "The host or the origin may not call",
    HTTPStatus.NOT_FOUND: "The request names something that is not there",
    HTTPStatus.CONFLICT: "Over or busy, or impossible in the present state",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too large",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The request is malformed",
    HTTPStatus.TOO_MANY_REQUESTS: "A limit is reached; try again later",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store fails, the server is ending, or another one took the run over",
}
REUSED_KEY = "the Idempotency-Key came with another body before"
OF_BODIES = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)

# What leads from a session in an answer to the operations on it. Its steps are numbered from 0; a question or
# a call need not be there.
FOUND_IN_SESSION = {"id": "$response.body#/id", "number": "0"}


def openapi(operations: Sequence[Operation], *, secured: bool) -> dict[str, Any]:
    """The document of *operations*; *secured* says that they need a token."""
    types = [
        kind for each in operations for kind in (each.takes, each.gives) if not isinstance(kind, str | None)
    ]
    (problem, *schemas), components = msgspec.json.schema_components(
        [ProblemBody, *types], ref_template=REFERENCE
    )
    for name, rule in RULES.items():
        components[name] |= rule
    known = iter(schemas)
    linked = [each for each in operations if {"id"} <= {*_in_path(each)} <= {*FOUND_IN_SESSION}]
    links = {each.name: _link(each) for each in linked}
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        body = next(known) if each.takes is not None else None
        answer = None if each.gives is None else next(known) if not isinstance(each.gives, str) else {}
        plain = _operation(each, body, answer, problem, secured=secured)
        paths.setdefault(each.path, {})[each.method.lower()] = plain
        if each.gives is SessionBody and (each.status is HTTPStatus.CREATED or each.method == "GET"):
            plain["responses"][str(int(each.status))]["links"] = links
    scheme = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "turnwheel", "version": version("turnwheel")},
        "tags": [{"name": group.name, "description": group.about} for group in GROUPS],
        "paths": paths,
        "components": {"schemas": components, **({"securitySchemes": scheme} if secured else {})},
        **({"security": [{"token": []}]} if secured else {}),
    }


def refusals_of(each: Operation, *, secured: bool) -> dict[HTTPStatus, str]:
    """What each status means with which *each* refuses a request; *secured* as for `openapi`."""
    statuses = {HTTPStatus.FORBIDDEN, *each.refuses}
    if not each.open:
        statuses |= {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
        statuses |= {HTTPStatus.UNAUTHORIZED} if secured else set()
    if _in_path(each):
        statuses.add(HTTPStatus.NOT_FOUND)
    if each.method == "POST":
        statuses.add(HTTPStatus.CONFLICT)
    if each.takes is not None:
        statuses |= {*OF_BODIES}
    if each.keyed or any(one.schema != {"type": "string"} for one in each.parameters):
        statuses.add(HTTPStatus.UNPROCESSABLE_ENTITY)
    meanings = {status: REFUSALS[status] for status in sorted(statuses)}
    if HTTPStatus.UNPROCESSABLE_ENTITY in meanings:
        cases = [meanings[HTTPStatus.UNPROCESSABLE_ENTITY], each.unsaid, REUSED_KEY if each.keyed else ""]
        meanings[HTTPStatus.UNPROCESSABLE_ENTITY] = "; ".join(filter(None, cases))
    return meanings


def _in_path(each: Operation) -> list[str]:
    return re.findall(r"{(\w+)}", each.path)


def _link(to: Operation) -> dict[str, Any]:
    return {"operationId": to.name, "parameters": {name: FOUND_IN_SESSION[name] for name in _in_path(to)}}


def _operation(
    each: Operation,
    body: dict[str, Any] | None,
    answer: dict[str, Any] | None,
    problem: dict[str, Any],
    *,
    secured: bool,
) -> dict[str, Any]:
    kind = each.gives if isinstance(each.gives, str) else "application/json"
    example = examples().get(each.name, {})
    content = {} if answer is None else {"content": {kind: _media(answer, example, "answer")}}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}, "example": IN_PATH[name]}
        for name in _in_path(each)
    ]
    others = [
        {"name": one.name, "in": one.place, "description": one.about, "schema": one.schema}
        for one in (*each.parameters, *([KEY] if each.keyed else []))
    ]
    refusals = refusals_of(each, secured=secured)
    plain: dict[str, Any] = {
        "summary": each.about,
        "tags": [GROUP_OF[each.name]],
        "operationId": each.name,
        "parameters": [*in_path, *others],
        "responses": {
            str(int(each.status)): {"description": each.about, **content},
            **{str(int(status)): _refusal(problem, status, text) for status, text in refusals.items()},
            "default": _refusal(problem, HTTPStatus.INTERNAL_SERVER_ERROR, "A fault of the server"),
        },
    }
    if each.nothing:
        plain["responses"][str(int(HTTPStatus.NO_CONTENT))] = {"description": each.nothing}
    if body is not None:
        content = {"application/json": _media(body, example, "request")}
        plain["requestBody"] = {"required": each.needed, "content": content}
    if each.open:
        plain["security"] = []
    return plain


def _media(schema: dict[str, Any], example: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {"schema": schema, **({"example": example[part]} if part in example else {})}


def _refusal(schema: dict[str, Any], status: HTTPStatus, meaning: str) -> dict[str, Any]:
    example = {"status": int(status), "title": status.phrase, "detail": meaning, "type": "about:blank"}
    return {"description": meaning, "content": {PROBLEM_TYPE: {"schema": schema, "example": example}}}
