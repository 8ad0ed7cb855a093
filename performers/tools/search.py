"""
Walking a tree, matching names, and searching text: the work behind `glob` and `grep`, as a program.

It runs in a process of its own, since nothing else can stop a regular expression that backtracks for ever:
within ours it would hold every thread. So this file imports the standard library only. It reads its order as
JSON from its standard input, since any user of the machine can list the arguments of a process. The directory
comes as an open descriptor that has been checked; nothing below it is reached through a symlink.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice

# Directories of what programs made, not looked into, unless the search begins there.
SKIPPED = frozenset(
    {".cache", ".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".venv"}
    | {"__pycache__", "build", "dist", "node_modules"}
)

# Larger files are not searched.
MAX_SEARCHED = 5_000_000

# Characters shown of a line.
MAX_HIT = 500

# Bytes at a file's beginning that are searched for a null byte, by which a file is binary, as git does it.
SNIFFED = 8_192

# Why a file is left out that a rule denies.
RULED_OUT = "denied by a rule"

# Braces in one pattern, and patterns that they stand for: each brace multiplies the patterns to try.
_MAX_CHOICES = 6
_MAX_PATTERNS = 1_000

# Characters of a pattern.
MAX_PATTERN = 1_000

# Folders below one another that are looked into; each costs an open descriptor.
MAX_FOLDERS = 100

# The exit code for an order that cannot be carried out; the output says why.
REFUSED = 2


def report(  # noqa: PLR0913  # as the order has them
    *,
    folder: int,
    only: str,
    shown: str,
    names: str,
    text: str | None,
    limit: int,
    denied: Sequence[str] = (),
    places: Sequence[str] = (),
) -> Iterator[str]:
    """
    What is found below the directory open as *folder*, or in its file *only*; at the end, what was left out.

    *shown* stands before every path in the output. *names* is a glob for paths, or empty; *text* a regular
    expression for lines, or None to list the paths. At most *limit* are found. Files that fit one of the
    globs *denied* are left out, where *places* are the names of the folder. Raises `ValueError` for a wrong
    pattern.
    """
    missed = Counter[str]()  # by reason
    for pattern in (names, text or ""):
        if len(pattern) > MAX_PATTERN:
            msg = f"the pattern has {len(pattern):,} characters, and may have {MAX_PATTERN:,}"
            raise ValueError(msg)
    patterns = [pattern.split("/") for pattern in choices(names)]
    try:
        wanted = None if text is None else re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        msg = f"{text!r} is not a regular expression of Python's: {error}"
        raise ValueError(msg) from error
    shown = visible(shown)
    files = (
        (path, where)
        for path, where in _files(folder, only, missed)
        if not names or any(matches(path.split("/"), pattern) for pattern in patterns)
        if not is_denied(path, denied, places, missed)
    )
    for found, line in enumerate(_lines(files, wanted, missed, alone=bool(denied))):
        if found == limit:  # known only now that there is one more
            yield f"[stopped after {found:,}; narrow the search]"
            return
        yield shown + line
    missed = +missed
    if missed:
        yield f"[left out: {', '.join(f'{count} {why}' for why, count in sorted(missed.items()))}]"


def is_denied(path: str, globs: Sequence[str], places: Sequence[str], missed: Counter[str]) -> bool:
    """Whether one of *globs* fits *path* in the folder that *places* name; it is counted as *missed*."""
    spelled = [os.path.normpath(f"{place}/{path}") for place in places]
    denied = any(fnmatchcase(each, glob) for glob in globs for each in spelled)
    missed[RULED_OUT] += denied
    return denied


def _files(folder: int, only: str, missed: Counter[str]) -> Iterator[tuple[str, int]]:
    """Each file's path from where the search began, and its open directory; in the order of paths."""
    if only:
        yield only, folder
        return

    def unread(_: OSError) -> None:
        missed["unreadable"] += 1

    for base, folders, names, where in os.fwalk(".", onerror=unread, dir_fd=folder):
        # In place, since `fwalk` descends into the names that are left here.
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        if base.count("/") >= MAX_FOLDERS:
            missed["too deep"] += len(folders)
            folders.clear()
        for name in sorted(names):
            yield os.path.normpath(f"{base}/{name}"), where


