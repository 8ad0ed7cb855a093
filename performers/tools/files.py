"""
The built-in tools for one file: `read`, `write` and `edit`.

Their docstrings are what the model reads, hence the ``Args:`` sections.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from bisect import bisect_right
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Annotated, final

import attrs
import msgspec

from ...effects.errors import ConfigError
from ...effects.messages import Binary
from .decorator import ToolContext, tool
from .result import NOTE

# Paths a model may use: inside the roots of a tool's context, however they are written.


_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
"""How each directory on the way is opened."""


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
        with self.parent() as folder, open(self.name, "rb", opener=partial(_opener, folder)) as file:
            seen = os.fstat(file.fileno())
            if not stat.S_ISREG(seen.st_mode):
                msg = f"{self.shown!r} is not a regular file"
                raise ValueError(msg)
            return file.read(most), seen

    @contextlib.contextmanager
    def _opened(self, parts: tuple[str, ...], *, make: bool) -> Generator[int]:
        with _named(self.shown):
            descriptor = _descend(self.root, parts, make=make)
            try:
                yield descriptor
            finally:
                os.close(descriptor)


def roots(cwd: Path | str, directories: Iterable[Path | str]) -> tuple[Path, ...]:
    """
    *cwd* and *directories*, each once, absolute and without symlinks; raises `ConfigError` for what is none.
    """
    return tuple(dict.fromkeys(_directory(path) for path in (cwd, *directories)))


def _directory(path: Path | str) -> Path:
    try:
        real = Path(path).resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        msg = f"tools cannot work in {str(path)!r}: {error}"
        raise ConfigError(msg) from error
    if not real.is_dir():
        msg = f"tools cannot work in {str(path)!r}: it is no directory"
        raise ConfigError(msg)
    return real


def locate(context: ToolContext[object], path: str) -> LocatedPath:
    """The place of *path*, relative to the working directory; raises `ValueError` where it is outside."""
    try:
        real = (context.cwd / path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a symlink loop, a null byte
        msg = f"{path!r} cannot be resolved: {error}"
        raise ValueError(msg) from error
    cwd, *directories = map(_absolute, (context.cwd, *context.directories))
    for root in sorted(directories, key=lambda directory: len(directory.parts)):
        if real.is_relative_to(root):
            shown = real.relative_to(cwd) if real.is_relative_to(cwd) else real
            return LocatedPath(root, real.relative_to(root).parts, str(shown))
    roots = ", ".join(map(str, context.directories))
    msg = f"{path!r} is outside of the directories open to tools ({roots})"
    raise ValueError(msg)


def _absolute(directory: Path) -> Path:
    """*directory*; resolved where it is relative, which one of a runner's never is."""
    return directory if directory.is_absolute() else directory.resolve()


def _opener(folder: int, name: str, flags: int) -> int:
    # without O_NONBLOCK, opening a named pipe waits for somebody to write
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)


def _descend(root: Path, parts: tuple[str, ...], *, make: bool) -> int:
    """Open *root*, and from there one part after the other; the caller closes what is returned."""
    descriptor = os.open(root, _STEP)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            deeper = os.open(part, _STEP, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


@contextlib.contextmanager
def _named(shown: str) -> Generator[None]:
    """Errors of the system speak of one step; let them speak of the whole path."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, shown) from error


MAX_EDITED = 10_000_000
"""Larger files are not taken into memory; no model could read them anyway."""

MAX_LINES = 2_000
"""Lines `read` returns unless told."""

_SNIFFED = 8_192
"""Bytes at a file's beginning that tell whether it is binary, as git does it."""

_PICTURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
"""What pictures begin with; a WebP is told by more than its beginning."""

Positive = Annotated[int, msgspec.Meta(ge=1)]


@tool(side_effect="read_only")
def read(
    context: ToolContext[object], path: str, offset: Positive | None = None, limit: Positive | None = None
) -> str | Binary:
    """
    Read a text file, each line with its number and a tab before it; or a PNG, JPEG, GIF, WebP or PDF file.

    Args:
        path: The file, relative to the working directory.
        offset: The first line of text to read; the first of the file is 1.
        limit: How many lines of text to read, 2000 unless told.
    """
    place = locate(context, path)
    data, _ = load(place)
    if media_type := _seen_not_read(data):
        return Binary(media_type=media_type, data=data, name=place.shown)
    if b"\0" in data[:_SNIFFED]:
        msg = f"{place.shown!r} is a binary file ({len(data):,} bytes)"
        raise ValueError(msg)
    lines = data.decode(errors="replace").split("\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    return _numbered(lines, offset or 1, limit or MAX_LINES, context.result_limit)


def _seen_not_read(data: bytes) -> str:
    """The media type of *data*, by its content, where a model takes it as it is; empty where not."""
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    if b"\0" not in data[:_SNIFFED]:  # a text about pictures, which no provider would take for one
        return ""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for beginning, kind in _PICTURES if data.startswith(beginning)), "")


