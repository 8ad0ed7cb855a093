"""The next version of turnwheel, as far as others see it: the same records with a higher number."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from turnwheel.engine.journal import checkpoints, encoding, entries, migrations

# Whether a process of `hosts.worker` is of that version.
NEWER = "TURNWHEEL_TESTS_NEWER"

_NEXT = entries.VERSION + 1


def become_newer(put: Callable[[object, str, Any], None] = setattr) -> None:
    """Make this process one of that version; *put* sets an attribute."""
    put(encoding, "VERSION", _NEXT)
    put(migrations, "VERSION", _NEXT)
    # Nothing changed but the number.
    put(migrations, "CHANGES", {**migrations.CHANGES, entries.VERSION: ()})
    put(checkpoints, "CHECKPOINT_VERSION", (*checkpoints.CHECKPOINT_VERSION[:-1], _NEXT))


def is_newer() -> bool:
    """Whether this process was begun as one of that version."""
    return NEWER in os.environ
