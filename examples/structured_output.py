"""
An output of a type of your own: asked for again where it is wrong, and judged by a validator of yours.

A scripted model: no key.
"""

import asyncio
from dataclasses import dataclass
from typing import Literal

from turnwheel import Agent
from turnwheel.effects import CallModel
from turnwheel.performers import AskAgain, Output
from turnwheel.testing import ScriptedModel, says


@dataclass(frozen=True)
class Ticket:
    """What a customer wants."""

    subject: str
    urgency: Literal["low", "high"]


def short(ticket: Ticket) -> None:
    """Refuse a subject that fits no list."""
    if len(ticket.subject) > 20:
        msg = "the subject has more than 20 characters"
        raise AskAgain(msg)


async def main() -> None:
    """Two answers are wrong: the first by its schema, the second by the validator."""
    model = ScriptedModel(
        says('{"subject": "Door", "urgency": "very"}'),
        says('{"subject": "The door of the garage is stuck", "urgency": "high"}'),
        says('{"subject": "Garage door", "urgency": "high"}'),
    )
    agent = Agent(performers={CallModel: model}, output=Output(Ticket, validator=short))
    result = await agent.run("The door of my garage is stuck, help!")
    print(result.output, f"after {result.spent.turns} turns")


if __name__ == "__main__":
    asyncio.run(main())