def _numbered(lines: list[str], first: int, limit: int, room: int | None) -> str:
    """
    At most *limit* of *lines*, in at most *room* characters, unless the first alone has more.

    A file is read on by its lines, which say more than the characters of a result that was cut.
    """
    if not lines:
        return "[the file is empty]"
    chosen = lines[first - 1 : first - 1 + limit]
    if not chosen:
        msg = f"there is no line {first}: the file has {len(lines):,}"
        raise ValueError(msg)
    shown = [f"{number:>6}\t{line.removesuffix(chr(13))}" for number, line in enumerate(chosen, first)]
    if room is not None:
        shown = shown[: _fitting(shown, room)]
    text = "\n".join(shown)
    last = first - 1 + len(shown)
    if last == len(lines):
        return text
    return f"{text}\n[lines {first} to {last} of {len(lines):,}; offset={last + 1} goes on]"


def _fitting(lines: list[str], room: int) -> int:
    """How many of *lines* have *room*, beside a note on how to go on; one at least."""
    ends = list(accumulate(len(line) + 1 for line in lines))
    return len(lines) if ends[-1] <= room else max(1, bisect_right(ends, room - NOTE))


@tool(side_effect="idempotent", edits=True)
def write(context: ToolContext[object], path: str, content: str) -> str:
    """
    Write a text file, in place of the one that may be there. Missing directories are made.

    Args:
        path: The file, relative to the working directory.
        content: All that the file shall hold.
    """
    place = locate(context, path)
    data = content.encode()
    store(place, data)
    return f"wrote {len(data):,} bytes to {place.shown}"


# Not idempotent: where *new* contains *old*, a second run would replace it once more.
@tool(side_effect="unsafe", edits=True)
def edit(context: ToolContext[object], path: str, old: str, new: str, all: bool = False) -> str:  # noqa: A002, FBT001, FBT002  # the model's words
    """
    Replace an exact piece of text in a file. It must occur once, unless all occurrences are to be replaced.

    Args:
        path: The file, relative to the working directory.
        old: The text to replace, to the letter, without the line numbers that read shows.
        new: The text to put in its place.
        all: Whether to replace every occurrence.
    """
    place = locate(context, path)
    data, seen = load(place)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        msg = f"{place.shown!r} is not UTF-8 text (byte {error.start}) and was left as it is"
        raise ValueError(msg) from error
    if old not in text and "\r\n" in text:  # read shows such lines as any others
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = _occurrences(text, old, place.shown, all_of_them=all)
    if (size := len(text) + count * (len(new) - len(old))) > MAX_EDITED:
        msg = f"{place.shown!r} would have {size:,} characters, and may have {MAX_EDITED:,}; left as it is"
        raise ValueError(msg)
    store(place, text.replace(old, new).encode(), seen)
    return f"replaced {count} occurrence{'s' if count > 1 else ''} in {place.shown}"


def _occurrences(text: str, old: str, shown: str, *, all_of_them: bool) -> int:
    """How often *old* occurs in *text*; raises `ValueError` where that is not what is wanted."""
    if not old:
        problem = "old is empty; say which text to replace, or use write for the whole file"
    elif old not in text:
        problem = f"old does not occur in {shown!r}; read it again, every space counts"
    elif not all_of_them and text.find(old) != text.rfind(old):  # overlapping ones count here, too
        problem = f"old occurs {max(2, text.count(old))} times in {shown!r}; add lines around it, or set all"
    else:
        return text.count(old)
    raise ValueError(problem)


def load(place: LocatedPath) -> tuple[bytes, os.stat_result]:
    """The content of the file at *place*, and what identifies that version of it."""
    data, seen = place.read(MAX_EDITED + 1)
    if len(data) > MAX_EDITED:
        msg = f"{place.shown!r} has more than {MAX_EDITED:,} bytes; take parts of it with bash"
        raise ValueError(msg)
    return data, seen


def store(place: LocatedPath, data: bytes, seen: os.stat_result | None = None) -> None:
    """
    Put *data* in the file at *place*, all or nothing; a file that was there keeps its mode.

    With *seen*, the file must still be the one that was seen. Raises `OSError` or `ValueError`.
    """
    with place.parent(make=seen is None) as folder:
        old = _look(place.name, folder)
        if old is not None:
            _check_replaceable(place, old, folder)
        # Beside the file, since a rename is only atomic within a file system; never readable as half a file.
        temporary = f".turnwheel-{secrets.token_hex(8)}"
        mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(temporary, mode, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if old is not None:
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            if seen is not None:
                _check_unchanged(place, seen, folder)
            os.replace(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def _look(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_replaceable(place: LocatedPath, old: os.stat_result, folder: int) -> None:
    """Replacing a file needs no right to write it, so ask for that right: read-only files stay."""
    if not stat.S_ISREG(old.st_mode):
        msg = f"{place.shown!r} is not a regular file"
        raise ValueError(msg)
    if not os.access(place.name, os.W_OK, dir_fd=folder):
        msg = f"{place.shown!r} is read-only"
        raise ValueError(msg)


def _check_unchanged(place: LocatedPath, seen: os.stat_result, folder: int) -> None:
    if _version(_look(place.name, folder)) != _version(seen):
        msg = f"{place.shown!r} was changed by somebody else meanwhile; read it again"
        raise ValueError(msg)


def _version(found: os.stat_result | None) -> tuple[int, int, int] | None:
    return None if found is None else (found.st_ino, found.st_size, found.st_mtime_ns)
