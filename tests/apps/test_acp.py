"""`turnwheel acp` as an editor has it: a client from PyPI drives it over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp import PROTOCOL_VERSION, RequestError, schema, spawn_agent_process, text_block
from acp.client.connection import ClientSideConnection


class Editor:
    """An editor whose person answers all questions with *answer*; None cancels the turn instead."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer
        self.updates: list[Any] = []
        self.asked: list[schema.ToolCallUpdate] = []
        self.agent: ClientSideConnection | None = None

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        del session_id, more
        self.updates.append(update)

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[Any], **more: Any
    ) -> schema.RequestPermissionResponse:
        del more
        assert [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
        self.asked.append(tool_call)
        if self.answer is None:
            assert self.agent is not None
            await self.agent.cancel(session_id)
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        chosen = schema.AllowedOutcome(outcome="selected", option_id=self.answer)
        return schema.RequestPermissionResponse(outcome=chosen)

    def forget(self, answer: str) -> None:
        """Begin anew, with another *answer*."""
        self.answer = answer
        self.updates.clear()
        self.asked.clear()

    def text(self) -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == "agent_message_chunk")

    def calls(self) -> dict[str, list[Any]]:
        """The updates of each call."""
        found: dict[str, list[Any]] = {}
        for update in self.updates:
            if update.session_update in {"tool_call", "tool_call_update"}:
                found.setdefault(update.tool_call_id, []).append(update)
        return found


@asynccontextmanager
async def opened(answer: str | None) -> AsyncGenerator[tuple[Editor, ClientSideConnection]]:
    editor = Editor(answer)
    command = (sys.executable, "-m", "turnwheel.apps.cli", "acp", "--stand-in")
    env = {"TURNWHEEL_STORE": os.environ["TURNWHEEL_STORE"]}
    async with spawn_agent_process(cast("Any", editor), *command, env=env) as (agent, _):
        editor.agent = agent
        made = await agent.initialize(PROTOCOL_VERSION)
        assert made.agent_capabilities is not None
        assert made.agent_capabilities.load_session
        yield editor, agent


@pytest.fixture(autouse=True)
def here(folder: Path) -> Path:
    """The folder that the agent works in."""
    return folder


PROMPT: Any = [text_block("Look over this repository and write a report")]


# One process has several sessions, and each process takes a second to start.
@pytest.mark.real
async def test_an_editor_drives_sessions_with_approvals_and_loads_one_again(here: Path) -> None:
    report = here / "REPORT.md"
    async with asyncio.timeout(90), opened(None) as (editor, agent):
        session = await agent.new_session(cwd=str(here), mcp_servers=[])
        assert session.modes is not None
        assert session.modes.current_mode_id == "default"
        # The person cancels at the first question, then says no, then yes.
        for answer, stop in ((None, "cancelled"), ("deny", "end_turn")):
            editor.answer = answer
            ended = await agent.prompt(session_id=session.session_id, prompt=PROMPT)
            assert ended.stop_reason == stop
            assert editor.asked
            assert not report.exists()
        session = await agent.new_session(cwd=str(here), mcp_servers=[])
        editor.forget("once")
        ended = await agent.prompt(session_id=session.session_id, prompt=PROMPT)
        assert ended.stop_reason == "end_turn"
        (asked,) = editor.asked
        assert (asked.kind, asked.title) == ("edit", "write REPORT.md")
        (diff,) = asked.content or []
        assert cast("Any", diff).path == str(report)
        assert report.read_text("utf-8") == cast("Any", diff).new_text
        for first, *rest in editor.calls().values():
            assert (first.session_update, first.status) == ("tool_call", "pending")
            assert rest[-1].status == "completed"
        said = editor.text()
    async with asyncio.timeout(90), opened(None) as (editor, agent):
        await agent.load_session(cwd=str(here), session_id=session.session_id, mcp_servers=[])
        assert editor.text() == said
        assert {u.session_update for u in editor.updates} >= {"user_message_chunk", "tool_call"}
        with pytest.raises(RequestError):
            await agent.load_session(cwd=str(here), session_id="none", mcp_servers=[])
        # In a mode that the person chose nothing is asked.
        report.unlink()
        await agent.set_session_mode(session_id=session.session_id, mode_id="accept_edits")
        ended = await agent.prompt(session_id=session.session_id, prompt=PROMPT)
        assert (ended.stop_reason, editor.asked) == ("end_turn", [])
        assert report.exists()
        with pytest.raises(RequestError):
            await agent.set_session_mode(session_id=session.session_id, mode_id="bypass")
