"""What a transition may look at besides its state, and how the memory changes: by folding records."""

# The memory is the fold of all records, and of the inputs that `receive` puts into the mail. Nothing else
# ever writes to it. So a journal of events is enough to have it back, and two machines that were fed the
# same events are equal.
#
# It never holds callables, the clock, open requests (they belong to the state) or the configuration. A run
# can therefore be taken over by another process, under another configuration, at any step.
#
# Its groups follow how long things last. The next run goes on with the session and the conversation. A branch
# goes on with the session as it is and with the conversation as it was. A run's own progress ends with it.

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never, final

import attrs

from ..effects import Effect, records
from ..effects.config import Config, ModelSpec, Steering
from ..effects.events import ControlReceived, Event, Interrupted, UserSent, UserSteered
from ..effects.history import History
from ..effects.messages import Binary, Message, Role
from ..effects.notices import DoneReason
from ..effects.output import AgentOutput, OutputWish
from ..effects.permissions import PermissionMode
from ..effects.records import MailKind, SetInstructions, SetThinking, records_in
from ..effects.usage import Spent, Usage, cost
from .rules.compaction import cut_of
from .rules.limits import affordable, left, limit_detail
from .rules.token_estimates import CHARACTERS_PER_TOKEN, history_size, message_size, results_in, saved

# How many inputs are remembered by their id, so that a repeated post is one input.
# A bounded number: a session that lives for years would carry the id of each message it was ever sent.
RECALL = 1_000

# The events that carry an id of their sender's.
INPUTS = UserSent | UserSteered | ControlReceived

# Those that `Memory.receive` takes note of.
RECEIVED = INPUTS | Interrupted


@final
@attrs.frozen(kw_only=True)
class Mail:
    """
    An input that waits. *id* is its sender's, *how* says when one that steers is read.

    *trace* is the ``traceparent`` of the span that it was sent in. *output* is what a prompt wants its run to
    come to.
    """

    lane: MailKind
    id: str
    text: str
    at: float
    files: tuple[Binary, ...] = ()
    sender: str = ""
    how: Steering = Steering.AFTER_TOOL
    trace: str = ""
    output: OutputWish = AgentOutput()

    @classmethod
    def of(cls, event: UserSent | UserSteered) -> Mail:
        """The input that *event* brings."""
        mail = cls(
            lane=MailKind.STEER,
            id=event.id,
            text=event.text,
            at=event.at,
            files=event.files,
            trace=event.trace,
        )
        if isinstance(event, UserSteered):
            return attrs.evolve(mail, how=event.how)
        return attrs.evolve(mail, lane=MailKind.PROMPT, sender=event.sender, output=event.output)


@final
@attrs.frozen(kw_only=True)
class AsConfigured:
    """No person has changed it."""


@final
@attrs.frozen(kw_only=True)
class NotBegun:
    """The session has not begun: its instructions are not read."""


@final
@attrs.frozen(kw_only=True)
class ConversationMemory:
    """
    The history, and what a model is shown of it. The next run goes on with it; a branch goes back to it.

    *size* is the running estimate in tokens. Tool results in messages before index *cleared* are not shown
    any more, *results* are. *standing* are lines of people that the summary has word for word.
    *pending_context* are texts of hooks for the next model call.
    """

    history: History = attrs.field(factory=History.of)
    size: int = 0
    cleared: int = 0
    results: int = 0
    standing: tuple[str, ...] = ()
    pending_context: tuple[str, ...] = ()

    @classmethod
    def of(cls, history: History) -> ConversationMemory:
        """The memory of a conversation of which a model is shown all."""
        return cls(history=history, size=history_size(history), results=results_in(history))

    def with_message(self, message: Message) -> ConversationMemory:
        """The memory of this conversation and *message*."""
        return ConversationMemory(
            history=self.history.append(message),
            size=self.size + message_size(message),
            cleared=self.cleared,
            results=self.results + (len(message.parts) if message.role is Role.TOOL else 0),
            standing=self.standing,
            pending_context=self.pending_context,
        )


