"""Any conversation is a request that the provider takes, whatever is left out of it or summarised."""

from __future__ import annotations

import gc
import json
import re
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, final

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.history import SHORT, History, clear_results
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
from turnwheel.performers.models.encoding import (
    BufferMark,
    EncodedConversation,
    shorten_middle,
    tool_name,
    transcript,
)
from turnwheel.performers.models.openai import ChatWire
from turnwheel.performers.models.providers import PROVIDERS, ServerQuirks
from turnwheel.performers.models.responses import ResponsesWire
from turnwheel.performers.models.wire import Wire
from turnwheel.testing.wire_rules import MISTRAL_ID, chat_faults, messages_faults, responses_faults

# Histories that a loop can have: every call is answered, and anything may have been said

TEXTS = st.sampled_from(["", " ", "\n", "hi", "grüß 😀", "a\ud83d", '"\\', "\x00"]) | st.text(max_size=5)
CONTENTS = TEXTS | st.sampled_from(["y" * (SHORT + 1), "\n" * (SHORT + 1), "z" * 3_000])
SIGNED = "a__thought__b+/="
IDS = st.sampled_from(["", SIGNED, SIGNED, "call_0", "call_0", "aB3dE6gH9", "a b", "x" * 60, "call00001"])
NAMES = st.sampled_from(["read", "a.b c", "ü", "n" * 80, "write"])
ARGUMENTS = st.sampled_from(["", "{}", '{"p": "x"}', '{"p":', "[]", "null", '{"a": NaN}', '{"p": "\ud83d"}'])
MEDIA = ["image/png", "image/bmp", "application/pdf", "text/plain", "text/csv; a=b", "audio/wav", "", "a/b"]
BYTES = [b"", b" ", b"\x89PNG", b"\xff"]
FILE = st.builds(
    Binary, media_type=st.sampled_from(MEDIA), data=st.sampled_from(BYTES), name=st.sampled_from(["", "a.b"])
)
FILES = st.lists(FILE, max_size=2).map(tuple)
THOUGHTS = st.builds(
    Reasoning,
    text=st.sampled_from(["", "hm"]),
    signature=st.sampled_from(["", "s1"]),
    redacted=st.sampled_from(["", "d1"]),
    opaque=st.sampled_from(
        [
            *("", '{"reasoning_details": [{"id": "call_0"}, {"id": []}]}', "[", "[]"),
            '{"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e", "output_index": 0}',
            '{"type": "message", "id": "m", "phase": "commentary", "output_index": 1}',
            '{"type": "compaction", "id": "c", "encrypted_content": "e", "output_index": 1}',
            '{"type": "web_search_call", "id": "ws", "output_index": 5}',
        ]
    ),
)
OPAQUE = st.sampled_from(
    [
        *("", '{"extra_content": {"google": {"thought_signature": "s1"}}}', '{"id": 1}'),
        '{"type": "function_call", "id": "fc", "output_index": 2}',
    ]
)
CALLS = st.builds(ToolCall, id=st.just(""), wire_id=IDS, name=NAMES, arguments=ARGUMENTS, opaque=OPAQUE)
USE = Reasoning(text="", opaque='{"type": "server_tool_use", "id": "st", "name": "web_search", "input": {}}')
FOUND = ProviderCall(
    id="st",
    name="web_search",
    opaque='{"type": "web_search_tool_result", "tool_use_id": "st", "content": [], "output_index": 3}',
)
CITED = st.builds(
    Citation,
    url=st.just("https://a.example"),
    start=st.integers(0, 6),
    end=st.integers(0, 6),
    opaque=st.sampled_from(["", '{"type": "url_citation", "start_index": 0, "end_index": 1}', "[]"]),
)
PROVIDED = st.sampled_from(
    list[tuple[Part, ...]](
        [
            (),
            (USE,),
            (FOUND,),
            (USE, FOUND),
            (FOUND, Text(text="so"), USE),
            (USE, Text(text="a "), FOUND, Text(text=" ")),
        ]
    )
)
CLAUDES = ["anthropic:claude-sonnet-4-5", "anthropic:claude-opus-4-7"]
MODELS = st.sampled_from(
    ["", "openai:m", "openai-responses:m", *CLAUDES, *CLAUDES, "anthropic:claude-x", "other:m"]
)


