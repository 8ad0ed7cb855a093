"""What a `ModelSpec` adds to requests: sampling, a choice of tools, headers, fields, the session's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest

from turnwheel import Agent, MemoryStore, ModelSpec, Retries, tool
from turnwheel.effects.config import Config, ToolSpec
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Failure, ModelFailed
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.request_extras import as_header_pairs, as_object_text
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.engine.core.codec import converter
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.providers import PROVIDERS
from turnwheel.performers.models.router import Models

TOOLS = (ToolSpec(name="look"), ToolSpec(name="write"))


@tool(side_effect="read_only")
def look() -> str:
    """Looks."""
    return "seen"


class Server:
    """The headers and the body of each request; *answers* in turn, and refused behind the last of them."""

    def __init__(self, *answers: str, text: str = "") -> None:
        self.headers: list[httpx.Headers] = []
        self.bodies: list[dict[str, Any]] = []
        self._answers, self._text = [*answers], text

    def client(self) -> httpx.AsyncClient:
        def answer(request: httpx.Request) -> httpx.Response:
            self.headers.append(request.headers)
            self.bodies.append(json.loads(request.content))
            if self._answers:
                return httpx.Response(200, text=self._answers.pop(0))
            return httpx.Response(418, text=self._text)

        return httpx.AsyncClient(transport=httpx.MockTransport(answer))


def chunk(finish: str, **delta: Any) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n"


CALLS = chunk(
    "tool_calls",
    tool_calls=[{"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}],
)
SAYS = chunk("stop", content="done")


async def asked(server: Server, session: str = "s-1", **more: Any) -> ModelFailed:
    spec = ModelSpec(**more)
    prefix = spec.name.partition(":")[0]
    request = CallModel(
        id="r-1",
        model=spec.name,
        view=Conversation(revision=0, length=1),
        tools=("look", "write"),
        tool_choice=spec.tool_choice,
    )
    scene = PerformContext(
        session=session,
        run="r",
        config=Config(model=spec, tools=TOOLS),
        history=History.of(user("hi")),
        clock=SystemClock(),
        emit=lambda _: None,
    )
    async with server.client() as client:
        url = None if PROVIDERS[prefix].address else "http://there"
        answer = await Models(prefix, base_url=url, client=client)(request, scene)
    assert isinstance(answer, ModelFailed)
    return answer


# Sampling


@pytest.mark.parametrize("prefix", PROVIDERS)
async def test_sampling_is_sent_by_the_names_of_the_server(prefix: str) -> None:
    server = Server()
    seed: dict[str, Any] = {} if prefix in {"anthropic", "openai-responses"} else {"seed": 7}
    settings: dict[str, Any] = {"name": f"{prefix}:m", "temperature": 0.5, "top_p": 0.9} | seed
    await asked(server, **settings)
    body = server.bodies[0]
    about = ("temperature", "top_p", "seed", "random_seed")
    named = {} if not seed else {"random_seed" if prefix == "mistral" else "seed": 7}
    assert {name: body[name] for name in about if name in body} == {
        "temperature": 0.5,
        "top_p": 0.9,
        **named,
    }


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"name": "openai:gpt-5", "temperature": 0.0},
            "'openai:gpt-5': OpenAI's reasoning models take no tem",
        ),
        ({"name": "litellm:openai/o3", "top_p": 0.5}, "take no top_p; leave it out"),
        ({"name": "anthropic:m", "seed": 1}, "Anthropic's Messages have no seed"),
        ({"name": "openai-responses:m", "seed": 1}, "OpenAI's Responses have no seed"),
        ({"name": "openai-responses:gpt-5", "top_p": 0.5}, "reasoning models take no top_p"),
        ({"name": "anthropic:claude-opus-4-7", "temperature": 1.0}, "takes no temperature where it thinks"),
        ({"name": "anthropic:m", "thinking": 2_000, "temperature": 1.0}, "takes no temperature where it"),
        ({"name": "anthropic:m", "thinking": 2_000, "tool_choice": "required"}, "cannot think before a call"),
        (
            {"name": "openai:m", "tool_choice": "lok"},
            "tool_choice of 'openai:m': no tool 'lok'; did you mean 'l",
        ),
        (
            {"name": "openai:m", "extra_body": {"messages": []}},
            r"wire's own fields to it; got \['messages'\]",
        ),
        ({"name": "openai:m", "extra_headers": {"x-auth": "${TURNWHEEL_NO_KEY}"}}, "'x-auth' needs the envi"),
    ],
)
def test_a_setting_that_cannot_be_sent_is_refused_when_the_agent_is_made(
    settings: dict[str, Any], problem: str
) -> None:
    spec = ModelSpec(**settings)
    with pytest.raises(ConfigError, match=problem):
        Agent(tools=[look], model=spec)
    with pytest.raises(ConfigError, match=problem):
        Agent(tools=[look], model="openai:other", fallback=spec)


# The choice of tools


@pytest.mark.parametrize(
    ("choice", "chat", "messages"),
    [
        ("", None, None),
        ("auto", "auto", {"type": "auto"}),
        ("required", "required", {"type": "any"}),
        ("look", {"type": "function", "function": {"name": "look"}}, {"type": "tool", "name": "look"}),
        ("elsewhere", None, None),
    ],
)
async def test_a_choice_of_tools_is_sent_in_the_form_of_the_wire(
    choice: str, chat: object, messages: object
) -> None:
    server = Server()
    await asked(server, name="openai:m", tool_choice=choice)
    await asked(server, name="anthropic:m", tool_choice=choice)
    assert [body.get("tool_choice") for body in server.bodies] == [chat, messages]
    assert all(len(body["tools"]) == 2 for body in server.bodies)


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_a_call_is_forced_in_the_first_answer_of_each_run(choice: str) -> None:
    server = Server(CALLS, SAYS, CALLS, SAYS)
    async with server.client() as client:
        agent = Agent(
            model=ModelSpec(name="openai:m", tool_choice=choice),
            tools=[look],
            client=client,
            base_url="http://there",
        )
        session = agent.session()
        results = [await session.run("go"), await session.run("again")]
    assert [result.text for result in results] == ["done", "done"]
    forced = [body.get("tool_choice") is not None for body in server.bodies]
    assert forced == [True, False, True, False]


async def test_no_tools_are_offered_where_none_may_be_called() -> None:
    server = Server(CALLS, SAYS)
    async with server.client() as client:
        spec = ModelSpec(name="openai:m", tool_choice="none")
        await Agent(model=spec, tools=[look], client=client, base_url="http://there").run("go")
    assert {body["tool_choice"] for body in server.bodies} == {"none"}


# Headers and fields


@pytest.mark.parametrize("name", ["openai:m", "anthropic:m", "openai-responses:m"])
async def test_headers_and_fields_go_along(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "a-key-of-the-gateway")
    server = Server(text="bad key a-key-of-the-gateway")
    answer = await asked(
        server,
        name=name,
        temperature=0.5,
        extra_headers={"X-Team": "t", "Authorization": "Bearer ${GATEWAY_KEY}"},
        extra_body={"top_k": 3, "temperature": 0.75, "provider": {"order": ["é"]}},
    )
    (headers,), (body,) = server.headers, server.bodies
    assert (headers["x-team"], headers["authorization"]) == ("t", "Bearer a-key-of-the-gateway")
    assert (body["top_k"], body["temperature"], body["provider"]) == (3, 0.75, {"order": ["é"]})
    # A server that quotes it does not bring it into a notice, a log or a journal.
    assert "bad key [hidden]" in answer.message


async def test_a_request_without_its_variable_fails_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEWAY_KEY", raising=False)
    server = Server()
    answer = await asked(server, name="openai:m", extra_headers={"x-key": "${GATEWAY_KEY}"})
    assert (answer.failure, server.bodies) == (Failure.BAD_REQUEST, [])
    assert answer.message == "extra_headers: 'x-key' needs the environment variable GATEWAY_KEY; set it"


async def test_a_header_that_logs_in_takes_the_place_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    monkeypatch.setenv("GATEWAY_KEY", "k")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")  # where nobody listens
    with pytest.raises(ConfigError, match="no API key"):
        await Agent(model="groq:m").run("go")
    spec = ModelSpec(name="groq:m", extra_headers={"authorization": "Bearer ${GATEWAY_KEY}"})
    async with Agent(model=spec, retries=Retries(failed=0)) as agent:
        result = await agent.run("go")
    assert result.reason == "error"


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"Authorization": "Bearer abc"}, "'Authorization' looks like a credential"),
        ({"Helicone-Auth": "abc"}, "'Helicone-Auth' looks like a credential"),
        ({"x-other": "sk-abcdef"}, "'x-other' looks like a credential"),
        ({"Content-Type": "text/plain"}, "'Content-Type' is set by the wire itself"),
        ({"a b": "c"}, "'a b' is not the name of a header"),
        ({"x-team": "ü"}, "'x-team' must be printable ASCII text"),
        ({"x-team": 5}, "'x-team' must be printable ASCII text"),
        ("[]", "extra_headers must be a JSON object"),
        ("{", "extra_headers must be a JSON object"),
    ],
)
def test_a_header_that_may_not_stand_in_a_journal_is_refused(headers: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        ModelSpec(name="m", extra_headers=headers)
    assert "abc" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"api_key": "abcdef"}, "'api_key' looks like a credential"),
        ({"a": [{"client_secret": "abcdef"}]}, "'client_secret' looks like a credential"),
        ({"a": float("nan")}, "must be an object that JSON can hold"),
        ({"a": object()}, "must be an object that JSON can hold"),
        ("[1]", "extra_body must be a JSON object; got '\\[1\\]'"),
    ],
)
def test_a_body_that_may_not_stand_in_a_journal_is_refused(body: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ModelSpec(name="m", extra_body=body)
    assert as_object_text({"max_tokens": 5, "token_budget": "x"}) == '{"max_tokens": 5, "token_budget": "x"}'


def test_a_spec_shows_no_value_of_a_header_and_comes_back_from_a_journal() -> None:
    spec = ModelSpec(name="m", extra_headers={"x-team": "blue"}, extra_body={"a": [1, "b"]})
    assert "blue" not in repr(spec)
    assert "x-team" in repr(spec)
    assert converter.structure(json.loads(json.dumps(converter.unstructure(spec))), ModelSpec) == spec
    assert as_header_pairs('{"x-team": "blue"}') == spec.extra_headers
    assert ModelSpec(name="m", extra_body="") == ModelSpec(name="m")


def test_another_provider_does_not_get_the_extras_of_this_one() -> None:
    spec = ModelSpec(
        name="litellm:a", extra_headers={"x-team": "t"}, extra_body={"b": 1}, session_field="c", seed=7
    )
    config = Config(model=spec)
    assert config.spec("litellm:b") == attrs.evolve(spec, name="litellm:b")
    assert config.spec("b") == attrs.evolve(spec, name="b")
    assert config.spec("openai:b") == ModelSpec(name="openai:b", window=spec.window, seed=7)


# The session's name


@pytest.mark.parametrize(
    ("field", "session", "header", "found"),
    [
        ("litellm_session_id", "s-1", "", {"litellm_session_id": "s-1"}),
        ("metadata.session_id", "Änn@x", "", {"metadata": {"session_id": "Änn@x", "tags": ["t"]}}),
        ("a.b.c", "s-1", "", {"a": {"b": {"c": "s-1"}}}),
        ("header:Helicone-Session-Id", "Änn@x y", "%C3%84nn@x y", {}),
    ],
)
async def test_a_setting_names_the_place_of_the_sessions_name(
    field: str, session: str, header: str, found: dict[str, Any]
) -> None:
    server, tags = Server(), {"metadata": {"tags": ["t"]}}
    for name in ("openai:m", "anthropic:m", "openai-responses:m"):
        await asked(server, session, name=name, session_field=field, extra_body=tags)
    for headers, body in zip(server.headers, server.bodies, strict=True):
        assert headers.get("helicone-session-id", "") == header
        assert {name: body[name] for name in found} == found


@pytest.mark.parametrize("field", ["header:", "header:a b", "header:Host", "a..b", ".a"])
def test_a_place_that_is_none_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match="session_field must be a field such as"):
        ModelSpec(name="m", session_field=field)


async def test_a_journal_holds_the_name_of_the_variable_and_not_its_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "a-key-of-the-gateway")
    server, store = Server(SAYS), MemoryStore()
    spec = ModelSpec(name="openai:m", extra_headers={"x-key": "${GATEWAY_KEY}"})
    async with server.client() as client:
        agent = Agent(model=spec, client=client, base_url="http://there", store=store)
        session = agent.session("s")
        await session.run("go")
        await session.close()
    held = b"".join(await store.load("s"))
    assert b"${GATEWAY_KEY}" in held
    assert b"a-key-of-the-gateway" not in held
    assert server.headers[0]["x-key"] == "a-key-of-the-gateway"


def test_the_page_has_an_example_of_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "k")
    page = (Path(__file__).resolve().parents[3] / "docs" / "providers.md").read_text("utf-8")
    example = page.split("### More headers and fields")[1].split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102  # the page's own code
    Agent(model=names["model"])
