"""The steps of a session as a person reads them, and where two part: `turnwheel replay` and `bisect`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum
from typing import Final, final

from rich.text import Text

from ...engine.inspect.bisect import Divergence, Plain
from ..terminal.sanitize import clean, one_line
from ..terminal.screen import Screen
from .event_text import told

STATE = len("executing.stopping")
"""Columns of a state; few have a longer name."""

BEFORE = len("1234  12:34:56  ") + STATE + 2
"""Columns of a line before what happened: its number, its time and the state."""

LEAST = 20
"""Columns for what happened, at the least."""

BELOW = " " * len("1234  12:34:56    ")
"""Before an effect: it stands below the state, a little set in."""

ASKED: Final = frozenset(
    {
        "CallModel",
        "RunTool",
        "AskApproval",
        "FireHook",
        "InspectCall",
        "ReadInstructions",
        "DecodeOutput",
        "RunAgent",
        "SetTimer",
    }
    | {"Cancel", "RunEnded"}
)
"""What is asked of the world, and the end."""


@final
class Shown(Enum):
    """Which effects of a step are shown: none, what is asked of the world, or all."""

    NONE = "none"
    ASKED = "asked"
    ALL = "all"


def heading(screen: Screen) -> None:
    """Say what stands in which column, to a person."""
    if screen.is_terminal:
        screen.line(f"step  {'time':<8}  {'state':<{STATE}}  what happened", "dim")


def show(step: Plain, screen: Screen, shown: Shown) -> None:
    """Write *step*: its number, its time, the state it led to and what happened; below, its effects."""
    label = clean(step["label"])
    moved = step.get("before", "") != step["label"]
    when = time.strftime("%H:%M:%S", time.localtime(step["at"]))
    room = max(LEAST, screen.width - BEFORE)
    name, said = told(step["entry"])
    screen.lines(
        Text.assemble(
            (f"{step['number']:>4}  {when}  ", "dim"),
            (f"{label:<{STATE}}  ", "bold" if moved else "dim"),
            (clean(name), "step"),
            _beside(name, said, room - max(0, len(label) - STATE)),
        )
    )
    for name, said in _effects(step, shown):
        sign = f"{BELOW}{screen.elbow} "
        beside = _beside(name, said, max(LEAST, screen.width - len(sign)))
        screen.lines(Text(sign + clean(name) + beside, style="dim"))


def _beside(name: str, said: str, room: int) -> str:
    """What is *said* beside *name*, in what that leaves of *room* columns."""
    return f" {one_line(said, max(LEAST // 2, room - len(name) - 1))}" if said.strip() else ""


def _effects(step: Plain, shown: Shown) -> Iterator[tuple[str, str]]:
    """What the effects of *step* that are *shown* are called and say; a child is told with its session."""
    for effect in step.get("effects") or ():
        name, said = told(effect)
        if name == "RunAgent":
            said = f"in session {step['session']}.{effect['call']}: {said}"
        if shown is Shown.ALL or (shown is Shown.ASKED and name in ASKED):
            yield name, said


# Where two part


def parting(found: Divergence, names: tuple[str, str], screen: Screen) -> None:
    """Write what two sides, called *names*, have in common before they part, and what each has then."""
    if found.last is None:
        screen.line("they have no step in common")
    else:
        screen.line(f"the same up to step {found.last['number']}", "dim")
        show(found.last, screen, Shown.NONE)
    at = f" in {', '.join(found.where)}" if found.where else ""
    screen.say(f"they part{at}", "bold")
    for name, step in zip(names, (found.one, found.other), strict=True):
        if step is None:
            screen.line(f"{clean(name)} ends here")
        else:
            screen.line(f"{clean(name)}, at step {step['number']}")
            show(step, screen, Shown.ALL)


def as_plain(found: Divergence) -> Plain:
    """*found* as plain data, with the steps as `turnwheel replay --json` writes them."""
    return {"last": found.last, "one": found.one, "other": found.other, "where": list(found.where)}
