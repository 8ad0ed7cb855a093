"""Request bodies of all dialects: they say all that was asked, and nothing that the API refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from turnwheel.effects.config import Config, ModelSpec, ToolKind, ToolSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.history import History
from turnwheel.effects.messages import (
    Binary,
    Citation,
    Finish,
    Message,
    Outcome,
    Part,
    ProviderCall,
    Reasoning,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.requests import CallModel, Conversation, Purpose, Transcript
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesWire
from turnwheel.performers.models.openai import ChatWire
from turnwheel.performers.models.providers import PROVIDERS, ServerQuirks
from turnwheel.performers.models.responses import ResponsesWire
from turnwheel.performers.models.wire import Wire
from turnwheel.testing.wire_rules import messages_faults, responses_faults

CHAT, CLAUDE = "openai:m", "anthropic:claude-sonnet-4-5"
GPT = "openai-responses:m"
ASKED = {"openai": CHAT, "anthropic": CLAUDE, "openai-responses": GPT}
each_dialect = pytest.mark.parametrize("dialect", ASKED)
PROPERTIES = {"type": "object", "properties": {"p": {"type": "string"}}}
READ = ToolSpec(name="read", description='Read a "file"', schema=json.dumps(PROPERTIES))
WRITE = ToolSpec(name="write", schema='{"properties":{}}')
VIEW = Conversation(revision=0, length=1)
MARK = {"cache_control": {"type": "ephemeral"}}


def nothing(_: bytes) -> list[str]:
    """No faults: some tests send a chat what a loop never makes."""
    return []


ENDPOINTS: dict[type, tuple[str, Callable[[bytes], list[str]]]] = {
    ChatWire: ("/chat/completions", nothing),
    MessagesWire: ("/messages", messages_faults),
    ResponsesWire: ("/responses", responses_faults),
}


def asking(model: str, **fields: Any) -> CallModel:
    return attrs.evolve(CallModel(id="r-1", model=model, view=VIEW), **fields)


def scene_of(history: History, name: str, **settings: Any) -> PerformContext:
    config = Config(model=ModelSpec(name=name, max_output=None), tools=(READ, WRITE))
    config = attrs.evolve(config, **settings)
    clock = SystemClock()
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=clock, emit=lambda _: None
    )


def sent(wire: Wire, messages: tuple[Message, ...], asked: CallModel, **config: Any) -> dict[str, Any]:
    """The body of *asked* about *messages*, or about what it views of them."""
    if isinstance(asked.view, Conversation):
        asked = attrs.evolve(asked, view=Conversation(revision=0, length=len(messages)))
    post = wire.encode(asked, scene_of(History.of(*messages), asked.model, **config))
    path, faults_of = ENDPOINTS[type(wire)]
    assert post.path == path
    assert faults_of(post.body) == []
    body: dict[str, Any] = json.loads(post.body)
    return body


def chat(
    *messages: Message,
    wire: Wire | None = None,
    model: str = CHAT,
    config: dict[str, Any] | None = None,
    **asked: Any,
) -> dict[str, Any]:
    return sent(wire or ChatWire(), messages, asking(model, **asked), **{"tools": (), **(config or {})})


def claude(
    *messages: Message, model: str = CLAUDE, config: dict[str, Any] | None = None, **asked: Any
) -> dict[str, Any]:
    asked = {"tools": ("read", "write")} | asked
    return sent(MessagesWire(), messages, asking(model, **asked), **(config or {}))


def gpt(
    *messages: Message, model: str = GPT, config: dict[str, Any] | None = None, **asked: Any
) -> dict[str, Any]:
    return sent(ResponsesWire(), messages, asking(model, **asked), **{"tools": (), **(config or {})})


def body_for(dialect: str, *messages: Message, **asked: Any) -> dict[str, Any]:
    ask = {"openai": chat, "anthropic": claude, "openai-responses": gpt}[dialect]
    return ask(*messages, **asked)


def assistant(*parts: Part | str, model: str = CLAUDE, at: float = 0.0) -> Message:
    said = [Text(text=part) if isinstance(part, str) else part for part in parts]
    end = Finish(reason=StopReason.END_TURN)
    return Message(role=Role.ASSISTANT, parts=(*said, end), model=model, at=at)


def call(number: int, wire_id: str, arguments: str = '{"p": "x"}', name: str = "read") -> ToolCall:
    return ToolCall(id=f"r-{number}", wire_id=wire_id, name=name, arguments=arguments)


def result(
    of: ToolCall, content: str = "got it", outcome: Outcome = Outcome.OK, *files: Binary
) -> ToolResult:
    said: dict[str, Any] = {"content": content, "outcome": outcome, "files": files}
    return ToolResult(call=of.id, wire_id=of.wire_id, name=of.name, **said)


def results(*parts: ToolResult | ToolCall) -> Message:
    made = [result(part) if isinstance(part, ToolCall) else part for part in parts]
    return Message(role=Role.TOOL, parts=tuple(made))


HI, OK, GO = user("hi"), assistant("ok"), user("go")
SIGNED, HIDDEN = Reasoning(text="hm", signature="s1"), Reasoning(text="", redacted="r1")
UNSIGNED, UNSEEN = Reasoning(text="so"), Reasoning(text="", signature="s2")
CALL, AGAIN = call(1, "wa"), call(2, "wb")
PNG = Binary(media_type="image/png", data=b"\x89P", name="a.png")
PDF = Binary(media_type="application/pdf", data=b"%", name="a.pdf")
EMPTY_PNG = Binary(media_type="image/png", data=b"")

# What a body says

EVERYTHING = json.loads((Path(__file__).parent / "answers" / "bodies.json").read_text("utf-8"))
"""In each dialect, the body of a request that asks for all there is to ask for."""
LEFT_OUT = {
    "openai": {"tools", "max_tokens", "temperature", "stop"},
    "anthropic": {"system", "tools", "temperature", "stop_sequences"},
    "openai-responses": {"instructions", "tools", "max_output_tokens", "temperature"},
}


@each_dialect
def test_a_body_says_what_was_asked_and_nothing_else(dialect: str) -> None:
    spec = ModelSpec(name=ASKED[dialect], max_output=100, temperature=0.5)
    config = {"model": spec, "stop": ("END",), "tools": (READ, WRITE)}
    said = body_for(dialect, HI, config=config, tools=("read",), system="Be kind.", instructions="Now.")
    assert said == EVERYTHING[dialect]

    bare = body_for(dialect, HI, tools=(), instructions=" ")
    expected = {key: value for key, value in said.items() if key not in LEFT_OUT[dialect]}
    if dialect == "openai":
        expected["messages"] = expected["messages"][1:]
    elif dialect == "anthropic":
        expected["max_tokens"] = 16_384  # the API must have one
    assert bare == expected


@pytest.mark.parametrize(
    ("system", "instructions", "expected"),
    [
        ("Be kind.", "", "Be kind."),
        ("", "Now.", "Now."),
        ("Be kind.", " ", "Be kind."),
        ("Be kind.\n", "Now.", "Be kind.\n\n\nNow."),
    ],
)
def test_a_system_prompt_begins_the_same_every_time(system: str, instructions: str, expected: str) -> None:
    # It is one message, since many models take one only, and what changes stands behind what does not.
    body = chat(HI, system=system, instructions=instructions)
    assert body["messages"] == [{"role": "system", "content": expected}, {"role": "user", "content": "hi"}]
    assert claude(HI, instructions="Now.")["system"] == [{"type": "text", "text": "Now."}]  # not cached


def test_a_schema_gets_its_type_where_it_has_none() -> None:
    read, write = claude(HI)["tools"]
    assert read["input_schema"] == PROPERTIES
    assert write == {"name": "write", "input_schema": {"type": "object", "properties": {}}, **MARK}


@pytest.mark.parametrize(
    ("name", "prefix", "wire"),
    [
        ("openai:gpt-5", "openai", "gpt-5"),
        ("qwen3:8b", "openai", "qwen3:8b"),
        ("openai:qwen3:8b", "openai", "qwen3:8b"),
        ("m", "openai", "m"),
        ("local:qwen3:8b", "local", "qwen3:8b"),
        ("openai:m", "local", "openai:m"),
        ("anthropic:claude-x", None, "claude-x"),
        ("claude-x", None, "claude-x"),
        ("openai:m", None, "openai:m"),
        ("m:1", None, "m:1"),
    ],
)
def test_only_the_wire_is_cut_off_a_models_name(name: str, prefix: str | None, wire: str) -> None:
    body = chat(HI, model=name, wire=ChatWire(prefix=prefix)) if prefix else claude(HI, model=name)
    assert body["model"] == wire


@each_dialect
def test_a_model_that_a_run_was_switched_to_is_asked_its_own_way(dialect: str) -> None:
    first, second = (f"{dialect}:{name}" for name in ("m", "n"))
    config = {
        "model": ModelSpec(name=first, max_output=100, temperature=0.5),
        "models": (ModelSpec(name=second, max_output=7, temperature=0.1),),
    }
    for name, expected in ((second, (7, 0.1)), (f"{dialect}:unknown", (100, 0.5))):
        body = body_for(dialect, HI, model=name, config=config)
        limit = body["max_output_tokens" if dialect == "openai-responses" else "max_tokens"]
        assert (limit, body["temperature"]) == expected
    if dialect == "openai":
        more = {**config, "models": (ModelSpec(name="openai:o3", max_output=7),)}
        assert chat(HI, model="openai:o3", config=more)["max_completion_tokens"] == 7


@pytest.mark.parametrize(
    ("model", "configured", "wanted", "key", "expected"),
    [
        ("openai:m", 100, None, "max_tokens", 100),
        ("openai:m", 100, 7, "max_tokens", 7),
        ("openai:m", None, 7, "max_tokens", 7),
        ("openai:gpt-5", 100, 7, "max_completion_tokens", 7),
        ("openai-responses:gpt-5", 100, None, "max_output_tokens", 100),
        ("openai-responses:gpt-5", 100, 7, "max_output_tokens", 7),
        ("anthropic:claude-x", 100, None, "max_tokens", 100),
        ("anthropic:claude-x", 100, 7, "max_tokens", 7),
        ("anthropic:claude-x", None, 7, "max_tokens", 7),
    ],
)
def test_a_request_may_ask_for_less_than_is_configured(
    model: str, configured: int | None, wanted: int | None, key: str, expected: int
) -> None:
    spec = {"model": ModelSpec(name=model, max_output=configured)}
    body = body_for(model.partition(":")[0], HI, model=model, max_output=wanted, config=spec)
    assert body[key] == expected


# Thinking


REASONING = ["openai:gpt-5-mini", "openai:o3", "o4-mini", "openai:openai/o1", "openai:ft:o4-mini:org::id"]
PLAIN_MODELS = ["openai:gpt-4.1", "openai:gpt-5-chat-latest", "openai:qwen3:8b", "openai:gpt-oss:20b"]
EFFORTS = [(1, "low"), (4_096, "low"), (4_097, "medium"), (16_384, "medium"), (16_385, "high")]


@pytest.mark.parametrize("name", REASONING + PLAIN_MODELS)
def test_a_model_is_told_how_much_to_think_where_it_takes_that(name: str) -> None:
    # A reasoning model takes another name for the limit, no temperature, and a word in place of tokens.
    spec = {"model": ModelSpec(name=name, max_output=9, temperature=1.0)}
    reasons = name in REASONING
    limits = {"max_completion_tokens": 9} if reasons else {"max_tokens": 9, "temperature": 1.0}
    for tokens, effort in [(None, None), *EFFORTS]:
        body = chat(HI, model=name, config=spec, thinking=tokens)
        expected = limits | ({"reasoning_effort": effort} if reasons and effort else {})
        about = ("max_tokens", "max_completion_tokens", "temperature", "reasoning_effort")
        assert {key: body[key] for key in about if key in body} == expected


def tokens_of(budget: int, limit: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": limit}


def effort_of(effort: str, limit: int) -> dict[str, Any]:
    thinking = {"type": "adaptive", "display": "summarized"}
    return {"thinking": thinking, "output_config": {"effort": effort}, "max_tokens": limit}


@pytest.mark.parametrize(
    ("name", "tokens", "limit", "expected"),
    [
        ("claude-sonnet-4-5", 2_000, 4_000, tokens_of(2_000, 4_000)),
        ("claude-sonnet-4-5", 2_000, 2_000, tokens_of(2_000, 4_000)),
        ("claude-sonnet-4-20250514", 1, 500, tokens_of(1_024, 1_524)),
        ("claude-3-7-sonnet-latest", 9_000, None, tokens_of(9_000, 16_384)),
        ("eu/claude-opus-4.6", 2_000, 4_000, tokens_of(2_000, 4_000)),
        ("smart", 2_000, 4_000, tokens_of(2_000, 4_000)),
        ("claude-opus-4-7", 4_096, 9_000, effort_of("low", 9_000)),
        ("claude-sonnet-5", 9_000, 9_000, effort_of("medium", 18_000)),
        ("claude-fable-5-1", 20_000, 64_000, effort_of("high", 64_000)),
    ],
)
def test_thinking_is_asked_for_as_the_model_takes_it(
    name: str, tokens: int, limit: int | None, expected: dict[str, Any]
) -> None:
    # By tokens, within those of the output, or by a word; and without a temperature.
    spec = {"model": ModelSpec(name=f"anthropic:{name}", max_output=limit, temperature=0.5)}
    body = claude(HI, model=f"anthropic:{name}", config=spec, thinking=tokens, tools=())
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi", **MARK}]}]
    body.pop("metadata")
    assert body == {"model": name, "stream": True, "messages": messages} | expected


def test_a_temperature_is_sent_where_it_is_taken() -> None:
    for name, expected in (("claude-opus-4-6", 0.5), ("claude-opus-4-8", None)):
        spec = {"model": ModelSpec(name=name, temperature=0.5)}
        assert claude(HI, model=name, config=spec).get("temperature") == expected


THOUGHTFUL = assistant(SIGNED, CALL)


@pytest.mark.parametrize(
    ("messages", "may_think"),
    [
        ([HI, OK, HI], True),
        ([HI, THOUGHTFUL, results(CALL)], True),
        ([HI, assistant(HIDDEN, CALL), results(CALL)], True),
        ([HI, THOUGHTFUL, results(CALL), assistant(AGAIN), results(AGAIN)], True),
        ([HI, THOUGHTFUL, results(CALL), GO, assistant(AGAIN), results(AGAIN)], True),
        ([HI, assistant(CALL), results(CALL)], False),
        ([HI, assistant(CALL), results(CALL), GO], False),
        ([HI, assistant(CALL), results(CALL), assistant(SIGNED, AGAIN), results(AGAIN)], False),
        ([HI, assistant("ok", SIGNED, CALL), results(CALL)], False),
        ([HI, assistant(UNSIGNED, CALL), results(CALL)], False),
        ([HI, assistant(SIGNED, CALL, model=CHAT), results(CALL)], False),
        ([HI, assistant(CALL), results(CALL), OK, HI], True),
        ([HI, assistant(CALL), results(CALL), OK], True),
        ([HI, assistant(CALL), results(CALL), OK, assistant(SIGNED, AGAIN), results(AGAIN)], True),
        ([OK], True),
    ],
)
def test_a_turn_that_began_without_thinking_goes_on_without(
    messages: list[Message],
    may_think: bool,  # noqa: FBT001  # a row of the table
) -> None:
    """Older models refuse to begin in the middle of a turn with tools; newer ones do not mind."""
    assert ("thinking" in claude(*messages, thinking=2_000)) is may_think
    assert "thinking" in claude(*messages, thinking=2_000, model="anthropic:claude-opus-4-8")


PROVEN = {"type": "thinking", "thinking": "hm", "signature": "s1"}
DETAIL = "reasoning.text"


@pytest.mark.parametrize(
    ("field", "parts", "expected"),
    [
        ("reasoning_content", (SIGNED,), {"thinking_blocks": [PROVEN]}),
        ("reasoning_content", (UNSIGNED,), {}),
        ("reasoning_content", (UNSIGNED, CALL), {"reasoning_content": "so"}),
        ("reasoning", (UNSIGNED, UNSIGNED, CALL), {"reasoning": "soso"}),
        (
            "reasoning_details",
            (SIGNED,),
            {"reasoning_details": [{"type": DETAIL, "text": "hm", "signature": "s1"}]},
        ),
        ("reasoning_details", (UNSIGNED, CALL), {"reasoning_details": [{"type": DETAIL, "text": "so"}]}),
        (
            "reasoning_content",
            (HIDDEN, UNSIGNED, SIGNED, CALL),
            {"thinking_blocks": [{"type": "redacted_thinking", "data": "r1"}, PROVEN]},
        ),
        (
            "reasoning_details",
            (Reasoning(text="", signature="s2"), CALL),
            {"reasoning_details": [{"type": DETAIL, "text": "", "signature": "s2"}]},
        ),
        ("reasoning_details", (HIDDEN, CALL), {}),
        ("reasoning", (SIGNED, HIDDEN), {}),
        ("reasoning", (SIGNED, HIDDEN, CALL), {"reasoning": "hm"}),
        ("", (SIGNED, UNSIGNED, HIDDEN, CALL), {}),
    ],
)
def test_thinking_goes_back_where_it_may(
    field: str, parts: tuple[Part, ...], expected: dict[str, Any]
) -> None:
    # Signed and redacted thinking where it can be proven, other with calls, each under its server's name.
    message = chat(assistant(*parts, "so"), wire=ChatWire(ServerQuirks(field)))["messages"][0]
    assert {key: message[key] for key in message.keys() - {"role", "content", "tool_calls"}} == expected


SIGNED_CALL = {"extra_content": {"google": {"thought_signature": "s1"}}}
DETAILS = [{"type": "reasoning.encrypted", "data": "e1", "id": wire_id} for wire_id in ("tool_0", "x")]
OPAQUE = assistant(
    Reasoning(text="", opaque=json.dumps({"reasoning_details": DETAILS})),
    call(2, "call_2__thought__a+/="),
    attrs.evolve(call(3, "tool_0"), opaque=json.dumps(SIGNED_CALL)),
    model=CHAT,
)


def test_what_is_opaque_goes_back_to_the_model_that_made_it_and_to_no_other() -> None:
    wire, earlier = ChatWire(), call(1, "tool_0")
    history = History.of(HI, assistant(earlier), results(earlier), OPAQUE, results(*OPAQUE.calls))
    for model in (CHAT, "openai:n", CHAT):
        asked = asking(model, view=Conversation(revision=0, length=5))
        *_, said, first, second = json.loads(wire.encode(asked, scene_of(history, model)).body)["messages"]
        ids = [call.pop("id") for call in said["tool_calls"]]
        assert ids == [first["tool_call_id"], second["tool_call_id"]]
        if model == CHAT:  # a detail of a call has the id that the call has now
            assert ids == ["call_2__thought__a+/=", "call00002"]
            assert said.pop("reasoning_details") == [DETAILS[0] | {"id": "call00002"}, DETAILS[1]]
            assert said["tool_calls"][1].pop("extra_content") == SIGNED_CALL["extra_content"]
        assert said.keys() == {"role", "content", "tool_calls"}
        assert [call.keys() for call in said["tool_calls"]] == [{"type", "function"}] * 2
        assert "__thought__" not in ids[0] or model == CHAT


# Conversations, as the messages API takes them


def block_in_words(block: dict[str, Any]) -> str:
    block.pop("cache_control", None)
    match block:
        case {"type": "text", "text": text, **rest}:
            said = text
        case {"type": "thinking", "thinking": text, "signature": signature, **rest}:
            said = f"<{text}|{signature}>"
        case {"type": "redacted_thinking", "data": data, **rest}:
            said = f"<hidden {data}>"
        case {"type": "tool_use", "id": wire_id, "name": name, "input": arguments, **rest}:
            said = f"{name}#{wire_id}{json.dumps(arguments)}"
        case {"type": "tool_result", "tool_use_id": wire_id, **rest}:
            failed, content = rest.pop("is_error", False), rest.pop("content", [])
            said = f"[{wire_id}{' failed' * failed}: {' + '.join(map(block_in_words, content))}]"
        case {"type": kind, "source": {"type": how, "media_type": media, "data": data}, **rest}:
            said = " ".join([kind, how, media, data, rest.pop("title", "")]).rstrip()
        case _:
            raise AssertionError(block)
    assert rest == {}
    return str(said)


def in_words(body: dict[str, Any]) -> list[str]:
    roles = {"user": "U", "assistant": "M"}
    return [
        f"{roles[message['role']]} {' + '.join(map(block_in_words, message['content']))}"
        for message in body["messages"]
    ]


FILES = (
    PNG,
    PDF,
    Binary(media_type="text/csv; charset=utf-8", data="ä,b".encode()),
    Binary(media_type="Image/SVG+xml", data=b"<svg>", name="a.svg"),
    EMPTY_PNG,
    Binary(media_type="text/plain", data=b" ", name="b.txt"),
)
USED = 'read#wa{"p": "x"}'
ODD = "openai:gpt-5"
CONVERSATIONS: dict[str, tuple[list[Message], list[str]]] = {
    "turns": ([HI, OK, GO], ["U hi", "M ok", "U go"]),
    "several of a user's": ([HI, GO, OK, HI], ["U hi + go", "M ok", "U hi"]),
    "the system's": ([Message(role=Role.SYSTEM, parts=(Text(text="be kind"),)), HI], ["U be kind + hi"]),
    "no text": ([HI, assistant(" \n"), user(""), OK, user(" "), GO], ["U hi", "M ok", "U go"]),
    "an assistant's at the beginning": ([OK, HI], ["U Begin.", "M ok", "U hi"]),
    "nothing": ([user(" ")], ["U Begin."]),
    "an answer to nothing": ([user(" "), OK, HI], ["U Begin.", "M ok", "U hi"]),
    "an assistant's at the end": ([HI, assistant("ok ")], ["U hi", "M ok ", "U Continue."]),
    "two assistant's": ([HI, OK, assistant("so"), HI], ["U hi", "M ok", "U Continue.", "M so", "U hi"]),
    "calls": (
        [HI, assistant("ok ", CALL, call(2, "wb", "{}")), results(CALL, AGAIN), OK, HI],
        ["U hi", f"M ok  + {USED} + read#wb{{}}", "U [wa: got it] + [wb: got it]", "M ok", "U hi"],
    ),
    "text behind results": (
        [HI, assistant(CALL), results(CALL), GO],
        ["U hi", f"M {USED}", "U [wa: got it] + go"],
    ),
    "errors": (
        [
            HI,
            assistant(CALL),
            results(result(CALL, "oops", Outcome.CRASHED, PNG)),
            assistant(AGAIN),
            results(result(AGAIN, "", Outcome.DENIED)),
        ],
        [
            "U hi",
            f"M {USED}",
            "U [wa failed: oops + [attachment a.png]]",
            'M read#wb{"p": "x"}',
            "U [wb failed: denied]",
        ],
    ),
    "files of a result": (
        [HI, assistant(CALL), results(result(CALL, "a picture", Outcome.OK, PNG))],
        ["U hi", f"M {USED}", "U [wa: a picture + image base64 image/png iVA=]"],
    ),
    "an empty result": ([HI, assistant(CALL), results(result(CALL, ""))], ["U hi", f"M {USED}", "U [wa: ]"]),
    "attachments": (
        [user("see", files=FILES)],
        [
            (
                "U see + image base64 image/png iVA= + document base64 application/pdf JQ== a.pdf"
                " + document text text/plain ä,b + [attachment a.svg]"
                " + [attachment image/png, which is empty] + [attachment b.txt]"
            )
        ],
    ),
    "an assistant's attachment": (
        [HI, assistant("here:", PNG), HI],
        ["U hi", "M here: + [attachment a.png]", "U hi"],
    ),
    "thinking": (
        [HI, assistant(SIGNED, HIDDEN, UNSEEN, "ok", CALL), results(CALL)],
        ["U hi", f"M <hm|s1> + <hidden r1> + <|s2> + ok + {USED}", "U [wa: got it]"],
    ),
    "thinking between": (
        [HI, assistant(SIGNED, "ok", UNSEEN, CALL), results(CALL)],
        ["U hi", f"M <hm|s1> + ok + <|s2> + {USED}", "U [wa: got it]"],
    ),
    "thinking without a proof": ([HI, assistant(UNSIGNED, "ok"), HI], ["U hi", "M ok", "U hi"]),
    "thinking at the end": ([HI, assistant("ok", SIGNED, HIDDEN), HI], ["U hi", "M ok", "U hi"]),
    "nothing but thinking": ([HI, assistant(SIGNED), user("so?")], ["U hi + so?"]),
    "thinking of another wire": (
        [HI, assistant(SIGNED, "ok", model=ODD), HI, assistant(SIGNED, "ok", model="claude-x"), HI],
        ["U hi", "M ok", "U hi", "M <hm|s1> + ok", "U hi"],
    ),
    "thinking from before a compaction": (
        [
            user("Summary", at=9.0),
            assistant(SIGNED, "ok", at=5.0),
            user("so", at=10.0),
            assistant(SIGNED, "ok", at=11.0),
            HI,
        ],
        ["U Summary", "M ok", "U so", "M <hm|s1> + ok", "U hi"],
    ),
    "thinking from before a compaction, of which two are kept": (
        [
            user("Summary", at=9.0),
            assistant(SIGNED, "ok", at=5.0),
            user("go on", at=6.0),
            assistant(SIGNED, "ok", at=7.0),
            HI,
        ],
        ["U Summary", "M ok", "U go on", "M ok", "U hi"],
    ),
    "half a surrogate pair": ([user("a\ud83d")], ["U a?"]),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_encoded_for_the_messages_api(name: str) -> None:
    # User and model take turns, results stand first, and nothing goes back that the API refuses.
    messages, expected = CONVERSATIONS[name]
    assert in_words(claude(*messages)) == expected
    # At each length it is the same, whether it was reached step by step or at once: so it can be cached.
    wire, history = MessagesWire(), History.of(*messages)
    for length in range(1, len(messages) + 1):
        asked = asking(CLAUDE, view=Conversation(revision=0, length=length))
        scene = scene_of(history, CLAUDE)
        assert wire.encode(asked, scene) == MessagesWire().encode(asked, scene)


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([HI], [(0, -1)]),
        ([HI, user("there")], [(0, -1)]),
        ([HI, OK, HI], [(0, -1), (2, -1)]),
        ([HI, OK, HI, OK, HI], [(2, -1), (4, -1)]),
        ([HI, assistant(CALL), results(CALL)], [(0, -1), (2, -1)]),
        ([HI, assistant(CALL), results(CALL), GO], [(0, -1), (2, -1)]),
        ([HI, OK, user("see", files=(PNG,))], [(0, -1), (2, -1)]),
        ([HI, OK], [(0, -1), (1, -1)]),
        ([OK], [(0, -1), (1, -1)]),
    ],
)
def test_a_conversation_is_cached_up_to_its_end_and_its_last_end(
    messages: list[Message], expected: list[tuple[int, int]]
) -> None:
    # So a request finds what the one before it stored, and stores for the next.
    marks = [
        (number, index - len(message["content"]))
        for number, message in enumerate(claude(*messages)["messages"])
        for index, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marks == expected


def test_calls_are_declared_where_no_tools_are_offered() -> None:
    """The API refuses a conversation with calls and no tools; none of them can be called now."""
    body = claude(HI, assistant(CALL), results(CALL), tools=())
    assert body["tools"] == [{"name": "read", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}


def test_tools_that_are_all_withdrawn_are_named_to_a_chat_and_may_not_be_called() -> None:
    # Some proxies refuse calls in a conversation where there are no tools; a summary has none.
    config = {"tools": (READ,)}
    body = chat(GO, config=config)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["read"], "none")
    assert "tool_choice" not in chat(GO, config=config, tools=("read",))
    view = Transcript(revision=0, length=1, limit=1_000)
    assert "tools" not in chat(GO, config=config, view=view, purpose=Purpose.SUMMARY)


# Conversations, as chat completions take them


def test_calls_and_results_are_messages_of_their_own_in_a_chat() -> None:
    call_of = {"type": "function", "function": {"name": "read", "arguments": '{"p": "x"}'}}
    no_json = {"type": "function", "function": {"name": "read", "arguments": "{}"}}
    odd = call(2, "wb", "not json")
    body = chat(HI, assistant("ok", CALL, odd), results(CALL, odd), assistant())
    assert body["messages"][1:] == [
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "wa", **call_of}, {"id": "wb", **no_json}],
        },
        {"role": "tool", "tool_call_id": "wa", "content": "got it"},
        {"role": "tool", "tool_call_id": "wb", "content": "got it"},
    ]


def test_a_message_that_says_nothing_is_not_sent_empty() -> None:
    """Providers refuse one: the model's is left out, a user's and a tool's say that there is nothing."""
    silent = results(result(CALL, "\n"))
    body = chat(user(""), assistant(SIGNED, " "), assistant(" ", CALL), silent, assistant(), user("a\ud83d"))
    assert [(message["role"], message["content"]) for message in body["messages"]] == [
        ("user", "(nothing)"),
        ("assistant", None),
        ("tool", "(nothing)"),
        ("user", "a?"),
    ]


