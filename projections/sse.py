"""
The `sse` events: what a web client is sent, one frame each (`to_sse`).

`init` is the first event of a run and `done`, which always has the usage, the last. Secrets in arguments are
left out and long results cut short, since this goes over a network to somebody's screen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

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
from .json_events import BROKEN, WORDS, Events, Plain, redacted
from .run_view import RunView, tell

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 50_000
"""Characters of a result that are sent."""


@final
class SseEvents:
    """The `sse` events of one session: feed `take` its notices, in order."""

    def __init__(self, told: RunView) -> None:
        self.told = told

    @classmethod
    def of(cls, session: str) -> SseEvents:
        """Events of *session*."""
        return cls(RunView(session=session))

    def take(self, notice: Notice) -> Events:
        """The events that *notice* is."""
        self.told, events = project(self.told, notice)
        return events


def project(told: RunView, notice: Notice) -> tuple[RunView, Events]:
    """What has been *told* with *notice*, and the events that it is."""
    return tell(told, notice, _say, ({"type": "init", "session_id": told.session},))


def _say(before: RunView, notice: Notice, after: RunView) -> Iterator[Plain]:
    match notice:
        case RunStarted():
            yield _init(notice, after)
        case TextDelta(text):
            yield {"type": "text_delta", "content": text}
        case ToolStarted() | AgentStarted() | ToolOutput() | CallSettled():
            yield _called(notice, after)
        case ApprovalRequested():
            yield _question(notice)
        case ApprovalResolved(decision=Approve() | ApproveAlways(), request=request):
            # A no is told by the result of its call.
            yield {
                "type": "approved",
                "resource_type": "tool_call",
                "preview_id": before.batch.asked.get(request, ""),
            }
        case AgentNoticed():
            yield from _of_child(notice, after)
        case CompactionStarted() | Compacted() | CompactionFailed():
            yield from _compacted(before, notice)
        case RunEnded():
            yield from _ended(before, notice)
        case _:
            yield from _warned(before, notice)


def _init(notice: RunStarted, told: RunView) -> Plain:
    return {
        "type": "init",
        "session_id": told.session,
        "run_id": notice.run,
        "model": notice.model,
        "timestamp": notice.at,
    }


# Calls


def _called(notice: ToolStarted | AgentStarted | ToolOutput | CallSettled, told: RunView) -> Plain:
    of: Plain = {"tool_id": notice.call, "tool_name": told.tool(notice)}
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


def _result(notice: CallSettled) -> Plain:
    fine = notice.outcome is Outcome.OK
    return {
        "status": "success" if fine else "error",
        "outcome": notice.outcome.value,
        "result" if fine else "error": _cut(notice.content),
        "duration_ms": round(notice.seconds * 1000),
    }


def _cut(text: str) -> str:
    left = len(text) - LONGEST
    return text if left <= 0 else f"{text[:LONGEST]}\n[{left} more characters]"


def _question(notice: ApprovalRequested) -> Plain:
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


def _of_child(notice: AgentNoticed, told: RunView) -> Iterator[Plain]:
    """What is passed on of a child: what it says, its tools, and how it ended."""
    agent = told.batch.agents.get(notice.call, "")
    of: Plain = {"type": "subagent_event", "parent_tool_id": notice.call, "agent_name": agent}
    for said in _child_said(notice.notice):
        yield of | said


def _child_said(notice: Notice) -> Iterator[Plain]:
    match notice:
        case TextDelta(text):
            yield {"event_type": "thought", "content": text}
        case ToolStarted(call=call, tool=tool, arguments=arguments):
            of: Plain = {"tool_id": call, "tool_name": tool}
            yield {"event_type": "tool_call_start", **of, "parameters": redacted(arguments)}
        case CallSettled(call=call, tool=tool):
            of = {"tool_id": call, "tool_name": tool}
            yield {"event_type": "tool_call_end", **of, **_result(notice)}
        case RunEnded(reason=reason) if reason in BROKEN:
            yield {"event_type": "error", "message": notice.detail or reason.value}
        case RunEnded(reason=reason):
            yield {"event_type": "complete", "reason": WORDS[reason].done}
        case _:
            pass


# The whole run


def _compacted(before: RunView, notice: CompactionStarted | Compacted | CompactionFailed) -> Iterator[Plain]:
    """Starts and ends come in pairs: one that is begun anew goes on, one that never began had no end."""
    match notice:
        case CompactionStarted(size=size, reason=reason):
            if before.compacting is None:
                yield {"type": "compaction_start", "estimated_tokens": size, "reason": reason}
        case Compacted():
            yield _compaction_end(notice.before, notice.after)
        case CompactionFailed(reason=reason):
            if before.compacting is None:
                yield _warning("compaction_failed", reason)
            else:
                yield _compaction_end(before.compacting, before.compacting, reason)


def _compaction_end(before: int, after: int, error: str | None = None) -> Plain:
    return {"type": "compaction_end", "tokens_before": before, "tokens_after": after, "error": error}


def _ended(before: RunView, notice: RunEnded) -> Iterator[Plain]:
    reason, spent = notice.reason, notice.spent
    words, usage = WORDS[reason], spent.usage
    if before.compacting is not None:
        yield _compaction_end(before.compacting, before.compacting, reason.value)
    if reason in BROKEN:
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


def _warned(before: RunView, notice: Notice) -> Iterator[Plain]:
    """What a client should know and the run goes on after; *code* is for programs."""
    match notice:
        case Warned(text=text):
            yield _warning("warned", text)
        case AnswerDropped():
            void: Plain = {"characters": before.answer.characters}
            yield _warning("answer_dropped", "the last text is void") | void
        case RetryScheduled(message=message, attempt=attempt, due=due):
            retry: Plain = {"attempt": attempt, "due": due}
            yield _warning("retry", f"{notice.failure.value}: {message}") | retry
        case RequestDelayed(reason=reason, due=due):
            yield _warning("held", reason) | {"due": due}
        case FallbackUsed(message=message):
            models: Plain = {"model": notice.model, "instead_of": notice.instead_of}
            yield _warning("fell_back", f"{notice.failure.value}: {message}") | models
        case LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN, text=text):
            # One that was stopped is told by the error that ends the run.
            what: Plain = {"stage": notice.stage.value, "tools": list(notice.tools), "count": notice.count}
            yield _warning("loop_detected", text) | what
        case SettingRefused(reason=reason):
            yield _warning("setting_refused", reason)
        case InputBlocked(reason=reason, ids=ids):
            yield _warning("input_blocked", reason) | {"ids": list(ids)}
        case _:
            pass


def _warning(code: str, message: str) -> Plain:
    return {"type": "warning", "code": code, "message": message}
