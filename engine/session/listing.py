"""Lists the sessions of a store with their summaries, and finds the latest one of a directory."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import JournalError, SessionGone, StoreConflict, StoreError, TurnwheelError
from ..codec import UNREADABLE, decode, encode
from ..journal.fold import fold
from ..journal.summary import SessionKind, SessionStatus, SessionSummary, summarize

if TYPE_CHECKING:
    from ...performers.stores.base import SessionInfo, Store


@final
@attrs.frozen(kw_only=True)
class Listed:
    """A stored session: its times in seconds since the epoch, and the summary of what it is *about*."""

    session: str
    created: float
    updated: float
    about: SessionSummary


async def listed(store: Store) -> tuple[Listed, ...]:
    """
    All sessions of *store*, last written first.

    A session without a summary is read once, and the summary stored. An unreadable session is listed as such.
    """
    return tuple([await _described(store, info) for info in await store.list()])


async def latest(store: Store, cwd: str | os.PathLike[str]) -> str | None:
    """The session that worked last in the directory *cwd*; None where there is none."""
    # Real paths: a person may reach one directory through a link today and directly tomorrow.
    here = _real(cwd)
    for found in await listed(store):
        summary = found.about
        # A child works in its parent's directory and is written last, but only its parent can go on with it.
        if summary.kind is not SessionKind.CHILD and summary.cwd and _real(summary.cwd) == here:
            return found.session
    return None


def _real(folder: str | os.PathLike[str]) -> str:
    return os.path.realpath(folder)


async def described(store: Store, session: str) -> Listed | None:
    """*session* of *store*, as `listed` has it; None where it does not exist."""
    for info in await store.list():
        if info.session == session:
            return await _described(store, info)
    return None


async def _described(store: Store, info: SessionInfo) -> Listed:
    summary = await _summary(store, info)
    return Listed(session=info.session, created=info.created, updated=info.updated, about=summary)


async def _summary(store: Store, info: SessionInfo) -> SessionSummary:
    # A row that a newer version wrote may not decode here, and its journal may still: so a row that cannot
    # be read is no reason to give up.
    with suppress(JournalError):
        if info.about:
            row: SessionSummary = decode(info.about, SessionSummary)
            return row
    try:
        found = summarize(fold(await store.load(info.session), info.session), info.session)
    except (TurnwheelError, *UNREADABLE):
        # One damaged journal must not hide the other sessions.
        return SessionSummary(state=SessionStatus.UNREADABLE)
    # Only where there was none: a row of a newer version says more than this one can write.
    if not info.about:
        # The append is empty and names the length that was listed: it loses against any process that writes
        # meanwhile, and a read-only store refuses it. Either way the list is right, only slower next time.
        with suppress(StoreConflict, SessionGone, StoreError):
            about = encode(found, SessionSummary)
            await store.append(info.session, info.length, (), about, info.incarnation)
    return found


def parent_of(one: Listed) -> str:
    """The session that *one* is a child of, empty where it is none."""
    parent = one.about.parent
    # The name decides, too: a child agent's session under a name without a parent would be its own parent.
    child = one.about.kind is SessionKind.CHILD and one.session.startswith(f"{parent}.")
    return parent if child else ""
