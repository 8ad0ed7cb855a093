"""A script that does not fit its test fails that test, in pytest by itself."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from turnwheel import Agent, tool
from turnwheel.effects.events import Failure
from turnwheel.effects.history import CallPiece
from turnwheel.effects.messages import StopReason
from turnwheel.effects.requests import CallModel
from turnwheel.testing import (
    MachineHarness,
    Reply,
    ScriptedModel,
    ScriptEnded,
    ScriptMismatch,
    ScriptUnfinished,
    call,
    calls,
    fails,
    says,
    stalls,
    store_contract,
    wire_rules,
)

TESTS = """
import pytest
from turnwheel import Agent
from turnwheel.effects.requests import CallModel
from turnwheel.testing import ScriptedModel, calls, says

async def talk(model, *prompts):
    session = Agent(performers={CallModel: model}).session("s")
    for prompt in prompts:
        await session.run(prompt)

async def test_fits(): await talk(ScriptedModel(says("one")), "go")
async def test_too_short(): await talk(ScriptedModel(says("one")), "go", "again")
async def test_too_long(): await talk(ScriptedModel(says("one"), says("two")), "go")
async def test_misspelled(): await talk(ScriptedModel(calls(("nope", {})), says("fine")), "go")
async def test_on_purpose(): await talk(ScriptedModel(calls(("nope", {}), wrong=True), says("fine")), "go")
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
    assert passed == {"test_fits", "test_partial", "test_on_purpose"}
    for test, error in {
        "test_too_short": "ScriptEnded: script: no reply is left",
        "test_too_long": "ScriptUnfinished: script: 1 reply is left over",
        "test_misspelled": "ScriptMismatch: script: the reply to",
        "test_fixture": "ScriptUnfinished: script: 1 reply is left over",
        "test_own_words": "its own words",
    }.items():
        assert f"FAILED test_agent.py::{test}" in summary
        assert error in done.stdout


async def test_a_script_checks_itself_at_the_end_of_a_block() -> None:
    with ScriptedModel(says("one")) as fits:
        await ran(fits, "go")
    with (
        pytest.raises(
            ScriptUnfinished, match=r"1 reply is left over after 0 calls: says\('one'\); remove it,"
        ),
        ScriptedModel(says("one")),
    ):
        pass
    with pytest.raises(ScriptEnded, match=r"no reply is left for '\w+-1', call 1"), ScriptedModel() as model:
        await ran(model, "go")


@tool(secrets=["word"])
def add(a: int, b: int = 0, word: str = "") -> int:
    return a + b + len(word)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (calls(("ad", {"a": 1})), "calls 'ad', which is not offered; there are: add;"),
        (
            calls(("add", {"a": 1}), ("add", {"n": 1})),
            "calls 'add' with arguments that do not fit: a is missing;",
        ),
        (
            calls(("add", {"a": "1"})),
            "calls 'add' with arguments that do not fit: a must be of type integer;",
        ),
        (
            Reply(pieces=(CallPiece(0, name="add"), CallPiece(0, arguments='{"a":'))),
            "calls 'add' with arguments that do not fit: they are no JSON;",
        ),
    ],
)
async def test_a_script_may_not_call_what_the_agent_refuses(reply: Reply, problem: str) -> None:
    with (
        pytest.raises(ScriptMismatch, match=r"the reply to '\w+-1', call 1 of this model, ") as caught,
        ScriptedModel(reply, says("fine")) as model,
    ):
        await Agent(tools=[add], performers={CallModel: model}).run("go")
    assert problem in str(caught.value)
    with ScriptedModel(attrs.evolve(reply, wrong=True), says("fine")) as model:
        await Agent(tools=[add], performers={CallModel: model}, rules=["allow add"]).run("go")


async def test_a_call_that_fits_in_two_pieces_is_no_mismatch() -> None:
    pieces = (CallPiece(0, name="add", arguments='{"a": 1, '), CallPiece(0, arguments='"word": "it"}'))
    with ScriptedModel(Reply(pieces=pieces, stop=StopReason.TOOL_USE), says("fine")) as model:
        await Agent(tools=[add], performers={CallModel: model}, rules=["allow add"]).run("go")
    assert len(model.requests) == 2


def test_replies_that_are_left_over_are_named() -> None:
    replies = [calls(("add", {"a": 1}), text="I do"), says("x" * 50), stalls(), fails(Failure.SERVER)]
    named = (
        f"4 replies are left over after 0 calls: calls(add), says('{'x' * 40}...'), stalls(), fails('server')"
    )
    with pytest.raises(ScriptUnfinished, match=re.escape(f"{named}; remove them,")):
        ScriptedModel(*replies, partial=False).finish()
    with pytest.raises(ScriptUnfinished, match=r"6 replies .*, says\('a'\), \.\.\.; remove them,"):
        ScriptedModel(*[says("a")] * 6).finish()


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
