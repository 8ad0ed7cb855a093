"""The output of `--json`: each notice as one line, at once."""

from __future__ import annotations

from typing import BinaryIO, final

from ...effects.notices import Notice
from ...engine.core.codec import encode
from ..terminal.sanitize import in_escapes


@final
class JsonLines:
    """Writes notices to *file*, one line each. Nothing else may write there."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def notice(self, notice: Notice) -> None:
        """Write *notice*. Raises `BrokenPipeError` if the reader has left."""
        self._file.write(in_escapes(encode(notice, Notice)) + b"\n")
        self._file.flush()
