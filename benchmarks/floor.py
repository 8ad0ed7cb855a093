"""The yardstick: the shortest loop that does the work, written by hand on httpx and json."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

from .work import KEY, MODEL, PROMPT, SESSION, SYSTEM, Seen

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from .work import Calculator

Message = dict[str, Any]

PARAMETERS = {
    "type": "object",
    "required": ["a", "b"],
    "additionalProperties": False,
    "properties": {
        "a": {"type": "integer", "description": "First number."},
        "b": {"type": "integer", "description": "Second number."},
    },
}
ADD = {"name": "add", "description": "Add two integers.", "parameters": PARAMETERS}


class Answer:
    """Reads one streamed answer into `text`, one string per delta, and `calls`."""

    def __init__(self) -> None:
        self._rest = b""
        self.text: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def feed(self, data: bytes) -> None:
        """Read the events that *data* completes."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                continue
            choices = json.loads(event[6:])["choices"]
            if choices:
                self._read(choices[0]["delta"])

    def _read(self, delta: dict[str, Any]) -> None:
        if content := delta.get("content"):
            self.text.append(content)
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            if call["index"] == len(self.calls):
                begun = {"name": function["name"], "arguments": ""}
                self.calls.append({"id": call["id"], "type": "function", "function": begun})
            self.calls[call["index"]]["function"]["arguments"] += function["arguments"]

    def message(self) -> Message:
        """The answer as it goes back to the model."""
        message: Message = {"role": "assistant", "content": "".join(self.text) or None}
        return {**message, "tool_calls": self.calls} if self.calls else message


class Table:
    """One row for each message and one commit for each turn, as durable as `SQLiteStore` is by default."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute("create table messages (seq integer primary key, body text not null)")

    def keep(self, messages: list[Message]) -> None:
        """Add *messages*, and wait for the disk."""
        with self._db:
            rows = [(json.dumps(message),) for message in messages]
            self._db.executemany("insert into messages (body) values (?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


class Floor:
    """The loop: no retries, no limits, no checks, no way to stop it and none to resume it."""

    def __init__(self, url: str, client: httpx.AsyncClient, calculator: Calculator) -> None:
        self._url = f"{url}/chat/completions"
        self._client = client
        self._calculator = calculator

    async def run(self, store: Path | None = None, session: str = SESSION) -> Seen:
        """Ask, call the tool, ask again; see `Contender.run`."""
        del session  # each has a file of its own
        table = Table(store) if store else None
        messages: list[Message] = []
        new: list[Message] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        deltas = 0
        while True:
            if table:
                table.keep(new)
            messages += new
            answer = await self._ask(messages)
            deltas += len(answer.text)
            new = [answer.message()]
            if table:
                table.keep(new)
            messages += new
            if not answer.calls:
                break
            new = [await self._call(call) for call in answer.calls]
        if table:
            table.close()
        return Seen("".join(answer.text), deltas)

    async def aclose(self) -> None:
        """Leave the client open, which the worker made."""

    async def _ask(self, messages: list[Message]) -> Answer:
        body = {
            "model": MODEL,
            "messages": messages,
            "tools": [{"type": "function", "function": ADD}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        answer = Answer()
        content = json.dumps(body, separators=(",", ":"))
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
            response.raise_for_status()
            async for data in response.aiter_raw():
                answer.feed(data)
        return answer

    async def _call(self, call: dict[str, Any]) -> Message:
        result = await self._calculator.add(**json.loads(call["function"]["arguments"]))
        return {"role": "tool", "tool_call_id": call["id"], "content": str(result)}
