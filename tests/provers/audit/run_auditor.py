"""
What must hold over a whole run: a ledger that is told every step and says what is wrong with it.

The ledger keeps its own books from events and effects alone, as an auditor does, and compares them with what
the machine believes. What is asked of the world is here; the account, the conversation, its summaries, failed
calls and circles, the mail, hooks, questions, settings and calls each have a book of their own.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Protocol, assert_never, final

import attrs

from provers.audit.around import Around
from provers.audit.calls import CallBook
from provers.audit.decisions import telling_faults
from provers.audit.hooks import HookBook
from provers.audit.loops import LoopBook
from provers.audit.mail import MailBook
from provers.audit.outputs import OutputBook
from provers.audit.questions import AskBook
from provers.audit.settings import SettingBook
from provers.audit.spend_book import SpendBook
from provers.audit.summaries import ShrinkBook
from provers.audit.tries import TryBook
from provers.audit.views import Messages, ViewBook, shown_size
from provers.invariants import (
    payment_faults,
    request_faults,
    step_faults,
    untouched_faults,
)
from provers.steps import stopping
from turnwheel.effects import is_request
from turnwheel.effects.config import Config, ModelSpec, Steering
from turnwheel.effects.events import (
    Answer,
    CallCancelled,
    Interrupted,
    ModelStreamed,
    UserSteered,
)
from turnwheel.effects.messages import Finish, Message, Role, StopReason
from turnwheel.effects.notices import (
    AnswerDropped,
    AnswerKept,
    CallDelta,
    CompactionFailed,
    DoneReason,
    Ignored,
    InterruptRequested,
    ModelCalled,
    ProviderCalled,
    ReasoningDelta,
    RetryScheduled,
    RunEnded,
    RunStarted,
    TextDelta,
    TurnEnded,
)
from turnwheel.effects.records import AppendMessage
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
    Transcript,
)
from turnwheel.engine.core.machine import ignored
from turnwheel.engine.inspect.transitions import Transition
from turnwheel.states.batch.batch import Stopping
from turnwheel.states.context import Context
from turnwheel.states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    End,
    Executing,
    State,
    Streaming,
    Thinking,
)

if TYPE_CHECKING:
    from turnwheel.effects import Effect
    from turnwheel.engine.core.machine import Machine

WORK = CallModel | RunTool | RunAgent
"""Requests that give their own answer although they are cancelled; the others die with their Cancel."""

SMALL = 16
"""The tokens of a small answer: for fewer, nothing is asked."""

UNPAID = "the budget does not pay for one"
"""Why a summary is not asked for that the budget could not pay."""

MANY = 10**9
"""More tokens than there are."""

USED_UP = {DoneReason.MAX_TURNS, DoneReason.MAX_BUDGET, DoneReason.TOKEN_BUDGET, DoneReason.TIME_BUDGET}
"""Ends of runs that have used all there is."""


def _hurries(state: State) -> bool:
    """Whether a steer that will not wait stops the work of a run that is then in *state*."""
    match state:
        case Streaming() | Executing() | Confirming() | Dispatching():
            return True
        case Thinking() | Compacting() | Done():
            return False
        case _:
            assert_never(state)


class Booked(Protocol):
    """A machine with its books, which are up to date."""

    @property
    def machine(self) -> Machine:
        """The machine."""
        ...

    @property
    def ledger(self) -> RunAuditor:
        """What is known of its run."""
        ...


@final
@attrs.define(kw_only=True)
class RunAuditor:
    """
    The books of one run. Feed `take` each step in turn, and tell `reconfigured` of new settings.

    *known* are all ids there were, and which kind of request each is, None for a call. *unpaid*: what is left
    did not pay for the request that was due.
    """

    mail: MailBook
    hooks: HookBook
    asks: AskBook
    settings: SettingBook
    calls: CallBook
    purse: SpendBook
    view: ViewBook
    shrink: ShrinkBook
    tries: TryBook = attrs.field(factory=TryBook)
    loops: LoopBook = attrs.field(factory=LoopBook)
    outputs: OutputBook = attrs.field(factory=OutputBook)
    open: dict[str, Request] = attrs.field(factory=dict)
    known: dict[str, type[Request] | None] = attrs.field(factory=dict)
    cancelled: set[str] = attrs.field(factory=set)
    turns: int = 0
    begun: int = 0
    over: int = 0
    interrupted: bool = False
    unpaid: bool = False
    aborted: bool = False
    text: str = ""
    # What the latest answer ended with.
    ended: StopReason = StopReason.UNKNOWN
    pauses: int = 0
    # The arguments that were streamed, by the number of their call.
    bits: dict[int, str] = attrs.field(factory=dict)

    @classmethod
    def of(cls, machine: Machine) -> RunAuditor:
        """New books for *machine*, which has not begun yet."""
        memory = machine.memory
        return cls(
            mail=MailBook.of(memory),
            hooks=HookBook.of(memory),
            asks=AskBook(),
            settings=SettingBook.of(memory),
            calls=CallBook.of(memory),
            purse=SpendBook.of(memory),
            view=ViewBook.of(memory),
            shrink=ShrinkBook.of(memory),
        )

    def copy(self) -> RunAuditor:
        """Books that go on from here on their own."""
        return RunAuditor(
            mail=self.mail.copy(),
            hooks=self.hooks.copy(),
            asks=self.asks.copy(),
            settings=self.settings.copy(),
            calls=self.calls.copy(),
            purse=self.purse.copy(),
            view=self.view.copy(),
            shrink=self.shrink.copy(),
            tries=self.tries.copy(),
            loops=self.loops.copy(),
            outputs=self.outputs.copy(),
            open=dict(self.open),
            known=dict(self.known),
            cancelled=set(self.cancelled),
            turns=self.turns,
            begun=self.begun,
            over=self.over,
            interrupted=self.interrupted,
            unpaid=self.unpaid,
            aborted=self.aborted,
            text=self.text,
            ended=self.ended,
            pauses=self.pauses,
            bits=dict(self.bits),
        )

    def reconfigured(self, config: Config) -> None:
        """The run goes on under *config*, and was under another one *before*."""
        self.settings.reconfigured(config)
        self.tries.reconfigured(config)
        self.calls.loose = True

    def take(self, now: Transition) -> list[str]:
        """The faults of the step *now*."""
        if ignored(now.effects):
            return untouched_faults(now)
        if isinstance(now.event, ModelStreamed):
            return self._streamed(now.event, now)
        faults, answered = self._event(now)
        faults += self.purse.take(now, answered) + self._given_up(now)
        for effect in now.effects:
            faults += self._effect(effect, now)
        faults += payment_faults(now) + self._cancels(now) + telling_faults(now, answered)
        faults += self.mail.take(now) + self.asks.take(now, answered) + self.tries.take(now, answered)
        faults += self.settings.take(now, answered, self.tries.fallback)
        around = Around(
            answered=answered,
            asks=self.asks,
            mode=self.settings.mode,
            purse=self.purse,
            urgent=self.mail.urgent,
            stopped=answered is not None and answered.id in self.cancelled,
        )
        faults += self.calls.take(now, around) + self.loops.take(now, self.view.messages)
        faults += self.hooks.take(now, answered, self.calls, self.loops.warns, unpaid=self.unpaid)
        faults += self._kept_up(now, answered)
        return faults + self.outputs.take(now) + self._balance(now) + step_faults(now)

    def _kept_up(self, now: Transition, answered: Request | None) -> list[str]:
        """What keeps a long run going: compactions, and what is shown of the conversation."""
        window = now.config.spec(self.tries.fallback or self.settings.model).window
        faults = self.shrink.take(now, answered, self.view, window, unpaid=self.unpaid)
        return faults + self.view.take(now) + self.purse.faults(now)

    def _streamed(self, streamed: ModelStreamed, now: Transition) -> list[str]:
        """A piece of a stream is seen and gathered, and changes nothing else."""
        self.tries.streamed(streamed)
        for effect in now.effects:
            if isinstance(effect, TextDelta):
                self.text += effect.text
            elif isinstance(effect, CallDelta):
                self._bit(effect)
            elif not isinstance(effect, ReasoningDelta | ProviderCalled):
                return [f"{streamed} led to {effect}"]
        same = now.remembered is now.memory and now.following.open == now.state.open
        return [] if same else [f"{streamed} changed more than the answer"]

    def _bit(self, delta: CallDelta) -> None:
        self.bits[delta.index] = self.bits.get(delta.index, "") + delta.arguments

    def _event(self, now: Transition) -> tuple[list[str], Request | None]:
        """What is wrong with the event, and the request that it closed, if it is an answer."""
        event = now.event
        if isinstance(event, Answer):
            answered = self.open.pop(event.request, None)
            if answered is None:
                return [f"{type(event).__name__} for {event.request} was applied, which is not open"], None
            return [], answered
        self.aborted |= isinstance(event, Interrupted) and event.aborted
        if isinstance(event, Interrupted) and stopping(now.state) is Stopping.INTERRUPTED:
            # Asked twice: what was cancelled is not waited for.
            self.open.clear()
        return [], None

    def _effect(self, effect: Effect, now: Transition) -> list[str]:
        if is_request(effect):
            return self._request(effect, now)
        match effect:
            case AppendMessage(message=message):
                return self._message(message, now)
            case Ignored():
                return [f"{effect} stands beside other effects"]
            case _:
                return self._notice(effect, now)

    # What is asked of the world

    def _request(self, request: Request, now: Transition) -> list[str]:
        faults = [f"{request.id} is the id of two requests"] if request.id in self.known else []
        self.known[request.id] = type(request)
        self.open[request.id] = request
        if self.interrupted:
            faults.append(f"{request} leaves although the run was interrupted")
        if isinstance(request, SetTimer):
            faults += [f"{request} is in the past"] if request.due < now.event.at else []
        elif isinstance(request, CallModel):
            faults += self._called(request, now) + request_faults(request, now.remembered)
        return faults

    def _called(self, request: CallModel, now: Transition) -> list[str]:
        faults: list[str] = []
        self.unpaid = False
        # The tries of a summary are one call: what one of them used stops no other that can be paid.
        if not self.purse.may_call(now.config) and now.state.label in {"thinking.go", "compacting.weigh"}:
            faults.append(f"{request} leaves over a limit, {self.purse}")
        if isinstance(request.view, Transcript):
            room = self._summary_room(now, self.view.messages[: request.view.length], request.view.limit)
            dear = room < now.config.compaction.tokens
            return [*faults, f"{request} leaves with room for {room} tokens"] if dear else faults
        room, most = self._room(now)
        learned = now.memory.progress.max_output
        due = room if room < most else learned or None
        if request.max_output != due or room < min(most, SMALL):
            faults.append(f"{request} leaves with room for {room} of {most} tokens")
        return faults + self._nothing_unsaid()

    def _given_up(self, now: Transition) -> list[str]:
        """A request is given up for its cost only where what is left does not pay for it."""
        stage = getattr(now.following, "stage", None)
        ends = isinstance(stage, End) and stage.reason in {DoneReason.MAX_BUDGET, DoneReason.TOKEN_BUDGET}
        skips = any(isinstance(one, CompactionFailed) and one.reason == UNPAID for one in now.effects)
        if not (ends or skips) or not self.purse.may_call(now.config):
            return []
        self.unpaid = True
        room, most = self._room(now)
        if isinstance(now.state, Compacting):
            # As if all of the conversation were to be read.
            paid = self._summary_room(now, self.view.messages) >= now.config.compaction.tokens
        else:
            paid = room >= min(most, SMALL)
        return [f"{now.state.label} is given up with room for {room}, {self.purse}"] if paid else []

    def _room(self, now: Transition) -> tuple[Decimal, int]:
        """How many tokens of an answer can be paid, and how many it has at most."""
        model, memory, config = self._model(now), now.memory, now.config
        around = sum(map(len, memory.conversation.pending_context))
        if self.shrink.attempts or not (self.purse.spent.turns or self.purse.earlier.turns):
            system = Context(config, memory, now.event).system
            around += len(system) + sum(len(tool.description) + len(tool.schema) for tool in config.tools)
        asked = self.view.size + around // 4
        most = memory.progress.max_output or model.max_output or model.window
        return self.purse.room(config, model, asked), most

    def _model(self, now: Transition) -> ModelSpec:
        return now.config.spec(self.tries.fallback or self.settings.model)

    def _summary_room(self, now: Transition, messages: Messages, limit: int = MANY) -> Decimal:
        """How many tokens of a summary of *messages* can be paid, of which *limit* tokens are read."""
        chosen = now.config.compaction.model
        model = now.config.spec(chosen) if chosen else self._model(now)
        return self.purse.room(now.config, model, min(limit, shown_size(messages, 0)))

    def _cancels(self, now: Transition) -> list[str]:
        """What is taken back dies; work is told to stop by whoever will not wait, and by nobody else."""
        named = [effect.request for effect in now.effects if isinstance(effect, Cancel)]
        unknown = [request for request in named if request not in self.open]
        stopped = {request for request in named if isinstance(self.open.get(request), WORK)}
        for request in set(named) - set(unknown) - stopped:
            del self.open[request]
        due = self._to_be_stopped(now)
        faults = [f"{unknown} are cancelled and not open"] if unknown else []
        again = stopped & self.cancelled
        if due - self.cancelled - stopped or stopped - due or again:
            faults.append(f"{now.event} stopped {stopped}, and is to stop {due}")
        self.cancelled |= stopped
        return faults

    def _to_be_stopped(self, now: Transition) -> set[str]:
        """The work that is told to stop by what happens in *now*, or was before."""
        event, work = now.event, {name: one for name, one in self.open.items() if isinstance(one, WORK)}
        if any(isinstance(effect, InterruptRequested) for effect in now.effects):
            return set(work)
        if isinstance(event, UserSteered) and event.how is Steering.NOW and _hurries(now.following):
            return set(work)
        if isinstance(event, CallCancelled):
            return {name for name, one in work.items() if getattr(one, "call", None) == event.call}
        return set()

    # What is said

    def _message(self, message: Message, now: Transition) -> list[str]:
        if message.role is not Role.ASSISTANT:
            return []
        said, self.text = self.text, ""
        faults = [] if said == message.text else [f"streamed was {said!r}, kept is {message.text!r}"]
        unsaid = [call for call in message.calls if call.arguments not in self.bits.values()]
        faults += [f"streamed was {self.bits}, kept are {unsaid}"] if unsaid else []
        again = [call.id for call in message.calls if call.id in self.known]
        self.known.update({call.id: None for call in message.calls})
        told = [effect for effect in now.effects if isinstance(effect, TurnEnded | AnswerKept)]
        calls = [effect.calls for effect in told if isinstance(effect, TurnEnded)]
        if again or [effect.message for effect in told] != [message] or (calls and calls != [message.calls]):
            faults.append(f"{again} are ids that were used, or {message} is told as {told}")
        return faults

    def _nothing_unsaid(self) -> list[str]:
        return [f"{self.text!r} was streamed, and neither kept nor dropped"] if self.text else []

    def _notice(self, effect: Effect, now: Transition) -> list[str]:
        match effect:
            case TextDelta(text):
                self.text += text
            case CallDelta():
                self._bit(effect)
            case AnswerDropped():
                self.text = ""
            case ModelCalled():
                self.bits.clear()
            case InterruptRequested():
                self.interrupted = True
            case TurnEnded(turn=turn, message=message):
                self.turns += 1
                self.ended = effect.stop
                # With calls of the agent's own, the run waits for these and not for the provider.
                paused = effect.stop is StopReason.PAUSED
                self.pauses = self.pauses + (not effect.calls) if paused else 0
                finish = Finish(reason=effect.stop, sequence=effect.sequence)
                right = turn == self.turns and message.parts[-1] == finish
                return [] if right else [f"turn {self.turns}, which ended with {finish}, is told as {effect}"]
            case RetryScheduled(due=due):
                timers = [one.due for one in now.effects if isinstance(one, SetTimer)]
                return [] if timers == [due] else [f"{effect} is told and set are {timers}"]
            case RunStarted():
                self.begun += 1
                return [] if now.state.label == "thinking.start" else ["the run starts in its middle"]
            case RunEnded():
                self.over += 1
                return self._ended(effect, now)
            case _:
                pass
        return []

    def _ended(self, told: RunEnded, now: Transition) -> list[str]:
        faults = self._nothing_unsaid()
        if told.spent != self.purse.spent:
            faults.append(f"told are {told.spent}, used were {self.purse.spent}")
        if told.reason in USED_UP and self.purse.may_call(now.config) and not self.unpaid:
            faults.append(f"the run ended with {told.reason}, and there is more, {self.purse}")
        stopped = DoneReason.ABORTED if self.aborted else DoneReason.INTERRUPTED
        if self.interrupted != (told.reason is stopped):
            faults.append(f"the run ended with {told.reason}, interrupted: {self.interrupted}")
        by_itself = told.reason in {DoneReason.END_TURN, DoneReason.REFUSAL}
        if by_itself and (told.reason is DoneReason.REFUSAL) != (self.ended is StopReason.REFUSAL):
            faults.append(f"the answer ended with {self.ended}, and the run with {told.reason}")
        if by_itself and self.ended is StopReason.PAUSED:
            faults.append(f"the answer was paused, and the run ended with {told.reason}")
        if self.mail.refused and not self.interrupted and told.reason is not DoneReason.BLOCKED:
            faults.append(f"the prompt did not come in, and the run ended with {told.reason}")
        return faults

    # Whether the books balance

    def _balance(self, now: Transition) -> list[str]:
        following, memory = now.following, now.remembered
        faults: list[str] = []
        if set(following.open) != set(self.open):
            faults.append(f"open are {sorted(self.open)}, {following.label} names {sorted(following.open)}")
        questions = {name for name, one in self.open.items() if isinstance(one, AskApproval)}
        if questions != set(self.asks.open):
            faults.append(f"the questions {questions} are open, told as open are {set(self.asks.open)}")
        if isinstance(following, Done) and following.spent != self.purse.spent:
            faults.append(f"used were {self.purse.spent}, the end says {following.spent}")
        if memory.spent.turns != self.turns:
            faults.append(f"{self.turns} turns were completed, counted {memory.spent.turns}")
        if memory.progress.pauses != self.pauses:
            faults.append(f"{self.pauses} pauses in a row, counted were {memory.progress.pauses}")
        if (self.begun, self.over) != (following.label != "thinking.start", isinstance(following, Done)):
            faults.append(f"{following.label} after {self.begun} starts and {self.over} ends")
        return faults
