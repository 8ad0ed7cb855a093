"""
Programs around the library: the command line, the chat, the HTTP server, and the stand-in for a model.

`create_app` makes the ASGI app of the server. It needs the extra `server`. `AbsurdWorker` takes the turns
that a `TurnQueue` has in PostgreSQL. They need the extra `absurd`. `RestateWorker` and `RestateStore` have
Restate keep and drive sessions. They need the extra `restate`.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
