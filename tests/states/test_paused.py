"""An answer that the provider paused in the middle of work with its own tools, and how the run goes on."""

from __future__ import annotations

import attrs
import pytest

from turnwheel.effects import notices
from turnwheel.effects.config import Limits, Loops, ModelSpec, Policy, Steering, with_output
from turnwheel.effects.events import Failure
from turnwheel.effects.history import CallPiece, Piece, ReasoningPiece
from turnwheel.effects.messages import Finish, ProviderCall, Role, StopReason
from turnwheel.effects.output import OutputMode, OutputSpec
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.testing.harness import MachineHarness, calls, config

SEARCH = ReasoningPiece(opaque='{"type":"server_tool_use","id":"st","name":"web_search","input":{}}')
OPEN = ProviderCall(id="st", name="web_search", status="incomplete")
NUMBER = OutputSpec(
    schema='{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}', mode="prompted"
)


def pause(run: MachineHarness, *said: Piece | str, usage: Usage = Usage(input=10, output=5)) -> None:  # noqa: B008  # a frozen value
    run.say(*said, SEARCH, OPEN, stop=StopReason.PAUSED, usage=usage)


def test_a_paused_answer_is_kept_and_the_model_asked_to_go_on() -> None:
    run = MachineHarness()
    pause(run, "I search.")
    assert run.label == "streaming"
    [request] = run.got(CallModel)
    history = run.machine.memory.history
    assert (request.view.length, request.attempt) == (len(history), 1)
    assert history[-1].stop is StopReason.PAUSED
    [ended] = run.got(notices.TurnEnded)
    assert (ended.stop, ended.turn, ended.message) == (StopReason.PAUSED, 1, history[-1])
    assert run.got(notices.Warned) == []
    run.say("It is so.")
    assert (run.reason, run.machine.memory.spent.turns) == ("end_turn", 2)
    assert [message.text for message in run.machine.memory.history] == ["hello", "I search.", "It is so."]


def test_a_paused_answer_with_calls_of_the_provider_alone_is_kept() -> None:
    run = MachineHarness()
    pause(run)
    last = run.machine.memory.history[-1]
    assert (last.role, last.provider_calls) == (Role.ASSISTANT, (OPEN,))
    assert last.parts[-1] == Finish(reason=StopReason.PAUSED)


def test_a_paused_answer_without_anything_is_asked_for_again() -> None:
    run = MachineHarness()
    run.say(stop=StopReason.PAUSED)
    assert (run.label, len(run.machine.memory.history)) == ("streaming", 1)


@pytest.mark.parametrize("said", [("again",), ()])
def test_a_provider_that_pauses_for_ever_is_stopped(said: tuple[str, ...]) -> None:
    run = MachineHarness(config(policy=Policy(pauses=3), loops=Loops.never()))
    for _ in range(3):
        run.say(*said, stop=StopReason.PAUSED)
        assert run.label == "streaming"
    run.say(*said, stop=StopReason.PAUSED)
    [ended] = run.got(notices.RunEnded)
    assert (ended.reason, ended.detail) == ("error", "the provider paused its answer 4 times in a row")


def test_pauses_are_counted_in_a_row() -> None:
    run = MachineHarness(config(policy=Policy(pauses=1)))
    pause(run)
    assert run.machine.memory.progress.pauses == 1
    run.say(*calls("look"))
    assert run.machine.memory.progress.pauses == 0
    run.end("look")
    pause(run)
    run.say("done")
    assert run.reason == "end_turn"


def test_pauses_do_not_hide_that_a_model_goes_in_circles() -> None:
    run = MachineHarness(config(loops=Loops(warn=None, withdraw=None, stop=3, same=None)))
    for _ in range(3):
        assert run.label == "streaming"
        pause(run)
        run.say(*calls("look"))
        run.end("look")
    assert run.reason == "loop_detected"


