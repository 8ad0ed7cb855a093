"""
The `turns` events, from which a terminal or a chat window draws an agent, turn by turn.

`agent_start` is the first event of a run and `agent_end` or `agent_abort` the last. `turn_end` comes after an
answer that has calls, and before they run; the last answer has none, and its run's end in its place. The
events of a child stand inside a `sub_agent_event`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, final

from ..effects import notices
from ..effects.history import History
from ..effects.messages import Binary, Message, Outcome, Reasoning, Role, ToolResult
from ..effects.notices import LoopStage, Notice, ReasoningDelta, TextDelta
from .json_events import ERROR_ENDS, WANTED_ENDS, JsonEvent, shown
from .run_view import CallNotice, Projection, RunView, compaction_events

# Outcomes that a call can have without having been started.
UNRUN = frozenset({Outcome.SKIPPED, Outcome.DENIED, Outcome.CANCELLED, Outcome.ERROR})

# The events of a child that are not passed on: its call has a start and an end.
OWN = frozenset({"agent_start", "agent_end", "agent_abort", "message_queued", "message_applied"})


@final
class TurnEvents(Projection):
    """The `turns` events of one session: feed `take` its notices, in order."""

    opening: ClassVar[JsonEvent] = {"type": "agent_start"}

    @classmethod
    def of(cls, session: str, history: Iterable[Message] = ()) -> TurnEvents:
        """
        Events of *session*; the end of a run tells the whole conversation.

        That is *history*, such as `Session.history`, and the messages of the runs from here on.
        """
        return cls(RunView(session=session, earlier=History.of(*history)))

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice*."""
        match notice:
            case TextDelta(text=delta) | ReasoningDelta(text=delta):
                # A piece of an answer stands behind the start of its block of text or thought.
                kind = "message" if isinstance(notice, TextDelta) else "thinking"
                if after.answer.blocks > before.answer.blocks:
                    yield {"type": f"{kind}_start"}
                yield {"type": f"{kind}_delta", "delta": delta}
            case notices.AnswerDropped():
                yield _dropped(before)
            case notices.RunStarted(run=run, model=model, tools=tools):
                yield {**self.start(after), "run_id": run, "model": model, "tools": list(tools)}
            case notices.TurnEnded(message=message) | notices.AnswerKept(message=message):
                yield from _answered(before, message)
            case _ if isinstance(notice, CallNotice):
                yield from _called(notice, after)
            case notices.AgentNoticed(call=call, notice=inner):
                agent = after.batch.started.get(call, "")
                of: JsonEvent = {"type": "sub_agent_event", "call_id": call, "agent": agent}
                events = self.events(before.child(call), inner, after.child(call))
                yield from (of | {"event": event} for event in events if event["type"] not in OWN)
            case _:
                yield from compaction_events(before, notice, "tokens")
                yield from _besides(before, notice, after)


# Answers


def _answered(before: RunView, message: Message) -> Iterator[JsonEvent]:
    """The whole text of *message* in the place of what came of it, where some was missed; and its calls."""
    if before.answer.lacks(message):
        if before.answer.characters:
            yield _dropped(before)
        yield {"type": "message_start"}
        yield {"type": "message_delta", "delta": message.text}
    if message.calls:
        [told] = _messages([message])
        yield {"type": "turn_end", "message": told, "tool_results": []}


def _dropped(before: RunView) -> JsonEvent:
    return {"type": "message_dropped", "characters": before.answer.characters}


def _messages(messages: Iterable[Message]) -> Iterator[JsonEvent]:
    """*messages*; one of results becomes one for each result."""
    for message in messages:
        if message.role is Role.TOOL:
            yield from map(_tool_result, message.results)
            continue
        said: JsonEvent = {"role": message.role.value, "content": message.text}
        if message.role is Role.ASSISTANT:
            said["thinking"] = "".join(part.text for part in message.parts if isinstance(part, Reasoning))
            said["tool_calls"] = [
                {"call_id": call.id, "tool": call.name, "arguments": shown(call.arguments)}
                for call in message.calls
            ]
        files = [part for part in message.parts if isinstance(part, Binary)]
        if files:
            said["files"] = [{"name": file.name, "media_type": file.media_type} for file in files]
        yield said


