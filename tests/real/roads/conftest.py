"""The roads from an agent to a model: on either wire, straight or through LiteLLM, to many servers."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import pytest

from turnwheel import Agent, Retries, Session
from turnwheel.effects.requests import CallModel
from turnwheel.performers import AnthropicMessages, Models, OpenAIChat
from turnwheel.testing.wire_rules import chat_faults, messages_faults, responses_faults

if TYPE_CHECKING:
    from real.conftest import Tap

Json = dict[str, Any]
N = TypeVar("N")

KEY = "sk-real"
"""What LiteLLM takes; aimock takes any."""

ROADS = {
    "chat": ("aimock", "openai:gpt-5-mini"),
    "messages": ("aimock", "anthropic:claude-sonnet-4-5"),
    "chat-to-chat": ("litellm", "openai:oai/gpt-5-mini"),
    "chat-to-messages": ("litellm", "openai:anth/claude-sonnet-4-5"),
    "messages-to-messages": ("litellm", "anthropic:anth/claude-sonnet-4-5"),
    "messages-to-chat": ("litellm", "anthropic:oai/gpt-5-mini"),
}
"""
The server that is asked, and what the model is called there.

Their names say on which wire it is asked and, after the "to", on which wire LiteLLM then asks aimock.
"""

RESPONSES = {
    "responses": ("aimock", "openai-responses:gpt-5-mini"),
    "responses-to-responses": ("litellm", "openai-responses:oai/gpt-5-mini"),
    "responses-to-messages": ("litellm", "openai-responses:anth/claude-sonnet-4-5"),
}
"""The same on the wire of Responses, for the tests that are about it or about all wires."""

BYWAYS = {
    "thinking-chat-to-messages": ("litellm", "openai:think/claude-sonnet-4-5"),
    "chat-with-fallback": ("litellm", "openai:mock-fallback"),
    "messages-with-fallback": ("litellm", "anthropic:mock-fallback"),
    "openrouter": ("aimock/api", "openai:anthropic/claude-sonnet-4-5"),
    "chat-to-openrouter": ("litellm", "openai:router/anthropic/claude-sonnet-4-5"),
    "messages-to-openrouter": ("litellm", "anthropic:router/anthropic/claude-sonnet-4-5"),
    "chat-to-ollama": ("litellm", "openai:ollama/qwen3"),
    "messages-to-ollama": ("litellm", "anthropic:ollama/qwen3"),
    "chat-to-gemini": ("litellm", "openai:gemini/gemini-2.5-pro"),
    "messages-to-gemini": ("litellm", "anthropic:gemini/gemini-2.5-pro"),
}
"""Servers that have habits of their own, for the tests that are about these."""

ALL_ROADS = ROADS | RESPONSES | BYWAYS

every_wire = pytest.mark.parametrize("road", [*ROADS, *RESPONSES], indirect=True)
responses_wire = pytest.mark.parametrize("road", RESPONSES, indirect=True)

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""All servers here are plain HTTP, and to read the certificates takes longer than most tests."""

USAGE = {"prompt_tokens": 40, "completion_tokens": 20, "input_tokens": 40, "output_tokens": 20}
"""What an answer says it used, in the words of both dialects."""

HOW = ("chunkSize", "latency", "truncateAfterChunks", "chaos", "openRouterProcessing")
"""Words of aimock's on how an answer is sent; all others are on the answer itself."""

JUDGES: dict[str, Callable[[bytes], list[str]]] = {
    "/chat/completions": chat_faults,
    "/messages": messages_faults,
    "/responses": responses_faults,
}


