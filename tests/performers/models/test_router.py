"""Which wire a model is asked on, and how a wire is added."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import httpx
import pytest
from hypothesis import given, strategies as st
from support.patience import PATIENCE

from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed, ModelFinished
from turnwheel.effects.history import CLEARED, CallPiece, History, Piece, TextPiece
from turnwheel.effects.messages import (
    Binary,
    Citation,
    Finish,
    Message,
    Outcome,
    ProviderCall,
    Role,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    user,
)
from turnwheel.effects.notices import TurnEnded
from turnwheel.effects.requests import CallModel, Conversation, Transcript
from turnwheel.effects.usage import Usage
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.anthropic import AnthropicMessages, MessagesWire
from turnwheel.performers.models.http import HTTPModel
from turnwheel.performers.models.openai import ChatWire, OpenAIChat
from turnwheel.performers.models.providers import PROVIDERS, quirks_of
from turnwheel.performers.models.rate_limits import RateLimit
from turnwheel.performers.models.responses import OpenAIResponses, ResponsesWire
from turnwheel.performers.models.router import WIRES, Models, WireFactory, wire_of
from turnwheel.performers.models.wire import AnswerEnd, Broken, Complete, Wire
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.testing.stores import StoreOver
from turnwheel.testing.wire_rules import reading_faults

ROOT = Path(__file__).resolve().parents[3]


def scene_of(history: History, config: Config) -> PerformContext:
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=lambda _: None
    )


async def ask(models: Any, model: str, **more: Any) -> ModelFinished | ModelFailed:
    request = CallModel(id="r-1", model=model, view=Conversation(revision=0, length=1), **more)
    scene = scene_of(History.of(user("hi")), Config(model=ModelSpec(name=model)))
    answer = await models(request, scene)
    assert isinstance(answer, ModelFinished | ModelFailed)
    return answer


class Played:
    """A wire of the host's that answers nothing and keeps the names it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
        self.asked.append(request.model)
        at, stop = scene.clock.now(), StopReason.END_TURN
        return ModelFinished(at=at, request=request.id, stop=stop, usage=Usage())


