"""What a call reaches, and so which calls may run side by side."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, final

import attrs

from ...effects.config import SideEffect
from ...effects.permissions import resolved

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...effects.config import ToolSpec


@final
@attrs.frozen
class ResourceUse:
    """Whether a call only *reads*, and the *keys* of what it works on; None: it may touch anything."""

    reads: bool = False
    keys: frozenset[str] | None = None

    def apart_from(self, other: ResourceUse) -> bool:
        """Whether neither can disturb the other."""
        if self.reads and other.reads:
            return True
        return self.keys is not None and other.keys is not None and not self.keys & other.keys


def resource_use(spec: ToolSpec | None, arguments: Mapping[str, object] | None) -> ResourceUse:
    """What a call of *spec* reaches; its declared resources count where *arguments* are given."""
    if spec is None:
        return ResourceUse()
    reads = spec.side_effect is SideEffect.READ_ONLY
    if spec.resources is None or arguments is None:
        return ResourceUse(reads)
    keys = [_filled(key, arguments) for key in spec.resources]
    return ResourceUse(reads, None if None in keys else frozenset(key for key in keys if key is not None))


def _filled(key: str, arguments: Mapping[str, object]) -> str | None:
    """*key* with its ``{name}`` filled in; None where there is no such argument, so nobody knows."""
    names = re.findall(r"\{(\w+)\}", key)
    if any(name not in arguments for name in names):
        return None
    return re.sub(r"\{(\w+)\}", lambda found: _plain(arguments[found[1]]), key)


def _plain(value: object) -> str:
    return resolved(value) if isinstance(value, str) else json.dumps(value, sort_keys=True)
