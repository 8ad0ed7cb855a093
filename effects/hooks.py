"""
Hooks as data: where a host may have a say, which of its hooks are asked when, and what they can answer.

The callables behind them live in a performer and are known by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import final

import attrs

from .errors import Choice
from .permissions import ArgumentGlobs, Rule, Verdict
from .validators import as_arguments, as_globs, globs, not_empty, of_kind, positive, spelled


class Hook(Choice):
    """
    The places where a host may have a say. `SESSION_END` is told and not asked.

    `STOP` is the end of a run of its own accord, `SUBAGENT_STOP` that of a child's.
    """

    SESSION_START = "session_start"
    USER_PROMPT_SUBMIT = "user_prompt_submit"
    PRE_TOOL_USE = "pre_tool_use"
    POST_TOOL_USE = "post_tool_use"
    POST_TOOL_USE_FAILURE = "post_tool_use_failure"
    PRE_COMPACT = "pre_compact"
    STOP = "stop"
    SUBAGENT_STOP = "subagent_stop"
    SESSION_END = "session_end"


# Hooks that are about a call, and so can be matched by tool and arguments.
ABOUT_TOOLS = frozenset({Hook.PRE_TOOL_USE, Hook.POST_TOOL_USE, Hook.POST_TOOL_USE_FAILURE})


class OnError(Choice):
    """What a hook that fails comes to: a denial, or no say."""

    DENY = "deny"
    ALLOW = "allow"


@final
@spelled
@attrs.frozen(kw_only=True)
class HookSpec:
    """
    One hook of the host's: *name* is what its callable is known by, *hook* where it is asked.

    *tool* and *where* are globs as in a `Rule`, and say which calls it is asked about. *timeout* in seconds:
    a hook that takes longer has failed. *on_error* says what becomes of that.
    """

    name: str = attrs.field(validator=not_empty)
    hook: Hook = attrs.field(converter=Hook)
    tool: str = "*"
    where: ArgumentGlobs = attrs.field(default=(), converter=as_globs, validator=globs)
    timeout: float | None = attrs.field(default=60.0, validator=positive)
    # As before there was a choice, for journals from then. `hook` makes every guard of a call deny.
    on_error: OnError = attrs.field(default=OnError.ALLOW, converter=OnError)

    def matches(self, hook: Hook, tool: str, arguments: Mapping[str, object]) -> bool:
        """Whether this hook is asked at *hook*, about a call of *tool* with *arguments*."""
        if hook is not self.hook or not fnmatchcase(tool, self.tool):
            return False
        # Any form of a path is enough to be asked, as for a rule that asks.
        return not self.where or Rule(Verdict.ASK, "*", where=self.where).covers(tool, arguments)


@final
@spelled
@attrs.frozen
class HookAnswer:
    """
    What a hook says. Everything is optional; a hook that says nothing lets things take their course.

    *verdict* is on a call before it runs, on a prompt, or on a compaction, with a *reason* that a person or
    the model reads. *arguments*, a dict, take the place of a call's; they are kept as JSON text. *context* is
    added to the instructions of the next model call. *go_on*: at a stop, the run goes on and the model reads
    *reason*. *interrupt*: a denial also ends the run.
    """

    verdict: Verdict | None = attrs.field(default=None, converter=attrs.converters.optional(Verdict))
    reason: str = ""
    arguments: str = attrs.field(default="", converter=as_arguments, kw_only=True)
    context: str = attrs.field(default="", kw_only=True)
    go_on: bool = attrs.field(default=False, validator=of_kind(bool), kw_only=True)
    interrupt: bool = attrs.field(default=False, validator=of_kind(bool), kw_only=True)


@final
@attrs.frozen(kw_only=True)
class HookSaid:
    """The *answer* of the hook called *name*; or why it has none, which is its *fault*."""

    name: str
    answer: HookAnswer = HookAnswer()
    fault: str = ""
