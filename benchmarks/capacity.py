"""
How many workers so many sessions a day need, and what breaks first: ``python -m benchmarks.capacity``.

It plays a part of the busiest hour, with simpy. Sessions come by chance; each takes its turns, and each
round of a turn needs a core of a worker, an append to the store, a place at the provider, and a tool. It
prints how busy each of them is and how long a round waits for it. Then it raises the load until one of them
is too slow, adds more of that one, and goes on: so the order in which a fleet runs out is what it shows.

The costs are measured elsewhere, see docs/scale.md. Give your own: every field of `Load` and `Fleet` is an
option, as ``--answer-seconds 8``.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeAlias, final

import attrs
import simpy

Steps: TypeAlias = Generator[simpy.Event, Any, None]

DAY = 86_400
PLAYED = 30.0
"""Seconds of the busiest hour that are measured, once as many sessions are under way as will be."""

TOO_BUSY = 0.9
"""The share of its time above which a station counts as full: the queue before it grows without end soon."""

TOO_LATE = 1.0
"""Seconds that a round may wait for one station, at its 99th percentile."""

LOADS = (1.0, 1.5, 2.0, 3.0, 4.0)
"""Multiples of the load that are tried."""


@final
@attrs.frozen(kw_only=True)
class Load:
    """
    What comes: sessions a day, and how much busier than the mean the busiest hour is (*peak*).

    A session has *turns*, each of so many tool *rounds* and a last answer. An answer and a tool take seconds,
    the median of a lognormal distribution with *spread*. A person is asked in a share of the turns
    (*approvals*), and answers after *person-seconds*.
    """

    sessions_a_day: float = 1_000_000.0
    peak: float = 3.0
    turns: int = 3
    rounds: int = 5
    answer_seconds: float = 4.0
    tool_seconds: float = 0.5
    spread: float = 0.6
    approvals: float = 0.2
    person_seconds: float = 600.0

    @property
    def arrivals(self) -> float:
        """Sessions a second in the busiest hour."""
        return self.sessions_a_day / DAY * self.peak


@final
@attrs.frozen(kw_only=True)
class Fleet:
    """
    What there is: *workers* of one core each, *store-cores* of the database, *provider-places* at once.

    CPU of a worker for a round and of the database for an append, in milliseconds; bytes of a session that
    runs and of one that is parked in memory, and bytes that a round adds to the store.
    """

    workers: int = 4
    store_cores: int = 1
    provider_places: int = 4_000
    round_ms: float = 3.0
    append_ms: float = 0.5
    appends: int = 2
    running_bytes: int = 21_000
    round_bytes: int = 1_300


@final
class Station:
    """One kind of thing that rounds wait for, and how long they did."""

    def __init__(self, world: simpy.Environment, places: int) -> None:
        self.places = places
        self.waits: list[float] = []
        self.worked = 0.0
        self._world = world
        # A Resource looks through a list of all that have a place whenever one is given back.
        self._free = simpy.Container(world, places, places)

    def use(self, seconds: float) -> Steps:
        """Wait for a place and keep it for *seconds*."""
        came = self._world.now
        yield self._free.get(1)
        self.waits.append(self._world.now - came)
        self.worked += seconds
        yield self._world.timeout(seconds)
        yield self._free.put(1)

    def forget(self) -> None:
        """Begin to measure."""
        self.waits, self.worked = [], 0.0

    def busy(self, seconds: float) -> float:
        """The share of its time that it worked."""
        return self.worked / seconds / self.places

    def late(self) -> float:
        """The 99th percentile of the waits, in seconds."""
        return statistics.quantiles(self.waits, n=100)[98] if len(self.waits) > 1 else 0.0


@final
class Play:
    """A part of the busiest hour of *load* on *fleet*."""

    def __init__(self, load: Load, fleet: Fleet, seed: int) -> None:
        self.load, self.fleet = load, fleet
        self.chance = random.Random(seed)
        self.world = simpy.Environment()
        self.stations = {
            "workers": Station(self.world, fleet.workers),
            "store_cores": Station(self.world, fleet.store_cores),
            "provider_places": Station(self.world, fleet.provider_places),
        }
        self.running = self.asked = self.rounds = 0

    def run(self) -> None:
        """Play it; the stations have what was measured."""
        # By then the turns that began first are over: as many are under way as will be.
        turn = (self.load.rounds + 1) * (self.load.answer_seconds + self.load.tool_seconds)
        self.world.process(self._arrivals())
        self.world.run(2 * turn)
        for station in self.stations.values():
            station.forget()
        self.rounds = 0
        self.world.run(2 * turn + PLAYED)

    def _arrivals(self) -> Steps:
        # Turns and not sessions: how long a person takes between two of them does not matter to the rest.
        each = 1 / (self.load.arrivals * self.load.turns)
        while True:
            yield self.world.timeout(self.chance.expovariate(1 / each))
            self.world.process(self._turn())

    def _turn(self) -> Steps:
        self.running += 1
        asks = self.chance.random() < self.load.approvals
        for number in range(self.load.rounds + 1):
            yield from self._round()
            if asks and number == self.load.rounds // 2:
                # Parked: only the store has it, and nothing is held.
                self.running, self.asked = self.running - 1, self.asked + 1
                yield self.world.timeout(self.chance.expovariate(1 / self.load.person_seconds))
                self.running, self.asked = self.running + 1, self.asked - 1
        self.running -= 1

    def _round(self) -> Steps:
        fleet, load = self.fleet, self.load
        self.rounds += 1
        yield from self.stations["provider_places"].use(self._lasting(load.answer_seconds))
        yield from self.stations["workers"].use(fleet.round_ms / 1_000)
        for _ in range(fleet.appends):
            yield from self.stations["store_cores"].use(fleet.append_ms / 1_000)
        yield self.world.timeout(self._lasting(load.tool_seconds))

    def _lasting(self, median: float) -> float:
        return self.chance.lognormvariate(math.log(median), self.load.spread)


def full(play: Play) -> Iterator[str]:
    """The stations of *play* that are too busy or too late, the busiest first."""
    by_use = sorted(play.stations.items(), key=lambda item: -item[1].busy(PLAYED))
    for name, station in by_use:
        if station.busy(PLAYED) > TOO_BUSY or station.late() > TOO_LATE:
            yield name


def told(play: Play, times: float) -> list[str]:
    """One line for each station."""
    lines = []
    for name, station in play.stations.items():
        busy, late = station.busy(PLAYED), station.late()
        lines.append(f"| {times:g} | {name} | {station.places:,} | {busy:.0%} | {late * 1_000:,.0f} |")
    return lines


def plan(load: Load, fleet: Fleet, seed: int) -> Iterator[str]:
    """The lines of the report."""
    rounds = load.sessions_a_day * load.turns * (load.rounds + 1)
    yield f"{load.sessions_a_day:,.0f} sessions a day: {rounds:,.0f} rounds, {rounds / DAY:,.0f} a second"
    yield f"in the mean and {rounds / DAY * load.peak:,.0f} in the busiest hour;"
    yield f"{rounds * fleet.round_bytes / 1e9:,.0f} GB of journals a day."
    yield ""
    yield "| load | of | there are | busy | 99 of 100 rounds wait at most, ms |"
    yield "|------|----|-----------|------|-----------------------------------|"
    for times in LOADS:
        now = attrs.evolve(load, sessions_a_day=load.sessions_a_day * times)
        while True:
            play = Play(now, fleet, seed)
            play.run()
            yield from told(play, times)
            short = next(full(play), None)
            if short is None:
                running = play.running * fleet.running_bytes / 1e6
                yield f"| {times:g} | sessions at work | {play.running:,} | | {running:,.0f} MB |"
                break
            more = math.ceil(getattr(fleet, short) * 1.5)
            yield f"| {times:g} | **{short} run out** | {more:,} from here on | | |"
            fleet = attrs.evolve(fleet, **{short: more})


def fields_of(kind: type[Load | Fleet], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of *given* that are fields of *kind*."""
    return {field.name: given[field.name] for field in attrs.fields(kind)}


def main() -> None:
    """Print the plan for what the command line says."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--seed", type=int, default=1)
    for field in (*attrs.fields(Load), *attrs.fields(Fleet)):
        kind = int if isinstance(field.default, int) else float
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=kind, default=field.default)
    given = vars(parser.parse_args())
    load, fleet = Load(**fields_of(Load, given)), Fleet(**fields_of(Fleet, given))
    for line in plan(load, fleet, given["seed"]):
        print(line, flush=True)


if __name__ == "__main__":
    main()
