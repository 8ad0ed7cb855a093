"""Writing a machine down in one piece, without what is kept elsewhere: its history and its configuration."""

from __future__ import annotations

from typing import final

import attrs
import msgspec

from ..effects.config import Config
from ..effects.errors import JournalError, NewerVersion
from ..effects.history import History
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import SetInstructions, SetThinking, WithdrawTool
from ..effects.usage import Spent
from ..states.context import AsConfigured, Mail, Memory, NotBegun
from ..states.state import State
from .codec import UNREADABLE, decode, encode
from .machine import Machine

VERSION = 3
"""The version of a snapshot; see `entries.VERSION` for when to raise it. No other one is read."""

NAME = "this snapshot"


class _Versioned(msgspec.Struct):
    """As much of a snapshot as any version can read."""

    version: int


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """A machine's *state* and memory; *length* and *revision* say which history it goes with."""

    version: int
    state: State
    length: int
    revision: int
    run: str
    model: str
    next_id: int
    size: int
    spent: Spent
    mode: PermissionMode
    thinking: SetThinking | AsConfigured
    instructions: SetInstructions | NotBegun
    mail: tuple[Mail, ...]
    received: tuple[str, ...]
    pending_context: tuple[str, ...]
    granted: tuple[Rule, ...]
    compactions: int
    compaction_failures: int
    continues: int
    chosen: tuple[str, ...]
    fallback: str
    cleared: int
    results: int
    withdrawn: tuple[WithdrawTool, ...]
    earlier: Spent


KEPT = tuple(
    [
        field.name
        for field in attrs.fields(Memory)
        if field.name in {each.name for each in attrs.fields(Snapshot)}
    ]
)
"""What a snapshot has of the memory: all of it but the history."""


def taken(machine: Machine) -> bytes:
    """*machine* as JSON."""
    memory = machine.memory
    kept = {name: getattr(memory, name) for name in KEPT}
    snapshot = Snapshot(
        version=VERSION,
        state=machine.state,
        length=len(memory.history),
        revision=memory.history.revision,
        **kept,
    )
    return encode(snapshot, Snapshot)


def restored(data: bytes, config: Config, history: History) -> Machine:
    """The machine that *data* was taken of."""
    _check_version(data)
    snapshot = decode(data, Snapshot, NAME)
    if (snapshot.length, snapshot.revision) != (len(history), history.revision):
        msg = (
            f"this snapshot goes with {snapshot.length} messages at revision {snapshot.revision}, "
            f"not with {history!r}"
        )
        raise JournalError(msg)
    kept = {name: getattr(snapshot, name) for name in KEPT}
    return Machine(config, snapshot.state, Memory(history=history, **kept))


def _check_version(data: bytes) -> None:
    """Refuse what another version wrote before anything else of it is looked at."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except UNREADABLE:
        return  # it is no snapshot, which is said where it is read
    if version > VERSION:
        raise NewerVersion(NAME, version, VERSION)
    if version < VERSION:
        msg = f"{NAME} has version {version}, known here is {VERSION}: fold its journal instead"
        raise JournalError(msg)
