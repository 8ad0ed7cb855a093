"""The endpoint of AG-UI: a run input is posted, and the run is the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from starlette.responses import Response

from ...projections import AgUiEvents, posted_to_ag_ui
from .bodies import AgUiPost
from .event_stream import EventStream
from .operations import HttpCall, operation
from .run_answer import Protocol, RunAnswers

if TYPE_CHECKING:
    from .limits import Streams
    from .open_sessions import OpenSessions

AG_UI = Protocol(vocabulary=AgUiEvents.of)


@attrs.frozen
class AgUiRoutes:
    """The operation of AG-UI."""

    opens: OpenSessions
    streams: Streams

    @operation("POST", "/api/agents/{agent}/ag-ui", takes=AgUiPost, files=True, gives="text/event-stream")
    async def ag_ui(self, call: HttpCall) -> Response | EventStream:
        """Run an agent as AG-UI has it: a RunAgentInput is answered with its events."""
        return await RunAnswers(self.opens, self.streams, AG_UI).answer(call, posted_to_ag_ui(call.body))
