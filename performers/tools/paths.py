"""
Paths a model may use: inside the roots of a tool's context, however they are written.

Theory of operation. A path is resolved once and then walked again from its root, one directory after the
other, each opened without following a symlink. So a link that another process puts there meanwhile leads
nowhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import final

import attrs

from ...effects.errors import ConfigError
from .decorator import ToolContext
from .search import visible

# How each directory on the way is opened.
_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


@final
@attrs.frozen
class LocatedPath:
    """A resolved path: *parts* below *root*; *shown* is how the model writes it."""

    root: Path
    parts: tuple[str, ...]
    shown: str

    @property
    def name(self) -> str:
        """The last part; ``.`` for a root, which no file tool can open as a file."""
        return self.parts[-1] if self.parts else "."

    @property
    def path(self) -> str:
        """The whole path."""
        return str(self.root.joinpath(*self.parts))

    def folder(self) -> AbstractContextManager[int]:
        """A descriptor of this place, which must be a directory."""
        return self._opened(self.parts, make=False)

    def parent(self, *, make: bool = False) -> AbstractContextManager[int]:
        """A descriptor of the directory this place is in, made where it is missing and *make* says so."""
        return self._opened(self.parts[:-1], make=make)

    def read(self, most: int) -> tuple[bytes, os.stat_result]:
        """
        The first *most* bytes of the file here, and what identifies that version of it.

        Raises `OSError`, and `ValueError` for what is no regular file.
        """

        def opener(name: str, flags: int) -> int:
            # Without O_NONBLOCK, opening a named pipe waits for a process that writes.
            return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)

        with self.parent() as folder, open(self.name, "rb", opener=opener) as file:
            # What was opened is judged, and not the name: between a look and the opening, the name may become
            # another file.
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                raise fault_of(self, "is not a regular file")
            return file.read(most), seen

    @contextlib.contextmanager
    def _opened(self, parts: tuple[str, ...], *, make: bool) -> Generator[int]:
        """Open the root, and from there one of *parts* after the other."""
        try:
            descriptor = os.open(self.root, _STEP)
            try:
                for part in parts:
                    if make:
                        with contextlib.suppress(FileExistsError):  # two writes side by side may both make it
                            os.mkdir(part, dir_fd=descriptor)
                    # `resolve` has followed all symlinks, so there is none on the way; one that is there now
                    # was put there since, and opening it fails.
                    above, descriptor = descriptor, os.open(part, _STEP, dir_fd=descriptor)
                    os.close(above)
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            # Errors of the system speak of one step; let them speak of the whole path.
            if error.errno is None:
                raise
            raise OSError(error.errno, error.strerror, self.shown) from error


def fault_of(place: LocatedPath, problem: str) -> ValueError:
    """The error that says what the *problem* with *place* is."""
    return ValueError(f"{place.shown!r} {problem}")


def roots(cwd: Path | str, directories: Iterable[Path | str]) -> tuple[Path, ...]:
    """
    *cwd* and *directories*, each once, absolute and without symlinks; raises `ConfigError` for what is none.
    """
    return tuple(dict.fromkeys(_directory(path) for path in (cwd, *directories)))


def _directory(path: Path | str) -> Path:
    problem: object = "it is no directory"
    try:
        real = Path(path).resolve(strict=True)
        if real.is_dir():
            return real
    except (OSError, RuntimeError, ValueError) as error:
        problem = error
    msg = f"tools cannot work in {str(path)!r}: {problem}"
    raise ConfigError(msg)


def as_listed(path: Path) -> Path:
    """*path*, each part of which may be written as a listing shows it."""
    if "\\" not in str(path):
        return path
    found = Path(path.anchor)
    for part in path.parts[len(found.parts) :]:
        names = [part]
        # By the names that are there, and no escape is undone: of a name that prints, another spelling could
        # pass by a rule.
        if not os.path.lexists(found / part):
            with contextlib.suppress(OSError):
                names = [each.name for each in found.iterdir() if visible(each.name) == part] or names
        found /= names[0]
    return found


def locate(context: ToolContext[object], path: str) -> LocatedPath:
    """The place of *path*, relative to the working directory; raises `ValueError` where it is outside."""
    try:
        real = as_listed(context.cwd / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a symlink loop, a null byte
        msg = f"{path!r} cannot be resolved: {error}"
        raise ValueError(msg) from error
    # A relative directory is resolved; one of a runner's is absolute, and stays as it is.
    known = (context.cwd, *context.directories)
    cwd, *directories = [each if each.is_absolute() else each.resolve() for each in known]
    for root in sorted(directories, key=lambda directory: len(directory.parts)):
        if real.is_relative_to(root):
            shown = real.relative_to(cwd) if real.is_relative_to(cwd) else real
            return LocatedPath(root, real.relative_to(root).parts, str(shown))
    roots = ", ".join(map(str, context.directories))
    msg = f"{path!r} is outside of the directories open to tools ({roots})"
    raise ValueError(msg)
