"""What a poller does and when, with timers that only a test lets run out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from provers.tasks import turns
from support.patience import PATIENCE
from support.plain_store import PlainStore

from turnwheel.effects.errors import StoreError
from turnwheel.engine.session.poller import ANY_SESSION, POLLERS, SOON, Poller, Waiter, renew, written
from turnwheel.performers.stores.base import Hear, Mark, Store
from turnwheel.testing.stores import StoreOver

PAUSE = 5.0


class Timer:
    """One that runs out at *due*."""

    def __init__(self, due: float, do: Callable[[], object]) -> None:
        self.due, self.do = due, do
        self.cancelled = self.over = False

    def when(self) -> float:
        return self.due

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """The event loop as a poller uses it; its time goes on only by `ring`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, do: Callable[[], object]) -> Timer:
        self.timers.append(Timer(self.now + seconds, do))
        return self.timers[-1]

    def call_soon_threadsafe(self, do: Callable[..., object], *arguments: object) -> None:
        do(*arguments)

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.ensure_future(work)

    @property
    def pending(self) -> list[float]:
        """The seconds until each timer that has not run out."""
        return [
            round(timer.due - self.now, 6) for timer in self.timers if not (timer.over or timer.cancelled)
        ]

    async def ring(self) -> None:
        """Let the one timer run out, and what it begins go as far as it goes."""
        [timer] = [timer for timer in self.timers if not (timer.over or timer.cancelled)]
        self.now, timer.over = timer.due, True
        timer.do()
        await turns(10)


class News(StoreOver):
    """A store whose news are *mark* and what was *found*; it *fails*, or waits until *going*."""

    def __init__(self) -> None:
        super().__init__()
        self.mark: Mark = (1,)
        self.found: list[str] = []
        self.asked: list[tuple[Sequence[str], object]] = []
        self.fails = False
        self.going = asyncio.Event()
        self.going.set()

    async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
        self.asked.append((sorted(sessions), since))
        if self.fails:
            msg = "the disk is away"
            raise StoreError(msg)
        await self.going.wait()
        return self.mark, self.found

    async def lease(
        self, session: str, held: bytes | None, wanted: bytes | None, incarnation: str = ""
    ) -> bytes | None:
        assert (session, held, incarnation) == ("a", b"old", "")
        return wanted

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        return await Store.renew(self, renewals)


