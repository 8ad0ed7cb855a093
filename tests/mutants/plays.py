"""
Plays turnwheel until a promise breaks: a finder of mistakes.

Some are found sooner in worlds of one kind; those around a run are found by whole sessions.
"""

from __future__ import annotations

import asyncio
import sys
from importlib.util import find_spec
from types import ModuleType

SECOND = 4
"""One run in so many is followed by another one over it, and that by one that goes back before it."""


async def many_sessions(count: int) -> None:
    from provers.simulation.sessions import play_sessions  # noqa: PLC0415  # see `bare`

    for seed in range(count):
        await play_sessions(seed)


def bare() -> None:
    """
    Have turnwheel without its public names: who plays a bare machine needs none of them.

    To import them takes longer than to find most mistakes. So here all imports wait until this was decided.
    """
    found = find_spec("turnwheel")
    module = ModuleType("turnwheel")
    module.__path__ = list(found.submodule_search_locations or ()) if found is not None else []
    sys.modules["turnwheel"] = module


def broken(runs: int, sessions: int, kind: str = "") -> str:
    """What broke in so many *sessions* and *runs* of a machine, in worlds of this *kind*; or nothing."""
    if not sessions:
        bare()
    from provers.simulation.watched import PromiseBroken  # noqa: PLC0415  # see `bare`

    from turnwheel.effects.errors import InternalError  # noqa: PLC0415  # see `bare`

    try:
        if sessions:
            asyncio.run(many_sessions(sessions))
        for seed in range(runs):
            play_one(seed, kind)
    except (PromiseBroken, InternalError, AssertionError) as found:
        return str(found).partition("\n")[0] or repr(found)
    return ""


def play_one(seed: int, kind: str) -> None:
    """A run that keeps every promise, or raises; then perhaps two more behind it."""
    from provers.audit.settings import branched_faults  # noqa: PLC0415  # see `bare`
    from provers.choices import Seeded  # noqa: PLC0415  # see `bare`
    from provers.simulation.player import Player, play  # noqa: PLC0415  # see `bare`
    from provers.simulation.watched import as_kept, replay  # noqa: PLC0415  # see `bare`

    played = play(seed, kind=kind)
    again = replay(played.began, as_kept(played.journal))
    assert again == played.end, "merged and replayed it is another run"
    if seed % SECOND:
        return
    later = Player(Seeded(seed), before=played.end, run="r2").play().end
    then = played.end if seed % (2 * SECOND) else None
    back = later.branched(then)
    assert branched_faults(later, then, back) == []
    Player(Seeded(seed), before=back, run="r3").play()
