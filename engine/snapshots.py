"""
Writing a machine down in one piece, without what is kept elsewhere: its history and its configuration.

A snapshot says what was allowed, so it is to be believed only where it is known who wrote it: by a signature,
which covers the history, too. How a machine comes of one without is in `foreign`.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import final
from weakref import WeakKeyDictionary

import attrs
import msgspec

from ..effects.config import Config
from ..effects.errors import (
    ArgumentError,
    ConfigError,
    JournalError,
    NewerVersion,
)
from ..effects.history import History, Log
from ..effects.messages import Message
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import SetInstructions, SetThinking, WithdrawTool
from ..effects.usage import Spent
from ..states.context import (
    AsConfigured,
    Mail,
    Memory,
    NotBegun,
)
from ..states.state import State
from .codec import UNREADABLE, decode, encode
from .machine import Machine

VERSION = 3
"""The version of a snapshot; see `entries.VERSION` for when to raise it. No other one is read."""

NAME = "this snapshot"


class _Versioned(msgspec.Struct):
    """As much of a snapshot as any version can read."""

    version: int


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """A machine's *state* and memory; *length* and *revision* say which history it goes with."""

    version: int
    state: State
    length: int
    revision: int
    run: str
    model: str
    next_id: int
    size: int
    spent: Spent
    mode: PermissionMode
    thinking: SetThinking | AsConfigured
    instructions: SetInstructions | NotBegun
    mail: tuple[Mail, ...]
    received: tuple[str, ...]
    pending_context: tuple[str, ...]
    granted: tuple[Rule, ...]
    compactions: int
    compaction_failures: int
    continues: int
    chosen: tuple[str, ...]
    fallback: str
    cleared: int
    results: int
    withdrawn: tuple[WithdrawTool, ...]
    earlier: Spent


KEPT = tuple(
    [
        field.name
        for field in attrs.fields(Memory)
        if field.name in {each.name for each in attrs.fields(Snapshot)}
    ]
)
"""What a snapshot has of the memory: all of it but the history."""


LEAST_KEY = 32
"""Bytes of a key, at least: as many as the signature has."""

DOMAIN = b"turnwheel snapshot\n"
"""What a signature begins with, so that one made for something else with the same key is none here."""


@final
class Signed(msgspec.Struct, forbid_unknown_fields=True):
    """A *snapshot* as it was signed, byte for byte, and the *signature*, in hexadecimal digits."""

    snapshot: msgspec.Raw
    signature: str


def dump(machine: Machine, key: bytes | None) -> bytes:
    """*machine* as JSON, signed with *key* if there is one."""
    memory = machine.memory
    kept = {name: getattr(memory, name) for name in KEPT}
    snapshot = Snapshot(
        version=VERSION,
        state=machine.state,
        length=len(memory.history),
        revision=memory.history.revision,
        **kept,
    )
    data = encode(snapshot, Snapshot)
    if key is None:
        return data
    return msgspec.json.encode(Signed(msgspec.Raw(data), _signature(data, memory.history, key)))


def load(data: bytes, config: Config, history: History, key: bytes | None) -> Machine:
    """The machine that *data* was taken of; where no *key* says so, what can be had of it at no risk."""
    data, signature = _taken_apart(data)
    if key is not None:
        _check_signature(data, signature, history, key)
    _check_version(data)
    snapshot: Snapshot = decode(data, Snapshot, NAME)
    if (snapshot.length, snapshot.revision) != (len(history), history.revision):
        msg = (
            f"this snapshot goes with {snapshot.length} messages at revision {snapshot.revision}, "
            f"not with {history!r}"
        )
        raise JournalError(msg)
    if key is None:
        from .untrusted import restore_untrusted  # noqa: PLC0415  # it needs the class of snapshots

        return restore_untrusted(
            snapshot, config, history, hashlib.sha256(data + digest(history)).hexdigest()
        )
    kept = {name: getattr(snapshot, name) for name in KEPT}
    return Machine(config, snapshot.state, Memory(history=history, **kept))


def _check_version(data: bytes) -> None:
    """Refuse what another version wrote before anything else of it is looked at."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except UNREADABLE:
        return  # it is no snapshot, which is said where it is read
    if version > VERSION:
        raise NewerVersion(NAME, version, VERSION)
    if version < VERSION:
        msg = f"{NAME} has version {version}, known here is {VERSION}: fold its journal instead"
        raise JournalError(msg)


# Signatures


def _taken_apart(data: bytes) -> tuple[bytes, str]:
    """The snapshot in *data* and its signature, empty for none."""
    try:
        signed = msgspec.json.decode(data, type=Signed)
    except UNREADABLE:
        return data, ""
    return bytes(signed.snapshot), signed.signature


def _check_signature(data: bytes, signature: str, history: History, key: bytes) -> None:
    """Raise `JournalError` unless *signature* is that of *data* and *history* with *key*."""
    if not signature:
        _check_whole(data)
        way = "take it with snapshot(key), or restore it without a key: then it grants nothing"
        msg = f"this snapshot is not signed: {way}"
        raise JournalError(msg)
    if not hmac.compare_digest(signature.encode(), _signature(data, history, key).encode()):
        why = "it was signed with another key, goes with another history, or was changed since"
        way = "without a key it can be restored, and grants nothing"
        msg = f"the signature of this snapshot is wrong: {why}; {way}"
        raise JournalError(msg)


def _check_whole(data: bytes) -> None:
    """Raise `JournalError` for what is no JSON: nobody forgot to sign that."""
    try:
        msgspec.json.decode(data)
    except UNREADABLE as error:
        msg = f"{NAME} cannot be read ({error}): it was cut off or damaged, take another one"
        raise JournalError(msg) from error


def _signature(data: bytes, history: History, key: bytes) -> str:
    _check_key(key)
    return hmac.digest(key, DOMAIN + digest(history) + data, "sha256").hex()


def _check_key(key: object) -> None:
    way = f"secrets.token_bytes({LEAST_KEY}) makes one"
    if not isinstance(key, bytes):
        msg = f"a key is bytes, not {type(key).__name__}: {way}"
        raise ArgumentError(msg)
    if len(key) < LEAST_KEY:
        msg = f"a key must have at least {LEAST_KEY} bytes; got {len(key)}: {way}"
        raise ConfigError(msg)


_digests: WeakKeyDictionary[Log[Message], list[bytes]] = WeakKeyDictionary()
"""The digests of the beginnings of logs, by their length: what lies below it never changes."""


def digest(history: History) -> bytes:
    """A digest of all messages of *history*; of what was read before only what is new is read."""
    known = _digests.setdefault(history.log, [hashlib.sha256(DOMAIN).digest()])
    for message in history.slice(len(known) - 1, len(history)):
        known.append(hashlib.sha256(known[-1] + encode(message, Message)).digest())
    return known[len(history)]
