"""How long a test waits for an event before it fails."""

from __future__ import annotations

# Seconds. A passing test never waits so long, however busy the machine is.
PATIENCE = 60.0
