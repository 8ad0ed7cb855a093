"""
The room of those who do the work: models, tools, hooks and stores. They touch the world and decide nothing.

Theory of operation. The loop hands each request to the `Performer` for its type, with a `PerformContext`, and
gets one answer. `Models` asks a model on its wire, `ToolRunner` runs tools, and `HookRunner` asks hooks. A
`Store` keeps journals, and a `Vault` keeps secrets. Hosts write a `tool`, a `hook`, a store, or a wire out of
`Wire`, `Parser` and `HTTPModel`.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
