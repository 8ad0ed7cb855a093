"""
Takes up the runs that no process drives, while the server serves.

Theory of operation. Every server looks a few times a second, with one question to the store. Several find the
same dead one: each takes its runs in an order of its own, a few at a time and while it has room. A claim
decides who has a run, so that one server reads its journal and not all. What becomes of the work that was
open is the engine's to say, as for a session that a caller resumes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from ...effects.errors import JournalError, TurnwheelError, UnknownSession, WorldError
from ...engine.inspect.listing import described
from ...performers.logs import warn

if TYPE_CHECKING:
    from ...engine.inspect.listing import Listed
    from .access import Namespace
    from .open_sessions import OpenSessions

# Seconds between two looks, and how many sessions are taken up at a time.
LOOK_EVERY, AT_ONCE = 0.3, 16


@final
class Takeovers:
    """
    Takes up what is left in the namespaces *names* of *opens*.

    With *dead* that is also what other processes left behind, else only where an input came in here.
    """

    def __init__(self, opens: OpenSessions, names: Sequence[Namespace], *, dead: bool) -> None:
        self._opens = opens
        self._names = names
        self._dead = dead
        # The lapsed leases of sessions that are none of this server's, by session.
        self._foreign: dict[str, bytes | None] = {}

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        while True:
            try:
                while await self.look():
                    pass
            except WorldError:
                # A store that fails now and then; what is left stays so until the next look.
                pass
            except Exception as error:  # noqa: BLE001  # one session must not end this for all others
                warn("a look at the runs that were left failed", error)
            # Not all servers at the same moment.
            pause = LOOK_EVERY * random.uniform(0.8, 1.2)  # noqa: S311  # nothing to guess
            await asyncio.sleep(pause)

    async def look(self) -> bool:
        """Take up some of what is left; whether there is more for which there is room."""
        opens = self._opens
        due = await opens.left.due(deadlines=self._dead)
        self._foreign = {name: data for name, data in self._foreign.items() if name in due}
        found = [
            name
            for name, data in due.items()
            if (self._dead or data is None) and not (name in self._foreign and self._foreign[name] == data)
        ]
        random.shuffle(found)
        some = found[: min(AT_ONCE, opens.room)]
        await asyncio.gather(*[self._take(name, due[name]) for name in some])
        return 0 < len(some) < len(found)

    def _ours(self, row: Listed) -> tuple[Namespace, str] | None:
        """Where the session *row* is known here, and by which id; None where it is not this server's."""
        known = [(names, self._opens.id_here(names, row)) for names in self._names]
        return next(((names, found) for names, found in known if found is not None), None)

    async def _take(self, name: str, lapsed: bytes | None) -> None:
        """Go on with the session *name*, unless another server was quicker."""
        opens, left = self._opens, self._opens.left
        try:
            row = await described(opens.store, name)
            ours = None if row is None else self._ours(row)
            if row is None and lapsed is not None:
                # Its process was gone before it wrote anything.
                await left.watch.drop(name, lapsed)
            if row is None or ours is None:
                self._foreign[name] = lapsed
                left.settled(name)
                return
            if lapsed is None and (left.is_past(row) or await left.rests(row)):
                left.settled(name)
                return
            free, claim = await left.claim(name, lapsed)
            if not free:
                return
            try:
                await self._go_on(ours, row, claim)
            except JournalError as error:
                left.unreadable(row, error)
        except UnknownSession:
            left.settled(name)
        except TurnwheelError as error:
            left.failed(name, error)

    async def _go_on(self, ours: tuple[Namespace, str], row: Listed, claim: bytes | None) -> None:
        """Wake the session *row*, which *ours* is here; there may be a *claim* to it."""
        left, name = self._opens.left, row.session
        async with self._opens.use(*ours) as one:
            await one.wake()
            # One whose run failed keeps its deadline, for the next try or another server.
            if left.is_overdue(name) and not one.unfinished:
                await left.seen_to(row)
            if one.working:
                left.taken(name)
            elif not one.unfinished:
                left.settled(name)
            # A run that began has put its lease in this place, and gives that up.
            if claim is not None and not one.unfinished:
                await left.watch.drop(name, claim)
