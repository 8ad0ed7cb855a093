"""Notices in the words of others: four vocabularies, the order of their events, and the page about them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import get_args

import attrs
import pytest
from provers.simulation.player import Play, play

from turnwheel import Agent, ChildSpec, tool
from turnwheel.effects import is_notice
from turnwheel.effects.errors import ArgumentError
from turnwheel.effects.events import (
    Approve,
    ApproveAlways,
    Deny,
    Failure,
)
from turnwheel.effects.hooks import Hook
from turnwheel.effects.messages import (
    Binary,
    Message,
    Outcome,
    Role,
    StopReason,
    ToolCall,
    user,
)
from turnwheel.effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    DoneReason,
    FallbackUsed,
    HookAsked,
    HookEnded,
    Ignored,
    InputBlocked,
    InputReceived,
    InputTaken,
    InterruptRequested,
    LoopDetected,
    LoopStage,
    ModelCalled,
    Notice,
    ReasoningDelta,
    RequestDelayed,
    ResultsCleared,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingChanged,
    SettingRefused,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    Warned,
)
from turnwheel.effects.permissions import Basis, PermissionMode, Verdict
from turnwheel.effects.records import AppendMessage, SetModel
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Spent, Usage
from turnwheel.projections import (
    AgentEvents,
    JsonEvent,
    Projection,
    SdkMessages,
    SseEvents,
    TurnEvents,
    to_sse,
)
from turnwheel.projections.json_events import (
    BUDGET_USD,
    ERROR_ENDS,
    MODE_WORDS,
    REASON_WORDS,
    subtype,
)
from turnwheel.projections.run_view import RunView
from turnwheel.testing.scripted import ScriptedModel, calls, says

PAGE = Path(__file__).resolve().parent.parent / "docs" / "events.md"

MAKERS: dict[str, Callable[[], Projection]] = {
    "sdk": lambda: SdkMessages.of("s", include_partial=True),
    "sse": lambda: SseEvents.of("s"),
    "turns": lambda: TurnEvents.of("s"),
    "agent_events": lambda: AgentEvents.of("s"),
}

each_vocabulary = pytest.mark.parametrize("vocabulary", MAKERS)


def told(projection: Projection, notices: Iterable[Notice]) -> list[JsonEvent]:
    """All events of *notices*."""
    return [event for notice in notices for event in projection.take(notice)]


def names(events: Iterable[JsonEvent]) -> list[object]:
    """The types of *events*."""
    return [event["type"] for event in events]


# A run by hand, event by event

WISH = ToolCall(id="r-2", wire_id="call_0", name="put", arguments='{"at":"a","api_key":"hush"}')
SPENT = Spent(turns=2, usage=Usage(input=30, output=12, cached=8, cache_write=2), cost=Decimal("0.25"))
RUN: list[Notice] = [
    RunStarted(run="r", model="m", tools=("put",), at=100.0, mode=PermissionMode.ACCEPT_EDITS, cwd="/here"),
    InputTaken(ids=("p",), messages=(user("put it there"),)),
    ModelCalled(request="r-1", model="m", attempt=1),
    ReasoningDelta("hm"),
    TextDelta("So "),
    TextDelta("be it."),
    TurnEnded(turn=1, stop=StopReason.TOOL_USE, usage=Usage(input=10, output=6, cached=8), calls=(WISH,)),
    CallJudged(call="r-2", tool="put", verdict=Verdict.ASK, ground=Basis.TOOL),
    ApprovalRequested(request="r-3", call="r-2", tool="put", arguments=WISH.arguments, why="it puts"),
    ApprovalResolved(request="r-3", decision=Approve()),
    ToolStarted(call="r-2", tool="put", arguments=WISH.arguments),
    ToolOutput(call="r-2", text="half way"),
    CallSettled(call="r-2", tool="put", outcome=Outcome.OK, content="there", seconds=1.5),
    ModelCalled(request="r-4", model="m", attempt=1),
    TextDelta("Done."),
    TurnEnded(turn=2, stop=StopReason.END_TURN, usage=Usage(input=20, output=6)),
    RunEnded(run="r", reason=DoneReason.END_TURN, spent=SPENT, at=107.25),
]


def test_a_run_in_sdk_messages() -> None:
    """Init, each answer whole, a progress when its tool starts and ends, and the result."""
    of: JsonEvent = {"session_id": "s", "parent_tool_use_id": None}
    tool: JsonEvent = {"tool_use_id": "r-2", "tool_name": "put"}
    first, second = (
        {
            "id": request,
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {
                "input_tokens": tokens,
                "output_tokens": 6,
                "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0,
            },
        }
        for request, stop, tokens, cached, content in (
            (
                "r-1",
                "tool_use",
                2,
                8,
                [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "So be it."},
                    {
                        "type": "tool_use",
                        "id": "r-2",
                        "name": "put",
                        "input": {"at": "a", "api_key": "hush"},
                    },
                ],
            ),
            ("r-4", "end_turn", 20, 0, [{"type": "text", "text": "Done."}]),
        )
    )
    assert told(SdkMessages.of("s"), RUN) == [
        {
            "type": "system",
            "subtype": "init",
            "session_id": "s",
            "run_id": "r",
            "model": "m",
            "tools": ["put"],
            "cwd": "/here",
            "permissionMode": "acceptEdits",
        },
        {"type": "assistant", **of, "message": first},
        {"type": "tool_progress", **of, **tool, "elapsed_time_seconds": 0.0, "outcome": None},
        {"type": "tool_progress", **of, **tool, "elapsed_time_seconds": 1.5, "outcome": "ok"},
        {"type": "assistant", **of, "message": second},
        {
            "type": "result",
            "subtype": "success",
            "session_id": "s",
            "is_error": False,
            "exit_reason": "end_turn",
            "num_turns": 2,
            "duration_ms": 7250,
            "total_cost_usd": 0.25,
            "usage": {
                "input_tokens": 20,
                "output_tokens": 12,
                "cache_read_input_tokens": 8,
                "cache_creation_input_tokens": 2,
            },
            "stop_reason": "end_turn",
            "result": "Done.",
            "errors": [],
            "permission_denials": [],
        },
    ]


def test_a_run_in_sse_events() -> None:
    """Text as it comes, the question and its yes, the call with its secret left out, done with the usage."""
    tool: JsonEvent = {"tool_id": "r-2", "tool_name": "put"}
    hidden: JsonEvent = {"at": "a", "api_key": "[redacted]"}
    assert told(SseEvents.of("s"), RUN) == [
        {"type": "init", "session_id": "s", "run_id": "r", "model": "m", "timestamp": 100.0},
        {"type": "text_delta", "content": "So "},
        {"type": "text_delta", "content": "be it."},
        {
            "type": "confirmation_required",
            "endpoint": "put",
            "method": "EXECUTE",
            "reason": "it puts",
            "escalated": False,
            "correlationId": "r-3",
            "tool_id": "r-2",
            "params": hidden,
            "due": None,
        },
        {"type": "approved", "resource_type": "tool_call", "preview_id": "r-2"},
        {"type": "tool_call_start", **tool, "parameters": hidden},
        {"type": "tool_log", **tool, "message": "half way"},
        {
            "type": "tool_call_result",
            **tool,
            "status": "success",
            "outcome": "ok",
            "result": "there",
            "duration_ms": 1500,
        },
        {"type": "text_delta", "content": "Done."},
        {
            "type": "done",
            "run_id": "r",
            "reason": "model_stop",
            "exit_reason": "end_turn",
            "turns": 2,
            "usage": {"input": 30, "output": 12, "cached": 8, "cache_creation": 2, "total": 42},
            "cost_usd": 0.25,
            "unpriced_tokens": 0,
            "duration_ms": 7250,
        },
    ]


def test_a_run_in_turns_events() -> None:
    """Blocks begin before their deltas, a turn with calls ends before they run, the end has all messages."""
    call: JsonEvent = {"call_id": "r-2", "tool": "put"}
    wish: JsonEvent = {**call, "arguments": {"at": "a", "api_key": "hush"}}
    answer: JsonEvent = {"role": "assistant", "content": "So be it.", "thinking": "hm", "tool_calls": [wish]}
    prompt: JsonEvent = {"role": "user", "content": "put it there"}
    assert told(TurnEvents.of("s"), RUN) == [
        {"type": "agent_start", "session_id": "s", "run_id": "r", "model": "m", "tools": ["put"]},
        {"type": "message_applied", "ids": ["p"], "messages": [prompt]},
        {"type": "thinking_start"},
        {"type": "thinking_delta", "delta": "hm"},
        {"type": "message_start"},
        {"type": "message_delta", "delta": "So "},
        {"type": "message_delta", "delta": "be it."},
        {"type": "turn_end", "message": answer, "tool_results": []},
        {"type": "tool_execution_start", **wish},
        {"type": "tool_output", **call, "output": "half way"},
        {
            "type": "tool_execution_end",
            **call,
            "outcome": "ok",
            "is_error": False,
            "result": "there",
            "seconds": 1.5,
        },
        {"type": "message_start"},
        {"type": "message_delta", "delta": "Done."},
        {
            "type": "agent_end",
            "reason": "end_turn",
            "messages": [
                prompt,
                answer,
                {"role": "tool_result", **call, "content": "there", "is_error": False},
                {"role": "assistant", "content": "Done.", "thinking": "", "tool_calls": []},
            ],
            "usage": {
                "input_tokens": 30,
                "output_tokens": 12,
                "cached_tokens": 8,
                "cache_write_tokens": 2,
                "reasoning_tokens": 0,
                "total_tokens": 42,
            },
            "turns": 2,
            "cost_usd": 0.25,
            "unpriced_tokens": 0,
        },
    ]


def test_a_run_in_agent_events() -> None:
    """One response, at the end, with the parts of the last answer."""
    parts = [{"type": "text", "text": "Done."}, {"type": "finish", "reason": "end_turn"}]
    assert told(AgentEvents.of("s"), RUN) == [
        {
            "type": "response",
            "session_id": "s",
            "message": {"role": "assistant", "session_id": "s", "model": "m", "parts": parts},
            "error": None,
            "done": True,
        }
    ]


def test_partial_messages_are_said_only_where_asked_for() -> None:
    """Each delta is a stream event of its block; without `include_partial` there is none."""
    events = [event["event"] for event in told(MAKERS["sdk"](), RUN) if event["type"] == "stream_event"]
    assert events == [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "So "}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "be it."}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    ]
    assert "stream_event" not in names(told(SdkMessages.of("s"), RUN))


# What does not go smoothly

START = RUN[:3]


def over(reason: DoneReason, detail: str = "") -> RunEnded:
    """The end of a run for *reason*."""
    return RunEnded(run="r", reason=reason, spent=Spent(), at=101.0, detail=detail)


DROPPED: list[Notice] = [
    *START,
    ReasoningDelta("let me see"),
    TextDelta("wrong"),
    AnswerDropped(request="r-1"),
    RetryScheduled(attempt=2, due=105.0, failure=Failure.LOST, message="gone"),
    ModelCalled(request="r-2", model="m", attempt=2),
    TextDelta("right"),
    TurnEnded(turn=1, stop=StopReason.END_TURN, usage=Usage()),
    over(DoneReason.END_TURN),
]


def test_a_dropped_answer_is_in_no_message() -> None:
    """What was streamed of it is taken back, and it is nobody's last word."""
    messages = told(MAKERS["sdk"](), DROPPED)
    assert [texts_of(message) for message in messages if message["type"] == "assistant"] == ["right"]
    assert {"type": "message_dropped"} in [message.get("event") for message in messages]
    events = told(SseEvents.of("s"), DROPPED)
    assert [event for event in events if event["type"] == "warning"] == [
        {"type": "warning", "code": "answer_dropped", "message": "the last text is void", "characters": 5},
        {"type": "warning", "code": "retry", "message": "lost: gone", "attempt": 2, "due": 105.0},
    ]
    turn = told(TurnEvents.of("s"), DROPPED)
    assert {"type": "message_dropped", "characters": 5} in turn
    assert {"type": "retry", "attempt": 2, "due": 105.0, "reason": "lost: gone"} in turn
    assert [message["content"] for message in messages_in(turn)] == ["put it there", "right"]


