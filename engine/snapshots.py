"""
Writing a machine down in one piece, without what is kept elsewhere: its history and its configuration.

A snapshot says what was allowed, so it is to be believed only where it is known who wrote it: by a signature,
which covers the history, too. How a machine comes of one without is in the last part.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, TypeVar, final
from weakref import WeakKeyDictionary

import attrs
import msgspec

from ..effects.config import Config, SideEffect
from ..effects.errors import (
    ArgumentError,
    ConfigError,
    JournalError,
    NewerVersion,
)
from ..effects.history import History, Log
from ..effects.hooks import Hook
from ..effects.messages import (
    Binary,
    Finish,
    Message,
    Outcome,
    Role,
    StopReason,
    ToolCall,
    ToolResult,
)
from ..effects.notices import DoneReason
from ..effects.permissions import PermissionMode, Rule
from ..effects.records import SetInstructions, SetThinking, WithdrawTool
from ..effects.usage import Spent
from ..effects.validators import clean
from ..states.batch.batch import (
    Batch,
    Call,
    PriorAttempt,
    Reviewed,
    Running,
    RunningChild,
    Settled,
    Stopping,
)
from ..states.context import (
    RECALL,
    AsConfigured,
    ConversationMemory,
    Mail,
    Memory,
    NotBegun,
    RunProgress,
    SessionMemory,
)
from ..states.rules import model_messages
from ..states.rules.history_check import history_faults
from ..states.rules.hooks import asked_at
from ..states.state import (
    Compacting,
    Confirming,
    Dispatching,
    Done,
    End,
    Ending,
    Executing,
    Start,
    State,
    Streaming,
    Thinking,
)
from ..states.thinking import NATURAL_ENDS
from .codec import UNREADABLE, decode, encode

SNAPSHOT_VERSION = 3
"""The version of a snapshot; see `entries.SNAPSHOT_VERSION` for when to raise it. No other one is read."""

NAME = "this snapshot"

M = TypeVar("M", Memory, SessionMemory, ConversationMemory, RunProgress)


UNTRUSTED_PREFIX = "foreign-"
"""What the ids of such a machine begin with."""

UNTRUSTED_DIGITS = 32
"""Digits of a digest behind it: too many to find another snapshot that has them by trying."""

MOST = 2**53
"""What no account can come to."""

REASONS = {
    StopReason.INTERRUPTED: DoneReason.INTERRUPTED,
    StopReason.MAX_TOKENS: DoneReason.MAX_TOKENS,
    StopReason.STOP_SEQUENCE: DoneReason.STOP_SEQUENCE,
}
"""Why a run was over whose last answer ended so; else of its own accord."""


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


LEAST_KEY = 32
"""Bytes of a key, at least: as many as the signature has."""

DOMAIN = b"turnwheel snapshot\n"
"""What a signature begins with, so that one made for something else with the same key is none here."""


@final
class Signed(msgspec.Struct, forbid_unknown_fields=True):
    """A *snapshot* as it was signed, byte for byte, and the *signature*, in hexadecimal digits."""

    snapshot: msgspec.Raw
    signature: str


def dump(state: State, memory: Memory, key: bytes | None) -> bytes:
    """*state* and *memory* as JSON, signed with *key* if there is one."""
    history = memory.history
    written: dict[str, Any] = {
        "version": SNAPSHOT_VERSION,
        "state": state,
        "length": len(history),
        "revision": history.revision,
    }
    data = encode(Snapshot(**written, **_flat(memory)), Snapshot)
    if key is None:
        return data
    return msgspec.json.encode(Signed(msgspec.Raw(data), _signature(data, history, key)))


def load(data: bytes, config: Config, history: History, key: bytes | None) -> tuple[State, Memory]:
    """The state and memory that `dump` wrote; where no *key* vouches for them, as much as is harmless."""
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
        name = hashlib.sha256(data + digest(history)).hexdigest()
        return restore_untrusted(snapshot, config, history, name)
    return snapshot.state, _grouped(snapshot, history)


# A snapshot is flat, as it was before the memory had groups: what is stored outlives how it is held. So no
# name of a field may be in two groups.


def _flat(memory: Memory) -> dict[str, Any]:
    """The fields of *memory* and its groups that a snapshot has."""
    flat: dict[str, Any] = {}
    for part in (memory, memory.session, memory.conversation, memory.progress):
        flat |= {field.name: getattr(part, field.name) for field in attrs.fields(type(part))}
    return {field.name: flat[field.name] for field in attrs.fields(Snapshot) if field.name in flat}


def _grouped(snapshot: Snapshot, history: History) -> Memory:
    """The memory that `_flat` took apart, over *history*."""
    flat = {**attrs.asdict(snapshot, recurse=False), "history": history}

    def part(kind: type[M], **groups: Any) -> M:  # noqa: ANN401  # groups of several classes
        mine: dict[str, Any] = {
            each.name: flat[each.name] for each in attrs.fields(kind) if each.name in flat
        }
        return kind(**mine, **groups)

    session, progress = part(SessionMemory), part(RunProgress)
    return part(Memory, session=session, conversation=part(ConversationMemory), progress=progress)


def _check_version(data: bytes) -> None:
    """Refuse what another version wrote before anything else of it is looked at."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except UNREADABLE:
        return  # it is no snapshot, which is said where it is read
    if version > SNAPSHOT_VERSION:
        raise NewerVersion(NAME, version, SNAPSHOT_VERSION)
    if version < SNAPSHOT_VERSION:
        msg = f"{NAME} has version {version}, known here is {SNAPSHOT_VERSION}: fold its journal instead"
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
    """Raise `JournalError` for what is no JSON: that was damaged, not left unsigned."""
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


