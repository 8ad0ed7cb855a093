"""Sessions over HTTP: each call of the table, what it answers, and what it refuses."""

from __future__ import annotations

from typing import Any

from support.http_server import scripted, serving

from turnwheel.testing.scripted import calls, says

PAY = calls(("pay", {"amount": 5}))


async def test_a_session_is_begun_asked_and_answered() -> None:
    async with serving(scripted(PAY, says("Paid."))) as server:
        made = await server.post("/api/sessions", {"agent": "default", "id": "s", "prompt": "Pay"}, 201)
        assert (made["id"], made["agent"]) == ("s", "default")
        asked = await server.question("s")
        assert (asked["tool"], asked["arguments"], asked["due"]) == ("pay", {"amount": 5}, None)
        answer = {"decision": "approve", "arguments": {"amount": 6}}
        await server.post(f"/api/sessions/s/questions/{asked['id']}", answer)
        over = await server.done("s")
        assert (over["reason"], over["questions"], over["spend"]["turns"]) == ("end_turn", [], 2)
        messages = (await server.get("/api/sessions/s/export"))["messages"]
        assert "paid 6" in str(messages)


async def test_agents_are_listed_with_their_tools() -> None:
    async with serving({"payer": scripted()}) as server:
        (agent,) = (await server.get("/api/agents"))["items"]
        assert (agent["name"], agent["model"], agent["tools"]) == ("payer", "openai:test", ["pay", "look"])
        assert agent["specs"][0]["parameters"]["required"] == ["amount"]


async def test_a_message_to_an_idle_session_begins_a_run() -> None:
    async with serving(scripted(says("One."), says("Two."))) as server:
        await server.post("/api/sessions", {"agent": "default", "id": "s"}, 201)
        assert (await server.get("/api/sessions/s"))["state"] == "new"
        sent = await server.post("/api/sessions/s/messages", {"text": "One?", "id": "mine"}, 202)
        assert sent == {"id": "mine"}
        await server.done("s")
        sent = await server.post("/api/sessions/s/messages", {"text": "Two?", "mode": "steer"}, 202)
        over: Any = await server.done("s")
        assert sent["id"]
        assert over["spend"]["turns"] == 2
