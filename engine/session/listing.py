"""The sessions of a store: what each is about, and which was the last one to work somewhere."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, final

import attrs

from ...effects.errors import (
    JournalError,
    StoreConflict,
    StoreError,
    TurnwheelError,
)
from ..codec import UNREADABLE, decode, encode
from ..journal.fold import fold
from ..journal.summary import (
    SessionKind,
    SessionStatus,
    SessionSummary,
    summarize,
)

if TYPE_CHECKING:
    from ...performers.stores.base import SessionInfo, Store


@final
@attrs.frozen(kw_only=True)
class Listed:
    """A stored session, its times in seconds since the epoch, and what it is *about*."""

    session: str
    created: float
    updated: float
    about: SessionSummary


async def listed(store: Store) -> tuple[Listed, ...]:
    """
    All sessions of *store*, last written first.

    One whose last writer did not say what it is about is read once, and what it is about is stored then. One
    that cannot be read is listed as that.
    """
    return tuple([await _described(store, info) for info in await store.list()])


async def latest(store: Store, cwd: str | os.PathLike[str]) -> str | None:
    """The session that was the last to work in the directory *cwd*, to go on with; None where none did."""
    here = _real(cwd)
    for found in await listed(store):
        told = found.about
        if told.kind is not SessionKind.CHILD and told.cwd and _real(told.cwd) == here:
            return found.session
    return None


def _real(folder: str | os.PathLike[str]) -> str:
    return os.path.realpath(folder)


async def described(store: Store, session: str) -> Listed | None:
    """*session* of *store*, as `listed` has it; None where it is not there."""
    for info in await store.list():
        if info.session == session:
            return await _described(store, info)
    return None


async def _described(store: Store, info: SessionInfo) -> Listed:
    return Listed(
        session=info.session, created=info.created, updated=info.updated, about=await _about(store, info)
    )


async def _about(store: Store, info: SessionInfo) -> SessionSummary:
    with suppress(JournalError):  # a newer version has more to say of it
        if info.about:
            told: SessionSummary = decode(info.about, SessionSummary)
            return told
    try:
        found = summarize(fold(await store.load(info.session), info.session), info.session)
    except (TurnwheelError, *UNREADABLE):
        # Whatever is written there must not hide the other sessions.
        return SessionSummary(state=SessionStatus.UNREADABLE)
    if not info.about:
        with suppress(StoreConflict, StoreError):  # somebody goes on with it, or nobody may write
            await store.append(info.session, info.length, (), encode(found, SessionSummary))
    return found


def parent_of(one: Listed) -> str:
    """The session that *one* is a child of, empty where it is none: a child is named after its parent."""
    parent = one.about.parent
    child = one.about.kind is SessionKind.CHILD and one.session.startswith(f"{parent}.")
    return parent if child else ""
