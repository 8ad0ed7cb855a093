"""
What the notices of a run have told so far, as far as an event needs it: the one fold below all vocabularies.

A notice says what is new; whoever reads events also wants to know whose it is. All of that follows from the
notices alone, so whoever sees them can tell them on, in this process or in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import final

import attrs

from ..effects.history import History
from ..effects.messages import Finish, Message, Part, Reasoning, Role, StopReason, Text, ToolCall, ToolResult
from ..effects.notices import (
    AgentNoticed,
    AgentStarted,
    AnswerDropped,
    ApprovalRequested,
    CallSettled,
    Compacted,
    CompactionFailed,
    CompactionStarted,
    InputTaken,
    ModelCalled,
    Notice,
    ReasoningDelta,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from ..effects.pieces import ReasoningPiece, Rope, TextPiece
from .json_events import Events, Plain


class Block(StrEnum):
    """What an answer is saying."""

    NOTHING = "nothing"
    TEXT = "text"
    THOUGHT = "thought"


@final
@attrs.frozen(kw_only=True)
class Answer:
    """
    The answer to *request* so far: its *pieces*, which came in so many *blocks*, the last of them a *block*.
    """

    request: str = ""
    model: str = ""
    pieces: Rope = attrs.field(factory=Rope.of)
    block: Block = Block.NOTHING
    blocks: int = 0

    def add(self, delta: TextDelta | ReasoningDelta) -> Answer:
        """This answer and *delta*."""
        spoken = isinstance(delta, TextDelta)
        block = Block.TEXT if spoken else Block.THOUGHT
        piece = TextPiece(delta.text) if spoken else ReasoningPiece(delta.text)
        return Answer(
            request=self.request,
            model=self.model,
            pieces=self.pieces.extend((piece,), 1),
            block=block,
            blocks=self.blocks + (block is not self.block),
        )

    @property
    def characters(self) -> int:
        """How much text was told."""
        return sum(len(part.text) for part in self._parts() if isinstance(part, Text))

    def void(self) -> Answer:
        """The answer to the same request, of which nothing was said."""
        return Answer(request=self.request, model=self.model)

    def message(self, ended: TurnEnded) -> Message:
        """The message of this answer, whose turn *ended*."""
        finish = Finish(reason=ended.stop, sequence=ended.sequence)
        return self._message(*self._parts(), *ended.calls, finish)

    def cut(self) -> Message | None:
        """The message of this answer where somebody cut it short: its text is kept, its thinking is not."""
        texts = [part for part in self._parts() if isinstance(part, Text)]
        return self._message(*texts, Finish(reason=StopReason.INTERRUPTED)) if texts else None

    def _parts(self) -> list[Text | Reasoning]:
        return [
            Text(text=piece.text) if isinstance(piece, TextPiece) else Reasoning(text=piece.text)
            for piece in self.pieces.pieces
            if isinstance(piece, TextPiece | ReasoningPiece)
        ]

    def _message(self, *parts: Part) -> Message:
        return Message(role=Role.ASSISTANT, parts=parts, model=self.model)


@final
@attrs.frozen(kw_only=True)
class Batch:
    """
    The *calls* of the last answer, by their ids and in its order, and what became of them.

    *asked* are the ones that questions were about, by request, *started* those that were at work, *agents*
    the children that some were given to and *children* what those told, by call. *results* are in the order
    in which they came.
    """

    calls: Mapping[str, ToolCall] = attrs.field(factory=dict)
    asked: Mapping[str, str] = attrs.field(factory=dict)
    started: frozenset[str] = frozenset()
    agents: Mapping[str, str] = attrs.field(factory=dict)
    children: Mapping[str, RunView] = attrs.field(factory=dict)
    results: tuple[ToolResult, ...] = ()

    def message(self) -> Message | None:
        """All results as one message, in the order of their calls, as a history has them."""
        if not self.results:
            return None
        order = {name: index for index, name in enumerate(self.calls)}
        results = sorted(self.results, key=lambda result: order.get(result.call, len(order)))
        return Message(role=Role.TOOL, parts=tuple(results))


@final
@attrs.frozen(kw_only=True)
class RunView:
    """
    One run of *session*, as told so far.

    *begun* once an event has said something of it; *since* is when it started, in seconds since the epoch,
    None where that was not seen. *messages* are those of this run, without the *answer* and the *batch* that
    are under way. *compacting* is the size of what is being summarised.
    """

    session: str
    begun: bool = False
    since: float | None = None
    answer: Answer = attrs.field(factory=Answer)
    batch: Batch = attrs.field(factory=Batch)
    messages: History = attrs.field(factory=History.of)
    compacting: int | None = None

    @property
    def last_answer(self) -> Message | None:
        """The last answer of the run, whole or cut short."""
        for message in reversed(self.messages):
            if message.role is Role.ASSISTANT:
                return message
        return None

    def child(self, call: str) -> RunView:
        """What was told of the child that works on *call*."""
        return self.batch.children.get(call) or RunView(session=self.session)

    def tool(self, notice: ToolStarted | AgentStarted | ToolOutput | CallSettled) -> str:
        """The tool of the call that *notice* is about; empty where its answer was not seen."""
        if isinstance(notice, ToolStarted | CallSettled):
            return notice.tool
        call = self.batch.calls.get(notice.call)
        return "" if call is None else call.name

    def lasted(self, ended: RunEnded) -> float:
        """How long the run took that *ended*, in seconds; its active time where its start was not seen."""
        return ended.spent.seconds if self.since is None else max(0.0, ended.at - self.since)


def follow(told: RunView, notice: Notice) -> RunView:
    """What has been told with *notice*, where *told* was told before."""
    match notice:
        case RunStarted(at=at):
            return RunView(session=told.session, since=at)
        case TextDelta() | ReasoningDelta():
            return attrs.evolve(told, answer=told.answer.add(notice))
        case ModelCalled() | AnswerDropped() | TurnEnded() | InputTaken() | RunEnded():
            return _said(told, notice)
        case ApprovalRequested() | ToolStarted() | AgentStarted() | AgentNoticed() | CallSettled():
            return attrs.evolve(told, batch=_called(told, notice))
        case CompactionStarted() | Compacted() | CompactionFailed():
            size = notice.size if isinstance(notice, CompactionStarted) else None
            return attrs.evolve(told, compacting=size)
        case _:
            return told


def _said(told: RunView, notice: ModelCalled | AnswerDropped | TurnEnded | InputTaken | RunEnded) -> RunView:
    match notice:
        case AnswerDropped():
            return attrs.evolve(told, answer=told.answer.void())
        case TurnEnded(calls=calls):
            batch = Batch(calls={call.id: call for call in calls})
            return _with_messages(told, batch, told.batch.message(), told.answer.message(notice))
        case ModelCalled(request=request, model=model):
            return attrs.evolve(_went_on(told), answer=Answer(request=request, model=model))
        case InputTaken(messages=messages):
            return _went_on(told, *messages)
        case RunEnded():
            return _went_on(told)


def _went_on(told: RunView, *messages: Message) -> RunView:
    """
    What was told, with *messages*. The run goes on: a batch is over, and an answer being given was cut short.
    """
    return _with_messages(told, Batch(), told.batch.message(), told.answer.cut(), *messages)


def _with_messages(told: RunView, batch: Batch, *messages: Message | None) -> RunView:
    history = told.messages
    for message in messages:
        if message is not None:
            history = history.append(message)
    return attrs.evolve(told, answer=told.answer.void(), batch=batch, messages=history)


def _called(
    told: RunView, notice: ApprovalRequested | ToolStarted | AgentStarted | AgentNoticed | CallSettled
) -> Batch:
    batch, name = told.batch, notice.call
    match notice:
        case ApprovalRequested(request=request):
            return attrs.evolve(batch, asked={**batch.asked, request: name})
        case ToolStarted():
            return attrs.evolve(batch, started=batch.started | {name})
        case AgentStarted(agent=agent):
            agents = {**batch.agents, name: agent}
            return attrs.evolve(batch, started=batch.started | {name}, agents=agents)
        case AgentNoticed(notice=inner):
            children = {**batch.children, name: follow(told.child(name), inner)}
            return attrs.evolve(batch, children=children)
        case CallSettled(tool=tool, content=content, outcome=outcome):
            result = ToolResult(call=name, wire_id="", name=tool, content=content, outcome=outcome)
            return attrs.evolve(batch, results=(*batch.results, result))


# The frame of every vocabulary

Say = Callable[[RunView, Notice, RunView], Iterable[Plain]]
"""How a vocabulary says a notice, from what was told before it and with it."""


def tell(told: RunView, notice: Notice, say: Say, opening: Events) -> tuple[RunView, Events]:
    """
    What has been told with *notice*, and the events that *say* has for it.

    A run begins with its `RunStarted`. Where that was not seen (the run was taken over, or the notice was
    dropped on its way here) *opening* comes before the first event in its place.
    """
    after = follow(told, notice)
    events = tuple(say(told, notice, after))
    if events and not told.begun and not isinstance(notice, RunStarted):
        events = (*opening, *events)
    if isinstance(notice, RunEnded):
        return RunView(session=told.session), events
    if events and not after.begun:
        after = attrs.evolve(after, begun=True)
    return after, events
