"""The file that a call of a built-in tool would write, as it is before the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, final

import attrs

from .builtin import edit, write
from .decorator import Tool, ToolContext
from .paths import locate, roots

# Bytes of a file up to which its text is shown.
MAX_PREVIEWED = 200_000


@final
@attrs.frozen(kw_only=True)
class FilePreview:
    """
    The file at *path*, which is free of symlinks; *before* is its text.

    *before* is None where there is no file, and where it is larger than `MAX_PREVIEWED` bytes or not UTF-8
    text. *size* is in bytes, None where there is no file. *problem* is why it could not be read.
    """

    path: str
    before: str | None = None
    size: int | None = None
    problem: str = ""


def file_preview(
    tools: Iterable[Tool[..., Any]],
    tool: str,
    arguments: Mapping[str, object],
    cwd: str | Path,
    directories: Iterable[str | Path],
) -> FilePreview | None:
    """
    The file that a call of *tool* with *arguments* writes, below *cwd* or *directories*.

    None where *tool* is not the built-in ``write`` or ``edit`` among *tools*, and where the file tools may
    not touch the path. Reads the disk, so call it in a thread.
    """
    path = arguments.get("path")
    is_built_in = any(each is write or each is edit for each in tools if each.spec.name == tool)
    if not is_built_in or not isinstance(path, str):
        return None
    known = roots(cwd, directories)
    try:
        place = locate(ToolContext(cwd=known[0], directories=known, deps=None), path)
    except ValueError:
        return None
    try:
        data, seen = place.read(MAX_PREVIEWED + 1)
    except FileNotFoundError:
        return FilePreview(path=place.path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        return FilePreview(path=place.path, problem=why or str(error))
    try:
        # Line ends as they are: a change of them is a change.
        before = data.decode() if len(data) <= MAX_PREVIEWED else None
    except UnicodeDecodeError:
        before = None
    return FilePreview(path=place.path, before=before, size=seen.st_size)
