"""The questions that are open in a chat, answered in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from ...effects.config import ToolSpec
from ...effects.errors import ConfigError, UnknownRequest
from ...effects.events import Approve, ApproveAlways, Decision
from ...effects.notices import ApprovalRequested
from ..cli.option_types import ALL, resolve_question
from ..terminal.approval_card import Question, argument_problem


@final
class Questions:
    """What is open, in the order it was asked; *clock* says what time it is, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: dict[str, Question] = {}
        self.closed = float("-inf")
        """When a question was last closed, by whomever."""

    @property
    def open(self) -> tuple[Question, ...]:
        """The questions."""
        return tuple(self._open.values())

    def add(self, notice: ApprovalRequested, within: float | None, agent: str = "") -> Question:
        """Another one came, of the child *agent* unless that is empty; it waits *within* seconds."""
        question = Question.of(notice, within, self._clock(), agent)
        self._open[question.request] = question
        return question

    def close(self, request: str) -> Question | None:
        """The question *request* is no longer open; None where it was not known."""
        self.closed = self._clock()
        return self._open.pop(request, None)

    def clear(self) -> None:
        """No run is under way, so nothing is asked."""
        self._open.clear()

    def named(self, name: str, started: float) -> tuple[Question, ...]:
        """
        The questions that *name* means, empty the only one, in a line begun when it was *started*.

        Raises `ConfigError` where that is not sure: nobody says yes to what they have not seen.
        """
        chosen = self._chosen(name)
        if any(question.since > started for question in chosen):
            msg = "that question came while you typed: look at it, and answer once more"
            raise ConfigError(msg)
        return chosen

    def _chosen(self, name: str) -> tuple[Question, ...]:
        if not self._open:
            msg = "no question is open any more; to say that as a prompt, put a space in front"
            raise ConfigError(msg)
        if name == ALL or (not name and len(self._open) == 1):
            return self.open
        names = tuple([question.name for question in self.open])
        if not name:
            msg = f"{len(names)} questions are open: say which one, {' or '.join(names)}, or {ALL}"
            raise ConfigError(msg)
        found = resolve_question(name, {one.request: one.call for one in self.open})
        if found is None:
            raise UnknownRequest(name, names)
        return (self._open[found],)

    def edit(self, question: Question, arguments: str, tools: dict[str, ToolSpec]) -> Question:
        """*question* with other *arguments*; raises `ConfigError` where one of *tools* cannot have them."""
        if wrong := argument_problem(question.tool, arguments, tools):
            raise ConfigError(wrong)
        changed = attrs.evolve(question, arguments=arguments.strip(), edited=True, since=self._clock())
        if question.request in self._open:
            self._open[question.request] = changed
        return changed


def effective_decision(question: Question, decision: Decision) -> Decision:
    """
    What *decision* says to *question*: a yes is one to the arguments that were edited.

    "Always" is for calls as the model makes them, and for those to come: neither was asked about otherwise.
    """
    if question.again and isinstance(decision, ApproveAlways):
        msg = "always is for calls to come; say y to run this one again"
        raise ConfigError(msg)
    if not question.edited:
        return decision
    if isinstance(decision, ApproveAlways):
        msg = "always is for calls as the model makes them; say y to this one"
        raise ConfigError(msg)
    return Approve(arguments=question.arguments) if isinstance(decision, Approve) else decision