@st.composite
def users(draw: st.DrawFn) -> list[Message]:
    return [
        Message(role=Role.USER, parts=(Text(text=draw(TEXTS)), *draw(FILES)))
        for _ in range(draw(st.integers(1, 2)))
    ]


@st.composite
def answers(draw: st.DrawFn, turn: int) -> list[Message]:
    """A model's answer, and where it calls the message with all results."""
    parts: list[Part] = [*draw(st.lists(THOUGHTS, max_size=2)), *draw(FILES)]
    if draw(st.booleans()):
        parts.append(Text(text=draw(TEXTS)))
    parts += [*draw(PROVIDED), *draw(st.lists(CITED | st.builds(Text, text=TEXTS), max_size=3))]
    calls = [attrs.evolve(draw(CALLS), id=f"r-{turn}-{n}") for n in range(draw(st.integers(0, 3)))]
    stop = StopReason.TOOL_USE if calls else StopReason.END_TURN
    ended = Finish(reason=draw(st.sampled_from([stop, stop, StopReason.PAUSED])))
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


def may_stand_last(message: Message) -> bool:
    """Whether a model is asked behind *message*: it ends no answer, or one that was paused."""
    return message.stop is None or (message.stop is StopReason.PAUSED and not message.calls)


@st.composite
def histories(draw: st.DrawFn) -> list[Message]:
    """A conversation as it stands when a model is asked: it did not speak last, or was paused."""
    messages = draw(users())
    for turn in range(draw(st.integers(0, 4))):
        messages += draw(answers(turn))
        if not may_stand_last(messages[-1]) or draw(st.booleans()):
            messages += draw(users())
    return [attrs.evolve(message, at=float(number)) for number, message in enumerate(messages)]


SPECS = st.builds(
    ModelSpec,
    name=st.sampled_from(["openai:m", "openai:o3", "openai-responses:m", *CLAUDES]),
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


def scene_of(history: History, spec: ModelSpec, tools: tuple[ToolSpec, ...] = TOOLS) -> PerformContext:
    config, clock = Config(model=spec, tools=tools, stop=("END",)), SystemClock()
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=clock, emit=lambda _: None
    )


Faults = Callable[[bytes], list[str]]
WIRES: dict[str, tuple[Callable[[], Wire], Faults]] = {
    "chat": (ChatWire, chat_faults),
    "details": (lambda: ChatWire(ServerQuirks("reasoning_details")), chat_faults),
    "mistral": (lambda: ChatWire(PROVIDERS["mistral"].quirks), partial(chat_faults, call_id=MISTRAL_ID)),
    "messages": (MessagesWire, messages_faults),
    "responses": (ResponsesWire, responses_faults),
}


@pytest.mark.parametrize("name", WIRES)
@settings(max_examples=60)
@given(messages=histories(), request_=REQUESTS, spec=SPECS, data=st.data())
def test_any_conversation_is_a_request_that_the_provider_takes(
    name: str, messages: list[Message], request_: CallModel, spec: ModelSpec, data: st.DataObject
) -> None:
    # At every turn, and at any turn with old results left out: what was sent before makes no difference, and
    # what is left out is as if the conversation had never had it.
    make, faults_of = WIRES[name]
    kept, history = make(), History.of(*messages)
    turns = [at for at in range(1, len(messages) + 1) if may_stand_last(messages[at - 1])]
    again = data.draw(st.lists(st.sampled_from(turns), max_size=5), label="lengths with results left out")
    for number, length in enumerate([*turns, *again]):
        before = data.draw(st.integers(0, length), label="cleared") if number >= len(turns) else 0
        view = Conversation(revision=0, length=length, cleared=before)
        fork = History(history.log, data.draw(st.sampled_from([length, len(messages)]), label="fork"))
        body = kept.encode(attrs.evolve(request_, model=spec.name, view=view), scene_of(fork, spec)).body
        assert faults_of(body) == []
        shown = History.of(*map(clear_results, messages[:before]), *messages[before:length])
        plain = attrs.evolve(request_, model=spec.name, view=Conversation(revision=0, length=length))
        assert make().encode(plain, scene_of(shown, spec)).body == body


