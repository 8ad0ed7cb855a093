"""What a store is: an append-only journal per session, with compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, final

import attrs


@final
@attrs.frozen(kw_only=True)
class SessionInfo:
    """
    A stored session: *length* entries, last written at *updated* (seconds since the epoch).

    *about* is what its last writer said of it, empty where nobody has.
    """

    session: str
    length: int
    created: float
    updated: float
    about: bytes = b""


class Store(Protocol):
    """
    Keeps bytes; knows nothing of what they mean.

    An entry's sequence number is its index in its session, from 0. `append` is the only way to write, and it
    is all or nothing: two writers that both believe to be at the end cannot both go on. Sessions share
    nothing, and one is there as soon as it has an entry.

    Every method raises `StoreError` where the store cannot be reached or was closed. Cancelling one does not
    leave its work in doubt: what was begun is done before the cancellation goes on.

    All of this is in `turnwheel.testing.store_contract`, as checks that a store of one's own can be put to.
    """

    async def append(
        self, session: str, expected: int, entries: Sequence[bytes], about: bytes | None = None
    ) -> int:
        """
        Add *entries* to *session*, which must hold exactly *expected*; return its new length.

        *about* is what `list` says of the session from now on, None for what it said before: a few hundred
        bytes, so that nobody has to read a journal for a list. Without entries it is all that changes, also
        not when the session was written, and a session that is not there has none.

        All of it is kept when this returns, as durably as the store promises, and also when it is cancelled.
        Raises `StoreConflict` where the session has another length, and writes nothing then.
        """
        ...

    async def load(self, session: str, start: int = 0) -> Sequence[bytes]:
        """The entries of *session* from index *start* on; empty for a session that is not there."""
        ...

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, last written first."""
        ...

    async def delete(self, session: str) -> bool:
        """Forget *session*; whether there was one."""
        ...

    async def close(self) -> None:
        """Let go of files and threads, when what was asked before is done. Closing twice is fine."""
        ...
