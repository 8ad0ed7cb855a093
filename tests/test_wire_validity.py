"""What both wires send is what their providers take; and whoever judges that can tell."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.history import SHORT, History, clear_results
from turnwheel.effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Part,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
)
from turnwheel.effects.requests import (
    CallModel,
    Conversation,
    Purpose,
    Transcript,
)
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesWire
from turnwheel.performers.models.openai import ChatWire, ServerQuirks
from turnwheel.performers.models.wire import Wire
from turnwheel.testing.wire_rules import chat_faults, messages_faults

# Histories that a loop can have: every call is answered, and anything may have been said

TEXTS = st.sampled_from(["", " ", "\n", "hi", "grüß 😀", "a\ud83d", '"\\', "\x00"]) | st.text(max_size=5)
CONTENTS = TEXTS | st.sampled_from(["y" * (SHORT + 1), "\n" * (SHORT + 1), "z" * 3_000])
IDS = st.sampled_from(["", "call_0", "call_0", "a b", "x" * 60, "call00001", "toolu_01", "ü"])
NAMES = st.sampled_from(["read", "a.b c", "ü", "n" * 80, "write"])
ARGUMENTS = st.sampled_from(["", "{}", '{"p": "x"}', '{"p":', "[]", "null", '{"a": NaN}', '{"p": "\ud83d"}'])
MEDIA = ["image/png", "image/bmp", "application/pdf", "text/plain", "text/csv; a=b", "audio/wav", "", "a/b"]
FILES = st.lists(
    st.builds(
        Binary,
        media_type=st.sampled_from(MEDIA),
        data=st.sampled_from([b"", b" ", b"\x89PNG", b"\xff"]),
        name=st.sampled_from(["", "a.b"]),
    ),
    max_size=2,
).map(tuple)
THOUGHTS = st.sampled_from(
    [
        Reasoning(text="hm"),
        Reasoning(text="hm", signature="s1"),
        Reasoning(text="", signature="s2"),
        Reasoning(text="", redacted="d1"),
        Reasoning(text=""),
    ]
)
MODELS = st.sampled_from(["", "openai:m", "anthropic:claude-x", "other:m"])


@st.composite
def users(draw: st.DrawFn) -> list[Message]:
    """One or two messages of a user's."""
    return [
        Message(role=Role.USER, parts=(Text(text=draw(TEXTS)), *draw(FILES)))
        for _ in range(draw(st.integers(1, 2)))
    ]


