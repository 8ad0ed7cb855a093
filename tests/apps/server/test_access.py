"""Who may call: 30 hostile requests over two tenants, pages of strangers, and a server that needs a token."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.http_server import scripted, serving

from turnwheel.apps.cli.commands import turnwheel
from turnwheel.apps.server.access import Namespace, is_loopback
from turnwheel.apps.server.app import create_app
from turnwheel.apps.server.limits import ServerLimits
from turnwheel.effects import ConfigError
from turnwheel.performers import MemoryStore
from turnwheel.testing.scripted import calls, says

TOKENS = {"a-secret": "ann", "b-secret": "bob"}
ANN, BOB = ({"Authorization": f"Bearer {token}"} for token in TOKENS)

# Bob knows Ann's session `s`, its question {q} and its call {c}, and tries all that there is.
HOSTILE: list[tuple[str, str, Any, dict[str, str], int]] = [
    ("GET", "/api/sessions/s", None, BOB, 404),
    ("GET", "/api/sessions/ann%2Fdefault%2Fs", None, BOB, 404),
    ("GET", "/api/sessions/..%2F..%2Fann%2Fdefault%2Fs", None, BOB, 404),
    ("GET", "/api/sessions/bob%2F..%2Fann%2Fdefault%2Fs", None, BOB, 404),
    ("GET", "/api/sessions/s/events", None, BOB, 404),
    ("GET", "/api/sessions/s/events?vocabulary=sdk", None, {**BOB, "Last-Event-ID": "1.0"}, 404),
    ("GET", "/api/sessions/s/export", None, BOB, 404),
    ("GET", "/api/sessions/s/steps", None, BOB, 404),
    ("GET", "/api/sessions/s/steps/0", None, BOB, 404),
    ("GET", "/api/sessions/s/steps/0/diagram.svg", None, BOB, 404),
    ("GET", "/api/sessions/s/moves", None, BOB, 404),
    ("POST", "/api/sessions/s/preview", {"event": {"type": "Interrupted"}}, BOB, 404),
    ("POST", "/api/sessions/s/messages", {"text": "Pay more", "mode": "now"}, BOB, 404),
    ("POST", "/api/sessions/s/questions/{q}", {"decision": "approve"}, BOB, 404),
    ("POST", "/api/sessions/s/questions/{q}", {"decision": "deny"}, {**BOB, "Idempotency-Key": "k"}, 404),
    ("POST", "/api/sessions/s/interrupt", None, BOB, 404),
    ("POST", "/api/sessions/s/resume", None, BOB, 404),
    ("POST", "/api/sessions/s/control", {"mode": "bypass"}, BOB, 404),
    ("POST", "/api/sessions/s/calls/{c}/cancel", None, BOB, 404),
    ("POST", "/api/sessions/s/branch", {"run": ""}, BOB, 404),
    ("POST", "/api/sessions/s/fork", {"at": 1}, BOB, 404),
    ("DELETE", "/api/sessions/s/queue/x", None, BOB, 404),
    ("DELETE", "/api/sessions/s", None, BOB, 404),
    ("POST", "/api/sessions", {"id": "ann/default/s", "prompt": "Pay"}, BOB, 422),
    ("POST", "/api/sessions", {"id": "..", "prompt": "Pay"}, BOB, 422),
    ("GET", "/api/sessions/s", None, {}, 401),
    ("GET", "/api/sessions/s", None, {"Authorization": "Bearer "}, 401),
    ("GET", "/api/sessions/s", None, {"Authorization": "Bearer a-secre"}, 401),
    ("GET", "/api/sessions/s", None, {"Authorization": "Basic a-secret"}, 401),
    ("GET", "/api/sessions/s?token=a-secret", None, {"Cookie": "token=a-secret"}, 401),
    ("GET", "/metrics", None, {}, 401),
    ("POST", "/api/sessions/s/interrupt", None, {**ANN, "Origin": "http://evil.example"}, 403),
    ("POST", "/api/sessions/s/messages", {"text": "x" * 200_000}, ANN, 413),
]


async def test_a_strangers_token_sees_steers_and_approves_nothing() -> None:
    agent = scripted(calls(("pay", {"amount": 5})), says("Paid."))
    limits = ServerLimits(body=100_000)
    async with serving(agent, tokens=TOKENS, limits=limits) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201, headers=ANN)
        server.client.headers = ANN
        asked = await server.question("s")
        before = await server.get("/api/sessions/s/steps")
        server.client.headers = {}
        for method, path, body, headers, status in HOSTILE:
            where = path.format(q=asked["id"], c=asked["call"])
            said = await server.ask(method, where, body, status, headers=headers)
            assert "Pay" not in str(said)
            # But for what Bob wrote himself.
            assert "ann" not in str(said).replace("ann/default/s", ""), (path, said)
        assert (await server.get("/api/sessions", headers=BOB))["items"] == []
        assert (await server.get("/api/sessions/s/steps", headers=ANN)) == before
        # The same id is another session in the hands of another tenant.
        await server.post("/api/sessions", {"id": "s"}, 201, headers=BOB)
        assert (await server.get("/api/sessions/s", headers=BOB))["state"] == "new"
        yes = {"decision": "approve"}
        await server.post(f"/api/sessions/s/questions/{asked['id']}", yes, 200, headers=ANN)
        server.client.headers = ANN
        assert (await server.done("s"))["reason"] == "end_turn"


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost:80", None, 200),
        ("127.0.0.1", "http://127.0.0.1", 200),
        ("[::1]:4000", "http://[::1]:4000", 200),
        ("mine.example", "http://mine.example", 200),
        ("evil.example", None, 403),
        ("evil.example", "http://evil.example", 403),
        ("localhost", "http://evil.example", 403),
        ("localhost:80", "http://localhost:81", 403),
        ("localhost", "null", 403),
        ("localhost", "http://[", 403),
        ("intranet:80", None, 200),
        ("LOCALHOST", None, 200),
        ("[::1", None, 403),
        ("[::1]:x", None, 403),
        ("me:pw@127.0.0.1", None, 403),
        ("evil.example:80@localhost", None, 403),
        ("evil%2eexample", None, 403),
        ("127.0.0.1/evil", None, 403),
        ("localhost,evil.example", None, 403),
    ],
)
async def test_a_page_of_a_stranger_may_not_call(host: str, origin: str | None, status: int) -> None:
    async with serving(scripted(), hosts=["mine.example"]) as server:
        headers = {"Host": host} | ({"Origin": origin} if origin else {})
        await server.post("/api/sessions", {"id": "s"}, 201 if status == 200 else status, headers=headers)


async def test_of_two_tokens_none_counts() -> None:
    async with serving(scripted(), tokens=TOKENS) as server:
        for two in (TOKENS, [*TOKENS][:1] * 2):
            headers = [("Authorization", f"Bearer {token}") for token in two]
            answer = await server.client.get("/api/sessions", headers=headers)
            assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/healthz/", "/api/sessions/", "/api/sessions/s/events/"])
async def test_no_caller_is_sent_elsewhere(path: str) -> None:
    async with serving(scripted()) as server:
        await server.get(path, 404, headers={"Host": "evil.example"})


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_caller_that_leaves_within_its_body_is_no_fault_of_the_server(*, cancelled: bool) -> None:
    async with serving(scripted()) as server:
        heard: list[Any] = []

        async def receive() -> dict[str, str]:
            if cancelled:
                # As servers do that end the task of a request with its connection.
                raise asyncio.CancelledError
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            heard.append(message)

        (route,) = [each for each in server.server.routes() if each.path == "/api/sessions"]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/sessions",
            "query_string": b"",
            "headers": [],
        }
        with pytest.raises(asyncio.CancelledError) if cancelled else nullcontext():
            await route.app(scope, receive, send)
        assert [each["status"] for each in heard[:1]] == ([] if cancelled else [400])
        counted = 'turnwheel_http_requests_total{method="POST",path="/api/sessions",status="499"} 1.0'
        assert counted in await server.get("/metrics")


async def test_pages_of_others_read_nothing_unless_they_are_named() -> None:
    async with serving(scripted()) as server:
        answer = await server.client.get("/api/sessions", headers={"Origin": "http://app.example"})
        assert "access-control-allow-origin" not in answer.headers
    async with serving(scripted(), origins=["http://app.example"]) as server:
        answer = await server.client.get("/api/sessions", headers={"Origin": "http://app.example"})
        assert answer.headers["access-control-allow-origin"] == "http://app.example"
        await server.post("/api/sessions", {"id": "s"}, 201, headers={"Origin": "http://app.example"})


async def test_more_streams_than_may_be_are_refused() -> None:
    async with serving(scripted(), limits=ServerLimits(tenant_streams=1)) as server:
        await server.post("/api/sessions", {"id": "s"}, 201)
        with server.server.streams.place(""):
            refused = await server.get("/api/sessions/s/events", 429)
            assert refused["detail"].startswith("no more than 1 event streams at a time")


async def test_a_tenant_sends_so_many_requests_in_a_minute_over_all_servers_of_a_store() -> None:
    now = [1_000.0]
    store = MemoryStore(now=lambda: now[0])
    limits, tokens = ServerLimits(tenant_requests=10), {"a": "one", "b": "two"}
    first = serving(scripted(), store, {"Authorization": "Bearer a"}, limits=limits, tokens=tokens)
    second = serving(scripted(), store, {"Authorization": "Bearer a"}, limits=limits, tokens=tokens)
    async with first as one, second as two:
        await one.get("/api/sessions", 200)
        refused = await two.client.get("/api/sessions")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "6")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "no more than 10 requests in a minute" in refused.json()["detail"]
        other = await two.client.get("/api/sessions", headers={"Authorization": "Bearer b"})
        assert other.status_code == 200, "each tenant has its own"
        assert (await two.client.get("/healthz")).status_code == 200
        now[0] += 6
        await two.get("/api/sessions", 200)


def test_a_server_for_other_machines_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNWHEEL_SERVER_TOKEN", raising=False)
    refused = CliRunner().invoke(turnwheel, ["serve", "--stand-in", "--host", "192.0.2.1"])
    assert isinstance(refused.exception, ConfigError)
    assert "token" in str(refused.exception)
    assert [is_loopback(host) for host in ("::1", "127.9.9.9", "localhost", "192.0.2.1", "10.0.0.1")] == [
        *[True] * 3,
        *[False] * 2,
    ]


@pytest.mark.parametrize("given", [("--token", "secret"), ("--token", "ann:a-secret", "--max-tokens", "9")])
@pytest.mark.parametrize("by_variable", [False, True])
def test_a_token_is_taken_beside_the_options_of_a_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: tuple[str, ...], *, by_variable: bool
) -> None:
    monkeypatch.delenv("TURNWHEEL_SERVER_TOKEN", raising=False)
    if by_variable:
        monkeypatch.setenv("TURNWHEEL_SERVER_TOKEN", given[1])
        given = given[2:]
    store = str(tmp_path / "sessions.db")
    # No machine has this address: it comes as far as listening.
    args = ["serve", "--stand-in", "--host", "192.0.2.1", "--store", store, *given]
    refused = CliRunner().invoke(turnwheel, args)
    assert isinstance(refused.exception, ConfigError)
    assert "cannot listen on 192.0.2.1" in str(refused.exception)


@pytest.mark.parametrize(
    ("agents", "more"),
    [
        ({}, {}),
        ({"a/b": scripted()}, {}),
        ({"..": scripted()}, {}),
        ({"a": scripted()}, {"tokens": {"secret": "a/b"}}),
        ({"a": scripted()}, {"tokens": {"": "ann"}}),
    ],
)
def test_names_that_could_meet_are_refused(agents: Any, more: Any) -> None:
    with pytest.raises(ConfigError):
        create_app(agents, MemoryStore(), **more)


WRONG: list[tuple[Any, Any, Any, str]] = [
    (
        [scripted()],
        MemoryStore(),
        {},
        "agents: list is not an Agent; write agents={'default': Agent(...)}",
    ),
    (
        scripted(),
        None,
        {},
        "store: None is not an open store; write create_app(agents, MemoryStore())",
    ),
    (
        scripted(),
        "v1.db",
        {},
        "store: 'v1.db' is not an open store; write create_app(agents, SQLiteStore('v1.db'))",
    ),
    (
        scripted(),
        MemoryStore(),
        {"tokens": ["x"]},
        "tokens: list does not map secrets to tenants; write tokens={'the secret': 'the tenant'}",
    ),
    (
        scripted(),
        MemoryStore(),
        {"tokens": {"x": None}},
        "tokens: dict does not map secrets to tenants; write tokens={'the secret': 'the tenant'}",
    ),
    (
        scripted(),
        MemoryStore(),
        {"origins": "https://app.example"},
        "origins: 'https://app.example' is one text; write origins=['https://app.example']",
    ),
    *[
        (
            scripted(),
            MemoryStore(),
            {"origins": [origin]},
            f"origin: {origin!r} is not one; write scheme and host, such as https://app.example.com",
        )
        for origin in ("foo", "*", "null", "https://", "https://app.example/page", "https://*.example", 7)
    ],
]


@pytest.mark.parametrize(("agents", "store", "more", "says"), WRONG)
def test_what_no_server_can_be_made_of_is_refused_with_the_fix(
    agents: Any, store: Any, more: Any, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        create_app(agents, store, **more)
    assert str(refused.value) == says


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        ("https://app.example/", "https://app.example"),
        ("HTTPS://App.Example:443", "https://app.example"),
        ("http://app.example:8080/", "http://app.example:8080"),
        ("http://[::1]:4000", "http://[::1]:4000"),
        ("chrome-extension://abcdef", "chrome-extension://abcdef"),
    ],
)
async def test_an_origin_may_be_named_as_people_write_it(named: str, sent: str) -> None:
    async with serving(scripted(), origins=[named]) as server:
        await server.post("/api/sessions", {"id": "s"}, 201, headers={"Origin": sent})


def test_a_name_in_the_store_belongs_to_one_tenant_and_agent() -> None:
    spaces = [Namespace(tenant, ("default", "other")) for tenant in ("", "ann", "bob")]
    names = [(space, agent, space.stored(agent, "s")) for space in spaces for agent in space.agents]
    assert len({name for _, _, name in names}) == len(names)
    for space, agent, name in names:
        assert [one.public(name) for one in spaces if one.public(name) is not None] == [(agent, "s")]
        assert space.public(name) == (agent, "s")
        assert space.hidden(f"session {name!r} is busy") == "session 's' is busy"
    assert spaces[1].public("ann/default/a/b") is None
    assert spaces[0].hidden("/srv/default/logs") == "/srv/default/logs"
