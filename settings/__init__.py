"""
Settings: an agent without code, from Python, the environment and a TOML file, in this order of precedence.

`Settings.load` reads them. All mistakes come in one error, each with its place, its value and the accepted
values.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
