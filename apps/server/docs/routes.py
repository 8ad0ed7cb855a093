"""
The OpenAPI document and the page where one may read and try the operations.

The page is Swagger UI, whose files are those of the package `flask-swagger-ui`. They are served from here, so
that the page asks no other server. The package itself is not imported: Flask is not needed for its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import final

import msgspec
from starlette.responses import Response

from ..operations import HttpCall, Operation, operation, operations_of
from ..problems import Refused
from .openapi import openapi

SWAGGER_PACKAGE = "flask_swagger_ui"
ASSET_TYPES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
OWN_ASSET_TYPES = {"docs.js": "text/javascript", "docs.css": "text/css"}

# Swagger UI sets styles by the DOM and has its icons in its style sheet: no inline script or style is needed.
DOCS_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    # A server of another version has other files under the same names.
    "Cache-Control": "no-cache",
}
# Swagger UI has 1.8 MB, so a browser keeps it for an hour.
ASSET_HEADERS = {"Cache-Control": "max-age=3600"}


@final
class DocsRoutes:
    """The document of *operations* and of its own ones, and its page; *secured* as for `openapi`."""

    def __init__(self, operations: Sequence[Operation], *, secured: bool) -> None:
        self._document = openapi([*operations, *operations_of(self)], secured=secured)

    @operation("GET", "/openapi.json", gives="application/json", open=True)
    async def get_openapi(self, call: HttpCall) -> Response:
        """The operations, as an OpenAPI document."""
        # Where the app is mounted, or a proxy has it: paths begin there.
        servers = [{"url": call.request.scope.get("root_path") or "/"}]
        document = msgspec.json.encode({**self._document, "servers": servers})
        return Response(document, media_type="application/json")

    @operation("GET", "/docs", gives="text/html", open=True)
    async def get_docs(self, call: HttpCall) -> Response:
        """The same document as a page, where each operation may be tried."""
        del call
        return Response(_own_file("index.html"), media_type="text/html", headers=DOCS_HEADERS)

    @operation("GET", "/docs/{asset}", gives="*/*", open=True)
    async def get_docs_asset(self, call: HttpCall) -> Response:
        """A file of that page."""
        name = call.request.path_params["asset"]
        if kind := OWN_ASSET_TYPES.get(name):
            return Response(_own_file(name), media_type=kind, headers=DOCS_HEADERS)
        if kind := ASSET_TYPES.get(name):
            return Response(_packaged_file(SWAGGER_PACKAGE, name), media_type=kind, headers=ASSET_HEADERS)
        raise Refused(HTTPStatus.NOT_FOUND, f"the page of the operations has no file {name[:100]!r}")


@cache
def _own_file(name: str) -> bytes:
    return files(__name__.rpartition(".")[0]).joinpath("page", name).read_bytes()


@cache
def _packaged_file(package: str, name: str) -> bytes:
    # Found and not imported: the import would load Flask.
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        detail = "Swagger UI is not installed; install turnwheel[server], or read /openapi.json"
        raise Refused(HTTPStatus.NOT_FOUND, detail)
    return Path(spec.origin).with_name("dist").joinpath(name).read_bytes()
