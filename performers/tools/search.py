"""
Walking a tree, matching names, and searching text: the work behind `glob` and `grep`, as a program.

It runs in a process of its own, since nothing else can stop a regular expression that backtracks for ever:
within ours it would hold every thread. So this file imports the standard library only and takes its order as
one JSON argument. The directory comes as an open descriptor that has been checked; nothing
below it is reached through a symlink.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

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

# Braces in one pattern: each multiplies the patterns to try.
_MAX_CHOICES = 6

# The exit code for an order that cannot be carried out; the output says why.
REFUSED = 2


@dataclass
class Finder:
    """
    Looks below the directory open as *folder*, or in its file *only*.

    *shown* stands before every path in the output. *names* is a glob for paths, or empty; *text* a regular
    expression for lines, or None to list the paths. At most *limit* are found. *missed* counts what was left
    out, by reason.
    """

    folder: int
    only: str
    shown: str
    names: str
    text: str | None
    limit: int
    missed: Counter[str] = field(default_factory=Counter[str])

    def report(self) -> Iterator[str]:
        """What is found, a line each, and at the end what was left out."""
        for found, line in enumerate(self.lines()):
            if found == self.limit:  # known only now that there is one more
                yield f"[stopped after {found:,}; narrow the search]"
                return
            yield line
        if self.missed:
            yield f"[left out: {', '.join(f'{count} {why}' for why, count in sorted(self.missed.items()))}]"

    def lines(self) -> Iterator[str]:
        """What is found, a line each, in the order of paths; raises `ValueError` for a wrong pattern."""
        patterns = [pattern.split("/") for pattern in choices(self.names)]
        try:
            text = None if self.text is None else re.compile(self.text)
        except (re.error, OverflowError, RecursionError) as error:
            msg = f"{self.text!r} is not a regular expression of Python's: {error}"
            raise ValueError(msg) from error
        for path, folder in self._files():
            if self.names and not any(matches(path.split("/"), pattern) for pattern in patterns):
                continue
            if text is None:
                yield self.shown + path
            else:
                for number, line in enumerate(self._text(path, folder).split("\n"), 1):
                    if text.search(line):
                        hit = line.rstrip("\r") if len(line) <= MAX_HIT else f"{line[:MAX_HIT]}..."
                        yield f"{self.shown}{path}:{number}: {hit}"

    def _files(self) -> Iterator[tuple[str, int]]:
        """Each file's path from where the search began, and its open directory."""
        if self.only:
            yield self.only, self.folder
            return

        def unread(_: OSError) -> None:
            self.missed["unreadable"] += 1

        for base, folders, names, folder in os.fwalk(".", onerror=unread, dir_fd=self.folder):
            # In place, since `fwalk` descends into the names that are left here.
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(names):
                yield os.path.normpath(f"{base}/{name}"), folder

    def _text(self, path: str, folder: int) -> str:
        """The text of a file, or nothing of one that is left out."""

        def opener(name: str, flags: int) -> int:
            # A symlink is refused. Without O_NONBLOCK, opening a named pipe waits for a process that writes.
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)

        try:
            with open(path.rpartition("/")[2], "rb", opener=opener) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return ""
                data = file.read(MAX_SEARCHED + 1)
        except OSError as error:
            if error.errno != errno.ELOOP:  # a symlink, whose target is searched where it lies
                self.missed["unreadable"] += 1
            return ""
        if len(data) > MAX_SEARCHED:
            self.missed[f"over {MAX_SEARCHED // 1_000_000} MB"] += 1
        elif b"\0" in data[:SNIFFED]:
            self.missed["binary"] += 1
        else:
            return data.decode(errors="replace")
        return ""


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
    return _spelled_out(pattern.removeprefix("./"))


def _spelled_out(pattern: str) -> list[str]:
    """Take the first innermost braces apart, and then what is left of them."""
    braces = re.search(r"\{([^{}]*)\}", pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [whole for choice in braces[1].split(",") for whole in _spelled_out(f"{before}{choice}{after}")]


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


def main(argument: str) -> int:
    """Carry out the order in *argument*: the fields of a `Finder`, as a JSON object."""
    # By lines, so that a search that is stopped has found something.
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", line_buffering=True)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue]  # a text file
    try:
        for line in Finder(**json.loads(argument)).report():
            sys.stdout.write(f"{line}\n")
    except ValueError as error:
        sys.stdout.write(f"{error}\n")
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