def texts_of(message: JsonEvent) -> str:
    """The text of an `assistant` message."""
    return "".join([str(block["text"]) for block in blocks_of(message) if block["type"] == "text"])


def blocks_of(message: JsonEvent) -> list[JsonEvent]:
    """The blocks of an `assistant` message."""
    inner = message["message"]
    assert isinstance(inner, dict)
    return list(inner["content"])


def messages_in(events: list[JsonEvent]) -> list[JsonEvent]:
    """The messages that the last of *events*, the end of a run, tells."""
    messages = events[-1]["messages"]
    assert isinstance(messages, list)
    return messages


CUT: list[Notice] = [*START, ReasoningDelta("hm"), TextDelta("As far"), InterruptRequested()]


def test_an_answer_that_was_cut_short_is_kept() -> None:
    """Its text is the last answer, as it is in the history, although its turn never ended."""
    run = [*CUT, over(DoneReason.INTERRUPTED)]
    messages = told(SdkMessages.of("s"), run)
    assert names(messages) == ["system", "assistant", "result"]
    assert blocks_of(messages[1]) == [{"type": "text", "text": "As far"}]
    assert (messages[2]["stop_reason"], messages[2]["result"]) == ("interrupted", "As far")
    turn = told(TurnEvents.of("s"), run)
    assert turn[-1]["type"] == "agent_abort"
    assert [message["content"] for message in messages_in(turn)] == ["put it there", "As far"]
    (response,) = told(AgentEvents.of("s"), run)
    assert (response["type"], response["error"], response["done"]) == ("response", None, True)
    assert response["message"] == {
        "role": "assistant",
        "session_id": "s",
        "model": "m",
        "parts": [{"type": "text", "text": "As far"}, {"type": "finish", "reason": "canceled"}],
    }


