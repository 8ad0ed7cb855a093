"""The conversation by reference: values share what they have in common and never see each other's ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from turnwheel.effects.history import History
from turnwheel.effects.messages import user


def said(history: History) -> list[str]:
    return [message.text for message in history]


def test_two_successors_of_one_value_never_see_each_other() -> None:
    before = History.of(user("a"))
    one, other = before.append(user("b")), before.append(user("c"))
    assert (said(before), said(one), said(other)) == (["a"], ["a", "b"], ["a", "c"])
    assert one.log is before.log
    assert other.log is not before.log


def test_equality_is_by_content_and_revision() -> None:
    one, other = History.of(), History.of()  # an empty log is made for each
    assert one.append(user("a")) == History.of(user("a"))
    assert (len(other), said(other.append(user("b")))) == (0, ["b"])
    assert History.of(user("a")) != History.of(user("b"))
    assert History.of(user("a")) != History.of(user("a"), revision=1)
    assert History.of(user("a")) != [user("a")]
    with pytest.raises(TypeError, match="unhashable"):  # its equality walks the messages
        hash(History.of())
    assert repr(History.of(user("a"), revision=2)) == "<History of 1 messages, revision 2>"


def test_a_value_ends_where_it_ends_and_is_replaced_by_a_new_revision() -> None:
    before = History.of(*[user(text) for text in "abcd"])
    after = before.replace((user("a+b"),), 2)
    assert (said(after), after.revision) == (["a+b", "c", "d"], 1)
    assert (said(before), before.revision) == (["a", "b", "c", "d"], 0)
    # What others appended to the same log is outside, by index, slice and iteration.
    short = History.of(user("a"), user("b"))
    short.append(user("c"))
    assert (short[0].text, short[-1].text, len(short)) == ("a", "b", 2)
    assert [message.text for message in short.slice(1, 9)] == ["b"]
    for index in (2, -3):
        with pytest.raises(IndexError, match="of a history of 2"):
            short[index]


@given(st.lists(st.tuples(st.integers(0, 30), st.text(max_size=3)), max_size=30))
def test_a_tree_of_histories_is_a_tree_of_lists(moves: list[tuple[int, str]]) -> None:
    """However values fork, each is what a list that was copied at every step would be."""
    values = [(History.of(), list[str]())]
    for parent, text in moves:
        history, texts = values[parent % len(values)]
        values.append((history.append(user(text)), [*texts, text]))
    assert [said(history) for history, _ in values] == [texts for _, texts in values]


def test_appending_costs_the_same_at_any_length() -> None:
    history, message = History.of(), user("a")
    took: list[float] = []
    for _ in range(10):
        began = time.thread_time()
        for _ in range(2_000):
            history = history.append(message)
        took.append(time.thread_time() - began)
    assert min(took[-3:]) < 10 * min(took[:3])
