"""How a host writes a hook: `hook` makes one of a function, and the function sees a `HookCall`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, Literal, NoReturn, TypeVar, final

import attrs

from ..errors import ArgumentError, ConfigError
from ..hooks import ABOUT_TOOLS, Hook, HookAnswer, HookSpec

HookName = (
    Hook
    | Literal[
        "session_start",
        "user_prompt_submit",
        "pre_tool_use",
        "post_tool_use",
        "post_tool_use_failure",
        "pre_compact",
        "stop",
        "subagent_stop",
        "session_end",
    ]
)
"""Where a hook is asked, or its value."""


@final
@attrs.frozen(kw_only=True)
class HookCall:
    """
    What a hook is asked about. It is the hook's own copy: what it changes in there, nobody sees.

    *payload* is everything there is to know, by *hook*: at a session's start its ``source``; of what a person
    said its ``prompts``; of a call its ``tool_name`` and ``tool_input``, and afterwards its ``tool_response``
    or ``error``; of a compaction its ``reason`` and ``size``; at a stop its ``reason`` and how often it was
    ``continued``; at a session's end its ``reason``. *call* is our id of the call, *tool* and *arguments* are
    those of the payload. *now* is in seconds since the epoch.
    """

    hook: Hook
    session: str = ""
    run: str = ""
    call: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    payload: Mapping[str, Any] = attrs.field(factory=dict)
    now: float = 0.0


Said = HookAnswer | None
"""What a hook returns: None where it has nothing to say."""

R = TypeVar("R", bound=Said | Awaitable[Said])
R_co = TypeVar("R_co", bound=Said | Awaitable[Said], covariant=True)


@final
@attrs.frozen
class HostHook(Generic[R_co]):
    """A function that has a say, made by `hook`. Calling it is calling the function."""

    spec: HookSpec
    function: Callable[[HookCall], R_co]

    def __call__(self, about: HookCall) -> R_co:
        """Call the function."""
        return self.function(about)

    @property
    def is_async(self) -> bool:
        """Whether the function is to be awaited; others run in a thread."""
        return inspect.iscoroutinefunction(self.function)


def hook(
    at: HookName,
    /,
    *,
    tool: str = "*",
    where: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    name: str | None = None,
) -> Callable[[Callable[[HookCall], R]], HostHook[R]]:
    """
    Make a function of a `HookCall`, sync or async, a hook: ``@hook(Hook.PRE_TOOL_USE, tool="write")``.

    It returns a `HookAnswer`, or None where it has nothing to say. *tool* and *where* are globs, for a tool's
    name and for arguments by their names, and say which calls it is asked about. *timeout* is in seconds;
    without an answer until then it has no say. *name* takes the place of the function's own. Raises
    `ConfigError` or `ArgumentError` where it cannot be a hook.
    """
    place = place_of(at)

    def make(function: Callable[[HookCall], R]) -> HostHook[R]:
        _check(function)
        spec = spec_of(place, function.__name__ if name is None else name, tool, where, timeout)
        return HostHook(spec, function)

    return make


def place_of(at: object) -> Hook:
    """The place *at*, or of that value; raises `ArgumentError` or `ConfigError` where there is none."""
    if not isinstance(at, str):
        msg = f"{at!r} is no place for a hook; write @hook(Hook.PRE_TOOL_USE)"
        raise ArgumentError(msg)
    try:
        return Hook(at)
    except ValueError as error:
        msg = f"there is no hook {at!r}; there are: {', '.join(Hook)}"
        raise ConfigError(msg) from error


def spec_of(
    place: Hook, name: str, tool: str, where: Mapping[str, str] | None, timeout: float | None
) -> HookSpec:
    """The specification of these settings; what is wrong with them is told by the hook's *name*."""
    pairs = _pairs(where)
    if pairs is None or not are_texts(name, tool):
        msg = (
            f"hook {name!r}: name and tool are texts, and where maps arguments to globs, "
            f"as {{'path': '*.md'}} does; got tool={tool!r}, where={where!r}"
        )
        raise ArgumentError(msg)
    if place not in ABOUT_TOOLS and (pairs or tool != "*"):
        msg = f"hook {name!r}: {place.value!r} is about no call; leave out tool and where"
        raise ConfigError(msg)
    try:
        return HookSpec(name=name, hook=place, tool=tool, where=pairs, timeout=timeout)
    except ConfigError as error:
        msg = f"hook {name!r}: {error}"
        raise ConfigError(msg) from error


def _pairs(where: object) -> tuple[tuple[str, str], ...] | None:
    """*where* as a specification has it; None where it is no mapping of texts."""
    if where is None:
        return ()
    if not isinstance(where, Mapping):
        return None
    pairs = tuple(where.items())
    return pairs if all(are_texts(*pair) for pair in pairs) else None


def are_texts(*values: object) -> bool:
    """Whether all *values* are, whatever their types promise."""
    return all(isinstance(value, str) for value in values)


def _check(function: Callable[[HookCall], object]) -> None:
    """Refuse what cannot be called with a `HookCall`, or is no function at all."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        _refuse(function, "it is no function; write one that calls it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse(function, "it yields; return one HookAnswer, or None")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        _refuse(function, "it must take one argument, the HookCall")


def _refuse(function: object, problem: str) -> NoReturn:
    name = getattr(function, "__qualname__", None) or repr(function)
    msg = f"{name!r} cannot be a hook: {problem}"
    raise ArgumentError(msg)
