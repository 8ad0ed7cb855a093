"""How long a test waits for something that comes at once unless it is broken."""

from __future__ import annotations

# Seconds. A passing test never waits so long, however busy the machine is.
PATIENCE = 60.0
