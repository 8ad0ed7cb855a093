"""Letting a person change a text in the editor of their choice."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path


def editor_command() -> tuple[str, ...]:
    """The command in ``VISUAL`` or else ``EDITOR``; empty where neither is set, or is no command."""
    told = os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
    try:
        return tuple(shlex.split(told))
    except ValueError:  # a quote is open
        return ()


async def edit_text(text: str, command: tuple[str, ...]) -> str:
    """
    *text* as it is after *command* was run on it and ended well.

    Raises `OSError` where it cannot be started or its file not be read, and `ValueError` where it failed.
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
    """A file that holds *text*, for its owner's eyes only."""
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
        if process.returncode is None:  # we are cancelled
            process.terminate()
            await process.wait()
