"""
Plays the turnwheel that is on the path until a promise breaks; prints what broke and exits with 1, or with 0.

    hunt.py RUNS SESSIONS       so many runs of a bare machine, after so many plays of whole sessions

Used on copies with a deliberate mistake in them: a test of the tests.
"""

from __future__ import annotations

import asyncio
import sys

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import InternalError
from turnwheel.effects.events import ModelFinished, ToolFinished
from turnwheel.effects.messages import StopReason
from turnwheel.effects.pieces import CallPiece
from turnwheel.effects.requests import RunTool
from turnwheel.effects.usage import Usage
from turnwheel.engine.machine import Machine
from turnwheel.testing.player import PromiseBroken, as_kept, play, replay
from turnwheel.testing.sessions import play_sessions


def only_what_was_offered_runs() -> None:
    """A tool that was configured after the model was asked does not run."""
    slow, late = (ToolSpec(name=name, approval="never") for name in ("slow", "late"))
    model = ModelSpec(name="wire:model")
    machine = Machine.start(Config(model=model, tools=(slow,)), "hello", run="r")
    machine.advance()
    calls = (CallPiece(0, "w", "slow", "{}"), CallPiece(1, "w", "late", "{}"))
    machine.advance(
        ModelFinished(at=1.0, request="r-1", stop=StopReason.TOOL_USE, usage=Usage(input=1), pieces=calls)
    )
    machine.config = Config(model=model, tools=(slow, late))
    effects = machine.advance(ToolFinished(at=2.0, request=machine.state.open[0], content=""))
    assert not any(isinstance(effect, RunTool) for effect in effects), "what was not offered ran"


async def many_sessions(count: int) -> None:
    """Sessions of *count* seeds keep every promise."""
    for seed in range(count):
        await play_sessions(seed)


def hunt(runs: int, sessions: int) -> str:
    """What broke within so many *runs* of a machine and so many *sessions*, or nothing."""
    try:
        asyncio.run(many_sessions(sessions))
        only_what_was_offered_runs()
        for seed in range(runs):
            played = play(seed)
            again = replay(played.began, as_kept(played.journal))
            assert again == played.end, "merged and replayed it is another run"
    except (PromiseBroken, InternalError, AssertionError) as found:
        return str(found).partition("\n")[0] or repr(found)
    return ""


if __name__ == "__main__":
    broken = hunt(int(sys.argv[1]), int(sys.argv[2]))
    print(broken or "every promise was kept")
    sys.exit(bool(broken))
