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

from .. import effects, states
from ..effects.config import Config
from ..effects.history import History, Log
from ..effects.messages import Binary, Outcome, ToolCall, ToolResult
from ..performers.keys import check_key
from ..states.batch.batch import PriorAttempt, Stopping
from ..states.builder import end_reason
from ..states.context import RECALL, AsConfigured, ConversationMemory, NotBegun, RunProgress, SessionMemory
from ..states.rules import model_messages
from ..states.rules.history_check import history_faults
from ..states.rules.hooks import asked_at
from ..states.state import batch_of
from ..states.thinking import NATURAL_ENDS
from .codec import UNREADABLE, decode, encode

# A snapshot may be thrown away, since the journal folds to the same machine. So none is ever migrated.
# The version of a snapshot; see `entries.VERSION` for when to raise it. No other one is read.
SNAPSHOT_VERSION = 4

NAME = "this snapshot"

M = TypeVar("M", states.Memory, SessionMemory, ConversationMemory, RunProgress)


# It is a run of its own, so answers to requests of the old run must find nothing here. Its name is made of
# the content and not by chance, so two processes that restore one snapshot agree.
# What the ids of such a machine begin with.
UNTRUSTED_PREFIX = "foreign-"

# Digits of a digest behind it: too many to find another snapshot that has them by trying.
UNTRUSTED_DIGITS = 32

# Every reader of JSON has whole numbers exactly up to here, and no honest bill comes near.
# What no account can come to.
MOST = 2**53

# Why a run was over whose last answer ended so; else of its own accord.
REASONS = {
    effects.StopReason.INTERRUPTED: effects.DoneReason.INTERRUPTED,
    effects.StopReason.MAX_TOKENS: effects.DoneReason.MAX_TOKENS,
}


class _Versioned(msgspec.Struct):
    """As much of a snapshot as any version can read."""

    version: int


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """A machine's *state* and memory; *length* and *revision* say which history it goes with."""

    # No field has a default: one that is missing is an error and not a guess. Names of fields are in stored
    # files, so a new name needs a new version. Only what a snapshot before it cannot have met has one.
    version: int
    state: states.State
    length: int
    revision: int
    run: str
    model: str
    next_id: int
    size: int
    spent: effects.Spent
    mode: effects.PermissionMode
    thinking: effects.SetThinking | AsConfigured
    instructions: effects.SetInstructions | NotBegun
    mail: tuple[states.Mail, ...]
    received: tuple[str, ...]
    pending_context: tuple[str, ...]
    granted: tuple[effects.Rule, ...]
    compactions: int
    compaction_failures: int
    continues: int
    chosen: tuple[str, ...]
    fallback: str
    cleared: int
    results: int
    withdrawn: tuple[effects.WithdrawTool, ...]
    earlier: effects.Spent
    max_output: int = 0
    stopped: effects.DoneReason = effects.DoneReason.INTERRUPTED
    summarised: tuple[effects.Message, ...] = ()
    ceiling: effects.PermissionMode = effects.PermissionMode.BYPASS


# What a signature begins with, so that one made for something else with the same key is none here.
DOMAIN = b"turnwheel snapshot\n"


@final
class Signed(msgspec.Struct, forbid_unknown_fields=True):
    """A *snapshot* as it was signed, byte for byte, and the *signature*, in hexadecimal digits."""

    # Raw, since JSON that is read and written again may differ in a byte, and then no signature holds.
    snapshot: msgspec.Raw
    signature: str


def dump(state: states.State, memory: states.Memory, key: bytes | None) -> bytes:
    """*state* and *memory* as JSON, signed with *key* if there is one."""
    data, history = encode(flat(state, memory), Snapshot), memory.history
    if key is None:
        return data
    return msgspec.json.encode(Signed(msgspec.Raw(data), _signature(data, history, key)))


