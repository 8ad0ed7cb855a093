"""Answers to questions, by the approver of a host and by people wherever they are; each is checked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from glob import escape
from itertools import chain
from typing import assert_never, cast, get_args

import attrs

from .. import effects
from ..effects import validators
from .base import PerformContext, Performer
from .callables import is_async
from .tools.names import misfit
from .worker_pool import WorkerPool

DECISIONS = frozenset(get_args(effects.Decision))

# Decides a question, or leaves it to another approver by None. One that is not async runs in a thread.
Approver = Callable[[effects.AskApproval], effects.Decision | Awaitable[effects.Decision | None] | None]


async def ask(
    approver: Approver, pool: WorkerPool, request: effects.AskApproval, scene: PerformContext
) -> effects.ApprovalGiven | None:
    """
    Perform `AskApproval` by *approver*, however long it takes; None leaves it to another approver.

    Raises `ArgumentError` for an answer that is no decision, and `AnswerRefused` for one with arguments that
    cannot run: the question stays open, and the run stops.
    """
    question = located(request, scene.session, scene.run, scene.config)
    decision: object
    if is_async(approver):
        decision = approver(question)
    else:
        # It may ask at a terminal: in the event loop it would hold up every session.
        decision = await pool.start(partial(approver, question), None, _as_it_is, _as_it_is).result()
    if isinstance(decision, Exception):
        raise decision
    if inspect.isawaitable(decision):
        decision = await decision
    # It stays open, for `Session.approve` from any process.
    if decision is None:
        return None
    answer = approval_event(request.id, cast("effects.Decision", decision), scene.clock.now(), "callback")
    check_edit(request, answer.decision, scene.config)
    return answer


def _as_it_is(value: object) -> object:
    if isinstance(value, BaseException) and not isinstance(value, Exception):
        # An exit of the approver is none of the process.
        exits = RuntimeError(repr(value))
        exits.__cause__ = value
        return exits
    return value


async def refuse(request: effects.AskApproval, scene: PerformContext) -> effects.ApprovalGiven:
    """Deny a question, for a run that no approver can reach."""
    # It would rest for ever. The model reads the text, and can go on without the tool.
    denied = effects.Deny(message="Denied: no person can be asked. Go on without it.")
    return effects.ApprovalGiven(at=scene.clock.now(), request=request.id, decision=denied)


async def warn_and_refuse(
    told: set[str], request: effects.AskApproval, scene: PerformContext
) -> effects.ApprovalGiven:
    """As `refuse`, with a warning in the log for each tool that is not among those *told* of."""
    _warn(told, "no person can be asked; give Agent(approver=...)", request, scene)
    return await refuse(request, scene)


async def ask_or_refuse(
    inner: Performer[effects.AskApproval],
    told: set[str],
    request: effects.AskApproval,
    scene: PerformContext,
) -> effects.Answer | None:
    """As *inner*, but a question that it leaves open is denied, as by `warn_and_refuse`."""
    answer = await inner(request, scene)
    if answer is None:
        _warn(told, "the approver left it open, and no other can be asked; have it answer", request, scene)
        return await refuse(request, scene)
    return answer


def _warn(told: set[str], why: str, request: effects.AskApproval, scene: PerformContext) -> None:
    if request.tool not in told:
        told.add(request.tool)
        scene.faults.failed(
            f"a call was denied, since {why}, a rule that allows it, or run it in "
            "agent.session(id, store=...), where the question waits",
            tool=request.tool,
            call=request.call,
        )


def located(
    question: effects.AskApproval, session: str, run: str, config: effects.Config
) -> effects.AskApproval:
    """*question* with its *session*, its *run* and the agent of *config*, for who answers many."""
    return attrs.evolve(question, session=session, run=run, agent=config.agent)


def approval_event(request: str, decision: effects.Decision, at: float, by: str) -> effects.ApprovalGiven:
    """The *decision* on the question *request*, by the approver *by*; checked, since a host made it."""
    _check_kinds(request, decision)
    match decision:
        case effects.Deny():
            decision = _denial(decision)
        case effects.Approve(arguments=arguments):
            validators.within("the arguments of a call", len(arguments), validators.MAX_CALL_ARGUMENTS)
            decision = attrs.evolve(decision, arguments=validators.clean(arguments))
        case effects.ApproveAlways(where=where):
            # A grant is checked at every later call: its size is paid for as long as the session lives.
            validators.within("a yes for all such calls", len(where), validators.MAX_GLOBS, "arguments")
            for part in chain.from_iterable(where):
                validators.named("an argument of a yes for all such calls, or its glob,", part)
        case _:
            assert_never(decision)
    # The name of the approver is for people who read the journal later: any text of bounded length.
    answer = effects.ApprovalGiven(at=at, request=request, decision=decision, by=validators.as_text(by, "by"))
    validators.named("the name of who answers", answer.by)
    return answer


def _check_kinds(request: object, decision: object) -> None:
    if not isinstance(request, str):
        msg = f"request must be the id of a question; got {type(request).__name__} (write question.id)"
        raise effects.ArgumentError(msg)
    if type(decision) not in DECISIONS:
        # A decision may have a secret in it, and errors end up in logs: only its type is named.
        kind = type(decision).__name__
        # The usual mistake of an approver.
        fix = " (write Approve() for True, Deny() for False)" if kind == "bool" else ""
        msg = f"decision must be Approve(), ApproveAlways() or Deny(); got {kind}{fix}"
        raise effects.ArgumentError(msg)


def check_edit(question: effects.AskApproval, decision: effects.Decision, config: effects.Config) -> None:
    """
    Raise `AnswerRefused` where the call of *question* cannot run with the arguments of *decision*.

    The same where a yes for all such calls is for arguments that the tool does not have.
    """
    match decision:
        case effects.Approve(arguments=edited) if edited:
            from ..states.batch.permission import edit_fault  # noqa: PLC0415  # made without the states

            fault = edit_fault(question.tool, edited, config)
        case effects.ApproveAlways(where=where) if where and (spec := config.tool(question.tool)) is not None:
            # It would cover no later call, while the person believes that it does.
            fault = misfit(escape(question.tool), [spec], where)
        case _:
            return
    if fault:
        raise effects.AnswerRefused(question.id, question.tool, fault)


def _denial(denial: effects.Deny) -> effects.Deny:
    """*denial*, checked."""
    # As objects: a checker holds the fields' types for certain, and a host does not.
    message, interrupt = cast("tuple[object, object]", (denial.message, denial.interrupt))
    if not isinstance(message, str) or not isinstance(interrupt, bool):
        # Another type would be written, and the journal could not be read again.
        kinds = f"message: {type(message).__name__}, interrupt: {type(interrupt).__name__}"
        msg = f"the message of a no must be text, interrupt a bool; got {kinds}"
        raise effects.ArgumentError(msg)
    validators.within("the message of a no", len(message), validators.MAX_DENIAL)
    return attrs.evolve(denial, message=validators.clean(message))
