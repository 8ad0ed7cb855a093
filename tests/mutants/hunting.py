"""
A plugin of pytest that hunts mutants: for each, the tests that run its line, until one fails.

    pytest -p mutants.hunting --hunt ORDER.json --found FOUND.jsonl

Theory of operation. One process imports the package and all tests, and runs none. For each mutant it forks;
the copy puts the mistake into the function that has it, by giving it another code, and runs the tests. So a
mutant costs a fork and a few tests, and no import. One outside of any function needs an import, and so a
process of its own. Whatever finds a mutant is run once more without the mistake: a test that fails then, too,
finds none.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn, final

import attrs
import psutil  # type: ignore[import-untyped]  # it brings no types
import pytest
from hypothesis import Phase, settings

from .hook import sitecustomize
from .mutations import Mutant

ROOT = Path(__file__).resolve().parents[2]

# What a copy ends with. Others mean that it was killed, or crashed.
SURVIVED, FOUND, NOT_SWAPPED = 0, 1, 70

# The seconds of a processor that a mutant may use: so many times those that its tests took before, and some
# to begin with. One that uses more is in a loop without end, and so found. By the clock it has ten times as
# many, for a machine that is busy with other things.
TIMES, BEGINNING, PATIENCE = 2.0, 10.0, 10.0

# prctl(2): what processes below the caller leave behind becomes its child, even in another session.
PR_SET_CHILD_SUBREAPER = 36


@final
@attrs.frozen(kw_only=True)
class Job:
    """
    A *mutant* to hunt with *tests*, the ids of those that may find it, which take so many *seconds*.

    *anew*: where none finds it, they are run once more, in a process that imports the mistake. What runs
    while modules are imported has been done before a function gets another code. *control*: the mistake is
    left out.
    """

    mutant: Mutant
    tests: tuple[str, ...]
    seconds: float
    anew: bool
    control: bool = False


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hunt", help="the file with the mutants to hunt, and their tests")
    parser.addoption("--found", help="the file that gets a line for each mutant")
    parser.addoption("--hunters", type=int, default=os.cpu_count() or 1, help="how many mutants at a time")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # A failure is all that is asked for, so no smaller example of it. What one mutant finds is no news to
    # the next one.
    turnwheel = settings.get_profile("turnwheel")
    hunted = settings(turnwheel, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    settings.register_profile("hunt", hunted)
    settings.load_profile("hunt")
    order: str | None = config.getoption("--hunt")
    if order:
        found, hunters = str(config.getoption("--found")), int(str(config.getoption("--hunters")))
        config.pluginmanager.register(_Hunter(Path(order), Path(found), hunters))


class _Hunter:
    def __init__(self, order: Path, found: Path, hunters: int) -> None:
        self._jobs = deque([_job(one) for one in json.loads(order.read_text("utf-8"))])
        self._found, self._hunters = found, hunters
        self._folder = Path(tempfile.mkdtemp(prefix="hunt-"))
        self._at_work: dict[int, tuple[Job, Path, float]] = {}
        # By mutant: the hunt that found it and what that came to, while its control runs.
        self._judged: dict[str, tuple[Job, Mapping[str, object]]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = _functions()
        gc.collect()
        # What is here now is never looked at again, so that no copy writes into pages of all of it.
        gc.freeze()
        _adopt()
        try:
            while self._jobs or self._at_work:
                while self._jobs and len(self._at_work) < self._hunters:
                    self._begin(self._jobs.popleft(), items, functions)
                if not self._end_one():
                    time.sleep(0.005)
        finally:
            self._at_work.clear()
            self._end_left_behind()
            shutil.rmtree(self._folder, ignore_errors=True)
        return True

    def _begin(
        self, job: Job, items: Mapping[str, pytest.Item], functions: Mapping[str, list[FunctionType]]
    ) -> None:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        number = os.fork()
        if not number:
            _copy(job, [items[test] for test in job.tests if test in items], functions, folder)
        self._at_work[number] = job, folder, time.monotonic()

    def _end_one(self) -> bool:
        """Take note of one copy that has ended; False where none has."""
        number, status = os.waitpid(-1, os.WNOHANG)
        if not number:
            for late, (job, _, since) in self._at_work.items():
                if time.monotonic() - since > PATIENCE * _limit(job):
                    with suppress(ProcessLookupError):  # it has ended, and is about to be seen
                        os.killpg(late, signal.SIGKILL)
            return False
        if number in self._at_work:  # a test's process may end as an orphan of ours
            job, folder, since = self._at_work.pop(number)
            self._end_left_behind()
            by = (folder / "by").read_text("utf-8") if (folder / "by").exists() else ""
            over = {
                "name": job.mutant.name,
                "code": os.waitstatus_to_exitcode(status),
                "by": by,
                "tests": len(job.tests),
                "seconds": round(time.monotonic() - since, 3),
            }
            shutil.rmtree(folder, ignore_errors=True)
            self._judge(job, over, by)
        return True

    def _end_left_behind(self) -> None:
        """End what copies that are over left behind: they end without clean-up, and a server outlives one."""
        for child in psutil.Process().children():
            if child.pid not in self._at_work:
                with suppress(psutil.NoSuchProcess):
                    below = child.children(recursive=True)
                    for each in [child, *below]:
                        with suppress(psutil.NoSuchProcess):
                            each.kill()

    def _judge(self, job: Job, over: Mapping[str, object], by: str) -> None:
        """Take note of what *job* came to, *over*, which the test *by* ended; or look closer first."""
        name, named = job.mutant.name, by in job.tests
        if job.control:
            before, failed = self._judged.pop(name)
            if over["code"] != SURVIVED and not job.anew:
                # The hunt goes on without the test that failed here. Where another one had failed with the
                # mistake, that one is asked again.
                last = len(job.tests) - 1
                left = before.tests[last if named else last + 1 :]
                self._jobs.appendleft(attrs.evolve(before, tests=tuple([one for one in left if one != by])))
                return
            over = failed if over["code"] == SURVIVED else {**failed, "code": SURVIVED}
        elif over["code"] == FOUND:
            self._judged[name] = job, over
            tests = job.tests[: job.tests.index(by) + 1] if named else job.tests
            self._jobs.appendleft(attrs.evolve(job, tests=tests, anew=not named, control=True))
            return
        with self._found.open("a", encoding="utf-8") as file:
            file.write(json.dumps(over) + "\n")


def _job(plain: dict[str, Any]) -> Job:
    told: dict[str, Any] = {**plain["mutant"], "lines": frozenset(plain["mutant"]["lines"])}
    mutant = Mutant(**told)
    return Job(mutant=mutant, tests=tuple(plain["tests"]), seconds=plain["seconds"], anew=plain["anew"])


def _limit(job: Job) -> float:
    """The seconds of a processor that *job* may use."""
    return BEGINNING + TIMES * job.seconds


def _functions() -> dict[str, list[FunctionType]]:
    """All functions of the package, by the file that they are in."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            _, package, file = one.__code__.co_filename.rpartition("/turnwheel/")
            if package:
                found.setdefault(file, []).append(one)
    return found


