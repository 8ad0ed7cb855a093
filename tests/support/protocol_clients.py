"""Clients of AG-UI and of the AI SDK in small: they hold a stream to its order, and build messages of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from turnwheel.projections import JsonEvent

Json = dict[str, Any]


class AgUiClient:
    """Builds messages of AG-UI events as `@ag-ui/client` does, and asserts what its verifier does."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.open: set[tuple[str, object]] = set()
        self.active = False
        self.ends: list[Json] = []

    def hear(self, events: Iterable[JsonEvent]) -> None:
        """Take *events*."""
        for event in events:
            name: str = str(event["type"])
            assert self.active or name == "RUN_STARTED", name
            if name in {"RUN_STARTED", "RUN_FINISHED", "RUN_ERROR"}:
                self._run(name, event)
            else:
                self._bracket(name, event)
                self._apply(name, event)

    def _run(self, name: str, event: Json) -> None:
        if name == "RUN_STARTED":
            assert not self.active
        else:
            self.ends.append(event)
            assert not self.open or name == "RUN_ERROR", self.open
            self.open.clear()
        self.active = name == "RUN_STARTED"

    def _bracket(self, name: str, event: Json) -> None:
        key = next((event[key] for key in ("messageId", "toolCallId", "stepName") if key in event), None)
        kind, _, part = name.rpartition("_")
        if kind == "SUBAGENT":
            key = event["subagentRunId"]
        match part:
            case "START" | "STARTED":
                assert (kind, key) not in self.open, (kind, key)
                self.open.add((kind, key))
            case "CONTENT" | "ARGS":
                assert (kind, key) in self.open, (kind, key)
            case "END" | "FINISHED" | "ERROR":
                self.open.remove((kind, key))
            case _:
                pass

    def _message(self, name: object, role: str, event: Json) -> Json:
        for message in self.messages:
            if message["id"] == name:
                return message
        made: Json = {"id": name, "role": role, "content": ""}
        if "subagentRunId" in event:
            made["subagentRunId"] = event["subagentRunId"]
        self.messages.append(made)
        return made

    def _apply(self, name: str, event: Json) -> None:
        match name:
            case "MESSAGES_SNAPSHOT":
                self.messages = [dict(message) for message in event["messages"]]
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                self._message(event["messageId"], event["role"], event)
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                self._message(event["messageId"], "", event)["content"] += event["delta"]
            case "TOOL_CALL_START":
                owner = event.get("parentMessageId", event["toolCallId"])
                calls = self._message(owner, "assistant", event).setdefault("toolCalls", [])
                function = {"name": event["toolCallName"], "arguments": ""}
                calls.append({"id": event["toolCallId"], "type": "function", "function": function})
            case "TOOL_CALL_ARGS":
                self._call(event["toolCallId"])["function"]["arguments"] += event["delta"]
            case "TOOL_CALL_RESULT":
                made = self._message(event["messageId"], "tool", event)
                made |= {"toolCallId": event["toolCallId"], "content": event["content"]}
            case _:
                pass

    def _call(self, name: object) -> Json:
        return next(
            call for message in self.messages for call in message.get("toolCalls", ()) if call["id"] == name
        )


class UiClient:
    """Builds messages of UI message chunks as `readUIMessageStream` does, and asserts the same."""

    def __init__(self) -> None:
        self.messages: list[Json] = []
        self.open: dict[object, Json] = {}
        self.active = False

    def hear(self, chunks: Iterable[JsonEvent]) -> None:
        """Take *chunks*."""
        for chunk in chunks:
            kind, _, part = str(chunk["type"]).rpartition("-")
            if chunk["type"] == "start":
                assert not self.active
                self.active = True
                if not self.messages or self.messages[-1]["id"] != chunk["messageId"]:
                    self.messages.append({"id": chunk["messageId"], "parts": []})
                continue
            assert self.active, chunk
            if chunk["type"] == "finish":
                assert not self.open
                self.active = False
            elif kind in {"text", "reasoning"}:
                self._block(kind, part, chunk)
            elif str(chunk["type"]).startswith("tool-"):
                TOOL_CHUNKS[str(chunk["type"])](self, chunk)
            elif chunk["type"] == "start-step":
                self.parts.append({"type": "step-start"})
            elif chunk["type"] == "reset-step":
                while self.parts and self.parts[-1]["type"] != "step-start":
                    self.parts.pop()

    @property
    def parts(self) -> list[Json]:
        """The parts of the last message."""
        parts: list[Json] = self.messages[-1]["parts"]
        return parts

    def _block(self, kind: str, part: str, chunk: Json) -> None:
        match part:
            case "start":
                assert chunk["id"] not in self.open
                self.open[chunk["id"]] = {"type": kind, "text": ""}
                self.parts.append(self.open[chunk["id"]])
            case "delta":
                self.open[chunk["id"]]["text"] += chunk["delta"]
            case _:
                del self.open[chunk["id"]]

    def tool(self, call: object) -> Json:
        """The part of *call*."""
        return next(part for part in self.parts if part.get("call") == call)

    def begin(self, chunk: Json) -> None:
        """A call begins."""
        part: Json = {"type": "tool", "call": chunk["toolCallId"], "name": chunk["toolName"], "raw": ""}
        self.parts.append(part | {"state": "input-streaming"})

    def grow(self, chunk: Json) -> None:
        """A bit of its arguments."""
        self.tool(chunk["toolCallId"])["raw"] += chunk["inputTextDelta"]

    def complete(self, chunk: Json) -> None:
        """All of its arguments."""
        self.tool(chunk["toolCallId"]).update(state="input-available", input=chunk["input"])

    def ask(self, chunk: Json) -> None:
        """A question about it."""
        self.tool(chunk["toolCallId"]).update(state="approval-requested", asked=chunk["approvalId"])

    def answer(self, chunk: Json) -> None:
        """The end of that question."""
        # The latest: runs that are played apart may have given their questions the same ids.
        part = next(part for part in reversed(self.parts) if part.get("asked") == chunk["approvalId"])
        part.update(state="approval-responded", approved=chunk["approved"])

    def settle(self, chunk: Json) -> None:
        """Its result."""
        part, state = self.tool(chunk["toolCallId"]), str(chunk["type"]).removeprefix("tool-")
        # As `validateUIMessages` has it: what was not allowed has no result.
        assert part.get("approved") is (False if state == "output-denied" else part.get("asked") and True)
        part.update(state=state, result=chunk.get("output", chunk.get("errorText")))


TOOL_CHUNKS: dict[str, Callable[[UiClient, Json], None]] = {
    "tool-input-start": UiClient.begin,
    "tool-input-delta": UiClient.grow,
    "tool-input-available": UiClient.complete,
    "tool-approval-request": UiClient.ask,
    "tool-approval-response": UiClient.answer,
    "tool-output-available": UiClient.settle,
    "tool-output-error": UiClient.settle,
    "tool-output-denied": UiClient.settle,
}
