"""Agents over a script, for all that is read of their sessions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, final

import pytest

from turnwheel import Agent, MemoryStore, ModelSpec, Price, tool
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, says

DOLLAR = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))
"""A dollar a token, so that sums are read at a glance."""


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


@final
class Made:
    """Calling makes an agent over a script, which keeps its sessions in `store`; `model` is what it asks."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.model = ScriptedModel()
        self.tools: list[Any] = [pay, look]

    def __call__(self, *replies: Reply, **settings: Any) -> Agent:
        self.model = ScriptedModel(*replies)
        given: dict[str, Any] = {
            "model": ModelSpec(name="big", price=DOLLAR),
            "performers": {CallModel: self._answer},
            "store": self.store,
            "clock": AutoClock(100.0),
            "tools": self.tools,
        }
        return Agent(**{**given, **settings})

    async def _answer(self, request: CallModel, scene: PerformContext) -> Any:
        if request.purpose is Purpose.TITLE:
            return await ScriptedModel(says("A Title", usage=Usage(input=100)))(request, scene)
        return await self.model(request, scene)


@pytest.fixture
def made() -> Made:
    return Made()
