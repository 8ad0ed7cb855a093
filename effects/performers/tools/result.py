"""
What a model reads of how a tool ended: text, whatever was returned or raised, of a bounded length.

Values and exceptions come from code of any quality: their `repr` and `__str__` may raise in turn, they may
contain themselves, and they may be ten megabytes. Turning them to text happens where the tool ran, so that a
large result of a sync tool does not hold up the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import msgspec

from ...messages import Outcome

End = tuple[Outcome, str]
"""How a tool ended and what the model reads of it; `CANCELLED` where it was, by whomever."""


def guarded(function: Callable[[], object]) -> End:
    """Call *function*; never raises."""
    try:
        return Outcome.OK, shown(function())
    except BaseException as error:  # noqa: BLE001  # a tool that calls sys.exit() must not end the service
        return failed(error)


async def guarded_async(function: Callable[[], Awaitable[object]]) -> End:
    """Await what *function* returns; never raises, not even when it is cancelled."""
    try:
        return Outcome.OK, shown(await function())
    except BaseException as error:  # noqa: BLE001  # SystemExit would end the event loop
        return failed(error)


def failed(error: BaseException) -> End:
    """The end of a tool that raised *error*: an exception, a cancellation, or what should end a process."""
    if isinstance(error, asyncio.CancelledError):
        return Outcome.CANCELLED, ""
    if isinstance(error, Exception):
        return Outcome.ERROR, f"Tool raised an exception: {_message(error)}"
    kind = type(error).__name__
    return Outcome.CRASHED, f"Tool execution crashed: {kind}: {_message(error)}".removesuffix(f": {kind}")


def _message(error: BaseException) -> str:
    """The text of *error* and of what it groups; the name of its type where it has none or refuses."""
    kind = type(error).__name__
    try:
        text = str(error) or kind
        inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(map(_message, inner))
    except Exception as another:  # noqa: BLE001  # __str__ is any code
        return f"{kind}, whose message cannot be shown ({type(another).__name__})"
    return text


def shown(value: object) -> str:
    """*value* as text: a string as it is, None as nothing, others as JSON or, failing that, their repr."""
    if value is None:
        return ""
    if isinstance(value, str):
        return str(value)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        msg = "it returned something to be awaited: declare the tool with 'async def'"
        raise TypeError(msg)
    try:
        return msgspec.json.encode(value).decode()
    except Exception:  # noqa: BLE001  # of a type without JSON, or too deep
        return repr(value)


def cut(text: str, limit: int) -> str:
    """
    *text* with at most about *limit* characters kept, from its beginning and its end, and fit for UTF-8.

    What is cut from the middle is counted in its place. Lone surrogates, as in file names that are not
    UTF-8, become question marks.
    """
    if len(text) > limit:
        head, tail = limit - limit // 2, limit // 2
        gone = len(text) - limit
        text = f"{text[:head]}\n[... {gone:,} characters cut ...]\n{text[len(text) - tail :]}"
    return text.encode(errors="replace").decode()