@pytest.mark.parametrize(("server", "bridged"), [("groq", False), ("mistral", True)])
def test_a_word_of_the_models_stands_between_a_tool_and_a_user_where_it_must(
    server: str, *, bridged: bool
) -> None:
    # Mistral's servers refuse the two side by side; others need nothing.
    wire = ChatWire(PROVIDERS[server].quirks)
    sent = chat(HI, assistant(CALL), results(CALL), user("and?"), user("well?"), wire=wire)["messages"]
    between = ["assistant"] * bridged
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", *between, "user", "user"]


def file_part(name: str, data: str) -> dict[str, Any]:
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{data}"}}


def sound(form: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": "Ug==", "format": form}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVA="}}


@pytest.mark.parametrize(
    ("media_type", "data", "name", "part"),
    [
        ("image/png", b"\x89P", "", PICTURE),
        ("application/pdf", b"%", "a.pdf", file_part("a.pdf", "application/pdf;base64,JQ==")),
        ("", b"%", "", file_part("attachment", "application/octet-stream;base64,JQ==")),
        ("Audio/WAV; codecs=1", b"R", "", sound("wav")),
        ("audio/mpeg", b"R", "", sound("mp3")),
        ("audio/ogg", b"R", "a.ogg", file_part("a.ogg", "audio/ogg;base64,Ug==")),
        ("text/csv", "a,ü\n".encode(), "a.csv", said("a.csv:\na,ü\n")),
        ("text/plain", b"\xff", "", said("text/plain:\n\ufffd")),
        ("image/png", b"", "a.png", said("[attachment a.png, which is empty]")),
    ],
)
def test_a_user_may_attach_files(media_type: str, data: bytes, name: str, part: dict[str, Any]) -> None:
    file = Binary(media_type=media_type, data=data, name=name)
    message = Message(role=Role.USER, parts=(Text(text="see"), file, Text(text=" ")))
    assert chat(message)["messages"] == [{"role": "user", "content": [said("see"), part]}]


