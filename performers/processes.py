"""Processes of this machine: which one it is, and whether one still runs."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """The boot and the namespaces in which pids and the monotonic clock mean the same; empty if not known."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return " ".join([boot, *[str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "time")]])
    return ""


def born(pid: int) -> str:
    """When process *pid* began, in ticks since the boot; empty where that cannot be read."""
    with suppress(OSError):
        # Behind the last bracket, since the name of a program may have any characters.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        # A zombie has ended, although its parent has not asked for its exit code yet.
        return "ended" if fields[0] in "ZX" else fields[19]
    return ""


# By pid: a process that was forked began later.
born_here = cache(born)


def runs(pid: int, began: str) -> bool:
    """Whether the process *pid* that *began* then still runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Another user's, whose beginning may be hidden from this one.
        pass
    return born(pid) in {began, ""}
