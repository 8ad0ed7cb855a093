"""The table is the machine: rows, handlers' annotations and what really happens say the same."""

from __future__ import annotations

import sys
import typing
from collections import Counter
from types import ModuleType

import pytest

from turnwheel.effects import Effect
from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import IllegalTransition
from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ControlReceived,
    Entered,
    Event,
    Failure,
    HookAnswered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Message, Part, Role, StopReason, Text, ToolCall, user
from turnwheel.effects.notices import DoneReason, Ignored
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.records import SetModel
from turnwheel.effects.usage import Usage
from turnwheel.engine import transition as dispatcher
from turnwheel.engine.machine import Machine
from turnwheel.engine.transition import advance, transition
from turnwheel.states import compacting, confirming, dispatching, done, executing, streaming, thinking
from turnwheel.states.context import Context, Memory
from turnwheel.states.state import (
    Asked,
    Batch,
    Call,
    Compacting,
    CompactReason,
    Confirming,
    Delegated,
    Dispatching,
    Done,
    End,
    Executing,
    Go,
    Phase,
    Prompt,
    Queued,
    Retry,
    Running,
    Start,
    State,
    Stopping,
    Streaming,
    Summary,
    Thinking,
)
from turnwheel.states.table import IGNORED, LEGAL, TABLE

EVENTS: tuple[type[Event], ...] = typing.get_args(Event)
HANDLERS: dict[type[State], ModuleType] = {
    Thinking: thinking,
    Streaming: streaming,
    Executing: executing,
    Confirming: confirming,
    Dispatching: dispatching,
    Compacting: compacting,
    Done: done,
}


# One state for every label


def batch(phase: Phase, stopping: Stopping = Stopping.NONE) -> Batch:
    """A batch of one call in *phase*."""
    call = ToolCall(id="r-2", wire_id="w", name="tool", arguments="{}")
    return Batch(calls=(Call(call=call, phase=phase),), offered=("tool",), stopping=stopping)


INTERRUPTED = Stopping.INTERRUPTED
STATES: tuple[State, ...] = (
    Thinking(stage=Start()),
    Thinking(stage=Prompt()),
    Thinking(stage=Go()),
    Thinking(stage=Retry(request="r-9", due=5.0)),
    Thinking(stage=End(reason=DoneReason.END_TURN)),
    Streaming(request="r-9"),
    Streaming(request="r-9", stopping=INTERRUPTED),
    Executing(batch=batch(Running(request="r-9"))),
    Executing(batch=batch(Running(request="r-9"), INTERRUPTED)),
    Confirming(batch=batch(Asked(request="r-9"))),
    Confirming(batch=batch(Asked(request="r-9"), Stopping.DENIED)),
    Dispatching(batch=batch(Delegated(request="r-9"))),
    Dispatching(batch=batch(Delegated(request="r-9"), INTERRUPTED)),
    Compacting(reason=CompactReason.THRESHOLD),
    Compacting(reason=CompactReason.THRESHOLD, stage=Summary(request="r-9", cut=1)),
    Compacting(reason=CompactReason.THRESHOLD, stage=Summary(request="r-9", cut=1), stopping=INTERRUPTED),
    Done(reason=DoneReason.END_TURN),
)
LABELS = {state.label: state for state in STATES}
CONFIG = Config(model=ModelSpec(name="wire:model"), tools=(ToolSpec(name="tool"),))


def event(kind: type[Event], request: str) -> Event:
    """An event of this *kind*, which names *request* where it names one."""
    made: dict[type[Event], Event] = {
        Entered: Entered(at=7.0),
        ModelStreamed: ModelStreamed(at=7.0, request=request, before=0, count=1, pieces=(TextPiece("a"),)),
        ModelFinished: ModelFinished(at=7.0, request=request, stop=StopReason.END_TURN, usage=Usage(input=1)),
        ModelFailed: ModelFailed(at=7.0, request=request, failure=Failure.SERVER, message="500"),
        ToolProgressed: ToolProgressed(at=7.0, request=request, text="half way"),
        ToolFinished: ToolFinished(at=7.0, request=request, content="fine"),
        ApprovalGiven: ApprovalGiven(at=7.0, request=request, decision=Approve()),
        HookAnswered: HookAnswered(at=7.0, request=request),
        AgentFinished: AgentFinished(at=7.0, request=request, content="fine"),
        TimerFired: TimerFired(at=7.0, request=request),
        UserSent: UserSent(at=7.0, id="sender-2", text="and this"),
        UserSteered: UserSteered(at=7.0, id="sender-3", text="left"),
        Interrupted: Interrupted(at=7.0),
        ControlReceived: ControlReceived(at=7.0, id="sender-4", change=SetModel(model="wire:other")),
    }
    return made[kind]


def memory(state: State) -> Memory:
    """A memory that fits *state*: a conversation, with an open call in its last message for a batch."""
    made = Memory(run="r", model="wire:model", next_id=10)
    history = made.history.append(user("hello"))
    if isinstance(state, Executing | Confirming | Dispatching):
        parts: tuple[Part, ...] = (Text(text="well"), *[call.call for call in state.batch.calls])
        history = history.append(Message(role=Role.ASSISTANT, parts=parts))
    return Memory(run="r", model="wire:model", next_id=10, history=history)


# The page itself


def test_no_row_stands_twice() -> None:
    """State, event and target name a row."""
    assert [
        row
        for row, count in Counter((row.state, row.event, row.target) for row in TABLE).items()
        if count > 1
    ] == []


def test_every_row_says_why() -> None:
    """An arrow without a word is no documentation."""
    assert [row for row in TABLE if not row.why.strip()] == []


