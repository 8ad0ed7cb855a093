"""
What must hold of compactions: tried when they are due and help, given up when they do not, and never a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from provers.audit.tries import patience, too_long, wait_faults
from provers.audit.views import shown_size
from provers.steps import stopping
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.messages import Role
from turnwheel.effects.notices import (
    Compacted,
    CompactionFailed,
    FallbackUsed,
    RetryScheduled,
    TurnEnded,
)
from turnwheel.effects.records import ReplaceHistory
from turnwheel.effects.requests import CallModel, Purpose, Transcript
from turnwheel.states.compacting import SMALLER_TRIES, WHOLE_SUMMARY
from turnwheel.states.rules.compaction import SUMMARY_PREFIX
from turnwheel.states.state import Compacting, CompactReason

if TYPE_CHECKING:
    from provers.audit.views import Messages, ViewBook
    from turnwheel.effects import Effect
    from turnwheel.effects.config import Config
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Memory


WORTH = 0.05
"""The share of a window below which nothing need be summarised."""


def beside_the_last(messages: Messages) -> int:
    """The tokens of *messages* without the last: it stays, and where it has results, so do their calls."""
    last = 2 if messages[-1].role is Role.TOOL else 1
    return shown_size(messages[:-last], 0)


def _carried(effect: ReplaceHistory, now: Transition, view: ViewBook) -> list[str]:
    """What people said stays, word for word, and only what they said."""
    before, lines = now.memory.conversation.standing, effect.standing
    said = [" ".join(message.text.split()) for message in view.messages if message.role is Role.USER]
    said += [" ".join(each.content.split()) for message in view.messages for each in message.results]
    holds = now.config.compaction.standing
    faults = [f"{effect} drops what people said"] if holds and not {*before} <= {*lines} else []
    faults += [f"{line!r} is in no summary" for line in lines if f"- {line}" not in effect.head[0].text]
    return faults + [f"who said {line!r}?" for line in lines if not any(line in text for text in said)]


@final
@attrs.define(kw_only=True)
class ShrinkBook:
    """
    The compactions of one run: *attempts* since the last answer, *failures* in a row.

    *due* is the next try of the summary that is being made: which one it is, and of how many tokens.
    """

    attempts: int = 0
    failures: int = 0
    due: tuple[int, int] | None = None

    @classmethod
    def of(cls, memory: Memory) -> ShrinkBook:
        """A new book for a run that begins with *memory*."""
        return cls(attempts=memory.progress.compactions, failures=memory.session.compaction_failures)

    def copy(self) -> ShrinkBook:
        """A book that goes on from here on its own."""
        return ShrinkBook(attempts=self.attempts, failures=self.failures, due=self.due)

    def take(
        self, now: Transition, answered: Request | None, view: ViewBook, window: int, *, unpaid: bool
    ) -> list[str]:
        """
        The faults of the step *now*, whose event closed *answered*.

        *view* is what a model was shown before it, *window* what the one in use can read. *unpaid*: what is
        left does not pay for a summary, so that none is asked for again.
        """
        asked = answered if isinstance(answered, CallModel) and not unpaid else None
        faults = self._answered(now, asked, view) if asked is not None else []
        faults += self._weighed(now, view, window)
        for effect in now.effects:
            faults += self._effect(effect, now, view, window)
        memory = now.remembered
        kept = (memory.progress.compactions, memory.session.compaction_failures)
        if kept != (self.attempts, self.failures):
            faults.append(f"counted are {(self.attempts, self.failures)} compactions, kept {kept}")
        if not isinstance(now.following, Compacting):
            self.due = None
        return faults

    # When

    def _wanted(self, size: int, window: int, config: Config) -> bool:
        hopeful = self.attempts == 0 and self.failures < config.compaction.failures
        return hopeful and size >= window * config.policy.compact_at

    def _weighed(self, now: Transition, view: ViewBook, window: int) -> list[str]:
        """No turn's call leaves while the context is over its threshold and a summary may help."""
        if now.state.label != "thinking.go" or now.following.label not in {"streaming", "compacting.weigh"}:
            return []
        compacts = isinstance(now.following, Compacting)
        wanted = self._wanted(view.size, window, now.config)
        # What stays beside the last message is the kept share at most.
        old = beside_the_last(view.messages) - window * now.config.compaction.keep
        if compacts == wanted or (wanted and old < window * WORTH):
            return []
        return [f"{view.size} of {window} tokens, {old} of them old, led to {now.following.label}"]

    # How

    def _effect(self, effect: Effect, now: Transition, view: ViewBook, window: int) -> list[str]:
        match effect:
            case CallModel(purpose=Purpose.SUMMARY):
                return self._asked(effect, now, view, window)
            case ReplaceHistory(head=head):
                right = (
                    len(head) == 1 and head[0].role is Role.USER and head[0].text.startswith(SUMMARY_PREFIX)
                )
                return _carried(effect, now, view) if right else [f"{effect} is no summary"]
            case Compacted(before=before, after=after):
                self.attempts, self.failures = self.attempts + 1, 0
                return [] if after < before else [f"{effect} made it no smaller"]
            case CompactionFailed():
                # What was not asked for has not failed.
                self.attempts += 1
                self.failures += isinstance(now.event, ModelFinished | ModelFailed)
                return self._gone_on(now)
            case TurnEnded():
                self.attempts = 0
                return []
            case _:
                return []

    def _asked(self, request: CallModel, now: Transition, shown: ViewBook, window: int) -> list[str]:
        """A summary is asked for: of the old part, in so many tokens, by a model that can read it."""
        settings, view = now.config.compaction, request.view
        messages, size = shown.messages, shown.size
        if not isinstance(view, Transcript) or (request.max_output, request.tools) != (settings.tokens, ()):
            return [f"{request} is no request for a summary"]
        large = isinstance(now.state, Compacting) and now.state.reason is CompactReason.OVERFLOW
        # What is refused for its size must shrink, whatever was tried before.
        faults = [f"{request} follows one just before"] if self.attempts > large else []
        # One that was refused for its size is larger than the window it was taken for.
        reach = min(window, size) if large else window
        stays = beside_the_last(messages[view.length :] or messages[-1:])
        if now.state.label == "compacting.weigh" and stays > reach * settings.keep:
            faults.append(f"{request} leaves {stays} of {reach} tokens as they are")
        reads = now.config.spec(request.model).window
        first = 1, max(int(reads * 0.8) - settings.tokens, reads // 4)
        if (request.attempt, view.limit) != (self.due or first):
            faults.append(f"{request} is not the try {self.due or first}")
        self.due = request.attempt, view.limit
        return faults

    def _gone_on(self, now: Transition) -> list[str]:
        """Without its summary a run goes on where it can."""
        reason = now.state.reason if isinstance(now.state, Compacting) else None
        due = "thinking.go" if reason is CompactReason.THRESHOLD else "thinking.end"
        return [] if now.following.label == due else [f"without a summary it is {now.following.label}"]

    # What came of it

    def _answered(self, now: Transition, asked: CallModel, view: ViewBook) -> list[str]:
        if asked.purpose is not Purpose.SUMMARY or stopping(now.state):
            return []
        event = now.event
        failed = any(isinstance(effect, CompactionFailed) for effect in now.effects)
        replaced = [effect for effect in now.effects if isinstance(effect, ReplaceHistory)]
        if isinstance(event, ModelFailed):
            return self._failed(event, asked, now, view, failed=failed)
        whole = isinstance(event, ModelFinished) and event.stop in WHOLE_SUMMARY
        if failed == bool(replaced) or (replaced and not whole):
            return [f"{event} led to {now.effects}"]
        cut = [effect.keep for effect in replaced]
        return [] if cut in ([], [asked.view.length]) else [f"{replaced} is not what {asked} was about"]

    def _failed(
        self, event: ModelFailed, asked: CallModel, now: Transition, view: ViewBook, *, failed: bool
    ) -> list[str]:
        """A summary that failed is asked for again, later or of less, or is given up."""
        attempt, limit = self.due or (1, 0)
        if event.failure in {Failure.LOST, Failure.UNBEGUN} and event.should_retry is not False:
            self.due = None
            return [] if now.following.label == "compacting.weigh" else [f"{event} led to {now.following}"]
        if event.failure is Failure.OVERFLOW and attempt < SMALLER_TRIES:
            read = shown_size(view.messages[: asked.view.length], 0)
            self.due = attempt + 1, min(limit, read) // 2
            return [] if now.following.label == "compacting.summary" else [f"{event} led to {now.following}"]
        if any(isinstance(effect, FallbackUsed) for effect in now.effects):
            self.due = None  # the other model begins anew
            return []
        waits = any(isinstance(effect, RetryScheduled) for effect in now.effects)
        eager = isinstance(now.state, Compacting) and now.state.reason is CompactReason.THRESHOLD
        too_late = eager and too_long(event, asked.attempt, now.config.retries)
        if too_late or patience(now.config.retries, event, asked.attempt) is None:
            return [] if failed and not waits else [f"{event} of {asked} is not given up"]
        self.due = attempt + 1, limit
        return wait_faults(event, asked.attempt, now)
