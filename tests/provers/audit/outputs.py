"""What must hold of the output of a run: how it is asked for, what is taken, how often it may be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from provers.simulation.outputs import right
from turnwheel.effects.config import REQUIRED_CHOICE
from turnwheel.effects.events import Entered, OutputDecoded
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.notices import DoneReason, RunEnded
from turnwheel.effects.output import OutputMode
from turnwheel.effects.records import AppendMessage, CountOutput
from turnwheel.effects.requests import CallModel, DecodeOutput, Purpose
from turnwheel.states.state import End

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwheel.effects.config import Config
    from turnwheel.effects.messages import Message
    from turnwheel.engine.inspect.transitions import Transition

ANSWERED = {DoneReason.END_TURN, DoneReason.STOP_SEQUENCE}


def besides(request: CallModel, config: Config) -> str:
    """The instructions of *request* without the words that ask for an output."""
    spec = config.output
    if spec is None or request.output is not OutputMode.PROMPTED:
        return request.instructions
    before, description, words = request.instructions.rpartition(spec.description)
    return before.removesuffix("\n") if description and spec.schema in words else request.instructions


def taken_call(messages: Sequence[Message], name: str) -> str:
    """The arguments of the call of the tool *name* that the last of *messages* says was taken, if any was."""
    if not messages or messages[-1].role is not Role.TOOL:
        return ""
    good = {result.call for result in messages[-1].results if result.outcome is Outcome.OK}
    taken = [call for call in messages[-2].calls if call.name == name and call.id in good]
    return taken[0].arguments if taken else ""


def given_in(messages: Sequence[Message], name: str) -> str:
    """What the last answer among *messages* gives for an output."""
    if not messages:
        return ""
    if messages[-1].role is Role.TOOL:
        taken, last = taken_call(messages, name), messages[-2]
    else:
        taken, last = "", messages[-1]
    ended = last.role is Role.ASSISTANT and last.stop is not StopReason.PAUSED
    return taken or (last.text if ended else "")


@final
@attrs.define(kw_only=True)
class OutputBook:
    """How often the output of one run was *wrong*, and the one that was *taken* last."""

    wrong: int = 0
    taken: str = ""

    def copy(self) -> OutputBook:
        """A book that goes on from here on its own."""
        return OutputBook(wrong=self.wrong, taken=self.taken)

    def take(self, now: Transition) -> list[str]:
        """The faults of the step *now*."""
        faults = [fault for effect in now.effects for fault in self._effect(effect, now)]
        if now.config.output is not None:
            if now.state.label == "thinking.checking" and isinstance(now.event, Entered):
                faults += self._checked(now)
            elif isinstance(now.event, OutputDecoded):
                faults += self._judged(now, is_right=not now.event.fault)
        self.wrong += sum(isinstance(effect, CountOutput) for effect in now.effects)
        if now.remembered.progress.outputs != self.wrong:
            faults.append(f"{self.wrong} outputs were wrong, the memory is {now.remembered.progress}")
        return faults

    def _effect(self, effect: object, now: Transition) -> list[str]:
        match effect:
            case CallModel(purpose=Purpose.TURN):
                return _asked(effect, now.config)
            case DecodeOutput(text=text):
                ours = now.config.output is not None and now.config.output.decoded
                return [] if ours and right(text) else [f"{effect} is of no use"]
            case RunEnded():
                return self._ended(effect, now)
            case _:
                return []

    def _checked(self, now: Transition) -> list[str]:
        """The schema decides first."""
        spec = now.config.output
        assert spec is not None
        is_right = right(given_in(now.memory.history.slice(0, len(now.memory.history)), spec.name))
        if is_right and spec.decoded:
            asked = now.following.label == "thinking.decoding"
            return [] if asked else [f"an output that fits led to {now.following.label}"]
        return self._judged(now, is_right=is_right)

    def _judged(self, now: Transition, *, is_right: bool) -> list[str]:
        """A right output ends the run, a wrong one is asked for again as often as that may be."""
        stage, retries = getattr(now.following, "stage", None), now.config.retries.output
        said = [one.message for one in now.effects if isinstance(one, AppendMessage)]
        counted = sum(isinstance(one, CountOutput) for one in now.effects)
        if is_right:
            self.taken = stage.output if isinstance(stage, End) else ""
            ends = isinstance(stage, End) and stage.reason in ANSWERED and right(stage.output)
            return [] if ends and not said and not counted else [f"a right output led to {now.following}"]
        if self.wrong < retries:
            again = [message.role for message in said] == [Role.USER] and counted == 1
            goes_on = now.following.label == "thinking.go" and again
            return [] if goes_on else [f"wrong output {self.wrong + 1} of {retries} led to {now.following}"]
        over = isinstance(stage, End) and stage.reason is DoneReason.OUTPUT_INVALID and bool(stage.detail)
        return [] if over and not said else [f"the last wrong output led to {now.following}"]

    def _ended(self, told: RunEnded, now: Transition) -> list[str]:
        if now.config.output is not None and told.reason in ANSWERED:
            return (
                []
                if told.output == self.taken and right(told.output)
                else [f"{told}, taken was {self.taken!r}"]
            )
        if told.reason is DoneReason.OUTPUT_INVALID:
            return [] if self.wrong == now.config.retries.output else [f"{told} after {self.wrong}"]
        return [f"{told} has an output"] if told.output else []


def _asked(request: CallModel, config: Config) -> list[str]:
    """Each model is asked in its own way, and not in two."""
    spec = config.output
    if spec is None:
        return [f"{request} asks for an output"] if request.output is not None else []
    mode = dict(spec.modes).get(request.model, spec.mode)
    by_tool, by_words = spec.name in request.tools, besides(request, config) != request.instructions
    faults: list[str] = []
    if (request.output, by_tool, by_words) != (mode, mode is OutputMode.TOOL, mode is OutputMode.PROMPTED):
        faults.append(f"{request} asks for an output in another way than {mode}")
    free = config.spec(request.model).tool_choice in {"", "none"} and request.thinking is None
    if free and by_tool and request.tool_choice != REQUIRED_CHOICE:
        faults.append(f"{request} need not give the output by its tool")
    return faults
