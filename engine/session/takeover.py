"""Begins a run or takes over that of another process, and makes the driver of a run that is open here."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs

from ...effects.config import with_output
from ...effects.events import ApprovalGiven, ControlReceived
from ...effects.notices import ApprovalRequested, Warned
from ...effects.records import SetMode
from ...effects.requests import AskApproval, RunAgent
from ...performers.redactor import redacting
from ..core.machine import deadlines_in, in_sandbox_of, with_restrictions
from ..core.recovery import recover
from ..driver import Driver
from ..journal.entries import RunOpened, TakenOver
from .children import ChildRunner
from .environment import OnHostError, Titles
from .outputs import first_prompt, output_of, with_decoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...effects import Effect
    from ...effects.config import Config
    from ...effects.events import Event, UserSent
    from ...effects.notices import Notice
    from ...performers.base import Performer, Performers
    from ...performers.telemetry.otel import OpenTelemetry
    from ...performers.telemetry.run_trace import RunTrace
    from ..core.machine import Machine
    from ..driver import Inbox
    from .children import Children
    from .environment import Environment
    from .feed import Feed
    from .run_report import RunReport
    from .run_stream import RunBuffer
    from .session_log import SessionLog


def run_config(log: SessionLog, environment: Environment, prompt: UserSent | None = None) -> Config:
    """The configuration of the run of *log* that is taken over, or of the next, which *prompt* begins."""
    machine = log.state.machine
    config = with_restrictions(environment.config, machine and machine.config, environment.lifted)
    if (output := output_of(log, environment, prompt)) != config.output:
        config = with_output(config, output)
    return in_sandbox_of(machine.config, config) if machine and log.state.unfinished else config


def waits_for_answers(log: SessionLog, environment: Environment) -> bool:
    """
    Whether the run of *log* can go on with a person's answer alone, and *environment* would change nothing.

    It is not so once a deadline has passed, nor where a performer here asks for the answers.
    """
    state, machine = log.state, log.state.machine
    if machine is None or not state.unfinished or state.posted or AskApproval in environment.performers:
        return False
    now = environment.clock.now()
    questions = {question.id for question in state.questions}
    deadlines = {timer.request for timer in deadlines_in(machine.state) if timer.due > now}
    return (
        bool(questions)
        and questions | deadlines >= {*machine.state.open}
        and machine.under(run_config(log, environment))
    )


async def show_questions(log: SessionLog, at: float, feed: Feed, buffer: RunBuffer | None) -> None:
    """Publish the open questions of *log*, of which a reader here has seen no notice."""
    await show([ApprovalRequested.of(question, at) for question in log.state.questions], None, feed, buffer)


async def show(notices: Sequence[Notice], entry: int | None, feed: Feed, buffer: RunBuffer | None) -> None:
    """Publish *notices* of the journal's *entry*, or of none."""
    if feed.used:
        await feed.pass_on(notices, entry)
    if buffer is not None:
        buffer.put(notices)


async def take_over(
    log: SessionLog, machine: Machine, config: Config, at: float, trace: str = ""
) -> tuple[tuple[Effect, ...], tuple[Notice, ...], tuple[Event, ...]]:
    """
    Take over the run of *log* and *machine* under *config*; *trace* is for the entry.

    Returns the notices of the takeover and the effects to repeat, the notices of the questions among these,
    and the events to apply. A question that has its answer already is not asked again.
    """
    # Read first: the entry clears it, since from then on this process may begin them.
    unbegun, tries = log.state.unbegun, log.state.tries
    # The entry says only what changed: most processes take over with the same configuration. Written before
    # anything is performed: of two processes one loses here, and a lost owner that still works sees the entry
    # at its next append.
    effects = await log.own(TakenOver(at=at, config=None if machine.under(config) else config, trace=trace))
    recovery = recover(machine, at, unbegun, tries)
    posted = log.state.posted
    answered = {event.request for event in posted if isinstance(event, ApprovalGiven)}
    # A child may never have begun, and would start in the mode of the time when it was asked for. Of several
    # changes since, the last one holds.
    changes = [event.change for event in posted if isinstance(event, ControlReceived)]
    modes = [change.mode for change in changes if isinstance(change, SetMode)]
    again = [
        attrs.evolve(request, mode=modes[-1]) if modes and isinstance(request, RunAgent) else request
        for request in recovery.again
        if not isinstance(request, AskApproval) or request.id not in answered
    ]
    # A subscriber of the new process has not seen the notice that the old one gave.
    asked_again = [ApprovalRequested.of(request, at) for request in again if isinstance(request, AskApproval)]
    return (*effects, *again), (*asked_again,), recovery.events


