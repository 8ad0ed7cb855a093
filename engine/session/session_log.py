"""
The log of a session: the state that its journal folds to, and the writing end of that journal.

Theory of operation. Each append names the length that this process knows. A store refuses it where another
process was faster. Entries that may come from any process are then taken in, and the append is tried again;
an entry that only the owner may write means that another process owns the session now. The owner stops then,
and any other writer decides anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import ConfigError, SessionGone, StoreConflict, StoreError, UnknownRun
from ...effects.events import ApprovalGiven, Event, ModelStreamed, ToolProgressed, UserSent, joined
from ...effects.history import merged
from ...performers.base import noop
from ...states.context import Mail
from ...states.rules.inputs import prompt_group
from ..journal.entries import Branched, Entry, Posted, RunOpened, Stepped, TakenOver, Titled
from ..journal.fold import SessionState, apply_entry, branch_targets, fold, result_text
from ..journal.summary import SessionSummary, first_line, summarize, summarize_opened, summary_key
from .checkpointing import Checkpoints, FoundState, find_state
from .parking import PARK_AFTER, Parked, parked
from .poller import written

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.stores.base import Entries, Store
    from ..journal.summary import SummaryKey
    from .redactor import Redactor

# An entry that any process may write while another one drives the session.
ConcurrentEntry = Posted | Titled

# Given an entry's number: the summary of the session after that entry, None where it has not changed.
Summarizer = Callable[[int], SessionSummary | None]


@final
class LastStep(Enum):
    """Whether the last step of the run here is in the journal."""

    KEPT = auto()
    WRITING = auto()
    REFUSED = auto()


@final
class SessionLog:
    """
    The log of the session *session*, in *store* where there is one; the event sink of its driver.

    `state` is a fold of the journal. An input goes into the store first, then into `state`. A step of the run
    that goes on here is in `state` while it is written; nothing is performed or shown before it is stored.
    Where the two differ (a store that failed, a run left in the middle) the journal is right: this is `stale`
    then, and `read` folds the journal again. An input is journaled before it is acted on, by the process it
    came in through. An entry carries a summary of the session where a list would show a change.
    """

    # As slots, since thousands of them may wait in one process.
    __slots__ = (
        "_checkpoints",
        "_encode",
        "_label",
        "_last",
        "_last_step",
        "_parked",
        "_redactor",
        "_store",
        "_store_id",
        "_streamed",
        "_summarized",
        "_taken_up",
        "_writing",
        "begun",
        "fresh",
        "in_use",
        "incarnation",
        "kept",
        "length",
        "listener",
        "session",
        "stale",
        "state",
        "unsure",
    )

    def __init__(
        self, session: str, store: Store | None, redactor: Redactor | None = None, *, fresh: bool = False
    ) -> None:
        self.session = session
        self.state = SessionState()
        self.kept = store is not None
        # `state` once it is packed: then it is no attribute, and the next look at it makes one.
        self._parked: Parked | None = None
        # Whether a run goes on here, or is about to.
        self.in_use = False
        # The number of entries known here.
        self.length = 0
        # Which session of this name it is; empty until the store was first asked, or while there is none. It
        # never becomes another one: what is known here goes with this one alone.
        self.incarnation = ""
        # Whether an append of the owner failed or was cancelled. The store may have it all the same, which is
        # known once the journal is read.
        self.unsure = False
        # The number of the latest entry with which a run was opened or taken over here.
        self.begun = -1
        # A generated id has no journal to read. Where that is wrong, the first append names a length that the
        # store does not have, and is refused. Without a store, `state` could not differ from anything.
        self.stale = self.kept and not fresh
        self.listener: Callable[[Event], None] | None = None
        self._redactor = redactor
        self._store = store
        self._store_id = id(store)
        # Whether no other process can know the session yet.
        self.fresh = fresh
        # How many entries of other processes were taken in.
        self._taken_up = 0
        # The key of the summary in the store; None where another writer may have changed it.
        self._summarized: SummaryKey | None = None
        # One append at a time: a second one would name a length that the first is about to change.
        self._writing = asyncio.Lock()
        self._streamed: list[ModelStreamed] = []
        self._label = ""
        self._last_step = LastStep.KEPT
        self._checkpoints = Checkpoints(session, store)
        # The last entry, as bytes, once one is written here.
        self._last = b""
        if self.kept:
            # The converter costs more to set up than the rest of the engine: a session without a store never
            # imports it. Not at each append, where even to look an import up costs more than a coroutine.
            from ..journal.encoding import encode_entry  # noqa: PLC0415  # see above

            self._encode: Callable[[Entry], bytes] = encode_entry

    if not TYPE_CHECKING:
        # Of no other attribute: as a property, each of many looks in a step would be a call.
        def __getattr__(self, name: str) -> SessionState:
            found = self._parked if name == "state" else None
            if found is None:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg)
            self.state, self._parked = found.state, None
            self.rest(found.config)
            return self.state

    def rest(self, config: Config) -> None:
        """Pack `state` in a moment, unless it is in use by then; *config* is the one that it shares."""
        # A look at it from outside of an event loop may well be the last one.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(PARK_AFTER, self._park, config)

    def _park(self, config: Config) -> None:
        if self._parked is None and not (self.in_use or self._writing.locked()):
            self._parked = parked(self.state, config)
            if self._parked is not None:
                del self.state
                # Only what is written next is looked at.
                self._last = b""

    @property
    def store(self) -> Store:
        """The store of the session; `ConfigError` where it has none."""
        if self._store is None:
            msg = f"session {self.session!r} has no store; pass store= to Agent or session()"
            raise ConfigError(msg)
        return self._store

    async def load(self, start: int = 0) -> Entries:
        """The entries of the journal from *start* on; `SessionGone` where it was deleted."""
        entries = await self.store.load(self.session, start, self.incarnation)
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

    async def read(self) -> None:
        """Read the new entries of the journal, or all of them where `state` is stale."""
        if self._store is None or self.fresh:
            # Only the first read is saved: by the next one, other processes may know the id.
            self.fresh = False
            return
        if not self.stale or not await self._restored():
            known, entries = await self.load_new(0 if self.stale else self.length)
            # Most reads find nothing new, and what is known is folded already.
            if entries or not known:
                self._take_in(entries, known, self.state if known else None)
        self.unsure = False
        # The ends of earlier runs are only needed for branches, and each holds a whole history.
        if self._parked is None:
            self.state.drop_ends()

    async def find(self, most: int | None = None) -> FoundState | None:
        """The state after *most* entries, or all, by the latest checkpoint; None where there is none."""
        found = await find_state(self.store, self.session, self.incarnation, most)
        if found is not None:
            self.incarnation = found.incarnation
        return found

    async def _restored(self) -> bool:
        """Whether `state` could be had from a checkpoint, and the entries since."""
        found = await self.find()
        if found is not None:
            self._take_in((), found.length, found.state)
            self._checkpoints.begin(found.restored)
        return found is not None

    def _take_in(self, entries: Sequence[bytes], known: int, before: SessionState | None = None) -> None:
        """Fold *entries*, which follow the *known* ones that *before* is a fold of, into `state`."""
        # Until every entry is understood: one that cannot be read leaves a fold of the first half.
        self.stale = True
        if before is not self.state:
            # What was held back belongs to a run that ended otherwise.
            self._streamed = []
            self._checkpoints.begin(None)
        self.state, self._parked = fold(entries, self.session, before, known), None
        # A copy has placeholders of the session it was copied from, whose secrets are kept under that id.
        if self._redactor is not None and self.state.origins:
            self._redactor.add_origins(self.state.origins)
        # A row of another writer may lack what is known here, so the next write gives one again.
        self.length, self._summarized, self.stale = known + len(entries), None, False
        self._last_step = LastStep.KEPT

    async def add(self, entry: ConcurrentEntry) -> bool:
        """
        Keep *entry* and pass it to the driver; False where another process added one first.

        That one is in `state` then, and the caller decides anew.
        """
        given = entry.event if isinstance(entry, Posted) else None
        if self._redactor is not None and isinstance(given, ApprovalGiven):
            # A person may edit arguments, and so type a secret. It must not reach the store.
            entry = Posted(event=await self._redactor.answer(given, self.state.questions))
        if self._store is not None:
            # Read before the lock: what arrives while this waits may be the same input from another process,
            # and writing it again would run a prompt twice.
            known, about = self._taken_up, self._about_after(entry)
            async with self._writing:
                try:
                    if self._taken_up != known or not await self._append(self._store, [entry], about):
                        return False
                except StoreConflict as conflict:
                    # Of a run elsewhere. One that goes on here has lost the session, and its driver says so.
                    if self.in_use or not conflict.entries or branch_targets(conflict.entries):
                        raise
                    self._take_in(conflict.entries, self.length, self.state)
                    return False
        # After the append: a store that fails leaves the driver without the input, as its sender expects.
        self._arrived(entry)
        return True

    def _arrived(self, entry: ConcurrentEntry) -> None:
        # State first: the driver's step on this event removes it from the inputs that wait.
        self._follow(entry)
        if isinstance(entry, Posted) and self.listener is not None:
            self.listener(entry.event)

    async def open_run(
        self, run: str, config: Config, at: float, prompt: UserSent | None = None, *, titled: bool = False
    ) -> tuple[Effect, ...]:
        """
        Begin a run on the inputs that wait and on *prompt*; the effects of its beginning.

        With *titled*, a session without a title gets one from its first prompt.
        """
        opened = RunOpened(at=at, run=run, config=config)
        # The prompt and its run are one append: half the cost, and a crash leaves both or neither.
        entries: list[Entry] = [opened] if prompt is None else [Posted(event=prompt), opened]
        waiting = (*self.state.prompts, *([Mail.of(prompt)] if prompt else []))
        title = self.state.title
        if titled and not title:
            # A steer that came too late for its run opens one, too, where no prompt waits.
            texts = [one.text for one in waiting] or [one.text for one in self.state.late]
            title = first_line(self.state.opening or "".join(texts[:1]))
            if title:
                entries.append(Titled(at=at, title=title))
        # The summary of the last entry, made before any is applied: the append takes it along.
        left = len(waiting) - len(prompt_group(waiting, config.policy))
        return await self.own(
            *entries, about=lambda _: summarize_opened(opened, title, self.state, self.session, left)
        )

    async def branch(self, run: str, at: float) -> None:
        """
        Go back to the end of *run*, or to the beginning where it is empty; no run may go on.

        Raises `UnknownRun` where the journal has no such run.
        """
        # All of it, with the end of every run (`keeps=None`): `read` had dropped them.
        entries = await self.load()
        self._take_in(entries, 0, SessionState(keeps=None))
        machine = self.state.machine
        here = "" if machine is None else machine.memory.run
        there = dict.fromkeys([*self.state.ends, here] if here else self.state.ends)
        if run and run not in there:
            raise UnknownRun(run, tuple(there))
        # To where it stands already: an entry would only make the journal longer.
        if run != here:
            entry = Branched(at=at, run=run)
            await self.own(entry, about=self._about_after(entry))
            await self.settled()
        self.state.drop_ends()

    def _about_after(self, entry: Entry) -> Summarizer:
        """The summary once *entry* is written, which neither opens a run nor is a step of one."""

        def about(number: int) -> SessionSummary:
            # On a copy: the append may still be refused. A step would change the machine itself, which no
            # copy here protects; that is why `applied` does without this.
            ahead = attrs.evolve(self.state, posted=list(self.state.posted))
            apply_entry(ahead, entry, number, self.session)
            return summarize(ahead, self.session)

        return about

    # The event sink of the driver

    async def applied(
        self, event: Event, label: str, effects: tuple[Effect, ...], failed: str = ""
    ) -> int | None:
        """
        Keep *event*, which led to the state *label* with *effects*, before its requests are performed.

        A piece of a stream waits for the next event. *failed* is the error of a bug that ended the run.
        Returns the number of the latest entry, None without a store.
        """
        # By the number of its entry: the full text of a result is read from there.
        if isinstance(event, ModelStreamed) and not failed:
            # A crash loses the pieces of one answer, and the request is then sent again: far cheaper than an
            # append for every delta. Nothing that is looked at below comes of a piece.
            if self.kept:
                self._streamed.append(event)
                self._label = label
            return self.length - 1 if self.kept else None
        state = self.state
        summarised = state.stepped(event, effects)

        def about(number: int) -> SessionSummary | None:
            # Called again with another number where another process added an entry first.
            if summarised:
                state.summary = number
            # Compared by key: building a summary for each step would cost more than the step.
            return summarize(state, self.session) if self._summarized != summary_key(state) else None

        # Progress changes no state, and a chatty tool would fill the store with it.
        if self.kept and (failed or not isinstance(event, ToolProgressed)):
            step = Stepped(event=event, label=label, failed=failed)
            self._last_step = LastStep.WRITING
            try:
                await self.write(*self._held_back(), step, about=about)
            except BaseException:
                self._last_step = LastStep.REFUSED
                raise
            self._last_step = LastStep.KEPT
        # By the number of its entry, and so after the append: the full text of a result is read from there.
        number = self.length - 1 if self.kept else None
        state.note_results(event, effects, number)
        if self.length >= self._checkpoints.due:
            self._checkpoints.keep(state, self.length, self._last, self.incarnation)
        return number

    async def caught_up(self) -> None:
        """Wait until the journal has all that `state` shows. Raises `StoreError` where it was refused."""
        while self._last_step is LastStep.WRITING:
            async with self._writing:
                pass
        if self._last_step is LastStep.REFUSED:
            msg = f"session {self.session!r}: a step of its run could not be stored; look again in a moment"
            raise StoreError(msg)

    async def settled(self) -> None:
        """Wait for the checkpoint that is being kept."""
        await self._checkpoints.settled()

    async def flush(self) -> None:
        """Keep the pieces of a stream that is being left."""
        if self._streamed:
            await self.write(*self._held_back())

    def _held_back(self) -> list[Stepped]:
        """The pieces held back, as one entry with neighbours merged."""
        if not self._streamed:
            return []
        whole = joined(self._streamed)
        # Emptied before the write: where it fails the run is over here, and no later flush may try again.
        self._streamed = []
        # `count` stays the number of pieces as they came: the next one is checked against it.
        pieces = attrs.evolve(whole, pieces=merged(whole.pieces))
        return [Stepped(event=pieces, label=self._label)]

    async def full_result(self, call: str) -> str | None:
        """The full result of *call*, which the history truncates; None where there is none."""
        # The text itself where the session has no store, else the number of the entry that has it.
        where = self.state.full_results.where(call)
        if not isinstance(where, int) or self._store is None:
            return where if isinstance(where, str) else None
        return await read_entry(self._store, self.session, where, self.incarnation)

    # The writing end

    async def write(self, *entries: Entry, about: Summarizer = noop) -> None:
        """
        Keep *entries*, and the summary that *about* gives; nothing without a store.

        Raises `StoreConflict` where another process went on with this session, `SessionGone` where it was
        deleted.
        """
        if self._store is not None:
            async with self._writing:
                try:
                    while not await self._append(self._store, entries, about):
                        # Another process added an entry first. It cannot change what the owner writes, so the
                        # same entries go behind it.
                        pass
                except (StoreConflict, SessionGone):
                    raise
                except BaseException:
                    self.unsure = True
                    raise

    async def _append(self, store: Store, entries: Sequence[Entry], about: Summarizer) -> bool:
        """Append *entries* to *store*; False where it refused, and those of other processes are taken in."""
        encoded = [self._encode(entry) for entry in entries]
        summary, row = about(self.length + len(encoded) - 1), None
        key = self._summarized if summary is None else summary.key
        # A row is written only where a list of sessions would show something else: most steps change nothing.
        if summary is not None and key != self._summarized:
            from ..codec import encode  # noqa: PLC0415  # as in `__init__`

            row = encode(summary, SessionSummary)
        try:
            self.incarnation = await store.append(self.session, self.length, encoded, row, self.incarnation)
        except StoreConflict as conflict:
            await self._catch_up(conflict)
            return False
        self.length += len(encoded)
        written(self._store_id, self.session, self)
        # Only now: a refused append wrote no row either.
        self._summarized, self._last = key, encoded[-1]
        return True

    async def look(self) -> None:
        """Take in the entries of other processes. Raises as `write` does."""
        if self.kept:
            async with self._writing:
                await self._catch_up(None)

    async def _catch_up(self, conflict: StoreConflict | None) -> None:
        """Take in the entries added since; raise *conflict*, where there is one, if there are none."""
        from ..journal.encoding import decode_entry  # noqa: PLC0415  # as in `__init__`

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
                came = () if self.in_use else news
                raise StoreConflict(self.session, self.length, self.length + len(news), came)
            added.append(entry)
        # No journal becomes shorter. A store that says so would have this try for ever.
        if conflict is not None and not news:
            raise conflict
        if news:
            self.length += len(news)
            self._summarized, self._last = None, news[-1]
        self._taken_up += len(news)
        # Last: a listener may post at once, and must find the length that the store has.
        for entry in added:
            self._arrived(entry)

    async def own(self, *entries: Entry, about: Summarizer = noop) -> tuple[Effect, ...]:
        """Keep *entries*, which only the owner writes, and then apply them; their effects."""
        await self.write(*entries, about=about)
        for number, entry in enumerate(entries, self.length - len(entries)):
            if isinstance(entry, RunOpened | TakenOver):
                self.begun = number
        effects = tuple([effect for entry in entries for effect in self._follow(entry)])
        if self.length >= self._checkpoints.due:
            self._checkpoints.keep(self.state, self.length, self._last, self.incarnation)
        return effects

    def _follow(self, entry: Entry) -> tuple[Effect, ...]:
        """Apply *entry*, which was just written, to `state`."""
        # Entries of one append share the last number here: it names the entry in errors, and no entry before
        # the last can be a summary.
        return apply_entry(self.state, entry, max(self.length - 1, 0), self.session)


async def read_entry(store: Store, session: str, number: int, incarnation: str = "") -> str | None:
    """
    The result of a call in entry *number* of *session*; None where there is none.

    Raises `JournalError` for an entry that cannot be read, and `SessionGone` where *incarnation* was deleted.
    """
    from ..journal.encoding import decode_entry  # noqa: PLC0415  # as in `__init__`

    entries = await store.load(session, number, incarnation)
    if not entries:
        return None
    entry = decode_entry(entries[0], f"entry {number} of session {session!r}")
    return result_text(entry.event) if isinstance(entry, Stepped) else None
