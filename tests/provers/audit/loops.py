"""
What must hold of a model that goes in circles: it is told, kept from its tools for a while, then stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from provers.audit.loop_oracle import Due, due
from turnwheel.effects.config import ToolKind
from turnwheel.effects.notices import DoneReason, LoopDetected, LoopStage
from turnwheel.effects.output import OutputMode
from turnwheel.effects.records import ReplaceHistory, WithdrawTool
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.states.state import (
    Compacting,
    End,
    Streaming,
    Thinking,
)

if TYPE_CHECKING:
    from provers.audit.views import Messages
    from turnwheel.engine.inspect.transitions import Transition


@final
@attrs.define(kw_only=True)
class LoopBook:
    """
    The tools of one run that were *withdrawn*, by name.

    *warns* are what the model is to be told in the request of the last step: any of them, or nothing.
    *summarised* is all that was said behind the summary that the conversation begins with.
    """

    withdrawn: dict[str, WithdrawTool] = attrs.field(factory=dict)
    warns: tuple[Due, ...] = ()
    summarised: Messages = ()

    def copy(self) -> LoopBook:
        """A book that goes on from here on its own."""
        return LoopBook(withdrawn=dict(self.withdrawn), summarised=self.summarised)

    def take(self, now: Transition, messages: Messages) -> list[str]:
        """The faults of the step *now*, before which *messages* had been said."""
        told = [effect for effect in now.effects if isinstance(effect, LoopDetected)]
        away = [effect for effect in now.effects if isinstance(effect, WithdrawTool)]
        faults, self.warns = list[str](), ()
        # A summary stands for what was said, and is no word of anybody's.
        if self.summarised:
            messages = (*self.summarised, *messages[1:])
        if now.state.label == "thinking.go" and (told or isinstance(now.following, Streaming | Compacting)):
            asked = due(messages, now.config, self.withdrawn, now.memory.spent.turns)
            faults += self._judged(told, asked, now)
        elif told:
            faults.append(f"{told} after {now.event} in {now.state.label}")
        faults += self._withdrawn(away, told, now)
        for effect in now.effects:
            if isinstance(effect, ReplaceHistory):
                stays = len(now.memory.history) - effect.keep
                self.summarised = messages[: len(messages) - stays]
            if isinstance(effect, CallModel) and effect.purpose is Purpose.TURN:
                faults += self._offered(effect, now)
        if {one.tool: one for one in now.remembered.progress.withdrawn} != self.withdrawn:
            faults.append(
                f"withdrawn are {self.withdrawn}, the memory has {now.remembered.progress.withdrawn}"
            )
        return faults

    def _judged(self, told: list[LoopDetected], asked: list[Due], now: Transition) -> list[str]:
        """What is due is done before any call leaves; a warning is for those who call, and is told once."""
        acts = [one for one in asked if one.stage is not LoopStage.WARNED and not one.done]
        if isinstance(now.following, Streaming):
            self.warns = tuple([one for one in asked if one not in acts])
            once = now.following.attempt == 1 and not any(one.done for one in asked)
        else:
            once = bool(acts)
        if len(told) > 1 or bool(asked and once) != bool(told):
            return [f"{asked} was due, told is {told}"]
        if not told:
            left = acts and not self.warns
            return [f"{acts} was due, and it is {now.following.label}"] if left else []
        return self._did(told[0], asked, now)

    def _did(self, told: LoopDetected, asked: list[Due], now: Transition) -> list[str]:
        did = Due(told.stage, frozenset(told.tools), told.count)
        faults = explanation_faults(told.text, did)
        if did not in asked:
            faults.append(f"{asked} was due, told is {told}")
        following = now.following
        due = {LoopStage.WARNED: "streaming", LoopStage.WITHDRAWN: "thinking.go"}.get(
            told.stage, "thinking.end"
        )
        stage = following.stage if isinstance(following, Thinking) else None
        stopped = isinstance(stage, End) and stage.reason is DoneReason.LOOP_DETECTED
        if following.label != due or stopped != (told.stage is LoopStage.STOPPED):
            faults.append(f"{told} led to {following}")
        return faults

    def _withdrawn(self, away: list[WithdrawTool], told: list[LoopDetected], now: Transition) -> list[str]:
        until = now.memory.spent.turns + now.config.loops.turns
        expected = [
            WithdrawTool(tool=tool, until=until, count=one.count)
            for one in told
            if one.stage is LoopStage.WITHDRAWN
            for tool in one.tools
        ]
        self.withdrawn |= {one.tool: one for one in away}
        return [] if away == expected else [f"{away} are withdrawn, due are {expected}"]

    def _offered(self, request: CallModel, now: Transition) -> list[str]:
        """A tool that was withdrawn is not offered before its turn, and is again from then on."""
        turns = now.memory.spent.turns
        gone = [one.tool for one in self.withdrawn.values() if turns < one.until]
        # The tool that gives the output is offered where the model is asked by it, and is never withdrawn.
        by_tool = request.output is OutputMode.TOOL
        there = tuple(
            [
                tool.name
                for tool in now.config.tools
                if (by_tool if tool.kind is ToolKind.OUTPUT else tool.name not in gone)
            ]
        )
        return [] if request.tools == there else [f"{request.id} offers {request.tools}, due are {there}"]


def explanation_faults(text: str, due: Due) -> list[str]:
    """Whether *text* says what was repeated and how often."""
    said = all(tool in text for tool in due.tools) and str(due.count) in text
    return [] if said else [f"{text!r} does not explain {due}"]
