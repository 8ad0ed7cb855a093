"""What the people around a played run say: prompts, steers, settings, answers, and what is given up."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from provers.simulation import replies
from turnwheel.effects.config import Steering
from turnwheel.effects.events import (
    Approve,
    ApproveAlways,
    CallCancelled,
    ControlReceived,
    Decision,
    Deny,
    InputWithdrawn,
    Post,
    UserSent,
    UserSteered,
)
from turnwheel.effects.messages import Binary
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from turnwheel.engine.core.machine import calls_at
from turnwheel.states.batch.batch import Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwheel.states.state import State

FILE = Binary(media_type="text/plain", data=b"see here", name="note.txt")

TEMPERS = (
    {"yes": 40, "no": 30, "edited": 20, "always": 10},
    {"yes": 25, "no": 60, "edited": 15, "always": 0},
)
"""What people say to questions: this and that, or mostly no."""


@final
class People:
    """Some people; whatever they send into the run *run* has an id of its own."""

    def __init__(self, choices: Choices, run: str = "r") -> None:
        self._choices = choices
        self._run = run
        self._temper = TEMPERS[choices.below(len(TEMPERS))]
        self._sent = 0

    def beginning(self) -> tuple[Post, ...]:
        """What a run begins with: a prompt, and sometimes more, said before it and after it."""
        first, more = self.prompt(0.0), weighted(self._choices, {0: 70, 1: 10, 2: 10, 4: 10})
        return (first, *[self.said(at / 2) for at in range(more)])

    def said(self, at: float) -> Post:
        """Anything that waits for its turn."""
        match weighted(self._choices, {"prompt": 60, "steer": 25, "control": 15}):
            case "prompt":
                return self.prompt(at)
            case "steer":
                return self.steer(at)
            case _:
                return self.control(at)

    def _name(self) -> str:
        self._sent += 1
        return f"{self._run}-sender-{self._sent}"

    def prompt(self, at: float) -> UserSent:
        """A prompt, of one of few people."""
        name = self._name()
        sender = pick(self._choices, ("", "they", "them"))
        return UserSent(at=at, id=name, text=f"do {name}", files=self._files(), sender=sender)

    def steer(self, at: float) -> UserSteered:
        """Something that is meant for the run that is under way."""
        name, how = self._name(), pick(self._choices, tuple(Steering))
        return UserSteered(at=at, id=name, text=f"rather {name}", how=how, files=self._files())

    def _files(self) -> tuple[Binary, ...]:
        return (FILE,) if chance(self._choices, 10) else ()

    def control(self, at: float) -> ControlReceived:
        """A changed setting, which may be one that cannot be made."""
        mode = pick(self._choices, tuple(PermissionMode))
        changes: dict[Change, int] = {
            SetModel(model="wire:other"): 20,
            SetModel(model="wire:unknown"): 10,
            SetModel(model=" "): 5,
            SetMode(mode=mode): 40,
            SetThinking(tokens=2_000): 10,
            SetThinking(tokens=None): 10,
            SetThinking(tokens=0): 5,
        }
        return self.change(at, weighted(self._choices, changes))

    def change(self, at: float, change: Change) -> ControlReceived:
        """This very *change*."""
        return ControlReceived(at=at, id=self._name(), change=change)

    def cancel(self, at: float, state: State, *, first: bool = False) -> CallCancelled:
        """
        One call is given up, mostly one that is not over, of the batch that is under way or of none.

        It is the *first* of those that are not over where that is wanted.
        """
        call = "r-0"
        if calls := calls_at(state):
            left = [one for one in calls if not isinstance(one.phase, Settled)]
            some = left[:1] if first else calls if chance(self._choices, 10) else left
            call = pick(self._choices, some).call.id
        return CallCancelled(at=at, call=call)

    def withdraw(self, at: float, waiting: Sequence[str]) -> InputWithdrawn:
        """One of the inputs that are *waiting* is taken back, or one that has not come."""
        return InputWithdrawn(at=at, input=pick(self._choices, waiting or (f"{self._run}-sender-0",)))

    def decision(self, tool: str) -> Decision:
        """The answer to the question whether *tool* may run."""
        match weighted(self._choices, self._temper):
            case "yes":
                return Approve()
            case "edited":
                return Approve(arguments=replies.arguments(self._choices, tool))
            case "always":
                where = (("path", "a*"),) if chance(self._choices, 40) else ()
                return ApproveAlways(where=where)
            case _:
                message = pick(self._choices, ("", "not today"))
                return Deny(message=message, interrupt=chance(self._choices, 12))
