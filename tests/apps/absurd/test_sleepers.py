"""Which turns of a tenant may ask for a place, and how long the others sleep."""

from __future__ import annotations

from hypothesis import given, strategies as st

from turnwheel.apps.absurd.sleepers import (
    FORGOTTEN_AFTER,
    GONE_AFTER,
    LONGEST,
    LONGEST_BUSY,
    LOOKS_A_SECOND,
    OFTEN_FOR,
    SHORTEST,
    BusyElsewhere,
    Sleepers,
)
from turnwheel.apps.hosts.tenant_bound import fits, tenant_of

NAMES = [f"{tenant}/a/{number}" for tenant in ("one", "two") for number in range(6)] + ["s", "t"]
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0, 1), st.booleans()), max_size=40)


@given(STEPS, st.integers(1, 3))
def test_those_that_have_waited_longest_ask_first_and_tenants_do_not_meet(
    steps: list[tuple[str, float, bool]], most: int
) -> None:
    sleepers, now = Sleepers(most), 0.0
    # The same, said plainly.
    waiting: dict[str, float] = {}
    for name, seconds, place in steps:
        now += seconds
        ahead = [each for each in waiting if tenant_of(each) == tenant_of(name)]
        for each in [each for each in ahead if waiting[each] + GONE_AFTER <= now and each != name]:
            del waiting[each]
            ahead.remove(each)
        rank = ahead.index(name) if name in ahead else len(ahead)
        assert sleepers.is_next(name, now) == (rank < most)
        if place and rank < most:
            sleepers.wake(name)
            waiting.pop(name, None)
        else:
            pause = sleepers.put_back(name, now)
            assert SHORTEST <= pause <= max(LONGEST, len(NAMES) / LOOKS_A_SECOND)
            waiting[name] = now + pause


@given(st.integers(1, 400), st.integers(1, 5))
def test_however_many_sleep_few_are_claimed_in_a_second(number: int, most: int) -> None:
    sleepers = Sleepers(most)
    pauses = [sleepers.put_back(f"one/a/{each}", 0.0) for each in range(number)]
    # Those in front ask often; of the others, each that is further behind does more rarely.
    assert pauses == sorted(pauses)
    within = sum(pause <= 1.0 for pause in pauses)
    assert within <= LOOKS_A_SECOND + most
    assert sleepers.put_back("two/a/s", 0.0) == SHORTEST


@given(st.floats(1.0, 10.0), st.integers(1, 4))
def test_a_turn_of_a_session_that_is_busy_for_an_hour_looks_tens_of_times(
    shortest: float, workers: int
) -> None:
    several = [BusyElsewhere(shortest) for _ in range(workers)]
    now, pauses = 0.0, list[float]()
    while now < 3_600.0:
        pauses.append(several[len(pauses) % workers].put_back("turn", now))
        # Whatever it waited for, it finds it not much later.
        assert shortest <= pauses[-1] <= max(shortest, min(LONGEST_BUSY, now / 8))
        now += pauses[-1]
    assert len(pauses) <= 130
    # That it waited is known for as long as it may sleep at others.
    assert several[0].put_back("turn", now + FORGOTTEN_AFTER / 2) == max(shortest, LONGEST_BUSY)


def test_a_turn_that_was_claimed_before_looks_often_for_a_while() -> None:
    busy, now, pauses = BusyElsewhere(2.0), 0.0, list[float]()
    while now < 3_600.0:
        pauses.append(busy.put_back("turn", now, again=True))
        now += pauses[-1]
    often = [pause for pause in pauses if pause == 2.0]
    assert len(often) == OFTEN_FOR / 2.0
    assert len(pauses) - len(often) < 80


@given(had=st.booleans())
def test_a_turn_that_had_its_session_or_stayed_away_looks_soon_again(*, had: bool) -> None:
    busy = BusyElsewhere(2.0)
    assert [busy.put_back("turn", now) for now in (0.0, 100.0, 700.0)] == [2.0, 12.5, 60.0]
    if had:
        busy.wake("turn")
    later = 701.0 if had else 700.0 + 60.0 + FORGOTTEN_AFTER + 1.0
    assert busy.put_back("turn", later) == 2.0


@given(st.lists(st.sampled_from(NAMES)), st.sampled_from(NAMES), st.integers(1, 4))
def test_a_session_fits_where_fewer_others_of_its_tenant_are_at_work(
    at_work: list[str], session: str, most: int
) -> None:
    others = {name for name in at_work if name != session and tenant_of(name) == tenant_of(session)}
    assert fits(session, at_work, most) == (len(others) < most)
