"""
A provider's refusal for load, as all processes on one store remember it.

Theory of operation. It is a meter: until when nothing is sent, and behind that, how many requests may be out
over all processes. Each that is sent holds a permit until the provider has accepted it, and each that was
accepted makes room for one more. The permit of a process that is gone counts as accepted after a few seconds,
so it holds nothing up. A refusal is forgotten a minute behind its end.

A process looks at it while it remembers a refusal of its own. So a process that was never turned away asks no
store; it learns of another's refusal by being refused itself, once for what it has under way.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import NamedTuple, final

import attrs

from ..meters import MeterChange

# Seconds behind the end of a refusal in which it is remembered.
REMEMBERED = 60.0

# Seconds between two looks of a request that finds no room.
LOOK_AGAIN = 0.25

# Seconds after which a request counts as accepted: it is turned away at once, or for something else.
ACCEPTED_AFTER = 5.0

# Seconds that a request waits at least which must wait.
LEAST_WAIT = 0.001

# Requests that were accepted in a row, after which all may be sent.
MOST_PERMITS = 64


@final
@attrs.frozen(kw_only=True)
class SharedRefusal:
    """
    Nothing is sent from *since* to *until*, by the store's clock, after *times* refusals in a row.

    Then *room* requests may be *out*: the permits that are held, and when each was given.
    """

    since: float
    until: float
    times: int
    failure: str
    message: str
    room: int = 1
    out: Mapping[str, float] = attrs.Factory(dict)

    @classmethod
    def read(cls, meter: bytes | None, now: float) -> SharedRefusal | None:
        """That of *meter*, by *now*; None where there is none, or none any more."""
        if meter is None:
            return None
        found = cls(**json.loads(meter))
        # A clock that was set back would make it a long one. Those of two processes may differ a little.
        if not found.since - ACCEPTED_AFTER < now < found.until + REMEMBERED:
            return None
        out = {permit: at for permit, at in found.out.items() if now < at + ACCEPTED_AFTER}
        return attrs.evolve(found, room=found.room + len(found.out) - len(out), out=out)

    @property
    def meter(self) -> bytes:
        """As it is kept."""
        return json.dumps(attrs.asdict(self)).encode()


class Outlook(NamedTuple):
    """
    What a request is told: it may go, with a *permit* or without; or to *wait*, for a *refusal* or for room.
    """

    wait: float = 0.0
    permit: str = ""
    refusal: SharedRefusal | None = None


def closing(mine: SharedRefusal, wait: float) -> MeterChange[tuple[float, SharedRefusal]]:
    """The change that adds the refusal *mine*, for *wait* seconds; how long all wait, and the refusal."""

    def change(meter: bytes | None, now: float) -> tuple[bytes | None, tuple[float, SharedRefusal]]:
        there, new = SharedRefusal.read(meter, now), attrs.evolve(mine, since=now, until=now + wait)
        if there is not None and there.until > now and there.until >= new.until:
            return meter, (there.until - now, there)
        if there is not None:
            new = attrs.evolve(new, times=max(new.times, there.times))
        return new.meter, (wait, new)

    return change


def asking(permit: str, waited: float = -math.inf) -> MeterChange[Outlook]:
    """
    The change that takes *permit*, where one is needed and there is room.

    A refusal that ends at *waited* or before is over: its time has passed by the clock of the one who asks.
    """

    def change(meter: bytes | None, now: float) -> tuple[bytes | None, Outlook]:
        there = SharedRefusal.read(meter, now)
        if there is None or there.room > MOST_PERMITS:
            return meter, Outlook()
        if max(now, waited) < there.until:
            # No less than a clock can tell, or it would be asked for ever what has come of it by then.
            return meter, Outlook(max(there.until - now, LEAST_WAIT), refusal=there)
        if len(there.out) >= there.room:
            return meter, Outlook(LOOK_AGAIN)
        return attrs.evolve(there, out={**there.out, permit: now}).meter, Outlook(permit=permit)

    return change


def accepting(permit: str) -> MeterChange[None]:
    """The change that makes room for one more in the place of *permit*."""

    def change(meter: bytes | None, now: float) -> tuple[bytes | None, None]:
        there = SharedRefusal.read(meter, now)
        if there is None or permit not in there.out:
            return meter, None
        out = {other: at for other, at in there.out.items() if other != permit}
        return attrs.evolve(there, out=out, room=there.room + 1, times=0).meter, None

    return change
