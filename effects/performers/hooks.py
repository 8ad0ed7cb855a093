"""
The host's own say: `HookRunner` performs `FireHook`.

A hook is the host's code, and nothing it does may end the run it has a say in: one that raises, hangs, or
answers with what is no answer has a fault, which is told, and no say.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn, cast, final

import attrs

from ..checks import once
from ..errors import ArgumentError
from ..events import HookAnswered
from ..hooks import Hook, HookAnswer, HookSaid, HookSpec
from ..permissions import Verdict
from ..requests import FireHook
from ..sizes import MAX_ARGUMENTS
from ..text import clean
from .base import Clock, Scene, SystemClock
from .hooks_command import command_hook
from .hooks_define import HookCall, HostHook, hook
from .tools.result import cut, message
from .work import Crew

__all__ = ["HookCall", "HookRunner", "HostHook", "command_hook", "hook"]

MAX_TEXT = 10_000
"""Characters kept of a reason, a context or a fault: some 2,500 tokens, which a model reads at every call."""

GRACE = 2.0
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
        self._crew = Crew(THREADS)

    @property
    def specs(self) -> tuple[HookSpec, ...]:
        """The hooks as a `Config` takes them."""
        return tuple(each.spec for each in self._hooks.values())

    async def __call__(self, request: FireHook, scene: Scene) -> HookAnswered:
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
            return await work.result(seconds, grace=GRACE if asked.is_async else 0.0)
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
        return accepted(asked.spec.name, asked(about))
    except BaseException as error:  # noqa: BLE001  # a hook that calls sys.exit() must not end the service
        return _failed(asked.spec.name, error)


async def _heard_async(asked: HostHook[Any], about: HookCall) -> HookSaid:
    """What *asked* says; never raises, not even when it is cancelled."""
    try:
        return accepted(asked.spec.name, await asked(about))
    except BaseException as error:  # noqa: BLE001  # SystemExit would end the event loop
        return _failed(asked.spec.name, error)


def _failed(name: str, error: BaseException) -> HookSaid:
    if isinstance(error, asyncio.CancelledError):  # by nobody else, or nobody waits any more
        return _at_fault(name, "it cancelled itself")
    kind, text = type(error).__name__, message(error)
    return _at_fault(name, f"it raised {kind}: {text}".removesuffix(f": {kind}"))


def _at_fault(name: str, fault: str) -> HookSaid:
    return HookSaid(name=name, fault=cut(fault, MAX_TEXT))


def accepted(name: str, answer: object) -> HookSaid:
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
        reason=cut(answer.reason, MAX_TEXT),
        arguments=clean(answer.arguments),
        context=cut(answer.context, MAX_TEXT),
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
