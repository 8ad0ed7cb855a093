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

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
