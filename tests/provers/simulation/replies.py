"""What a played model says: whole answers of every kind, well-formed and not, in the pieces of a wire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import final

import attrs

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from provers.simulation.habits import Habit
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    Failure,
    ModelFailed,
    ModelFinished,
    ToolFinished,
    ToolProgressed,
)
from turnwheel.effects.history import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
)
from turnwheel.effects.messages import Binary, Outcome, ProviderCall, StopReason
from turnwheel.effects.requests import Request, RunAgent
from turnwheel.effects.usage import Spent, Usage

PICTURE = Binary(media_type="image/png", data=b"a picture", name="found.png")


@final
@attrs.frozen(kw_only=True)
class Speech:
    """A whole answer: its *pieces*, and how it ends; *failure* where it does not end well."""

    pieces: tuple[Piece, ...]
    stop: StopReason = StopReason.END_TURN
    failure: Failure | None = None
    usage: Usage = Usage()
    seconds: float = 0.0

    def end(
        self, request: str, at: float, last: tuple[Piece, ...], choices: Choices
    ) -> ModelFinished | ModelFailed:
        """The event that closes *request*; *last* are the pieces that were not streamed."""
        if self.failure is None:
            return ModelFinished(
                at=at, request=request, stop=self.stop, usage=self.usage, pieces=last, seconds=self.seconds
            )
        return ModelFailed(
            at=at,
            request=request,
            failure=self.failure,
            message="as played",
            retry_after=weighted(choices, {None: 75, 0.0: 10, 7.5: 15}),
            jitter=choices.below(10) / 10,
            usage=self.usage if chance(choices, 50) else None,
            seconds=self.seconds,
        )


UNDER_WAY: tuple[Piece, ...] = (
    ReasoningPiece(opaque='{"type": "server_tool_use", "id": "st", "name": "web_search", "input": {}}'),
    ProviderCall(id="st", name="web_search", arguments="{}", status="incomplete"),
)
"""A search of the provider that has no result yet."""

STOPS: Mapping[StopReason, int] = {
    StopReason.TOOL_USE: 80,
    StopReason.END_TURN: 7,
    StopReason.MAX_TOKENS: 5,
    StopReason.STOP_SEQUENCE: 4,
    StopReason.UNKNOWN: 4,
    StopReason.PAUSED: 3,
    StopReason.REFUSAL: 2,
}
ENDS: Mapping[StopReason, int] = {
    StopReason.END_TURN: 55,
    StopReason.MAX_TOKENS: 25,
    StopReason.TOOL_USE: 5,
    StopReason.STOP_SEQUENCE: 5,
    StopReason.UNKNOWN: 5,
    StopReason.PAUSED: 10,
    StopReason.REFUSAL: 5,
}


def reply(
    choices: Choices, offered: tuple[str, ...], others: tuple[str, ...], habit: Habit, *, may_call: bool
) -> Speech:
    """
    An answer of any kind. Where it *may_call* it mostly calls what is *offered*, so that runs last.

    Sometimes it calls *others*, which are not; and what its *habit* is, which is to fail, too.
    """
    kind = weighted(choices, {"text": 10, "calls": 82 if may_call else 0, "failure": habit.fails})
    pieces = tuple(_words(choices))
    if kind == "failure":
        kept = pieces if chance(choices, 40) else ()
        return Speech(
            pieces=kept,
            failure=weighted(choices, FAILURES),
            usage=usage(choices),
            seconds=_seconds(choices),
        )
    if kind == "calls":
        habitual = bool(habit.calls) and chance(choices, 80)
        pieces += habit.again(choices) if habitual else tuple(_calls(choices, offered, others))
    stop = weighted(choices, STOPS if kind == "calls" else ENDS)
    if stop is StopReason.PAUSED and chance(choices, 70):
        pieces += UNDER_WAY
    return Speech(pieces=pieces, stop=stop, usage=usage(choices), seconds=_seconds(choices))


FAILING: Mapping[Failure, int] = {
    Failure.LOST: 30,
    Failure.SERVER: 20,
    Failure.RATE_LIMIT: 15,
    Failure.OVERFLOW: 20,
    Failure.CANCELLED: 10,
    Failure.AUTH: 5,
}
"""How a summary fails."""


def summary(choices: Choices) -> Speech:
    """An answer to the request for a summary: short, as it mostly is, empty, too long, half, or none."""
    kind = weighted(choices, {"short": 50, "empty": 6, "long": 9, "half": 5, "failure": 30})
    if kind == "failure":
        return Speech(
            pieces=(TextPiece("half a"),) if chance(choices, 50) else (),
            failure=weighted(choices, FAILING),
        )
    long = "and so on " * pick(choices, (30, 120, 500))
    text = {"empty": " ", "long": long}.get(kind, "what was said")
    return Speech(
        pieces=(TextPiece(text[:7]), TextPiece(text[7:])),
        stop=StopReason.MAX_TOKENS if kind == "half" else StopReason.END_TURN,
        usage=usage(choices),
        seconds=_seconds(choices),
    )


def usage(choices: Choices) -> Usage:
    """What a model says it used; sometimes nothing."""
    if chance(choices, 25):
        return Usage()
    much = 800 if chance(choices, 12) else 0
    return Usage(input=20 + much + choices.below(300), output=1 + choices.below(80), cached=choices.below(20))


def _seconds(choices: Choices) -> float:
    return choices.below(8) / 2


def _words(choices: Choices) -> Iterator[Piece]:
    if chance(choices, 20):
        yield ReasoningPiece("let me ")
        yield ReasoningPiece("think", "proof" if chance(choices, 50) else "")
    for _ in range(weighted(choices, {1: 40, 2: 30, 0: 15, 4: 15})):
        yield TextPiece(pick(choices, ("word ", "some more words ", "a long paragraph, " * 12, "")))


FAILURES: Mapping[Failure, int] = {
    **dict.fromkeys(Failure, 10),
    Failure.RATE_LIMIT: 20,
    Failure.OVERLOADED: 20,
    Failure.OVERFLOW: 25,
}
"""How an answer fails."""

OTHERS: dict[str, int] = {"nowhere": 6, "note": 3, "": 2}
"""Names that a played model calls, be they offered or not."""


def _calls(choices: Choices, offered: tuple[str, ...], others: tuple[str, ...]) -> Iterator[Piece]:
    count = weighted(choices, {1: 15, 2: 25, 3: 20, 4: 15, 7: 35})
    second_halves: list[Piece] = []
    for index in range(count):
        name = weighted(choices, OTHERS | dict.fromkeys(others, 8) | dict.fromkeys(offered, 12))
        text = arguments(choices, name)
        half = choices.below(len(text) + 1)
        yield CallPiece(index, pick(choices, (f"call_{index}", "call_0", "")), name, text[:half])
        rest = CallPiece(index, arguments=text[half:])
        if chance(choices, 20):
            second_halves.append(rest)
        else:
            yield rest
    yield from second_halves


SEARCHES: tuple[Mapping[str, str | None], ...] = (
    {},
    {"path": "a"},
    {"path": "b"},
    {"path": ".."},
    {"path": "a", "glob": "*.py"},
    {"glob": None},
)
"""What a model searches, and for what."""


def arguments(choices: Choices, tool: str) -> str:
    """The arguments of a call: mostly right, sometimes cut, wrong, missing or no object."""
    if tool in {"send", "scout", "ranger"}:
        good = json.dumps(
            {"agent": weighted(choices, {"kid": 60, "heir": 30, "nobody": 10}), "prompt": "do it"}
        )
    elif tool == "hunt":
        good = json.dumps(pick(choices, SEARCHES))
    else:
        good = json.dumps({"path": pick(choices, ("a.txt", "b.txt"))})
    kind = weighted(choices, {"good": 84, "cut": 4, "empty": 4, "extra": 4, "no object": 4})
    return {"good": good, "cut": good[:-2], "empty": "", "extra": '{"x": 1}', "no object": "[1]"}[kind]


# What tools and children come back with


def worked(choices: Choices, request: str, at: float, *, cancelled: bool) -> ToolFinished:
    """How a tool ends, which may have been *cancelled*."""
    weights = {
        Outcome.OK: 70,
        Outcome.ERROR: 10,
        Outcome.CRASHED: 5,
        Outcome.TIMED_OUT: 5,
        Outcome.UNKNOWN: 2,
    }
    outcome = Outcome.CANCELLED if cancelled and chance(choices, 70) else weighted(choices, weights)
    return ToolFinished(
        at=at,
        request=request,
        content=weighted(choices, {"fine": 50, "": 15, "much to read " * 20: 15, "a long file " * 60: 20}),
        outcome=outcome,
        seconds=choices.below(12) / 2,
        files=(PICTURE,) if chance(choices, 5) else (),
    )


def progressed(choices: Choices, request: Request, at: float) -> ToolProgressed | AgentProgressed:
    """What is heard of *request* while it is worked on."""
    if isinstance(request, RunAgent):
        return AgentProgressed(at=at, request=request.id, spent=_of_a_child(choices, request))
    return ToolProgressed(at=at, request=request.id, text="half way")


def returned(choices: Choices, request: RunAgent, at: float) -> AgentFinished:
    """How a child comes back."""
    return AgentFinished(
        at=at,
        request=request.id,
        content="found it",
        outcome=weighted(choices, {Outcome.OK: 80, Outcome.ERROR: 10, Outcome.CANCELLED: 10}),
        spent=_of_a_child(choices, request),
    )


def _of_a_child(choices: Choices, request: RunAgent) -> Spent:
    """What a child used: mostly no more than it might."""
    limits, strict = request.limits, chance(choices, 85)
    tokens, seconds, cost = 40 * choices.below(20), choices.below(20) / 2, Decimal(choices.below(12)) / 1000
    if strict:
        tokens = tokens if limits.tokens is None else min(tokens, limits.tokens)
        seconds = seconds if limits.seconds is None else min(seconds, limits.seconds)
        cost = cost if limits.usd is None else min(cost, limits.usd)
    unpriced = tokens if chance(choices, 10) else 0
    return Spent(turns=2, usage=Usage(input=tokens), cost=cost, seconds=seconds, unpriced=unpriced)
