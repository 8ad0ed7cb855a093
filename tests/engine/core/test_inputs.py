"""Inputs of people: checked and cleaned before one is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import pytest

from turnwheel import Approve, ApproveAlways, Deny, HookAnswer, Limits, ModelSpec, Price
from turnwheel.effects.config import Config, Steering
from turnwheel.effects.errors import (
    ArgumentError,
    CallerError,
    ConfigError,
    QueueFull,
    UnknownCall,
    UnknownRequest,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    CallCancelled,
    ControlReceived,
    Interrupted,
    Post,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Binary
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import SetMode, SetModel, SetThinking
from turnwheel.engine.core.inputs import (
    Input,
    cancel_event,
    check_question,
    check_room,
    closed,
    closers,
    control_event,
    steer_input,
)
from turnwheel.engine.core.machine import Machine, calls_in, questions
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted
from turnwheel.engine.journal.fold import SessionState
from turnwheel.performers.approvals import approval_event, located
from turnwheel.testing.harness import MachineHarness, calls

PICTURE = Binary(media_type="image/png", data=b"\x89PNG")
CONFIG = Config(model=ModelSpec(name="one", price=Price(input=1, output=1)), limits=Limits(usd=1))
HALF = "half a \ud83d pair"
WHOLE = "half a ? pair"
MISTAKEN: Any = {"password": "hunter2"}


def kept(event: Post) -> Post:
    entry = decode_entry(encode_entry(Posted(event=event)))
    assert isinstance(entry, Posted)
    return entry.event


def test_a_prompt_and_a_steer_have_their_sender_time_and_files() -> None:
    said = Input(text="look", id="m1", files=(PICTURE,), sender="mail//ann")
    sent, steered = said.sent(5.0), said.steered(6.0, Steering.NOW)
    expected = ("m1", "look", (PICTURE,))
    assert (sent.at, sent.sender, sent.id, sent.text, sent.files) == (5.0, "mail//ann", *expected)
    assert (steered.at, steered.how, steered.id, steered.text, steered.files) == (
        6.0,
        Steering.NOW,
        *expected,
    )
    assert Input(text="", id="m1", files=(PICTURE,)).sent(0.0).files == (PICTURE,)
    # A list stays no list: what is journaled does not change with it.
    assert Input(text="", id="m1", files=cast("Any", [PICTURE])).files == (PICTURE,)


def test_a_character_that_cannot_be_written_is_replaced_before_it_is_kept() -> None:
    said = Input(text=HALF, id=HALF, sender=HALF)
    answer = approval_event("r", Deny(message=HALF), 0.0, HALF)
    sent, steered = said.sent(0.0), said.steered(0.0, Steering.NOW)
    assert (said.id, sent.text, sent.id, sent.sender, steered.text, steered.id) == (WHOLE,) * 6
    assert (answer.decision, answer.by) == (Deny(message=WHOLE), WHOLE)
    changed = approval_event("r", Approve(arguments=f'{{"to": "{HALF}"}}'), 0.0, "ann")
    assert changed.decision == Approve(arguments=f'{{"to": "{WHOLE}"}}')
    for event in (sent, steered, answer, changed):
        assert kept(event) == event


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"text": " \n"}, r"the prompt is empty; give text or a file"),
        ({"id": ""}, "id must not be empty; got '' .leave it out"),
        ({"id": ".."}, "id must not be '.' or '..', which are steps in an address; got '..'"),
        ({"text": b"look"}, "the prompt must be text; got b'look'"),
        ({"text": None}, "must be text; got None"),
        ({"id": 7}, "must be text; got 7"),
        ({"sender": None}, "must be text; got None"),
        ({"id": "x" * 1_001}, "the id of a prompt has 1,001 characters"),
        ({"sender": "x" * 1_001}, "the sender of a prompt has 1,001 characters"),
        ({"files": PICTURE}, "files must be a list or tuple of Binary; got Binary"),
        ({"files": "cat.png"}, "files must be a list or tuple of Binary; got 'cat.png'"),
        ({"files": ["cat.png"]}, r"files must hold Binary\(media_type=..., data=bytes\); got 'cat.png'"),
    ],
)
def test_a_wrong_prompt_is_refused_with_its_value(wrong: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"text": "look", "id": "m1"}
    with pytest.raises(CallerError, match=why):
        Input(**{**given, **wrong})


@pytest.mark.parametrize(
    "decision",
    [
        Approve(),
        Approve(arguments='{"amount": 1}'),
        Approve(arguments={"amount": 1, "to": "\N{CAT FACE}"}),
        ApproveAlways(where=(("amount", "1"), ("to", "a*"))),
        Deny(message="no", interrupt=True),
    ],
)
def test_an_answer_is_kept_as_it_was_given(decision: Any) -> None:
    answer = approval_event("r", decision, 5.0, "ann")
    assert (answer.at, answer.request, answer.decision, answer.by) == (5.0, "r", decision, "ann")
    assert kept(answer) == answer


PARTS = "the message of a no must be text"
NONE = r"decision must be Approve\(\), ApproveAlways\(\) or Deny\(\); got "


@pytest.mark.parametrize(
    ("decision", "by", "why"),
    [
        (Deny(message=MISTAKEN), "ann", f"{PARTS}.*message: dict"),
        (Deny(interrupt="yes"), "", PARTS),  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # wrong
        (MISTAKEN, "ann", f"{NONE}dict"),
        ("hunter2", "ann", f"{NONE}str"),
        *[(wrong, "", NONE) for wrong in (True, None, Approve)],
        *[(Approve(), wrong, f"must be text; got {wrong}") for wrong in (None, 5)],
    ],
)
def test_a_wrong_answer_is_refused_without_its_words(decision: Any, by: Any, why: str) -> None:
    """A journal that held one could not be gone on with. Errors are logged, and it may hold a password."""
    with pytest.raises(ArgumentError, match=why) as caught:
        approval_event("r", decision, 1.0, by)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("made", [Approve, HookAnswer])
@pytest.mark.parametrize("arguments", [None, 5, [("password", "hunter2")], {"password": {"hunter2"}}])
def test_arguments_that_are_no_dict_are_refused_where_they_are_written(made: Any, arguments: Any) -> None:
    with pytest.raises(ArgumentError, match="arguments must be a dict") as caught:
        made(arguments=arguments)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        SetModel(model="one"),
        SetThinking(tokens=100),
        SetThinking(tokens=None),
        *[SetMode(mode=mode) for mode in PermissionMode],
    ],
)
def test_a_change_is_kept_as_it_was_made(change: Any) -> None:
    control = control_event(change, CONFIG, 5.0, "c1", None)
    assert (control.at, control.id, control.change) == (5.0, "c1", change)
    assert kept(control) == control


@pytest.mark.parametrize("mode", PermissionMode)
def test_a_mode_may_be_named_by_its_bare_word(mode: PermissionMode) -> None:
    """The mode itself holds at once, and not only after a restart."""
    word: Any = mode.value
    control = control_event(SetMode(mode=word), CONFIG, 0.0, "c1", None)
    assert isinstance(control.change, SetMode)
    assert control.change.mode is mode


KINDS = r"change must be SetModel, SetMode or SetThinking"


@pytest.mark.parametrize(
    ("kind", "field", "wrong", "why"),
    [
        (dict, "mode", "plan", KINDS),
        (SetMode, "mode", "loud", "SetMode.mode must be one of .*; got 'loud'"),
        (SetMode, "mode", [], r"SetMode.mode must be one of .*; got \[\]"),
        (SetModel, "model", 5, KINDS),
        (SetThinking, "tokens", "5", KINDS),
        (SetModel, "model", " ", "cannot apply SetModel.*: a model has a name"),
        (SetModel, "model", "other", "cannot apply SetModel.*: the limit in USD needs a price for 'other'"),
        (SetThinking, "tokens", 0, "a number of tokens above 0, or None; got 0"),
    ],
)
def test_a_wrong_change_is_refused(kind: type, field: str, wrong: Any, why: str) -> None:
    with pytest.raises(ArgumentError if why == KINDS else ConfigError, match=why):
        control_event(kind(**{field: wrong}), CONFIG, 0.0, "c1", None)


# What closes a question, and a full queue


ROOM = Machine.start(CONFIG, "go", run="r")
SENT = UserSent(at=0.0, id="more", text="more")
PASS: list[Post] = [
    ApprovalGiven(at=0.0, request="r-1", decision=Approve()),
    Interrupted(at=0.0),
    CallCancelled(at=0.0, call="r-0"),
]
REFUSED: list[Post] = [
    SENT,
    UserSteered(at=0.0, id="more", text="more"),
    ControlReceived(at=0.0, id="more", change=SetModel(model="one")),
]


@pytest.mark.parametrize("queued", [0, 1], ids=["none begun", "one in the queue of the run"])
def test_a_full_queue_refuses_words_and_lets_through_what_empties_it(
    monkeypatch: pytest.MonkeyPatch, queued: int
) -> None:
    monkeypatch.setattr("turnwheel.effects.validators.MAX_WAITING", 3)
    state = SessionState(machine=ROOM if queued else None, posted=[SENT] * (2 - queued))
    for event in (*PASS, *REFUSED):
        check_room(event, state, "s")
    state.posted.append(SENT)
    for event in PASS:
        check_room(event, state, "s")
    for event in REFUSED:
        with pytest.raises(QueueFull, match="'s' has 3 prompts waiting"):
            check_room(event, state, "s")


OVER = Machine.start(CONFIG, "go", run="r")
OVER.advance(at=0.0)
OVER.advance(Interrupted(at=1.0))
OVER.advance(Interrupted(at=2.0))
LATER = Input(text="and the tests", id="m1")


@pytest.mark.parametrize(
    ("state", "always", "kind"),
    [
        (SessionState(), False, UserSent),
        (SessionState(), True, UserSteered),
        (SessionState(machine=ROOM), False, UserSteered),
        (SessionState(machine=OVER), False, UserSent),
        (SessionState(machine=OVER), True, UserSteered),
    ],
    ids=["no run", "no run, always", "a run", "over", "over, always"],
)
def test_a_steer_that_no_run_can_take_opens_the_next_one(
    state: SessionState, kind: type, *, always: bool
) -> None:
    found = steer_input(LATER, Steering.NOW, state, 5.0, always=always)
    assert type(found) is kind
    assert found in {LATER.sent(5.0), LATER.steered(5.0, Steering.NOW)}
    assert OVER.done


def asks() -> MachineHarness:
    """A run that asks about the first of two calls."""
    run = MachineHarness()
    run.say(*calls("write", "edit"))
    return run


@pytest.mark.parametrize(
    ("overtakes", "by"),
    [
        (lambda run: Interrupted(at=run.now), "an interrupt"),
        (lambda run: UserSteered(at=run.now, id="s", text="no", how=Steering.NOW), "a steer"),
        (
            lambda run: CallCancelled(at=run.now, call=questions(run.machine)[0].call),
            "a cancel",
        ),
        (
            lambda run: ApprovalGiven(
                at=run.now, request=questions(run.machine)[0].id, decision=Deny(message="no")
            ),
            "an answer",
        ),
    ],
    ids=["an interrupt", "a steer", "a cancel", "an answer"],
)
def test_an_answer_to_a_closed_question_says_what_closed_it(
    overtakes: Callable[[MachineHarness], Post], by: str
) -> None:
    run = asks()
    (question, *_) = questions(run.machine)
    state = SessionState(machine=run.machine)
    answer = approval_event(question.id, Approve(), 5.0, "ann")
    assert check_question(answer, state, state.questions) is answer
    state.posted.append(overtakes(run))
    with pytest.raises(UnknownRequest) as caught:
        check_question(answer, state, state.questions)
    assert (caught.value.request, caught.value.closed_by) == (question.id, by)
    assert caught.value.open == tuple([one.id for one in state.questions])


@pytest.mark.parametrize(
    ("stop", "by"),
    [
        (lambda run: run.interrupt(), "an interrupt"),
        (lambda run: run.steer("no", Steering.NOW), "a steer"),
        (lambda run: run.cancel("send"), "a stop"),
        (lambda _: None, None),
    ],
    ids=["an interrupt", "a steer", "a cancel", "nothing"],
)
def test_a_child_that_was_told_to_stop_says_by_what(
    stop: Callable[[MachineHarness], object], by: str | None
) -> None:
    run = MachineHarness()
    run.say(*calls("send"))
    (call,) = calls_in(run.machine.state)
    stop(run)
    state = SessionState(machine=run.machine)
    assert closers(state) == ({} if by is None else {call: by})
    error = closed("r-9", state, call, ())
    assert (error.request, error.closed_by, error.open) == ("r-9", by or "", ())


def test_an_answer_to_what_was_never_asked_names_the_open_questions() -> None:
    run = asks()
    state = SessionState(machine=run.machine)
    answer = approval_event("r-99", Approve(), 5.0, "ann")
    # What closes another question did not close this one.
    state.posted.append(CallCancelled(at=run.now, call=questions(run.machine)[0].call))
    with pytest.raises(UnknownRequest) as caught:
        check_question(answer, state, state.questions)
    assert (caught.value.closed_by, caught.value.open) == ("", tuple([one.id for one in state.questions]))
    # Nothing has closed it, whatever has closed the question that is asked.
    state.posted.append(Interrupted(at=run.now))
    with pytest.raises(UnknownRequest) as caught:
        check_question(answer, state, state.questions)
    assert (caught.value.closed_by, caught.value.open) == ("", ())
    with pytest.raises(UnknownRequest) as caught:
        check_question(answer, SessionState(), ())
    assert (caught.value.closed_by, caught.value.open) == ("", ())


def test_a_call_is_cancelled_while_it_has_no_result() -> None:
    run = asks()
    (call, *_) = calls_in(run.machine.state)
    assert cancel_event(call, run.machine, 5.0) == CallCancelled(at=5.0, call=call)
    for machine, known in ((run.machine, calls_in(run.machine.state)), (None, ())):
        with pytest.raises(UnknownCall) as caught:
            cancel_event("other", machine, 5.0)
        assert caught.value.open == known
    run.cancel("write")
    run.cancel("edit")
    with pytest.raises(UnknownCall):
        cancel_event(call, run.machine, 5.0)


def test_a_question_says_where_it_is_asked() -> None:
    (question, *_) = questions(asks().machine)
    found = located(question, "s.r-1", "r", attrs.evolve(CONFIG, agent="kid"))
    assert found == attrs.evolve(question, session="s.r-1", run="r", agent="kid")


def test_no_change_goes_beyond_the_mode_of_a_parent() -> None:
    child = Machine.start(attrs.evolve(CONFIG, agent="kid", ceiling=PermissionMode.DEFAULT), "go")
    wide = SetMode(mode=PermissionMode.BYPASS)
    with pytest.raises(ConfigError, match="cannot apply SetMode"):
        control_event(wide, CONFIG, 0.0, "c1", child)
    assert control_event(wide, CONFIG, 0.0, "c1", None).change == wide
    ceiled = attrs.evolve(CONFIG, ceiling=PermissionMode.DEFAULT)
    # Whatever an earlier agent of the session had.
    for machine in (None, Machine.start(CONFIG, "go")):
        with pytest.raises(ConfigError, match="'bypass' is wider than the ceiling, 'default'"):
            control_event(wide, ceiled, 0.0, "c1", machine)
    assert control_event(wide, CONFIG, 0.0, "c1", Machine.start(ceiled, "go")).change == wide