def _tool_result(result: ToolResult) -> JsonEvent:
    return {
        "role": "tool_result",
        "call_id": result.call,
        "tool": result.name,
        "content": result.content,
        "is_error": result.is_error,
    }


# Calls


def _called(notice: CallNotice, told: RunView) -> Iterator[JsonEvent]:
    call, batch = notice.call, told.batch
    of: JsonEvent = {"call_id": call, "tool": told.tool(notice)}
    match notice:
        case notices.ToolStarted(arguments=arguments):
            yield {"type": "tool_execution_start", **of, "arguments": shown(arguments)}
        case notices.AgentStarted(agent=agent, prompt=prompt):
            task: JsonEvent = {"agent": agent, "prompt": prompt}
            yield {"type": "tool_execution_start", **of, "arguments": task}
            yield {"type": "sub_agent_start", "call_id": call, **task}
        case notices.ToolOutput(text=text):
            yield {"type": "tool_output", **of, "output": text}
        case notices.CallSettled(outcome=outcome, content=content):
            of["outcome"] = outcome.value
            # A call whose answer was not seen may have been started unseen, too.
            if call in batch.calls and call not in batch.started and outcome in UNRUN:
                yield {"type": "tool_skipped", **of, "reason": content}
            else:
                end: JsonEvent = {"is_error": outcome is not Outcome.OK, "seconds": notice.seconds}
                yield {"type": "tool_execution_end", **of, **end, "result": content}


# The run besides its answers and calls


def _besides(before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
    """Inputs, refusals and other faults, and the end."""
    match notice:
        case notices.RunEnded():
            yield from _ended(notice, after)
        case notices.InputReceived(id=sender):
            yield {"type": "message_queued", "id": sender}
        case notices.InputTaken(ids=ids, messages=messages):
            yield {"type": "message_applied", "ids": list(ids), "messages": [*_messages(messages)]}
        case notices.InputBlocked(reason=reason, ids=ids):
            yield {**_error(reason), "ids": list(ids)}
        case notices.InputDropped(id=sender):
            yield {"type": "message_withdrawn", "id": sender}
        case notices.SettingRefused(reason=reason):
            yield _error(reason)
        case notices.NoticesMissed(count=count):
            yield _error(f"{count} notices were missed")
        case notices.CompactionFailed(reason=reason) if before.compacting is None:
            yield _error(reason)
        case _:
            yield from _tried(notice)


def _tried(notice: Notice) -> Iterator[JsonEvent]:
    """Models that failed, or repeat themselves."""
    match notice:
        case notices.FallbackUsed(model=model, instead_of=other, failure=failure, message=message):
            yield _error(f"{model} is asked instead of {other}: {failure.value}: {message}")
        case notices.LoopDetected(stage=LoopStage.WARNED | LoopStage.WITHDRAWN, text=text):
            yield _error(text)  # a stop shows in the error that ends the run
        case notices.RetryScheduled(attempt=attempt, due=due, failure=failure, message=message):
            why = f"{failure.value}: {message}"
            yield {"type": "retry", "attempt": attempt, "due": due, "reason": why}
        case _:
            pass


def _error(message: str, *, fatal: bool = False) -> JsonEvent:
    """An error; after a *fatal* one the run ends."""
    return {"type": "error", "message": message, "fatal": fatal}


def _ended(notice: notices.RunEnded, told: RunView) -> Iterator[JsonEvent]:
    reason, spent, usage = notice.reason, notice.spent, notice.spent.usage
    if reason in ERROR_ENDS:
        yield _error(notice.detail or reason.value, fatal=True)
    yield {
        "type": "agent_abort" if reason in WANTED_ENDS else "agent_end",
        "reason": reason.value,
        "messages": [*_messages([*(told.earlier or ()), *told.messages])],
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
