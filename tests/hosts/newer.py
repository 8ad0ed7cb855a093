"""The next version of turnwheel, as far as others see it: the same records with a higher number."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from turnwheel.engine.journal import checkpoints, encoding, entries

# Whether a process of `hosts.worker` is of that version.
NEWER = "TURNWHEEL_TESTS_NEWER"

_NEXT = entries.VERSION + 1


def become_newer(put: Callable[[object, str, Any], None] = setattr) -> None:
    """Make this process one of that version; *put* sets an attribute."""
    put(encoding, "VERSION", _NEXT)
    put(checkpoints, "VERSION", _NEXT)


def is_newer() -> bool:
    """Whether this process was begun as one of that version."""
    return NEWER in os.environ
