"""What the table is written in: a row, and the rows that come again in many states."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.events import (
    AgentProgressed,
    ControlReceived,
    Event,
    ToolProgressed,
    UserSent,
    UserSteered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


WELCOME: Mapping[type[Event], str] = {
    UserSent: "the prompt waits for a run of its own",
    UserSteered: "it waits for the next model call",
    ControlReceived: "it holds from now on",
}
"""What may come in at any time and leaves a state as it is, with what becomes of it."""

ENDED_BY_HOOK: Mapping[str, str] = {
    "executing.stopping": "a hook ends the run; tools are cancelled",
    "dispatching.stopping": "a hook ends the run; a child is cancelled",
    "thinking.end": "a hook ends the run",
}
"""Where a hook leads that ends the run while a question is open."""

WITHDRAWN: Mapping[str, str] = {
    "executing.stopping": "questions are withdrawn, tools cancelled",
    "dispatching.stopping": "questions are withdrawn, a child cancelled",
    "thinking.end": "questions are withdrawn, nothing ran",
}
"""Where an interrupt leads while a question is open."""


@final
@attrs.frozen
class Row:
    """From *state* on *event* to *target*; *why* is what the arrow says."""

    state: str
    event: type[Event]
    target: str
    why: str

    @property
    def welcome(self) -> bool:
        """Whether it is one of those that come again in every state."""
        return self.state == self.target and self.event in WELCOME


def rows(state: str, ways: Mapping[type[Event], Mapping[str, str]]) -> tuple[Row, ...]:
    """The rows of *state*: for each event, where it can lead and why; then what is welcome anywhere."""
    own = [
        Row(state, event, target, why) for event, targets in ways.items() for target, why in targets.items()
    ]
    return (*own, *_welcome(state))


def _welcome(state: str) -> Iterable[Row]:
    return [Row(state, event, state, why) for event, why in WELCOME.items()]


def on(why: str, **more: str) -> Mapping[str, str]:
    """Where a batch can go on after *why*: under whichever name fits, or back; and *more* ways."""
    return {
        "executing": f"{why}; tools are at work",
        "confirming": f"{why}; a question is open",
        "dispatching": f"{why}; a child is at work",
        "thinking.go": f"{why}; every call has its result",
        **{target.replace("_", "."): reason for target, reason in more.items()},
    }


def winds_down(why: str, **more: str) -> Mapping[str, str]:
    """Where a batch that is being given up can go on after *why*; and *more* ways."""
    return {
        "executing.stopping": f"{why}; tools are still at work",
        "dispatching.stopping": f"{why}; a child is still at work",
        "thinking.go": f"{why}; the rest was skipped",
        **{target.replace("_", "."): reason for target, reason in more.items()},
    }


def refused(why: str) -> Mapping[str, str]:
    """More ways `on` from an open question where the call is given up, because of *why*."""
    return {
        "executing_stopping": f"{why}; tools are still at work",
        "confirming_stopping": f"{why}; other questions stay open",
        "dispatching_stopping": f"{why}; a child is still at work",
        "thinking_end": f"{why}, which ends the run",
    }


def progress(state: str) -> Mapping[type[Event], Mapping[str, str]]:
    """What whoever is at work tells, which leaves *state* as it is."""
    return {
        ToolProgressed: {state: "a tool said something"},
        AgentProgressed: {state: "a child told what it has spent"},
    }
