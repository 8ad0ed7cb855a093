"""An entry of a journal as bytes, and back: the one place that writes and reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...effects.errors import JournalError, TooLarge
from ...effects.validators import MAX_ENTRY
from ..codec import UNREADABLE, converter, in_json
from .entries import VERSION, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

_structure: Callable[..., Any] = converter.structure


MARK: Final = "v"
"""The key of the version."""

UNMARKED = 2
"""The version of an entry that says none."""

SHOWN = 200
"""Bytes of what cannot be read, and characters of why, that an error shows."""


def encode_entry(entry: Entry) -> bytes:
    """*entry* as JSON bytes."""
    data = in_json({MARK: VERSION, **converter.unstructure(entry, Entry)})
    if len(data) > MAX_ENTRY:
        # Refused before it is kept: `decode_entry` would refuse it ever after.
        raise TooLarge("an entry of a journal", len(data), MAX_ENTRY, "bytes")
    return data


def decode_entry(data: bytes, where: str = "this entry") -> Entry:
    """
    The entry that *data* is, of whichever version; *where* names the place in an error.

    Raises `NewerVersion` for one that a later turnwheel wrote, and `JournalError` for bytes that no turnwheel
    did.
    """
    if len(data) > MAX_ENTRY:
        msg = f"{where} has {len(data):,} bytes, and may have {MAX_ENTRY:,}: no turnwheel wrote it"
        raise JournalError(msg)
    try:
        plain = msgspec.json.decode(data)
        version = plain.pop(MARK, UNMARKED)
        if version == VERSION:
            entry: Entry = _structure(plain, Entry)
            return entry
        from .migrations import migrated  # noqa: PLC0415  # most journals are of this version

        return migrated(plain, version, where)
    except JournalError:
        raise
    except UNREADABLE as error:
        shown = f"{data[:SHOWN]!r} ({str(error)[:SHOWN]})"
        msg = f"{where} cannot be read: {shown}; it is damaged, or not turnwheel's: restore it from a backup"
        raise JournalError(msg) from error
