"""What a request may bring: JSON is measured while it is read, and nobody waits for a large one."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st
from support.http_server import scripted, serving

from turnwheel.apps.server.limits import MAX_REQUEST
from turnwheel.apps.server.problems import Refused
from turnwheel.apps.server.request_body import MAX_DEPTH, MAX_JSON, MAX_VALUES, JsonGauge
from turnwheel.testing.scripted import calls, says

# Quotes, escapes and brackets inside of strings are what a scanner stumbles over.
TEXTS = st.text('a"\\[]{},:\n é', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def parts_of(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:end] for start, end in pairwise(places)]


def refusal(data: bytes, cuts: Sequence[int] = ()) -> int:
    """The status that *data* is refused with; 0 for none."""
    gauge = JsonGauge(MAX_JSON)
    try:
        for part in parts_of(data, cuts):
            gauge.take(part)
    except Refused as refused:
        return refused.status
    return 0


def fill(value: Any, values: int) -> bytes:
    """A list with *value* in it that has so many *values* in all."""
    there = count(value)
    return msgspec.json.encode([value, *[0] * (values - there - 1)])


def count(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(count, inner))


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else 0


# A part may be empty, also inside of a string.
@example({"": None}, [3, 3])
@given(VALUES, st.lists(st.integers(0, 400), max_size=8))
def test_each_value_counts_once_wherever_a_body_is_cut(value: Any, cuts: list[int]) -> None:
    assert refusal(fill(value, MAX_VALUES), cuts) == 0
    assert refusal(fill(value, MAX_VALUES + 1), cuts) == 413


@given(VALUES, st.lists(st.integers(0, 400), max_size=8))
def test_depth_is_that_of_the_deepest_wherever_a_body_is_cut(value: Any, cuts: list[int]) -> None:
    around = MAX_DEPTH - depth(value)
    data = msgspec.json.format(msgspec.json.encode(value))
    assert refusal(b"[" * around + data + b"]" * around, cuts) == 0
    # One more of whatever is the deepest.
    assert refusal(b"[" * (around + 1) + data + b"]" * (around + 1), cuts) == 400


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b'["' + b"[" * 1_000 + b'"]', 0),
        (b'"' + b"\\" * 200_000 + b'"' + b"[" * 65, 400),
        (b"[1]" + b" " * MAX_JSON, 413),
        (b"[" + b"1" * MAX_JSON + b"]", 413),
        (b'["' + b"x" * 5_000_000 + b'"]', 0),
        (b'["' + (b'",[' + b"[]," * 100 + b'"') * 65, 400),
    ],
    ids=["brackets in a string", "escapes", "blanks", "a number", "a long string", "cut strings"],
)
def test_only_what_surrounds_strings_is_bounded(data: bytes, status: int) -> None:
    for cuts in ((), (1, 2, 3, 500, 501), range(0, len(data), 4_096), range(2, 30_000, 304)):
        assert refusal(data, cuts) == status


async def test_a_hostile_body_is_refused_before_all_of_it_is_read() -> None:
    sent = list[int]()

    async def lists() -> AsyncIterator[bytes]:
        yield b'{"files": ['
        for number in range(600):
            sent.append(number)
            yield b"[]," * 21_845

    async with serving(scripted()) as server:
        answer = await server.client.post("/api/sessions", content=lists())
        assert (answer.status_code, "100,000 values" in answer.text) == (413, True)
        assert len(sent) < 10


@pytest.mark.parametrize(
    ("arguments", "status"),
    [({"amount": [0] * 100_001}, 413), ({"amount": "x" * MAX_REQUEST}, 413), (nested(64), 400)],
    ids=["values", "bytes", "depth"],
)
async def test_an_answer_that_is_too_much_leaves_the_question_open(arguments: Any, status: int) -> None:
    async with serving(scripted(calls(("pay", {"amount": 5})), says("Paid."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        where = f"/api/sessions/s/questions/{asked['id']}"
        await server.post(where, {"decision": "approve", "arguments": arguments}, status)
        await server.post(where, {"decision": "approve"}, 200)
        assert (await server.done("s"))["reason"] == "end_turn"


async def test_a_file_may_be_larger_than_other_json() -> None:
    file = {"media_type": "image/png", "data": base64.b64encode(b"x" * 3_000_000).decode()}
    async with serving(scripted(says("Nice."))) as server:
        await server.post("/api/sessions", {"id": "s", "files": [file]}, 201)
        assert (await server.done("s"))["reason"] == "end_turn"


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        (
            "",
            b'{"agnt": "x"}',
            "unknown field 'agnt'; did you mean 'agent'? there are: agent, id, prompt, files",
        ),
        ("", b'{"prompt": " "}', "prompt must have some text besides blanks"),
        ("", b'{"id": "a b"}', "id must be 1 to 200 of the letters A to Z, digits and ._~:@+=,-"),
        ("", b" ", "the body is empty; send a JSON object with some of: agent, id, prompt, files"),
        ("/s/messages", b'{"mode": "steeer"}', "mode cannot be 'steeer'; did you mean 'steer'? there are: "),
        (
            "/s/messages",
            b'{"files": [{"dta": ""}]}',
            "'dta' in files[0]; did you mean 'data'? there are: media_type,",
        ),
        ("/s/control", b'{"mode": "yolo"}', "mode cannot be 'yolo'; there are: default, "),
        (
            "/s/questions/q",
            b'{"decision": "yes"}',
            "decision cannot be 'yes'; there are: approve, always, deny",
        ),
        ("/s/questions/q", b"{}", "it lacks the field 'decision', one of approve, always, deny"),
        ("/s/questions/q", b'{"decision": "deny", "why": ""}', "unknown field 'why'; there are: decision, "),
        (
            "/s/questions/q",
            b'{"decision": "deny", "arguments": {}}',
            "arguments goes only with decision 'approve'",
        ),
        ("/s/questions/q", b'{"decision": "always", "arguments": {}}', "goes only with decision 'approve'"),
        (
            "/s/questions/q",
            b'{"decision": "approve", "reason": "x"}',
            "reason goes only with decision 'deny'",
        ),
        ("/s/branch", b"{}", "it lacks the field 'run'"),
        ("/s/branch", b"", "the body is empty; send a JSON object with some of: run"),
        ("/s/messages", b'{"text": 1}', "Expected `str`, got `int` - at `$.text`"),
    ],
)
async def test_a_malformed_body_is_told_what_is_allowed(path: str, body: bytes, says: str) -> None:
    async with serving(scripted()) as server:
        answer = await server.client.post(f"/api/sessions{path}", content=body)
        assert answer.status_code == 422
        assert says in answer.json()["detail"]
