"""
A leader starts three scouts and has the money for two. A scripted model: no key, no network.
"""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal

from turnwheel import Agent, ChildSpec, Limits, ModelSpec, Policy, Price, tool
from turnwheel.effects import (
    CallModel,
    CallPiece,
    Concurrency,
    ModelFinished,
    Piece,
    Role,
    StopReason,
    TextPiece,
    Usage,
)
from turnwheel.performers import PerformContext

DOLLAR_A_CALL = Usage(output=1_000)
PRICE = Price(0, 1_000, source="made up", date="2026-11-21")


@tool(side_effect="read_only")
async def look(where: str) -> str:
    """Look at a place."""
    return f"{where} is quiet"


async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
    """Answer for the leader, who sends three scouts at once, and for a scout, who looks at one place."""
    last = scene.history[-1]
    if last.role is Role.TOOL:
        pieces: tuple[Piece, ...] = (TextPiece("\n".join(result.content for result in last.results)),)
    elif scene.config.agent:
        pieces = (CallPiece(0, "w", "look", json.dumps({"where": last.text})),)
    else:
        scouts = [{"agent": "scout", "prompt": place} for place in ("the pier", "the mill", "the ford")]
        pieces = tuple(
            CallPiece(number, "w", "run_agent", json.dumps(scout)) for number, scout in enumerate(scouts)
        )
    called = isinstance(pieces[0], CallPiece)
    stop = StopReason.TOOL_USE if called else StopReason.END_TURN
    return ModelFinished(
        at=scene.clock.now(), request=request.id, stop=stop, usage=DOLLAR_A_CALL, pieces=pieces
    )


async def main() -> None:
    """Run with 6 dollars: one for the first answer, two for each of two scouts, one for the last."""
    agent = Agent(
        model=ModelSpec("played", price=PRICE),
        tools=[look],
        children=[ChildSpec("scout", description="looks at one place", limits=Limits(usd=2))],
        limits=Limits(usd=6),
        policy=Policy(concurrency=Concurrency.PARALLEL_READS),
        performers={CallModel: model},
    )
    result = await agent.run("What is going on?")
    print(result.text)
    print(f"{result.reason}, ${result.spent.cost}")
    assert result.spent.cost == Decimal(6)


if __name__ == "__main__":
    asyncio.run(main())
