"""
Programs around the library: the command line, the chat, the HTTP server, and the stand-in for a model.

`create_app` makes the ASGI app of the server. It needs the extra `server`. `AbsurdWorker` takes the turns
that a `TurnQueue` has in PostgreSQL. They need the extra `absurd`. `RestateWorker` and `RestateStore` have
Restate keep and drive sessions. They need the extra `restate`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .absurd.turn_queue import TurnQueue as TurnQueue
    from .absurd.worker import AbsurdWorker as AbsurdWorker
    from .restate.restate_store import RestateStore as RestateStore
    from .restate.worker import RestateWorker as RestateWorker
    from .server.app import AgentServer as AgentServer, create_app as create_app
    from .server.limits import ServerLimits as ServerLimits

_MODULES = {
    "absurd.turn_queue": ("TurnQueue",),
    "absurd.worker": ("AbsurdWorker",),
    "restate.restate_store": ("RestateStore",),
    "restate.worker": ("RestateWorker",),
    "server.app": ("AgentServer", "create_app"),
    "server.limits": ("ServerLimits",),
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
