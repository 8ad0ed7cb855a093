"""The world as a player: thousands of runs, every promise at every step, every row of the table taken."""

from __future__ import annotations

import random
from typing import final

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from turnwheel.effects.events import Event, ModelStreamed
from turnwheel.engine.codec import decode, encode
from turnwheel.engine.machine import Machine
from turnwheel.states.rules.validity import history_faults
from turnwheel.states.state import State
from turnwheel.states.table import LEGAL
from turnwheel.testing import settings
from turnwheel.testing.choices import Seeded, chance, pick, weighted
from turnwheel.testing.player import Play, Player, PromiseBroken, Row, as_kept, play, replay

RUNS = 4_000
"""So many that each row is taken by several of them."""

BY_HAND = {
    ("thinking.start", "UserSent", "thinking.start"),
    ("thinking.prompt", "UserSent", "thinking.prompt"),
    ("thinking.go", "UserSent", "thinking.go"),
    ("thinking.end", "UserSent", "thinking.end"),
    ("compacting.weigh", "UserSent", "compacting.weigh"),
}
"""
A `Machine` that was set going passes through these states within one `advance`, so nothing comes meanwhile;
who steps by hand gets there, as `test_table` does.
"""


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    """Many runs, each of another seed; every promise was checked at every step of them."""
    return [play(seed) for seed in range(RUNS)]


def test_many_worlds_keep_every_promise_and_take_every_row(plays: list[Play]) -> None:
    """No run breaks a promise, all end, and together they take every row that a machine can take."""
    taken = {row for one in plays for row in one.rows}
    missing = {name(row) for row in LEGAL - taken}
    assert missing == BY_HAND


def name(row: Row) -> tuple[str, str, str]:
    """*row* in words."""
    state, event, target = row
    return state, event.__name__, target


def test_runs_are_of_all_kinds(plays: list[Play]) -> None:
    """The player is no monoculture: runs end for every reason there is, and some are long."""
    reasons = {getattr(one.end.state, "reason", None) for one in plays}
    assert {str(reason) for reason in reasons} >= {
        "end_turn",
        "stop_sequence",
        "max_tokens",
        "max_turns",
        "token_budget",
        "max_budget",
        "time_budget",
        "interrupted",
        "error",
    }
    assert max(len(one.journal) for one in plays) > 40


def test_the_same_seed_is_the_same_run() -> None:
    """Settings, events, states, effects and rows: all of it."""
    for seed in range(100):
        assert play(seed) == play(seed)


def test_a_replay_is_the_run(plays: list[Play]) -> None:
    """The events that were applied, and nothing else, lead to the same end with the same account."""
    for one in plays[:1_000]:
        assert replay(one.began, one.journal) == one.end


def test_what_was_ignored_was_not_needed(plays: list[Play]) -> None:
    """The journal holds no event that did not apply: on replay each has effects or changes the state."""
    for one in plays[:300]:
        machine = Machine(one.began.config, one.began.state, one.began.memory)
        assert [machine.state for _ in [machine.advance()]] + after(machine, one.journal) == one.states


def after(machine: Machine, journal: list[Event]) -> list[State]:
    """The states in which *machine* rests after each event of *journal*."""
    states: list[State] = []
    for event in journal:
        machine.advance(event)
        states.append(machine.state)
    return states


def test_a_stream_folds_the_same_however_it_is_cut(plays: list[Play]) -> None:
    """With each stream's pieces merged into one event, all states in between and the end are the same."""
    merged_any = False
    for one in plays[:1_000]:
        journal = as_kept(one.journal)
        merged_any = merged_any or len(journal) < len(one.journal)
        machine = Machine(one.began.config, one.began.state, one.began.memory)
        machine.advance()
        merged = after(machine, journal)
        live = one.states[1:]
        assert rests(journal, merged) == rests(one.journal, live)
        assert machine == one.end
    assert merged_any


def rests(journal: list[Event], states: list[State]) -> list[State]:
    """Those of *states* that did not follow a piece of a stream."""
    return [
        state for event, state in zip(journal, states, strict=True) if not isinstance(event, ModelStreamed)
    ]


def test_throwing_the_machine_away_after_every_step_changes_nothing() -> None:
    """A machine that is rebuilt from its journal before each move plays the same run."""
    for seed in range(150):
        assert play(seed, replay) == play(seed)


def from_bytes(began: Machine, journal: list[Event]) -> Machine:
    """The machine that *journal* leads to when it was written down as bytes, merged, and read again."""
    written = [encode(event, Event) for event in as_kept(journal)]
    return replay(began, [decode(data, Event) for data in written])


def test_throwing_the_machine_away_and_reading_its_journal_changes_nothing() -> None:
    """As above, with the journal written down as bytes and read again."""
    for seed in range(150, 220):
        assert play(seed, from_bytes) == play(seed)


def test_a_broken_promise_is_told_as_a_script() -> None:
    """Who is told that a run went wrong gets a test to paste, and it is Python."""
    one = next(one for one in map(play, range(100)) if len(one.journal) > 5)
    told = str(PromiseBroken(["something is wrong"], one.began, one.journal))
    assert told.startswith("something is wrong\n")
    compile(told.partition("\n")[2], "told", "exec")


def test_a_rebuilt_machine_that_differs_is_found() -> None:
    """The mode that throws the machine away can fail: a rebuild that forgets the last event is noticed."""
    with pytest.raises(PromiseBroken, match="rebuilt it is"):
        play(1, lambda began, journal: replay(began, journal[:-1]))


def test_a_second_run_goes_on_where_the_first_one_ended(plays: list[Play]) -> None:
    """However a run ended, the next one can begin over its history, which stays as it is."""
    for seed, one in enumerate(plays[:500]):
        before = one.end.memory.history
        machine = Machine.start(settings.config(Seeded(seed)), "go on", run="r2", history=before)
        again = Player(Seeded(seed), machine=machine).play()
        assert (again.end.done, history_faults(before)) == (True, [])


# The same player, driven by Hypothesis, which makes what it finds short


@final
class Drawn:
    """Decisions that Hypothesis makes, and takes back one by one when something was found."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, bound: int) -> int:
        """A number from 0 to *bound* - 1."""
        return self._data.draw(st.integers(0, bound - 1)) if bound > 1 else 0


@hypothesis.settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_a_world_that_shrinks_keeps_every_promise(data: st.DataObject) -> None:
    """What a seed finds in a long run, this finds in a short one."""
    Player(Drawn(data)).play()


# The source of decisions


def test_weights_are_followed() -> None:
    """An option of weight nothing is never taken, the others are about as often as they weigh."""
    choices = Seeded(1)
    drawn = [weighted(choices, {"often": 90, "never": 0, "rarely": 10}) for _ in range(1_000)]
    assert drawn.count("never") == 0
    assert 50 < drawn.count("rarely") < 200


def test_the_first_option_is_the_simplest() -> None:
    """Where a shrinking source always says nought, the first option is taken and nothing unlikely happens."""

    class Nought:
        def below(self, bound: int) -> int:
            return 0 * bound

    assert weighted(Nought(), {"first": 1, "second": 1_000}) == "first"
    assert pick(Nought(), ("first", "second")) == "first"
    assert not chance(Nought(), 99)


def test_a_seed_does_not_touch_anybody_elses_randomness() -> None:
    """A player draws from its own source only."""
    state = random.getstate()
    play(3)
    assert random.getstate() == state