def test_an_attachment_of_a_models_is_named_only() -> None:
    sent = chat(assistant("here: ", PDF), GO)["messages"]
    assert sent[0] == {"role": "assistant", "content": "here: [attachment a.pdf]"}


def test_the_files_of_results_follow_all_results_of_the_batch() -> None:
    # A tool's message holds text only, and nothing may stand between two: a user brings the files.
    last = call(3, "wc")
    batch = results(
        result(CALL, "1", Outcome.OK, PNG, PNG), result(AGAIN), result(last, "3", Outcome.OK, PNG)
    )
    sent = chat(assistant(CALL, AGAIN, last), batch, GO)["messages"]
    assert [message["role"] for message in sent] == ["assistant", "tool", "tool", "tool", "user", "user"]
    label = said("Files of read:")
    assert sent[4]["content"] == [label, PICTURE, PICTURE, label, PICTURE]


# Conversations, as Responses take them


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


def items_of(*messages: Message, model: str = GPT) -> list[dict[str, Any]]:
    """The items that *model* is sent of *messages*; they all came from `GPT`."""
    own = [attrs.evolve(message, model=GPT) if message.model else message for message in messages]
    items: list[dict[str, Any]] = gpt(*own, model=model)["input"]
    return items


def kept(kind: str, at: int, **fields: Any) -> Reasoning:
    """What the parser keeps of an item."""
    return Reasoning(text="", opaque=json.dumps({"type": kind, **fields, "output_index": at}))


