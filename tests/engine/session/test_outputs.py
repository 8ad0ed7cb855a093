"""Outputs of the prompts of a session: each run has its own, here and in other processes."""

from __future__ import annotations

import gc
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal
from weakref import WeakSet

import msgspec
import pytest

from turnwheel import Agent, DoneReason, MemoryStore, tool
from turnwheel.effects import Answer, AskApproval, CallModel, OutputMode, OutputSpec, Policy
from turnwheel.effects.errors import ConfigError, InputConflict, QueueFull
from turnwheel.effects.notices import RunEnded
from turnwheel.engine.session.wanted_outputs import WantedOutputs
from turnwheel.performers import AskAgain, Output, PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing import ScriptedModel, calls, says
from turnwheel.testing.stores import StoreOver


@dataclass
class Person:
    name: str
    age: int = 0


@dataclass
class Other:
    title: str


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


ANN, BOB = '{"name": "Ann"}', '{"name": "Bob"}'


async def ask_a_person(_: AskApproval) -> None:
    return None


class Told:
    """A model, and how it was asked."""

    def __init__(self, *replies: Any) -> None:
        self._model = ScriptedModel(*replies)
        self.asked: list[tuple[OutputMode | None, bool]] = []

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer:
        spec = scene.config.output
        self.asked.append((request.output, spec is not None and "name" in spec.schema))
        return await self._model(request, scene)


def agent(model: Any, store: Store | None = None, **settings: Any) -> Agent[Any, Any]:
    return Agent(performers={CallModel: model}, store=store, **settings)


# The value


@pytest.mark.parametrize("waits", [False, True])
async def test_an_output_is_the_object_that_its_validator_saw(*, waits: bool) -> None:
    seen: list[Person] = []

    def check(person: Person) -> None:
        person.age = 7
        seen.append(person)

    async def check_slowly(person: Person) -> None:
        check(person)

    output: Output[Person] = Output(Person, validator=check_slowly if waits else check)
    session = agent(ScriptedModel(says(ANN), says(BOB))).session("s")
    first = await session.run("who?", output=output)
    again = session.result()
    second = await session.run("who else?", output=output)
    ann, bob = seen
    assert first.output is ann
    assert again.output is ann
    assert second.output is bob
    assert (ann.age, bob.age) == (7, 7)


def refusing(name: str, seen: list[str]) -> Output[Person]:
    """An output that may be anybody but one person."""

    def check(person: Person) -> None:
        seen.append(f"not {name}: {person.name}")
        if person.name == name:
            msg = f"not {name}"
            raise AskAgain(msg)

    return Output(Person, validator=check)


async def test_runs_with_one_class_and_several_validators_keep_their_own() -> None:
    seen: list[str] = []
    replies = [says(text) for text in (ANN, BOB, ANN, ANN, BOB)]
    session = agent(ScriptedModel(*replies), output=refusing("Ann", seen)).session("s")
    await session.send("who?", output=refusing("Cid", seen))
    await session.send("who else?", output=refusing("Bob", seen))
    await session.send("and now?", output=Person)
    last = await session.run("the last?")
    assert seen == ["not Cid: Ann", "not Bob: Bob", "not Bob: Ann", "not Ann: Bob"]
    assert last.output == Person("Bob")


# The queue


async def test_a_prompt_that_waits_takes_its_output_to_another_process() -> None:
    store, model = MemoryStore(), Told(says(ANN), says("hello"), says('{"value": 7}'), says(BOB))
    async with agent(model, store).session("s") as session:
        await session.send("who?", output=Output(Person, mode="prompted"))
        await session.send("hi", output=str)
        await session.send("how many?")
        await session.send("and who?", output=Person)
    async with agent(model, store, output=int).session("s") as session:
        ended = [notice.output async for notice in session.stream() if isinstance(notice, RunEnded)]
        plain: object = session.result().output
    assert model.asked == [
        (OutputMode.PROMPTED, True),
        (None, False),
        (OutputMode.TOOL, False),
        (OutputMode.TOOL, True),
    ]
    assert ended == [ANN, "", '{"value": 7}', BOB]
    assert plain == {"name": "Bob"}


