"""
What a worker of every host works with: a model that follows plans, and tools that note what they do.

Theory of operation. All that a model says follows from the conversation, so it is the same after a crash.
Tools and models note in one file, by one write each, what began and what ended and in which process: that is
what the world knows, and journals are held against it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from provers.crash.points import Notebook
from provers.planned import planned

from turnwheel import Agent, Policy, SQLiteStore, tool
from turnwheel.effects import CallModel
from turnwheel.effects.config import ChildSpec, Concurrency, ModelSpec, Retries
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished, ModelStreamed
from turnwheel.effects.history import CallPiece, Piece, TextPiece
from turnwheel.effects.messages import Message, Role, StopReason
from turnwheel.effects.requests import Purpose
from turnwheel.effects.usage import Usage
from turnwheel.performers import PostgresStore, ToolContext
from turnwheel.performers.base import PerformContext

NOTES = "notes.jsonl"

# The name of the agent, where a host has several.
SERVICE = "assistant"

PLANS: dict[str, tuple[tuple[str, ...], ...]] = {
    "series": (("peek",), ("put",), ("burn",)),
    "parallel": (("peek", "put", "burn"),),
    "pays": (("pay",), ("peek",)),
    "waits": (("wait", "burn"), ("peek",)),
    "child": (("run_agent", "peek"), ("burn",)),
    "errand": (("peek", "burn"),),
    "full": (("peek",), ("fill",), ("put",)),
    "limited": (("peek",), ("put",)),
    "digs": (("dig",),),
    "fails": (("fail",), ("peek",)),
    "busy": (("peek", "put"), ("burn",), ("run_agent",), ("dig", "burn"), ("put",)),
}
"""The tools of each answer to a prompt with that first word, before the last answer, which only talks."""

LITTLE, NEARLY_FULL = Usage(input=10, output=5), Usage(input=900, output=5)

STEER = "steer"
"""How a steer begins, which is no job of its own."""


@final
class Desk:
    """What tools and model of one process share: the *folder* of all, and how long a tool takes."""

    def __init__(self, folder: Path, pace: float) -> None:
        self.folder = folder
        self.pace = pace
        self.notes = Notebook(folder / NOTES, os.getpid())

    async def work(self, name: str, what: str, context: ToolContext[Desk], seconds: float) -> str:
        about = {"tool": name, "what": what, "session": context.session}
        about |= {"key": context.key, "call": context.call}
        self.notes.note("begun", **about)
        if name == "wait":
            while not gate(self.folder, context.session).exists():  # noqa: ASYNC110  # another process opens it
                await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)
        self.notes.note("ended", **about)
        return f"{name} ran"


def gate(folder: Path, session: str) -> Path:
    """The file for which `wait` waits in *session*."""
    return mark(folder, session, "gate")


def mark(folder: Path, session: str, kind: str) -> Path:
    """A file that says something of *session* to all processes."""
    return folder / f"{session.rpartition('/')[2]}.{kind}"


@tool(side_effect="read_only")
async def peek(what: str, context: ToolContext[Desk]) -> str:
    """Look at something."""
    return await context.deps.work("peek", what, context, context.deps.pace)


@tool(side_effect="read_only")
async def wait(what: str, context: ToolContext[Desk]) -> str:
    """Wait until a gate is open."""
    return await context.deps.work("wait", what, context, 0)


@tool(side_effect="read_only")
async def fill(what: str, context: ToolContext[Desk]) -> str:
    """Look at something long."""
    return await context.deps.work("fill", what, context, context.deps.pace)


@tool(side_effect="idempotent", approval="never")
async def put(what: str, context: ToolContext[Desk]) -> str:
    """Put something somewhere; twice is once."""
    return await context.deps.work("put", what, context, context.deps.pace)


@tool(side_effect="idempotent", approval="never")
async def dig(what: str, context: ToolContext[Desk]) -> str:
    """Work long."""
    return await context.deps.work("dig", what, context, 1.0)


@tool(approval="never")
async def burn(what: str, context: ToolContext[Desk]) -> str:
    """Burn something, without asking."""
    return await context.deps.work("burn", what, context, context.deps.pace)


@tool(approval="always")
async def pay(what: str, context: ToolContext[Desk]) -> str:
    """Pay for something, when a person said yes."""
    return f"{await context.deps.work('pay', what, context, context.deps.pace)} for {what}"


@tool(side_effect="read_only")
async def fail(what: str, context: ToolContext[Desk]) -> str:
    """Fail."""
    await context.deps.work("fail", what, context, 0)
    msg = "it is broken"
    raise RuntimeError(msg)


TOOLS = (peek, wait, fill, put, dig, burn, pay, fail)
UNSAFE = frozenset({"burn", "pay"})


@final
class Model:
    """The model of *desk*, as a performer of `CallModel`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Say what follows from the conversation."""
        clock, notes = scene.clock, self._desk.notes
        notes.note("asked", session=scene.session)
        pieces = speech(request, scene.history.slice(0, request.view.length))
        calls = [piece for piece in pieces if isinstance(piece, CallPiece)]
        if any("limited" in call.arguments and call.name == "put" for call in calls):
            # Once, whichever process was refused.
            refused = mark(self._desk.folder, scene.session, "limited")
            if not refused.exists():
                refused.touch()
                failed = Failure.RATE_LIMIT
                return ModelFailed(at=clock.now(), request=request.id, failure=failed, message="429")
        await asyncio.sleep(self._desk.pace)
        for before, piece in enumerate(pieces):
            scene.emit(
                ModelStreamed(at=clock.now(), request=request.id, before=before, count=1, pieces=(piece,))
            )
        full = any(call.name == "fill" for call in calls)
        stop = StopReason.TOOL_USE if calls else StopReason.END_TURN
        usage = NEARLY_FULL if full else LITTLE
        return ModelFinished(at=clock.now(), request=request.id, stop=stop, usage=usage)


def speech(request: CallModel, shown: Sequence[Message]) -> tuple[Piece, ...]:
    """What the model says to what it is *shown*."""
    if request.purpose is not Purpose.TURN:
        return (TextPiece("They worked."),)
    answered, prompt = 0, ""
    for message in reversed(shown):
        if message.role is Role.USER and not message.text.startswith(STEER):
            prompt = message.text.partition(":")[0]
            break
        answered += message.role is Role.TOOL
    return planned(PLANS.get(prompt.partition(" ")[0], ()), prompt, answered)


def make_agent(folder: Path, pace: float, **more: Any) -> Agent:
    """The agent of every host, whose tools note in *folder* and take *pace* seconds."""
    desk = Desk(folder, pace)
    return Agent(
        model=ModelSpec(name="wire:model", window=1_000),
        tools=TOOLS,
        children=(ChildSpec(name="kid", tools=("peek", "burn")),),
        performers={CallModel: Model(desk)},
        policy=Policy(concurrency=Concurrency.PARALLEL),
        retries=Retries(base=0.02, jitter=0.0),
        deps=desk,
        **more,
    )


def open_store(place: str) -> SQLiteStore | PostgresStore:
    """The store at *place*: a URL of PostgreSQL with the schema behind a '#', or the path of a file."""
    if place.startswith("postgresql:"):
        dsn, _, schema = place.partition("#")
        return PostgresStore(dsn, schema=schema or "turnwheel")
    return SQLiteStore(place, "process")
