"""
What must hold of calls that fail: tried again as often and as late as settings say, or by another model.

A call is tried again only where no text of its answer was seen: what was shown cannot be taken back.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, final

import attrs

from provers.steps import stopping
from turnwheel.effects.events import (
    ControlReceived,
    Failure,
    ModelFailed,
    ModelStreamed,
)
from turnwheel.effects.history import TextPiece
from turnwheel.effects.notices import DoneReason, FallbackUsed, RetryScheduled, TurnEnded
from turnwheel.effects.records import SetModel, UseFallback
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.states.state import Compacting, End, Thinking

if TYPE_CHECKING:
    from turnwheel.effects.config import Config, Retries
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition

PATIENT = {Failure.RATE_LIMIT, Failure.OVERLOADED}
HOPEFUL = {Failure.SERVER, Failure.TIMEOUT, Failure.CONNECTION, Failure.CUT}
ELSEWHERE = {*PATIENT, *HOPEFUL, Failure.NOT_FOUND, Failure.AUTH}
"""Failures that may go away by waiting long, by waiting, and by asking another model."""

CLOSE = 1e-9
"""Times are floats, of which the last digit is lost where they are added."""


def asked_for(failed: ModelFailed) -> bool:
    """Whether the provider asked for a wait; one of nothing is none."""
    return failed.retry_after is not None and failed.retry_after > 0


def patience(retries: Retries, failed: ModelFailed, attempt: int) -> tuple[float, float] | None:
    """Between which seconds is waited after *attempt* *failed*; None where it is not tried again."""
    if failed.failure is Failure.LOST:
        return None if failed.should_retry is False else (0.0, 0.0)
    hopeful = failed.failure in HOPEFUL or (failed.should_retry and failed.failure not in PATIENT)
    allowed = retries.overloaded if failed.failure in PATIENT else retries.failed if hopeful else 0
    allowed = 0 if failed.should_retry is False else allowed
    if attempt > allowed:
        return None
    longest = inf if retries.longest is None else retries.longest
    if not asked_for(failed):
        least = retries.base * 2.0 ** (attempt - 1)
        return min(least, longest), min(least * (1 + retries.jitter), longest)
    asked = max(failed.retry_after or 0.0, min(retries.base, longest))
    return None if asked > longest else (asked, asked)


def too_long(failed: ModelFailed, attempt: int, retries: Retries) -> bool:
    """Whether it would be waited so long after *attempt* *failed* that another model is asked instead."""
    due = patience(retries, failed, attempt)
    if due is None:
        return True
    drawn = due[0] * (1 + retries.jitter * failed.jitter * (not asked_for(failed)))
    return min(drawn, inf if retries.longest is None else retries.longest) > retries.fallback_after


def wait_faults(failed: ModelFailed, attempt: int, now: Transition) -> list[str]:
    """Whether it is waited as long as it should after *attempt* *failed*, and then tried once more."""
    due = patience(now.config.retries, failed, attempt)
    told = [effect for effect in now.effects if isinstance(effect, RetryScheduled)]
    if due is None or len(told) != 1:
        return [f"{failed} of attempt {attempt} is to wait {due}, told is {told}"]
    (least, most), following = due, attempt + (failed.failure is not Failure.LOST)
    waits = least - CLOSE <= told[0].due - now.event.at <= most + CLOSE
    right = waits and (told[0].attempt, told[0].failure) == (following, failed.failure)
    return [] if right else [f"{told} after attempt {attempt}, which is to wait between {least} and {most} s"]


@final
@attrs.define(kw_only=True)
class TryBook:
    """
    The tries of one run: which *attempt* the next turn's call is, whether text was *seen* of its answer.

    *fallback* is the model that took over, or empty.
    """

    attempt: int = 1
    seen: bool = False
    fallback: str = ""

    def copy(self) -> TryBook:
        """A book that goes on from here on its own."""
        return TryBook(attempt=self.attempt, seen=self.seen, fallback=self.fallback)

    def reconfigured(self, config: Config) -> None:
        """The run goes on under *config*: a model that took over and is not there any more is not asked."""
        if self.fallback not in {model.name for model in (config.model, *config.models)}:
            self.fallback = ""

    def streamed(self, event: ModelStreamed) -> None:
        """Text of an answer was seen, unless *event* brought thinking, calls or white space alone."""
        texts = [piece.text for piece in event.pieces if isinstance(piece, TextPiece)]
        self.seen = self.seen or not all(map(str.isspace, texts))

    def take(self, now: Transition, answered: Request | None) -> list[str]:
        """The faults of the step *now*, whose event closed *answered*."""
        event, faults = now.event, list[str]()
        if isinstance(event, ModelFailed) and isinstance(answered, CallModel):
            turn = answered.purpose is Purpose.TURN
            faults += (self._failed if turn else self._summary_failed)(event, answered, now)
        elif any(isinstance(effect, FallbackUsed | UseFallback) for effect in now.effects):
            faults.append(f"{event} led to another model: {now.effects}")
        if isinstance(now.state, Compacting) and isinstance(now.following, Thinking):
            self.attempt = 1
        for effect in now.effects:
            faults += self._effect(effect)
        if isinstance(event, ControlReceived) and SetModel in [type(effect) for effect in now.effects]:
            self.fallback = ""
        if now.remembered.progress.fallback != self.fallback:
            faults.append(f"{self.fallback!r} took over, the memory has {now.remembered.progress.fallback!r}")
        return faults

    def _effect(self, effect: object) -> list[str]:
        match effect:
            case CallModel(purpose=Purpose.TURN, attempt=attempt):
                self.seen = False
                return [] if attempt == self.attempt else [f"{effect} is attempt {self.attempt}"]
            case TurnEnded():
                self.attempt = 1
            case _:
                pass
        return []

    def _failed(self, failed: ModelFailed, asked: CallModel, now: Transition) -> list[str]:
        """What comes of an answer that failed, by its failure and by what was seen of it."""
        if stopping(now.state):
            # A person stopped it: whatever became of it, it is not asked for again.
            self.attempt = 1
            told = [one for one in now.effects if isinstance(one, RetryScheduled | FallbackUsed)]
            return [f"{failed} was stopped, and {told}"] if told else []
        if failed.failure is Failure.UNBEGUN:
            self.attempt = asked.attempt
            return [] if now.following.label == "thinking.go" else [f"{failed} led to {now.following.label}"]
        if failed.failure is Failure.OVERFLOW:
            right = isinstance(now.following, Compacting)
            return [] if right else [f"{failed} led to {now.following.label}"]
        silent = not self.seen or failed.failure is Failure.LOST
        if silent and self._may_fall_back(failed, asked, now.config):
            return self._fell_back(failed, asked, now, "thinking.go")
        due = patience(now.config.retries, failed, asked.attempt)
        if silent and due is not None:
            self.attempt = asked.attempt + (failed.failure is not Failure.LOST)
            return wait_faults(failed, asked.attempt, now)
        stage = now.following.stage if isinstance(now.following, Thinking) else None
        right = isinstance(stage, End) and stage.reason is DoneReason.ERROR
        return [] if right else [f"{failed} led to {now.following}"]

    def _summary_failed(self, failed: ModelFailed, asked: CallModel, now: Transition) -> list[str]:
        """Where no model is named for summaries, the other one takes over as it does for an answer."""
        named = bool(now.config.compaction.model) or stopping(now.state)
        if not named and self._may_fall_back(failed, asked, now.config):
            return self._fell_back(failed, asked, now, "compacting.weigh")
        told = [one for one in now.effects if isinstance(one, FallbackUsed | UseFallback)]
        return [f"{failed} of a summary led to {told}"] if told else []

    def _may_fall_back(self, failed: ModelFailed, asked: CallModel, config: Config) -> bool:
        """Whether the other model takes over: once, where it may help, and is sooner than to wait."""
        if self.fallback or config.fallback in {"", asked.model} or failed.failure not in ELSEWHERE:
            return False
        return too_long(failed, asked.attempt, config.retries)

    def _fell_back(self, failed: ModelFailed, asked: CallModel, now: Transition, label: str) -> list[str]:
        self.fallback, self.attempt = now.config.fallback, 1
        due = (
            UseFallback(model=self.fallback),
            FallbackUsed(
                model=self.fallback,
                instead_of=asked.model,
                failure=failed.failure,
                message=failed.message,
                at=now.event.at,
            ),
        )
        switch = tuple([one for one in now.effects if isinstance(one, UseFallback | FallbackUsed)])
        right = switch == due and now.following.label == label
        return [] if right else [f"{failed} led to {switch} and {now.following.label}, due was {due}"]
