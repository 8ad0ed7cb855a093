"""
What must hold of questions: each is closed once, by whoever answers it, by nobody in time, or withdrawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.events import (
    ApprovalGiven,
    ApproveAlways,
    Deny,
    TimerFired,
)
from turnwheel.effects.notices import (
    ApprovalResolved,
    ApprovalWithdrawn,
    CallJudged,
    RunEnded,
)
from turnwheel.effects.permissions import Rule, Verdict
from turnwheel.effects.requests import AskApproval, Cancel, SetTimer
from turnwheel.states.rules.schema import arguments_of

if TYPE_CHECKING:
    from turnwheel.effects.config import Config
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition


@final
@attrs.frozen
class Question:
    """A question that was *asked*, and the *timer* that bounds it, or nothing."""

    asked: AskApproval
    timer: str = ""


def _too_late(event: ApprovalGiven, question: AskApproval) -> bool:
    return question.due is not None and event.at >= question.due


def _may_cover(rule: Rule, question: AskApproval, config: Config) -> bool:
    """Whether *rule* covers the call that *question* is about; more is known of paths and commands."""
    spec = config.tool(question.tool)
    own = set[str]() if spec is None else {*spec.paths, spec.command}
    plain = attrs.evolve(rule, where=tuple([one for one in rule.where if one[0] not in own]))
    return plain.covers(question.tool, arguments_of(question.arguments) or {})


@final
@attrs.define(kw_only=True)
class AskBook:
    """
    The questions of one run that are *open*, by their requests.

    *yes* and *no* are the calls about which the last step's event said so, *rule* is what it granted.
    """

    open: dict[str, Question] = attrs.field(factory=dict)
    yes: tuple[str, ...] = ()
    no: tuple[str, ...] = ()
    rule: Rule | None = None

    def copy(self) -> AskBook:
        """A book that goes on from here on its own."""
        return AskBook(open=dict(self.open))

    def take(self, now: Transition, answered: Request | None) -> list[str]:
        """The faults of the step *now*, whose event closed *answered*."""
        self.yes, self.no, self.rule = (), (), None
        if isinstance(answered, AskApproval) and isinstance(now.event, ApprovalGiven):
            self._answered(now, now.event, answered)
        elif isinstance(answered, SetTimer):
            late = [one.asked.call for one in self.open.values() if one.timer == answered.id]
            self.no = tuple(late)
        faults: list[str] = []
        for index, effect in enumerate(now.effects):
            match effect:
                case AskApproval():
                    faults += self._asks(effect, now, index)
                case ApprovalResolved() | ApprovalWithdrawn():
                    faults += self._closed(effect, now)
                case RunEnded() if self.open:
                    faults.append(f"the run ended while {list(self.open)} are open")
                case _:
                    pass
        left = [one for one in self.open.values() if one.asked.call in (*self.yes, *self.no)]
        return faults + [f"{one} was answered, and that is not told" for one in left]

    def _answered(self, now: Transition, event: ApprovalGiven, question: AskApproval) -> None:
        """A person answered *question*; *always* answers others that it covers, if they are judged so."""
        decision = event.decision
        if isinstance(decision, Deny) or _too_late(event, question):
            self.no = (question.call,)
            return
        self.yes = (question.call,)
        if isinstance(decision, ApproveAlways) and not question.again:
            self.rule = rule = Rule(verdict=Verdict.ALLOW, tool=question.tool, where=decision.where)
            judged = {told.call for told in now.effects if isinstance(told, CallJudged)}
            others = [one.asked for one in self.open.values() if one.asked.call in judged - {question.call}]
            self.yes += tuple([one.call for one in others if _may_cover(rule, one, now.config)])

    def _asks(self, question: AskApproval, now: Transition, index: int) -> list[str]:
        """A question that has to be answered in time sets its timer at once, and no other does."""
        timer, within = now.effects[index + 1], now.config.policy.answer_within
        self.open[question.id] = Question(question, timer.id if isinstance(timer, SetTimer) else "")
        if isinstance(timer, SetTimer) and within is not None:
            right = timer.due == question.due == now.event.at + within
        else:
            right = not isinstance(timer, SetTimer) and not within
        return [] if right else [f"{question} is followed by {timer}, and may wait {within}"]

    def _closed(self, told: ApprovalResolved | ApprovalWithdrawn, now: Transition) -> list[str]:
        """A question is told as closed: what was asked of the world for it is taken back."""
        question = self.open.pop(told.request, None)
        if question is None:
            return [f"{told} is about a question that is not open"]
        withdrawn = isinstance(told, ApprovalWithdrawn)
        event = now.event
        fired = isinstance(event, TimerFired) and event.request == question.timer
        late = isinstance(event, ApprovalGiven) and event.request == told.request and withdrawn
        due = {told.request} if withdrawn and not late else set[str]()
        due |= {question.timer} - {""} if not fired else set[str]()
        cancelled = {effect.request for effect in now.effects if isinstance(effect, Cancel)}
        taken = cancelled & {told.request, question.timer}
        said = isinstance(told, ApprovalWithdrawn) and told.late
        right = (taken, said) == (due, fired or late)
        return [] if right else [f"{told} of {question} after {event}: {taken}"]
