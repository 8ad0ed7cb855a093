"""
The chain of a signed store: it tells that a program without the key changed what is kept.

Theory of operation. Each entry is signed together with the name and the incarnation of its session, its
number, and the signature of the entry before it. The row of the session has one more signature, over its last
entry and its summary. So no entry can be changed, moved, added or left out, neither in the middle nor at the
end. What was whole once may come back as a whole, which no signature tells: an older copy of the file, or of
a session in it.

A part of a session is checked by itself: each entry is of this session, has this number and follows the one
before it, and none is missing. Only a part up to the end shows that the entries lead to that end. Where an
older copy of the file was put back and the session went on, a part in the middle may be from either history.
A session that goes on is read to its end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import attrs

from ...effects.errors import JournalError
from ..keys import signature, signs

# When an entry was written, its bytes, and its signature, as they are in the file.
SignedRow: TypeAlias = tuple[Any, Any, Any]


@final
@attrs.frozen
class SessionEnd:
    """
    The row of a session with its own signature *seal*, and that of the *last* of its *length* entries.

    Any: a file may have anything in any column.
    """

    session: str
    incarnation: str
    created: float
    about: Any
    length: int
    last: Any
    seal: Any


@final
@attrs.frozen
class Chain:
    """Signs with *key*, and checks what is signed."""

    key: bytes = attrs.field(repr=False)

    @property
    def mark(self) -> bytes:
        """What a file that is signed with this key has."""
        return signature(self.key, b"turnwheel store")

    def first(self, session: str, incarnation: str) -> bytes:
        """The signature that stands before the first entry of *session*."""
        return signature(self.key, b"session", _told(session, incarnation))

    def link(self, first: bytes, before: bytes, number: int, at: float, body: bytes) -> bytes:
        """The signature of entry *number*, behind the one that was signed *before*; see `first`."""
        # Two numbers: they need no JSON, which takes longer than the signature.
        return signature(self.key, b"entry", first, before, f"{number} {at!r}".encode(), body)

    def check_entries(self, end: SessionEnd, part: range, before: bytes, rows: Sequence[SignedRow]) -> None:
        """Raise `JournalError` unless *rows* are the entries of *part*; a part up to *end* leads there."""
        first = self.first(end.session, end.incarnation)
        for number, (at, body, signed) in enumerate(rows, part.start):
            if not (isinstance(body, bytes) and signs(signed, self.link(first, before, number, at, body))):
                raise tampered(end.session, f"entry {number}")
            before = signed
        if len(rows) != len(part):
            raise tampered(end.session, f"entry {part.start + len(rows)}")
        if part.stop == end.length and before != end.last:
            raise tampered(end.session, f"entry {end.length - 1}")

    def checkpoint(self, session: str, incarnation: str, position: int, body: bytes) -> bytes:
        """The signature of a checkpoint behind *position* entries of *session*."""
        return signature(self.key, b"checkpoint", _told(session, incarnation, position), body)

    def seal(self, end: SessionEnd) -> bytes:
        """The signature of *end*."""
        told = _told(end.session, end.incarnation, end.created, end.length)
        return signature(self.key, b"end", told, end.last, end.about)

    def holds(self, end: SessionEnd) -> bool:
        """Whether *end* is as it was written."""
        whole = isinstance(end.about, bytes) and isinstance(end.last, bytes)
        return whole and signs(end.seal, self.seal(end))

    def check(self, end: SessionEnd) -> None:
        """Raise `JournalError` unless *end* is as it was written."""
        if not self.holds(end):
            raise tampered(end.session, f"its end behind {end.length} entries, or its summary,")


def tampered(session: str, what: str) -> JournalError:
    """Says that *what* of *session* is not as it was written."""
    problem = f"session {session!r} was tampered with: {what} is not as this store wrote it"
    return JournalError(f"{problem}; restore it from a backup")


def _told(*values: object) -> bytes:
    # In ASCII, and the same for ever. What is no number and no text is none of ours, and must not break this.
    return json.dumps(values, default=repr).encode()
