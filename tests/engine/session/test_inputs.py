"""Inputs of people: checked and cleaned before one is kept."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel import Approve, ApproveAlways, Deny, HookAnswer, Limits, ModelSpec, Price
from turnwheel.effects.config import Config, Steering
from turnwheel.effects.errors import ArgumentError, CallerError, ConfigError
from turnwheel.effects.events import Post
from turnwheel.effects.messages import Binary
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import SetMode, SetModel, SetThinking
from turnwheel.engine.inputs import Input, approval_event, control_event
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Posted

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


def test_a_character_that_cannot_be_written_is_replaced_before_it_is_kept() -> None:
    said = Input(text=HALF, id=HALF, sender=HALF)
    answer = approval_event("r", Deny(message=HALF), 0.0, HALF)
    sent, steered = said.sent(0.0), said.steered(0.0, Steering.NOW)
    assert (said.id, sent.text, sent.id, sent.sender, steered.text, steered.id) == (WHOLE,) * 6
    assert (answer.decision, answer.by) == (Deny(message=WHOLE), WHOLE)
    for event in (sent, steered, answer):
        assert kept(event) == event


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"text": " \n"}, r"the prompt is empty; give text or a file"),
        ({"id": ""}, "id must not be empty; got '' .leave it out"),
        ({"text": b"look"}, "prompt, id and sender must be text; got b'look'"),
        ({"text": None}, "must be text; got None"),
        ({"id": 7}, "must be text; got 7"),
        ({"sender": None}, "must be text; got None"),
        ({"files": PICTURE}, "Input.files must be a tuple of Binary; got Binary"),
        ({"files": [PICTURE]}, "Input.files must be a tuple of Binary"),
        ({"files": ("cat.png",)}, r"got \('cat.png',\)"),
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
        (SetMode, "mode", "loud", "PermissionMode must be one of .*; got 'loud'"),
        (SetMode, "mode", [], r"PermissionMode must be one of .*; got \[\]"),
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
