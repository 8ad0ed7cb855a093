"""Hooks that are programs of the host's: `command_hook`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import msgspec

from ..errors import ArgumentError, ConfigError
from ..hooks import Hook, HookAnswer
from ..permissions import Verdict
from .hooks_define import HookCall, HookName, HostHook, Said, are_texts, place_of, spec_of
from .tools.process import Ended, converse

MAX_OUTPUT = 2_000_000
"""Bytes read of what a command says: room for the arguments of a call that writes a whole file."""

NO = 2
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
) -> HostHook[Awaitable[Said]]:
    """
    A hook that is a program: *command* and its arguments, run in the directory *cwd*, without a shell.

    It reads a JSON object: the payload of a `HookCall`, and its hook, session, run, call and now. With exit
    code 0 it answers: a JSON object with the fields of a `HookAnswer` (arguments as an object), or nothing.
    With exit code 2 it says no, for the reason on its error stream: what it is asked about is denied, or at a
    stop the run goes on. Any other code is a fault. What it started is ended with it. The other settings are
    those of `hook`.
    """
    place = place_of(at)
    if isinstance(command, str) or not are_texts(*command):
        msg = f"the command of a hook is a list of words, such as ['./check.sh', '--quick']; got {command!r}"
        raise ArgumentError(msg)
    if not command:
        msg = "the command of a hook is empty; give a program and its arguments"
        raise ConfigError(msg)
    words, folder = tuple(command), Path(cwd)

    async def ask(about: HookCall) -> Said:
        whose = {"hook": about.hook, "session": about.session, "run": about.run, "call": about.call}
        given = json.dumps({**about.payload, **whose, "now": about.now})
        return heard(place, await converse(words, given=given.encode(), cwd=folder, keep=MAX_OUTPUT))

    return HostHook(spec_of(place, Path(words[0]).name if name is None else name, tool, where, timeout), ask)


def heard(place: Hook, ended: Ended) -> Said:
    """What a command that *ended* so says at *place*; raises where that is no answer."""
    if ended.code == NO:
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