ENCRYPTED = part("reasoning", id="rs", summary=[], encrypted_content="e")
OWN_CALL = attrs.evolve(CALL, opaque='{"type": "function_call", "id": "fc", "output_index": 2}')
USED_ITEM = part("function_call", call_id="wa", name="read", arguments='{"p": "x"}')
OUTPUT = part("function_call_output", call_id="wa", output="got it")
COMMENT = {"id": "m1", "status": "completed", "phase": "commentary"}


def comment(text: str) -> dict[str, Any]:
    content = [part("output_text", text=text, annotations=[])]
    return {"role": "assistant", "content": content, "type": "message", **COMMENT}


def test_an_answer_goes_back_as_the_items_that_it_was() -> None:
    thought, note = (
        kept("reasoning", 0, **{k: v for k, v in ENCRYPTED.items() if k != "type"}),
        Text(text="I look."),
    )
    mark = kept("message", 1, **COMMENT)
    in_order = assistant(Reasoning(text="hm"), thought, note, mark, OWN_CALL)
    # A proxy may interleave items, and bring the encrypted reasoning last.
    interleaved = assistant(Reasoning(text="hm"), note, OWN_CALL, mark, thought)
    expected = [ENCRYPTED, comment("I look."), USED_ITEM | {"id": "fc"}]
    for answer in (in_order, interleaved):
        assert items_of(HI, answer, results(CALL))[1:] == [*expected, OUTPUT]


