"""The work of every contender, and the figures of a right run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM = "You are a calculator. Use the tool for every addition."
PROMPT = "Add the numbers."
MODEL = "played"
KEY = "none"
SESSION = "bench"

# The contenders: turnwheel asks by the same library as the floor, and as FAST by aiohttp.
FLOOR = "floor"
OURS = "turnwheel"
FAST = "turnwheel[fast]"

_WORDS = ("lorem", " ipsu", "m dol", "or si", "t ame", "t, co", "nsect", "etur ")


def words(count: int) -> list[str]:
    """The *count* text deltas of a final reply."""
    return [_WORDS[index % len(_WORDS)] for index in range(count)]


class Calculator(Protocol):
    """The one tool that a contender calls."""

    async def add(self, a: int, b: int) -> int:
        """Add two integers."""
        ...


class Seen(NamedTuple):
    """What the application received: the final *text*, and the number of text *deltas* as they came."""

    text: str
    deltas: int


class Waits(NamedTuple):
    """Milliseconds that the model waits *before* each answer, and *between* its events."""

    before: int = 0
    between: int = 0


NO_WAITS = Waits()


class Contender(Protocol):
    """One way to run the agent's loop, set up once and run many times, also at the same time."""

    async def run(self, store: Path | None = None, session: str = SESSION) -> Seen:
        """Run the loop of *session* to its end; keep it in the file *store* unless that is None."""
        ...

    async def aclose(self) -> None:
        """Close what this opened."""
        ...
