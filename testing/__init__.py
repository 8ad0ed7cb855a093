"""
What helps to test an agent, and what our own tests are made of.

    by_hand     a machine stepped by hand, in the words of a test
    scripted    a model that says what it was told to, for whole agents
    clock       a clock that stands still
    wires       what real providers refuse in a request body: for whoever writes a wire
    stores      a store to make others of, and one that can be told to fail
    conformance what every store promises, as checks that any store can be put to
    player      the world as a player: random runs in which every promise is checked (`people`, `strays`,
                `habits` and `settings` say who takes part, `plans` what they tend to do, `places` where a run
                has been, `watched` what is checked)
    sessions    the same for sessions: left, closed, answered late, gone back, copied, over a store that
                fails; see `jobs`
    prove       all of a small world, and ``python -m turnwheel.testing.prove``; see `worlds`
    torture     processes that are killed with -9 everywhere, and ``python -m turnwheel.testing.torture``; see
                `points` and the other modules whose names begin so
    soak        a long day of which nothing may be left, and ``python -m turnwheel.testing.soak``; see
                `soak_service`
    hostile     a server that means ill, with `attacks` that it makes; `streams` are answers as they should be
    fuzz        bytes that nobody sends, given to all `readers`, and ``python -m turnwheel.testing.fuzz``; see
                `mutations`, and `reading` for what an answer is held against
    invariants  what must always hold, as pure checks; `ledger` and the books (calls, questions, hooks,
                prompts, settings, money, tries, what is shown, summaries, circles) check it over a whole run;
                `law` judges calls again and `circles` looks for them again, written otherwise
"""

from __future__ import annotations

from .by_hand import ByHand, call
from .choices import Choices, Seeded
from .ledger import Ledger
from .player import Play, Player, play
from .watched import PromiseBroken, replay

__all__ = [
    "ByHand",
    "Choices",
    "Ledger",
    "Play",
    "Player",
    "PromiseBroken",
    "Seeded",
    "call",
    "play",
    "replay",
]
