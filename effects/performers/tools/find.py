"""
The built-in tools that look around: `ls`, `glob` and `grep`.

Their docstrings are what the model reads, hence the ``Args:`` sections.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from .context import ToolContext
from .define import tool
from .paths import locate
from .process import run
from .result import MAX_OUTPUT

MAX_ENTRIES = 1_000
"""Entries and paths listed at most."""

MAX_HITS = 500
"""Lines `grep` finds at most."""

SECONDS = 20.0
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
        ended = await run(command, cwd=place.root, seconds=SECONDS, keep=MAX_OUTPUT, descriptors=(folder,))
    if ended.code is None:
        return f"{ended.output}[stopped after {SECONDS:g} s; narrow the search]"
    if ended.code:
        raise ValueError(ended.output.rstrip())
    return ended.output.rstrip("\n")