def test_another_model_is_sent_what_was_said_and_nothing_that_is_encrypted() -> None:
    answer = assistant(kept("reasoning", 0, id="rs"), "I look.", kept("message", 1, **COMMENT), OWN_CALL)
    for model in ("openai-responses:n", "openai:m"):
        items = items_of(HI, answer, results(CALL), model=model)
        assert items[1:] == [{"role": "assistant", "content": "I look."}, USED_ITEM, OUTPUT]
    # And no other wire is, in either direction.
    own = attrs.evolve(answer, model=GPT)
    spoken = chat(HI, own, results(CALL))["messages"][1]
    assert spoken.keys() == {"role", "content", "tool_calls"}
    assert spoken["tool_calls"][0].keys() == {"id", "type", "function"}
    blocks = claude(HI, own, results(CALL))["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["text", "tool_use"]
    for other in (CHAT, CLAUDE):
        foreign = assistant(SIGNED, HIDDEN, "ok", model=other)
        assert gpt(HI, foreign, HI)["input"][1] == {"role": "assistant", "content": "ok"}


def test_reasoning_that_nothing_follows_is_not_sent() -> None:
    # An answer that was cut while the model thought, or whose calls were left out.
    thought = kept("reasoning", 0, id="rs", encrypted_content="e")
    later = kept("reasoning", 2, id="r2", encrypted_content="e")
    answer = assistant(thought, "ok", later)
    assert [item.get("type") for item in items_of(HI, answer, GO)] == [None, "reasoning", None, None]


def test_a_compaction_of_the_providers_stands_for_what_came_before() -> None:
    compaction = kept("compaction", 0, id="c", encrypted_content="e")
    messages = [HI, OK, GO, assistant(compaction, "so", kept("message", 1, id="m")), user("and?")]
    items = items_of(*messages)
    assert [item.get("type", item.get("role")) for item in items] == ["compaction", "message", "user"]
    assert items[0] == part("compaction", id="c", encrypted_content="e")
    # Another model cannot read it, so it is sent the conversation.
    other = items_of(*messages, model="openai-responses:n")
    assert [item["content"] for item in other] == ["hi", "ok", "go", "so", "and?"]


def test_a_compaction_behind_a_call_leaves_the_call_in() -> None:
    # Else its result would have no call.
    compaction = kept("compaction", 3, id="c", encrypted_content="e")
    items = items_of(HI, assistant(OWN_CALL, compaction), results(CALL))
    assert [item.get("type", "said") for item in items] == [
        *("said", "function_call", "compaction", "function_call_output")
    ]


def test_the_files_of_a_result_are_in_its_output() -> None:
    files = (PNG, Binary(media_type="audio/wav", data=b"R", name="a.wav"))
    items = items_of(HI, assistant(CALL), results(result(CALL, "see", Outcome.OK, *files)))
    assert items[-1]["output"] == [
        part("input_text", text="see"),
        part("input_image", image_url="data:image/png;base64,iVA=", detail="auto"),
        part("input_text", text="[attachment a.wav]"),
    ]


@pytest.mark.parametrize(
    ("file", "sent"),
    [
        (PNG, part("input_image", image_url="data:image/png;base64,iVA=", detail="auto")),
        (PDF, part("input_file", filename="a.pdf", file_data="data:application/pdf;base64,JQ==")),
        (Binary(media_type="text/csv", data=b"a,b", name="a.csv"), part("input_text", text="a.csv:\na,b")),
        (EMPTY_PNG, part("input_text", text="[attachment image/png, which is empty]")),
        (
            Binary(media_type="", data=b"%"),
            part("input_file", filename="attachment", file_data="data:application/octet-stream;base64,JQ=="),
        ),
    ],
)
def test_a_user_may_attach_files_to_responses(file: Binary, sent: dict[str, Any]) -> None:
    assert items_of(user("see", files=(file,)))[0]["content"] == [part("input_text", text="see"), sent]


def test_an_input_without_items_is_a_word_of_the_users() -> None:
    assert gpt(assistant(" "), system="be kind")["input"] == [{"role": "user", "content": "Begin."}]


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("gpt-5", 5_000, {"reasoning": {"effort": "medium", "summary": "auto"}}),
        ("gpt-5", None, {}),
        ("gpt-4.1", 5_000, {"temperature": 0.5}),
    ],
)
def test_a_reasoning_model_is_asked_for_a_summary_along_with_an_effort(
    name: str, tokens: int | None, expected: dict[str, Any]
) -> None:
    model = f"openai-responses:{name}"
    spec = {"model": ModelSpec(name=model, temperature=0.5)}
    body = gpt(HI, model=model, config=spec, thinking=tokens)
    assert {key: body[key] for key in ("reasoning", "temperature") if key in body} == expected