def load(
    data: bytes, config: Config, history: History, key: bytes | None
) -> tuple[states.State, states.Memory]:
    """The state and memory that `dump` wrote; where no *key* vouches for them, as much as is harmless."""
    # A signed snapshot may be restored without the key. Its signature is passed over then.
    data, signature = _taken_apart(data)
    # Before the content is decoded: what a stranger wrote must not reach constructors and validators.
    if key is not None:
        _check_signature(data, signature, history, key)
    _check_version(data)
    snapshot: Snapshot = decode(data, Snapshot, NAME)
    if (snapshot.length, snapshot.revision) != (len(history), history.revision):
        msg = (
            f"this snapshot goes with {snapshot.length} messages at revision {snapshot.revision}, "
            f"not with {history!r}"
        )
        raise effects.JournalError(msg)
    if key is None:
        # The history is in the name, too: over another one, equal bytes make another run with other ids.
        name = hashlib.sha256(data + digest(history)).hexdigest()
        return restore_untrusted(snapshot, config, history, name)
    return snapshot.state, grouped(snapshot, history)


# A snapshot is flat, as it was before the memory had groups: what is stored outlives how it is held. So no
# name of a field may be in two groups.


def flat(state: states.State, memory: states.Memory) -> Snapshot:
    """The snapshot with the fields of *memory* and its groups."""
    length, revision = len(memory.history), memory.history.revision
    # Length and revision catch a mix-up and cost nothing. A history that was changed needs the signature.
    written = {"state": state, "length": length, "revision": revision}
    fields: dict[str, Any] = {**written, "version": SNAPSHOT_VERSION}
    # By the fields of the classes: one may move to another group, and older files stay good.
    for part in (memory, memory.session, memory.conversation, memory.progress):
        # Not `asdict`, which would take rules and mail apart as well.
        fields |= {field.name: getattr(part, field.name) for field in attrs.fields(part.__class__)}
    # The history and the groups themselves drop out here.
    return Snapshot(**{field.name: fields[field.name] for field in attrs.fields(Snapshot)})


def grouped(snapshot: Snapshot, history: History) -> states.Memory:
    """The memory that `flat` took apart, over *history*."""
    fields: dict[str, Any] = {**attrs.asdict(snapshot, recurse=False), "history": history}

    def part(kind: type[M], **groups: Any) -> M:  # noqa: ANN401  # groups of several classes
        mine = {one.name: fields[one.name] for one in attrs.fields(kind) if one.name in fields}
        return kind(**mine, **groups)

    session, progress = part(SessionMemory), part(RunProgress)
    return part(states.Memory, session=session, conversation=part(ConversationMemory), progress=progress)


def _check_version(data: bytes) -> None:
    """Refuse what another version wrote before anything else of it is looked at."""
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
    except UNREADABLE:
        return  # it is no snapshot, which is said where it is read
    # Two errors, since the remedies differ. A newer one needs a newer library, an older one its journal.
    if version > SNAPSHOT_VERSION:
        raise effects.NewerVersion(NAME, version, SNAPSHOT_VERSION)
    if version < SNAPSHOT_VERSION:
        msg = f"{NAME} has version {version}, known here is {SNAPSHOT_VERSION}: fold its journal instead"
        raise effects.JournalError(msg)


# Signatures


def _taken_apart(data: bytes) -> tuple[bytes, str]:
    """The snapshot in *data* and its signature, empty for none."""
    try:
        signed = msgspec.json.decode(data, type=Signed)
    except UNREADABLE:
        # No error yet: an unsigned snapshot is none of these, and it is allowed where no key is given.
        return data, ""
    return bytes(signed.snapshot), signed.signature


def _check_signature(data: bytes, signature: str, history: History, key: bytes) -> None:
    """Raise `JournalError` unless *signature* is that of *data* and *history* with *key*."""
    if not signature:
        # Damage first: of a file that was cut off, "not signed" would hide what is wrong.
        try:
            msgspec.json.decode(data)
        except UNREADABLE as error:
            msg = f"{NAME} cannot be read ({error}): it was cut off or damaged, take another one"
            raise effects.JournalError(msg) from error
        way = "take it with snapshot(key), or restore it without a key: then it grants nothing"
        msg = f"this snapshot is not signed: {way}"
        raise effects.JournalError(msg)
    # In constant time: a comparison that stops early lets a forger find the digits one after another. As
    # bytes, since it raises a bare error for text beyond ASCII, which a forger may send.
    if not hmac.compare_digest(signature.encode(), _signature(data, history, key).encode()):
        why = "it was signed with another key, goes with another history, or was changed since"
        way = "without a key it can be restored, and grants nothing"
        msg = f"the signature of this snapshot is wrong: {why}; {way}"
        raise effects.JournalError(msg)


