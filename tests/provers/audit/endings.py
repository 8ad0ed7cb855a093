"""Why a call ended as it did: an outcome is held against what was known of the call."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, final

import attrs

from provers.steps import stopping
from turnwheel.effects.config import READER, SideEffect, ToolKind
from turnwheel.effects.events import (
    AgentFinished,
    CallCancelled,
    Interrupted,
    ModelFinished,
    ToolFinished,
    ToolLost,
)
from turnwheel.effects.findings import Finding
from turnwheel.effects.messages import Binary, Outcome
from turnwheel.effects.notices import InterruptRequested
from turnwheel.effects.permissions import Rule, Verdict
from turnwheel.states.batch.batch import Stopping
from turnwheel.states.rules.limits import child_prompt
from turnwheel.states.rules.schema import arguments_of, problem
from turnwheel.states.streaming import TRUSTED

if TYPE_CHECKING:
    from provers.audit.spend_book import SpendBook
    from turnwheel.effects.config import Config
    from turnwheel.effects.messages import ToolResult
    from turnwheel.effects.notices import CallJudged, CallSettled
    from turnwheel.engine.inspect.transitions import Transition


REFUSED = "Not started: there is only "
OTHERS_AT_WORK = "set aside for agents at work"
"""What a call is told for whose child there is no budget, and what besides where others hold it."""


@final
@attrs.frozen(kw_only=True)
class Entry:
    """
    What is known of one call: what it is *given* to run with, as text, and how far it has got.

    *said* are the verdicts of hooks, which have been asked or not (*heard*); *judged* is the last judgement,
    since which there are *news* of hooks or none.
    It may have been *asked* about, also by rules (*asked_by*), and *approved*, be *started*, and have
    *ended*, with *files*. *lost*: it may have run before, in a process that is gone. *known* is what had been
    found of it when it was asked about or started, *fresh* what the very last step found, or None. *output*:
    it is no work, but the output of the run.
    """

    name: str
    wire_id: str
    given: str
    said: frozenset[Verdict] = frozenset()
    heard: bool = False
    news: bool = False
    judged: CallJudged | None = None
    asked: bool = False
    asked_by: frozenset[Rule] = frozenset()
    approved: bool = False
    started: bool = False
    lost: bool = False
    known: Finding = Finding()
    fresh: Finding | None = None
    ended: CallSettled | None = None
    output: bool = False
    files: tuple[Binary, ...] = ()

    @property
    def arguments(self) -> dict[str, object]:
        """What it is given; nothing where that is no JSON object."""
        return _parsed(self.given)

    @property
    def unstarted(self) -> bool:
        """Whether it may start yet."""
        return not self.started and self.ended is None


@lru_cache(maxsize=1_024)
def _parsed(given: str) -> dict[str, object]:
    return arguments_of(given) or {}


def faulty(entry: Entry, offered: tuple[str, ...], config: Config) -> bool:
    """Whether the call *entry* cannot run at all: no such tool was *offered* or is there, or no fit."""
    spec, given = config.tool(entry.name), arguments_of(entry.given)
    if spec is None or entry.name not in offered or given is None:
        return True
    return bool(problem(spec.schema, given))


def _childless(entry: Entry, config: Config) -> bool:
    """Whether *entry* would start a child that is not there, or ask it nothing."""
    spec = config.tool(entry.name)
    name, prompt = child_prompt(entry.arguments)
    return spec is not None and spec.kind is ToolKind.AGENT and (config.child(name) is None or not prompt)


def ending_faults(  # all that may be a reason to end
    told: CallSettled,
    entry: Entry,
    now: Transition,
    offered: tuple[str, ...],
    purse: SpendBook,
    *,
    skipped: bool,
) -> list[str]:
    """
    Whether *told* can be how the call *entry* ended in *now*.

    *purse* says what there is left; *skipped*: a denial or a person's word gives up the rest of the batch.
    """
    if entry.started:
        return _of_work(told, entry, now)
    if entry.lost:
        return _doubtful(told, entry, now, offered, purse, skipped=skipped)
    match told.outcome:
        case Outcome.DENIED:
            right = entry.judged is not None and entry.judged.verdict is Verdict.DENY
        case Outcome.ERROR:
            right = _cannot_run(told, entry, now.config, offered, purse)
        case Outcome.SKIPPED:
            right = skipped or _untrusted(now)
        case Outcome.CANCELLED:
            right = purse.over(now.config) or _cancelled(told.call, now)
        case _:
            right = False
    return [] if right else [f"{told} of {entry}, which never ran, after {now.event}"]


def output_faults(told: CallSettled, beside: list[Entry], now: Transition, *, skipped: bool) -> list[str]:
    """Whether *told* can be how an output ended *beside* which others were called, or given."""
    # An output that a person gave up counts as work that failed.
    work = [entry.ended for entry in beside if not entry.output or entry.ended is not None]
    good = all(ended is not None and ended.outcome is Outcome.OK for ended in work)
    given = any(
        entry.ended is not None and entry.ended.outcome is Outcome.OK for entry in beside if entry.output
    )
    match told.outcome:
        case Outcome.OK:
            right = good and not given
        case Outcome.SKIPPED:
            right = skipped or _untrusted(now) or given or (None not in work and not good)
        case Outcome.CANCELLED:
            right = _cancelled(told.call, now)
        case _:
            right = False
    return [] if right else [f"{told} of an output, beside {beside}, after {now.event}"]


def _doubtful(  # as above
    told: CallSettled,
    entry: Entry,
    now: Transition,
    offered: tuple[str, ...],
    purse: SpendBook,
    *,
    skipped: bool,
) -> list[str]:
    """What may have run and does not run again ends for the same reasons, and never as if it had not run."""
    denied = entry.judged is not None and entry.judged.verdict is Verdict.DENY
    given_up = skipped or purse.over(now.config) or _cancelled(told.call, now)
    why = denied or given_up or faulty(entry, offered, now.config)
    right = told.outcome is Outcome.UNKNOWN and "may have run. It was not run again: " in told.content
    return [] if why and right else [f"{told} of {entry}, which may have run, after {now.event}"]


def _cannot_run(
    told: CallSettled, entry: Entry, config: Config, offered: tuple[str, ...], purse: SpendBook
) -> bool:
    """Whether *entry* cannot run: it is faulty, or for a child that is not there or has no budget."""
    if faulty(entry, offered, config) or _childless(entry, config):
        return True
    name, _ = child_prompt(entry.arguments)
    child = config.child(name)
    why = (REFUSED, repr(name), OTHERS_AT_WORK * bool(purse.held))
    told_why = all(part in told.content for part in why)
    return child is not None and not purse.fits(child.limits, config) and told_why


def kept_faults(result: ToolResult, entry: Entry, config: Config) -> list[str]:
    """Whether *result*, which is kept in the history, is what was told of *entry*, or both ends of it."""
    ended = entry.ended
    if ended is None:
        return [f"{result} was never told"]
    told = (ended.outcome, entry.name, entry.wire_id, entry.files)
    kept = (result.outcome, result.name, result.wire_id, result.files)
    faults = [] if told == kept else [f"told was {told}, kept is {kept}"]
    limit = config.compaction.result_limit
    if limit is None or len(ended.content) <= limit:
        whole = result.content == ended.content
        return faults if whole else [*faults, f"of {ended} {result.content!r} is kept"]
    side = limit // 10
    head, tail = ended.content[:side], ended.content[len(ended.content) - side :]
    said = result.content.removeprefix(head).removesuffix(tail)
    reader = config.tool(READER) is not None
    cut = len(said) == len(result.content) - 2 * side and "left out" in said
    right = cut and (repr(result.call) in said) is reader and str(len(ended.content)) in said
    return faults if right else [*faults, f"of {ended} {result.content!r} is kept, allowed are {limit}"]


def _of_work(told: CallSettled, entry: Entry, now: Transition) -> list[str]:
    """What ran ends as it says; where it is not waited for, a read was cancelled and the rest unknown."""
    event = now.event
    if isinstance(event, ToolFinished | AgentFinished) and entry.lost:
        return _again(told, event)
    if isinstance(event, ToolFinished | AgentFinished):
        said = (event.outcome, event.content)
        return [] if (told.outcome, told.content) == said else [f"{told} after {event}"]
    if isinstance(event, ToolLost):
        right = told.outcome is Outcome.UNKNOWN and "it may have run" in told.content
        return [] if right else [f"{told} after {event}"]
    spec = now.config.tool(told.tool)
    reads = spec is not None and spec.side_effect is SideEffect.READ_ONLY
    due = Outcome.CANCELLED if reads and not entry.lost else Outcome.UNKNOWN
    twice = isinstance(event, Interrupted) and stopping(now.state) is Stopping.INTERRUPTED
    return [] if twice and told.outcome is due else [f"{told} was at work at {event}"]


def _again(told: CallSettled, event: ToolFinished | AgentFinished) -> list[str]:
    """What was run again ends as that says, and its result tells of the first try."""
    outcome = Outcome.UNKNOWN if event.outcome is Outcome.CANCELLED else event.outcome
    says = told.content.startswith(event.content) and "may have run" in told.content[len(event.content) :]
    return [] if told.outcome is outcome and says else [f"{told} of what was run again, after {event}"]


def _untrusted(now: Transition) -> bool:
    """Whether the answer with the call ended so that none of its calls can be trusted, or was cut short."""
    event = now.event
    hurried = stopping(now.state) is Stopping.HURRIED
    return isinstance(event, ModelFinished) and (hurried or event.stop not in TRUSTED)


def _cancelled(call: str, now: Transition) -> bool:
    """Whether a person gave up *call*, or everything."""
    event = now.event
    if isinstance(event, ModelFinished):
        return stopping(now.state) is Stopping.INTERRUPTED
    stopped = any(isinstance(effect, InterruptRequested) for effect in now.effects)
    return stopped or (isinstance(event, CallCancelled) and event.call == call)
