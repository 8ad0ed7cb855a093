"""
The machine without any I/O: ``python -m benchmarks.pure ROUNDS DELTAS``.

It feeds events by hand, as a driver would, and folds the journal that they make. It prints one JSON object
of CPU times in µs.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from typing import TYPE_CHECKING

from turnwheel import Config, Machine, ModelSpec, ToolSpec
from turnwheel.effects import (
    CallPiece,
    Limits,
    ModelFinished,
    ModelStreamed,
    SideEffect,
    StopReason,
    TextPiece,
    ToolFinished,
    Usage,
    UserSent,
)
from turnwheel.engine.journal.encoding import encode_entry
from turnwheel.engine.journal.entries import RunOpened, Stepped
from turnwheel.engine.journal.fold import fold

from .work import PROMPT

if TYPE_CHECKING:
    from turnwheel.effects import Event

MICRO = 1e6
BATCH = 50
"""Deltas in one step, as when one read of the network brings many."""

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
CONFIG = Config(
    model=ModelSpec(name="played"),
    tools=(
        ToolSpec(
            name="add",
            description="Add two integers.",
            schema=json.dumps(SCHEMA),
            side_effect=SideEffect.READ_ONLY,
        ),
    ),
    limits=Limits(turns=None),
)


def opened() -> RunOpened:
    """The beginning of a run."""
    return RunOpened(at=0.0, run="r", config=CONFIG)


def begin() -> Machine:
    """A machine that waits for its first answer."""
    machine = Machine.open(opened(), posted=[UserSent(at=0.0, id="s", text=PROMPT)])
    machine.advance(at=0.0)
    return machine


def waits_for(machine: Machine) -> str:
    """The id of the one open request."""
    (request,) = machine.state.open
    return request


def play_round(machine: Machine, number: int) -> list[Stepped]:
    """The steps of one tool round: an answer that calls the tool, then the result."""
    steps: list[Stepped] = []

    def step(event: Event) -> None:
        machine.advance(event)
        steps.append(Stepped(event=event, label=machine.state.label))

    call = CallPiece(0, f"call_{number}", "add", json.dumps({"a": number, "b": 1}))
    request = waits_for(machine)
    step(ModelStreamed(at=1.0, request=request, before=0, count=1, pieces=(call,)))
    step(ModelFinished(at=1.0, request=request, stop=StopReason.TOOL_USE, usage=Usage(input=100, output=20)))
    step(ToolFinished(at=1.0, request=waits_for(machine), content=str(number + 1)))
    return steps


def per_round(rounds: int) -> tuple[float, list[bytes]]:
    """CPU of a round in µs, and the journal of all rounds."""
    machine = begin()
    gc.collect()
    begun = time.process_time()
    steps = [step for number in range(rounds) for step in play_round(machine, number)]
    seconds = time.process_time() - begun
    if len(machine.memory.history) != 2 * rounds + 1:
        msg = f"a wrong run: {machine!r} after {rounds} rounds"
        raise RuntimeError(msg)
    return seconds / rounds * MICRO, [encode_entry(opened()), *map(encode_entry, steps)]


def per_delta(deltas: int, together: int) -> float:
    """CPU of a delta in µs, in a reply of *deltas* with so many *together* in one step."""
    machine = begin()
    request = waits_for(machine)
    pieces = tuple([TextPiece("lorem")] * together)
    events = [
        ModelStreamed(at=1.0, request=request, before=before, count=together, pieces=pieces)
        for before in range(0, deltas, together)
    ]
    gc.collect()
    begun = time.process_time()
    seen = sum([len(machine.advance(event)) for event in events])
    seconds = time.process_time() - begun
    if seen != deltas:
        msg = f"a wrong run: {seen} deltas seen of {deltas}"
        raise RuntimeError(msg)
    return seconds / deltas * MICRO


def per_entry(entries: list[bytes]) -> float:
    """CPU of folding one entry of a journal, in µs."""
    gc.collect()
    begun = time.process_time()
    machine = fold(entries, "bench").machine
    seconds = time.process_time() - begun
    if machine is None or machine.done:
        msg = f"a wrong fold: {machine!r}"
        raise RuntimeError(msg)
    return seconds / len(entries) * MICRO


def main(rounds: int, deltas: int) -> None:
    """Warm up, measure and print."""
    _, few = per_round(BATCH)
    per_entry(few)
    per_delta(BATCH, 1)
    figures = {"round": 0.0, "delta": per_delta(deltas, 1), "batched": per_delta(deltas, BATCH)}
    figures["round"], entries = per_round(rounds)
    figures["entry"] = per_entry(entries)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