@pytest.mark.parametrize(
    "going_on",
    [
        InputTaken(ids=("q",), messages=(user("stop"),)),
        ModelCalled(request="r-9", model="m", attempt=1),
    ],
)
def test_an_answer_that_was_cut_short_comes_before_what_follows(going_on: Notice) -> None:
    """Where the run goes on, the first thing that shows it brings the message, under its own id."""
    projection = SdkMessages.of("s")
    told(projection, CUT)
    (message,) = projection.take(going_on)
    inner = message["message"]
    assert isinstance(inner, dict)
    assert (inner["id"], inner["stop_reason"]) == ("r-1", "interrupted")


def test_an_answer_of_nothing_but_thought_leaves_nothing_when_it_is_cut() -> None:
    """There is no text to keep, so there is no message."""
    run = [*START, ReasoningDelta("hm"), over(DoneReason.INTERRUPTED)]
    assert names(told(SdkMessages.of("s"), run)) == ["system", "result"]
    assert told(AgentEvents.of("s"), run)[0]["message"] is None


def wished(number: int) -> ToolCall:
    """The call *number* of an answer."""
    return ToolCall(id=f"c-{number}", wire_id="", name="put", arguments=f'{{"at":{number}}}')


def ended(number: int, outcome: Outcome = Outcome.OK) -> CallSettled:
    """The end of the call *number*."""
    return CallSettled(call=f"c-{number}", tool="put", outcome=outcome, content=f"result {number}")


def batch(*notices: Notice, calls: int = 1) -> list[Notice]:
    """A run whose one answer has so many *calls*, about which *notices* tell."""
    wishes = tuple(wished(number) for number in range(calls))
    turn = TurnEnded(turn=1, stop=StopReason.TOOL_USE, usage=Usage(), calls=wishes)
    return [*START, turn, *notices, over(DoneReason.MAX_TURNS)]


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.DENIED, Outcome.CANCELLED, Outcome.ERROR])
def test_a_call_that_never_started_is_skipped(outcome: Outcome) -> None:
    """It has no start in any vocabulary, and its result in all that tell results."""
    run = batch(ended(0, outcome))
    events = told(TurnEvents.of("s"), run)
    reason: JsonEvent = {"outcome": outcome.value, "reason": "result 0"}
    assert {"type": "tool_skipped", "call_id": "c-0", "tool": "put", **reason} in events
    assert not {"tool_execution_start", "tool_execution_end"} & set(names(events))
    results = [event for event in told(SseEvents.of("s"), run) if event.get("tool_id") == "c-0"]
    assert [(event["type"], event["status"], event["error"]) for event in results] == [
        ("tool_call_result", "error", "result 0")
    ]
    progress = [m for m in told(SdkMessages.of("s"), run) if m["type"] == "tool_progress"]
    assert [message["outcome"] for message in progress] == [outcome.value]


@pytest.mark.parametrize("run", [[ended(0)], [ended(0, Outcome.ERROR)], batch(ended(0))[2:]])
def test_a_call_whose_start_was_not_seen_has_run_where_it_may_have(run: list[Notice]) -> None:
    """A run that was taken over in the middle of a tool, or a start that was missed: its end is one."""
    assert "tool_execution_end" in names(told(TurnEvents.of("s"), run))


def test_what_was_denied_is_in_the_result() -> None:
    """With what was wished; a call that merely failed is not."""
    result = told(SdkMessages.of("s"), batch(ended(0, Outcome.DENIED), ended(1, Outcome.ERROR), calls=2))[-1]
    assert result["permission_denials"] == [
        {"tool_name": "put", "tool_use_id": "c-0", "tool_input": {"at": 0}}
    ]


