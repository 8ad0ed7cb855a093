"""Outputs while the model writes them: what a reader is told of each, and that it never goes back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import jiter
import pytest
from hypothesis import given, strategies as st
from support.partials import begins

from turnwheel import Agent, MemoryStore, tool
from turnwheel.effects import CallModel, Notice, OutputDelta, OutputMode, OutputSpec
from turnwheel.effects.messages import Message, Role, StopReason, Text, ToolCall
from turnwheel.effects.notices import (
    AnswerDropped,
    CallDelta,
    ModelCalled,
    ProviderCalled,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    TurnEnded,
    Warned,
)
from turnwheel.effects.usage import Usage
from turnwheel.engine import partial_outputs
from turnwheel.engine.core.codec import UNION_OF, decode, encode
from turnwheel.engine.partial_outputs import PartialOutputs
from turnwheel.engine.session.completed_texts import Delivery
from turnwheel.performers import Output
from turnwheel.projections import AgUiEvents, SseEvents, UiMessageChunks
from turnwheel.testing import ScriptedModel, calls, says
from turnwheel.testing.scripted import Reply

# Models that are named after the mode in which they are asked.
MODES = {mode.value: mode for mode in OutputMode}
ANY_OBJECT = OutputSpec(schema='{"type": "object"}', name="result", modes=MODES)
WRAPPED = OutputSpec(
    schema='{"type": "object", "properties": {"value": {}}, "required": ["value"]}',
    name="result",
    modes=MODES,
    wrapped=True,
)
NOTE = {"title": "A short note", "lines": ["one of them", "another one", "and a third, longer one"]}


@attrs.frozen
class Note:
    title: str
    lines: tuple[str, ...]
    author: str | None = None


def asked(mode: OutputMode | None) -> ModelCalled:
    return ModelCalled(request="r", model="m" if mode is None else mode.value, attempt=1, output=mode, at=0.0)


def ended(*parts: str | ToolCall) -> TurnEnded:
    """The end of an answer of these texts and calls."""
    made = [Text(text=part) if isinstance(part, str) else part for part in parts]
    by_tool = any(isinstance(part, ToolCall) for part in parts)
    answer = Message(role=Role.ASSISTANT, parts=tuple(made), model="tool" if by_tool else "native")
    return TurnEnded(request="r", turn=1, message=answer, stop=StopReason.END_TURN, usage=Usage(), at=0.0)


def called(arguments: str, name: str = "result") -> ToolCall:
    return ToolCall(id="c", wire_id="w", name=name, arguments=arguments)


def text(part: str) -> Notice:
    return TextDelta(part, at=0.0)


def partials_of(steps: Sequence[Sequence[Notice]], spec: OutputSpec = ANY_OBJECT) -> list[Any]:
    """The partial outputs that are told of *steps*; all other notices must come as they were, in order."""
    made = PartialOutputs(spec, lambda: True)
    told = [notice for step in steps for notice in made.filtered(step)]
    assert [each for each in told if not isinstance(each, OutputDelta)] == [each for s in steps for each in s]
    assert made.held_back() == ()
    return [each.partial for each in told if isinstance(each, OutputDelta)]


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    PLAIN, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(), each, max_size=4)
)
OBJECTS = st.dictionaries(st.text(), VALUES, max_size=5)


def cut(written: str, places: Sequence[int]) -> list[str]:
    """*written* in pieces, cut at *places*."""
    ends = sorted({place % (len(written) + 1) for place in places} | {0, len(written)})
    return [written[begin:end] for begin, end in pairwise(ends)]


CUTS = st.lists(st.integers(min_value=0, max_value=10_000), max_size=40)
WRITTEN = st.sampled_from([{}, {"ensure_ascii": False}, {"indent": 2}, {"separators": (",", ":")}])


@pytest.fixture
def each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of an answer is parsed."""
    monkeypatch.setattr(partial_outputs, "MIN_GROWTH", 1)
    monkeypatch.setattr(partial_outputs, "GROWTH_SHARE", 1_000_000)


