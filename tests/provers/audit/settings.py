"""What must hold of settings: a change holds from its next use on, and is paid for as it should."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.events import (
    ControlReceived,
    InputWithdrawn,
    ModelFailed,
    ModelFinished,
    UserSent,
    UserSteered,
)
from turnwheel.effects.notices import DoneReason, RunStarted, SettingChanged, SettingRefused
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import (
    AddUsage,
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from turnwheel.effects.requests import CallModel, Purpose, RunAgent
from turnwheel.effects.usage import cost
from turnwheel.states.context import ConversationMemory, Memory, SessionMemory
from turnwheel.states.state import Done

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnwheel.effects import Effect
    from turnwheel.effects.config import Config
    from turnwheel.effects.events import Post
    from turnwheel.effects.requests import Request
    from turnwheel.engine.core.machine import Machine
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import AsConfigured


BELOW = {
    "plan": "plan",
    "dont_ask": "dont_ask",
    "default": "plan dont_ask default",
    "accept_edits": "plan dont_ask default accept_edits",
    "bypass": "plan dont_ask default accept_edits bypass",
}
"""The modes that a child may be put in whose parent is in the first."""


@final
@attrs.define(kw_only=True)
class SettingBook:
    """The settings of one run: the *model* and *mode* in use, and the *thinking* that a person chose."""

    model: str
    mode: PermissionMode
    thinking: SetThinking | AsConfigured
    chosen: tuple[str, ...] = ()

    @classmethod
    def of(cls, memory: Memory) -> SettingBook:
        """A new book for a run that begins with *memory*."""
        return cls(
            model=memory.session.model,
            mode=memory.session.mode,
            thinking=memory.session.thinking,
            chosen=memory.session.chosen,
        )

    def copy(self) -> SettingBook:
        """A book that goes on from here on its own."""
        return SettingBook(model=self.model, mode=self.mode, thinking=self.thinking, chosen=self.chosen)

    def reconfigured(self, config: Config) -> None:
        """The run goes on under *config*: what nobody has chosen, or cannot be any more, follows it."""
        if refused(SetModel(model=self.model), config):
            self.chosen = tuple([name for name in self.chosen if name != "model"])
        if "model" not in self.chosen:
            self.model = config.model.name
        if "mode" not in self.chosen:
            self.mode = config.policy.mode

    def take(self, now: Transition, answered: Request | None, fallback: str) -> list[str]:
        """The faults of the step *now*, whose event closed *answered*; *fallback* took over, or nobody."""
        faults = self._changed(now) if isinstance(now.event, ControlReceived) else []
        if isinstance(now.event, ModelFinished | ModelFailed) and isinstance(answered, CallModel):
            faults += _price_faults(answered, now)
        for effect in now.effects:
            faults += self._effect(effect, now, fallback)
        memory = now.remembered
        if (memory.session.model, memory.session.mode, memory.session.thinking) != (
            self.model,
            self.mode,
            self.thinking,
        ):
            faults.append(f"set are {self.model}, {self.mode} and {self.thinking}, the memory is {memory}")
        return faults

    def _changed(self, now: Transition) -> list[str]:
        """A change is made and told, or refused and told; nothing else comes of it."""
        change = now.event.change if isinstance(now.event, ControlReceived) else SetThinking(tokens=None)
        if refused(change, now.config):
            kinds = [type(effect) for effect in now.effects]
            return [] if kinds == [SettingRefused] else [f"{change} is not refused: {now.effects}"]
        self.choose(change)
        due = (change, SettingChanged(change=change, at=now.event.at))
        return [] if now.effects == due else [f"{change} led to {now.effects}"]

    def choose(self, change: Change) -> None:
        """A person made this *change*."""
        match change:
            case SetModel(model=model):
                self.model, self.chosen = model, (*self.chosen, "model")
            case SetMode(mode=mode):
                self.mode, self.chosen = mode, (*self.chosen, "mode")
            case SetThinking():
                self.thinking = change

    def _effect(self, effect: Effect, now: Transition, fallback: str) -> list[str]:
        match effect:
            case CallModel():
                return self._called(effect, now.config, fallback)
            case RunAgent(mode=mode) if mode is not self.mode:
                return [f"{effect} is in another mode than {self.mode}"]
            case RunStarted(model=model, mode=mode) if (model, mode) != (self.model, self.mode):
                return [f"{effect} tells not of {self.model} and {self.mode}"]
            case SetModel() | SetMode() | SetThinking() if not isinstance(now.event, ControlReceived):
                return [f"{effect} and nobody wished it"]
            case _:
                return []

    def _called(self, request: CallModel, config: Config, fallback: str) -> list[str]:
        turn = request.purpose is Purpose.TURN
        summariser = "" if turn else config.compaction.model
        spec = config.spec(summariser or fallback or self.model)
        chosen = self.thinking.tokens if isinstance(self.thinking, SetThinking) else spec.thinking
        thinking = chosen if turn else None
        faults: list[str] = []
        if request.thinking is None and request.max_output is not None:
            thinking = None  # it would leave nothing for a short answer
        if (request.model, request.thinking) != (spec.name, thinking):
            faults.append(f"{request} asks not {spec.name} to think {thinking}")
        if has_budget(config) and spec.price is None:
            faults.append(f"{request} has no price, and there is a limit in USD")
        return faults


def inherited_faults(before: Machine, posts: Iterable[Post], machine: Machine) -> list[str]:
    """
    Whether *machine*, which has not begun, has what the run *before* it left, and what was posted since.
    """
    left, memory = before.memory, machine.memory
    book = SettingBook.of(left)
    book.reconfigured(machine.config)
    sent = [mail.id for mail in left.session.mail]
    for event in posts:
        if isinstance(event, UserSent | UserSteered):
            sent.append(event.id)
        elif isinstance(event, InputWithdrawn) and event.input in sent:
            sent.remove(event.input)
        elif isinstance(event, ControlReceived) and not refused(event.change, machine.config):
            book.choose(event.change)
    due = (book.model, book.mode, book.thinking, left.session.granted, left.session.instructions, sent)
    seen = (
        left.history,
        left.conversation.cleared,
        left.conversation.results,
        left.conversation.size,
        left.earlier + left.spent,
    )
    chosen = (memory.session.model, memory.session.mode, memory.session.thinking, memory.session.granted)
    has = (*chosen, memory.session.instructions, [mail.id for mail in memory.session.mail])
    sees = (
        memory.history,
        memory.conversation.cleared,
        memory.conversation.results,
        memory.conversation.size,
        memory.earlier,
    )
    same = (due, seen, "", ()) == (has, sees, memory.progress.fallback, memory.progress.withdrawn)
    return [] if same else [f"left were {due} and {seen}, the next run begins with {has} and {sees}"]


def gone_back(here: Machine, then: Machine | None) -> Machine:
    """The machine of a session at *here* that goes back to the end of *then*, None for the beginning."""
    if then is None:
        return here.branched("", Done(reason=DoneReason.END_TURN), ConversationMemory())
    return here.branched(then.memory.run, then.state, then.memory.conversation)


def branched_faults(here: Machine, then: Machine | None, machine: Machine) -> list[str]:
    """
    Whether *machine*, to which a session at *here* has gone back, has what was said when *then* ended.

    With None it is the beginning. Neither the bill nor what people allowed is undone.
    """
    said = Memory(run="", session=SessionMemory(model="")) if then is None else then.memory
    mine, memory = here.memory, machine.memory
    seen = [
        (
            one.history,
            one.conversation.cleared,
            one.conversation.results,
            one.conversation.size,
            one.conversation.pending_context,
        )
        for one in (said, memory)
    ]
    kept = [
        (
            one.earlier + one.spent,
            one.session.granted,
            one.session.instructions,
            one.session.mail,
            one.session.received,
            one.session.thinking,
        )
        for one in (mine, memory)
    ]
    chosen = [(one.session.model, one.session.mode, one.session.chosen) for one in (mine, memory)]
    same = all(one == other for one, other in (seen, kept, chosen)) and machine.done
    return [] if same else [f"{memory} goes back from {mine} to {said}"]


def _price_faults(answered: CallModel, now: Transition) -> list[str]:
    """An answer is paid for at the price of the model that gave it; what has no price is counted as such."""
    price = now.config.spec(answered.model).price
    added = [effect.spent for effect in now.effects if isinstance(effect, AddUsage)]
    wrong = [
        spent
        for spent in added
        if (spent.cost, spent.unpriced) != (cost(spent.usage, price), spent.usage.total * (price is None))
    ]
    return [f"{spent} is not the price of {answered.model}" for spent in wrong]


def has_budget(config: Config) -> bool:
    """Whether money is limited, in a run or in its session."""
    return config.limits.usd is not None or config.session_limits.usd is not None


def refused(change: Change, config: Config) -> bool:
    """Whether *change* cannot be made under *config*."""
    match change:
        case SetModel(model=model):
            named = bool(model.strip())
            return not named or (has_budget(config) and config.spec(model).price is None)
        case SetThinking(tokens=tokens):
            return tokens is not None and tokens <= 0
        case SetMode(mode=mode):
            return mode not in BELOW[config.ceiling].split()
