"""
Lists the sessions of a store with their summaries, and finds the latest one of a directory.

Theory of operation. A store may have a hundred thousand sessions. They are read and decoded page by page, and
between two pages the store does the appends that wait, and the event loop what others want of it. A full
garbage collection holds up the loop while it visits all tracked objects, and a decoded summary has four. So a
`Listed` keeps its summary as bytes, and is not tracked.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, final

import msgspec

from ...effects.errors import JournalError, SessionGone, StoreConflict, StoreError, TurnwheelError
from ...performers.slices import Slices
from ...performers.stores.base import checked_store
from ..core.codec import UNREADABLE, decode, encode
from ..journal.stored_checkpoints import fold_in_slices
from ..journal.summary import SessionKind, SessionStatus, SessionSummary, summarize

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ...performers.stores.base import SessionInfo, Store

# Sessions that are read, decoded and looked at between two turns of the event loop: about 4 ms.
PAGE = 200

# Behind the name of a session, that of the journal in which a server notes what it answered about it. As that
# of a child it goes with the session; it is none, and no call has this sign in its id.
NOTES = ".#keys"


@final
class Listed(msgspec.Struct, kw_only=True, frozen=True, gc=False):
    """
    A stored session: its times in seconds since the epoch, its encoded summary as *row*, its *length*.

    Of two, the one that was written last has the higher *stamp*. *incarnation* tells it from others that had
    or will have its name.
    """

    session: str
    created: float
    updated: float
    row: bytes
    length: int = 0
    stamp: int = 0
    incarnation: str = ""

    @property
    def about(self) -> SessionSummary:
        """The summary, decoded."""
        return _decoded(self.row)


# Two pages: a caller looks at the summaries of one page before it reads the next one.
@lru_cache(2 * PAGE)
def _decoded(row: bytes) -> SessionSummary:
    summary: SessionSummary = decode(row, SessionSummary)
    return summary


async def listed(
    store: Store | None, limit: int | None = None, after: int | None = None, prefix: str = ""
) -> tuple[Listed, ...]:
    """
    The sessions of *store* whose names begin with *prefix*, last written first; none where it is None.

    At most *limit* of them, and only those behind the stamp *after*: with the stamp of the last one, the next
    page follows. A session without a summary is read once, and the summary stored. An unreadable session is
    listed as such.
    """
    if store is None:
        return ()
    found: list[Listed] = []
    async with aclosing(_pages(store, limit, after, prefix)) as pages:
        async for page in pages:
            found += page
            if limit is not None and len(found) >= limit:
                return tuple(found[:limit])
    # What was written while several pages were read has moved to the front.
    news = found if after is None else []
    while len(news) > PAGE and (news := await newer(store, found[0].stamp, prefix)):
        moved = {one.session for one in news}
        found = [*news, *[one async for one in Slices(found, PAGE) if one.session not in moved]]
    return tuple(found)


async def each_listed(store: Store, prefix: str = "") -> AsyncGenerator[Listed, None]:
    """As `listed`, each as soon as its page was read; one that is written meanwhile may come twice."""
    newest: int | None = None
    async with aclosing(_pages(store, None, None, prefix)) as pages:
        async for page in pages:
            newest = page[0].stamp if newest is None else newest
            for one in page:
                yield one
    # What was written meanwhile has moved to the front, perhaps before its page was read.
    for one in [] if newest is None else await newer(store, newest, prefix):
        yield one


async def newer(store: Store, stamp: int, prefix: str = "", expected: int = PAGE) -> list[Listed]:
    """The sessions that were written since the one with this *stamp* was, quickest where *expected* were."""
    found: list[Listed] = []
    async with aclosing(_pages(store, expected, None, prefix)) as pages:
        async for page in pages:
            found += [one for one in page if one.stamp > stamp]
            if page[-1].stamp <= stamp:
                break
    return found


async def _pages(
    store: Store, limit: int | None, after: int | None, prefix: str
) -> AsyncGenerator[list[Listed], None]:
    """The sessions of *store*, as `listed` has them and perhaps a few more, in pages that are not empty."""
    checked_store(store)
    size = PAGE if limit is None else min(limit, PAGE)
    while infos := await store.list(size, after, prefix):
        # A store in memory answers at once.
        await asyncio.sleep(0)
        yield [await _described(store, info) for info in infos]
        if len(infos) < size:
            break
        after = infos[-1].stamp


async def latest(store: Store, cwd: str | os.PathLike[str]) -> str | None:
    """The session that worked last in the directory *cwd*; None where there is none."""
    # Real paths: a person may reach one directory through a link today and directly tomorrow. Many sessions
    # share one, and each look takes a call of the system for each folder in it.
    real = cache(os.path.realpath)
    here = real(os.fspath(cwd))
    async with aclosing(each_listed(store)) as rows:
        async for found in rows:
            summary = found.about
            # A child works in its parent's directory and is written last, but only its parent can go on with
            # it.
            if summary.kind is not SessionKind.CHILD and summary.cwd and real(summary.cwd) == here:
                return found.session
    return None


async def described(store: Store, session: str) -> Listed | None:
    """*session* of *store*, as `listed` has it; None where it does not exist."""
    checked_store(store)
    info = await store.info(session)
    return None if info is None else await _described(store, info)


async def _described(store: Store, info: SessionInfo) -> Listed:
    return Listed(
        session=info.session,
        created=info.created,
        updated=info.updated,
        row=await _row(store, info),
        length=info.length,
        stamp=info.stamp,
        incarnation=info.incarnation,
    )


async def _row(store: Store, info: SessionInfo) -> bytes:
    """The summary of the session *info*, encoded; it can be decoded."""
    # A row that a newer version wrote may not decode here, and its journal may still: so a row that cannot
    # be read is no reason to give up.
    with suppress(JournalError):
        if info.about:
            _decoded(info.about)
            return info.about
    try:
        entries = await store.load(info.session, incarnation=info.incarnation)
        # A journal may be short, and there may be many.
        await asyncio.sleep(0)
        summary = summarize(await fold_in_slices(entries, info.session), info.session)
    except StoreError:
        raise
    except (TurnwheelError, *UNREADABLE):
        # One damaged journal must not hide the other sessions.
        return encode(SessionSummary(state=SessionStatus.UNREADABLE), SessionSummary)
    row = encode(summary, SessionSummary)
    # Only where there was none: a row of a newer version says more than this one can write.
    if not info.about:
        # The append is empty and names the length that was listed: it loses against any process that writes
        # meanwhile, and a read-only store refuses it. Either way the list is right, only slower next time.
        with suppress(StoreConflict, SessionGone, StoreError):
            await store.append(info.session, info.length, (), row, info.incarnation)
    return row


def parent_of(one: Listed) -> str:
    """The session that *one* is a child of, empty where it is none."""
    parent = one.about.parent
    # The name decides, too: a child agent's session under a name without a parent would be its own parent.
    child = one.about.kind is SessionKind.CHILD and one.session.startswith(f"{parent}.")
    return parent if child else ""
