"""
The `sdk` messages: what a program that drives an agent reads.

`system/init` is the first message of a run and `result` the last; an `assistant` comes before the
`tool_progress` of its calls. What a child says names the call that it works on in `parent_tool_use_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

import attrs

from ..effects.messages import Finish, Message, Outcome, Part, Reasoning, Role, Text, ToolCall
from ..effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    CallSettled,
    Compacted,
    Notice,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
    TurnEnded,
)
from ..effects.usage import Usage
from .json_events import BUDGET, MODE_WORDS, REASON_WORDS, SUCCESS, JsonEvent, shown, subtype
from .run_view import Projection, RunView

if TYPE_CHECKING:
    from collections.abc import Iterator

OF_CHILDREN = frozenset({"assistant", "stream_event", "tool_progress"})
"""The types of messages that a child passes on: it has no run of its own for the reader."""


@final
@attrs.frozen(kw_only=True)
class SdkStyle:
    """*partial*: each delta is an event. *budget* is a subtype, *parent* the call that a child works on."""

    partial: bool = False
    budget: str = BUDGET
    parent: str | None = None


@final
class SdkMessages(Projection):
    """The `sdk` messages of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent | None] = {"type": "system", "subtype": "init"}

    def __init__(self, told: RunView, style: SdkStyle = SdkStyle()) -> None:
        super().__init__(told)
        self.style = style

    @classmethod
    def of(cls, session: str, *, include_partial: bool = False, budget_subtype: str = BUDGET) -> SdkMessages:
        """
        Messages of *session*; with *include_partial* also a `stream_event` for each delta.

        *budget_subtype* is the subtype of the result of a run that used up a budget, for readers that know it
        as `error_max_budget_usd`.
        """
        return cls(RunView(session=session), SdkStyle(partial=include_partial, budget=budget_subtype))

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The messages of *notice*."""
        return _say(self.style, before, notice, after)


def _say(style: SdkStyle, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
    match notice:
        case RunStarted():
            yield {
                "type": "system",
                "subtype": "init",
                "session_id": after.session,
                "run_id": notice.run,
                "model": notice.model,
                "tools": list(notice.tools),
                "cwd": notice.cwd,
                "permissionMode": MODE_WORDS[notice.mode],
            }
        case TextDelta() | ReasoningDelta() | AnswerDropped():
            if style.partial:
                yield _stream_event(style, notice, after)
        case ToolStarted() | AgentStarted() | CallSettled():
            yield _progress(style, notice, after)
        case AgentNoticed():
            yield from _of_child(style, before, notice, after)
        case Compacted():
            yield _boundary(notice, after)
        case RunEnded():
            yield from _assistants(style, before, notice, after)
            yield _result(style, notice, after)
        case _:
            yield from _assistants(style, before, notice, after)


def _of(style: SdkStyle, told: RunView, name: str) -> JsonEvent:
    return {"type": name, "session_id": told.session, "parent_tool_use_id": style.parent}


def _of_child(style: SdkStyle, before: RunView, notice: AgentNoticed, after: RunView) -> Iterator[JsonEvent]:
    child = attrs.evolve(style, parent=notice.call)
    said = _say(child, before.child(notice.call), notice.notice, after.child(notice.call))
    yield from (message for message in said if message["type"] in OF_CHILDREN)


# Answers


def _stream_event(
    style: SdkStyle, notice: TextDelta | ReasoningDelta | AnswerDropped, told: RunView
) -> JsonEvent:
    event: JsonEvent
    match notice:
        case TextDelta(text):
            delta: JsonEvent = {"type": "text_delta", "text": text}
            event = {"type": "content_block_delta", "index": told.answer.blocks - 1, "delta": delta}
        case ReasoningDelta(text):
            delta = {"type": "thinking_delta", "thinking": text}
            event = {"type": "content_block_delta", "index": told.answer.blocks - 1, "delta": delta}
        case AnswerDropped():
            event = {"type": "message_dropped"}
    return {**_of(style, told, "stream_event"), "event": event}


def _assistants(style: SdkStyle, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
    """The answers that *notice* ends, whole or cut short."""
    usage = notice.usage if isinstance(notice, TurnEnded) else Usage()
    for message in after.messages.slice(len(before.messages), len(after.messages)):
        if message.role is Role.ASSISTANT:
            said = {
                "id": before.answer.request,
                "type": "message",
                "role": "assistant",
                "model": message.model,
                "content": [block for part in message.parts for block in _block(part)],
                **_stop(message),
                "usage": _usage(usage),
            }
            yield {**_of(style, before, "assistant"), "message": said}


def _stop(message: Message) -> JsonEvent:
    finish = next(part for part in message.parts if isinstance(part, Finish))
    return {"stop_reason": finish.reason.value, "stop_sequence": finish.sequence or None}


def _block(part: Part) -> Iterator[JsonEvent]:
    match part:
        case Text(text=text):
            yield {"type": "text", "text": text}
        case Reasoning(text=text):
            yield {"type": "thinking", "thinking": text}
        case ToolCall():
            yield {"type": "tool_use", "id": part.id, "name": part.name, "input": shown(part.arguments)}
        case _:
            pass


# Calls


def _progress(style: SdkStyle, notice: ToolStarted | AgentStarted | CallSettled, told: RunView) -> JsonEvent:
    """The start of a call, at 0 seconds, or its end, which has an outcome."""
    ended = notice if isinstance(notice, CallSettled) else None
    return {
        **_of(style, told, "tool_progress"),
        "tool_use_id": notice.call,
        "tool_name": told.tool(notice),
        "elapsed_time_seconds": 0.0 if ended is None else ended.seconds,
        "outcome": None if ended is None else ended.outcome.value,
    }


# The whole run


def _boundary(notice: Compacted, told: RunView) -> JsonEvent:
    metadata: JsonEvent = {"trigger": "auto", "pre_tokens": notice.before, "post_tokens": notice.after}
    return {
        "type": "system",
        "subtype": "compact_boundary",
        "session_id": told.session,
        "compact_metadata": metadata,
    }


def _result(style: SdkStyle, notice: RunEnded, told: RunView) -> JsonEvent:
    named, spent = subtype(notice.reason, style.budget), notice.spent
    answer = told.last_answer
    return {
        "type": "result",
        "subtype": named,
        "session_id": told.session,
        "is_error": named != SUCCESS,
        "exit_reason": REASON_WORDS[notice.reason].exit,
        "num_turns": spent.turns,
        "duration_ms": round(told.lasted(notice) * 1000),
        "total_cost_usd": float(spent.cost),
        "usage": _usage(spent.usage),
        "stop_reason": None if answer is None else _stop(answer)["stop_reason"],
        "result": "" if answer is None else answer.text,
        "errors": [notice.detail] if notice.detail else [],
        "permission_denials": _denials(told),
    }


def _denials(told: RunView) -> list[JsonEvent]:
    """The denied calls and their arguments."""
    calls = {call.id: call for message in told.messages for call in message.calls}
    return [
        {
            "tool_name": result.name,
            "tool_use_id": result.call,
            "tool_input": shown(calls[result.call].arguments) if result.call in calls else None,
        }
        for message in told.messages
        for result in message.results
        if result.outcome is Outcome.DENIED
    ]


def _usage(usage: Usage) -> JsonEvent:
    """Tokens as these messages count them: cached input is no part of the input."""
    return {
        "input_tokens": max(0, usage.input - usage.cached - usage.cache_write),
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cached,
        "cache_creation_input_tokens": usage.cache_write,
    }
