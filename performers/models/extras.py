"""The extra headers and fields of a `ModelSpec` in a request, and the place of the session's name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote

from ...effects.config import ModelSpec
from ...effects.errors import ConfigError
from ...effects.request_extras import HEADER_FIELD, VARIABLE, logs_in

# Texts of `ModelSpec.extra_body` that are remembered parsed: each request needs one.
MAX_OBJECTS = 256

# Characters of a session's name that stand in a header as they are.
IN_HEADER = " !#$&'()*+,/:;=?@[]"


@lru_cache(MAX_OBJECTS)
def object_of(text: str) -> Mapping[str, Any]:
    """The object that *text* is, which a `ModelSpec` has checked; to be read only."""
    return cast("dict[str, Any]", json.loads(text)) if text else {}


def headers_of(spec: ModelSpec, session: str) -> dict[str, str]:
    """
    The headers that *spec* adds to a request of *session*, by their names in lower case.

    Raises `ConfigError` for an environment variable that is not set, or that no header can hold.
    """
    headers = {name.lower(): _filled(name, value) for name, value in spec.extra_headers}
    if session and spec.session_field.startswith(HEADER_FIELD):
        name = spec.session_field.removeprefix(HEADER_FIELD).lower()
        headers[name] = quote(session, safe=IN_HEADER)
    return headers


def _filled(name: str, value: str) -> str:
    for variable in VARIABLE.findall(value):
        told = os.environ.get(variable, "").strip()
        if not told or not told.isascii() or not told.isprintable():
            fix = "set it" if not told else "it has characters that no header can hold"
            msg = f"extra_headers: {name!r} needs the environment variable {variable}; {fix}"
            raise ConfigError(msg)
        value = value.replace(f"${{{variable}}}", told)
    return value


def logs_in_itself(spec: ModelSpec) -> bool:
    """Whether a header of *spec* logs in, so that no key is needed besides."""
    return any(logs_in(name) for name, _ in spec.extra_headers)


def variables_of(spec: ModelSpec) -> tuple[str, ...]:
    """The values of the environment variables in the headers of *spec*."""
    names = [name for _, value in spec.extra_headers for name in VARIABLE.findall(value)]
    return tuple(filter(None, [os.environ.get(name, "").strip() for name in names]))


def with_extras(options: dict[str, Any], spec: ModelSpec, session: str) -> dict[str, Any]:
    """*options* with the fields of *spec*, and with the name of *session* in the field for it."""
    if spec.extra_body:
        options = {**options, **object_of(spec.extra_body)}
    if session and spec.session_field and not spec.session_field.startswith(HEADER_FIELD):
        *outer, last = spec.session_field.split(".")
        options = _placed(options, outer, last, session)
    return options


def _placed(options: Mapping[str, Any], outer: list[str], last: str, session: str) -> dict[str, Any]:
    """A copy of *options* with *session* as *last*, inside the objects that *outer* names."""
    if not outer:
        return {**options, last: session}
    inner = options.get(outer[0])
    found: Mapping[str, Any] = cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}
    return {**options, outer[0]: _placed(found, outer[1:], last, session)}
