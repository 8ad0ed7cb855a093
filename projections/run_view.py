"""
The fold below all vocabularies: a `RunView` holds what events need of the notices of a run so far.

A notice says what is new; a reader of events also wants to know which call or run it belongs to. All of that
follows from the notices alone, so each subscriber can project them, in this process or in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple, Self, final

import attrs

from ..effects import notices
from ..effects.events import Approve, ApproveAlways
from ..effects.history import History
from ..effects.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from ..effects.notices import CallDelta, Notice, ReasoningDelta, TextDelta
from .json_events import Events, JsonEvent

# What happens to a call, once it is decided.
CallNotice = notices.ToolStarted | notices.AgentStarted | notices.ToolOutput | notices.CallSettled


@final
class OpenCall(NamedTuple):
    """
    A call that the model is still writing: its *block* of the answer, and its *tool* if that was told.

    *characters* of its arguments were seen since then.
    """

    block: int
    tool: str
    characters: int = 0


@final
@attrs.frozen(kw_only=True)
class OpenAnswer:
    """
    What was seen of the answer under way: so many *characters* of text, and *blocks* of all three kinds.

    No text: the notice of its end has all of it, and this reader may have missed a part. *calls* has the
    block of each call by its index.
    """

    characters: int = 0
    blocks: int = 0
    last: type[TextDelta | ReasoningDelta | CallDelta] | None = None
    calls: Mapping[int, OpenCall] = attrs.field(factory=dict)

    def add(self, delta: TextDelta | ReasoningDelta | CallDelta) -> OpenAnswer:
        """This answer with *delta*."""
        if isinstance(delta, CallDelta):
            return self._with_call(delta)
        text = len(delta.text) if isinstance(delta, TextDelta) else 0
        blocks = self.blocks + (type(delta) is not self.last)
        return attrs.evolve(self, characters=self.characters + text, blocks=blocks, last=type(delta))

    def _with_call(self, delta: CallDelta) -> OpenAnswer:
        call = self.calls.get(delta.index)
        block, tool, seen = (self.blocks, "", 0) if call is None else call
        named = delta.tool or tool
        calls = {**self.calls, delta.index: OpenCall(block, named, seen + len(delta.arguments) * bool(named))}
        return attrs.evolve(self, blocks=max(self.blocks, block + 1), last=CallDelta, calls=calls)

    def lacks(self, message: Message) -> bool:
        """Whether some of *message*, which is the whole answer, was not seen."""
        # What was seen are parts of it in their order, so it is all of it where it is as long.
        return self.characters != len(message.text)


@final
@attrs.frozen(kw_only=True)
class OpenBatch:
    """
    The *calls* of the last answer, by their ids and in its order, and their outcomes.

    *asked* has the calls of questions, by request, and *questions* those that are open. *refused* are calls
    whose question got no yes. *started* has the calls that were started, with the names of children.
    *children* has the views of children, by call. *results* are in the order in which they came.
    """

    calls: Mapping[str, ToolCall] = attrs.field(factory=dict)
    asked: Mapping[str, str] = attrs.field(factory=dict)
    questions: Mapping[str, notices.ApprovalRequested] = attrs.field(factory=dict)
    refused: frozenset[str] = frozenset()
    started: Mapping[str, str] = attrs.field(factory=dict)
    children: Mapping[str, RunView] = attrs.field(factory=dict)
    results: tuple[ToolResult, ...] = ()


@final
@attrs.frozen(kw_only=True)
class RunView:
    """
    One run of *session*, as its notices have told so far.

    *begun*: an event of it is out. *since* is its start in seconds since the epoch, None if that was not
    seen, *run* its id, and *rests* how often it had to wait for people. *answered* is the request of the last
    answer. *messages* are those of this run without the open *answer* and *batch*, *inputs* the ids of what
    it has read; *earlier* are those of the runs before, None where they are not kept. *compacting* is the
    size of the conversation that is being summarised.
    """

    session: str
    begun: bool = False
    run: str = ""
    since: float | None = None
    rests: int = 0
    answer: OpenAnswer = attrs.field(factory=OpenAnswer)
    answered: str = ""
    batch: OpenBatch = attrs.field(factory=OpenBatch)
    messages: History = attrs.field(factory=History.of)
    inputs: tuple[str, ...] = ()
    compacting: int | None = None
    earlier: History | None = None

    @property
    def last_answer(self) -> Message | None:
        """The last answer of the run, whole or cut short."""
        return next((each for each in reversed(self.messages) if each.role is Role.ASSISTANT), None)

    @property
    def waits_for(self) -> tuple[tuple[str, notices.ApprovalRequested], ...]:
        """
        The questions without which nothing goes on, with the call of the child that has each, or empty.
        """
        batch = self.batch
        if not batch.questions and not batch.children:
            return ()
        settled = {result.call for result in batch.results}
        # One that was started was allowed to, whether or not that was seen.
        asked = [each for each in batch.questions.values() if each.call not in {*batch.started, *settled}]
        begun = {*batch.started, *batch.asked.values()} - settled - {each.call for each in asked}
        children = {call: self.child(call).waits_for for call in begun}
        if not all(children.values()):
            return ()
        inner = [(call, question) for call in sorted(children) for _, question in children[call]]
        return (*[("", question) for question in asked], *inner)

    def next_run(self) -> RunView:
        """The view of the run that follows this one."""
        earlier = self.earlier
        if earlier is not None:
            for message in self.messages:
                earlier = earlier.append(message)
        return RunView(session=self.session, earlier=earlier)

    def child(self, call: str) -> RunView:
        """The view of the child that works on *call*."""
        return self.batch.children.get(call) or RunView(session=self.session)

    def tool(self, notice: CallNotice) -> str:
        """The tool of the call of *notice*; empty if the answer with that call was not seen."""
        if isinstance(notice, notices.ToolStarted | notices.CallSettled):
            return notice.tool
        return self.batch.calls[notice.call].name if notice.call in self.batch.calls else ""

    def lasted(self, ended: notices.RunEnded) -> float:
        """The seconds of the run that *ended*; its active seconds if its start was not seen."""
        return ended.spent.seconds if self.since is None else max(0.0, ended.at - self.since)


def follow(told: RunView, notice: Notice) -> RunView:
    """*told* with *notice*."""
    after = told
    match notice:
        case TextDelta() | ReasoningDelta() | CallDelta():
            after = attrs.evolve(told, answer=told.answer.add(notice))
        case notices.RunStarted(at=at):
            after = attrs.evolve(told.next_run(), run=notice.run, since=at)
        # A new request begins anew in any case: the end of the last answer may have been missed.
        case notices.AnswerDropped() | notices.ModelCalled():
            after = attrs.evolve(told, answer=OpenAnswer())
        case notices.TurnEnded(message=message, calls=calls):
            after = _continued(told, message)
            batch = OpenBatch(calls={call.id: call for call in calls})
            after = attrs.evolve(after, answered=notice.request, batch=batch)
        case notices.AnswerKept(message=message):
            after = attrs.evolve(_continued(told, message), answered=notice.request)
        case notices.InputTaken(messages=messages, ids=ids):
            after = attrs.evolve(_continued(told, *messages), inputs=(*told.inputs, *ids))
        case notices.InputBlocked(ids=ids):
            after = attrs.evolve(told, inputs=(*told.inputs, *ids))
        case notices.RunEnded():
            after = _continued(told)
        case notices.CompactionStarted() | notices.Compacted() | notices.CompactionFailed():
            size = notice.size if isinstance(notice, notices.CompactionStarted) else None
            after = attrs.evolve(told, compacting=size)
        case _:
            after = attrs.evolve(told, batch=_in_batch(told, notice))
    return after


def _continued(told: RunView, *messages: Message) -> RunView:
    """*told* with *messages*, behind the results of its batch, in the order of their calls."""
    order = {name: index for index, name in enumerate(told.batch.calls)}
    results = sorted(told.batch.results, key=lambda result: order.get(result.call, len(order)))
    history = told.messages
    if results:
        history = history.append(Message(role=Role.TOOL, parts=tuple(results)))
    for message in messages:
        history = history.append(message)
    return attrs.evolve(told, answer=OpenAnswer(), batch=OpenBatch(), messages=history)


def _in_batch(told: RunView, notice: Notice) -> OpenBatch:
    batch = told.batch
    match notice:
        case notices.ApprovalRequested() | notices.ApprovalResolved() | notices.ApprovalWithdrawn():
            return _asked(batch, notice)
        case notices.ToolStarted(call=call):
            return attrs.evolve(batch, started={**batch.started, call: ""})
        case notices.AgentStarted(call=call, agent=agent):
            return attrs.evolve(batch, started={**batch.started, call: agent})
        case notices.AgentNoticed(call=call, notice=inner):
            return attrs.evolve(batch, children={**batch.children, call: follow(told.child(call), inner)})
        case notices.CallSettled(call=call, tool=tool):
            result = ToolResult(
                call=call, wire_id="", name=tool, content=notice.content, outcome=notice.outcome
            )
            return attrs.evolve(batch, results=(*batch.results, result))
        case _:
            return batch


def _asked(
    batch: OpenBatch,
    notice: notices.ApprovalRequested | notices.ApprovalResolved | notices.ApprovalWithdrawn,
) -> OpenBatch:
    """*batch* with a question, or without it."""
    request = notice.request
    if isinstance(notice, notices.ApprovalRequested):
        # Of an earlier question about the call the answer was missed: a call has one at a time.
        open_ones = {name: each for name, each in batch.questions.items() if each.call != notice.call}
        asked, questions = {**batch.asked, request: notice.call}, {**open_ones, request: notice}
        return attrs.evolve(batch, asked=asked, questions=questions)
    yes = isinstance(notice, notices.ApprovalResolved) and isinstance(
        notice.decision, Approve | ApproveAlways
    )
    calls = {batch.asked[request]} if request in batch.asked else set[str]()
    refused = batch.refused - calls if yes else batch.refused | calls
    questions = {name: question for name, question in batch.questions.items() if name != request}
    return attrs.evolve(batch, questions=questions, refused=refused)


# The frame of every vocabulary


@attrs.define(eq=False)
class Projection:
    """One vocabulary over one session: feed `take` its notices, in order. A derived class has the words."""

    opening: ClassVar[JsonEvent] = {}
    """The first event of a run, but for its fields; empty if a vocabulary has none."""

    told: RunView

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
        if events and not told.begun and not isinstance(notice, notices.RunStarted) and self.opening:
            # The run was taken over, or its start was dropped on the way: readers still need a beginning.
            events = (self.start(told), *events)
        if isinstance(notice, notices.RunEnded):
            return after.next_run(), events
        if events and not after.begun:
            after = attrs.evolve(after, begun=True)
        return after, events

    def start(self, told: RunView) -> JsonEvent:
        """The first event of a run, with the fields that need no notice."""
        return {**self.opening, "session_id": told.session}

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterable[JsonEvent]:
        """The events of *notice*, by what was told *before* it and *after* it."""
        raise NotImplementedError


def blocks(message: Message, thinking: str, of_call: Callable[[ToolCall], JsonEvent]) -> Iterator[JsonEvent]:
    """The text, the *thinking*, by that name, and the calls of *message*."""
    for part in message.parts:
        match part:
            case Text(text=text):
                yield {"type": "text", "text": text}
            # A signature without a text is for the provider alone.
            case Reasoning(text=text) if text:
                yield {"type": thinking, "thinking": text}
            case ToolCall():
                yield of_call(part)
            case _:
                pass


def compaction_events(before: RunView, notice: Notice, size_key: str) -> Iterator[JsonEvent]:
    """The start of a compaction, with its size in *size_key*, or its end, also by the end of the run."""
    size = before.compacting
    match notice:
        # Starts and ends come in pairs: one that is begun anew goes on.
        case notices.CompactionStarted() if size is None:
            yield {"type": "compaction_start", size_key: notice.size, "reason": notice.reason}
        case notices.Compacted():
            yield _compaction_end(notice.before, notice.after)
        case notices.CompactionFailed(reason=reason) | notices.RunEnded(reason=reason) if size is not None:
            yield _compaction_end(size, size, str(reason))
        case _:
            pass


def _compaction_end(before: int, after: int, error: str | None = None) -> JsonEvent:
    return {"type": "compaction_end", "tokens_before": before, "tokens_after": after, "error": error}
