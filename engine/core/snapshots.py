"""
A machine as bytes, without what is kept elsewhere: its history and its configuration.

A snapshot says what was allowed, so it is as trusted as the place where it is stored.
"""

from __future__ import annotations

from typing import Any, TypeVar, final

import attrs
import msgspec

from ... import effects, states
from ...effects.history import History
from ...states.context import AsConfigured, ConversationMemory, NotBegun, RunProgress, SessionMemory
from ..journal.entries import VERSION
from .codec import UNREADABLE, decode, encode

NAME = "this snapshot"

M = TypeVar("M", states.Memory, SessionMemory, ConversationMemory, RunProgress)


class _Versioned(msgspec.Struct):
    """As much of a snapshot as any version can read."""

    version: int


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """A machine's *state* and memory; *length* and *revision* say which history it goes with."""

    # No field has a default: a missing field is an error and not a guess.
    version: int
    state: states.State
    length: int
    revision: int
    run: str
    model: str
    next_id: int
    size: int
    spent: effects.Spent
    mode: effects.PermissionMode
    thinking: effects.SetThinking | AsConfigured
    instructions: effects.SetInstructions | NotBegun
    mail: tuple[states.Mail, ...]
    received: tuple[str, ...]
    standing: tuple[str, ...]
    pending_context: tuple[str, ...]
    granted: tuple[effects.GrantRule, ...]
    compactions: int
    compaction_failures: int
    continues: int
    outputs: int
    pauses: int
    chosen: tuple[str, ...]
    fallback: str
    cleared: int
    results: int
    withdrawn: tuple[effects.WithdrawTool, ...]
    earlier: effects.Spent
    max_output: int
    stopped: effects.DoneReason
    summarised: tuple[effects.Message, ...]
    ceiling: effects.PermissionMode
    session_id: str


def dump(state: states.State, memory: states.Memory) -> bytes:
    """*state* and *memory* as JSON."""
    return encode(flat(state, memory), Snapshot)


def load(data: bytes, history: History) -> tuple[states.State, states.Memory]:
    """
    The state and memory that `dump` wrote, over *history*.

    Raises `NewerVersion` for a snapshot of a newer turnwheel, and `JournalError` for other bytes, or where
    the snapshot belongs to another history.
    """
    _check_version(data)
    snapshot: Snapshot = decode(data, Snapshot, NAME)
    if (snapshot.length, snapshot.revision) != (len(history), history.revision):
        msg = (
            f"this snapshot goes with {snapshot.length} messages at revision {snapshot.revision}, "
            f"not with {history!r}"
        )
        raise effects.JournalError(msg)
    return snapshot.state, grouped(snapshot, history)


# A snapshot is flat: a field may move to another group of the memory. So no two groups have a field of the
# same name.


def flat(state: states.State, memory: states.Memory) -> Snapshot:
    """The snapshot with the fields of *memory* and its groups."""
    fields: dict[str, Any] = {
        "version": VERSION,
        "state": state,
        "length": len(memory.history),
        "revision": memory.history.revision,
    }
    for part in (memory, memory.session, memory.conversation, memory.progress):
        # Not `asdict`, which would take rules and mail apart as well.
        fields |= {field.name: getattr(part, field.name) for field in attrs.fields(part.__class__)}
    # The history and the groups themselves drop out here.
    return Snapshot(**{field.name: fields[field.name] for field in attrs.fields(Snapshot)})


def grouped(snapshot: Snapshot, history: History) -> states.Memory:
    """The memory that `flat` took apart, over *history*."""
    fields: dict[str, Any] = {**attrs.asdict(snapshot, recurse=False), "history": history}

    def part(kind: type[M], **groups: Any) -> M:  # noqa: ANN401  # groups of several classes
        mine = {field.name: fields[field.name] for field in attrs.fields(kind) if field.name in fields}
        return kind(**mine, **groups)

    session, progress = part(SessionMemory), part(RunProgress)
    return part(states.Memory, session=session, conversation=part(ConversationMemory), progress=progress)


def _check_version(data: bytes) -> None:
    """Raise `NewerVersion` before anything else of a newer snapshot is looked at."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except UNREADABLE:
        return  # not a snapshot, which `decode` reports
    if version > VERSION:
        raise effects.NewerVersion(NAME, version, VERSION)
