"""Which of the host's hooks are asked, what they are told, and what their answers come to together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import final

import attrs

from ...effects.config import Config
from ...effects.hooks import Hook, HookAnswer, HookSaid, OnError
from ...effects.messages import ToolResult
from ...effects.permissions import Verdict

# Of several answers the strictest holds.
STRENGTH = {None: 0, Verdict.ALLOW: 1, Verdict.ASK: 2, Verdict.DENY: 3}


@final
@attrs.frozen(kw_only=True)
class Opinion:
    """
    What several hooks said, as one: the strictest *verdict* and *because* of which hook and reason.

    *reason* is that reason alone. *arguments* are the last ones given, *context* all of them; *go_on* is the
    reason of the first that wants to go on, or None. *said* is what it comes of.
    """

    verdict: Verdict | None = None
    because: str = ""
    reason: str = ""
    arguments: str = ""
    context: tuple[str, ...] = ()
    go_on: str | None = None
    interrupt: bool = False
    said: tuple[HookSaid, ...] = ()


def heard(said: tuple[HookSaid, ...], config: Config) -> Opinion:
    """What *said* comes to, with a denial in the place of the fault of each hook that denies on errors."""
    # A guard that is down must not let a call through; a hook that only adds context must not stop all work.
    # Once, when it comes: a process that takes over without the hook does not undo a denial.
    denies = guards(config)
    return opinion(tuple([_denial(one) if one.fault and one.name in denies else one for one in said]))


def guards(config: Config) -> set[str]:
    """The names of the hooks of *config* that deny where they fail."""
    return {spec.name for spec in config.hooks if spec.on_error is OnError.DENY}


def _denial(said: HookSaid) -> HookSaid:
    no = HookAnswer(verdict=Verdict.DENY, reason=f"it failed: {said.fault}")
    return HookSaid(name=said.name, answer=no)


def opinion(said: tuple[HookSaid, ...]) -> Opinion:
    """What *said* comes to; a hook with a fault has no say."""
    able = [one for one in said if not one.fault]
    strictest = max(able, key=lambda one: STRENGTH[one.answer.verdict], default=None)
    verdict = None if strictest is None else strictest.answer.verdict
    named = strictest if verdict is not None else None
    reason = "" if named is None else named.answer.reason
    # The last one wins, since each hook saw the arguments that the one before it gave.
    rewritten = [one.answer.arguments for one in able if one.answer.arguments]
    return Opinion(
        verdict=verdict,
        because="" if named is None else f"{named.name}: {reason}" if reason else named.name,
        reason=reason,
        arguments=rewritten[-1] if rewritten else "",
        # All of them: texts add up, while of several verdicts only one can hold.
        context=tuple([one.answer.context for one in able if one.answer.context]),
        # One hook is enough: each may know of work that the others do not see.
        go_on=next((one.answer.reason for one in able if one.answer.go_on), None),
        # Only with a denial: a hook cannot end a run by allowing something.
        interrupt=any(one.answer.interrupt for one in able if one.answer.verdict is Verdict.DENY),
        said=said,
    )


def asked_at(
    config: Config, hook: Hook, tool: str = "", arguments: Mapping[str, object] | None = None
) -> tuple[str, ...]:
    """The names of the hooks that are asked at *hook*, about a call of *tool* where it is about one."""
    return tuple([spec.name for spec in config.hooks if spec.matches(hook, tool, arguments or {})])


def told_of_call(tool: str, arguments: Mapping[str, object]) -> str:
    """What a hook is told of a call that has not run."""
    return told(tool_name=tool, tool_input=arguments)


def told_of_result(result: ToolResult, arguments: Mapping[str, object]) -> str:
    """What a hook is told of a call that ran."""
    end = {"error" if result.is_error else "tool_response": result.content}
    return told(tool_name=result.name, tool_input=arguments, **end)


def told(**facts: object) -> str:
    """What a hook is told: these *facts*."""
    # As it would be typed: a hook that greps its input for a word finds it.
    return json.dumps(facts, ensure_ascii=False)
