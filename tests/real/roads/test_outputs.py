"""Structured outputs on every road, in each mode: what the model is asked, and what its answer becomes."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from real.roads.conftest import every_wire
from support.partials import begins

from turnwheel.effects.notices import OutputDelta
from turnwheel.effects.output import OutputMode
from turnwheel.performers import Output

if TYPE_CHECKING:
    from real.roads.conftest import Json, Road

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(60, func_only=True),
    every_wire,
    pytest.mark.parametrize("mode", OutputMode),
]


@attrs.frozen
class Invoice:
    """What a bill says."""

    number: str
    total: float


INVOICE: Json = {"number": "A-7 of the third of November, which is twelve days late", "total": 12.5}
SCHEMA = {"number": {"type": "string"}, "total": {"type": "number"}}


def answer(mode: OutputMode, value: Json, call: str = "call_1") -> Json:
    """The answer of a model that was asked in *mode*; it gives *value*."""
    text = json.dumps(value)
    if mode is OutputMode.TOOL:
        return {"toolCalls": [{"id": call, "name": "output", "arguments": text}], "chunkSize": 7}
    return {"content": text, "chunkSize": 7}


def output(mode: OutputMode) -> Output[Invoice]:
    """What the runs come to."""
    return Output(Invoice, name="output", mode=mode)


def schemas(request: Json) -> dict[OutputMode, Any]:
    """The properties of the schema in a *request* of any wire, by how they are asked for."""
    fields = [
        request.get("response_format", {}).get("json_schema"),
        request.get("text", {}).get("format"),
        request.get("output_config", {}).get("format"),
        # The older name of this, by which LiteLLM asks Anthropic where it was asked on another wire.
        request.get("output_format"),
    ]
    native = [field["schema"]["properties"] for field in fields if field]
    offered = [tool.get("function", tool) for tool in request.get("tools", ())]
    tools = [(tool.get("parameters") or tool["input_schema"])["properties"] for tool in offered]
    prompted = [SCHEMA] if json.dumps(SCHEMA).replace('"', '\\"') in json.dumps(request) else []
    found = {OutputMode.NATIVE: native, OutputMode.TOOL: tools, OutputMode.PROMPTED: prompted}
    return {mode: each[0] for mode, each in found.items() if each}


async def test_the_schema_arrives_and_the_output_is_read(mode: OutputMode, road: Road) -> None:
    """No proxy loses the schema, or asks in another mode than it was asked in."""
    road.play(answer(mode, INVOICE))
    async with road.agent() as agent:
        result = await agent.run("Read the invoice.", output=output(mode))
    assert result.output == Invoice(**INVOICE)
    [sent], [heard] = road.sent, road.asked()
    assert schemas(json.loads(sent.content)) == schemas(heard) == {mode: SCHEMA}


async def test_a_wrong_output_is_asked_for_again(mode: OutputMode, road: Road) -> None:
    """The model reads its wrong output, and what is wrong about it."""
    road.play(answer(mode, {"number": "A-7"}), answer(mode, INVOICE, "call_2"))
    async with road.agent() as agent:
        result = await agent.run("Read the invoice.", output=output(mode))
    assert result.output == Invoice(**INVOICE)
    messages = road.heard()[-1]["messages"]
    latest = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    assert "A-7" in json.dumps(messages[latest])
    assert "total" in json.dumps(messages[latest + 1 :])


async def test_partials_are_beginnings_of_the_output(mode: OutputMode, road: Road) -> None:
    """In whatever pieces it comes: a proxy may have melted them into one."""
    road.play(answer(mode, INVOICE))
    async with road.agent() as agent:
        await road.watch(agent, "Read the invoice.", output=output(mode))
    partials = [delta.partial for delta in road.seen(OutputDelta)]
    assert partials[-1] == INVOICE
    assert all(begins(earlier, later) for earlier, later in pairwise(partials))