@final
@attrs.frozen(kw_only=True)
class SessionMemory:
    """
    What outlives each run, and what going back to an earlier end does not undo.

    *session_id* is empty where a machine has no session. *chosen* says which of *model* and *mode* a person
    has set; *ceiling* is the widest mode they may set, which for a child is its parent's. *thinking* is the
    last change a person made to the model's budget. *instructions* stand behind the system prompt. *granted*
    is what a person allowed for good. *received* are the ids of the latest inputs. *compaction_failures*
    counts those in a row.
    """

    model: str
    session_id: str = ""
    mode: PermissionMode = PermissionMode.DEFAULT
    ceiling: PermissionMode = PermissionMode.BYPASS
    chosen: tuple[str, ...] = ()
    thinking: SetThinking | AsConfigured = AsConfigured()
    instructions: SetInstructions | NotBegun = NotBegun()
    granted: tuple[records.GrantRule, ...] = ()
    # Outlives the run: a prompt that comes while one run ends belongs to the next.
    mail: tuple[Mail, ...] = ()
    received: tuple[str, ...] = ()
    # Not of the run: a conversation that cannot be summarised would fail anew in each run, and cost each
    # time.
    compaction_failures: int = 0


@final
@attrs.frozen(kw_only=True)
class RunProgress:
    """
    What one run has met with: the next one begins with none of it.

    *compactions* counts those since the last completed answer, *continues* how often hooks made this run go
    on, *outputs* how often an output was wrong, *pauses* how often in a row the provider paused an answer.
    *fallback* is the model that is asked instead, or empty; *max_output* is how many tokens the model in use
    gives at most, 0 where it refused none. *withdrawn* are tools that are not offered. *stopped* is the
    reason with which the run ends where it is interrupted. *summarised* are the calls and results behind the
    summary that the history begins with, as far as loop detection compares them.
    """

    compactions: int = 0
    continues: int = 0
    outputs: int = 0
    pauses: int = 0
    fallback: str = ""
    max_output: int = 0
    withdrawn: tuple[records.WithdrawTool, ...] = ()
    stopped: DoneReason = DoneReason.INTERRUPTED
    summarised: tuple[Message, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Memory:
    """
    What a run knows, in three groups by how long they last.

    *run* begins the ids of its requests; those with a number below *next_id* are in use. *spent* is what this
    run spent, *earlier* what its session spent before.
    """

    # Every step changes the id or the account. They stand here and not in a group, since each group that
    # changes is one copy more, and a copy is most of what a step costs.
    run: str
    next_id: int = 1
    spent: Spent = Spent()
    session: SessionMemory
    conversation: ConversationMemory = attrs.field(factory=ConversationMemory)
    progress: RunProgress = RunProgress()
    earlier: Spent = Spent()

    @property
    def history(self) -> History:
        """The messages of the conversation, in order."""
        return self.conversation.history

    def receive(self, event: Event) -> Memory:
        """This memory with what *event* brings: mail, or why the run stops; a repeated post is one input."""
        if isinstance(event, Interrupted) and event.aborted:
            return attrs.evolve(self, progress=attrs.evolve(self.progress, stopped=DoneReason.ABORTED))
        if not isinstance(event, INPUTS) or self.has(event):
            return self
        mail, ceiling = self.session.mail, self.session.ceiling
        if not isinstance(event, ControlReceived):  # which is done at once, so it never waits
            mail = (*mail, Mail.of(event))
        elif event.from_parent and isinstance(event.change, records.SetMode):
            ceiling = event.change.mode
        # A sender that got no receipt posts again, with the same id. The second post must change nothing.
        received = (*self.session.received[1 - RECALL :], event.id)
        session = attrs.evolve(self.session, mail=mail, ceiling=ceiling, received=received)
        return attrs.evolve(self, session=session)

    def has(self, event: Event) -> bool:
        """Whether *event* is an input that came before."""
        return isinstance(event, INPUTS) and event.id in self.session.received

    def waiting(self, lane: MailKind) -> tuple[Mail, ...]:
        """The inputs that wait in *lane*, in the order in which they came."""
        return tuple([mail for mail in self.session.mail if mail.lane is lane])

    def record(self, effects: Iterable[Effect]) -> Memory:
        """This memory after the records among *effects*, in their order."""
        folded = records_in(effects)
        if not folded:
            return self  # a piece of an answer has none, and comes a hundred times a second
        next_id, spent = self.next_id, self.spent
        conversation, session, progress = self.conversation, self.session, self.progress
        for record in folded:
            match record:
                # First those of every round, which concern one group each.
                case records.UseIds():
                    next_id = record.next
                case records.AppendMessage():
                    conversation = conversation.with_message(record.message)
                case records.AddUsage():
                    spent += record.spent
                    # A model's own count is better than our estimate, which only bridges to the next one.
                    if record.context:
                        conversation = attrs.evolve(conversation, size=record.context)
                case _:
                    conversation, session, progress = _fold((conversation, session, progress), record)
        # Written out and not evolved, which takes three times as long: this comes with every step.
        return Memory(
            run=self.run,
            next_id=next_id,
            spent=spent,
            session=session,
            conversation=conversation,
            progress=progress,
            earlier=self.earlier,
        )


# Each group folds the records that concern it; a few concern two groups. A record of no group does not fit
# the parameter of `_fold`, so type checkers name the call.
_ConversationRecord = (
    records.ReplaceHistory | records.ClearResults | records.AddContext | records.ClearContext
)
_SessionRecord = (
    records.TakeMail
    | records.SetModel
    | records.SetMode
    | records.SetThinking
    | records.SetInstructions
    | records.GrantRule
    | records.CountCompaction
)
_ProgressRecord = (
    records.CountCompaction
    | records.CountContinue
    | records.CountOutput
    | records.CountPauses
    | records.UseFallback
    | records.SetMaxOutput
    | records.SetModel
    | records.WithdrawTool
    | records.ReplaceHistory
)


def _fold(
    groups: tuple[ConversationMemory, SessionMemory, RunProgress],
    record: _ConversationRecord | _SessionRecord | _ProgressRecord,
) -> tuple[ConversationMemory, SessionMemory, RunProgress]:
    """*groups* after *record*."""
    conversation, session, progress = groups
    if isinstance(record, _ConversationRecord):
        conversation = _fold_conversation(conversation, record)
    if isinstance(record, _SessionRecord):
        session = _fold_session(session, record)
    if isinstance(record, _ProgressRecord):
        progress = _fold_progress(progress, record)
    return conversation, session, progress


def _fold_conversation(now: ConversationMemory, record: _ConversationRecord) -> ConversationMemory:
    match record:
        # The size is counted anew and not subtracted from: estimates add up, and a summary is the moment to
        # begin again.
        case records.ReplaceHistory():
            history = now.history.replace(record.head, record.keep)
            # Indexes have shifted: the mark has to stand before the same message as it did.
            cleared = max(0, now.cleared - record.keep + len(record.head))
            size = history_size(history) - saved(history, 0, cleared)
            results = results_in(history.slice(cleared, len(history)))
            return ConversationMemory(
                history=history,
                size=size,
                cleared=cleared,
                results=results,
                standing=record.standing,
                pending_context=now.pending_context,
            )
        case records.ClearResults(before=before):
            # The old size may be a model's own count, so what was saved by estimate may be more than all of
            # it.
            size = max(0, now.size - saved(now.history, now.cleared, before))
            results = now.results - results_in(now.history.slice(now.cleared, before))
            return attrs.evolve(now, size=size, cleared=before, results=results)
        case records.AddContext():
            return attrs.evolve(now, pending_context=(*now.pending_context, record.text))
        case records.ClearContext():
            return attrs.evolve(now, pending_context=())
        case _:
            assert_never(record)


def _fold_session(now: SessionMemory, record: _SessionRecord) -> SessionMemory:  # noqa: PLR0911  # one return for each kind of record
    match record:
        case records.TakeMail():
            # By id: both lanes share the mail, so what is taken need not stand in front.
            mail = tuple([mail for mail in now.mail if mail.id not in record.ids])
            # One that was taken back may still be on its way, and is then a repeat.
            new = [name for name in record.ids if name not in now.received]
            received = (*now.received, *new)[-RECALL:] if new else now.received
            return attrs.evolve(now, mail=mail, received=received)
        case records.SetModel():
            return attrs.evolve(now, model=record.model, chosen=_with(now.chosen, "model"))
        case records.SetMode():
            return attrs.evolve(now, mode=record.mode, chosen=_with(now.chosen, "mode"))
        case records.SetThinking():
            return attrs.evolve(now, thinking=record)
        case records.SetInstructions():
            return attrs.evolve(now, instructions=record)
        case records.GrantRule():
            # Behind the others, never in place of one: a grant can only add to what is allowed.
            return attrs.evolve(now, granted=(*now.granted, record))
        case records.CountCompaction():
            return attrs.evolve(now, compaction_failures=record.failures)
        case _:
            assert_never(record)


def _fold_progress(now: RunProgress, record: _ProgressRecord) -> RunProgress:  # noqa: PLR0911  # one return for each kind of record
    match record:
        case records.CountCompaction():
            # One record for two groups: the attempts end with the run, the failures do not.
            return attrs.evolve(now, compactions=record.attempts)
        case records.CountContinue():
            return attrs.evolve(now, continues=now.continues + 1)
        case records.CountOutput():
            return attrs.evolve(now, outputs=now.outputs + 1)
        case records.CountPauses():
            return attrs.evolve(now, pauses=record.count)
        case records.UseFallback():
            return attrs.evolve(now, fallback=record.model, max_output=0)
        case records.SetMaxOutput():
            return attrs.evolve(now, max_output=record.tokens)
        case records.SetModel():
            # A person's choice beats the model that took over when another failed.
            return attrs.evolve(now, fallback="", max_output=0)
        case records.WithdrawTool():
            # A tool that is taken away again begins a new term; two entries for it would end at different
            # turns.
            others = [one for one in now.withdrawn if one.tool != record.tool]
            return attrs.evolve(now, withdrawn=(*others, record))
        case records.ReplaceHistory():
            return attrs.evolve(now, summarised=record.summarised)
        case _:
            assert_never(record)


def _with(chosen: tuple[str, ...], name: str) -> tuple[str, ...]:
    return chosen if name in chosen else (*chosen, name)


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
        # A fallback stands in for the chosen model and replaces nothing: the next run tries the chosen one
        # again.
        return self.config.spec(self.memory.progress.fallback or self.memory.session.model)

    @property
    def system(self) -> str:
        """The system prompt: as configured, and the session's instructions behind it."""
        read = self.memory.session.instructions
        # Instructions of files come second: the caller's own prompt says what the agent is, theirs where it
        # works.
        texts = (self.config.system, read.text if isinstance(read, SetInstructions) else "")
        return "\n\n".join([text for text in texts if text])

    @property
    def thinking(self) -> int | None:
        """How many tokens the model may think: what a person said last, else what its configuration says."""
        # `SetThinking(None)` is a choice too: it takes the configured budget away.
        chosen = self.memory.session.thinking
        return chosen.tokens if isinstance(chosen, SetThinking) else self.model.thinking

    @property
    def asked(self) -> int:
        """How many tokens the next request has, as estimated: the conversation and what stands around it."""
        memory, now = self.memory, self.memory.conversation
        around = list(now.pending_context)
        if memory.progress.compactions or not (memory.spent.turns or memory.earlier.turns):
            # No model has counted this conversation, so its size has neither system prompt nor tools.
            around += [self.system, *[tool.description + tool.schema for tool in self.config.tools]]
        return now.size + sum(map(len, around)) // CHARACTERS_PER_TOKEN

    def limit_detail(self, reason: DoneReason) -> str:
        """Which limit of the session ends the run for *reason*; see `limits.limit_detail`."""
        return limit_detail(reason, self.config, self.memory.spent, self.memory.earlier)

    def affordable(self, model: ModelSpec, asked: int | None, most: int, least: int) -> int | DoneReason:
        """
        How long *model*'s answer to *asked* tokens may be by the budgets; see `limits.affordable`.

        None for the next request of a turn, whose tokens are counted only where there are budgets.
        """
        config, memory = self.config, self.memory
        # Most runs have none, and sums are dear where this is asked at each turn.
        if not config.budgeted:
            return most
        asked = self.asked if asked is None else asked
        return affordable(left(config, memory.spent, memory.earlier), asked, most, model.price, least)

    def cut(self, window: int) -> int:
        """Where the conversation is cut to fit a *window* of so many tokens; see `compaction.cut_of`."""
        now = self.memory.conversation
        shown = history_size(now.history) - saved(now.history, 0, now.cleared)
        return cut_of(now.history, shown, now.size, window, self.config)

    def spent_on(self, model: str, usage: Usage, seconds: float, turns: int = 0) -> Spent:
        """The account of one call of *model*; one that is not configured has no price here."""
        # By the model that was asked, which after a fallback or a change is not the one in use now.
        price = self.config.spec(model).price
        return Spent(
            turns=turns,
            usage=usage,
            cost=cost(usage, price),
            seconds=max(0.0, seconds),  # a clock that was set back does not give time back
            unpriced=usage.total if price is None else 0,
        )
