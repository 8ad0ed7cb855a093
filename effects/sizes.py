"""
How large what comes from outside may be, where more than one place has to know it.

What only one place knows is set there, beside what it bounds; docs/sizes.md lists all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ArgumentError, TooLarge

if TYPE_CHECKING:
    from .messages import Binary

MAX_TEXT = 4_000_000
"""Characters of a prompt, or of what is said into a run: as much as the largest windows take."""

MAX_WORD = 1_000
"""Characters of what names something: an id, a sender, a session, a file."""

MAX_FILES = 100
"""Files that come with a prompt."""

MAX_ATTACHED = 20_000_000
"""Bytes of all files that come with a prompt: in Base64 no provider takes more in a request."""

MAX_ARGUMENTS = 2_000_000
"""Characters of the arguments of a call, whoever wrote them: room for a whole file."""

MAX_MESSAGE = 100_000
"""Characters of the message that comes with a no."""

MAX_GLOBS = 100
"""Arguments that a yes for all such calls names."""

MAX_WAITING = 10_000
"""Posts that wait for a session to take them up."""

MAX_ENTRY = 128 * 1024 * 1024
"""Bytes of one entry of a journal: twice as many as the longest answer, the worst to write down, comes to."""


def within(what: str, size: int, limit: int, unit: str = "characters") -> None:
    """Raise `TooLarge` where *what* has more than *limit* of *unit*."""
    if size > limit:
        raise TooLarge(what, size, limit, unit)


def named(what: str, text: object) -> None:
    """Raise `TooLarge` where *text*, which is *what*, is longer than any name; it has to be a text."""
    if not isinstance(text, str):
        msg = f"{what} is text; got {text!r}"
        raise ArgumentError(msg)
    within(what, len(text), MAX_WORD)


def attached(files: tuple[Binary, ...]) -> None:
    """Raise `TooLarge` where *files* are more, or hold more, than may come with a prompt."""
    within("a prompt", len(files), MAX_FILES, "files")
    within("the files of a prompt", sum([len(file.data) for file in files]), MAX_ATTACHED, "bytes")
    for file in files:
        named("the name of a file", file.name)
        named("the media type of a file", file.media_type)
