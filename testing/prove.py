"""
All of a small world: every state it can get into, and every way between them.

`search` walks breadth first over the real machine: some answers with some calls, tools that fail or not, a
person who says yes, always or no, failures of the model, interrupts at any moment, and in some worlds hooks,
deadlines, steers, changed settings or a call that is given up; or a window that fills up, another model that
takes over, results that are left out, circles, and children who share a budget. Every promise is checked on
every way, and the end must be reachable from everywhere. What is found is told as a test, the shortest there
is.

    python -m turnwheel.testing.prove               the search
    python -m turnwheel.testing.prove --runs 10000  and so many random runs of a larger world
"""

from __future__ import annotations

import argparse
import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, final

import attrs

from ..effects.errors import InternalError
from ..effects.events import (
    AgentFinished,
    AgentProgressed,
    Answer,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    CallCancelled,
    ControlReceived,
    Deny,
    Event,
    Failure,
    HookAnswered,
    InstructionsRead,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    UserSent,
    UserSteered,
)
from ..effects.hooks import Hook, HookAnswer, HookSaid
from ..effects.messages import Outcome, StopReason
from ..effects.permissions import Verdict
from ..effects.pieces import CallPiece, TextPiece
from ..effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    Purpose,
    ReadInstructions,
    Request,
    RunAgent,
    RunTool,
)
from ..effects.usage import Spent, Usage
from ..engine.machine import Machine
from ..engine.transition import ignored
from ..states.batch import Order, Reviewed, Settled
from ..states.state import Confirming, Dispatching, Executing, Streaming
from .ledger import Ledger
from .player import play
from .steps import steps
from .watched import PromiseBroken, Row
from .worlds import World, worlds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LITTLE = Usage(input=10, output=10)
"""What an answer uses where nothing else is said."""

SMALL = 1_000
"""Tokens of a window in which the size of a conversation matters."""

ID = re.compile(r"\br-(\d+)")


@final
@attrs.define(eq=False)
class Node:
    """A place the world can be in, and the first way that led there. *last* is the last answer given."""

    machine: Machine
    ledger: Ledger
    journal: tuple[Event, ...] = ()
    last: Event | None = None
    following: list[Node] = attrs.field(factory=list)


@final
@attrs.frozen(kw_only=True)
class Proof:
    """What a search saw: how many *states* and *edges*, and the *rows* of the table that were taken."""

    states: int
    edges: int
    rows: frozenset[Row]


def search(world: World) -> Proof:
    """
    Every place that *world* can get to.

    Raises `PromiseBroken` with the shortest way to where a promise does not hold.
    """
    begun = _begun(world)
    rows: set[Row] = set()
    first = _feed(Node(begun, Ledger.of(begun)), None, rows, begun)
    places = {_key(first): first}
    waiting = deque([first])
    edges = 0
    while waiting:
        node = waiting.popleft()
        for event in _events(node, world):
            reached = _feed(node, event, rows, begun)
            edges += 1
            known = places.setdefault(_key(reached), reached)
            node.following.append(known)
            if known is reached:
                waiting.append(reached)
    _all_can_end(list(places.values()), begun)
    return Proof(states=len(places), edges=edges, rows=frozenset(rows))


def _feed(node: Node, event: Event | None, rows: set[Row], begun: Machine) -> Node:
    """Where *event* leads from *node*, which stays as it is; *begun* is how it all began."""
    ledger = node.ledger.copy()
    machine = node.machine
    state, memory = machine.state, machine.memory
    journal = node.journal if event is None else (*node.journal, event)
    faults: list[str] = []
    try:
        for now in steps(machine, event):
            faults += ledger.take(now)
            state, memory = now.following, now.remembered
            if not ignored(now.effects):
                rows.add(now.row)
            if ignored(now.effects) != (event is not None and event is node.last):
                faults.append(f"{event} was {'ignored' if ignored(now.effects) else 'applied twice'}")
    except InternalError as error:
        faults.append(str(error))
    if faults:
        raise PromiseBroken(faults, begun, list(journal))
    last = event if isinstance(event, Answer) else node.last
    return Node(Machine(machine.config, state, memory), ledger, journal, last)


