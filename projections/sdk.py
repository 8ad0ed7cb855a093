"""
The `sdk` messages: what a program that drives an agent reads.

`system/init` is the first message of a run and `result` the last; an `assistant` comes before the
`tool_progress` of its calls. What a child says names the call that it works on in `parent_tool_use_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, assert_never, final

import attrs

from ..effects import notices
from ..effects.messages import Finish, Message, Outcome, ToolCall
from ..effects.notices import CallDelta, Notice, ReasoningDelta, TextDelta
from ..effects.usage import Usage
from .json_events import BUDGET, MODE_WORDS, REASON_WORDS, SUCCESS, JsonEvent, shown, subtype
from .run_view import OpenAnswer, Projection, RunView, blocks

# The types of messages that a child passes on: it has no run of its own for the reader.
OF_CHILDREN = frozenset({"assistant", "stream_event", "tool_progress"})


@final
@attrs.define(eq=False)
class SdkMessages(Projection):
    """The `sdk` messages of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent] = {"type": "system", "subtype": "init"}

    include_partial: bool = False
    budget_subtype: str = BUDGET

    @classmethod
    def of(cls, session: str, *, include_partial: bool = False, budget_subtype: str = BUDGET) -> SdkMessages:
        """
        Messages of *session*; with *include_partial* also a `stream_event` for each delta.

        *budget_subtype* is the subtype of the result of a run that used up a budget, for readers that know it
        as `error_max_budget_usd`.
        """
        return cls(RunView(session=session), include_partial, budget_subtype)

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The messages of *notice*."""
        match notice:
            case TextDelta() | ReasoningDelta() | CallDelta() | notices.AnswerDropped():
                if self.include_partial:
                    events = _stream_events(notice, after.answer)
                    yield from ({**_of(after, "stream_event"), "event": event} for event in events)
            case notices.RunStarted(run=run, model=model, tools=tools, cwd=cwd, mode=mode):
                more = {"tools": list(tools), "cwd": cwd, "permissionMode": MODE_WORDS[mode]}
                yield {**self.start(after), "run_id": run, "model": model, **more}
            case notices.ToolStarted() | notices.AgentStarted() | notices.CallSettled():
                yield _progress(notice, after)
            case notices.AgentNoticed(call=call, notice=inner):
                said = self.events(before.child(call), inner, after.child(call))
                of_child = (message for message in said if message["type"] in OF_CHILDREN)
                yield from (message | {"parent_tool_use_id": call} for message in of_child)
            case notices.Compacted(before=size, after=left):
                metadata = {"trigger": "auto", "pre_tokens": size, "post_tokens": left}
                of = {"subtype": "compact_boundary", "session_id": after.session}
                yield {"type": "system", **of, "compact_metadata": metadata}
            case notices.TurnEnded() | notices.AnswerKept():
                yield _assistant(notice, after)
            case notices.RunEnded():
                yield _result(notice, after, subtype(notice.reason, self.budget_subtype))
            case _:
                pass


def _of(told: RunView, name: str) -> JsonEvent:
    return {"type": name, "session_id": told.session, "parent_tool_use_id": None}


# Answers


def _stream_events(
    notice: TextDelta | ReasoningDelta | CallDelta | notices.AnswerDropped, answer: OpenAnswer
) -> Iterator[JsonEvent]:
    index, delta = answer.blocks - 1, None
    match notice:
        case notices.AnswerDropped():
            yield {"type": "message_dropped"}
        case CallDelta(index=number, tool=tool, arguments=fragment):
            index = answer.calls[number].block
            if tool:
                # Without an id: the call gets ours when it is whole.
                start: JsonEvent = {"type": "tool_use", "name": tool, "input": {}}
                yield {"type": "content_block_start", "index": index, "content_block": start}
            if fragment:
                delta = {"type": "input_json_delta", "partial_json": fragment}
        case TextDelta() | ReasoningDelta():
            key = "text" if isinstance(notice, TextDelta) else "thinking"
            delta = {"type": f"{key}_delta", key: notice.text}
        case _:
            assert_never(notice)
    if delta is not None:
        yield {"type": "content_block_delta", "index": index, "delta": delta}


def _assistant(notice: notices.TurnEnded | notices.AnswerKept, told: RunView) -> JsonEvent:
    """An answer, whole or cut short."""
    message = notice.message
    said = {
        "id": notice.request,
        "type": "message",
        "role": "assistant",
        "model": message.model,
        "content": [*blocks(message, "thinking", _tool_use)],
        **_stop(message),
        "usage": _usage(notice.usage if isinstance(notice, notices.TurnEnded) else Usage()),
    }
    return {**_of(told, "assistant"), "message": said}


def _stop(message: Message) -> JsonEvent:
    finish = next(part for part in message.parts if isinstance(part, Finish))
    return {"stop_reason": finish.reason.value, "stop_sequence": finish.sequence or None}


def _tool_use(call: ToolCall) -> JsonEvent:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": shown(call.arguments)}


# Calls


def _progress(
    notice: notices.ToolStarted | notices.AgentStarted | notices.CallSettled, told: RunView
) -> JsonEvent:
    """The start of a call, at 0 seconds, or its end, which has an outcome."""
    ended = notice if isinstance(notice, notices.CallSettled) else None
    return {
        **_of(told, "tool_progress"),
        "tool_use_id": notice.call,
        "tool_name": told.tool(notice),
        "elapsed_time_seconds": 0.0 if ended is None else ended.seconds,
        "outcome": None if ended is None else ended.outcome.value,
    }


# The whole run


def _result(notice: notices.RunEnded, told: RunView, named: str) -> JsonEvent:
    """The end, whose subtype is *named*."""
    spent, answer = notice.spent, told.last_answer
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
