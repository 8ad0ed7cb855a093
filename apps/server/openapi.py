"""The OpenAPI document, made of the operations, and a page that shows it without any other server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from .bodies import RULES, SessionBody
from .operations import KEY, Operation
from .problems import PROBLEM_TYPE, ProblemBody

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
    content = {} if answer is None else {"content": {kind: {"schema": answer}}}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _in_path(each)
    ]
    others = [
        {"name": one.name, "in": one.place, "description": one.about, "schema": one.schema}
        for one in (*each.parameters, *([KEY] if each.keyed else []))
    ]
    why_not = {"content": {PROBLEM_TYPE: {"schema": problem}}}
    refusals = refusals_of(each, secured=secured)
    plain: dict[str, Any] = {
        "summary": each.about,
        "operationId": each.name,
        "parameters": [*in_path, *others],
        "responses": {
            str(int(each.status)): {"description": each.about, **content},
            **{str(int(status)): {"description": text, **why_not} for status, text in refusals.items()},
            "default": {"description": "A fault of the server", **why_not},
        },
    }
    if each.nothing:
        plain["responses"][str(int(HTTPStatus.NO_CONTENT))] = {"description": each.nothing}
    if body is not None:
        plain["requestBody"] = {"required": each.needed, "content": {"application/json": {"schema": body}}}
    if each.open:
        plain["security"] = []
    return plain


DOCS_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font: 14px/1.4 ui-monospace, monospace; } pre { overflow-x: auto; padding: .5rem; }
summary { cursor: pointer; } details { border-top: 1px solid #8884; padding: .4rem 0; }
b { display: inline-block; min-width: 4.5rem; } :root { color-scheme: light dark; }
"""


def docs_page(document: dict[str, Any]) -> str:
    """*document* as a page of HTML; it loads nothing."""
    parts = [
        _shown_operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        f"<details id='{escape(name)}'><summary><code>{escape(name)}</code></summary>{_pre(schema)}</details>"
        for name, schema in document["components"]["schemas"].items()
    ]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>turnwheel</title><style>{DOCS_STYLE}</style><h1>turnwheel</h1>"
        f"<p>The same as <a href='openapi.json'>openapi.json</a>.</p>{''.join(parts)}"
        f"<h2>Bodies</h2>{''.join(schemas)}</html>"
    )


def _shown_operation(method: str, path: str, operation: dict[str, Any]) -> str:
    rest = {
        name: operation[name] for name in ("parameters", "requestBody", "responses") if operation.get(name)
    }
    head = f"<b>{method.upper()}</b> <code>{escape(path)}</code> {escape(operation['summary'])}"
    return f"<details><summary>{head}</summary>{_pre(rest)}</details>"


def _pre(plain: object) -> str:
    text = escape(msgspec.json.format(msgspec.json.encode(plain), indent=2).decode())
    # A reference leads to its schema on this page.
    return "<pre>" + re.sub(r"#/components/schemas/(\w+)", r"<a href='#\1'>\1</a>", text) + "</pre>"
