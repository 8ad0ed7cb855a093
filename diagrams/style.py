"""The colours of all pictures: calm, the same everywhere, and told apart by their lightness too."""

from __future__ import annotations

from typing import final

import attrs

from .picture import Kind

INK = "#24292f"
"""Letters."""
QUIET = "#6a737d"
"""Letters that are read second, and lines."""


@final
@attrs.frozen
class Look:
    """The colours of a place."""

    fill: str
    line: str


LOOKS = {
    Kind.BOX: Look("#f6f7f8", "#b3b9c0"),
    Kind.PASSES: Look("#e6e9ed", "#8a929c"),
    Kind.WORLD: Look("#d8e7f8", "#5b8cc2"),
    Kind.PERSON: Look("#fde5b8", "#cc902c"),
    Kind.END: Look("#d5eedb", "#58a06b"),
}
