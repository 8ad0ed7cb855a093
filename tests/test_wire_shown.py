"""What a model is shown of a long conversation: old results left out, or a text to summarise."""

from __future__ import annotations

import json
import re
from typing import Any, final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.history import CLEARED, History
from turnwheel.effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.requests import (
    CallModel,
    Conversation,
    Purpose,
    Transcript,
)
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesWire
from turnwheel.performers.models.encoding import EncodedConversation, shorten_middle, transcript
from turnwheel.performers.models.openai import ChatWire
from turnwheel.performers.models.wire import Wire

WIRES: dict[str, tuple[Wire, str]] = {
    "chat": (ChatWire(), "openai:m"),
    "messages": (MessagesWire(), "anthropic:claude-sonnet-4-5"),
}
each_wire = pytest.mark.parametrize(("wire", "model"), WIRES.values(), ids=WIRES)


def turn(number: int, content: str, *files: Binary) -> list[Message]:
    """A call and what it returned."""
    call = ToolCall(id=f"r-{number}", wire_id=f"c{number}", name="read", arguments='{"p": 1}')
    result = ToolResult(call=call.id, wire_id=call.wire_id, name="read", content=content, files=files)
    return [
        Message(role=Role.ASSISTANT, parts=(call, Finish(reason=StopReason.TOOL_USE)), at=number),
        Message(role=Role.TOOL, parts=(result,), at=number),
    ]


def talk(turns: int, content: str = "y" * 1_000) -> History:
    """A conversation of so many *turns*, each with a result of *content*."""
    return History.of(user("Go."), *[message for n in range(turns) for message in turn(n, content)])


def body_of(wire: Wire, history: History, request: CallModel, config: Config | None = None) -> dict[str, Any]:
    """The decoded body of *request*."""
    scene = PerformContext(
        session="s",
        run="r",
        config=config or Config(model=ModelSpec(name=request.model)),
        history=history,
        clock=SystemClock(),
        emit=lambda _: None,
    )
    body: dict[str, Any] = json.loads(wire.encode(request, scene).body)
    return body


def asked(model: str, length: int, cleared: int = 0) -> CallModel:
    """A request that shows *length* messages."""
    return CallModel(
        id="r-1", model=model, view=Conversation(revision=0, length=length, cleared=cleared), tools=()
    )


# Old results


@each_wire
def test_an_old_result_is_seen_to_be_left_out(wire: Wire, model: str) -> None:
    """The call stays, and so does what it returned recently or in a few words."""
    history = History.of(user("Go."), *turn(1, "long " * 200), *turn(2, "short"), *turn(3, "long " * 200))
    shown = json.dumps(body_of(wire, history, asked(model, 7, cleared=5))["messages"])
    assert (shown.count(CLEARED), shown.count("short"), shown.count("long " * 200)) == (1, 1, 1)
    assert all(f'"c{number}"' in shown for number in (1, 2, 3))


@each_wire
def test_the_files_of_an_old_result_are_left_out(wire: Wire, model: str) -> None:
    """They are what takes most room."""
    picture = Binary(media_type="image/png", data=b"\x89PNG" * 100)
    history = History.of(user("Go."), *turn(1, "seen", picture), *turn(2, "seen", picture))
    shown = json.dumps(body_of(wire, history, asked(model, 5, cleared=3))["messages"])
    assert (shown.count("image/png"), shown.count(CLEARED)) == (1, 1)


@final
@attrs.frozen
class End:
    """Where a message ends."""

    end: int = 0


@final
class Counting(EncodedConversation[End]):
    """Encodes a message as its text and counts how often it does."""

    def __init__(self) -> None:
        super().__init__(End())
        self.count = 0

    def add(self, message: Message) -> None:
        """The text of *message*, or of its results."""
        self.count += 1
        said = [part.content if isinstance(part, ToolResult) else "" for part in message.parts]
        self.buffer += "".join([message.text, *said]).encode()
        self.place = End(len(self.buffer))


def test_a_message_is_encoded_a_few_times_however_long_the_conversation_gets() -> None:
    """Once, and again where results before it are newly left out; never with all that came before."""
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


def test_what_is_encoded_is_not_encoded_again_where_nothing_moves() -> None:
    """Nor where what is newly left out was nothing."""
    encoded, history = Counting(), talk(100, "short")
    encoded.until(history, len(history))
    for before in (0, 50, 150, 20):
        encoded.until(history, len(history), before)
    assert encoded.count == len(history)


def test_the_tools_of_a_fork_are_those_that_were_called_in_it() -> None:
    """The API refuses calls where there are no tools; what others called later is nothing of theirs."""
    wire, history = MessagesWire(), History.of(user("Go."), *turn(1, "one"))
    fork = history
    later = ToolCall(id="r-2", wire_id="c2", name="later", arguments="{}")
    history = history.append(Message(role=Role.ASSISTANT, parts=(later,)))
    result = ToolResult(call="r-2", wire_id="c2", name="later", content="two")
    history = history.append(Message(role=Role.TOOL, parts=(result,)))
    both, one = [
        [tool["name"] for tool in body_of(wire, each, asked("claude-x", len(each)))["tools"]]
        for each in (history, fork)
    ]
    assert (both, one) == (["read", "later"], ["read"])


# How much may be answered