def _signature(data: bytes, history: History, key: bytes) -> str:
    check_key(key)
    # Both parts before the data have a fixed length, so no byte can move between parts.
    return hmac.digest(key, DOMAIN + digest(history) + data, "sha256").hex()


# Weakly, since a server restores over many logs: what is known of one goes when the log does.
# The digests of the beginnings of logs, by their length: what lies below it never changes.
_digests: WeakKeyDictionary[Log[effects.Message], list[bytes]] = WeakKeyDictionary()


def digest(history: History) -> bytes:
    """A digest of all messages of *history*; of what was read before only what is new is read."""
    # A list and not only the latest digest: an older snapshot goes with a beginning of the same log.
    known = _digests.setdefault(history.log, [hashlib.sha256(DOMAIN).digest()])
    for message in history.slice(len(known) - 1, len(history)):
        known.append(hashlib.sha256(known[-1] + encode(message, effects.Message)).digest())
    return known[len(history)]


# What no signature vouches for


def restore_untrusted(
    snapshot: Snapshot, config: Config, history: History, name: str
) -> tuple[states.State, states.Memory]:
    """
    What can be had of *snapshot* at no risk, over *history* and under *config*; *name* is a digest of it.

    Raises `JournalError` where the two do not go together.
    """
    # Each call is taken from the history. The snapshot only says how far it had come.
    calls = _calls(snapshot, history)
    memory = _memory(snapshot, config, history, UNTRUSTED_PREFIX + name[:UNTRUSTED_DIGITS])
    if not calls:
        return _between(snapshot.state, memory), memory
    batch = batch_of(snapshot.state) or states.Batch(calls=())
    results = [(wish, _result(wish, told, batch.stopping, config)) for wish, told in calls]
    begins = config.instructions or asked_at(config, effects.Hook.SESSION_START)
    # What was offered is the snapshot's word, and harmless: a tool must be configured here, and is judged
    # anew.
    if not begins and not batch.stopping:
        there = [
            states.Call(call=wish, phase=states.Settled(result=result) if result else states.Queued())
            for wish, result in results
        ]
        return states.Executing(batch=states.Batch(calls=tuple(there), offered=batch.offered)), memory
    # The session has to begin first, and then these calls would be out of place. They get a text of their
    # own: no person refused them, and the model must not read that one did.
    parts = [result or _made(wish, Outcome.SKIPPED, model_messages.FROM_OUTSIDE) for wish, result in results]
    answered = history.append(effects.Message(role=effects.Role.TOOL, parts=tuple(parts), at=history[-1].at))
    memory = attrs.evolve(memory, conversation=ConversationMemory.of(answered))
    # An interrupt holds: to think on would act against the person who stopped the run.
    if batch.stopping is Stopping.INTERRUPTED:
        return states.Done(reason=effects.DoneReason.INTERRUPTED, spent=memory.spent), memory
    return states.Thinking(stage=states.Start()), memory


# The memory


def _memory(snapshot: Snapshot, config: Config, history: History, run: str) -> states.Memory:
    """
    What a run begins with, and of *snapshot* the inputs that wait.

    The account is taken as it stands. A forger who makes it smaller gains no more than by a new run.
    """
    # Model, mode and rules are those of a new run, since each of them could widen what is allowed. Progress
    # is left out for the same reason.
    session = SessionMemory(
        model=config.model.name,
        mode=config.policy.mode,
        ceiling=config.ceiling,
        # One mail for each id, and no more ids than a machine remembers: a forged list has any length.
        mail=tuple({mail.id: mail for mail in snapshot.mail}.values()),
        received=snapshot.received[-RECALL:],
    )
    return states.Memory(
        run=run,
        session=session,
        # Counted anew: with a forged size, the context might never be compacted.
        conversation=ConversationMemory.of(history),
        spent=_account(snapshot.spent),
        earlier=_account(snapshot.earlier),
    )


