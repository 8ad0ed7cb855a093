"""
Plays the turnwheel that is on the path until a promise breaks; prints what broke and exits with 1, or with 0.

    hunt.py RUNS SESSIONS [KIND]    so many runs of a bare machine, after so many plays of whole sessions

The runs are in worlds of this kind, where one is named.

Used on copies with a deliberate mistake in them: a test of the tests.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType

RUNS, SESSIONS, KIND = int(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:])
if not SESSIONS:
    # A bare machine needs none of the public names. To import them takes longer than to find most mistakes.
    bare = ModuleType("turnwheel")
    bare.__path__ = [str(Path(sys.path[0]) / "turnwheel")]
    sys.modules["turnwheel"] = bare

from turnwheel.effects.errors import InternalError  # noqa: E402  # see above
from turnwheel.testing.choices import Seeded  # noqa: E402  # see above
from turnwheel.testing.player import Player, play  # noqa: E402  # see above
from turnwheel.testing.settingbook import branched_faults  # noqa: E402  # see above
from turnwheel.testing.watched import PromiseBroken, as_kept, replay  # noqa: E402  # see above

SECOND = 4
"""One run in so many is followed by another one over it, and that by one that goes back before it."""


async def many_sessions(count: int) -> None:
    """Sessions of *count* seeds keep every promise."""
    from turnwheel.testing.sessions import play_sessions  # noqa: PLC0415  # see above

    for seed in range(count):
        await play_sessions(seed)


def hunt(runs: int, sessions: int) -> str:
    """What broke within so many *runs* of a machine and so many *sessions*, or nothing."""
    try:
        if sessions:
            asyncio.run(many_sessions(sessions))
        for seed in range(runs):
            played = play(seed, kind=KIND)
            again = replay(played.began, as_kept(played.journal))
            assert again == played.end, "merged and replayed it is another run"
            if seed % SECOND == 0:
                later = Player(Seeded(seed), before=played.end, run="r2").play().end
                then = played.end if seed % (2 * SECOND) else None
                back = later.branched(then)
                assert branched_faults(later, then, back) == []
                Player(Seeded(seed), before=back, run="r3").play()
    except (PromiseBroken, InternalError, AssertionError) as found:
        return str(found).partition("\n")[0] or repr(found)
    return ""


if __name__ == "__main__":
    broken = hunt(RUNS, SESSIONS)
    print(broken or "every promise was kept")
    sys.exit(bool(broken))
