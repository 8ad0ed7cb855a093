"""
The `sse` events, for a web client: one frame each, by `to_sse`.

`init` is the first event of a run and `done`, which always has the usage, the last. Secrets in arguments are
left out and long results are cut, since these events go over a network to a screen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, final

from ..effects import notices
from ..effects.events import Approve, ApproveAlways
from ..effects.messages import Message, Outcome
from ..effects.notices import CallDelta, LoopStage, Notice, TextDelta
from .json_events import ERROR_ENDS, REASON_WORDS, JsonEvent, plain, shown
from .run_view import CallNotice, Projection, RunView, compaction_events

# Characters of a result that are sent.
MAX_RESULT_SENT = 50_000


@final
class SseEvents(Projection):
    """The `sse` events of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent] = {"type": "init"}

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice*."""
        match notice:
            case TextDelta() | CallDelta():
                yield _delta(notice, after)
            case notices.RunStarted(run=run, model=model, at=at):
                yield {**self.start(after), "run_id": run, "model": model, "timestamp": at}
            case _ if isinstance(notice, CallNotice):
                yield _called(notice, after)
            case notices.ApprovalRequested():
                yield _question(notice)
            case notices.ApprovalResolved(decision=Approve() | ApproveAlways(), request=request):
                # A no shows in the result of its call.
                call = before.batch.asked.get(request, "")
                yield {"type": "approved", "resource_type": "tool_call", "preview_id": call}
            case notices.AgentNoticed():
                yield from _of_child(notice, after)
            case notices.OutputDelta():
                yield output_event(notice)
            case notices.AnswerDropped():
                yield _dropped(before)
            case notices.TurnEnded(message=message) | notices.AnswerKept(message=message):
                yield from _answered(before, message)
            case _:
                yield from compaction_events(before, notice, "estimated_tokens")
                yield from _ended(before, notice)


def _delta(notice: TextDelta | CallDelta, told: RunView) -> JsonEvent:
    if isinstance(notice, TextDelta):
        return {"type": "text_delta", "content": notice.text}
    # How much, not what: a secret in a fragment cannot be told from other text.
    of: JsonEvent = {"index": notice.index, "tool_name": told.answer.calls[notice.index].tool}
    return {"type": "tool_call_delta", **of, "characters": len(notice.arguments)}


def output_event(notice: notices.OutputDelta) -> JsonEvent:
    """The output as far as it is written."""
    return {"type": "output_delta", "partial": plain(notice.partial, hide=True)}


# Calls


def _called(notice: CallNotice, told: RunView) -> JsonEvent:
    of: JsonEvent = {"tool_id": notice.call, "tool_name": told.tool(notice)}
    match notice:
        case notices.ToolStarted(arguments=arguments):
            return {"type": "tool_call_start", **of, "parameters": shown(arguments, hide=True)}
        case notices.AgentStarted(agent=agent, prompt=prompt):
            task = {"agent_name": agent, "prompt": prompt}
            return {"type": "tool_call_start", **of, "parameters": task}
        case notices.ToolOutput(text=text):
            return {"type": "tool_log", **of, "message": text}
        case notices.CallSettled(outcome=outcome):
            fine = outcome is Outcome.OK
            return {
                "type": "tool_call_result",
                **of,
                "status": "success" if fine else "error",
                "outcome": outcome.value,
                "result" if fine else "error": _cut(notice.content),
                "duration_ms": round(notice.seconds * 1000),
            }


def _cut(text: str) -> str:
    left = len(text) - MAX_RESULT_SENT
    return text if left <= 0 else f"{text[:MAX_RESULT_SENT]}\n[{left} more characters]"


def _question(notice: notices.ApprovalRequested) -> JsonEvent:
    """A question; its answer has to name the *correlationId*."""
    return {
        "type": "confirmation_required",
        "endpoint": notice.tool,
        "method": "EXECUTE",
        "reason": notice.why,
        "escalated": False,
        "correlationId": notice.request,
        "tool_id": notice.call,
        "params": shown(notice.arguments, hide=True),
        "due": notice.due,
    }


def _of_child(notice: notices.AgentNoticed, told: RunView) -> Iterator[JsonEvent]:
    """The events of a child that are passed on: its text, its tools and its end."""
    agent = told.batch.started.get(notice.call, "")
    of: JsonEvent = {"type": "subagent_event", "parent_tool_id": notice.call, "agent_name": agent}
    match notice.notice:
        case TextDelta(text):
            yield of | {"event_type": "thought", "content": text}
        case notices.ToolStarted() as started:
            yield of | {"event_type": "tool_call_start"} | _called(started, told) | of
        case notices.CallSettled() as settled:
            yield of | {"event_type": "tool_call_end"} | _called(settled, told) | of
        case notices.RunEnded(reason=reason, detail=detail) if reason in ERROR_ENDS:
            yield of | {"event_type": "error", "message": detail or reason.value}
        case notices.RunEnded(reason=reason):
            yield of | {"event_type": "complete", "reason": REASON_WORDS[reason].done}
        case _:
            pass


# The whole run


def _ended(before: RunView, notice: Notice) -> Iterator[JsonEvent]:
    if not isinstance(notice, notices.RunEnded):
        yield from warnings_of(before, notice)
        return
    reason, spent, usage = notice.reason, notice.spent, notice.spent.usage
    if reason in ERROR_ENDS:
        yield {"type": "error", "message": notice.detail or reason.value}
    yield {
        "type": "done",
        "run_id": notice.run,
        "reason": REASON_WORDS[reason].done,
        "exit_reason": REASON_WORDS[reason].exit,
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


def warnings_of(before: RunView, notice: Notice) -> Iterator[JsonEvent]:
    """What *notice* warns of; the run continues."""
    match notice:
        case notices.Warned(text=text):
            yield _warning("warned", text)
        case notices.RunLeft(run=run, why=why, detail=detail):
            yield _warning("left", detail or f"the run was left ({why})", run_id=run, why=why.value)
        case notices.NoticesMissed(count=count):
            yield _warning("missed", f"{count} notices were missed", notices=count)
        case notices.LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN as stage, text=text):
            # A stop shows in the error that ends the run.
            more: JsonEvent = {"stage": stage.value, "tools": list(notice.tools), "count": notice.count}
            yield _warning("loop_detected", text, **more)
        case notices.SettingRefused(reason=reason):
            yield _warning("setting_refused", reason)
        case notices.InputBlocked(reason=reason, ids=ids):
            yield _warning("input_blocked", reason, ids=list(ids))
        case notices.CompactionFailed(reason=reason) if before.compacting is None:
            yield _warning("compaction_failed", reason)
        case _:
            yield from _tried(notice)


def _tried(notice: Notice) -> Iterator[JsonEvent]:
    """Warnings about requests to models that failed or have to wait."""
    match notice:
        case notices.RetryScheduled(failure=failure, message=message, attempt=attempt, due=due):
            yield _warning("retry", f"{failure.value}: {message}", attempt=attempt, due=due)
        case notices.RequestDelayed(reason=reason, due=due):
            yield _warning("held", reason, due=due)
        case notices.FallbackUsed(failure=failure, message=message, model=model, instead_of=other):
            yield _warning("fell_back", f"{failure.value}: {message}", model=model, instead_of=other)
        case _:
            pass


def _answered(before: RunView, message: Message) -> Iterator[JsonEvent]:
    """The whole text of *message* in the place of what came of it, where some was missed."""
    if before.answer.lacks(message):
        if before.answer.characters:
            yield _dropped(before)
        yield {"type": "text_delta", "content": message.text}


def _dropped(before: RunView) -> JsonEvent:
    return _warning("answer_dropped", "the last text is void", characters=before.answer.characters)


def _warning(code: str, message: str, **more: object) -> JsonEvent:
    """A warning; its *code* is for programs."""
    return {"type": "warning", "code": code, "message": message, **more}
