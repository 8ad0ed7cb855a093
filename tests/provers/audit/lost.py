"""
What must hold of a call that may have run when its process was lost.

It runs again only after a person's yes to just that, and its result never says that it did not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from provers.audit.endings import faulty
from provers.steps import stopping
from turnwheel.effects.config import OnLost
from turnwheel.effects.events import ToolLost
from turnwheel.effects.permissions import PermissionMode, Verdict
from turnwheel.effects.requests import AskApproval, RunTool
from turnwheel.states.batch.batch import Stopping

if TYPE_CHECKING:
    from provers.audit.endings import Entry
    from provers.audit.permission_oracle import Case
    from turnwheel.effects.notices import CallJudged
    from turnwheel.effects.requests import Request
    from turnwheel.engine.inspect.transitions import Transition


def lost_call(now: Transition, answered: Request | None) -> str:
    """The call of which it is told in *now* that it may have run, empty for none; *answered* is closed."""
    return answered.call if isinstance(now.event, ToolLost) and isinstance(answered, RunTool) else ""


def asks_again(now: Transition, call: str) -> bool:
    """Whether a person is asked in *now* whether *call* runs again."""
    asked = [one.call for one in now.effects if isinstance(one, AskApproval) and one.again]
    return call in asked


def due(now: Transition, entry: Entry, case: Case | None, offered: tuple[str, ...], *, stopped: bool) -> bool:
    """
    Whether a person is to be asked about *entry*, which may have run.

    *case* is what counts for it, None for a tool that is gone; *stopped*: it was told to stop before.
    """
    if now.config.policy.on_lost is not OnLost.ASK or case is None or case.mode is PermissionMode.DONT_ASK:
        return False
    given_up = stopped or stopping(now.state) > Stopping.DENIED
    return not (given_up or case.denied or faulty(entry, offered, now.config))


def judged_faults(judged: CallJudged, now: Transition) -> list[str]:
    """Whether *judged* can be that somebody is asked about a call that may have run."""
    right = isinstance(now.event, ToolLost) and judged.verdict is Verdict.ASK
    return [] if right else [f"{judged} after {now.event}"]
