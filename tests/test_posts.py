"""What people say to a session: checked and cleaned before anything is kept."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel import (
    Approve,
    ApproveAlways,
    Binary,
    Deny,
    Limits,
    ModelSpec,
    Price,
)
from turnwheel.effects.config import Config, Steering
from turnwheel.effects.errors import ArgumentError, CallerError, ConfigError
from turnwheel.effects.events import Post
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
    """*event* as it comes back from a journal."""
    entry = decode_entry(encode_entry(Posted(event=event)))
    assert isinstance(entry, Posted)
    return entry.event


# Prompts and steers


def test_what_is_said_has_its_sender_its_time_and_its_files() -> None:
    """As a prompt and as a steer."""
    said = Input(text="look", id="m1", files=(PICTURE,), sender="mail//ann")
    sent, steered = said.sent(5.0), said.steered(6.0, Steering.NOW)
    assert (sent.at, sent.id, sent.text, sent.files, sent.sender) == (
        5.0,
        "m1",
        "look",
        (PICTURE,),
        "mail//ann",
    )
    assert (steered.at, steered.id, steered.text, steered.files, steered.how) == (
        *(6.0, "m1", "look", (PICTURE,)),
        Steering.NOW,
    )


def test_files_alone_say_something() -> None:
    """A picture needs no words."""
    assert Input(text="", id="m1", files=(PICTURE,)).sent(0.0).files == (PICTURE,)


def test_what_cannot_be_written_is_replaced_before_it_is_kept() -> None:
    """What a journal gives back is what the run had."""
    said = Input(text=HALF, id=HALF, sender=HALF)
    answer = approval_event("r", Deny(message=HALF), 0.0, HALF)
    sent, steered = said.sent(0.0), said.steered(0.0, Steering.NOW)
    assert (said.id, sent.text, sent.id, sent.sender, steered.text, steered.id) == (WHOLE,) * 6
    assert (answer.decision, answer.by) == (Deny(message=WHOLE), WHOLE)
    for event in (sent, steered, answer):
        assert kept(event) == event


@pytest.mark.parametrize(
    ("wrong", "said"),
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
def test_what_says_nothing_or_is_no_text_is_refused(wrong: dict[str, Any], said: str) -> None:
    """With the value; nothing of it is kept."""
    given: dict[str, Any] = {"text": "look", "id": "m1"}
    with pytest.raises(CallerError, match=said):
        Input(**{**given, **wrong})


# Answers


@pytest.mark.parametrize(
    "decision",
    [
        Approve(),
        Approve(arguments='{"amount": 1}'),
        ApproveAlways(),
        ApproveAlways(where=(("amount", "1"), ("to", "a*"))),
        Deny(),
        Deny(message="no", interrupt=True),
    ],
)
def test_an_answer_is_kept_as_it_was_given(decision: Any) -> None:
    """With who gave it, and when."""
    answer = approval_event("r", decision, 5.0, "ann")
    assert (answer.at, answer.request, answer.decision, answer.by) == (5.0, "r", decision, "ann")
    assert kept(answer) == answer


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Approve, {"arguments": {"amount": 1}}),
        (Approve, {"arguments": None}),
        (Deny, {"message": None}),
        (Deny, {"interrupt": "yes"}),
    ],
)
def test_an_answer_with_parts_of_the_wrong_kind_is_refused(kind: type, wrong: dict[str, Any]) -> None:
    """A journal that held one could not be gone on with."""
    with pytest.raises(ArgumentError, match=r"arguments \(JSON\) and message must be text"):
        approval_event("r", kind(**wrong), 0.0, "")


@pytest.mark.parametrize("wrong", [True, "yes", None, Approve])
def test_what_is_no_decision_is_refused(wrong: Any) -> None:
    """Nothing but a decision counts as one."""
    with pytest.raises(
        ArgumentError, match=r"decision must be Approve\(\), ApproveAlways\(\) or Deny\(\); got "
    ):
        approval_event("r", wrong, 0.0, "")


@pytest.mark.parametrize("wrong", [None, 5])
def test_who_answers_is_text(wrong: Any) -> None:
    """It is kept with the answer."""
    with pytest.raises(ArgumentError, match=f"must be text; got {wrong}"):
        approval_event("r", Approve(), 0.0, wrong)


# Settings


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
    """Under an id of its own."""
    control = control_event(change, CONFIG, 5.0, "c1")
    assert (control.at, control.id, control.change) == (5.0, "c1", change)
    assert kept(control) == control


@pytest.mark.parametrize("mode", PermissionMode)
def test_a_mode_may_be_named_by_its_bare_word(mode: PermissionMode) -> None:
    """It is the mode itself that holds, from the first moment on and not only after a restart."""
    word: Any = mode.value
    control = control_event(SetMode(mode=word), CONFIG, 0.0, "c1")
    assert isinstance(control.change, SetMode)
    assert control.change.mode is mode


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (str, "plan"),
        (SetMode, "loud"),
        (SetMode, []),
        (SetModel, 5),
        (SetThinking, "5"),
    ],
)
def test_what_is_no_change_is_refused(kind: type, wrong: Any) -> None:
    """A word that is none, or one about something of the wrong kind."""
    names = {SetMode: "mode", SetModel: "model", SetThinking: "tokens"}
    change = kind(**{names[kind]: wrong}) if kind in names else wrong
    with pytest.raises(ArgumentError, match=r"change must be SetModel, SetMode or SetThinking"):
        control_event(change, CONFIG, 0.0, "c1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (SetModel(model=" "), "cannot apply SetModel.*: a model has a name"),
        (SetModel(model="other"), "cannot apply SetModel.*: the limit in USD needs a price for 'other'"),
        (SetThinking(tokens=0), "a number of tokens above 0, or None; got 0"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(change: Any, said: str) -> None:
    """With the reason, before anything is kept."""
    with pytest.raises(ConfigError, match=said):
        control_event(change, CONFIG, 0.0, "c1")


@pytest.mark.parametrize(
    ("decision", "kind"),
    [
        (Approve(arguments=MISTAKEN), "arguments: dict"),
        (Deny(message=MISTAKEN), "message: dict"),
        (MISTAKEN, "got dict"),
        ("hunter2", "got str"),
    ],
)
def test_a_decision_that_is_none_is_refused_without_its_words(decision: Any, kind: str) -> None:
    """Errors are logged, and what somebody puts into a call may be a password."""
    with pytest.raises(ArgumentError) as caught:
        approval_event("q", decision, 1.0, "ann")
    assert kind in str(caught.value)
    assert "hunter2" not in str(caught.value)
