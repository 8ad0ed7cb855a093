"""The search through all of a small world."""

from __future__ import annotations

import itertools

import pytest

from turnwheel.effects.config import Concurrency, Limits, OnDenial
from turnwheel.effects.events import Interrupted
from turnwheel.engine.machine import Machine
from turnwheel.states.table import LEGAL
from turnwheel.testing import prove
from turnwheel.testing.ledger import Ledger
from turnwheel.testing.player import PromiseBroken


def test_a_small_world_is_searched_to_its_end() -> None:
    """Hundreds of places, each kept promise checked on each way; all rows are the table's."""
    config = prove.settings(Concurrency.PARALLEL_READS, OnDenial.SKIP_REST, Limits())
    proof = prove.search(config, ("peek", "ranger"))
    assert proof.states > 200
    assert proof.edges > 2 * proof.states
    assert proof.rows < LEGAL


def test_a_search_sees_the_same_each_time() -> None:
    """No order of a set or address of an object leads the search."""
    config, pair = next(prove.worlds())
    assert prove.search(config, pair) == prove.search(config, pair)


def test_the_worlds_differ() -> None:
    """Every way to run calls and to take a denial is searched, with and without a budget."""
    worlds = list(prove.worlds())
    policies = {(world.policy.concurrency, world.policy.on_denial) for world, _ in worlds}
    assert policies == set(itertools.product(Concurrency, OnDenial))
    assert {world.limits.seconds for world, _ in worlds} == {None, 3.0}


def test_a_place_without_a_way_out_is_found() -> None:
    """Where no way leads to the end, the shortest way there is told."""
    config, _ = next(prove.worlds())
    begun = Machine.start(config, "the prompt", run="r")
    stuck = prove.Node(begun, Ledger.of(begun), journal=(Interrupted(at=1.0),))
    with pytest.raises(PromiseBroken, match="no way leads to the end") as found:
        prove._all_can_end([stuck], begun)  # pyright: ignore[reportPrivateUsage]  # no world of ours has such a place
    assert "machine.advance(Interrupted(at=1.0))" in str(found.value)


def test_the_command_reports(capsys: pytest.CaptureFixture[str]) -> None:
    """`python -m turnwheel.testing.prove` says how much it saw."""
    prove.main(["--worlds", "1", "--runs", "3"])
    out = capsys.readouterr().out
    assert "1 small worlds: " in out
    assert "3 runs: " in out
