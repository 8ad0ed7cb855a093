"""
What must hold of a machine that was written down and is read again: signed it is the same, else nobody's.

A snapshot that nobody signed may say whatever its writer wants. So it grants nothing: no question counts as
answered and no rule as granted, nothing is open, and what may have run is not begun unless it only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provers.audit.permission_oracle import Case
from turnwheel.effects.config import SideEffect
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.requests import RunAgent, RunTool
from turnwheel.engine.machine import Machine

if TYPE_CHECKING:
    from provers.audit.run_auditor import Booked

KEY = bytes(32)
"""What snapshots are signed with here, where there is nobody to deceive."""


def reread(machine: Machine) -> Machine:
    """*machine*, written down, signed, and read again."""
    return Machine.restore(machine.snapshot(KEY), machine.config, machine.memory.history, KEY)


def reread_faults(run: Booked) -> list[str]:
    """Whether the machine of *run* is the same when it was written down and read again."""
    again = reread(run.machine)
    return [] if again == run.machine else [f"read again it is {again}, it was {run.machine}"]


def distrusted_faults(run: Booked, at: float) -> list[str]:
    """Whether a snapshot of *run* that nobody signed grants anything to who goes on at the time *at*."""
    config, history = run.machine.config, run.machine.memory.history
    theirs = Machine.restore(run.machine.snapshot(), config, history)
    memory = theirs.memory
    chosen = (
        memory.session.model,
        memory.session.mode,
        memory.session.granted,
        memory.session.chosen,
        theirs.state.open,
    )
    due = (config.model.name, config.policy.mode, (), (), ())
    faults = [] if chosen == due else [f"nobody signed it, and it has {chosen}"]
    effects = () if theirs.done else theirs.advance(at=at)
    begun = [one for one in effects if isinstance(one, RunTool | RunAgent)]
    return faults + [fault for one in begun for fault in _begun(one, run)]


def _begun(request: RunTool | RunAgent, run: Booked) -> list[str]:
    """What is wrong with beginning *request*, about which nobody was asked, behind *run*."""
    config, entry = run.machine.config, run.ledger.calls.calls[request.call]
    spec = config.tool(entry.name)
    if spec is None:
        return [f"{request} is for a tool that is not there"]
    case = Case(config=config, spec=spec, given=entry.arguments, mode=config.policy.mode)
    faults = [] if case.verdict is Verdict.ALLOW else [f"{request} is begun, and nobody has allowed it"]
    may_have_run = (entry.started or entry.lost) and entry.ended is None
    if may_have_run and spec.side_effect is not SideEffect.READ_ONLY:
        faults.append(f"{request} is begun, and may have run before")
    return faults