def test_results_are_told_in_the_order_of_their_calls() -> None:
    """However they came in: that is how they stand in the history."""
    run = batch(ended(2), ended(0), ended(1), calls=3)
    results = [one["call_id"] for one in messages_in(told(TurnEvents.of("s"), run)) if "call_id" in one]
    assert results == ["c-0", "c-1", "c-2"]


def test_results_are_kept_where_the_next_call_of_the_model_was_missed() -> None:
    """The next answer shows as well that the batch is over."""
    answer = TurnEnded(turn=2, stop=StopReason.END_TURN, usage=Usage())
    run = batch(ended(0), answer)
    roles = [message["role"] for message in messages_in(told(TurnEvents.of("s"), run))]
    assert roles == ["user", "assistant", "tool_result", "assistant"]


@pytest.mark.parametrize(
    ("decision", "events"),
    [(Approve(), ["approved"]), (ApproveAlways(), ["approved"]), (Deny(), [])],
)
def test_only_a_yes_is_told_as_one(decision: Approve | ApproveAlways | Deny, events: list[str]) -> None:
    """A no is told by the result of the call, which says why."""
    projection = SseEvents.of("s")
    told(projection, RUN[:9])
    assert names(projection.take(ApprovalResolved(request="r-3", decision=decision))) == events


COMPACTING = CompactionStarted(size=900, reason="threshold")


@pytest.mark.parametrize(
    ("notices", "end"),
    [
        ([COMPACTING, Compacted(before=900, after=90)], (900, 90, None)),
        ([COMPACTING, COMPACTING, Compacted(before=900, after=90)], (900, 90, None)),
        ([COMPACTING, CompactionFailed(reason="too long")], (900, 900, "too long")),
        ([COMPACTING], (900, 900, "interrupted")),
    ],
    ids=["done", "lost and begun anew", "failed", "interrupted"],
)
@pytest.mark.parametrize("vocabulary", ["sse", "turns"])
def test_a_compaction_that_starts_ends_once(
    vocabulary: str, notices: list[Notice], end: tuple[int, int, str | None]
) -> None:
    """Whatever becomes of it, also where it is given up with its run."""
    events = told(MAKERS[vocabulary](), [*START, *notices, over(DoneReason.INTERRUPTED)])
    of_it = [event for event in events if str(event["type"]).startswith("compaction")]
    assert names(of_it) == ["compaction_start", "compaction_end"]
    assert (of_it[1]["tokens_before"], of_it[1]["tokens_after"], of_it[1]["error"]) == end


def test_a_compaction_that_never_began_is_a_warning() -> None:
    """There was nothing to shorten: no end without a start."""
    failed = CompactionFailed(reason="nothing old enough")
    assert told(SseEvents.of("s"), [*START, failed])[-1] == {
        "type": "warning",
        "code": "compaction_failed",
        "message": "nothing old enough",
    }
    assert told(TurnEvents.of("s"), [*START, failed])[-1] == {
        "type": "error",
        "message": "nothing old enough",
        "fatal": False,
    }


def test_another_model_and_a_wait_are_warnings() -> None:
    """With what a client needs to tell them."""
    fell = FallbackUsed(model="n", instead_of="m", failure=Failure.OVERLOADED, message="busy")
    held = RequestDelayed(request="r-1", due=9.0, reason="m said 429")
    assert told(SseEvents.of("s"), [*START, fell, held])[-2:] == [
        {
            "type": "warning",
            "code": "fell_back",
            "message": "overloaded: busy",
            "model": "n",
            "instead_of": "m",
        },
        {"type": "warning", "code": "held", "message": "m said 429", "due": 9.0},
    ]
    assert told(TurnEvents.of("s"), [*START, fell, held])[-1] == {
        "type": "error",
        "message": "n is asked instead of m: overloaded: busy",
        "fatal": False,
    }


def test_a_model_that_goes_in_circles_is_told_of_until_it_is_stopped() -> None:
    """That is told once, by the error that ends the run."""
    text = "put was called alike 3 times"
    run = [
        *START,
        *[LoopDetected(stage=stage, tools=("put",), count=3, text=text) for stage in LoopStage],
        over(DoneReason.LOOP_DETECTED, text),
    ]
    loop: JsonEvent = {
        "type": "warning",
        "code": "loop_detected",
        "message": text,
        "tools": ["put"],
        "count": 3,
    }
    *_, warned, withdrawn, error, done = told(SseEvents.of("s"), run)
    assert [warned, withdrawn] == [loop | {"stage": "warned"}, loop | {"stage": "withdrawn"}]
    assert (error["type"], error["message"], done["reason"]) == ("error", text, "loop_detected")
    fatal = [event["fatal"] for event in told(TurnEvents.of("s"), run) if event["type"] == "error"]
    assert fatal == [False, False, True]


@pytest.mark.parametrize("vocabulary", ["sse", "turns"])
def test_what_has_no_price_is_not_told_as_free(vocabulary: str) -> None:
    """The end says of how many tokens the cost is not known."""
    spent = Spent(usage=Usage(input=30), cost=Decimal("0.25"), unpriced=12)
    end = attrs.evolve(over(DoneReason.END_TURN), spent=spent)
    done = told(MAKERS[vocabulary](), [*START, end])[-1]
    assert (done["cost_usd"], done["unpriced_tokens"]) == (0.25, 12)


@pytest.mark.parametrize("reason", sorted(ERROR_ENDS))
def test_a_run_that_fails_says_why_before_it_ends(reason: DoneReason) -> None:
    """An error, with the detail or else the reason, and then the end as always."""
    run = [*START, over(reason, "no luck")]
    assert told(SseEvents.of("s"), run)[-2] == {"type": "error", "message": "no luck"}
    assert told(TurnEvents.of("s"), run)[-2] == {"type": "error", "message": "no luck", "fatal": True}
    assert told(SseEvents.of("s"), [*START, over(reason)])[-2]["message"] == reason.value
    assert told(SdkMessages.of("s"), run)[-1]["errors"] == ["no luck"]
    assert told(AgentEvents.of("s"), run)[-1]["error"] == "no luck"