def partials_of_pieces(steps: Sequence[Sequence[Notice]], spec: OutputSpec = ANY_OBJECT) -> list[Any]:
    """As `partials_of`, with `each_piece`, which a test of many examples cannot use."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_outputs, "MIN_GROWTH", 1)
        patch.setattr(partial_outputs, "GROWTH_SHARE", 1_000_000)
        return partials_of(steps, spec)


@pytest.mark.parametrize("mode", OutputMode)
@given(value=OBJECTS, places=CUTS, how=WRITTEN)
def test_each_partial_is_a_beginning_of_the_output_and_the_last_is_all_of_it(
    mode: OutputMode, value: dict[str, Any], places: list[int], how: dict[str, Any]
) -> None:
    written = json.dumps(value, **how)
    if mode is OutputMode.PROMPTED:
        written = f"Here {{it}} is:\n```json\n{written}\n```\n"
        if written.count("```") != 2:
            return
    pieces = cut(written, places)
    deltas: list[Notice] = [text(piece) for piece in pieces]
    if mode is OutputMode.TOOL:
        deltas = [CallDelta(0, "result", at=0.0), *[CallDelta(0, "", piece, at=0.0) for piece in pieces]]
    steps: list[list[Notice]] = [[asked(mode)]]
    steps += [[delta] for delta in deltas]
    steps.append([ended(called(written) if mode is OutputMode.TOOL else written)])
    partials = partials_of_pieces(steps)
    assert all(begins(partial, value) for partial in partials[:-1])
    assert all(begins(one, other) for one, other in pairwise(partials[:-1]))
    # As text: to Python 1 and true are equal.
    assert json.dumps(partials[-1]) == json.dumps(value)


@given(value=VALUES, places=CUTS)
def test_what_is_no_object_is_told_without_the_object_around_it(value: Any, places: list[int]) -> None:
    written = json.dumps({"value": value})
    steps: list[list[Notice]] = [[asked(OutputMode.NATIVE)]]
    steps += [[text(piece)] for piece in cut(written, places)]
    steps.append([ended(written)])
    partials = partials_of_pieces(steps, WRAPPED)
    assert all(begins(partial, value) for partial in partials[:-1])
    assert partials[-1] == value


def test_a_long_answer_costs_a_bounded_number_of_times_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    parse = jiter.from_json

    def counted(data: bytes, **options: Any) -> Any:
        lengths.append(len(data))
        return parse(data, **options)

    monkeypatch.setattr(jiter, "from_json", counted)
    written = json.dumps({"words": ["word"] * 20_000})
    steps = [[text(written[at : at + 5])] for at in range(0, len(written), 5)]
    partials = partials_of([[asked(OutputMode.NATIVE)], *steps, [ended(written)]])
    assert sum(lengths) < 10 * len(written)
    assert 40 < len(partials) < 100
    # The text of the first ones grows by few characters.
    assert len(partials[1]["words"]) < 12


@pytest.mark.usefixtures("each_piece")
@pytest.mark.parametrize(
    ("answer", "partials"),
    [
        # A number may go on, as may a literal.
        (['{"a": 1', '2, "b": tru', 'e, "c": -1.5', "e3}"], [{}, {"a": 12}, {"a": 12, "b": True}]),
        # Half of a character.
        (['{"a": "x\\ud8', "3d\\ude", '00"}'], [{"a": "x"}, {"a": "x😀"}]),
        # What no JSON begins with, and what is wrong at once.
        (["I think that ", "it is {so}."], []),
        (['{"a": 1, b}', "more"], []),
        # Half a character alone is read where it is complete, as the output itself is.
        (['{"a": "\\ud83d', ' b", "c": 1', "}"], [{"a": ""}, {"a": "\ud83d b", "c": 1}]),
    ],
)
def test_what_may_go_on_is_not_told_before_it_is_known(answer: list[str], partials: list[Any]) -> None:
    told = partials_of(
        [[asked(OutputMode.NATIVE)], *[[text(each)] for each in answer], [ended("".join(answer))]]
    )
    assert told[: len(partials)] == partials


def test_what_the_machine_refuses_has_no_last_partial() -> None:
    written = '{"title": "a title that is long enough", "lines": "none", "more": NaN}'
    told = partials_of(
        [[asked(OutputMode.NATIVE)], [text(written[:54])], [text(written[54:])], [ended(written)]]
    )
    assert told == [{"title": "a title that is long enough", "lines": "non"}]


@pytest.mark.usefixtures("each_piece")
def test_an_answer_that_is_dropped_and_one_that_is_asked_for_again_begin_anew() -> None:
    dropped = AnswerDropped(request="r", at=0.0)
    mode = OutputMode.NATIVE
    told = partials_of(
        [
            [asked(mode)],
            [text('{"a": "b')],
            [dropped, asked(mode)],
            [text('{"a": "c')],
            [text('d"}'), ended('{"a": "cd"}')],
            [Warned(text="again", at=0.0), asked(mode)],
            [text('{"e": 1}'), ended('{"e": 1}')],
            # Without an output, as a summary, or an answer that nobody asked for as one.
            [asked(None)],
            [text('{"f": 1}'), ended('{"f": 1}')],
        ]
    )
    assert told == [{"a": "b"}, {"a": "c"}, {"a": "cd"}, {"e": 1}]


@pytest.mark.usefixtures("each_piece")
def test_of_several_calls_the_first_of_the_output_tool_counts() -> None:
    steps: list[list[Notice]] = [
        [asked(OutputMode.TOOL)],
        [text('{"text": 1, ')],
        [CallDelta(0, "", '{"o', at=0.0), CallDelta(1, "", '{"a": [', at=0.0)],
        [CallDelta(0, "other", "", at=0.0)],
        [CallDelta(1, "result", '1, 2, "', at=0.0), CallDelta(2, "result", '{"b": 1}', at=0.0)],
        [CallDelta(0, "", 'ther": 1}', at=0.0), text("more")],
        [CallDelta(1, "", 'x"]}', at=0.0)],
        [ended("{}", called("{}", "other"), called('{"a": [1, 2, "x"]}'), called('{"b": 1}'))],
    ]
    assert partials_of(steps) == [{"text": 1}, {"a": [1, 2, ""]}, {"a": [1, 2, "x"]}]
    # In another mode a tool of the name of the output is one of the host's.
    assert partials_of([[asked(OutputMode.NATIVE)], *steps[2:-1]]) == []


@pytest.mark.usefixtures("each_piece")
@pytest.mark.parametrize(
    "between", [ReasoningDelta("hm", at=0.0), ProviderCalled(id="s", tool="web_search", at=0.0)]
)
def test_a_text_may_stand_before_that_of_the_output_and_more_in_the_middle_of_it(between: Notice) -> None:
    start: list[Notice] = [asked(OutputMode.NATIVE)]
    thought = [between]
    first: list[Notice] = [text("I look.")]
    begun: list[Notice] = [text('{"a": [{')]
    rest: list[list[Notice]] = [[text('"b": 1}, ')], [text('{"c": ""')]]
    grown = [{"a": [{}]}, {"a": [{"b": 1}]}, {"a": [{"b": 1}, {"c": ""}]}]
    assert partials_of([start, first, thought, begun, *rest]) == grown
    assert partials_of([start, begun, thought, rest[0], thought, rest[1]]) == grown


def test_the_output_may_be_a_text_right_behind_another_one() -> None:
    steps: list[list[Notice]] = [
        [asked(OutputMode.NATIVE)],
        [text("I look {it} up. ")],
        [TextDelta('{"a": "b', begins=True, at=0.0), text("c" * 40)],
        [text('d"}'), ended("I look {it} up. ", f'{{"a": "b{"c" * 40}d"}}')],
    ]
    assert partials_of(steps) == [{"a": "b" + "c" * 40}, {"a": "b" + "c" * 40 + "d"}]


def test_a_call_without_arguments_is_an_empty_object() -> None:
    assert partials_of([[asked(OutputMode.TOOL)], [CallDelta(0, "result", at=0.0), ended(called(""))]]) == [
        {}
    ]


def test_where_nobody_reads_nothing_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jiter, "from_json", None)
    heard = False
    made = PartialOutputs(ANY_OBJECT, lambda: heard)
    first: list[Notice] = [asked(OutputMode.NATIVE), text(json.dumps(NOTE)[:40])]
    assert [*made.filtered(first)] == first
    monkeypatch.undo()
    # One that comes in the middle of an answer has all of it.
    heard = True
    told = [*made.filtered([text(json.dumps(NOTE)[40:70])])]
    assert isinstance(told[1], OutputDelta)
    assert told[1].partial["title"] == NOTE["title"]


# Of whole runs


def agent(*replies: str | Reply, **settings: Any) -> Agent:
    made = [says(reply) if isinstance(reply, str) else reply for reply in replies]
    return Agent(performers={CallModel: ScriptedModel(*made)}, **settings)


async def streamed(one: Agent, output: Any = Note) -> list[Notice]:
    async with one.stream("go", output=output) as notices:
        return [notice async for notice in notices]


def outputs(notices: Sequence[Notice]) -> list[Any]:
    return [notice.partial for notice in notices if isinstance(notice, OutputDelta)]


@pytest.mark.usefixtures("each_piece")
async def test_a_reader_of_a_run_sees_its_output_grow() -> None:
    for output, reply, count in (
        (Note, says(json.dumps(NOTE)), 14),
        (Output(Note, mode="prompted"), says(f"It is:\n```json\n{json.dumps(NOTE)}\n```"), 14),
        # The call comes in one piece.
        (Output(Note, name="note"), calls(("note", NOTE)), 1),
    ):
        notices = await streamed(agent(reply), output)
        *_, last = [notice for notice in notices if isinstance(notice, OutputDelta)]
        end = notices[-1]
        assert isinstance(end, RunEnded)
        assert last.partial == json.loads(end.output) == NOTE
        assert type(notices[notices.index(last) + 1]) is TurnEnded
        assert len(outputs(notices)) == count
    listed = await streamed(agent('{"value": [1, 2, 3]}'), list[int])
    assert outputs(listed) == [[1], [1, 2], [1, 2, 3]]


async def test_without_an_output_without_pieces_or_without_jiter_there_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = json.dumps(NOTE)
    assert outputs(await streamed(agent(written), None)) == []
    assert outputs(await streamed(agent(written, watch=Delivery(include_partial=False)))) == []
    monkeypatch.setitem(sys.modules, "jiter", None)
    notices = await streamed(agent(written))
    assert outputs(notices) == []
    assert isinstance(notices[-1], RunEnded)
    assert json.loads(notices[-1].output) == NOTE


async def test_a_subscriber_has_them_and_a_journal_has_none() -> None:
    session = agent(json.dumps(NOTE), store=MemoryStore()).session("s")
    async with session.subscribe() as subscription:
        await session.run("go", output=Note)
        await session.close()
        told = [notice async for notice in subscription]
    assert outputs(told)[-1] == NOTE
    kept = [each.notice async for each in session.watch(follow=False)]
    assert outputs(kept) == []
    assert len(kept) == len([each for each in told if not isinstance(each, TextDelta | OutputDelta)])


async def test_jiter_is_imported_where_an_output_is_read_and_nowhere_else() -> None:
    code = """
