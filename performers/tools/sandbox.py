"""
The sandbox in which programs of tools run: bubblewrap, where an agent has `Agent.sandbox`.

Theory of operation. A program sees the file system of the machine, read-only but for the folders that the
agent works in. What programs outside could be reached by is not there: their processes, the network, and the
sockets that stand in the file system. So rules need not understand what a program does; they only say what is
masked.

A path is masked by a mount over it. Nothing in the sandbox can take that away, since a program there has no
capabilities and gets no user namespace. Masked is what there is when a program starts.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from pathlib import Path
from typing import final

from ...effects.config import Sandbox
from ...effects.errors import ConfigError
from ..worker_pool import finish
from .inspection import is_below, linked, spelled

BWRAP = "bwrap"

# The first release that sizes a /tmp and keeps user namespaces out.
OLDEST = "0.8"

# Files and folders that are looked at for what is masked, and that are masked.
MOST_SEEN = 200_000
MOST_MASKED = 1_000

# Seconds for the trial with which an agent begins.
TRIAL_SECONDS = 20.0

# Where sockets of other programs are, and in some systems links to that place.
_SOCKETS = "/run"

# Limits of each process: of its data in KiB, and no core, which the kernel would hand to a program outside.
_WITH_LIMITS = 'ulimit -d "$1" && ulimit -c 0 && shift && exec "$@"'


def check_sandbox(sandbox: Sandbox) -> None:
    """Raise `ConfigError` where programs cannot be run in *sandbox* here."""
    if fault := _fault(sandbox):
        msg = (
            f"sandbox: no program can be run in one here: {fault}; install bubblewrap {OLDEST} or later (apt "
            f"install bubblewrap) and allow user namespaces, or leave the sandbox out"
        )
        raise ConfigError(msg)


@lru_cache
def _fault(sandbox: Sandbox) -> str:
    """What keeps programs from running in *sandbox*; empty where they do."""
    if shutil.which(BWRAP) is None:
        return f"{BWRAP} is not installed"
    try:
        ended = subprocess.run(  # noqa: S603  # all words are ours
            _words(["true"], sandbox, ["/tmp"], [], []),  # noqa: S108  # in there it is an empty one
            capture_output=True,
            text=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = ended.stderr.strip() or f"{BWRAP} ended with {ended.returncode}"
    return said if ended.returncode else ""


async def sandboxed(
    command: Sequence[str], *, sandbox: Sandbox, directories: Sequence[Path], denied: Sequence[str]
) -> list[str]:
    """
    The words that run *command* in *sandbox*, in the first of *directories*, all of which it may write.

    Paths that a glob of *denied* matches are masked. Raises `ValueError` where these are too many.
    """
    roots = list(dict.fromkeys(map(os.path.realpath, directories)))
    # A walk of a large tree takes a while, in which other sessions go on.
    masked = await finish(asyncio.to_thread(_Masks(denied, roots).found)) if denied else []
    guarded = [path for root in roots for path in _runs_later(root)]
    return _words(command, sandbox, roots, masked, guarded)


def _words(
    command: Sequence[str],
    sandbox: Sandbox,
    roots: Sequence[str],
    masked: Sequence[str],
    guarded: Sequence[str],
) -> list[str]:
    size = ["--size", str(sandbox.tmp), "--tmpfs"]
    words = [
        *(BWRAP, "--die-with-parent", "--unshare-user", "--unshare-all", "--disable-userns"),
        *(["--share-net"] if sandbox.network else []),
        *("--cap-drop", "ALL", "--ro-bind", "/", "/"),
        # To root the kernel's settings are writable without any capability.
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", *size, "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108  # one of its own
        *(*size, "/tmp", "--setenv", "TMPDIR", "/tmp"),  # noqa: S108  # as above
        *("--size", "65536", "--tmpfs", _SOCKETS),
    ]
    resolver = os.path.realpath("/etc/resolv.conf")
    if sandbox.network and resolver.startswith(f"{_SOCKETS}/"):
        words += ["--ro-bind-try", resolver, resolver]
    words += ["--remount-ro", _SOCKETS]
    for root in roots:
        words += ["--bind", root, root]
    for path in guarded:
        words += ["--ro-bind", path, path]
    for path in [*masked, *_sockets(roots)]:
        if Path(path).is_dir():
            words += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
        else:
            words += ["--ro-bind", os.devnull, path]
    limits = ["/bin/sh", "-c", _WITH_LIMITS, "sh", str(sandbox.memory // 1024)]
    return [*words, "--chdir", roots[0], "--", *limits, *command]


def _runs_later(root: str) -> Iterator[str]:
    """What git, run by anyone outside, runs or obeys in the repository *root*."""
    for name in ("hooks", "config"):
        path = f"{root}/.git/{name}"
        if Path(path).exists():
            yield os.path.realpath(path)


@final
class _Masks:
    """The paths below *roots*, and where absolute *globs* begin, that one of the globs matches."""

    def __init__(self, globs: Sequence[str], roots: Sequence[str]) -> None:
        self._globs = globs
        self._roots = roots
        self._match = _any_of(globs)
        # All that is in a folder is matched where a glob takes any ending.
        self._match_all = _any_of([glob for glob in globs if glob.endswith("*")])
        self._found: set[str] = set()
        self._seen = 0

    def found(self) -> list[str]:
        """The paths, where each is, in order."""
        absolute = [glob for glob in self._globs if glob.startswith("/")]
        places = {*self._roots, *[real for _, real in linked(absolute, self._roots[0]) if real != "/"]}
        for place in sorted(places):
            # Once, where one place is in another.
            if not any(is_below(place, other) for other in places - {place}):
                self._walk(place)
        return sorted(self._found)

    def _walk(self, place: str) -> None:
        if self._looked_at(place, is_folder=Path(place).is_dir()):
            return
        for folder, folders, files in os.walk(place):
            base = folder.rstrip("/")
            for name in files:
                self._looked_at(f"{base}/{name}", is_folder=False)
            # In place, since `walk` descends into the names that are left here.
            folders[:] = [name for name in folders if not self._looked_at(f"{base}/{name}", is_folder=True)]

    def _looked_at(self, path: str, *, is_folder: bool) -> bool:
        """Mask *path* where a glob matches it; whether one does."""
        self._seen += 1
        self._refuse_more(self._seen, MOST_SEEN, "looks at paths for those that rules deny")
        names = spelled(path, self._roots[0])
        if not any(self._match(name) or (is_folder and self._match_all(f"{name}/")) for name in names):
            return False
        # What a link leads to is what a rule is about that denies the link.
        real = os.path.realpath(path)
        if any(is_below(root, real) for root in self._roots):
            msg = (
                f"a rule denies {path!r}, which is the folder that the agent works in, or holds it: {real!r}"
            )
            raise ValueError(msg)
        if Path(real).exists():
            self._found.add(real)
        self._refuse_more(len(self._found), MOST_MASKED, "masks paths that rules deny")
        return True

    def _refuse_more(self, count: int, most: int, paths: str) -> None:
        if count > most:
            globs = ", ".join(self._globs)
            msg = f"the sandbox {paths}, {most:,} at most; let these globs name whole folders: {globs}"
            raise ValueError(msg)


def _any_of(globs: Sequence[str]) -> Callable[[str], object]:
    """Whether a text matches one of *globs*, as `fnmatchcase` has it."""
    # One expression for all: a tree may have 100,000 names.
    return re.compile("|".join(map(translate, globs)) or "(?!)").match


def _sockets(roots: Sequence[str]) -> list[str]:
    """The sockets in the file system that are open outside and would be seen in the sandbox."""
    # Read-only mounts do not keep a program from connecting.
    try:
        lines = Path("/proc/net/unix").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # without /proc there are no such sockets, or no sandbox
        return []
    found: dict[str, None] = {}
    for line in lines:
        path = "".join(line.split(maxsplit=7)[7:])
        is_hidden = is_below(path, _SOCKETS) or is_below(path, "/tmp")  # noqa: S108  # an empty one in there
        if path.startswith("/") and (not is_hidden or any(is_below(path, root) for root in roots)):
            with suppress(OSError):  # gone, or not to be seen by us either
                if stat.S_ISSOCK(os.lstat(path).st_mode):
                    found[path] = None
    return list(found)
