"""What becomes of sessions in the end: they are taken out, deleted, or pruned when they are old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...effects.errors import UnknownSession
from ...effects.messages import Message
from ...effects.records import AppendMessage, ReplaceHistory
from ..codec import converter
from ..journal.entries import Forked
from ..journal.fold import beginning, read
from ..journal.summary import SessionStatus
from ..session.listing import described, listed, parent_of
from .run_tree import RunTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ...performers.stores.base import Store
    from ..session.listing import Listed

FORMAT = "turnwheel session"

FORMAT_VERSION = 1
"""The version of what `export` writes; see `entries.VERSION` for when to raise it."""


async def export(store: Store, session: str) -> bytes:
    """
    *session* of *store* as one JSON document, which needs nothing of this library to be read.

    ``format`` and ``version`` say what it is; ``session``, ``created`` and ``updated`` (seconds since the
    epoch) which one. ``about`` is its description: kind, parent, title, what it spent (tokens, and USD as
    text), where it worked and how it stands. ``runs`` are all runs of all branches in the order they began,
    each with its ``parent`` (the run it goes on from, empty for the beginning), the beginning of its
    ``prompt``, its ``reason``, what it ``spent``, and whether it is a ``head`` and the ``current`` one.
    ``messages`` are all that were ever said, in the order they were, those included that a summary stands
    for: each with its ``run``, ``role``, ``at``, and ``parts`` that have a ``type`` (the content of a file is
    Base64). One with ``summary`` true was written by the compaction and took the place of older ones in what
    the model was shown. Settings, events and notices are left out.

    Children are sessions of their own. Raises `UnknownSession`, and `JournalError` for what cannot be read.
    """
    found = await described(store, session)
    if found is None:
        raise UnknownSession(session)
    entries = await store.load(session)
    tree, folded = RunTree(), beginning(entries)
    messages: list[dict[str, Any]] = []
    before = ""
    for entry, effects in read(entries, session, folded):
        tree.follow(entry, folded)
        run = "" if folded.machine is None else folded.machine.memory.run
        if isinstance(entry, Forked) and entry.run:
            mine = [message for message in messages if message["run"] == before]
            for message in mine:
                message["run"] = run  # it goes on here under another name
        before = run
        for effect in effects:
            if isinstance(effect, AppendMessage):
                messages.append(_plain(effect.message, run, summary=False))
            elif isinstance(effect, ReplaceHistory):
                messages += [_plain(message, run, summary=True) for message in effect.head]
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "session": session,
        "created": found.created,
        "updated": found.updated,
        "about": found.about,
        "runs": tree.runs(),
        "messages": messages,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _plain(message: Message, run: str, *, summary: bool) -> dict[str, Any]:
    return {"run": run, "summary": summary, **converter.unstructure(message, Message)}


async def delete(store: Store, session: str) -> int:
    """
    Delete *session* of *store*, with its children and theirs; how many sessions that were.

    Forks of it stay. A store does not know whether a session is being driven: whoever does that is told at
    its next write that the session has changed, and it ends there.
    """
    members = _family(session, _by_parent(await listed(store)))
    return sum([await store.delete(member) for member in members])


async def prune(
    store: Store, older_than: float, now: float, *, keep_unfinished: bool = True
) -> tuple[str, ...]:
    """
    Delete the sessions of *store* that nobody has written to for *older_than* seconds; which ones.

    A child goes with its parent, when both are old enough, and never alone, unless its parent is gone. Where
    *keep_unfinished*, those stay with their families that rest, are not over, have prompts waiting or cannot
    be read. *now* is in seconds since the epoch.
    """
    sessions = await listed(store)
    known, children = {one.session: one for one in sessions}, _by_parent(sessions)
    gone: list[str] = []
    for first in sessions:
        if parent_of(first) in known:
            continue
        family = [known[member] for member in _family(first.session, children)]
        # A child goes on with its parent or never, so what it was in the middle of does not count.
        done = first.about.state is SessionStatus.IDLE and not first.about.prompts
        done = done and all(one.about.state is not SessionStatus.UNREADABLE for one in family)
        if all(one.updated < now - older_than for one in family) and (done or not keep_unfinished):
            gone += [one.session for one in family if await store.delete(one.session)]
    return tuple(gone)


def _by_parent(sessions: Iterable[Listed]) -> dict[str, list[str]]:
    """The children among *sessions*, by their parents."""
    found: dict[str, list[str]] = {}
    for one in sessions:
        if parent := parent_of(one):
            found.setdefault(parent, []).append(one.session)
    return found


def _family(session: str, children: Mapping[str, list[str]]) -> list[str]:
    """*session* behind its children and theirs: where deleting them is cut short, the rest is still one."""
    below = [member for child in children.get(session, ()) for member in _family(child, children)]
    return [*below, session]
