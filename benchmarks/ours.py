"""The same work done by turnwheel, as an application would write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from turnwheel import Agent, Limits, SQLiteStore, tool
from turnwheel.effects import Secrets, TextDelta

from .work import KEY, MODEL, PROMPT, SESSION, SYSTEM, Seen

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from turnwheel.performers import OpenTelemetry

    from .work import Calculator


class Ours:
    """An agent with one tool and no limits; *secrets* says what is redacted, *telemetry* gets its spans."""

    def __init__(
        self,
        url: str,
        calculator: Calculator,
        client: httpx.AsyncClient | Literal["httpx", "aiohttp"],
        secrets: Secrets | None = None,
        telemetry: OpenTelemetry | None = None,
    ) -> None:
        self._telemetry = telemetry
        self._agent = Agent(
            model=MODEL,
            system=SYSTEM,
            tools=[tool(side_effect="read_only")(calculator.add)],
            limits=Limits(turns=None),
            base_url=url,
            api_key=KEY,
            client=client,
            secrets=secrets or Secrets(),
            telemetry=telemetry,
        )

    async def run(self, store: Path | None = None, session: str = SESSION) -> Seen:
        """Run *session* and watch it; see `Contender.run`."""
        kept = SQLiteStore(store) if store else None
        deltas = 0
        async with self._agent.session(session, kept) as opened:
            async for notice in opened.stream(PROMPT):
                if isinstance(notice, TextDelta):
                    deltas += 1
            text = opened.result().text
        if kept:
            await kept.close()
        if self._telemetry:
            await self._telemetry.flush()
        return Seen(text, deltas)

    async def aclose(self) -> None:
        """Close the agent."""
        await self._agent.aclose()
