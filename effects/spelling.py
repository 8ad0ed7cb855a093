"""What a person may have meant by a misspelled word."""

from __future__ import annotations

from collections.abc import Iterable

# Characters of a word that are compared: a longer one is no misspelling, and comparing takes its time.
_MAX_COMPARED = 100


def meant(word: str, words: Iterable[str]) -> str:
    """``"did you mean 'model'?"`` for the one of *words* that is most like *word*; empty for none."""
    from difflib import get_close_matches  # noqa: PLC0415  # 2 ms, for a mistake only

    near = get_close_matches(word[:_MAX_COMPARED], map(str, words), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def hint(word: str, words: Iterable[str]) -> str:
    """As `meant`, and then the *words* there are."""
    known = [*words]
    near = meant(word, known)
    return f"{near}{' ' if near else ''}there are: {', '.join(known) or 'none'}"
