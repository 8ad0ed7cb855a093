"""What is kept of a session: its journal, the machine that it folds to, and what was posted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..effects.errors import UnknownSession
from ..effects.events import ApprovalGiven, Event, Interrupted, Post, UserSent, UserSteered
from ..effects.records import Lane
from ..states.context import Mail
from .entries import VERSION, RunOpened, TakenOver
from .machine import Machine
from .recovery import questions

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..effects import Effect
    from ..effects.config import Config
    from ..effects.performers.stores.base import Store
    from ..effects.requests import AskApproval
    from .journal import Journal


@final
class SessionLog:
    """
    The memory of the session *session*, kept in *store* where there is one. Keeps events for a driver.

    Theory of operation. What the machine here knows and the journal does not (a store that failed, a run that
    was left in the middle) did not happen: then this is `stale`, and `read` reads the journal again. Whatever
    comes from outside is written down before anything is done about it, by whichever process it came in
    through; `pending` is what no run has taken up yet, just as a fold of the journal would have it.
    """

    def __init__(self, session: str, store: Store | None) -> None:
        self.session = session
        self.machine: Machine | None = None
        self.pending: list[Post] = []
        self.stale = store is not None
        self.listener: Callable[[Event], None] | None = None
        self._store = store
        self._journal: Journal | None = None

    @property
    def kept(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    @property
    def unfinished(self) -> bool:
        """Whether the latest run is not over: it rests, or its process was lost."""
        return self.machine is not None and not self.machine.done

    @property
    def prompted(self) -> bool:
        """
        Whether something waits that a run is opened for: a prompt, or a steer that came too late for its run.
        """
        late = (event for event in self.pending if isinstance(event, UserSteered))
        return bool(self.prompts) or any(not self._received(event) for event in late)

    @property
    def prompts(self) -> tuple[Mail, ...]:
        """The prompts that wait, in the order they came."""
        left = () if self.machine is None else self.machine.memory.waiting(Lane.PROMPT)
        posted: dict[str, Mail] = {}
        for event in self.pending:
            if isinstance(event, UserSent) and not self._received(event):
                posted.setdefault(event.id, Mail.of(event))
        return (*left, *posted.values())

    def _received(self, event: Post) -> bool:
        return self.machine is not None and self.machine.memory.has(event)

    @property
    def questions(self) -> tuple[AskApproval, ...]:
        """The questions that are open and that nobody has answered yet."""
        answered = {event.request for event in self.pending if isinstance(event, ApprovalGiven)}
        stopped = any(isinstance(event, Interrupted) for event in self.pending)
        asked = () if self.machine is None or stopped else questions(self.machine)
        return tuple([question for question in asked if question.id not in answered])

    def knows(self, sender: str) -> bool:
        """Whether an input with the id *sender* came before."""
        received = () if self.machine is None else self.machine.memory.received
        return sender in received or any(getattr(event, "id", None) == sender for event in self.pending)

    async def read(self) -> None:
        """Read what is new in the journal; all of it, where what is here is not what it says."""
        if self._store is None:
            return
        # The converter costs more to set up than the rest of the engine together.
        from .journal import Folded, Journal, fold  # noqa: PLC0415  # only with a store

        known = 0 if self.stale or self._journal is None else self._journal.length
        entries = await self._store.load(self.session, known)
        self.stale = True  # until all of that is understood
        before = Folded(self.machine, self.pending) if known else Folded()
        folded = fold(entries, self.session, before, known)
        self.machine, self.pending = folded.machine, folded.posted
        if self._journal is None or not known:
            self._journal = Journal(self._store, self.session, len(entries), self._arrived)
        else:
            self._journal.length += len(entries)
        self.stale = False

    async def look(self) -> None:
        """See what others posted meanwhile; `StoreConflict` where somebody went on with the session."""
        if self._journal is not None:
            await self._journal.look()

    async def post(self, event: Post) -> bool:
        """Keep *event* and hand it to whoever drives; False where others posted first, which is here now."""
        if self._journal is not None and not await self._journal.post(event):
            return False
        self._arrived(event)
        return True

    def _arrived(self, event: Post) -> None:
        self.pending.append(event)
        if self.listener is not None:
            self.listener(event)

    async def open_run(self, run: str, config: Config, at: float) -> tuple[Effect, ...]:
        """Begin a run on what waits; what it says when it begins."""
        opened = RunOpened(at=at, run=run, config=config, version=VERSION)
        if self._journal is not None:
            await self._journal.write(opened)
        self.machine = Machine.open(opened, self.machine, self.pending)
        self.pending.clear()
        return self.machine.advance(at=at)

    async def take_over(self, config: Config, at: float) -> Machine:
        """Go on with the run that is not over, under *config*."""
        machine = self.machine
        if machine is None:
            raise UnknownSession(self.session)
        changed = None if machine.config == config else config
        if self._journal is not None:
            await self._journal.write(TakenOver(at=at, config=changed))
        if changed is not None:
            machine.reconfigure(changed)
        return machine

    # As the driver's keeper

    async def applied(self, event: Event, label: str) -> None:
        """Keep *event*, which led to the state *label*, before anything that follows from it is done."""
        self.pending = [posted for posted in self.pending if posted != event]
        if self._journal is not None:
            await self._journal.applied(event, label)

    async def flush(self) -> None:
        """Keep what was held back of a stream that is being left."""
        if self._journal is not None:
            await self._journal.flush()
