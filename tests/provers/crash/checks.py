"""
What must hold of a life that was ended with -9 again and again: its store is held against what was noted.

Theory of operation. The notes were written by the world and not by us: each start and end of a tool, each
whole answer of the model, each question that was put to somebody, each input that was accepted. The journals
say what we believe of all that. Both are read by a process that took no part, and nothing is compared but
these two, and the conversation with that of a life that nobody disturbed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from provers.audit.journals import journal_faults
from provers.crash.script import (
    ORDERS,
    PRICE,
    PROMPTS,
    SESSION,
    THOUGHT,
)
from provers.crash.trail import (
    UNSAFE,
    Note,
    Remains,
    Shape,
    Trail,
)
from provers.invariants import state_faults
from turnwheel.effects.events import ControlReceived
from turnwheel.effects.messages import Outcome
from turnwheel.effects.records import SetThinking
from turnwheel.effects.usage import Usage, cost

SAID = {*PROMPTS, "steer", "third"}
"""What is said to the session, by the senders' own ids."""

ASKED = "pay"
"""The tool that somebody has to say yes to."""


def life_faults(
    remains: Remains, undisturbed: list[Shape], title: str, *, overtaken: bool = False
) -> Iterator[str]:
    """
    What is wrong with a life of which this *remains*, where an *undisturbed* one has those conversations.

    *title* is what its session is to be called, empty where that is not promised. *overtaken*: one of its
    processes slept while others went on.
    """
    yield from remains.faults
    yield from [note["says"] for note in remains.of("fault")]
    if SESSION not in remains.trails:
        yield "the session is gone"
        return
    if remains.shapes != undisturbed:
        yield from _differences(remains.shapes, undisturbed)
    if remains.main.kept.folded.title != title and title:
        yield f"it is called {remains.main.kept.folded.title!r}, not {title!r}"
    for trail in remains.trails.values():
        yield from _session_faults(trail, remains, overtaken=overtaken)
        yield from _told_faults(trail, remains)
    yield from _order_faults(remains)
    yield from _money_faults(remains)
    yield from _question_faults(remains)
    yield from _tools_faults(remains, overtaken=overtaken)


def gentle_faults(remains: Remains) -> Iterator[str]:
    """Whether anything was done twice, or is lost, although every process ended what it had begun."""
    for trail in remains.trails.values():
        yield from [f"{trail.tools[key].tool} is said to be lost" for key in trail.doubted]
        yield from [f"the answer to {request} is said to be lost" for request in trail.lost]
    for key, notes in _by(remains.of("tool"), "key").items():
        if len(notes) > 1:
            yield f"{notes[0]['tool']} began {len(notes)} times under {key}"


def _differences(shapes: list[Shape], undisturbed: list[Shape]) -> Iterator[str]:
    if len(shapes) != len(undisturbed):
        yield f"there are {len(shapes)} sessions, undisturbed {len(undisturbed)}"
    for shape, due in zip(shapes, undisturbed, strict=False):
        for number, (one, other) in enumerate(zip(shape, due, strict=False)):
            if one != other:
                yield f"message {number} is {one}, undisturbed {other}"
                break
        else:
            if len(shape) != len(due):
                yield f"it says {len(shape)} things, undisturbed {len(due)}: {shape[len(due) :]}"


def _session_faults(trail: Trail, remains: Remains, *, overtaken: bool) -> Iterator[str]:
    """
    Whether a session is at its end, and its journal in order.

    Who was *overtaken* may have changed a setting afterwards, which waits for the next run.
    """
    session, machine = trail.session, trail.kept.folded.machine
    accepted = {note["id"] for note in remains.of("accepted")} if session == SESSION else set[str]()
    if session == SESSION and accepted != SAID:
        yield f"accepted were {sorted(accepted)}"
    yield from journal_faults(trail.kept, accepted, over=True)
    if machine is None:
        yield f"{session!r} never began"
        return
    yield from state_faults(machine.state, machine.memory)
    waits = [
        event for event in trail.kept.folded.posted if not (overtaken and isinstance(event, ControlReceived))
    ]
    if not machine.done or waits:
        yield f"{session!r} is not over: {machine}, {waits}"
    for (what, run), count in trail.runs.items():
        if count != 1:
            yield f"the {what} of run {run} is there {count} times"


def _order_faults(remains: Remains) -> Iterator[str]:
    """Whether what was ordered is what was done, and nothing began to which somebody said no."""
    ordered = {note["id"] for note in remains.of("ordered")} - {"interrupt"}  # in some lives it is not kept
    if ordered != ORDERS:
        yield f"ordered were {sorted(ordered)}"
    machine = remains.main.kept.folded.machine
    if machine is not None and machine.memory.session.thinking != SetThinking(tokens=THOUGHT):
        yield f"{THOUGHT} tokens were to be thought, it is {machine.memory.session.thinking}"
    for trail in remains.trails.values():
        begun = {note["call"] for note in remains.of("tool", trail.session)}
        yield from [f"{call} began, although somebody said no" for call in sorted(begun & trail.denied)]


def _told_faults(trail: Trail, remains: Remains) -> Iterator[str]:
    """Whether what was told to whoever watched, and asked of hooks, is what is kept."""
    for what in ("start", "end"):
        told = Counter(note["run"] for note in remains.of(what, trail.session))
        for run, count in told.items():
            if count > 1 or not trail.runs[what, run]:
                yield f"the {what} of run {run} was told {count} times, kept {trail.runs[what, run]} times"
    for note in remains.of("end", trail.session):
        if trail.outputs.get(note["run"]) != note["output"]:
            yield f"told was {note}, kept is the output {trail.outputs.get(note['run'])!r}"
    for note in remains.of("told", trail.session):
        if trail.told.get(note["call"]) != note["outcome"]:
            yield f"told was {note}, kept is {trail.told.get(note['call'])}"
    looked = {note["call"] for note in remains.of("hook", trail.session) if note["hook"] == "post_tool_use"}
    yield from [f"no hook saw {call}" for call in trail.kept.ran - looked]
    for timer, notes in _by(remains.of("timer", trail.session), "request").items():
        due = {note["due"] for note in notes}
        if len(due) != 1 or trail.fired.get(timer, 0.0) < max(due):
            yield f"timer {timer} is due at {due} and fired at {trail.fired.get(timer)}"