def _begun(world: World) -> Machine:
    return Machine.start(world.config, world.prompt, run="r")


def _key(node: Node) -> str:
    """
    What makes two places the same: the state, the memory but for its growth, and what was answered last.

    Ids are numbered anew in the order in which they are named.
    """
    memory = node.machine.memory
    results = [
        (result.name, result.outcome.value) for message in memory.history for result in message.results
    ]
    shape = [message.role.value for message in memory.history][-3:]
    counts = (memory.spent.turns, memory.spent.seconds, memory.continues)
    shrunk = (memory.compactions, memory.compaction_failures, memory.cleared, memory.history.revision)
    facts = (*counts, *shrunk, memory.granted, memory.withdrawn, memory.fallback)
    chosen = (memory.model, memory.mode.value, memory.thinking, memory.instructions)
    said = (memory.mail, memory.received, memory.pending_context)
    size = memory.size if node.machine.config.model.window < SMALL else 0
    text = (
        f"{node.machine.state!r} {shape} {results} {facts} {size} {chosen} {said} {type(node.last).__name__}"
    )
    numbers: dict[str, int] = {}
    return ID.sub(lambda found: f"r-{numbers.setdefault(found[1], len(numbers))}", text)


# What may happen


def _events(node: Node, world: World) -> Iterator[Event]:
    """Everything that *world* can do to *node*."""
    machine = node.machine
    if node.last is not None:
        yield node.last
    if machine.done:
        return
    for request in node.ledger.open.values():
        yield from _answers(request, machine, world)
    yield Interrupted(at=1.0)
    if len(machine.memory.received) == 1:
        yield from _said_by_people(machine, world)


def _said_by_people(machine: Machine, world: World) -> Iterator[Event]:
    """What people do once in a run, besides to answer and to interrupt."""
    if world.prompts:
        yield UserSent(at=1.0, id="sender", text="and another thing")
    for how in world.steers:
        yield UserSteered(at=1.0, id="sender", text="left", how=how)
    for change in world.changes:
        yield ControlReceived(at=1.0, id="sender", change=change)
    state = machine.state
    if world.cancels and isinstance(state, Executing | Confirming | Dispatching):
        for call in state.batch.calls:
            over = isinstance(call.phase, Settled | Reviewed)
            if not over and getattr(call.phase, "told", Order.RUN) is Order.RUN:
                yield CallCancelled(at=1.0, call=call.call.id)


def _answers(  # noqa: C901, PLR0912  # one branch for each kind of request
    request: Request, machine: Machine, world: World
) -> Iterator[Event]:
    match request:
        case CallModel(purpose=Purpose.SUMMARY):
            yield _said(request.id, StopReason.END_TURN, "brief")
            yield _said(request.id, StopReason.MAX_TOKENS, "bri")
            for failure in (Failure.SERVER, Failure.LOST, Failure.OVERFLOW):
                yield _failed(request.id, failure)
        case CallModel():
            yield from _answers_of_the_model(request, machine, world)
        case RunTool():
            for outcome, seconds in ((Outcome.OK, 1.0), (Outcome.ERROR, 4.0)):
                yield ToolFinished(
                    at=1.0, request=request.id, content=world.content, outcome=outcome, seconds=seconds
                )
        case AskApproval():
            for decision in (Approve(), ApproveAlways(), Deny(), Deny(interrupt=True)):
                yield ApprovalGiven(at=1.0, request=request.id, decision=decision)
        case RunAgent():
            yield AgentProgressed(at=1.0, request=request.id, spent=Spent(turns=1, seconds=0.5))
            for seconds in (1.0, 9.0):  # as it may, and far beyond that
                yield AgentFinished(at=1.0, request=request.id, content="fine", spent=Spent(seconds=seconds))
        case FireHook():
            yield from _answers_of_hooks(request)
        case ReadInstructions():
            yield InstructionsRead(at=1.0, request=request.id, text="be brief")
        case _:
            yield TimerFired(at=1.0, request=request.id)


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
        yield HookAnswered(at=1.0, request=request.id, said=said)
    fault = tuple([HookSaid(name=name, fault="it hangs") for name in request.names])
    yield HookAnswered(at=1.0, request=request.id, said=fault)


