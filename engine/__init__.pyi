from .agent import Agent as Agent
from .core.codec import decode as decode, encode as encode
from .core.machine import Machine as Machine, advance as advance, drive as drive, transition as transition
from .core.recovery import Recovery as Recovery, recover as recover
from .core.snapshots import Snapshot as Snapshot
from .driver import Driver as Driver, StepSink as StepSink
from .inspect.archive import (
    bisect as bisect,
    bisect_versions as bisect_versions,
    costs as costs,
    delete as delete,
    explain as explain,
    export as export,
    prune as prune,
    replay as replay,
)
from .inspect.bisect import Divergence as Divergence
from .inspect.costs import Costs as Costs, ModelCosts as ModelCosts
from .inspect.explain import Explanation as Explanation, Moment as Moment
from .inspect.fork import ForkPoint as ForkPoint, Replacement as Replacement
from .inspect.listing import Listed as Listed, described as described, latest as latest, listed as listed
from .inspect.moves import LegalMove as LegalMove, Preview as Preview, moves as moves, preview as preview
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
from .session.completed_texts import Delivery as Delivery
from .session.environment import OnHostError as OnHostError, Result as Result, Titles as Titles
from .session.handle import Handle as Handle
from .session.run_stream import OnLeave as OnLeave
from .session.session import Session as Session
from .session.watching import Watched as Watched
