"""Forks at a step: wherever one can be made, what becomes of it, and what may happen in place of the step."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from random import Random

import pytest
from provers.choices import Seeded
from provers.simulation.jobs import World, job
from provers.simulation.sessions import SESSION, SessionPlayer, to_the_end

from turnwheel.effects.config import Concurrency
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.requests import Request, RunTool
from turnwheel.engine.inspect.archive import bisect
from turnwheel.engine.inspect.replay import ReplayedStep, replayed
from turnwheel.engine.journal.entries import Branched, RunOpened, Stepped

FORK = "fork"

MOVES = RunOpened | Stepped | Branched
"""The entries by which two sessions can part: a takeover with other settings is none of them."""


async def beside(world: World) -> World:
    """Another world with all that is kept in *world*, in which nothing was done yet."""
    other = World(Seeded(0))
    for info in await world.store.list():
        await other.store.kept.append(info.session, 0, await world.store.kept.load(info.session))
    other.trusting, other.meddled, other.witnessed = True, world.meddled, set(world.witnessed)
    return other


def begun(steps: list[ReplayedStep], tool: str) -> set[str]:
    effects = [effect for step in steps for effect in step.effects]
    return {one.arguments for one in effects if isinstance(one, RunTool) and one.tool == tool}


def made(steps: list[ReplayedStep]) -> Iterator[str]:
    """The ids that were made up in *steps*, for requests and for calls."""
    for step in steps:
        for effect in step.effects:
            if isinstance(effect, Request):
                yield effect.id
            for call in getattr(effect, "calls", ()):
                yield call.id


async def parts_at(world: World) -> int | None:
    """The number of the first step at which the session and its fork part."""
    found = await bisect(world.store.kept, SESSION, FORK)
    return None if found is None or found.one is None else int(found.one["number"])


async def faults(world: World, at: int, concurrency: Concurrency = Concurrency.SERIAL) -> list[str]:
    """
    What is wrong with a fork of *world*'s session *at* this step, also when it has been brought to its end.

    Raises `ConfigError` where there can be none.
    """
    then = list(replayed(await world.store.kept.load(SESSION), SESSION))
    other = await beside(world)
    agent = other.agent(concurrency)
    async with await agent.session(SESSION).fork(FORK, at=at) as fork:
        there = next((step.number for step in then[at:] if isinstance(step.entry, MOVES)), None)
        parts = await parts_at(other)
        found = [] if parts == there else [f"forked at {at}, it parts at {parts}, and not at {there}"]
        found += await to_the_end(fork)
        await fork.run(job(99))
    found += await other.kept_faults(fork)
    now = list(replayed(await other.store.kept.load(FORK), FORK))
    again = begun(then[:at], "pay") & {f'{{"what": "{what}"}}' for tool, what in other.ran if tool == "pay"}
    found += [f"{what} was begun before, and is again" for what in again]
    found += [f"{name} was made twice" for name in set(made(then[at:])) & set(made(now[at:]))]
    parts = await parts_at(other)
    found += [f"forked at {at}, it parts before, at {parts}"] if parts is not None and parts < at else []
    return found


def ways(error: ConfigError) -> tuple[str, ...]:
    """The steps at which one can fork, which *error* names where a child is at work."""
    found = WAYS.search(str(error))
    assert found, error
    return found.groups()


WAYS = re.compile(r"fork at (\d+)(?: or (\d+))?, or pass")


async def fork_everywhere(
    world: World, steps: Iterable[int], concurrency: Concurrency = Concurrency.SERIAL
) -> tuple[list[int], set[int]]:
    """The *steps* at which *world*'s session was forked, each checked, and those named by who refused."""
    forked: list[int] = []
    named: set[int] = set()
    for at in steps:
        try:
            assert await faults(world, at, concurrency) == [], at
            forked.append(at)
        except ConfigError as error:
            named |= {int(step) for step in ways(error) if step}
    return forked, named


async def worked(concurrency: Concurrency) -> tuple[World, range]:
    """A world in which a job is done, and the steps at which its session may be forked."""
    world = World(Seeded(0))
    async with world.agent(concurrency).session(SESSION) as session:
        await session.run(job(1))
    return world, range(2, len(await world.store.kept.load(SESSION)) + 1)


async def test_a_job_can_be_forked_at_every_step() -> None:
    world, steps = await worked(Concurrency.SERIAL)
    forked, named = await fork_everywhere(world, steps)
    work = set(steps) - set(forked)
    assert work  # a child was at work
    assert named == {min(work) - 1, max(work) + 1}


async def test_a_job_whose_tools_run_side_by_side_can_be_forked() -> None:
    world, steps = await worked(Concurrency.PARALLEL)
    forked, _ = await fork_everywhere(world, steps[::3], Concurrency.PARALLEL)
    assert len(forked) > 5


@pytest.mark.parametrize("seed", range(6))
async def test_a_session_that_was_used_in_every_way_can_be_forked_at_any_step(seed: int) -> None:
    player = SessionPlayer(Seeded(seed))
    await player.play()
    entries = await player.world.store.kept.load(SESSION)
    begun_at = next(step.number for step in replayed(entries, SESSION) if step.state is not None)
    there = range(begun_at + 1, len(entries) + 1)
    steps = Random(seed).sample(there, min(6, len(there)))
    forked, named = await fork_everywhere(player.world, steps)
    assert forked or named
    assert named <= {*(await fork_everywhere(player.world, named))[0]}
