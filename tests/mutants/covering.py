"""
A plugin of pytest that notes which lines of the package each test runs, and how long the test takes.

    pytest -p mutants.covering --lines FOLDER

Each process of the tests writes two files into the folder, which `noted` puts together.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

from .noted import ROOT, functions_now

PACKAGE = "turnwheel"


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
        # The notes of earlier runs stay beside these.
        name = secrets.token_hex(8)
        self._seconds_file = folder / f"seconds-{name}.json"
        self._seconds: dict[str, float] = {}
        # Files may change while tests run, but not those that are imported.
        self._functions = functions_now()
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"lines-{name}"), config_file=False, source_pkgs=[PACKAGE]
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
        noted = {"root": str(ROOT), "seconds": self._seconds, "functions": self._functions}
        self._seconds_file.write_text(json.dumps(noted), "utf-8")
