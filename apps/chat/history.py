"""The lines typed in earlier chats, in a file of the person's own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import final

from prompt_toolkit.history import History

MOST_LINES = 2_000
"""The most lines kept; the file is shortened to them when it has twice as many."""

LONGEST_LINE = 20_000
"""Characters of the longest line that is kept."""


def history_file() -> Path:
    """The file of the history, in the person's state directory."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "turnwheel" / "chat_history"


@final
class ChatHistory(History):
    """
    The lines in *file*, each as a JSON string, and those of this session *before* which are not in it.

    Without *file* nothing is kept. A file that cannot be read or written is left alone: a history is no
    reason to end a chat.
    """

    def __init__(self, file: Path | None, before: Sequence[str] = ()) -> None:
        super().__init__()
        self._file = file
        self._before = before

    def load_history_strings(self) -> Iterable[str]:
        """The lines, the newest first."""
        lines = self._read()
        kept = set(lines)
        return [*reversed([line for line in self._before if line not in kept]), *reversed(lines)]

    def store_string(self, string: str) -> None:
        """Add a line to the file."""
        if self._file is None or len(string) > LONGEST_LINE:
            return
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._write(os.O_APPEND, [string])
        except OSError:
            return

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        try:
            rows = self._file.read_text("utf-8", "replace").splitlines()
            lines = [line for row in rows if (line := _decoded(row))]
            if len(rows) > 2 * MOST_LINES:
                self._write(os.O_TRUNC, lines[-MOST_LINES:])
        except OSError:
            return []
        return lines[-MOST_LINES:]

    def _write(self, how: int, lines: Sequence[str]) -> None:
        if self._file is None:
            return
        # A prompt may hold what is meant for its model alone: no other user reads it.
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | how, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def _decoded(row: str) -> str:
    try:
        line: object = json.loads(row)
    except (ValueError, RecursionError):
        return ""
    return line if isinstance(line, str) else ""
