"""
The chunks of the UI message stream of Vercel's AI SDK 7, for clients such as its `useChat`.

Each run is one message of the assistant, whose id is the run's, with a step for each answer. Where only
people can make it go on, the stream ends; what follows the answers continues the message. Arguments are sent
as the model wrote them, since a person has to see what is to be approved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, assert_never, final

from ..effects import notices
from ..effects.events import Approve, ApproveAlways, Deny
from ..effects.messages import Outcome, ToolCall
from ..effects.notices import DoneReason, Notice
from .json_events import ERROR_ENDS, WANTED_ENDS, JsonEvent, shown
from .run_view import RunView
from .streamed import Block, OpenQuestions, StreamedProjection, agents_at_work, call_name

# Why a message is complete; of an error it is told before.
FINISH_WORDS = {
    DoneReason.END_TURN: "stop",
    DoneReason.STOP_SEQUENCE: "stop",
    DoneReason.MAX_TOKENS: "length",
    DoneReason.REFUSAL: "content-filter",
}


@final
class UiMessageChunks(StreamedProjection):
    """The `ui-messages` chunks of one session: feed `take` its notices, in order."""

    begins: ClassVar[str] = "start"
    ends: ClassVar[frozenset[str]] = frozenset({"finish"})

    def run_started(self, told: RunView) -> Iterator[JsonEvent]:
        """A run begins, or goes on after people were asked; or its beginning was not seen."""
        yield {"type": "start", "messageId": told.run or told.session}

    def run_rests(self, told: RunView, questions: OpenQuestions) -> Iterator[JsonEvent]:
        """Without answers to *questions* nothing goes on."""
        for call, question in questions:
            if call:
                # The message has no part for what a child asks; any reader may answer it all the same.
                yield _data(
                    "question",
                    approvalId=question.request,
                    agent=told.batch.started.get(call, ""),
                    tool=question.tool,
                    arguments=shown(question.arguments),
                )
        yield {"type": "finish", "finishReason": "tool-calls"}

    def run_left(self, told: RunView) -> Iterator[JsonEvent]:
        """Another run begins, and the end of this one was not seen."""
        del told
        yield {"type": "finish", "finishReason": "other"}

    def run_ended(self, told: RunView, ended: notices.RunEnded) -> Iterator[JsonEvent]:
        """The run is over."""
        del told
        reason, spent = ended.reason, ended.spent
        if reason in ERROR_ENDS:
            yield {"type": "error", "errorText": ended.detail or reason.value}
        if reason in WANTED_ENDS:
            yield {"type": "abort", "reason": reason.value}
        metadata = {
            "reason": reason.value,
            "turns": spent.turns,
            "inputTokens": spent.usage.input,
            "outputTokens": spent.usage.output,
            "totalTokens": spent.usage.total,
            "costUsd": float(spent.cost),
            "unpricedTokens": spent.unpriced,
        }
        finish = FINISH_WORDS.get(reason, "error" if reason in ERROR_ENDS else "other")
        yield {"type": "finish", "finishReason": finish, "messageMetadata": metadata}

    def inputs(self, first: int, taken: notices.InputTaken) -> Iterator[JsonEvent]:
        """Inputs became messages, of which the *first* is at that place."""
        del first
        yield _data("input", ids=list(taken.ids), texts=[message.text for message in taken.messages])

    # Answers

    def answer_begun(self, answer: str) -> Iterator[JsonEvent]:
        """An answer begins."""
        del answer
        yield {"type": "start-step"}

    def answer_ended(self, answer: str) -> Iterator[JsonEvent]:
        """An answer is complete, or broke off."""
        del answer
        yield {"type": "finish-step"}

    def taken_back(self, told: RunView) -> Iterator[JsonEvent]:
        """What was seen of the answer under way is void."""
        del told
        yield {"type": "reset-step"}

    def block_begun(self, block: Block) -> Iterator[JsonEvent]:
        """A block begins."""
        yield {"type": f"{_kind(block)}-start", "id": block.name}

    def block_grown(self, block: Block, text: str) -> JsonEvent:
        """A bit of a block."""
        return {"type": f"{_kind(block)}-delta", "id": block.name, "delta": text}

    def block_ended(self, block: Block) -> Iterator[JsonEvent]:
        """A block is complete, or broke off."""
        yield {"type": f"{_kind(block)}-end", "id": block.name}

    # Calls

    def call_begun(self, name: str, tool: str, answer: str) -> JsonEvent:
        """A call of *answer* begins; *answer* is empty if it was not seen."""
        del answer
        return {"type": "tool-input-start", "toolCallId": name, "toolName": tool, "dynamic": True}

    def call_grown(self, name: str, arguments: str) -> JsonEvent:
        """A bit of the arguments of a call."""
        return {"type": "tool-input-delta", "toolCallId": name, "inputTextDelta": arguments}

    def call_cut(self, name: str) -> Iterator[JsonEvent]:
        """A call broke off: nothing tells that, and what follows takes it back."""
        del name
        yield from ()

    def call_ended(self, name: str, call: ToolCall) -> Iterator[JsonEvent]:
        """A call is complete, but for its result."""
        yield {
            "type": "tool-input-available",
            "toolCallId": name,
            "toolName": call.name,
            "input": shown(call.arguments),
            "dynamic": True,
        }

    def calls(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """What happens to calls once they are complete, and to children."""
        match notice:
            case notices.ApprovalRequested(request=request, call=call) if request not in before.batch.asked:
                why: JsonEvent = {"reason": notice.why} if notice.why else {}
                of: JsonEvent = {"approvalId": request, "toolCallId": call_name(before, call)}
                yield {"type": "tool-approval-request", **of, **why}
            case notices.ApprovalResolved() | notices.ApprovalWithdrawn():
                if notice.request in before.batch.questions:
                    yield _said(notice)
            case notices.CallSettled():
                yield from _settled(before, notice)
            case notices.ToolOutput(call=call, text=text):
                yield _data("tool-output", toolCallId=call_name(before, call), text=text)
            case notices.AgentStarted(call=call, agent=agent):
                yield _data("agent", toolCallId=call_name(before, call), name=agent)
            case notices.AgentNoticed(call=call, notice=notices.TurnEnded(message=message)):
                agent = agents_at_work(after).get(call, "")
                yield _data("agent", toolCallId=call_name(before, call), name=agent, text=message.text)
            case _:
                pass

    def child_left(self, call: str) -> Iterator[JsonEvent]:
        """The end of the child that works on *call* was not seen: what tells of it is of the moment."""
        del call
        yield from ()

    def aside(self, event: JsonEvent) -> JsonEvent:
        """A compaction, a warning or an output under way, as `sse` has it."""
        rest = {key: value for key, value in event.items() if key != "type"}
        return _data(str(event["type"]).replace("_", "-"), **rest)


def _kind(block: Block) -> str:
    return "reasoning" if block.thought else "text"


def _data(name: str, /, **data: object) -> JsonEvent:
    """What is of the moment, and no part of the message."""
    return {"type": f"data-{name}", "data": data, "transient": True}


def _said(notice: notices.ApprovalResolved | notices.ApprovalWithdrawn) -> JsonEvent:
    """The end of a question; the client may have told the answer to itself already."""
    of: JsonEvent = {"type": "tool-approval-response", "approvalId": notice.request}
    if isinstance(notice, notices.ApprovalWithdrawn):
        return {**of, "approved": False, "reason": "withdrawn"}
    decision = notice.decision
    match decision:
        case Deny(message=reason):
            return {**of, "approved": False, "reason": reason} if reason else {**of, "approved": False}
        case Approve() | ApproveAlways():
            return {**of, "approved": True}
        case _:
            assert_never(decision)


def _settled(told: RunView, settled: notices.CallSettled) -> Iterator[JsonEvent]:
    """The result of a call; one that was refused has none here, but its question has the reason."""
    batch, of = told.batch, {"toolCallId": call_name(told, settled.call)}
    unseen = [request for request, question in batch.questions.items() if question.call == settled.call]
    refused = settled.call in batch.refused or (bool(unseen) and settled.outcome is not Outcome.OK)
    for request in unseen:
        yield {"type": "tool-approval-response", "approvalId": request, "approved": not refused}
    if refused:
        yield {"type": "tool-output-denied", **of}
    elif settled.outcome is Outcome.OK:
        yield {"type": "tool-output-available", **of, "output": settled.content, "dynamic": True}
    else:
        yield {"type": "tool-output-error", **of, "errorText": settled.content, "dynamic": True}
