"""
An agent for any process, and the shape of a journal.

Its model plays what the prompt says, a JSON list of rounds, each a list of calls; so any worker can go on
with any session. Its tools write into a ledger when they begin and when they end.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from turnwheel import Agent, ToolContext, tool
from turnwheel.effects import CallModel, ChildSpec, ModelFinished, StopReason, Usage
from turnwheel.effects.history import CallPiece, TextPiece
from turnwheel.effects.messages import Role
from turnwheel.performers.base import PerformContext


async def plays(request: CallModel, scene: PerformContext) -> ModelFinished:
    """The next round of the latest prompt; then the text "done", with what was said by then."""
    told, rounds = "[]", 0
    for message in scene.history:
        if message.role is Role.USER and message.text.startswith("["):
            told, rounds = message.text, 0
        rounds += message.role is Role.ASSISTANT
    plan = json.loads(told)
    said = partial(ModelFinished, at=scene.clock.now(), request=request.id, usage=Usage(input=10, output=5))
    if rounds < len(plan):
        pieces = [
            CallPiece(index, f"call_{rounds}_{index}", name, json.dumps(arguments))
            for index, (name, arguments) in enumerate(plan[rounds])
        ]
        return said(stop=StopReason.TOOL_USE, pieces=tuple(pieces))
    steers = [message.text for message in scene.history if message.text.startswith("steer")]
    return said(stop=StopReason.END_TURN, pieces=(TextPiece(" ".join(["done", *steers])),))


def agent(ledger: str) -> Agent:
    """The agent of the tests, whose tools write into *ledger*."""

    def note(what: str, scene: ToolContext[None]) -> None:
        with Path(ledger).open("a", encoding="utf-8") as file:
            file.write(f"{what} {scene.session} {scene.key} {os.getpid()}\n")

    async def work(what: str, seconds: float, scene: ToolContext[None]) -> str:
        note(f"began-{what}", scene)
        await asyncio.sleep(seconds)
        note(f"ended-{what}", scene)
        return what

    @tool(side_effect="read_only")
    async def look(seconds: float, scene: ToolContext[None]) -> str:
        """Look."""
        return await work("look", seconds, scene)

    @tool(side_effect="unsafe", approval="never")
    async def pay(seconds: float, scene: ToolContext[None]) -> str:
        """Pay."""
        return await work("pay", seconds, scene)

    @tool(side_effect="unsafe")
    async def ask(seconds: float, scene: ToolContext[None]) -> str:
        """Do what a person has to allow."""
        return await work("ask", seconds, scene)

    return Agent(
        tools=(look, pay, ask),
        children=(ChildSpec(name="helper", tools=("look", "ask")),),
        performers={CallModel: plays},
    )


def shape(entries: Sequence[bytes]) -> list[str]:
    """What *entries* say, up to times and to ids that are drawn."""
    ids: dict[str, str] = {}

    def numbered(found: re.Match[str]) -> str:
        return ids.setdefault(found[0], f"id{len(ids)}")

    plain = [re.sub(r'"(at|due|seconds)":[0-9.e-]+', r'"\1":0', entry.decode()) for entry in entries]
    return [re.sub(r"\b[0-9a-f]{12}\b", numbered, text) for text in plain]
