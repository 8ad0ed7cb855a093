"""
What must hold of what a model is shown: all that was said, but for old results that are left out.

The book holds the messages as they were added and works out anew, from all of them, what the machine keeps
running totals of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.history import clear_results, is_cleared_when_old
from turnwheel.effects.messages import Message, Role
from turnwheel.effects.notices import ResultsCleared
from turnwheel.effects.records import (
    AddUsage,
    AppendMessage,
    ClearResults,
    ReplaceHistory,
)
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.states.rules.token_estimates import message_size

if TYPE_CHECKING:
    from turnwheel.effects import Effect
    from turnwheel.effects.config import Compaction
    from turnwheel.engine.inspect.transitions import Transition
    from turnwheel.states.context import Memory

Messages = tuple[Message, ...]


def shown_size(messages: Messages, before: int) -> int:
    """The estimated tokens of *messages*, of which results before index *before* are left out."""
    return sum(
        [message_size(clear_results(one) if index < before else one) for index, one in enumerate(messages)]
    )


def results_of(messages: Messages) -> int:
    """How many tool results *messages* have."""
    return sum([len(message.results) for message in messages])


@final
@attrs.define(kw_only=True)
class ViewBook:
    """
    The *messages* of one conversation, of which results before index *before* are left out.

    *size* is what they come to in tokens: estimated, or told by a model, and estimated from there on.
    """

    messages: Messages
    before: int
    size: int

    @classmethod
    def of(cls, memory: Memory) -> ViewBook:
        """A new book for a run that begins with *memory*."""
        return cls(
            messages=tuple(memory.history), before=memory.conversation.cleared, size=memory.conversation.size
        )

    def copy(self) -> ViewBook:
        """A book that goes on from here on its own."""
        return ViewBook(messages=self.messages, before=self.before, size=self.size)

    def take(self, now: Transition) -> list[str]:
        """The faults of the step *now*."""
        faults: list[str] = []
        for effect in now.effects:
            faults += self._effect(effect, now)
        memory = now.remembered
        if memory.history is not now.memory.history and tuple(memory.history) != self.messages:
            faults.append(f"said was {self.messages}, the memory has {list(memory.history)}")
        if memory is now.memory:
            return faults
        books = (self.before, results_of(self.messages[self.before :]), self.size)
        kept = (memory.conversation.cleared, memory.conversation.results, memory.conversation.size)
        if books != kept:
            faults.append(f"left out before, results and size are {books}, the memory has {kept}")
        return faults

    def _effect(self, effect: Effect, now: Transition) -> list[str]:
        match effect:
            case AppendMessage(message=message):
                self.messages += (message,)
                self.size += message_size(message)
            case AddUsage(context=told) if told:
                self.size = told
            case ReplaceHistory():
                return self._replaced(effect)
            case ClearResults():
                return self._cleared(effect, now)
            case ResultsCleared() if not any(isinstance(one, ClearResults) for one in now.effects):
                return [f"{effect} and nothing is left out"]
            case CallModel(view=Conversation() as view):
                return self._shown(view, now.config.compaction)
            case _:
                pass
        return []

    # Left out

    def due(self, settings: Compaction) -> int | None:
        """Before which index results are to be left out now, where some are."""
        shown = results_of(self.messages[self.before :])
        if settings.clear_over is None or shown <= settings.clear_over:
            return None
        batches = [index for index, message in enumerate(self.messages) if message.role is Role.TOOL]
        stay = [
            index
            for index in batches
            # The latest are what no model has seen yet.
            if index == batches[-1] or results_of(self.messages[index + 1 :]) < settings.clear_keep
        ]
        older = [index for index in batches if index < min(stay) and index >= self.before]
        return older[-1] + 1 if older else None

    def _cleared(self, effect: ClearResults, now: Transition) -> list[str]:
        faults = [] if effect.before == self.due(now.config.compaction) else [f"{effect} is not due"]
        part = self.messages[self.before : effect.before]
        count = sum([is_cleared_when_old(result) for message in part for result in message.results])
        saved = shown_size(self.messages, self.before) - shown_size(self.messages, effect.before)
        told = [one for one in now.effects if isinstance(one, ResultsCleared)]
        if told != ([ResultsCleared(count=count, tokens=saved, at=now.event.at)] if count else []):
            faults.append(f"{count} results of {saved} tokens are left out, told is {told}")
        self.before, self.size = effect.before, max(0, self.size - saved)
        return faults

    def _shown(self, view: Conversation, settings: Compaction) -> list[str]:
        """A model is shown the results that stay, and no others."""
        faults = [] if view.cleared == self.before else [f"{view} leaves out others than {self.before}"]
        due = self.due(settings)
        return faults if due is None else [*faults, f"{view} shows results before {due}"]

    # Rewritten

    def _replaced(self, effect: ReplaceHistory) -> list[str]:
        """A compaction makes what is shown smaller, whatever was left out of it before."""
        was = shown_size(self.messages, self.before)
        self.before = max(0, self.before - effect.keep + len(effect.head))
        self.messages = (*effect.head, *self.messages[effect.keep :])
        self.size = shown_size(self.messages, self.before)
        return [] if self.size < was else [f"{was} tokens were shown, and {self.size} after {effect}"]
