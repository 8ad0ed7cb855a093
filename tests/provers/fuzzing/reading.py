"""
What must hold of whoever reads an answer, as checks: each gives a list of faults, empty where all is well.

`body_faults` is for a body, streamed or not, in a dialect; `refusal_faults` for what stands in a refusal.
What comes out is given to a machine, which has to have a valid conversation after it, and to the encoders of
both dialects, whose judges in `wires` have to take it.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from provers.fuzzing.mutations import cuts, one_in
from provers.invariants import state_faults
from provers.streams import DIALECTS
from turnwheel.effects.config import Config, ModelSpec, ToolSpec
from turnwheel.effects.events import (
    ModelFailed,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
)
from turnwheel.effects.history import (
    CallPiece,
    ReasoningPiece,
    TextPiece,
    merged,
)
from turnwheel.effects.messages import Citation, ProviderCall
from turnwheel.effects.requests import CallModel, Conversation, RunTool
from turnwheel.engine.core.machine import Machine
from turnwheel.engine.journal.encoding import decode_entry, encode_entry
from turnwheel.engine.journal.entries import Stepped
from turnwheel.performers.base import PerformContext, SystemClock
from turnwheel.performers.models.anthropic import MessagesWire
from turnwheel.performers.models.errors import refusal
from turnwheel.performers.models.lenient_json import MAX_LABEL, MAX_NUMBER
from turnwheel.performers.models.openai import ChatWire
from turnwheel.performers.models.responses import ResponsesWire
from turnwheel.performers.models.wire import Complete
from turnwheel.testing.wire_rules import chat_faults, messages_faults, responses_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from turnwheel.effects import Effect
    from turnwheel.effects.events import Event
    from turnwheel.effects.history import Piece
    from turnwheel.performers.models.wire import AnswerEnd, Parser

READING = 2_000
"""Characters that may come out of a body beyond those that went in: messages of errors, marks, spaces."""

MESSAGE = 1_200
"""Characters that the message of a failure may have."""

JUDGES = ((ChatWire, chat_faults), (MessagesWire, messages_faults), (ResponsesWire, responses_faults))
"""Each wire, and what its provider would refuse in a request of it."""

ROUNDS = 6
"""Calls that are answered to see what comes next; more are only looked at."""


def read(parser: Parser, parts: Iterable[bytes]) -> tuple[list[Piece], AnswerEnd]:
    """All pieces of a body that arrives in *parts*, those that only its end brought too, and its ending."""
    pieces = [piece for part in parts for piece in parser.feed(part)]
    ending = parser.end()
    return ([*pieces, *ending.pieces], ending) if isinstance(ending, Complete) else (pieces, ending)


def body_faults(dialect: str, data: bytes, seed: int = 0) -> tuple[list[str], str]:
    """What is wrong with how *data* is read in *dialect*, and what it was taken for; *seed* draws splits."""
    rng = random.Random(seed)  # it draws splits, it keeps no secret
    parser = DIALECTS[dialect].parser
    pieces, ending = read(parser(), [data])
    parts = cuts(rng, data)
    again, other = read(parser(), parts)
    faults: list[str] = []
    if merged(again) != merged(pieces) or _without(other) != _without(ending):
        faults.append(f"in parts of {[*map(len, parts)]} bytes it is {again!r:.300} and {other!r:.300}")
    faults += pieces_faults(pieces, len(data))
    faults += ending_faults(ending)
    if one_in(rng, 4):
        faults += _begun_faults(parser, data, pieces, rng.randrange(len(data) + 1))
    if not faults:
        faults += machine_faults(pieces, ending, rng)
    return faults, str(ending.stop) if isinstance(ending, Complete) else str(ending.failure)


def _without(ending: AnswerEnd) -> object:
    """*ending* but for its pieces, which are read with the others."""
    if isinstance(ending, Complete):
        return (ending.stop, ending.usage, ending.sequence)
    return ending


def _begun_faults(parser: Callable[[], Parser], data: bytes, pieces: Sequence[Piece], at: int) -> list[str]:
    """Whether what a stream brings that stops *at* some byte is a beginning of it all; and it stays so."""
    begun = parser()
    before = begun.feed(data[:at])
    done = begun.done
    rest = begun.feed(data[at:])
    if done and rest:
        return [f"it was over at {at}, and then it said {rest!r:.300}"]
    text = "".join([piece.text for piece in before if isinstance(piece, TextPiece)])
    whole = "".join([piece.text for piece in pieces if isinstance(piece, TextPiece)])
    return [] if whole.startswith(text) else [f"stopped at {at} it says {text!r:.300}, which is not there"]


def pieces_faults(pieces: Sequence[Piece], size: int) -> list[str]:
    """Whether *pieces*, which were read from *size* bytes, are such as a machine may be given."""
    faults: list[str] = []
    calls: list[int] = []
    named: set[int] = set()
    said = 0
    for piece in pieces:
        texts = _texts_of(piece)
        said += sum(map(len, texts))
        if not _can_be_written(texts):
            faults.append(f"half a character in {piece!r:.300}")
        if isinstance(piece, CallPiece):
            if piece.index not in calls:
                calls.append(piece.index)
            if piece.name and piece.index in named:
                faults.append(f"call {piece.index} has two names, of which one is {piece.name!r:.100}")
            named |= {piece.index} if piece.name else set()
            if max(len(piece.name), len(piece.wire_id)) > MAX_LABEL + len("..."):
                faults.append(f"a word of {max(len(piece.name), len(piece.wire_id))} characters")
    if calls != list(range(len(calls))):
        faults.append(f"the calls are numbered {calls[:20]}")
    if said > 2 * size + READING:
        faults.append(f"{said} characters of {size} bytes")
    return faults


def ending_faults(ending: AnswerEnd) -> list[str]:
    """Whether *ending* can be told."""
    usage = ending.usage
    counts = (
        () if usage is None else (usage.input, usage.output, usage.cached, usage.cache_write, usage.reasoning)
    )
    faults = [f"{count} tokens" for count in counts if not 0 <= count <= 3 * MAX_NUMBER]
    if isinstance(ending, Complete):
        words = (ending.sequence,)
    else:
        words = (ending.message,)
        if not 0 < len(ending.message) <= MESSAGE:
            faults.append(f"a message of {len(ending.message)} characters")
    return faults if _can_be_written(words) else [*faults, f"half a character in {words!r:.300}"]


def _texts_of(piece: Piece) -> tuple[str, ...]:
    match piece:
        case TextPiece():
            return (piece.text,)
        case ReasoningPiece():
            return (piece.text, piece.signature, piece.redacted)
        case CallPiece():
            return (piece.wire_id, piece.name, piece.arguments)
        case ProviderCall():
            return (piece.id, piece.name, piece.arguments, piece.status, piece.result)
        case Citation():
            return (piece.url, piece.title, piece.quote)


def _can_be_written(texts: Iterable[str]) -> bool:
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


# What a machine makes of it

LOOK = ToolSpec(
    name="look",
    schema='{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}',
    side_effect="read_only",
)


@cache
def _asking() -> tuple[Machine, CallModel]:
    """A machine that waits for an answer, and the request for it."""
    config = Config(model=ModelSpec(name="openai:m"), tools=(LOOK,))
    machine = Machine.start(config, "hi")
    (request,) = [effect for effect in machine.advance() if isinstance(effect, CallModel)]
    return machine, request


def machine_faults(pieces: Sequence[Piece], ending: AnswerEnd, rng: random.Random) -> list[str]:
    """What is wrong with a machine, or with the journal, after an answer of *pieces* with this *ending*."""
    asked, request = _asking()
    machine = Machine(asked.config, asked.state, asked.memory)
    faults: list[str] = []
    effects: tuple[Effect, ...] = ()
    for event in answer_of(request.id, pieces, ending, rng):
        effects = machine.advance(event)
        entry = Stepped(event=event, label="x")
        if one_in(rng, 4) and decode_entry(encode_entry(entry)) != entry:
            faults.append(f"written down it is another one: {entry!r:.300}")
    faults += state_faults(machine.state, machine.memory)
    runs = [effect for effect in effects if isinstance(effect, RunTool)]
    while runs and len(machine.memory.history) < ROUNDS:
        (run, *_), runs = runs, []
        effects = machine.advance(ToolFinished(at=2.0, request=run.id, content="there"))
        runs = [effect for effect in effects if isinstance(effect, RunTool)]
    if one_in(rng, 6):
        faults += sent_faults(machine)
    return [*faults, *state_faults(machine.state, machine.memory)]


def answer_of(request: str, pieces: Sequence[Piece], ending: AnswerEnd, rng: random.Random) -> list[Event]:
    """The events of an answer to *request*: its *pieces* in a few parts, the last ones at the end."""
    last = len(ending.pieces) if isinstance(ending, Complete) else 0
    streamed, rest = pieces[: len(pieces) - last], tuple(pieces[len(pieces) - last :])
    events: list[Event] = []
    before = 0
    while before < len(streamed):
        part = tuple(streamed[before : before + rng.choice((2, 20, 1_000))])
        events.append(ModelStreamed(at=1.0, request=request, before=before, count=len(part), pieces=part))
        before += len(part)
    if isinstance(ending, Complete):
        end: Event = ModelFinished(
            at=1.0,
            request=request,
            stop=ending.stop,
            usage=ending.usage,
            pieces=rest,
            sequence=ending.sequence,
        )
    else:
        end = ModelFailed(
            at=1.0,
            request=request,
            failure=ending.failure,
            message=ending.message,
            retry_after=ending.retry_after,
        )
    return [*events, end]


def sent_faults(machine: Machine) -> list[str]:
    """What a provider would refuse of the next request of *machine*, in either dialect."""
    history = machine.memory.history
    if history[len(history) - 1].calls:
        return []  # its calls have no results yet, so nothing is sent
    scene = PerformContext(
        session="s", run="r", config=machine.config, history=history, clock=SystemClock(), emit=lambda _: None
    )
    request = CallModel(
        id="r-1",
        model="m",
        view=Conversation(revision=history.revision, length=len(history)),
        tools=(LOOK.name,),
    )
    return [fault for wire, faults_of in JUDGES for fault in faults_of(wire().encode(request, scene).body)]


# Refusals

STATUSES = (400, 401, 403, 404, 408, 413, 429, 500, 503, 529, 307, 199, 999)


def refusal_faults(data: bytes, seed: int = 0) -> tuple[list[str], str]:
    """What is wrong with how a refusal is read that holds *data*, and what it is taken for."""
    rng = random.Random(seed)  # as above
    value = data[:200].decode("latin-1")
    headers = {rng.choice(("retry-after", "retry-after-ms", "location", "x")): value}
    broken = refusal(rng.choice(STATUSES), headers, data, 1e9)
    faults = ending_faults(broken)
    if broken.retry_after is not None and not 0 < broken.retry_after < float("inf"):
        faults.append(f"to be tried again in {broken.retry_after} s")
    return faults, str(broken.failure)
