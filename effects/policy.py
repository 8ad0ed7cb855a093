"""The policy: how the loop decides where there is more than one good way. Presets are in `presets`."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from .checks import not_negative, positive, share
from .permissions import PermissionMode


class OnDenial(StrEnum):
    """After a person said no: back to the model at once, go on with the next call, or end the run."""

    SKIP_REST = "skip_rest"
    GO_ON = "go_on"
    INTERRUPT = "interrupt"


class OnLost(StrEnum):
    """
    When the process is gone in which an unsafe tool was at work, so that it may have run.

    `REPORT`: its model is told so. `ASK`: a person is asked whether it runs again.
    """

    REPORT = "report"
    ASK = "ask"


class OnMaxTokens(StrEnum):
    """After a cut-off answer: compact when the context is over its threshold, compact always, or stop."""

    COMPACT_OVER_THRESHOLD = "compact_over_threshold"
    COMPACT = "compact"
    STOP = "stop"


class Concurrency(StrEnum):
    """
    Which calls of one answer may run side by side.

    `SERIAL`: one at a time, in order. `PARALLEL_READS`: neighbouring read-only calls. `PARALLEL`: also those
    whose tools declare resources and have none in common with an earlier call that is not over.
    """

    SERIAL = "serial"
    PARALLEL_READS = "parallel_reads"
    PARALLEL = "parallel"


class Gates(StrEnum):
    """Who judges a call first: the hooks, so that rules judge what a hook made of it, or the rules."""

    HOOKS_FIRST = "hooks_first"
    RULES_FIRST = "rules_first"


class Steering(StrEnum):
    """
    When a model reads what a person said into a run.

    `NOW`: what runs is cancelled and the rest skipped, and an answer that is being streamed is cut.
    `AFTER_TOOL`: what runs is let finish and the rest skipped. `WHEN_DONE`: all calls of the answer run.
    """

    NOW = "now"
    AFTER_TOOL = "after_tool"
    WHEN_DONE = "when_done"


@final
@attrs.frozen(kw_only=True)
class Policy:
    """
    How the loop decides where there is more than one good way.

    *max_parallel* is how many calls may be at work at once, *compact_at* the share of the window at which a
    conversation is shortened. *answer_within* is how long a question waits, in seconds, before it counts as
    denied; None for ever. *continues* is how often in a row a hook may make a run go on that was about to
    stop. *coalesce*: prompts of one sender that follow each other within so many seconds become one.
    """

    on_denial: OnDenial = attrs.field(default=OnDenial.SKIP_REST, converter=OnDenial)
    on_lost: OnLost = attrs.field(default=OnLost.REPORT, converter=OnLost)
    on_max_tokens: OnMaxTokens = attrs.field(
        default=OnMaxTokens.COMPACT_OVER_THRESHOLD, converter=OnMaxTokens
    )
    concurrency: Concurrency = attrs.field(default=Concurrency.SERIAL, converter=Concurrency)
    max_parallel: int = attrs.field(default=5, validator=positive)
    gates: Gates = attrs.field(default=Gates.HOOKS_FIRST, converter=Gates)
    steering: Steering = attrs.field(default=Steering.AFTER_TOOL, converter=Steering)
    mode: PermissionMode = attrs.field(default=PermissionMode.DEFAULT, converter=PermissionMode)
    answer_within: float | None = attrs.field(default=None, validator=positive)
    continues: int = attrs.field(default=3, validator=not_negative)
    coalesce: float = attrs.field(default=0.0, validator=not_negative)
    compact_at: float = attrs.field(default=0.8, validator=share)
