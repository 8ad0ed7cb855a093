"""The open questions of a chat, which a person may answer in any order."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import attrs

from ...effects.config import Config
from ...effects.errors import ConfigError, UnknownRequest
from ...effects.events import Approve, ApproveAlways, Decision
from ...effects.notices import ApprovalRequested
from ..cli.option_types import ALL
from ..terminal.approval_card import Question, argument_problem, on_one_line
from .call_names import CallNames
from .commands import AS_PROMPT


@final
class Questions:
    """The open questions in the order they came; *clock* returns seconds, *names* has the names of calls."""

    def __init__(self, clock: Callable[[], float], names: CallNames) -> None:
        self._clock = clock
        self._names = names
        self._open: dict[str, Question] = {}
        self._drafts: dict[str, str] = {}
        self.closed = float("-inf")
        """The time when a question was last closed, by any approver."""

    @property
    def open(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(self._open.values())

    def add(self, notice: ApprovalRequested, within: float | None, agent: str = "") -> Question:
        """
        Add a question of the child *agent*, or of this session if that is empty. It waits *within* seconds.
        """
        question = Question.of(notice, within, self._clock(), agent, self._names.name(notice.call))
        self._open[question.request] = question
        return question

    def close(self, request: str) -> Question | None:
        """Remove the question *request*; None if it was not open."""
        self.closed = self._clock()
        self._drafts.pop(request, None)
        return self._open.pop(request, None)

    def clear(self) -> None:
        """Remove all questions, since the run is over."""
        self._open.clear()
        self._drafts.clear()

    def draft(self, question: Question) -> str:
        """The arguments of *question* to edit: those that were refused last, or its own."""
        return self._drafts.get(question.request) or on_one_line(question.arguments)

    def keep_draft(self, question: Question, arguments: str) -> None:
        """Keep *arguments* that were refused, for the next edit of *question*."""
        if question.request in self._open:
            self._drafts[question.request] = arguments

    def forget_draft(self, question: Question) -> None:
        """Edit the arguments of *question* itself from now on."""
        self._drafts.pop(question.request, None)

    def named(self, name: str, started: float) -> tuple[Question, ...]:
        """
        The questions that *name* means (the only one if it is empty), for a line begun at *started*.

        Raises `ConfigError` for an unknown or ambiguous name, and for a question that came after the line was
        begun: a person cannot approve a call they have not seen.
        """
        chosen = self._chosen(name)
        if any(question.since > started for question in chosen):
            msg = "the question came while you typed; read it and answer again"
            raise ConfigError(msg)
        return chosen

    def _chosen(self, name: str) -> tuple[Question, ...]:
        if not self._open:
            msg = f"no question is open; {AS_PROMPT}"
            raise ConfigError(msg)
        if name == ALL or (not name and len(self._open) == 1):
            return self.open
        names = tuple([question.name for question in self.open])
        if not name:
            msg = f"{len(names)} questions are open; name one: {' or '.join(names)}, or {ALL}"
            raise ConfigError(msg)
        wanted = name.removeprefix("#")
        meant = [one for one in self.open if wanted in {one.name, one.call, one.request}]
        # An answer to the wrong call cannot be undone.
        if len(meant) != 1:
            raise UnknownRequest(name, names)
        return (meant[0],)

    def edit(self, question: Question, arguments: str, config: Config) -> Question:
        """
        *question* with new *arguments*; raises `ConfigError` if its call cannot run with them under *config*.
        """
        if wrong := argument_problem(question.tool, arguments, config):
            raise ConfigError(wrong)
        # A new `since`: the person must see these arguments before a yes counts.
        self.forget_draft(question)
        changed = attrs.evolve(question, arguments=arguments.strip(), edited=True, since=self._clock())
        if question.request in self._open:
            self._open[question.request] = changed
        return changed


def effective_decision(question: Question, decision: Decision) -> Decision:
    """
    *decision* as it applies to *question*: a yes covers the edited arguments.

    "Always" is for calls as the model makes them. It does not apply to edited arguments or to a repeated run.
    """
    if question.again and isinstance(decision, ApproveAlways):
        msg = "always covers only later calls; answer y to run this one again"
        raise ConfigError(msg)
    if not question.edited:
        return decision
    if isinstance(decision, ApproveAlways):
        msg = "always does not cover edited arguments; answer y"
        raise ConfigError(msg)
    return Approve(arguments=question.arguments) if isinstance(decision, Approve) else decision
