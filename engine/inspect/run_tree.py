"""The runs of a session and how they follow each other: a tree, since a person can go back to any end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

import attrs

from ...effects.notices import DoneReason
from ...effects.usage import Spent
from ...performers.slices import Slices
from ...states.state import Done
from ..core.machine import Machine
from ..journal.entries import Branched, Entry, Forked, RunOpened, Stepped
from ..journal.fold import SessionState, initial_state, read


@final
@attrs.frozen(kw_only=True)
class RunInfo:
    """
    A run, which began *at* seconds since the epoch and goes on from *parent*, empty for the beginning.

    *prompt* is the beginning of its prompt, *reason* why it ended, None while it goes on. *head*: no other
    run goes on from it. *current*: the session stands there. *copied*: it ran in the session that this one is
    a fork of, whose account has what it *spent*. A run copied in its middle has only the spend here.
    """

    run: str
    parent: str
    prompt: str
    at: float
    reason: DoneReason | None = None
    spent: Spent = Spent()
    head: bool = True
    current: bool = False
    copied: bool = False


async def runs_of(entries: Sequence[bytes], session: str) -> tuple[RunInfo, ...]:
    """
    The runs in the journal *entries* of *session*, in the order they began.

    Raises `JournalError` for what cannot be read.
    """
    # Folded, since a journal names the parent of no run: it follows from the branches in between.
    tree, state = RunTree(), initial_state(entries)
    async for entry, _ in Slices(read(entries, session, state)):
        # At each entry and not at the end: the state knows only where it stands now.
        tree.follow(entry, state)
    return tree.runs()


@final
class RunTree:
    """The runs of a journal, as its entries are read."""

    def __init__(self) -> None:
        # A dict keeps the order of insertion, which is the order in which runs began.
        self._runs: dict[str, RunInfo] = {}
        # Empty for the beginning, as in an entry that goes back there.
        self._here = ""
        self._copied: dict[str, Spent] = {}

    def follow(self, entry: Entry, state: SessionState) -> None:
        """Take in *entry*, which was just applied to *state*."""
        if isinstance(entry, RunOpened):
            # The entry is applied already, so the state knows the prompt that this run took.
            run = RunInfo(run=entry.run, parent=self._here, prompt=state.prompt, at=entry.at)
            self._runs[entry.run] = run
        if isinstance(entry, RunOpened | Branched):
            # Going back is no run: it only says what the next one goes on from.
            self._here = entry.run
        elif isinstance(entry, Forked):
            self._fork(entry.run, state)
        # A posted entry changes no account, and neither do the others.
        elif isinstance(entry, Stepped):
            # Only a machine takes steps.
            self._account(cast("Machine", state.machine))

    def _fork(self, run: str, state: SessionState) -> None:
        """Mark the runs so far as copied; one in its middle goes on here as *run*, in the same place."""
        # Taken out and put back last: runs are listed in the order they began, and here it begins now.
        mine = self._runs.pop(self._here) if run else None
        self._runs = {name: attrs.evolve(info, copied=True) for name, info in self._runs.items()}
        if mine is not None:
            # Its spend begins at nothing, for what came before is on the original's bill.
            self._runs[run] = attrs.evolve(mine, run=run, spent=Spent())
            # Only the latest fork counts: what an earlier one copied is within the sum that this one copied.
            self._here, self._copied = run, {run: state.copied_spent}

    def _account(self, machine: Machine) -> None:
        """Enter how *machine*'s run stands."""
        over, run = machine.state, machine.memory.run
        reason = over.reason if isinstance(over, Done) else None
        # A copied run remembers its earlier spend, for its limits; the original's bill has that already.
        spent = machine.memory.spent - self._copied.get(run, Spent())
        # At each step anew: a process that is lost leaves no entry that says so.
        self._runs[run] = attrs.evolve(self._runs[run], reason=reason, spent=spent)

    def runs(self) -> tuple[RunInfo, ...]:
        """All runs, in the order they began."""
        # Found at the end, since a branch may come back to any run at any time.
        parents = {info.parent for info in self._runs.values()}
        return tuple(
            [
                attrs.evolve(info, head=run not in parents, current=run == self._here)
                for run, info in self._runs.items()
            ]
        )
