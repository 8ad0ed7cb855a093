"""
What older versions wrote, as small records, and what each is now. Loaded where an older entry is met.

A record here is one that changed, as it was until the version in its name; what did not change is read as it
is written today. A migration is a pure function from a record to the next one, which is today's or is itself
in here: reading a version applies all that changed since, innermost first, and knows of no other version.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, final

import attrs

from ..effects.config import Config
from ..effects.errors import JournalError, NewerVersion
from .codec import make_converter
from .entries import VERSION, Entry, RunOpened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import cattrs

OLDEST = 2
"""The oldest version that can be read; the one before was never released."""

NONSENSE = 1_000_000
"""No version will ever be so high: whatever says it is damaged."""

TOLD_ONCE = 2
"""The last version that was not told by each entry, but by the one that begins a run."""


@final
@attrs.frozen(kw_only=True)
class RunOpened2:
    """A run began. It told the version, for the whole journal."""

    at: float
    run: str
    config: Config
    version: int


def _run_opened(old: RunOpened2) -> RunOpened:
    return RunOpened(at=old.at, run=old.run, config=old.config)


@final
@attrs.frozen
class Changed:
    """A record *old* that is *new* in the next version, and *how* the one becomes the other."""

    old: type
    new: type
    how: Callable[[Any], object]


CHANGES: Mapping[int, tuple[Changed, ...]] = {
    2: (Changed(RunOpened2, RunOpened, _run_opened),),
}
"""What changed after each version."""


def migrated(plain: dict[str, Any], version: object, where: str) -> Entry:
    """
    The entry that *plain*, which is of *version*, is now.

    Raises `NewerVersion` and `JournalError` naming *where* for a version that cannot be read, and what the
    converter raises for what is no entry of it.
    """
    if version == TOLD_ONCE:
        version = plain.get("version", version)
    if not isinstance(version, int) or not OLDEST <= version < NONSENSE:
        what = "was never released; read it with the turnwheel that wrote it"
        msg = f"{where}: version {version!r:.20} of the journal {what}"
        raise JournalError(msg)
    if version > VERSION:
        raise NewerVersion(where, version, VERSION)
    structure: Callable[..., Entry] = _reader(version).structure
    return structure(plain, Entry)


@cache
def _reader(version: int) -> cattrs.Converter:
    """A converter that reads entries of *version* as those of today."""
    return make_converter(lambda made: _teach(made, version))


def _teach(made: cattrs.Converter, version: int) -> None:
    """Have *made* read what changed since *version* as it was then; a record's own parts come before it."""
    for since in range(version, VERSION):
        for changed in CHANGES[since]:
            made.register_structure_hook(changed.new, _hook(made, changed))


def _hook(made: cattrs.Converter, changed: Changed) -> Callable[[Any, Any], object]:
    return lambda value, _: changed.how(made.structure(value, changed.old))
