"""The table is the machine: rows, handlers' annotations and what really happens say the same."""

from __future__ import annotations

import sys
import typing
from collections import Counter
from types import ModuleType

import attrs
import pytest

from turnwheel.effects import Effect
from turnwheel.effects.config import ToolSpec
from turnwheel.effects.errors import IllegalTransition
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    Approve,
    CallCancelled,
    ControlReceived,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    ToolLost,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import (
    Message,
    Part,
    Role,
    StopReason,
    Text,
    ToolCall,
    user,
)
from turnwheel.effects.notices import DoneReason, Ignored, InputReceived
from turnwheel.effects.permissions import Basis
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.records import SetModel
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.machine import Machine
from turnwheel.engine.transition import advance, ignored, transition
from turnwheel.states import (
    compacting,
    confirming,
    dispatching,
    done,
    executing,
    streaming,
    thinking,
)
from turnwheel.states.batch.batch import (
    AllowedAwaitingHooks,
    Asked,
    Batch,
    Call,
    Phase,
    Queued,
    Running,
    RunningChild,
    Stopping,
    Timer,
)
from turnwheel.states.context import Context, Memory
from turnwheel.states.state import (
    Admitting,
    Compacting,
    CompactReason,
    Confirming,
    Consulting,
    Dispatching,
    Done,
    End,
    Ending,
    Executing,
    Go,
    Opening,
    Pausing,
    Plan,
    Prompt,
    Reading,
    Retry,
    Start,
    State,
    Steer,
    Streaming,
    Summary,
    Thinking,
)
from turnwheel.states.table import IGNORED, LEGAL, TABLE
from turnwheel.testing.harness import config

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


def batch(*phases: Phase, stopping: Stopping = Stopping.NONE) -> Batch:
    """A batch of one call in each of *phases*."""
    wishes = [
        ToolCall(id=f"r-{number}", wire_id="w", name="tool", arguments="{}")
        for number in range(2, len(phases) + 2)
    ]
    calls = tuple([Call(call=wish, phase=phase) for wish, phase in zip(wishes, phases, strict=True)])
    return Batch(calls=calls, offered=("tool",), stopping=stopping)


# What is open is called by what it waits for.
TOOL, CHILD, HOOKS = (
    Running(request="tool"),
    RunningChild(request="child"),
    AllowedAwaitingHooks(request="hooks", ground=Basis.PERSON),
)
QUESTION = Asked(request="question", deadline=Timer(request="timer", due=5.0))
PLAN = Plan(cut=1, limit=1_000)
SUMMARY = Summary(request="model", model="wire:model", plan=PLAN)

DENIED, INTERRUPTED = Stopping.DENIED, Stopping.INTERRUPTED
STATES: tuple[State, ...] = (
    Thinking(stage=Start()),
    Thinking(stage=Reading(request="files")),
    Thinking(stage=Opening(request="hooks")),
    Thinking(stage=Prompt()),
    Thinking(stage=Steer()),
    Thinking(stage=Admitting(request="hooks", ids=("sender-1",))),
    Thinking(stage=Go()),
    Thinking(stage=Retry(request="timer", due=5.0)),
    Thinking(stage=Ending(request="hooks", reason=DoneReason.END_TURN)),
    Thinking(stage=End(reason=DoneReason.END_TURN)),
    Streaming(request="model", model="wire:model"),
    Streaming(request="model", model="wire:model", stopping=INTERRUPTED),
    Executing(batch=batch(TOOL, HOOKS)),
    Executing(batch=batch(TOOL, HOOKS, stopping=DENIED)),
    Confirming(batch=batch(QUESTION, TOOL, CHILD, HOOKS)),
    Confirming(batch=batch(QUESTION, TOOL, CHILD, HOOKS, stopping=DENIED)),
    Dispatching(batch=batch(CHILD, TOOL, HOOKS)),
    Dispatching(batch=batch(CHILD, TOOL, HOOKS, stopping=DENIED)),
    Compacting(reason=CompactReason.THRESHOLD),
    Compacting(reason=CompactReason.THRESHOLD, stage=Consulting(request="hooks", cut=1)),
    Compacting(reason=CompactReason.THRESHOLD, stage=SUMMARY),
    Compacting(reason=CompactReason.THRESHOLD, stage=SUMMARY, stopping=INTERRUPTED),
    Compacting(reason=CompactReason.THRESHOLD, stage=Pausing(request="timer", due=5.0, plan=PLAN)),
    Done(reason=DoneReason.END_TURN),
)
LABELS = {state.label: state for state in STATES}
PASSING = [label for label, state in LABELS.items() if not state.open and label != "done"]
"""States that wait for nothing: a machine passes through them within one step."""

CONFIG = config(tools=(ToolSpec(name="tool"),))
NOWHERE = "r-1"
"""A request that is not open."""


