"""
Hunts mistakes: each in a process of its own, which has one and runs what is to find it, several at a time.

    hunt.py [PROCESSES]    reads a list of jobs as JSON, and writes a line of JSON for each that is over

A job has a *name*; the *file* with the mistake, the text *old* in it and what is *new* in its place, or
nothing of that; and finders. These are *plays*, numbers of runs and sessions and a kind of world, then
*tests*, what pytest is told, or ``-m`` with a module and its arguments. One that finds something ends with 1.

Whatever the finders need of other people is imported once, here, and then each process is a fork.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import attrs
import cattrs
import httpx
import hypothesis
import msgspec
import pytest
import pytest_asyncio
import structlog

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])

PLAYS = runpy.run_path(str(HERE / "plays.py"))
SWAPPING = runpy.run_path(str(HERE / "hook" / "sitecustomize.py"))

NEEDED = (attrs, cattrs, httpx, hypothesis, msgspec, pytest_asyncio, structlog)
"""What is imported for those that come after."""

Job = dict[str, Any]

IMPORTED = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
# Plain asserts: pytest rewrites the package of an installed plugin, which turnwheel is, and so would load the
# module as its file says.
QUIET = (
    "-q",
    "-x",
    "--assert=plain",
    "--no-header",
    "--tb=line",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
    *IMPORTED,
)
CRASHED = 70
SECONDS = 240.0
"""No finder takes so long, on a slow and busy machine either."""

AT_WORK: dict[int, tuple[Job, IO[bytes], float]] = {}
"""The processes at work: what each does, where it says so, and since when."""


def find(job: Job) -> int:
    """Run the finder of *job*; 1 if it found something, 0 if not."""
    if job.get("file"):
        SWAPPING["install"](job["file"], job["old"], job["new"])
    if "plays" in job:
        found = PLAYS["broken"](*job["plays"])
        print(found or "every promise was kept")
        if found or "tests" not in job:
            return bool(found)
    arguments = shlex.split(job["tests"])
    if arguments[0] != "-m":
        return int(pytest.main([*QUIET, *arguments]))
    sys.argv = arguments[1:]
    try:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def begin(job: Job, said: int) -> int:
    """A process that does *job* and writes what it says to the file *said*; its number."""
    number = os.fork()
    if number:
        return number
    code = CRASHED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what ends this process is no reason to end the others
        os.setsid()
        os.dup2(said, 1)
        os.dup2(said, 2)
        code = find(job)
    except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def hunt(jobs: list[Job], processes: int) -> None:
    waiting = deque(jobs)
    while waiting or AT_WORK:
        while waiting and len(AT_WORK) < processes:
            job = waiting.popleft()
            said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # open as long as the process is
            AT_WORK[begin(job, said.fileno())] = (job, said, time.monotonic())
        number, status = os.waitpid(-1, os.WNOHANG)
        for late in [one for one, (_, _, since) in AT_WORK.items() if time.monotonic() - since > SECONDS]:
            with suppress(ProcessLookupError):  # it has ended, and is about to be seen
                os.killpg(late, signal.SIGKILL)
        if not number:
            time.sleep(0.01)
            continue
        job, said, since = AT_WORK.pop(number)
        said.seek(0)
        over = {
            "name": job["name"],
            "code": os.waitstatus_to_exitcode(status),
            "said": said.read().decode("utf-8", "replace")[-4_000:].strip(),
            "seconds": round(time.monotonic() - since, 2),
        }
        said.close()
        print(json.dumps(over), flush=True)


def stop(*_: object) -> None:
    for number in AT_WORK:
        os.killpg(number, signal.SIGKILL)
    sys.exit(1)


if __name__ == "__main__":
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, stop)
    hunt(json.load(sys.stdin), int(sys.argv[1]) if sys.argv[1:] else os.cpu_count() or 1)
