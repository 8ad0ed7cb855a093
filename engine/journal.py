"""Writing a session down as it happens, and folding it back into a machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, final

import attrs

from ..effects.errors import JournalError, StoreConflict
from ..effects.events import Event, ModelStreamed, Post, ToolProgressed, joined
from ..effects.pieces import merged
from .codec import decode, encode
from .entries import VERSION, Entry, Posted, RunOpened, Stepped, TakenOver
from .machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..effects import Effect
    from ..effects.performers.stores.base import Store


@final
class Journal:
    """
    The writing end of one session's journal: *length* is how many entries are kept.

    What others post meanwhile, from whichever process, is handed to *arrived*; anything else that somebody
    else wrote is a `StoreConflict`. The pieces of a stream are held back and written as one entry, with the
    next event that is none.
    """

    def __init__(self, store: Store, session: str, length: int, arrived: Callable[[Post], None]) -> None:
        self.store = store
        self.session = session
        self.length = length
        self._arrived = arrived
        self._taken_up = 0
        self._writing = asyncio.Lock()
        self._streamed: list[ModelStreamed] = []
        self._label = ""

    async def write(self, *entries: Entry) -> None:
        """Keep *entries*. Raises `StoreConflict` where another process went on with this session."""
        encoded = [encode(entry, Entry) for entry in entries]
        async with self._writing:
            while not await self._written(encoded):
                pass

    async def post(self, event: Post) -> bool:
        """
        Keep *event*, unless others posted something first: then that is taken up, and this is False.

        Whoever posts thinks again, since it may be the same. Raises `StoreConflict` as `write` does.
        """
        encoded, known = encode(Posted(event=event), Entry), self._taken_up
        async with self._writing:
            return self._taken_up == known and await self._written([encoded])

    async def _written(self, encoded: Sequence[bytes]) -> bool:
        """Whether *encoded* is kept now; where it is not, what others posted has been taken up."""
        try:
            self.length = await self.store.append(self.session, self.length, encoded)
        except StoreConflict as conflict:
            await self._catch_up(conflict)
            return False
        return True

    async def look(self) -> None:
        """See what others posted. Raises `StoreConflict` as `write` does."""
        async with self._writing:
            await self._catch_up(None)

    async def _catch_up(self, conflict: StoreConflict | None) -> None:
        """Take up what was posted since; raise *conflict*, where there is one, if nothing was."""
        news = await self.store.load(self.session, self.length)
        posted: list[Post] = []
        for number, data in enumerate(news, self.length):
            entry = decode(data, Entry, f"entry {number} of session {self.session!r}")
            if not isinstance(entry, Posted):
                raise conflict or StoreConflict(self.session, self.length, self.length + len(news))
            posted.append(entry.event)
        if conflict is not None and not news:
            raise conflict
        self.length += len(news)
        self._taken_up += len(news)
        for event in posted:
            self._arrived(event)

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
    posted: list[Post] = attrs.Factory(list)


def fold(entries: Iterable[bytes], session: str, folded: Folded | None = None, known: int = 0) -> Folded:
    """
    What the *entries* of *session* lead to; where *known* entries were *folded* before, these come after.

    Raises `JournalError` naming the entry that cannot be read or does not follow from those before it.
    """
    folded = folded or Folded()
    for number, data in enumerate(entries, known):
        where = f"entry {number} of session {session!r}"
        follow(folded, decode(data, Entry, where), where)
    return folded


def follow(folded: Folded, entry: Entry, where: str) -> tuple[Effect, ...]:
    """Let *entry* happen to *folded*; what the machine said to that."""
    match entry:
        case RunOpened():
            return _open(folded, entry, where)
        case Posted():
            folded.posted.append(entry.event)
            return ()
        case TakenOver():
            if entry.config is not None:
                _machine(folded, where).reconfigure(entry.config)
            return ()
        case Stepped():
            folded.posted = [posted for posted in folded.posted if posted != entry.event]
            return _step(_machine(folded, where), entry, where)


def _machine(folded: Folded, where: str) -> Machine:
    if folded.machine is None:
        msg = f"{where} comes before any run was opened: the beginning of the journal is missing"
        raise JournalError(msg)
    return folded.machine


def _open(folded: Folded, opened: RunOpened, where: str) -> tuple[Effect, ...]:
    if opened.version > VERSION:
        msg = f"{where} has version {opened.version}, known here is {VERSION}: use a newer turnwheel"
        raise JournalError(msg)
    folded.machine = Machine.open(opened, folded.machine, folded.posted)
    folded.posted = []
    return folded.machine.advance(at=opened.at)


def _step(machine: Machine, entry: Stepped, where: str) -> tuple[Effect, ...]:
    effects = machine.advance(entry.event)
    if machine.state.label != entry.label:
        kind, here = type(entry.event).__name__, machine.state.label
        msg = f"{where}: {kind} leads to {here} here and led to {entry.label} when it was written"
        raise JournalError(msg)
    return effects
