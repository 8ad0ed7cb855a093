"""
Where two sessions part, or two versions of turnwheel over one session: the first step at which they do.

Theory of operation. Two journals are compared by what happened and what came of it: what each run was set up
with, each event, the state that it led to and what the machine said. Ids are compared by their place, since
every run makes up its own. Left out are times, who said something, what a provider made up, how a stream was
cut, and the entries by which nothing happens to the machine, such as that another process went on. Two
versions are compared over one journal, by what the machine made of it, and nothing of that is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count, islice, zip_longest
from typing import TYPE_CHECKING, Any, cast, final

import attrs
import msgspec

from ...effects.errors import InternalError, JournalError
from ...effects.events import Failure
from ..codec import TAG
from ..journal.encoding import decode_entry
from ..journal.entries import Stepped, time_of
from .replay import (
    ReplayedStep,
    as_plain,
    plain_entry,
    replayed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Plain = dict[str, Any]
"""A step, or a part of one, as `replay.as_plain` has it: what JSON is made of."""

LEFT_OUT = frozenset({"at", "due", "seconds", "jitter", "by", "sender", "wire_id", "signature", "next"})
"""
Fields that say when something was or how long it took, who said it, what a provider made up, and how many ids
were.
"""

IDS = frozenset({"id", "ids", "request", "run", "call"})
"""Fields that hold a name which a run or a sender made up."""

MADE = ("before", "label", "state", "effects", "spent")
"""What the machine made of a step."""

NAMED = 8
"""So many differences are named."""

SHOWN = 100
"""Bytes of a line that an error shows."""


@final
@attrs.frozen(kw_only=True)
class Divergence:
    """
    Two journals, or two versions, part at the steps *one* and *other*, after *last*, the last in common.

    Each is plain, as `replay.as_plain` has it, or None where that one has ended; *last* is the first one's,
    None where nothing is in common. *where* names what differs, such as ``event.decision.type``: of the
    event, or where that is the same of the state, or else of what the machine said.
    """

    one: Plain | None
    other: Plain | None
    last: Plain | None
    where: tuple[str, ...] = ()


def compare_sessions(
    mine: Sequence[bytes], one: str, theirs: Sequence[bytes], other: str
) -> Divergence | None:
    """
    The first step at which the journal *mine* of session *one* and *theirs* of *other* diverge, or None.

    Raises `JournalError` for what cannot be read before that.
    """
    return _divergence(zip_longest(_comparable(mine, one), _comparable(theirs, other)))


def compare_labels(entries: Sequence[bytes], session: str) -> Divergence | None:
    """The first step of *session* that leads elsewhere than its journal *entries* say, or None."""
    written = (_written(data, number, session) for number, data in enumerate(entries))
    return _divergence(zip_longest(_labels(written), _labels(_made_here(entries, session))))


def compare_steps(lines: Iterable[bytes], entries: Sequence[bytes], session: str) -> Divergence | None:
    """The first of the steps in *lines*, as `replay --json` writes them, that *entries* make differently."""
    return _divergence(_beside(_parsed(lines), _made_here(entries, session)))


Compared = tuple[Plain, Plain]
"""A step, and what is compared of it, part by part; what differs in one makes the later ones differ."""


def _divergence(steps: Iterable[tuple[Compared | None, Compared | None]]) -> Divergence | None:
    """Where *steps*, of one side and the other, are not the same."""
    last: Plain | None = None
    for one, other in steps:
        if one is None or other is None:
            return Divergence(one=one and one[0], other=other and other[0], last=last)
        if where := _where(one[1], other[1]):
            return Divergence(one=one[0], other=other[0], last=last, where=where)
        last = one[0]
    return None


def _where(one: Plain, other: Plain) -> tuple[str, ...]:
    """Where the first part of *one* that differs does so from that of *other*."""
    for name in one:
        if found := tuple(islice(_differences(one[name], other[name], name), NAMED)):
            return found
    return ()


def _differences(one: object, other: object, where: str) -> Iterator[str]:
    """Where *one* differs from *other*; what is of another kind is not looked into."""
    match one, other:
        case dict(), dict() if one.get(TAG) != other.get(TAG):
            yield f"{where}.{TAG}"
        case dict(), dict():
            for name in dict.fromkeys([*one, *other]):
                yield from _differences(one.get(name), other.get(name), f"{where}.{name}")
        case list(), list():
            for index, (a, b) in enumerate(zip_longest(one, other)):
                yield from _differences(a, b, f"{where}[{index}]")
        case _ if one != other:
            yield where
        case _:
            pass


# Two journals


def _comparable(entries: Sequence[bytes], session: str) -> Iterator[Compared]:
    """The steps of *session* at which something happened to the machine, as far as they can be compared."""
    names = _Names()
    for replayed_step in replayed(entries, session):
        step = as_plain(replayed_step)
        again = _asks_again(step)
        names.meet(step, again=again)
        if _moves(step) and not again:
            entry = step["entry"]
            parts = {"event": entry.get("event", entry), "state": step["state"], "effects": step["effects"]}
            yield step, {name: names.compared(part) for name, part in parts.items()}


def _moves(step: Plain) -> bool:
    """Whether something happens to the machine at *step*, or to how it is set up."""
    kind = _kind(step)
    return kind in {"RunOpened", "Stepped", "Branched"} or (kind == "TakenOver" and "config" in step["entry"])


def _asks_again(step: Plain) -> bool:
    """Whether *step* only asks a model what stands there already, since nobody had begun to ask it."""
    unbegun = step["entry"].get("event", {}).get("failure") == Failure.UNBEGUN
    return unbegun and {effect[TAG] for effect in step["effects"]} == {"CallModel", "ModelCalled", "UseIds"}


@final
class _Names:
    """What stands for the names that a session made up: the order in which they came."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._new = count(1)
        self._run = ""
        self._asked = ""

    def meet(self, step: Plain, *, again: bool) -> None:
        """Know what *step* gives another name: a run that was copied, and what a model is asked *again*."""
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
        """*part* without what is left out, and with what stands for names in their place."""
        match part:
            case dict():
                cut = {"before", "count"} if _is_stream(part) else set[str]()
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
        if isinstance(value, list):
            return [self._all_named(each) for each in value]
        return self._named(value) if isinstance(value, str) else self.compared(value)

    def _named(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = next(self._new)
        return self._names[name]


def _is_stream(part: Plain) -> bool:
    """Whether *part* counts the pieces of an answer, as they came."""
    return part.get(TAG) == "ModelStreamed" or part.keys() == {"count", "pieces"}


# Two versions


def _made_here(entries: Sequence[bytes], session: str) -> Iterator[Plain]:
    """The steps of *session* as this version makes them, up to the first one that it makes otherwise."""
    last: ReplayedStep | None = None
    steps = replayed(entries, session)
    while True:
        try:
            last = next(steps)
        except StopIteration:
            return
        except JournalError as error:
            number = 0 if last is None else last.number + 1
            other = None if last is None else _otherwise(last, entries[number], error)
            if other is None:
                raise
            yield other
            return
        yield as_plain(last)


def _otherwise(last: ReplayedStep, data: bytes, error: JournalError) -> Plain | None:
    """The step after *last*, where it leads elsewhere here; None where it is none of the machine's."""
    machine, entry = last.machine, decode_entry(data)
    if machine is None or not isinstance(entry, Stepped):
        return None
    step = attrs.evolve(last, number=last.number + 1, at=time_of(entry), entry=entry, before=last.state)
    try:
        effects = machine.advance(entry.event)
    except InternalError:
        return {**as_plain(attrs.evolve(step, effects=())), "label": str(error), "state": None}
    return as_plain(attrs.evolve(step, state=machine.state, memory=machine.memory, effects=effects))


def _written(data: bytes, number: int, session: str) -> Plain:
    """What an entry says of its step: no more than what happened and which state that led to."""
    entry = decode_entry(data, f"entry {number} of session {session!r}")
    label = entry.label if isinstance(entry, Stepped) else ""
    return {"number": number, "at": time_of(entry), "entry": plain_entry(entry), "label": label}


def _labels(steps: Iterable[Plain]) -> Iterator[Compared]:
    """Those of *steps* of which a journal says which state they led to."""
    for step in steps:
        if _kind(step) == "Stepped":
            yield step, {"label": step["label"]}


def _parsed(lines: Iterable[bytes]) -> Iterator[Plain]:
    """The steps that *lines* tell; `JournalError` for one that tells none, and where there is none."""
    number = 0
    for number, text in enumerate(lines, 1):
        step: object = None
        with suppress(msgspec.MsgspecError):
            step = msgspec.json.decode(text)
        if not isinstance(step, dict) or not {"number", "entry", *MADE} <= step.keys():
            msg = f"line {number} is no step as replay --json writes it: {text[:SHOWN]!r}"
            raise JournalError(msg)
        yield cast("Plain", step)
    if not number:
        msg = "there is no step to compare with: replay --json writes one to a line"
        raise JournalError(msg)


def _beside(
    told: Iterable[Plain], here: Iterator[Plain]
) -> Iterator[tuple[Compared | None, Compared | None]]:
    """What was *told*, and the same steps *here*: only a part may have been, or the session has gone on."""
    for step in told:
        made = next((made for made in here if made["number"] >= step["number"]), None)
        yield (step, _made(step)), None if made is None else (made, _made(made))


def _made(step: Plain) -> Plain:
    """What of *step* two versions have in common, which may write the entry itself in two ways."""
    return {"step": [step["number"], _kind(step)], **{name: step[name] for name in MADE}}


def _kind(step: Plain) -> str:
    return str(step["entry"][TAG])
