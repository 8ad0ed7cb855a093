"""Options that are more than a word: rules, prices, amounts and answers, as a command line writes them."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import final

import attrs

from ..effects.config import Grant, Price
from ..effects.events import Approve, Decision, Deny

ALL = "all"
"""Stands for every question that is open."""

_NEXT = re.compile(r",(?=\w+=)")
"""Ends an argument's glob, which may itself have commas: the next one has to follow."""


@final
@attrs.frozen
class Answer:
    """What to say to the question *request*, or to `ALL` that are open."""

    request: str
    decision: Decision


def rule(text: str) -> Grant:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; raises `ValueError` for anything else."""
    tool, colon, rest = text.partition(":")
    pairs = [part.partition("=") for part in _NEXT.split(rest)] if colon else []
    if not tool or not all(name and equals for name, equals, _ in pairs):
        msg = f"{text!r} is no rule; write TOOL or TOOL:ARGUMENT=GLOB"
        raise ValueError(msg)
    return Grant(tool=tool, where=tuple((name, glob) for name, _, glob in pairs))


def price(text: str) -> Price:
    """The price ``IN,OUT`` in USD per million tokens; raises `ValueError` for anything else."""
    try:
        told, answered = (Decimal(part) for part in text.split(","))
    except (ValueError, InvalidOperation):
        told = answered = Decimal("nan")
    if not (told.is_finite() and answered.is_finite() and told >= 0 and answered >= 0):
        msg = f"{text!r} is no price; write IN,OUT in USD per million tokens, such as 1.25,10"
        raise ValueError(msg)
    return Price(input=told, output=answered)


def amount(text: str) -> float:
    """A number more than 0; raises `ValueError` for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        msg = f"{text!r} is no number more than 0"
        raise ValueError(msg)
    return number


def approval(text: str) -> Answer:
    """A yes to ``REQUEST`` or ``all``."""
    return Answer(text, Approve())


def denial(text: str) -> Answer:
    """A no to ``REQUEST[:WHY]`` or ``all[:WHY]``."""
    request, _, why = text.partition(":")
    return Answer(request, Deny(message=why.strip()))