def lifted_rules(environment: Environment, before: Config | None, config: Config, at: float) -> list[Warned]:
    """A warning, *at* this time, for each rule of earlier runs that holds no more."""
    lifted = [each for each in environment.lifted if before and each in before.rules]
    return [Warned(at=at, text=f"lifted: {each}") for each in lifted if each not in config.rules]


def resumed_trace(telemetry: OpenTelemetry, log: SessionLog, config: Config, at: float) -> RunTrace | None:
    """The trace of the run of *log* that is taken over *at* that time; None where telemetry fails."""
    machine = log.state.machine
    run = "" if machine is None else machine.memory.run
    return telemetry.begin(log.journal.session, run, config, at, last=log.state.trace)


async def begin_run(
    log: SessionLog, environment: Environment, report: RunReport, prompt: UserSent | None, at: float
) -> tuple[tuple[Effect, ...], RunTrace | None] | None:
    """
    Begin a run of *log* with *prompt*, or with those that wait, and tell *report* of it.

    Returns its first effects and its trace; None where all prompts were taken back meanwhile.
    """
    task, trace = environment.task if log.state.machine is None else None, None
    # A child's first run has its task's name: begun again after a crash, its requests have the same ids.
    name = environment.new_id() if task is None else task.id
    report.opening(name)
    if environment.telemetry is not None:
        config = run_config(log, environment, prompt)
        trace = new_trace(environment.telemetry, log, config, at, name, prompt)
    first = first_prompt(log, prompt)

    def opening() -> RunOpened:
        nonlocal first
        first = first_prompt(log, prompt)
        config = run_config(log, environment, prompt)
        return RunOpened(at=at, run=name, config=config, trace=name_of(trace))

    effects = await log.open_run(opening, prompt, titled=environment.titles is Titles.INLINE)
    if effects is None:
        return None
    if log.state.machine is not None:
        output = log.state.machine.config.output
        environment.outputs.begin(name, "" if first is None else first.id, output)
    return effects, trace


def new_trace(
    telemetry: OpenTelemetry, log: SessionLog, config: Config, at: float, run: str, prompt: UserSent | None
) -> RunTrace | None:
    """The trace of the next *run* of *log*, which *prompt* may come with; None where telemetry fails."""
    # Of several prompts that become one, the first is the one that waited longest.
    waiting = log.state.prompts or log.state.late
    first = waiting[0] if waiting else prompt
    sender = "" if first is None else first.trace
    return telemetry.begin(log.journal.session, run, config, at, sender=sender)


def name_of(trace: RunTrace | None) -> str:
    """The `traceparent` of *trace*; empty without telemetry."""
    return "" if trace is None else trace.traceparent


def new_driver(
    log: SessionLog, environment: Environment, children: Children, inbox: Inbox, trace: RunTrace | None
) -> Driver:
    """A driver of the run of *log*, which was just opened or taken over; *trace* gets its spans, if any."""
    return Driver(
        machine=cast("Machine", log.state.machine),
        performers=_performers(log, environment, children, inbox),
        session=log.journal.session,
        journal=log,
        clock=environment.clock,
        full_result=log.full_result,
        store=log.journal.store if log.journal.kept else None,
        rested=environment.rested,
        inbox=inbox,
        entry=log.begun if log.journal.kept else None,
        redact=environment.redact,
        raises=environment.on_error is OnHostError.RAISE,
        trace=trace,
    )


def _performers(log: SessionLog, environment: Environment, children: Children, inbox: Inbox) -> Performers:
    """The performers of a run, around which secrets are taken out."""
    made = environment.performers
    # A host's own performer of `RunAgent` replaces this one.
    if environment.config.children:
        runner: Performer[RunAgent] = ChildRunner(children, inbox.wake, inbox.close)  # pyright: ignore[reportAssignmentType]  # async
        made = {RunAgent: runner, **made}
    made = with_decoder(made, cast("Machine", log.state.machine), environment.outputs)
    return made if environment.redactor is None else redacting(made, environment.redactor)
