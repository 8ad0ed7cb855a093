"""
The engine: agents and sessions, the machine and its driver, the journal, and what can be read from it.

Theory of operation. `transition` and `advance` take one step; `Machine` holds state and memory and takes
steps from events. The `Driver` has requests performed and feeds the answers back. A `Session` runs many
machines over one journal, and an `Agent` makes sessions. `fold` rebuilds a session from its journal, and
`recover` continues a run whose process died. `replay`, `explain`, `bisect`, `costs` and `export` read only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent import Agent
    from .codec import decode, encode
    from .driver import Driver, EventSink, Performers
    from .inspect.bisect import Divergence
    from .inspect.costs import Costs, ModelCosts
    from .inspect.explain import Explanation, Moment
    from .inspect.fork import ForkPoint, Replacement
    from .inspect.replay import ReplayedStep, replayed
    from .inspect.run_tree import RunInfo, RunTree, runs_of
    from .journal.encoding import decode_entry, encode_entry
    from .journal.entries import Entry
    from .journal.fold import SessionState, fold
    from .journal.summary import SessionKind, SessionStatus, SessionSummary
    from .machine import Machine, advance, drive, transition
    from .prices import price_of
    from .recovery import Recovery, recover
    from .session.archive import bisect, bisect_versions, costs, delete, explain, export, prune, replay
    from .session.delivery import Delivery
    from .session.environment import Result, Titles
    from .session.listing import Listed, described, latest, listed
    from .session.session import Handle, Session
    from .session.singleton import Singleton
    from .snapshots import Snapshot

__all__ = [
    "Agent",
    "Costs",
    "Delivery",
    "Divergence",
    "Driver",
    "Entry",
    "EventSink",
    "Explanation",
    "ForkPoint",
    "Handle",
    "Listed",
    "Machine",
    "ModelCosts",
    "Moment",
    "Performers",
    "Recovery",
    "Replacement",
    "ReplayedStep",
    "Result",
    "RunInfo",
    "RunTree",
    "Session",
    "SessionKind",
    "SessionState",
    "SessionStatus",
    "SessionSummary",
    "Singleton",
    "Snapshot",
    "Titles",
    "advance",
    "bisect",
    "bisect_versions",
    "costs",
    "decode",
    "decode_entry",
    "delete",
    "described",
    "drive",
    "encode",
    "encode_entry",
    "explain",
    "export",
    "fold",
    "latest",
    "listed",
    "price_of",
    "prune",
    "recover",
    "replay",
    "replayed",
    "runs_of",
    "transition",
]

_MODULES = {
    "agent": ("Agent",),
    "codec": ("decode", "encode"),
    "driver": ("Driver", "EventSink", "Performers"),
    "inspect.bisect": ("Divergence",),
    "inspect.costs": ("Costs", "ModelCosts"),
    "inspect.explain": ("Explanation", "Moment"),
    "inspect.fork": ("ForkPoint", "Replacement"),
    "inspect.replay": ("ReplayedStep", "replayed"),
    "inspect.run_tree": ("RunInfo", "RunTree", "runs_of"),
    "journal.encoding": ("decode_entry", "encode_entry"),
    "journal.entries": ("Entry",),
    "journal.fold": ("SessionState", "fold"),
    "journal.summary": ("SessionKind", "SessionStatus", "SessionSummary"),
    "machine": ("Machine", "advance", "drive", "transition"),
    "prices": ("price_of",),
    "recovery": ("Recovery", "recover"),
    "session.archive": (
        "bisect",
        "bisect_versions",
        "costs",
        "delete",
        "explain",
        "export",
        "prune",
        "replay",
    ),
    "session.delivery": ("Delivery",),
    "session.environment": ("Result", "Titles"),
    "session.listing": ("Listed", "described", "latest", "listed"),
    "session.session": ("Handle", "Session"),
    "session.singleton": ("Singleton",),
    "snapshots": ("Snapshot",),
}

if not TYPE_CHECKING:  # a type checker would let every name through

    def __getattr__(name: str) -> object:
        """Import the module of *name*: one who reads a journal needs no sessions."""
        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(f".{module}", __name__), name)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


def __dir__() -> list[str]:
    return __all__
