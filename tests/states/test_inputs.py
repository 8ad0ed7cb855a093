"""Which prompts are one, and until when another may join them."""

from __future__ import annotations

import pytest

from turnwheel.effects.config import Policy
from turnwheel.effects.records import MailKind
from turnwheel.states.context import Mail
from turnwheel.states.rules.inputs import joins_until, next_prompt, prompt_group


def mail(*inputs: str) -> tuple[Mail, ...]:
    """Of ``ann 3.5``, a prompt of her at 3.5 s, with the text as its id; ``ann 3.5 steer``, a steer."""
    found = []
    for one in inputs:
        sender, at, *steer = one.split()
        lane = MailKind.STEER if steer else MailKind.PROMPT
        found.append(Mail(id=one, text=one, at=float(at), sender=sender.strip("-"), lane=lane))
    return tuple(found)


JOINED = [
    # With no window, and without a sender, each is alone.
    ((0.0, 0.0), ("ann 0", "ann 0"), 1),
    ((0.0, 9.0), ("ann 0", "ann 0"), 1),
    ((2.0, 0.0), ("- 0", "- 0"), 1),
    # From prompt to prompt, and by one sender.
    ((2.0, 0.0), ("ann 0", "ann 2", "ann 4"), 3),
    ((2.0, 0.0), ("ann 0", "ann 2.1"), 1),
    ((2.0, 0.0), ("ann 0", "bob 1"), 1),
    ((2.0, 0.0), ("ann 0", "bob 1", "ann 2"), 2),
    ((2.0, 0.0), ("ann 5", "ann 4"), 1),
    ((2.0, 0.0), ("ann 5", "ann 5"), 2),
    ((2.0, 0.0), ("ann 0 steer", "ann 0", "ann 1 steer", "ann 2"), 2),
    # No longer than the longest, and not past the prompt of another.
    ((2.0, 4.0), ("ann 0", "ann 2", "ann 4", "ann 6"), 3),
    ((2.0, 3.9), ("ann 0", "ann 2", "ann 4"), 2),
    ((2.0, 4.0), ("ann 0", "bob 1", "ann 2"), 1),
]


@pytest.mark.parametrize(("windows", "inputs", "count"), JOINED)
def test_prompts_of_one_sender_within_a_time_are_one(
    windows: tuple[float, float], inputs: tuple[str, ...], count: int
) -> None:
    group = prompt_group(mail(*inputs), policy(*windows))
    assert len(group) == count
    assert all(one.lane is MailKind.PROMPT for one in group)


def policy(within: float, longest: float = 0.0) -> Policy:
    return Policy(coalesce=within, coalesce_longest=longest)


@pytest.mark.parametrize(
    ("windows", "inputs", "until"),
    [
        ((2.0, 0.0), (), None),
        ((2.0, 0.0), ("- 1",), None),
        ((2.0, 0.0), ("ann 1 steer",), None),
        ((2.0, 0.0), ("ann 1",), 3.0),
        ((2.0, 0.0), ("ann 1", "ann 2.5"), 4.5),
        ((2.0, 0.0), ("ann 1", "bob 2"), 3.0),
        ((2.0, 9.0), ("ann 1",), 3.0),
        ((2.0, 3.0), ("ann 1", "ann 2.5"), 4.0),
        ((2.0, 9.0), ("ann 1", "bob 2"), None),
        ((2.0, 9.0), ("ann 1", "bob 2 steer"), 3.0),
    ],
)
def test_until_when_another_may_join(
    windows: tuple[float, float], inputs: tuple[str, ...], until: float | None
) -> None:
    assert joins_until(mail(*inputs), policy(*windows)) == until


def test_a_run_takes_the_next_prompt_and_every_steer_in_their_order() -> None:
    inputs = ("ann 0 steer", "ann 1", "bob 2", "bob 3 steer", "ann 3")
    assert next_prompt(mail(*inputs), policy(0.0)) == ("ann 0 steer", "ann 1", "bob 3 steer")
    assert next_prompt(mail(*inputs), policy(2.0)) == ("ann 0 steer", "ann 1", "bob 3 steer", "ann 3")
