"""`turnwheel sessions`: what is stored, also where some of it cannot be read."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import msgspec
from rich.cells import cell_len, set_cell_size

from ..effects.errors import TurnwheelError
from ..effects.events import UserSent
from ..effects.performers.stores.base import SessionInfo
from ..effects.records import Lane
from ..engine.journal import Folded, fold
from ..engine.machine import Machine
from ..states.batch import Asked
from ..states.state import Confirming, Done
from .gist import number
from .place import open_store
from .plain import clean, one_line
from .screen import Screen

HEADINGS = ("session", "runs", "active", "state", "first prompt")

GAP = "  "
"""Between two columns."""

PROMPT_WIDTH = 8
"""Columns of a first prompt at the least."""

STATE_WIDTH = 40
"""Columns of a state, which may be the reason why there is none."""

SAID = frozenset({"UserSent", "UserSteered"})
"""The events with which somebody says something."""

_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


@attrs.frozen(kw_only=True)
class Row:
    """A session: its *runs* and first *prompt* as far as they can be read; *updated* since the epoch."""

    session: str
    runs: int
    updated: float
    state: str
    prompt: str


class _Event(msgspec.Struct):
    """As much of what was posted as a list needs."""

    type: str
    text: str = ""


class _Entry(msgspec.Struct):
    """As much of an entry as a list needs."""

    type: str
    event: _Event | None = None


async def rows(path: Path) -> list[Row]:
    """The sessions in the store at *path*, last written first."""
    store = open_store(path)
    try:
        return [_row(info, await store.load(info.session)) for info in await store.list()]
    finally:
        await store.close()


async def delete(path: Path, session: str) -> bool:
    """Forget *session* in the store at *path*; whether there was one."""
    store = open_store(path)
    try:
        return await store.delete(session)
    finally:
        await store.close()


def _row(info: SessionInfo, entries: Sequence[bytes]) -> Row:
    known = [_entry(entry) for entry in entries]
    said = [entry.event.text for entry in known if entry.event is not None and entry.event.type in SAID]
    try:
        state = _state(fold(entries, info.session))
    except (TurnwheelError, ValueError, LookupError, TypeError, AttributeError) as error:
        state = f"cannot be read: {error}"  # whatever was written there must not hide the other sessions
    runs = sum(entry.type == "RunOpened" for entry in known)
    return Row(
        session=info.session, runs=runs, updated=info.updated, state=state, prompt=said[0] if said else ""
    )


def _entry(entry: bytes) -> _Entry:
    try:
        return msgspec.json.decode(entry, type=_Entry)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Entry(type="")


def _state(folded: Folded) -> str:
    """Where a session is, with the prompts that wait."""
    left = () if folded.machine is None else folded.machine.memory.waiting(Lane.PROMPT)
    waiting = len(left) + sum(isinstance(event, UserSent) for event in folded.posted)
    words = [
        "" if folded.machine is None else state_of(folded.machine),
        f"{number(waiting, 'prompt')} waiting" if waiting else "",
    ]
    return ", ".join(filter(None, words)) or "empty"


def state_of(machine: Machine) -> str:
    """Where a session's last run is, in a word or two."""
    match machine.state:
        case Done(reason=reason):
            return f"done: {reason}"
        case Confirming(batch=batch):
            asked = sum(isinstance(call.phase, Asked) for call in batch.calls)
            return f"confirming: {number(asked, 'question')}"
        case state:
            return f"{state.label}: unfinished"


def show(found: Sequence[Row], screen: Screen) -> None:
    """Write *found* in columns, of which only the last, the prompt, is cut to the width there is."""
    if not found:
        screen.line("no sessions yet", "dim")
        return
    cells = [_cells(row) for row in found]
    if screen.is_terminal:
        cells.insert(0, HEADINGS)
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    room = max(PROMPT_WIDTH, screen.width - sum(widths[:-1]) - len(GAP) * len(widths[:-1]))
    for row in cells:
        padded = [set_cell_size(cell, width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        screen.line(GAP.join([*padded, one_line(row[-1], room)]), "dim" if row is HEADINGS else "")


def _cells(row: Row) -> tuple[str, ...]:
    ago = age(time.time() - row.updated)
    return clean(row.session), str(row.runs), ago, one_line(row.state, STATE_WIDTH), row.prompt


def as_json(row: Row) -> str:
    """*row* as one line of JSON."""
    return json.dumps(attrs.asdict(row))


def age(seconds: float) -> str:
    """How long ago *seconds* are, such as ``3 hours ago``."""
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{number(int(seconds // unit), name)} ago"
    return "just now"
