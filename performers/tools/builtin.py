"""
The built-in tools: files, searches, a shell, and the rest of a long result.

They are made with `tool` like any other, and know no more of the library than their `ToolContext`. Their
docstrings are what the model reads, hence the ``Args:`` sections. Making them is a twentieth of importing
this library, so the package imports this module only when an agent takes them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import sys
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...effects.config import READER
from ...effects.messages import Binary
from .decorator import Tool, ToolContext, tool
from .inspection import denied_globs, spelled
from .paths import LocatedPath, fault_of, locate
from .process import MAX_OUTPUT, run
from .replacing import replace
from .runner import NOTE
from .search import SNIFFED, is_denied, visible

Positive = Annotated[int, msgspec.Meta(ge=1)]


def builtin_tools() -> tuple[Tool[..., Any], ...]:
    """
    The tools `read`, `write`, `edit`, `ls`, `glob`, `grep` and `bash`, which need a POSIX system.

    And `read_result`, which reads on where a result of any tool was too long for the conversation.
    """
    return (read, write, edit, ls, glob, grep, bash, read_result)


# What they raise for the model: a path that is not there, a pattern that is none.
ANSWERS_BY = (OSError, ValueError)

# One file: `read`, `write` and `edit`.

# Larger files are not taken into memory; no model could read them anyway.
MAX_EDITED = 10_000_000

# Lines that `read` returns where the model asks for no number.
MAX_LINES = 2_000

# The beginnings of pictures.
_PICTURES = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/gif": rb"GIF8[79]a",
    "image/webp": rb"(?s:RIFF....WEBP)",
}


@tool(side_effect="read_only", paths=["path"], expected=ANSWERS_BY)
def read(
    context: ToolContext[object], path: str, offset: Positive | None = None, limit: Positive | None = None
) -> str | Binary:
    """
    Read a text file, each line with its number and a tab before it; or a PNG, JPEG, GIF, WebP or PDF file.

    Args:
        path: The file, relative to the working directory.
        offset: The first line of text to read; the first of the file is 1.
        limit: How many lines of text to read, 2000 unless told.
    """
    place = locate(context, path)
    data, _ = load(place)
    if media_type := binary_type(data):
        return Binary(media_type=media_type, data=data, name=place.shown)
    if b"\0" in data[:SNIFFED]:
        raise fault_of(place, f"is a binary file ({len(data):,} bytes)")
    lines = data.decode(errors="replace").split("\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    return _numbered(lines, offset or 1, limit or MAX_LINES, context.result_limit)


def binary_type(data: bytes) -> str:
    """The media type of *data*, by its content, where a model takes it as it is; empty where not."""
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    # A text that begins like a picture is one about pictures, and a provider would refuse it.
    if b"\0" not in data[:SNIFFED]:
        return ""
    return next((kind for kind, beginning in _PICTURES.items() if re.match(beginning, data)), "")


def _numbered(lines: list[str], first: int, limit: int, room: int | None) -> str:
    """
    At most *limit* of *lines*, in at most *room* characters, unless the first alone has more.
    """
    # Whole lines, so that a model reads on by the next one. A result that is cut by characters would have to
    # be read on with `read_result`, which knows no lines.
    if not lines:
        return "[the file is empty]"
    chosen = lines[first - 1 : first - 1 + limit]
    if not chosen:
        msg = f"there is no line {first}: the file has {len(lines):,}"
        raise ValueError(msg)
    shown = [f"{number:>6}\t{line.removesuffix(chr(13))}" for number, line in enumerate(chosen, first)]
    ends = list(accumulate(len(line) + 1 for line in shown))
    if room is not None and ends[-1] > room:  # room for a note on how to go on, too; one line at least
        del shown[max(1, bisect_right(ends, room - NOTE)) :]
    text = "\n".join(shown)
    last = first - 1 + len(shown)
    if last == len(lines):
        return text
    return f"{text}\n[lines {first} to {last} of {len(lines):,}; offset={last + 1} goes on]"


@tool(side_effect="idempotent", edits=True, paths=["path"], expected=ANSWERS_BY)
def write(context: ToolContext[object], path: str, content: str) -> str:
    """
    Write a text file, in place of the one that may be there. Missing directories are made.

    Args:
        path: The file, relative to the working directory.
        content: All that the file shall hold.
    """
    place = locate(context, path)
    data = content.encode()
    store(place, data)
    return f"wrote {len(data):,} byte{'s' * (len(data) != 1)} to {visible(place.shown)}"


# Not idempotent: where *new* contains *old*, a second run would replace it once more.
@tool(side_effect="unsafe", edits=True, paths=["path"], expected=ANSWERS_BY)
def edit(context: ToolContext[object], path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002, FBT001, FBT002  # the model's words
    """
    Replace an exact piece of text in a file. It must occur once, unless all occurrences are to be replaced.

    Args:
        path: The file, relative to the working directory.
        old: The text to replace, to the letter, without the line numbers that read shows.
        new: The text to put in its place.
        all: Whether to replace every occurrence.
    """
    place = locate(context, path)
    data, seen = load(place)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise fault_of(place, f"is not UTF-8 text (byte {error.start}) and was left as it is") from error
    if old not in text and "\r\n" in text:  # read shows such lines as any others
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = _occurrences(text, old, place.shown, all_of_them=all)
    if (size := len(text) + count * (len(new) - len(old))) > MAX_EDITED:
        raise fault_of(place, f"would have {size:,} characters, and may have {MAX_EDITED:,}; left as it is")
    store(place, text.replace(old, new).encode(), seen)
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {visible(place.shown)}"


def _occurrences(text: str, old: str, shown: str, *, all_of_them: bool) -> int:
    """How often *old* occurs in *text*; raises `ValueError` where that is not what is wanted."""
    if not old:
        problem = "old is empty; say which text to replace, or use write for the whole file"
    elif old not in text:
        problem = f"old does not occur in {shown!r}; read it again, every space counts"
    elif not all_of_them and text.find(old) != text.rfind(old):  # overlapping ones count here, too
        problem = f"old occurs {max(2, text.count(old))} times in {shown!r}; add lines around it, or set all"
    else:
        return text.count(old)
    raise ValueError(problem)


def load(place: LocatedPath) -> tuple[bytes, os.stat_result]:
    """The content of the file at *place*, and what identifies that version of it."""
    data, seen = place.read(MAX_EDITED + 1)
    if len(data) > MAX_EDITED:
        raise fault_of(place, f"has more than {MAX_EDITED:,} bytes; take parts of it with bash")
    return data, seen


def store(place: LocatedPath, data: bytes, seen: os.stat_result | None = None) -> None:
    """
    Put *data* in the file at *place*, all or nothing; a file that was there keeps its mode.

    With *seen*, the file must still be the one that was seen. Raises `OSError` or `ValueError`.
    """
    with place.parent(make=seen is None) as folder:
        old = _look(place, folder)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise fault_of(place, "is not a regular file")
        # Replacing a file needs no right to write it, only one to write its directory. A person who made a
        # file read-only means that it stays.
        if old is not None and not os.access(place.name, os.W_OK, dir_fd=folder):
            raise fault_of(place, "is read-only")

        def check() -> None:
            # As late as can be: between the read and here, a person may have saved in an editor.
            if seen is not None:
                _check_unchanged(place, seen, folder)

        replace(folder, place.name, data, None if old is None else stat.S_IMODE(old.st_mode), check)


def _look(place: LocatedPath, folder: int) -> os.stat_result | None:
    try:
        return os.stat(place.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_unchanged(place: LocatedPath, seen: os.stat_result, folder: int) -> None:
    if _version(_look(place, folder)) != _version(seen):
        raise fault_of(place, "was changed by another process meanwhile; read it again")


def _version(found: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)


# The built-in tools that look around: `ls`, `glob` and `grep`.


# Entries and paths listed at most.
MAX_ENTRIES = 1_000

# Lines `grep` finds at most.
MAX_HITS = 500

# How long a search may take; less than the timeout of the tools, so that what was found is not lost.
SEARCH_SECONDS = 20.0

_SEARCH = Path(__file__).with_name("search.py")


@tool(side_effect="read_only", paths=["path"], expected=ANSWERS_BY)
def ls(context: ToolContext[object], path: str = ".") -> str:
    """
    List a directory. Directories end in /, symlinks in @.

    Args:
        path: The directory, relative to the working directory.
    """
    place = locate(context, path)
    missed, denied, places = (
        Counter[str](),
        denied_globs("ls", context.rules, str(context.cwd)),
        spelled(place.path, str(context.cwd)),
    )
    with place.folder() as folder, os.scandir(folder) as entries:
        names = sorted(
            entry.name + ("@" if entry.is_symlink() else "/" if entry.is_dir(follow_symlinks=False) else "")
            for entry in entries
            if not is_denied(entry.name, denied, places, missed)
        )
    if len(names) > MAX_ENTRIES:
        names[MAX_ENTRIES:] = [f"[{len(names) - MAX_ENTRIES:,} more]"]
    shown = [*map(visible, names), *[f"[left out: {count} {why}]" for why, count in missed.items() if count]]
    return "\n".join(shown) or "[the directory is empty]"


@tool(side_effect="read_only", paths=["path"], searches=True, expected=ANSWERS_BY)
async def glob(context: ToolContext[object], pattern: str, path: str = ".") -> str:
    """
    Find files by name. A pattern without a slash matches at any depth; ** matches any number of directories.

    Args:
        pattern: Such as *.py, src/**/test_*.py or *.{js,ts}, relative to path.
        path: The directory to search in, relative to the working directory.
    """
    found = await _search("glob", context, path, names=pattern, text=None, limit=MAX_ENTRIES)
    return found or "[no file matches]"


@tool(side_effect="read_only", paths=["path"], searches=True, expected=ANSWERS_BY)
async def grep(context: ToolContext[object], pattern: str, path: str = ".", glob: str | None = None) -> str:
    """
    Search the lines of files with a regular expression of Python's. Binary files are left out.

    Args:
        pattern: The regular expression, such as ^class [A-Z].
        path: The file or directory to search in, relative to the working directory.
        glob: Only search files that match this, such as *.py.
    """
    found = await _search("grep", context, path, names=glob or "", text=pattern, limit=MAX_HITS)
    return found or "[no line matches]"


async def _search(
    tool: str, context: ToolContext[object], path: str, *, names: str, text: str | None, limit: int
) -> str:
    """What the search program finds; it inherits the directory, opened and checked."""
    place = locate(context, path)
    with place.parent() as above:
        found = os.stat(place.name, dir_fd=above, follow_symlinks=False)
    only = "" if stat.S_ISDIR(found.st_mode) else place.name
    base = str(Path(place.shown).parent) if only else place.shown
    within = str(Path(place.path).parent) if only else place.path
    with place.parent() if only else place.folder() as folder:
        order = {
            "folder": folder,
            "only": only,
            "shown": "" if base == "." else f"{base}/",
            "names": names,
            "text": text,
            "limit": limit,
            "denied": denied_globs(tool, context.rules, str(context.cwd)),
            "places": spelled(within, str(context.cwd)),
        }
        ended = await run(
            (sys.executable, "-I", "-S", str(_SEARCH)),
            cwd=place.root,
            seconds=SEARCH_SECONDS,
            keep=MAX_OUTPUT,
            given=json.dumps(order).encode(),
            descriptors=(folder,),
        )
    if ended.code is None:
        return f"{ended.output}[stopped after {SEARCH_SECONDS:g} s; narrow the search]"
    if ended.code:
        # Killed from outside, it has no word of its own.
        raise ValueError(ended.output.rstrip() or f"the search failed (exit code {ended.code})")
    return ended.output.rstrip("\n")


# The built-in tool that runs commands: `bash`.


# How long a command may take where the model gives no timeout.
COMMAND_SECONDS = 120.0

MAX_SECONDS = 600.0

# Behind the exit code of a command that a signal ended.
_SIGNALS = {-each: f", {each.name}" for each in signal.Signals}

# How much longer the tool may take than its command: time to end it, and to return its output.
_MARGIN = 10.0

# Runs what the shell reads from its input, which is empty from then on. All users of a machine can list the
# arguments of a process, and a command may have a secret in it.
_READ_AND_RUN = 'exec 2>&1; eval " $(cat)" </dev/null'

CommandSeconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


@tool(
    side_effect="unsafe",
    timeout=MAX_SECONDS + _MARGIN,
    command="command",
    sandboxed=True,
    expected=ANSWERS_BY,
)
async def bash(context: ToolContext[object], command: str, timeout: CommandSeconds | None = None) -> str:  # noqa: ASYNC109  # the model's word
    """
    Run a command in a shell, in the working directory. What it leaves in the background is ended with it.

    Args:
        command: What to run; it has no input to read.
        timeout: Seconds after which it is ended, 120 unless told.
    """
    shell = shutil.which("bash") or "/bin/sh"
    seconds = timeout or COMMAND_SECONDS
    if "\0" in command:
        msg = f"a command has no NUL character; got one behind {command[: command.index(chr(0))][-20:]!r}"
        raise ValueError(msg)
    ended = await context.run(
        (shell, "-c", _READ_AND_RUN), seconds=seconds, given=os.fsencode(command), live=True
    )
    # What the shell says itself, or what was to start it.
    said = ended.output + ended.errors
    output = said if said.endswith("\n") or not said else f"{said}\n"
    if ended.code is None:
        msg = f"the command was ended after {seconds:g} s; until then it said:\n{output}"
        raise TimeoutError(msg)
    return f"{output}[exit code {ended.code}{_SIGNALS.get(ended.code, '')}]"


# The built-in tool that reads on where a result was cut: `read_result`.


# Characters read where the model asks for no number: half of the usual `Compaction.result_limit`.
CHARACTERS = 10_000

NotNegative = Annotated[int, msgspec.Meta(ge=0)]


@tool(name=READER, side_effect="read_only", approval="never", resources=(), expected=ANSWERS_BY)
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
    on = f"; offset={end} goes on" if end < len(text) else ", its end"
    return f"{text[offset:end]}\n[characters {offset} to {end} of {len(text):,}{on}]"