async def test_a_process_that_names_the_class_of_a_waiting_prompt_reads_it_so() -> None:
    store, model = MemoryStore(), ScriptedModel(says("hello"), says(ANN))
    async with agent(model, store).session("s") as session:
        await session.run("hi")
        await session.send("who?", output=Person)
    async with agent(model, store).session("s") as session:
        result = await session.resume(output=Person)
    assert result.output == Person("Ann")


async def test_a_process_that_resumes_a_waiting_prompt_brings_its_own_validator() -> None:
    store, seen = MemoryStore(), list[Person]()
    async with agent(ScriptedModel(), store).session("s") as session:
        await session.send("who?", output=Person)
    async with agent(ScriptedModel(says(ANN)), store, output=Person).session("s") as session:
        result = await session.resume(output=Output(Person, validator=seen.append))
    assert seen == [result.output] == [Person("Ann")]


@pytest.mark.parametrize("output", [None, Other])
async def test_a_waiting_prompt_is_not_read_as_another_output(output: Any) -> None:
    session = agent(Told()).session("s")
    id_ = await session.send("who?", output=output)
    with pytest.raises(
        ConfigError, match=f"prompt '{id_}' was asked for .*, and not for the output 'Person'"
    ):
        await session.resume(output=Person)


class Raced(StoreOver):
    """A store, and what another process does in it right before the next append."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], Awaitable[object]] | None = None

    async def append(self, *given: Any, **named: Any) -> str:
        before, self.before = self.before, None
        if before is not None:
            await before()
        return await super().append(*given, **named)


async def test_a_prompt_that_came_first_begins_its_run_with_its_own_output() -> None:
    store, model = Raced(), Told(says("hello"), says(ANN))
    async with agent(model, store).session("s") as session, agent(model, store).session("s") as other:
        await session.load()
        store.before = partial(other.send, "hi")
        result = await session.run("who?", output=Person)
    assert result.output == Person("Ann")
    assert [mode for mode, _ in model.asked] == [None, OutputMode.TOOL]


async def test_a_prompt_that_is_taken_back_takes_its_output_along() -> None:
    store, model = Raced(), Told(says("hello"))
    async with agent(model, store).session("s") as session, agent(model, store).session("s") as other:
        wanted = await other.send("who?", output=Person)
        await other.send("hi")
        await session.load()
        store.before = partial(other.withdraw, wanted)
        result = await session.resume()
    assert result.text == "hello"
    assert model.asked == [(None, False)]


async def test_a_prompt_behind_another_keeps_its_output_for_its_own_run() -> None:
    model = Told(says("hello"), says(ANN))
    session = agent(model).session("s")
    await session.send("hi")
    result = await session.run("who?", output=Person)
    assert result.output == Person("Ann")
    assert [mode for mode, _ in model.asked] == [None, OutputMode.TOOL]


async def test_prompts_that_want_different_outputs_do_not_become_one() -> None:
    model = Told(says(ANN), says('{"title": "x"}'))
    session = agent(model, policy=Policy(coalesce=0.01)).session("s")
    await session.send("who?", sender="ann", output=Person)
    await session.send("and what?", sender="ann", output=Other)
    result = await session.resume()
    assert result.output == Other("x")
    assert [named for _, named in model.asked] == [True, False]


async def test_a_prompt_that_comes_again_for_another_output_is_a_conflict() -> None:
    store, model = MemoryStore(), ScriptedModel(says(ANN))
    session = agent(model, store).session("s")
    first = await session.run("who?", id="p", output=Person)
    again = await session.run("who?", id="p", output=Person)
    assert (first.output, again.output) == (Person("Ann"), Person("Ann"))
    for other in (Other, None):
        with pytest.raises(InputConflict):
            await session.run("who?", id="p", output=other)


def person_spec() -> OutputSpec:
    return OutputSpec(schema='{"type": "object"}', name="Person")


def test_looking_for_prompts_that_are_over_costs_a_constant_for_each_prompt() -> None:
    outputs, looked_at = WantedOutputs(), list[int]()

    def over(prompts: Sequence[str]) -> list[str]:
        looked_at.append(len(prompts))
        return []

    for number in range(1_000):
        outputs.want(f"p{number}", person_spec(), Output(Person), over)
    assert 0 < sum(looked_at) <= 2 * 1_000


def test_a_session_that_keeps_few_prompts_looks_seldom_for_those_that_are_over() -> None:
    outputs, looked_at = WantedOutputs(), list[int]()

    def over(prompts: Sequence[str]) -> Sequence[str]:
        looked_at.append(len(prompts))
        return prompts

    for number in range(1_000):
        outputs.want(f"p{number}", person_spec(), Output(Person), over)
    assert 0 < sum(looked_at) <= 1_000


def reading(outputs: WeakSet[Output[Any]]) -> Output[Person]:
    """A new output, which is in *outputs* as long as a session keeps it."""
    output: Output[Person] = Output(Person, validator=lambda _: None)
    outputs.add(output)
    return output


async def test_outputs_of_prompts_that_were_taken_back_are_forgotten() -> None:
    session, kept, most = agent(Told()).session("s"), WeakSet[Output[Any]](), 0
    for _ in range(100):
        await session.withdraw(await session.send("who?", output=reading(kept)))
        gc.collect()
        most = max(most, len(kept))
    assert most < 30


async def test_outputs_of_prompts_that_were_refused_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnwheel.effects.validators.MAX_WAITING", 1)
    monkeypatch.setattr("turnwheel.engine.session.outputs.RECALL", 5)
    session, kept = agent(Told()).session("s"), WeakSet[Output[Any]]()
    await session.send("hi")
    for _ in range(100):
        with pytest.raises(QueueFull):
            await session.send("who?", output=reading(kept))
    gc.collect()
    assert len(kept) < 30


async def test_outputs_of_prompts_that_began_elsewhere_are_forgotten() -> None:
    store, kept = MemoryStore(), WeakSet[Output[Any]]()
    async with agent(Told(), store).session("s") as session:
        for _ in range(4):
            for _ in range(10):
                await session.send("who?", output=reading(kept))
            async with agent(ScriptedModel(*[says(ANN)] * 10), store).session("s") as other:
                await other.resume()
            await session.load()
        gc.collect()
        assert len(kept) < 30


async def test_a_prompt_that_waits_keeps_its_output_while_others_are_taken_back() -> None:
    seen = list[str]()
    session = agent(ScriptedModel(says(ANN)), output=Person).session("s")
    await session.send("who?", output=refusing("Bob", seen))
    for _ in range(100):
        await session.withdraw(await session.send("and who?", output=Person))
    await session.resume()
    assert seen == ["not Bob: Ann"]


# Going on elsewhere


async def resting(store: Store, model: Any) -> str:
    """A run that comes to a `Person` and rests; the question that it asks."""
    async with agent(model, store, tools=[pay], approver=ask_a_person).session("s") as session:
        (question,) = (await session.run("pay", output=Person)).waiting
    return question.id


def renewed(docstring: str) -> type[Any]:
    """`Person` of a later version of the host: with its fields in another order, and another default."""

    class Person(msgspec.Struct, kw_only=True):
        age: Annotated[int, msgspec.Meta(description="In years.", examples=[7])] = 1
        name: Annotated[str, msgspec.Meta(title="The name")]

    Person.__doc__ = docstring
    return Person


@pytest.mark.parametrize("of_agent", [False, True])
async def test_a_run_is_read_as_its_class_also_after_an_upgrade(*, of_agent: bool) -> None:
    store, model = MemoryStore(), ScriptedModel(calls(("pay", {"amount": 2})), says(ANN))
    question = await resting(store, model)
    later = renewed("Somebody, described in other words.")
    settings: dict[str, Any] = {"output": later} if of_agent else {}
    async with agent(model, store, tools=[pay], **settings).session("s") as session:
        await session.approve(question)
        result = await session.resume(output=None if of_agent else later)
    assert result.output == later(name="Ann")


async def test_a_prompt_that_comes_again_after_an_upgrade_is_no_conflict() -> None:
    store, model, later = MemoryStore(), ScriptedModel(says(ANN)), renewed("Somebody.")
    async with agent(model, store).session("s") as session:
        await session.run("who?", id="p", output=Person)
    async with agent(model, store).session("s") as session:
        result = await session.run("who?", id="p", output=later)
    assert result.output == later(name="Ann")


@dataclass
class Headline:
    description: str


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Other, "not for the output 'Other'"),
        # Its only field is called as a keyword of a schema.
        (Output(Headline, name="Person"), "not for the output 'Person' of another schema"),
        (Output(Literal["a"], name="Person"), "not for the output 'Person' of another schema"),
        (str, "not for text"),
        (Output(dict[str, int], name="Person"), "not for the output 'Person' of another schema"),
    ],
)
async def test_a_run_is_not_read_as_another_output_than_it_was_asked_for(other: Any, named: str) -> None:
    store, model = MemoryStore(), ScriptedModel(calls(("pay", {"amount": 2})), says(ANN))
    question = await resting(store, model)
    async with agent(model, store, tools=[pay]).session("s") as session:
        await session.approve(question)
        with pytest.raises(ConfigError, match=f"was asked for the output 'Person', and {named}; resume it"):
            await session.resume(output=other)
        result = await session.resume(output=Person)
        with pytest.raises(ConfigError, match="was asked for the output 'Person'"):
            await session.resume(output=other)
    assert result.output == Person("Ann")


async def test_a_run_that_came_to_text_is_not_read_as_an_output() -> None:
    session = agent(ScriptedModel(says("hello"))).session("s")
    await session.run("hi")
    with pytest.raises(ConfigError, match="was asked for text, and not for the output 'Person'"):
        await session.resume(output=Person)


async def test_a_run_that_goes_on_in_a_copy_is_read_there() -> None:
    store = MemoryStore()
    model = ScriptedModel(calls(("pay", {"amount": 2})), says(ANN), says(BOB))
    original = agent(model, store, tools=[pay], approver=ask_a_person).session("s")
    (question,) = (await original.run("pay", output=Person)).waiting
    steps = len(await store.load("s"))
    copy = await original.fork("t", at=steps)
    (asked,) = copy.waiting
    await copy.approve(asked.id)
    await original.approve(question.id)
    results = [await copy.resume(), await original.resume()]
    assert {type(result.output) for result in results} == {Person}
    assert {result.reason for result in results} == {DoneReason.END_TURN}


@pytest.mark.parametrize(
    ("schema", "other", "same"),
    [
        ({"properties": {"title": {"type": "string"}}}, {"properties": {}}, False),
        ({"$defs": {"default": {"type": "null"}}}, {"$defs": {}}, False),
        ({"const": {"title": 1}}, {"const": {}}, False),
        ({"enum": [1, {"default": 2}]}, {"enum": [{"default": 2}, 1]}, True),
        ({"type": ["null", "object"], "title": "A"}, {"type": ["object", "null"]}, True),
        ({"prefixItems": [{"type": "null"}, {}]}, {"prefixItems": [{}, {"type": "null"}]}, False),
        ({"anyOf": [{"description": "b"}, {"const": 1}]}, {"anyOf": [{"const": 1}, {}]}, True),
        ({"minimum": 1}, {"minimum": 2}, False),
        ({"dependentRequired": {"title": ["a"]}}, {"dependentRequired": {}}, False),
        ({"dependentSchemas": {"default": {"const": 1}}}, {"dependentSchemas": {}}, False),
        ({"dependentRequired": {"a": ["b", "c"]}}, {"dependentRequired": {"a": ["c", "b"]}}, True),
    ],
)
def test_two_schemas_are_one_where_only_annotations_and_the_order_differ(
    schema: dict[str, Any], other: dict[str, Any], *, same: bool
) -> None:
    one, two = (OutputSpec(schema=json.dumps(each)) for each in (schema, other))
    assert (one.identity == two.identity) is same