def event(kind: type[Event], request: str = "") -> Event:
    """An event of this *kind*; it answers *request*, or what such an event answers."""
    made: dict[type[Event], Event] = {
        Entered: Entered(at=7.0),
        ModelStreamed: ModelStreamed(
            at=7.0, request=request or "model", before=0, count=1, pieces=(TextPiece("a"),)
        ),
        ModelFinished: ModelFinished(
            at=7.0, request=request or "model", stop=StopReason.END_TURN, usage=Usage(input=1)
        ),
        ModelFailed: ModelFailed(at=7.0, request=request or "model", failure=Failure.SERVER, message="500"),
        ToolProgressed: ToolProgressed(at=7.0, request=request or "tool", text="half way"),
        ToolFinished: ToolFinished(at=7.0, request=request or "tool", content="fine"),
        ToolLost: ToolLost(at=7.0, request=request or "tool"),
        ApprovalGiven: ApprovalGiven(at=7.0, request=request or "question", decision=Approve()),
        HookAnswered: HookAnswered(at=7.0, request=request or "hooks"),
        InstructionsRead: InstructionsRead(at=7.0, request=request or "files", text="be brief"),
        AgentProgressed: AgentProgressed(at=7.0, request=request or "child", spent=Spent(turns=1)),
        AgentFinished: AgentFinished(at=7.0, request=request or "child", content="fine"),
        TimerFired: TimerFired(at=7.0, request=request or "timer"),
        UserSent: UserSent(at=7.0, id="sender-2", text="and this"),
        UserSteered: UserSteered(at=7.0, id="sender-3", text="left"),
        Interrupted: Interrupted(at=7.0),
        ControlReceived: ControlReceived(at=7.0, id="sender-4", change=SetModel(model="wire:other")),
        CallCancelled: CallCancelled(at=7.0, call="r-2"),
    }
    return made[kind]


def memory(state: State) -> Memory:
    """A memory that fits *state*: a conversation, with open calls in its last message for a batch."""
    made = Memory(run="r", model="wire:model", next_id=10)
    history = made.history.append(user("hello"))
    if isinstance(state, Executing | Confirming | Dispatching):
        parts: tuple[Part, ...] = (Text(text="well"), *[call.call for call in state.batch.calls])
        history = history.append(Message(role=Role.ASSISTANT, parts=parts))
    return attrs.evolve(made, history=history)


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
    for request in (NOWHERE, *state.open):
        following, after, effects = advance(CONFIG, state, before, event(kind, request))
        assert following is state
        assert after is before
        assert effects == (Ignored(event=kind.__name__, state=label),)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("kind", [kind for kind in EVENTS if "request" in typing.get_type_hints(kind)])
def test_an_answer_to_something_else_changes_nothing(label: str, kind: type[Event]) -> None:
    """It is for what it answers and for nothing else that is open, in any state."""
    state = LABELS[label]
    before = memory(state)
    right = event(kind).request  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # it has one
    for request in (NOWHERE, *state.open):
        if request != right:
            following, after, effects = advance(CONFIG, state, before, event(kind, request))
            assert (following is state, after is before) == (True, True)
            assert effects == (Ignored(event=kind.__name__, state=label),)


@pytest.mark.parametrize(
    ("label", "kind"),
    sorted({(row.state, row.event) for row in TABLE} - {("executing", Entered)}, key=str),
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_what_has_rows_takes_one_of_them(label: str, kind: type[Event]) -> None:
    """What answers an open request, or needs none, applies, and leads where a row does."""
    state = LABELS[label]
    following, effects = transition(state, Context(CONFIG, memory(state), event(kind)))
    assert not ignored(effects)
    assert (label, kind, following.label) in LEGAL


def test_a_batch_begins_when_it_is_entered() -> None:
    """The one state that has rows for it and waits for nothing only before its first call was looked at."""
    state = Executing(batch=batch(Queued(), Queued()))
    following, effects = transition(state, Context(CONFIG, memory(state), Entered(at=7.0)))
    assert following.label == "confirming"
    assert "AskApproval" in [type(effect).__name__ for effect in effects]
    unmoved, effects = transition(LABELS["executing"], Context(CONFIG, memory(state), Entered(at=7.0)))
    assert unmoved is LABELS["executing"]
    assert ignored(effects)


# Stepped by hand


@pytest.mark.parametrize("label", PASSING)
@pytest.mark.parametrize("kind", [UserSent, UserSteered, ControlReceived])
def test_what_people_send_is_welcome_in_states_that_are_left_at_once(label: str, kind: type[Event]) -> None:
    """Stepped by hand, a state that waits for nothing keeps it and stays; the same again changes nothing."""
    state = LABELS[label]
    following, after, effects = advance(CONFIG, state, memory(state), event(kind))
    assert following == state
    if kind is ControlReceived:
        assert after.model == "wire:other"
    else:
        assert [(mail.id, mail.text) for mail in after.mail] == [
            ("sender-2", "and this") if kind is UserSent else ("sender-3", "left")
        ]
        assert effects == (InputReceived(id=after.mail[0].id),)
    again = advance(CONFIG, following, after, event(kind))
    assert again == (following, after, (Ignored(event=kind.__name__, state=label),))


def test_stepping_by_hand_needs_no_driver() -> None:
    """`transition` on a thinking agent gives a streaming one and the request that leaves."""
    following, effects = transition(Thinking(), Context(CONFIG, memory(Thinking()), Entered(at=1.0)))
    assert isinstance(following, Streaming)
    assert [type(effect).__name__ for effect in effects] == ["CallModel", "ModelCalled", "UseIds"]


def test_a_way_without_a_row_is_refused() -> None:
    """A state that no machine gets into leads off the table: that is refused, and nothing has changed."""
    state = Executing(batch=batch(TOOL, Queued(), stopping=DENIED))
    before = memory(state)
    machine = Machine(CONFIG, state, before)
    with pytest.raises(IllegalTransition) as caught:
        machine.advance(event(ToolFinished))
    assert str(caught.value) == "no row for ToolFinished in executing.stopping leading to confirming.stopping"
    assert (machine.state is state, machine.memory is before) == (True, True)
