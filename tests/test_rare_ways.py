"""
Ways through the table that are all but never taken, each brought about by hand.

What makes them rare is that several things have to come together: a denial that leaves a question open while
hooks look at another call, or settings that change while a call waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from turnwheel.effects.config import (
    Concurrency,
    Config,
    Gates,
    OnDenial,
    Policy,
    SideEffect,
    ToolKind,
    ToolSpec,
)
from turnwheel.effects.events import (
    ApprovalGiven,
    Approve,
    CallCancelled,
    Deny,
    Event,
    HookAnswered,
    TimerFired,
    ToolFinished,
    UserSteered,
)
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.permissions import PermissionMode
from turnwheel.effects.records import SetMode
from turnwheel.states.table import LEGAL
from turnwheel.testing.harness import (
    TOOLS,
    MachineHarness,
    calls,
    config,
)

Way = tuple[str, type[Event], str]
"""A row of the table: state, event and target."""

STOP = HookAnswer(verdict="deny", reason="stop", interrupt=True)


def _settings(on_denial: OnDenial = OnDenial.SKIP_REST) -> Config:
    """Calls are judged ahead, by rules, a person and then a hook about edits; nobody answers for ever."""
    return config(
        hooks=(HookSpec(name="guard", hook=Hook.PRE_TOOL_USE, tool="edit"),),
        policy=Policy(
            concurrency=Concurrency.PARALLEL_READS,
            gates=Gates.RULES_FIRST,
            on_denial=on_denial,
            answer_within=60.0,
        ),
    )


def _denied(*tools: str, approved: tuple[str, ...] = ("edit",)) -> MachineHarness:
    """A run whose model called *tools*: a person *approved* some and denied a write; hooks look at edits."""
    run = MachineHarness(_settings())
    run.say(*calls(*tools))
    for tool in approved:
        run.decide(tool, Approve())
    run.decide("write", Deny())
    return run


def _second_no_ends_the_run() -> MachineHarness:
    run = _denied("write", "peek", approved=())
    run.decide("peek", Deny(interrupt=True))
    return run


def _no_answer_ends_the_run() -> MachineHarness:
    run = _denied("write", "peek", approved=())
    run.machine.reconfigure(_settings(OnDenial.INTERRUPT))
    run.expire("peek")
    return run


def _hook_ends_the_run(*tools: str) -> Callable[[], MachineHarness]:
    def bring_about() -> MachineHarness:
        run = _denied(*tools)
        run.answer(STOP)
        return run

    return bring_about


def _question_after_a_call_was_given_up() -> MachineHarness:
    run = MachineHarness()
    run.say(*calls("send", "note", "write"))
    run.machine.reconfigure(_settings())
    run.cancel("note")
    return run


def _question_after_a_tool_ended() -> MachineHarness:
    reads = ToolSpec(name="scout", kind=ToolKind.AGENT, side_effect=SideEffect.READ_ONLY)
    policy = Policy(mode=PermissionMode.BYPASS, concurrency=Concurrency.PARALLEL_READS, max_parallel=2)
    run = MachineHarness(config(tools=(reads, *TOOLS), policy=policy))
    run.say(*calls("scout", "look", "peek"))
    run.change(SetMode(mode=PermissionMode.DEFAULT))
    run.end("look")
    return run


def _child_after_a_call_was_given_up() -> MachineHarness:
    run = _denied("edit", "hire", "write", approved=("edit", "hire"))
    run.cancel("edit")
    return run


def _last_call_is_given_up() -> MachineHarness:
    run = _denied("edit", "write")
    run.cancel("edit")
    return run


def _steer_while_hooks_look_at_the_last_call() -> MachineHarness:
    run = _denied("edit", "write")
    run.steer("left")
    return run


RARE: Mapping[Way, Callable[[], MachineHarness]] = {
    ("confirming.stopping", ApprovalGiven, "thinking.end"): _second_no_ends_the_run,
    ("confirming.stopping", TimerFired, "thinking.end"): _no_answer_ends_the_run,
    ("confirming.stopping", HookAnswered, "executing.stopping"): _hook_ends_the_run(
        "look", "write", "edit", "peek"
    ),
    ("confirming.stopping", HookAnswered, "dispatching.stopping"): _hook_ends_the_run(
        "send", "write", "edit", "peek"
    ),
    ("confirming.stopping", HookAnswered, "thinking.end"): _hook_ends_the_run("write", "edit", "peek"),
    ("dispatching", CallCancelled, "confirming"): _question_after_a_call_was_given_up,
    ("dispatching", ToolFinished, "confirming"): _question_after_a_tool_ended,
    ("executing.stopping", CallCancelled, "dispatching.stopping"): _child_after_a_call_was_given_up,
    ("executing.stopping", CallCancelled, "thinking.go"): _last_call_is_given_up,
    ("executing.stopping", HookAnswered, "thinking.end"): _hook_ends_the_run("write", "edit"),
    ("executing.stopping", UserSteered, "thinking.go"): _steer_while_hooks_look_at_the_last_call,
}
"""Each of those rows, and the run whose last event took it."""


@pytest.mark.parametrize("way", RARE, ids=lambda way: f"{way[0]} {way[1].__name__} {way[2]}")
def test_a_rare_way_is_taken_where_it_should_be(way: Way) -> None:
    """Each is on the page, and each can be brought about by what people, hooks and tools do."""
    assert way in LEGAL
    assert way in RARE[way]().rows