class Road:
    """
    One road, and what went over it.

    *sent* are the requests of this end, as they were sent, *notices* what the streams that were watched told.
    *model* is the name of the model on *wire*.
    """

    def __init__(self, name: str, base_url: str, aimock: str, tap: Tap) -> None:
        self.name = name
        self.base_url = base_url
        self.model = ALL_ROADS[name][1]
        self.wire = self.model.partition(":")[0]
        self.sent: list[httpx.Request] = []
        self.notices: list[object] = []
        self.client = httpx.AsyncClient(
            event_hooks={"request": [self._sends]}, trust_env=False, verify=NO_TLS
        )
        self._aimock = httpx.Client(base_url=aimock, trust_env=False, verify=NO_TLS)
        self._tap = tap

    # What the servers do

    def play(self, *answers: Json, first: Json | None = None) -> None:
        """
        Have aimock give each of the *answers* to requests that have as many answers behind them as it has.

        *first* is a fixture of aimock's own making, which comes before them where it matches. On Responses
        they come one after the other: aimock counts each item of an answer there as one.
        """
        counts_answers = self.wire != "openai-responses"
        self._play("turnIndex" if counts_answers else "sequenceIndex", answers, first)

    def play_in_order(self, *answers: Json, first: Json | None = None) -> None:
        """As `play`, but the *answers* come one after the other, whatever is asked."""
        self._play("sequenceIndex", answers, first)

    def cut(self, word: str) -> None:
        """Cut the line to aimock behind the next *word* that it answers."""
        self._tap.cut = word.encode()

    def _play(self, match: str, answers: Sequence[Json], first: Json | None) -> None:
        fixtures = [] if first is None else [first]
        for number, answer in enumerate(answers):
            how = {word: answer[word] for word in HOW if word in answer}
            said = {"usage": USAGE} | {word: value for word, value in answer.items() if word not in HOW}
            response = {word: value for word, value in said.items() if value is not None}
            fixtures.append({"match": {match: number}, "response": response, **how})
        self._aimock.post("/__aimock/reset").raise_for_status()
        taken = self._aimock.post("/__aimock/fixtures", json={"fixtures": fixtures})
        assert taken.is_success, taken.text
        self._tap.asked.clear()
        self._tap.cut = b""

    # Who asks

    def agent(self, **settings: Any) -> Agent:
        """An agent at the beginning of the road; whichever it is, nothing else differs."""
        given: Json = {"model": self.model, "retries": Retries(base=0.01), **settings}
        if CallModel not in given.get("performers", {}):
            given = {"base_url": self.base_url, "api_key": KEY, "client": self.client, **given}
        return Agent(**given)

    def both_wires(self) -> dict[type, Any]:
        """Performers that ask the same server on either wire."""
        wires = {"openai": OpenAIChat, "anthropic": AnthropicMessages}
        made = {prefix: wire(self.base_url, KEY, self.client) for prefix, wire in wires.items()}
        return {CallModel: Models(wires=made)}

    async def watch(self, talk: Agent | Session, prompt: str = "Go.", **how: Any) -> None:
        """Run *talk* on *prompt*, keeping what it tells."""
        async with aclosing(talk.stream(prompt, **how)) as notices:
            self.notices += [notice async for notice in notices]

    def seen(self, kind: type[N]) -> list[N]:
        """The notices of one *kind* that were watched."""
        return [notice for notice in self.notices if isinstance(notice, kind)]

    # What is asked

    async def _sends(self, request: httpx.Request) -> None:
        self.sent.append(request)

    def faults(self) -> list[str]:
        """What the providers of these wires would refuse in what was sent, and in what LiteLLM made of it."""
        sent = [(request.url.path, request.content) for request in self.sent]
        passed = [(path, plain(body)) for path, body in self._tap.asked if self._is_judged(path)]
        return [
            f"{path}: {fault}: {body.decode()}"
            for path, body in [*sent, *passed]
            for end, judge in JUDGES.items()
            if path.endswith(end)
            for fault in judge(body)
        ]

    def _is_judged(self, path: str) -> bool:
        # Where it is asked in another dialect, LiteLLM has OpenAI store what it makes of that.
        return self.wire == "openai-responses" or not path.endswith("/responses")

    def heard(self) -> list[Json]:
        """What aimock was asked: the requests of its journal, which are in the words of chat completions."""
        entries: list[Json] = self._aimock.get("/__aimock/journal").raise_for_status().json()
        return [entry["body"] for entry in entries]

    def asked(self) -> list[Json]:
        """What aimock was asked, in the words it was asked in."""
        return [json.loads(body) for _, body in self._tap.asked]

    @staticmethod
    def said(request: Json) -> list[tuple[str, str]]:
        """Who said what in a *request* that was heard."""
        return [(message["role"], words(message.get("content"))) for message in request["messages"]]

    @staticmethod
    def call(id: str, name: str, **arguments: str) -> Json:  # noqa: A002  # the wire's word
        """A tool call in an answer."""
        return {"id": id, "name": name, "arguments": arguments}

    async def aclose(self) -> None:
        """Close what was opened."""
        await self.client.aclose()
        self._aimock.close()


def words(content: str | list[Json] | None) -> str:
    """The text of a message's *content*."""
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(part.get("text", "") for part in parts)


def plain(body: bytes) -> bytes:
    """*body* with texts where LiteLLM writes lists of them, which OpenAI takes as well."""
    request: Json = json.loads(body)
    for message in request.get("messages", ()):
        if message["role"] in {"system", "tool"}:
            message["content"] = words(message["content"])
    return json.dumps(request).encode()


@pytest.fixture(params=ROADS)
async def road(request: pytest.FixtureRequest) -> AsyncIterator[Road]:
    """Each road; whatever went over it, a provider would have taken what was sent."""
    name: str = request.param
    server, _, path = ALL_ROADS[name][0].partition("/")
    tap: Tap = request.getfixturevalue("tap")
    root = tap.url if server == "aimock" else request.getfixturevalue(server)
    made = Road(name, f"{root}/{path}/v1" if path else f"{root}/v1", request.getfixturevalue("aimock"), tap)
    yield made
    await made.aclose()
    assert made.faults() == []
