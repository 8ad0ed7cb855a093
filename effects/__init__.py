"""
The words between the machine and the world: four closed unions of frozen values, and the values in them.

`Effect` is what a transition returns: a `Request` that gets one answer, a `Cancel`, a `Record` that changes
the memory, or a `Notice` for subscribers. `Event` is what comes back or in. `performers` do the work.
"""

from __future__ import annotations

from ..lazy import exports

__getattr__, __dir__, __all__ = exports(__name__, __file__)
