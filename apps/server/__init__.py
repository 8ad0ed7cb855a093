"""An HTTP server for agents: an ASGI app to mount, and `turnwheel serve`. Needs the extra `server`."""