def test_files_are_told_by_name() -> None:
    """Their content stays where it is."""
    file = Binary(media_type="image/png", data=b"123", name="a.png")
    taken = InputTaken(ids=("p",), messages=(user("look", files=(file,)),))
    (_, event) = TurnEvents.of("s").take(taken)
    assert event["messages"] == [
        {"role": "user", "content": "look", "files": [{"name": "a.png", "media_type": "image/png"}]}
    ]


@pytest.mark.parametrize(
    ("characters", "sent"),
    [(50_000, "x" * 50_000), (50_001, "x" * 50_000 + "\n[1 more characters]")],
)
def test_a_long_result_is_cut_on_its_way_to_a_client(characters: int, sent: str) -> None:
    """The model reads all of it; a browser need not."""
    long = attrs.evolve(ended(0), content="x" * characters)
    assert told(SseEvents.of("s"), batch(long))[-2]["result"] == sent


# A child


def in_child(notices: Iterable[Notice]) -> list[Notice]:
    """A run in which a child has *notices*."""
    started = AgentStarted(call="c-0", agent="scout", prompt="look")
    return batch(started, *[AgentNoticed(call="c-0", notice=notice) for notice in notices], ended(0))


def test_a_child_speaks_sdk_from_its_call() -> None:
    """Its answers and tools name the call; it has no init and no result of its own."""
    run = in_child(RUN)
    messages = told(SdkMessages.of("s"), run)
    child = [message for message in messages if message.get("parent_tool_use_id")]
    assert names(child) == ["assistant", "tool_progress", "tool_progress", "assistant"]
    assert {message["parent_tool_use_id"] for message in child} == {"c-0"}
    assert names(message for message in messages if message not in child) == [
        "system",
        "assistant",
        "tool_progress",
        "tool_progress",
        "result",
    ]
    assert messages[-1]["result"] == "", "what a child said is no answer of its parent's"


def test_a_child_in_sse_events() -> None:
    """What it says is a thought of its parent's; secrets stay hidden in it."""
    events = [event for event in told(SseEvents.of("s"), in_child(RUN)) if event["type"] == "subagent_event"]
    assert {(event["parent_tool_id"], event["agent_name"]) for event in events} == {("c-0", "scout")}
    assert [event["event_type"] for event in events] == [
        "thought",
        "thought",
        "tool_call_start",
        "tool_call_end",
        "thought",
        "complete",
    ]
    assert "hush" not in str(events)


def test_a_child_that_fails_in_sse_events() -> None:
    """Its error is one of the child's and not of the run."""
    events = told(SseEvents.of("s"), in_child([*START, over(DoneReason.ERROR, "no luck")]))
    of_child = [event for event in events if event["type"] == "subagent_event"]
    assert [(event["event_type"], event["message"]) for event in of_child] == [("error", "no luck")]
    assert "error" not in names(events)


def test_a_child_in_turns_events() -> None:
    """Its events come inside others, between the start and the end of its call."""
    events = told(TurnEvents.of("s"), in_child(RUN))
    inner = [event["event"] for event in events if event["type"] == "sub_agent_event"]
    alone = told(TurnEvents.of("s"), RUN)
    assert inner == [
        event for event in alone if event["type"] not in {"agent_start", "message_applied", "agent_end"}
    ]
    outer = [name for name in names(events) if name != "sub_agent_event"]
    assert outer == [
        "agent_start",
        "message_applied",
        "turn_end",
        "tool_execution_start",
        "sub_agent_start",
        "tool_execution_end",
        "agent_end",
    ]


# Several runs, and runs of which only a part is seen


@pytest.mark.parametrize(
    ("first", "second"),
    [(DROPPED, RUN), (DROPPED, RUN[10:]), (RUN[:12], RUN), ([*CUT, COMPACTING], RUN)],
    ids=["one after the other", "start not seen", "left in a tool", "left in an answer"],
)
@each_vocabulary
def test_runs_of_a_session_do_not_mix(vocabulary: str, first: list[Notice], second: list[Notice]) -> None:
    """The second run is told as if it were the first, wherever the watcher left that."""
    projection = MAKERS[vocabulary]()
    told(projection, first)
    assert told(projection, second) == told(MAKERS[vocabulary](), second)


OPENINGS: dict[str, JsonEvent] = {
    "sdk": {"type": "system", "subtype": "init", "session_id": "s"},
    "sse": {"type": "init", "session_id": "s"},
    "turns": {"type": "agent_start", "session_id": "s"},
}


@pytest.mark.parametrize("vocabulary", OPENINGS)
def test_a_run_whose_start_was_not_seen_begins_all_the_same(vocabulary: str) -> None:
    """With the session's id, before the first event; without any event it has not begun."""
    projection = MAKERS[vocabulary]()
    assert projection.take(Ignored(event="TimerFired", state="done")) == ()
    events = told(projection, RUN[10:])
    assert events[0] == OPENINGS[vocabulary]
    assert OPENINGS[vocabulary] not in events[1:]


# A real session


@tool(side_effect="read_only")
def look(at: str = "") -> str:
    """Look at something."""
    return f"saw {at}"