def test_what_else_is_included_is_asked_for_besides_the_encrypted_reasoning() -> None:
    for extra, expected in (
        (
            {"include": ["web_search_call.action.sources"]},
            ["reasoning.encrypted_content", "web_search_call.action.sources"],
        ),
        ({"include": None}, None),
        ({}, ["reasoning.encrypted_content"]),
    ):
        config = {"model": ModelSpec(name=GPT, extra_body=extra)}
        assert gpt(HI, config=config).get("include") == expected


@pytest.mark.parametrize("field", ["store", "previous_response_id", "background", "conversation", "input"])
def test_nothing_makes_the_provider_store_a_conversation(field: str) -> None:
    with pytest.raises(ConfigError, match=f"own fields to it; got \\['{field}'\\]"):
        ResponsesWire().check(ModelSpec(name=GPT, extra_body={field: True}))
    with pytest.raises(ConfigError, match=f"own fields to it; got \\['{field}'\\]"):
        ResponsesWire().adding({field: True})


def test_tools_are_chosen_by_word_or_by_name() -> None:
    config = {"tools": (READ,)}
    for choice, expected in (
        ("required", "required"),
        ("auto", "auto"),
        ("read", part("function", name="read")),
        ("gone", None),
    ):
        body = gpt(HI, config=config, tools=("read",), tool_choice=choice)
        assert body.get("tool_choice") == expected
    assert gpt(HI, config=config)["tool_choice"] == "none"


