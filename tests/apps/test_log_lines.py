"""Warnings of the log on the screen of a run or a chat."""

from __future__ import annotations

import asyncio
import io
import logging

from turnwheel.apps.terminal.log_lines import log_lines
from turnwheel.apps.terminal.screen import Screen
from turnwheel.performers.logs import LOGGER, FaultLog, write

OUTSIDE, INSIDE = FaultLog(session="s", redact=str), FaultLog(session="s", run="r", redact=str)


async def test_a_warning_is_one_line_without_controls_and_what_notices_show_is_none() -> None:
    out = io.StringIO()
    with log_lines(Screen(out).line):
        OUTSIDE.report("no title", ValueError("a\x1b[31m\nb"))
        INSIDE.raised("a tool raised", ValueError("shown by a notice"), tool="look")
        OUTSIDE.raised("a hook raised", ValueError("at the end"), hook="leave")
        await asyncio.to_thread(OUTSIDE.failed, "from a thread")
        write(logging.INFO, "step", {})
        await asyncio.sleep(0)
    write(logging.WARNING, "behind the end", {})
    assert out.getvalue().splitlines() == [
        "no title: ValueError: a\\x1b[31m (session=s)",
        "a hook raised: ValueError: at the end (session=s, hook=leave)",
        "from a thread (session=s)",
    ]
    assert not [handler for handler in LOGGER.handlers if "Screen" in type(handler).__name__]
