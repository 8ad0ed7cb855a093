"""
Bytes that nobody sends, given to everybody who reads what comes from outside.

Each run takes a body that is well, changes it (`garbling.mutations`) and gives it to one of the
`garbling.readers`: the parsers of both dialects, and those of refusals, journals, snapshots, settings,
arguments, hooks and packed bodies.
Nothing may be raised but the errors that have a name, a run takes bounded time, and what comes out is bounded
and as its contract has it, however a network cut what went in. What is found is told as a test to paste.

    python -m provers.fuzzing                        a hundred thousand runs
    python -m provers.fuzzing --runs 1000000         more of them
    python -m provers.fuzzing --seeds DIR            from the recorded bodies below DIR as well
    python -m provers.fuzzing --again anthropic:17   one of them once more

Runs have numbers, and a number is the same run each time, with the same recorded bodies: ``*.sse`` are
streams, ``*.error.json`` have the body of a refusal under ``body_text``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shlex
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import final

import attrs

from provers.fuzzing.mutations import mutated
from provers.fuzzing.readers import READERS
from provers.options import whole

SECONDS = 2.0
"""Seconds of work that a run may take, on a slow machine: most take a thousandth, the longest a fifth."""

HANGS = 20.0
"""Seconds after which a run hangs, whatever else the machine has to do."""

MEMORY = 1024**3
"""Bytes of address space that a process may have; it needs a third of that."""

BATCH = 500
"""Runs that a process does before it says what it found."""

TELL = 100_000
"""Runs after which something is said."""

LARGEST = 60_000
"""Bytes of a recorded body that is taken: larger ones take time and say the same."""

SHRINKS = 400
"""How often it is tried to find the same with fewer bytes."""

ENOUGH = 5
"""Things that are found before it ends."""

TURNS = tuple([name for name, reader in READERS.items() for _ in range(reader.share)])
"""Whose turn it is, of so many runs in a row."""


@final
class TooSlow(Exception):
    """A run took too long."""


@final
@attrs.frozen(kw_only=True)
class Found:
    """What is wrong: *faults* of *reader* with *data*, in the run of this *number* with *recorded* bodies."""

    reader: str
    number: int
    faults: str
    data: bytes
    recorded: Path | None = None

    def __str__(self) -> str:
        return (
            f"{self.reader}:{self.number}\n{self.faults}\n\n"
            f"def test_what_was_found_at_{self.reader}_{self.number}() -> None:\n"
            f'    """``python -m provers.fuzzing {self._again}`` found this."""\n'
            f'    assert READERS["{self.reader}"].reads({self.data!r}, {self.number})[0] == []\n'
        )

    @property
    def _again(self) -> str:
        """What does it once more; with other recorded bodies the same number is another run."""
        seeds = f" --seeds {shlex.quote(str(self.recorded))}" if self.recorded is not None else ""
        return f"--again {self.reader}:{self.number}{seeds}"


@final
@attrs.frozen(kw_only=True)
class Most:
    """The most *seconds* of work that a run took, and which *run*; the most *bytes* that a process had."""

    seconds: float = 0.0
    run: str = ""
    bytes: int = 0

    def __str__(self) -> str:
        return f"the slowest took {self.seconds:.3f} s, {self.run}; a process had {self.bytes / 1e6:.0f} MB"

    def or_(self, other: Most) -> Most:
        """What is more, of each of the two."""
        slower = max(self, other, key=lambda most: most.seconds)
        return Most(seconds=slower.seconds, run=slower.run, bytes=max(self.bytes, other.bytes))


# One run


@cache
def bodies(reader: str, recorded: Path | None) -> tuple[bytes, ...]:
    """What a run of *reader* begins with."""
    return (*READERS[reader].seeds(), *(found for name, found in _recorded(recorded) if name == reader))


@cache
def _recorded(folder: Path | None) -> tuple[tuple[str, bytes], ...]:
    """The recorded bodies below *folder*, each with the reader it is for."""
    found: list[tuple[str, bytes]] = []
    for path in sorted(() if folder is None else folder.rglob("*")):
        if path.suffix == ".sse":
            body = path.read_bytes()
            dialects = ((b'"choices"', "openai"), (b'"response.', "openai-responses"))
            found.append((next((name for mark, name in dialects if mark in body), "anthropic"), body))
        elif path.name.endswith(".error.json"):
            found.append(("refusal", json.loads(path.read_text("utf-8"))["body_text"].encode()))
    return tuple([(name, body) for name, body in found if len(body) <= LARGEST])


def data_of(reader: str, number: int, recorded: Path | None) -> bytes:
    """The bytes that *reader* is given in the run of this *number*."""
    rng = random.Random(f"{reader}:{number}")  # it plays, and keeps no secret
    there = bodies(reader, recorded)
    return mutated(rng, rng.choice(there), there)


def tried(reader: str, number: int, data: bytes) -> tuple[str, str]:
    """What is wrong with how *data* is read, as text, empty for nothing, and what it was taken for."""
    try:
        with _in_time():
            faults, taken = READERS[reader].reads(data, number)
    except Exception as error:  # noqa: BLE001  # that is what is looked for
        return "".join(traceback.format_exception(error, limit=-8)), type(error).__name__
    return "\n".join(faults), taken


@contextmanager
def _in_time() -> Generator[None]:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of work, since what else goes on is nobody's fault
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def late(kind: int, _: FrameType | None) -> None:
    """Raise `TooSlow`, as a handler of a signal of this *kind*."""
    msg = f"a run hangs for {HANGS} s" if kind == signal.SIGALRM else f"a run works for more than {SECONDS} s"
    raise TooSlow(msg)


def shrunk(reader: str, number: int, data: bytes) -> bytes:
    """Less of *data* in which something is wrong all the same."""
    step, tries = max(1, len(data) // 2), 0
    while step and tries < SHRINKS:
        at = 0
        while at < len(data) and tries < SHRINKS:
            less = data[:at] + data[at + step :]
            tries += 1
            if tried(reader, number, less)[0]:
                data = less
            else:
                at += step
        step //= 2
    return data


# Many


Batch = tuple[Counter[tuple[str, str]], list[Found], Most]
"""What runs were taken for, what was found, and the most that they took."""


def batch(start: int, runs: int, recorded: Path | None) -> Batch:
    """What came of as many *runs* from number *start* on."""
    counts: Counter[tuple[str, str]] = Counter()
    found: list[Found] = []
    most = Most()
    for number in range(start, start + runs):
        reader = TURNS[number % len(TURNS)]
        data = data_of(reader, number, recorded)
        began = time.process_time()
        faults, taken = tried(reader, number, data)
        most = most.or_(Most(seconds=time.process_time() - began, run=f"{reader}:{number}"))
        counts[reader, taken] += 1
        if faults:
            less = shrunk(reader, number, data)
            faults = tried(reader, number, less)[0]
            found.append(Found(reader=reader, number=number, faults=faults, data=less, recorded=recorded))
    return counts, found, most.or_(Most(bytes=had()))


def had() -> int:
    """The most bytes that this process had so far."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else size * 1024


