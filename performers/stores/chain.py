"""
The chain of a signed store: it tells that a program without the key changed what is kept.

Theory of operation. Each entry is signed together with the signature of the entry before it, the first one
with the name and the incarnation of its session. The row of the session has one more signature, over its last
entry and its summary. So no entry can be changed, moved, added or left out, neither in the middle nor at the
end. What was whole once may come back as a whole, which no signature tells: an older copy of the file, or of
a session in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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

    def link(self, before: bytes, number: int, at: float, body: bytes) -> bytes:
        """The signature of entry *number*, behind the one that was signed *before*."""
        # Two numbers: they need no JSON, which takes longer than the signature.
        return signature(self.key, b"entry", before, f"{number} {at!r}".encode(), body)

    def check_entries(self, end: SessionEnd, number: int, before: bytes, rows: Iterable[SignedRow]) -> None:
        """Raise `JournalError` unless *rows* are the entries from *number* on, up to *end*."""
        for count, (at, body, signed) in enumerate(rows, number):
            if not (isinstance(body, bytes) and signs(signed, self.link(before, count, at, body))):
                raise tampered(end.session, f"entry {count}")
            before = signed
        if before != end.last:
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
