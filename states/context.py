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
from ..effects.events import (
    ControlReceived,
    Event,
    UserSent,
    UserSteered,
)
from ..effects.history import History
from ..effects.messages import Binary, Role
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import (
    AddContext,
    AddUsage,
    AppendMessage,
    ClearContext,
    ClearResults,
    CountCompaction,
    CountContinue,
    GrantRule,
    MailKind,
    ReplaceHistory,
    SetInstructions,
    SetMode,
    SetModel,
    SetThinking,
    TakeMail,
    UseFallback,
    UseIds,
    WithdrawTool,
)
from ..effects.usage import Spent, Usage, cost
from .rules.compaction import cut_of
from .rules.token_estimates import (
    history_size,
    message_size,
    results_in,
    saved,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..effects import Effect

RECALL = 1_000
"""How many inputs are remembered by their id, so that a repeated post is one input."""

USUAL = (AppendMessage, AddUsage, UseIds)
"""The records of every turn."""

ConversationRecord = ReplaceHistory | ClearResults | CountCompaction
"""The records of a conversation that is made smaller."""

SettingRecord = SetModel | SetMode | SetThinking | SetInstructions | GrantRule | UseFallback
"""The records of what holds from now on."""

RareRecord = (
    ConversationRecord | SettingRecord | TakeMail | AddContext | ClearContext | CountContinue | WithdrawTool
)
"""All other records."""

INPUTS = UserSent | UserSteered | ControlReceived
"""The events that carry an id of their sender's."""


@final
@attrs.frozen(kw_only=True)
class Mail:
    """An input that waits. *id* is its sender's, *how* says when one that steers is read."""

    lane: MailKind
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
                lane=MailKind.PROMPT,
                id=event.id,
                text=event.text,
                at=event.at,
                files=event.files,
                sender=event.sender,
            )
        return cls(
            lane=MailKind.STEER, id=event.id, text=event.text, at=event.at, files=event.files, how=event.how
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
    person made to the model's budget, and *chosen* says which of model and mode a person has set.
    *fallback* is the model that is asked instead, in this run, or empty. *granted* are rules a person gave
    for good. *compactions* counts those since the last completed response, *compaction_failures* the failed
    ones in a row, *continues* how often hooks made this run go on. Tool results in messages before index
    *cleared* are not shown any more, *results* are; *withdrawn* are tools that are not offered. *received*
    are the ids of the latest inputs. *earlier* is what the session spent before this run.
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
    fallback: str = ""
    cleared: int = 0
    results: int = 0
    withdrawn: tuple[WithdrawTool, ...] = ()
    earlier: Spent = Spent()

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

    def waiting(self, lane: MailKind) -> tuple[Mail, ...]:
        """What waits in *lane*, in the order it came."""
        return tuple([mail for mail in self.mail if mail.lane is lane])

    def record(self, effects: Iterable[Effect]) -> Memory:
        """This memory after the records among *effects*, in their order."""
        memory = self
        usual: list[AppendMessage | AddUsage | UseIds] = []
        for effect in effects:
            if not is_record(effect):
                continue
            if isinstance(effect, USUAL):
                usual.append(effect)
            else:
                memory, usual = _fold(_fold_usual(memory, usual), effect), []
        return _fold_usual(memory, usual)


def _fold_usual(memory: Memory, records: Sequence[AppendMessage | AddUsage | UseIds]) -> Memory:
    """
    *memory* after those *records* that every turn has, all at once: a copy for each is most of what it costs.
    """
    if not records:
        return memory
    history, size, results = memory.history, memory.size, memory.results
    spent, next_id = memory.spent, memory.next_id
    for record in records:
        if isinstance(record, AppendMessage):
            message = record.message
            history, size = history.append(message), size + message_size(message)
            results += len(message.parts) if message.role is Role.TOOL else 0
        elif isinstance(record, AddUsage):
            # A model's own count is better than our estimate, which only bridges to the next one.
            spent, size = spent + record.spent, record.context or size
        else:
            next_id = record.next
    return attrs.evolve(memory, history=history, size=size, results=results, spent=spent, next_id=next_id)


def _fold(  # noqa: PLR0911  # one return for each kind of record
    memory: Memory, record: RareRecord
) -> Memory:
    match record:
        case ReplaceHistory() | ClearResults() | CountCompaction():
            return _fold_conversation(memory, record)
        case TakeMail():
            left = tuple([mail for mail in memory.mail if mail.id not in record.ids])
            return attrs.evolve(memory, mail=left)
        case AddContext():
            return attrs.evolve(memory, pending_context=(*memory.pending_context, record.text))
        case ClearContext():
            return attrs.evolve(memory, pending_context=())
        case CountContinue():
            return attrs.evolve(memory, continues=memory.continues + 1)
        case WithdrawTool():
            others = tuple([one for one in memory.withdrawn if one.tool != record.tool])
            return attrs.evolve(memory, withdrawn=(*others, record))
        case SetModel() | SetMode() | SetThinking() | SetInstructions() | GrantRule() | UseFallback():
            return _fold_settings(memory, record)
        case _:
            assert_never(record)


def _fold_conversation(memory: Memory, record: ConversationRecord) -> Memory:
    match record:
        case ReplaceHistory():
            history = memory.history.replace(record.head, record.keep)
            cleared = max(0, memory.cleared - record.keep + len(record.head))
            return attrs.evolve(
                memory,
                history=history,
                size=history_size(history) - saved(history, 0, cleared),
                cleared=cleared,
                results=results_in(history.slice(cleared, len(history))),
            )
        case ClearResults():
            less = saved(memory.history, memory.cleared, record.before)
            gone = results_in(memory.history.slice(memory.cleared, record.before))
            return attrs.evolve(
                memory,
                size=max(0, memory.size - less),
                cleared=record.before,
                results=memory.results - gone,
            )
        case CountCompaction():
            return attrs.evolve(memory, compactions=record.attempts, compaction_failures=record.failures)
        case _:
            assert_never(record)


def _with(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    return chosen if name in chosen else (*chosen, name)


def _fold_settings(memory: Memory, record: SettingRecord) -> Memory:
    match record:
        case SetModel():
            chosen = _with(memory.chosen, "model")
            return attrs.evolve(memory, model=record.model, chosen=chosen, fallback="")
        case UseFallback():
            return attrs.evolve(memory, fallback=record.model)
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
        return self.config.spec(self.memory.fallback or self.memory.model)

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

    def cut(self, window: int) -> int:
        """Where the conversation is cut to fit a *window* of so many tokens; see `compaction.cut_of`."""
        memory = self.memory
        shown = history_size(memory.history) - saved(memory.history, 0, memory.cleared)
        return cut_of(memory.history, shown, memory.size, window, self.config)

    def spent_on(self, model: str, usage: Usage, seconds: float, turns: int = 0) -> Spent:
        """The account of one call of *model*; one that is not configured has no price here."""
        price = self.config.spec(model).price
        return Spent(
            turns=turns,
            usage=usage,
            cost=cost(usage, price),
            seconds=max(0.0, seconds),  # a clock that was set back does not give time back
            unpriced=usage.total if price is None else 0,
        )
