"""
The engine: agents and sessions, the machine and its driver, the journal, and what can be read from it.

Theory of operation. `transition` and `advance` take one step; `Machine` holds state and memory and takes
steps from events. The `Driver` has requests performed and feeds the answers back. A `Session` runs many
machines over one journal, and an `Agent` makes sessions. `fold` rebuilds a session from its journal, and
`recover` continues a run whose process died. `moves`, `preview`, `replay`, `explain`, `bisect`, `costs` and
`export` read only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .codec import decode as decode, encode as encode
    from .driver import Driver as Driver, EventSink as EventSink, Performers as Performers
    from .inspect.bisect import Divergence as Divergence
    from .inspect.costs import Costs as Costs, ModelCosts as ModelCosts
    from .inspect.explain import Explanation as Explanation, Moment as Moment
    from .inspect.fork import ForkPoint as ForkPoint, Replacement as Replacement
    from .inspect.moves import (
        LegalMove as LegalMove,
        Preview as Preview,
        moves as moves,
        preview as preview,
    )
    from .inspect.pictures import PictureKind as PictureKind, picture_of as picture_of
    from .inspect.replay import ReplayedStep as ReplayedStep, path_of as path_of, replayed as replayed
    from .inspect.run_tree import RunInfo as RunInfo, RunTree as RunTree, runs_of as runs_of
    from .journal.encoding import decode_entry as decode_entry, encode_entry as encode_entry
    from .journal.entries import Entry as Entry
    from .journal.fold import SessionState as SessionState, fold as fold
    from .journal.summary import (
        Activity as Activity,
        SessionKind as SessionKind,
        SessionStatus as SessionStatus,
        SessionSummary as SessionSummary,
    )
    from .machine import Machine as Machine, advance as advance, drive as drive, transition as transition
    from .prices import price_of as price_of
    from .recovery import Recovery as Recovery, recover as recover
    from .session.archive import (
        bisect as bisect,
        bisect_versions as bisect_versions,
        costs as costs,
        delete as delete,
        explain as explain,
        export as export,
        prune as prune,
        replay as replay,
    )
    from .session.delivery import Delivery as Delivery
    from .session.environment import Result as Result, Titles as Titles
    from .session.listing import Listed as Listed, described as described, latest as latest, listed as listed
    from .session.session import Handle as Handle, Session as Session
    from .session.singleton import Singleton as Singleton
    from .session.watching import Watched as Watched
    from .snapshots import Snapshot as Snapshot

_MODULES = {
    "agent": ("Agent",),
    "codec": ("decode", "encode"),
    "driver": ("Driver", "EventSink", "Performers"),
    "inspect.bisect": ("Divergence",),
    "inspect.costs": ("Costs", "ModelCosts"),
    "inspect.explain": ("Explanation", "Moment"),
    "inspect.fork": ("ForkPoint", "Replacement"),
    "inspect.moves": ("LegalMove", "Preview", "moves", "preview"),
    "inspect.pictures": ("PictureKind", "picture_of"),
    "inspect.replay": ("ReplayedStep", "path_of", "replayed"),
    "inspect.run_tree": ("RunInfo", "RunTree", "runs_of"),
    "journal.encoding": ("decode_entry", "encode_entry"),
    "journal.entries": ("Entry",),
    "journal.fold": ("SessionState", "fold"),
    "journal.summary": ("Activity", "SessionKind", "SessionStatus", "SessionSummary"),
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
    "session.watching": ("Watched",),
    "snapshots": ("Snapshot",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
