"""
The model of the benchmark: OpenAI's chat completions, prepared once, in a process of its own.

The scenario stands in the address, so the server keeps no session: ``/ROUNDS/DELTAS/PAUSE/LATENCY`` answers
ROUNDS times with one call ``add(a=<round>, b=1)`` and then with a text of DELTAS deltas. An answer begins
LATENCY milliseconds after its request. Every event is an HTTP chunk of its own. They leave together, or PAUSE
milliseconds apart where that is more than 0.

``GET /requests`` gives the number of requests so far. The server prints its port, and ends when its standard
input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from functools import lru_cache

from .work import words

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ARGUMENT_PIECES = 5

BACKLOG = 1_000
"""Connections that may wait to be accepted: of more, each tries again a second later."""


def event(content: object) -> bytes:
    """*content* as one server-sent event."""
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """*data* as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def call_deltas(number: int) -> list[object]:
    """The call of round *number*, its arguments in pieces."""
    arguments = json.dumps({"a": number, "b": 1})
    size = -(-len(arguments) // ARGUMENT_PIECES)
    pieces = [arguments[start : start + size] for start in range(0, len(arguments), size)]
    name = {"name": "add", "arguments": ""}
    calls = [{"index": 0, "id": f"call_{number:08d}", "type": "function", "function": name}]
    calls += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    return [{"tool_calls": [call]} for call in calls]


def answer(rounds: int, deltas: int, number: int) -> list[bytes]:
    """The events of the answer to round *number* of a scenario."""
    base = {
        "id": f"chatcmpl-{number:08d}",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "played",
    }
    calling = number < rounds
    begin = {"role": "assistant", "content": None if calling else ""}
    content = call_deltas(number) if calling else [{"content": word} for word in words(deltas)]
    events = [
        event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        for delta in (begin, *content)
    ]
    finish = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calling else "stop"}
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return [
        *events,
        event({**base, "choices": [finish]}),
        event({**base, "choices": [], "usage": usage}),
        event("[DONE]"),
    ]


@lru_cache(maxsize=4096)
def chunks(rounds: int, deltas: int, number: int) -> tuple[bytes, ...]:
    """The chunks of the answer to round *number* of a scenario."""
    return (*map(chunk, answer(rounds, deltas, number)), chunk(b""))


class Model:
    """Answers requests and counts them."""

    def __init__(self) -> None:
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests until it closes."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ", 2)[1].decode()
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or b"0"))
                await self._answer(path, body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/requests":
            count = b"%d" % self.requests
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(count), count))
            return
        self.requests += 1
        rounds, deltas, pause, latency = map(int, path.split("/")[1:5])
        body_chunks = chunks(rounds, deltas, body.count(b'"role":"tool"'))
        if latency:
            await asyncio.sleep(latency / 1000)
        if not pause:
            writer.write(HEAD + b"".join(body_chunks))
            return
        for each in (HEAD, *body_chunks):
            writer.write(each)
            await asyncio.sleep(pause / 1000)


async def main() -> None:
    """Serve until standard input closes: the process that started this has ended then."""
    server = await asyncio.start_server(Model().serve, "127.0.0.1", 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(main())
