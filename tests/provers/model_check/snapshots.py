"""A snapshot restores the very machine, at each place that a search reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provers.steps import restore_from_snapshot

if TYPE_CHECKING:
    from provers.audit.run_auditor import Booked


def snapshot_faults(run: Booked) -> list[str]:
    """How the machine of *run* differs from the one that its snapshot restores."""
    restored = restore_from_snapshot(run.machine)
    return [] if restored == run.machine else [f"restored it is {restored}, it was {run.machine}"]
