"""The cards of states, memories, histories, effects and events, which notebooks show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from ..effects import Effect
from ..effects.events import Event
from ..effects.history import History
from ..effects.requests import AskApproval
from ..effects.usage import Spent
from ..states.context import Memory
from ..states.rules.model_messages import count
from ..states.state import State
from .notebook import Card, html_of
from .rendering import history_lines, line_of, memory_lines, printable, spent_of, state_line


def word_card(value: Any) -> Card:  # noqa: ANN401  # any word of the engine
    """The card of *value*: a state, a memory, a history, an effect or an event."""
    if isinstance(value, Memory):
        return Card(title="Memory", beside=f"of run {printable(value.run)}", lines=tuple(memory_lines(value)))
    if isinstance(value, History):
        title = f"History of {count(value.length, 'message')}"
        return Card(title=title, lines=tuple(history_lines(value)))
    if isinstance(value, State):
        return Card(title="State", beside=state_line(value), label=value.label)
    title, _, beside = line_of(value).partition(" ")
    return Card(title=title, beside=beside)


def machine_card(state: State, memory: Memory) -> Card:
    """The card of a machine that is in *state*, with *memory*."""
    return Card(
        title="Machine",
        beside=f"{memory.run!r}: {state_line(state)}",
        lines=tuple(memory_lines(memory)),
        folded="memory",
        label=state.label,
    )


def _html(value: object) -> str:
    return html_of(word_card(value))


# The words of `effects` and `states` stay free of how they are shown. So they learn it here, and not by a
# base class: where no engine is loaded, a notebook shows their `repr`.
for word in (*get_args(State), Memory, History, *get_args(Effect), *get_args(Event)):
    setattr(word, "_repr_html_", _html)  # noqa: B010  # a type checker knows no such attribute of a word


def session_card(session: str, state: State | None, questions: Iterable[AskApproval], spent: Spent) -> Card:
    """A session whose latest run is in *state*, None before the first: what it waits for, and its account."""
    if state is None:
        return Card(title="Session", beside=f"{session!r}: no run yet")
    lines = [f"waits for {line_of(question)}" for question in questions]
    return Card(
        title="Session",
        beside=f"{session!r}: {state_line(state)}",
        lines=(*lines, f"spent {spent_of(spent) or 'nothing'}"),
        label=state.label,
    )
