"""Runs that come to a type: of an agent, of one run, of one prompt of a session."""

from __future__ import annotations

import json
from typing import Any, assert_type

import attrs
import httpx
import pydantic
import pytest

from turnwheel import Agent, DoneReason, MemoryStore, Result, Session, tool
from turnwheel.effects import Answer, AskApproval, CallModel
from turnwheel.effects.errors import RunFailed
from turnwheel.effects.notices import ModelCalled
from turnwheel.effects.output import OutputMode
from turnwheel.engine.inspect.archive import explain
from turnwheel.performers import AskAgain, Output, PerformContext
from turnwheel.performers.output import OutputForm
from turnwheel.testing import ScriptedModel, calls, says


@attrs.frozen
class Person:
    name: str
    age: int = attrs.field(validator=attrs.validators.gt(0))


@tool(side_effect="read_only")
def count(text: str) -> int:
    """Count."""
    return len(text)


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


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


def down(*_: Any) -> Any:
    msg = "no route to db-7.internal"
    raise ConnectionError(msg)


def named(_: object) -> str:
    return str(down())


@attrs.frozen
class Checked:
    name: str = attrs.field(validator=down)


@attrs.frozen
class Converted:
    name: str = attrs.field(converter=named)


class Modelled(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, _: str) -> str:
        return str(down())


async def down_later(_: object) -> None:
    down()


@pytest.mark.parametrize(
    "output",
    [
        Checked,
        Converted,
        Modelled,
        Checked | Converted,
        list[Converted],
        Output(dict[str, str], validator=down),
        Output(dict[str, str], validator=down_later),
    ],
    ids=["attrs", "converter", "pydantic", "union", "list", "validator", "async validator"],
)
async def test_what_a_check_raises_besides_a_fault_of_the_value_is_logged_and_not_told(
    output: Any, caplog: pytest.LogCaptureFixture
) -> None:
    form = OutputForm.of(output.kind if isinstance(output, Output) else output)
    plain: Any = [{"name": "Ann"}] if output == list[Converted] else {"name": "Ann"}
    text = json.dumps({"value": plain} if form.wrapped else plain)
    asked: list[str] = []
    scripted = ScriptedModel(*[says(text)] * 3)

    async def ask(request: CallModel, scene: PerformContext) -> Answer:
        asked.append(scene.history[-1].text)
        return await scripted(request, scene)

    result = await Agent(performers={CallModel: ask}).run("who?", output=output)
    assert (result.reason, result.detail) == (
        DoneReason.OUTPUT_INVALID,
        "its check failed with ConnectionError",
    )
    assert "ConnectionError" in asked[1]
    assert "internal" not in "".join(asked)
    assert "no route to db-7.internal" in caplog.text


async def test_a_class_tells_the_model_what_is_wrong_with_a_value() -> None:
    @attrs.frozen
    class Known:
        name: str

        def __attrs_post_init__(self) -> None:
            try:
                down()
            except ConnectionError as error:
                msg = "nobody has that name"
                raise ValueError(msg) from error

    result = await Agent(performers=model(*['{"name": "Ann"}'] * 3)).run("who?", output=Known)
    assert result.detail == "nobody has that name"


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


async def test_type_checkers_know_what_the_runs_of_a_session_come_to() -> None:
    session = Agent(performers=model(ANN, '{"value": [1]}', "{}"), output=Person).session("s")
    result = await session.run("who?")
    assert_type(result, Result[Person])
    assert_type(session.result(), Result[Person])
    assert_type(await session.resume(), Result[Person])
    listed = await session.run("list", output=list[int])
    assert_type(listed, Result[list[int]])
    assert (result.output.age, listed.output) == (7, [1])
    await any_session(session)


async def any_session(session: Session) -> None:
    # Nothing is known of a session in general.
    assert_type(session.result(), Result[Any])


async def test_a_union_or_a_schema_is_taken_as_it_is() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = Agent(performers=model('{"value": 7}', '{"n": 3}', '{"value": "a"}'))
    either = await agent.run("which?", output=int | Person)
    mapped = await agent.session("s").run("count", output=schema)
    assert_type(mapped, Result[Any])
    said = await agent.session("t").run("which?", output=int | str)
    assert (either.output, mapped.output, said.output) == (7, {"n": 3}, "a")


async def test_another_process_reads_the_output_as_the_type_that_it_names() -> None:
    async def ask_a_person(_: AskApproval) -> None:
        return None

    store, replies = MemoryStore(), [calls(("pay", {"amount": 2})), says(ANN)]
    scripted = ScriptedModel(*replies)
    agent = Agent(tools=[pay], store=store, performers={CallModel: scripted}, approver=ask_a_person)
    async with agent.session("s") as session:
        resting = await session.run("pay", output=Person)
    (question,) = resting.waiting
    other = Agent(tools=[pay], store=store, performers={CallModel: scripted})
    async with other.session("s") as session:
        await session.approve(question.id)
        result = await session.resume(output=Person)
        assert_type(result, Result[Person])
    assert result.output == Person("Ann", 7)


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


@pytest.mark.parametrize("mode", OutputMode)
async def test_watchers_see_how_a_model_is_asked_for_an_output(mode: OutputMode) -> None:
    agent = Agent(performers=model(ANN), output=Output(Person, mode=mode))
    asked = [notice async for notice in agent.stream("who?") if isinstance(notice, ModelCalled)]
    assert [notice.output for notice in asked] == [mode]


async def test_the_account_of_a_call_says_that_it_gives_the_output() -> None:
    replies = calls(("count", {"text": "Ann"}), ("Person", {"name": "Ann", "age": 7}))
    agent = Agent(
        tools=[count], store=MemoryStore(), performers={CallModel: ScriptedModel(replies)}, output=Person
    )
    session = agent.session("s")
    await session.run("who?")
    counted, given = [call.id for message in session.history for call in message.calls]
    store = agent.store
    assert store is not None
    told = {name: (await explain(store, "s", name)).moments for name in (counted, given)}
    said = "the model was asked for the output of the run in the mode tool"
    assert [moment.text for moment in told[given] if moment.what == "output"] == [said]
    assert [moment for moment in told[counted] if moment.what == "output"] == []


REFUSED = """\
data: {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}}

data: {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": DETAILS}}

data: {"type": "message_stop"}

"""


@pytest.mark.parametrize(
    ("details", "detail"),
    [
        (
            '{"type": "refusal", "category": "cyber", "explanation": "It is harmful."}',
            "cyber: It is harmful.",
        ),
        ('{"type": "refusal", "category": null, "explanation": "It is harmful."}', "It is harmful."),
        ('{"category": {}, "explanation": 7}', ""),
        ("null", ""),
    ],
)
async def test_why_a_provider_refuses_is_the_detail_of_the_run(details: str, detail: str) -> None:
    body = REFUSED.replace("DETAILS", details)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=body))
    async with httpx.AsyncClient(transport=transport) as client:
        agent = Agent(model="anthropic:claude-sonnet-4-5", output=Person, client=client, api_key="k")
        session = agent.session("s", MemoryStore())
        result = await session.run("who?")
    assert (result.reason, result.detail) == (DoneReason.REFUSAL, detail)
