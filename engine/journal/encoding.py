"""An entry of a journal as bytes, and back: the one place that writes and reads one."""

from __future__ import annotations

from typing import Final

import msgspec

from ...effects.errors import JournalError, NewerVersion, TooLarge
from ...effects.validators import MAX_ENTRY
from ..core.codec import UNREADABLE, converter, in_json, structure
from .entries import VERSION, Entry

# The key of the version.
MARK: Final = "v"

# Versions will stay far below this number, so an entry with a higher one is damaged.
NONSENSE = 1_000_000

# Bytes of an unreadable entry, and characters of the reason, that an error shows.
MAX_QUOTED_ENTRY = 200


def encode_entry(entry: Entry) -> bytes:
    """*entry* as JSON bytes; `TooLarge` for one that no journal may hold."""
    data = in_json({MARK: VERSION, **converter.unstructure(entry, Entry)})
    # Refused before it is stored: `decode_entry` would refuse it ever after, and the session with it.
    if len(data) > MAX_ENTRY:
        what = "an entry of a journal"
        raise TooLarge(what, len(data), MAX_ENTRY, "bytes")
    return data


def decode_entry(data: bytes, where: str = "this entry") -> Entry:
    """
    The entry that *data* holds; *where* names the place in an error.

    Raises `NewerVersion` for an entry of a newer turnwheel, and `JournalError` for other bytes.
    """
    # Before it is parsed: a store may be filled by others, and a huge document costs memory to read.
    if len(data) > MAX_ENTRY:
        msg = f"{where} has {len(data):,} bytes, and may have {MAX_ENTRY:,}: no turnwheel wrote it"
        raise JournalError(msg)
    try:
        plain = msgspec.json.decode(data)
        # Removed, since the converter refuses a key that is not a field.
        _check_version(plain.pop(MARK, None), where)
        entry: Entry = structure(plain, Entry)
    # The messages about the version name a fix; do not wrap them.
    except JournalError:
        raise
    # Valid JSON of another shape fails in as many ways as a converter has; to a caller they are one.
    except UNREADABLE as error:
        shown = f"{data[:MAX_QUOTED_ENTRY]!r} ({str(error)[:MAX_QUOTED_ENTRY]})"
        msg = f"{where} cannot be read: {shown}; it is damaged, or not turnwheel's: restore it from a backup"
        raise JournalError(msg) from error
    return entry


def _check_version(version: object, where: str) -> None:
    # Not isinstance: a bool is an int.
    if type(version) is not int or not 0 < version < NONSENSE:
        msg = f"{where} has version {version!r:.20}; it is damaged, restore it from a backup"
        raise JournalError(msg)
    # A newer version may give the same fields another meaning.
    if version > VERSION:
        raise NewerVersion(where, version, VERSION)
