"""The world as a player: thousands of runs, every promise at every step, every row of the table taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, final

import hypothesis
import pytest
from hypothesis import HealthCheck, given, strategies as st

from provers.audit.settings import branched_faults, gone_back
from provers.choices import (
    Seeded,
    chance,
    pick,
    weighted,
)
from provers.simulation.absorbing import absorbed_faults
from provers.simulation.player import Play, Player, play
from provers.simulation.story import Claim, told
from provers.simulation.watched import (
    PromiseBroken,
    Row,
    as_kept,
    copied,
    happen,
    replay,
)
from provers.steps import Happening, restore_from_snapshot
from turnwheel.diagrams import hierarchical_machine
from turnwheel.effects import Effect
from turnwheel.effects.config import Config
from turnwheel.effects.events import (
    Event,
    Interrupted,
    ModelStreamed,
)
from turnwheel.effects.notices import (
    CallSettled,
    Compacted,
    CompactionFailed,
    FallbackUsed,
    LoopDetected,
    LoopStage,
    ResultsCleared,
)
from turnwheel.effects.records import AddUsage
from turnwheel.effects.requests import CallModel, Purpose, RunAgent
from turnwheel.engine.core.codec import decode, encode
from turnwheel.engine.core.machine import Machine
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.state import State
from turnwheel.states.table import LEGAL, WELCOME

# One process runs the module, since its fixture searches for minutes. Alone it takes a tenth of the timeout.
pytestmark = [pytest.mark.prover, pytest.mark.xdist_group("player"), pytest.mark.timeout(900)]

RUNS = 1_500
"""So many runs, at least."""

MOST = 8_000
"""So many, at most, until every row is taken; mostly no more than `RUNS` are needed."""

PASSED = (
    "thinking.start",
    "thinking.prompt",
    "thinking.steer",
    "thinking.go",
    "thinking.checking",
    "thinking.end",
    "compacting.weigh",
)
"""
A machine that was set going passes through these states within one `advance`, so nothing comes meanwhile; who
steps by hand gets there, as `test_rows` does.
"""

REACHABLE: frozenset[Row] = frozenset(row for row in LEGAL if row[0] not in PASSED or row[1] not in WELCOME)


@pytest.fixture(scope="module")
def plays() -> list[Play]:
    """Many runs, each of another seed; every promise was checked at every step of them."""
    played: list[Play] = []
    missing = set(REACHABLE)
    while len(played) < RUNS or (missing and len(played) < MOST):
        played.append(play(len(played)))
        missing -= played[-1].rows
    return played


def test_many_worlds_keep_every_promise_and_take_every_row(plays: list[Play]) -> None:
    """No run breaks a promise, all end, and together they take every row that a machine can take."""
    taken = frozenset(row for one in plays for row in one.rows)
    assert {name(row) for row in REACHABLE - taken} == set()
    assert taken <= REACHABLE


def test_a_second_executor_of_the_table_takes_the_same_steps(plays: list[Play]) -> None:
    """The library `transitions` runs the table, too: each step is a trigger there, to the same target."""
    machine = hierarchical_machine()
    for one in plays[: RUNS // 5]:
        machine.set_state(one.path[0][0])
        for state, event, target in one.path:
            assert machine.state == state
            assert machine.trigger(event.__name__, target=target), (state, event, target)
        assert machine.state == one.end.state.label


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
        "blocked",
        "loop_detected",
        "error",
    }
    assert max(len(one.journal) for one in plays) > 40


HAPPENS: dict[str, Callable[[Effect], bool]] = {
    "another model takes over": lambda effect: isinstance(effect, FallbackUsed),
    "a model is warned": lambda effect: _is_stage(effect, LoopStage.WARNED),
    "a tool is taken away": lambda effect: _is_stage(effect, LoopStage.WITHDRAWN),
    "a model is stopped": lambda effect: _is_stage(effect, LoopStage.STOPPED),
    "results are left out": lambda effect: isinstance(effect, ResultsCleared),
    "a conversation is summarised": lambda effect: isinstance(effect, Compacted),
    "a summary is tried again": lambda effect: (
        isinstance(effect, CallModel) and effect.purpose is Purpose.SUMMARY and effect.attempt > 1
    ),
    "a summary is given up": lambda effect: isinstance(effect, CompactionFailed),
    "a result is cut": lambda effect: isinstance(effect, CallSettled) and len(effect.content) > 400,
    "a child is refused": lambda effect: isinstance(effect, CallSettled) and "aside" in effect.content,
    "a child gets less than it wants": lambda effect: (
        isinstance(effect, RunAgent) and effect.limits.tokens not in {None, 100_000, 300, 400}
    ),
    "money is spent": lambda effect: isinstance(effect, AddUsage) and effect.spent.cost > 0,
    "no price is known": lambda effect: isinstance(effect, AddUsage) and effect.spent.unpriced > 0,
}
"""What keeps a long run going."""


def _is_stage(effect: Effect, stage: LoopStage) -> bool:
    return isinstance(effect, LoopDetected) and effect.stage is stage


@pytest.mark.parametrize("what", HAPPENS)
def test_what_keeps_a_long_run_going_happens(plays: list[Play], what: str) -> None:
    """What is promised of it is no promise about nothing: each happens in several runs."""
    runs = [one for one in plays if any(map(HAPPENS[what], one.effects))]
    assert len(runs) > 3


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
        machine = copied(one.began)
        assert [machine.state for _ in [machine.advance()]] + after(machine, one.journal) == one.states


def after(machine: Machine, journal: list[Happening]) -> list[State]:
    """The states in which *machine* rests after each entry of *journal*."""
    states: list[State] = []
    for what in journal:
        happen(machine, what)
        states.append(machine.state)
    return states


def test_settings_change_in_the_middle_of_runs(plays: list[Play]) -> None:
    """Some runs are gone on with under other settings, at many moments."""
    changed = [
        state.label
        for one in plays
        for what, state in zip(one.journal, one.states[1:], strict=True)
        if isinstance(what, Config)
    ]
    assert len(changed) > 100
    assert len(set(changed)) > 10


def test_a_stream_folds_the_same_however_it_is_cut(plays: list[Play]) -> None:
    """With each stream's pieces merged into one event, all states in between and the end are the same."""
    merged_any = False
    for one in plays[:1_000]:
        journal = as_kept(one.journal)
        merged_any = merged_any or len(journal) < len(one.journal)
        machine = copied(one.began)
        machine.advance()
        merged = after(machine, journal)
        live = one.states[1:]
        assert rests(journal, merged) == rests(one.journal, live)
        assert machine == one.end
    assert merged_any


