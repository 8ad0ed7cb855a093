"""The conversation by reference: values share what they have in common and never see each other's ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwheel.effects.history import History
from turnwheel.effects.messages import user


def said(history: History) -> list[str]:
    """The texts of *history*."""
    return [message.text for message in history]


def test_two_successors_of_one_value_never_see_each_other() -> None:
    """The first append writes in place, the second one copies; neither changes what was there."""
    before = History.of(user("a"))
    one, other = before.append(user("b")), before.append(user("c"))
    assert (said(before), said(one), said(other)) == (["a"], ["a", "b"], ["a", "c"])
    assert one.log is before.log
    assert other.log is not before.log


def test_two_new_histories_share_nothing() -> None:
    """An empty log is made for each."""
    one, other = History.of(), History.of()
    one.append(user("a"))
    assert (len(other), said(other.append(user("b")))) == (0, ["b"])


def test_equality_is_by_content_and_revision() -> None:
    """Two logs of equal messages are equal; a rewritten conversation is another one."""
    assert History.of(user("a")) == History.of().append(user("a"))
    assert History.of(user("a")) != History.of(user("b"))
    assert History.of(user("a")) != History.of(user("a"), revision=1)
    assert History.of(user("a")) != [user("a")]


def test_a_history_is_no_key() -> None:
    """Its equality walks the messages, which no dictionary should do unasked."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(History.of())


def test_replacing_the_old_part_is_a_new_revision() -> None:
    """The old value stays as it was."""
    before = History.of(*[user(text) for text in "abcd"])
    after = before.replace((user("a+b"),), 2)
    assert (said(after), after.revision) == (["a+b", "c", "d"], 1)
    assert (said(before), before.revision) == (["a", "b", "c", "d"], 0)


def test_a_value_ends_where_it_ends() -> None:
    """What others appended to the same log is outside, by index, slice and iteration."""
    before = History.of(user("a"), user("b"))
    before.append(user("c"))
    assert (before[0].text, before[-1].text, len(before)) == ("a", "b", 2)
    assert [message.text for message in before.slice(1, 9)] == ["b"]
    for index in (2, -3):
        with pytest.raises(IndexError, match="of a history of 2"):
            before[index]


def test_a_history_says_how_long_it_is() -> None:
    """Not all that was said, which would fill a screen."""
    assert repr(History.of(user("a"), revision=2)) == "<History of 1 messages, revision 2>"


@given(st.lists(st.tuples(st.integers(0, 30), st.text(max_size=3)), max_size=30))
def test_a_tree_of_histories_is_a_tree_of_lists(moves: list[tuple[int, str]]) -> None:
    """However values fork, each is what a list that was copied at every step would be."""
    values = [(History.of(), list[str]())]
    for parent, text in moves:
        history, texts = values[parent % len(values)]
        values.append((history.append(user(text)), [*texts, text]))
    assert [said(history) for history, _ in values] == [texts for _, texts in values]


def test_appending_costs_the_same_at_any_length() -> None:
    """The last tenth of 20,000 appends takes no longer than a few times the first."""
    history, message = History.of(), user("a")
    took: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(2_000):
            history = history.append(message)
        took.append(time.perf_counter() - began)
    assert min(took[-3:]) < 10 * min(took[:3])
