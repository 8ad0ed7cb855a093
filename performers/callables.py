"""Functions that a host hands over, for tools and hooks: which of them can be called as those are."""

from __future__ import annotations

import inspect


def unusable(function: object, returned: str) -> str:
    """Why *function* cannot be a tool or a hook, which return one *returned*; empty where it can."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return "it is no function; write one that calls it"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"it yields; return one {returned}"
    return ""
