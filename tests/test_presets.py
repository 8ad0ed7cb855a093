"""Presets: whole policies that go into a run as they are."""

from __future__ import annotations

import pytest

from turnwheel import (
    Config,
    Machine,
    ModelSpec,
    Policy,
)
from turnwheel.effects import config

NAMED = {name: value for name, value in vars(config).items() if isinstance(value, Policy)}


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_preset_is_a_policy_that_a_run_takes(name: str) -> None:
    """It is data like any other policy."""
    machine = Machine.start(Config(model=ModelSpec(name="m"), policy=NAMED[name]), "go")
    machine.advance()
    assert machine.state.label == "streaming"


def test_no_two_presets_are_the_same() -> None:
    """Each stands for a way of its own, and none for the default."""
    policies = [Policy(), *NAMED.values()]
    assert len(set(policies)) == len(policies) == 5
