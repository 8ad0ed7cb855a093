"""The rules of what providers take tell a good request from one with a single fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnwheel.testing.wire_rules import chat_faults, messages_faults, responses_faults

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "max_tokens": 5,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "user", "content": "and?"},
    ],
}
RESPONSES: dict[str, Any] = {
    "model": "m",
    "instructions": "Be kind.",
    "stream": True,
    "store": False,
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"},
        {"type": "web_search_call", "id": "ws", "status": "completed"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "so", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"role": "user", "content": "and?"},
    ],
}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "done"}
MESSAGES: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "max_tokens": 5_000,
    "system": [{"type": "text", "text": "Be kind."}],
    "thinking": {"type": "enabled", "budget_tokens": 1_024},
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}, USE]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]},
    ],
}

Steps = tuple[str | int, ...]


def with_change(body: dict[str, Any], path: Steps, value: object) -> bytes:
    """*body* with *value* at *path*; None takes an item out of a list, and one behind its end is added."""
    changed: Any = json.loads(json.dumps(body))
    place = changed
    for step in path[:-1]:
        place = place[step]
    match place, path[-1]:
        case list(), int(index):
            place[index : index + 1] = [] if value is None else [value]
        case _, key:
            place[key] = value
    return json.dumps(changed).encode()


FAULTS = (Path(__file__).parent / "answers" / "faults.txt").read_text("utf-8")


def rows(section: str) -> list[tuple[Steps, object, str]]:
    """What is changed in a good request of that *section*, and the fault that is then found."""
    found: list[tuple[Steps, object, str]] = []
    _, _, lines = FAULTS.partition(f"== {section}\n")
    for line in lines.partition("\n\n")[0].splitlines():
        change, _, fault = line.partition(" =>")
        path, _, value = change.partition(" ")
        steps = tuple([int(step) if step.isdigit() else step for step in path.split(".")])
        found.append((steps, json.loads(value), fault.strip()))
    return found


def test_a_good_request_has_no_faults() -> None:
    assert chat_faults(json.dumps(CHAT).encode()) == messages_faults(json.dumps(MESSAGES).encode()) == []
    assert responses_faults(json.dumps(RESPONSES).encode()) == []


@pytest.mark.parametrize(("path", "value", "fault"), rows("chat completions"))
def test_a_fault_of_a_chat_is_found(path: Steps, value: object, fault: str) -> None:
    assert fault in chat_faults(with_change(CHAT, path, value))


@pytest.mark.parametrize(("path", "value", "fault"), rows("responses"))
def test_a_fault_of_responses_is_found(path: Steps, value: object, fault: str) -> None:
    found = responses_faults(with_change(RESPONSES, path, value))
    assert fault in found if fault else found == []


@pytest.mark.parametrize(("path", "value", "fault"), rows("the messages API"))
def test_a_fault_of_messages_is_found(path: Steps, value: object, fault: str) -> None:
    body = with_change(MESSAGES, path, value).replace(b'"cache_control": {', b'"cache_control":{')
    found = messages_faults(body)
    assert fault in found if fault else found == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"model": NaN}'])
def test_a_body_that_is_no_request_has_faults(body: bytes) -> None:
    assert chat_faults(body)
    assert messages_faults(body)
    assert responses_faults(body)
