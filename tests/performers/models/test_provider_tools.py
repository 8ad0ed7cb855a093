"""An agent whose provider has tools of its own: what goes out, what is shown, and what goes back."""

from __future__ import annotations

import json
from typing import Any

import httpx

from turnwheel import Agent, ModelSpec
from turnwheel.effects.messages import Citation, ProviderCall
from turnwheel.effects.notices import CallSettled, ProviderCalled, SourceCited, ToolStarted, TurnEnded
from turnwheel.effects.requests import CallModel
from turnwheel.performers import AnthropicMessages, Models, OpenAIResponses

SEARCH = {"type": "web_search"}
CLAUDES = {"type": "web_search_20250305", "name": "web_search"}
FOUND = {
    "type": "web_search_call",
    "id": "ws",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
NOTE = {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 5}
MESSAGE = {
    "type": "message",
    "id": "m",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "It is", "annotations": [NOTE]}],
}
USAGE = {"input_tokens": 10, "output_tokens": 5}
RESPONSE = {"id": "r", "status": "completed", "usage": USAGE, "output": [FOUND, MESSAGE]}
STREAM: list[dict[str, Any]] = [
    {"type": "response.output_item.done", "output_index": 0, "item": FOUND},
    {"type": "response.output_item.done", "output_index": 1, "item": MESSAGE},
    {"type": "response.completed", "response": RESPONSE},
]


def streamed(events: list[dict[str, Any]]) -> httpx.Response:
    return httpx.Response(200, text="".join(f"data: {json.dumps(event)}\n\n" for event in events))


async def test_a_search_of_the_provider_is_shown_once_and_goes_back_as_it_came() -> None:
    bodies: list[dict[str, Any]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return streamed(STREAM)

    spec = ModelSpec("openai-responses:gpt-5", provider_tools=(SEARCH,))
    async with (
        httpx.AsyncClient(transport=httpx.MockTransport(reply)) as client,
        Agent(model=spec, client=client, api_key="key") as agent,
    ):
        session = agent.session("s")
        notices = [notice async for notice in session.stream("Look")]
        again = await session.run("And?")
    [called] = [notice for notice in notices if isinstance(notice, ProviderCalled)]
    assert (called.tool, called.status) == ("web_search", "completed")
    assert json.loads(called.arguments) == {"action": FOUND["action"]}
    [cited] = [notice for notice in notices if isinstance(notice, SourceCited)]
    assert (cited.url, cited.start, cited.end) == ("https://a.example", 0, 5)
    [ended] = [notice for notice in notices if isinstance(notice, TurnEnded)]
    assert [part.name for part in ended.message.parts if isinstance(part, ProviderCall)] == ["web_search"]
    assert [part.title for part in ended.message.parts if isinstance(part, Citation)] == ["A"]
    assert not [notice for notice in notices if isinstance(notice, ToolStarted | CallSettled)]
    assert again.text == "It is"
    first, second = bodies
    assert first["tools"] == second["tools"] == [SEARCH]
    assert second["input"][1:3] == [FOUND, MESSAGE]


async def test_a_fallback_of_another_provider_is_sent_its_own_tools() -> None:
    bodies: list[dict[str, Any]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        if request.url.path.endswith("/responses"):
            busy = {"error": {"message": "busy"}}
            return httpx.Response(429, json=busy, headers={"retry-after": "600"})
        start = {"type": "message_start", "message": {"usage": USAGE, "content": []}}
        block = {"index": 0, "content_block": {"type": "text", "text": "So it is."}}
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        return streamed([start, {"type": "content_block_start", **block}, end, {"type": "message_stop"}])

    spec = ModelSpec("openai-responses:gpt-5", provider_tools=(SEARCH,))
    other = ModelSpec("anthropic:claude-sonnet-4-5", provider_tools=(CLAUDES,))
    async with httpx.AsyncClient(transport=httpx.MockTransport(reply)) as client:
        models = Models(
            wires={
                "openai-responses": OpenAIResponses(api_key="key", client=client),
                "anthropic": AnthropicMessages(api_key="key", client=client),
            }
        )
        async with Agent(model=spec, fallback=other, performers={CallModel: models}) as agent:
            result = await agent.session("s").run("Look")
    assert result.text == "So it is."
    assert [body["tools"] for body in bodies] == [[SEARCH], [CLAUDES]]
