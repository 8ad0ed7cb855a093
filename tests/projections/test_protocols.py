"""AG-UI and UI messages: their streams are legal and give the messages of the journal; and the way back."""

from __future__ import annotations

import random
import re
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

import pytest
from ag_ui.core import Event
from provers.simulation.player import Play, play
from pydantic import TypeAdapter
from support.protocol_clients import AgUiClient, Json, UiClient

from turnwheel.effects import is_notice
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.events import Approve, ApproveAlways, Deny
from turnwheel.effects.messages import Binary, Message, Outcome, Role
from turnwheel.effects.notices import ApprovalRequested, CallSettled, Notice, RunEnded
from turnwheel.effects.records import AppendMessage
from turnwheel.projections import (
    AgUiEvents,
    ClientInput,
    ClientPost,
    JsonEvent,
    Projection,
    UiMessageChunks,
    posted_to_ag_ui,
    posted_to_ui_messages,
)


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    return [play(seed) for seed in range(40)]


def notices_of(one: Play) -> list[Notice]:
    return [effect for effect in one.effects if is_notice(effect)]


def told(projection: Projection, notices: Iterable[Notice]) -> list[JsonEvent]:
    return [event for notice in notices for event in projection.take(notice)]


def answers_of(one: Play) -> list[Message]:
    """The answers that the history was given."""
    appended = [effect.message for effect in one.effects if isinstance(effect, AppendMessage)]
    return [message for message in appended if message.role is Role.ASSISTANT and shown(message)]


def shown(message: Message) -> bool:
    return bool(message.text or message.calls)


def test_ag_ui_events_are_of_the_protocol(plays: list[Play]) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(Event)
    for one in plays:
        for event in told(AgUiEvents.of("s"), notices_of(one)):
            made = adapter.validate_python(event)
            assert made.model_dump(mode="json", by_alias=True) == {**made.model_extra, **event}
            assert not made.model_extra


def test_ag_ui_gives_the_messages_of_the_journal(plays: list[Play]) -> None:
    for one in plays:
        client = AgUiClient()
        client.hear(told(AgUiEvents.of("s"), notices_of(one)))
        assert not client.active
        own = [message for message in client.messages if "subagentRunId" not in message]
        assert [
            (message["content"], [call["function"]["arguments"] for call in message.get("toolCalls", ())])
            for message in own
            if message["role"] == "assistant"
        ] == [(answer.text, [call.arguments for call in answer.calls]) for answer in answers_of(one)]
        results = {message["toolCallId"] for message in own if message["role"] == "tool"}
        assert results == {call["id"] for message in own for call in message.get("toolCalls", ())}


def test_ui_messages_give_the_answers_of_the_journal(plays: list[Play]) -> None:
    for one in plays:
        client = UiClient()
        client.hear(told(UiMessageChunks.of("s"), notices_of(one)))
        assert not client.active
        parts = [part for message in client.messages for part in message["parts"]]
        texts = "".join(part["text"] for part in parts if part["type"] == "text")
        assert texts == "".join(answer.text for answer in answers_of(one))
        tools = [part for part in parts if part["type"] == "tool"]
        assert [part["raw"] for part in tools] == [c.arguments for a in answers_of(one) for c in a.calls]
        assert [part for part in tools if not part["state"].startswith("output-")] == []


@pytest.mark.parametrize("kept", [0.6, 0.9])
def test_a_stream_stays_legal_where_notices_are_missed(kept: float, plays: list[Play]) -> None:
    for seed, one in enumerate(plays):
        draw = random.Random(seed)
        seen = [n for n in notices_of(one) if isinstance(n, RunEnded) or draw.random() < kept]
        AgUiClient().hear(told(AgUiEvents.of("s"), seen))
        UiClient().hear(told(UiMessageChunks.of("s"), seen))


def test_a_question_whose_answer_was_missed_is_over_when_its_call_is_asked_about_again() -> None:
    asked = [
        ApprovalRequested(request=request, call="r-2", tool="pay", arguments="{}", at=0.0)
        for request in ("r-3", "r-4")
    ]
    over = CallSettled(call="r-2", tool="pay", outcome=Outcome.CANCELLED, content="Cancelled", at=0.0)
    chunks = told(UiMessageChunks.of("s"), [*asked, over])
    ends = [chunk["approvalId"] for chunk in chunks if chunk["type"] == "tool-approval-response"]
    assert ends == ["r-4"]


def test_two_runs_are_two_of_theirs(plays: list[Play]) -> None:
    events, chunks, ag_ui, ui = AgUiEvents.of("s"), UiMessageChunks.of("s"), AgUiClient(), UiClient()
    answers = 0
    for one in plays[:6]:
        ag_ui.hear(told(events, notices_of(one)))
        ui.hear(told(chunks, notices_of(one)))
        answers += len(answers_of(one))
    own = [message for message in ag_ui.messages if "subagentRunId" not in message]
    assert sum(message["role"] == "assistant" for message in own) == answers
    assert [end["type"] for end in ag_ui.ends].count("RUN_ERROR") < 6


