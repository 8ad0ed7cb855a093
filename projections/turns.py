"""
The `turns` events, from which a terminal or a chat window draws an agent, turn by turn.

`agent_start` is the first event of a run and `agent_end` or `agent_abort` the last. `turn_end` comes after an
answer that has calls, and before they run; the last answer has none, and its run's end in its place. The
events of a child stand inside a `sub_agent_event`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from ..effects.messages import Binary, Message, Outcome, Reasoning, Role, ToolCall, ToolResult
from ..effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    FallbackUsed,
    InputBlocked,
    InputReceived,
    InputTaken,
    LoopDetected,
    LoopStage,
    Notice,
    ReasoningDelta,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingRefused,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from .json_events import ERROR_ENDS, WANTED_ENDS, JsonEvent, shown
from .run_view import Projection, RunView, compaction_cut, compaction_events

if TYPE_CHECKING:
    from collections.abc import Iterator

UNRUN = frozenset({Outcome.SKIPPED, Outcome.DENIED, Outcome.CANCELLED, Outcome.ERROR})
"""Outcomes that a call can have without having been started."""

OWN = frozenset({"agent_start", "agent_end", "agent_abort", "message_queued", "message_applied"})
"""The events of a child that are not passed on: its call has a start and an end."""


@final
class TurnEvents(Projection):
    """The `turns` events of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent | None] = {"type": "agent_start"}

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice*."""
        return _say(before, notice, after)


def _say(before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
    match notice:
        case RunStarted():
            yield {
                "type": "agent_start",
                "session_id": after.session,
                "run_id": notice.run,
                "model": notice.model,
                "tools": list(notice.tools),
            }
        case TextDelta() | ReasoningDelta():
            yield from _delta(before, notice, after)
        case AnswerDropped():
            yield {"type": "message_dropped", "characters": before.answer.characters}
        case TurnEnded(calls=calls):
            if calls:
                yield _turn_end(after)
        case ToolStarted() | AgentStarted() | ToolOutput() | CallSettled():
            yield from _called(notice, after)
        case AgentNoticed():
            yield from _of_child(before, notice, after)
        case CompactionStarted() | Compacted() | CompactionFailed():
            reason = notice.reason if isinstance(notice, CompactionFailed) else ""
            yield from compaction_events(before, notice, "tokens", _error(reason, fatal=False))
        case RunEnded():
            yield from _ended(before, notice, after)
        case _:
            yield from _besides(notice)


# Answers


def _delta(before: RunView, notice: TextDelta | ReasoningDelta, after: RunView) -> Iterator[JsonEvent]:
    """A piece of an answer, behind the start of its block of text or thought."""
    kind = "message" if isinstance(notice, TextDelta) else "thinking"
    if after.answer.blocks > before.answer.blocks:
        yield {"type": f"{kind}_start"}
    yield {"type": f"{kind}_delta", "delta": notice.text}


def _turn_end(told: RunView) -> JsonEvent:
    """An answer with calls; *tool_results* are none yet."""
    answer = told.last_answer
    message = None if answer is None else next(_messages(answer))
    return {"type": "turn_end", "message": message, "tool_results": []}


def _messages(message: Message) -> Iterator[JsonEvent]:
    """*message*; a message of results becomes one for each result."""
    if message.role is Role.TOOL:
        yield from (_tool_result(result) for result in message.results)
        return
    said: JsonEvent = {"role": message.role.value, "content": message.text}
    if message.role is Role.ASSISTANT:
        thoughts = [part.text for part in message.parts if isinstance(part, Reasoning)]
        said |= {"thinking": "".join(thoughts), "tool_calls": [_tool_call(call) for call in message.calls]}
    files = [part for part in message.parts if isinstance(part, Binary)]
    if files:
        said["files"] = [{"name": file.name, "media_type": file.media_type} for file in files]
    yield said


def _tool_call(call: ToolCall) -> JsonEvent:
    return {"call_id": call.id, "tool": call.name, "arguments": shown(call.arguments)}


def _tool_result(result: ToolResult) -> JsonEvent:
    return {
        "role": "tool_result",
        "call_id": result.call,
        "tool": result.name,
        "content": result.content,
        "is_error": result.is_error,
    }


# Calls


def _called(
    notice: ToolStarted | AgentStarted | ToolOutput | CallSettled, told: RunView
) -> Iterator[JsonEvent]:
    of: JsonEvent = {"call_id": notice.call, "tool": told.tool(notice)}
    match notice:
        case ToolStarted(arguments=arguments):
            yield {"type": "tool_execution_start", **of, "arguments": shown(arguments)}
        case AgentStarted(agent=agent, prompt=prompt):
            task: JsonEvent = {"agent": agent, "prompt": prompt}
            yield {"type": "tool_execution_start", **of, "arguments": task}
            yield {"type": "sub_agent_start", "call_id": notice.call, **task}
        case ToolOutput(text=text):
            yield {"type": "tool_output", **of, "output": text}
        case CallSettled(outcome=outcome, content=content):
            of |= {"outcome": outcome.value}
            if _never_ran(notice, told):
                yield {"type": "tool_skipped", **of, "reason": content}
            else:
                end: JsonEvent = {"is_error": outcome is not Outcome.OK, "seconds": notice.seconds}
                yield {"type": "tool_execution_end", **of, **end, "result": content}


def _never_ran(notice: CallSettled, told: RunView) -> bool:
    """Whether the call of *notice* ended without a start, although its answer was seen."""
    batch = told.batch
    return notice.call in batch.calls and notice.call not in batch.started and notice.outcome in UNRUN


def _of_child(before: RunView, notice: AgentNoticed, after: RunView) -> Iterator[JsonEvent]:
    call, agent = notice.call, after.batch.agents.get(notice.call, "")
    for event in _say(before.child(call), notice.notice, after.child(call)):
        if event["type"] not in OWN:
            yield {"type": "sub_agent_event", "call_id": call, "agent": agent, "event": event}


# The whole run


def _ended(before: RunView, notice: RunEnded, after: RunView) -> Iterator[JsonEvent]:
    reason, spent, usage = notice.reason, notice.spent, notice.spent.usage
    yield from compaction_cut(before, reason.value)
    if reason in ERROR_ENDS:
        yield _error(notice.detail or reason.value, fatal=True)
    yield {
        "type": "agent_abort" if reason in WANTED_ENDS else "agent_end",
        "reason": reason.value,
        "messages": [plain for message in after.messages for plain in _messages(message)],
        "usage": {
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_write,
            "reasoning_tokens": usage.reasoning,
            "total_tokens": usage.total,
        },
        "turns": spent.turns,
        "cost_usd": float(spent.cost),
        "unpriced_tokens": spent.unpriced,
    }


def _besides(notice: Notice) -> Iterator[JsonEvent]:
    """Inputs, refusals and other faults."""
    match notice:
        case InputReceived(id=sender):
            yield {"type": "message_queued", "id": sender}
        case InputTaken(ids=ids, messages=messages):
            applied = [plain for message in messages for plain in _messages(message)]
            yield {"type": "message_applied", "ids": list(ids), "messages": applied}
        case InputBlocked(reason=reason, ids=ids):
            yield _error(reason, fatal=False) | {"ids": list(ids)}
        case SettingRefused(reason=reason):
            yield _error(reason, fatal=False)
        case FallbackUsed(model=model, instead_of=other, message=message):
            why = f"{notice.failure.value}: {message}"
            yield _error(f"{model} is asked instead of {other}: {why}", fatal=False)
        case LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN, text=text):
            yield _error(text, fatal=False)  # a stop shows in the error that ends the run
        case RetryScheduled(attempt=attempt, due=due, message=message):
            why = f"{notice.failure.value}: {message}"
            yield {"type": "retry", "attempt": attempt, "due": due, "reason": why}
        case _:
            pass


def _error(message: str, *, fatal: bool) -> JsonEvent:
    """An error; after a *fatal* one the run ends."""
    return {"type": "error", "message": message, "fatal": fatal}
