"""The table of providers: addresses, keys, and what each server is told in its own form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import structlog

from turnwheel import Agent
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.openai import ChatWire, OpenAIChat
from turnwheel.performers.models.prices import price_of
from turnwheel.performers.models.providers import MESSAGES, PROVIDERS, RESPONSES, Provider
from turnwheel.performers.models.router import WIRES, Models, wire_of

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "providers.md").read_text("utf-8")

each_row = pytest.mark.parametrize("row", PROVIDERS.values(), ids=PROVIDERS)

VARIABLES = [name for row in PROVIDERS.values() for name in (*row.keys, row.address_variable) if name]

# For each prefix a model that takes a budget of thinking, and the fields that ask it for 5,000 tokens.
EFFORT: dict[str, Any] = {"reasoning_effort": "medium"}
BUDGET: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 5_000}}
THINKING: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("gpt-5", EFFORT),
    "openai-responses": ("gpt-5", {"reasoning": {"effort": "medium", "summary": "auto"}}),
    "anthropic": ("claude-sonnet-4-5", BUDGET),
    "gemini": (
        "gemini-2.5-pro",
        {"extra_body": {"google": {"thinking_config": {"thinking_budget": 5_000}}}},
    ),
    "openrouter": ("anthropic/claude-sonnet-4.5", {"reasoning": {"max_tokens": 5_000}}),
    "groq": ("openai/gpt-oss-20b", EFFORT),
    "mistral": ("mistral-small-latest", {"reasoning_effort": "high"}),
    "deepseek": ("deepseek-chat", {"thinking": {"type": "enabled"}, **EFFORT}),
    "xai": ("grok-4.3", EFFORT),
    "together": ("openai/gpt-oss-120b", EFFORT),
    "fireworks": ("accounts/fireworks/models/deepseek-v3p1", BUDGET),
    "azure": ("gpt-5-mini", EFFORT),
    "ollama": ("qwen3:8b", EFFORT),
    "vllm": ("Qwen/Qwen3-8B", EFFORT),
    "lmstudio": ("qwen3-8b", {}),
    "litellm": ("claude-sonnet-4-5", BUDGET),
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def scene_of(model: str) -> PerformContext:
    config, history = Config(model=ModelSpec(name=model)), History.of(user("hi"))
    return PerformContext(
        session="s-1", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


async def sent(models: Models, model: str, thinking: int | None = None) -> None:
    request = CallModel(id="r-1", model=model, view=Conversation(revision=0, length=1), thinking=thinking)
    await models(request, scene_of(model))


class Sent:
    """What was sent: the address, the headers and the body of each request; all are refused."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.headers: list[httpx.Headers] = []
        self.bodies: list[dict[str, Any]] = []

    def client(self) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            self.urls.append(str(request.url))
            self.headers.append(request.headers)
            self.bodies.append(json.loads(request.content))
            return httpx.Response(418)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


# The page


def _code(*words: str) -> str:
    return " or ".join(f"`{word}`" for word in words)


def _address(row: Provider) -> str:
    told = (
        f"`{row.address_variable}`{f' and `{row.path}`' if row.path else ''}" if row.address_variable else ""
    )
    return ", or ".join(filter(None, [row.address and f"`{row.address}`", told]))


def test_the_page_has_the_rows_of_the_table() -> None:
    found = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.splitlines()
        if re.match(r"\| `[\w-]+:` \|", line)
    ]
    expected = [
        [
            f"`{row.prefix}:`",
            row.wire,
            _address(row),
            (_code(*row.keys) or "none") + ("" if row.needed or not row.keys else ", not needed"),
        ]
        for row in PROVIDERS.values()
    ]
    assert [cells[:4] for cells in found] == expected
    for (prefix, (_, fields)), cells in zip(THINKING.items(), found, strict=True):
        assert (prefix, [name for name in fields if f"`{name}`" not in cells[4]]) == (prefix, [])
        assert (cells[4] == "not sent") is not bool(fields)


# Addresses and keys


