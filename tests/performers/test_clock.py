"""The clock and the log that a host gets where it brings none of its own."""

from __future__ import annotations

import sys
import time

import pytest
import structlog
from structlog.testing import capture_logs

from turnwheel.performers.base import SystemClock, logger, warn, warn_blocked


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


def test_nothing_is_logged_for_a_host_that_has_not_configured_structlog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)
    assert logger("s") is None
    warn("s", "a fault", ValueError("no"))
    warn_blocked("s", "a fault", {}, 2.0)


def test_a_warning_says_whose_it_is_what_it_is_about_and_how_long_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: True)
    with capture_logs() as lines:
        warn_blocked("s", "a fault", {"hook": "h"}, 1.23456)
    assert lines == [
        {"event": "a fault", "log_level": "warning", "session": "s", "hook": "h", "seconds": 1.235}
    ]
