"""
The log of a session: its journal, and the state that the journal folds to.

Theory of operation. Compute, store, commit:

1. The machine computes a step, and changes nothing.
2. The step goes to the journal. Each append names the length that this process knows; a store refuses it
   where another process was faster. Entries that may come from any process are then taken in, and the append
   is tried again. An entry that only the owner may write means that another process owns the session now. The
   owner stops then, and any other writer decides anew.
3. The step is committed to the state, by the same function that folds a journal. So the state never runs
   ahead of the journal, but for pieces of a stream: these are committed at once, and stored with the next
   step.

An append whose outcome is unknown, because it was cancelled or the store failed, leaves the state as it was.
The journal is read before anything else is decided, and the step is folded if it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast, final

import attrs

from ...effects.errors import SessionGone, StoreConflict, UnknownRun
from ...effects.events import Event, InputWithdrawn, ModelStreamed, ToolProgressed, UserSent, joined
from ...effects.history import merged
from ...effects.records import TakeMail
from ...performers.base import noop
from ...performers.slices import AT_ONCE
from ...performers.worker_pool import finish
from ...states.context import Mail
from ...states.rules.inputs import prompt_group
from ..core.machine import Machine, Step
from ..driver import Overtaken
from ..journal.entries import Branched, Entry, Posted, RunOpened, Stepped, TakenOver, Titled
from ..journal.fold import SessionState, apply_entry, branch_targets
from ..journal.journal import ConcurrentEntry, Journal, Summarizer
from ..journal.stored_checkpoints import fold_in_slices
from ..journal.summary import SessionSummary, first_line, summarize, summarize_opened, summary_key
from .parking import PARK_AFTER, Parked, parked
from .poller import written

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.config import Config
    from ...performers.redactor import Redactor

# Makes an entry of the present state, None for none; called again where that has changed meanwhile.
Decide = Callable[[], ConcurrentEntry | None]


@final
@attrs.define(eq=False, repr=False)
class SessionLog:
    """
    The log of the session of *journal*; its driver keeps steps in it.

    `state` is the fold of the known entries of `journal`, and of the pieces of a stream behind them. An input
    is journaled before it is acted on, by the process it came in through. An entry carries a summary of the
    session where a list would show a change.
    """

    journal: Journal
    _redactor: Redactor | None = None
    # Whether no other process can know the session yet.
    fresh: bool = attrs.field(default=False, kw_only=True)
    state: SessionState = attrs.field(factory=SessionState, init=False)
    # `state` once it is packed: then it is no attribute, and the next look at it makes one.
    _parked: Parked | None = attrs.field(default=None, init=False)
    # Whether a run goes on here, or is about to.
    in_use: bool = attrs.field(default=False, init=False)
    # Whether the journal has to be read before anything is decided: it never was, or an append of the owner
    # failed or was cancelled, and the store may have it all the same. A generated id has no journal to read.
    # Where that is wrong, the first append names a length that the store does not have.
    unread: bool = attrs.field(init=False)
    # Whether `state` says nothing of the session, since its journal was never read.
    never_read: bool = attrs.field(init=False)
    # Whether the next read folds from the beginning: the journal was never read, or an entry in the middle
    # could not be.
    _anew: bool = attrs.field(init=False)
    # The number of the latest entry with which a run was opened or taken over here.
    begun: int = attrs.field(default=-1, init=False)
    _listener: Callable[[Event], None] | None = attrs.field(default=None, init=False)
    # One append at a time: a second one would name a length that the first is about to change.
    _writing: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    # The pieces of a stream that are not stored yet, and the state and the memory before the first.
    _streamed: list[ModelStreamed] = attrs.field(factory=list, init=False)
    _stored: Step | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.unread = self.never_read = self._anew = self.journal.kept and not self.fresh

    if not TYPE_CHECKING:
        # Of no other attribute: as a property, each of many looks in a step would be a call.
        def __getattr__(self, name: str) -> SessionState:
            found = self._parked if name == "state" else None
            if found is None:
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg)
            self.state, self._parked = found.state, None
            self.park_soon(found.config)
            return self.state

    def begin_use(self) -> None:
        """A run goes on here from now on, or is about to."""
        self.in_use = True

    def end_use(self, config: Config) -> None:
        """No run goes on here any more; *config* is what `park_soon` takes."""
        self.in_use = False
        self.park_soon(config)

    def listen(self, post: Callable[[Event], None] | None) -> None:
        """Pass inputs on to *post*, the driver's, from now on; None: to no driver any more."""
        self._listener = post
        # An interrupt that was not applied was meant for the run that has ended.
        self.state.interrupts.clear()

    def park_soon(self, config: Config) -> None:
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
        """Read the new entries of the journal."""
        if not self.journal.kept or self.fresh:
            # Only the first read is saved: by the next one, other processes may know the id.
            self.fresh = False
            return
        # Behind an append under way, whose entries would be counted twice.
        async with self._writing:
            if not self._anew or not await self._restored():
                known, entries = await self.journal.load_new(0 if self._anew else self.journal.length)
                # Most reads find nothing new, and what is known is folded already.
                if entries or not known:
                    await self._take_in(entries, known, self.state if known else None)
            self.unread = self.never_read = False
        # The ends of earlier runs are only needed for branches, and each holds a whole history.
        if self._parked is None:
            self.state.drop_ends()

    async def _restored(self) -> bool:
        """Whether `state` could be had from a checkpoint, and the entries since."""
        found = await self.journal.find()
        if found is not None:
            await self._take_in((), found.length, found.state)
            self.journal.checkpoints.begin(found.restored)
        return found is not None

    async def _take_in(self, entries: Sequence[bytes], known: int, before: SessionState | None) -> None:
        """Fold *entries*, which follow the *known* ones that *before* is a fold of, into `state`."""
        # Until all entries are applied: an error leaves a state of some entries.
        self._anew = self.unread = True
        if before is not self.state:
            self.journal.checkpoints.begin(None)
        # Finished also where the caller is cancelled: nothing is decided by a state of some of them.
        folding = fold_in_slices(entries, self.journal.session, before, known)
        self.state, self._parked = await finish(folding) if len(entries) > AT_ONCE else await folding, None
        # A copy has placeholders of the session it was copied from, whose secrets are kept under that id.
        if self._redactor is not None and self.state.origins:
            self._redactor.add_origins(self.state.origins)
        self.journal.reached(known + len(entries))
        self._anew = self.unread = self.never_read = False

    async def add(self, decide: Decide) -> bool:
        """
        Keep the entry that *decide* makes of the present state, and pass it to the driver; None adds nothing.

        False where another process added one first: that one is in `state` then, and the caller decides anew.
        """
        if not self.journal.kept:
            entry = decide()
        else:
            async with self._writing:
                # Inside the lock: a step may have been committed while this waited for it.
                entry = decide()
                if entry is None:
                    return True
                try:
                    came = await self.journal.append([entry], self._about_after(entry), driven=self.in_use)
                except StoreConflict as conflict:
                    # Of a run elsewhere. One that goes on here has lost the session, and its driver says so.
                    if self.in_use or not conflict.entries or branch_targets(conflict.entries):
                        raise
                    await self._take_in(conflict.entries, self.journal.length, self.state)
                    return False
                if came:
                    self._arrived(came)
                    return False
            written(self.journal.store_id, self.journal.session, self.journal)
        # After the append: a store that fails leaves the driver without the input, as its sender expects.
        if entry is not None:
            self._arrived([entry])
        return True

    def _arrived(self, entries: Sequence[ConcurrentEntry]) -> None:
        """Take in *entries* that the journal has now."""
        for entry in entries:
            # State first: the driver's step on this event removes it from the inputs that wait.
            self._apply(entry)
            if isinstance(entry, Posted) and self._listener is not None:
                self._listener(entry.event)

    async def open_run(
        self, opening: Callable[[], RunOpened], prompt: UserSent | None = None, *, titled: bool = False
    ) -> tuple[Effect, ...] | None:
        """
        Begin the run of *opening* on the inputs that wait and on *prompt*; the effects of its beginning.

        *opening* is made again where another prompt begins the run than it was made for.

        None where all of them were taken back meanwhile: no run begins then. With *titled*, a session without
        a title gets one from its first prompt.
        """
        machine, withdrawn, first = self.state.machine, self.state.withdrawn, self.state.prompts[:1]
        next_id = 1 if machine is None else machine.memory.next_id
        opened = attrs.evolve(opening(), next_id=next_id)
        # The prompt and its run are one append: half the cost, and a crash leaves both or neither.
        entries: list[Entry] = [opened] if prompt is None else [Posted(event=prompt), opened]
        waiting = (*self.state.prompts, *([Mail.of(prompt)] if prompt else []))
        title = self.state.title
        if titled and not title:
            # A steer that came too late for its run opens one, too, where no prompt waits.
            texts = [one.text for one in waiting] or [one.text for one in self.state.late]
            title = first_line(self.state.opening or "".join(texts[:1]))
            if title:
                entries.append(Titled(at=opened.at, title=title))
        # The summary of the last entry, made before any is applied: the append takes it along.
        left = len(waiting) - len(prompt_group(waiting, opened.config.policy))
        written = await self.write(
            entries,
            lambda _: summarize_opened(opened, title, self.state, self.journal.session, left),
            lambda: (self.state.withdrawn, self.state.prompts[:1]) == (withdrawn, first),
        )
        if written:
            return self._owned(entries)
        # Another prompt begins the run, or one was taken back: its output and its title are others.
        if prompt is not None and self.state.knows(prompt.id):
            prompt = None
        if prompt is None and not self.state.waiting:
            return None
        return await self.open_run(opening, prompt, titled=titled)

    async def branch(self, run: str, at: float) -> None:
        """
        Go back to the end of *run*, or to the beginning where it is empty; no run may go on.

        Raises `UnknownRun` where the journal has no such run.
        """
        # All of it, with the end of every run (`keeps=None`): `read` had dropped them.
        entries = await self.journal.load()
        await self._take_in(entries, 0, SessionState(keeps=None))
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
            # On a copy: the append may still be refused. Such an entry does not touch the machine itself.
            ahead = attrs.evolve(self.state, posted=list(self.state.posted))
            apply_entry(ahead, entry, number, self.journal.session)
            return summarize(ahead, self.journal.session)

        return about

    # Steps of the driver

    async def keep(self, step: Step) -> int | None:
        """
        Keep *step* and commit it; the number of the latest entry, None without a store.

        A piece of a stream is committed at once, and stored with the next step. Where this raises, *step* is
        not committed: `Overtaken`, where it takes an input that was taken back before.
        """
        journal = self.journal
        if isinstance(step.event, ModelStreamed | ToolProgressed) and not step.failed:
            # A crash loses the pieces of one answer, and the request is then sent again: far cheaper than an
            # append for every delta. Progress changes no state, and a chatty tool would fill the store.
            machine = cast("Machine", self.state.machine)
            if journal.kept and isinstance(step.event, ModelStreamed):
                if self._stored is None:
                    self._stored = Step(None, machine.state, machine.memory, ())
                self._streamed.append(step.event)
            machine.commit(step)
            return journal.length - 1 if journal.kept else None
        if not journal.kept:
            if self.state.posted and (withdrawals := withdrawals_of(step, self.state)):
                raise Overtaken(withdrawals)
            self.state.commit(step, None)
            return None

        def about(number: int) -> SessionSummary | None:
            # Called again with another number where another process added an entry first.
            later = self.state.ahead(step, number)
            # Compared by key: building a summary for each step would cost more than the step.
            return summarize(later, journal.session) if journal.row != summary_key(later) else None

        event = cast("Event", step.event)
        entry = Stepped(event=event, label=step.state.label, failed=step.failed)
        entries = [*self._held_back(), entry] if self._streamed else [entry]
        # A person who was told that an input is taken back relies on it: no later entry takes it.
        if not await self.write(entries, about, lambda: not withdrawals_of(step, self.state)):
            raise Overtaken(withdrawals_of(step, self.state))
        # By the number of its entry: the full text of a result is read from there.
        number = journal.length - 1
        self.state.commit(step, number)
        if journal.length >= journal.checkpoints.due:
            journal.keep_checkpoint(self.state)
        return number

    async def flush(self) -> None:
        """Keep the pieces of a stream that is being left; without them where the store fails."""
        if self._streamed:
            await self.write(self._held_back())

    def _held_back(self) -> list[Stepped]:
        """The pieces held back, as one entry with neighbours merged."""
        whole = joined(self._streamed)
        # `count` stays the number of pieces as they came: the next one is checked against it.
        pieces = attrs.evolve(whole, pieces=merged(whole.pieces))
        label = cast("Machine", self.state.machine).state.label
        return [Stepped(event=pieces, label=label)]

    def _drop_pieces(self) -> None:
        """Go back to the machine before the pieces held back: they could not be stored."""
        if self._stored is not None:
            cast("Machine", self.state.machine).commit(self._stored)
            self._streamed, self._stored = [], None

    async def full_result(self, call: str) -> str | None:
        """The full result of *call*, which the history truncates; None where there is none."""
        # The text itself where the session has no store, else the number of the entry that has it.
        where = self.state.full_results.places.get(call)
        if not isinstance(where, int) or not self.journal.kept:
            return where if isinstance(where, str) else None
        return await self.journal.full_result(where)

    # The writing end

    async def write(
        self, entries: Sequence[Entry], about: Summarizer = noop, wanted: Callable[[], bool] | None = None
    ) -> bool:
        """
        Keep *entries*, the first of which are the pieces held back, with the summary that *about* gives.

        False where they are not *wanted* any more behind the inputs that other processes added first. Without
        a store it does nothing. The caller commits *entries* before its next await. Raises
        `StoreConflict` where another process went on with this session, `SessionGone` where it was deleted.
        """
        if not self.journal.kept:
            return True
        async with self._writing:
            try:
                # Entries that another process added first cannot change what the owner writes, so the same
                # entries go behind them.
                while wanted is None or not self.state.posted or wanted():
                    came = await self.journal.append(entries, about, driven=self.in_use)
                    if not came:
                        break
                    self._arrived(came)
                else:
                    return False
            except BaseException as error:
                # The store may have them all the same, which is known once the journal is read.
                self.unread = not isinstance(error, StoreConflict | SessionGone)
                self._drop_pieces()
                raise
            if self._streamed:
                self._streamed, self._stored = [], None
        written(self.journal.store_id, self.journal.session, self.journal)
        return True

    async def appended(self) -> None:
        """Wait for the append under way, if any."""
        async with self._writing:
            pass

    async def look(self) -> None:
        """Take in the entries of other processes. Raises as `write` does."""
        if self.journal.kept:
            async with self._writing:
                self._arrived(await self.journal.catch_up(None, driven=self.in_use))

    async def own(self, *entries: Entry, about: Summarizer = noop) -> tuple[Effect, ...]:
        """Keep *entries*, which only the owner writes, and then apply them; their effects."""
        await self.write(entries, about)
        return self._owned(entries)

    def _owned(self, entries: Sequence[Entry]) -> tuple[Effect, ...]:
        """Apply *entries*, which were just written; their effects."""
        journal = self.journal
        for number, entry in enumerate(entries, journal.length - len(entries)):
            if isinstance(entry, RunOpened | TakenOver):
                self.begun = number
        effects = tuple([effect for entry in entries for effect in self._apply(entry)])
        if journal.length >= journal.checkpoints.due:
            journal.keep_checkpoint(self.state)
        return effects

    def _apply(self, entry: Entry) -> tuple[Effect, ...]:
        """Apply *entry*, which was just written, to `state`."""
        # Entries of one append share the last number here: it names the entry in errors, and no entry before
        # the last can be a summary.
        return apply_entry(self.state, entry, max(self.journal.length - 1, 0), self.journal.session)


def withdrawals_of(step: Step, state: SessionState) -> tuple[Event, ...]:
    """The withdrawals that wait in *state* of inputs that *step* takes."""
    taken = {name for effect in step.effects if isinstance(effect, TakeMail) for name in effect.ids}
    if isinstance(step.event, InputWithdrawn):
        taken.discard(step.event.input)  # which it takes itself
    return tuple([event for event in state.withdrawals if event.input in taken])
