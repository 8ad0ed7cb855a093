"""
What helps to test an agent, and what our own tests are made of.

    by_hand     a machine stepped by hand, in the words of a test; `places` is where one can stand
    scripted    a model that says what it was told to, for whole agents
    clock       clocks that stand still
    stores      a store to make others of
    wires       what real providers refuse in a request body: for whoever writes a wire; `streams` are answers
    conformance what every store promises, as checks that any store can be put to; they are in `keeping`
    prove       all of a small world, and ``python -m turnwheel.testing.prove``; its parts are in `proving`
    torture     processes killed everywhere, and ``python -m turnwheel.testing.torture``; see `killing`
    fuzz        bytes that nobody sends, and ``python -m turnwheel.testing.fuzz``; its parts are in `garbling`
    soak        a long day of which nothing may be left, and ``python -m turnwheel.testing.soak``

    playing/    the world as a player: random runs of machines, and of `playing.sessions`, left, closed,
                answered late, gone back and copied, in which every promise is checked
    books/      what must hold of a run: `books.ledger` checks all of its steps; `books.law` judges calls
                again and `books.circles` looks for circles again, written otherwise
    hostile/    a server that means ill
"""

from __future__ import annotations

from .books.ledger import Ledger
from .by_hand import ByHand, call
from .choices import Choices, Seeded
from .playing.player import Play, Player, play
from .playing.watched import PromiseBroken, replay

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