@pytest.mark.parametrize(
    ("model", "configured", "wanted", "key", "expected"),
    [
        ("openai:m", 100, None, "max_tokens", 100),
        ("openai:m", 100, 7, "max_tokens", 7),
        ("openai:m", None, 7, "max_tokens", 7),
        ("openai:gpt-5", 100, 7, "max_completion_tokens", 7),
        ("anthropic:claude-x", 100, None, "max_tokens", 100),
        ("anthropic:claude-x", 100, 7, "max_tokens", 7),
        ("anthropic:claude-x", None, 7, "max_tokens", 7),
    ],
)
def test_a_request_may_ask_for_less_than_is_configured(
    model: str, configured: int | None, wanted: int | None, key: str, expected: int
) -> None:
    """Or for more: what it says holds for it alone."""
    wire = ChatWire() if model.startswith("openai") else MessagesWire()
    config = Config(model=ModelSpec(name=model, max_output=configured))
    request = attrs.evolve(asked(model, 1), max_output=wanted)
    assert body_of(wire, talk(0), request, config)[key] == expected


# What is to be summarised


@each_wire
def test_a_summary_is_made_of_a_text_that_has_room(wire: Wire, model: str) -> None:
    """Its beginning and its end, whatever else there was."""
    history = History.of(user("The task."), *talk(200), user("The latest."))
    view = Transcript(revision=0, length=len(history), limit=1_000)
    request = CallModel(id="r-1", model=model, view=view, purpose=Purpose.SUMMARY, instructions="Summarise.")
    content = body_of(wire, history, request)["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    assert 3_000 < len(text) <= 4_000
    assert text.startswith("<conversation>\n\n[user]\nThe task.\n\n")
    assert text.endswith("[user]\nThe latest.\n\n</conversation>")


def test_what_is_left_out_is_counted() -> None:
    """Messages and characters, in the middle; the rest is as it was."""
    messages = [user(f"{number:>100}") for number in range(100)]
    head, mark, tail = re.split(r"(\[\.\.\. .* \.\.\.\])", transcript(messages, 400))
    missing = 100 - head.count("[user]") - tail.count("[user]")
    assert mark == f"[... {missing} messages of {missing * 107:,} characters left out ...]"
    assert head == "<conversation>\n\n" + "".join(f"[user]\n{n:>100}\n\n" for n in range(6))
    assert tail == "".join(f"\n\n[user]\n{n:>100}" for n in range(93, 100)) + "\n\n</conversation>"


def test_a_large_message_does_not_take_the_place_of_all_others() -> None:
    """Its beginning and end are shown, and what stands around it."""
    messages = [user("the task"), user("x" * 100_000), user("a fact"), user("y" * 100_000), user("the end")]
    text = transcript(messages, 2_000)
    assert len(text) <= 8_000
    assert all(said in text for said in ("the task", "x" * 500, "a fact", "y" * 500, "the end"))
    assert text.count(" characters cut ...]") == 2


def test_the_first_message_may_take_half() -> None:
    """It may be the summary of what came before, which nobody could find elsewhere."""
    messages = [user("s" * 15_000), *[user("x" * 1_000) for _ in range(100)]]
    assert "s" * 15_000 in transcript(messages, 8_000)


def test_a_single_message_has_all_the_room() -> None:
    """There is nothing else to be shown."""
    text = transcript([user("x" * 100_000)], 1_000)
    assert 3_900 < len(text) <= 4_000


def test_results_and_arguments_are_shortened_where_there_is_room_for_all() -> None:
    """To the gist: of a result 2,000 characters, of arguments 500, beginning and end."""
    call = ToolCall(id="r-1", wire_id="c", name="write", arguments='{"p": "' + "a" * 5_000 + '"}')
    result = ToolResult(
        call="r-1", wire_id="c", name="write", content="b" * 5_000 + "!", outcome=Outcome.ERROR
    )
    said = [Message(role=Role.ASSISTANT, parts=(call,)), Message(role=Role.TOOL, parts=(result,))]
    _, calls, results, _ = transcript(said, 100_000).split("\n\n")
    assert len(calls) == len("[assistant]\n[calls write] ") + 500
    assert len(results) == len("[tool]\n[result of write, error] ") + 2_000
    assert calls.endswith('"}')
    assert results.endswith("b!")


@given(
    st.lists(st.integers(0, 3_000), max_size=9),
    st.integers(0, 3_000),
    st.sampled_from(["x", "😀", "\n", "[user]\n"]),
)
def test_a_text_to_summarise_keeps_its_limit(lengths: list[int], limit: int, letter: str) -> None:
    """Whatever there is to show; and where all has room, all is shown."""
    messages = [Message(role=Role.USER, parts=(Text(text=letter * length),)) for length in lengths]
    text, whole = transcript(messages, limit), transcript(messages)
    assert len(text) <= 4 * max(limit, 1)
    assert (text == whole) is (len(whole) <= 4 * max(limit, 1))
    assert text.strip()


@given(st.text(max_size=200), st.integers(0, 250))
def test_a_shortened_text_says_how_much_is_missing(text: str, limit: int) -> None:
    """It has its beginning and its end, and no more than the limit."""
    short = shorten_middle(text, limit)
    assert len(short) <= limit
    if len(text) <= limit:
        assert short == text
    elif limit > 40:
        begin, number, end = re.split(r" \[\.\.\. (\d+) characters cut \.\.\.\] ", short)
        assert len(begin) + int(number) + len(end) == len(text)
        assert text.startswith(begin)
        assert text.endswith(end)
