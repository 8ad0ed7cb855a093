"""The files of the checkout that git tracks."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tracked(*options: str, root: Path = ROOT) -> list[str]:
    """
    The paths that `git ls-files` prints with *options* for the checkout *root*, relative to it.

    Skips the test where *root* has no `.git`, as in an unpacked archive, and where git is missing or refuses.
    """
    if not (root / ".git").exists():
        pytest.skip("only git knows which files are tracked, and this folder has no .git")
    with tempfile.TemporaryDirectory() as home:
        # Git refuses the checkout of another user, as in a container, unless a configuration file calls it
        # safe. Older versions ignore safe.directory on the command line, and GIT_CONFIG_GLOBAL. All versions
        # read the file in HOME.
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        env |= {"HOME": home, "XDG_CONFIG_HOME": home}
        settings = Path(home, ".gitconfig")
        try:
            _git("config", "--file", str(settings), "safe.directory", str(root), cwd=home, env=env)
            return _git("ls-files", "-z", *options, cwd=root, env=env).split("\0")[:-1]
        except FileNotFoundError:
            pytest.skip("only git knows which files are tracked, and git is not installed")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"only git knows which files are tracked, and it refuses: {error.stderr.strip()}")


def _git(*arguments: str, cwd: str | Path, env: dict[str, str]) -> str:
    command = ("git", *arguments)
    return subprocess.run(command, cwd=cwd, env=env, check=True, capture_output=True, text=True).stdout