def _answers_of_the_model(request: CallModel, machine: Machine, world: World) -> Iterator[Event]:
    if isinstance(machine.state, Streaming) and machine.state.pieces.count:
        yield _said(request.id, StopReason.END_TURN, " there")
    else:
        yield _said(request.id, StopReason.END_TURN, "hello")
        yield ModelStreamed(at=1.0, request=request.id, before=0, count=1, pieces=(TextPiece("hello"),))
    yield _failed(request.id, Failure.SERVER)
    yield _failed(request.id, Failure.AUTH)
    answers = (world.calls, *world.more)
    turns = machine.memory.spent.turns
    if turns < len(answers):
        yield _said(request.id, StopReason.TOOL_USE, "", answers[turns], world.used)
    if not turns:
        yield _said(request.id, StopReason.MAX_TOKENS, "hel", world.calls[:1])
        yield _failed(request.id, Failure.OVERFLOW)


def _said(
    request: str, stop: StopReason, text: str, calls: Sequence[str] = (), used: Usage = LITTLE
) -> ModelFinished:
    arguments = '{"agent": "kid", "prompt": "go"}', '{"path": "a.txt"}'
    pieces = [
        CallPiece(index, "w", name, arguments[name not in {"send", "ranger"}])
        for index, name in enumerate(calls)
    ]
    return ModelFinished(
        at=1.0,
        request=request,
        stop=stop,
        usage=used,
        pieces=(TextPiece(text), *pieces) if text else tuple(pieces),
    )


def _failed(request: str, failure: Failure) -> ModelFailed:
    return ModelFailed(at=1.0, request=request, failure=failure, message="as searched")


# What must be true of all places together


def _all_can_end(places: list[Node], begun: Machine) -> None:
    """Raise `PromiseBroken` with the shortest way to a place from which no way leads to the end."""
    before: dict[int, list[Node]] = {}
    for node in places:
        for following in node.following:
            before.setdefault(id(following), []).append(node)
    ending = [node for node in places if node.machine.done]
    seen = {id(node) for node in ending}
    while ending:
        for node in before.get(id(ending.pop()), ()):
            if id(node) not in seen:
                seen.add(id(node))
                ending.append(node)
    stuck = [node for node in places if id(node) not in seen]
    if stuck:
        raise PromiseBroken(["no way leads to the end from here"], begun, list(stuck[0].journal))


def main(arguments: Sequence[str] | None = None) -> None:
    """Search all small worlds, then play as many runs as asked for, and say what was seen."""
    parser = argparse.ArgumentParser(prog="turnwheel.testing.prove", description="Look for a broken promise.")
    parser.add_argument("--runs", type=int, default=0, help="random runs to play after the search")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first of them")
    parser.add_argument("--worlds", type=int, help="search only so many of the small worlds")
    asked = parser.parse_args(arguments)
    proofs = [search(world) for world in islice(worlds(), asked.worlds)]
    rows = frozenset[Row]().union(*[proof.rows for proof in proofs])
    states, edges = (
        sum(numbers) for numbers in zip(*[(proof.states, proof.edges) for proof in proofs], strict=True)
    )
    print(f"{len(proofs)} small worlds: {states} states, {edges} edges, {len(rows)} rows")  # noqa: T201  # the report
    for seed in range(asked.first, asked.first + asked.runs):
        rows |= play(seed).rows
    if asked.runs:
        print(f"{asked.runs} runs: {len(rows)} rows")  # noqa: T201  # the report


if __name__ == "__main__":
    main()
