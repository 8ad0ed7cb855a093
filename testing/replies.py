"""What a played model says: whole answers of every kind, well-formed and not, in the pieces of a wire."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import final

import attrs

from ..effects.events import AgentFinished, Failure, ModelFailed, ModelFinished, ToolFinished
from ..effects.messages import Binary, Outcome, StopReason
from ..effects.pieces import CallPiece, Piece, ReasoningPiece, TextPiece
from ..effects.usage import Spent, Usage
from .choices import Choices, chance, pick, weighted

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
            retry_after=weighted(choices, {None: 80, 0.0: 10, 7.5: 10}),
            jitter=choices.below(10) / 10,
            usage=self.usage if chance(choices, 50) else None,
            seconds=self.seconds,
        )


STOPS: Mapping[StopReason, int] = {
    StopReason.TOOL_USE: 80,
    StopReason.END_TURN: 7,
    StopReason.MAX_TOKENS: 5,
    StopReason.STOP_SEQUENCE: 4,
    StopReason.UNKNOWN: 4,
    StopReason.REFUSAL: 2,
}
ENDS: Mapping[StopReason, int] = {
    StopReason.END_TURN: 55,
    StopReason.MAX_TOKENS: 25,
    StopReason.TOOL_USE: 5,
    StopReason.STOP_SEQUENCE: 5,
    StopReason.UNKNOWN: 5,
    StopReason.REFUSAL: 5,
}


def reply(choices: Choices, offered: tuple[str, ...], *, may_call: bool) -> Speech:
    """An answer of any kind. Where it *may_call* it mostly calls what is *offered*, so that runs last."""
    kind = weighted(choices, {"text": 10, "calls": 82 if may_call else 0, "failure": 8})
    pieces = tuple(_words(choices))
    if kind == "failure":
        kept = pieces if chance(choices, 40) else ()
        return Speech(
            pieces=kept,
            failure=pick(choices, tuple(Failure)),
            usage=usage(choices),
            seconds=_seconds(choices),
        )
    if kind == "calls":
        pieces += tuple(_calls(choices, offered))
    stop = weighted(choices, STOPS if kind == "calls" else ENDS)
    return Speech(pieces=pieces, stop=stop, usage=usage(choices), seconds=_seconds(choices))


def summary(choices: Choices) -> Speech:
    """An answer to the request for a summary: short, as it mostly is, empty, too long, or none."""
    kind = weighted(choices, {"short": 55, "empty": 10, "long": 10, "failure": 25})
    if kind == "failure":
        return Speech(
            pieces=(TextPiece("half a"),) if chance(choices, 50) else (),
            failure=weighted(choices, {Failure.LOST: 50, Failure.SERVER: 30, Failure.CANCELLED: 20}),
        )
    text = {"short": "what was said", "empty": " ", "long": "and so on " * 500}[kind]
    return Speech(
        pieces=(TextPiece(text[:7]), TextPiece(text[7:])), usage=usage(choices), seconds=_seconds(choices)
    )


def usage(choices: Choices) -> Usage:
    """What a model says it used; sometimes nothing."""
    if chance(choices, 25):
        return Usage()
    return Usage(input=20 + choices.below(300), output=1 + choices.below(80), cached=choices.below(20))


def _seconds(choices: Choices) -> float:
    return choices.below(8) / 2


def _words(choices: Choices) -> Iterator[Piece]:
    if chance(choices, 20):
        yield ReasoningPiece("let me ")
        yield ReasoningPiece("think", "proof" if chance(choices, 50) else "")
    for _ in range(weighted(choices, {1: 40, 2: 30, 0: 15, 4: 15})):
        yield TextPiece(pick(choices, ("word ", "some more words ", "a long paragraph, " * 12, "")))


def _calls(choices: Choices, offered: tuple[str, ...]) -> Iterator[Piece]:
    count = weighted(choices, {1: 15, 2: 25, 3: 20, 4: 15, 7: 35})
    second_halves: list[Piece] = []
    for index in range(count):
        name = weighted(choices, {"nowhere": 6, "note": 3, "": 2} | dict.fromkeys(offered, 12))
        text = arguments(choices, name)
        half = choices.below(len(text) + 1)
        yield CallPiece(index, pick(choices, (f"call_{index}", "call_0", "")), name, text[:half])
        rest = CallPiece(index, arguments=text[half:])
        if chance(choices, 20):
            second_halves.append(rest)
        else:
            yield rest
    yield from second_halves


def arguments(choices: Choices, tool: str) -> str:
    """The arguments of a call: mostly right, sometimes cut, wrong, missing or no object."""
    if tool in {"send", "scout", "ranger"}:
        good = json.dumps(
            {"agent": weighted(choices, {"kid": 60, "heir": 30, "nobody": 10}), "prompt": "do it"}
        )
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
        content=pick(choices, ("fine", "", "much to read " * 20)),
        outcome=outcome,
        seconds=choices.below(12) / 2,
        files=(PICTURE,) if chance(choices, 5) else (),
    )


def returned(choices: Choices, request: str, at: float) -> AgentFinished:
    """How a child comes back."""
    return AgentFinished(
        at=at,
        request=request,
        content="found it",
        outcome=weighted(choices, {Outcome.OK: 80, Outcome.ERROR: 10, Outcome.CANCELLED: 10}),
        spent=Spent(turns=2, usage=Usage(input=40 * choices.below(20)), seconds=choices.below(20) / 2),
    )
