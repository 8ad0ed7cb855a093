"""
An agent for editors: the sessions of one process, each with a directory of its own, in one store.

Theory of operation. A prompt of the editor is a run; while it goes on its notices are updates, and its
questions are requests to the editor, each in a task of its own, so that work beside a question goes on. A
cancel is an interrupt, so the run ends as any other does and the prompt is answered by how it ended.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, final

import acp
import attrs
from acp import schema

from ...effects import notices
from ...effects.config import Config
from ...effects.errors import TurnwheelError, UnknownRequest
from ...effects.events import Approve, ApproveAlways, Decision, Deny
from ...effects.messages import Binary, ToolCall
from ...effects.permissions import PermissionMode
from ...effects.records import SetMode
from ...engine.session.session import Session
from ...performers.stores.base import Store
from ...projections.run_view import RunView, follow
from ..cli.build_settings import agent_for
from ..cli.run_options import RunOptions
from ..cli.workspace import answerer, stored_config
from .updates import ACP_STOPS, call_update, updates_of, updates_of_history

ACP_ANSWERS: Mapping[str, tuple[schema.PermissionOptionKind, str, Decision]] = {
    "once": ("allow_once", "Allow", Approve()),
    "always": ("allow_always", "Allow, and do not ask about this tool again", ApproveAlways()),
    "deny": ("reject_once", "Deny", Deny("denied in the editor")),
}

MODES = {
    PermissionMode.DEFAULT: "Ask",
    PermissionMode.ACCEPT_EDITS: "Accept edits",
    PermissionMode.PLAN: "Plan",
    PermissionMode.DONT_ASK: "Do not ask",
}
"""The modes that an editor may choose; `bypass` is asked for where the agent is started."""


@final
@attrs.define(eq=False)
class EditorSession:
    """A *session* that an editor has open, in *cwd*, and in *mode*; *ceiling* is the widest one."""

    session: Session
    cwd: Path
    mode: PermissionMode
    ceiling: PermissionMode


@final
class AcpAgent:
    """The agent of *options* for one editor, with its sessions in *store*; *url* is its model's address."""

    def __init__(self, options: RunOptions, store: Store, url: str | None, stack: AsyncExitStack) -> None:
        self._options = options
        self._store = store
        self._url = url
        self._stack = stack
        self._editor: acp.Client | None = None
        self._open: dict[str, EditorSession] = {}

    def on_connect(self, conn: acp.Client) -> None:
        """Know the editor."""
        self._editor = conn

    @property
    def editor(self) -> acp.Client:
        """The editor."""
        if self._editor is None:
            raise acp.RequestError.internal_error({"detail": "no editor is connected"})
        return self._editor

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
        **more: Any,  # noqa: ANN401  # what editors may add
    ) -> schema.InitializeResponse:
        """Say what this agent can."""
        del client_capabilities, client_info, more
        return schema.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, embedded_context=True),
            ),
            agent_info=schema.Implementation(name="turnwheel", version=version("turnwheel")),
        )

    # Sessions

    async def new_session(self, cwd: str, **more: Any) -> schema.NewSessionResponse:  # noqa: ANN401  # as above
        """Begin a session in *cwd*."""
        del more
        one = await self._opened(Path(cwd), None, None)
        return schema.NewSessionResponse(session_id=one.session.id, modes=_modes(one))

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        **more: Any,  # noqa: ANN401  # as above
    ) -> schema.LoadSessionResponse:
        """Open the session *session_id* of the store again, and show what was said."""
        del more
        before = self._open.pop(session_id, None)
        if before is not None:
            await before.session.close()
        try:
            one = await self._opened(Path(cwd), session_id, await stored_config(self._store, session_id))
        except TurnwheelError as error:
            raise _refusal(error) from error
        for update in updates_of_history(one.session.history, one.cwd):
            await self.editor.session_update(session_id, update)
        return schema.LoadSessionResponse(modes=_modes(one))

    async def _opened(self, cwd: Path, name: str | None, config: Config | None) -> EditorSession:
        options = attrs.evolve(self._options, cwd=cwd)
        agent = agent_for(options, config, base_url=self._url, store=self._store, performers={})
        await self._stack.enter_async_context(agent)
        session = await self._stack.enter_async_context(agent.session(name))
        machine = session.machine
        mode = agent.config.policy.mode if machine is None else machine.memory.session.mode
        one = self._open[session.id] = EditorSession(session, cwd, mode, agent.ceiling)
        return one

    def _known(self, session_id: str) -> EditorSession:
        one = self._open.get(session_id)
        if one is None:
            raise acp.RequestError.invalid_params({"detail": f"no session {session_id!r} is open here"})
        return one

    async def set_session_mode(
        self,
        session_id: str,
        mode_id: str,
        **more: Any,  # noqa: ANN401  # as above
    ) -> schema.SetSessionModeResponse:
        """Change the permission mode."""
        del more
        one = self._known(session_id)
        if mode_id not in MODES:
            raise acp.RequestError.invalid_params({"detail": f"no mode {mode_id!r}; there are {[*MODES]}"})
        try:
            await one.session.control(SetMode(mode=PermissionMode(mode_id)))
        except TurnwheelError as error:
            raise _refusal(error) from error
        return schema.SetSessionModeResponse()

    # Runs

    async def prompt(
        self,
        session_id: str,
        prompt: Sequence[Any],
        **more: Any,  # noqa: ANN401  # as above
    ) -> schema.PromptResponse:
        """Run the agent on *prompt*, and say how it ended."""
        del more
        one = self._known(session_id)
        text = "\n".join([said for block in prompt if (said := _text(block))])
        files = tuple(
            [
                Binary(media_type=block.mime_type, data=b64decode(block.data))
                for block in prompt
                if isinstance(block, schema.ImageContentBlock)
            ]
        )
        try:
            # A run that lost its process goes on first.
            await one.session.send(text, files=files)
            async with asyncio.TaskGroup() as asking, aclosing(one.session.stream(wait=True)) as stream:
                told = RunView(session=session_id)
                async for notice in stream:
                    for update in updates_of(notice, told, one.cwd):
                        await self.editor.session_update(session_id, update)
                    for who, asked in _asked(notice):
                        asking.create_task(self._ask(one, asked, told.batch.calls.get(asked.call), who))
                    told = follow(told, notice)
        except TurnwheelError as error:
            raise _refusal(error) from error
        reason = one.session.result().reason
        return schema.PromptResponse(
            stop_reason="end_turn" if reason is None else ACP_STOPS.get(reason, "end_turn")
        )

    async def cancel(self, session_id: str, **more: Any) -> None:  # noqa: ANN401  # as above
        """Stop the run."""
        del more
        await self._known(session_id).session.interrupt()

    async def _ask(
        self, one: EditorSession, asked: notices.ApprovalRequested, call: ToolCall | None, who: str
    ) -> None:
        """Let the person at the editor answer a question; it may be answered elsewhere, or withdrawn."""
        made = call or ToolCall(id=asked.call, wire_id="", name=asked.tool, arguments=asked.arguments)
        shown = call_update(made, one.cwd)
        fields = shown.model_dump(exclude={"session_update"}, exclude_none=True)
        fields["title"] = f"{who}{shown.title}"
        options = [
            schema.PermissionOption(option_id=name, kind=kind, name=label)
            for name, (kind, label, _) in ACP_ANSWERS.items()
        ]
        answer = await self.editor.request_permission(
            one.session.id, schema.ToolCallUpdate(**fields), options
        )
        chosen = answer.outcome
        given = ACP_ANSWERS.get(chosen.option_id) if isinstance(chosen, schema.AllowedOutcome) else None
        with suppress(UnknownRequest):
            decision = Deny("cancelled in the editor") if given is None else given[2]
            await one.session.approve(asked.request, decision, by=answerer("acp"))


def _asked(notice: notices.Notice) -> list[tuple[str, notices.ApprovalRequested]]:
    """The question that *notice* opens, behind the word for a child that asks it."""
    who = ""
    while isinstance(notice, notices.AgentNoticed):
        who, notice = "child: ", notice.notice
    return [(who, notice)] if isinstance(notice, notices.ApprovalRequested) else []


def _text(block: object) -> str:
    match block:
        case schema.TextContentBlock(text=text):
            return text
        case schema.ResourceContentBlock(uri=uri, name=name):
            return f"[{name}]({uri})"
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents(uri=uri, text=text)):
            return f"{uri}:\n{text}"
        case _:
            return ""


def _modes(one: EditorSession) -> schema.SessionModeState:
    offered = {mode: name for mode, name in MODES.items() if mode.within(one.ceiling)}
    offered.setdefault(one.mode, one.mode.value)
    modes = [schema.SessionMode(id=each.value, name=name) for each, name in offered.items()]
    return schema.SessionModeState(current_mode_id=one.mode.value, available_modes=modes)


def _refusal(error: TurnwheelError) -> acp.RequestError:
    return acp.RequestError.invalid_params({"detail": str(error)})
