"""
Four vocabularies of other programs: a projection turns the notices of a session into their events.

    SdkMessages  for a program that drives an agent
    SseEvents    for a web client, as frames with `to_sse`
    TurnEvents   for a terminal or a chat window
    AgentEvents  for a host with one agent and many channels

Feed each notice, in order, to `take`. Events are plain JSON. `project` is the pure fold below it.
`docs/events.md` has the tables.
"""

from __future__ import annotations

from .agent_events import AgentEvents as AgentEvents
from .json_events import Events as Events, JsonEvent as JsonEvent, to_sse as to_sse
from .run_view import Projection as Projection
from .sdk import SdkMessages as SdkMessages
from .sse import SseEvents as SseEvents
from .turns import TurnEvents as TurnEvents
