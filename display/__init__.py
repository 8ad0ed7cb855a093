"""Values for people: as lines of text, and as the cards of notebooks."""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