def messages_of(body: bytes) -> list[dict[str, Any]]:
    said: dict[str, list[dict[str, Any]]] = json.loads(body)
    return said["messages"] if "messages" in said else said["input"]


def text_of(body: bytes) -> str:
    content = messages_of(body)[-1]["content"]
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def summary(length: int, limit: int, model: str) -> CallModel:
    view = Transcript(revision=0, length=length, limit=limit)
    given: dict[str, Any] = {"purpose": Purpose.SUMMARY, "max_output": 100, "instructions": "Summarise."}
    return CallModel(id="r-1", model=model, view=view, **given)


@pytest.mark.parametrize("name", ["chat", "messages", "responses"])
@settings(max_examples=40)
@given(messages=histories(), spec=SPECS, limit=st.sampled_from([1, 5, 20, 50, 200, 10_000]))
def test_a_summary_of_any_conversation_can_be_asked_for(
    name: str, messages: list[Message], spec: ModelSpec, limit: int
) -> None:
    # Of all of it and of nothing, within any limit, with no tools and its own system prompt.
    make, faults_of = WIRES[name]
    for length in range(len(messages) + 1):
        scene = scene_of(History.of(*messages), spec)
        body = make().encode(summary(length, limit, spec.name), scene).body
        assert faults_of(body) == []
        assert len(text_of(body)) <= 4 * limit


# What is encoded once

each_wire = pytest.mark.parametrize(
    "make", [ChatWire, MessagesWire, ResponsesWire], ids=["chat", "messages", "responses"]
)


def texts(wire: Wire, history: History) -> list[str]:
    spec = ModelSpec(name="m")
    request = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=len(history)))
    contents = [
        message["content"] for message in messages_of(wire.encode(request, scene_of(history, spec)).body)
    ]
    blocks = [[{"text": each}] if isinstance(each, str) else each for each in contents]
    return [block["text"] for message in blocks for block in message]


def tamper(history: History) -> None:
    """Change a message under the hands of its readers: never done, and so never noticed."""
    items = history.log.items
    assert isinstance(items, list)
    items[0] = user("changed")


@each_wire
def test_a_message_is_encoded_once(make: Callable[..., Wire]) -> None:
    # A later request is made of the bytes of the earlier ones; only another log is read anew.
    wire, history = make(), History.of(user("one"))
    assert texts(wire, history) == ["one"]
    tamper(history)
    longer = history.append(user("two"))
    assert texts(wire, longer) == ["one", "two"]
    assert texts(wire, history) == ["one"]
    assert texts(wire, history.append(user("three"))) == ["changed", "three"]
    assert texts(wire, longer.append(user("four"))) == ["one", "two", "four"]


@each_wire
def test_the_least_recently_used_conversation_is_forgotten(make: Callable[..., Wire]) -> None:
    wire, (first, second, third) = make(keep=2), [History.of(user("said")) for _ in range(3)]
    for history in (first, second, first, third):
        assert texts(wire, history) == ["said"]
    for history in (first, second, third):
        tamper(history)
    assert texts(wire, first) == texts(wire, third) == ["said"]
    assert texts(wire, second) == ["changed"]


@each_wire
def test_a_conversation_that_is_gone_is_not_held(make: Callable[..., Wire]) -> None:
    wire, history = make(), History.of(user("said"))
    texts(wire, history)
    log = weakref.ref(history.log)
    del history
    gc.collect()
    assert log() is None


