"""What is taken of an answer at most, and how one is unpacked that comes packed."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models import http
from turnwheel.performers.models.http import MAX_PART, decompressor
from turnwheel.performers.models.openai import OpenAIChat

REQUEST = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1))


def scene_of() -> PerformContext:
    config, history = Config(model=ModelSpec(name="m")), History.of(user("hi"))
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


async def asked(
    body: bytes | AsyncIterator[bytes], status: int = 200, **options: Any
) -> ModelFinished | ModelFailed:
    """The answer to a request, where the server says *body*."""
    transport = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    async with httpx.AsyncClient(transport=transport) as client:
        answer = await OpenAIChat("http://there", "key", client, **options)(REQUEST, scene_of())
    assert isinstance(answer, ModelFinished | ModelFailed)
    return answer


def stream(*deltas: Mapping[str, object]) -> bytes:
    chunks: list[object] = [{"choices": [{"delta": delta}]} for delta in deltas]
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 7}}
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in (*chunks, end)]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def said(text: str) -> dict[str, object]:
    return {"content": text}


def called(arguments: str, index: int = 0, **more: object) -> dict[str, object]:
    function = {"name": "f" if not arguments else None, "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **more}]}


SIGNED = {"thinking_blocks": [{"type": "thinking", "thinking": "12", "signature": "345"}]}
HIDDEN = {"thinking_blocks": [{"type": "redacted_thinking", "data": "678"}]}
GOOGLE = {"extra_content": {"google": {"thought_signature": "s"}}}
OPAQUE = len(json.dumps(GOOGLE, separators=(",", ":")))


@pytest.mark.parametrize(
    ("deltas", "characters"),
    [
        ((said("12345"), said("678")), 8),
        (({"reasoning_content": "12345"}, said("678")), 8),
        ((SIGNED, HIDDEN), 8),
        ((called("", id="1234"), called("{}", 0), said("1")), 8),
        ((called("", 0, id="1"), called("", 1, id="2", **GOOGLE)), OPAQUE + 4),
        (({"content": "1", **GOOGLE}, said("2")), OPAQUE + 2),
    ],
    ids=["text", "thinking", "signatures", "a call", "signed calls", "a signed answer"],
)
async def test_an_answer_may_say_so_many_characters(
    deltas: tuple[Mapping[str, object], ...], characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thinking, signatures and calls included; what was used is told all the same."""
    monkeypatch.setattr(http, "MAX_CHARACTERS", characters)
    assert isinstance(await asked(stream(*deltas)), ModelFinished)
    monkeypatch.setattr(http, "MAX_CHARACTERS", characters - 1)
    answer = await asked(stream(*deltas))
    assert isinstance(answer, ModelFailed)
    message = f"the answer says more than {characters - 1} characters"
    assert (answer.failure, answer.message, answer.usage) == (Failure.CUT, message, Usage(input=7))


async def test_each_call_may_have_so_many_characters_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = (
        called("", 0, id="a"),
        called("", 1, id="b"),
        called("12345", 0),
        called("678", 1),
        called("6", 0),
    )
    monkeypatch.setattr(http, "MAX_CALL_ARGUMENTS", 6)
    assert isinstance(await asked(stream(*deltas)), ModelFinished)
    monkeypatch.setattr(http, "MAX_CALL_ARGUMENTS", 5)
    answer = await asked(stream(*deltas))
    assert isinstance(answer, ModelFailed)
    assert answer.message == "the arguments of a call have more than 5 characters"


async def test_an_answer_may_come_in_so_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    deltas = [said(str(number)) for number in range(5)]
    monkeypatch.setattr(http, "MAX_PIECES", 5)
    assert isinstance(await asked(stream(*deltas)), ModelFinished)
    monkeypatch.setattr(http, "MAX_PIECES", 4)
    monkeypatch.setattr(http, "MAX_PART", 1)  # each part is parsed when it comes

    async def parts() -> AsyncIterator[bytes]:
        for line in stream(*deltas).splitlines(keepends=True):
            yield line

    for answer in await asked(stream(*deltas)), await asked(parts()):
        assert isinstance(answer, ModelFailed)
        assert answer.message == "the answer came in more than 4 pieces"


async def test_an_answer_that_is_not_streamed_is_weighed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"choices": [{"message": {"content": "12345"}, "finish_reason": "stop"}]}).encode()
    monkeypatch.setattr(http, "MAX_CHARACTERS", 4)
    answer = await asked(body)
    assert isinstance(answer, ModelFailed)
    assert answer.message == "the answer says more than 4 characters"


async def test_so_many_bytes_of_an_answer_are_read() -> None:
    body = stream(said("a"))
    assert isinstance(await asked(body, max_answer=len(body)), ModelFinished)
    answer = await asked(body, max_answer=len(body) - 1)
    assert isinstance(answer, ModelFailed)
    assert answer.message == f"the answer is larger than {len(body) - 1} bytes"


async def test_so_many_bytes_of_a_refusal_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"error": {"message": "no"}}).encode()
    for most, message in ((len(body), "http 400: no"), (len(body) - 1, f"http 400: {body[:-1].decode()}")):
        monkeypatch.setattr(http, "MAX_REFUSAL", most)
        answer = await asked(body, 400)
        assert isinstance(answer, ModelFailed)
        assert answer.message == message


def raw(data: bytes, first: int = 1) -> bytes:
    """*data* as a deflate stream without a head, stored and not packed, that begins with *first*."""
    length = len(data).to_bytes(2, "little")
    end = b"" if first & 1 else b"\1\0\0\xff\xff"
    return bytes([first]) + length + bytes(255 - each for each in length) + data + end


PACKED = {
    "gzip": ("gzip", gzip.compress(b"hello")),
    "x-gzip": ("x-gzip", gzip.compress(b"hello")),
    "deflate": ("deflate", zlib.compress(b"hello")),
    "deflate, at another level": ("deflate", zlib.compress(b"hello", 1)),
    "raw": ("deflate", raw(b"hello")),
    "raw, a head by its remainder": ("deflate", raw(b"hello".ljust(23))),  # 31 divides its first two bytes
    "raw, a head by its method": ("deflate", raw(b"hello", 8)),
    "with something behind it": ("gzip", gzip.compress(b"hello") + b"rest"),
}


@pytest.mark.parametrize("name", PACKED)
def test_a_packed_answer_is_unpacked_however_it_is_cut(name: str) -> None:
    coding, data = PACKED[name]
    for size in (1, 2, len(data)):
        unpack = decompressor(coding)
        assert unpack is not None
        parts = [data[at : at + size] for at in range(0, len(data), size)]
        assert b"".join(one for part in parts for one in unpack(part)).rstrip() == b"hello"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", ""])
def test_what_cannot_be_unpacked_is_told(coding: str) -> None:
    assert decompressor(coding) is None


def test_a_small_body_becomes_a_large_one_part_by_part_only() -> None:
    unpack = decompressor("gzip")
    assert unpack is not None
    sizes = [len(part) for part in unpack(gzip.compress(bytes(2 * MAX_PART + 1)))]
    assert (sum(sizes), max(sizes)) == (2 * MAX_PART + 1, MAX_PART)


def test_bytes_that_are_not_packed_are_an_error() -> None:
    unpack = decompressor("gzip")
    assert unpack is not None
    with pytest.raises(zlib.error):
        list(unpack(b"hello"))
