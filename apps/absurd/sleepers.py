"""
How long turns sleep in the queue: those for which their tenant has no place, and those of busy sessions.

Theory of operation. Absurd gives turns in the order in which they are due, and promises no other. So the
order of a tenant's own turns is kept here, for one worker: those that have waited longest ask for a place,
and all others sleep on without asking. The further behind a turn is, the longer it sleeps, and the longer it
has waited: however many sleep, few are claimed in a second, and turns of other tenants do not come behind
them.

A turn whose session is at work elsewhere looks again ever more rarely, too: each look reads the journal and
leaves a row of the queue for as long as the turn is there.
"""

from __future__ import annotations

from typing import final

import attrs

from ..hosts.tenant_bound import tenant_of

# Seconds that a turn sleeps at least, and at most for having waited long.
SHORTEST, LONGEST = 0.25, 10.0

# For having waited, it sleeps this part of that time.
OF_WAITED = 1 / 8

# How many turns that only look where they stand do so in a second.
LOOKS_A_SECOND = 20

# Seconds that a turn sleeps at most whose session is at work elsewhere, and those after which it is forgotten
# that it waited: other workers may have had it meanwhile, again and again.
LONGEST_BUSY, FORGOTTEN_AFTER = 60.0, 600.0

# Seconds for which a turn looks often that was claimed before: it may have to follow a worker that lost it.
OFTEN_FOR = 120.0

# A turn that was due so many seconds ago, and did not come back, is another worker's.
GONE_AFTER = 2.0


@final
@attrs.frozen
class Sleeper:
    """A turn that waits *since* then and looks again when it is *due*, both by the monotonic clock."""

    since: float
    due: float


@final
@attrs.define(eq=False)
class Sleepers:
    """The sleeping turns of each tenant, by session, those that came first in front; *most* have places."""

    most: int | None
    _asleep: dict[str, dict[str, Sleeper]] = attrs.field(factory=dict, init=False)

    def _ahead(self, session: str, now: float) -> int:
        """How many turns of its tenant have waited longer than that of *session*."""
        tenant = tenant_of(session)
        there = self._asleep.get(tenant, {})
        kept = {name: one for name, one in there.items() if one.due + GONE_AFTER > now or name == session}
        self._asleep[tenant] = kept
        return [*kept, session].index(session)

    def is_next(self, session: str, now: float) -> bool:
        """Whether a turn of *session* is among those that may ask for a place of their tenant."""
        return self.most is None or self._ahead(session, now) < self.most

    def put_back(self, session: str, now: float) -> float:
        """Have a turn of *session* sleep; for how many seconds."""
        behind = self._ahead(session, now) - (self.most or 0) + 1
        there = self._asleep[tenant_of(session)]
        since = there[session].since if session in there else now
        pause = max(SHORTEST, min(LONGEST, (now - since) * OF_WAITED), behind / LOOKS_A_SECOND)
        there[session] = Sleeper(since, now + pause)
        return pause

    def wake(self, session: str) -> None:
        """A turn of *session* has its place."""
        tenant = tenant_of(session)
        there = self._asleep.get(tenant, {})
        there.pop(session, None)
        if not there:
            self._asleep.pop(tenant, None)


@final
@attrs.define(eq=False)
class BusyElsewhere:
    """The turns that found their session at work elsewhere: each sleeps *shortest* seconds at first."""

    shortest: float
    # By turn, those that were put back last at the end.
    _asleep: dict[str, Sleeper] = attrs.field(factory=dict, init=False)

    def put_back(self, turn: str, now: float, *, again: bool = False) -> float:
        """Have *turn* sleep, which was claimed before where it comes *again*; for how many seconds."""
        while self._asleep and (first := next(iter(self._asleep.items())))[1].due + FORGOTTEN_AFTER < now:
            del self._asleep[first[0]]
        before = self._asleep.pop(turn, None)
        since = now if before is None else before.since
        pause = max(self.shortest, min(LONGEST_BUSY, (now - since) * OF_WAITED))
        if again and now - since < OFTEN_FOR:
            pause = self.shortest
        self._asleep[turn] = Sleeper(since, now + pause)
        return pause

    def wake(self, turn: str) -> None:
        """*turn* has its session."""
        self._asleep.pop(turn, None)