async def test_a_session_tells_all_its_watchers_the_same() -> None:
    """Whoever streams and whoever subscribes sees one run, with the child that is at work in it."""
    model = ScriptedModel(
        calls(("run_agent", {"agent": "scout", "prompt": "look around"})),
        calls(("look", {"at": "x"})),
        says("It is x."),
        says("All done."),
    )
    children = (ChildSpec(name="scout", tools=("look",)),)
    agent = Agent(tools=[look], children=children, performers={CallModel: model})
    async with agent.session("s") as session, session.subscribe() as subscription:
        streamed = [notice async for notice in session.stream("go")]
        await session.close()
        subscribed = [notice async for notice in subscription]
    events = told(SseEvents.of("s"), streamed)
    assert events == told(SseEvents.of("s"), subscribed)
    assert names(events[:2] + events[-2:]) == ["init", "tool_call_start", "text_delta", "done"]
    of_child = [event["event_type"] for event in events if event["type"] == "subagent_event"]
    assert of_child == ["tool_call_start", "tool_call_end", "thought", "thought", "thought", "complete"]
    messages = told(SdkMessages.of("s"), subscribed)
    answers = [
        (message["parent_tool_use_id"] is not None, texts_of(message))
        for message in messages
        if message["type"] == "assistant"
    ]
    assert answers == [(False, ""), (True, ""), (True, "It is x."), (False, "All done.")]


# Many runs: what must always hold


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    """Runs as random as the player can make them."""
    return [play(seed) for seed in range(200)]


def notices_of(one: Play) -> list[Notice]:
    """What a watcher saw of *one*."""
    return [effect for effect in one.effects if is_notice(effect)]


BRACKETS = {
    "sdk": ({"system"}, {"result"}),
    "sse": ({"init"}, {"done"}),
    "turns": ({"agent_start"}, {"agent_end", "agent_abort"}),
}


@pytest.mark.parametrize("vocabulary", BRACKETS)
def test_every_run_begins_once_and_ends_once(vocabulary: str, plays: list[Play]) -> None:
    """The first event is the only start, the last the only end, and nothing comes after it."""
    begins, ends = BRACKETS[vocabulary]
    for one in plays:
        said = [
            event["type"]
            for event in told(MAKERS[vocabulary](), notices_of(one))
            if event.get("subtype") != "compact_boundary"
        ]
        assert said[0] in begins
        assert said[-1] in ends
        assert not (begins | ends) & set(said[1:-1])


@each_vocabulary
def test_every_event_is_json(vocabulary: str, plays: list[Play]) -> None:
    """What goes through JSON comes back equal."""
    for one in plays:
        for event in told(MAKERS[vocabulary](), notices_of(one)):
            assert json.loads(to_sse(event).split(b"data: ")[1]) == event


def kept(one: Play, role: Role) -> list[Message]:
    """The messages of *role* that the history of *one* was given."""
    appended = [effect.message for effect in one.effects if isinstance(effect, AppendMessage)]
    return [message for message in appended if message.role is role]


def test_assistant_messages_are_those_of_the_history(plays: list[Play]) -> None:
    """Text and calls, in order; an answer of nothing is told and not kept."""
    for one in plays:
        answers = [m for m in told(SdkMessages.of("s"), notices_of(one)) if m["type"] == "assistant"]
        said = [
            (texts_of(answer), [block["id"] for block in blocks_of(answer) if block["type"] == "tool_use"])
            for answer in answers
        ]
        assert [each for each in said if each != ("", [])] == [
            (message.text, [call.id for call in message.calls]) for message in kept(one, Role.ASSISTANT)
        ]


def test_the_end_tells_the_results_of_the_history(plays: list[Play]) -> None:
    """Every result, in the order in which the history has them; whole, where that has both its ends only."""
    for one in plays:
        *_, end = told(TurnEvents.of("s"), notices_of(one))
        results = [m for m in messages_in([end]) if m["role"] == "tool_result"]
        # Settings may have changed meanwhile: of what the stricter of them left out, only the ends are there.
        limits = [each.config.compaction.result_limit for each in (one.began, one.end)]
        limit = min([each for each in limits if each is not None], default=None)
        assert [(m["call_id"], shown_of(str(m["content"]), limit)) for m in results] == [
            (result.call, shown_of(result.content, limit))
            for m in kept(one, Role.TOOL)
            for result in m.results
        ]


def shown_of(content: str, limit: int | None) -> tuple[str, str]:
    """As much of the two ends of *content* as a model is shown of a result beyond *limit*."""
    side = len(content) if limit is None else limit // 10
    return content[:side], content[-side:]


def test_an_assistant_comes_before_its_progress(plays: list[Play]) -> None:
    """Nothing is said about a call that no message has; a start, where there is one, before the end."""
    for one in plays:
        wishes, outcomes = set[object](), dict[object, list[object]]()
        for message in told(SdkMessages.of("s"), notices_of(one)):
            if message["type"] == "assistant":
                wishes |= {block["id"] for block in blocks_of(message) if block["type"] == "tool_use"}
            if message["type"] == "tool_progress":
                assert message["tool_use_id"] in wishes
                outcomes.setdefault(message["tool_use_id"], []).append(message["outcome"])
        assert set(outcomes) == wishes
        assert all(said[-1] and said[:-1] in ([], [None]) for said in outcomes.values())


def test_a_turn_ends_before_its_calls_and_each_has_one_end(plays: list[Play]) -> None:
    """A `turn_end` names calls; each is then run to its end or skipped, once."""
    for one in plays:
        open_, running = set[object](), set[object]()
        for event in told(TurnEvents.of("s"), notices_of(one)):
            call = event.get("call_id")
            match event:
                case {"type": "turn_end", "message": {"tool_calls": wishes}}:
                    assert not open_
                    open_ = {wish["call_id"] for wish in wishes}
                    assert open_
                case {"type": "tool_execution_start"}:
                    assert call in open_ - running
                    running.add(call)
                case {"type": "tool_execution_end"}:
                    running.remove(call)
                    open_.remove(call)
                case {"type": "tool_skipped"}:
                    assert call not in running
                    open_.remove(call)
                case _:
                    pass
        assert not open_


def test_a_result_follows_its_start_and_done_has_the_usage(plays: list[Play]) -> None:
    """In `sse`, too, what starts ends; the account at the end is the run's."""
    for one in plays:
        notices = notices_of(one)
        events = told(SseEvents.of("s"), notices)
        running = list[object]()
        for event in events:
            if event["type"] == "tool_call_start":
                running.append(event["tool_id"])
            elif event["type"] == "tool_call_result" and event["tool_id"] in running:
                running.remove(event["tool_id"])
        assert running == []
        (end,) = [notice for notice in notices if isinstance(notice, RunEnded)]
        usage = events[-1]["usage"]
        assert isinstance(usage, dict)
        assert (usage["total"], events[-1]["turns"]) == (end.spent.usage.total, end.spent.turns)


