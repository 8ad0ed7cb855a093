"""Chunks that are read: those that decode to a bounded size and depth; what is no JSON is borne."""

from __future__ import annotations

import pytest

from turnwheel.performers.models import body
from turnwheel.performers.models.body import MAX_CHUNK_DEPTH, is_decodable

MOST = MAX_CHUNK_DEPTH


@pytest.mark.parametrize(
    ("data", "decodable"),
    [
        (b"[0,0,0,0]", True),
        (b"[0,0,0,0,0]", False),
        (b"[[],[],{}]", False),
        (b"[[],[{}]]", False),
        (b"[[],{}]", True),
        (b"[[[[]]]]", True),
        (b"[[[[[]]]]]", False),
        (b"0,0,0,0,0", True),
        (b"", True),
    ],
)
def test_a_chunk_has_only_so_many_values(
    data: bytes, *, decodable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each object and list is one, and each comma brings one."""
    monkeypatch.setattr(body, "MAX_VALUES", 4)
    assert is_decodable(data) is decodable


NESTED: dict[str, tuple[bytes, bool]] = {
    "lists": (b"[" * MOST + b"]" * MOST, True),
    "one more list": (b"[" * (MOST + 1) + b"]" * (MOST + 1), False),
    "objects": (b'{"a":' * MOST + b"0" + b"}" * MOST, True),
    "one more object": (b'{"a":' * (MOST + 1) + b"0" + b"}" * (MOST + 1), False),
    "a list in objects": (b'{"a":' * MOST + b"[]" + b"}" * MOST, False),
    "objects and lists in turns, which may be twice as deep": (b'[{"a":' * MOST + b"0" + b"}]" * MOST, True),
    "more of those": (b'[{"a":' * (MOST + 1) + b"0" + b"}]" * (MOST + 1), False),
    "many lists side by side": (b"[" + b"[]," * MOST + b"[]]", True),
    # Brackets in strings do not count, whatever is hidden there.
    "a string": (b'["' + b"[" * (MOST + 1) + b'"]', True),
    "a string with a quote": (b'["\\"' + b"[" * (MOST + 1) + b'"]', True),
    "lists behind a string that ends in a backslash": (b'["\\\\",' + b"[" * MOST + b"]" * MOST + b"]", False),
    "lists behind strings": (b'["a","b",' + b"[" * MOST + b"]" * MOST + b"]", False),
    # What is no JSON is refused by who decodes it, and not for its depth.
    "lists that are not closed": (b"[" * (MOST + 1), True),
    "lists that are closed first": (b"]" * (MOST + 1) + b"[" * (MOST + 1), True),
    "a string that is not closed": (b'"' + b"[" * (MOST + 1), True),
}


@pytest.mark.parametrize("what", NESTED)
def test_a_chunk_is_only_so_deep(what: str) -> None:
    data, decodable = NESTED[what]
    assert is_decodable(data) is decodable
