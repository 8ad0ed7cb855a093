"""
What a transition may look at besides its state, and how the memory changes: by folding records.

The memory is the fold of all records, plus mail that `Memory.receive` put in and `TakeMail` takes out. It
never holds callables, the clock, open requests (they belong to the state) or the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, final

import attrs

from ..effects import is_record
from ..effects.config import Config, ModelSpec, Steering
from ..effects.events import ControlReceived, Event, UserSent, UserSteered
from ..effects.history import History
from ..effects.messages import Binary
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import (
    AddContext,
    AddUsage,
    AppendMessage,
    ClearContext,
    CountCompaction,
    CountContinue,
    GrantRule,
    Lane,
    Record,
    ReplaceHistory,
    SetInstructions,
    SetMode,
    SetModel,
    SetThinking,
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

INPUTS = UserSent | UserSteered | ControlReceived
"""The events that carry an id of their sender's."""


@final
@attrs.frozen(kw_only=True)
class Mail:
    """An input that waits. *id* is its sender's, *how* says when one that steers is read."""

    lane: Lane
    id: str
    text: str
    at: float
    files: tuple[Binary, ...] = ()
    sender: str = ""
    how: Steering = Steering.AFTER_TOOL

    @classmethod
    def of(cls, event: UserSent | UserSteered) -> Mail:
        """The input that *event* brings."""
        if isinstance(event, UserSent):
            return cls(
                lane=Lane.PROMPT,
                id=event.id,
                text=event.text,
                at=event.at,
                files=event.files,
                sender=event.sender,
            )
        return cls(
            lane=Lane.STEER, id=event.id, text=event.text, at=event.at, files=event.files, how=event.how
        )


@final
@attrs.frozen(kw_only=True)
class AsConfigured:
    """Nobody has changed it."""


@final
@attrs.frozen(kw_only=True)
class NotBegun:
    """The session has not begun: its instructions are not read."""


@final
@attrs.frozen(kw_only=True)
class Memory:
    """
    What a run knows. *size* is the running estimate of the conversation in tokens.

    *instructions* stand behind the system prompt through the whole session. *thinking* is the last change a
    person made to the model's budget, and *chosen* says which of model and mode a person has set. *granted*
    are rules a person gave for good. *compactions* counts those since the last completed response,
    *compaction_failures* the failed ones in a row, *continues* how often hooks made this run go on.
    *received* are the ids of the latest inputs.
    """

    run: str
    model: str
    history: History = attrs.field(factory=History.of)
    next_id: int = 1
    size: int = 0
    spent: Spent = Spent()
    mode: PermissionMode = PermissionMode.DEFAULT
    thinking: SetThinking | AsConfigured = AsConfigured()
    instructions: SetInstructions | NotBegun = NotBegun()
    mail: tuple[Mail, ...] = ()
    received: tuple[str, ...] = ()
    pending_context: tuple[str, ...] = ()
    granted: tuple[Rule, ...] = ()
    compactions: int = 0
    compaction_failures: int = 0
    continues: int = 0
    chosen: tuple[str, ...] = ()

    def receive(self, event: Event) -> Memory:
        """This memory with the mail that *event* brings; a repeated post is one input."""
        if not isinstance(event, INPUTS) or self.has(event):
            return self
        received = (*self.received[1 - RECALL :], event.id)
        if isinstance(event, ControlReceived):
            return attrs.evolve(self, received=received)
        return attrs.evolve(self, mail=(*self.mail, Mail.of(event)), received=received)

    def has(self, event: Event) -> bool:
        """Whether *event* is an input that came before."""
        return isinstance(event, INPUTS) and event.id in self.received

    def waiting(self, lane: Lane) -> tuple[Mail, ...]:
        """What waits in *lane*, in the order it came."""
        return tuple([mail for mail in self.mail if mail.lane is lane])

    def record(self, effects: Iterable[Effect]) -> Memory:
        """This memory after the records among *effects*, in their order."""
        memory = self
        for effect in effects:
            if is_record(effect):
                memory = _fold(memory, effect)
        return memory


def _fold(  # noqa: PLR0911  # one return for each kind of record
    memory: Memory, record: Record
) -> Memory:
    match record:
        case AppendMessage() | ReplaceHistory() | AddUsage() | CountCompaction():
            return _fold_conversation(memory, record)
        case UseIds():
            return attrs.evolve(memory, next_id=record.next)
        case TakeMail():
            left = tuple([mail for mail in memory.mail if mail.id not in record.ids])
            return attrs.evolve(memory, mail=left)
        case AddContext():
            return attrs.evolve(memory, pending_context=(*memory.pending_context, record.text))
        case ClearContext():
            return attrs.evolve(memory, pending_context=())
        case CountContinue():
            return attrs.evolve(memory, continues=memory.continues + 1)
        case SetModel() | SetMode() | SetThinking() | SetInstructions() | GrantRule():
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


def _with(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    return chosen if name in chosen else (*chosen, name)


def _fold_settings(
    memory: Memory, record: SetModel | SetMode | SetThinking | SetInstructions | GrantRule
) -> Memory:
    match record:
        case SetModel():
            return attrs.evolve(memory, model=record.model, chosen=_with(memory.chosen, "model"))
        case SetMode():
            return attrs.evolve(memory, mode=record.mode, chosen=_with(memory.chosen, "mode"))
        case SetThinking():
            return attrs.evolve(memory, thinking=record)
        case SetInstructions():
            return attrs.evolve(memory, instructions=record)
        case GrantRule():
            return attrs.evolve(memory, granted=(*memory.granted, record.rule))
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

    @property
    def model(self) -> ModelSpec:
        """The model in use, as it is configured."""
        return self.config.spec(self.memory.model)

    @property
    def system(self) -> str:
        """The system prompt: as configured, and the session's instructions behind it."""
        read = self.memory.instructions
        texts = (self.config.system, read.text if isinstance(read, SetInstructions) else "")
        return "\n\n".join([text for text in texts if text])

    @property
    def thinking(self) -> int | None:
        """How many tokens the model may think: what a person said last, else what its configuration says."""
        chosen = self.memory.thinking
        return chosen.tokens if isinstance(chosen, SetThinking) else self.model.thinking

    def spent_on(self, model: str, usage: Usage, seconds: float, turns: int = 0) -> Spent:
        """The account of one call of *model*; one that is not configured has no price here."""
        price = self.config.spec(model).price
        # A clock that was set back does not give time back.
        return Spent(turns=turns, usage=usage, cost=cost(usage, price), seconds=max(0.0, seconds))
