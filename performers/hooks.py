"""
The host's own say: `HookRunner` performs `FireHook`.

A hook is the host's code, and nothing it does may end the run it has a say in: one that raises, hangs, or
answers with what is no answer has a fault, which is told, and no say.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, NoReturn, TypeVar, cast, final

import attrs
import msgspec

from ..effects.errors import ArgumentError, ConfigError
from ..effects.events import HookAnswered
from ..effects.hooks import (
    ABOUT_TOOLS,
    Hook,
    HookAnswer,
    HookSaid,
    HookSpec,
)
from ..effects.permissions import Verdict
from ..effects.requests import FireHook
from ..effects.validators import MAX_ARGUMENTS, clean, once
from .base import Clock, PerformContext, SystemClock
from .tools.process import ProcessEnd, run_with_input
from .tools.result import error_text, truncate
from .worker_pool import WorkerPool

# How a host writes a hook: `hook` makes one of a function, and the function sees a `HookCall`.


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


HookReturn = HookAnswer | None
"""What a hook returns: None where it has nothing to say."""

HookResult = TypeVar("HookResult", bound=HookReturn | Awaitable[HookReturn])
HookResult_co = TypeVar("HookResult_co", bound=HookReturn | Awaitable[HookReturn], covariant=True)


@final
@attrs.frozen
class HostHook(Generic[HookResult_co]):
    """A function that has a say, made by `hook`. Calling it is calling the function."""

    spec: HookSpec
    function: Callable[[HookCall], HookResult_co]

    def __call__(self, about: HookCall) -> HookResult_co:
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
) -> Callable[[Callable[[HookCall], HookResult]], HostHook[HookResult]]:
    """
    Make a function of a `HookCall`, sync or async, a hook: ``@hook(Hook.PRE_TOOL_USE, tool="write")``.

    It returns a `HookAnswer`, or None where it has nothing to say. *tool* and *where* are globs, for a tool's
    name and for arguments by their names, and say which calls it is asked about. *timeout* is in seconds;
    without an answer until then it has no say. *name* takes the place of the function's own. Raises
    `ConfigError` or `ArgumentError` where it cannot be a hook.
    """
    place = hook_named(at)

    def make(function: Callable[[HookCall], HookResult]) -> HostHook[HookResult]:
        _check_definition(function)
        spec = spec_of(place, function.__name__ if name is None else name, tool, where, timeout)
        return HostHook(spec, function)

    return make


def hook_named(at: object) -> Hook:
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
    if pairs is None or not are_strings(name, tool):
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
    return pairs if all(are_strings(*pair) for pair in pairs) else None


def are_strings(*values: object) -> bool:
    """Whether all *values* are, whatever their types promise."""
    return all(isinstance(value, str) for value in values)


def _check_definition(function: Callable[[HookCall], object]) -> None:
    """Refuse what cannot be called with a `HookCall`, or is no function at all."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        _refuse_definition(function, "it is no function; write one that calls it")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        _refuse_definition(function, "it yields; return one HookAnswer, or None")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        _refuse_definition(function, "it must take one argument, the HookCall")


def _refuse_definition(function: object, problem: str) -> NoReturn:
    name = getattr(function, "__qualname__", None) or repr(function)
    msg = f"{name!r} cannot be a hook: {problem}"
    raise ArgumentError(msg)


MAX_HOOK_TEXT = 10_000
"""Characters kept of a reason, a context or a fault: some 2,500 tokens, which a model reads at every call."""

HOOK_GRACE = 2.0
"""Seconds an async hook gets to end after it was cancelled or its time was up."""

THREADS = 32
"""Sync hooks of one runner that run at once."""

DENIABLE = frozenset({Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT, Hook.PRE_TOOL_USE, Hook.PRE_COMPACT})
"""Where a denial stops something."""


@final
@attrs.frozen(kw_only=True)
class _Occasion:
    """What hooks are asked about; *arguments*, where not empty, are what one of them made of a call's."""

    hook: Hook
    session: str
    payload: str
    run: str = ""
    call: str = ""
    arguments: str = ""

    def about(self, now: float) -> HookCall:
        """What the next hook sees; raises `ValueError` for a payload that is no JSON object."""
        payload = _object(self.payload)
        if self.arguments:
            payload["tool_input"] = _object(self.arguments)
        arguments = payload.get("tool_input")
        return HookCall(
            hook=self.hook,
            session=self.session,
            run=self.run,
            call=self.call,
            tool=str(payload.get("tool_name", "")),
            arguments=arguments if isinstance(arguments, dict) else {},
            payload=payload,
            now=now,
        )