class Calls(News):
    """One that calls, too; *refuses* to, where it is away."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Hear] = []
        self.refuses = False

    def on_news(self, hear: Hear) -> Callable[[], None]:
        if self.refuses:
            msg = "the disk is away"
            raise StoreError(msg)
        self.heard.append(hear)
        return lambda: self.heard.remove(hear)

    def call(self, *sessions: str) -> None:
        for hear in self.heard:
            hear(lambda name: name in sessions)


class Lease:
    """A lease as a poller uses it, which says what was *done* with it."""

    def __init__(self, session: str = "a", *, held: bool = False, due: bool = False) -> None:
        self.session, self.held, self.due = session, held, due
        self.done: list[str] = []

    @asynccontextmanager
    async def renewing(self, renewals: dict[str, tuple[bytes, bytes]]) -> AsyncGenerator[None, None]:
        renewals[self.session] = b"old", b"new"
        yield
        self.done.append("renewed" if self.session in renewals else "lost")

    async def keep(self) -> None:
        self.done.append("kept")

    async def release(self) -> None:
        self.done.append("released")


class Waits:
    """A session that waits, and how often it was *woken*."""

    def __init__(
        self, session: str = "a", *, lease: Any = None, works: bool = False, writer: object = None
    ) -> None:
        self.woken = 0
        self.waiter = Waiter(session, self.wake, lambda: writer, lease, lambda: works)

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
async def made(loop: Loop) -> AsyncIterator[Callable[[Any], Poller]]:
    """Makes a poller of a store; all that were made are left at the end."""
    pollers: list[Poller] = []

    def make(store: Any, pause: float = PAUSE) -> Poller:
        poller = Poller.of(store, pause)
        poller.loop = loop  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  # all that it uses
        pollers.append(poller)
        return poller

    yield make
    for poller in pollers:
        for each in [one for there in poller.waiting.values() for one in there]:
            await poller.leave(each)
    assert {id(poller.store) for poller in pollers}.isdisjoint(POLLERS)


Made = Callable[..., Poller]


# When it looks


async def test_one_timer_serves_all_that_wait_and_ends_with_the_last(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    poller.add(other.waiter)
    assert loop.pending == [PAUSE]
    for _ in range(2):
        await loop.ring()
        assert loop.pending == [PAUSE]
    assert store.asked == [(["a", "b"], None), (["a", "b"], (1,))]
    await poller.leave(one.waiter)
    assert loop.pending == [PAUSE]
    await poller.leave(other.waiter)
    assert loop.pending == []
    assert id(store) not in POLLERS
    # And again: the next one that comes begins anew.
    again = made(store)
    again.add(one.waiter)
    assert loop.pending == [PAUSE]


async def test_two_objects_of_one_session_wait_each_for_itself(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("a")
    poller.add(one.waiter)
    poller.add(other.waiter)
    await loop.ring()
    assert (one.woken, other.woken) == (1, 1)
    await poller.leave(one.waiter)
    store.found = ["a"]
    await loop.ring()
    assert (one.woken, other.woken) == (1, 2)


async def test_the_last_that_leaves_does_not_wait_for_a_store_that_hangs(loop: Loop, made: Made) -> None:
    store = News()
    poller, one = made(store), Waits("a")
    poller.add(one.waiter)
    store.going.clear()
    await loop.ring()
    assert POLLERS[id(store)] == [poller]
    async with asyncio.timeout(PATIENCE):
        await poller.leave(one.waiter)
    assert id(store) not in POLLERS
    assert loop.pending == []


async def test_one_that_comes_while_the_last_one_leaves_has_one_timer(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    store.going.clear()
    await loop.ring()
    leaving = asyncio.ensure_future(poller.leave(one.waiter))
    await asyncio.sleep(0)
    poller.add(other.waiter)
    await leaving
    assert loop.pending == [PAUSE]
    store.going.set()
    await loop.ring()
    assert other.woken == 1
    assert loop.pending == [PAUSE]


async def test_a_look_that_is_slow_is_the_only_one(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    store.going.clear()
    await loop.ring()
    poller.add(other.waiter)
    assert loop.pending == []
    store.going.set()
    await turns(10)
    assert loop.pending == [PAUSE]
    assert (one.woken, other.woken) == (1, 0)
    # What was written between its own look and its coming, the look under way may have missed.
    await loop.ring()
    assert (one.woken, other.woken) == (1, 1)


async def test_each_store_pause_and_event_loop_has_its_own_poller() -> None:
    store, other_store = News(), News()
    mine = Poller.of(store, PAUSE)

    async def of(store: Any, pause: float) -> Poller:
        return Poller.of(store, pause)

    assert await of(store, PAUSE) is mine
    others = [await of(store, PAUSE + 1), await of(other_store, PAUSE)]
    assert mine not in others
    assert await asyncio.to_thread(lambda: asyncio.run(of(store, PAUSE))) is not mine
    assert await of(store, PAUSE) is mine
    for poller in (mine, *others):
        poller.add((one := Waits()).waiter)
        await poller.leave(one.waiter)
    assert id(other_store) not in POLLERS
    # That of a loop which has ended.
    assert len(POLLERS.pop(id(store))) == 1


# Whom it wakes


async def test_those_are_woken_that_the_store_names(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    poller.add(other.waiter)
    # Each once for itself, since its own look may have been before.
    await loop.ring()
    assert (one.woken, other.woken) == (1, 1)
    await loop.ring()
    assert (one.woken, other.woken) == (1, 1)
    store.found = ["b", "left meanwhile"]
    await loop.ring()
    assert (one.woken, other.woken) == (1, 2)


async def test_one_that_waits_for_any_session_is_woken_when_the_mark_moves(loop: Loop, made: Made) -> None:
    store = News()
    poller, any_, one = made(store), Waits(ANY_SESSION), Waits("a")
    poller.add(any_.waiter)
    poller.add(one.waiter)
    await loop.ring()
    assert (any_.woken, one.woken) == (1, 1)
    await loop.ring()
    assert any_.woken == 1
    store.mark = (2,)
    await loop.ring()
    assert (any_.woken, one.woken) == (2, 1)
    assert store.asked == [(["a"], None), (["a"], (1,)), (["a"], (1,))]


async def test_one_that_could_not_read_is_woken_at_the_next_look_too(loop: Loop, made: Made) -> None:
    poller, one = made(News()), Waits("a")
    poller.add(one.waiter)
    await loop.ring()
    poller.look_again(one.waiter)
    await loop.ring()
    assert one.woken == 2
    await loop.ring()
    assert one.woken == 2


async def test_a_look_that_fails_loses_none_that_came(loop: Loop, made: Made) -> None:
    store = News()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    await loop.ring()
    poller.add(other.waiter)
    store.fails = True
    await loop.ring()
    assert (one.woken, other.woken) == (1, 0)
    assert loop.pending == [PAUSE]
    store.fails = False
    await loop.ring()
    assert (one.woken, other.woken) == (1, 1)
    # The mark is that of the latest look that did not fail.
    assert [since for _, since in store.asked] == [None, (1,), (1,)]


async def test_of_a_store_that_tells_no_news_all_are_woken_each_time(loop: Loop, made: Made) -> None:
    poller, one, other = made(PlainStore()), Waits("a"), Waits(ANY_SESSION)
    poller.add(one.waiter)
    poller.add(other.waiter)
    for number in (1, 2):
        await loop.ring()
        assert (one.woken, other.woken) == (number, number)


async def test_what_is_written_here_wakes_at_once_all_but_its_writer(loop: Loop, made: Made) -> None:
    store, writer = News(), object()
    poller, mine, other = made(store), Waits("a", writer=writer), Waits("a", writer=object())
    elsewhere = Waits("b")
    for one in (mine, other, elsewhere):
        poller.add(one.waiter)
    await loop.ring()
    written(id(store), "a", writer)
    assert (mine.woken, other.woken, elsewhere.woken) == (1, 2, 1)
    written(id(store), "c", writer)
    written(id(object()), "a", writer)
    assert (mine.woken, other.woken, elsewhere.woken) == (1, 2, 1)
    assert loop.pending == [PAUSE]


# Where the store calls


async def test_a_call_moves_the_look_up_once(loop: Loop, made: Made) -> None:
    store = Calls()
    poller, one = made(store), Waits("a")
    poller.add(one.waiter)
    poller.add(Waits("b").waiter)
    assert len(store.heard) == 1
    store.call("c")
    assert loop.pending == [PAUSE]
    store.call("c", "b")
    assert loop.pending == [SOON]
    timers = len(loop.timers)
    store.call("a")
    loop.now += SOON / 2
    store.call("a")
    assert len(loop.timers) == timers
    await loop.ring()
    # The calls were before the look.
    assert loop.pending == [PAUSE]
    await loop.ring()
    assert loop.pending == [PAUSE]


@pytest.mark.parametrize(("pause", "then"), [(PAUSE, SOON), (SOON / 2, SOON / 2)])
async def test_a_call_during_a_look_has_another_one_follow_it(
    loop: Loop, made: Made, pause: float, then: float
) -> None:
    store = Calls()
    poller, one = made(store, pause), Waits("a")
    poller.add(one.waiter)
    store.going.clear()
    await loop.ring()
    loop.now += SOON / 4
    store.call("a")
    assert loop.pending == []
    store.going.set()
    await turns(10)
    assert loop.pending == [then]
    await loop.ring()
    assert loop.pending == [pause]


async def test_the_store_calls_as_long_as_any_waits(loop: Loop, made: Made) -> None:
    store = Calls()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    poller.add(other.waiter)
    [hear] = store.heard
    await poller.leave(one.waiter)
    assert store.heard == [hear]
    await poller.leave(other.waiter)
    assert store.heard == []
    # A call that was under way.
    hear(lambda _: True)
    assert loop.pending == []
    poller.add(one.waiter)
    assert len(store.heard) == 1


async def test_a_store_that_is_away_is_asked_for_calls_by_the_next_that_comes(made: Made) -> None:
    store = Calls()
    store.refuses = True
    poller = made(store)
    poller.add(Waits("a").waiter)
    assert store.heard == []
    store.refuses = False
    poller.add(Waits("b").waiter)
    assert len(store.heard) == 1
    poller.add(Waits("c").waiter)
    assert len(store.heard) == 1


async def test_a_call_to_an_event_loop_that_was_closed_is_none() -> None:
    store = Calls()

    async def wait() -> None:
        Poller.of(store, PAUSE).add(Waits("a").waiter)

    await asyncio.to_thread(lambda: asyncio.run(wait()))
    store.call("a")
    del POLLERS[id(store)]


# Leases


@pytest.mark.parametrize(
    ("given", "works", "at_once", "by_the_look"),
    [
        ({"due": True}, True, ["kept"], ["kept"]),
        ({"due": True, "held": True}, True, ["kept"], ["renewed"]),
        ({"held": True}, True, [], []),
        ({"due": True, "held": True}, False, [], ["released"]),
        ({"held": True}, False, [], ["released"]),
        ({"due": True}, False, [], []),
    ],
)
async def test_a_lease_is_kept_while_its_session_works_and_given_up_when_it_does_not(
    loop: Loop, made: Made, given: dict[str, Any], works: object, at_once: list[str], by_the_look: list[str]
) -> None:
    lease = Lease(**given)
    poller = made(News())
    # One without a lease is no reason to pass over the others of its session.
    poller.add(Waits("a", works=bool(works)).waiter)
    poller.add(Waits("a", lease=lease, works=bool(works)).waiter)
    await turns(3)
    assert lease.done == at_once
    lease.done.clear()
    await loop.ring()
    assert lease.done == by_the_look


class Renews(News):
    """A store that renews leases together, but not those it *has* for others."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals: list[list[str]] = []
        self.has: list[str] = []

    async def renew(self, renewals: Mapping[str, tuple[bytes, bytes]]) -> Sequence[str]:
        self.renewals.append(sorted(renewals))
        if self.fails:
            msg = "the disk is away"
            raise StoreError(msg)
        return self.has