import asyncio, sys
from turnwheel import Agent
from turnwheel.effects import CallModel
from turnwheel.testing import ScriptedModel, says
written = '{"value": ["one of them", "another one", "and a third, longer one"]}'
agent = Agent(performers={CallModel: ScriptedModel(*[says(written)] * 3)})
async def read(**options):
    async with agent.stream("go", **options) as notices:
        async for _ in notices:
            pass
agent.run_sync("go", output=list[str])
asyncio.run(read())
print("jiter" in sys.modules)
asyncio.run(read(output=list[str]))
print("jiter" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True)
    assert done.stdout == "False\nTrue\n"


PASSWORD = "hunter2-of-old"  # noqa: S105  # of no account


@tool(side_effect="idempotent", approval="never")
def log_in(user: str, password: str) -> str:
    """Log in."""
    return f"{user} is in with {len(password)} characters"


async def test_the_last_partial_is_the_output_also_where_that_repeats_a_secret() -> None:
    # Nothing redacts what a model says: the same reader gets the deltas of the text, and the message.
    note = {"title": f"It is {PASSWORD}!", "lines": ["the end"]}
    first = calls(("log_in", {"user": "ann", "password": PASSWORD}))
    notices = await streamed(agent(first, json.dumps(note), tools=[log_in]))
    end = notices[-1]
    assert isinstance(end, RunEnded)
    assert outputs(notices)[-1] == json.loads(end.output) == note
    assert "".join([each.text for each in notices if isinstance(each, TextDelta)]) == json.dumps(note)


