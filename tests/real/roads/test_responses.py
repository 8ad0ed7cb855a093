"""What the Responses wire alone has, straight to aimock and through LiteLLM to Responses or to Messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from real.roads.conftest import responses_wire

from turnwheel.effects.messages import Reasoning, Role

if TYPE_CHECKING:
    from real.roads.conftest import Road

pytestmark = [pytest.mark.real, pytest.mark.timeout(60, func_only=True), responses_wire]


async def test_encrypted_reasoning_goes_back_as_it_came(road: Road) -> None:
    road.play(*[{"reasoning": "Hm.", "content": f"Answer {turn}."} for turn in range(2)])
    async with road.agent(system="Be brief.") as agent, agent.session() as session:
        results = [await session.run(f"Question {turn}?") for turn in range(2)]
    assert [result.text for result in results] == ["Answer 0.", "Answer 1."]
    answers = [message for message in session.history if message.role is Role.ASSISTANT]
    parts = [part for message in answers for part in message.parts]
    thoughts = [part.text for part in parts if isinstance(part, Reasoning) and part.text]
    assert thoughts == ["Hm.", "Hm."]
    last = json.loads(road.sent[-1].content)
    assert last["instructions"] == "Be brief."
    encrypted = [item["encrypted_content"] for item in last["input"] if item.get("type") == "reasoning"]
    # LiteLLM writes the signed thinking of Anthropic into the field.
    assert len(encrypted) == 1
    assert [words for role, words in road.said(road.heard()[-1]) if role == "user"] == [
        "Question 0?",
        "Question 1?",
    ]