def test_every_state_is_on_the_page() -> None:
    """Each of the seven states has rows under each of its names; done has none, and nothing else is named."""
    named = {row.state for row in TABLE} | {row.target for row in TABLE} | set(IGNORED)
    assert named == set(LABELS)
    assert {row.state for row in TABLE} == set(LABELS) - {"done"}
    assert {type(state) for state in STATES} == set(typing.get_args(State))


def test_every_state_can_be_entered_and_left() -> None:
    """Every name but the beginning is some row's target, and from all but the end some row leads on."""
    ways = {(row.state, row.target) for row in TABLE if row.state != row.target}
    assert {target for _, target in ways} == set(LABELS) - {"thinking.start"}
    assert {state for state, _ in ways} == set(LABELS) - {"done"}


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_in_every_state_is_decided(label: str, kind: type[Event]) -> None:
    """It has a row or is ignored by name: never both, never neither."""
    has_row = any(row.state == label and row.event is kind for row in TABLE)
    assert has_row != (kind in IGNORED[label])


# The page and the code


def targets(module: ModuleType) -> set[type[State]]:
    """The states that the annotation of *module*'s handler names."""
    names = {**vars(sys.modules["turnwheel.states.state"]), "Effect": Effect, "Context": Context}
    hint = typing.get_type_hints(module.handle, {**names, **vars(module)})["return"]
    following = typing.get_args(hint)[0]
    return set(typing.get_args(following)) or {following}


@pytest.mark.parametrize(("kind", "module"), HANDLERS.items(), ids=lambda value: value.__name__)
def test_a_handler_says_where_it_leads(kind: type[State], module: ModuleType) -> None:
    """The states that a handler's annotation names are those to which rows lead, its own included."""
    rows = {type(LABELS[row.target]) for row in TABLE if isinstance(LABELS[row.state], kind)}
    assert targets(module) == rows | {kind}


@pytest.mark.parametrize(
    ("label", "kind"),
    [(label, kind) for label, kinds in IGNORED.items() for kind in EVENTS if kind in kinds],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_is_ignored_changes_nothing(label: str, kind: type[Event]) -> None:
    """One notice, the very same state and the very same memory, even where the request is an open one."""
    state = LABELS[label]
    before = memory(state)
    for request in ("r-9", "r-1"):
        following, after, effects = advance(CONFIG, state, before, event(kind, request))
        assert following is state
        assert after is before
        assert effects == (Ignored(event=kind.__name__, state=label),)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("kind", [kind for kind in EVENTS if "request" in typing.get_type_hints(kind)])
def test_an_answer_to_something_else_changes_nothing(label: str, kind: type[Event]) -> None:
    """A request that is not open cannot be answered, in any state."""
    state = LABELS[label]
    before = memory(state)
    following, after, effects = advance(CONFIG, state, before, event(kind, "r-1"))
    assert (following is state, after is before) == (True, True)
    assert effects == (Ignored(event=kind.__name__, state=label),)


# What the states above, with their one call each, have rows for and no use: it needs a second call at work.
SECOND_CALL = {
    (f"{name}{suffix}", kind)
    for name, kinds in {
        "confirming": (ToolProgressed, ToolFinished, AgentFinished),
        "dispatching": (ToolProgressed, ToolFinished),
    }.items()
    for suffix in ("", ".stopping")
    for kind in kinds
} | {("executing", Entered)}


@pytest.mark.parametrize(
    ("label", "kind"),
    sorted({(row.state, row.event) for row in TABLE} - SECOND_CALL, key=str),
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_what_has_rows_takes_one_of_them(label: str, kind: type[Event]) -> None:
    """What answers an open request, or needs none, applies, and leads where a row does."""
    state = LABELS[label]
    following, effects = transition(state, Context(CONFIG, memory(state), event(kind, "r-9")))
    assert not dispatcher.ignored(effects)
    assert (label, kind, following.label) in LEGAL


@pytest.mark.parametrize(
    "label", ["thinking.start", "thinking.prompt", "thinking.go", "thinking.end", "compacting.weigh"]
)
def test_a_prompt_waits_in_states_that_are_left_at_once(label: str) -> None:
    """Stepped by hand, a state that waits for nothing takes a prompt and stays."""
    state = LABELS[label]
    following, after, _ = advance(CONFIG, state, memory(state), event(UserSent, ""))
    assert following == state
    assert [mail.text for mail in after.mail] == ["and this"]


def test_stepping_by_hand_needs_no_driver() -> None:
    """`transition` on a thinking agent gives a streaming one and the request that leaves."""
    following, effects = transition(Thinking(), Context(CONFIG, memory(Thinking()), Entered(at=1.0)))
    assert isinstance(following, Streaming)
    assert [type(effect).__name__ for effect in effects] == ["CallModel", "ModelCalled", "UseIds"]


def test_a_way_without_a_row_is_refused() -> None:
    """A state that no machine gets into leads off the table: that is refused, and nothing has changed."""
    running, queued = batch(Running(request="r-9")).calls[0], batch(Queued()).calls[0]
    state = Executing(batch=Batch(calls=(running, queued), offered=("tool",), stopping=Stopping.DENIED))
    before = memory(state)
    machine = Machine(CONFIG, state, before)
    with pytest.raises(IllegalTransition) as caught:
        machine.advance(event(ToolFinished, "r-9"))
    assert str(caught.value) == "no row for ToolFinished in executing.stopping leading to confirming.stopping"
    assert (machine.state is state, machine.memory is before) == (True, True)
