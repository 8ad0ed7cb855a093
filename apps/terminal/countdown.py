"""Show waits: for the next try of a model call, or until a request may be sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from math import ceil

from ...effects.notices import RequestDelayed, RetryScheduled
from .call_summary import MINUTE, duration
from .notice_lines import StyledLine
from .sanitize import one_line
from .screen import Screen

MIN_SHOWN_DELAY = 1.0
"""Seconds of delay below which no line is shown."""

Countdown = RetryScheduled | RequestDelayed
"""Notices of a model call that waits until its `due`."""


def wait_lines(notice: Countdown, screen: Screen, room: int) -> Iterator[StyledLine]:
    """The reason and the length of a wait, on a line of *room* columns; no line if it is over or short."""
    left = notice.due - time.time()
    if isinstance(notice, RetryScheduled):
        cause, style, least = f"{notice.failure}: {notice.message}", "warning", 0.0
    else:
        cause, style, least = notice.reason, "dim", MIN_SHOWN_DELAY
    if left > least:
        then = f" {screen.middle} {_then(notice)} in {_left(left)}"
        if left >= MINUTE:
            then += time.strftime(", at %H:%M:%S", time.localtime(notice.due))
        yield one_line(cause, room - len(then)) + then, style


def countdown(notice: Countdown) -> Callable[[], str]:
    """A function that returns the remaining wait, and then what follows."""

    def text() -> str:
        left = notice.due - time.time()
        return f"{_then(notice)} in {_left(left)}" if left > 0 else _then(notice)

    return text


def _then(notice: Countdown) -> str:
    return f"try {notice.attempt}" if isinstance(notice, RetryScheduled) else "asked"


def _left(seconds: float) -> str:
    return duration(seconds) if seconds >= MINUTE else f"{ceil(seconds)} s"
