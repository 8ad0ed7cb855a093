"""
The first step at which two sessions diverge, or two versions of turnwheel over one session.

Theory of operation. Two journals are compared step by step: the settings of each run, each event, the state
that it led to and its effects. Ids are compared by the order of their first use: every run makes its own.
Left out are times, senders, values that a provider makes up, the pieces of a stream, and entries that do not
touch the machine. Two versions are compared over one journal, by their machines' steps, nothing left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice, zip_longest
from typing import Any, cast, final

import attrs
import msgspec

from ...effects.errors import InternalError, JournalError
from ...effects.events import Failure
from ...performers.slices import AT_ONCE, Slices
from ..core.codec import TAG
from ..journal.encoding import decode_entry
from ..journal.entries import Stepped, time_of
from .replay import ReplayedStep, as_plain, replayed

# A step, or a part of one, as `replay.as_plain` has it: what JSON is made of.
Plain = dict[str, Any]

# What a provider has to see again, and nothing else can read.
PROOFS = ("signature", "opaque")

# Each of these differs between two honest runs: with it, every comparison would stop at its first step.
# Fields with times, senders, values that a provider made up, and counts of ids.
LEFT_OUT = frozenset({"at", "due", "seconds", "jitter", "by", "sender", "next", "wire_id", *PROOFS})

# Numbered and not left out: two answers that change places are a real difference.
# Fields with an id, which a run or a sender made up.
IDS = frozenset({"id", "ids", "request", "run", "session", "call"})

# The effects of a step that only asks a model again.
ASKED_AGAIN = {"AnswerFailed", "CallModel", "ModelCalled", "UseIds"}

# Causes before effects, since the first part that differs is the one that is named.
# The parts of a step that the machine made.
MADE = ("before", "label", "state", "effects", "spent")

# After a divergence almost everything differs, and the first few names point at it.
# The number of differences that are named.
NAMED = 8

# A wrong file may be one line of a gigabyte.
# Bytes of a line that an error shows.
MAX_QUOTED_LINE = 100


@final
@attrs.frozen(kw_only=True)
class Divergence:
    """
    Two journals, or two versions, diverge at the steps *one* and *other*, after *last*, the last in common.

    Each is plain, as `replay.as_plain` has it, or None where that side has ended; *last* is the first side's,
    None where nothing is in common. *where* names the fields that differ, such as ``event.decision.type``: of
    the event, or where that is the same of the state, or else of the effects.
    """

    one: Plain | None
    other: Plain | None
    last: Plain | None
    where: tuple[str, ...] = ()


async def compare_sessions(
    mine: Sequence[bytes], one: str, theirs: Sequence[bytes], other: str
) -> Divergence | None:
    """
    The first step at which the journal *mine* of session *one* and *theirs* of *other* diverge, or None.

    Raises `JournalError` for what cannot be read before that.
    """
    # Read side by side and no further than needed: damage behind the divergence hides nothing.
    return await _divergence(zip_longest(_comparable(mine, one), _comparable(theirs, other)))


async def compare_labels(entries: Sequence[bytes], session: str) -> Divergence | None:
    """The first step of *session* that leads elsewhere than its journal *entries* say, or None."""
    steps = (step for step in _made_here(entries, session) if _kind(step) == "Stepped")
    return await _divergence(map(_labels, steps))


async def compare_steps(lines: Iterable[bytes], entries: Sequence[bytes], session: str) -> Divergence | None:
    """The first of the steps in *lines*, as `replay --json` writes them, that *entries* make differently."""
    return await _divergence(_beside(_parsed(lines), _made_here(entries, session)))


# A step, and its parts to compare, causes first: a difference in one makes the later ones differ.
Compared = tuple[Plain, Plain]


async def _divergence(steps: Iterable[tuple[Compared | None, Compared | None]]) -> Divergence | None:
    """The first of *steps*, of one side and the other, that differ."""
    last: Plain | None = None
    async for one, other in Slices(steps, AT_ONCE // 2):
        # One side is the beginning of the other: they diverge where the shorter one ends.
        if one is None or other is None:
            return Divergence(one=one and one[0], other=other and other[0], last=last)
        if where := _where(one[1], other[1]):
            return Divergence(one=one[0], other=other[0], last=last, where=where)
        # Either side would do: here the two differ in ids and times only.
        last = one[0]
    return None


def _where(one: Plain, other: Plain) -> tuple[str, ...]:
    """The fields that differ in the first part of *one* that is not that of *other*."""
    # The first part only: a difference in the event says more than all its consequences.
    for name in one:
        if found := tuple(islice(_differences(one[name], other[name], name), NAMED)):
            return found
    return ()


def _differences(one: object, other: object, where: str) -> Iterator[str]:
    """The places where *one* differs from *other*."""
    match one, other:
        # Values of two classes have few fields in common, and each would be named.
        case dict(), dict() if one.get(TAG) != other.get(TAG):
            yield f"{where}.{TAG}"
        case dict(), dict():
            # Fields at their default are not written, so a field may be missing on either side.
            for name in dict.fromkeys([*one, *other]):
                yield from _differences(one.get(name), other.get(name), f"{where}.{name}")
        case list(), list():
            # By place: what was put in between makes all that follows differ, and the first place is the
            # finding.
            for index, (a, b) in enumerate(zip_longest(one, other)):
                yield from _differences(a, b, f"{where}[{index}]")
        case _ if one != other:
            yield where
        case _:
            pass


# Two journals


def _comparable(entries: Sequence[bytes], session: str) -> Iterator[Compared]:
    """The steps of *session* that touch the machine, with the parts that another session can share."""
    names = _Names()
    for replayed_step in replayed(entries, session):
        step = as_plain(replayed_step)
        again = _asks_again(step)
        # Every step, also one that is not compared: it may use ids first, or give them other names.
        names.meet(step, again=again)
        if _moves(step) and not again:
            entry = step["entry"]
            # An entry with no event is its own cause, such as the opening of a run.
            parts = {"event": entry.get("event", entry), "state": step["state"], "effects": step["effects"]}
            yield step, {name: names.compared(part) for name, part in parts.items()}


def _moves(step: Plain) -> bool:
    """Whether *step* is part of what happened in the session."""
    # A post moves nothing until a step applies it. A takeover is skipped even if the new process has other
    # settings: a fork has one where its original has none, and all that follows would differ by its place.
    return _kind(step) in {"Stepped", "Branched", "RunOpened"}


def _asks_again(step: Plain) -> bool:
    """Whether *step* only asks a model again, since no worker had begun to ask it."""
    # A fork and a takeover do this where the original asked once: the conversation is the same.
    unbegun = step["entry"].get("event", {}).get("failure") == Failure.UNBEGUN
    return unbegun and {effect[TAG] for effect in step["effects"]} == ASKED_AGAIN


@final
class _Names:
    """Numbers in place of a session's ids, in the order of their first use."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._new = count()
        self._run = self._asked = ""

    def meet(self, step: Plain, *, again: bool) -> None:
        """Give a copied run and a request that is made *again* in *step* the numbers of the first ones."""
        # With a new number for a copied run, each id from there on would differ. So would the answer to a
        # question that is only asked again.
        run = step["entry"].get("run")
        if _kind(step) == "Forked" and run:
            self._names[run] = self._named(self._run)
        self._run = step["run"]
        for effect in step["effects"]:
            if effect[TAG] == "CallModel":
                if again:
                    self._names[effect["id"]] = self._named(self._asked)
                self._asked = effect["id"]

    def compared(self, part: object) -> object:
        """*part* with numbers for ids, and without the fields that are left out."""
        match part:
            case dict():
                # How a provider cuts an answer into pieces differs from call to call; the text is compared.
                is_stream = part.get(TAG) == "ModelStreamed" or part.keys() == {"count", "pieces"}
                cut = {"before", "count"} if is_stream else set[str]()
                return {
                    name: self._all_named(value) if name in IDS else self.compared(value)
                    for name, value in part.items()
                    if name not in LEFT_OUT and name not in cut
                }
            case list():
                return [self.compared(each) for each in part]
            case _:
                return part

    def _all_named(self, value: object) -> object:
        # `call` is an id in some words and a whole call in others, which is compared as such.
        if isinstance(value, list):
            return [self._all_named(each) for each in value]
        return self._named(value) if isinstance(value, str) else self.compared(value)

    def _named(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = next(self._new)
        return self._names[name]


# Two versions


def _made_here(entries: Sequence[bytes], session: str) -> Iterator[Plain]:
    """The steps of *session* as this version makes them, up to the first one that it makes otherwise."""
    # A replay stops at a step that leads elsewhere than the journal says; here, that step is the finding.
    last: ReplayedStep | None = None
    try:
        for last in replayed(entries, session):
            yield as_plain(last)
    except JournalError as error:
        other = None if last is None else _otherwise(last, entries[last.number + 1], session, error)
        # Damage is no difference between two versions, so it stays an error.
        if other is None:
            raise
        yield other


def _otherwise(last: ReplayedStep, data: bytes, session: str, error: JournalError) -> Plain | None:
    """The step after *last*, made by this version; None where it is none of the machine's."""
    # From the step before: the machine of the fold has taken in the event already.
    # The fold does not hand over a step that it refuses, so it is made here once more.
    machine, entry = last.machine, decode_entry(data, f"entry {last.number + 1} of session {session!r}")
    if machine is None or not isinstance(entry, Stepped):
        return None
    step = attrs.evolve(last, number=last.number + 1, at=time_of(entry), entry=entry, before=last.state)
    try:
        made = machine.failure(entry.event, entry.failed) if entry.failed else machine.step(entry.event)
    except InternalError:
        # This version's machine fails at it: that is its step, with the error for a label.
        return {**as_plain(attrs.evolve(step, effects=())), "label": str(error), "state": None}
    return as_plain(attrs.evolve(step, state=made.state, effects=made.effects))


def _labels(step: Plain) -> tuple[Compared, Compared]:
    """*step* as the journal has it and as this version makes it, to compare by its label."""
    # A journal has labels and no states. They are all that an older version left to compare with.
    label = step["entry"]["label"]
    written = {"number": step["number"], "at": step["at"], "entry": step["entry"], "label": label}
    return (written, {"label": label}), (step, {"label": step["label"]})


def _parsed(lines: Iterable[bytes]) -> Iterator[Plain]:
    """The steps in *lines*; `JournalError` for a line that is none, and for no lines."""
    number = 0
    for number, text in enumerate(lines, 1):
        step: object = None
        # People pass the wrong file: anything that is no step is one error, with its line.
        with suppress(msgspec.MsgspecError):
            step = msgspec.json.decode(text)
        # Each part is looked for: a line of another version's replay may lack one.
        if not isinstance(step, dict) or not {"number", "entry", *MADE} <= step.keys():
            msg = f"line {number} is no step as replay --json writes it: {text[:MAX_QUOTED_LINE]!r}"
            raise JournalError(msg)
        yield cast("Plain", step)
    if not number:
        msg = "there is no step to compare with: replay --json writes one to a line"
        raise JournalError(msg)


def _beside(
    given: Iterable[Plain], here: Iterator[Plain]
) -> Iterator[tuple[Compared | None, Compared | None]]:
    """The *given* steps, and the same ones *here*."""
    # By number: the file may hold a part only, and the session may have gone on since.
    for step in given:
        made = next((made for made in here if made["number"] >= step["number"]), None)
        yield (step, _made(step)), None if made is None else (made, _made(made))


def _made(step: Plain) -> Plain:
    """The parts of *step* that two versions share; they may write the entry itself in two ways."""
    return {"step": [step["number"], _kind(step)], **{name: step[name] for name in MADE}}


def _kind(step: Plain) -> str:
    return str(step["entry"][TAG])