async def test_leases_that_are_held_are_renewed_together_and_others_each_by_itself() -> None:
    store = Renews()
    store.has = ["b"]
    leases: list[Any] = [Lease("a", held=True), Lease("b", held=True), Lease("c")]
    await renew(store, leases)
    assert store.renewals == [["a", "b"]]
    assert [lease.done for lease in leases] == [["renewed"], ["lost", "kept"], ["kept"]]


async def test_where_none_is_held_nothing_is_renewed() -> None:
    store = Renews()
    lease: Any = Lease("a")
    await renew(store, [lease])
    assert store.renewals == []
    assert lease.done == ["kept"]


async def test_leases_that_could_not_be_renewed_are_left_to_the_next_look() -> None:
    store = Renews()
    store.fails = True
    lease: Any = Lease("a", held=True)
    await renew(store, [lease])
    assert store.renewals == [["a"]]
    assert lease.done == []


# Bugs


async def test_a_look_that_broke_is_raised_by_the_last_that_leaves_and_no_other(
    loop: Loop, made: Made
) -> None:
    class Broken(News):
        async def news(self, sessions: Sequence[str], since: Mark | None) -> tuple[Mark, Sequence[str]]:
            msg = f"a bug: {sessions} {since}"
            raise RuntimeError(msg)

    store = Broken()
    poller, one, other = made(store), Waits("a"), Waits("b")
    poller.add(one.waiter)
    poller.add(other.waiter)
    await loop.ring()
    # It goes on all the same.
    assert loop.pending == [PAUSE]
    await poller.leave(one.waiter)
    with pytest.raises(RuntimeError, match="a bug"):
        await poller.leave(other.waiter)
    del POLLERS[id(store)]