def turn(number: int, content: str, name: str = "read") -> list[Message]:
    call = ToolCall(id=f"r-{number}", wire_id=f"c{number}", name=name, arguments='{"p": 1}')
    result = ToolResult(call=call.id, wire_id=call.wire_id, name=name, content=content)
    finish = Finish(reason=StopReason.TOOL_USE)
    return [
        Message(role=Role.ASSISTANT, parts=(call, finish), at=number),
        Message(role=Role.TOOL, parts=(result,), at=number),
    ]


@final
class Counting(EncodedConversation[BufferMark]):
    """Encodes a message as its text and counts how often it does."""

    def __init__(self) -> None:
        super().__init__(BufferMark())
        self.count = 0

    def add(self, message: Message) -> None:
        self.count += 1
        said = [part.content if isinstance(part, ToolResult) else "" for part in message.parts]
        self.buffer += "".join([message.text, *said]).encode()
        self.place = BufferMark(len(self.buffer))


def test_a_message_is_encoded_a_few_times_however_long_the_conversation_gets() -> None:
    # Once, and again where results before it are newly left out; never with all that came before.
    encoded, history, before = Counting(), History.of(user("Go.")), 0
    for number in range(1_000):
        for message in turn(number, "y" * 1_000):
            history = history.append(message)
        if (len(history) - before) // 2 > 15:  # as the loop does it: results are left out in leaps
            before = len(history) - 10
        count = encoded.count
        encoded.until(history, len(history), before)
        assert encoded.count - count <= 35
    assert encoded.count <= 3 * len(history)


def test_what_is_encoded_is_not_encoded_again_where_nothing_that_is_left_out_was_long() -> None:
    encoded = Counting()
    history = History.of(user("Go."), *[message for n in range(100) for message in turn(n, "short")])
    for before in (0, 0, 50, 150, 20):
        encoded.until(history, len(history), before)
    assert encoded.count == len(history)


def test_the_tools_of_a_fork_are_those_that_were_called_in_it() -> None:
    """The API refuses calls where there are no tools; what was called later in the other is no tool here."""
    wire, fork = MessagesWire(), History.of(user("Go."), *turn(1, "one"))
    history = fork
    for message in turn(2, "two", "later"):
        history = history.append(message)
    named: list[list[str]] = []
    for each in (history, fork):
        request = CallModel(id="r-1", model="claude-x", view=Conversation(revision=0, length=len(each)))
        post = wire.encode(request, scene_of(each, ModelSpec(name="claude-x"), ()))
        named.append([tool["name"] for tool in json.loads(post.body)["tools"]])
    assert named == [["read", "later"], ["read"]]


# What is to be summarised


def test_a_transcript_is_one_message_with_its_own_system_prompt() -> None:
    call = ToolCall(id="r-1", wire_id="a", name="read", arguments='{"p": "' + "x" * 546 + '"}')
    file = Binary(media_type="text/csv", data=b"1", name="a.csv")
    content, outcome = "y" * 2_500, Outcome.ERROR
    long = ToolResult(call="r-1", wire_id="a", name="read", content=content, outcome=outcome, files=(file,))
    history = History.of(
        user("hi"),
        Message(role=Role.ASSISTANT, parts=(Reasoning(text="hm", signature="s"), Text(text="ok"), call)),
        Message(role=Role.TOOL, parts=(long,)),
        Message(role=Role.USER, parts=(Binary(media_type="image/png", data=b""),)),
        Message(role=Role.ASSISTANT, parts=(Finish(reason=StopReason.END_TURN),)),
        user("not this"),
    )
    cut_call = "x" * 228 + " [... 85 characters cut ...] " + "x" * 233
    cut_result = "y" * 984 + " [... 532 characters cut ...] " + "y" * 984
    shown = "\n\n".join([
        "<conversation>",
        "[user]\nhi",
        f'[assistant]\nok\n[calls read] {{"p": "{cut_call}"}}',
        f"[tool]\n[result of read, error] {cut_result}\n[attachment a.csv]",
        "[user]\n[attachment image/png, which is empty]",
        "</conversation>"
    ])  # fmt: skip
    scene = scene_of(history, ModelSpec(name="claude-x"))
    asked = attrs.evolve(summary(5, 10_000, "claude-x"), system="")
    body = json.loads(ChatWire().encode(asked, scene).body)
    system, message = body["messages"]
    assert (system, message) == (
        {"role": "system", "content": "Summarise."},
        {"role": "user", "content": shown},
    )
    body = json.loads(MessagesWire().encode(asked, scene).body)
    assert body["system"] == [{"type": "text", "text": "Summarise."}]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": shown}]}]  # not cached
    assert "tools" not in body


