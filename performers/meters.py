"""
Meters: what all processes on one store count together, and the token buckets that are made of them.

Theory of operation. A meter is a small record. Each change reads it, works out the next one and puts that in
its place, unless another process was quicker: then it begins again with what that one wrote. All times in it
are the store's. A store without meters, or none at all, leaves a process with a store of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias, TypeVar, final

import attrs

from .stores.memory import MemoryStore

if TYPE_CHECKING:
    from .base import Clock
    from .stores.base import Store

T = TypeVar("T")

# From a meter and the time to the next meter, and to what the change has led to.
MeterChange: TypeAlias = Callable[["bytes | None", float], tuple["bytes | None", T]]


def meters_of(store: Store | None) -> Store | None:
    """*store*, where it keeps meters."""
    return store if store is not None and store.keeps_meters else None


def own_meters(clock: Clock) -> Store:
    """Meters of this process alone."""
    return MemoryStore(now=clock.now)


async def change(meters: Store, name: str, work: MeterChange[T]) -> T:
    """What *work* made of the meter *name*, once its next one stands."""
    there, now = await meters.meter(name, None, None)
    while True:
        held = there
        wanted, outcome = work(held, now)
        if wanted == held:
            return outcome
        there, now = await meters.meter(name, held, wanted)
        if there == held:
            return outcome


@final
@attrs.frozen
class Bucket:
    """
    A token bucket: it holds *capacity* and gets *rate* more a second.

    So no more than capacity + rate * seconds is ever taken, whenever one begins to count.
    """

    capacity: float
    rate: float

    @classmethod
    def of_minute(cls, most: float) -> Bucket:
        """One that never gives more than *most* in a minute, a tenth of it at once."""
        # What is there at first and what a minute brings come to *most* together, and not to more than that.
        # The last one of a minute is given at its end, so that belongs to the next.
        capacity = max(1.0, most / 10)
        return cls(capacity, (most - capacity + 1.0) / 60.0)


# By name.
Buckets: TypeAlias = Mapping[str, Bucket]
Amounts: TypeAlias = Mapping[str, float]


@final
@attrs.frozen
class Fill:
    """How much is *left* in buckets, by their names, *at* a time; below 0 it is taken in advance."""

    at: float
    left: Amounts

    @classmethod
    def read(cls, meter: bytes | None, buckets: Buckets, now: float) -> Fill:
        """That of *meter*, by *now*."""
        at, kept = (now, {}) if meter is None else json.loads(meter)
        # A clock that was set back brings nothing; one that was set forward brings a full bucket at most.
        passed = max(0.0, now - at)
        left = {
            name: min(bucket.capacity, kept.get(name, bucket.capacity) + passed * bucket.rate)
            for name, bucket in buckets.items()
        }
        return cls(now, left)

    @property
    def meter(self) -> bytes:
        """As it is kept."""
        return json.dumps([self.at, self.left]).encode()

    def without(self, amounts: Amounts) -> Fill:
        """With *amounts* taken, or given back where they are below 0."""
        return Fill(self.at, {name: left - amounts.get(name, 0.0) for name, left in self.left.items()})

    def wait(self, buckets: Buckets, amounts: Amounts) -> float:
        """In how many seconds all *amounts* are there."""
        # More than fits in is taken from a full one, and the next wait for the rest, too.
        waits = [
            (min(amounts[name], bucket.capacity) - self.left[name]) / bucket.rate
            for name, bucket in buckets.items()
            if amounts.get(name)
        ]
        return max([0.0, *waits])


def taking(buckets: Buckets, amounts: Amounts, patience: float) -> MeterChange[float]:
    """
    The change that takes *amounts* from *buckets*, by name, and tells in how many seconds they are there.

    They are taken in advance, so all that wait come in the order in which they asked, and none asks again.
    Nothing is taken where that is longer than *patience*.
    """

    def change(meter: bytes | None, now: float) -> tuple[bytes | None, float]:
        fill = Fill.read(meter, buckets, now)
        wait = fill.wait(buckets, amounts)
        return (meter if wait > patience else fill.without(amounts).meter), wait

    return change


def taking_after(buckets: Buckets, amounts: Amounts) -> MeterChange[None]:
    """The change that takes *amounts* that were used already; below 0, it gives them back."""

    def change(meter: bytes | None, now: float) -> tuple[bytes | None, None]:
        return Fill.read(meter, buckets, now).without(amounts).meter, None

    return change
