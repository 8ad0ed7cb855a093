"""The answers of performers: of the right kind to their request, and what stands for one that failed."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from turnwheel.effects.events import (
    AgentFinished,
    ApprovalGiven,
    CallInspected,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    ModelFailed,
    TimerFired,
    ToolFinished,
)
from turnwheel.effects.hooks import Hook, HookSaid
from turnwheel.effects.messages import Outcome
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Conversation,
    FireHook,
    InspectCall,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from turnwheel.performers.answers import check_answer, failed_answer
from turnwheel.states.rules import model_messages

AT = 5.0

REQUESTS: list[Request] = [
    CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1)),
    RunTool(id="r-1", call="r-0", tool="look", arguments="{}"),
    RunAgent(id="r-1", call="r-0", agent="kid", prompt="go"),
    AskApproval(id="r-1", call="r-0", tool="look", arguments="{}"),
    FireHook(id="r-1", hook=Hook.STOP, names=("one", "two")),
    InspectCall(id="r-1", call="r-0", tool="look", arguments="{}"),
    ReadInstructions(id="r-1", files=("A.md",)),
    SetTimer(id="r-1", due=7.0),
]
FAULT, GONE = "ValueError: bug", "CancelledError: "
CRASHED = f"Tool execution crashed: {FAULT}"
WHO: Any = {"at": AT, "request": "r-1"}
FAILED: list[Event] = [
    ModelFailed(**WHO, failure=Failure.INTERNAL, message=FAULT),
    ToolFinished(**WHO, content=CRASHED, outcome=Outcome.CRASHED),
    AgentFinished(**WHO, content=CRASHED, outcome=Outcome.CRASHED),
    ApprovalGiven(**WHO, decision=Deny(message=f"The approver failed: {FAULT}")),
    HookAnswered(**WHO, said=(HookSaid(name="one", fault=FAULT), HookSaid(name="two", fault=FAULT))),
    CallInspected(**WHO),
    InstructionsRead(**WHO, text="", faults=(f"the instructions cannot be read: {FAULT}",)),
    TimerFired(**WHO),
]
"""What each of these requests is answered with where its performer fails."""
CANCELS: list[Event | None] = [
    ModelFailed(**WHO, failure=Failure.CANCELLED, message=GONE),
    ToolFinished(**WHO, content=model_messages.CANCELLED, outcome=Outcome.CANCELLED),
    AgentFinished(**WHO, content=model_messages.CANCELLED, outcome=Outcome.CANCELLED),
    *[None] * 5,
]
"""And where it is cancelled: what can have done nothing needs no answer."""


@pytest.mark.parametrize(("request_", "failed", "cancelled"), [*zip(REQUESTS, FAILED, CANCELS, strict=True)])
def test_a_request_whose_performer_fails_has_its_own_answer(
    request_: Request, failed: Event, cancelled: Event | None
) -> None:
    assert failed_answer(request_, ValueError("bug"), AT) == failed
    assert failed_answer(request_, asyncio.CancelledError(), AT) == cancelled


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_only_an_answer_of_its_own_kind_to_this_very_request_is_believed(number: int) -> None:
    request = REQUESTS[number]
    right: Any = FAILED[number]
    others: list[Any] = [one for one in FAILED if type(one) is not type(right)]
    wrong = [
        *others,
        attrs.evolve(right, request="r-2"),
        *([] if isinstance(request, AskApproval) else [None]),
    ]
    own: Any = attrs.evolve(right, at=AT - 1.0)
    assert check_answer(request, own, AT) is own
    for answer in wrong:
        fault = TypeError(f"the performer of {type(request).__name__} answered r-1 with {answer!r}")
        assert check_answer(request, answer, AT) == failed_answer(request, fault, AT)


AGAIN = model_messages.run_again("as it went")


@pytest.mark.parametrize(
    ("outcome", "content", "told"),
    [
        (Outcome.OK, "as it went", Outcome.OK),
        (Outcome.UNKNOWN, "as it went", Outcome.UNKNOWN),
        (Outcome.ERROR, AGAIN, Outcome.ERROR),
        (Outcome.CRASHED, AGAIN, Outcome.CRASHED),
        (Outcome.TIMED_OUT, AGAIN, Outcome.TIMED_OUT),
        (Outcome.CANCELLED, AGAIN, Outcome.UNKNOWN),
    ],
)
def test_a_second_try_that_fails_says_that_the_first_may_have_done_the_work(
    outcome: Outcome, content: str, told: Outcome
) -> None:
    first = RunTool(id="r-1", call="r-0", tool="look", arguments="{}")
    answer = ToolFinished(at=AT, request="r-1", content="as it went", outcome=outcome)
    assert check_answer(first, answer, AT) == answer
    second = attrs.evolve(first, again=True)
    assert check_answer(second, answer, AT) == attrs.evolve(answer, content=content, outcome=told)


def test_a_second_try_that_crashed_or_was_cancelled_says_so_too() -> None:
    second = RunTool(id="r-1", call="r-0", tool="look", arguments="{}", again=True)
    crashed = failed_answer(second, ValueError("bug"), AT)
    assert crashed == ToolFinished(**WHO, content=model_messages.run_again(CRASHED), outcome=Outcome.CRASHED)
    cancelled = failed_answer(second, asyncio.CancelledError(), AT)
    told = model_messages.run_again(model_messages.CANCELLED)
    assert cancelled == ToolFinished(**WHO, content=told, outcome=Outcome.UNKNOWN)


def test_an_approver_may_leave_a_question_to_another_one() -> None:
    assert check_answer(REQUESTS[3], None, AT) is None
