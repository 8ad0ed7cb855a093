"""Runs and sessions that are drawn keep every promise; the tests with the marker `prover` play many more."""

from __future__ import annotations

import pytest

from provers.audit.settings import branched_faults, gone_back
from provers.choices import Seeded
from provers.simulation.player import Player, play
from provers.simulation.sessions import play_sessions
from provers.simulation.watched import as_kept, replay

# Small lots, so that a lot that breaks is found soon.
RUNS, SESSIONS = 24, 4


@pytest.mark.parametrize("lot", range(5))
def test_drawn_runs_keep_every_promise(lot: int) -> None:
    for seed in range(lot * RUNS, (lot + 1) * RUNS):
        played = play(seed)
        again = replay(played.began, as_kept(played.journal))
        assert again == played.end, "merged and replayed it is another run"
        if seed % 4 == 0:
            # Another run over it, and one that goes back before that.
            later = Player(Seeded(seed), before=played.end, run="r2").play().end
            then = played.end if seed % 8 else None
            back = gone_back(later, then)
            assert branched_faults(later, then, back) == []
            Player(Seeded(seed), before=back, run="r3").play()


@pytest.mark.parametrize("lot", range(4))
async def test_drawn_sessions_keep_every_promise(lot: int) -> None:
    for seed in range(lot * SESSIONS, (lot + 1) * SESSIONS):
        await play_sessions(seed)
