"""
What is lived through until it is killed: one session with everything in it, by one process after another.

Four prompts. The first is a job in three answers: a read, an idempotent and an unsafe tool; a child, which
has tools of its own and asks a question, beside a read; and another unsafe tool, after which the conversation
is summarised. Others steer into it, change a setting and queue a prompt while it is at work, a model
stumbles, hooks look on, and a model is asked for a title. In the second a call is given up and another one
denied; the third is interrupted where it asks a person; and the last is only talk. Where runs come to an
output, that of the last is wrong twice: once by its schema, and once by what its validator says. All that
anybody says follows from the conversation and from what is noted, so whoever goes on says the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, final

import attrs

from provers.planned import planned
from turnwheel.effects.config import Concurrency, OnLost, Price
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import Message, Role
from turnwheel.effects.output import OutputMode
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import Usage

if TYPE_CHECKING:
    from turnwheel.performers import Durability

SESSION = "s"
STORE, NOTES = "sessions.db", "notes.jsonl"
"""The files of a life."""

PLANS: dict[str, tuple[tuple[str, ...], ...]] = {
    "first": (("peek", "put", "pay"), ("run_agent", "peek"), ("pay", "peek")),
    "second": (("burn",), ("put", "burn"), ("pay",)),
    "stopped": (("pay", "burn"),),
    "third": (),
    "errand": (("peek", "pay", "put"),),
}
"""The tools that are called in each answer to a prompt, before the last one, which only talks."""

PROMPTS = {"first": "first: " + "and so on " * 60, "second": "second: burn it", "stopped": "stopped: pay"}
"""What is asked at the beginning, by the sender's own id."""

CONTROLS, STEERS, SENDS, GIVES_UP = "first, 0.0", "first, 0.1", "first, 1.1", "second, 1.0"
"""The tools while which somebody changes a setting, steers, sends the last prompt, and gives up a call."""

CONTENDS = "first, 0.2"
"""The tool, an unsafe one, while which another worker tries to go on with the session."""

FULL, DENIED, STOPPED = "first, 2.0", "second, 2.0", "stopped, 0.0"
"""The call by which the window is nearly full, and those about which a person says no, and interrupts."""

THOUGHT = 512
"""The tokens that a model may think once somebody said so."""

ORDERS = {"control", "give up"}
"""What is ordered, beside what is said, and is kept once whoever ordered it was told so."""

TITLE = {"inline": "first: and so on and so on and so on and so on and so on…", "model": "A title"}
"""What the session is called, by who is asked for that."""

WINDOW = 1_000
LITTLE, NEARLY_FULL = Usage(input=10, output=5), Usage(input=900, output=5)
PRICE = Price(input=Decimal(2), output=Decimal(8))


class Asks(StrEnum):
    """Which processes ask somebody who answers at once: all of them, none, or every second."""

    ALL = "all"
    NONE = "none"
    SECOND = "second"


WRONG_AT_FIRST = "third"
"""The prompt whose output is wrong twice."""

GIVES = "verdict"
"""The tool with which an output is given, where there is one."""

MOST_DONE = 2
"""The most that can be done of a job: a validator takes no output that says more."""


@final
@attrs.frozen
class Verdict:
    """What a run comes to: how much of a *job* is *done*."""

    job: str
    done: int


@final
@attrs.frozen(kw_only=True)
class Script:
    """
    How a life differs from others.

    Which of its processes *asks* somebody who answers at once: the others rest on their questions. What
    others say comes *elsewhere*, through another store, as from another process. *renamed*: each process has
    another system prompt. *late*: much time passes between two processes. *on_lost* is that of the policy.
    *output*: how models are asked for a `Verdict`, None where runs come to text. *streamed*: models answer on
    the wire of Responses.
    """

    durability: Durability = "process"
    concurrency: Concurrency = Concurrency.SERIAL
    asks: Asks = Asks.ALL
    elsewhere: bool = False
    titles: str = "inline"
    on_lost: OnLost = OnLost.REPORT
    renamed: bool = False
    late: bool = False
    output: OutputMode | None = None
    streamed: bool = False


def speech(request: CallModel, shown: Sequence[Message]) -> tuple[Piece, ...]:
    """What the model says to what it is *shown*."""
    match request.purpose:
        case Purpose.TITLE:
            return (TextPiece("A title"),)
        case Purpose.SUMMARY:
            return TextPiece("They "), TextPiece("worked.")
        case Purpose.TURN:
            return _turn(request.output, shown)


def _turn(output: OutputMode | None, shown: Sequence[Message]) -> tuple[Piece, ...]:
    answered, wrong = 0, 0
    prompt = ""
    for message in reversed(shown):
        said = [message.text, *[result.content for result in message.results]]
        wrong += any(text.startswith("The output is not right") for text in said)
        if message.role is Role.USER and not message.text.startswith(("steer", "again", "The output")):
            prompt = message.text.partition(":")[0]
            break
        answered += message.role is Role.TOOL
    plan = PLANS.get(prompt.partition(" ")[0], ())
    if output is None or answered < len(plan):
        return planned(plan, prompt, answered)
    # Behind a summary, which is of the first job, nobody knows the prompt.
    verdict = json.dumps(_verdict(prompt if prompt in PLANS else "first", wrong))
    if output is OutputMode.TOOL:
        return TextPiece("That is "), TextPiece("it."), CallPiece(0, "call_0", GIVES, verdict)
    return TextPiece(verdict[:9]), TextPiece(verdict[9:])


def _verdict(prompt: str, wrong: int) -> dict[str, object]:
    """What the model gives for an output that was *wrong* so often."""
    if prompt == WRONG_AT_FIRST and wrong == 0:
        return {"job": prompt}
    return {"job": prompt, "done": MOST_DONE + (prompt == WRONG_AT_FIRST and wrong == 1)}