# Tools that the provider runs

SEARCH = {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}}
FOUND = part("web_search_call", id="ws", status="completed", action={"type": "search", "query": "x"})
NOTE = part("url_citation", url="https://a.example", title="A", start_index=0, end_index=8)


@each_dialect
def test_a_tool_of_the_providers_is_sent_as_it_is_before_the_others(dialect: str) -> None:
    spec = ModelSpec(name=ASKED[dialect], max_output=None, provider_tools=(SEARCH,))
    config: dict[str, Any] = {"model": spec, "tools": (READ,)}
    body = body_for(dialect, HI, config=config, tools=("read",))
    assert (body["tools"][0], len(body["tools"])) == (SEARCH, 2)
    assert "tool_choice" not in body
    # Our own are all withdrawn: the provider's may not be called either.
    body = body_for(dialect, HI, config=config, tools=())
    assert body["tools"][0] == SEARCH
    assert body["tool_choice"] in ("none", {"type": "none"})
    # An agent may have no other tools.
    body = body_for(dialect, HI, config={**config, "tools": ()}, tools=())
    assert (body["tools"], "tool_choice" in body) == ([SEARCH], False)
    # The tool of an output that is asked for natively was not withdrawn.
    output = attrs.evolve(READ, name="output", kind=ToolKind.OUTPUT)
    body = body_for(dialect, HI, config={**config, "tools": (output,)}, tools=())
    assert (body["tools"], "tool_choice" in body) == ([SEARCH], False)
    none = {"model": attrs.evolve(spec, tool_choice="none"), "tools": ()}
    assert body_for(dialect, HI, config=none, tools=())["tool_choice"] in ("none", {"type": "none"})
    view = Transcript(revision=0, length=1, limit=1_000)
    assert "tools" not in body_for(dialect, HI, config=config, tools=(), view=view, purpose=Purpose.SUMMARY)


def test_a_fallback_is_sent_its_own_tools_and_no_others() -> None:
    other = ModelSpec(name="openai-responses:n", max_output=None, provider_tools=({"type": "file_search"},))
    first = ModelSpec(name=GPT, max_output=None, provider_tools=(SEARCH,))
    config = {"model": first, "models": (other,)}
    assert gpt(HI, config=config)["tools"] == [SEARCH]
    assert gpt(HI, config=config, model=other.name)["tools"] == [{"type": "file_search"}]
    assert "tools" not in claude(HI, config={**config, "tools": ()}, tools=())
    assert first.named("openai-responses:o").provider_tools == first.provider_tools


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "f"},
        {"type": "computer_use_preview"},
        {"type": "computer_20250124"},
        {"type": "local_shell"},
        {"type": "shell"},
        {"type": "apply_patch"},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728"},
        {"type": "memory_20250818"},
        {"type": "mcp", "server_label": "s", "server_url": "https://a.example"},
        {"type": "tool_search", "execution": "client"},
        {"name": "f"},
        {"type": 3},
        {"type": "web_search", "api_key": "secret"},
    ],
)
def test_a_spec_of_a_tool_that_the_provider_does_not_run_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="provider_tools"):
        ModelSpec(name="m", provider_tools=(spec,))


def test_specs_that_the_provider_runs_are_taken() -> None:
    specs = (
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "mcp", "server_url": "https://a.example", "require_approval": "never"},
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "code_execution_20250825", "name": "code_execution"},
    )
    assert [*map(json.loads, ModelSpec(name="m", provider_tools=specs).provider_tools)] == [*specs]
    listed = json.dumps(specs)
    assert ModelSpec(name="m", provider_tools=listed).provider_tools == tuple(map(json.dumps, specs))
    wrongs: list[Any] = ["{}", "[", SEARCH, [3]]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match="provider_tools"):
            ModelSpec(name="m", provider_tools=wrong)


