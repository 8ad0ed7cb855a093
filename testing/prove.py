"""
All of a small world: every state it can get into, and every way between them.

`search` walks breadth first over the real machine: one answer with two calls, tools that fail or not, a
person who says yes, always or no, failures of the model, interrupts and prompts at any moment. Every promise
is checked on every way, and the end must be reachable from everywhere. What is found is told as a test, the
shortest there is.

    python -m turnwheel.testing.prove               the search
    python -m turnwheel.testing.prove --runs 10000  and so many random runs of a larger world
"""

from __future__ import annotations

import argparse
import re
from collections import deque
from itertools import islice, product
from typing import TYPE_CHECKING, final

import attrs

from ..effects.config import Concurrency, Config, Limits, ModelSpec, OnDenial, OnMaxTokens, Policy, Retries
from ..effects.errors import InternalError
from ..effects.events import (
    AgentFinished,
    ApprovalGiven,
    Approve,
    ApproveAlways,
    Deny,
    Event,
    Failure,
    Interrupted,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
    UserSent,
)
from ..effects.messages import Outcome, StopReason
from ..effects.pieces import CallPiece, TextPiece
from ..effects.requests import AskApproval, CallModel, Purpose, Request, RunAgent, RunTool
from ..effects.usage import Spent, Usage
from ..engine.machine import Machine
from ..engine.transition import ignored
from ..states.state import Streaming
from .ledger import ANSWERS, Ledger
from .player import PromiseBroken, Row, play
from .settings import CHILDREN, TOOLS
from .steps import steps

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAIRS = (("look", "write"), ("write", "look"), ("peek", "ranger"), ("write", "send"), ("note", "nowhere"))
"""The two calls of the one answer that has any."""

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


def worlds() -> Iterator[tuple[Config, tuple[str, str]]]:
    """The settings that are searched, each with the two calls its model makes."""
    for pair, concurrency, denial in product(PAIRS, Concurrency, OnDenial):
        yield settings(concurrency, denial, Limits()), pair
    for pair, concurrency in product(PAIRS, Concurrency):
        yield settings(concurrency, OnDenial.SKIP_REST, Limits(seconds=3.0)), pair


def settings(concurrency: Concurrency, denial: OnDenial, limits: Limits) -> Config:
    """Settings for a small world, in which one failure is forgiven."""
    return Config(
        model=ModelSpec(name="wire:model"),
        tools=TOOLS,
        children=CHILDREN,
        limits=limits,
        policy=Policy(concurrency=concurrency, on_denial=denial, on_max_tokens=OnMaxTokens.COMPACT),
        retries=Retries(overloaded=1, failed=1),
    )


def search(config: Config, calls: tuple[str, str]) -> Proof:
    """
    Every place that a world of these settings can get to, where its model makes these two *calls*.

    Raises `PromiseBroken` with the shortest way to where a promise does not hold.
    """
    begun = Machine.start(config, "the prompt", run="r")
    rows: set[Row] = set()
    first = _feed(Node(begun, Ledger.of(begun)), None, rows)
    places = {_key(first): first}
    waiting = deque([first])
    edges = 0
    while waiting:
        node = waiting.popleft()
        for event in _events(node, calls):
            reached = _feed(node, event, rows)
            edges += 1
            known = places.setdefault(_key(reached), reached)
            node.following.append(known)
            if known is reached:
                waiting.append(reached)
    _all_can_end(list(places.values()), begun)
    return Proof(states=len(places), edges=edges, rows=frozenset(rows))


def _feed(node: Node, event: Event | None, rows: set[Row]) -> Node:
    """Where *event* leads from *node*, which stays as it is."""
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
        raise PromiseBroken(faults, _begun(machine), list(journal))
    last = event if isinstance(event, ANSWERS) else node.last
    return Node(Machine(machine.config, state, memory), ledger, journal, last)


def _begun(machine: Machine) -> Machine:
    return Machine.start(machine.config, "the prompt", run="r")


def _key(node: Node) -> str:
    """
    What makes two places the same: the state, the memory but for its growth, and what was answered last.

    Ids are numbered anew in the order in which they are named.
    """
    memory = node.machine.memory
    results = [result.outcome.value for message in memory.history for result in message.results]
    shape = [message.role.value for message in memory.history][-3:]
    facts = (memory.spent.turns, memory.spent.seconds, memory.compactions, len(memory.mail), memory.granted)
    text = f"{node.machine.state!r} {shape} {results} {facts} {type(node.last).__name__}"
    numbers: dict[str, int] = {}
    return ID.sub(lambda found: f"r-{numbers.setdefault(found[1], len(numbers))}", text)


# What may happen


def _events(node: Node, calls: tuple[str, str]) -> Iterator[Event]:
    """Everything that the small world can do to *node*."""
    machine = node.machine
    if node.last is not None:
        yield node.last
    if machine.done:
        return
    for request in node.ledger.open.values():
        yield from _answers(request, machine, calls)
    yield Interrupted(at=1.0)
    if not machine.memory.mail:
        yield UserSent(at=1.0, id="sender", text="and another thing")


def _answers(request: Request, machine: Machine, calls: tuple[str, str]) -> Iterator[Event]:
    match request:
        case CallModel(purpose=Purpose.SUMMARY):
            yield _said(request.id, StopReason.END_TURN, "brief")
            yield _failed(request.id, Failure.SERVER)
            yield _failed(request.id, Failure.LOST)
        case CallModel():
            yield from _answers_of_the_model(request, machine, calls)
        case RunTool():
            for outcome, seconds in ((Outcome.OK, 1.0), (Outcome.ERROR, 4.0)):
                yield ToolFinished(
                    at=1.0, request=request.id, content="fine", outcome=outcome, seconds=seconds
                )
        case AskApproval():
            for decision in (Approve(), ApproveAlways(), Deny()):
                yield ApprovalGiven(at=1.0, request=request.id, decision=decision)
        case RunAgent():
            for seconds in (1.0, 4.0):
                yield AgentFinished(at=1.0, request=request.id, content="fine", spent=Spent(seconds=seconds))
        case _:
            yield TimerFired(at=1.0, request=request.id)


def _answers_of_the_model(request: CallModel, machine: Machine, calls: tuple[str, str]) -> Iterator[Event]:
    if isinstance(machine.state, Streaming) and machine.state.pieces.count:
        yield _said(request.id, StopReason.END_TURN, " there")
    else:
        yield _said(request.id, StopReason.END_TURN, "hello")
        yield ModelStreamed(at=1.0, request=request.id, before=0, count=1, pieces=(TextPiece("hello"),))
    yield _failed(request.id, Failure.SERVER)
    yield _failed(request.id, Failure.AUTH)
    if not machine.memory.spent.turns:
        yield _said(request.id, StopReason.TOOL_USE, "", calls)
        yield _said(request.id, StopReason.MAX_TOKENS, "hel", calls[:1])
        yield _failed(request.id, Failure.OVERFLOW)


def _said(request: str, stop: StopReason, text: str, calls: Sequence[str] = ()) -> ModelFinished:
    arguments = '{"agent": "kid", "prompt": "go"}', '{"path": "a.txt"}'
    pieces = [
        CallPiece(index, "w", name, arguments[name not in {"send", "ranger"}])
        for index, name in enumerate(calls)
    ]
    return ModelFinished(
        at=1.0,
        request=request,
        stop=stop,
        usage=Usage(input=10, output=10),
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
    proofs = [search(config, pair) for config, pair in islice(worlds(), asked.worlds)]
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
