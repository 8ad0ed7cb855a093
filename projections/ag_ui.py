"""
The events of AG-UI 1.0, for front ends that speak this protocol.

Each run is one of theirs, too; where only people can make it go on, theirs ends with the open questions as
interrupts, and what follows the answers is a run that resumes. Each begins with a snapshot of the messages,
so a client that comes late or comes back has the same as all others. Arguments are sent as the model wrote
them, since a person has to see what is to be approved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import ClassVar, final

from ..effects import notices
from ..effects.messages import Message, Outcome, Reasoning, Role, ToolCall
from ..effects.notices import Notice
from ..effects.usage import Spent
from .json_events import ERROR_ENDS, WANTED_ENDS, JsonEvent
from .run_view import RunView
from .streamed import (
    Block,
    OpenQuestions,
    StreamedProjection,
    agents_at_work,
    call_name,
)

AG_UI_VERSION = "1.0"

# What an answer to an interrupt looks like.
ANSWER = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "always": {"type": "boolean"},
        "arguments": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}


@final
class AgUiEvents(StreamedProjection):
    """The `ag-ui` events of one session: feed `take` its notices, in order."""

    begins: ClassVar[str] = "RUN_STARTED"
    ends: ClassVar[frozenset[str]] = frozenset({"RUN_FINISHED", "RUN_ERROR"})

    def run_started(self, told: RunView) -> Iterator[JsonEvent]:
        """A run begins, or goes on after people were asked; or its beginning was not seen."""
        yield {"type": "RUN_STARTED", **_run(told), "protocolVersion": AG_UI_VERSION}
        # Also where there is none: what the client has is its own, until it comes back as an input.
        yield from self.taken_back(told)
        for call, agent in agents_at_work(told).items():
            yield _agent_started(told, call, agent)

    def run_rests(self, told: RunView, questions: OpenQuestions) -> Iterator[JsonEvent]:
        """Without answers to *questions* nothing goes on."""
        for call in agents_at_work(told):
            asked = [question.request for child, question in questions if child == call]
            outcome: JsonEvent = {"type": "suspended", "interruptIds": asked}
            yield {"type": "SUBAGENT_FINISHED", "subagentRunId": call, "outcome": outcome}
        interrupts = [_interrupt(told, child, question) for child, question in questions]
        yield _finished(told, {"type": "interrupt", "interrupts": interrupts})

    def run_left(self, told: RunView) -> Iterator[JsonEvent]:
        """Another run begins, and the end of this one was not seen."""
        del told
        yield {"type": "RUN_ERROR", "message": "the end of this run was not seen", "code": "left"}

    def run_ended(self, told: RunView, ended: notices.RunEnded) -> Iterator[JsonEvent]:
        """The run is over."""
        reason, usage = ended.reason, _usage(told, ended.spent)
        if reason in ERROR_ENDS:
            yield {
                "type": "RUN_ERROR",
                "message": ended.detail or reason.value,
                "code": reason.value,
                "usage": usage,
            }
            return
        outcome: JsonEvent = {"type": "cancelled" if reason in WANTED_ENDS else "success"}
        result: JsonEvent = {
            "reason": reason.value,
            "turns": ended.spent.turns,
            "costUsd": float(ended.spent.cost),
            "unpricedTokens": ended.spent.unpriced,
        }
        yield {**_finished(told, outcome), "result": result, "usage": usage}

    def inputs(self, first: int, taken: notices.InputTaken) -> Iterator[JsonEvent]:
        """Inputs became messages, of which the *first* is at that place."""
        for number, message in enumerate(taken.messages, first):
            of: JsonEvent = {"messageId": f"m{number}"}
            yield {"type": "TEXT_MESSAGE_START", **of, "role": "user"}
            yield {"type": "TEXT_MESSAGE_CONTENT", **of, "delta": message.text}
            yield {"type": "TEXT_MESSAGE_END", **of}

    # Answers

    def answer_begun(self, answer: str) -> Iterator[JsonEvent]:
        """An answer begins."""
        yield {"type": "STEP_STARTED", "stepName": answer}

    def answer_ended(self, answer: str) -> Iterator[JsonEvent]:
        """An answer is complete, or broke off."""
        yield {"type": "STEP_FINISHED", "stepName": answer}

    def taken_back(self, told: RunView) -> Iterator[JsonEvent]:
        """What was seen of the answer under way is void."""
        yield {"type": "MESSAGES_SNAPSHOT", "messages": [*_messages(told)]}

    def block_begun(self, block: Block) -> Iterator[JsonEvent]:
        """A block begins. All text of an answer is one message."""
        if block.thought:
            yield {"type": "REASONING_START", "messageId": block.name}
            yield {"type": "REASONING_MESSAGE_START", "messageId": block.name, "role": "reasoning"}
        else:
            yield {"type": "TEXT_MESSAGE_START", "messageId": block.answer, "role": "assistant"}

    def block_grown(self, block: Block, text: str) -> JsonEvent:
        """A bit of a block."""
        if block.thought:
            return {"type": "REASONING_MESSAGE_CONTENT", "messageId": block.name, "delta": text}
        return {"type": "TEXT_MESSAGE_CONTENT", "messageId": block.answer, "delta": text}

    def block_ended(self, block: Block) -> Iterator[JsonEvent]:
        """A block is complete, or broke off."""
        if block.thought:
            yield {"type": "REASONING_MESSAGE_END", "messageId": block.name}
            yield {"type": "REASONING_END", "messageId": block.name}
        else:
            yield {"type": "TEXT_MESSAGE_END", "messageId": block.answer}

    # Calls

    def call_begun(self, name: str, tool: str, answer: str) -> JsonEvent:
        """A call of *answer* begins; *answer* is empty if it was not seen."""
        parent: JsonEvent = {"parentMessageId": answer} if answer else {}
        return {"type": "TOOL_CALL_START", "toolCallId": name, "toolCallName": tool, **parent}

    def call_grown(self, name: str, arguments: str) -> JsonEvent:
        """A bit of the arguments of a call."""
        return {"type": "TOOL_CALL_ARGS", "toolCallId": name, "delta": arguments}

    def call_cut(self, name: str) -> Iterator[JsonEvent]:
        """A call broke off."""
        yield {"type": "TOOL_CALL_END", "toolCallId": name}

    def call_ended(self, name: str, call: ToolCall) -> Iterator[JsonEvent]:
        """A call is complete, but for its result."""
        yield {"type": "TOOL_CALL_END", "toolCallId": name, "metadata": {"turnwheel": {"call": call.id}}}

    def calls(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """What happens to calls once they are complete, and to children."""
        match notice:
            case notices.AgentStarted(call=call, agent=agent):
                if call not in agents_at_work(before):
                    yield _agent_started(after, call, agent)
            case notices.AgentNoticed(call=call, notice=inner):
                if call in agents_at_work(before):
                    yield from _of_child(before.child(call), inner, call)
            case notices.CallSettled(call=call):
                if call in agents_at_work(before):
                    yield _agent_ended(notice)
                name = call_name(before, call)
                yield {
                    "type": "TOOL_CALL_RESULT",
                    "messageId": f"{name}.result",
                    "toolCallId": name,
                    "content": notice.content,
                    "metadata": {"turnwheel": {"outcome": notice.outcome.value}},
                }
            case notices.ToolOutput(call=call, text=text):
                value: JsonEvent = {"toolCallId": call_name(before, call), "text": text}
                yield {"type": "CUSTOM", "name": "turnwheel.tool_output", "value": value}
            case _:
                pass

    def child_left(self, call: str) -> Iterator[JsonEvent]:
        """The end of the child that works on *call* was not seen."""
        yield {"type": "SUBAGENT_ERROR", "subagentRunId": call, "message": "its end was not seen"}

    def aside(self, event: JsonEvent) -> JsonEvent:
        """A compaction, a warning or an output under way, as `sse` has it."""
        return {
            "type": "CUSTOM",
            "name": f"turnwheel.{event['type']}",
            "value": {key: value for key, value in event.items() if key != "type"},
        }


# Runs


def _run(told: RunView) -> JsonEvent:
    """The session, and the run: each time it goes on after a rest it is another one."""
    run = told.run or told.session
    return {"threadId": told.session, "runId": f"{run}.{told.rests}" if told.rests else run}


def _finished(told: RunView, outcome: JsonEvent) -> JsonEvent:
    return {"type": "RUN_FINISHED", **_run(told), "outcome": outcome}


def _interrupt(told: RunView, child: str, question: notices.ApprovalRequested) -> JsonEvent:
    """A question; its answer has to name the *id*."""
    made: JsonEvent = {
        "id": question.request,
        "reason": "tool_approval",
        "message": question.why or f"May {question.tool} run?",
        "toolCallId": f"{child}/{question.call}" if child else call_name(told, question.call),
        "responseSchema": ANSWER,
        "metadata": {"turnwheel": {"tool": question.tool, "arguments": question.arguments}},
    }
    if child:
        made["subagentRunId"] = child
    if question.due is not None:
        made["expiresAt"] = datetime.fromtimestamp(question.due, UTC).isoformat()
    return made


def _usage(told: RunView, spent: Spent) -> list[JsonEvent]:
    answer, usage = told.last_answer, spent.usage
    model: JsonEvent = {"model": answer.model} if answer is not None and answer.model else {}
    return [
        {
            **model,
            "inputTokens": usage.input,
            "outputTokens": usage.output,
            "totalTokens": usage.total,
            "reasoningTokens": usage.reasoning,
            "cachedInputTokens": usage.cached,
            "cacheWriteInputTokens": usage.cache_write,
        }
    ]


# Children


def _agent_started(told: RunView, call: str, agent: str) -> JsonEvent:
    of: JsonEvent = {"subagentRunId": call, "name": agent}
    return {"type": "SUBAGENT_STARTED", **of, "parentToolCallId": call_name(told, call)}


def _agent_ended(settled: notices.CallSettled) -> JsonEvent:
    of: JsonEvent = {"subagentRunId": settled.call}
    if settled.outcome is Outcome.OK:
        return {"type": "SUBAGENT_FINISHED", **of, "outcome": {"type": "success"}}
    return {"type": "SUBAGENT_ERROR", **of, "message": settled.content, "code": settled.outcome.value}


def _of_child(told: RunView, notice: Notice, call: str) -> Iterator[JsonEvent]:
    """The answers, calls and results of a child, each as a whole; the children of it are not passed on."""
    of: JsonEvent = {"subagentRunId": call}
    match notice:
        case notices.TurnEnded(message=message, request=request):
            name: JsonEvent = {"messageId": f"{call}/{request}"}
            if message.text:
                yield {"type": "TEXT_MESSAGE_START", **name, "role": "assistant", **of}
                yield {"type": "TEXT_MESSAGE_CONTENT", **name, "delta": message.text, **of}
                yield {"type": "TEXT_MESSAGE_END", **name, **of}
            for each in notice.calls:
                wish: JsonEvent = {"toolCallId": f"{call}/{each.id}"}
                parent: JsonEvent = {"toolCallName": each.name, "parentMessageId": f"{call}/{request}"}
                yield {"type": "TOOL_CALL_START", **wish, **parent, **of}
                yield {"type": "TOOL_CALL_ARGS", **wish, "delta": each.arguments, **of}
                yield {"type": "TOOL_CALL_END", **wish, **of}
        case notices.CallSettled() if notice.call in told.batch.calls:
            wish = {"toolCallId": f"{call}/{notice.call}"}
            result: JsonEvent = {"messageId": f"{call}/{notice.call}.result", "content": notice.content}
            yield {"type": "TOOL_CALL_RESULT", **wish, **result, **of}
        case _:
            pass


# Messages


def _messages(told: RunView) -> Iterator[JsonEvent]:
    """All messages of the conversation so far, by the names they were streamed under."""
    last: tuple[str, Message] | None = None
    for number, message in enumerate((*(told.earlier or ()), *told.messages)):
        name = f"m{number}"
        match message.role:
            case Role.ASSISTANT:
                yield from _answer(name, message)
                last = name, message
            case Role.TOOL:
                yield from _results(last, message)
            case role:
                yield {"id": name, "role": role.value, "content": message.text}
    yield from _results(last, Message(role=Role.TOOL, parts=told.batch.results))


def _answer(name: str, message: Message) -> Iterator[JsonEvent]:
    for place, part in enumerate(message.parts):
        if isinstance(part, Reasoning) and part.text:
            yield {"id": f"{name}.thought{place}", "role": "reasoning", "content": part.text}
    calls = [
        {
            "id": f"{name}.{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for index, call in enumerate(message.calls)
    ]
    if message.text or calls:
        answer: JsonEvent = {"id": name, "role": "assistant", "content": message.text}
        yield {**answer, "toolCalls": calls} if calls else answer


def _results(answer: tuple[str, Message] | None, message: Message) -> Iterable[JsonEvent]:
    places = {} if answer is None else {call.id: f"{answer[0]}.{n}" for n, call in enumerate(answer[1].calls)}
    for result in message.results:
        name = places.get(result.call, result.call)
        made: JsonEvent = {"id": f"{name}.result", "role": "tool", "toolCallId": name}
        # A result without text is one all the same.
        yield {
            **made,
            "content": result.content,
            **({"error": result.outcome.value} if result.is_error else {}),
        }