# What no signature vouches for


def restore_untrusted(
    snapshot: Snapshot, config: Config, history: History, name: str
) -> tuple[State, Memory]:
    """
    What can be had of *snapshot* at no risk, over *history* and under *config*; *name* is a digest of it.

    Raises `JournalError` where the two do not go together.
    """
    calls = _calls(snapshot, history)
    memory = _memory(snapshot, config, history, UNTRUSTED_PREFIX + name[:UNTRUSTED_DIGITS])
    if not calls:
        return _between(snapshot.state, memory), memory
    batch = _batch(snapshot.state)
    settled = tuple([_call(wish, told, batch.stopping, config) for wish, told in calls])
    begins = config.instructions or asked_at(config, Hook.SESSION_START)
    if not begins and not batch.stopping:
        return Executing(batch=Batch(calls=settled, offered=batch.offered)), memory
    # The session has to begin first, and then these calls would be out of place.
    results = tuple([_given_up(call) for call in settled])
    answered = history.append(Message(role=Role.TOOL, parts=results, at=history[-1].at))
    memory = attrs.evolve(memory, conversation=ConversationMemory.of(answered))
    if batch.stopping is Stopping.INTERRUPTED:
        return Done(reason=DoneReason.INTERRUPTED, spent=memory.spent), memory
    return Thinking(stage=Start()), memory


# The memory


def _memory(snapshot: Snapshot, config: Config, history: History, run: str) -> Memory:
    """
    What a run begins with, and of *snapshot* the inputs that wait.

    The account is taken as it stands. A forger who makes it smaller gains no more than by a new run.
    """
    session = SessionMemory(
        model=config.model.name,
        mode=config.policy.mode,
        mail=tuple({mail.id: mail for mail in snapshot.mail}.values()),
        received=snapshot.received[-RECALL:],
    )
    return Memory(
        run=run,
        session=session,
        conversation=ConversationMemory.of(history),
        spent=_account(snapshot.spent),
        earlier=_account(snapshot.earlier),
    )