def _lines(
    files: Iterable[tuple[str, int]], wanted: re.Pattern[str] | None, missed: Counter[str], *, alone: bool
) -> Iterator[str]:
    """
    The paths of *files*; or their lines that have what is *wanted*, each behind its path and number.

    *alone*: of files that have no other names.
    """
    for path, folder in files:
        if wanted is None:
            yield visible(path)
            continue
        for number, line in enumerate(_text(path, folder, missed, alone=alone).split("\n"), 1):
            if wanted.search(line):
                hit = line.rstrip("\r") if len(line) <= MAX_HIT else f"{line[:MAX_HIT]}..."
                yield f"{visible(path)}:{number}: {hit}"


def _text(path: str, folder: int, missed: Counter[str], *, alone: bool) -> str:
    """The text of a file, or nothing of one that is left out."""

    def opener(name: str, flags: int) -> int:
        # A symlink is refused. Without O_NONBLOCK, opening a named pipe waits for a process that writes.
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)

    try:
        with open(path.rpartition("/")[2], "rb", opener=opener) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                return ""
            # One of the other names may be denied.
            if alone and found.st_nlink > 1:
                missed["with several names (hard links)"] += 1
                return ""
            data = file.read(MAX_SEARCHED + 1)
    except OSError as error:
        if error.errno != errno.ELOOP:  # a symlink, whose target is searched where it lies
            missed["unreadable"] += 1
        return ""
    if len(data) > MAX_SEARCHED:
        missed[f"over {MAX_SEARCHED // 1_000_000} MB"] += 1
    elif b"\0" in data[:SNIFFED]:
        missed["binary"] += 1
    else:
        return data.decode(errors="replace")
    return ""


def visible(name: str) -> str:
    """*name* on one line, with JSON's escapes for what does not print or turns the text around it."""
    if name.isprintable():
        return name
    # A lone surrogate, too: it stands for a byte of a name that is no UTF-8.
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in name)


def choices(pattern: str) -> list[str]:
    """The patterns that *pattern* stands for, one for each choice in its braces, as in ``*.{js,ts}``."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        msg = f"the glob {pattern!r} leads out of the searched directory; give that as path"
        raise ValueError(msg)
    if pattern.count("{") > _MAX_CHOICES:
        msg = f"the glob {pattern!r} has more than {_MAX_CHOICES} braces; search more than once"
        raise ValueError(msg)
    if "/" not in pattern:  # a bare name is looked for at any depth
        pattern = f"**/{pattern}"
    found = list(islice(_spelled_out(pattern.removeprefix("./")), _MAX_PATTERNS + 1))
    if len(found) > _MAX_PATTERNS:
        msg = f"the braces of the glob stand for more than {_MAX_PATTERNS:,} patterns; search more than once"
        raise ValueError(msg)
    return found


def _spelled_out(pattern: str) -> Iterator[str]:
    """Take the first innermost braces apart, and then what is left of them."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        yield pattern
        return
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    for choice in braces[1].split(","):
        yield from _spelled_out(f"{before}{choice}{after}")


def matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a glob, where ``**`` stands for any number of parts."""
    at = of = 0  # where we are in the path and in the pattern
    retry: tuple[int, int] | None = None
    while at < len(parts):
        if of < len(pattern) and pattern[of] == "**":
            retry = (at, of)
            of += 1
        elif of < len(pattern) and fnmatchcase(parts[at], pattern[of]):
            at, of = at + 1, of + 1
        elif retry is not None:
            # Only the last ** has to take one more part: any earlier one could take no better. So the time is
            # bounded by the product of the lengths, where plain backtracking is exponential.
            retry = (retry[0] + 1, retry[1])
            at, of = retry[0], retry[1] + 1
        else:
            return False
    return all(part == "**" for part in pattern[of:])


def main(order: str) -> int:
    """Carry out the *order*: what `report` takes, as a JSON object."""
    # By lines, so that a search that is stopped has found something.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # a text file
    try:
        for line in report(**json.loads(order)):
            sys.stdout.write(f"{line}\n")
    except Exception as error:  # noqa: BLE001  # a model can do nothing with a traceback
        why = str(error) if isinstance(error, ValueError) else f"the search failed: {type(error).__name__}"
        sys.stdout.write(f"{why}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
