"""
The engine: agents and sessions, the machine and its driver, the journal, and what can be read from it.

Theory of operation. `transition` and `advance` take one step; `Machine` holds state and memory and takes
steps from events. The `Driver` has requests performed and feeds the answers back. A `Session` runs many
machines over one journal, and an `Agent` makes sessions. `fold` rebuilds a session from its journal, and
`recover` continues a run whose process died. `moves`, `preview`, `replay`, `explain`, `bisect`, `costs` and
`export` read only.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
