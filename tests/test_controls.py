"""What a person can change while a run is under way: the model, the mode, how much it may think."""

from __future__ import annotations

from decimal import Decimal

import attrs
import pytest

from turnwheel.effects.config import Config, Limits, ModelSpec, Price
from turnwheel.effects.events import ControlReceived, Failure, UserSent
from turnwheel.effects.notices import Ignored, SettingChanged, SettingRefused
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.pieces import TextPiece
from turnwheel.effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from turnwheel.effects.requests import CallModel, SetTimer
from turnwheel.effects.usage import Usage
from turnwheel.engine.journal.entries import RunOpened
from turnwheel.engine.machine import Machine
from turnwheel.testing.harness import MachineHarness, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

OTHER = SetModel(model="wire:other")
CHEAP = ModelSpec(name="wire:model", price=Price(input="1", output="1"))
DEAR = ModelSpec(name="wire:other", price=Price(input="100", output="100"), window=50, thinking=4_000)
MILLION = Usage(input=600_000, output=400_000)

each_change = pytest.mark.parametrize(
    "change",
    [OTHER, SetMode(mode=PermissionMode.BYPASS), SetThinking(tokens=2_000), SetThinking(tokens=None)],
)


def priced(limits: Limits = Limits()) -> Config:  # noqa: B008  # a frozen value
    """Settings with a cheap model and a dear one to switch to."""
    return config(model=CHEAP, models=(DEAR,), limits=limits)


# Anywhere


@each_change
@pytest.mark.parametrize("place", [place for place in PLACES if place != "done"])
def test_a_setting_can_be_changed_wherever_a_run_is(place: str, change: Change) -> None:
    """It holds at once, moves nothing, answers nothing and asks nothing; the same post again is ignored."""
    run = run_at(place)
    state, history = run.machine.state, run.machine.memory.history
    event = ControlReceived(at=50.0, id="c", change=change)
    run.feed(event)
    assert run.effects == (change, SettingChanged(change=change))
    assert run.machine.state == state
    assert run.machine.memory.history is history
    memory = run.machine.memory
    held = {
        SetModel: memory.session.model,
        SetMode: memory.session.mode,
        SetThinking: memory.session.thinking,
    }[type(change)]
    assert held == {SetModel: "wire:other", SetMode: PermissionMode.BYPASS, SetThinking: change}[type(change)]
    run.feed(event)
    assert run.got(Ignored) == [Ignored(event="ControlReceived", state=run.label)]


def test_nothing_is_changed_in_a_run_that_is_over() -> None:
    """It is for the session to pass on to the next one."""
    run = run_at("done")
    memory = run.machine.memory
    run.change(OTHER)
    assert run.effects == (Ignored(event="ControlReceived", state="done"),)
    assert run.machine.memory is memory


def test_what_was_changed_holds_in_the_runs_that_follow() -> None:
    """For the session, also where it is set up anew; what nobody changed is as it is configured."""
    run = MachineHarness(config())
    run.change(OTHER)
    run.change(SetThinking(tokens=2_000))
    run.say("done")
    anew = config(models=(DEAR,), system="You help.")
    opened = RunOpened(at=100.0, run="r2", config=anew)
    again = MachineHarness(Machine.open(opened, run.machine, [UserSent(at=100.0, id="s", text="again")]))
    (request,) = again.got(CallModel)
    assert (request.model, request.thinking, request.system) == ("wire:other", 2_000, "You help.")
    assert again.machine.memory.session.mode is PermissionMode.DEFAULT


# The model


def test_the_next_call_is_of_the_model_that_was_chosen() -> None:
    """The answer that is under way is not disturbed, and the history says who said what."""
    run = MachineHarness(priced())
    run.stream(TextPiece("let me "))
    run.change(OTHER)
    run.say("see", *calls("note"))
    run.end("note")
    assert [request.model for request in run.got(CallModel)] == ["wire:other"]
    run.say("done")
    assert [message.model for message in run.machine.memory.history] == ["", "wire:model", "", "wire:other"]