@each_row
async def test_a_prefix_has_an_address_and_a_key(row: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    if row.keys:
        monkeypatch.setenv(row.keys[-1], "key-of-the-environment")
    if not row.address:
        monkeypatch.setenv(row.address_variable, "https://mine.openai.azure.com/")
    seen = Sent()
    async with seen.client() as client:
        await sent(Models(row.prefix, client=client), f"{row.prefix}:maker/m:free")
    (url,), (headers,), (body,) = seen.urls, seen.headers, seen.bodies
    address = row.address or "https://mine.openai.azure.com/openai/v1"
    assert url == address + {MESSAGES: "/messages", RESPONSES: "/responses"}.get(
        row.wire, "/chat/completions"
    )
    assert body["model"] == "maker/m:free"
    key = headers.get(row.key_header, "").removeprefix("Bearer ")
    assert key == ("key-of-the-environment" if row.keys else "")
    assert wire_of(f"{row.prefix}:m") == row.prefix


@each_row
def test_a_missing_key_is_told_with_its_variable_where_one_is_needed(
    row: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not row.address:
        monkeypatch.setenv(row.address_variable, "https://mine.openai.azure.com")
    models = Models(row.prefix)
    if row.needed:
        names = " or ".join(row.keys)
        with pytest.raises(
            ConfigError,
            match=rf"no API key for '{row.prefix}:m' at https://.*; set {names} or pass api_key, or the base",
        ):
            models.ready(f"{row.prefix}:m")
    else:
        models.ready(f"{row.prefix}:m")
    Models(row.prefix, base_url="http://127.0.0.1:9").ready(f"{row.prefix}:m")


def test_azure_has_no_address_of_its_own() -> None:
    with pytest.raises(ConfigError, match="no address for models of 'azure'; set AZURE_OPENAI_ENDPOINT or"):
        Agent(model="azure:mine")


@pytest.mark.parametrize(
    ("prefix", "told", "url"),
    [
        ("ollama", "0.0.0.0:9", "http://0.0.0.0:9/v1"),
        ("ollama", "there", "http://there:11434/v1"),
        ("ollama", "https://there/", "https://there/v1"),
        ("litellm", "https://proxy/team/", "https://proxy/team"),
        ("azure", "https://mine.openai.azure.com/openai/v1/", "https://mine.openai.azure.com/openai/v1"),
    ],
)
async def test_the_environment_may_say_where_a_server_is(
    prefix: str, told: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROVIDERS[prefix].address_variable, told)
    seen = Sent()
    async with seen.client() as client:
        await sent(Models(prefix, client=client), f"{prefix}:m")
        await sent(Models(prefix, base_url="http://here", client=client), f"{prefix}:m")
    assert seen.urls == [f"{url}/chat/completions", "http://here/chat/completions"]


# What is told in a form of its own


@each_row
async def test_a_budget_of_thinking_is_sent_as_the_server_takes_it(row: Provider) -> None:
    model, expected = THINKING[row.prefix]
    seen = Sent()
    async with seen.client() as client:
        # At another address, too: the prefix keeps its differences, but for that of any server.
        for url in ("https://there/v1", "https://here/v1"):
            models = Models(row.prefix, base_url=url, client=client)
            await sent(models, f"{row.prefix}:{model}", 5_000)
    for body in seen.bodies:
        about = ("reasoning_effort", "thinking", "reasoning", "extra_body")
        assert {name: body[name] for name in about if name in body} == expected


@pytest.fixture
def log() -> Iterator[list[Any]]:
    structlog.reset_defaults()
    with structlog.testing.capture_logs() as lines:
        yield lines
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("prefix", "model"),
    [
        ("openai", "openai:qwen3:8b"),
        ("openai-responses", "openai-responses:qwen3:8b"),
        ("lmstudio", "lmstudio:qwen3-8b"),
        ("groq", "groq:qwen/qwen3-32b"),
        ("mistral", "mistral:codestral-latest"),
        ("xai", "xai:grok-4"),
        ("together", "together:Qwen/Qwen3-8B"),
    ],
)
async def test_a_budget_that_is_not_sent_is_told_once(prefix: str, model: str, log: list[Any]) -> None:
    seen = Sent()
    async with seen.client() as client:
        models = Models(prefix, base_url="http://there/v1", client=client)
        for thinking in (None, 5_000, 6_000):
            await sent(models, model, thinking)
    assert [set(body) & {"thinking", "reasoning_effort", "reasoning"} for body in seen.bodies] == [set()] * 3
    assert [(line["log_level"], line["model"], line["tokens"]) for line in log] == [
        ("warning", model.removeprefix(f"{prefix}:"), 5_000)
    ]


def test_only_mistral_is_not_asked_for_usage_which_comes_unasked() -> None:
    request = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1))
    asked = {
        prefix: b'"stream":true,"stream_options"' in ChatWire(row.quirks).encode(request, scene_of("m")).body
        for prefix, row in PROVIDERS.items()
    }
    assert [prefix for prefix, asks in asked.items() if not asks] == ["mistral"]


