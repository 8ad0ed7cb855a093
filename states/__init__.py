"""
The decisions: the states and their stages, a handler module for each, shared rules, and the table.

Everything here is pure: no clock, no randomness, no I/O. A test holds the short list of allowed imports.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
