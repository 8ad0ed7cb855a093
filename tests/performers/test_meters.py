"""Token buckets in meters: never more than they hold and get, whatever clocks do."""

from __future__ import annotations

import asyncio
from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from turnwheel.performers.meters import Bucket, Fill, change, taking, taking_after
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.testing.stores import StoreOver

FOREVER = float("inf")


@given(
    capacity=st.floats(1, 100),
    rate=st.floats(0.01, 100),
    asked=st.lists(
        st.tuples(
            st.floats(0, 60), st.sampled_from([0.0, 0.0, -5.0, 5.0, -3_600.0, 3_600.0]), st.floats(0, 1)
        ),
        min_size=1,
        max_size=30,
    ),
)
def test_no_more_is_given_in_any_time_than_a_bucket_holds_and_gets(
    capacity: float, rate: float, asked: list[tuple[float, float, float]]
) -> None:
    """A clock that is set back brings nothing, and one that is set forward what would come until then."""
    bucket = {"b": Bucket(capacity, rate)}
    meter, real, clock = None, 0.0, 1_000_000.0
    given: list[tuple[float, float]] = []  # when, and how much
    forward: list[float] = []
    for passed, step, share in asked:
        real, clock = real + passed, clock + passed + step
        amount = max(0.001, share * capacity)
        meter, wait = taking(bucket, {"b": amount}, FOREVER)(meter, clock)
        given.append((real + wait, amount))
        forward.append(max(0.0, step))
    for first in range(len(given)):
        sums = list(accumulate(amount for _, amount in given[first:]))
        for last, total in enumerate(sums, first):
            seconds = given[last][0] - given[first][0] + sum(forward[first + 1 : last + 1])
            assert total <= (capacity + rate * seconds) * (1 + 1e-6) + 1e-6


@given(most=st.integers(1, 10_000))
def test_a_minute_gets_no_more_than_its_limit(most: int) -> None:
    bucket, meter, now = {"b": Bucket.of_minute(most)}, None, 0.0
    times: list[float] = []
    for _ in range(min(most, 200) + 2):
        meter, wait = taking(bucket, {"b": 1}, FOREVER)(meter, now)
        times.append(now + wait)
    for first, at in enumerate(times):
        assert sum(one < at + 60 - 1e-6 for one in times[first:]) <= most


def test_what_is_larger_than_a_bucket_takes_a_full_one_and_is_paid_off() -> None:
    bucket = {"b": Bucket(10, 1)}
    meter, wait = taking(bucket, {"b": 30}, FOREVER)(None, 0.0)
    assert wait == 0
    meter, wait = taking(bucket, {"b": 5}, FOREVER)(meter, 0.0)
    assert wait == 25
    assert taking(bucket, {"b": 5}, 29.0)(meter, 0.0) == (meter, 30.0), "nothing is taken for nothing"


def test_what_was_not_used_is_given_back_and_what_was_is_taken() -> None:
    bucket = {"b": Bucket(10, 1)}
    meter, _ = taking(bucket, {"b": 8}, FOREVER)(None, 0.0)
    for more, left in ((-3, 5), (7, -2), (-100, 10)):
        meter, _ = taking_after(bucket, {"b": more})(meter, 0.0)
        assert Fill.read(meter, bucket, 0.0).left == {"b": left}
    # A limit that came later begins full, and one that went is forgotten.
    assert Fill.read(meter, {"c": Bucket(4, 1)}, 0.0).left == {"c": 4}


@pytest.mark.parametrize("others", [1, 3, 10])
async def test_a_change_begins_again_where_another_process_was_quicker(others: int) -> None:
    class Slow(StoreOver):
        async def meter(
            self, name: str, held: bytes | None, wanted: bytes | None
        ) -> tuple[bytes | None, float]:
            await asyncio.sleep(0)
            return await super().meter(name, held, wanted)

    kept = MemoryStore()
    bucket = {"b": Bucket(100, 0.001)}
    takes = [change(Slow(kept), "m", taking(bucket, {"b": 1}, FOREVER)) for _ in range(others)]
    assert await asyncio.gather(*takes) == [0.0] * others
    there, now = await kept.meter("m", None, None)
    assert Fill.read(there, bucket, now).left["b"] == pytest.approx(100 - others, abs=0.1)
