"""Runs that come to a type: of an agent, of one run, of one prompt of a session."""

from __future__ import annotations

from typing import assert_type

import attrs
import pytest

from turnwheel import Agent, DoneReason, Result
from turnwheel.effects import Answer, CallModel
from turnwheel.effects.errors import RunFailed
from turnwheel.performers import AskAgain, Output, PerformContext
from turnwheel.testing import ScriptedModel, calls, says


@attrs.frozen
class Person:
    name: str
    age: int = attrs.field(validator=attrs.validators.gt(0))


ANN, UNBORN = '{"name": "Ann", "age": 7}', '{"name": "Ann", "age": -7}'


def model(*replies: str) -> dict[type, ScriptedModel]:
    return {CallModel: ScriptedModel(*map(says, replies))}


async def test_a_run_comes_to_the_type_that_it_is_asked_for() -> None:
    result = await Agent(performers=model(ANN)).run("who?", output=Person)
    assert (result.output, result.text) == (Person("Ann", 7), ANN)


async def test_what_the_class_refuses_is_asked_for_again() -> None:
    result = await Agent(performers=model(UNBORN, ANN), output=Person).run("who?")
    assert (result.output, result.spent.turns) == (Person("Ann", 7), 2)


async def test_a_validator_may_ask_again_until_the_run_ends() -> None:
    async def grown(person: Person) -> None:
        if person.age < 10:
            msg = "too young"
            raise AskAgain(msg)

    agent = Agent(performers=model(ANN, ANN, ANN), output=Output(Person, validator=grown))
    result = await agent.run("who?")
    assert (result.reason, result.detail, result.text) == (DoneReason.OUTPUT_INVALID, "too young", ANN)
    with pytest.raises(RunFailed, match="too young"):
        _ = result.output


async def test_each_prompt_of_a_session_may_come_to_another_type() -> None:
    session = Agent(performers=model('{"value": [1, 2]}', "hello", '{"value": 7}')).session("s")
    listed = await session.run("list", output=list[int])
    said = await session.run("hi")
    counted = await session.run("count", output=int)
    assert (listed.output, said.output, counted.output) == ([1, 2], "hello", 7)


def test_callers_that_are_not_async_have_it_too() -> None:
    assert Agent(performers=model(ANN)).run_sync("who?", output=Person).output == Person("Ann", 7)


async def test_type_checkers_know_what_a_run_comes_to() -> None:
    agent = Agent(performers=model(ANN, ANN), output=Person)
    result = await agent.run("who?")
    assert_type(result, Result[Person])
    assert_type(result.output.age, int)
    listed = await Agent(performers=model('{"value": [1]}')).run("list", output=list[int])
    assert_type(listed, Result[list[int]])
    assert (result.output.age, listed.output) == (7, [1])


async def test_the_tools_of_a_turn_keep_the_one_that_gives_the_output() -> None:
    scripted = ScriptedModel(calls(("output", {"value": {"n": 1}})))
    offered: list[tuple[str, ...]] = []

    async def ask(request: CallModel, scene: PerformContext) -> Answer:
        offered.append(request.tools)
        return await scripted(request, scene)

    agent = Agent(
        performers={CallModel: ask}, tools_for=lambda _: (), output=Output(dict[str, int], name="output")
    )
    result = await agent.run("count")
    value: object = result.output
    assert value == {"n": 1}
    assert offered == [("output",)]