@st.composite
def answers(draw: st.DrawFn, turn: int) -> list[Message]:
    """A model's answer, and where it calls the message with all results."""
    parts: list[Part] = [*draw(st.lists(THOUGHTS, max_size=2))]
    if draw(st.booleans()):
        parts.append(Text(text=draw(TEXTS)))
    calls = [
        ToolCall(id=f"r-{turn}-{n}", wire_id=draw(IDS), name=draw(NAMES), arguments=draw(ARGUMENTS))
        for n in range(draw(st.integers(0, 3)))
    ]
    ended = Finish(reason=StopReason.TOOL_USE if calls else StopReason.END_TURN)
    said = Message(role=Role.ASSISTANT, parts=(*parts, *calls, ended), model=draw(MODELS))
    results = [
        ToolResult(
            call=call.id,
            wire_id=call.wire_id,
            name=call.name,
            content=draw(CONTENTS),
            outcome=draw(st.sampled_from(Outcome)),
            files=draw(FILES),
        )
        for call in calls
    ]
    return [said, Message(role=Role.TOOL, parts=tuple(results))] if results else [said]


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A conversation as it stands when a model is asked: somebody other than the model spoke last."""
    messages = draw(users())
    for turn in range(draw(st.integers(0, 4))):
        messages += draw(answers(turn))
        if messages[-1].role is Role.ASSISTANT or draw(st.booleans()):
            messages += draw(users())
    return [attrs.evolve(message, at=float(number)) for number, message in enumerate(messages)]


SPECS = st.builds(
    ModelSpec,
    name=st.sampled_from(
        ["openai:m", "openai:o3", "anthropic:claude-sonnet-4-5", "anthropic:claude-opus-4-7"]
    ),
    max_output=st.sampled_from([None, 100, 5_000]),
    temperature=st.sampled_from([None, 0.0, 1.0]),
)
TOOLS = (ToolSpec(name="read", description="Reads."), ToolSpec(name="write", schema="{}"))
REQUESTS = st.builds(
    CallModel,
    id=st.just("r-1"),
    model=st.just("replaced"),
    view=st.just(Conversation(revision=0, length=0)),
    system=TEXTS,
    instructions=TEXTS,
    thinking=st.sampled_from([None, 1, 2_000, 50_000]),
    max_output=st.sampled_from([None, 1, 4_000]),
    tools=st.sampled_from([(), ("read",), ("read", "write")]),
)


def scene_of(history: History, spec: ModelSpec) -> PerformContext:
    """A scene over *history*."""
    config = Config(model=spec, tools=TOOLS, stop=("END",))
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


def asked_at(messages: list[Message]) -> list[int]:
    """The lengths at which a model can have been asked, in order."""
    return [at for at in range(1, len(messages) + 1) if messages[at - 1].role is not Role.ASSISTANT]


WIRES = [
    (ChatWire, chat_faults),
    (lambda: ChatWire(ServerQuirks("reasoning_details")), chat_faults),
    (lambda: ChatWire(ServerQuirks("", bridged=True)), chat_faults),
    (MessagesWire, messages_faults),
]


@pytest.mark.parametrize(("make", "faults_of"), WIRES, ids=["chat", "details", "bridged", "messages"])
@given(messages=histories(), request_=REQUESTS, spec=SPECS)
def test_whatever_was_said_is_a_request_that_the_provider_takes(
    make: Any, faults_of: Any, messages: list[Message], request_: CallModel, spec: ModelSpec
) -> None:
    """At every turn of any conversation, and the same whether its beginning was sent before or not."""
    kept: Wire = make()
    history = History.of(*messages)
    for length in asked_at(messages):
        asked = attrs.evolve(request_, model=spec.name, view=Conversation(revision=0, length=length))
        body = kept.encode(asked, scene_of(history, spec)).body
        assert faults_of(body) == []
        fresh: Wire = make()
        assert fresh.encode(asked, scene_of(History.of(*messages[:length]), spec)).body == body


@pytest.mark.parametrize(("make", "faults_of"), WIRES, ids=["chat", "details", "bridged", "messages"])
@given(messages=histories(), request_=REQUESTS, spec=SPECS, data=st.data())
def test_old_results_can_be_left_out_of_whatever_was_said(
    make: Any,
    faults_of: Any,
    messages: list[Message],
    request_: CallModel,
    spec: ModelSpec,
    data: st.DataObject,
) -> None:
    """From any message on, back and forth, at any length: as if the conversation had never had them."""
    kept: Wire = make()
    history = History.of(*messages)
    lengths = st.sampled_from(asked_at(messages))
    for length in data.draw(st.lists(lengths, min_size=1, max_size=6), label="lengths"):
        before = data.draw(st.integers(0, length), label="cleared")
        view = Conversation(revision=0, length=length, cleared=before)
        fork = History(history.log, data.draw(st.sampled_from([length, len(messages)]), label="fork"))
        body = kept.encode(attrs.evolve(request_, model=spec.name, view=view), scene_of(fork, spec)).body
        assert faults_of(body) == []
        shown = [*map(clear_results, messages[:before]), *messages[before:length]]
        plain = attrs.evolve(request_, model=spec.name, view=Conversation(revision=0, length=length))
        assert make().encode(plain, scene_of(History.of(*shown), spec)).body == body


def text_of(body: bytes) -> str:
    """The text that a request for a summary shows."""
    content = json.loads(body)["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


@pytest.mark.parametrize(("make", "faults_of"), WIRES[::3], ids=["chat", "messages"])
@given(messages=histories(), spec=SPECS, limit=st.sampled_from([1, 5, 20, 50, 200, 10_000]))
def test_a_summary_of_whatever_was_said_can_be_asked_for(
    make: Any, faults_of: Any, messages: list[Message], spec: ModelSpec, limit: int
) -> None:
    """Of all of it and of nothing, within any limit, with no tools and its own system prompt."""
    for length in range(len(messages) + 1):
        asked = CallModel(
            id="r-1",
            model=spec.name,
            view=Transcript(revision=0, length=length, limit=limit),
            purpose=Purpose.SUMMARY,
            max_output=100,
            instructions="Summarise.",
        )
        body = make().encode(asked, scene_of(History.of(*messages), spec)).body
        assert faults_of(body) == []
        assert len(text_of(body)) <= 4 * limit


# The judges

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

Path = tuple[str | int, ...]


def with_change(body: dict[str, Any], path: Path, value: object) -> bytes:
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


FAILED = RESULT | {"is_error": True, "content": ""}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVA="}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
CHAT_FAULTS: list[tuple[Path, object, str]] = [
    (("model",), "", "the model is ''"),
    (("stream",), False, "it is not streamed"),
    (("max_completion_tokens",), 5, "both max_tokens and max_completion_tokens"),
    (("tools",), [], "an empty list of tools"),
    (("tools", 1), {"function": {"name": "f"}}, "two tools called 'f'"),
    (("tools", 1), {"function": {"name": "a b"}}, "the tool's name 'a b'"),
    (("messages",), [], "the messages are []"),
    (("messages",), [5], "the messages are [5]"),
    (("messages", 0, "content"), " ", "message 0: its content is ' '"),
    (("messages", 0, "role"), "robot", "message 0: the role is 'robot'"),
    (("messages", 1), {"role": "system", "content": "x"}, "message 1 is the system's and not the first"),
    (("messages", 1, "content"), [], "message 1: its content is an empty list"),
    (("messages", 1, "content"), "", "message 1: its content is ''"),
    (("messages", 1, "content", 0, "text"), "", "message 1: the part {'type': 'text', 'text': ''}"),
    (("messages", 1, "content", 1), IMAGE, f"message 1: the part {IMAGE}"),
    (("messages", 1, "content", 1), {"type": "file"}, "message 1: the part {'type': 'file'}"),
    (("messages", 1, "content", 1), {"type": "input_audio"}, "message 1: the part {'type': 'input_audio'}"),
    (("messages", 1, "content", 1), {"type": "x"}, "message 1: the part {'type': 'x'}"),
    (("messages", 2, "content"), "", "message 2: its content is ''"),
    (("messages", 2, "tool_calls", 0, "id"), "", "the call's id ''"),
    (("messages", 2, "tool_calls", 0, "id"), "c" * 41, f"the call's id '{'c' * 41}'"),
    (("messages", 2, "tool_calls", 1), CALL, "2 calls have the id 'c1'"),
    (("messages", 2, "tool_calls", 0, "type"), "x", "message 2: a call of type 'x'"),
    (("messages", 2, "tool_calls", 0, "function", "name"), "a.b", "message 2: the tool's name 'a.b'"),
    (
        ("messages", 2, "tool_calls", 0, "function", "arguments"),
        "[]",
        "message 2: the arguments '[]' are no JSON object",
    ),
    (("messages", 3), None, "message 3 comes before the results of ['c1']"),
    (("messages", 3, "content"), "", "message 3: its content is ''"),
    (("messages", 3, "tool_call_id"), "c2", "message 3 answers 'c2'; open are ['c1']"),
    (
        ("messages", 4),
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        "message 4 answers 'c1'; open are []",
    ),
    (
        ("messages", 5),
        {"role": "assistant", "content": None, "tool_calls": [CALL | {"id": "c2"}]},
        "the calls ['c2'] have no results",
    ),
]
MESSAGES_FAULTS: list[tuple[Path, object, str]] = [
    (("model",), None, "the model is None"),
    (("max_tokens",), None, "max_tokens is None"),
    (("max_tokens",), 1_024, "1024 tokens of thinking in 1024 of output"),
    (("thinking", "budget_tokens"), 1_023, "1023 tokens of thinking in 5000 of output"),
    (("temperature",), 0.5, "thinking with a temperature of 0.5"),
    (("system",), "", "the system prompt is ''"),
    (("system",), [], "the system prompt is []"),
    (("system", 0, "text"), " ", "the system prompt is [{'type': 'text', 'text': ' '}]"),
    (("tools", 1), {"name": "f"}, "two tools called 'f'"),
    (("messages", 0, "content"), "", "message 0: the block {'type': 'text', 'text': ''}"),
    (("messages", 0, "content"), [], "message 0: its content is []"),
    (("messages", 0, "role"), "assistant", "message 0 is not the user's but 'assistant'"),
    (
        ("messages", 1, "content", 0, "signature"),
        "",
        "message 1: the block {'type': 'thinking', 'thinking': '', 'signature': ''}",
    ),
    (
        ("messages", 1, "content", 0),
        {"type": "redacted_thinking"},
        "message 1: the block {'type': 'redacted_thinking'}",
    ),
    (
        ("messages", 1, "content", 2),
        {"type": "redacted_thinking", "data": "d"},
        "message 1: it ends with thinking",
    ),
    (("messages", 1, "content", 1, "id"), "c.1", "the call's id 'c.1'"),
    (("messages", 1, "content", 1, "input"), "{}", f"message 1: the block {USE | {'input': '{}'}}"),
    (("messages", 1, "content", 1, "name"), "", f"message 1: the block {USE | {'name': ''}}"),
    (("messages", 1, "content", 2), USE, "2 calls have the id 'c1'"),
    (("messages", 1, "content", 0), None, "thinking, and the last calls come without any"),
    (("messages", 2), None, "the calls ['c1'] have no results"),
    (("messages", 2, "content", 0), FAILED, f"message 2: the block {FAILED}"),
    (
        ("messages", 2, "content", 0),
        FAILED | {"content": [PICTURE]},
        f"message 2: the block {FAILED | {'content': [PICTURE]}}",
    ),
    (("messages", 2, "content", 0, "content"), [PICTURE], ""),
    (("messages", 2, "content", 0, "tool_use_id"), "c2", "message 2 has the results ['c2'], due are ['c1']"),
    (("messages", 2, "content", 1), None, ""),
    (("messages", 2, "content", 2), RESULT, "message 2 has something before its results"),
    (("messages", 2, "content", 0, "content"), " ", f"message 2: the block {RESULT | {'content': ' '}}"),
    (("messages", 2, "content", 0, "content"), [], f"message 2: the block {RESULT | {'content': []}}"),
    (("messages", 2, "content", 2), {"type": "image"}, "message 2: the block {'type': 'image'}"),
    (("messages", 2, "content", 2), {"type": "thinking"}, "message 2: the block {'type': 'thinking'}"),
    (("messages", 3), {"role": "assistant", "content": "no"}, "the last message is the assistant's"),
    (("a",), [{"cache_control": {"type": "ephemeral"}}] * 5, "5 cache markers"),
]


def test_a_good_request_has_no_faults() -> None:
    """Neither of the two that are spoiled below."""
    assert chat_faults(json.dumps(CHAT).encode()) == messages_faults(json.dumps(MESSAGES).encode()) == []


@pytest.mark.parametrize(("path", "value", "fault"), CHAT_FAULTS)
def test_a_fault_of_a_chat_is_told(path: Path, value: object, fault: str) -> None:
    """A good request with one change has the fault that the server would find."""
    assert fault in chat_faults(with_change(CHAT, path, value))


@pytest.mark.parametrize(("path", "value", "fault"), MESSAGES_FAULTS)
def test_a_fault_of_messages_is_told(path: Path, value: object, fault: str) -> None:
    """A good request with one change has the fault that the server would find."""
    found = messages_faults(
        with_change(MESSAGES, path, value).replace(b'"cache_control": {', b'"cache_control":{')
    )
    assert fault in found if fault else found == []


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'{"model": NaN}'])
def test_a_body_that_is_no_request_has_faults(body: bytes) -> None:
    """Whatever it is, it is not taken for one."""
    assert chat_faults(body)
    assert messages_faults(body)
