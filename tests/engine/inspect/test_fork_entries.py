"""Forks of journals that were written by hand: what is added to the copy, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from turnwheel import Approve, ChildSpec, Deny, ModelSpec, Policy
from turnwheel.effects import config, errors, events, messages, requests, usage
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.engine.inspect.fork import ForkPoint, Replacement, check_replacement, fork_entries
from turnwheel.engine.inspect.replay import replayed
from turnwheel.engine.journal import encoding
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Entry, Forked, HandedOver, Posted, RunOpened, Stepped
from turnwheel.engine.journal.fold import fold

RAN = events.ToolFinished(at=1.0, request="r-1", content="")
SETTINGS = config.Config(
    model=ModelSpec(name="m"),
    tools=(config.ToolSpec(name="hire", kind="agent", approval="never"),),
    children=(ChildSpec(name="kid"),),
)
SAID = events.ModelFinished(
    at=3.0,
    request="r-1",
    stop=messages.StopReason.END_TURN,
    usage=usage.Usage(),
    pieces=(TextPiece("Done."),),
)
WRITTEN = [
    encode_entry(Posted(event=events.UserSent(at=1.0, id="p", text="Go"))),
    encode_entry(RunOpened(at=2.0, run="r", config=SETTINGS)),
    encode_entry(Stepped(event=SAID, label="done")),
]


HIRES = attrs.evolve(
    SAID,
    stop=messages.StopReason.TOOL_USE,
    pieces=(CallPiece(0, "w", "hire", '{"agent": "kid", "prompt": "go"}'),),
)
HIRING = [
    *WRITTEN[:2],
    encode_entry(Stepped(event=HIRES, label="dispatching")),
    encode_entry(
        Stepped(event=events.AgentFinished(at=4.0, request="r-3", content="found"), label="streaming")
    ),
    encode_entry(Stepped(event=attrs.evolve(SAID, at=5.0, request="r-4"), label="done")),
]


async def forked(
    at: int, instead: Replacement | None = None, written: Sequence[bytes] = tuple(WRITTEN)
) -> list[Entry]:
    """The entries that are added to those before step *at*."""
    point = ForkPoint(at=at, now=9.0, new_id=lambda: "new", instead=instead)
    entries, _ = await fork_entries(written, "s", "t", point)
    assert entries[:at] == [*written[:at]]
    return [decode_entry(data) for data in entries[at:]]


async def test_only_a_run_that_goes_on_gets_another_name() -> None:
    assert await forked(2) == [Forked(at=9.0, session="s", run="new")]
    assert await forked(3) == [Forked(at=9.0, session="s", run="")]


async def test_what_is_known_of_a_session_is_not_read_again() -> None:
    point = ForkPoint(at=3, now=9.0, new_id=lambda: "new")
    unread = [b"never read"] * 3
    entries, _ = await fork_entries(unread, "s", "t", point, fold(WRITTEN, "s"))
    assert entries == [*unread, encode_entry(Forked(at=9.0, session="s"))]


def test_a_replacement_that_no_entry_can_hold_is_refused_as_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "MAX_ENTRY", 200)
    with pytest.raises(errors.TooLarge, match=r"^an entry of a journal has [0-9]+ bytes, and may have 200$"):
        check_replacement(attrs.evolve(RAN, content="x" * 200))
    sent = events.UserSent(at=1.0, id="q", text="x", sender="s" * 1_001)
    with pytest.raises(errors.TooLarge, match=r"^the sender of a prompt has 1,001 characters"):
        check_replacement(sent)


async def test_of_a_child_at_work_the_steps_before_and_behind_it_are_named() -> None:
    why = "^session 's' cannot be forked at step 3: child 'kid' is at work for call 'r-2'; fork at 2 or 4, or"
    with pytest.raises(errors.ConfigError, match=why):
        await forked(3, None, HIRING)
    with pytest.raises(errors.ConfigError, match="; fork at 2, or pass"):
        await forked(3, None, HIRING[:3])
    for at in (2, 4, 5):
        assert isinstance((await forked(at, None, HIRING))[0], Forked)


async def test_a_child_that_follows_from_the_replacement_is_the_copys_own() -> None:
    fork, step, unbegun = await forked(2, HIRES)
    assert isinstance(fork, Forked)
    assert (step, unbegun) == (
        Stepped(event=HIRES, label="dispatching"),
        HandedOver(at=9.0, unbegun=("new-3",)),
    )


async def test_an_input_in_place_of_a_step_waits_where_no_run_is_under_way() -> None:
    steer = events.UserSteered(at=5.0, id="q", text="left")
    assert (await forked(3, steer))[1:] == [Posted(event=steer)]
    assert (await forked(2, steer))[1:] == [Stepped(event=steer, label="streaming")]


PAY = CallPiece(0, "w", "pay", "{}")


@pytest.mark.parametrize("wishes", [(PAY, CallPiece(1, "w", "pay", "{}")), (PAY,)], ids=["two", "one"])
async def test_a_decision_answers_the_question_of_its_step_or_else_the_only_one(
    wishes: tuple[CallPiece, ...],
) -> None:
    settings = config.Config(
        model=ModelSpec(name="m"),
        tools=(config.ToolSpec(name="pay"),),
        policy=Policy(concurrency="parallel_reads"),
    )
    asks = attrs.evolve(HIRES, pieces=wishes)
    before = [
        WRITTEN[0],
        encode_entry(RunOpened(at=2.0, run="r", config=settings)),
        encode_entry(Stepped(event=asks, label="confirming")),
    ]
    *_, last = replayed(before, "s")
    asked = [one.id for one in last.effects if isinstance(one, requests.AskApproval)]
    for name in [*asked, "none"] if len(asked) == 1 else asked:
        there = encode_entry(Posted(event=events.ApprovalGiven(at=4.0, request=name, decision=Deny())))
        answered = (await forked(3, Approve(), [*before, there]))[1]
        assert isinstance(answered, Stepped)
        assert isinstance(answered.event, events.ApprovalGiven)
        assert answered.event.request == (asked[0] if name == "none" else name)


def test_of_a_replacement_that_is_refused_the_beginning_is_shown() -> None:
    wrong: Any = ["x" * 500]
    with pytest.raises(errors.ArgumentError, match=rf"or text; got \['{'x' * 198}$"):
        check_replacement(wrong)
    never = attrs.evolve(RAN, content="x" * 500, at=math.nan)
    with pytest.raises(errors.ArgumentError) as caught:
        check_replacement(never)
    assert str(caught.value).startswith(f"{repr(never)[:200]} cannot be kept: ")
