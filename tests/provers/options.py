"""What the programs here are asked for on the command line, checked before anything is done."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Final, final

NOTHING: Final = 2
"""The exit code of a program that tried nothing, as of one that was asked for what there is not."""


@final
class NothingTried(Exception):
    """What was asked for comes to nothing at all, so nothing can be said of it."""


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A whole number from *least* to *most*, None for any above."""
    wanted = f"a whole number, at least {least}" if most is None else f"a whole number, {least} to {most}"

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least or (most is not None and found > most):
            msg = f"needs {wanted}, not {text!r}"
            raise ArgumentTypeError(msg)
        return found

    return number
