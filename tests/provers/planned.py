"""What models say that follow a plan: the calls of each answer, and that all of it is done."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from turnwheel.effects.history import CallPiece, Piece, TextPiece

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = "All of it is done."
"""How every job ends that is not stopped."""


def planned(plan: Sequence[Sequence[str]], prompt: str, answered: int) -> tuple[Piece, ...]:
    """The answer to *prompt* when so many were *answered*: calls of the next tools in *plan*, or the end."""
    if answered >= len(plan):
        return TextPiece(DONE[:8]), TextPiece(DONE[8:])
    calls = [
        CallPiece(index, f"call_{index}", name, _arguments(name, f"{prompt}, {answered}.{index}"))
        for index, name in enumerate(plan[answered])
    ]
    return TextPiece("Let me "), TextPiece("see. "), *calls


def _arguments(name: str, what: str) -> str:
    if name == "run_agent":
        return json.dumps({"agent": "kid", "prompt": f"errand of {what}: go"})
    return json.dumps({"what": what})
