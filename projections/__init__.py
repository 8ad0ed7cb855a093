"""
Four vocabularies that others know, made of our notices: feed a projection each notice of a session, in order.

    sdk           messages for a program that drives an agent
    sse           events for a web client, as frames with `to_sse`
    turns         events to draw an agent from
    agent_events  what a host with one agent and many channels hears of it

Each is a pure fold: `project(told, notice)` in its module gives what has been told and the events, which are
plain JSON. The classes here keep what has been told. `docs/events.md` has the tables.
"""

from __future__ import annotations

from .agent_events import AgentEvents
from .json_events import Events, Plain, Projection, to_sse
from .sdk import SdkMessages
from .sse import SseEvents
from .turns import TurnEvents

__all__ = [
    "AgentEvents",
    "Events",
    "Plain",
    "Projection",
    "SdkMessages",
    "SseEvents",
    "TurnEvents",
    "to_sse",
]
