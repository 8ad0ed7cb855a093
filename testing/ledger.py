"""
What must hold over a whole run: a ledger that is told every step and says what is wrong with it.

The ledger keeps its own books from events and effects alone, as an auditor does, and compares them with what
the machine believes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never, final

import attrs

from ..effects.config import Config
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    HookAnswered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    TimerFired,
    ToolFinished,
    UserSent,
)
from ..effects.messages import Message, Role
from ..effects.notices import (
    AnswerDropped,
    ApprovalAnswered,
    ApprovalWithdrawn,
    Compacted,
    DoneReason,
    Ignored,
    InterruptRequested,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolEnded,
    TurnEnded,
)
from ..effects.records import AddUsage, AppendMessage, ReplaceHistory, TakeMail
from ..effects.requests import (
    AskApproval,
    CallModel,
    Cancel,
    FireHook,
    Purpose,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)
from ..effects.usage import Spent
from ..engine.transition import ignored
from ..states.state import Done, Stopping
from .callbook import CallBook
from .invariants import (
    growth_faults,
    over_limit,
    payment_faults,
    request_faults,
    shrink_faults,
    state_faults,
    untouched_faults,
)
from .steps import Step, stopping

if TYPE_CHECKING:
    from ..effects import Effect
    from ..engine.machine import Machine

ANSWERS = (ModelFinished, ModelFailed, ToolFinished, ApprovalGiven, HookAnswered, AgentFinished, TimerFired)


@final
@attrs.define(kw_only=True)
class Ledger:
    """The books of one run under *config*; *prompts* wait at its start. Feed `take` each step in turn."""

    config: Config
    prompts: list[str]
    calls: CallBook
    open: dict[str, Request] = attrs.field(factory=dict)
    known: set[str] = attrs.field(factory=set)
    spent: Spent = Spent()
    turns: int = 0
    begun: int = 0
    over: int = 0
    interrupted: bool = False
    text: str = ""

    @classmethod
    def of(cls, machine: Machine) -> Ledger:
        """New books for *machine*, which has not begun yet."""
        config = machine.config
        return cls(
            config=config,
            prompts=[mail.id for mail in machine.memory.mail],
            calls=CallBook(config=config, rules=list(machine.memory.granted)),
        )

    def copy(self) -> Ledger:
        """Books that go on from here on their own."""
        return attrs.evolve(
            self,
            prompts=list(self.prompts),
            calls=self.calls.copy(),
            open=dict(self.open),
            known=set(self.known),
        )

    def take(self, now: Step) -> list[str]:
        """The faults of the step *now*."""
        if ignored(now.effects):
            return untouched_faults(now)
        faults = self._event(now)
        for effect in now.effects:
            faults += self._effect(effect, now)
        faults += payment_faults(now)
        return faults + self._balance(now) + state_faults(now.following, now.remembered, self.config)

    def _event(self, now: Step) -> list[str]:
        event = now.event
        if isinstance(event, ANSWERS):
            request = self.open.pop(event.request, None)
            if request is None:
                return [f"{type(event).__name__} for {event.request} was applied, which is not open"]
            if isinstance(event, ApprovalGiven) and isinstance(request, AskApproval):
                questions = [other for other in self.open.values() if isinstance(other, AskApproval)]
                self.calls.answered(event, request, questions)
        elif isinstance(event, Interrupted) and stopping(now.state) is Stopping.INTERRUPTED:
            # Asked twice: what was cancelled is not waited for.
            self.open.clear()
        elif isinstance(event, UserSent):
            self.prompts.append(event.id)
        return []

    def _effect(self, effect: Effect, now: Step) -> list[str]:
        match effect:
            case CallModel() | RunTool() | AskApproval() | FireHook() | RunAgent() | SetTimer():
                return self._request(effect, now)
            case Cancel(request=request):
                return self._cancelled(request)
            case AppendMessage(message=message):
                return self._message(message)
            case ReplaceHistory() | Compacted():
                return shrink_faults(effect, now)
            case AddUsage(spent=spent):
                self.spent += spent
                return growth_faults(spent)
            case _:
                if isinstance(effect, TakeMail):
                    self.prompts.clear()
                return self._notice(effect, now)

    # What is asked of the world

    def _request(self, request: Request, now: Step) -> list[str]:
        faults = [f"{request.id} is the id of two requests"] if request.id in self.known else []
        self.known.add(request.id)
        self.open[request.id] = request
        if self.interrupted:
            faults.append(f"{request} leaves although the run was interrupted")
        return faults + self._asked_of_the_world(request, now)

    def _asked_of_the_world(self, request: Request, now: Step) -> list[str]:
        match request:
            case CallModel():
                return self._called(request) + request_faults(request, now.remembered)
            case AskApproval():
                return self.calls.asks(request)
            case RunTool():
                return self.calls.runs(request, now, self.spent)
            case RunAgent():
                return self.calls.delegates(request, now, self.spent)
            case SetTimer(due=due):
                return [f"{request} is in the past"] if due < now.event.at else []
            case FireHook():
                return []
            case _:
                assert_never(request)

    def _called(self, request: CallModel) -> list[str]:
        faults: list[str] = []
        if over_limit(self.config.limits, self.spent):
            faults.append(f"{request} leaves over budget, spent are {self.spent}")
        if request.purpose is not Purpose.TURN:
            return faults
        self.calls.offered = request.tools
        faults += self._nothing_unsaid()
        retries = self.config.retries
        if request.attempt > 1 + max(retries.overloaded, retries.failed):
            faults.append(f"{request} is one attempt too many")
        return faults

    def _cancelled(self, request: str) -> list[str]:
        cancelled = self.open.get(request)
        if isinstance(cancelled, AskApproval | FireHook | SetTimer):
            del self.open[request]
        return [] if cancelled else [f"{request} is cancelled and not open"]

    # What is said

    def _message(self, message: Message) -> list[str]:
        if message.role is Role.ASSISTANT:
            self.calls.wished(message.calls)
            said, self.text = self.text, ""
            return [] if said == message.text else [f"streamed was {said!r}, kept is {message.text!r}"]
        return [fault for result in message.results for fault in self.calls.kept(result)]

    def _nothing_unsaid(self) -> list[str]:
        return [f"{self.text!r} was streamed, and neither kept nor dropped"] if self.text else []

    def _notice(self, effect: Effect, now: Step) -> list[str]:
        match effect:
            case TextDelta(text):
                self.text += text
            case AnswerDropped():
                self.text = ""
            case InterruptRequested():
                self.interrupted = True
            case TurnEnded(turn=turn):
                self.turns += 1
                return [] if turn == self.turns else [f"turn {self.turns} is told as {turn}"]
            case ToolEnded():
                return self.calls.ends(effect, now, self.open.values())
            case ApprovalAnswered(request=request) | ApprovalWithdrawn(request=request):
                return [f"{request} is told as closed and is open"] if request in self.open else []
            case Ignored():
                return [f"{effect} stands beside other effects"]
            case _:
                return self._frame(effect, now)
        return []

    def _frame(self, effect: Effect, now: Step) -> list[str]:
        faults: list[str] = []
        if isinstance(effect, RunStarted):
            self.begun += 1
            if now.state.label != "thinking.start":
                faults.append("the run starts in its middle")
        elif isinstance(effect, RunEnded):
            self.over += 1
            if effect.spent != self.spent:
                faults.append(f"told are {effect.spent}, used were {self.spent}")
            if self.interrupted != (effect.reason is DoneReason.INTERRUPTED):
                faults.append(f"the run ended with {effect.reason}, interrupted: {self.interrupted}")
            faults += self._nothing_unsaid()
        return faults

    # Whether the books balance

    def _balance(self, now: Step) -> list[str]:
        following, memory, limit = now.following, now.remembered, self.config.limits.turns
        faults: list[str] = []
        if set(following.open) != set(self.open):
            faults.append(f"open are {sorted(self.open)}, {following.label} names {sorted(following.open)}")
        if memory.spent != self.spent or (isinstance(following, Done) and following.spent != self.spent):
            faults.append(f"used were {self.spent}, the memory has {memory.spent}")
        if memory.spent.turns != self.turns or (limit is not None and self.turns > limit):
            faults.append(f"{self.turns} turns were completed, counted {memory.spent.turns}, allowed {limit}")
        if (self.begun, self.over) != (following.label != "thinking.start", isinstance(following, Done)):
            faults.append(f"{following.label} after {self.begun} starts and {self.over} ends")
        if [mail.id for mail in memory.mail] != self.prompts:
            faults.append(f"the mail has {memory.mail}, waiting are {self.prompts}")
        return faults
