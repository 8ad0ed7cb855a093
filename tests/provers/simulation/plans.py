"""
What a player tends to do, and where it looks twice.

These weights decide how many runs it takes until every row of the table was taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from turnwheel.effects.requests import (
    AskApproval,
    FireHook,
    Request,
    RunAgent,
    RunTool,
    SetTimer,
)

RARE = {
    "thinking.reading": 150,
    "thinking.opening": 100,
    "thinking.admitting": 50,
    "thinking.ending": 400,
    "thinking.retry": 250,
    "thinking.decoding": 60,
    "compacting.consulting": 400,
    "compacting.summary": 400,
    "compacting.pausing": 600,
    "compacting.stopping": 600,
    "streaming": 8,
    "streaming.stopping": 50,
    "executing": 20,
    "executing.stopping": 400,
    "confirming": 60,
    "confirming.stopping": 800,
    "dispatching": 50,
    "dispatching.stopping": 150,
}
"""
Labels of states that few runs get into: while one is there, so many glances are taken at what may follow, in
percent.
"""

WANTED = 60
"""The same while a model is asked for an output: only few runs come to one."""

MIXED = (0, 0, 1, 4)
"""So many more while calls of a batch are in none, one, two, or more phases at once."""

USUAL: Mapping[str, int] = {
    "answer": 72,
    "stray": 8,
    "interrupt": 2,
    "steer": 3,
    "prompt": 3,
    "control": 3,
    "progress": 4,
    "cancel": 5,
    "withdraw": 8,
    "reconfigure": 1,
    "crash": 2,
}
"""How often each move is made."""

GLANCE: Mapping[str, int] = {**dict.fromkeys(USUAL, 10), "answer": 50, "stray": 5}
"""The same for a glance, which need not lead anywhere."""

Plans = Mapping[tuple[str, ...], int]
"""Moves that follow each other, and how likely they are."""

PLANS: Plans = {("",): 35, ("", ""): 15, ("", "", ""): 8, ("steer", "answer"): 5}
"""What is done in a glance: nothing means anything."""

SAID: Plans = {
    ("prompt",): 14,
    ("steer",): 14,
    ("control",): 14,
    ("prompt", "withdraw"): 10,
    ("withdraw", "answer"): 10,
    ("interrupt",): 10,
    ("progress",): 4,
}
STOPPED: Plans = {("give up",): 60, ("cancel",): 20, ("hook",): 40, ("steer",): 25, ("progress",): 10}
PLANS_THERE: Mapping[str, Plans] = {
    **dict.fromkeys(("thinking.reading", "thinking.opening", "thinking.admitting", "thinking.ending"), SAID),
    **dict.fromkeys(("compacting.consulting", "compacting.stopping"), SAID),
    "streaming": {
        ("hurry", "withdraw", "answer"): 6,
        ("later", "last words", "withdraw"): 20,
        ("later", "last words", "hook"): 25,
        ("last words", "spend", "work"): 15,
        ("last words", "squander", "work"): 15,
    },
    "thinking.decoding": SAID,
    "compacting.pausing": {**SAID, ("hurry",): 30},
    "thinking.retry": {**SAID, ("hurry",): 40},
    "executing": {
        ("plan only", "work"): 20,
        ("cancel",): 15,
        ("hook",): 15,
        ("side by side", "cancel"): 15,
        ("spend", "work"): 8,
        ("spend", "work", "hook"): 8,
    },
    "executing.stopping": STOPPED,
    "confirming": {
        ("cancel",): 5,
        ("spend",): 20,
        ("no", "spend"): 15,
        ("no skips nothing", "late"): 10,
        ("yes", "no skips nothing", "late"): 10,
        ("no", "squander"): 10,
        ("squander",): 15,
        ("yes", "end"): 10,
        ("yes", "yes", "end"): 10,
        ("yes", "yes", "no to all", "give up"): 70,
        ("yes", "yes", "no to all", "hook", "work"): 25,
        ("look at all", "yes", "yes", "no to all", "caught"): 60,
        ("yes", "yes", "no to all", "lost is told", "crash"): 40,
        ("yes", "yes", "no to all", "lost is asked", "crash"): 20,
        ("yes", "yes", "no", "hook"): 12,
        ("yes", "yes", "no", "end"): 30,
        ("yes", "yes", "yes", "no", "end"): 30,
    },
    "confirming.stopping": {
        **STOPPED,
        ("spend",): 40,
        ("squander",): 40,
        ("late",): 20,
        ("end",): 50,
        ("no is the end", "late"): 15,
    },
    "dispatching": {
        ("progress", "interrupt", "interrupt"): 20,
        ("cancel",): 15,
        ("spend",): 20,
        ("squander",): 30,
        ("squander", "answer"): 15,
        ("squander", "end"): 20,
        ("squander", "work"): 10,
        ("ask again", "work"): 60,
        ("plan only", "work"): 15,
        ("side by side", "cancel"): 40,
    },
    "dispatching.stopping": {("hook",): 10, ("progress",): 10},
}
"""The same for glances from states where something rare may follow that nothing else leads to often."""

CRASHES: Plans = {
    ("lost is told", "crash"): 50,
    ("lost is asked", "crash"): 20,
    ("lost is asked", "crash", "yes"): 10,
    ("lost is asked", "crash", "no"): 10,
    ("lost is asked", "crash", "answer", "crash"): 10,
}
"""The same while a tool is at work that must not run twice unknowingly."""

MOODS: Mapping[str, tuple[int, Mapping[str, int]]] = {
    "calm": (35, {}),
    "hasty": (20, {"interrupt": 12}),
    "patient": (15, {"interrupt": 0}),
    "picky": (12, {"cancel": 18}),
    "chatty": (10, {"steer": 9, "prompt": 9, "control": 9, "progress": 9}),
    "restless": (8, {"reconfigure": 14, "cancel": 12}),
}
"""What a world is like, how likely, and what happens more often in it."""

HASTE: Sequence[Mapping[type[Request], int]] = (
    {},
    {AskApproval: 6, FireHook: 6, SetTimer: 3},
    {AskApproval: 9, RunTool: 3, RunAgent: 3, SetTimer: 3},
)
"""How soon what is asked is answered, by kinds of worlds: all alike, work takes long, or hooks do."""

SESSION_MOVES: Mapping[str, int] = {
    "run": 16,
    "resume": 18,
    "approve": 16,
    "send": 10,
    "steer": 8,
    "control": 6,
    "give up": 5,
    "interrupt": 5,
    "cancel": 8,
    "close": 5,
    "drain": 7,
    "second": 8,
    "branch": 5,
    "fork": 3,
    "nap": 10,
}
"""How often each move is made by whoever plays with sessions."""
