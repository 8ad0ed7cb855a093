"""The search through all of a small world."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from turnwheel.effects.events import (
    AgentFinished,
    Entered,
    Interrupted,
    ModelFailed,
    ModelFinished,
    TimerFired,
)
from turnwheel.effects.hooks import Hook
from turnwheel.effects.policy import Concurrency, Gates, OnDenial, Steering
from turnwheel.engine.machine import Machine
from turnwheel.states.legal import LEGAL
from turnwheel.testing import prove
from turnwheel.testing.ledger import Ledger
from turnwheel.testing.watched import PromiseBroken, Row
from turnwheel.testing.worlds import World, settings, worlds

WORLDS = tuple(worlds())


def test_a_small_world_is_searched_to_its_end() -> None:
    """Hundreds of places, each kept promise checked on each way; all rows are the table's."""
    proof = prove.search(World(config=settings(Concurrency.PARALLEL_READS), calls=("peek", "ranger")))
    assert proof.states > 200
    assert proof.edges > 2 * proof.states
    assert proof.rows < LEGAL


KINDS: dict[str, Callable[[World], bool]] = {
    "a hook before a tool, rules first": lambda world: (
        world.config.policy.gates is Gates.RULES_FIRST and bool(world.config.hooks)
    ),
    "hooks after a tool": lambda world: Hook.POST_TOOL_USE in {hook.hook for hook in world.config.hooks},
    "a hook at the end": lambda world: Hook.STOP in {hook.hook for hook in world.config.hooks},
    "a steer that cannot wait": lambda world: Steering.NOW in world.steers,
    "a deadline": lambda world: world.config.policy.answer_within is not None,
    "a changed setting": lambda world: bool(world.changes),
    "a call that is given up": lambda world: world.cancels,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_world_of_each_kind_keeps_every_promise(kind: str) -> None:
    """The first of its kind, which the whole search goes on from."""
    proof = prove.search(next(filter(KINDS[kind], WORLDS)))
    assert proof.states > 200
    assert proof.rows < LEGAL


LONG: dict[str, tuple[Callable[[World], bool], set[Row]]] = {
    "two turns with a compaction and a child": (
        lambda world: world.config.model.window < prove.SMALL and bool(world.more) and "send" in world.calls,
        {
            ("thinking.go", Entered, "compacting.weigh"),
            ("compacting.summary", ModelFinished, "thinking.go"),
            ("compacting.summary", ModelFailed, "compacting.pausing"),
            ("compacting.summary", ModelFailed, "compacting.summary"),
            ("compacting.pausing", TimerFired, "compacting.summary"),
            ("dispatching", AgentFinished, "thinking.go"),
        },
    ),
    "another model takes over": (
        lambda world: bool(world.config.fallback),
        {("streaming", ModelFailed, "thinking.go"), ("streaming", ModelFailed, "thinking.retry")},
    ),
    "old results are left out": (
        lambda world: world.config.compaction.clear_over == 1,
        {("thinking.go", Entered, "thinking.go")},
    ),
    "a model goes in circles": (
        lambda world: world.config.loops.warn == 2,
        {("thinking.go", Entered, "thinking.go"), ("thinking.go", Entered, "thinking.end")},
    ),
    "children share a budget": (
        lambda world: world.calls.count("ranger") > 1,
        {
            ("dispatching", AgentFinished, "dispatching.stopping"),
            ("dispatching", AgentFinished, "thinking.go"),
        },
    ),
}
"""Worlds of more than one turn, and ways that lead through them."""


@pytest.mark.parametrize("kind", LONG)
def test_a_longer_run_keeps_every_promise(kind: str) -> None:
    """All of its kind, and together they take the ways that are special about it."""
    of_its_kind, ways = LONG[kind]
    rows = frozenset[Row]().union(*[prove.search(world).rows for world in WORLDS if of_its_kind(world)])
    assert ways <= rows < LEGAL


def test_a_search_sees_the_same_each_time() -> None:
    """No order of a set or address of an object leads the search."""
    assert prove.search(WORLDS[0]) == prove.search(WORLDS[0])


def test_the_worlds_differ() -> None:
    """Every way to take a denial and to run calls is searched, with and without a budget, and none twice."""
    assert [world for world in WORLDS if WORLDS.count(world) > 1] == []
    denials = {(world.calls, world.config.policy.on_denial) for world in WORLDS}
    orders = {(world.calls, world.config.policy.concurrency) for world in WORLDS}
    pairs = {world.calls for world in WORLDS[:5]}
    assert denials >= set(product(pairs, OnDenial))
    assert orders >= set(product(pairs, Concurrency))
    assert {world.config.limits.seconds for world in WORLDS} >= {None, 3.0}


def test_worlds_have_hooks_at_every_place_that_is_asked() -> None:
    """Each place is that of a hook in some small world; the end of a child is the end of a run."""
    asked = {hook.hook for world in WORLDS for hook in world.config.hooks}
    assert asked == set(Hook) - {Hook.SESSION_END, Hook.SUBAGENT_STOP}


def test_what_is_found_is_told_with_the_way_there() -> None:
    """A ledger that knows of another prompt than the machine finds fault with its first step."""
    begun, other = (Machine.start(WORLDS[0].config, "the prompt", run=run) for run in ("r", "other"))
    with pytest.raises(PromiseBroken, match="takes not what is due") as found:
        prove._feed(prove.Node(begun, Ledger.of(other)), None, set(), begun)  # pyright: ignore[reportPrivateUsage]  # one step of a search
    assert "machine.advance()" in str(found.value)


def test_a_place_without_a_way_out_is_found() -> None:
    """Where no way leads to the end, the shortest way there is told."""
    begun = Machine.start(WORLDS[0].config, "the prompt", run="r")
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
