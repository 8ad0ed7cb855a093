"""A session as one JSON document that needs nothing of this library to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...effects.messages import Message, Role, ToolResult
from ...effects.records import AppendMessage, ReplaceHistory
from ...effects.requests import CallModel
from ...performers.slices import Slices
from ..core.codec import converter
from ..journal.entries import Forked, RunOpened
from ..journal.fold import initial_state, read
from ..journal.summary import SessionSummary
from .run_tree import RunTree

# In every document, so that a file says what it is when its name is lost.
FORMAT = "turnwheel session"

# The version of an exported document; see `entries.VERSION` for when to raise it.
FORMAT_VERSION = 1


async def export_entries(
    entries: Sequence[bytes], session: str, about: SessionSummary, *, created: float, updated: float
) -> bytes:
    """
    The document of *session*, whose journal *entries* are.

    ``format`` and ``version`` name the format; ``session``, ``created`` and ``updated`` (seconds since the
    epoch) the session. ``about`` is its summary: kind, parent, title, spend (tokens, and USD as text),
    directory and status. ``runs`` are all runs of all branches in the order they began. Each has its
    ``parent`` (the run it goes on from, empty for the beginning), the beginning of its ``prompt``, its
    ``reason``, what it ``spent``, and whether it is a ``head`` and the ``current`` one. ``messages`` are all
    messages ever appended, in order, those included that a summary stands for: each with its ``id``, its
    ``parent`` (the message before it on its branch, empty for the first), ``session``, ``run``, ``role``,
    ``at``, and ``parts`` that have a ``type`` (the content of a file is Base64). A ``ToolResult`` has its
    ``outcome``, such as ``ok``, ``denied`` or ``crashed``, and ``is_error``, which is false for ``ok`` alone.
    The id of an answer is that of its request; others are numbered behind the request or run that they
    follow. One with ``summary`` true was written by a compaction: the model saw it in place of older ones.
    Settings, events and notices are left out. Children are sessions of their own.
    """
    # Messages are read from the effects: the history at the end lacks other branches and what was summarised.
    tree, state = RunTree(), initial_state(entries)
    messages: list[dict[str, Any]] = []
    before = after = ""
    number = 0
    async for entry, effects in Slices(read(entries, session, state)):
        tree.follow(entry, state)
        # After the entry is applied: the first messages of a run come with the entry that opens it.
        run = "" if state.machine is None else state.machine.memory.run
        if isinstance(entry, Forked) and entry.run:
            # The run goes on under another name here, and `runs` knows only that one.
            for message in messages:
                message["run"] = run if message["run"] == before else message["run"]
        # The name until now: the entry of a fork has a new one, and the messages have the old one.
        before = run
        if isinstance(entry, RunOpened):
            after, number = run, 0
        for effect in effects:
            if isinstance(effect, CallModel):
                after, number = effect.id, 0
            # The older messages stay: a summary changes what the model sees, not what happened. It has the
            # role of a user.
            summary = isinstance(effect, ReplaceHistory)
            made = effect.head if isinstance(effect, ReplaceHistory) else ()
            for each in (effect.message,) if isinstance(effect, AppendMessage) else made:
                answers = each.role is Role.ASSISTANT
                number += not answers
                name = after if answers else f"{after}.{number}"
                of = {"id": name, "session": session, "run": run, "summary": summary}
                messages.append({**of, **_exported(each)})
    runs = tree.runs()
    _add_parents(messages, {each.run: each.parent for each in runs})
    document = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "session": session,
        "created": created,
        "updated": updated,
        "about": about,
        "runs": runs,
    }
    # Message by message: all at once would hold up the event loop.
    said = [_indented(message).replace(b"\n", b"\n  ") async for message in Slices(messages)]
    head = _indented(document).removesuffix(b"\n}") + b',\n "messages": [\n  '
    return head + b",\n  ".join(said) + b"\n ]\n}"


def _exported(message: Message) -> dict[str, Any]:
    # By the converter: msgspec alone would leave out the types of the parts.
    made: dict[str, Any] = converter.unstructure(message, Message)
    for part, plain in zip(message.parts, made["parts"], strict=True):
        # The converter leaves out "ok", which is the default.
        if isinstance(part, ToolResult):
            plain |= {"outcome": part.outcome, "is_error": part.is_error}
    return made


def _indented(value: object) -> bytes:
    """*value* as JSON for people, and for a comparison line by line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def _add_parents(messages: list[dict[str, Any]], parents: Mapping[str, str]) -> None:
    """Add to each of *messages* its parent; *parents* are those of the runs."""
    ends: dict[str, str] = {}
    for message in messages:
        run = message["run"]
        # A run that begins has the end of the run it goes on from, which may have had no message either.
        while run and run not in ends:
            run = parents.get(run, "")
        message["parent"] = ends.get(run, "")
        ends[message["run"]] = message["id"]
