"""The document of the operations has groups and examples, and its page asks no other server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # its types are another package
from support.http_server import scripted, serving

from turnwheel.apps.server.docs import routes

Json = dict[str, Any]


async def document() -> Json:
    async with serving(scripted(), tokens={"secret": "acme"}) as server:
        found: Json = await server.get("/openapi.json")
        return found


def operations(of: Json) -> Iterator[Json]:
    for methods in of["paths"].values():
        yield from methods.values()


def bodies(operation: Json) -> Iterator[tuple[str, Json]]:
    """The bodies of *operation* with their media types: of its request, and of its answers."""
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        yield from part.get("content", {}).items()


async def test_each_operation_is_in_one_of_the_groups() -> None:
    shown = await document()
    groups = [tag["name"] for tag in shown["tags"]]
    assert groups[:4] == ["sessions", "inputs", "questions", "streams"]
    assert all(tag["description"] for tag in shown["tags"])
    for operation in operations(shown):
        assert len(operation["tags"]) == 1, operation["operationId"]
        assert operation["tags"][0] in groups


async def test_each_body_has_an_example_that_fits_its_schema() -> None:
    shown = await document()
    components = {"components": shown["components"]}
    for operation in operations(shown):
        for kind, body in bodies(operation):
            where = f"{operation['operationId']}, {kind}"
            assert "example" in body, where
            Draft202012Validator({**body["schema"], **components}).validate(body["example"])
            assert isinstance(body["example"], dict) == ("json" in kind), where


async def test_each_parameter_in_a_path_has_an_example() -> None:
    for operation in operations(await document()):
        for parameter in operation["parameters"]:
            assert parameter["in"] != "path" or parameter["example"], operation["operationId"]


async def test_the_page_runs_nothing_that_came_as_text_and_names_files_of_this_server() -> None:
    async with serving(scripted(), tokens={"secret": "acme"}) as server:
        answer = await server.client.get("/docs")
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|https?:", answer.text)
        for asset in re.findall(r'(?:src|href)="(docs/[\w./-]+)"', answer.text):
            assert await server.get(f"/{asset}")


@pytest.mark.parametrize("name", ["LICENSE", "index.html", "..%2froutes.py", "nothing.js"])
async def test_other_files_are_none_of_the_page(name: str) -> None:
    async with serving(scripted()) as server:
        await server.get(f"/docs/{name}", 404)


async def test_without_swagger_ui_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "SWAGGER_PACKAGE", "not_installed")
    async with serving(scripted()) as server:
        refused = await server.get("/docs/swagger-ui.css", 404)
        assert "install turnwheel[server]" in refused["detail"]