@final
class HookRunner:
    """
    Asks *hooks* for their say: async ones in tasks, others in daemon threads, each within its own time.

    The hooks of a request are asked one after the other, and each sees the arguments that those before it
    gave to a call. A denial ends the asking, since nothing that another one says could undo it. *clock* is
    for `tell`. Raises `ConfigError` for two hooks of one name.
    """

    def __init__(self, hooks: Iterable[HostHook[Any]], *, clock: Clock | None = None) -> None:
        found = tuple(hooks)
        for each in found:
            _must_be_a_hook(each)
        once("hooks", [each.spec.name for each in found])
        self._hooks = {each.spec.name: each for each in found}
        self._clock = SystemClock() if clock is None else clock
        self._crew = WorkerPool(THREADS)

    @property
    def specs(self) -> tuple[HookSpec, ...]:
        """The hooks as a `Config` takes them."""
        return tuple(each.spec for each in self._hooks.values())

    async def __call__(self, request: FireHook, scene: PerformContext) -> HookAnswered:
        """Ask the hooks that *request* names. Cancelled, it stops the one that is asked and raises."""
        occasion = _Occasion(
            hook=request.hook,
            session=scene.session,
            payload=request.payload,
            run=scene.run,
            call=request.call,
        )
        said: list[HookSaid] = []
        for name in request.names:
            one = await self._ask(name, occasion, scene.clock)
            said.append(one)
            if one.answer.verdict is Verdict.DENY and request.hook in DENIABLE:
                break
            if one.answer.arguments and request.hook is Hook.PRE_TOOL_USE:
                occasion = attrs.evolve(occasion, arguments=one.answer.arguments)
        return HookAnswered(at=scene.clock.now(), request=request.id, said=tuple(said))

    async def tell(self, hook: Hook, payload: str, session: str) -> tuple[HookSaid, ...]:
        """
        Tell every hook at *hook* of *payload*, JSON text, one after the other; nobody asks what they say.

        Those that have a fault are returned.
        """
        occasion = _Occasion(hook=hook, session=session, payload=payload)
        names = [name for name, each in self._hooks.items() if each.spec.matches(hook, "", {})]
        said = [await self._ask(name, occasion, self._clock) for name in names]
        return tuple([one for one in said if one.fault])

    async def _ask(self, name: str, occasion: _Occasion, clock: Clock) -> HookSaid:
        """What the hook *name* says; raises nothing but our own cancellation."""
        asked = self._hooks.get(name)
        if asked is None:
            return _at_fault(name, "there is no such hook here")
        seconds = asked.spec.timeout
        try:
            about = occasion.about(clock.now())
            if asked.is_async:
                work = self._crew.task(_heard_async(asked, about), f"hook {name}")
            else:
                work = self._crew.thread(partial(_heard, asked, about))
            # Nothing stops a thread, so it is not waited for.
            return await work.result(seconds, grace=HOOK_GRACE if asked.is_async else 0.0)
        except TimeoutError:
            return _at_fault(name, f"it took longer than {seconds:g} s")
        except (RuntimeError, ValueError) as error:  # no thread to be had, or a payload that is none
            return _at_fault(name, f"it could not be asked: {error}")


def _must_be_a_hook(given: object) -> None:
    if not isinstance(given, HostHook):
        msg = f"{given!r} is no hook: make one of it with @hook"
        raise ArgumentError(msg)


def _heard(asked: HostHook[Any], about: HookCall) -> HookSaid:
    """What *asked* says; never raises."""
    try:
        return checked_answer(asked.spec.name, asked(about))
    except BaseException as error:  # noqa: BLE001  # a hook that calls sys.exit() must not end the service
        return _failed(asked.spec.name, error)


async def _heard_async(asked: HostHook[Any], about: HookCall) -> HookSaid:
    """What *asked* says; never raises, not even when it is cancelled."""
    try:
        return checked_answer(asked.spec.name, await asked(about))
    except BaseException as error:  # noqa: BLE001  # SystemExit would end the event loop
        return _failed(asked.spec.name, error)


def _failed(name: str, error: BaseException) -> HookSaid:
    if isinstance(error, asyncio.CancelledError):  # by nobody else, or nobody waits any more
        return _at_fault(name, "it cancelled itself")
    kind, text = type(error).__name__, error_text(error)
    return _at_fault(name, f"it raised {kind}: {text}".removesuffix(f": {kind}"))


def _at_fault(name: str, fault: str) -> HookSaid:
    return HookSaid(name=name, fault=truncate(fault, MAX_HOOK_TEXT))


def checked_answer(name: str, answer: object) -> HookSaid:
    """What the hook *name* says by returning *answer*, fit to be written down."""
    if answer is None:
        return HookSaid(name=name)
    if inspect.iscoroutine(answer):
        answer.close()
        return _at_fault(name, "it returned something to be awaited: declare it with 'async def'")
    if not isinstance(answer, HookAnswer):
        return _at_fault(name, f"it returned {answer!r}: return a HookAnswer, or None")
    if fault := _fault_in(answer):
        return _at_fault(name, fault)
    kept = attrs.evolve(
        answer,
        reason=truncate(answer.reason, MAX_HOOK_TEXT),
        arguments=clean(answer.arguments),
        context=truncate(answer.context, MAX_HOOK_TEXT),
    )
    return HookSaid(name=name, answer=kept)


