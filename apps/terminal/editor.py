"""Let a person change a text in their own editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path


def editor_command() -> tuple[str, ...]:
    """The command in ``VISUAL`` or else ``EDITOR``; empty if neither is set or valid."""
    command = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    try:
        return tuple(shlex.split(command))
    except ValueError:  # an unclosed quote
        return ()


async def edit_text(text: str, command: tuple[str, ...]) -> str:
    """
    *text* after *command* edited it.

    Raises `OSError` if the editor cannot start or the file cannot be read, and `ValueError` if the editor
    fails.
    """
    path = _write(text)
    try:
        code = await _run((*command, str(path)))
        if code:
            msg = f"{command[0]!r} ended with exit code {code}"
            raise ValueError(msg)
        return _text_of(path)
    finally:
        _remove(path)


def _write(text: str) -> Path:
    """A new file with *text*, for its owner only."""
    # Arguments may hold secrets; mkstemp lets no other user read the file.
    descriptor, name = tempfile.mkstemp(prefix="turnwheel-", suffix=".json")
    os.close(descriptor)
    path = Path(name)
    path.write_text(text, "utf-8")
    return path


def _text_of(path: Path) -> str:
    return path.read_text("utf-8")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _run(command: tuple[str, ...]) -> int:
    process = await asyncio.create_subprocess_exec(*command)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:  # this task was cancelled
            process.terminate()
            await process.wait()
