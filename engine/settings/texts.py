"""What a setting may be written as, in one line of text: a rule."""

from __future__ import annotations

import re

from ...effects.permissions import Rule, Verdict

Where = tuple[tuple[str, str], ...]
"""For each named argument a glob, as a `Rule` has them."""

_NEXT = re.compile(r",(?=\w+=)")
"""Ends an argument's glob, which may itself have commas: the next one has to follow."""


def pairs(text: str) -> Where | None:
    """The arguments of ``ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for anything else."""
    parts = [part.partition("=") for part in _NEXT.split(text)]
    if not all(name and equals for name, equals, _ in parts):
        return None
    return tuple([(name, glob) for name, _, glob in parts])


def rule(text: str, verdict: Verdict) -> Rule | None:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for anything else."""
    tool, colon, rest = text.partition(":")
    where = pairs(rest) if colon else ()
    if not tool.strip() or where is None:
        return None
    return Rule(verdict=verdict, tool=tool, where=where)


def judged_rule(text: str) -> Rule | None:
    """The rule that a verdict stands before, as `Rule` itself is written; None for anything else."""
    verdict, _, rest = text.strip().partition(" ")
    return rule(rest.strip(), Verdict(verdict)) if verdict in tuple(Verdict) else None
