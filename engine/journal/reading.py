"""Reading a journal: its bytes to entries, and the entries to the state of the session."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from ...effects.errors import JournalError
from .encoding import decode_entry
from .entries import Branched, Entry, Forked
from .fold import SessionState, apply_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...effects import Effect

E = TypeVar("E", Branched, Forked)


def read(
    entries: Iterable[bytes], session: str, folded: SessionState, known: int = 0
) -> Iterator[tuple[Entry, tuple[Effect, ...]]]:
    """
    Each of the *entries* of *session* once it has happened to *folded*, and what the machine said to it.

    *known* are the entries before these. Raises `JournalError` naming the entry that cannot be read or does
    not follow from those before it.
    """
    for number, data in enumerate(entries, known):
        entry = decode_entry(data, f"entry {number} of session {session!r}")
        yield entry, apply_entry(folded, entry, number, session)


def fold(
    entries: Sequence[bytes], session: str, folded: SessionState | None = None, known: int = 0
) -> SessionState:
    """
    What the *entries* of *session* lead to; where *known* entries were *folded* before, these come after.

    Raises `JournalError` as `read` does.
    """
    if folded is None:
        folded = beginning(entries)
    for _ in read(entries, session, folded, known):
        pass
    return folded


def beginning(entries: Iterable[bytes]) -> SessionState:
    """What a journal with these *entries* is before the first of them: it keeps what they will go back to."""
    return SessionState(keeps=gone_back_to(entries))


def gone_back_to(entries: Iterable[bytes]) -> frozenset[str]:
    """The runs whose ends *entries* go back to; one that cannot be read goes nowhere."""
    return frozenset([entry.run for _, entry in kind_of(entries, Branched)])


def kind_of(entries: Iterable[bytes], kind: type[E]) -> Iterator[tuple[int, E]]:
    """Those of *entries* that are of this *kind*, with their numbers; without those that cannot be read."""
    name = f'"{kind.__name__}"'.encode()
    for number, data in enumerate(entries):
        if name in data:  # which text may be, too
            with suppress(JournalError):
                entry = decode_entry(data)
                if isinstance(entry, kind):
                    yield number, entry