class Seen:
    """The requests that a client sent, by URL and body; all are refused."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[httpx.Headers] = []

    def client(self) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            self.requests.append((str(request.url), json.loads(request.content)))
            self.headers.append(request.headers)
            return httpx.Response(418)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


# Names


@pytest.mark.parametrize(
    ("model", "wire"),
    [
        ("openai:gpt-5", "openai"),
        ("openai-responses:gpt-5", "openai-responses"),
        ("anthropic:claude-x", "anthropic"),
        ("openai:ft:gpt-4.1:org::id", "openai"),
        ("gpt-5", None),
        ("qwen3:8b", None),
        ("openai", None),
        ("", None),
    ],
)
def test_a_name_may_begin_with_its_wire(model: str, wire: str | None) -> None:
    assert wire_of(model) == wire


HERE: dict[str, Any] = {}
THERE = {"base_url": "http://there"}
MINE = {"wires": {"mine": Played()}}
CHOICES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("openai", HERE, "gpt-5", "openai"),
    ("openai", HERE, "openai:gpt-5", "openai"),
    ("openai", HERE, "anthropic:claude-x", "anthropic"),
    ("openai", HERE, "qwen3:8b", None),
    ("openai", HERE, "mine:m", None),
    ("openai", THERE, "qwen3:8b", "openai"),
    ("openai", THERE, "anthropic:claude-x", "anthropic"),
    ("anthropic", HERE, "claude-x", "anthropic"),
    ("anthropic", THERE, "qwen3:8b", "anthropic"),
    ("anthropic", HERE, "openai:m", "openai"),
    ("openai", MINE, "mine:m", "mine"),
    ("mine", MINE, "qwen3:8b", "mine"),
    ("mine", MINE, "openai:m", "openai"),
]


@pytest.mark.parametrize(("default", "settings", "model", "wire"), CHOICES)
async def test_models_have_wires(
    default: str, settings: dict[str, Any], model: str, wire: str | None
) -> None:
    models = Models(default, **settings)
    assert models.wire_of(model) == wire
    if wire is not None:
        models.check(model)
        return
    problem = f"^no provider '{model.partition(':')[0]}' for model '{model}': .*known are "
    with pytest.raises(ConfigError, match=problem):
        models.check(model)
    answer = await ask(models, model)
    assert isinstance(answer, ModelFailed)
    assert answer.failure is Failure.BAD_REQUEST
    assert answer.message.endswith("put one in front, or give the base_url of another server")


@pytest.mark.parametrize("default", WIRES)
async def test_the_settings_are_for_the_first_models_wire(default: str) -> None:
    seen = Seen()
    async with seen.client() as client:
        models = Models(default, base_url="http://there/v1", api_key="secret", client=client)
        for model in (f"{default}:m", "m", "qwen3:8b"):
            await ask(models, model)
        await models.aclose()
        assert not client.is_closed
    assert [body["model"] for _, body in seen.requests] == ["m", "m", "qwen3:8b"]
    paths = r"/(chat/completions|messages|responses)$"
    assert {re.sub(paths, "", url) for url, _ in seen.requests} == {"http://there/v1"}
    names = ("authorization", "x-api-key", "api-key")
    keys = [next(headers[name] for name in names if name in headers) for headers in seen.headers]
    assert set(keys) <= {"Bearer secret", "secret"}


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


@pytest.mark.parametrize(
    ("make", "url", "betas", "thinking"),
    [
        (
            *(OpenAIChat, "https://openrouter.ai/v1", "x-anthropic-beta"),
            {"reasoning": {"max_tokens": 2_000}, "session_id": "s"},
        ),
        (partial(OpenAIChat, thinking=budget), "http://there", "anthropic-beta", budget(2_000)),
        (OpenAIChat, "http://there", "anthropic-beta", {}),
        (AnthropicMessages, "http://there", "anthropic-beta", budget(2_000) | {"metadata": {"user_id": "s"}}),
    ],
)
async def test_a_server_is_told_more_in_the_form_it_takes(
    make: WireFactory, url: str, betas: str, thinking: dict[str, Any]
) -> None:
    seen, more = Seen(), {"top_k": 3, "max_tokens": 4_000}
    model = make(url, "k", seen.client(), betas=["a", "b"], extra_headers={"x-team": "t"}, extra_body=more)
    await ask(model, "m", thinking=2_000)
    [headers], [(_, body)] = seen.headers, seen.requests
    assert (headers[betas], headers["x-team"]) == ("a,b", "t")
    settings = {key: body[key] for key in body.keys() - {"model", "messages", "stream", "stream_options"}}
    assert settings == more | thinking
    with pytest.raises(ConfigError, match="leave the wire's own fields to it; got \\['tools'\\]"):
        make(extra_body={"tools": []})
    with pytest.raises(ConfigError, match=r"betas: api\.openai\.com has none"):
        OpenAIChat(betas=["a"])


@pytest.mark.parametrize("session", ["s-1.call:2", "ann@example.com", "x" * 65, "x" * 64])
@pytest.mark.parametrize(
    ("wire", "field"),
    [
        (ChatWire(PROVIDERS["openai"].quirks), "prompt_cache_key"),
        (ResponsesWire(), "prompt_cache_key"),
        (ResponsesWire(quirks_of("openai-responses", "http://localhost:4000/v1")), ""),
        (ChatWire(PROVIDERS["openrouter"].quirks), "session_id"),
        (ChatWire(PROVIDERS["mistral"].quirks), ""),
        (ChatWire(), ""),
        (MessagesWire(), "metadata"),
    ],
)
def test_a_session_is_named_where_a_provider_has_a_place_for_it(wire: Wire, field: str, session: str) -> None:
    scene = scene_of(History.of(user("hi")), Config(model=ModelSpec(name="m")))
    request = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1))
    body = json.loads(wire.encode(request, attrs.evolve(scene, session=session)).body)
    fits = "@" not in session and len(session) <= 64
    named = {"user_id": session} if field == "metadata" else session
    told = {name: body[name] for name in ("metadata", "prompt_cache_key", "session_id") if name in body}
    assert told == ({field: named} if field and fits else {})


async def test_other_wires_ask_their_own_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    # They do not get the first one's address; here a proxy keeps where it was asked to go, and goes nowhere.
    heads: list[str] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0])
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        models = Models("anthropic", base_url="http://127.0.0.1:1", api_key="k")
        answer = await ask(models, "openai:m")
        await models.aclose()
    assert isinstance(answer, ModelFailed)
    assert answer.failure is Failure.CONNECTION
    assert heads == ["CONNECT api.openai.com:443 HTTP/1.1"]


async def test_a_wire_is_made_once_and_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k\u00e9y")
    models = Models()
    with pytest.raises(ConfigError, match="check api_key or ANTHROPIC_API_KEY"):
        models.check("anthropic:m")
    answer = await ask(models, "anthropic:m")
    assert isinstance(answer, ModelFailed)
    assert (answer.failure, answer.message[:11]) == (Failure.BAD_REQUEST, "the api key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    models.check("anthropic:m")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k\u00e9y")
    models.check("anthropic:m")


@pytest.mark.parametrize(
    ("default", "settings", "message"),
    [
        ("mine", {}, "no provider 'mine': known are 'anthropic', 'azure', "),
        ("mine", {**MINE, "api_key": "k"}, "provider 'mine' is given ready-made: give it base_url, "),
        ("openai", {"api_key": "k\u00e9y"}, "check api_key or OPENAI_API_KEY"),
    ],
)
def test_a_wrong_setting_is_refused_at_once(default: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        Models(default, **settings)


def test_the_wires_that_are_known_are_told_in_order() -> None:
    wires = {"zeta": Played(), "alpha": Played()}
    problem = f"known are {', '.join(map(repr, sorted([*WIRES, *wires])))}"
    with pytest.raises(ConfigError, match=problem):
        Models("mine", wires=wires)


def test_models_are_ready_where_the_keys_of_all_of_them_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    models = Models(wires={"mine": Played()})
    models.ready()
    models.ready("gpt-5", "mine:m")
    with pytest.raises(ConfigError, match=r"no API key for 'anthropic:m' at https://api\.anthropic\.com"):
        models.ready("gpt-5", "mine:m", "anthropic:m")


@pytest.mark.parametrize(
    ("default", "url", "model", "header"),
    [
        ("openai", "https://openrouter.ai/v1", "m", "x-anthropic-beta"),
        ("openai", "http://there", "m", "anthropic-beta"),
        ("anthropic", None, "m", "anthropic-beta"),
        ("anthropic", "http://there", "m", "anthropic-beta"),
        ("openai", None, "m", ""),  # it has none, and is asked for none
    ],
)
async def test_features_are_asked_for_by_name_of_who_may_have_them(
    default: str, url: str | None, model: str, header: str
) -> None:
    seen = Seen()
    async with seen.client() as client:
        models = Models(default, base_url=url, api_key="k", client=client, betas=["a", "b"])
        await ask(models, model)
    (headers,) = seen.headers
    told = {name: value for name, value in headers.items() if "beta" in name}
    assert told == ({header: "a,b"} if header else {})


async def test_a_limit_is_of_a_key_and_a_wire_of_ones_own_has_one() -> None:
    names: list[str] = []

    class Noting(StoreOver):
        async def meter(
            self, name: str, held: bytes | None, wanted: bytes | None
        ) -> tuple[bytes | None, float]:
            names.append(name)
            return await super().meter(name, held, wanted)

    rates = [RateLimit(model=name, requests=100) for name in ("m", "mine:m")]
    request = CallModel(id="r-1", model="m", view=Conversation(revision=0, length=1))
    scene = attrs.evolve(
        scene_of(History.of(user("hi")), Config(model=ModelSpec(name="m"))), store=Noting(MemoryStore())
    )
    async with Seen().client() as client:
        for key in ("a", "b"):
            wires = {"mine": Played()}
            models = Models(base_url="http://there", api_key=key, client=client, wires=wires, rates=rates)
            await models(request, scene)
            await models(attrs.evolve(request, model="mine:m"), scene)
    assert len({*names}) == 3


async def test_a_host_adds_and_replaces_wires() -> None:
    played, seen = Played(), Seen()
    async with seen.client() as client:
        second = OpenAIChat("http://second", "k", client, prefix="second")
        models = Models(wires={"mine": played, "openai": played, "second": second})
        for model in ("mine:m", "openai:m", "m"):
            assert isinstance(await ask(models, model), ModelFinished)
        await ask(models, "second:qwen3:8b")
        await models.aclose()
    assert played.asked == ["mine:m", "openai:m", "m"]
    assert [(url, body["model"]) for url, body in seen.requests] == [
        ("http://second/chat/completions", "qwen3:8b")
    ]


async def test_closing_lets_go_of_every_connection() -> None:
    closed = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        models = Models(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(2):
            closed.clear()
            assert isinstance(await ask(models, "m"), ModelFailed)
            assert not closed.is_set()
            await models.aclose()
            async with asyncio.timeout(PATIENCE):
                await closed.wait()


# The third wire of the page on providers

LINES = (
    b'{"say": "Hel"}\n{"say": "lo \xf0\x9f\x98\x80"}\n'
    b'{"call": "", "name": "count", "arguments": {"n": 1}}\n{"call": "b", "name": "count", "arguments": {}}\n'
    b'{"end": "call", "read": 7, "wrote": 5}\n'
)


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_wire", ROOT / "examples" / "own_wire.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OWN = example()
HELLO: list[Piece] = [TextPiece("Hel"), TextPiece("lo 😀")]
CALLS: list[Piece] = [CallPiece(0, "", "count", '{"n": 1}'), CallPiece(1, "b", "count", "{}")]
FULL = b'what\n[]\n\n{"say": 5}\n{"end": "full", "read": 0, "wrote": 1}\n'

ANSWERS: dict[str, tuple[bytes, list[Piece], AnswerEnd]] = {
    "call": (LINES, HELLO + CALLS, Complete(stop=StopReason.TOOL_USE, usage=Usage(input=7, output=5))),
    "cut": (
        b'{"say": "a\\ud83d"}\n',
        [TextPiece("a?")],
        Broken(failure=Failure.CUT, message="the answer has no end"),
    ),
    "fault": (b'{"fault": "busy"}\n{"say": "a"}\n', [], Broken(failure=Failure.SERVER, message="busy")),
    "noise": (FULL, [], Complete(stop=StopReason.MAX_TOKENS, usage=Usage(output=1))),
    "endless": (
        b"x" * 1_000_001,
        [],
        Broken(failure=Failure.CUT, message="a line is longer than 1000000 bytes"),
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_third_wires_answers_are_read(name: str) -> None:
    body, pieces, ending = ANSWERS[name]
    parser = OWN.LinesParser()
    assert (parser.feed(body), parser.end()) == (pieces, ending)
    reset = Broken(failure=Failure.CONNECTION, message="reset")
    assert parser.end(reset) == (reset if name == "cut" else ending)
    assert name == "endless" or reading_faults(OWN.LinesParser, body) == []


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b'{"say": "', b'"}', LINES])))
def test_no_bytes_crash_the_third_wires_parser(parts: list[bytes]) -> None:
    parser = OWN.LinesParser()
    for part in parts:
        parser.feed(part)
    assert isinstance(parser.end(), Complete | Broken)


def test_the_third_wires_request_says_all_that_was_asked_and_no_more() -> None:
    # The conversation in its server's words, old results left out, or a text to be summarised.
    made = ToolCall(id="r-1", wire_id="", name="count", arguments='{"n": 1}')
    failed = ToolResult(call="r-1", wire_id="", name="count", content="no", outcome=Outcome.ERROR)
    long = attrs.evolve(failed, content="y" * 1_000, outcome=Outcome.OK)
    called = Message(role=Role.ASSISTANT, parts=(made, Finish(reason=StopReason.TOOL_USE)))
    history = History.of(
        Message(role=Role.USER, parts=(Text(text="hi"), Binary(media_type="a/b", data=b""))),
        called,
        Message(role=Role.TOOL, parts=(long,)),
        called,
        Message(role=Role.TOOL, parts=(failed,)),
    )
    tools = (ToolSpec(name="count", description="Counts."), ToolSpec(name="other"))
    scene = scene_of(history, Config(model=ModelSpec(name="lines:talker", max_output=9), tools=tools))
    view = Conversation(revision=0, length=5, cleared=3)
    request = CallModel(id="r-1", model="lines:talker", view=view, system="Be kind.", tools=("count",))
    calls = {"who": "assistant", "said": [{"call": "r-1", "name": "count", "arguments": '{"n": 1}'}]}
    assert json.loads(OWN.LinesWire().encode(request, scene).body) == {
        "model": "talker",
        "rules": "Be kind.",
        "turns": [
            {"who": "user", "said": ["hi"]},
            calls,
            {"who": "tool", "said": [{"answers": "r-1", "content": CLEARED, "failed": False}]},
            calls,
            {"who": "tool", "said": [{"answers": "r-1", "content": "no", "failed": True}]},
        ],
        "tools": [["count", "Counts.", {"type": "object", "properties": {}}]],
        "most": 9,
    }
    less = attrs.evolve(request, max_output=5)
    assert json.loads(OWN.LinesWire().encode(less, scene).body)["most"] == 5
    shown = "<conversation>\n\n[user]\nhi\n[attachment a/b, which is empty]\n\n</conversation>"
    for length, limit in ((1, 10_000), (5, 100)):
        summary = attrs.evolve(request, view=Transcript(revision=0, length=length, limit=limit))
        [turn] = json.loads(OWN.LinesWire().encode(summary, scene).body)["turns"]
        assert length > 1 or turn == {"who": "user", "said": [shown]}
        assert len(turn["said"][0]) <= 4 * limit


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


async def test_the_page_on_providers_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    prefixed, provided, sources, _, limited, quoted, *plugged = blocks_of(ROOT / "docs" / "providers.md")
    made: dict[str, Any] = {}
    exec(prefixed, made)  # noqa: S102  # the page's own code
    assert made["agent"].fallback.name == "ollama:qwen3:8b"
    exec(f"{provided}\n{sources}", made)  # noqa: S102  # the page's own code
    assert made["agent"].config.model.provider_tools == ('{"type": "web_search"}',)
    said = Text(text="So"), ProviderCall(id="ws", name="web_search", arguments="{}", status="completed")
    message = Message(role=Role.ASSISTANT, parts=(*said, Citation(url="https://a.example", title="A")))
    ended = TurnEnded(at=0.0, request="r", turn=1, message=message, stop=StopReason.END_TURN, usage=Usage())
    assert made["sources"](ended) == ["web_search {}: completed", "A https://a.example"]
    exec(limited, made)  # noqa: S102  # the page's own code
    assert made["agent"].rates[0].requests == 500
    assert quoted in (ROOT / "examples" / "own_wire.py").read_text("utf-8")
    bodies: list[dict[str, Any]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        bodies.append(
            json.loads(
                await reader.readexactly(int(head.lower().partition("content-length: ")[2].split()[0]))
            )
        )
        lines = LINES if len(bodies) == 1 else b'{"say": "done"}\n{"end": "done", "read": 1, "wrote": 1}\n'
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + lines)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        monkeypatch.setitem(sys.modules, "own_wire", OWN)
        names: dict[str, Any] = {}
        for block in plugged:
            exec(block.replace("http://127.0.0.1:8080", url), names)  # noqa: S102  # the page's own code
        result = await names["agent"].run("Count.")
    assert result.text == "done"
    assert [turn["who"] for turn in bodies[1]["turns"]] == ["user", "assistant", "tool"]


LOCAL = "http://localhost:11434/v1"
LOGGED_IN: dict[str, Callable[[], HTTPModel]] = {
    "a key": lambda: OpenAIChat("https://openrouter.ai/api/v1", "key"),
    "a header": lambda: OpenAIChat(api_key="", extra_headers={"Authorization": "Basic x"}),
    "a header, in the other dialect": lambda: AnthropicMessages(
        api_key="", extra_headers={"authorization": "Bearer x"}
    ),
    "a server of one's own": lambda: OpenAIChat(LOCAL, ""),
    "a key for a server of one's own": lambda: OpenAIChat(LOCAL, "key"),
    "a server of one's own, in the other dialect": lambda: AnthropicMessages(LOCAL, ""),
    "an address that is none": lambda: OpenAIChat("http://[broken/v1", ""),
    "a client of one's own": lambda: OpenAIChat(api_key="", client=Seen().client()),
}


@pytest.mark.parametrize("name", LOGGED_IN)
def test_a_model_is_ready_where_a_key_is_given_or_none_is_needed(name: str) -> None:
    LOGGED_IN[name]().ready()


@pytest.mark.parametrize(
    ("kind", "url", "problem"),
    [
        (OpenAIChat, None, "no API key for https://api.openai.com/v1; set OPENAI_API_KEY or"),
        (OpenAIChat, "https://openrouter.ai/api/v1/", "no API key for https://openrouter.ai/api/v1;"),
        (AnthropicMessages, None, "no API key for https://api.anthropic.com"),
        (OpenAIResponses, None, "no API key for https://api.openai.com/v1; set OPENAI_API_KEY or"),
        (OpenAIResponses, "https://openrouter.ai/api/v1/", "no API key for https://openrouter.ai/api/v1;"),
    ],
)
def test_a_provider_that_answers_none_without_a_key_is_not_asked_without(
    kind: type[OpenAIChat | OpenAIResponses | AnthropicMessages], url: str | None, problem: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        kind(url, "").ready()


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("opnai:x", "no provider 'opnai' for model 'opnai:x': did you mean 'openai'? known are 'anthropic'"),
        ("google-gla:x", "did you mean 'gemini'?"),
        ("openai/gpt-5", "model 'openai/gpt-5' names its provider as a proxy does; write 'openai:gpt-5'"),
    ],
)
def test_a_provider_that_is_misspelled_or_named_as_elsewhere_is_told_right(model: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^.*{re.escape(problem)}"):
        Models().check(model)
    # A proxy may have models of any name.
    Models(base_url="http://there/v1").check(model)
    Models().check("nobody/of-that-name")
