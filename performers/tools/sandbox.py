"""
The sandbox in which programs of tools run: bubblewrap, where an agent has `Agent.sandbox`.

Theory of operation. A program sees the file system of the machine, read-only but for the folders that the
agent works in. What it could reach others by is not there: their processes, the network, and sockets. So
rules need not understand what a program does; they only say what is masked.

A path is masked by a mount over it. Nothing in the sandbox can take that away, since a program there has no
capabilities and gets no user namespace.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from glob import glob
from pathlib import Path
from time import monotonic
from typing import NoReturn, final

from ...effects.config import Sandbox
from ...effects.errors import ConfigError
from ...effects.permissions import Rule
from .inspection import denied_globs, is_below, linked, spelled
from .seccomp import opened_filter

# Not by the variable PATH, in which a folder may stand that programs in the sandbox can write.
_PROGRAMS = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"

# The first release that sizes a /tmp and keeps user namespaces out.
OLDEST = "0.8"

# Files and folders that are looked at for what is masked, and that are masked.
MOST_SEEN = 200_000
MOST_MASKED = 1_000

# Seconds for that, and for the trial with which an agent begins.
WALK_SECONDS = 10.0
TRIAL_SECONDS = 20.0

# What is another one in the sandbox, or the kernel's. The first two may hold a folder of the agent.
_REPLACED = ("/tmp", "/run", "/dev", "/proc", "/sys")  # noqa: S108  # an empty one of its own
_NO_PLACE = _REPLACED[2:]

# Limits of each process: of its data in KiB, and no core, which the kernel would hand to a program outside.
# The program is a child, since the first process of a namespace is deaf to its own signals.
_WITH_LIMITS = 'ulimit -d "$1" && ulimit -c 0 && shift && { "$@"; exit; }'


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
    try:
        words, calls = _prepared(["true"], sandbox, ["/usr"], [], [])
    except ValueError as error:
        return str(error)
    try:
        ended = subprocess.run(  # noqa: S603  # all words are ours
            words, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False, pass_fds=[calls]
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    finally:
        os.close(calls)
    said = ended.stderr.strip() or f"bubblewrap ended with {ended.returncode}"
    return said if ended.returncode else ""


async def sandboxed(
    command: Sequence[str],
    *,
    sandbox: Sandbox,
    directories: Sequence[Path],
    tool: str,
    rules: Sequence[Rule],
    store: Sequence[str],
) -> tuple[list[str], int]:
    """
    The words that run *command* in *sandbox*, in the first of *directories*, all of which it may write.

    Beside them a descriptor that they inherit, for the caller to close. Masked are the paths that *rules*
    deny to *tool*, and the files of the *store*. Raises `ValueError` where that cannot be done.
    """
    roots = [*map(str, directories)]

    def prepared() -> tuple[list[str], int]:
        return _prepared(command, sandbox, roots, denied_globs(tool, rules, roots[0]), store)

    # A walk of a large tree takes a while, in which other sessions go on.
    return await asyncio.to_thread(prepared)


def _prepared(
    command: Sequence[str],
    sandbox: Sandbox,
    roots: Sequence[str],
    denied: Sequence[str],
    store: Sequence[str],
) -> tuple[list[str], int]:
    program = shutil.which("bwrap", path=_PROGRAMS)
    if program is None:
        msg = f"bwrap is in none of {_PROGRAMS}"
        raise ValueError(msg)
    for root in roots:
        _check_root(root)
    masked = _Masks(denied, roots).found() if denied else []
    masked += [path for each in store for path in glob(each)]  # noqa: PTH207  # a whole path, escaped
    shown = {path for path in masked if not _is_replaced(path, roots)}
    words = [program, *_mounts(sandbox, roots)]
    # In order, and none below another one, where there would be nothing to mount it on.
    for path in sorted(shown):
        if shown.isdisjoint(map(str, Path(path).parents)):
            words += _mask(path)
    limits = ["/bin/sh", "-c", _WITH_LIMITS, "sh", str(sandbox.memory // 1024)]
    try:
        calls = opened_filter()
    except KeyError as machine:
        msg = f"the system calls of {machine} are not known"
        raise ValueError(msg) from machine
    return [*words, "--seccomp", str(calls), "--chdir", roots[0], "--", *limits, *command], calls


def _check_root(root: str) -> None:
    """Raise `ValueError` where a program must not be let write in *root*."""
    # What was resolved when the agent was made may have become a link since, by a program in a sandbox.
    real = os.path.realpath(root)
    if real != root:
        msg = f"the folder {root!r} is a link to {real!r} by now; the sandbox would let programs write there"
        raise ValueError(msg)
    if any(is_below(each, root) or is_below(root, each) for each in _NO_PLACE) or root == "/run":
        msg = f"the sandbox lets programs write in the folders of the agent, and in {root!r} they must not"
        raise ValueError(msg)


def _is_replaced(path: str, roots: Sequence[str]) -> bool:
    """Whether another one is in the place of *path* in the sandbox."""
    return any(is_below(path, each) for each in _REPLACED) and not any(is_below(path, each) for each in roots)


def _mounts(sandbox: Sandbox, roots: Sequence[str]) -> list[str]:
    """What of the machine is there, and how."""
    sized = ["--size", str(sandbox.tmp), "--tmpfs"]
    words = [
        *("--die-with-parent", "--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL"),
        # Without a process of its own between, which a machine whose first process reaps none would keep.
        "--as-pid-1",
        *(["--share-net"] if sandbox.network else []),
        *("--ro-bind", "/", "/"),
        # To root the kernel's settings are writable without any capability.
        *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"),
        *("--dev", "/dev", *sized, "/dev/shm", "--remount-ro", "/dev"),  # noqa: S108  # one of its own
        *(*sized, "/tmp", "--setenv", "TMPDIR", "/tmp"),  # noqa: S108  # as above
        *("--size", "65536", "--tmpfs", "/run"),
    ]
    resolver = os.path.realpath("/etc/resolv.conf")
    if sandbox.network and is_below(resolver, "/run"):
        words += ["--ro-bind-try", resolver, resolver]
    for root in roots:
        words += ["--bind", root, root]
    # Behind the folders, some of which may be in it: their mounts stay as they are.
    return [*words, "--remount-ro", "/run"]


def _mask(path: str) -> list[str]:
    if Path(path).is_dir():
        return ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
    return ["--ro-bind", os.devnull, path]


@final
class _Masks:
    """The paths below *roots*, and where absolute *globs* begin, that one of the globs matches."""

    def __init__(self, globs: Sequence[str], roots: Sequence[str]) -> None:
        self._globs = globs
        self._roots = roots
        self._inside = f"{roots[0]}/"
        self._match = _any_of(globs)
        # All that is in a folder is matched where a glob takes any ending.
        self._match_all = _any_of([glob for glob in globs if glob.endswith("*")])
        self._paths: set[str] = set()
        self._seen = 0
        self._ends = monotonic() + WALK_SECONDS

    def found(self) -> list[str]:
        """The paths, each where it is."""
        absolute = [glob for glob in self._globs if glob.startswith("/")]
        if everywhere := [glob for glob in absolute if not [*linked([glob], "/")]]:
            msg = f"the sandbox cannot look everywhere for what {everywhere[0]!r} denies; name a folder"
            raise ValueError(msg)
        places = {*self._roots, *[real for _, real in linked(absolute, self._roots[0])]}
        for place in sorted(places):
            # Once, where one place is in another.
            if not any(is_below(place, other) for other in places - {place}):
                self._walk(place)
        return [*self._paths]

    def _walk(self, place: str) -> None:
        if self._masks(place, is_folder=Path(place).is_dir()):
            return
        for folder, folders, files in os.walk(place):
            base = folder.rstrip("/")
            for name in files:
                self._masks(f"{base}/{name}", is_folder=False)
            # In place, since `walk` descends into the names that are left here.
            folders[:] = [name for name in folders if not self._masks(f"{base}/{name}", is_folder=True)]

    def _masks(self, path: str, *, is_folder: bool) -> bool:
        """Whether a glob matches *path*, which is masked then."""
        self._seen += 1
        if self._seen > MOST_SEEN or (not self._seen % 1000 and monotonic() > self._ends):
            self._refuse(f"has looked at {self._seen:,} paths for those that rules deny")
        # As `spelled`, which takes ten times as long.
        inside = path.startswith(self._inside)
        names = (path, path[len(self._inside) :]) if inside else spelled(path, self._roots[0])
        if not any(self._match(name) or (is_folder and self._match_all(f"{name}/")) for name in names):
            return False
        # What a link leads to is what a rule is about that denies the link.
        real = os.path.realpath(path)
        if any(is_below(root, real) for root in self._roots):
            msg = f"a rule denies {path!r}, which is, or holds, the folder that the agent works in"
            raise ValueError(msg)
        if Path(real).exists():
            self._paths.add(real)
        if len(self._paths) > MOST_MASKED:
            self._refuse(f"would mask more than {MOST_MASKED:,} paths that rules deny")
        return True

    def _refuse(self, does: str) -> NoReturn:
        msg = f"the sandbox {does}; let these globs name whole folders: {', '.join(self._globs)}"
        raise ValueError(msg)


def _any_of(globs: Sequence[str]) -> Callable[[str], object]:
    """Whether a text matches one of *globs*, as `fnmatchcase` has it."""
    # One expression for all: a tree may have 100,000 names.
    return re.compile("|".join(map(translate, globs)) or "(?!)").match
