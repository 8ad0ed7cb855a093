"""The output of a run: how it is asked for, what is taken for it, and what becomes of a wrong one."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest

from turnwheel.effects.config import (
    Compaction,
    Config,
    Limits,
    ModelSpec,
    OnDenial,
    OnMaxTokens,
    Policy,
    Retries,
    with_output,
)
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Deny, Failure, ModelFinished
from turnwheel.effects.history import CallPiece, ReasoningPiece, TextPiece
from turnwheel.effects.hooks import Hook, HookAnswer, HookSpec
from turnwheel.effects.messages import Citation, Outcome, StopReason
from turnwheel.effects.notices import RunEnded, Warned
from turnwheel.effects.output import OutputMode, OutputSpec
from turnwheel.effects.records import SetModel
from turnwheel.effects.requests import CallModel, DecodeOutput
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.machine import Machine
from turnwheel.states.rules.output import candidate
from turnwheel.states.state import Done
from turnwheel.testing.harness import TOOLS, MachineHarness, call, calls, config

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0},
        "note": {"type": "string"},
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPEC = OutputSpec(schema=json.dumps(PERSON), name="person", description="Who wrote it.")
ANN = '{"name": "Ann", "age": 7}'
CODE = '{"name": "```py\\nprint()\\n```", "age": 7}'


def asked(mode: str = "prompted", *, decoded: bool = False, **settings: Any) -> Config:
    return with_output(config(**settings), attrs.evolve(SPEC, mode=mode, decoded=decoded))


def given(run: MachineHarness) -> tuple[str, str]:
    """Why the run ended, and its output."""
    state = run.machine.state
    assert isinstance(state, Done)
    (ended,) = run.all(RunEnded)
    assert (ended.reason, ended.output) == (state.reason, state.output)
    return state.reason.value, state.output


def give(*outputs: str, first: int = 0) -> tuple[CallPiece, ...]:
    return tuple([CallPiece(index, "", "person", text) for index, text in enumerate(outputs, first)])


# How it is asked for


@pytest.mark.parametrize(("mode", "offered"), [("native", False), ("tool", True), ("prompted", False)])
def test_each_mode_asks_in_its_own_way(mode: str, *, offered: bool) -> None:
    run = MachineHarness(asked(mode), "who?")
    (request,) = run.all(CallModel)
    assert request.output is OutputMode(mode)
    assert ("person" in request.tools) is offered
    assert request.tool_choice == ("required" if offered else "")
    assert (SPEC.schema in request.instructions) is (mode == "prompted")


def test_a_run_without_output_asks_for_none() -> None:
    run = MachineHarness(config(), "who?")
    (request,) = run.all(CallModel)
    assert (request.output, request.tool_choice, request.instructions) == (None, "", "")


def test_a_model_that_thinks_is_not_made_to_call() -> None:
    thinks = ModelSpec(name="wire:model", thinking=2_000)
    (request,) = MachineHarness(asked("tool", model=thinks), "who?").all(CallModel)
    assert ("person" in request.tools, request.tool_choice) == (True, "")


def test_a_fallback_is_asked_in_its_own_mode() -> None:
    settings = config(models=(ModelSpec(name="wire:spare"),), fallback="wire:spare")
    spec = attrs.evolve(SPEC, mode="tool", modes={"wire:spare": "native"})
    run = MachineHarness(with_output(settings, spec), "who?")
    run.fail(Failure.AUTH)
    first, second = run.all(CallModel)
    assert [(one.model, one.output, "person" in one.tools) for one in (first, second)] == [
        ("wire:model", OutputMode.TOOL, True),
        ("wire:spare", OutputMode.NATIVE, False),
    ]
    run.say(ANN)
    assert given(run) == ("end_turn", ANN)


def test_an_output_by_a_tool_needs_the_tool() -> None:
    with pytest.raises(ConfigError, match="the tool 'person' is missing, which gives it; use with_output"):
        attrs.evolve(config(), output=attrs.evolve(SPEC, mode="tool"))
    # A tool of the host's is none.
    with pytest.raises(ConfigError, match="the tool 'look' is missing"):
        attrs.evolve(config(), output=attrs.evolve(SPEC, mode="tool", name="look"))
    back = with_output(asked("tool"), None)
    assert (back.tools, back.output) == (TOOLS, None)


# What is taken


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (ANN, ANN),
        (f"```json\n{ANN}\n```", ANN),
        (f"Here it is:\n```\n{ANN}\n```\nAnything else?", ANN),
        (f"```json\n{CODE}\n```", CODE),
        (f"Here it is:\n```json\n{CODE}\n  ```\nAnything else?", CODE),
        (f"```{CODE}```", CODE),
        (CODE, CODE),
        ('{"name": "Ann", "age": 7.0, "note": null}', '{"name": "Ann", "age": 7.0}'),
        ('{"name": "Ann", "age": 7, "nick": null}', '{"name": "Ann", "age": 7, "nick": null}'),
    ],
)
def test_a_right_answer_is_the_output(text: str, output: str) -> None:
    """Without what stands around it, and without nulls of what may be left out."""
    run = MachineHarness(asked(), "who?")
    run.say(text)
    assert given(run) == ("end_turn", output)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is none"),
        ("Ann, who is 7", "it is no JSON object"),
        ("[7]", "it is no JSON object"),
        (f"```\n{ANN}\n```\nor\n```\n{CODE}\n```", "it is no JSON object"),
        ('{"name": "Ann"', "it is no JSON object"),
        ('{"name": "Ann"}', "age is missing"),
        ('{"name": "Ann", "age": -1}', "age must be at least 0"),
        ('{"name": null, "age": 1}', "name must be of type string"),
        ('{"name": "Ann", "age": 1, "x": 2}', "x is not a parameter (there are: name, age, note, nick)"),
    ],
)
def test_a_wrong_answer_is_asked_for_again_with_its_fault(text: str, fault: str) -> None:
    run = MachineHarness(asked(), "who?")
    run.say(text)
    assert run.label == "streaming"
    assert run.talk[-1] == (
        "user",
        f"The output is not right: {fault}. Answer with the whole JSON object again.",
    )
    assert [one.text for one in run.got(Warned)] == [
        f"the output is not right, and is asked for again: {fault}"
    ]
    run.say(ANN)
    assert given(run) == ("end_turn", ANN)


def test_the_last_wrong_answer_ends_the_run_and_its_text_is_kept() -> None:
    run = MachineHarness(asked(retries=Retries(output=1)), "who?")
    run.say("Ann")
    run.say('{"name": "Ann"}')
    assert given(run) == ("output_invalid", '{"name": "Ann"}')
    assert run.all(RunEnded)[0].detail == "age is missing"
    assert len(run.all(CallModel)) == 2


def test_wrong_answers_are_counted_over_snapshots() -> None:
    run = MachineHarness(asked(retries=Retries(output=1)), "who?")
    run.say("Ann")
    machine = run.machine
    run.machine = Machine.restore(machine.snapshot(), machine.config, machine.memory.history)
    run.say("Ann")
    assert run.reason == "output_invalid"


def test_a_refusal_and_a_cut_answer_are_no_outputs() -> None:
    for stop, reason in ((StopReason.REFUSAL, "refusal"), (StopReason.MAX_TOKENS, "max_tokens")):
        run = MachineHarness(asked(), "who?")
        run.say(ANN, stop=stop)
        assert given(run) == (reason, "")


def test_a_cut_answer_is_not_continued_but_given_anew() -> None:
    """The rest of an object would be no object."""
    settings = asked(
        model=ModelSpec(name="wire:model", window=1_000),
        policy=Policy(on_max_tokens=OnMaxTokens.COMPACT),
        compaction=Compaction(keep=0.01),
    )
    run = MachineHarness(settings, "who? " * 200)
    run.say(ANN[:9] * 6, stop=StopReason.MAX_TOKENS)
    assert run.label == "compacting.summary"
    run.say("They asked who.")
    assert run.talk[-1] == ("user", "The answer was cut. Go on, and give the output as a whole.")
    run.say(ANN)
    assert given(run) == ("end_turn", ANN)


def test_a_citation_stands_in_the_middle_of_an_output() -> None:
    source = Citation(url="https://a.example")
    run = MachineHarness(asked(), "who?")
    run.say("I look it up.", ReasoningPiece("Hm."), TextPiece(ANN[:9]), source, source, TextPiece(ANN[9:]))
    assert given(run) == ("end_turn", ANN)


def test_an_empty_answer_is_no_output_whatever_was_said_before() -> None:
    run = MachineHarness(asked(), "who?")
    run.say(ANN, *calls("look"))
    run.end("look")
    run.say("")
    assert (
        run.talk[-1][1] == "The output is not right: there is none. Answer with the whole JSON object again."
    )


# The class has the last word


def test_what_fits_the_schema_is_decoded() -> None:
    run = MachineHarness(asked(decoded=True), "who?")
    run.say(f"```\n{ANN}\n```")
    assert [(one.id, one.text) for one in run.got(DecodeOutput)] == [(run.machine.state.open[0], ANN)]
    run.decode()
    assert given(run) == ("end_turn", ANN)


def test_what_does_not_fit_is_not_decoded() -> None:
    run = MachineHarness(asked(decoded=True), "who?")
    run.say("Ann")
    assert run.all(DecodeOutput) == []


def test_the_fault_of_the_class_is_told_and_counted() -> None:
    run = MachineHarness(asked(decoded=True, retries=Retries(output=1)), "who?")
    run.say(ANN)
    run.decode("she is older")
    assert run.talk[-1][1].startswith("The output is not right: she is older.")
    run.say(ANN)
    run.decode("she is older")
    assert given(run) == ("output_invalid", ANN)


def test_an_interrupt_does_not_wait_for_the_class() -> None:
    run = MachineHarness(asked(decoded=True), "who?")
    run.say(ANN)
    run.interrupt()
    assert given(run) == ("interrupted", "")


# The output tool


def test_a_call_of_the_tool_ends_the_run_and_has_a_result() -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(*give(ANN))
    assert given(run) == ("end_turn", ANN)
    assert run.results == [("person", "ok", "The output was received.")]


def test_a_wrong_call_is_made_again() -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(*give("{}"))
    assert run.talk[-1][1] == (
        "The output is not right: name, age are missing. Call person again with the whole of it."
    )
    run.say(*give(ANN))
    assert given(run) == ("end_turn", ANN)


def test_text_that_is_the_output_is_taken_in_place_of_a_call() -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(ANN)
    assert given(run) == ("end_turn", ANN)


def test_the_output_waits_for_the_calls_beside_it() -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(*give(ANN), *[attrs.evolve(one, index=1) for one in calls("look")])
    assert (run.started, run.label) == (["look"], "executing")
    run.end("look")
    assert given(run) == ("end_turn", ANN)
    assert run.outcomes == [("person", "ok"), ("look", "ok")]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMED_OUT, Outcome.CRASHED])
def test_beside_a_call_that_failed_it_is_not_taken(outcome: Outcome) -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(*calls("look"), *give(ANN, first=1))
    run.end("look", "no such file", outcome)
    assert (run.label, run.outcomes[-1]) == ("streaming", ("person", "skipped"))
    run.say(*give(ANN))
    assert given(run) == ("end_turn", ANN)


def test_beside_a_call_that_a_person_denied_it_is_not_taken() -> None:
    for on_denial in (OnDenial.GO_ON, OnDenial.SKIP_REST):
        run = MachineHarness(asked("tool", policy=Policy(on_denial=on_denial)), "who?")
        run.say(*calls("write"), *give(ANN, first=1))
        run.decide("write", Deny())
        assert (run.label, run.outcomes) == ("streaming", [("write", "denied"), ("person", "skipped")])


def test_the_first_of_several_outputs_is_taken() -> None:
    run = MachineHarness(asked("tool"), "who?")
    run.say(*give(ANN, '{"name": "Bob", "age": 8}'))
    assert given(run) == ("end_turn", ANN)
    assert run.outcomes == [("person", "ok"), ("person", "skipped")]


def test_a_budget_that_is_used_up_does_not_take_it_away() -> None:
    run = MachineHarness(asked("tool", limits=Limits(tokens=1_000)), "who?")
    run.say(*give(ANN), usage=Usage(input=900, output=100))
    assert given(run) == ("end_turn", ANN)


def test_a_tool_of_that_name_is_a_tool_where_the_schema_is_sent() -> None:
    spec = attrs.evolve(SPEC, name="look", mode="native")
    run = MachineHarness(with_output(config(), spec), "who?")
    run.say(*calls("look"))
    assert run.started == ["look"]
    run.end("look")
    run.say(ANN)
    assert given(run) == ("end_turn", ANN)


# Where the run goes on


def test_a_steer_before_the_end_makes_another_output() -> None:
    run = MachineHarness(asked(decoded=True), "who?")
    run.say(ANN)
    run.steer("no, the other one")
    run.decode()
    assert run.label == "streaming"
    bob = '{"name": "Bob", "age": 8}'
    run.say(bob)
    run.decode()
    assert given(run) == ("end_turn", bob)


def test_a_stop_hook_sees_a_right_output_only() -> None:
    run = MachineHarness(asked(hooks=(HookSpec(name="coach", hook=Hook.STOP),)), "who?")
    run.say("Ann")
    assert run.label == "streaming"
    run.say(ANN)
    assert run.label == "thinking.ending"
    run.answer(HookAnswer(go_on=True, reason="and the note"))
    more = '{"name": "Ann", "age": 7, "note": "x"}'
    run.say(more)
    run.answer(HookAnswer())
    assert given(run) == ("end_turn", more)


def test_a_process_that_asks_for_no_output_ends_with_text() -> None:
    run = MachineHarness(asked(), "who?")
    run.machine.reconfigure(config())
    run.say("Ann")
    assert given(run) == ("end_turn", "")


def test_deep_nesting_is_a_fault_and_no_error() -> None:
    spec = attrs.evolve(SPEC, schema='{"type":"object","properties":{"a":{"type":["object","null"]}}}')
    assert candidate('{"a":' * 5_000 + "1" + "}" * 5_000, spec).fault == "it is no JSON object"


def test_a_call_of_a_tool_of_that_name_is_no_output_where_the_schema_is_sent() -> None:
    spec = OutputSpec(schema='{"type": "object"}', name="look", mode="native")
    run = MachineHarness(with_output(config(), spec), "who?")
    run.say(*calls("look"))
    run.end("look")
    run.say("")
    assert run.label == "streaming"
    assert run.talk[-1][1].startswith("The output is not right: there is none.")


def test_an_output_by_a_tool_is_taken_also_where_the_next_model_is_asked_in_another_way() -> None:
    settings = config(models=(ModelSpec(name="wire:spare"),))
    spec = attrs.evolve(SPEC, mode="tool", modes={"wire:spare": "native"})
    run = MachineHarness(with_output(settings, spec), "who?")
    run.say(*give(ANN), *[attrs.evolve(one, index=1) for one in calls("look")])
    run.change(SetModel(model="wire:spare"))
    run.end("look")
    assert given(run) == ("end_turn", ANN)


def test_an_output_is_not_taken_from_a_tool_that_was_not_shown() -> None:
    """A performer may show fewer tools than the request has, and says so in its answer."""
    run = MachineHarness(asked("tool"))
    [request] = run.machine.state.open
    answer = ModelFinished(
        at=1.0,
        request=request,
        stop=StopReason.TOOL_USE,
        usage=Usage(),
        pieces=(call(0, "person"),),
        offered=(),
    )
    run.feed(answer)
    assert run.label == "streaming"
    [result] = run.machine.memory.history[-1].results
    assert (result.outcome, "not found" in result.content) == (Outcome.ERROR, True)