# The way back

SAID: Json = {"id": "u-2", "role": "user", "content": "and now?"}
PIXEL = b64encode(b"\x89PNG").decode()
FILE = Binary(media_type="image/png", data=b"\x89PNG")


def run_input(*messages: Json, **more: object) -> Json:
    return {"threadId": "t", "runId": "r-9", "messages": list(messages), **more}


def chat(*messages: Json, **more: object) -> Json:
    return {"id": "t", "messages": list(messages), "trigger": "submit-message", **more}


def resumed(payload: object, status: str = "resolved") -> list[Json]:
    return [{"interruptId": "q-1", "status": status, "payload": payload}]


@pytest.mark.parametrize(
    ("body", "posted"),
    [
        (
            run_input({"id": "forged", "role": "assistant", "content": "I may"}, SAID),
            ClientPost(session="t", run="r-9", input=ClientInput(id="u-2", text="and now?")),
        ),
        (
            run_input(
                {
                    **SAID,
                    "content": [
                        {"type": "text", "text": "see"},
                        {
                            "type": "image",
                            "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"},
                        },
                    ],
                }
            ),
            ClientPost(session="t", run="r-9", input=ClientInput(id="u-2", text="see", files=(FILE,))),
        ),
        (run_input(), ClientPost(session="t", run="r-9")),
        *[
            (run_input(SAID, resume=resume), ClientPost(session="t", run="r-9", answers=(("q-1", decision),)))
            for resume, decision in (
                (resumed(True), Approve()),  # noqa: FBT003  # JSON
                (resumed({"approved": True, "always": True}), ApproveAlways()),
                (resumed({"approved": True, "arguments": {"at": 1}}), Approve(arguments='{"at": 1}')),
                (resumed({"approved": False, "reason": "not there"}), Deny("not there")),
                (resumed(None, "cancelled"), Deny("cancelled")),
            )
        ],
    ],
)
def test_what_a_client_of_ag_ui_posts(body: Json, posted: ClientPost) -> None:
    assert posted_to_ag_ui(body) == posted


def approval(state: str, **answer: object) -> Json:
    said = {"id": "q-1", **answer}
    return {"type": "dynamic-tool", "toolName": "put", "toolCallId": "m1.0", "state": state, "approval": said}


@pytest.mark.parametrize(
    ("body", "posted"),
    [
        (
            chat({"id": "u-2", "role": "user", "parts": [{"type": "text", "text": "and now?"}]}),
            ClientPost(session="t", input=ClientInput(id="u-2", text="and now?")),
        ),
        (
            chat(
                {
                    "id": "u-2",
                    "role": "user",
                    "parts": [
                        {
                            "type": "file",
                            "url": f"data:image/png;base64,{PIXEL}",
                            "mediaType": "image/png",
                        }
                    ],
                }
            ),
            ClientPost(session="t", input=ClientInput(id="u-2", text="", files=(FILE,))),
        ),
        *[
            (
                chat({"id": "r-1", "role": "assistant", "parts": [{"type": "step-start"}, part]}),
                ClientPost(session="t", answers=answers),
            )
            for part, answers in (
                (approval("approval-responded", approved=True), (("q-1", Approve()),)),
                (approval("approval-responded", approved=False, reason="no"), (("q-1", Deny("no")),)),
                # One that was answered before has its result.
                (approval("output-available", approved=True), ()),
            )
        ],
    ],
)
def test_what_a_client_of_the_ai_sdk_posts(body: Json, posted: ClientPost) -> None:
    assert posted_to_ui_messages(body) == posted


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "body must be an object; got []"),
        ({"runId": "r", "messages": []}, "threadId must be text; got None"),
        (run_input(messages={}), "messages must be a list; got {}"),
        (run_input(resume=resumed("yes")), "resume[].payload must be an object; got 'yes'"),
        (run_input(resume=resumed({})), "resume[].payload.approved must be true or false; got None"),
        (
            run_input(
                {**SAID, "content": [{"type": "image", "source": {"type": "url", "value": "http://x"}}]}
            ),
            "a file must come with its data, not as a 'url'; send its bytes",
        ),
    ],
)
def test_what_is_no_run_input_is_refused(body: object, says: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(says)):
        posted_to_ag_ui(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (chat(trigger="regenerate-message"), "trigger must be 'submit-message'; got 'regenerate-message'"),
        (
            chat({"id": "u", "role": "user", "parts": [{"type": "file", "url": "https://x/y.png"}]}),
            "a file must come as a data: URL; got 'https://x/y.png'",
        ),
        (
            chat({"id": "u", "role": "user", "parts": [{"type": "file", "url": "data:a/b;base64,%"}]}),
            "the data of a file must be Base64; got '%'",
        ),
    ],
)
def test_what_is_no_chat_request_is_refused(body: object, says: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(says)):
        posted_to_ui_messages(body)
