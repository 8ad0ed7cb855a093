"""
The `sse` events, for a web client: one frame each, by `to_sse`.

`init` is the first event of a run and `done`, which always has the usage, the last. Secrets in arguments are
left out and long results are cut, since these events go over a network to a screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from ..effects.events import Approve, ApproveAlways
from ..effects.messages import Outcome
from ..effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    ApprovalResolved,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    FallbackUsed,
    InputBlocked,
    LoopDetected,
    LoopStage,
    Notice,
    RequestDelayed,
    RetryScheduled,
    RunEnded,
    RunStarted,
    SettingRefused,
    TextDelta,
    ToolOutput,
    ToolStarted,
    Warned,
)
from .json_events import ERROR_ENDS, REASON_WORDS, JsonEvent, redacted
from .run_view import Projection, RunView, compaction_cut, compaction_events

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_RESULT_SENT = 50_000
"""Characters of a result that are sent."""


@final
class SseEvents(Projection):
    """The `sse` events of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent | None] = {"type": "init"}

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice*."""
        return _say(before, notice, after)


def _say(before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
    match notice:
        case RunStarted():
            yield {
                "type": "init",
                "session_id": after.session,
                "run_id": notice.run,
                "model": notice.model,
                "timestamp": notice.at,
            }
        case TextDelta(text):
            yield {"type": "text_delta", "content": text}
        case ToolStarted() | AgentStarted() | ToolOutput() | CallSettled():
            yield _called(notice, after)
        case ApprovalRequested():
            yield _question(notice)
        case ApprovalResolved(decision=Approve() | ApproveAlways(), request=request):
            # A no shows in the result of its call.
            yield {
                "type": "approved",
                "resource_type": "tool_call",
                "preview_id": before.batch.asked.get(request, ""),
            }
        case AgentNoticed():
            yield from _of_child(notice, after)
        case CompactionStarted() | Compacted() | CompactionFailed():
            reason = notice.reason if isinstance(notice, CompactionFailed) else ""
            yield from compaction_events(
                before, notice, "estimated_tokens", _warning("compaction_failed", reason)
            )
        case RunEnded():
            yield from _ended(before, notice)
        case _:
            yield from _warned(before, notice)


# Calls


def _called(notice: ToolStarted | AgentStarted | ToolOutput | CallSettled, told: RunView) -> JsonEvent:
    of: JsonEvent = {"tool_id": notice.call, "tool_name": told.tool(notice)}
    match notice:
        case ToolStarted(arguments=arguments):
            return {"type": "tool_call_start", **of, "parameters": redacted(arguments)}
        case AgentStarted(agent=agent, prompt=prompt):
            return {
                "type": "tool_call_start",
                **of,
                "parameters": {"agent_name": agent, "prompt": prompt},
            }
        case ToolOutput(text=text):
            return {"type": "tool_log", **of, "message": text}
        case CallSettled():
            return {"type": "tool_call_result", **of, **_result(notice)}


def _result(notice: CallSettled) -> JsonEvent:
    fine = notice.outcome is Outcome.OK
    return {
        "status": "success" if fine else "error",
        "outcome": notice.outcome.value,
        "result" if fine else "error": _cut(notice.content),
        "duration_ms": round(notice.seconds * 1000),
    }


def _cut(text: str) -> str:
    left = len(text) - MAX_RESULT_SENT
    return text if left <= 0 else f"{text[:MAX_RESULT_SENT]}\n[{left} more characters]"


def _question(notice: ApprovalRequested) -> JsonEvent:
    """A question; its answer has to name the *correlationId*."""
    return {
        "type": "confirmation_required",
        "endpoint": notice.tool,
        "method": "EXECUTE",
        "reason": notice.why,
        "escalated": False,
        "correlationId": notice.request,
        "tool_id": notice.call,
        "params": redacted(notice.arguments),
        "due": notice.due,
    }


# A child


def _of_child(notice: AgentNoticed, told: RunView) -> Iterator[JsonEvent]:
    """The events of a child that are passed on: its text, its tools and its end."""
    agent = told.batch.agents.get(notice.call, "")
    of: JsonEvent = {"type": "subagent_event", "parent_tool_id": notice.call, "agent_name": agent}
    for said in _child_said(notice.notice):
        yield of | said


def _child_said(notice: Notice) -> Iterator[JsonEvent]:
    match notice:
        case TextDelta(text):
            yield {"event_type": "thought", "content": text}
        case ToolStarted(call=call, tool=tool, arguments=arguments):
            of: JsonEvent = {"tool_id": call, "tool_name": tool}
            yield {"event_type": "tool_call_start", **of, "parameters": redacted(arguments)}
        case CallSettled(call=call, tool=tool):
            of = {"tool_id": call, "tool_name": tool}
            yield {"event_type": "tool_call_end", **of, **_result(notice)}
        case RunEnded(reason=reason) if reason in ERROR_ENDS:
            yield {"event_type": "error", "message": notice.detail or reason.value}
        case RunEnded(reason=reason):
            yield {"event_type": "complete", "reason": REASON_WORDS[reason].done}
        case _:
            pass


# The whole run


def _ended(before: RunView, notice: RunEnded) -> Iterator[JsonEvent]:
    reason, spent = notice.reason, notice.spent
    words, usage = REASON_WORDS[reason], spent.usage
    yield from compaction_cut(before, reason.value)
    if reason in ERROR_ENDS:
        yield {"type": "error", "message": notice.detail or reason.value}
    yield {
        "type": "done",
        "run_id": notice.run,
        "reason": words.done,
        "exit_reason": words.exit,
        "turns": spent.turns,
        "usage": {
            "input": usage.input,
            "output": usage.output,
            "cached": usage.cached,
            "cache_creation": usage.cache_write,
            "total": usage.total,
        },
        "cost_usd": float(spent.cost),
        "unpriced_tokens": spent.unpriced,
        "duration_ms": round(before.lasted(notice) * 1000),
    }


def _warned(before: RunView, notice: Notice) -> Iterator[JsonEvent]:
    """Warnings, after which the run continues; *code* is for programs."""
    match notice:
        case Warned(text=text):
            yield _warning("warned", text)
        case AnswerDropped():
            void: JsonEvent = {"characters": before.answer.characters}
            yield _warning("answer_dropped", "the last text is void") | void
        case RetryScheduled(message=message, attempt=attempt, due=due):
            retry: JsonEvent = {"attempt": attempt, "due": due}
            yield _warning("retry", f"{notice.failure.value}: {message}") | retry
        case RequestDelayed(reason=reason, due=due):
            yield _warning("held", reason) | {"due": due}
        case FallbackUsed(message=message):
            models: JsonEvent = {"model": notice.model, "instead_of": notice.instead_of}
            yield _warning("fell_back", f"{notice.failure.value}: {message}") | models
        case LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN, text=text):
            # A stop shows in the error that ends the run.
            what: JsonEvent = {
                "stage": notice.stage.value,
                "tools": list(notice.tools),
                "count": notice.count,
            }
            yield _warning("loop_detected", text) | what
        case SettingRefused(reason=reason):
            yield _warning("setting_refused", reason)
        case InputBlocked(reason=reason, ids=ids):
            yield _warning("input_blocked", reason) | {"ids": list(ids)}
        case _:
            pass


def _warning(code: str, message: str) -> JsonEvent:
    return {"type": "warning", "code": code, "message": message}
