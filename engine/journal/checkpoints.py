"""
The state of a session as bytes and back: a fold begins there, and not at the first entry.

Theory of operation. A checkpoint is a cache of what its journal leads to. One that is damaged, of another
version or of another journal is passed over. A history only grows, except where a summary or a branch begins
another one. So a checkpoint has the messages since the one that it goes on from, and all of the rest: it
costs what is new, however long the session. Messages are decoded when they are looked at. A checkpoint is as
trusted as the journal, which grants the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from hashlib import blake2b
from itertools import islice
from typing import Any, final

import attrs
import msgspec
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from ...effects.config import Config
from ...effects.errors import JournalError
from ...effects.history import DeferredItems, History, Log
from ...effects.messages import Message
from ..core.codec import UNREADABLE, converter, in_json, structure
from ..core.machine import Machine
from ..core.snapshots import Snapshot, flat, grouped
from .entries import VERSION
from .fold import FullResults, ResultPlace, SessionState

# Bytes of a digest: enough to tell damage, and journals of one name apart.
DIGEST = 16

# Messages that are decoded together: the latest are looked at in each step, and most others never again.
MESSAGES_TOGETHER = 100

# The fields of a state that are written in another way, or not at all: ends are kept for branches only, and a
# branch folds the whole journal. Interrupts are no entries.
APART: dict[str, Any] = dict.fromkeys(
    ("machine", "interrupts", "keeps", "ends", "full_results"), override(omit=True)
)


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    """A checkpoint without its messages, of which there are so many in each line as *counts* says."""

    version: int
    # The number of entries that led here, and the digest of the last one.
    position: int
    entry: str
    # The position of the checkpoint that this goes on from, 0 for none.
    after: int
    counts: tuple[int, ...]
    state: msgspec.Raw
    # Those places of full results that are new, and all the rest about them.
    places: dict[str, ResultPlace]
    ended: dict[str, tuple[ResultPlace, str]]
    held: int
    # Null before the first run; the settings also where they are as in the one before.
    machine: msgspec.Raw
    config: msgspec.Raw


@final
@attrs.frozen(kw_only=True)
class CheckpointChain:
    """
    The checkpoints that go on from one another, from *first* to *last*, as the next one has to know them.

    They have the beginning of *log*, *messages* long, the settings *config*, and so many *places* of full
    results, the latest for the call *place*.
    """

    first: int
    last: int
    log: Log[Message]
    messages: int
    config: Config | None
    places: int
    place: str

    def before(self, state: SessionState) -> bool:
        """Whether *state* has all that these have, and perhaps more."""
        history, places = _history(state), state.full_results.places
        # The identity of a log names its beginning for good. Of the places, the oldest may have been dropped.
        there = next(islice(places, self.places - 1, None), "") if self.places else ""
        return history.log is self.log and len(history) >= self.messages and there == self.place


def _history(state: SessionState) -> History:
    return History.of() if state.machine is None else state.machine.memory.history


def _chain(first: int, last: int, state: SessionState) -> CheckpointChain:
    """The chain from *first* to *last*, which is the checkpoint of *state*."""
    history, places = _history(state), state.full_results.places
    return CheckpointChain(
        first=first,
        last=last,
        log=history.log,
        messages=len(history),
        config=None if state.machine is None else state.machine.config,
        places=len(places),
        place=next(reversed(places), ""),
    )


def digest(data: bytes) -> bytes:
    """What tells *data* from anything else."""
    return blake2b(data, digest_size=DIGEST).digest()


# To bytes

# What is written as its class says, the inner ones first.
WRITTEN: tuple[Any, ...] = (tuple[Message, ...], Config | None, Snapshot, SessionState)


def prepare(part: Any) -> None:  # noqa: ANN401  # a class, or a closed union
    """Make what writes a *part* of checkpoints, which otherwise the first one does."""
    # A function is generated for each class, which takes a thousand times as long as to call it.
    if part is SessionState:
        _to_plain()
    else:
        converter.get_unstructure_hook(part)


def checkpoint(
    state: SessionState, position: int, entry: bytes, chain: CheckpointChain | None = None
) -> tuple[bytes, CheckpointChain]:
    """
    *state*, to which the first *position* entries led, the last of them *entry*; and the chain with it.

    It goes on from the last of *chain*, where it can.
    """
    machine, history, results = state.machine, _history(state), state.full_results
    if chain is not None and not (chain.last < position and chain.before(state)):
        chain = None
    known, places = (chain.messages, chain.places) if chain else (0, 0)
    config = None if machine is None else machine.config
    lines = [
        history.slice(begin, begin + MESSAGES_TOGETHER)
        for begin in range(known, len(history), MESSAGES_TOGETHER)
    ]
    head = {
        "version": VERSION,
        "position": position,
        "entry": digest(entry).hex(),
        "after": chain.last if chain else 0,
        "counts": [len(line) for line in lines],
        "state": _to_plain()(state),
        "places": dict(islice(results.places.items(), places, None)),
        "ended": results.ended,
        "held": results.held,
        "machine": machine and converter.unstructure(flat(machine.state, machine.memory), Snapshot),
        # They may have many tools, and change seldom.
        "config": None if chain and chain.config == config else converter.unstructure(config, Config | None),
    }
    written = [in_json(converter.unstructure(line, tuple[Message, ...])) for line in lines]
    body = b"\n".join([in_json(head), *written])
    return digest(body) + body, _chain(chain.first if chain else position, position, state)


# From bytes


@final
@attrs.frozen
class Restored:
    """
    The *state* after *position* entries, the last of them with this *digest*.

    It is from *bodies*, each with its position, which are the checkpoints of *chain*.
    """

    state: SessionState
    position: int
    digest: str
    chain: CheckpointChain
    bodies: tuple[tuple[int, bytes], ...]

    def behind(self, entries: Sequence[bytes]) -> Sequence[bytes]:
        """
        The *entries* but for the first, which is the last of those that led here.

        Raises `JournalError` where it is not: these are of another journal, or that became shorter.
        """
        if not entries or digest(entries[0]).hex() != self.digest:
            msg = f"a checkpoint at {self.position} does not go with the journal"
            raise JournalError(msg)
        return entries[1:]


def restored(bodies: Iterable[bytes], most: int | None = None) -> Restored | None:
    """
    The state of the last of the checkpoints *bodies*, no later than *most* entries; None where there is none.

    Raises `JournalError` for one that cannot be read here.
    """
    there = dict[int, _Part]()
    for part in map(_taken_apart, bodies):
        # They come by their positions.
        if most is not None and part.head.position > most:
            break
        there[part.head.position] = part
    if not there:
        return None
    at = max(there)
    chain = [there[at]]
    while after := chain[-1].head.after:
        if after not in there or after >= at:
            msg = f"a checkpoint at {at} goes on from one at {after}, which is not there"
            raise JournalError(msg)
        chain.append(there[at := after])
    try:
        return _restored(chain[::-1])
    except UNREADABLE as error:
        msg = f"a checkpoint cannot be read: {error}"
        raise JournalError(msg) from error


@final
@attrs.frozen
class _Part:
    """A checkpoint taken apart: its *body*, the *head* of that, and the *lines* with its messages."""

    body: bytes
    head: _Head
    lines: Sequence[bytes]


def _taken_apart(body: bytes) -> _Part:
    # First: what was damaged must not reach the converter.
    if digest(body[DIGEST:]) != body[:DIGEST]:
        msg = "a checkpoint is damaged"
        raise JournalError(msg)
    head, *lines = body[DIGEST:].split(b"\n")
    try:
        found = msgspec.json.decode(head, type=_Head)
    except UNREADABLE as error:
        msg = f"a checkpoint cannot be read, another version may have written it: {error}"
        raise JournalError(msg) from error
    if found.version != VERSION:
        msg = f"a checkpoint has version {found.version}, known here is {VERSION}"
        raise JournalError(msg)
    return _Part(body, found, lines)


def _restored(parts: Sequence[_Part]) -> Restored:
    """The state that *parts* lead to, which go on from one another."""
    heads = [part.head for part in parts]
    last = heads[-1]
    chunks = [
        (count, partial(_messages, line))
        for part in parts
        for count, line in zip(part.head.counts, part.lines, strict=True)
    ]
    log: Log[Message] = Log(DeferredItems(chunks))
    messages, config = sum([count for count, _ in chunks]), None
    state: SessionState = _from_plain()(msgspec.json.decode(last.state), SessionState)
    state.full_results = FullResults(ended=last.ended, held=last.held)
    for head in heads:
        state.full_results.places |= head.places
        config = msgspec.json.decode(head.config) or config
    if (machine := msgspec.json.decode(last.machine)) is not None:
        told: Snapshot = structure(machine, Snapshot)
        if told.length != messages:
            msg = f"a checkpoint has {messages} messages of {told.length}"
            raise JournalError(msg)
        memory = grouped(told, History(log, told.length, told.revision))
        state.machine = Machine(structure(config, Config), told.state, memory)
    bodies = tuple([(part.head.position, part.body) for part in parts])
    chain = _chain(heads[0].position, last.position, state)
    return Restored(state, last.position, last.entry, chain, bodies)


def _messages(line: bytes) -> tuple[Message, ...]:
    found: tuple[Message, ...] = structure(msgspec.json.decode(line), tuple[Message, ...])
    return found


# By the fields of the class: a new one is in the next checkpoint without a word here.


@cache
def _to_plain() -> Callable[[SessionState], dict[str, Any]]:
    return make_dict_unstructure_fn(SessionState, converter, **APART)


@cache
def _from_plain() -> Callable[..., SessionState]:
    return make_dict_structure_fn(SessionState, converter, **APART)