def test_what_the_provider_did_goes_back_to_responses_as_it_came() -> None:
    called = ProviderCall(id="ws", name="web_search", opaque=json.dumps({**FOUND, "output_index": 0}))
    source = Citation(url="https://a.example", end=8, opaque=json.dumps(NOTE))
    answer = assistant(called, "It is X.", source, kept("message", 1, **COMMENT))
    content = [part("output_text", text="It is X.", annotations=[NOTE])]
    assert items_of(HI, answer, HI)[1:-1] == [FOUND, comment("It is X.") | {"content": content}]
    # The second message of an answer has places of its own.
    first = "Look.", kept("message", 0, **COMMENT)
    later = attrs.evolve(source, start=5, end=13)
    answer = assistant(*first, attrs.evolve(called), "It is X.", later, kept("message", 1, **COMMENT))
    assert items_of(HI, answer, HI)[-2]["content"] == content
    # Its texts are parts of it; behind a citation the same one goes on.
    answer = assistant("Look.", "It is X.", later, "!", " ", kept("message", 0, **COMMENT))
    texts = [
        part("output_text", text=text, annotations=notes)
        for text, notes in (("Look.", []), ("It is X.!", [NOTE]))
    ]
    assert items_of(HI, answer, HI)[-2]["content"] == texts
    # Another model is told what was said, and no more.
    said = {"role": "assistant", "content": "It is X."}
    answer = assistant(called, "It is ", source, "X.", source)
    assert items_of(HI, answer, HI, model="openai-responses:n")[1:-1] == [said]
    assert chat(HI, attrs.evolve(answer, model=GPT))["messages"][1] == said
    assert claude(HI, attrs.evolve(answer, model=GPT), GO)["messages"][1]["content"] == [
        {"type": "text", "text": "It is X."}
    ]


def test_what_the_provider_did_goes_back_to_messages_as_it_came() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "x"}]}
    quote = {"type": "web_search_result_location", "url": "https://a.example", "encrypted_index": "i"}
    began = Reasoning(text="", opaque=json.dumps(use))
    ended = ProviderCall(id="srvtoolu_1", name="web_search", opaque=json.dumps(found))
    source = Citation(url="https://a.example", start=8, end=15, opaque=json.dumps(quote))
    answer = assistant(SIGNED, "I look. ", began, ended, "It is X", source, source, ". And", CALL)
    blocks = claude(HI, answer, results(CALL))["messages"][1]["content"]
    assert blocks[:-1] == [
        {"type": "thinking", "thinking": "hm", "signature": "s1"},
        {"type": "text", "text": "I look. "},
        use,
        found,
        {"type": "text", "text": "It is X", "citations": [quote, quote]},
        {"type": "text", "text": ". And"},
    ]
    # A text without a source may stand before one that has one, in the same piece.
    mixed = assistant("So: it is X", attrs.evolve(source, start=4, end=11), " ")
    assert claude(HI, mixed, GO)["messages"][1]["content"] == [
        {"type": "text", "text": "So: "},
        {"type": "text", "text": "it is X", "citations": [quote]},
    ]
    # One half of a call alone is refused, and so is what another model cannot read.
    for half in (began, ended):
        assert claude(HI, assistant(half, "ok"), GO)["messages"][1]["content"] == [
            {"type": "text", "text": "ok"}
        ]
    other = attrs.evolve(answer, model="anthropic:claude-opus-4-1")
    assert [block["type"] for block in claude(HI, other, results(CALL))["messages"][1]["content"]] == [
        *("thinking", "text", "text", "tool_use")
    ]


# What providers would refuse, in all dialects


def calls_in(body: dict[str, Any]) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = [
        (item["call_id"], item["name"], json.loads(item["arguments"]))
        for item in body.get("input", ())
        if item.get("type") == "function_call"
    ]
    for message in body.get("messages", ()):
        for each in message.get("tool_calls", ()):
            function = each["function"]
            found.append((each["id"], function["name"], json.loads(function["arguments"])))
        blocks = message["content"] if isinstance(message["content"], list) else ()
        found += [(block["id"], block["name"], block["input"]) for block in blocks if "input" in block]
    return found


@each_dialect
def test_ids_are_unique_on_the_wire(dialect: str) -> None:
    # Empty, repeated, colliding and odd ids of providers are replaced, alike in call and result.
    wire_ids = ["x", "x", "", "call00005", "a b", "y" * 65]
    made = [call(number, wire_id) for number, wire_id in enumerate(wire_ids, 1)]
    history = [assistant(*made[:2]), results(*made[:2]), assistant(*made[2:]), results(*made[2:])]
    body = body_for(dialect, HI, *history)
    if dialect == "openai":
        answered = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    elif dialect == "openai-responses":
        outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
        answered = [output["call_id"] for output in outputs]
    else:
        blocks = [block for message in body["messages"] for block in message["content"]]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    ids = [wire_id for wire_id, _, _ in calls_in(body)]
    assert ids == answered
    assert ids == ["x", "call00001", "call00002", "call00005", "call00004", "call00006"]


@each_dialect
def test_a_made_up_call_goes_back_as_one_that_the_api_takes(dialect: str) -> None:
    for arguments in ("", "[]", "null", '{"a":', '{"a": NaN}', "[" * 100_000):
        made = call(1, "a", arguments)
        assert calls_in(body_for(dialect, HI, assistant(made), results(made))) == [("a", "read", {})]
    names = {"a.b c": "a_b_c", "ü" * 99: "_" * 64, "fine-1_A": "fine-1_A", "functions.read": "functions_read"}
    for name, expected in names.items():
        made = call(1, "a", "{}", name)
        assert calls_in(body_for(dialect, HI, assistant(made), results(made))) == [("a", expected, {})]


def test_arguments_go_back_as_they_were_written() -> None:
    # No number is rounded, and no key is put elsewhere: what a provider cached stays the same.
    made = call(1, "a", '{ "b": 1.0, "a": 12345678901234567890123 }')
    asked = asking(CLAUDE, view=Conversation(revision=0, length=3))
    post = MessagesWire().encode(asked, scene_of(History.of(HI, assistant(made), results(made)), CLAUDE))
    assert b'"input":{ "b": 1.0, "a": 12345678901234567890123 }' in post.body


def test_a_system_prompt_alone_is_a_body() -> None:
    assert chat(system="be kind")["messages"] == [{"role": "system", "content": "be kind"}]
