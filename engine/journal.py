"""Writing a session down as it happens, and folding it back into a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.errors import JournalError
from ..effects.events import ApprovalGiven, Event, ModelStreamed, ToolProgressed, joined
from ..effects.pieces import merged
from .codec import decode, encode
from .entries import VERSION, Entry, Posted, RunOpened, Stepped, TakenOver
from .machine import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..effects.performers.stores.base import Store


@final
class Journal:
    """
    The writing end of one session's journal: *length* is how many entries are kept.

    The pieces of a stream are held back and written as one entry, with the next event that is none.
    """

    def __init__(self, store: Store, session: str, length: int = 0) -> None:
        self.store = store
        self.session = session
        self.length = length
        self._streamed: list[ModelStreamed] = []
        self._label = ""

    async def write(self, *entries: Entry) -> None:
        """Keep *entries*. Raises `StoreConflict` where another process wrote to this session."""
        encoded = [encode(entry, Entry) for entry in entries]
        self.length = await self.store.append(self.session, self.length, encoded)

    async def applied(self, event: Event, label: str) -> None:
        """Keep *event*, which led to the state *label*; a piece of a stream with what follows it."""
        if isinstance(event, ToolProgressed):
            return  # it changes nothing, and a chatty tool would fill the store
        if isinstance(event, ModelStreamed):
            self._streamed.append(event)
            self._label = label
            return
        await self.write(*self._held_back(), Stepped(event=event, label=label))

    async def flush(self) -> None:
        """Keep what was held back of a stream that is being left."""
        if self._streamed:
            await self.write(*self._held_back())

    def _held_back(self) -> list[Stepped]:
        if not self._streamed:
            return []
        whole = joined(self._streamed)
        self._streamed = []
        pieces = ModelStreamed(
            at=whole.at,
            request=whole.request,
            before=whole.before,
            count=whole.count,
            pieces=merged(whole.pieces),
        )
        return [Stepped(event=pieces, label=self._label)]


@final
@attrs.define
class Folded:
    """
    What a journal leads to.

    It is the *machine* of the last run, over all that was said before, and what was *posted* and not applied
    yet. No machine: no run was ever opened.
    """

    machine: Machine | None = None
    posted: list[ApprovalGiven] = attrs.Factory(list)


def fold(entries: Iterable[bytes], session: str) -> Folded:
    """
    What the *entries* of *session* lead to.

    Raises `JournalError` naming the entry that cannot be read or does not follow from those before it.
    """
    folded = Folded()
    for number, data in enumerate(entries):
        where = f"entry {number} of session {session!r}"
        _follow(folded, decode(data, Entry, where), where)
    return folded


def _follow(folded: Folded, entry: Entry, where: str) -> None:
    if isinstance(entry, RunOpened):
        _open(folded, entry, where)
        return
    machine = folded.machine
    if machine is None:
        msg = f"{where} comes before any run was opened: the beginning of the journal is missing"
        raise JournalError(msg)
    match entry:
        case TakenOver():
            if entry.config is not None:
                machine.reconfigure(entry.config)
        case Posted():
            folded.posted.append(entry.event)
        case Stepped():
            folded.posted = [posted for posted in folded.posted if posted != entry.event]
            _step(machine, entry, where)


def _open(folded: Folded, opened: RunOpened, where: str) -> None:
    if opened.version > VERSION:
        msg = f"{where} has version {opened.version}, known here is {VERSION}: use a newer turnwheel"
        raise JournalError(msg)
    folded.machine = Machine.open(opened, folded.machine)
    folded.machine.advance(at=opened.at)
    folded.posted = []


def _step(machine: Machine, entry: Stepped, where: str) -> None:
    machine.advance(entry.event)
    if machine.state.label != entry.label:
        kind, here = type(entry.event).__name__, machine.state.label
        msg = f"{where}: {kind} leads to {here} here and led to {entry.label} when it was written"
        raise JournalError(msg)