@attrs.frozen
class Account:
    user: str
    password: str


@pytest.mark.parametrize("mode", OutputMode)
@pytest.mark.parametrize("of_agent", [False, True])
async def test_an_output_is_for_its_caller_and_has_no_placeholders(
    mode: OutputMode, *, of_agent: bool
) -> None:
    account = {"user": "ann", "password": PASSWORD}
    reply = calls(("Account", account)) if mode is OutputMode.TOOL else says(json.dumps(account))
    output: Output[Account] = Output(Account, mode=mode)
    one = agent(reply, tools=[log_in], output=output if of_agent else None)
    notices = await streamed(one, None if of_agent else output)
    end = notices[-1]
    assert isinstance(end, RunEnded)
    assert outputs(notices)[-1] == json.loads(end.output) == account


# As events


def test_it_is_written_and_read_as_any_notice() -> None:
    told = OutputDelta({"a": [1, None, {"b": "c"}]}, at=1.0)
    written = encode(told, Notice)
    assert json.loads(written) == {"type": "OutputDelta", "at": 1.0, "partial": {"a": [1, None, {"b": "c"}]}}
    assert decode(written, UNION_OF[OutputDelta]) == told


async def test_web_clients_are_told_it_without_the_values_of_secrets() -> None:
    told = OutputDelta({"user": "ann", "password": "x", "far": float("inf")}, at=0.0)
    before = [each for each in await streamed(agent(json.dumps(NOTE))) if not isinstance(each, RunEnded)][:3]
    partial = {"user": "ann", "password": "[redacted]", "far": "inf"}
    for kind, event in (
        (SseEvents, {"type": "output_delta", "partial": partial}),
        (AgUiEvents, {"type": "CUSTOM", "name": "turnwheel.output_delta", "value": {"partial": partial}}),
        (UiMessageChunks, {"type": "data-output-delta", "data": {"partial": partial}, "transient": True}),
    ):
        events = kind.of("s")
        for notice in before:
            events.take(notice)
        assert events.take(told) == (event,)
