"""The clock and the log that a host gets where it brings none of its own."""

from __future__ import annotations

import sys
import time

import pytest

from turnwheel.performers.base import SystemClock, logger


async def test_a_clock_sleeps_until_it_is_time_and_not_at_all_where_it_was() -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 1.0
    due = clock.now() + 0.02
    await clock.sleep_until(due)
    assert due <= clock.now() < due + 5.0
    await clock.sleep_until(due)
    await clock.sleep_until(clock.now() - 1_000.0)
    assert clock.now() < due + 5.0


def test_nothing_is_logged_for_a_host_that_has_not_imported_structlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "structlog", raising=False)
    assert logger("s") is None
