"""
What must hold of hooks and instructions: each hook that is configured is asked in its place, and is heard.

What a hook adds is shown to the model until one has answered with it before its eyes, and then no more.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

import attrs

from provers.audit.loops import explanation_faults
from provers.audit.outputs import besides
from turnwheel.effects.events import HookAnswered, InstructionsRead, ModelFinished
from turnwheel.effects.hooks import ABOUT_TOOLS, Hook, HookAnswer
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import (
    DoneReason,
    InputBlocked,
    InputTaken,
    RunEnded,
)
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.records import (
    AddContext,
    AppendMessage,
    CountContinue,
    SetInstructions,
)
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    Purpose,
    ReadInstructions,
)
from turnwheel.states.rules.compaction import SUMMARY_INSTRUCTIONS
from turnwheel.states.rules.model_messages import CONTINUE
from turnwheel.states.thinking import NATURAL_ENDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from provers.audit.calls import CallBook
    from provers.audit.loop_oracle import Due
    from turnwheel.effects import Effect
    from turnwheel.effects.config import Config
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Memory, NotBegun

STOPS = (Hook.STOP, Hook.SUBAGENT_STOP)

BEFORE = (Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT, Hook.PRE_COMPACT)
"""Where a denial may end the run at once; before a tool is used, other calls may have to end first."""


def asked_at(
    config: Config, hook: Hook, tool: str = "", given: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """The hooks that are to be asked at *hook*, about a call of *tool* that is *given* something."""
    return tuple([spec.name for spec in config.hooks if spec.matches(hook, tool, given or {})])


def answers_in(event: HookAnswered, config: Config) -> list[HookAnswer]:
    """What hooks said; one with a fault has said nothing, or no where it denies on errors."""
    guards = [spec.name for spec in config.hooks if spec.on_error == "deny"]
    return [
        HookAnswer(verdict=Verdict.DENY) if one.fault else one.answer
        for one in event.said
        if not one.fault or one.name in guards
    ]


@final
@attrs.define(kw_only=True)
class HookBook:
    """
    What hooks said in one run, and what the model is told besides the conversation.

    *instructions* are the session's, *read* is what its files said, None where they were not read. *pending*
    is what the model has not answered to yet, *wishes* what is for whoever summarises, *continued* how often
    a hook made the run go on, *asked* which hooks were asked before a call. *warns* are the circles that the
    model is told of in the request of the last step, if it has one.
    """

    instructions: SetInstructions | NotBegun
    read: str | None = None
    pending: tuple[str, ...] = ()
    wishes: tuple[str, ...] = ()
    continued: int = 0
    asked: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    warns: tuple[Due, ...] = ()

    @classmethod
    def of(cls, memory: Memory) -> HookBook:
        """A new book for a run that begins with *memory*."""
        return cls(instructions=memory.session.instructions, pending=memory.conversation.pending_context)

    def copy(self) -> HookBook:
        """A book that goes on from here on its own."""
        return HookBook(
            instructions=self.instructions,
            read=self.read,
            pending=self.pending,
            wishes=self.wishes,
            continued=self.continued,
            asked=dict(self.asked),
        )

    @property
    def _known(self) -> bool:
        """Whether the session has begun."""
        return isinstance(self.instructions, SetInstructions)

    def take(
        self,
        now: Transition,
        answered: Request | None,
        calls: CallBook,
        warns: tuple[Due, ...],
        *,
        unpaid: bool,
    ) -> list[str]:
        """
        The faults of the step *now*, whose event closed *answered*; *calls* knows what calls are about.

        The model is to be told of one of the circles *warns*, too, if there are any. *unpaid*: what is left
        does not pay for a summary.
        """
        faults: list[str] = []
        self.warns = warns
        event = now.event
        if isinstance(event, HookAnswered) and isinstance(answered, FireHook):
            faults += self._heard(event, answered, now, unpaid=unpaid)
        elif isinstance(event, ModelFinished) and isinstance(answered, CallModel):
            self.pending = () if answered.purpose is Purpose.TURN else self.pending
        elif isinstance(event, InstructionsRead):
            self.read = event.text
        for effect in now.effects:
            faults += self._effect(effect, now, calls)
        if now.following.label in {"compacting.weigh", "thinking.go", "thinking.end"}:
            self.wishes = ()
        memory = now.remembered
        if (memory.conversation.pending_context, memory.progress.continues) != (self.pending, self.continued):
            faults.append(f"hooks added {self.pending} and {self.continued}, the memory is {memory}")
        return faults

    # What hooks said

    def _heard(self, event: HookAnswered, asked: FireHook, now: Transition, *, unpaid: bool) -> list[str]:
        """What the hooks that were *asked* said holds."""
        answers = answers_in(event, now.config)
        denied = any(answer.verdict is Verdict.DENY for answer in answers)
        ends = any(answer.interrupt for answer in answers if answer.verdict is Verdict.DENY)
        if ends and asked.hook in BEFORE and now.following.label != "thinking.end":
            return [f"{event} ends the run, and it is {now.following.label}"]
        contexts = tuple([answer.context for answer in answers if answer.context])
        if asked.hook is Hook.PRE_COMPACT:
            self.wishes = () if denied else contexts
            return _expected(now, CallModel, 0 if denied or unpaid else 1)
        added = tuple([effect.text for effect in now.effects if isinstance(effect, AddContext)])
        self.pending += contexts
        faults = [] if added == contexts else [f"hooks added {contexts}, kept is {added}"]
        if asked.hook is Hook.USER_PROMPT_SUBMIT:
            return faults + _expected(now, InputBlocked, denied) + _expected(now, InputTaken, not denied)
        if asked.hook is Hook.SESSION_START:
            return faults + _expected(now, InputBlocked, denied) + _expected(now, SetInstructions, not denied)
        if asked.hook in STOPS:
            return faults + self._goes_on(answers, now)
        return faults

    def _goes_on(self, answers: list[HookAnswer], now: Transition) -> list[str]:
        """A run goes on where a hook wants it to, and the model reads why."""
        wishes = [answer.reason or CONTINUE for answer in answers if answer.go_on]
        said = [effect.message for effect in now.effects if isinstance(effect, AppendMessage)]
        self.continued += bool(wishes)
        faults = _expected(now, CountContinue, bool(wishes))
        if [(message.role, message.text) for message in said] != [(Role.USER, wish) for wish in wishes[:1]]:
            faults.append(f"hooks want to go on with {wishes}, said is {said}")
        return faults

    # Whether hooks are asked, and what the model is told

    def _effect(  # noqa: PLR0911  # one return for each kind of effect
        self, effect: Effect, now: Transition, calls: CallBook
    ) -> list[str]:
        match effect:
            case FireHook():
                return self._asks(effect, now, calls)
            case AskApproval() if effect.again:
                # Who was asked before is not known any more, but for those that look at such a call.
                about = calls.about(effect.call)
                self.asked[effect.call] = asked_at(now.config, Hook.PRE_TOOL_USE, *about)
                return []
            case InputTaken():
                return _overlooked(Hook.USER_PROMPT_SUBMIT, now)
            case SetInstructions(text=text):
                unread = bool(now.config.instructions) and self.read is None
                again = self._known or unread or text != (self.read or "")
                self.instructions = effect
                faults = [f"{effect} in a session that has begun, or not what was read"] if again else []
                return faults + _overlooked(Hook.SESSION_START, now)
            case ReadInstructions():
                wrong = self._known or self.read is not None or effect.files != now.config.instructions
                return (
                    [f"{effect} reads what is known or not configured"] if wrong or not effect.files else []
                )
            case CallModel():
                return self._shown(effect, now)
            case RunEnded(reason=reason) if reason in NATURAL_ENDS:
                return self._ends(reason, now)
            case _:
                return []

    def _asks(self, request: FireHook, now: Transition, calls: CallBook) -> list[str]:
        tool, given = "", None
        if request.hook in ABOUT_TOOLS:
            tool, given = calls.about(request.call)
            told = json.loads(request.payload)
            if (told.get("tool_name"), told.get("tool_input")) != (tool, given):
                return [f"{request} tells not of {tool} with {given}"]
        due = asked_at(now.config, request.hook, tool, given)
        if request.hook is Hook.PRE_TOOL_USE:  # once each, whatever becomes of the arguments
            due = tuple([name for name in due if name not in self.asked.get(request.call, ())])
            self.asked[request.call] = (*self.asked.get(request.call, ()), *request.names)
        faults = [] if due and due == request.names else [f"{request} asks not {due}"]
        if request.hook in STOPS and self.continued >= now.config.policy.continues:
            faults.append(f"{request} after hooks made the run go on {self.continued} times")
        if request.hook is Hook.SESSION_START and self._known:
            faults.append(f"{request} in a session that has begun")
        return faults

    def _shown(self, request: CallModel, now: Transition) -> list[str]:
        """The model is told what hooks added, that it goes in circles, and the session's instructions."""
        if request.purpose is Purpose.SUMMARY:
            wanted = "\n".join([SUMMARY_INSTRUCTIONS, *self.wishes])
            told = request.instructions == wanted
            faults = [] if told else [f"{request.id} is told {request.instructions!r}, and not {wanted!r}"]
            return faults + (_overlooked(Hook.PRE_COMPACT, now) if request.attempt == 1 else [])
        said = self.instructions.text if isinstance(self.instructions, SetInstructions) else ""
        system = "\n\n".join([text for text in (now.config.system, said) if text])
        added, shown = "\n".join(self.pending), besides(request, now.config)
        warned = shown.removeprefix(added).removeprefix("\n" * bool(added))
        right = request.system == system and shown.startswith(added)
        if right and self._explained(warned):
            return []
        return [f"{request} is told neither {system!r} nor {added!r} nor {self.warns}, or not all of them"]

    def _explained(self, warned: str) -> bool:
        """Whether *warned* tells of one of the circles that the model is to be told of, or of none."""
        if not self.warns:
            return not warned
        return not all(explanation_faults(warned, one) for one in self.warns)

    def _ends(self, reason: DoneReason, now: Transition) -> list[str]:
        if self.continued >= now.config.policy.continues:
            return []
        faults = _overlooked(Hook.SUBAGENT_STOP if now.config.agent else Hook.STOP, now)
        return [f"{fault} at {reason}" for fault in faults]


def _overlooked(hook: Hook, now: Transition) -> list[str]:
    """What happens only when the hooks at *hook* have answered, where there are any."""
    if isinstance(now.event, HookAnswered) or not asked_at(now.config, hook):
        return []
    return [f"hooks at {hook} are not asked"]


def _expected(now: Transition, kind: type[Effect], count: int) -> list[str]:
    """Whether there are *count* effects of *kind* in *now*."""
    found = sum([isinstance(effect, kind) for effect in now.effects])
    return [] if found == count else [f"{now.event} led to {found} {kind.__name__}, due were {count}"]
