"""`turnwheel sessions`: print the stored sessions, children and forks below the session they come from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from ....engine.inspect.listing import Listed
from ....engine.journal.summary import SessionStatus, SessionSummary
from ...terminal.call_summary import number
from ...terminal.screen import INDENT, Screen
from ...terminal.spend_format import cell, figures
from .columns import id_cell, show

SESSION_HEADINGS = ("session", "state", "runs", "tokens", "cost", "active", "title")

SESSION_NUMBERS = ("runs", "tokens", "cost")
"""The right-aligned columns."""

UNFINISHED = "unfinished"
"""The state of a session, or a run, that is not over and rests on no question."""

_AGES = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def family_order(found: Sequence[Listed]) -> Iterator[tuple[int, Listed]]:
    """
    The sorted sessions *found*, each with its depth: children and forks follow their session.

    A family stands where its first member would.
    """
    known = {one.session: one for one in found}
    below: dict[str, list[Listed]] = {}
    for one in found:
        below.setdefault(one.about.parent, []).append(one)
    seen: set[str] = set()
    for one in found:
        waiting = [(0, _family_root(one, known))]
        while waiting:
            depth, next_one = waiting.pop()
            if next_one.session not in seen:
                seen.add(next_one.session)
                yield depth, next_one
                waiting += [(depth + 1, child) for child in reversed(below.get(next_one.session, []))]


def _family_root(one: Listed, known: Mapping[str, Listed]) -> Listed:
    """The root of the family of *one*. An id may be used again, so a cycle ends the search."""
    passed = {one.session}
    while (parent := known.get(one.about.parent)) is not None and parent.session not in passed:
        one = parent
        passed.add(one.session)
    return one


def listing(found: Sequence[Listed], screen: Screen) -> None:
    """Print *found* in columns."""
    if not found:
        screen.line("no sessions yet", "dim")
        return
    rows = [_cells(depth, one, screen) for depth, one in family_order(found)]
    show(SESSION_HEADINGS, rows, screen, SESSION_NUMBERS)


def _cells(depth: int, one: Listed, screen: Screen) -> tuple[str, ...]:
    about = one.about
    return (
        INDENT * depth + id_cell(one.session, screen),
        state_of(about),
        str(about.runs),
        f"{about.spent.usage.total:,}",
        cell(about.spent),
        age(time.time() - one.updated),
        about.title or about.agent,
    )


def state_of(about: SessionSummary) -> str:
    """The state of a session in a word or two."""
    match about.state:
        case SessionStatus.RESTING:
            return f"rests on {number(about.questions, 'question')}"
        case SessionStatus.UNREADABLE:
            return "cannot be read"
        case SessionStatus.IDLE if about.reason is not None:
            return f"done: {about.reason}"
        case SessionStatus.IDLE:
            return "at its beginning"
        case SessionStatus.UNFINISHED:
            return UNFINISHED


def as_plain(one: Listed) -> dict[str, object]:
    """*one* as JSON data; its times are in seconds since the epoch."""
    about = one.about
    return {
        "session": one.session,
        "kind": about.kind.value,
        "parent": about.parent,
        "title": about.title,
        "agent": about.agent,
        "state": about.state.value,
        "questions": about.questions,
        "reason": None if about.reason is None else about.reason.value,
        "runs": about.runs,
        "messages": about.messages,
        **figures(about.spent),
        "cwd": about.cwd,
        "created": one.created,
        "updated": one.updated,
    }


def age(seconds: float) -> str:
    """*seconds* as an age, such as ``3 hours ago``."""
    for unit, name in _AGES:
        if seconds >= unit:
            return f"{number(int(seconds // unit), name)} ago"
    return "just now"