def prepare() -> None:
    """Let this process run out of time and memory before the machine does."""
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def report(counts: Counter[tuple[str, str]], seconds: float) -> str:
    """What *counts* say."""
    lines: list[str] = []
    for reader in READERS:
        taken = {what: count for (name, what), count in counts.items() if name == reader}
        if taken:
            told = ", ".join(
                f"{what} {count:,}" for what, count in sorted(taken.items(), key=lambda one: -one[1])
            )
            lines.append(f"{reader:10} {sum(taken.values()):>9,}  {told}")
    runs = counts.total()
    return "\n".join(
        [*lines, f"{runs:,} runs in {seconds:.0f} s, {runs / max(seconds, 0.001):,.0f} a second"]
    )


def _batch(first: tuple[int, int], recorded: Path | None) -> Batch:
    return batch(*first, recorded)


def many(asked: argparse.Namespace) -> list[Found]:
    """Do as many runs as were *asked* for, in as many processes, and say what came of them."""
    counts: Counter[tuple[str, str]] = Counter()
    found: list[Found] = []
    most = Most()
    starts = range(asked.first, asked.first + asked.runs, BATCH)
    work = [(start, min(BATCH, asked.first + asked.runs - start)) for start in starts]
    told, began = TELL, time.monotonic()
    for name in READERS:
        bodies(name, asked.seeds)  # made once, for all processes
    with get_context("fork").Pool(asked.workers, prepare) as pool:
        for more, wrong, took in pool.imap_unordered(partial(_batch, recorded=asked.seeds), work):
            counts.update(more)
            most = most.or_(took)
            found += wrong
            if len(found) >= ENOUGH:
                break
            if counts.total() >= told:
                print(f"{counts.total():,} runs ...", flush=True)  # it takes minutes
                told += TELL
    print(f"{report(counts, time.monotonic() - began)}\n{most}")  # the report
    return found


def again(case: str, recorded: Path | None) -> list[Found]:
    """The run that *case* names, such as ``openai:17``, once more."""
    reader, _, text = case.partition(":")
    number = int(text)
    data = data_of(reader, number, recorded)
    faults, taken = tried(reader, number, data)
    print(f"{data!r}\nwas taken for: {taken}")  # as above
    if not faults:
        return []
    return [Found(reader=reader, number=number, faults=faults, data=data, recorded=recorded)]


def case_of(text: str) -> str:
    """The run that is written as *text*; an error of the command line where there is none such."""
    reader, _, number = text.partition(":")
    if reader in READERS and number.isdecimal():
        return text
    there = ", ".join(READERS)
    msg = f"needs a reader and the number of a run, such as openai:17, not {text!r}; there are {there}"
    raise argparse.ArgumentTypeError(msg)


def folder_of(text: str) -> Path:
    """The folder *text* with recorded bodies; an error of the command line where there are none."""
    if _recorded(Path(text)):
        return Path(text)
    msg = f"needs a folder with recorded bodies, *.sse or *.error.json; there are none below {text!r}"
    raise argparse.ArgumentTypeError(msg)


def main(arguments: Sequence[str] | None = None) -> None:
    """Do as many runs as are asked for, and say what was found; the exit code is 1 where anything was."""
    parser = argparse.ArgumentParser(prog="provers.fuzzing", description="Read what nobody sends.")
    parser.add_argument("--runs", type=whole(1), default=100_000, help="how many")
    parser.add_argument("--first", type=whole(0), default=0, help="the number of the first")
    parser.add_argument("--seeds", type=folder_of, metavar="DIR", help="where recorded bodies are")
    parser.add_argument("--workers", type=whole(1), default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--again", type=case_of, metavar="CASE", help="one of them, such as openai:17")
    asked = parser.parse_args(arguments)
    prepare()
    found = many(asked) if asked.again is None else again(asked.again, asked.seeds)
    print("\n".join(map(str, found)) or "nothing was found")  # as above
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
