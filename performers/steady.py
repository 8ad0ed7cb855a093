"""
The time of a process, which does not jump where a clock is set.

Theory of operation. A wall clock may be set by hours: by NTP, by a person, or when a virtual machine resumes.
No question may be denied by that.

1. The first reading of a clock is taken as it is.
2. From then on the seconds that pass are added, those of a suspended machine too.
3. Each later reading says how far the clock is ahead. The difference is made up by one second in a hundred at
   most, so time never goes back, and an hour takes four days.

So a process that has run for long comes to agree with a new one, which begins with the clock as it was set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import final

# Seconds of a difference that are made up in each second.
SLEW = 0.01

# Seconds between two readings of a clock, and how far it may be off before that is logged.
LOOK_EVERY, LOGGED_FROM = 60.0, 60.0

# Seconds since some moment. On Linux, the monotonic clock stands still while the machine is suspended.
elapsed: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic
)


@final
class SteadyTime:
    """
    The time of one clock, as all sessions of this process share it; *now* until the clock is first read.

    `SystemClock` computes with it.
    """

    def __init__(self, now: float) -> None:
        # A reading of `elapsed`, the time then, and how far the clock was ahead of it. Replaced as a whole,
        # since threads share it.
        self.anchor = (elapsed(), now, 0.0)
        # Whether the clock was read, and when it is to be read next, by `elapsed`.
        self.looked = False
        self.look_at = 0.0
        # Whether it was logged that the clock is off.
        self.logged = False


# The wall clock of this machine.
wall_time = SteadyTime(time.time())
