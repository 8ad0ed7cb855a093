"""The helper that steps a machine in the words of a test says what is wrong with the test."""

from __future__ import annotations

from typing import Any

import pytest

from turnwheel.effects.config import Loops
from turnwheel.effects.events import Approve, Failure
from turnwheel.effects.requests import SetTimer
from turnwheel.engine.core.machine import Machine
from turnwheel.testing.harness import MachineHarness, call, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at


@pytest.mark.parametrize(
    ("deed", "given", "said"),
    [
        ("end", ["write"], "no call of 'write' is in the phase Running in"),
        ("report", ["send"], "no call of 'send' is in the phase RunningChild in"),
        ("decide", ["look", Approve()], "no call of 'look' is in the phase Asked in"),
        ("cancel", ["look"], "no call of 'look' is under way in"),
        ("expire", ["write"], "the question about 'write' waits for ever in"),
        ("answer", [], "no hook is asked about 'anything' in"),
    ],
)
def test_what_is_not_there_is_named(deed: str, given: list[Any], said: str) -> None:
    run = MachineHarness()
    run.say(*calls("write"))
    with pytest.raises(LookupError, match=f"{said} <Machine 'r': confirming"):
        getattr(run, deed)(*given)
    with pytest.raises(LookupError, match="no hook is asked about 'write' in"):
        run.answer(tool="write")


def test_a_machine_that_was_made_otherwise_can_be_stepped_too() -> None:
    run = MachineHarness(Machine.start(config(), "hello", run="mine"))
    assert (run.label, run.machine.state.open) == ("streaming", ("mine-1",))


def test_a_timer_fires_when_it_is_due() -> None:
    run = MachineHarness()
    run.fail(Failure.SERVER)
    (timer,) = run.got(SetTimer)
    run.wake()
    assert (run.now, run.label) == (timer.due, "streaming")


def test_tools_do_their_work() -> None:
    run = MachineHarness(config(loops=Loops.never()))
    run.work(call(0, "look", path="a"), call(1, "note", path="b"), content="seen", times=3)
    assert run.results == [("look", "ok", "seen"), ("note", "ok", "seen")] * 3
    assert run.label == "streaming"


def test_rows_are_the_ways_that_the_last_event_led() -> None:
    run = MachineHarness()
    assert [target for _, _, target in run.rows] == ["thinking.prompt", "thinking.go", "streaming"]
    run.say("done")
    assert [target for _, _, target in run.rows] == ["thinking.end", "done"]
    run.interrupt()
    assert run.rows == []


@pytest.mark.parametrize("place", PLACES)
def test_a_place_is_what_it_is_called(place: str) -> None:
    assert run_at(place).label == place.partition(",")[0]
    assert run_at(place).machine == run_at(place).machine
