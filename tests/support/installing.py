"""Programs of others that tests ask: installed once below ``.cache/real`` of the checkout, and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "real"

INSTALLING = 900.0
"""Seconds an installation may take: it is 750 MB for LiteLLM."""

LOOKING = 120.0
"""Seconds a registry may take to tell one version."""


def install(folder: Path, commands: Sequence[Sequence[str]], look: Sequence[str]) -> None:
    """
    Run *commands*, which fill *folder*, unless that was done before; an interrupted one is done again.

    Two test runs do not collide: the second waits for the first. Skips the test where a command fails and
    *look*, a command that only looks the package up, fails as well: then there is no registry.
    """
    done = folder / "installed"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for command in commands:
            failure = _run(command, INSTALLING)
            if failure and _run(look, LOOKING):
                pytest.skip(f"no registry can be reached: {folder.name} cannot be installed")
            if failure:
                pytest.fail(failure, pytrace=False)
        done.touch()


def _run(command: Sequence[str], seconds: float) -> str:
    """Run *command* for at most *seconds*; returns the error and the output, or "" if it succeeded."""
    # A session of its own: what it started is killed with it, and holds the pipe open no longer.
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            problem = f"did not end within {seconds:.0f} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        else:
            problem = f"failed with {process.returncode}" if process.returncode else ""
    last = output.decode(errors="replace")[-2_000:]
    return problem and f"{' '.join(command)} {problem}:\n{last}"


def install_npm(folder: Path, *packages: str) -> str:
    """Install the npm *packages*, with their versions, in *folder*; gives the path of node."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        missing = "npm" if npm is None else "node"
        pytest.skip(f"{missing} is not installed, and {', '.join(packages)} need it")
    quiet = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    command = (npm, "install", *quiet, "--prefix", str(folder), *packages)
    install(folder, [command], (npm, "view", packages[0].rpartition("@")[0], "version"))
    return node
