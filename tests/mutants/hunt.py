"""
Plays the turnwheel that is on the path until a promise breaks; prints what broke and exits with 1, or with 0.

    hunt.py RUNS SESSIONS       so many runs of a bare machine, after so many plays of whole sessions

Used on copies with a deliberate mistake in them: a test of the tests.
"""

from __future__ import annotations

import asyncio
import sys

from turnwheel.effects.errors import InternalError
from turnwheel.testing.choices import Seeded
from turnwheel.testing.player import Player, play
from turnwheel.testing.sessions import play_sessions
from turnwheel.testing.watched import PromiseBroken, as_kept, replay

SECOND = 4
"""One run in so many is followed by another one over it."""


async def many_sessions(count: int) -> None:
    """Sessions of *count* seeds keep every promise."""
    for seed in range(count):
        await play_sessions(seed)


def hunt(runs: int, sessions: int) -> str:
    """What broke within so many *runs* of a machine and so many *sessions*, or nothing."""
    try:
        asyncio.run(many_sessions(sessions))
        for seed in range(runs):
            played = play(seed)
            again = replay(played.began, as_kept(played.journal))
            assert again == played.end, "merged and replayed it is another run"
            if seed % SECOND == 0:
                Player(Seeded(seed), before=played.end, run="r2").play()
    except (PromiseBroken, InternalError, AssertionError) as found:
        return str(found).partition("\n")[0] or repr(found)
    return ""


if __name__ == "__main__":
    broken = hunt(int(sys.argv[1]), int(sys.argv[2]))
    print(broken or "every promise was kept")
    sys.exit(bool(broken))
