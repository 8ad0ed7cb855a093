"""An entry of a journal as bytes, and back: the one place that writes and reads one."""

from __future__ import annotations

from typing import Final

import msgspec

from ...effects.errors import JournalError, TooLarge
from ...effects.validators import MAX_ENTRY
from ..codec import UNREADABLE, converter, in_json, structure
from .entries import VERSION, Entry

# The key of the version.
MARK: Final = "v"

# The version of an entry without that key.
UNMARKED = 2

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
    The entry that *data* is, of any version; *where* names the place in an error.

    Raises `NewerVersion` for one that a later turnwheel wrote, and `JournalError` for bytes that no turnwheel
    did.
    """
    # Before it is parsed: a store may be filled by others, and a huge document costs memory to read.
    if len(data) > MAX_ENTRY:
        msg = f"{where} has {len(data):,} bytes, and may have {MAX_ENTRY:,}: no turnwheel wrote it"
        raise JournalError(msg)
    try:
        plain = msgspec.json.decode(data)
        # Each entry has its version, so a journal that two versions wrote needs no rewriting.
        # Taken out, since the converter refuses a key that is no field.
        version = plain.pop(MARK, UNMARKED)
        if version == VERSION:
            entry: Entry = structure(plain, Entry)
            return entry
        # The records of older versions take a converter of their own, which most processes never need.
        from .migrations import migrated  # noqa: PLC0415  # see above

        return migrated(plain, version, where)
    # What `migrated` says of a version tells the reader what to do, and must not be wrapped.
    except JournalError:
        raise
    # Valid JSON of another shape fails in as many ways as a converter has; to a caller they are one.
    except UNREADABLE as error:
        shown = f"{data[:MAX_QUOTED_ENTRY]!r} ({str(error)[:MAX_QUOTED_ENTRY]})"
        msg = f"{where} cannot be read: {shown}; it is damaged, or not turnwheel's: restore it from a backup"
        raise JournalError(msg) from error
