"""
The journal of one session in its store: what this process knows of it, and the end at which it writes.

Theory of operation.

1. `load` reads entries; `reached` notes how many of them the caller has folded.
2. `append` names that length. A store refuses it where another process wrote first.
3. `catch_up` then reads what came first. Entries that any process may write go to the caller, which decides
   anew. Any other entry means that another process owns the session now, which is a `StoreConflict`.
4. An append takes the summary row along where a list of sessions would show a change, and every so many
   entries a checkpoint is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast, final

from ...effects.errors import ConfigError, StoreConflict
from .entries import Entry, Posted, Stepped, Titled
from .fold import branch_targets, result_text
from .stored_checkpoints import Checkpoints, FoundState, find_state
from .summary import SessionSummary

if TYPE_CHECKING:
    from ...performers.stores.base import Entries, Store
    from .fold import SessionState
    from .summary import SummaryKey

# An entry that any process may write while another one drives the session.
ConcurrentEntry = Posted | Titled

# Given the number of the last entry: the summary of the session behind it, None where it has not changed.
Summarizer = Callable[[int], SessionSummary | None]


@final
class Journal:
    """
    The journal of the session *session* in *store*; without a store it stays empty.

    *length* is the number of entries that this process knows. *incarnation* tells the session from others of
    its name: empty until the store was first asked, or while it has no such session. It never changes
    afterwards, since what is known goes with that session alone. *row* is the key of the summary in the
    store, None where another writer may have changed it.
    """

    # As slots, since thousands of them may wait in one process.
    __slots__ = (
        "_encode",
        "_last",
        "_store",
        "checkpoints",
        "incarnation",
        "kept",
        "length",
        "row",
        "session",
        "store_id",
    )

    def __init__(self, session: str, store: Store | None) -> None:
        self.session = session
        # Whether there is a store. Not a property, since each step looks several times.
        self.kept = store is not None
        self.length = 0
        self.incarnation = ""
        self.row: SummaryKey | None = None
        # Not looked at where it is None, as `kept` says.
        self._store = cast("Store", store)
        self.store_id = id(store)
        self.checkpoints = Checkpoints(session, store)
        # The last entry, as bytes, once one was written or read behind others here.
        self._last = b""
        if store is not None:
            # The converter costs more to set up than the rest of the engine: a session without a store never
            # imports it. Not at each append, where even to look an import up costs more than a coroutine.
            from .encoding import encode_entry  # noqa: PLC0415  # see above

            self._encode: Callable[[Entry], bytes] = encode_entry

    @property
    def store(self) -> Store:
        """The store of the session; `ConfigError` where it has none."""
        if not self.kept:
            msg = f"session {self.session!r} has no store; pass store= to Agent or session()"
            raise ConfigError(msg)
        return self._store

    # Reading

    async def load(self, start: int = 0, end: int | None = None) -> Entries:
        """The entries from *start* to before *end*; `SessionGone` where the session was deleted."""
        entries = await self.store.load(self.session, start, end, self.incarnation)
        self.incarnation = entries.incarnation
        return entries

    async def load_new(self, known: int) -> tuple[int, Entries]:
        """
        The entries behind the first *known*; all of them where a fold of those will not do.

        The number says how many come before them.
        """
        entries = await self.load(known)
        if known and branch_targets(entries):
            # Another process went back to a run whose end is not kept here.
            return 0, await self.load()
        return known, entries

    async def find(self, most: int | None = None) -> FoundState | None:
        """The state after *most* entries, or all, by the latest checkpoint; None where there is none."""
        found = await find_state(self.store, self.session, self.incarnation, most)
        if found is not None:
            self.incarnation = found.incarnation
        return found

    def reached(self, length: int) -> None:
        """Note that *length* entries are known: those behind the ones before were folded."""
        self.length = length
        # Another process may have overwritten our summary row; write it again.
        self.row = None

    async def full_result(self, number: int) -> str | None:
        """
        The result of a call in entry *number*; None where there is none.

        Raises `JournalError` for an entry that cannot be read, and `SessionGone` as `load` does.
        """
        from .encoding import decode_entry  # noqa: PLC0415  # as in `__init__`

        entries = await self.load(number, number + 1)
        if not entries:
            return None
        entry = decode_entry(entries[0], f"entry {number} of session {self.session!r}")
        return result_text(entry.event) if isinstance(entry, Stepped) else None

    # Writing

    async def append(
        self, entries: Sequence[Entry], about: Summarizer, *, driven: bool
    ) -> Sequence[ConcurrentEntry]:
        """
        Keep *entries* behind the known ones, and the summary that *about* gives.

        Where other processes wrote first, nothing is kept: returns what they wrote, which is known then.
        Raises `SessionGone` where the session was deleted, and as `catch_up`.
        """
        encoded = [self._encode(entry) for entry in entries]
        summary, row = about(self.length + len(encoded) - 1), None
        key = self.row if summary is None else summary.key
        # A row is written only where a list of sessions would show something else: most steps change nothing.
        if summary is not None and key != self.row:
            from ..core.codec import encode  # noqa: PLC0415  # as in `__init__`

            row = encode(summary, SessionSummary)
        try:
            there = await self._store.append(self.session, self.length, encoded, row, self.incarnation)
        except StoreConflict as conflict:
            return await self.catch_up(conflict, driven=driven)
        self.incarnation = there
        self.length += len(encoded)
        # Only now: a refused append wrote no row either.
        self.row, self._last = key, encoded[-1]
        return ()

    async def catch_up(self, conflict: StoreConflict | None, *, driven: bool) -> Sequence[ConcurrentEntry]:
        """
        The entries that other processes wrote behind the known ones, which are known then.

        *conflict* is how the store refused an append. It is raised where there are none, and another
        `StoreConflict` where another process owns the session now; that one has the entries unless the
        session is *driven* here.
        """
        from .encoding import decode_entry  # noqa: PLC0415  # as in `__init__`

        # With the name of its incarnation, the append was refused by that very session.
        news: Sequence[bytes] = conflict.entries if conflict is not None and self.incarnation else ()
        # All of them, or it was deleted and begun anew while they were read.
        if conflict is None or len(news) != conflict.actual - self.length:
            news = await self.load(self.length)
        added: list[ConcurrentEntry] = []
        for number, data in enumerate(news, self.length):
            entry = decode_entry(data, f"entry {number} of session {self.session!r}")
            # A step, a takeover or a branch: another process is the owner. Checked for all entries before
            # one is applied, so that a loser does not act on half of them.
            if not isinstance(entry, ConcurrentEntry):
                came = () if driven else news
                raise StoreConflict(self.session, self.length, self.length + len(news), came)
            added.append(entry)
        # No journal becomes shorter. A store that says so would have this try for ever.
        if conflict is not None and not news:
            raise conflict
        if news:
            self.reached(self.length + len(news))
            self._last = news[-1]
        return added

    # Checkpoints

    def keep_checkpoint(self, state: SessionState) -> None:
        """Begin to keep *state*, to which all known entries led."""
        self.checkpoints.keep(state, self.length, self._last, self.incarnation)

    def forget_last(self) -> None:
        """Let go of the last entry: only a checkpoint behind the next one written needs it."""
        self._last = b""
