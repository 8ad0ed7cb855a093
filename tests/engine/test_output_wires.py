"""Outputs in the answers of real wires: what a provider says and does around them."""

from __future__ import annotations

import json
from typing import Any

import attrs
import httpx
import pytest

from turnwheel import Agent
from turnwheel.effects import OutputMode
from turnwheel.performers import Output


@attrs.frozen
class Person:
    name: str
    age: int


ANN = '{"name": "Ann", "age": 7}'
COMMENT = "I search for {Ann} first."


def events(*data: dict[str, Any]) -> str:
    return "".join([f"data: {json.dumps(each)}\n\n" for each in data])


def responses(*texts: str) -> str:
    """Messages, of which the last one is the final answer."""
    phases = [*["commentary"] * (len(texts) - 1), "final_answer"]
    items: list[dict[str, Any]] = [
        {
            "type": "message",
            "id": f"m{at}",
            "phase": phase,
            "content": [{"type": "output_text", "text": text}],
        }
        for at, (text, phase) in enumerate(zip(texts, phases, strict=True))
    ]
    done = [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in enumerate(items)
    ]
    end = {"type": "response.completed", "response": {"status": "completed", "output": items}}
    return events(*done, end)


def messages(*texts: str, between: dict[str, Any] | None = None) -> str:
    """Blocks of text, with a block *between* each two of them."""
    blocks: list[dict[str, Any]] = []
    for text in texts:
        blocks += [between] if blocks and between is not None else []
        blocks.append({"type": "text", "text": text})
    started: list[dict[str, Any]] = []
    for at, block in enumerate(blocks):
        text = block.get("text", "")
        empty = block | {"text": ""} if text else block
        started.append({"type": "content_block_start", "index": at, "content_block": empty})
        if text:
            delta = {"type": "text_delta", "text": text}
            started.append({"type": "content_block_delta", "index": at, "delta": delta})
        started.append({"type": "content_block_stop", "index": at})
    return events(
        {"type": "message_start", "message": {"id": "m"}},
        *started,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Ann"}}
CLAUDE, GPT = "anthropic:claude-sonnet-4-5", "openai-responses:gpt-5"


async def outputs_of(model: str, body: str, mode: OutputMode | None = None) -> tuple[object, int]:
    """What a run comes to whose model answers with *body*, and how often it was asked."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, text=body)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        agent = Agent(model=model, client=client, api_key="k", output=Output(Person, mode=mode))
        result = await agent.run("who?")
    return (result.output, len(asked)) if result.reason == "end_turn" else (result.text, len(asked))


@pytest.mark.parametrize(
    ("model", "body"),
    [
        (GPT, responses(COMMENT, ANN)),
        (GPT, responses(COMMENT, "And then for {her} age.", ANN)),
        (CLAUDE, messages(COMMENT, ANN)),
        (CLAUDE, messages(COMMENT, ANN, between=SEARCH)),
        (CLAUDE, messages('{"name": "Bob", "age": 8}', ANN, between=SEARCH)),
    ],
    ids=["a comment", "comments", "a text", "a text before a search", "a draft"],
)
async def test_comments_before_an_output_are_no_part_of_it(model: str, body: str) -> None:
    assert await outputs_of(model, body) == (Person("Ann", 7), 1)


@pytest.mark.parametrize("details", [None, {"reason": None}, {"reason": "max_tool_calls"}])
async def test_an_answer_that_was_cut_without_a_known_reason_is_no_output(details: object) -> None:
    """Not even where it is right by chance."""
    text = {"type": "message", "content": [{"type": "output_text", "text": ANN}]}
    response = {"status": "incomplete", "incomplete_details": details, "output": [text]}
    body = events({"type": "response.incomplete", "response": response})
    async with httpx.AsyncClient(
        transport=httpx.MockTransport(lambda _: httpx.Response(200, text=body))
    ) as client:
        result = await Agent(model=GPT, client=client, api_key="k", output=Person).run("who?")
    assert (result.reason, result.text) == ("max_tokens", ANN)


async def test_an_output_in_several_texts_is_one() -> None:
    half = len(ANN) // 2
    body = messages(ANN[:half], ANN[half:], between=SEARCH)
    assert await outputs_of(CLAUDE, body) == (Person("Ann", 7), 1)
