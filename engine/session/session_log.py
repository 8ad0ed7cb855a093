"""
What is kept of a session: its store, the writing end of its journal, and the state that the journal folds to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import ConfigError, UnknownRun, UnknownSession
from ...effects.events import (
    ApprovalGiven,
    Event,
    Post,
    UserSent,
)
from ...states.context import Mail
from ...states.rules.inputs import prompt_group
from ..journal.entries import (
    Branched,
    Entry,
    HandedOver,
    Posted,
    RunOpened,
    Stepped,
    TakenOver,
    Titled,
)
from ..journal.fold import SessionState, apply_entry, branch_targets, fold, result_text
from ..journal.summary import SessionSummary, first_line, summarize, summarize_opened, summary_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.stores.base import Store
    from ..machine import Machine
    from .journal import ConcurrentEntry, Journal, Listener
    from .redactor import Redactor


@final
class SessionLog:
    """
    The memory of the session *session*, kept in *store* where there is one. Keeps events for a driver.

    Theory of operation. What is known here is a fold of the journal, and what is written goes the same way:
    first into the store, then into `state`. What is known here and the journal does not say (a store that
    failed, a run that was left in the middle) did not happen: then this is `stale`, and `read` reads the
    journal again. Whatever comes from outside is written down before anything is done about it, by whichever
    process it came in through. With what is written goes a line on what the session is about, whenever that
    is worth it.
    """

    def __init__(
        self, session: str, store: Store | None, redactor: Redactor | None = None, *, fresh: bool = False
    ) -> None:
        self.session = session
        self.state = SessionState()
        self.kept = store is not None
        self.stale = self.kept
        self.listener: Callable[[Event], None] | None = None
        self._redactor = redactor
        self._store = store
        self._journal: Journal | None = None
        self._fresh = fresh and store is not None
        if store is not None and fresh:
            # An id that was just made up has no journal to read. Where that is wrong, the first append finds
            # entries it does not expect, and is refused.
            # The writing end needs the converter, which costs more to set up than the rest of the engine: a
            # session without a store never imports it.
            from .journal import Journal  # noqa: PLC0415  # see above

            self._journal, self.stale = Journal(store, session, 0, self._arrived), False

    @property
    def length(self) -> int:
        """How many entries of it are known here."""
        return 0 if self._journal is None else self._journal.length

    @property
    def store(self) -> Store:
        """Where it is kept; `ConfigError` where that is nowhere."""
        if self._store is None:
            msg = f"session {self.session!r} has no store, which this needs: give it or its agent one"
            raise ConfigError(msg)
        return self._store

    async def read(self) -> None:
        """Read what is new in the journal; all of it, where what is here is not what it says."""
        if self._store is None or self._fresh:
            self._fresh = False
            return
        known = 0 if self.stale or self._journal is None else self._journal.length
        entries = await self._store.load(self.session, known)
        if known and branch_targets(entries):
            # Somebody went back to where nothing is kept of here.
            known, entries = 0, await self._store.load(self.session)
        self._take_in(self._store, entries, known, self.state if known else None)
        self.state.drop_ends()

    def _take_in(
        self, store: Store, entries: Sequence[bytes], known: int, before: SessionState | None
    ) -> None:
        """Let *entries*, which come after the *known* ones that *before* is of, be what is known."""
        from .journal import Journal  # noqa: PLC0415  # as in `__init__`

        self.stale = True  # until all of that is understood
        self.state = fold(entries, self.session, before, known)
        if self._redactor is not None and self.state.origins:
            self._redactor.reads(self.state.origins)
        if self._journal is None or not known:
            self._journal = Journal(store, self.session, len(entries), self._arrived)
        else:
            self._journal.passed(len(entries))
        self.stale = False

    async def look(self) -> None:
        """See what others added meanwhile; `StoreConflict` where somebody went on with the session."""
        if self._journal is not None:
            await self._journal.look()

    async def add(self, entry: ConcurrentEntry) -> bool:
        """
        Keep *entry* and tell whoever drives; False where others added something first, which is here now.

        Secrets are taken out of what a person answers before it is kept.
        """
        if (
            self._redactor is not None
            and isinstance(entry, Posted)
            and isinstance(entry.event, ApprovalGiven)
        ):
            entry = Posted(event=await self._redactor.answer(entry.event, self.state.questions))
        if self._journal is not None and not await self._journal.add(entry, self._about_after(entry)):
            return False
        self._arrived(entry)
        return True

    async def post(self, event: Post) -> bool:
        """As `add`, for what somebody said."""
        return await self.add(Posted(event=event))

    def _arrived(self, entry: ConcurrentEntry) -> None:
        self._follow(entry)
        if isinstance(entry, Posted) and self.listener is not None:
            self.listener(entry.event)

    async def open_run(
        self, run: str, config: Config, at: float, prompt: UserSent | None = None, *, titled: bool = False
    ) -> tuple[Effect, ...]:
        """
        Begin a run on the inputs that wait, and on *prompt*; the effects of its beginning.

        *titled*: a session without a title gets one from its first prompt.
        """
        opened = RunOpened(at=at, run=run, config=config)
        # The prompt and the run that it opens are one append: half the cost, and no crash comes between them.
        entries: list[Entry] = [opened] if prompt is None else [Posted(event=prompt), opened]
        waiting = (*self.state.prompts, *([Mail.of(prompt)] if prompt else []))
        title = self.state.title
        if titled and not title:
            texts = [one.text for one in waiting] or [one.text for one in self.state.late]
            title = first_line(self.state.opening or "".join(texts[:1]))
            if title:
                entries.append(Titled(at=at, title=title))
        if self._journal is not None:
            left = len(waiting) - len(prompt_group(waiting, config.policy.coalesce))
            summary = summarize_opened(opened, title, self.state, self.session, left)
            await self._journal.write(*entries, about=lambda _: summary)
        return tuple([effect for entry in entries for effect in self._follow(entry)])

    async def take_over(self, config: Config, at: float) -> Machine:
        """Go on with the run that is not over, under *config*."""
        machine = self.state.machine
        if machine is None:
            raise UnknownSession(self.session)
        entry = TakenOver(at=at, config=None if machine.under(config) else config)
        if self._journal is not None:
            await self._journal.write(entry)
        self._follow(entry)
        return machine

    async def hand_over(self, unbegun: tuple[str, ...], at: float) -> None:
        """Leave the run that is not over to whoever takes it over: of what is open nobody began *unbegun*."""
        entry = HandedOver(at=at, unbegun=unbegun)
        if self._journal is not None:
            await self._journal.write(entry)
        self._follow(entry)

    async def branch(self, run: str, at: float) -> None:
        """
        Go back to where *run* ended, or to the beginning where it is empty. Nothing must be under way.

        Raises `UnknownRun` where the journal has no such run.
        """
        entries = await self.store.load(self.session)
        self._take_in(self.store, entries, 0, SessionState(keeps=None))
        machine = self.state.machine
        here = "" if machine is None else machine.memory.run
        there = dict.fromkeys([*self.state.ends, here] if here else self.state.ends)
        if run and run not in there:
            raise UnknownRun(run, tuple(there))
        if run != here:
            entry = Branched(at=at, run=run)
            if self._journal is not None:
                await self._journal.write(entry, about=self._about_after(entry))
            self._follow(entry)
        self.state.drop_ends()

    def _follow(self, entry: Entry) -> tuple[Effect, ...]:
        """Let *entry*, which was just written, happen to what is known."""
        number = 0 if self._journal is None else self._journal.length - 1
        return apply_entry(self.state, entry, number, self.session)

    def _about_after(self, entry: Entry) -> Listener:
        return lambda number: summarize(self._ahead(entry, number), self.session)

    def _ahead(self, entry: Entry, number: int) -> SessionState:
        """What will be known once *entry*, which opens no run and is no step of one, is written."""
        ahead = attrs.evolve(self.state, posted=list(self.state.posted))
        apply_entry(ahead, entry, number, self.session)
        return ahead

    # The driver writes each step down here

    async def applied(self, event: Event, label: str, effects: tuple[Effect, ...]) -> None:
        """
        Keep *event*, which led to the state *label* with *effects*, before anything that follows is done.
        """
        state, journal = self.state, self._journal
        summarised = state.stepped(event, effects)

        def about(number: int) -> SessionSummary | None:
            # Called again with another number where a second writer came first.
            if summarised:
                state.summary = number
            news = journal is not None and journal.told != summary_key(state)
            return summarize(state, self.session) if news else None

        if journal is not None:
            await journal.applied(event, label, about)
        state.note_results(event, effects, None if journal is None else journal.length - 1)

    async def full_result(self, call: str) -> str | None:
        """The whole result of *call*, of which the history holds a part; None where there is none."""
        where = self.state.full_results.where(call)
        if not isinstance(where, int) or self._store is None:
            return where if isinstance(where, str) else None
        return await read_entry(self._store, self.session, where)

    async def flush(self) -> None:
        """Keep what was held back of a stream that is being left."""
        if self._journal is not None:
            await self._journal.flush()


async def read_entry(store: Store, session: str, number: int) -> str | None:
    """
    What came of a call, as entry *number* of *session* says; None where the session is gone.

    Raises `JournalError` for an entry that cannot be read.
    """
    # The converter costs more to set up than the rest of the engine together.
    # The converter costs more to set up than the rest of the engine: see `SessionLog.read`.
    from ..journal.encoding import decode_entry  # noqa: PLC0415  # see above

    entries = await store.load(session, number)
    if not entries:
        return None
    entry = decode_entry(entries[0], f"entry {number} of session {session!r}")
    return result_text(entry.event) if isinstance(entry, Stepped) else None