def test_what_is_left_out_of_a_transcript_is_counted() -> None:
    messages = [user(f"{number:>100}") for number in range(100)]
    head, mark, tail = re.split(r"(\[\.\.\. .* \.\.\.\])", transcript(messages, 400))
    missing = 100 - head.count("[user]") - tail.count("[user]")
    assert mark == f"[... {missing} messages of {missing * 107:,} characters left out ...]"
    assert head == "<conversation>\n\n" + "".join(f"[user]\n{n:>100}\n\n" for n in range(6))
    assert tail == "".join(f"\n\n[user]\n{n:>100}" for n in range(93, 100)) + "\n\n</conversation>"


def test_a_large_message_leaves_room_for_what_stands_around_it() -> None:
    messages = [user("the task"), user("x" * 100_000), user("a fact"), user("y" * 100_000), user("the end")]
    text = transcript(messages, 2_000)
    assert len(text) <= 8_000
    assert all(said in text for said in ("the task", "x" * 500, "a fact", "y" * 500, "the end"))
    assert text.count(" characters cut ...]") == 2
    # The first may take half: it may be the summary of what came before, which is nowhere else.
    assert "s" * 15_000 in transcript([user("s" * 15_000), *[user("x" * 1_000) for _ in range(100)]], 8_000)
    # The only one has all the room.
    assert 3_900 < len(transcript([user("x" * 100_000)], 1_000)) <= 4_000


def test_results_and_arguments_are_shortened_where_there_is_room_for_all() -> None:
    # To the gist: of a result 2,000 characters, of arguments 500, beginning and end.
    call, result = turn(1, "b" * 5_000 + "!")
    call = attrs.evolve(call, parts=(attrs.evolve(call.calls[0], arguments='{"p": "' + "a" * 5_000 + '"}'),))
    _, calls, results, _ = transcript([call, result], 100_000).split("\n\n")
    assert (len(calls), calls[-2:]) == (len("[assistant]\n[calls read] ") + 500, '"}')
    assert (len(results), results[-2:]) == (len("[tool]\n[result of read] ") + 2_000, "b!")


@given(
    st.lists(st.integers(0, 3_000), max_size=9),
    st.integers(0, 3_000),
    st.sampled_from(["x", "😀", "\n", "[user]\n"]),
)
def test_a_text_to_summarise_keeps_its_limit(lengths: list[int], limit: int, letter: str) -> None:
    messages = [user(letter * length) for length in lengths]
    text, whole = transcript(messages, limit), transcript(messages)
    assert len(text) <= 4 * max(limit, 1)
    assert (text == whole) is (len(whole) <= 4 * max(limit, 1))
    assert text.strip()


@pytest.mark.parametrize(
    ("name", "sent"), [("look", "look"), ("a b.c", "a_b_c"), ("", "_"), ("x" * 65, "x" * 64)]
)
def test_a_name_that_a_model_made_up_has_characters_that_providers_take(name: str, sent: str) -> None:
    assert tool_name(name) == sent


@given(st.text(max_size=200), st.integers(0, 250))
def test_a_shortened_text_says_how_much_is_missing(text: str, limit: int) -> None:
    short = shorten_middle(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    elif limit > 40:
        begin, number, end = re.split(r" \[\.\.\. (\d+) characters cut \.\.\.\] ", short)
        assert len(begin) + int(number) + len(end) == len(text)
        assert text.startswith(begin)
        assert text.endswith(end)
