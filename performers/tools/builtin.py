"""
The built-in tools, all of them.

They are made with `tool` like anybody's, and know no more of the library than their `ToolContext`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...effects.config import READER
from .decorator import Tool, ToolContext, tool
from .files import locate
from .process import run
from .result import MAX_OUTPUT, NOTE

# The built-in tools that look around: `ls`, `glob` and `grep`.


MAX_ENTRIES = 1_000
"""Entries and paths listed at most."""

MAX_HITS = 500
"""Lines `grep` finds at most."""

SEARCH_SECONDS = 20.0
"""How long a search may take; less than the timeout of the tools, so that what was found is not lost."""

_SEARCH = Path(__file__).with_name("search.py")


@tool(side_effect="read_only")
def ls(context: ToolContext[object], path: str = ".") -> str:
    """
    List a directory. Directories end in /, symlinks in @.

    Args:
        path: The directory, relative to the working directory.
    """
    with locate(context, path).folder() as folder, os.scandir(folder) as entries:
        names = sorted(entry.name + _mark(entry) for entry in entries)
    if len(names) > MAX_ENTRIES:
        names[MAX_ENTRIES:] = [f"[{len(names) - MAX_ENTRIES:,} more]"]
    return "\n".join(names) or "[the directory is empty]"


def _mark(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "@"
    return "/" if entry.is_dir(follow_symlinks=False) else ""


@tool(side_effect="read_only")
async def glob(context: ToolContext[object], pattern: str, path: str = ".") -> str:
    """
    Find files by name. A pattern without a slash matches at any depth; ** matches any number of directories.

    Args:
        pattern: Such as *.py, src/**/test_*.py or *.{js,ts}, relative to path.
        path: The directory to search in, relative to the working directory.
    """
    return await _search(context, path, names=pattern, text=None, limit=MAX_ENTRIES) or "[no file matches]"


@tool(side_effect="read_only")
async def grep(context: ToolContext[object], pattern: str, path: str = ".", glob: str | None = None) -> str:
    """
    Search the lines of files with a regular expression of Python's. Binary files are left out.

    Args:
        pattern: The regular expression, such as ^class [A-Z].
        path: The file or directory to search in, relative to the working directory.
        glob: Only search files that match this, such as *.py.
    """
    return await _search(context, path, names=glob or "", text=pattern, limit=MAX_HITS) or "[no line matches]"


async def _search(
    context: ToolContext[object], path: str, *, names: str, text: str | None, limit: int
) -> str:
    """What the search program finds; it inherits the directory, opened and checked."""
    place = locate(context, path)
    with place.parent() as above:
        found = os.stat(place.name, dir_fd=above, follow_symlinks=False)
    only = "" if stat.S_ISDIR(found.st_mode) else place.name
    base = str(Path(place.shown).parent) if only else place.shown
    with place.parent() if only else place.folder() as folder:
        order = {
            "folder": folder,
            "only": only,
            "shown": "" if base == "." else f"{base}/",
            "names": names,
            "text": text,
            "limit": limit,
        }
        command = (sys.executable, "-I", "-S", str(_SEARCH), json.dumps(order))
        ended = await run(
            command, cwd=place.root, seconds=SEARCH_SECONDS, keep=MAX_OUTPUT, descriptors=(folder,)
        )
    if ended.code is None:
        return f"{ended.output}[stopped after {SEARCH_SECONDS:g} s; narrow the search]"
    if ended.code:
        raise ValueError(ended.output.rstrip())
    return ended.output.rstrip("\n")


# The built-in tool that runs commands: `bash`.


COMMAND_SECONDS = 120.0
"""How long a command may take unless told."""

MAX_SECONDS = 600.0

_MARGIN = 10.0
"""How much longer the tool may take than its command: time to end it, and to return what it said."""

CommandSeconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


@tool(side_effect="unsafe", timeout=MAX_SECONDS + _MARGIN)
async def bash(context: ToolContext[object], command: str, timeout: CommandSeconds | None = None) -> str:  # noqa: ASYNC109  # the model's word
    """
    Run a command in a shell, in the working directory. What it leaves in the background is ended with it.

    Args:
        command: What to run; it has no input to read.
        timeout: Seconds after which it is ended, 120 unless told.
    """
    shell = shutil.which("bash") or "/bin/sh"
    seconds = timeout or COMMAND_SECONDS
    ended = await run((shell, "-c", command), cwd=context.cwd, seconds=seconds, keep=MAX_OUTPUT)
    output = ended.output if ended.output.endswith("\n") or not ended.output else f"{ended.output}\n"
    if ended.code is None:
        msg = f"the command was ended after {seconds:g} s; until then it said:\n{output}"
        raise TimeoutError(msg)
    return f"{output}[exit code {ended.code}{_signal(ended.code)}]"


def _signal(code: int) -> str:
    """The name of the signal that ended a process, as its exit code tells."""
    try:
        return f", {signal.Signals(-code).name}" if code < 0 else ""
    except ValueError:  # a real-time one
        return ""


# The built-in tool that reads on where a result was cut: `read_result`.


CHARACTERS = 10_000
"""Characters read unless told: half of what a conversation holds of a result, unless it is set otherwise."""

NotNegative = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


@tool(name=READER, side_effect="read_only", approval="never", resources=())
async def read_result(
    context: ToolContext[object],
    id: str,  # noqa: A002  # the model's word
    offset: NotNegative = 0,
    limit: Positive = CHARACTERS,
) -> str:
    """
    Read a part of a long tool result, of which only the beginning and the end are shown.

    Args:
        id: The id that stands where characters of the result are left out.
        offset: The first character to read; the first of the result is 0.
        limit: How many characters to read, 10000 unless told.
    """
    text = await context.full_result(id)
    if text is None:
        msg = f"there is no long result {id[:50]!r}; its id stands where characters of it are left out"
        raise ValueError(msg)
    if offset >= len(text):
        msg = f"there is no character {offset}: the result has {len(text):,}; the first is 0"
        raise ValueError(msg)
    most = limit
    if context.result_limit is not None:
        # What is read is a result itself, which must not be cut again.
        most = max(1, min(limit, context.result_limit - NOTE))
    end = min(offset + most, len(text))
    return text[offset:end] + _note(offset, end, len(text))


def _note(first: int, end: int, length: int) -> str:
    """What stands below the characters from *first* up to *end* of *length*."""
    on = f"; offset={end} goes on" if end < length else ", its end"
    return f"\n[characters {first} to {end} of {length:,}{on}]"


def builtin_tools() -> tuple[Tool[..., Any], ...]:
    """
    The tools `read`, `write`, `edit`, `ls`, `glob`, `grep` and `bash`, which need a POSIX system.

    And `read_result`, which reads on where a result of any tool was too long for the conversation.
    """
    # Imported here: making them is a twentieth of importing this library, and many agents use none.
    from .files import edit, read, write  # noqa: PLC0415  # as said above

    # as said above
    # as said above
    # as said above

    return (read, write, edit, ls, glob, grep, bash, read_result)