def rests(journal: list[Happening], states: list[State]) -> list[State]:
    """Those of *states* that did not follow a piece of a stream."""
    return [state for what, state in zip(journal, states, strict=True) if not isinstance(what, ModelStreamed)]


def test_throwing_the_machine_away_after_every_step_changes_nothing() -> None:
    """A machine that is rebuilt from its journal before each move plays the same run."""
    for seed in range(150):
        assert play(seed, replay) == play(seed)


def from_bytes(began: Machine, journal: list[Happening]) -> Machine:
    """The machine that *journal* leads to, when both were written down as bytes and read again."""
    written = [(type(what), encode(what, kind(what))) for what in as_kept(journal)]
    again = replay(began, [decode(data, Config if kind is Config else Event) for kind, data in written])
    return restore_from_snapshot(again)


def kind(what: Happening) -> object:
    """As what *what* is written down."""
    return Config if isinstance(what, Config) else Event


def test_throwing_the_machine_away_and_reading_its_journal_changes_nothing() -> None:
    """As above, with the journal and the machine written down as bytes and read again."""
    for seed in range(150, 220):
        assert play(seed, from_bytes) == play(seed)


def test_a_broken_promise_is_told_as_a_script(plays: list[Play]) -> None:
    """Who is told that a run went wrong gets a test to paste, and what it does is that run."""
    for one in plays[:200]:
        text = str(PromiseBroken(["something is wrong"], one.began, one.journal))
        script = told(one.began, one.journal)
        assert text == f"# something is wrong\n\n{script}"
        names: dict[str, Any] = {}
        exec(f"{script}\n    return run.machine", names)  # noqa: S102  # it is ours, made above
        assert names["test_found"]() == one.end


def test_what_a_script_finds_at_its_end_is_told_too() -> None:
    """What is wrong with where a run is, and not with how it got there, is looked for at the end."""
    one = play(1)
    claim = Claim(absorbed_faults, (Interrupted(at=1.0),))
    script = told(one.began, one.journal, claim)
    assert script.endswith("    assert absorbed_faults(run, Interrupted(at=1.0)) == []")
    names: dict[str, Any] = {}
    exec(f"{script}\n    return run.machine", names)  # noqa: S102  # it is ours, made above
    assert names["test_found"]() == one.end


def test_a_rebuilt_machine_that_differs_is_found() -> None:
    """The mode that throws the machine away can fail: a rebuild that forgets the last event is noticed."""
    with pytest.raises(PromiseBroken, match="rebuilt it is"):
        play(1, lambda began, journal: replay(began, journal[:-1]))


def test_a_second_run_goes_on_where_the_first_one_ended(plays: list[Play]) -> None:
    """However a run ended, the next one begins over what it left, which stays as it is."""
    for seed, one in enumerate(plays[:500]):
        before = copied(one.end)
        again = Player(Seeded(seed), before=one.end, run="r2").play()
        assert (again.end.done, one.end, history_faults(before.memory.history)) == (True, before, [])


def test_a_session_can_go_back_to_where_a_run_ended(plays: list[Play]) -> None:
    """What was said since is not there any more; what was spent and settled is."""
    for seed, one in enumerate(plays[:100]):
        later = Player(Seeded(seed), before=one.end, run="r2").play().end
        for then in (None, one.end, later):
            back = gone_back(later, then)
            assert branched_faults(later, then, back) == []
            third = Player(Seeded(seed + 1), before=back, run="r3").play().end
            total = later.memory.earlier + later.memory.spent + third.memory.spent
            assert third.memory.earlier + third.memory.spent == total


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
