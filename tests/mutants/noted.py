"""
Which tests run each line of the package: noted once, and kept while the package and the tests change.

Theory of operation. `covering` notes the lines that tests run, and the functions that the package had then. A
function that is the same now keeps its tests, wherever it stands. One that is not is taken to be run by the
tests that ran the one of its name, or else anything in its file, or else in its folder: tests too many cost a
little time and lose nothing. Only the tests of files that are new or changed are run again. Delete the folder
of the notes, and all are.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeAlias

import pytest
from coverage.numbits import numbits_to_nums

ROOT = Path(__file__).resolve().parents[2]

# Whose Python is not in the package.
OUTSIDE = ("tests/", "examples/", "benchmarks/")

# What is here runs nothing of the package.
HERE = "tests/mutants/"
TESTS = ("-p", "no:randomly", "-p", "no:cacheprovider")

# How a run of tests may end that has noted all there is.
ENDED = {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}

# The tests that run each line of each file, by the path of the file in the package.
Lines: TypeAlias = dict[str, dict[int, list[str]]]


class Function(NamedTuple):
    """A function that is in no other one: its qualified name, a digest of its text, its lines."""

    name: str
    digest: str
    first: int
    last: int

    @property
    def lines(self) -> range:
        return range(self.first, self.last + 1)


# The functions of each file of the package.
Functions: TypeAlias = Mapping[str, list[Function]]


def functions_of(text: str) -> list[Function]:
    """The functions of a file with this *text*."""
    return list(_functions(ast.parse(text), text.splitlines(), ""))


def _functions(node: ast.AST, lines: list[str], scope: str) -> Iterator[Function]:
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            last = one.end_lineno or one.lineno
            text = "\n".join(lines[one.lineno - 1 : last])
            yield Function(scope + one.name, _digest(text.encode()), one.lineno, last)
        else:
            inner = f"{scope}{one.name}." if isinstance(one, ast.ClassDef) else scope
            yield from _functions(one, lines, inner)


def functions_now() -> Functions:
    """The functions of the package as it is checked out."""
    there = [name for name in _checked_out("*.py") if not name.startswith(OUTSIDE)]
    return {name: functions_of((ROOT / name).read_text("utf-8")) for name in there}


def _checked_out(*patterns: str) -> list[str]:
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(name for name in listed if (ROOT / name).is_file())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def lines_of_tests(folder: Path, below: str = "tests") -> tuple[Lines, Mapping[str, float]]:
    """
    Which tests run each line, and how long each takes: *folder* is made, or brought up to date.

    Of all tests, or of those *below* a folder of them.
    """
    noted = folder / "tests.json"
    now = {name: digest for name, digest in digests().items() if name.startswith(f"{below}/")}
    before = json.loads(noted.read_text("utf-8")) if noted.exists() else {}
    changed = [name for name in {*now, *before} if now.get(name) != before.get(name)]
    again = run_again(changed, now)
    if not before:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    forget(folder, again)
    asked = [name for name in again if name in now]
    if asked:
        print("noting which lines tests run:", *(asked if before else [f"all of {below}"]), flush=True)
        cores = "0" if len(asked) == 1 else "auto"
        noting = ["-p", "mutants.covering", f"--lines={folder}", "--timeout=600"]
        noting += asked if before else [below]
        if run_pytest("-n", cores, *noting) not in ENDED:
            sys.exit("the lines of tests: pytest did not come to its end; see why by running these tests")
    noted.write_text(json.dumps(now), "utf-8")
    return read(folder, functions_now())


def digests() -> dict[str, str]:
    """What the files of the tests have in them, each as a digest."""
    there = _checked_out("tests/*.py", "tests/*.txt", "tests/*.toml")
    return {name: _digest((ROOT / name).read_bytes()) for name in there if not name.startswith(HERE)}


def run_again(changed: Iterable[str], there: Iterable[str]) -> list[str]:
    """The files whose tests a change of these asks to run again: for a text, the nearest ones of *there*."""
    in_folder: dict[PurePosixPath, set[str]] = {}
    for name in filter(_is_test, there):
        in_folder.setdefault(PurePosixPath(name).parent, set()).add(name)
    again: set[str] = set()
    for name in changed:
        if _is_test(name):
            again.add(name)
        elif not name.endswith(".py"):
            nearest = next((up for up in PurePosixPath(name).parents if up in in_folder), None)
            again |= in_folder[nearest] if nearest else set()
    return sorted(again)


def _is_test(name: str) -> bool:
    return PurePosixPath(name).name.startswith("test_")


def run_pytest(*arguments: str) -> int:
    """Run pytest, and return its exit code; some tests may fail, which is for others to judge."""
    command = [sys.executable, "-m", "pytest", "-q", *TESTS, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
    return ended.returncode


def forget(folder: Path, files: Iterable[str]) -> None:
    """Drop from *folder* what was noted of the tests in *files*, each a path in the checkout."""
    gone = {*files}
    for noted in folder.glob("lines-*"):
        with closing(sqlite3.connect(noted)) as db, db:
            db.executemany(
                "delete from line_bits where context_id in (select id from context where context like ?)",
                [(f"{name}::%",) for name in gone],
            )
    for noted in folder.glob("seconds-*.json"):
        told = json.loads(noted.read_text("utf-8"))
        kept = {test: spent for test, spent in told["seconds"].items() if test.partition("::")[0] not in gone}
        noted.write_text(json.dumps(told | {"seconds": kept}), "utf-8")


def read(folder: Path, now: Functions) -> tuple[Lines, Mapping[str, float]]:
    """What was noted in *folder*: the tests of each line of the functions *now*; the seconds of each test."""
    lines: Lines = {name: {} for name in now}
    seconds: dict[str, float] = {}
    for noted in folder.glob("seconds-*.json"):
        told = json.loads(noted.read_text("utf-8"))
        seconds |= told["seconds"]
        functions = {name: [Function(*one) for one in there] for name, there in told["functions"].items()}
        ran = noted.with_name(noted.stem.replace("seconds", "lines"))
        before = _Before(functions, _noted_lines(ran, told["root"]))
        for name, there in now.items():
            for line, tests in before.tests(name, there):
                lines[name].setdefault(line, []).extend(tests)
    return lines, seconds


def _noted_lines(noted: Path, root: str) -> Lines:
    lines: Lines = {}
    with closing(sqlite3.connect(noted)) as db:
        rows = db.execute(
            "select path, context, numbits from line_bits"
            " join file on file.id = file_id join context on context.id = context_id where context != ''"
        )
        for path, test, bits in rows:
            # The installed package links to the files of the checkout.
            of_file = lines.setdefault(PurePosixPath(path).relative_to(root).as_posix(), {})
            for line in numbits_to_nums(bits):
                of_file.setdefault(line, []).append(test)
    return lines


class _Before:
    """The tests of each line as they were noted, and the functions of then."""

    def __init__(self, functions: Functions, lines: Lines) -> None:
        self._functions, self._lines = functions, lines
        self._known = {
            (one.name, one.digest): (file, one) for file, there in functions.items() for one in there
        }

    def tests(self, file: str, functions: list[Function]) -> Iterator[tuple[int, Iterable[str]]]:
        """The tests of each line of the *functions* that this *file* has now."""
        then = self._functions.get(file, [])
        if functions == then:
            yield from self._lines.get(file, {}).items()
            return
        here = {(one.name, one.digest): (file, one) for one in then}
        for one in functions:
            key = one.name, one.digest
            if found := here.get(key) or self._known.get(key):
                ran = self._lines.get(found[0], {})
                for line, noted in zip(one.lines, found[1].lines, strict=True):
                    yield line, ran.get(noted, ())
            else:
                tests = self._likely(file, one.name)
                yield from ((line, tests) for line in one.lines)

    def _likely(self, file: str, name: str) -> set[str]:
        """The tests that ran the function of this *name*, or else anything in its file, or in its folder."""
        ran, folder = self._lines.get(file, {}), PurePosixPath(file).parent
        then = [one for one in self._functions.get(file, ()) if one.name == name]
        named = [ran.get(line, ()) for one in then for line in one.lines]
        beside = [there for other, there in self._lines.items() if PurePosixPath(other).parent == folder]
        for likely in (named, ran.values(), chain.from_iterable(there.values() for there in beside)):
            if tests := {test for those in likely for test in those}:
                return tests
        return set()
