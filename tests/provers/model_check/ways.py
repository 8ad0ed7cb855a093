"""What a small world can do next: every answer to what is open, and whatever people do besides."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import attrs

from provers.simulation.findings import COMMAND
from provers.simulation.outputs import RIGHT
from turnwheel.effects.events import (
    AgentFinished,
    AgentProgressed,
    ApprovalGiven,
    Approve,
    CallCancelled,
    CallInspected,
    ControlReceived,
    Entered,
    Event,
    Failure,
    HookAnswered,
    InputWithdrawn,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    OutputDecoded,
    TimerFired,
    ToolFinished,
    ToolProgressed,
    UserSent,
    UserSteered,
)
from turnwheel.effects.findings import CommandFound, Finding, PathFound, SimpleCommand
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSaid
from turnwheel.effects.messages import StopReason
from turnwheel.effects.output import OutputMode
from turnwheel.effects.permissions import Verdict
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    DecodeOutput,
    FireHook,
    InspectCall,
    Purpose,
    ReadInstructions,
    RunAgent,
    RunTool,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.core.machine import calls_at
from turnwheel.states.batch.batch import Order, Reviewed, Settled
from turnwheel.states.state import (
    Compacting,
    Streaming,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from provers.audit.run_auditor import Booked
    from provers.model_check.worlds import World
    from turnwheel.effects.requests import Request
    from turnwheel.engine.core.machine import Machine

AT = 1.0
"""When everything happens: what time does is for timers and limits, which say so."""

LITTLE = Usage(input=10, output=10)
"""What an answer uses where nothing else is said."""


def events(run: Booked, world: World) -> Iterator[Event]:
    """Everything that *world* can do to *run*."""
    machine = run.machine
    if machine.done:
        return
    if not machine.state.open:  # stepped by hand
        yield Entered(at=AT)
    for request in run.ledger.open.values():
        yield from _answers(request, machine, world)
    if machine.state.open:
        yield Interrupted(at=AT)
    yield from _said_by_people(machine, world)


def _said_by_people(machine: Machine, world: World) -> Iterator[Event]:
    """What people do in a run, at most as often as they may, besides to answer and to interrupt."""
    received = machine.memory.session.received
    if world.prompts:
        for mail in machine.memory.session.mail:
            yield InputWithdrawn(at=AT, input=mail.id)
    if len(received) > world.says:
        return
    sender = f"sender-{len(received)}"
    if world.prompts:
        yield UserSent(at=AT, id=sender, text="and another thing")
    for how in world.steers:
        yield UserSteered(at=AT, id=sender, text="left", how=how)
    for change in world.changes:
        yield ControlReceived(at=AT, id=sender, change=change)
    if world.cancels:
        for call in calls_at(machine.state):
            over = isinstance(call.phase, Settled | Reviewed)
            if not over and getattr(call.phase, "told", Order.RUN) is Order.RUN:
                yield CallCancelled(at=AT, call=call.call.id)


def _answers(  # noqa: C901, PLR0912  # one branch for each kind of request
    request: Request, machine: Machine, world: World
) -> Iterator[Event]:
    name = request.id
    match request:
        case CallModel(purpose=Purpose.SUMMARY):
            yield from _answers_of_who_summarises(name, machine, world)
        case CallModel():
            yield from _answers_of_the_model(name, machine, world)
            if request.output is not None:
                yield from _outputs(request, machine, world)
        case RunTool():
            if world.speaks:
                yield ToolProgressed(at=AT, request=name, text="half of it")
            for outcome, took in world.ends:
                yield ToolFinished(at=AT, request=name, content=world.content, outcome=outcome, seconds=took)
        case AskApproval():
            for decision in world.decisions:
                yield ApprovalGiven(at=AT, request=name, decision=decision)
            if request.due is not None:  # a yes that comes too late is a no
                yield ApprovalGiven(at=request.due, request=name, decision=Approve())
        case RunAgent():
            if world.speaks:
                yield AgentProgressed(at=AT, request=name, spent=Spent(turns=1, seconds=0.5))
            for outcome, took in world.ends:
                spent = attrs.evolve(world.hired, seconds=took)
                yield AgentFinished(at=AT, request=name, content="fine", outcome=outcome, spent=spent)
        case FireHook():
            yield from _answers_of_hooks(request)
        case InspectCall():
            yield from _findings(request)
        case ReadInstructions():
            yield InstructionsRead(at=AT, request=name, text="be brief")
        case DecodeOutput():
            for fault in ("", "it is too small"):
                yield OutputDecoded(at=AT, request=name, fault=fault)
        case _:
            yield TimerFired(at=AT, request=name)


def _answers_of_who_summarises(name: str, machine: Machine, world: World) -> Iterator[Event]:
    state = machine.state
    begun = isinstance(state, Compacting) and isinstance(state.stage, Summary) and state.stage.pieces.count
    if world.speaks and not begun:
        yield ModelStreamed(at=AT, request=name, before=0, count=1, pieces=(TextPiece("bri"),))
    yield _said(name, StopReason.END_TURN, "brief")
    yield _said(name, StopReason.MAX_TOKENS, "bri")
    for failure in (Failure.SERVER, Failure.OVERFLOW):
        yield _failed(name, failure)


def _findings(request: InspectCall) -> Iterator[Event]:
    """
    What is written, a secret, what nobody can tell for sure, or nothing.

    It is what a path reaches, or what a command runs.
    """
    value = json.loads(request.arguments)["path"]
    for real, doubt in ((value, ""), ("secret", ""), (value, "as played")):
        path = PathFound(argument="path", value=value, written=(value,), real=(real,), doubt=doubt)
        runs = CommandFound(argument="path", commands=(SimpleCommand(words=(real,)),), unread=doubt)
        found = Finding(commands=(runs,)) if request.tool == COMMAND else Finding(paths=(path,))
        yield CallInspected(at=AT, request=request.id, finding=found)
    yield CallInspected(at=AT, request=request.id)


def _answers_of_hooks(request: FireHook) -> Iterator[Event]:
    """Whatever hooks can say at their place; where there are several, the first one says it."""
    answers = [HookAnswer(), HookAnswer(context="mind the gap")]
    if request.hook is Hook.STOP:
        answers.append(HookAnswer(go_on=True))
    elif request.hook in {Hook.POST_TOOL_USE, Hook.POST_TOOL_USE_FAILURE}:
        pass
    else:
        answers.append(HookAnswer(verdict=Verdict.DENY))
        answers.append(HookAnswer(verdict=Verdict.DENY, interrupt=True))
    if request.hook is Hook.PRE_TOOL_USE:
        answers += [HookAnswer(verdict=Verdict.ALLOW), HookAnswer(verdict=Verdict.ASK)]
        answers += [HookAnswer(arguments=f'{{"path": "{path}"}}') for path in ("b.txt", "secret")]
    for answer in answers:
        first, others = request.names[0], request.names[1:]
        said = (HookSaid(name=first, answer=answer), *[HookSaid(name=other) for other in others])
        yield HookAnswered(at=AT, request=request.id, said=said)
    fault = tuple([HookSaid(name=name, fault="it hangs") for name in request.names])
    yield HookAnswered(at=AT, request=request.id, said=fault)


def _answers_of_the_model(name: str, machine: Machine, world: World) -> Iterator[Event]:
    if isinstance(machine.state, Streaming) and machine.state.pieces.count:
        yield _said(name, StopReason.END_TURN, " there")
    else:
        yield _said(name, StopReason.END_TURN, "hello")
        if world.fails:
            yield ModelStreamed(at=AT, request=name, before=0, count=1, pieces=(TextPiece("hello"),))
    answers = (world.calls, *world.more)
    turns = machine.memory.spent.turns
    if turns < len(answers):
        yield _said(name, StopReason.TOOL_USE, "", answers[turns], world.used)
    if world.fails:
        yield _failed(name, Failure.SERVER)
        yield _failed(name, Failure.AUTH)
        if not turns:
            yield _said(name, StopReason.MAX_TOKENS, "hel", world.calls[:1])
            yield _said(name, StopReason.PAUSED, "hel")
            yield _failed(name, Failure.OVERFLOW)


def _outputs(request: CallModel, machine: Machine, world: World) -> Iterator[Event]:
    """What the model gives for an output, where *request* asks for one, or that it will not."""
    if isinstance(machine.state, Streaming) and machine.state.pieces.count:
        return
    answers, turns = (world.calls, *world.more), machine.memory.spent.turns
    calls = answers[turns] if turns < len(answers) and "output" in answers[turns] else ("output",)
    for given in world.gives:
        if request.output is OutputMode.TOOL:
            yield _said(request.id, StopReason.TOOL_USE, "", calls, world.used, given)
        else:
            yield _said(request.id, StopReason.END_TURN, given, used=world.used)
    yield _said(request.id, StopReason.REFUSAL, "I will not")


def _said(
    request: str,
    stop: StopReason,
    text: str,
    calls: Sequence[str] = (),
    used: Usage = LITTLE,
    output: str = RIGHT,
) -> ModelFinished:
    errand, known = '{"agent": "kid", "prompt": "go"}', {"output": output}
    known |= dict.fromkeys(("send", "ranger"), errand)
    pieces = [
        CallPiece(index, "w", name, known.get(name, '{"path": "a.txt"}')) for index, name in enumerate(calls)
    ]
    return ModelFinished(
        at=AT,
        request=request,
        stop=stop,
        usage=used,
        pieces=(TextPiece(text), *pieces) if text else tuple(pieces),
    )


def _failed(request: str, failure: Failure) -> ModelFailed:
    return ModelFailed(at=AT, request=request, failure=failure, message="as searched")
