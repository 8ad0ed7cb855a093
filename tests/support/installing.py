"""Programs of others that tests ask: installed once below ``.cache/real`` of the checkout, and kept."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "real"

INSTALLING = 900.0
"""Seconds an installation may take: it is 750 MB for LiteLLM."""


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
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=INSTALLING,
                check=False,
            )
            if ended.returncode:
                if subprocess.run(look, capture_output=True, timeout=120, check=False).returncode:
                    pytest.skip(f"no registry can be reached: {folder.name} cannot be installed")
                output = ended.stdout.decode(errors="replace")[-2_000:]
                pytest.fail(f"{' '.join(command)} failed with {ended.returncode}:\n{output}", pytrace=False)
        done.touch()


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
