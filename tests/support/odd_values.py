"""What a host's function may raise or return that cannot even be shown."""

from __future__ import annotations

from typing import NoReturn


def fail(error: BaseException) -> NoReturn:
    raise error


class Mute(Exception):
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        return str(fail(ValueError("and neither can this")))


class Secretive:
    """Something that has no repr."""

    def __repr__(self) -> str:
        return str(fail(ValueError("no comment")))
