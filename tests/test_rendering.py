"""Whatever a machine says or remembers is told on one line each, which a terminal shows as it is."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies as st

from turnwheel.effects.events import Event
from turnwheel.effects.history import History
from turnwheel.effects.messages import Message
from turnwheel.effects.notices import Notice
from turnwheel.effects.permissions import Rule
from turnwheel.effects.records import Record, WithdrawTool
from turnwheel.effects.requests import Cancel, Request
from turnwheel.effects.usage import Spent
from turnwheel.engine.rendering import WORDING, line_of, memory_lines, message_line, quoted, state_line
from turnwheel.states.context import ConversationMemory, Mail, Memory, RunProgress, SessionMemory
from turnwheel.states.state import State

WORDS = [*get_args(Event), *get_args(Request), *get_args(Record), *get_args(Notice), Cancel]


def one_line(text: str) -> bool:
    return text == text.strip() != "" and len(text.splitlines()) == 1 and text.isprintable()


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.__name__)
@given(data=st.data())
@settings(max_examples=25)
def test_each_word_is_told_on_one_line_that_begins_with_its_name(
    word: type[Any], data: st.DataObject
) -> None:
    line = line_of(data.draw(st.from_type(word)))
    assert line.startswith(word.__name__)
    assert one_line(line)


@given(st.one_of(*map(st.from_type, get_args(State))))
def test_a_state_is_told_on_one_line_that_begins_with_its_label(state: State) -> None:
    line = state_line(state)
    assert line.startswith(state.label)
    assert one_line(line)


def several(kind: type[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(st.from_type(kind), max_size=2).map(tuple)


MEMORIES = st.builds(
    Memory,
    run=st.text(),
    spent=st.from_type(Spent),
    earlier=st.from_type(Spent),
    session=st.builds(SessionMemory, model=st.text(), mail=several(Mail), granted=several(Rule)),
    conversation=st.builds(
        ConversationMemory,
        history=several(Message).map(lambda messages: History.of(*messages)),
        pending_context=several(str),
        cleared=st.integers(0, 3),
    ),
    progress=st.builds(RunProgress, withdrawn=several(WithdrawTool), fallback=st.text()),
)


@given(MEMORIES)
def test_a_memory_is_told_on_lines(memory: Memory) -> None:
    lines = list(memory_lines(memory))
    assert lines
    assert all(map(one_line, lines))


@given(st.from_type(Message))
def test_a_message_is_told_on_one_line(message: Message) -> None:
    assert one_line(message_line(message))
    assert one_line(message_line(message, whole=True))


@given(st.text(max_size=400))
def test_a_text_in_quotes_is_short_and_says_how_long_it_is(text: str) -> None:
    shown = quoted(text)
    assert one_line(shown)
    assert (f"({len(text)})" in shown) or len(text) <= 120 or text.endswith(f"({len(text)})")


def test_nothing_has_words_that_is_none() -> None:
    assert set(WORDING) <= set(WORDS)
