"""
The fold below all vocabularies: a `RunView` holds what events need of the notices of a run so far.

A notice says what is new; a reader of events also wants to know which call or run it belongs to. All of that
follows from the notices alone, so each subscriber can project them, in this process or in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Self, final

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
from .json_events import Events, JsonEvent


@final
@attrs.frozen(kw_only=True)
class OpenAnswer:
    """
    The answer to *request* so far: its *pieces*, which came in so many *blocks* of text or thought.
    """

    request: str = ""
    model: str = ""
    pieces: Rope = attrs.field(factory=Rope.of)
    blocks: int = 0
    last: type[TextPiece | ReasoningPiece] | None = None

    def add(self, delta: TextDelta | ReasoningDelta) -> OpenAnswer:
        """This answer with *delta*."""
        piece = TextPiece(delta.text) if isinstance(delta, TextDelta) else ReasoningPiece(delta.text)
        begins = type(piece) is not self.last
        pieces = self.pieces.extend((piece,), 1)
        return attrs.evolve(self, pieces=pieces, blocks=self.blocks + begins, last=type(piece))

    @property
    def characters(self) -> int:
        """The characters of text so far."""
        return sum(len(part.text) for part in self._parts() if isinstance(part, Text))

    def void(self) -> OpenAnswer:
        """An empty answer to the same request."""
        return OpenAnswer(request=self.request, model=self.model)

    def message(self, ended: TurnEnded) -> Message:
        """The message of this answer, whose turn *ended*."""
        finish = Finish(reason=ended.stop, sequence=ended.sequence)
        return self._message(*self._parts(), *ended.calls, finish)

    def cut(self) -> Message | None:
        """The message of this answer if it is cut short: with its text, without its thinking."""
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
class OpenBatch:
    """
    The *calls* of the last answer, by their ids and in its order, and their outcomes.

    *asked* has the calls of questions, by request, and *started* those that were started. *agents* has the
    names of children and *children* their views, by call. *results* are in the order in which they came.
    """

    calls: Mapping[str, ToolCall] = attrs.field(factory=dict)
    asked: Mapping[str, str] = attrs.field(factory=dict)
    started: frozenset[str] = frozenset()
    agents: Mapping[str, str] = attrs.field(factory=dict)
    children: Mapping[str, RunView] = attrs.field(factory=dict)
    results: tuple[ToolResult, ...] = ()

    def message(self) -> Message | None:
        """All results as one message, in the order of their calls, as in a history."""
        if not self.results:
            return None
        order = {name: index for index, name in enumerate(self.calls)}
        results = sorted(self.results, key=lambda result: order.get(result.call, len(order)))
        return Message(role=Role.TOOL, parts=tuple(results))


@final
@attrs.frozen(kw_only=True)
class RunView:
    """
    One run of *session*, as its notices have told so far.

    *begun*: an event of it is out. *since* is its start in seconds since the epoch, None if that was not
    seen. *messages* are those of this run without the open *answer* and *batch*. *compacting* is the size of
    the conversation that is being summarised.
    """

    session: str
    begun: bool = False
    since: float | None = None
    answer: OpenAnswer = attrs.field(factory=OpenAnswer)
    batch: OpenBatch = attrs.field(factory=OpenBatch)
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
        """The view of the child that works on *call*."""
        return self.batch.children.get(call) or RunView(session=self.session)

    def tool(self, notice: ToolStarted | AgentStarted | ToolOutput | CallSettled) -> str:
        """The tool of the call of *notice*; empty if the answer with that call was not seen."""
        if isinstance(notice, ToolStarted | CallSettled):
            return notice.tool
        call = self.batch.calls.get(notice.call)
        return "" if call is None else call.name

    def lasted(self, ended: RunEnded) -> float:
        """The seconds of the run that *ended*; its active seconds if its start was not seen."""
        return ended.spent.seconds if self.since is None else max(0.0, ended.at - self.since)


def follow(told: RunView, notice: Notice) -> RunView:
    """*told* with *notice*."""
    match notice:
        case RunStarted(at=at):
            return RunView(session=told.session, since=at)
        case TextDelta() | ReasoningDelta():
            return attrs.evolve(told, answer=told.answer.add(notice))
        case ModelCalled() | AnswerDropped() | TurnEnded() | InputTaken() | RunEnded():
            return _talked(told, notice)
        case ApprovalRequested() | ToolStarted() | AgentStarted() | AgentNoticed() | CallSettled():
            return attrs.evolve(told, batch=_called(told, notice))
        case CompactionStarted() | Compacted() | CompactionFailed():
            size = notice.size if isinstance(notice, CompactionStarted) else None
            return attrs.evolve(told, compacting=size)
        case _:
            return told


def _talked(
    told: RunView, notice: ModelCalled | AnswerDropped | TurnEnded | InputTaken | RunEnded
) -> RunView:
    match notice:
        case AnswerDropped():
            return attrs.evolve(told, answer=told.answer.void())
        case TurnEnded(calls=calls):
            batch = OpenBatch(calls={call.id: call for call in calls})
            return _with_messages(told, batch, told.batch.message(), told.answer.message(notice))
        case ModelCalled(request=request, model=model):
            return attrs.evolve(_continued(told), answer=OpenAnswer(request=request, model=model))
        case InputTaken(messages=messages):
            return _continued(told, *messages)
        case RunEnded():
            return _continued(told)


def _continued(told: RunView, *messages: Message) -> RunView:
    """*told* with *messages*, behind a batch that is over or an answer that was cut short."""
    return _with_messages(told, OpenBatch(), told.batch.message(), told.answer.cut(), *messages)


def _with_messages(told: RunView, batch: OpenBatch, *messages: Message | None) -> RunView:
    history = told.messages
    for message in messages:
        if message is not None:
            history = history.append(message)
    return attrs.evolve(told, answer=told.answer.void(), batch=batch, messages=history)


def _called(
    told: RunView, notice: ApprovalRequested | ToolStarted | AgentStarted | AgentNoticed | CallSettled
) -> OpenBatch:
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


class Projection:
    """One vocabulary over one session: feed `take` its notices, in order. A derived class has the words."""

    opening: ClassVar[JsonEvent | None] = None
    """The first event of a run without a seen start, but for the id of the session."""

    def __init__(self, told: RunView) -> None:
        self.told = told

    @classmethod
    def of(cls, session: str) -> Self:
        """A projection of *session*."""
        return cls(RunView(session=session))

    def take(self, notice: Notice) -> Events:
        """The events of *notice*."""
        self.told, events = self.project(self.told, notice)
        return events

    def project(self, told: RunView, notice: Notice) -> tuple[RunView, Events]:
        """What has been *told* with *notice*, and the events of it. Pure: nothing of `self` changes."""
        after = follow(told, notice)
        events = tuple(self.events(told, notice, after))
        if events and not told.begun and not isinstance(notice, RunStarted) and self.opening is not None:
            # The run was taken over, or its start was dropped on the way: readers still need a beginning.
            events = ({**self.opening, "session_id": told.session}, *events)
        if isinstance(notice, RunEnded):
            return RunView(session=told.session), events
        if events and not after.begun:
            after = attrs.evolve(after, begun=True)
        return after, events

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterable[JsonEvent]:
        """The events of *notice*, by what was told *before* it and *after* it."""
        raise NotImplementedError


def compaction_events(
    before: RunView, notice: CompactionStarted | Compacted | CompactionFailed, size_key: str, fault: JsonEvent
) -> Iterator[JsonEvent]:
    """
    The start or the end of a compaction, with its size in *size_key*; *fault* if it failed before it began.
    """
    match notice:
        case CompactionStarted(size=size, reason=reason):
            # Starts and ends come in pairs: one that is begun anew goes on.
            if before.compacting is None:
                yield {"type": "compaction_start", size_key: size, "reason": reason}
        case Compacted():
            yield _compaction_end(notice.before, notice.after)
        case CompactionFailed(reason=reason):
            yield from compaction_cut(before, reason)
            if before.compacting is None:
                yield fault


def compaction_cut(before: RunView, error: str) -> Events:
    """The end, by *error*, of a compaction that is under way."""
    size = before.compacting
    return () if size is None else (_compaction_end(size, size, error),)


def _compaction_end(before: int, after: int, error: str | None = None) -> JsonEvent:
    return {"type": "compaction_end", "tokens_before": before, "tokens_after": after, "error": error}