def test_one_agent_event_is_done_and_it_is_the_last(plays: list[Play]) -> None:
    """A response or an error; what came before it was a compaction."""
    for one in plays:
        *before, last = told(AgentEvents.of("s"), notices_of(one))
        assert (last["type"] in {"response", "error"}, last["done"]) == (True, True)
        assert all((event["type"], event["done"]) == ("compact", False) for event in before)


@each_vocabulary
def test_a_projection_is_a_pure_fold(vocabulary: str, plays: list[Play]) -> None:
    """From any point on, again and in any order: the same state and notice give the same."""
    project = MAKERS[vocabulary]().project
    for one in plays[:50]:
        state, steps = (
            RunView(session="s"),
            list[tuple[RunView, Notice, tuple[RunView, tuple[JsonEvent, ...]]]](),
        )
        for notice in notices_of(one):
            steps.append((state, notice, project(state, notice)))
            state = steps[-1][2][0]
        assert all(project(before, notice) == after for before, notice, after in reversed(steps))


@each_vocabulary
def test_a_watcher_that_misses_notices_is_told_what_can_be_told(vocabulary: str, plays: list[Play]) -> None:
    """Whatever is missing: nothing fails, and the one end comes, with the whole account."""
    for seed, one in enumerate(plays):
        draw = random.Random(seed)
        seen = [n for n in notices_of(one) if isinstance(n, RunEnded) or draw.random() < 0.6]
        events = told(MAKERS[vocabulary](), seen)
        if vocabulary in BRACKETS:
            begins, ends = BRACKETS[vocabulary]
            assert events[0]["type"] in begins
            assert [name for name in names(events) if name in ends] == [events[-1]["type"]]
        assert events == told(MAKERS[vocabulary](), seen)


# ReasonWords and frames


def test_every_reason_and_mode_has_its_words() -> None:
    """A new one has a name in every vocabulary, or this fails."""
    assert set(REASON_WORDS) == set(DoneReason)
    assert set(MODE_WORDS) == set(PermissionMode)


@pytest.mark.parametrize("reason", DoneReason)
@each_vocabulary
def test_every_reason_can_end_a_run(vocabulary: str, reason: DoneReason) -> None:
    """In every vocabulary the last event is an end, and tells the reason in its words."""
    last = told(MAKERS[vocabulary](), [*START, over(reason)])[-1]
    words = REASON_WORDS[reason]
    said = {
        "sdk": ("result", words.exit),
        "sse": ("done", words.done),
        "turns": ("agent_abort" if words.done == "user_abort" else "agent_end", reason.value),
        "agent_events": ("response" if words.done in {"model_stop", "user_abort"} else "error", None),
    }
    field = {"sdk": "exit_reason", "agent_events": "message"}.get(vocabulary, "reason")
    assert (last["type"], last[field]) == said[vocabulary]


BUDGETS = [DoneReason.TOKEN_BUDGET, DoneReason.MAX_BUDGET, DoneReason.TIME_BUDGET]


@pytest.mark.parametrize("reason", DoneReason)
def test_a_budget_can_be_called_otherwise(reason: DoneReason) -> None:
    """The subtype of a result that ran into a budget is the reader's choice; the others are not."""
    (*_, result) = told(SdkMessages.of("s", budget_subtype=BUDGET_USD), [*START, over(reason)])
    expected = BUDGET_USD if reason in BUDGETS else subtype(reason)
    assert result["subtype"] == expected
    assert result["is_error"] == (reason is not DoneReason.END_TURN)


DEEP = '{"a":' * 900 + "1" + "}" * 900


@pytest.mark.parametrize(
    ("arguments", "parameters"),
    [
        ('{"path":"a","size":1.5}', {"path": "a", "size": 1.5}),
        ('{"API_KEY":"x","authorization":["y"]}', {"API_KEY": "[redacted]", "authorization": "[redacted]"}),
        ('{"env":[{"db_password":"x","user":"u"}]}', {"env": [{"db_password": "[redacted]", "user": "u"}]}),
        ('{"pwd":"x","passphrase":"y"}', {"pwd": "[redacted]", "passphrase": "[redacted]"}),
        ('{"cookie":"x","max_tokens":5}', {"cookie": "[redacted]", "max_tokens": 5}),
        ('{"monkey":"m","author":"a"}', {"monkey": "m", "author": "a"}),
        ('{"secret', "[redacted]"),
        ('["token"]', "[redacted]"),
        ('{"huge":1e999}', "[redacted]"),
        ("", {}),
    ],
)
def test_secrets_in_arguments_are_not_sent(arguments: str, parameters: object) -> None:
    """By the name of an argument, at any depth; what is no object is not shown at all."""
    started = ToolStarted(call="c", tool="put", arguments=arguments)
    (_, event) = SseEvents.of("s").take(started)
    assert event["parameters"] == parameters


@each_vocabulary
def test_arguments_that_nobody_can_read_stop_nobody(vocabulary: str) -> None:
    """A model may nest deeper than JSON is read, or write no JSON at all; it is told on as far as it goes."""
    for arguments in (DEEP, DEEP[:-1], '{"a":'):
        wish = attrs.evolve(WISH, arguments=arguments)
        turn = TurnEnded(turn=1, stop=StopReason.TOOL_USE, usage=Usage(), calls=(wish,))
        started = ToolStarted(call="r-2", tool="put", arguments=arguments)
        for event in told(MAKERS[vocabulary](), [*START, turn, started, over(DoneReason.ERROR)]):
            assert to_sse(event).endswith(b"\n\n")


