"""
Replace a file, all or nothing, and clean up after processes that were killed while they did.

Theory of operation. The new content goes into a temporary file beside the old one, which then takes its name:
a rename is atomic within one file system only. A process that is killed in between leaves the temporary file
behind. So each writer holds an exclusive `flock` on its temporary file, which the kernel releases when the
process dies. Each write begins by removing the temporary files in that folder that no process has locked.

A process cannot create a file and lock it in one step. In between, another process may take the file for a
leftover. So the writer checks after locking that the name still exists, and otherwise takes a new one.

Some network file systems keep locks within one machine. There a write on another machine may remove a
temporary file in use: the write that used it fails with an error, and the target keeps its old content.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
from collections.abc import Callable

TRIES = 100
"""New files that are tried: another process may take each of them for a leftover, which is rare."""

_TEMPORARY = re.compile(r"\.turnwheel-[0-9a-f]{16}\.tmp")


def replace(folder: int, name: str, data: bytes, mode: int | None, check: Callable[[], None]) -> None:
    """
    Put *data* in the file *name* of *folder*, a descriptor, with the permissions *mode* unless it is None.

    *check* is called right before the rename, and cancels it by raising. Raises `OSError`.
    """
    _remove_leftovers(folder)
    temporary, descriptor = _create(folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            # A rename may reach the disk before the content does, and a power cut between leaves an empty
            # file.
            os.fsync(descriptor)
            check()
            # Closing the file releases the lock, so rename first.
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _remove(temporary, folder)
        raise


def _create(folder: int) -> tuple[str, int]:
    """A new temporary file in *folder*, locked: its name and a descriptor."""
    for _ in range(TRIES):
        temporary = f".turnwheel-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
        if _lock(descriptor) and _is_there(temporary, folder):
            return temporary, descriptor
        os.close(descriptor)
        _remove(temporary, folder)
    raise OSError(errno.EAGAIN, "other processes lock each new file in the folder; try again")


def _is_there(name: str, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _lock(descriptor: int) -> bool:
    """Whether no other process has locked the file; this one has, if the file system knows locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network file systems have no locks. Leftovers stay there, since no process can lock them.
        return True
    return True


def _remove_leftovers(folder: int) -> None:
    """Remove the temporary files in *folder* whose writers are dead, as far as this process may."""
    # A folder of 10,000 files is listed in milliseconds, less than the flush to disk takes.
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(folder)
    for name in filter(_TEMPORARY.fullmatch, names):
        with contextlib.suppress(OSError):
            # On NFS, an exclusive lock needs a descriptor that may write.
            descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(name, dir_fd=folder)
            finally:
                os.close(descriptor)


def _remove(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
