"""The endpoints of other protocols: what is posted begins a run, and the run is the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from starlette.responses import Response

from ...projections import AgUiEvents, UiMessageChunks, posted_to_ag_ui, posted_to_ui_messages
from .bodies import AgUiPost, UiMessagesPost
from .event_stream import EventStream
from .operations import HttpCall, operation
from .run_answer import Protocol, RunAnswers

if TYPE_CHECKING:
    from .limits import Streams
    from .open_sessions import OpenSessions

AG_UI = Protocol(vocabulary=AgUiEvents.of)

UI_MESSAGES = Protocol(
    vocabulary=UiMessageChunks.of,
    headers={"x-vercel-ai-ui-message-stream": "v1"},
    tail=b"data: [DONE]\n\n",
)

UNSAID_POSTS = (
    "a question has two answers; the arguments do not fit the tool; "
    "the last message has more text or files than a prompt may have"
)

CHAT = "/api/agents/{agent}/ui-messages"


@attrs.frozen
class ProtocolRoutes:
    """The operations of AG-UI and of the AI SDK."""

    opens: OpenSessions
    streams: Streams

    @operation(
        "POST",
        "/api/agents/{agent}/ag-ui",
        takes=AgUiPost,
        large=True,
        gives="text/event-stream",
        unsaid=UNSAID_POSTS,
    )
    async def ag_ui(self, call: HttpCall) -> Response | EventStream:
        """Run an agent as AG-UI has it: a RunAgentInput is answered with its events."""
        return await self._answers(AG_UI).answer(call, posted_to_ag_ui(call.body))

    @operation("POST", CHAT, takes=UiMessagesPost, large=True, gives="text/event-stream", unsaid=UNSAID_POSTS)
    async def ui_messages(self, call: HttpCall) -> Response | EventStream:
        """Run an agent as the AI SDK has it: messages are answered with chunks."""
        return await self._answers(UI_MESSAGES).answer(call, posted_to_ui_messages(call.body))

    @operation("GET", CHAT + "/{id}/stream", gives="text/event-stream", nothing="No message is under way")
    async def ui_message_stream(self, call: HttpCall) -> Response | EventStream:
        """The chunks of the message under way, from its beginning; 204 without one."""
        return await self._answers(UI_MESSAGES).resumed(call, call.session)

    def _answers(self, protocol: Protocol) -> RunAnswers:
        return RunAnswers(self.opens, self.streams, protocol)