def _money_faults(remains: Remains) -> Iterator[str]:
    """
    Whether every answer that a journal has is paid for, and every other one is known to be lost.

    An answer may be missing from the account only where it never reached the journal: then the journal says
    that its request was lost with the process, and the account has an estimate for it; or it was the title's,
    which is asked beside the runs.
    """
    paid = sum([trail.paid for trail in remains.trails.values()], Usage())
    spent = remains.main.kept.folded.spent
    if spent.usage.total - spent.usage.estimated != paid.total:
        yield f"answers for {paid} are kept, the account says {spent.usage}"
    if spent.cost != cost(spent.usage, PRICE):
        yield f"the account says {spent.cost}, {spent.usage} cost {cost(spent.usage, PRICE)}"
    for trail in remains.trails.values():
        yield from [f"{request} was lost, and costs nothing" for request in trail.unpaid]
        given = _by(remains.of("answer", trail.session), "request")
        for request in given.keys() | trail.answers.keys():
            said = [note["used"] for note in given.get(request, [])]
            kept, lost = trail.answers.get(request, []), trail.lost[request]
            if len(kept) > 1 or not set(kept) <= set(said) or len(said) > len(kept) + lost:
                yield f"{request} was answered for {said}, kept are {kept}, known to be lost {lost}"


def _question_faults(remains: Remains) -> Iterator[str]:
    """Whether nobody was asked what was answered before: at most once by a process, and never after."""
    known = {note["process"]: note["settled"] for note in remains.of("process")}
    asked = Counter((note["process"], note["request"]) for note in remains.of("asked"))
    for (process, request), count in asked.items():
        if count > 1:
            yield f"{request} is asked {count} times by process {process}"
        if request in known[process]:
            yield f"{request} is asked again by process {process} although its answer was kept"


def _tools_faults(remains: Remains, *, overtaken: bool) -> Iterator[str]:
    """
    Whether each tool was run as its side effect allows, and only what a journal says was to be run.

    A process that was *overtaken* may still have ended what it had begun, of which others think it is lost.
    """
    starts, ends = _by(remains.of("tool"), "key"), _by(remains.of("ran"), "key")
    for trail in remains.trails.values():
        for key in trail.tools:
            yield from _tool_faults(key, starts.pop(key, []), len(ends.get(key, [])), trail)
        for call in {request.call for request in trail.tools.values()}:
            yield from _call_faults(call, ends, trail, overtaken=overtaken)
    yield from [f"{notes[0]['tool']} runs under {key}, unknown" for key, notes in starts.items()]


def _tool_faults(key: str, starts: list[Note], ends: int, trail: Trail) -> Iterator[str]:
    """Whether what *trail* says of the tool with this *key* is what the world saw of it."""
    request, outcome = trail.tools[key], trail.outcome(key)
    unsafe = request.tool in UNSAFE
    for number, note in enumerate(sorted(starts, key=_known)):
        yield from _start_faults(note, number, trail)
    known = outcome is Outcome.OK and ends
    if not (known or (unsafe and outcome is Outcome.UNKNOWN)) or (unsafe and len(starts) > 1):
        yield f"{request.tool} began {len(starts)} times under {key} and ended {ends} times: {outcome}"


def _call_faults(call: str, ends: dict[str, list[Note]], trail: Trail, *, overtaken: bool) -> Iterator[str]:
    """
    Whether *call* has one key, or for each other one somebody said that it is to run again.

    And whether what was told of it is what became of it the last time.
    """
    keys = [key for key, request in trail.tools.items() if request.call == call]
    if trail.told.get(call) != trail.outcome(keys[-1]):
        yield f"{call} is told to be {trail.told.get(call)}, and was {trail.outcome(keys[-1])}"
    tool = trail.tools[keys[0]].tool
    asked = len(trail.allowed.get(call, [])) - (tool == ASKED)
    if len(keys) > 1 + max(0, asked):
        yield f"{tool} was to run under {keys}, and {asked} times somebody said again"
    ran = sum(len(ends.get(key, [])) for key in keys)
    if tool in UNSAFE and ran > 1 and not overtaken:
        yield f"{tool} ran {ran} times, under {keys}"


def _start_faults(note: Note, before: int, trail: Trail) -> Iterator[str]:
    """Whether the journal knew of a start when it came, and who starts again had taken over first."""
    key, known = note["key"], note["known"]
    if known >= len(trail.open) or key not in trail.open[known]:
        yield f"{note['tool']} was begun after {known} entries, which have nothing of {key}"
    if sum(claim < known for claim in trail.claims) <= before:
        yield f"{note['tool']} was begun {before + 1} times under {key}, and nobody took over in between"
    if note["tool"] == ASKED and not any(yes < known for yes in trail.allowed.get(note["call"], [])):
        yield f"{note['tool']} was begun under {key}, and nobody had said yes"


def _known(note: Note) -> int:
    """How many entries the process knew of that noted *note*."""
    known: int = note["known"]
    return known


def _by(notes: list[Note], key: str) -> dict[str, list[Note]]:
    found: dict[str, list[Note]] = {}
    for note in notes:
        found.setdefault(note[key], []).append(note)
    return found
