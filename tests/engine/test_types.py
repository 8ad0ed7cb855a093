"""
What type checkers find in a caller's code, and what they take.

Both checkers read this file, and both refuse a comment that ignores an error which is not there. So each
such comment says that the error is found.
"""

from __future__ import annotations

import pickle
from typing import assert_type

import pytest

from turnwheel import Agent, Approve, Limits, Result, Tool, ToolContext, builtin_tools, tool
from turnwheel.effects import AskApproval, CallModel
from turnwheel.effects.errors import ArgumentError, ToolDefinitionError
from turnwheel.testing import ScriptedModel, calls, says


class Customers:
    def city(self, name: str) -> str:
        return f"{name} lives in Rome"


class Archive(Customers):
    pass


@tool(side_effect="read_only")
def find(context: ToolContext[Customers], name: str) -> str:
    """Find a customer."""
    return context.deps.city(name)


@tool
async def count(text: str) -> int:
    """Count."""
    return len(text)


def bare(text: str) -> str:
    return text


def text_of(result: Result) -> str:
    return result.text


def asked(agent: Agent, model: ScriptedModel) -> str:
    return text_of(agent.run_sync("Go")) + str(len(model.requests))


def test_deps_fit_the_tools_that_need_them() -> None:
    model = ScriptedModel(calls(("find", {"name": "Ann"})), says("in Rome"))
    agent = Agent(
        model="m", tools=[find, count, *builtin_tools()], deps=Archive(), performers={CallModel: model}
    )
    assert_type(agent, Agent[Archive, str])
    assert_type(agent.deps, Archive)
    assert asked(agent, model) == "in Rome2"
    assert "lives in Rome" in str(model.seen[-1][-1])


def test_deps_of_another_type_are_found() -> None:
    with pytest.raises(ArgumentError, match=r"Agent\.deps must be a Customers; got str"):
        Agent(tools=[find], deps="Ann")  # type: ignore[misc]  # found  # pyright: ignore[reportArgumentType]  # found


def test_deps_that_are_missing_are_found() -> None:
    with pytest.raises(ArgumentError, match=r"Agent\.deps must be a Customers; got None"):
        Agent(tools=[find])  # pyright: ignore[reportArgumentType]  # found


def test_a_function_among_the_tools_is_found() -> None:
    with pytest.raises(ArgumentError, match="got function 'bare' in it"):
        Agent(tools=[bare])  # type: ignore[list-item]  # found  # pyright: ignore[reportArgumentType]  # found


async def test_a_stream_in_a_plain_loop_is_found() -> None:
    stream = Agent().stream("Go")
    with pytest.raises(ArgumentError, match="write 'async for'"):
        list(stream)  # type: ignore[call-overload]  # found  # pyright: ignore[reportArgumentType]  # found


def test_a_function_is_made_a_tool_with_options() -> None:
    made = tool(bare, side_effect="read_only")
    assert_type(made("a"), str)
    needs = tool(find.function, side_effect="read_only", name="find_again")
    assert Agent(model="m", tools=[made, needs], deps=Archive()).tools == (made, needs)
    with pytest.raises(ToolDefinitionError, match="side_effects"):
        tool(bare, side_effects="read_only")  # type: ignore[call-overload]  # found  # pyright: ignore[reportCallIssue]  # found


def test_a_word_and_its_value_are_both_taken() -> None:
    def yes(question: AskApproval) -> Approve:
        return Approve({"text": question.tool})

    agent = Agent(tools=[count], rules=["ask count"], approver=yes, limits=Limits(usd=None), titles="off")
    assert agent.rules[0].tool == "count"


def test_the_parameters_of_a_type_may_be_left_out() -> None:
    """Also when the program runs."""
    assert [str(kind).rpartition(".")[2] for kind in (Agent[int], Agent[int, str], Result[str])] == [
        "Agent[int]",
        "Agent[int, str]",
        "Result[str]",
    ]
    assert str(Tool[..., int]).endswith("Tool[..., int]")
    result = pickle.loads(pickle.dumps(asked_result()))  # noqa: S301  # our own
    assert result.text == "done"


def asked_result() -> Result:
    return Agent(model="m", performers={CallModel: ScriptedModel(says("done"))}).run_sync("Go")
