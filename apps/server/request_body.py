"""
The bodies of requests: JSON, measured while it is read, so that none holds up the loop or fills the memory.

A decoder makes objects of each value, thirty bytes and more for one of three: so the values are counted, and
the bytes are only bounded. Long strings, such as files, cost no more than their bytes.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, final

import attrs
import msgspec
from starlette.requests import Request

from .body_problems import body_problem
from .operations import Operation
from .problems import Refused

# Bytes of a body where no files go, and of what surrounds the strings of a body where they do.
MAX_JSON = 1_048_576
# Values of any kind, the containers among them, and how deep these may lie in one another.
MAX_VALUES, MAX_DEPTH = 100_000, 64

# A string, and one that the part of a body ends in, with the escape that is cut off there. The latter takes
# all that is left: a search that began again at each of its quotes would take a time quadratic in them.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|(")[^"\\]*+(?:\\.[^"\\]*+)*+(\\?)\Z', re.DOTALL)
_IN_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_CUT, _ESCAPING = b'"', b'"\\'

# What structure consists of, with one character for any scalar, and what says nothing of it.
_SHAPE = bytes([byte if byte in b'[]{},"\\' else ord("0") for byte in range(256)])
_SILENT = b" \t\r\n:"
_OPENING = b"[{"


@final
@attrs.define
class JsonGauge:
    """What the JSON that came so far has, at most *most* bytes around its strings."""

    most: int
    _size: int = attrs.field(default=0, init=False)
    _values: int = attrs.field(default=1, init=False)
    _depth: int = attrs.field(default=0, init=False)
    # Whether the next byte is in a string, and whether a backslash came before it.
    _in_string: bool = attrs.field(default=False, init=False)
    _escaped: bool = attrs.field(default=False, init=False)
    # The last character of structure: an empty container may come in two parts.
    _last: bytes = attrs.field(default=b"", init=False)

    def take(self, part: bytes) -> None:
        """Measure *part*, which comes next. Raises `Refused` as soon as it is too much."""
        bare = self._without_strings(part)
        self._size += len(bare)
        if self._size > self.most:
            detail = f"the body has more than {self.most:,} bytes besides the strings in it; send less"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        shape = bare.translate(_SHAPE, _SILENT)
        opened = shape.count(b"[") + shape.count(b"{")
        seen = self._last + shape
        self._last = shape[-1:] or self._last
        # Each comma comes before a value, and each container has a first one unless it is empty.
        self._values += shape.count(b",") + opened - seen.count(b"[]") - seen.count(b"{}")
        if self._values > MAX_VALUES:
            detail = f"the body has more than {MAX_VALUES:,} values; send less"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
        if self._depth + opened > MAX_DEPTH:
            self._go_down(shape.translate(None, b',0"\\'))
        else:
            self._depth += opened - shape.count(b"]") - shape.count(b"}")

    def _go_down(self, brackets: bytes) -> None:
        for bracket in brackets:
            self._depth += 1 if bracket in _OPENING else -1
            if self._depth > MAX_DEPTH:
                detail = f"the body has more than {MAX_DEPTH} lists and objects in one another; send it flat"
                raise Refused(HTTPStatus.BAD_REQUEST, detail)

    def _without_strings(self, part: bytes) -> bytes:
        """*part* with "0" in the place of each string that ends in it."""
        at = 0
        if not part:
            return b""
        if self._in_string:
            at = 1 if self._escaped else 0
            end = _IN_STRING.match(part, at)
            at = len(part) if end is None else end.end()
            self._escaped = part[at : at + 1] == b"\\"
            self._in_string = self._escaped or at == len(part)
            if self._in_string:
                return b""
            at += 1
        bare = _STRINGS.sub(rb"0\1\2", part[at:])
        self._escaped = bare.endswith(_ESCAPING)
        self._in_string = self._escaped or bare.endswith(_CUT)
        return bare


async def body_of(operation: Operation, request: Request, most: int) -> Any:  # noqa: ANN401  # as it takes it
    """
    The body of *request* as *operation* takes it, None for none; it has at most *most* bytes.

    Raises `Refused` as soon as it is known to be too much, and for what is malformed.
    """
    if operation.takes is None:
        return None
    data = await _read(request, JsonGauge(MAX_JSON), most if operation.large else min(most, MAX_JSON))
    if not operation.needed and not data.strip():
        return None
    try:
        return _decoded(data, operation.takes)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        detail = body_problem(data, operation.takes, error)
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error


async def _read(request: Request, gauge: JsonGauge, most: int) -> bytes:
    too_large = Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {most:,} bytes; send less"
    )
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        gauge.take(part)
        parts.append(part)
    return b"".join(parts)


def _decoded(data: bytes, kind: Any) -> Any:  # noqa: ANN401  # as an operation takes it
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        plain = msgspec.json.decode(data)
        if not isinstance(plain, dict) or not any(isinstance(value, float) for value in plain.values()):
            raise
        # In JSON, 5.0 is a whole number, too.
        return msgspec.convert({name: _whole(value) for name, value in plain.items()}, kind)


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
