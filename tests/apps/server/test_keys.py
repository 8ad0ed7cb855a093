"""What comes again under an Idempotency-Key is done once, and answered as the first time."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from support.http_server import Asking, scripted, serving

from turnwheel import MemoryStore, SQLiteStore
from turnwheel.apps.cli.commands import turnwheel
from turnwheel.apps.server.bodies import ApprovalForOne
from turnwheel.effects import StoreError
from turnwheel.engine import delete
from turnwheel.performers.stores.base import Entries, Store
from turnwheel.testing.scripted import calls, says, stalls

PAY = calls(("pay", {"amount": 5}))
KEY = {"Idempotency-Key": "first"}

# Each request, with another body where it has one.
KEYED: list[tuple[str, Any, Any, int]] = [
    ("/api/sessions", {"id": "t", "prompt": "One?"}, {"id": "u", "prompt": "One?"}, 201),
    ("/api/sessions/s/messages", {"text": "More"}, {"text": "Less"}, 202),
    ("/api/sessions/s/messages", {"text": "More", "id": "mine"}, {"text": "More", "id": "other"}, 202),
    ("/api/sessions/s/questions/{q}", {"decision": "approve"}, {"decision": "deny"}, 200),
    ("/api/sessions/s/interrupt", None, None, 202),
    ("/api/sessions/s/resume", None, None, 202),
    ("/api/sessions/s/control", {"mode": "plan"}, {"mode": "bypass"}, 200),
    ("/api/sessions/s/calls/{c}/cancel", None, None, 202),
    ("/api/sessions/done/branch", {"run": ""}, {"run": "none"}, 200),
    ("/api/sessions/done/fork", {"at": 2}, {"at": 3}, 201),
    ("/api/sessions/done/fork", {"at": 2, "id": "t"}, {"at": 2, "id": "u"}, 201),
]


async def begun(server: Asking) -> Any:
    """A session `done`, and one `s` with a question, which it gives."""
    await server.post("/api/sessions", {"id": "done", "prompt": "Hi"}, 201)
    await server.done("done")
    await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
    return await server.question("s")


def model() -> Any:
    return scripted(says("Hi."), PAY, *[says("Well.")] * 4, partial=True)


async def test_a_few_digits_of_a_body_are_not_told_by_what_is_kept_of_it() -> None:
    store = MemoryStore()
    async with serving(model(), store) as server:
        asked = await begun(server)
        answer = {"decision": "approve", "arguments": {"amount": 4711}}
        key = {"Idempotency-Key": "5f2d6c1e-0f6f-4a8e-9d39-0a6f0f6f5b1c"}
        await server.post(f"/api/sessions/s/questions/{asked['id']}", answer, headers=key)
        kept = [
            entry
            for one in await store.list()
            if "#" in one.session
            for entry in await store.load(one.session)
        ]
    assert kept
    for amount in range(10_000):
        given = ApprovalForOne(arguments={"amount": amount})
        body = msgspec.json.encode(given, order="deterministic")
        digest = sha256(body).hexdigest().encode()
        assert not any(digest in entry for entry in kept)


async def journals(store: Store) -> dict[str, int]:
    """How long each journal is, but for those of keys."""
    return {one.session: one.length for one in await store.list() if "#" not in one.session}


@pytest.mark.parametrize(("path", "body", "other", "status"), KEYED)
async def test_a_repeat_is_answered_as_the_first_one_and_does_nothing(
    path: str, body: Any, other: Any, status: int, tmp_path: Path
) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    async with serving(model(), store) as server:
        asked = await begun(server)
        at = path.format(q=asked["id"], c=asked["call"])
        first = await server.post(at, body, status, headers=KEY)
        for name in ("s", "done", "t"):
            if name in await journals(store):
                await server.until(name, lambda found: not found["running"] or found["questions"])
        before = await journals(store)
        assert await server.post(at, body, status, headers=KEY) == first
        if other is not None:
            await server.post(at, other, 422, headers=KEY)
        assert await journals(store) == before
    # Another server on the same store, later.
    async with serving(model(), store, resume=False) as server:
        before = await journals(store)
        assert await server.post(at, body, status, headers=KEY) == first
        if other is not None:
            await server.post(at, other, 422, headers=KEY)
        assert await journals(store) == before
    await store.close()


async def test_a_late_repeat_of_an_interrupt_stops_no_later_run() -> None:
    async with serving(scripted(stalls("One"), stalls("Two"))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "One?"}, 201)
        await server.until("s", lambda found: found["state"] == "streaming")
        stopped = await server.post("/api/sessions/s/interrupt", None, 202, headers=KEY)
        await server.done("s")
        await server.post("/api/sessions/s/messages", {"text": "Two?"}, 202)
        await server.until("s", lambda found: found["state"] == "streaming")
        assert await server.post("/api/sessions/s/interrupt", None, 202, headers=KEY) == stopped
        assert (await server.get("/api/sessions/s"))["state"] == "streaming"
        await server.post("/api/sessions/s/interrupt", None, 202, headers={"Idempotency-Key": "second"})
        await server.done("s")


async def test_what_was_refused_frees_its_key() -> None:
    async with serving(scripted(says("Hi."))) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Hi"}, 201)
        await server.done("s")
        await server.post("/api/sessions/s/branch", {"run": "none"}, 404, headers=KEY)
        await server.post("/api/sessions/s/branch", {"run": ""}, 200, headers=KEY)
        await server.post("/api/sessions/none/branch", {"run": ""}, 404, headers=KEY)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/sessions", {"prompt": "One?"}, 201),
        ("/api/sessions/s/messages", {"text": "More"}, 202),
        ("/api/sessions/s/questions/{q}", {"decision": "approve"}, 200),
        ("/api/sessions/s/interrupt", None, 202),
        ("/api/sessions/done/fork", {"at": 2}, 201),
    ],
)
async def test_what_was_done_before_a_crash_is_not_done_twice(
    path: str, body: Any, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    async with serving(model(), store) as server:
        asked = await begun(server)
        at, append = path.format(q=asked["id"]), store.append

        async def full(session: str, expected: int, *rest: Any) -> str:
            if session.endswith("#keys") and expected:
                msg = "no space left on device"
                raise StoreError(msg)
            return await append(session, expected, *rest)

        monkeypatch.setattr(store, "append", full)
        # It was done, and nothing is left that says so.
        await server.post(at, body, 503, headers=KEY)
        monkeypatch.undo()
        before = {*await journals(store)}
        if body is not None:
            await server.post(at, {**body, "unknown": 1}, 422, headers=KEY)
        first = await server.post(at, body, status, headers=KEY)
        assert await server.post(at, body, status, headers=KEY) == first
        assert {*await journals(store)} == before
        prompts = [await server.get(f"/api/sessions/{name}/export") for name in before]
        assert str(prompts).count("'text': 'More'") <= 1


@pytest.mark.parametrize("headers", [KEY, {}])
async def test_forks_of_one_name_and_moment_are_one(headers: dict[str, str]) -> None:
    store = MemoryStore()
    async with serving(model(), store) as one, serving(model(), store) as other:
        await begun(one)
        forks = [
            server.post("/api/sessions/done/fork", {"id": "t", "at": 2}, 201, headers=headers)
            for server in (one, other, one, other)
        ]
        assert {made["id"] for made in await asyncio.gather(*forks)} == {"t"}
        await one.post("/api/sessions/s/fork", {"id": "t", "at": 2}, 409)


@pytest.mark.parametrize("mode", ["queue", "steer"])
@pytest.mark.parametrize("waits", [True, False], ids=["waits", "was read"])
async def test_an_id_of_a_message_is_good_for_its_own_text_only(mode: str, *, waits: bool) -> None:
    async with serving(scripted(PAY, *[says("Well.")] * 9)) as server:
        await server.post("/api/sessions", {"id": "s", "prompt": "Pay"}, 201)
        asked = await server.question("s")
        where, body = "/api/sessions/s/messages", {"id": "z", "text": "One\u0000", "mode": mode}
        await server.post(where, body, 202)
        if not waits:
            if mode == "queue":
                await server.post(f"/api/sessions/s/questions/{asked['id']}", {"decision": "deny"})
            await server.done("s")
            for number in range(8):
                await server.post(where, {"text": f"More {number}"}, 202)
                await server.done("s")
        file = {"media_type": "text/plain", "data": "aGk="}
        await server.post(where, body, 202)
        await server.post(where, {**body, "text": "Two"}, 409)
        await server.post(where, {**body, "files": [file]}, 409)
        assert "Two" not in str(await server.get("/api/sessions/s/export"))


FORKS: list[dict[str, Any]] = [
    {},
    {"instead": "More"},
    {"instead": {"type": "UserSent", "id": "mine", "text": "More"}},
    {"instead": {"type": "SetMode", "mode": "plan"}},
    {"at": 2},
    {"at": 4},
    {"at": 4, "instead": "Another answer"},
    {"at": 4, "instead": "A third one"},
    {"at": 4, "instead": {"type": "Interrupted"}},
]


@pytest.mark.parametrize("begins", [False, True], ids=["rests", "went on"])
@pytest.mark.parametrize("number", range(len(FORKS)))
async def test_only_the_same_fork_finds_that_of_an_id(number: int, *, begins: bool) -> None:
    async with serving(scripted(*[says("Well.")] * 6)) as server:
        await server.post("/api/sessions", {"id": "done", "prompt": "Hi"}, 201)
        await server.done("done")
        where, body = "/api/sessions/done/fork", {"id": "t", **FORKS[number]}
        await server.post(where, body, 201)
        if begins:
            # Neither what comes to the copy nor what comes to the original makes it another fork.
            for name in ("t", "done"):
                await server.post(f"/api/sessions/{name}/messages", {"text": "And now?"}, 202)
                await server.done(name)
        length = len((await server.get("/api/sessions/t/steps"))["items"])
        statuses = [
            (await server.client.post(where, json={"id": "t", **other})).status_code for other in FORKS
        ]
        assert statuses == [201 if each == number else 409 for each in range(len(FORKS))]
        assert len((await server.get("/api/sessions/t/steps"))["items"]) == length


async def test_a_fork_with_a_decision_and_the_fork_of_a_fork_are_found_again() -> None:
    async with serving(model()) as server:
        await begun(server)
        at = len((await server.get("/api/sessions/s/steps"))["items"])
        for kind, status in (("Approve", 201), ("Approve", 201), ("Deny", 409)):
            body = {"id": "t", "at": at, "instead": {"type": kind}}
            await server.post("/api/sessions/s/fork", body, status)
        for cut, status in ((at, 201), (at, 201), (at - 1, 409)):
            await server.post("/api/sessions/t/fork", {"id": "u", "at": cut}, status)


@pytest.mark.parametrize("again", [False, True], ids=["gone", "another has its name"])
@pytest.mark.parametrize(
    ("at", "body"),
    [
        ("/api/sessions", {"id": "t", "prompt": "One?"}),
        ("/api/sessions", {"agent": "second"}),
        ("/api/sessions", {}),
        ("/api/sessions/done/fork", {"at": 2, "id": "t"}),
    ],
)
async def test_a_key_does_not_outlive_the_session_that_was_made_with_it(
    at: str, body: Any, *, again: bool
) -> None:
    async with serving({"default": model(), "second": model()}) as server:
        await begun(server)
        first = await server.post(at, body, 201, headers=KEY)
        await server.ask("DELETE", f"/api/sessions/{first['id']}?unfinished=yes", None, 204)
        if again:
            named = {**body, "id": first["id"]}
            await server.post(at, named, 201)
        second = await server.post(at, body, 201, headers=KEY)
        assert second["id"] == first["id"]
        assert second["created"] > first["created"]
        assert (await server.get(f"/api/sessions/{first['id']}"))["created"] == second["created"]
        # From here on it is as after the first one.
        answer = await server.post(at, body, 201, headers=KEY)
        assert answer == second
        await server.post(at, {**body, "id": "u"}, 422, headers=KEY)


async def test_of_two_requests_under_a_key_that_is_free_again_one_is_refused() -> None:
    store = MemoryStore()
    async with serving(model(), store) as one, serving(model(), store) as other:
        first = await one.post("/api/sessions", {"prompt": "One?"}, 201, headers=KEY)
        await one.ask("DELETE", f"/api/sessions/{first['id']}?unfinished=yes", None, 204)
        asked = [(one, "Two?"), (other, "Three?"), (one, "Four?")]
        posts = [
            server.client.post("/api/sessions", json={"prompt": prompt}, headers=KEY)
            for server, prompt in asked
        ]
        answers = await asyncio.gather(*posts)
        assert sorted([answer.status_code for answer in answers]) == [201, 422, 422]


async def test_requests_of_one_moment_are_one() -> None:
    store = MemoryStore()
    async with serving(model(), store) as one, serving(model(), store) as other:
        asked = await begun(one)
        where = f"/api/sessions/s/questions/{asked['id']}"
        for at, body, status in ((where, {"decision": "deny"}, 200), ("/api/sessions/done/fork", None, 201)):
            posts = [server.post(at, body, status, headers=KEY) for server in (one, other, one, other)]
            answers = await asyncio.gather(*posts)
            assert len({answer["id"] for answer in answers}) == 1
        assert len(await journals(store)) == 3


async def test_nothing_is_kept_for_a_session_that_was_deleted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    append = store.append

    async def too_late(session: str, *rest: Any) -> str:
        if session == "s":
            await delete(store, "s")
        return await append(session, *rest)

    async with serving(scripted(), store) as server:
        await server.post("/api/sessions", {"id": "s"}, 201)
        monkeypatch.setattr(store, "append", too_late)
        await server.post("/api/sessions/s/messages", {"text": "More"}, 404, headers=KEY)
        assert not await store.list()


async def test_many_keys_of_one_session_cost_each_request_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    load, loaded = store.load, list[int]()

    async def counted(session: str, start: int = 0, end: int | None = None, incarnation: str = "") -> Entries:
        entries = await load(session, start, end, incarnation)
        if session.endswith("#keys"):
            loaded.append(len(entries))
        return entries

    monkeypatch.setattr(store, "load", counted)
    async with serving(scripted(says("Hi.")), store) as server:
        for name in ("s", "t"):
            await server.post("/api/sessions", {"id": name}, 201)
        for number in range(30):
            for name in ("s", "t"):
                await server.post(
                    f"/api/sessions/{name}/branch", {"run": ""}, 200, headers={"Idempotency-Key": f"{number}"}
                )
        assert max(loaded) <= 2
        # Another session of that name has keys of its own.
        await server.ask("DELETE", "/api/sessions/s", None, 204)
        await server.post("/api/sessions", {"id": "s"}, 201)
        for _ in range(2):
            await server.post("/api/sessions/s/branch", {"run": ""}, 200, headers={"Idempotency-Key": "5"})
        assert (await store.list(prefix="s.#keys"))[0].length == 2


def test_the_command_line_lists_sessions_only(tmp_path: Path) -> None:
    async def serve() -> None:
        store = SQLiteStore(tmp_path / "s.db")
        async with serving(model(), store) as server:
            await begun(server)
            await server.post("/api/sessions/s/resume", None, 202, headers=KEY)
        await store.close()

    asyncio.run(serve())
    listed = CliRunner().invoke(turnwheel, ["sessions", "--json", "--store", str(tmp_path / "s.db")])
    assert {json.loads(line)["session"] for line in listed.output.splitlines()} == {"s", "done"}


async def test_what_is_kept_for_keys_is_seen_by_no_caller_and_goes_with_its_session() -> None:
    store = MemoryStore()
    async with serving(model(), store) as server:
        await begun(server)
        await server.post("/api/sessions/s/interrupt", None, 202, headers=KEY)
        names = [one.session for one in await store.list()]
        assert "s.#keys" in names
        assert {one["id"] for one in (await server.get("/api/sessions"))["items"]} == {"s", "done"}
        for what in ("", "/steps", "/export", "/events", "/family"):
            await server.get(f"/api/sessions/s.%23keys{what}", 404)
        await server.ask("DELETE", "/api/sessions/s.%23keys", None, 404)
        await server.ask("DELETE", "/api/sessions/s", None, 204)
        assert [one.session for one in await store.list()] == ["done"]
        # A session that begins under its name knows nothing of it.
        await server.post("/api/sessions", {"id": "s"}, 201)
        again = await server.post("/api/sessions/s/interrupt", None, 202, headers=KEY)
        assert again["state"] == "new"
        await server.post("/api/sessions/s/interrupt", None, 202, headers=KEY)
    assert await delete(store, "s") == 2
