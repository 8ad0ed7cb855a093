"""A script that does not fit its test fails that test, in pytest by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnwheel import Agent
from turnwheel.effects.requests import CallModel
from turnwheel.testing import (
    MachineHarness,
    ScriptedModel,
    ScriptEnded,
    ScriptUnfinished,
    call,
    says,
    store_contract,
    wire_rules,
)

TESTS = """
import pytest
from turnwheel import Agent
from turnwheel.effects.requests import CallModel
from turnwheel.testing import ScriptedModel, says

async def talk(model, *prompts):
    session = Agent(performers={CallModel: model}).session("s")
    for prompt in prompts:
        await session.run(prompt)

async def test_fits(): await talk(ScriptedModel(says("one")), "go")
async def test_too_short(): await talk(ScriptedModel(says("one")), "go", "again")
async def test_too_long(): await talk(ScriptedModel(says("one"), says("two")), "go")
async def test_partial(): await talk(ScriptedModel(says("one"), says("two"), partial=True), "go")

async def test_own_words():
    ScriptedModel(says("one"))
    assert not "its own words"

@pytest.fixture
def made(): return ScriptedModel(says("one"))

async def test_fixture(made): pass
"""


async def ran(model: ScriptedModel, *prompts: str) -> None:
    session = Agent(performers={CallModel: model}).session("s")
    for prompt in prompts:
        await session.run(prompt)


def test_pytest_fails_a_test_whose_script_does_not_fit(tmp_path: Path) -> None:
    """The plugin is found by its entry point: no configuration names it."""
    (tmp_path / "test_agent.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    summary = done.stdout[done.stdout.index("short test summary") :]
    passed = {line.split("::")[1] for line in summary.splitlines() if line.startswith("PASSED")}
    assert passed == {"test_fits", "test_partial"}
    for test, error in {
        "test_too_short": "ScriptEnded: script: no reply is left",
        "test_too_long": "ScriptUnfinished: script: replies left over",
        "test_fixture": "ScriptUnfinished: script: replies left over",
        "test_own_words": "its own words",
    }.items():
        assert f"FAILED test_agent.py::{test}" in summary
        assert error in done.stdout


async def test_a_script_checks_itself_at_the_end_of_a_block() -> None:
    with ScriptedModel(says("one")) as fits:
        await ran(fits, "go")
    with (
        pytest.raises(ScriptUnfinished, match="left over after 0 calls: 1"),
        ScriptedModel(says("one")),
    ):
        pass
    with pytest.raises(ScriptEnded, match=r"no reply is left for '\w+-1', call 1"), ScriptedModel() as model:
        await ran(model, "go")


def test_a_block_that_fails_says_why_in_its_own_words() -> None:
    with pytest.raises(ValueError, match="mine"), ScriptedModel(says("one")):
        raise ValueError("mine")  # noqa: EM101  # the text is the point


def test_a_harness_shows_where_its_machine_is() -> None:
    run = MachineHarness()
    run.say(call(0, "write", path="a"))
    effects = ", ".join(type(effect).__name__ for effect in run.effects)
    assert repr(run) == f"<MachineHarness at 1 s: {run.machine!r}; last effects: {effects}>"
    assert "confirming" in repr(run)


def test_the_room_has_its_modules_for_authors() -> None:
    assert store_contract.checks(store_contract.Lasts.WHILE_OPEN)
    assert wire_rules.chat_faults(b"{}")
