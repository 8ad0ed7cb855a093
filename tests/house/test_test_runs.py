"""Promises of a test run: groups share a process, and a leaked resource fails the test that leaked it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in *code* by a pytest of their own, in *folder* and without our settings."""
    (folder / "test_them.py").write_text(code, "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\nasyncio_mode = auto\n", "utf-8")
    # Hypothesis is imported behind the tests here, and asks the garbage collector who refers to the random
    # numbers of trio. The collector does not answer for what `support.garbage` froze.
    without = [f"-pno:{name}" for name in ("randomly", "cacheprovider", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", "-q", *without, *options]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=100)


GROUPED = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("servers")
def test_grouped(number):
    with open("processes", "a") as file:
        print(os.getpid(), file=file)

@pytest.mark.parametrize("number", range(8))
def test_ungrouped(number):
    pass
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    done = run(tmp_path, GROUPED, "-n", "2", "--dist=loadgroup")
    assert "16 passed" in done.stdout, done.stdout
    processes = (tmp_path / "processes").read_text("utf-8").split()
    assert (len(processes), len(set(processes))) == (8, 1)


OPENING = """
import aiohttp
import pytest

def in_a_cycle():
    cycle = [aiohttp.ClientSession()]
    cycle.append(cycle)
    return cycle
"""
OPENED = {
    "by the test": """
async def test_leaves_it_open():
    in_a_cycle()
""",
    "by a fixture": """
@pytest.fixture
async def session():
    return in_a_cycle()

async def test_leaves_it_open(session):
    pass
""",
}


@pytest.mark.parametrize("opened", OPENED)
def test_a_client_session_left_open_fails_the_test_that_left_it(opened: str, tmp_path: Path) -> None:
    later = "\n\ndef test_later():\n    pass\n"
    done = run(tmp_path, OPENING + OPENED[opened] + later, "-p", "support.garbage")
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_them.py::test_leaves_it_open" in done.stdout