async def test_stop_sequences_are_not_sent_where_there_are_none_and_that_is_told_once(log: list[Any]) -> None:
    seen = Sent()
    request = CallModel(id="r-1", model="openai-responses:m", view=Conversation(revision=0, length=1))
    scene = scene_of(request.model)
    stopping = attrs.evolve(scene, config=attrs.evolve(scene.config, stop=("END",)))
    async with seen.client() as client:
        models = Models("openai-responses", base_url="http://there/v1", client=client)
        for each in (scene, stopping, stopping):
            await models(request, each)
    assert ["stop" in body for body in seen.bodies] == [False] * 3
    assert [(line["log_level"], line["model"], line["stop"]) for line in log] == [("warning", "m", ["END"])]


async def test_features_are_asked_for_by_name_at_providers_that_pass_them_on() -> None:
    seen = Sent()
    async with seen.client() as client:
        await sent(Models("litellm", client=client, betas=["a", "b"]), "litellm:claude")
    assert seen.headers[0]["anthropic-beta"] == "a,b"
    Agent(model="openrouter:anthropic/claude-sonnet-4.5", betas=["a"])
    with pytest.raises(ConfigError, match="betas: 'groq:m' has none"):
        Agent(model="groq:m", betas=["a"])


def test_a_prefix_of_ones_own_is_asked_as_openai_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k\u00e9y")
    with pytest.raises(ConfigError, match="check api_key or OPENAI_API_KEY"):
        OpenAIChat("http://there", prefix="mine")
    assert WIRES.keys() == PROVIDERS.keys()


# Prices


@pytest.mark.parametrize(
    ("model", "url", "source"),
    [
        ("gemini:gemini-2.5-pro", None, "google/gemini-2.5-pro"),
        ("xai:grok-3", None, "x-ai/grok-3"),
        ("groq:llama-3.3-70b-versatile", None, "groq/llama-3.3-70b-versatile"),
        ("deepseek:deepseek-chat", None, "deepseek/deepseek-chat"),
        ("openrouter:anthropic/claude-sonnet-4.5", None, "openrouter/anthropic/claude-sonnet-4.5"),
        ("mistral:mistral-large-latest", "https://api.mistral.ai/v1", "mistral/mistral-large-latest"),
        ("ollama:gpt-4o", None, ""),
        ("vllm:gpt-4o", None, ""),
        ("lmstudio:gpt-4o", None, ""),
        ("litellm:gpt-4o", None, ""),
        ("litellm:gpt-4o", "http://127.0.0.1:4000", ""),
    ],
)
def test_a_price_is_that_of_the_provider_and_a_server_of_ones_own_has_none(
    model: str, url: str | None, source: str
) -> None:
    pytest.importorskip("genai_prices")
    price = price_of(model, url)
    found = "" if price is None else price.source.split(", ")[1]
    assert found.partition("/")[0] == source.partition("/")[0]
    assert (price is None) is not bool(source)
