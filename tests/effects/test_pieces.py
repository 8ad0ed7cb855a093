"""The algebra of a streamed answer: however it is cut into pieces and batches, it folds to the same."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from turnwheel.effects.history import CallPiece, Piece, ReasoningPiece, Rope, TextPiece, merged

texts = st.text("ab", max_size=3)
pieces: st.SearchStrategy[Piece] = st.one_of(
    st.builds(TextPiece, texts, st.booleans()),
    st.builds(ReasoningPiece, texts, st.sampled_from(["", "", "proof"])),
    st.builds(CallPiece, st.integers(0, 2), st.sampled_from(["", "w"]), st.sampled_from(["", "f"]), texts),
)
answers = st.lists(pieces, max_size=12).map(tuple)


def test_neighbours_are_joined_and_calls_are_gathered() -> None:
    assert merged(
        [
            TextPiece("a"),
            TextPiece("b"),
            ReasoningPiece("c"),
            ReasoningPiece("d", "proof"),
            ReasoningPiece("e"),
            CallPiece(0, "w0", "f", "1"),
            CallPiece(1, "w1", "g", "2"),
            CallPiece(0, arguments="3"),
            TextPiece("h"),
        ]
    ) == (
        TextPiece("ab"),
        ReasoningPiece("cd", "proof"),
        ReasoningPiece("e"),
        CallPiece(0, "w0", "f", "13"),
        CallPiece(1, "w1", "g", "2"),
        TextPiece("h"),
    )

    # A text that begins is not joined to the one before.
    assert merged(
        [TextPiece("a"), TextPiece("", begins=True), TextPiece("b"), TextPiece("c", begins=True)]
    ) == (
        TextPiece("a"),
        TextPiece("b", begins=True),
        TextPiece("c", begins=True),
    )
    # The first name and id of a call count: some servers send them again with every piece, others only later.
    assert merged([CallPiece(0), CallPiece(0, "w", "f"), CallPiece(0, "x", "g", "{}")]) == (
        CallPiece(0, "w", "f", "{}"),
    )


@given(answers, st.integers(0, 12))
def test_merging_a_part_first_changes_and_loses_nothing(answer: tuple[Piece, ...], cut: int) -> None:
    # A store may merge the beginning of a stream before the rest has come, and the rest by itself.
    head, tail = answer[:cut], answer[cut:]
    assert merged((*merged(head), *tail)) == merged((*head, *merged(tail))) == merged(answer)
    assert merged(merged(answer)) == merged(answer)
    assert spelled(merged(answer)) == spelled(answer)


def spelled(answer: tuple[Piece, ...]) -> list[str]:
    texts = [piece.text for piece in answer if isinstance(piece, TextPiece)]
    thoughts = [piece.text for piece in answer if isinstance(piece, ReasoningPiece)]
    calls = [
        "".join(
            [piece.arguments for piece in answer if isinstance(piece, CallPiece) and piece.index == index]
        )
        for index in range(3)
    ]
    return ["".join(texts), "".join(thoughts), *calls]


@given(answers, st.lists(st.integers(0, 12), max_size=4))
def test_a_rope_is_the_same_however_it_was_filled(answer: tuple[Piece, ...], cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    batches = [answer[start:stop] for start, stop in itertools.pairwise(bounds)]
    one_by_one = merged_batches = in_batches = Rope.of()
    for piece in answer:
        one_by_one = one_by_one.extend((piece,), 1)
    for batch in batches:
        in_batches = in_batches.extend(batch, len(batch))
        merged_batches = merged_batches.extend(merged(batch), len(batch))
    at_once = Rope.of(answer, len(answer))
    assert one_by_one == in_batches == merged_batches == at_once
    assert at_once.pieces == merged(answer)


def test_a_rope_is_a_value_that_counts_its_pieces() -> None:
    # How many pieces have arrived is part of what a rope is: the next one must know its place.
    assert Rope.of((TextPiece("ab"),), 1) != Rope.of((TextPiece("ab"),), 2)
    assert Rope.of() != ()
    before = Rope.of((TextPiece("a"),), 1)
    one, other = before.extend((TextPiece("b"),), 1), before.extend((TextPiece("c"),), 1)
    texts = ((TextPiece("a"),), (TextPiece("ab"),), (TextPiece("ac"),))
    assert (before.pieces, one.pieces, other.pieces) == texts
    with pytest.raises(TypeError, match="unhashable"):  # its equality walks the pieces
        hash(Rope.of())
    assert repr(Rope.of((TextPiece("a"),), 3)) == "<Rope of 3 pieces>"
