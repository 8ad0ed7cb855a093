"""The clock that a host gets where it brings none of its own."""

from __future__ import annotations

import time

from turnwheel.performers.base import SystemClock


async def test_a_clock_sleeps_until_it_is_time_and_not_at_all_where_it_was() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 1.0
    due = clock.now() + 0.02
    await clock.sleep_until(due)
    assert due <= clock.now() < due + 5.0
    await clock.sleep_until(due)
    await clock.sleep_until(clock.now() - 1_000.0)
    assert clock.now() < due + 5.0
