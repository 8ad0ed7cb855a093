"""What the hooks of a played world say: mostly nothing, and everything they can say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from provers.choices import (
    Choices,
    chance,
    pick,
    weighted,
)
from provers.simulation import replies
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid
from turnwheel.effects.permissions import Verdict

if TYPE_CHECKING:
    from turnwheel.effects.requests import FireHook


def said(choices: Choices, request: FireHook) -> tuple[HookSaid, ...]:
    """The answers of the hooks that *request* asks."""
    return tuple([_said(choices, name, request) for name in request.names])


def _said(choices: Choices, name: str, request: FireHook) -> HookSaid:
    """What the hook *name* says; what stands beside a fault of it does not count."""
    said = _answered(choices, name, request)
    return attrs.evolve(said, fault="it hangs") if chance(choices, 8) else said


def _answered(choices: Choices, name: str, request: FireHook) -> HookSaid:
    context = pick(choices, ("", "", "", "mind the gap"))
    if request.hook is Hook.PRE_TOOL_USE:
        return HookSaid(name=name, answer=_before(choices, context))
    if request.hook in {Hook.STOP, Hook.SUBAGENT_STOP}:
        go_on = chance(choices, 40)
        reason = pick(choices, ("", "once more"))
        return HookSaid(name=name, answer=HookAnswer(go_on=go_on, reason=reason, context=context))
    verdict = weighted(choices, {None: 75, Verdict.ALLOW: 10, Verdict.DENY: 15})
    interrupt = chance(choices, 15)
    answer = HookAnswer(verdict=verdict, reason="so", context=context, interrupt=interrupt)
    return HookSaid(name=name, answer=answer)


def _before(choices: Choices, context: str) -> HookAnswer:
    verdict = weighted(choices, {None: 40, Verdict.ALLOW: 15, Verdict.ASK: 20, Verdict.DENY: 25})
    arguments = replies.arguments(choices, "write") if chance(choices, 25) else ""
    interrupt = chance(choices, 40)
    return HookAnswer(verdict=verdict, reason="so", arguments=arguments, context=context, interrupt=interrupt)
