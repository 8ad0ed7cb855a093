"""
Six vocabularies of other programs: a projection turns the notices of a session into their events.

    SdkMessages  for a program that drives an agent
    SseEvents    for a web client, as frames with `to_sse`
    TurnEvents   for a terminal or a chat window
    AgentEvents  for a host with one agent and many channels
    AgUiEvents   for a front end that speaks AG-UI
    UiMessageChunks  for one that has Vercel's AI SDK

Feed each notice, in order, to `take`. Events are plain JSON. `project` is the pure fold below it.
`docs/events.md` has the tables. What a client of the last two posts is read by `posted_to_ag_ui` and
`posted_to_ui_messages`.
"""

from __future__ import annotations

from .ag_ui import AgUiEvents as AgUiEvents
from .agent_events import AgentEvents as AgentEvents
from .json_events import Events as Events, JsonEvent as JsonEvent, to_sse as to_sse
from .posted import (
    ClientInput as ClientInput,
    ClientPost as ClientPost,
    posted_to_ag_ui as posted_to_ag_ui,
    posted_to_ui_messages as posted_to_ui_messages,
)
from .run_view import Projection as Projection
from .sdk import SdkMessages as SdkMessages
from .sse import SseEvents as SseEvents
from .turns import TurnEvents as TurnEvents
from .ui_messages import UiMessageChunks as UiMessageChunks
