"""
What a transition may look at besides its state, and how the memory changes: by folding records.

The memory is the fold of all records, plus mail that `Memory.receive` put in and `TakeMail` takes out. It
never holds callables, the clock, open requests (they belong to the state) or the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, final

import attrs

from ..effects import is_record
from ..effects.config import Config, Grant, PermissionMode
from ..effects.events import Event, UserSent, UserSteered
from ..effects.history import History
from ..effects.records import (
    AddContext,
    AddUsage,
    AppendMessage,
    ClearContext,
    CountCompaction,
    GrantRule,
    Lane,
    Record,
    ReplaceHistory,
    SetMode,
    SetModel,
    TakeMail,
    UseIds,
)
from ..effects.usage import Spent, Usage, cost
from .rules.sizes import history_size, message_size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects import Effect

RECALL = 1_000
"""How many inputs are remembered by their id, so that a repeated post is one input."""


@final
@attrs.frozen(kw_only=True)
class Mail:
    """An input that waits. *id* is its sender's."""

    lane: Lane
    id: str
    text: str
    at: float


@final
@attrs.frozen(kw_only=True)
class Memory:
    """
    What a run knows. *size* is the running estimate of the conversation in tokens.

    *granted* are rules a person gave for good; *compactions* counts those since the last completed
    response, *compaction_failures* the failed ones in a row. *received* are the ids of the latest inputs.
    """

    run: str
    model: str
    history: History = attrs.field(factory=History.of)
    next_id: int = 1
    size: int = 0
    spent: Spent = Spent()
    mode: PermissionMode = PermissionMode.DEFAULT
    mail: tuple[Mail, ...] = ()
    received: tuple[str, ...] = ()
    pending_context: tuple[str, ...] = ()
    granted: tuple[Grant, ...] = ()
    compactions: int = 0
    compaction_failures: int = 0

    def receive(self, event: Event) -> Memory:
        """This memory with the mail that *event* brings; a repeated post is one input."""
        if not isinstance(event, UserSent | UserSteered) or self.has(event):
            return self
        lane = Lane.PROMPT if isinstance(event, UserSent) else Lane.STEER
        mail = Mail(lane=lane, id=event.id, text=event.text, at=event.at)
        received = (*self.received[-RECALL:], event.id)
        return attrs.evolve(self, mail=(*self.mail, mail), received=received)

    def has(self, event: Event) -> bool:
        """Whether *event* is an input that came before."""
        return isinstance(event, UserSent | UserSteered) and event.id in self.received

    def record(self, effects: Iterable[Effect]) -> Memory:
        """This memory after the records among *effects*, in their order."""
        memory = self
        for effect in effects:
            if is_record(effect):
                memory = _fold(memory, effect)
        return memory


def _fold(memory: Memory, record: Record) -> Memory:
    match record:
        case AppendMessage() | ReplaceHistory() | AddUsage() | CountCompaction():
            return _fold_conversation(memory, record)
        case UseIds():
            return attrs.evolve(memory, next_id=record.next)
        case TakeMail():
            return attrs.evolve(
                memory, mail=tuple([mail for mail in memory.mail if mail.lane != record.lane])
            )
        case AddContext():
            return attrs.evolve(memory, pending_context=(*memory.pending_context, record.text))
        case ClearContext():
            return attrs.evolve(memory, pending_context=())
        case SetModel() | SetMode() | GrantRule():
            return _fold_settings(memory, record)
        case _:
            assert_never(record)


def _fold_conversation(
    memory: Memory, record: AppendMessage | ReplaceHistory | AddUsage | CountCompaction
) -> Memory:
    match record:
        case AppendMessage():
            size = memory.size + message_size(record.message)
            return attrs.evolve(memory, history=memory.history.append(record.message), size=size)
        case ReplaceHistory():
            history = memory.history.replace(record.head, record.keep)
            return attrs.evolve(memory, history=history, size=history_size(history))
        case AddUsage():
            # A model's own count is better than our estimate, which only bridges to the next one.
            size = record.context or memory.size
            return attrs.evolve(memory, spent=memory.spent + record.spent, size=size)
        case CountCompaction():
            return attrs.evolve(memory, compactions=record.attempts, compaction_failures=record.failures)
        case _:
            assert_never(record)


def _fold_settings(memory: Memory, record: SetModel | SetMode | GrantRule) -> Memory:
    match record:
        case SetModel():
            return attrs.evolve(memory, model=record.model)
        case SetMode():
            return attrs.evolve(memory, mode=record.mode)
        case GrantRule():
            return attrs.evolve(memory, granted=(*memory.granted, record.grant))
        case _:
            assert_never(record)


@final
@attrs.frozen
class Context:
    """The thin view a transition gets: settings, memory, and what has happened."""

    config: Config
    memory: Memory
    event: Event

    @property
    def now(self) -> float:
        """The event's time: the only clock there is."""
        return self.event.at

    def spent_on(self, usage: Usage, seconds: float, turns: int = 0) -> Spent:
        """The account of one model call; a model that was chosen on the way has no price here."""
        model = self.config.model
        price = model.price if self.memory.model == model.name else None
        # A clock that was set back does not give time back.
        return Spent(turns=turns, usage=usage, cost=cost(usage, price), seconds=max(0.0, seconds))