def _account(spent: effects.Spent) -> effects.Spent:
    """*spent*, if an account can be so; what was less than nothing would be a limit to nothing."""
    # One of the numbers is enough to refuse all: mending an account would invent one.
    usage = attrs.astuple(spent.usage)
    numbers = (*usage, spent.turns, spent.unpriced, spent.cost, spent.seconds)
    if not all(0 <= number <= MOST for number in numbers):
        msg = f"this snapshot has an account that cannot be: {spent!r}"
        raise effects.JournalError(msg)
    return spent


# Between calls


def _between(state: states.State, memory: states.Memory) -> states.Thinking | states.Done:
    """
    Where a run with *memory* goes on that was in *state*: it begins again, where there is something to do.

    What was over, or was being given up, stays so: to end grants nothing.
    """
    stage = state.stage if isinstance(state, states.Thinking) else state
    match stage:
        case states.Done(reason=reason):
            pass
        # A natural end is not taken over here: mail may have come, and then there is more to do.
        case states.End(reason=reason) | states.Ending(reason=reason) if reason not in NATURAL_ENDS:
            pass
        case states.Streaming() | states.Compacting() if stage.stopping is Stopping.INTERRUPTED:
            reason = effects.DoneReason.INTERRUPTED
        # In all other cases the state of the snapshot is ignored: the last message of the history shows whose
        # turn it is.
        case _:
            last = memory.history[-1] if memory.history else None
            if memory.session.mail or (last is not None and last.role is not effects.Role.ASSISTANT):
                return states.Thinking(stage=states.Start())
            # The message says how its answer ended: a run that was cut off must not pass for complete.
            finish = None if last is None else last.parts[-1]
            stop = finish.reason if isinstance(finish, effects.Finish) else effects.StopReason.END_TURN
            reason = REASONS.get(stop, end_reason(stop))
    return states.Done(reason=reason, spent=memory.spent)


# Calls


def _calls(snapshot: Snapshot, history: History) -> list[tuple[ToolCall, states.Call]]:
    """The calls of *history* without a result, each with what *snapshot* says of it."""
    wishes = history[-1].calls if history else ()
    batch = batch_of(snapshot.state)
    calls = () if batch is None else batch.calls
    mine, theirs = [wish.id for wish in wishes], [call.call.id for call in calls]
    # Open calls may stand in the last message only. A provider refuses any other one for good.
    if faults := history_faults(history, mine):
        msg = f"invalid history: {'; '.join(faults)}"
        raise effects.JournalError(msg)
    # In the same order, too: below, calls and phases are matched by their places.
    if mine != theirs:
        msg = f"this snapshot goes with a history whose open calls are {theirs}, not {mine}"
        raise effects.JournalError(msg)
    return list(zip(wishes, calls, strict=True))


def _result(wish: ToolCall, told: states.Call, stopping: Stopping, config: Config) -> ToolResult | None:
    """The result of *wish*, as the model wrote it, by what is *told* of it; None where it is judged anew."""
    phase = told.phase
    # A result is believed: a forged one is a text that the model reads, as any history is. Nothing runs of
    # it.
    if isinstance(phase, states.Settled | states.Reviewed):
        result = phase.result
        return _made(wish, result.outcome, result.content, result.files)
    begun = isinstance(phase, states.Running | states.RunningChild) or told.tried is PriorAttempt.LOST
    # By the settings here and not by the snapshot: only the owner says which tool is harmless.
    spec = config.tool(wish.name)
    # It may have run, and a second time may do harm. A read does none, so it is judged anew instead.
    if begun and (spec is None or spec.side_effect is not effects.SideEffect.READ_ONLY):
        return _made(wish, Outcome.UNKNOWN, model_messages.LOST)
    # None: the call is judged anew. An approval that the snapshot claims does not count.
    return _made(wish, Outcome.CANCELLED, model_messages.CANCELLED) if stopping else None


def _made(wish: ToolCall, outcome: Outcome, content: str, files: tuple[Binary, ...] = ()) -> ToolResult:
    return ToolResult(
        call=wish.id, wire_id=wish.wire_id, name=wish.name, content=content, outcome=outcome, files=files
    )