def _adopt() -> None:
    """Become the parent of what processes below this one leave behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _copy(
    job: Job, items: Sequence[pytest.Item], functions: Mapping[str, list[FunctionType]], folder: Path
) -> NoReturn:
    """In a process of its own: put the mistake in, except for a control, and run *items* until one fails."""
    code = NOT_SWAPPED
    try:
        os.setsid()
        # What is left behind below belongs to this copy, until it ends.
        _adopt()
        most = int(_limit(job)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))
        with (folder / "said").open("wb") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        if job.control:
            code = _run_anew(job.tests, folder) if job.anew else _run(items, folder)
        else:
            code = _hunt(job, items, functions, folder)
    except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def _hunt(
    job: Job, items: Sequence[pytest.Item], functions: Mapping[str, list[FunctionType]], folder: Path
) -> int:
    mutant, code = job.mutant, NOT_SWAPPED
    os.environ |= sitecustomize.announce(mutant.file, mutant.begin, mutant.end, mutant.new)
    if mutant.function and _swap(mutant, functions.get(mutant.file, [])):
        code = _run(items, folder)
    if code == NOT_SWAPPED or job.anew:
        code = _run_anew(job.tests, folder)
    return code


def _swap(mutant: Mutant, functions: Sequence[FunctionType]) -> bool:
    """Put the mistake into those of *functions* that have it; whether that was possible."""
    module = sys.modules.get(sitecustomize.module_of(mutant.file))
    if module is None or module.__file__ is None:
        # Imported by a test, if at all.
        sitecustomize.install(mutant.file, mutant.begin, mutant.end, mutant.new)
        return True
    text = Path(module.__file__).read_text("utf-8")
    code = compile(mutant.applied(text), module.__file__, "exec", dont_inherit=True)
    changed: dict[str, list[CodeType]] = {}
    for inner in _inner(code):
        changed.setdefault(inner.co_qualname, []).append(inner)
    swapped = 0
    for function in functions:
        name = function.__code__.co_qualname
        if name != mutant.function and not name.startswith(f"{mutant.function}.<locals>."):
            continue
        # Two of one name stand in two lines, as in an `if`; a change moves neither.
        line = function.__code__.co_firstlineno
        there = [one for one in changed.get(name, []) if one.co_firstlineno == line]
        if len(there) == 1 and there[0].co_freevars == function.__code__.co_freevars:
            function.__code__ = there[0]
            swapped += name == mutant.function
    return swapped > 0


def _inner(code: CodeType) -> list[CodeType]:
    """All code within *code*, at any depth."""
    there = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [*there, *[below for one in there for below in _inner(one)]]


def _run(items: Sequence[pytest.Item], folder: Path) -> int:
    if not items:
        return SURVIVED
    config: Any = items[0].config
    factory = config._tmp_path_factory  # one folder each
    factory._basetemp = folder / "tmp"  # as above
    factory._basetemp.mkdir()  # as above
    config.pluginmanager.register(_Failing(folder))
    for item, following in zip(items, [*items[1:], None], strict=True):
        config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return SURVIVED


class _Failing:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            (self._folder / "by").write_text(report.nodeid, "utf-8")
            os._exit(FOUND)


# Tests of a mutant that needs an import; more of them would take long to collect.
MOST = 600


def _run_anew(tests: Sequence[str], folder: Path) -> int:
    if not tests:  # pytest would run all there are
        return SURVIVED
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-n",
        "0",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
    ]
    # Rewriting asserts, pytest reads the package's files itself, since it has a plugin of pytest's: then the
    # mistake is in none of them.
    command += ["--assert=plain"]
    command += ["-m", "", "--tb=line", "--no-header", f"--basetemp={folder / 'tmp'}", *tests[:MOST]]
    ended = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    (folder / "by").write_text("\n".join(ended.stdout.splitlines()[-2:]), "utf-8")
    return SURVIVED if ended.returncode == 0 else FOUND
