"""
What older versions wrote, as small records, and what each is now. Loaded where an older entry is met.

A record here is one that changed, as it was until the version in its name; what did not change is read as it
is written today. A migration is a pure function from a record to the next one, which is today's or is itself
in here: reading a version applies all that changed since, innermost first, and knows of no other version.

A setting that came to a record needs no record of its own, but a migration all the same: it says what was
done before one could say so, whatever the default of today is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, final

import attrs
from cattrs.gen import make_dict_structure_fn

from ...effects.config import Config, OnLost, Policy, ToolSpec
from ...effects.errors import JournalError, NewerVersion
from ..codec import make_converter
from .entries import VERSION, Entry, RunOpened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


def _policy(old: Policy) -> Policy:
    return attrs.evolve(old, on_lost=OnLost.REPORT)


def _tool_spec(old: ToolSpec) -> ToolSpec:
    return attrs.evolve(old, secrets=())


@final
@attrs.frozen
class Changed:
    """
    A record *old* that is *new* in the next version, and *how* the one becomes the other.

    The two are the same where something was added: then *how* says what it was before.
    """

    old: type
    new: type
    how: Callable[[Any], object]


Reader = Callable[[Any, Any], Any]
"""Makes what it is told, a class, of what JSON is made of."""

CHANGES: Mapping[int, tuple[Changed, ...]] = {
    2: (
        Changed(RunOpened2, RunOpened, _run_opened),
        Changed(ToolSpec, ToolSpec, _tool_spec),
        Changed(Policy, Policy, _policy),
    ),
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
    if type(version) is not int or not 0 < version < NONSENSE:
        msg = f"{where} says that it is of version {version!r:.20}: it is damaged, restore it from a backup"
        raise JournalError(msg)
    if version < OLDEST:
        what = "was never released; read it with the turnwheel that wrote it"
        msg = f"{where}: version {version} of the journal {what}"
        raise JournalError(msg)
    if version > VERSION:
        raise NewerVersion(where, version, VERSION)
    structure: Callable[..., Entry] = _reader(version).structure
    return structure(plain, Entry)


@cache
def _reader(version: int) -> cattrs.Converter:
    """A converter that reads entries of *version* as those of today."""
    since = [changed for past in range(version, VERSION) for changed in CHANGES[past]]
    return make_converter(partial(teach, since))


def teach(changes: Iterable[Changed], made: cattrs.Converter) -> None:
    """Have *made* read the records that have *changes*, which are in the order they came, as before them."""
    readers: dict[type, Reader] = {}
    for changed in changes:
        read = readers.get(changed.old) or _as_written(made, changed)
        readers[changed.new] = _then(read, changed)
        made.register_structure_hook(changed.new, readers[changed.new])


def _as_written(made: cattrs.Converter, changed: Changed) -> Reader:
    """Reads the old record of *changed* by its fields; what it is made of may have changed, too."""
    if changed.old is not changed.new:
        return made.structure

    @cache
    def by_fields() -> Reader:
        return make_dict_structure_fn(changed.old, made)

    # Not before there is something to read: until then, what it is made of gets readers of its own.
    return lambda value, kind: by_fields()(value, kind)  # noqa: PLW0108  # as just said


def _then(read: Reader, changed: Changed) -> Reader:
    return lambda value, _: changed.how(read(value, changed.old))
