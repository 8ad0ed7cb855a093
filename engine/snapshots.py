"""Writing a machine down in one piece, without what is kept elsewhere: its history and its configuration."""

from __future__ import annotations

from typing import final

import attrs

from ..effects.config import Config
from ..effects.errors import JournalError
from ..effects.history import History
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import SetInstructions, SetThinking, WithdrawTool
from ..effects.usage import Spent
from ..states.context import AsConfigured, Mail, Memory, NotBegun
from ..states.state import State
from .codec import decode, encode
from .entries import VERSION
from .machine import Machine


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
    snapshot = decode(data, Snapshot, "this snapshot")
    if snapshot.version != VERSION:
        known = f"known here is {VERSION}: use the turnwheel that wrote it"
        msg = f"this snapshot has version {snapshot.version}, {known}"
        raise JournalError(msg)
    if (snapshot.length, snapshot.revision) != (len(history), history.revision):
        msg = (
            f"this snapshot goes with {snapshot.length} messages at revision {snapshot.revision}, "
            f"not with {history!r}"
        )
        raise JournalError(msg)
    kept = {name: getattr(snapshot, name) for name in KEPT}
    return Machine(config, snapshot.state, Memory(history=history, **kept))
