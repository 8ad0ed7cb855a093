"""The endpoints of the AI SDK: messages are answered with a stream of chunks, which can be resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from starlette.responses import Response

from ...projections import UiMessageChunks, posted_to_ui_messages
from .bodies import UiMessagesPost
from .event_stream import EventStream
from .operations import HttpCall, operation
from .run_answer import Protocol, RunAnswers

if TYPE_CHECKING:
    from .limits import Streams
    from .open_sessions import OpenSessions

UI_MESSAGES = Protocol(
    vocabulary=UiMessageChunks.of,
    headers={"x-vercel-ai-ui-message-stream": "v1"},
    tail=b"data: [DONE]\n\n",
)

CHAT = "/api/agents/{agent}/ui-messages"


@attrs.frozen
class UiMessageRoutes:
    """The operations of the AI SDK."""

    opens: OpenSessions
    streams: Streams

    @property
    def _answers(self) -> RunAnswers:
        return RunAnswers(self.opens, self.streams, UI_MESSAGES)

    @operation("POST", CHAT, takes=UiMessagesPost, files=True, gives="text/event-stream")
    async def ui_messages(self, call: HttpCall) -> Response | EventStream:
        """Run an agent as the AI SDK has it: messages are answered with chunks."""
        return await self._answers.answer(call, posted_to_ui_messages(call.body))

    @operation("GET", CHAT + "/{id}/stream", gives="text/event-stream", nothing="No message is under way")
    async def ui_message_stream(self, call: HttpCall) -> Response | EventStream:
        """The chunks of the message under way, from its beginning; 204 without one."""
        return await self._answers.resumed(call, call.session)
