"""Everything that is written down comes back as it was, and what cannot be read says where."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.effects import events, history, messages, notices, records, requests, usage
from turnwheel.effects.config import Approval, Config, ModelSpec, Policy, ToolSpec
from turnwheel.effects.errors import JournalError
from turnwheel.effects.hooks import Hook, HookSpec
from turnwheel.engine.core import codec
from turnwheel.engine.core.codec import MOST_CONFIGS, TAG, decode, encode
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import VERSION, Entry, Stepped, TakenOver
from turnwheel.states.batch.batch import Batch, Phase
from turnwheel.states.state import CompactStage, Executing, Stage, State, Streaming

UNIONS: dict[str, Any] = {
    "Event": events.Event,
    "Post": events.Post,
    "Decision": events.Decision,
    "Request": requests.Request,
    "View": requests.View,
    "Record": records.Record,
    "Change": records.Change,
    "Notice": notices.Notice,
    "State": State,
    "Stage": Stage,
    "CompactStage": CompactStage,
    "Phase": Phase,
    "Part": messages.Part,
    "Piece": history.Piece,
    "Entry": Entry,
}


@pytest.mark.parametrize("union", UNIONS.values(), ids=UNIONS)
@given(data=st.data())
@settings(max_examples=75, deadline=None)
def test_every_word_comes_back_as_it_was(union: Any, data: st.DataObject) -> None:  # a union
    member = data.draw(st.sampled_from(get_args(union)))
    word = data.draw(st.from_type(member))

    assert json.loads(encode(word, union))["type"] == member.__name__
    assert word == decode(encode(word, union), union)
    assert encode(word) == encode(word, union)


def test_a_notice_within_a_notice_comes_back_as_it_was() -> None:
    """However deep: a child may have children."""
    said = notices.AgentNoticed(call="c", notice=notices.Warned(text="look out", at=0.0), at=0.0)
    passed_on = notices.AgentNoticed(call="d", notice=said, at=0.0)
    for notice in (said, passed_on):
        assert decode(encode(notice, notices.Notice), notices.Notice) == notice


def test_no_two_words_of_a_union_share_a_name() -> None:
    for name, union in UNIONS.items():  # a journal names what stands in it
        names = [member.__name__ for member in get_args(union)]
        assert len(names) == len(set(names)), name


def test_an_entry_is_json_that_anybody_can_read() -> None:
    event = events.ToolFinished(at=1.5, request="r-1", content="grüß")
    line = encode_entry(Stepped(event=event, label="executing"))

    assert json.loads(line) == {
        "event": {"at": 1.5, "request": "r-1", "content": "grüß", TAG: "ToolFinished"},
        "label": "executing",
        TAG: "Stepped",
        "v": VERSION,
    }


def test_settings_are_written_in_full() -> None:
    """A default that changes one day must not change what an old run was told."""
    hook = HookSpec(name="h", hook=Hook.STOP)
    config = Config(model=ModelSpec(name="m"), tools=(ToolSpec(name="t"),), hooks=(hook,))
    told = json.loads(encode_entry(TakenOver(at=0.0, config=config)))["config"]

    for plain, kind in (
        (told, Config),
        (told["tools"][0], ToolSpec),
        (told["hooks"][0], HookSpec),
        (told["policy"], Policy),
    ):
        assert set(plain) == {field.name for field in attrs.fields(kind)}
    assert told["tools"][0]["approval"] == Approval.BY_SIDE_EFFECT


def test_equal_settings_are_one_object_as_long_as_they_are_among_the_latest() -> None:
    def read_again(model: str) -> Config:
        config = Config(model=ModelSpec(name=model))
        entry = decode_entry(encode_entry(TakenOver(at=0.0, config=config)))
        assert isinstance(entry, TakenOver)
        assert entry.config == config
        assert entry.config is not None
        return entry.config

    first = read_again("m0")
    assert read_again("m0") is first
    for number in range(1, MOST_CONFIGS):
        assert read_again(f"m{number}") is not first
    assert read_again("m0") is first
    for number in range(MOST_CONFIGS):
        read_again(f"n{number}")
    assert read_again("m0") is not first


@pytest.mark.parametrize(("less", "shared"), [(0, True), (1, False)])
def test_settings_that_are_large_are_read_anew_each_time(
    monkeypatch: pytest.MonkeyPatch, less: int, *, shared: bool
) -> None:
    data = encode(Config(model=ModelSpec(name=f"large {less}")), Config)
    monkeypatch.setattr(codec, "LARGEST_CONFIG", len(data) - less)
    assert (decode(data, Config) is decode(data, Config)) is shared


def test_what_is_odd_is_written_all_the_same_and_what_is_long_in_short() -> None:
    # A lone surrogate from a tool of the host's becomes a question mark.
    event = events.ToolFinished(at=1.0, request="r-1", content="a\ud800b")
    assert decode(encode(event, events.Event), events.Event).content == "a?b"
    # States refer to the conversation; they do not hold it.
    assert b"messages" not in encode(Streaming(request="r-1", model="m"), State)
    assert len(encode(Executing(batch=Batch(calls=())), State)) < 100
    # An answer that was not streamed has its pieces in the event that ends it.
    pieces, stop = (history.TextPiece("hi"),), messages.StopReason.END_TURN
    step = Stepped(
        event=events.ModelFinished(
            at=1.0, request="r-1", stop=stop, usage=usage.Usage(input=1), pieces=pieces
        ),
        label="done",
    )
    assert step == decode_entry(encode_entry(step))


def test_of_what_cannot_be_read_the_beginning_is_shown() -> None:
    with pytest.raises(JournalError) as caught:
        decode(b"x" * 300, events.Event, "this place")
    why = f"this place cannot be read, a newer version may have written it: {b'x' * 200!r} ("
    assert str(caught.value).startswith(why)


def test_what_is_larger_than_an_entry_may_be_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_ENTRY", 1_000)
    with pytest.raises(JournalError, match=r"^this text has 1,001 bytes, and may have 1,000$"):
        decode(b" " * 1_001, events.Event)
    with pytest.raises(JournalError, match=r"^this text cannot be read"):
        decode(b" " * 1_000, events.Event)


@pytest.mark.parametrize(
    ("amount", "known"),
    [("1e30", True), ("1e31", False), ("1e-30", True), ("1e-31", False), ("NaN", False), ("Infinity", False)],
)
def test_an_amount_of_money_has_no_more_digits_than_can_be_added_up(amount: str, *, known: bool) -> None:
    written = b'{"cost":"%s"}' % amount.encode()
    if known:
        assert decode(written, usage.Spent).cost == Decimal(amount)
        return
    with pytest.raises(JournalError, match="cannot be read"):
        decode(written, usage.Spent)


def test_text_that_cannot_be_encoded_is_replaced_wherever_it_stands() -> None:
    plain = {"a\ud800": ["b\ud800", ("c\udc00", 1, None)], "d": {"e": True}}
    assert json.loads(codec.in_json(plain)) == {"a?": ["b?", ["c?", 1, None]], "d": {"e": True}}
