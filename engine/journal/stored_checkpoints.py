"""
The checkpoints of a session in its store: kept as it goes on, and where a reader begins.

Theory of operation. The owner keeps one every so many entries, in a task of its own: no step waits for it,
and where it fails, the next one has what it had. A reader begins with the latest one and reads the entries
behind it. One that is damaged or does not go with the journal is logged, and the whole journal is read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import JournalError, WorldError
from ...performers.logs import warn
from ...performers.slices import AT_ONCE, Slices
from ..core.machine import Machine, calls_at
from .fold import SessionState, branch_targets, fold, initial_state, read

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ...performers.stores.base import Store
    from .checkpoints import CheckpointChain, Restored

# Entries between two checkpoints. To fold so many takes up to 20 ms, at 80 µs each. To keep a checkpoint
# takes 0.5 ms and 3 µs for each, about a thirtieth of what the entries take by themselves.
EVERY = 250

# Characters of full results that no journal has, with which none is kept: behind each summary comes one that
# has them all.
MOST_TEXTS = 1_000_000


@final
@attrs.frozen
class FoundState:
    """
    The *state* of a session of that *incarnation* after *length* entries, by the checkpoint *restored*.

    The entries *behind* follow those, as far as they were read.
    """

    state: SessionState
    length: int
    incarnation: str
    restored: Restored
    behind: Sequence[bytes]


async def find_state(
    store: Store, session: str, incarnation: str = "", most: int | None = None, more: int | None = 0
) -> FoundState | None:
    """
    The state of *session* in *store*, after no more than *most* entries, by its latest checkpoint.

    With *most*, at most *more* entries behind those are read, None for all. None where a fold has to begin
    with the first entry.
    """
    bodies = await store.checkpoints(session, incarnation)
    if not bodies:
        return None
    # Most sessions are short, and need no converter for it.
    from .checkpoints import restored  # noqa: PLC0415  # see above

    try:
        if (begins := restored(bodies, most)) is None:
            return None
        known = begins.position
        if begins.state.machine is not None:
            # A fork begins with the checkpoints of its original.
            begins.state.machine.rename(session)
        end = None if most is None or more is None else most + more
        entries = await store.load(session, known - 1, end, incarnation)
        behind = begins.behind(entries)
        rest = behind[: None if most is None else most - known]
        # A branch goes back to the end of a run, which no checkpoint has.
        if branch_targets(rest):
            return None
        state = await fold_in_slices(rest, session, begins.state, known)
    # If it is the entry and not the checkpoint that is wrong, the fold of all says so.
    except JournalError as error:
        warn("a checkpoint was passed over", error, session=session)
        return None
    return FoundState(state, known + len(rest), entries.incarnation, begins, behind[len(rest) :])


async def fold_in_slices(
    entries: Sequence[bytes], session: str, state: SessionState | None = None, known: int = 0
) -> SessionState:
    """As `fold`, in slices where there are more entries than one has."""
    if len(entries) <= AT_ONCE:
        return fold(entries, session, state, known)
    state = initial_state(entries) if state is None else state
    async for _ in Slices(read(entries, session, state, known)):
        pass
    return state


async def copy_checkpoints(store: Store, found: FoundState, session: str, incarnation: str) -> None:
    """Keep those that *found* was had from for *session*, too, which begins with the same entries."""
    bodies = found.restored.bodies
    with suppress(WorldError):
        for position, body in bodies:
            await store.keep_checkpoint(session, position, body, bodies[0][0], incarnation)


async def _prepare() -> None:
    """Load what makes checkpoints, in parts: all of it at once would hold up other sessions for 20 ms."""
    from ..core import snapshots  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # as above

    await asyncio.sleep(0)
    from . import checkpoints  # noqa: PLC0415  # as above

    for part in checkpoints.WRITTEN:
        await asyncio.sleep(0)
        checkpoints.prepare(part)
    await asyncio.sleep(0)


@final
class Checkpoints:
    """Keeps the checkpoints of *session* in *store*, where there is one that keeps any."""

    __slots__ = ("_chain", "_keeping", "_session", "_store", "due")

    def __init__(self, session: str, store: Store | None) -> None:
        self._session = session
        self._store = store if store is not None and store.keeps_checkpoints else None
        # The length of the journal from which on one is due.
        self.due = EVERY
        # What the next one goes on from.
        self._chain: CheckpointChain | None = None
        self._keeping: asyncio.Task[None] | None = None

    def begin(self, restored: Restored | None) -> None:
        """Go on from the checkpoint *restored*, None where all of the journal was read."""
        self._chain = None if restored is None else restored.chain
        self.due = EVERY if restored is None else restored.position + EVERY

    def keep(self, state: SessionState, length: int, entry: bytes, incarnation: str) -> None:
        """
        Begin to keep *state*, to which *length* entries led, *entry* the last; this waits for nothing.

        The session has this *incarnation*.
        """
        machine, results = state.machine, state.full_results
        # Not in the middle of a batch, which has the results at full length: the next steps end it.
        if self._store is None or self._keeping or machine is None or calls_at(machine.state):
            return
        if results.held > MOST_TEXTS:
            return
        self.due = length + EVERY
        # As it is now. What it is made of never changes, so this costs next to nothing.
        then = attrs.evolve(
            state,
            machine=Machine(machine.config, machine.state, machine.memory),
            posted=[*state.posted],
            full_results=attrs.evolve(results, places={**results.places}),
        )
        keep = partial(self._store.keep_checkpoint, self._session, length, incarnation=incarnation)
        self._keeping = asyncio.ensure_future(self._kept(keep, then, length, entry))

    async def _kept(
        self, keep: Callable[[bytes, int], Awaitable[None]], state: SessionState, length: int, entry: bytes
    ) -> None:
        try:
            await _prepare()
            from .checkpoints import checkpoint  # noqa: PLC0415  # as above

            body, chain = checkpoint(state, length, entry, self._chain)
            await keep(body, chain.first)
            self._chain = chain
        # Of any kind, a bug of ours too: the session can do without.
        except Exception as error:  # noqa: BLE001  # see above
            warn("a checkpoint was not kept", error, session=self._session)
        finally:
            self._keeping = None

    async def settled(self) -> None:
        """Wait until the one that is being kept is there."""
        if self._keeping is not None:
            await asyncio.wait({self._keeping})