def _fault_in(answer: HookAnswer) -> str:
    """What is wrong with *answer*, whose fields nothing has checked; empty where nothing is."""
    for field, kind in (("reason", str), ("context", str), ("go_on", bool), ("interrupt", bool)):
        value: object = getattr(answer, field)
        if not isinstance(value, kind):
            return f"its {field} must be a {kind.__name__}; got {value!r}"
    arguments = cast("object", answer.arguments)
    if isinstance(arguments, str) and len(arguments) > MAX_ARGUMENTS:
        return f"its arguments have {len(arguments):,} characters, and may have {MAX_ARGUMENTS:,}"
    try:
        if arguments != "":
            _object(arguments)
    except ValueError as error:
        return f"its arguments must be the text of a JSON object; got {arguments!r} ({error})"
    return ""


def _object(text: object) -> dict[str, Any]:
    """The JSON object in *text*; raises `ValueError` where it is none."""
    if not isinstance(text, str):
        msg = "it is no text; json.dumps makes one"
        raise ValueError(msg)  # noqa: TRY004  # whoever catches it tells what was wrong, of either kind
    try:
        found: object = _decode(text)
    except RecursionError as error:
        msg = "it is nested too deep"
        raise ValueError(msg) from error
    if not isinstance(found, dict):
        msg = "it is no object"
        raise ValueError(msg)  # noqa: TRY004  # as above
    return found


def _refuse(constant: str) -> NoReturn:
    """``NaN`` and ``Infinity`` are no JSON, although the decoder takes them."""
    msg = f"{constant} is no JSON"
    raise ValueError(msg)


_decode = json.JSONDecoder(parse_constant=_refuse).decode


# Hooks that are programs of the host's: `command_hook`.


MAX_HOOK_OUTPUT = 2_000_000
"""Bytes read of what a command says: room for the arguments of a call that writes a whole file."""

DENY_CODE = 2
"""The exit code with which a command says no."""

_SHOWN = 500
"""Characters of a command's output shown in a fault."""


@final
class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What a command writes: a `HookAnswer`, whose arguments may be an object, as JSON."""

    verdict: Verdict | None = None
    reason: str = ""
    arguments: dict[str, Any] | str = ""
    context: str = ""
    go_on: bool = False
    interrupt: bool = False


def command_hook(  # noqa: PLR0913  # settings that each have a name, and most a default
    at: HookName,
    /,
    *,
    command: Sequence[str],
    cwd: Path | str = ".",
    tool: str = "*",
    where: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    name: str | None = None,
) -> HostHook[Awaitable[HookReturn]]:
    """
    A hook that is a program: *command* and its arguments, run in the directory *cwd*, without a shell.

    It reads a JSON object: the payload of a `HookCall`, and its hook, session, run, call and now. With exit
    code 0 it answers: a JSON object with the fields of a `HookAnswer` (arguments as an object), or nothing.
    With exit code 2 it says no, for the reason on its error stream: what it is asked about is denied, or at a
    stop the run goes on. Any other code is a fault. What it started is ended with it. The other settings are
    those of `hook`.
    """
    place = hook_named(at)
    if isinstance(command, str) or not are_strings(*command):
        msg = f"the command of a hook is a list of words, such as ['./check.sh', '--quick']; got {command!r}"
        raise ArgumentError(msg)
    if not command:
        msg = "the command of a hook is empty; give a program and its arguments"
        raise ConfigError(msg)
    words, folder = tuple(command), Path(cwd)

    async def ask(about: HookCall) -> HookReturn:
        whose = {"hook": about.hook, "session": about.session, "run": about.run, "call": about.call}
        given = json.dumps({**about.payload, **whose, "now": about.now})
        ended = await run_with_input(words, given=given.encode(), cwd=folder, keep=MAX_HOOK_OUTPUT)
        return command_answer(place, ended)

    return HostHook(spec_of(place, Path(words[0]).name if name is None else name, tool, where, timeout), ask)


def command_answer(place: Hook, ended: ProcessEnd) -> HookReturn:
    """What a command that *ended* so says at *place*; raises where that is no answer."""
    if ended.code == DENY_CODE:
        reason = ended.errors.strip()
        if place in {Hook.STOP, Hook.SUBAGENT_STOP}:
            return HookAnswer(go_on=True, reason=reason)
        return HookAnswer(verdict=Verdict.DENY, reason=reason)
    if ended.code:
        said = ended.errors.strip() or ended.output.strip() or "it said nothing"
        msg = f"exit code {ended.code}: {said[:_SHOWN]}"
        raise ChildProcessError(msg)
    if not ended.output.strip():
        return None
    try:
        answer = msgspec.json.decode(ended.output, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"its output is no answer ({error}): {ended.output[:_SHOWN]!r}"
        raise ValueError(msg) from error
    given = answer.arguments
    return HookAnswer(
        verdict=answer.verdict,
        reason=answer.reason,
        arguments=given if isinstance(given, str) else msgspec.json.encode(given).decode(),
        context=answer.context,
        go_on=answer.go_on,
        interrupt=answer.interrupt,
    )
