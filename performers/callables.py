"""
Functions that a host hands over, for tools, hooks and approvers.

Besides plain functions these are bound methods, static methods, partials, and objects with `__call__`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, cast

# The annotation of what a function returns that is to be awaited.
_AWAITABLE = re.compile(r"\b(Awaitable|Coroutine|Future|Task)\b")

# Where a word begins in a name such as SearchHTTPLogs.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def code_of(function: object) -> Any:  # noqa: ANN401  # any callable
    """The function whose code runs when *function* is called; of a built-in, the built-in."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__func__"):  # a bound, a static or a class method
            function = cast("Any", function).__func__
        elif inspect.isroutine(function):
            return function
        else:
            function = cast("Any", type(function)).__call__


def is_async(function: object) -> bool:
    """Whether *function* is to be awaited; Python itself says so of no object with an async `__call__`."""
    return inspect.iscoroutinefunction(code_of(function))


def may_be_awaited(function: object) -> bool:
    """Whether what *function* returns may have to be awaited: its code cannot tell, or says so."""
    if is_async(inspect.unwrap(cast("Any", function))):
        return True
    code = code_of(function)
    if not inspect.isfunction(code) or inspect.isasyncgenfunction(code):
        # A function of C does not tell.
        return not inspect.isasyncgenfunction(code)
    # A lambda may return a coroutine, and so may a function that is annotated to.
    returned = str(code.__annotations__.get("return", ""))
    return code.__name__ == "<lambda>" or bool(_AWAITABLE.search(returned))


async def settled(function: Callable[..., object], *arguments: object) -> object:
    """What *function* returns, awaited where that can be."""
    returned = function(*arguments)
    return await returned if inspect.isawaitable(returned) else returned


def takes(function: Callable[..., object], count: int) -> bool:
    """Whether *function* may be called with *count* arguments without names."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        # A function of C does not tell what it takes.
        return True
    return True


def name_of(function: object) -> str:
    """The name of *function*; of a partial, that of its function; of an object, its class's in snake case."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None)
    return name if isinstance(name, str) else _WORD.sub("_", type(function).__name__).lower()


def doc_of(function: object) -> str:
    """The docstring of *function*; of an object without one at its `__call__`, that of its class."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return inspect.getdoc(function) or ""
    kind = type(function)
    # A dataclass without a docstring has its signature as one.
    written = "" if (kind.__doc__ or "").startswith(f"{kind.__name__}(") else kind.__doc__
    return code_of(function).__doc__ or written or ""


def unusable(function: object, returned: str) -> str:
    """Why *function* cannot be a tool or a hook, which return one *returned*; empty where it can."""
    if isinstance(function, type):
        return "it is a class; write a function that calls it"
    if not callable(function) and not isinstance(function, classmethod):
        return "it is not callable; write a function that calls it"
    code = code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        return f"it yields; return one {returned}"
    return ""
