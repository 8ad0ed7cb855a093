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

from ...effects.errors import SessionGone, StoreConflict, StoreError, UnknownRun
from ...effects.events import ApprovalGiven, Event, ModelStreamed, ToolProgressed, UserSent, joined
from ...effects.history import merged
from ...performers.base import noop
from ...states.context import Mail
from ...states.rules.inputs import prompt_group
from ..journal.entries import Branched, Entry, Posted, RunOpened, Stepped, TakenOver, Titled
from ..journal.fold import SessionState, apply_entry, branch_targets, fold
from ..journal.journal import ConcurrentEntry, Journal, Summarizer
from ..journal.summary import SessionSummary, first_line, summarize, summarize_opened, summary_key
from .parking import PARK_AFTER, Parked, parked
from .poller import written

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.stores.base import Store
    from .redactor import Redactor


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
        "_label",
        "_last_step",
        "_parked",
        "_redactor",
        "_streamed",
        "_taken_up",
        "_writing",
        "begun",
        "fresh",
        "in_use",
        "journal",
        "listener",
        "stale",
        "state",
        "unsure",
    )

    def __init__(
        self, session: str, store: Store | None, redactor: Redactor | None = None, *, fresh: bool = False
    ) -> None:
        self.journal = Journal(session, store)
        self.state = SessionState()
        # `state` once it is packed: then it is no attribute, and the next look at it makes one.
        self._parked: Parked | None = None
        # Whether a run goes on here, or is about to.
        self.in_use = False
        # Whether an append of the owner failed or was cancelled. The store may have it all the same, which is
        # known once the journal is read.
        self.unsure = False
        # The number of the latest entry with which a run was opened or taken over here.
        self.begun = -1
        # A generated id has no journal to read. Where that is wrong, the first append names a length that the
        # store does not have, and is refused. Without a store, `state` could not differ from anything.
        self.stale = self.journal.kept and not fresh
        self.listener: Callable[[Event], None] | None = None
        self._redactor = redactor
        # Whether no other process can know the session yet.
        self.fresh = fresh
        # How many entries of other processes were taken in.
        self._taken_up = 0
        # One append at a time: a second one would name a length that the first is about to change.
        self._writing = asyncio.Lock()
        self._streamed: list[ModelStreamed] = []
        self._label = ""
        self._last_step = LastStep.KEPT

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
                self.journal.forget_last()

    async def read(self) -> None:
        """Read the new entries of the journal, or all of them where `state` is stale."""
        if not self.journal.kept or self.fresh:
            # Only the first read is saved: by the next one, other processes may know the id.
            self.fresh = False
            return
        if not self.stale or not await self._restored():
            known, entries = await self.journal.load_new(0 if self.stale else self.journal.length)
            # Most reads find nothing new, and what is known is folded already.
            if entries or not known:
                self._take_in(entries, known, self.state if known else None)
        self.unsure = False
        # The ends of earlier runs are only needed for branches, and each holds a whole history.
        if self._parked is None:
            self.state.drop_ends()

    async def _restored(self) -> bool:
        """Whether `state` could be had from a checkpoint, and the entries since."""
        found = await self.journal.find()
        if found is not None:
            self._take_in((), found.length, found.state)
            self.journal.checkpoints.begin(found.restored)
        return found is not None

    def _take_in(self, entries: Sequence[bytes], known: int, before: SessionState | None = None) -> None:
        """Fold *entries*, which follow the *known* ones that *before* is a fold of, into `state`."""
        # Until every entry is understood: one that cannot be read leaves a fold of the first half.
        self.stale = True
        if before is not self.state:
            # What was held back belongs to a run that ended otherwise.
            self._streamed = []
            self.journal.checkpoints.begin(None)
        self.state, self._parked = fold(entries, self.journal.session, before, known), None
        # A copy has placeholders of the session it was copied from, whose secrets are kept under that id.
        if self._redactor is not None and self.state.origins:
            self._redactor.add_origins(self.state.origins)
        self.journal.reached(known + len(entries))
        self.stale = False
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
        if self.journal.kept:
            # Read before the lock: what arrives while this waits may be the same input from another process,
            # and writing it again would run a prompt twice.
            known, about = self._taken_up, self._about_after(entry)
            async with self._writing:
                if self._taken_up != known:
                    return False
                try:
                    came = await self.journal.append([entry], about, driven=self.in_use)
                except StoreConflict as conflict:
                    # Of a run elsewhere. One that goes on here has lost the session, and its driver says so.
                    if self.in_use or not conflict.entries or branch_targets(conflict.entries):
                        raise
                    self._take_in(conflict.entries, self.journal.length, self.state)
                    return False
                if came:
                    self._take_up(came)
                    return False
            written(self.journal.store_id, self.journal.session, self.journal)
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
            *entries, about=lambda _: summarize_opened(opened, title, self.state, self.journal.session, left)
        )

    async def branch(self, run: str, at: float) -> None:
        """
        Go back to the end of *run*, or to the beginning where it is empty; no run may go on.

        Raises `UnknownRun` where the journal has no such run.
        """
        # All of it, with the end of every run (`keeps=None`): `read` had dropped them.
        entries = await self.journal.load()
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
            await self.journal.checkpoints.settled()
        self.state.drop_ends()

    def _about_after(self, entry: Entry) -> Summarizer:
        """The summary once *entry* is written, which neither opens a run nor is a step of one."""

        def about(number: int) -> SessionSummary:
            # On a copy: the append may still be refused. A step would change the machine itself, which no
            # copy here protects; that is why `applied` does without this.
            ahead = attrs.evolve(self.state, posted=list(self.state.posted))
            apply_entry(ahead, entry, number, self.journal.session)
            return summarize(ahead, self.journal.session)

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
            if self.journal.kept:
                self._streamed.append(event)
                self._label = label
            return self.journal.length - 1 if self.journal.kept else None
        state = self.state
        summarised = state.stepped(event, effects)

        def about(number: int) -> SessionSummary | None:
            # Called again with another number where another process added an entry first.
            if summarised:
                state.summary = number
            # Compared by key: building a summary for each step would cost more than the step.
            return summarize(state, self.journal.session) if self.journal.row != summary_key(state) else None

        # Progress changes no state, and a chatty tool would fill the store with it.
        if self.journal.kept and (failed or not isinstance(event, ToolProgressed)):
            step = Stepped(event=event, label=label, failed=failed)
            self._last_step = LastStep.WRITING
            try:
                await self.write(*self._held_back(), step, about=about)
            except BaseException:
                self._last_step = LastStep.REFUSED
                raise
            self._last_step = LastStep.KEPT
        # By the number of its entry, and so after the append: the full text of a result is read from there.
        number = self.journal.length - 1 if self.journal.kept else None
        state.note_results(event, effects, number)
        if self.journal.length >= self.journal.checkpoints.due:
            self.journal.keep_checkpoint(state)
        return number

    async def caught_up(self) -> None:
        """Wait until the journal has all that `state` shows. Raises `StoreError` where it was refused."""
        while self._last_step is LastStep.WRITING:
            async with self._writing:
                pass
        if self._last_step is LastStep.REFUSED:
            session = self.journal.session
            msg = f"session {session!r}: a step of its run could not be stored; look again in a moment"
            raise StoreError(msg)

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
        if not isinstance(where, int) or not self.journal.kept:
            return where if isinstance(where, str) else None
        return await self.journal.full_result(where)

    # The writing end

    async def write(self, *entries: Entry, about: Summarizer = noop) -> None:
        """
        Keep *entries*, and the summary that *about* gives; nothing without a store.

        Raises `StoreConflict` where another process went on with this session, `SessionGone` where it was
        deleted.
        """
        if self.journal.kept:
            async with self._writing:
                try:
                    # Entries that another process added first cannot change what the owner writes, so the
                    # same entries go behind them.
                    while came := await self.journal.append(entries, about, driven=self.in_use):
                        self._take_up(came)
                except (StoreConflict, SessionGone):
                    raise
                except BaseException:
                    self.unsure = True
                    raise
            written(self.journal.store_id, self.journal.session, self.journal)

    async def look(self) -> None:
        """Take in the entries of other processes. Raises as `write` does."""
        if self.journal.kept:
            async with self._writing:
                self._take_up(await self.journal.catch_up(None, driven=self.in_use))

    def _take_up(self, came: Sequence[ConcurrentEntry]) -> None:
        """Take in the entries of other processes that the journal has now."""
        self._taken_up += len(came)
        for entry in came:
            self._arrived(entry)

    async def own(self, *entries: Entry, about: Summarizer = noop) -> tuple[Effect, ...]:
        """Keep *entries*, which only the owner writes, and then apply them; their effects."""
        await self.write(*entries, about=about)
        for number, entry in enumerate(entries, self.journal.length - len(entries)):
            if isinstance(entry, RunOpened | TakenOver):
                self.begun = number
        effects = tuple([effect for entry in entries for effect in self._follow(entry)])
        if self.journal.length >= self.journal.checkpoints.due:
            self.journal.keep_checkpoint(self.state)
        return effects

    def _follow(self, entry: Entry) -> tuple[Effect, ...]:
        """Apply *entry*, which was just written, to `state`."""
        # Entries of one append share the last number here: it names the entry in errors, and no entry before
        # the last can be a summary.
        return apply_entry(self.state, entry, max(self.journal.length - 1, 0), self.journal.session)
