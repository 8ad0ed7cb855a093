"""An HTTP server for agents: an ASGI app to mount, and `turnwheel serve`. Needs the extra `server`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazy import exports

if TYPE_CHECKING:
    from .app import AgentServer as AgentServer, create_app as create_app
    from .limits import ServerLimits as ServerLimits

_MODULES = {"app": ("AgentServer", "create_app"), "limits": ("ServerLimits",)}

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__, _MODULES)
