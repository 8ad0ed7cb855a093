"""
Hooks of the host: `hook` and `command_hook` make one, `HookRunner` performs `FireHook`.

Theory of operation. A hook is the host's code, and nothing it does may end the run it has a say in. One that
raises, hangs, or returns no answer has a fault: it is reported, and the machine decides what it comes to.
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

from ..effects import FireHook, Hook, HookAnswer, HookAnswered, HookSaid, HookSpec, Verdict, clean
from ..effects.errors import ArgumentError, ConfigError
from ..effects.hooks import ABOUT_TOOLS, OnError
from ..effects.validators import MAX_CALL_ARGUMENTS, once
from .base import Clock, PerformContext, SystemClock
from .callables import is_async, name_of, unusable
from .logs import FaultLog
from .tools.process import ProcessEnd, run
from .tools.returned import error_text, truncate
from .worker_pool import GRACE, WorkerPool

# Characters kept of a reason, a context or a fault: some 2,500 tokens, which a model reads at every call.
MAX_HOOK_TEXT = 10_000

# Bytes read of a command's output: room for the arguments of a call that writes a whole file.
MAX_HOOK_OUTPUT = 2_000_000

# The exit code with which a command says no.
DENY_CODE = 2

# Characters of a command's output that a fault quotes.
_QUOTED = 500

# Where a denial stops something.
DENIABLE = frozenset({Hook.SESSION_START, Hook.USER_PROMPT_SUBMIT, Hook.PRE_TOOL_USE, Hook.PRE_COMPACT})

# Where a hook is asked, or its value.
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


@final
@attrs.frozen(kw_only=True)
class HookCall:
    """
    The question to a hook. It is the hook's own copy: its changes in there reach no other.

    *payload* is everything there is to know, by *hook*: at a session's start its ``source``; of a person's
    input its ``prompts``; of a call its ``tool_name`` and ``tool_input``, and afterwards its
    ``tool_response`` or ``error``; of a compaction its ``reason`` and ``size``; at a stop its ``reason`` and
    how often it was ``continued``; at a session's end its ``reason``. *call* is our id of the call, *tool*
    and *arguments* are those of the payload. *now* is in seconds since the epoch.
    """

    hook: Hook
    session: str = ""
    run: str = ""
    call: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    payload: Mapping[str, Any] = attrs.field(factory=dict)
    now: float = 0.0


# What a hook that fails comes to, or its value.
OnErrorName = OnError | Literal["deny", "allow"]

# What a hook returns: None where it has nothing to say.
HookReturn = HookAnswer | None

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
        return is_async(self.function)


def hook(
    at: HookName,
    /,
    *,
    tool: str = "*",
    where: Mapping[str, str] | None = None,
    timeout: float | None = 60.0,
    name: str | None = None,
    on_error: OnErrorName | None = None,
) -> Callable[[Callable[[HookCall], HookResult]], HostHook[HookResult]]:
    """
    Make a function of a `HookCall`, sync or async, a hook: ``@hook(Hook.PRE_TOOL_USE, tool="write")``.

    It returns a `HookAnswer`, or None where it has nothing to say. *tool* and *where* are globs, for a tool's
    name and for arguments by their names, and choose the calls it is asked about. *timeout* is in seconds; a
    hook that takes longer has failed. *name* replaces the function's own. *on_error* says what a hook that
    fails comes to: ``"deny"``, the default before a tool is used, or ``"allow"``, that it has no say. Raises
    `ConfigError` or `ArgumentError` where it cannot be a hook.
    """
    # Here and not in `make`: without an argument, the decorator gets the function for its place.
    _check_place(at)

    def make(function: Callable[[HookCall], HookResult]) -> HostHook[HookResult]:
        _check_definition(function)
        called = name_of(function) if name is None else name
        return HostHook(_spec(at, called, tool, where, timeout, on_error), function)

    return make


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
    on_error: OnErrorName | None = None,
) -> HostHook[Awaitable[HookReturn]]:
    """
    A hook that is a program: *command* and its arguments, run in the directory *cwd*, without a shell.

    It reads a JSON object: the payload of a `HookCall`, and its hook, session, run, call and now. With exit
    code 0 it answers: a JSON object with the fields of a `HookAnswer` (arguments as an object), or nothing.
    With exit code 2 it says no, with the reason on its error stream: the prompt, call or compaction is
    denied, or at a stop the run goes on. Any other code is a fault. The processes it started end with it.
    The other settings are those of `hook`.
    """
    # A string is a sequence of strings, too: "ls -l" would run as the program "l".
    if isinstance(command, str) or not _are_strings(*command):
        msg = f"the command of a hook is a list of words, such as ['./check.sh', '--quick']; got {command!r}"
        raise ArgumentError(msg)
    if not command:
        msg = "the command of a hook is empty; give a program and its arguments"
        raise ConfigError(msg)
    words, folder = tuple(command), Path(cwd)  # a list of the host's may change later

    async def ask(about: HookCall) -> HookReturn:
        whose = {"hook": about.hook, "session": about.session, "run": about.run, "call": about.call}
        given = json.dumps({**about.payload, **whose, "now": about.now})
        ended = await run(words, given=given.encode(), cwd=folder, keep=MAX_HOOK_OUTPUT)
        return command_answer(about.hook, ended)

    called = Path(words[0]).name if name is None else name
    return hook(at, tool=tool, where=where, timeout=timeout, name=called, on_error=on_error)(ask)


@final
class HookRunner:
    """
    Asks *hooks* for their say: async ones in tasks, others in daemon threads, each within its own time.

    The hooks of a request are asked one after the other, and each sees the arguments that those before it
    gave to a call. *clock* is for `tell`. Raises `ConfigError` for two hooks of one name.
    """

    def __init__(self, hooks: Iterable[HostHook[Any]], *, clock: Clock | None = None) -> None:
        # Hosts pass the bare function easily. It would fail at the first event, deep in a run.
        found = tuple(hooks)
        for each in found:
            if not isinstance(cast("object", each), HostHook):
                msg = f"{each!r} is no hook: make one of it with @hook"
                raise ArgumentError(msg)
        once("hooks", [each.spec.name for each in found])
        self._hooks = {each.spec.name: each for each in found}
        self._clock = SystemClock() if clock is None else clock
        self._pool = WorkerPool()

    @property
    def specs(self) -> tuple[HookSpec, ...]:
        """The hooks as a `Config` takes them."""
        return tuple(each.spec for each in self._hooks.values())

    async def __call__(self, request: FireHook, scene: PerformContext) -> HookAnswered:
        """Ask the hooks that *request* names. Cancelled, it stops the one that is asked and raises."""
        said: list[HookSaid] = []
        about = HookCall(hook=request.hook, session=scene.session, run=scene.run, call=request.call)
        arguments = ""
        for name in request.names:
            call = partial(_filled, about, request.payload, arguments, scene.clock)
            one = await self._ask(name, scene.faults, call)
            said.append(one)
            if one.answer.verdict is Verdict.DENY and request.hook in DENIABLE:
                break  # no later hook could undo a denial, so none is asked
            if request.hook is Hook.PRE_TOOL_USE:
                arguments = one.answer.arguments or arguments
        return HookAnswered(at=scene.clock.now(), request=request.id, said=tuple(said))

    async def tell(self, hook: Hook, payload: str, faults: FaultLog) -> tuple[HookSaid, ...]:
        """
        Call every hook at *hook* with *payload*, JSON text, one after the other; return those at fault.

        *faults* names the session.
        """
        call = partial(_filled, HookCall(hook=hook, session=faults.session), payload, "", self._clock)
        names = [name for name, each in self._hooks.items() if each.spec.matches(hook, "", {})]
        said = [await self._ask(name, faults, call) for name in names]
        return tuple([one for one in said if one.fault])

    async def _ask(self, name: str, faults: FaultLog, call: Callable[[], HookCall]) -> HookSaid:
        """The say of the hook *name*; raises nothing but our own cancellation."""
        asked = self._hooks.get(name)
        if asked is None:
            # A session may be resumed by an agent that no longer has the hook.
            return _at_fault(name, "there is no such hook here")
        seconds, is_async = asked.spec.timeout, asked.is_async
        try:
            work = self._pool.start(
                partial(asked, call()),
                f"hook {name}" if is_async else None,
                partial(_answered, name, faults),
                partial(_raised, name, faults),
                partial(faults.blocked, "a hook blocked the event loop", {"hook": name}),
            )
            # Nothing stops a thread, so it gets no grace: waiting for it would only hold up the run.
            return await work.result(seconds, grace=GRACE if is_async else 0.0)
        except TimeoutError:
            faults.failed("a hook took too long", hook=name, seconds=f"{seconds:g}")
            return _at_fault(name, f"it took longer than {seconds:g} s")
        except (RuntimeError, ValueError) as error:  # no thread to be had, or a payload that is none
            return _at_fault(name, f"it could not be asked: {error}")


def _filled(about: HookCall, payload: str, arguments: str, clock: Clock) -> HookCall:
    """
    *about* with all that its *payload* tells, and the *arguments* that an earlier hook gave, if any did.

    Raises `ValueError` for a payload that is no JSON object.
    """
    told = _object(payload)  # read anew for each hook: one that changes its copy harms no other
    if arguments:
        told["tool_input"] = _object(arguments)
    given, tool = told.get("tool_input"), str(told.get("tool_name", ""))
    given = given if isinstance(given, dict) else {}
    return attrs.evolve(about, tool=tool, arguments=given, payload=told, now=clock.now())


def _answered(name: str, faults: FaultLog, answer: object) -> HookSaid:
    said = checked_answer(name, answer)
    if said.fault:
        # Raised here only for its type: a host's mistake, as one that raises is.
        faults.raised("a hook gave a wrong answer", TypeError(said.fault), hook=name)
    return said


def checked_answer(name: str, answer: object) -> HookSaid:
    """The say of the hook *name* that returned *answer*, fit to be written down."""
    if answer is None:
        return HookSaid(name=name)
    if inspect.iscoroutine(answer):
        answer.close()  # else Python warns that it was never awaited
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
    # The journal stores it. A reason that is no text would fail there, and end the run with an error of ours.
    for field, kind in (("reason", str), ("context", str), ("go_on", bool), ("interrupt", bool)):
        value: object = getattr(answer, field)
        if not isinstance(value, kind):
            return f"its {field} must be a {kind.__name__}; got {value!r}"
    arguments = answer.arguments
    if len(arguments) > MAX_CALL_ARGUMENTS:
        return f"its arguments have {len(arguments):,} characters, and may have {MAX_CALL_ARGUMENTS:,}"
    try:
        if arguments:
            _object(arguments)
    except ValueError as error:
        return f"its arguments must be a dict, or the JSON text of one; got {arguments!r} ({error})"
    return ""


def _raised(name: str, faults: FaultLog, error: BaseException) -> HookSaid:
    if isinstance(error, asyncio.CancelledError):
        # Where we cancelled it, its answer is not read any more. So it did this itself.
        return _at_fault(name, "it cancelled itself")
    faults.raised("a hook raised", error, hook=name)
    return _at_fault(name, f"it raised {error_text(error, named=True)}")


def _at_fault(name: str, fault: str) -> HookSaid:
    return HookSaid(name=name, fault=truncate(fault, MAX_HOOK_TEXT))


def _object(text: str) -> dict[str, Any]:
    """The JSON object in *text*; raises `ValueError` where it is none."""
    problem = "it is no object"
    try:
        if isinstance(found := _decode(text), dict):
            return found
    except RecursionError:
        problem = "it is nested too deep"
    raise ValueError(problem)


def _refuse(constant: str) -> NoReturn:
    """``NaN`` and ``Infinity`` are no JSON, although the decoder takes them."""
    msg = f"{constant} is no JSON"
    raise ValueError(msg)


_decode = json.JSONDecoder(parse_constant=_refuse).decode


@final
class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    """What a command writes: a `HookAnswer`, whose arguments may be an object, as JSON."""

    verdict: Verdict | None = None
    reason: str = ""
    arguments: dict[str, Any] | str = ""
    context: str = ""
    go_on: bool = False
    interrupt: bool = False


def command_answer(place: Hook, ended: ProcessEnd) -> HookReturn:
    """The answer at *place* of a command that *ended* so; raises where it gave none."""
    if ended.code == DENY_CODE:
        reason = ended.errors.strip()
        if place in {Hook.STOP, Hook.SUBAGENT_STOP}:
            return HookAnswer(go_on=True, reason=reason)
        return HookAnswer(verdict=Verdict.DENY, reason=reason)
    # Any other code is a program that crashed: no answer, but a fault.
    if ended.code:
        said = ended.errors.strip() or ended.output.strip() or "it said nothing"
        msg = f"exit code {ended.code}: {said[:_QUOTED]}"
        raise ChildProcessError(msg)
    if not ended.output.strip():
        return None
    try:
        answer = msgspec.json.decode(ended.output, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        msg = f"its output is no answer ({error}): {ended.output[:_QUOTED]!r}"
        raise ValueError(msg) from error
    return HookAnswer(**msgspec.structs.asdict(answer))


def _spec(
    at: HookName,
    name: str,
    tool: str,
    where: Mapping[str, str] | None,
    timeout: float | None,
    on_error: OnErrorName | None,
) -> HookSpec:
    """The specification of these settings; most of its errors give the hook's *name*."""
    given = cast("object", {} if where is None else where)
    pairs: tuple[tuple[Any, Any], ...] = tuple(given.items()) if isinstance(given, Mapping) else ((0, 0),)
    if not _are_strings(name, tool, *[text for pair in pairs for text in pair]):
        msg = (
            f"hook {name!r}: name and tool are texts, and where maps arguments to globs, "
            f"as {{'path': '*.md'}} does; got tool={tool!r}, where={where!r}"
        )
        raise ArgumentError(msg)
    place = Hook(at)
    if place not in ABOUT_TOOLS and (pairs or tool != "*"):
        msg = f"hook {name!r}: {str(at)!r} is about no call; leave out tool and where"
        raise ConfigError(msg)
    # A guard that is down must not let through what it is there to look at.
    usual = OnError.DENY if place is Hook.PRE_TOOL_USE else OnError.ALLOW
    failed = usual if on_error is None else OnError(on_error)
    if failed is OnError.DENY and place not in DENIABLE:
        msg = f"hook {name!r}: there is nothing to deny at {str(at)!r}; leave out on_error"
        raise ConfigError(msg)
    try:
        return HookSpec(name=name, hook=place, tool=tool, where=pairs, timeout=timeout, on_error=failed)
    except ConfigError as error:
        msg = f"hook {name!r}: {error}"
        raise ConfigError(msg) from error


def _check_place(at: object) -> None:
    if not isinstance(at, str):
        shown = getattr(at, "__name__", repr(at))
        msg = f"{shown!r} is not a place for a hook; write @hook(Hook.PRE_TOOL_USE)"
        raise ArgumentError(msg)


def _are_strings(*values: object) -> bool:
    """Whether all *values* are, whatever their types promise."""
    return all(isinstance(value, str) for value in values)


def _check_definition(function: Callable[[HookCall], object]) -> None:
    """Refuse what cannot be called with a `HookCall`, or is no function at all."""
    if isinstance(function, HostHook):
        problem = "it is a hook already"
    else:
        problem = unusable(function, "HookAnswer, or None")
    if not problem:
        try:
            inspect.signature(function).bind(None)
        except TypeError:
            problem = "it must take one argument, the HookCall"
    if problem:
        msg = f"{getattr(function, '__qualname__', None) or repr(function)!r} cannot be a hook: {problem}"
        raise ArgumentError(msg)