def _account(spent: Spent) -> Spent:
    """*spent*, if an account can be so; what was less than nothing would be a limit to nothing."""
    usage: tuple[int, ...] = attrs.astuple(spent.usage)
    counts = (spent.turns, spent.unpriced, *usage)
    sane = all(0 <= count <= MOST for count in counts) and 0 <= spent.cost <= MOST
    sane = sane and 0 <= spent.seconds <= MOST
    if not sane:
        msg = f"this snapshot has an account that cannot be: {spent!r}"
        raise JournalError(msg)
    return spent


# Between calls


def _between(state: State, memory: Memory) -> Thinking | Done:
    """
    Where a run with *memory* goes on that was in *state*: it begins again, where there is something to do.

    What was over, or was being given up, stays so: to end grants nothing.
    """
    match state:
        case Done(reason=reason):
            return Done(reason=reason, spent=memory.spent)
        case Thinking(stage=End(reason=reason) | Ending(reason=reason)) if reason not in NATURAL_ENDS:
            return Done(reason=reason, spent=memory.spent)
        case Streaming(stopping=Stopping.INTERRUPTED) | Compacting(stopping=Stopping.INTERRUPTED):
            return Done(reason=DoneReason.INTERRUPTED, spent=memory.spent)
        case _:
            last = memory.history[-1] if memory.history else None
    if memory.session.mail or (last is not None and last.role is not Role.ASSISTANT):
        return Thinking(stage=Start())
    finish = None if last is None else last.parts[-1]
    stop = finish.reason if isinstance(finish, Finish) else StopReason.END_TURN
    return Done(reason=REASONS.get(stop, DoneReason.END_TURN), spent=memory.spent)


# Calls


def _batch(state: State) -> Batch:
    """The batch of *state*, an empty one where it has none."""
    return state.batch if isinstance(state, Executing | Confirming | Dispatching) else Batch(calls=())


def _calls(snapshot: Snapshot, history: History) -> list[tuple[ToolCall, Call]]:
    """The calls of *history* without a result, each with what *snapshot* says of it."""
    wishes = history[-1].calls if history else ()
    told = _batch(snapshot.state).calls
    mine, theirs = [wish.id for wish in wishes], [call.call.id for call in told]
    if faults := history_faults(history, mine):
        msg = f"invalid history: {'; '.join(faults)}"
        raise JournalError(msg)
    if mine != theirs:
        msg = f"this snapshot goes with a history whose open calls are {theirs}, not {mine}"
        raise JournalError(msg)
    return list(zip(wishes, told, strict=True))


def _call(wish: ToolCall, told: Call, stopping: Stopping, config: Config) -> Call:
    """*wish*, as the model wrote it, with the result that is *told* of it, or to be judged anew."""
    phase = told.phase
    if isinstance(phase, Settled | Reviewed):
        result = phase.result
        return _settled(wish, result.outcome, clean(result.content), result.files)
    if (isinstance(phase, Running | RunningChild) or told.tried is PriorAttempt.LOST) and not _reads(
        wish, config
    ):
        return _settled(wish, Outcome.UNKNOWN, model_messages.LOST)
    return _settled(wish, Outcome.CANCELLED, model_messages.CANCELLED) if stopping else Call(call=wish)


def _reads(wish: ToolCall, config: Config) -> bool:
    spec = config.tool(wish.name)
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY


def _settled(wish: ToolCall, outcome: Outcome, content: str, files: tuple[Binary, ...] = ()) -> Call:
    return Call(call=wish, phase=Settled(result=_result(wish, outcome, content, files)))


def _result(wish: ToolCall, outcome: Outcome, content: str, files: tuple[Binary, ...] = ()) -> ToolResult:
    return ToolResult(
        call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome, files=files
    )


def _given_up(call: Call) -> ToolResult:
    """The result of *call*, which will not run where it has none."""
    if isinstance(call.phase, Settled):
        return call.phase.result
    return _result(call.call, Outcome.SKIPPED, model_messages.FROM_OUTSIDE)
