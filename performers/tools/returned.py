"""
The result that a model gets of any value that a tool returns, and of any error that it raises.

Values and exceptions come from code of any quality. Their `repr` and `__str__` may raise in turn, they may
contain themselves, and they may have ten megabytes.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Iterable
from typing import cast, final

import attrs
import msgspec

from ...effects import Binary, Outcome, clean
from .plain import NoJSON, json_text
from .process import ProcessEnd

# Bytes of one file: a megabyte in base64, as which it is sent and kept. Providers take five at most.
MAX_FILE_BYTES = 750_000

# Bytes of all files of a result.
MAX_FILES_BYTES = 5 * MAX_FILE_BYTES

# Files of a result: of more in one request, some providers take small pictures only.
MAX_RESULT_FILES = 20

# Characters of a file's name: what a file system takes.
_MAX_NAME = 255

# The way out for a value without a JSON form.
_RETURN = "text, a number, a list, a dict, a dataclass, an attrs class, a pydantic model, or a Binary"

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")


@final
@attrs.frozen
class ErrorResult:
    """
    What a tool returns that failed: the model reads *value*, as it would any result, and it is an error.

    It is for what the tool expects; an exception is for what it does not.
    """

    value: object


@final
@attrs.frozen
class ToolEnd:
    """How a tool ended, the text a model reads of it and the files that go with it."""

    outcome: Outcome
    content: str = ""
    files: tuple[Binary, ...] = ()


@final
class UnusableResult(TypeError):
    """A tool returned a value that a model cannot be shown; the text is for the model."""


def end_of_error(error: BaseException) -> ToolEnd:
    """
    The end of a tool that raised *error*: an exception, a cancellation, or what should end a process.

    The content of a cancelled tool is the output of the program that it ran, if it ran one.
    """
    if isinstance(error, asyncio.CancelledError):
        ended = next((part for part in error.args if isinstance(part, ProcessEnd)), None)
        return ToolEnd(Outcome.CANCELLED, "" if ended is None else ended.output + ended.errors)
    if isinstance(error, UnusableResult):
        return ToolEnd(Outcome.ERROR, str(error))
    if isinstance(error, Exception):
        return ToolEnd(Outcome.ERROR, f"Tool raised an exception: {error_text(error)}")
    return ToolEnd(Outcome.CRASHED, f"Tool execution crashed: {error_text(error, named=True)}")


def error_text(error: BaseException, *, named: bool = False) -> str:
    """
    The text of *error* and of what it groups; the name of its type where it has none or refuses.

    *named* has that name before the text. A `KeyError` always has: its text is the key and no more.
    """
    kind = type(error).__name__
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(map(error_text, error.exceptions))
    except BaseException as another:  # noqa: BLE001  # __str__ is any code
        return f"{kind}, whose message cannot be shown ({type(another).__name__})"
    if not text:
        return kind
    return f"{kind}: {text}" if named or isinstance(error, KeyError) else text


def end_of_value(tool: str, value: object) -> ToolEnd:
    """
    The end of *tool*, which returned *value*: a `Binary`, a list or tuple with some in it, or anything else.

    An `ErrorResult` of any of these is an error.

    Each `Binary` becomes a file, and where it stood the text says what it is, or why it was left out. Raises
    `UnusableResult` for a value without a JSON form, and `TypeError` for a `Binary` that cannot be written
    down and for a value that should have been awaited.
    """
    if isinstance(value, ErrorResult):
        return attrs.evolve(end_of_value(tool, value.value), outcome=Outcome.ERROR)
    # A list without a file in it is data, and goes to the model as one JSON text.
    mixed = isinstance(value, list | tuple) and any(isinstance(part, Binary) for part in value)
    if not mixed and not isinstance(value, Binary):
        return ToolEnd(Outcome.OK, _text(tool, value))
    parts = cast("Iterable[object]", value if mixed else [value])
    texts: list[str] = []
    files: list[Binary] = []
    for part in parts:
        if not isinstance(part, Binary):
            texts.append(_text(tool, part))
            continue
        file = _writable(part.media_type, part.data, part.name)
        label = f"{file.media_type}, {len(file.data):,} bytes{f', {file.name!r}' if file.name else ''}"
        problem = _misfit(file, files)
        texts.append(f"[left out: {label}; {problem}]" if problem else f"[{label}]")
        files += [] if problem else [file]
    return ToolEnd(Outcome.OK, "\n".join(filter(None, texts)), tuple(files))


def _writable(media_type: object, data: object, name: object) -> Binary:
    """A file as every journal and provider takes it; nothing has checked the tool's own."""
    if not isinstance(data, bytes | bytearray | memoryview):
        msg = f"the data of a Binary must be bytes; got {type(data).__name__}"
        raise TypeError(msg)
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type):
        msg = f"the media type of a Binary must be such as 'image/png'; got {media_type!r}"
        raise TypeError(msg)
    return Binary(media_type=media_type, data=bytes(data), name=clean(str(name))[:_MAX_NAME])


def _misfit(file: Binary, files: list[Binary]) -> str:
    """Why *file* cannot go along with *files*; empty where it can."""
    size = len(file.data)
    # Providers refuse a request with an empty file in it. The file would stay in the history, so every later
    # request of the conversation would fail, too.
    if not size:
        return "it is empty"
    if size > MAX_FILE_BYTES:
        return f"the limit for a file is {MAX_FILE_BYTES:,} bytes"
    if size + sum(len(other.data) for other in files) > MAX_FILES_BYTES:
        return f"the limit for all files of a result is {MAX_FILES_BYTES:,} bytes"
    if len(files) == MAX_RESULT_FILES:
        return f"the limit for a result is {MAX_RESULT_FILES} files"
    return ""


def _text(tool: str, value: object) -> str:
    """*value* that *tool* returned, as text: a string as it is, None as nothing, others as JSON."""
    if value is None or type(value) is str:
        return value or ""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # else Python warns that it was never awaited
        msg = "it returned something to be awaited: declare the tool with 'async def'"
        raise TypeError(msg)
    kind = type(value)
    try:
        text = json_text(value)
    except NoJSON as error:
        inside = "" if error.kind is kind else f" with {_noun(error.kind)} in it"
        problem = f"{inside}, which has no JSON form"
    except RecursionError:
        problem = " that contains itself, or is nested too deep"
    except Exception as error:  # noqa: BLE001  # methods of *value* are any code
        problem = f", which cannot be written as JSON: {error_text(error)}"
    else:
        # A text of a type of its own, such as an enum's, and bytes that are text: without quotes.
        return str(msgspec.json.decode(text)) if text.startswith('"') else text
    msg = f"tool {tool!r} returned {_noun(kind)}{problem}; return {_RETURN}"
    raise UnusableResult(msg)


def _noun(kind: type) -> str:
    name = kind.__name__
    return f"{'an' if name[:1].lower() in {*'aeiou'} else 'a'} {name}"


def truncate(text: str, limit: int) -> str:
    """
    *text* with at most about *limit* characters kept, from its beginning and its end, and fit for UTF-8.

    What is cut from the middle is counted in its place. Lone surrogates, as in file names that are not
    UTF-8, become question marks.
    """
    if len(text) > limit:
        head, tail = limit - limit // 2, limit // 2
        gone = len(text) - limit
        text = f"{text[:head]}\n[... {gone:,} characters cut ...]\n{text[len(text) - tail :]}"
    return clean(text)
