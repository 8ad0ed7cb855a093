"""Settings that a person changes while a run is under way: the model, the mode, how much it may think."""

from __future__ import annotations

from decimal import Decimal

import attrs
import pytest

from turnwheel.effects.config import Config, Limits, ModelSpec, Price
from turnwheel.effects.events import ControlReceived, Failure
from turnwheel.effects.notices import Ignored, SettingChanged, SettingRefused
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import Change, SetMode, SetModel, SetThinking
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.testing.harness import MachineHarness, calls, config
from turnwheel.testing.state_fixtures import PLACES, run_at

OTHER = SetModel(model="wire:other")
UNKNOWN = SetModel(model="wire:unheard-of")
CHEAP = ModelSpec(name="wire:model", price=Price(input="1", output="1"))
DEAR = ModelSpec(name="wire:other", price=Price(input="100", output="100"), window=50, thinking=4_000)
MILLION = Usage(input=600_000, output=400_000)


def priced(limits: Limits = Limits()) -> Config:  # noqa: B008  # a frozen value
    """Settings with a cheap model and a dear one to switch to."""
    return config(model=CHEAP, models=(DEAR,), limits=limits)


def called_next(run: MachineHarness, usage: Usage = Usage(input=10, output=5)) -> CallModel:  # noqa: B008  # as above
    """The next request to a model, after an answer of *usage* that calls a tool."""
    run.say(*calls("note"), usage=usage)
    run.end("note")
    (request,) = run.got(CallModel)
    return request


@pytest.mark.parametrize(
    "change",
    [OTHER, SetMode(mode=PermissionMode.BYPASS), SetThinking(tokens=2_000), SetThinking(tokens=None)],
)
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
    held = {SetModel: memory.model, SetMode: memory.mode, SetThinking: memory.thinking}[type(change)]
    assert held == {SetModel: "wire:other", SetMode: PermissionMode.BYPASS, SetThinking: change}[type(change)]
    run.feed(event)
    assert run.got(Ignored) == [Ignored(event="ControlReceived", state=run.label)]


def test_nothing_is_changed_in_a_run_that_is_over() -> None:
    """The session passes it on to the next one."""
    run = run_at("done")
    memory = run.machine.memory
    run.change(OTHER)
    assert run.effects == (Ignored(event="ControlReceived", state="done"),)
    assert run.machine.memory is memory


# The model


@pytest.mark.parametrize("cut", [False, True])
def test_an_answer_has_the_price_of_the_model_that_gave_it(*, cut: bool) -> None:
    run = MachineHarness(priced())
    run.change(OTHER)
    if cut:
        run.interrupt()
        run.fail(Failure.CANCELLED, usage=MILLION)
        assert run.machine.memory.spent.cost == Decimal(1)
        return
    called_next(run, MILLION)
    assert run.machine.memory.spent.cost == Decimal(1)
    run.change(SetModel(model="wire:model"))
    run.fail(Failure.AUTH, usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(101)


def test_a_summary_has_the_price_of_the_model_that_wrote_it() -> None:
    narrow = attrs.evolve(CHEAP, window=1_000)
    run = MachineHarness(config(model=narrow, models=(DEAR,)), "do it " * 200)
    called_next(run, Usage(input=900))
    assert run.label == "compacting.summary"
    before = run.machine.memory.spent.cost
    run.change(OTHER)
    run.say("short", usage=MILLION)
    assert run.machine.memory.spent.cost - before == Decimal(1)


def test_the_window_is_that_of_the_model_that_was_chosen() -> None:
    run = MachineHarness(priced(), "do it " * 100)
    run.say(*calls("note"))
    run.change(OTHER)
    run.end("note", "much to read " * 20)
    (request,) = run.got(CallModel)
    assert (run.label, request.model) == ("compacting.summary", "wire:other")


def test_a_model_that_is_not_configured_is_called_at_no_known_price() -> None:
    run = MachineHarness(priced())
    run.change(UNKNOWN)
    assert called_next(run, MILLION).model == "wire:unheard-of"
    run.say("done", usage=MILLION)
    assert run.machine.memory.spent.cost == Decimal(1)


BUDGET = "a budget to think is a number of tokens above 0, or None; got"


@pytest.mark.parametrize(
    ("limits", "change", "why"),
    [
        (
            Limits(usd=5),
            UNKNOWN,
            "the limit in USD needs a price for 'wire:unheard-of': configure it among the models",
        ),
        (Limits(), SetModel(model=" "), "a model has a name"),
        (Limits(), SetThinking(tokens=0), f"{BUDGET} 0"),
        (Limits(), SetThinking(tokens=-1), f"{BUDGET} -1"),
    ],
)
def test_a_change_that_cannot_be_made_is_refused(limits: Limits, change: Change, why: str) -> None:
    run = MachineHarness(priced(limits))
    before = run.machine.memory
    run.change(change)
    assert run.effects == (SettingRefused(change=change, reason=why),)
    assert (run.machine.memory.model, run.machine.memory.thinking) == (before.model, before.thinking)
    request = called_next(run)
    assert (request.model, request.thinking) == ("wire:model", None)


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
def test_the_last_budget_to_think_holds_for_any_model(
    changes: tuple[Change, ...], thinking: int | None
) -> None:
    run = MachineHarness(priced())
    for change in changes:
        run.change(change)
    assert called_next(run).thinking == thinking
