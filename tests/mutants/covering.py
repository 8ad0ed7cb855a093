"""
A plugin of pytest that notes which lines of the package each test runs, and how long the test takes.

    pytest -p mutants.covering --lines FOLDER

Each process of the tests writes two files into the folder, which `read` puts together.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import coverage
import pytest
from coverage.numbits import numbits_to_nums

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "turnwheel"

# The tests that run each line of each file, by the path of the file in the package.
Lines: TypeAlias = dict[str, dict[int, list[str]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines", help="the folder for the lines that each test runs")


def pytest_configure(config: pytest.Config) -> None:
    # The process that hands out tests to others runs none.
    alone = not config.getoption("numprocesses")
    folder: str | None = config.getoption("--lines")
    if folder and (alone or hasattr(config, "workerinput")):
        config.pluginmanager.register(_Covering(Path(folder)))


class _Covering:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seconds: dict[str, float] = {}
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"lines-{os.getpid()}"), config_file=False, source_pkgs=[PACKAGE]
        )
        self._coverage.set_option("run:disable_warnings", ["module-not-imported", "module-not-measured"])

    def pytest_collection_finish(self) -> None:
        # What runs while modules are imported is run by every test, so it tells nothing.
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # A test that fails without any mistake finds none.
        spent = float("inf") if report.failed else report.duration
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + spent

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        noted = {"root": str(ROOT), "seconds": self._seconds}
        (self._folder / f"seconds-{os.getpid()}.json").write_text(json.dumps(noted), "utf-8")


def forget(folder: Path, files: Iterable[str]) -> None:
    """Drop from *folder* what was noted of the tests in *files*, each a path in the checkout."""
    for name in files:
        tests = f"{name}::%"
        for noted in folder.glob("lines-*"):
            with sqlite3.connect(noted) as db:
                db.execute(
                    "delete from line_bits where context_id in (select id from context where context like ?)",
                    (tests,),
                )
        for noted in folder.glob("seconds-*.json"):
            told = json.loads(noted.read_text("utf-8"))
            kept = {test: spent for test, spent in told["seconds"].items() if test.partition("::")[0] != name}
            noted.write_text(json.dumps(told | {"seconds": kept}), "utf-8")


def read(folder: Path) -> tuple[Lines, Mapping[str, float]]:
    """What was noted in *folder*: the tests of each line, and the seconds of each test."""
    lines: Lines = {}
    seconds: dict[str, float] = {}
    for noted in folder.glob("seconds-*.json"):
        told = json.loads(noted.read_text("utf-8"))
        seconds |= told["seconds"]
        # The installed package links to the files of the checkout.
        root, process = Path(told["root"]), noted.stem.removeprefix("seconds-")
        with sqlite3.connect(folder / f"lines-{process}") as db:
            rows = db.execute(
                "select path, context, numbits from line_bits"
                " join file on file.id = file_id join context on context.id = context_id where context != ''"
            )
            for path, test, bits in rows:
                of_file = lines.setdefault(Path(path).relative_to(root).as_posix(), {})
                for line in numbits_to_nums(bits):
                    of_file.setdefault(line, []).append(test)
    return lines, seconds
