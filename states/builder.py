"""What all handlers build their transitions with: effects, ids, hooks, inputs that move nothing, results."""

# A handler never touches the memory. It collects effects in a draft, and those that are records are folded
# when the whole transition is known to be legal. So a bug in a handler raises, and leaves state and memory
# as they were; and a record of this step is not yet in the memory that the handler sees.

from __future__ import annotations

from typing import TypeVar, final

from ..effects import Effect
from ..effects.events import ControlReceived, HookAnswered, InputWithdrawn, UserSent, UserSteered
from ..effects.hooks import Hook
from ..effects.messages import Binary, Outcome, StopReason, ToolCall, ToolResult
from ..effects.notices import (
    CallSettled,
    DoneReason,
    HookAsked,
    HookEnded,
    Ignored,
    InputDropped,
    InputReceived,
    SettingChanged,
    SettingRefused,
)
from ..effects.records import AddContext, TakeMail, UseIds
from ..effects.requests import FireHook
from .batch.batch import Call, Phase, PriorAttempt, Running
from .context import Context
from .rules import inputs, model_messages
from .rules.hooks import Opinion, asked_at, heard
from .rules.schema import arguments_of
from .state import State

# Collecting the effects of one transition, and numbering its requests.


S = TypeVar("S")

# What an answer ended with that the end of its run tells, too.
END_REASONS = {StopReason.STOP_SEQUENCE: DoneReason.STOP_SEQUENCE, StopReason.REFUSAL: DoneReason.REFUSAL}


@final
class Draft:
    """
    The effects of one transition while it is being decided. It never outlives the transition.

    Ids are ``run-counter``; the counter comes from the memory, and `to` records how far it got.
    """

    __slots__ = ("_first", "_next", "_run", "at", "effects")

    def __init__(self, ctx: Context) -> None:
        # The time of each notice: that of the event that led to it.
        self.at = ctx.event.at
        self._run = ctx.memory.run
        # Ids are counted and not drawn. So a replay makes the same ones, and an id is the idempotency key
        # of its request.
        self._first = self._next = ctx.memory.next_id
        self.effects: list[Effect] = []

    def new_id(self) -> str:
        """An id that no other request or call of this run has."""
        number = self._next
        self._next = number + 1
        return f"{self._run}-{number}"

    def add(self, *effects: Effect) -> None:
        """Add *effects*, in this order."""
        self.effects.extend(effects)

    def to(self, state: S) -> tuple[S, tuple[Effect, ...]]:
        """The transition to *state* with everything collected."""
        # Last among the effects, and only where an id was made: the record is what keeps two requests from
        # one id after a crash.
        if self._next != self._first:
            self.effects.append(UseIds(next=self._next))
        return state, tuple(self.effects)


def ignore(state: State, ctx: Context) -> tuple[Ignored, ...]:
    """The effects of an event that does not apply in *state*: it is named and nothing is touched."""
    return (Ignored(event=type(ctx.event).__name__, state=state.label, at=ctx.event.at),)


# Asking hooks, and taking note of what they said: the same at every place where a host has a say.


def hooks_at(hook: Hook, ctx: Context, call: ToolCall | None = None) -> tuple[str, ...]:
    """The names of the hooks that are asked at *hook*, about *call* where it is about one."""
    # Most runs have none, and this is asked for each call: its arguments are not even read.
    if not ctx.config.hooks:
        return ()
    if call is None:
        return asked_at(ctx.config, hook)
    return asked_at(ctx.config, hook, call.name, arguments_of(call.arguments))


def ask_hooks(hook: Hook, names: tuple[str, ...], payload: str, draft: Draft, call: str = "") -> str:
    """Ask the hooks *names*; the id of the request."""
    request = draft.new_id()
    draft.add(
        FireHook(id=request, hook=hook, names=names, payload=payload, call=call),
        HookAsked(request=request, hook=hook, names=names, call=call, at=draft.at),
    )
    return request


def record_answers(hook: Hook, event: HookAnswered, ctx: Context, draft: Draft, call: str = "") -> Opinion:
    """The opinion of the hooks, which watchers see; the context that they add is kept."""
    said = heard(event.said, ctx.config)
    draft.add(HookEnded(request=event.request, hook=hook, said=event.said, call=call, at=draft.at))
    # Also of a hook that denies: what it knows may be what the model needs to do better.
    draft.add(*[AddContext(text=text) for text in said.context])
    return said


def received(state: State, ctx: Context) -> tuple[Effect, ...]:
    """The effects of *ctx*'s event, which does not move *state*."""
    # An input waits in the mail, a setting holds from the next time it is looked at, and anything else does
    # not apply here.
    event = ctx.event
    match event:
        case UserSent() | UserSteered():
            # It is in the mail already: `Memory.receive` puts it there before any handler runs.
            return (InputReceived(id=event.id, at=event.at),)
        case InputWithdrawn(input=name) if _unread(name, ctx):
            return dropped(name, event.at)
        case ControlReceived(change=change):
            # Refused and not an error. The sender may be another process, which cannot be raised at.
            if why := inputs.refusal(ctx.config, change, ctx.memory.session.ceiling):
                return (SettingRefused(change=change, reason=why, at=event.at),)
            return (change, SettingChanged(change=change, at=event.at))
        case _:
            return ignore(state, ctx)


def _unread(name: str, ctx: Context) -> bool:
    """Whether the input *name* waits, or is still on its way."""
    # What was read is in the conversation, and stays there.
    session = ctx.memory.session
    return name not in session.received or any(mail.id == name for mail in session.mail)


def dropped(name: str, at: float) -> tuple[TakeMail, InputDropped]:
    """The effects that take the input *name* out of the mail for its sender, who took it back *at* a time."""
    return TakeMail(ids=(name,)), InputDropped(id=name, at=at)


# Giving a call its result


def end_reason(stop: StopReason) -> DoneReason:
    """Why a run ends of its own accord, where its last answer ended with *stop*."""
    return END_REASONS.get(stop, DoneReason.END_TURN)


def result_of(
    call: Call,
    outcome: Outcome,
    content: str,
    draft: Draft,
    seconds: float = 0.0,
    files: tuple[Binary, ...] = (),
) -> ToolResult:
    """
    The result of *call*, which watchers see.

    Where an earlier try of it may have run, it does not say that it did not.
    """
    wish = call.call
    if call.tried is PriorAttempt.LOST:
        outcome, content = _doubtful(call.phase, outcome, content)
    draft.add(
        CallSettled(
            call=wish.id, tool=wish.name, outcome=outcome, content=content, seconds=seconds, at=draft.at
        )
    )
    return ToolResult(
        call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome, files=files
    )


def _doubtful(phase: Phase, outcome: Outcome, content: str) -> tuple[Outcome, str]:
    """*outcome* and *content* of a call that ends in *phase*, and may have run before."""
    # It did not start a second time, so only the first try is in doubt.
    if not isinstance(phase, Running):
        return Outcome.UNKNOWN, model_messages.not_run_again(content)
    # The second try was cut off, and the first may have done its work all the same.
    return Outcome.UNKNOWN if outcome is Outcome.CANCELLED else outcome, model_messages.run_again(content)
