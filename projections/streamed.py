"""
The fold below the vocabularies that tell a message part by part: each part begins, grows and ends.

Theory of operation. What is open follows from the `RunView` alone: a block of text or thought until the next
one, a call until its answer is complete, a run until it ends or nothing but a person can make it go on. There
its stream ends, too, and what follows is the stream of a run that resumes. An answer of which a reader has
seen something else than what is kept is *taken back*, and told again as a whole. Names are made of positions
in the conversation, so they are the same for each reader that begins at the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, NamedTuple, Self, final

import attrs

from ..effects import notices
from ..effects.history import History
from ..effects.messages import Message, Reasoning, Text, ToolCall
from ..effects.notices import CallDelta, Notice, ReasoningDelta, TextDelta
from .json_events import Events, JsonEvent
from .run_view import OpenAnswer, Projection, RunView, compaction_events, follow
from .sse import output_event, warnings_of

# A question, and the call of the child that has it, or empty.
OpenQuestions = tuple[tuple[str, notices.ApprovalRequested], ...]

# What happens to calls once their answer is complete.
OF_CALLS = notices.ApprovalRequested | notices.ToolStarted | notices.AgentStarted | notices.CallSettled


def _next(told: RunView) -> int:
    """The place of the message that comes next."""
    # The results of a batch are a message of their own once another one follows.
    return _length(told) + bool(told.batch.results)


def _next_name(told: RunView) -> str:
    """The name of the answer that comes next, or that is under way."""
    return f"m{_next(told)}"


def _last_name(told: RunView) -> str:
    """The name of the last message."""
    return f"m{_length(told) - 1}"


def _length(told: RunView) -> int:
    return len(told.earlier or ()) + len(told.messages)


def call_name(told: RunView, call: str) -> str:
    """The name of *call* in a vocabulary: by its place in the last answer, or its id if that was not seen."""
    answer = told.last_answer
    ids = [each.id for each in answer.calls] if call in told.batch.calls and answer is not None else []
    return f"{_last_name(told)}.{ids.index(call)}" if call in ids else call


def agents_at_work(told: RunView) -> Mapping[str, str]:
    """The children that were started and did not end: their names, by their calls."""
    settled = {result.call for result in told.batch.results}
    return {call: name for call, name in told.batch.started.items() if name and call not in settled}


@final
class Block(NamedTuple):
    """A block of text or, if it is a *thought*, of thinking: the one at *place* of *answer*."""

    answer: str
    place: int
    thought: bool

    @property
    def name(self) -> str:
        """Its name."""
        return f"{self.answer}.{'thought' if self.thought else 'text'}{self.place}"


def differs(answer: OpenAnswer, message: Message) -> bool:
    """Whether another *answer* was seen than *message*, which is what is kept of it."""
    calls = message.calls
    return answer.lacks(message) or any(
        index >= len(calls) or call.characters not in {0, len(calls[index].arguments)} or not call.tool
        for index, call in answer.calls.items()
    )


class StreamedProjection(Projection):
    """A vocabulary of parts; a derived class has the words. *begins* and *ends* are those around a stream."""

    begins: ClassVar[str]
    ends: ClassVar[frozenset[str]]

    @classmethod
    def of(cls, session: str, history: Iterable[Message] = ()) -> Self:
        """Events of *session* behind *history*, such as `Session.history`."""
        return cls(RunView(session=session, earlier=History.of(*history)))

    def project(self, told: RunView, notice: Notice) -> tuple[RunView, Events]:
        """What has been *told* with *notice*, and the events of it. Pure: nothing of `self` changes."""
        rested = told.waits_for
        opened = told.begun and not rested
        told, void = self._without_lost(told, notice)
        after = follow(told, notice)
        match notice:
            case notices.RunStarted():
                left = [*void, *self.run_left(told)] if opened else []
                return attrs.evolve(after, begun=True), (*left, *self.run_started(after))
            case notices.RunEnded():
                opening = [] if opened else [*self.run_started(after)]
                return after.next_run(), (*opening, *void, *self.run_ended(told, notice))
            case _:
                events = [*void, *self.within(told, notice, after)]
        rests = after.waits_for
        if not events and rests == rested:
            return after, ()
        opening = [] if opened else [*self.run_started(told)]
        resting = [*self.run_rests(after, rests)] if rests else []
        after = attrs.evolve(after, begun=True, rests=after.rests + bool(rests))
        return after, (*opening, *events, *resting)

    def last_stream(self, before: Events, events: Events) -> Events:
        """The last stream that began in *before*, which begins with one, or in *events*, which follow."""
        for event in events:
            before = (event,) if event["type"] == self.begins else (*before, event)
        return before

    # Within a run

    def _without_lost(self, told: RunView, notice: Notice) -> tuple[RunView, Events]:
        """*told* without what, by *notice*, will not go on, and the events of that."""
        if isinstance(notice, notices.ModelCalled | TextDelta | ReasoningDelta | CallDelta):
            # The answers to its questions were missed.
            batch = attrs.evolve(told.batch, questions={}, children={})
            told = attrs.evolve(told, batch=batch) if told.waits_for else told
        after, children = follow(told, notice), agents_at_work(told)
        void = [event for call in children.keys() - after.batch.started for event in self.child_left(call)]
        complete = isinstance(notice, notices.TurnEnded | notices.AnswerKept)
        # Dropped, or its end was missed: then its calls or others take its place.
        if told.answer.blocks and not complete and (not after.answer.blocks or isinstance(notice, OF_CALLS)):
            void += [*self.answer_left(told), *self.taken_back(told)]
            told = attrs.evolve(told, answer=OpenAnswer())
        return told, tuple(void)

    def within(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice* in the middle of a run."""
        match notice:
            case TextDelta() | ReasoningDelta() | CallDelta():
                yield from self._grown(before, notice, after)
            case notices.TurnEnded(message=message) | notices.AnswerKept(message=message):
                yield from self._answered(before, message)
            case notices.InputTaken():
                yield from self.inputs(_next(before), notice)
            case _:
                yield from self._besides(before, notice, after)

    def _besides(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        match notice:
            case (
                notices.ToolStarted(call=call, tool=tool, arguments=arguments)
                | notices.ApprovalRequested(call=call, tool=tool, arguments=arguments)
            ):
                yield from self._unseen(before, call, tool, arguments)
            case notices.AgentStarted(call=call, agent=agent, prompt=prompt):
                yield from self._unseen(before, call, agent, json.dumps({"prompt": prompt}))
            case notices.CallSettled(call=call, tool=tool):
                yield from self._unseen(before, call, tool, "{}")
            case _:
                pass
        yield from self.calls(before, notice, after)
        # Between two runs, and while one rests, there is no message that they could stand in.
        if before.begun and not before.waits_for:
            if isinstance(notice, notices.OutputDelta):
                yield self.aside(output_event(notice))
            for event in (*compaction_events(before, notice, "tokens"), *warnings_of(before, notice)):
                yield self.aside(event)

    def _unseen(self, told: RunView, call: str, tool: str, arguments: str) -> Iterator[JsonEvent]:
        """The *call* of an answer that was not seen, once."""
        batch = told.batch
        if call not in {*batch.calls, *batch.started, *batch.asked.values()}:
            made = ToolCall(id=call, wire_id="", name=tool, arguments=arguments)
            yield from self._whole_call(call, made, "")

    # Answers

    def _grown(
        self, before: RunView, delta: TextDelta | ReasoningDelta | CallDelta, after: RunView
    ) -> Iterator[JsonEvent]:
        name, answer = _next_name(before), before.answer
        if not answer.blocks:
            yield from self.answer_begun(name)
        if after.answer.last is not answer.last:
            yield from self._block_left(before)
        if isinstance(delta, CallDelta):
            seen, place = answer.calls.get(delta.index), f"{name}.{delta.index}"
            if tool := after.answer.calls[delta.index].tool:
                if seen is None or not seen.tool:
                    yield self.call_begun(place, tool, name)
                if delta.arguments:
                    yield self.call_grown(place, delta.arguments)
            return
        block = Block(name, after.answer.blocks - 1, isinstance(delta, ReasoningDelta))
        if after.answer.blocks > answer.blocks:
            yield from self.block_begun(block)
        yield self.block_grown(block, delta.text)

    def _block_left(self, told: RunView) -> Iterator[JsonEvent]:
        """The end of the block of text or thought that is open."""
        answer = told.answer
        if answer.last in {TextDelta, ReasoningDelta}:
            block = Block(_next_name(told), answer.blocks - 1, answer.last is ReasoningDelta)
            yield from self.block_ended(block)

    def answer_left(self, told: RunView) -> Iterator[JsonEvent]:
        """The ends of all that is open of the answer under way."""
        if not told.answer.blocks:
            return
        yield from self._block_left(told)
        name = _next_name(told)
        for index, call in told.answer.calls.items():
            if call.tool:
                yield from self.call_cut(f"{name}.{index}")
        yield from self.answer_ended(name)

    def _answered(self, before: RunView, message: Message) -> Iterator[JsonEvent]:
        name, answer = _next_name(before), before.answer
        if answer.blocks and differs(answer, message):
            yield from self.answer_left(before)
            yield from self.taken_back(before)
            answer = OpenAnswer()
        if not answer.blocks:
            if parts := [*self._whole(name, message)]:
                yield from (*self.answer_begun(name), *parts, *self.answer_ended(name))
            return
        yield from self._block_left(before)
        for index, call in enumerate(message.calls):
            place = f"{name}.{index}"
            if index not in answer.calls:
                yield from self._whole_call(place, call, name)
                continue
            if not answer.calls[index].characters:
                yield self.call_grown(place, call.arguments)
            yield from self.call_ended(place, call)
        yield from self.answer_ended(name)

    def _whole(self, name: str, message: Message) -> Iterator[JsonEvent]:
        """All parts of *message*, which is the answer *name*."""
        calls = 0
        for place, part in enumerate(message.parts):
            match part:
                case Text(text=text) | Reasoning(text=text) if text:
                    block = Block(name, place, isinstance(part, Reasoning))
                    yield from self.block_begun(block)
                    yield self.block_grown(block, text)
                    yield from self.block_ended(block)
                case ToolCall():
                    yield from self._whole_call(f"{name}.{calls}", part, name)
                    calls += 1
                case _:
                    pass

    def _whole_call(self, place: str, call: ToolCall, answer: str) -> Iterator[JsonEvent]:
        yield self.call_begun(place, call.name, answer)
        yield self.call_grown(place, call.arguments)
        yield from self.call_ended(place, call)

    # The words

    def run_started(self, told: RunView) -> Iterator[JsonEvent]:
        """A run begins, or goes on after people were asked; or its beginning was not seen."""
        raise NotImplementedError

    def run_rests(self, told: RunView, questions: OpenQuestions) -> Iterator[JsonEvent]:
        """Without answers to *questions* nothing goes on."""
        raise NotImplementedError

    def run_left(self, told: RunView) -> Iterator[JsonEvent]:
        """Another run begins, and the end of this one was not seen."""
        raise NotImplementedError

    def run_ended(self, told: RunView, ended: notices.RunEnded) -> Iterator[JsonEvent]:
        """The run is over."""
        raise NotImplementedError

    def inputs(self, first: int, taken: notices.InputTaken) -> Iterator[JsonEvent]:
        """Inputs became messages, of which the *first* is at that place."""
        raise NotImplementedError

    def answer_begun(self, answer: str) -> Iterator[JsonEvent]:
        """An answer begins."""
        raise NotImplementedError

    def answer_ended(self, answer: str) -> Iterator[JsonEvent]:
        """An answer is complete, or broke off."""
        raise NotImplementedError

    def taken_back(self, told: RunView) -> Iterator[JsonEvent]:
        """What was seen of the answer under way is void."""
        raise NotImplementedError

    def block_begun(self, block: Block) -> Iterator[JsonEvent]:
        """A block begins."""
        raise NotImplementedError

    def block_grown(self, block: Block, text: str) -> JsonEvent:
        """A bit of a block."""
        raise NotImplementedError

    def block_ended(self, block: Block) -> Iterator[JsonEvent]:
        """A block is complete, or broke off."""
        raise NotImplementedError

    def call_begun(self, name: str, tool: str, answer: str) -> JsonEvent:
        """A call of *answer* begins; *answer* is empty if it was not seen."""
        raise NotImplementedError

    def call_grown(self, name: str, arguments: str) -> JsonEvent:
        """A bit of the arguments of a call."""
        raise NotImplementedError

    def call_cut(self, name: str) -> Iterator[JsonEvent]:
        """A call broke off."""
        raise NotImplementedError

    def call_ended(self, name: str, call: ToolCall) -> Iterator[JsonEvent]:
        """A call is complete, but for its result."""
        raise NotImplementedError

    def calls(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """What happens to calls once they are complete, and to children."""
        raise NotImplementedError

    def child_left(self, call: str) -> Iterator[JsonEvent]:
        """The end of the child that works on *call* was not seen."""
        raise NotImplementedError

    def aside(self, event: JsonEvent) -> JsonEvent:
        """A compaction, a warning or an output under way, as `sse` has it."""
        raise NotImplementedError
