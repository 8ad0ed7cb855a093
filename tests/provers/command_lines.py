"""
Command lines that no one would write, read by the rules and, where these let one pass, run by a real bash.

A line is drawn from a grammar of the shell, ``command_lines.txt``, made by the manual of bash 5.3, and some
are damaged afterwards. The rule is ``deny bash:command=git push*``. A line that it neither denies nor asks
about is run in an empty folder, where the only ``git`` notes how it was called: one that ran ``git push`` is
a fault of the rules.

    python -m provers.command_lines                    a hundred thousand lines
    python -m provers.command_lines --lines 1000000    more of them
    python -m provers.command_lines --again 17         one of them once more

Lines have numbers, and a number is the same line each time.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import final

import attrs

from provers.options import whole
from turnwheel.effects.findings import CommandFound, SimpleCommand
from turnwheel.performers.tools.shell import read_command
from turnwheel.states.rules.commands import Effort, Fit, met

GLOB = "git push*"

BATCH = 500
"""Lines that a process does before it says what it found."""

SECONDS = 5.0
"""Seconds after which a line is ended that bash has not come to the end of."""

MOST_DEPTH = 12
"""Rules that may stand in each other."""

GIT = """\
#!/bin/sh
printf '%s\\001' git "$@" > "$CALLED/$$"
"""
"""The only ``git`` on the path: it notes its words in a file of its own, a control character behind each."""

PROGRAMS = ("cat", "head", "ls", "touch", "tr")
"""Other programs on the path, which run none."""

Judge = Callable[[str], bool]
"""Whether the rules let a line pass."""


def passes(line: str) -> bool:
    """Whether neither a denial nor a question keeps *line* from running."""
    return met(GLOB, read_command("command", line), Effort()) is Fit.NO


# The grammar


@cache
def grammar() -> Mapping[str, Sequence[str]]:
    """The alternatives of each rule of ``command_lines.txt``."""
    rules: dict[str, list[str]] = {}
    name = ""
    for row in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        if row.startswith("  "):
            times, mark, alternative = row[2:].partition(" x ")
            if not (mark and times.isdigit()):
                times, alternative = "1", row[2:]
            rules[name] += [ast.literal_eval(f'"{_quoted(alternative)}"')] * int(times)
        elif row and not row.startswith("#"):
            name = row
            rules[name] = []
    return rules


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')


class Writer:
    """Draws a line."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def line(self) -> str:
        """A line; one in four is damaged."""
        text = self._made("line", 0)
        for _ in range(self._rng.choice((0, 0, 0, 0, 0, 0, 1, 3))):
            text = self._damaged(text)
        return text

    def _made(self, rule: str, depth: int) -> str:
        # What is nested deeper says nothing new.
        if depth > MOST_DEPTH:
            return "git push" if rule in {"list", "pipeline", "command", "compound"} else "a"
        text = self._rng.choice(grammar()[rule])
        return re.sub("«(.*?)»", lambda found: self._made(found[1], depth + 1), text)

    def _damaged(self, text: str) -> str:
        at = self._rng.randrange(len(text) + 1)
        end = at + self._rng.randrange(1, 6)
        match self._rng.randrange(4):
            case 0:
                return text[:at] + text[at + 1 :]
            case 1:
                return text[:at] + text[at:end] * 2 + text[end:]
            case 2:
                return text[:at] + self._rng.choice("\\'\"`$(){}[]<>&|;#!~*?= \t\n\r\v-") + text[at:]
            case _:
                return text[:at] + self._made("piece", 0) + text[at:]


def line_of(number: int) -> str:
    """The line of this *number*."""
    return Writer(random.Random(f"line:{number}")).line()  # it plays, and keeps no secret


# The judge


@final
class Bash:
    """A bash in a folder of its own, whose ``git`` notes its calls."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "path"
        self._folders = (folder / str(number) for number in count())
        self._path.mkdir()
        (self._path / "git").write_text(GIT)
        (self._path / "git").chmod(0o755)
        for name in PROGRAMS:
            if (program := shutil.which(name)) is not None:
                (self._path / name).symlink_to(program)
        self._bash = shutil.which("bash") or ""

    def calls(self, line: str) -> list[tuple[str, ...]]:
        """The words of each ``git`` that *line* ran, in an empty folder."""
        folder = next(self._folders)
        here, called = folder / "here", folder / "called"
        here.mkdir(parents=True)
        called.mkdir()
        env = {"PATH": str(self._path), "HOME": str(here), "CALLED": str(called)}
        # What runs in the background has the pipe too, and is waited for.
        reads, writes = os.pipe()
        process = subprocess.Popen(
            [self._bash, "-c", line],
            cwd=here,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writes,),
            start_new_session=True,
        )
        os.close(writes)
        ended, _, _ = select.select([reads], [], [], SECONDS)
        os.close(reads)
        if not ended:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        words = [path.read_text(errors="replace").split("\1")[:-1] for path in called.iterdir()]
        shutil.rmtree(folder, ignore_errors=True)
        return [*map(tuple, words)]


def pushed(calls: Iterable[tuple[str, ...]]) -> bool:
    """Whether one of *calls* is what the rule denies."""
    found = CommandFound(argument="command", commands=tuple(SimpleCommand(words=words) for words in calls))
    return met(GLOB, found, Effort()) is not Fit.NO


@final
@attrs.frozen
class Through:
    """A *line* that passed the rules and ran ``git push``, and its *number*."""

    number: int
    line: str

    def __str__(self) -> str:
        return f"{self.number}: passed, and ran git push\n{self.line!r}"


def tried(numbers: Iterable[int], judge: Judge = passes) -> tuple[Counter[str], list[Through]]:
    """How many of the lines of *numbers* passed, and those that should not have."""
    counts: Counter[str] = Counter()
    found: list[Through] = []
    with tempfile.TemporaryDirectory(prefix="turnwheel-lines-", ignore_cleanup_errors=True) as folder:
        bash = Bash(Path(folder))
        for number in numbers:
            line = line_of(number)
            if "\0" in line or not judge(line):
                counts["held"] += 1
                continue
            counts["passed"] += 1
            if pushed(bash.calls(line)):
                found.append(Through(number, line))
    return counts, found


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main(arguments: Sequence[str] | None = None) -> None:
    """Try as many lines as are asked for; the exit code is 1 where one got through."""
    parser = argparse.ArgumentParser(prog="provers.command_lines", description="Run what the rules let pass.")
    parser.add_argument("--lines", type=whole(1), default=100_000, help="how many")
    parser.add_argument("--first", type=whole(0), default=0, help="the number of the first")
    parser.add_argument("--workers", type=whole(1), default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--again", type=whole(0), metavar="NUMBER", help="one of them")
    asked = parser.parse_args(arguments)
    if shutil.which("bash") is None:
        sys.exit("needs bash")
    began = time.monotonic()
    counts: Counter[str] = Counter()
    found: list[Through] = []
    if asked.again is None:
        end = asked.first + asked.lines
        work = [range(start, min(start + BATCH, end)) for start in range(asked.first, end, BATCH)]
        with get_context("fork").Pool(asked.workers, _limit) as pool:
            for more, through in pool.imap_unordered(tried, work):
                counts.update(more)
                found += through
    else:
        print(repr(line_of(asked.again)), read_command("command", line_of(asked.again)), sep="\n")
        counts, found = tried([asked.again])
    seconds = time.monotonic() - began
    print(f"{counts.total():,} command lines in {seconds:.0f} s: {counts['passed']:,} passed and were run")
    print("\n".join(map(str, found)) or "none got through")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