def test_a_frame_is_its_name_and_one_line() -> None:
    """Line ends in a text do not end the frame, and every text can be sent."""
    frame = to_sse({"type": "text_delta", "content": "a\r\nb\n\nд\ud800"})
    assert frame == 'event: text_delta\ndata: {"type":"text_delta","content":"a\\r\\nb\\n\\nд?"}\n\n'.encode()


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({}, "an event has a 'type' that names it; got {}"),
        ({"type": "a\nb"}, "an event has a 'type' that names it; got"),
        ({"type": 1}, "an event has a 'type' that names it; got"),
        ({"type": "a", "cost": Decimal(1)}, "an event is made of what JSON is made of; got"),
        ({"type": "a", "cost": float("nan")}, "an event is made of what JSON is made of; got"),
    ],
)
def test_what_is_no_event_is_not_framed(event: JsonEvent, says: str) -> None:
    """The value and the way out are told."""
    with pytest.raises(ArgumentError, match=re.escape(says)):
        to_sse(event)


# The page

SAMPLES: list[list[Notice]] = [
    RUN,
    DROPPED,
    in_child(RUN),
    [*CUT, ModelCalled(request="r-9", model="m", attempt=1)],
    [*CUT, InputTaken(ids=("q",), messages=(user("stop"),))],
    [*CUT, over(DoneReason.INTERRUPTED)],
    [*START, COMPACTING, Compacted(before=9, after=1), over(DoneReason.INTERRUPTED)],
    [*START, COMPACTING, CompactionFailed(reason="no"), CompactionFailed(reason="no")],
    [*START, COMPACTING, over(DoneReason.ERROR)],
    batch(ended(0, Outcome.SKIPPED), ended(1, Outcome.OK), calls=2),
    [
        *START,
        HookAsked(request="h", hook=Hook.STOP, names=("a",)),
        HookEnded(request="h", hook=Hook.STOP, said=()),
        ApprovalWithdrawn(request="r-3"),
        SettingChanged(change=SetModel(model="n")),
        SettingRefused(change=SetModel(model="n"), reason="no such model"),
        InputReceived(id="q"),
        InputBlocked(ids=("q",), reason="no"),
        Warned(text="odd"),
        Ignored(event="TimerFired", state="done"),
    ],
    [
        *START,
        RetryScheduled(attempt=2, due=9.0, failure=Failure.OVERLOADED, message="busy"),
        RequestDelayed(request="r-9", due=9.0, reason="m said 429"),
        FallbackUsed(model="n", instead_of="m", failure=Failure.OVERLOADED, message="busy"),
        *[
            LoopDetected(stage=stage, tools=("put",), count=3, text="put was called alike 3 times")
            for stage in LoopStage
        ],
        ResultsCleared(count=11, tokens=9_000),
        over(DoneReason.LOOP_DETECTED),
    ],
]


@pytest.fixture(scope="module")
def observed(plays: list[Play]) -> dict[str, list[tuple[str, str, JsonEvent]]]:
    """By vocabulary, all that is said: the notice, the name of the event, and the event."""
    runs = [*SAMPLES, *map(notices_of, plays)]
    return {name: [said for run in runs for said in said_in(maker(), run)] for name, maker in MAKERS.items()}


def said_in(projection: Projection, run: list[Notice]) -> Iterator[tuple[str, str, JsonEvent]]:
    """What *projection* says of each notice of *run*."""
    for notice in run:
        for event in projection.take(notice):
            name = str(event["type"])
            yield type(notice).__name__, f"{name}/{event['subtype']}" if name == "system" else name, event


def table(heading: str) -> list[list[list[str]]]:
    """The rows of the first table below *heading* on the page: for each cell, what is in backticks."""
    section = re.split(rf"^## {re.escape(heading)}$", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1]
    lines = section.split("\n## ")[0].splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("| ---"))
    rows = list[list[list[str]]]()
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        rows.append([re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")])
    return rows


def test_the_page_has_every_notice() -> None:
    """With its fields, in their order."""
    listed = {notice: fields for (notice,), _, fields in table("Notices")}
    assert listed == {
        kind.__name__: [field.name for field in attrs.fields(kind)] for kind in get_args(Notice)
    }


def test_the_samples_have_every_notice() -> None:
    """Otherwise the page might say about one of them what it likes."""
    assert {type(notice) for run in SAMPLES for notice in run} == set(get_args(Notice))


def test_the_page_says_of_every_notice_what_it_is() -> None:
    """Also where that is nothing: what has no word in a vocabulary is left out on purpose."""
    assert [row[0] for row in table("Notices as events")] == [row[0] for row in table("Notices")]


@each_vocabulary
def test_the_page_says_what_each_notice_is(
    vocabulary: str, observed: dict[str, list[tuple[str, str, JsonEvent]]]
) -> None:
    """The events in the table are those there are: none is missing, none is left over."""
    column = 1 + list(MAKERS).index(vocabulary)
    listed = {(row[0][0], event) for row in table("Notices as events") for event in row[column]}
    assert listed == {(notice, name) for notice, name, _ in observed[vocabulary]}


@each_vocabulary
def test_the_page_says_what_each_event_has(
    vocabulary: str, observed: dict[str, list[tuple[str, str, JsonEvent]]]
) -> None:
    """Every field of every event, and no other; what a child's event has besides is its own."""
    listed = {event: {"type", *fields} for (event,), fields, *_ in table(f"`{vocabulary}`")}
    seen: dict[str, set[str]] = {}
    for _, name, event in observed[vocabulary]:
        fields = {"type", *listed["subagent_event"]} if name == "subagent_event" else set(event)
        seen[name] = seen.get(name, set()) | (fields & set(event))
    assert seen == listed


def test_the_page_has_every_reason() -> None:
    """Each in the words of every vocabulary."""
    listed = {reason: words for (reason,), *words in table("Reasons")}
    assert listed == {
        reason.value: [[words.exit], [words.subtype], [words.done], [words.finish]]
        for reason, words in REASON_WORDS.items()
    }