def test_pauses_do_not_hide_that_a_model_goes_in_circles_over_a_summary() -> None:
    model = ModelSpec(name="main", window=1_000)
    run = MachineHarness(
        config(model=model, loops=Loops(warn=None, withdraw=None, stop=3, same=None)), "Look again. " * 80
    )
    for used in (10, 900, 10):
        pause(run)
        run.say(*calls("look"), usage=Usage(input=used, output=5))
        run.end("look")
        if run.label == "compacting.summary":
            run.say("They want it looked at.")
    assert run.reason == "loop_detected"


def test_a_pause_counts_against_the_limits() -> None:
    run = MachineHarness(config(limits=Limits(turns=1)))
    pause(run)
    assert run.reason == "max_turns"
    run = MachineHarness(config(limits=Limits(tokens=1_000)))
    pause(run, usage=Usage(input=990, output=10))
    assert run.reason == "token_budget"


def test_a_long_paused_answer_is_summarised_before_it_goes_on() -> None:
    run = MachineHarness(config(model=ModelSpec(name="main", window=1_000)), "Tell me all of it. " * 80)
    pause(run, "a word " * 80, usage=Usage(input=850, output=40))
    assert run.label == "compacting.summary"
    run.say("It was asked for.")
    assert run.label == "streaming"
    run.say("done")
    assert run.reason == "end_turn"


def test_what_a_person_says_meanwhile_comes_behind_the_paused_answer() -> None:
    run = MachineHarness()
    run.steer("left", Steering.AFTER_TOOL)
    pause(run, "I search.")
    assert run.label == "streaming"
    assert [message.text for message in run.machine.memory.history] == ["hello", "I search.", "left"]


def test_an_interrupt_ends_the_run_at_the_pause() -> None:
    run = MachineHarness()
    run.interrupt()
    pause(run, "I search.")
    assert (run.reason, run.machine.memory.history[-1].stop) == ("interrupted", StopReason.INTERRUPTED)
    run = MachineHarness()
    pause(run, "I search.")
    run.interrupt()
    run.fail(Failure.CANCELLED)
    assert run.reason == "interrupted"
    assert run.machine.memory.history[-1].stop is StopReason.PAUSED


def test_calls_of_a_paused_answer_run() -> None:
    run = MachineHarness()
    run.say(*calls("look"), stop=StopReason.PAUSED)
    assert run.label == "executing"
    run.end("look")
    run.say("done")
    assert run.reason == "end_turn"


def test_a_run_that_is_restored_behind_a_pause_asks_the_model_once_more() -> None:
    run = MachineHarness()
    pause(run, "I search.")
    machine = run.machine
    restored = MachineHarness(Machine.restore(machine.snapshot(), machine.config, machine.memory.history))
    restored.fail(Failure.LOST)
    restored.wake()
    assert restored.label == "streaming"
    assert restored.machine.memory.progress.pauses == 1
    restored.say("It is so.")
    assert restored.reason == "end_turn"


@pytest.mark.parametrize("stop", [StopReason.TOOL_USE, StopReason.PAUSED])
def test_an_output_that_is_called_ends_the_run_also_where_the_answer_was_paused(stop: StopReason) -> None:
    run = MachineHarness(with_output(config(), attrs.evolve(NUMBER, mode=OutputMode.TOOL)))
    run.say(CallPiece(0, "c", NUMBER.name, '{"value": 1}'), stop=stop)
    [ended] = run.got(notices.RunEnded)
    assert (ended.reason, ended.output) == ("end_turn", '{"value": 1}')


def test_a_paused_answer_is_no_output() -> None:
    """Neither where it stands, nor where the answer behind it is empty."""
    run = MachineHarness(with_output(config(), NUMBER))
    pause(run, '{"value": 1}')
    assert run.label == "streaming"
    run.say('{"value": 2}')
    [ended] = run.got(notices.RunEnded)
    assert (ended.reason, ended.output) == ("end_turn", '{"value": 2}')
    run = MachineHarness(with_output(config(), NUMBER))
    pause(run, '{"value": 1}')
    run.say("")
    assert run.label == "streaming"
    [warned] = run.got(notices.Warned)
    assert "the output is not right" in warned.text
