"""
One of several processes that work on the same sessions, for tests that tell each what to do.

``python relay.py STORE NOTES``: reads a line of JSON for each thing to do, and answers it with one: what came
of it, or what it was told. What its tools do is noted in the file NOTES, against which the journals are held.
A task may say at which tool the process gets which signal, once that has begun.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
from provers.crash.points import Notebook

from turnwheel import Agent, Result, Session, SQLiteStore, tool
from turnwheel.effects.config import Steering
from turnwheel.effects.errors import TurnwheelError
from turnwheel.effects.events import ModelFailed, ModelFinished, ModelStreamed
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import Message, Role, StopReason
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.performers import ToolContext
from turnwheel.performers.base import PerformContext

PLAN = (("peek", "pay"), ("put",))
"""The tools that are called in each answer to a job, before the last one, which only talks."""

Task = dict[str, Any]


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


class Desk:
    """
    What this process works with: its *notes*, which *signals* it gets at which tools, and their *pipes*.
    """

    def __init__(self, notes: Path) -> None:
        self.notes = Notebook(notes, os.getpid())
        self.signals: dict[str, int] = {}
        self.pipes: dict[str, str] = {}

    async def work(self, name: str, context: ToolContext[Desk]) -> str:
        self.notes.note("tool", tool=name, key=context.key, session=context.session)
        if name in self.signals:
            os.kill(os.getpid(), self.signals.pop(name))
        if name in self.pipes:
            await asyncio.to_thread(Path(self.pipes.pop(name)).read_text)
        await asyncio.sleep(0.01)
        self.notes.note("ran", tool=name, key=context.key, session=context.session)
        return f"{name} ran"


@tool(side_effect="read_only")
async def peek(context: ToolContext[Desk]) -> str:
    """Look at something."""
    return await context.deps.work("peek", context)


@tool(side_effect="idempotent", approval="never")
async def put(context: ToolContext[Desk]) -> str:
    """Put something somewhere."""
    return await context.deps.work("put", context)


@tool
async def pay(context: ToolContext[Desk]) -> str:
    """Pay, when an approver said yes."""
    return await context.deps.work("pay", context)


def speech(shown: Sequence[Message]) -> tuple[Piece, ...]:
    prompt = next(
        i for i in reversed(range(len(shown))) if shown[i].role is Role.USER and is_prompt(shown[i])
    )
    answered = sum(message.role is Role.TOOL for message in shown[prompt:])
    plan = PLAN if shown[prompt].text.startswith("job") else ()
    if answered < len(plan):
        return tuple(
            [CallPiece(index, f"call_{index}", name, "{}") for index, name in enumerate(plan[answered])]
        )
    heard = [message.text for message in shown[prompt:] if message.role is Role.USER]
    return TextPiece("Done: "), TextPiece(", ".join(heard))


def is_prompt(message: Message) -> bool:
    return not message.text.startswith("steer")


async def model(request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
    pieces = speech(scene.history.slice(0, request.view.length))
    for before, piece in enumerate(pieces):
        at = scene.clock.now()
        scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
        await asyncio.sleep(0)
    stop = StopReason.END_TURN if isinstance(pieces[0], TextPiece) else StopReason.TOOL_USE
    return ModelFinished(at=scene.clock.now(), request=request.id, stop=stop, usage=Usage(input=10, output=5))


async def approve(session: Session, _: Task) -> None:
    while not session.waiting:
        await session.load()
    for question in session.waiting:
        await session.approve(question.id, by=f"process {os.getpid()}")


async def race(session: Session, task: Task) -> Result:
    await session.send(task["text"], id=task["id"])
    await asyncio.sleep(task["at"] - time.monotonic())
    return await session.resume()


DO: dict[str, Callable[[Session, Task], Awaitable[Result | str | None]]] = {
    "run": lambda session, task: session.run(task["text"], id=task["id"], wait=task.get("wait", False)),
    "resume": lambda session, task: session.resume(takeover=task.get("takeover", False)),
    "approve": approve,
    "send": lambda session, task: session.send(task["text"], id=task["id"]),
    "steer": lambda session, task: session.steer(task["text"], Steering.WHEN_DONE, id=task["id"]),
    "race": race,
}


async def done(agent: Agent, task: Task) -> dict[str, object]:
    try:
        async with attrs.evolve(agent, lease=task.get("lease", 2.0)).session(task["session"]) as session:
            result = await DO[task["do"]](session, task)
    except TurnwheelError as error:
        return {"told": type(error).__name__, "says": str(error)}
    if not isinstance(result, Result):
        return {"done": True}
    return {"reason": result.reason, "text": result.text, "waiting": len(result.waiting)}


async def main(path: str, notes: str) -> None:
    store, desk = SQLiteStore(path, "process"), Desk(Path(notes))
    agent = Agent(
        model="scripted", tools=[peek, put, pay], performers={CallModel: model}, store=store, deps=desk
    )
    while line := sys.stdin.readline():  # nothing else is to be done meanwhile
        task = json.loads(line)
        desk.signals, desk.pipes = task.get("signals", {}), task.get("pipes", {})
        say(**await done(agent, task))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
