"""A run for programs: each notice as one line of JSON, as soon as it comes."""

from __future__ import annotations

from typing import BinaryIO, final

from ...effects.notices import Notice
from ...engine.codec import encode


@final
class JsonLines:
    """Writes notices to *file*, one line each; nothing else is written there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def notice(self, notice: Notice) -> None:
        """Write *notice*. Raises `BrokenPipeError` where nobody reads."""
        self._file.write(encode(notice, Notice) + b"\n")
        self._file.flush()
