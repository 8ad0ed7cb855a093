"""
The records of older versions, and how each becomes today's. Loaded where an older entry is met.

Theory of operation. A record here is one that changed, as it was until the version in its name; all others
are read as they are written today. A migration is a pure function from a record to the next one, which is
today's or stands here itself. Reading a version applies all changes since, innermost first, and knows of no
other version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, final

import attrs
from cattrs.gen import make_dict_structure_fn

from ...effects.config import Config, OnLost, Policy, ToolSpec
from ...effects.errors import JournalError, NewerVersion
from ...effects.hooks import HookSpec, OnError
from ...effects.permissions import PermissionMode
from ..codec import make_converter
from .entries import VERSION, Entry, RunOpened

if TYPE_CHECKING:
    import cattrs

# The oldest version that can be read; the one before was never released.
OLDEST = 2

# No version will ever be so high: an entry with one is damaged.
NONSENSE = 1_000_000

# The last version that only the entry that opens a run has, for the whole journal.
VERSION_IN_RUN = 2


@final
@attrs.frozen(kw_only=True)
class RunOpened2:
    """A run began; its *version* is that of the whole journal."""

    at: float
    run: str
    config: Config
    version: int


def _run_opened(old: RunOpened2) -> RunOpened:
    # The version is dropped: since then each entry has its own, and two versions may share a journal.
    return RunOpened(at=old.at, run=old.run, config=old.config)


# The default of a new setting may change one day. So a setting needs a migration too, although its record can
# be read: it says what was done before there was a choice.


def _policy(old: Policy) -> Policy:
    # A lost call was only reported then. A later default may do more, and change what an old run does.
    return attrs.evolve(old, on_lost=OnLost.REPORT)


def _tool_spec(old: ToolSpec) -> ToolSpec:
    # No argument was secret then, so the journal has all of them as plain text.
    return attrs.evolve(old, secrets=())


def _hook_spec(old: HookSpec) -> HookSpec:
    # A hook that failed had no say then, wherever it was asked.
    return attrs.evolve(old, on_error=OnError.ALLOW)


def _tool_spec_3(old: ToolSpec) -> ToolSpec:
    # A call was judged by the text of what its model wrote, and by nothing else.
    return attrs.evolve(old, paths=(), command="", fills=False)


def _policy_3(old: Policy) -> Policy:
    # Work whose process was lost was begun again without end, which is of no use to a run that goes on.
    return attrs.evolve(old, takeovers=Policy().takeovers)


def _config_3(old: Config) -> Config:
    # The mode that accepts edits accepted them everywhere, and a child could be put in any mode.
    return attrs.evolve(old, protected=(), ceiling=PermissionMode.BYPASS)


@final
@attrs.frozen
class Changed:
    """
    A record *old* that is *new* in the next version, and *how* the one becomes the other.

    The two are the same class where a field was added: then *how* fills in what it was before.
    """

    old: type
    new: type
    how: Callable[[Any], object]


# Makes a value of the class it is given from what JSON is made of.
Reader = Callable[[Any, Any], Any]

# What changed after each version.
CHANGES: Mapping[int, tuple[Changed, ...]] = {
    2: (
        Changed(RunOpened2, RunOpened, _run_opened),
        Changed(ToolSpec, ToolSpec, _tool_spec),
        Changed(Policy, Policy, _policy),
        Changed(HookSpec, HookSpec, _hook_spec),
    ),
    3: (
        Changed(ToolSpec, ToolSpec, _tool_spec_3),
        Changed(Policy, Policy, _policy_3),
        Changed(Config, Config, _config_3),
    ),
}


def migrated(plain: dict[str, Any], version: object, where: str) -> Entry:
    """
    The entry that *plain*, which is of *version*, is now.

    Raises `NewerVersion` and `JournalError` naming *where* for a version that cannot be read, and the errors
    of the converter for data that is no entry of it.
    """
    if version == VERSION_IN_RUN:
        # Without a mark the entry may also be of the first version. Only the entry that opens a run knows.
        version = plain.get("version", version)
    # Not isinstance: True is an int, and no version.
    if type(version) is not int or not 0 < version < NONSENSE:
        msg = f"{where} has version {version!r:.20}; it is damaged, restore it from a backup"
        raise JournalError(msg)
    if version < OLDEST:
        what = "was never released; read it with the turnwheel that wrote it"
        msg = f"{where}: version {version} of the journal {what}"
        raise JournalError(msg)
    # Never read as far as it goes: a newer version may mean something else by the same words.
    if version > VERSION:
        raise NewerVersion(where, version, VERSION)
    structure: Callable[..., Entry] = _reader(version).structure
    return structure(plain, Entry)


@cache
def _reader(version: int) -> cattrs.Converter:
    """A converter that reads entries of *version* as those of today."""
    # All changes since, in order: each knows only the next version, so a release adds one and edits none.
    since = [changed for past in range(version, VERSION) for changed in CHANGES[past]]
    # Cached above: an old journal may have thousands of entries, and each would pay for a converter.
    return make_converter(partial(teach, since))


def teach(changes: Iterable[Changed], made: cattrs.Converter) -> None:
    """Make *made* read the records with *changes*, oldest first, as they were before them."""
    readers: dict[type, Reader] = {}
    for changed in changes:
        # A record that changed twice: what the first change made of it is what the second one reads.
        read = readers.get(changed.old) or _as_written(made, changed)
        readers[changed.new] = _then(read, changed)
        made.register_structure_hook(changed.new, readers[changed.new])


def _as_written(made: cattrs.Converter, changed: Changed) -> Reader:
    """A reader of the old record of *changed*, as it was written."""
    by_fields = cache(partial(make_dict_structure_fn, changed.old, made))
    # The registered reader of the class may be the migration itself, so the fields are read one by one. This
    # one is made at its first use: by then the classes of the fields have readers of their own.
    return lambda value, kind: by_fields()(value, kind)  # noqa: PLW0108  # see above


def _then(read: Reader, changed: Changed) -> Reader:
    # A function of its own: a lambda in the loop of `teach` would see the loop's last change only.
    return lambda value, _: changed.how(read(value, changed.old))