def test_an_answer_has_the_price_of_the_model_that_gave_it() -> None:
    """Whichever is chosen by the time it ends: the account is what the providers will bill."""
    run = MachineHarness(priced())
    run.change(OTHER)
    run.say(*calls("note"), usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(1)
    run.end("note")
    run.change(SetModel(model="wire:model"))
    run.fail(Failure.AUTH, usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(101)


def test_an_answer_that_was_cut_has_the_price_of_the_model_that_gave_it() -> None:
    """An interrupt makes it no cheaper and no dearer."""
    run = MachineHarness(priced())
    run.change(OTHER)
    run.interrupt()
    run.fail(Failure.CANCELLED, usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(1)


def test_a_summary_has_the_price_of_the_model_that_wrote_it() -> None:
    """It was asked for before another was chosen."""
    narrow = attrs.evolve(CHEAP, window=1_000)
    run = MachineHarness(config(model=narrow, models=(DEAR,)), "do it " * 200)
    run.say(*calls("note"), usage=Usage(input=900))
    run.end("note")
    assert run.label == "compacting.summary"
    before = run.machine.memory.spent.cost
    run.change(OTHER)
    run.say("short", usage=MILLION)
    assert run.machine.memory.spent.cost - before == Decimal(1)


def test_another_attempt_is_made_with_the_model_that_was_chosen_meanwhile() -> None:
    """Where one fails a person may want another."""
    run = MachineHarness(priced())
    run.fail(Failure.OVERLOADED)
    (timer,) = run.got(SetTimer)
    run.change(OTHER)
    run.wake(timer.due)
    (request,) = run.got(CallModel)
    assert (request.model, request.attempt) == ("wire:other", 2)


def test_the_window_is_that_of_the_model_that_was_chosen() -> None:
    """A conversation that fitted the one before may be too long for it, and is shortened first."""
    run = MachineHarness(priced(), "do it " * 100)
    run.say(*calls("note"))
    run.change(OTHER)
    run.end("note", "much to read " * 20)
    (request,) = run.got(CallModel)
    assert (run.label, request.model) == ("compacting.summary", "wire:other")


def test_a_model_that_is_not_configured_is_called_all_the_same() -> None:
    """As the first one is, and at no known price."""
    run = MachineHarness(priced())
    run.change(SetModel(model="wire:unheard-of"))
    run.say(*calls("note"), usage=MILLION)
    run.end("note")
    assert [request.model for request in run.got(CallModel)] == ["wire:unheard-of"]
    run.say("done", usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(1)


@pytest.mark.parametrize(
    ("limits", "change", "why"),
    [
        (
            Limits(usd=5),
            SetModel(model="wire:unheard-of"),
            "the limit in USD needs a price for 'wire:unheard-of': configure it among the models",
        ),
        (Limits(), SetModel(model=" "), "a model has a name"),
        (
            Limits(),
            SetThinking(tokens=0),
            "a budget to think is a number of tokens above 0, or None; got 0",
        ),
        (
            Limits(),
            SetThinking(tokens=-1),
            "a budget to think is a number of tokens above 0, or None; got -1",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused_and_stays(limits: Limits, change: Change, why: str) -> None:
    """It says why; a limit in money cannot be kept where nobody knows a price."""
    run = MachineHarness(priced(limits))
    before = run.machine.memory
    run.change(change)
    assert run.effects == (SettingRefused(change=change, reason=why),)
    assert (run.machine.memory.session.model, run.machine.memory.session.thinking) == (
        before.session.model,
        before.session.thinking,
    )
    run.say(*calls("note"))
    run.end("note")
    (request,) = run.got(CallModel)
    assert (request.model, request.thinking) == ("wire:model", None)


def test_under_a_limit_in_money_a_model_with_a_price_can_be_chosen() -> None:
    """And what it costs counts against the limit."""
    run = MachineHarness(priced(Limits(usd=50)))
    run.change(OTHER)
    run.say(*calls("note"))
    run.end("note")
    assert [request.model for request in run.got(CallModel)] == ["wire:other"]
    run.say(*calls("note"), usage=MILLION)
    assert (run.outcomes[-1], run.reason) == (("note", "cancelled"), "max_budget")


# Thinking


@pytest.mark.parametrize(
    ("changes", "thinking"),
    [
        ((), None),
        ((SetThinking(tokens=2_000),), 2_000),
        ((SetThinking(tokens=2_000), SetThinking(tokens=None)), None),
        ((OTHER,), 4_000),
        ((OTHER, SetThinking(tokens=2_000)), 2_000),
        ((SetThinking(tokens=2_000), OTHER), 2_000),
        ((OTHER, SetThinking(tokens=None)), None),
        ((OTHER, SetThinking(tokens=0)), 4_000),
    ],
)
def test_how_much_a_model_may_think(changes: tuple[Change, ...], thinking: int | None) -> None:
    """What a person said last, for whichever model; else what the model in use is configured to."""
    run = MachineHarness(priced())
    for change in changes:
        run.change(change)
    run.say(*calls("note"))
    run.end("note")
    assert [request.thinking for request in run.got(CallModel)][-1:] == [thinking]
