"""The relation of a partial output to the whole one."""

from __future__ import annotations

from typing import Any


def begins(partial: Any, whole: Any) -> bool:
    """Whether *partial* is a beginning of *whole*; properties that are null come with the whole output."""
    if isinstance(whole, dict):
        names = [name for name, each in whole.items() if each is not None]
        return (
            isinstance(partial, dict)
            and [*partial] == names[: len(partial)]
            and all(begins(each, whole[name]) for name, each in partial.items())
        )
    if isinstance(whole, list):
        return (
            isinstance(partial, list)
            and len(partial) <= len(whole)
            and all(map(begins, partial, whole[: len(partial)]))
        )
    if isinstance(whole, str):
        return isinstance(partial, str) and whole.startswith(partial)
    return type(partial) is type(whole) and bool(partial == whole)
