"""Options that are more than a word: rules, hooks, prices, amounts, as a command line writes them."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import final

import attrs

from ...effects.config import ModelSpec, Price
from ...effects.hooks import ABOUT_TOOLS, Hook
from ...effects.permissions import Rule, Verdict
from ...settings import areas

ALL = "all"
"""Stands for every question that is open."""

_NUMBERS = re.compile(r"(?:-[0-9]+)+$")
"""Stand at the end of an id: one number, or two where it is a child's, whose run is named after a call."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
"""How long the units of a span of time are."""


@final
@attrs.frozen(kw_only=True)
class HookOption:
    """A hook as a command line tells it: the *command* to run *at* a place, for calls of *tool*, a glob."""

    at: Hook
    command: tuple[str, ...]
    tool: str = "*"

    def __str__(self) -> str:
        tool = f":{self.tool}" if self.tool != "*" else ""
        return f"{self.at}{tool}={shlex.join(self.command)}"


def rule(text: str, verdict: Verdict = Verdict.ALLOW) -> Rule:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; raises `ValueError` for anything else."""
    made = areas.rule(text, verdict)
    if made is None:
        msg = f"{text!r} is no rule; write TOOL or TOOL:ARGUMENT=GLOB"
        raise ValueError(msg)
    return made


def where(text: str) -> areas.Where:
    """The arguments of ``ARGUMENT=GLOB[,ARGUMENT=GLOB]``; raises `ValueError` for anything else."""
    pairs = areas.pairs(text)
    if pairs is None:
        msg = f"{text!r} says nothing of arguments; write ARGUMENT=GLOB, such as path=docs/*.md"
        raise ValueError(msg)
    return pairs


def hook(text: str) -> HookOption:
    """The hook ``EVENT[:TOOL]=COMMAND``; raises `ValueError` for anything else."""
    place, equals, told = text.partition("=")
    at, colon, tool = place.partition(":")
    try:
        command = tuple(shlex.split(told))
    except ValueError as error:  # a quote is open
        msg = f"the command of {text!r} cannot be read: {error}"
        raise ValueError(msg) from error
    if not equals or not command or (colon and not tool):
        msg = f"{text!r} is no hook; write EVENT=COMMAND or EVENT:TOOL=COMMAND"
        raise ValueError(msg)
    if at not in tuple(Hook):
        msg = f"there is no hook {at!r}; there are: {', '.join(Hook)}"
        raise ValueError(msg)
    if colon and Hook(at) not in ABOUT_TOOLS:
        msg = f"{at!r} is about no call; leave out :{tool}"
        raise ValueError(msg)
    return HookOption(at=Hook(at), command=command, tool=tool or "*")


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


def priced_model(text: str) -> ModelSpec:
    """The model ``NAME`` or ``NAME=IN,OUT``, the latter its price; raises `ValueError` for anything else."""
    name, equals, told = text.partition("=")
    if not name.strip():
        msg = f"{text!r} names no model; write NAME or NAME=IN,OUT"
        raise ValueError(msg)
    return ModelSpec(name=name.strip(), price=price(told) if equals else None)


def fallback(text: str) -> tuple[ModelSpec, ...]:
    """As `priced_model`; no model where *text* is empty."""
    return (priced_model(text),) if text else ()


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


def span(text: str) -> float:
    """The seconds of a time such as ``30d``; raises `ValueError` for anything else."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})\s*([smhdw])", text.strip())
    if match is None:
        msg = f"{text!r} is no span of time; write a number and s, m, h, d or w, such as 30d"
        raise ValueError(msg)
    return float(match[1]) * SECONDS[match[2]]


def thinking(text: str) -> int | None:
    """A number of tokens to think, or ``off`` for the provider's own way; raises `ValueError` otherwise."""
    if text == "off":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        msg = f"{text!r} is no number of tokens to think; write one above 0, or off"
        raise ValueError(msg)
    return int(text)


def short(name: str) -> str:
    """What a call or question is called on screen: the numbers at the end of its id."""
    match = _NUMBERS.search(name)
    return name.rpartition("-")[2] if match is None else match[0].removeprefix("-")


def resolve_name(name: str, ids: Iterable[str]) -> str | None:
    """The one of *ids* that *name* is, or that is called so on screen; None where that is not sure."""
    there = tuple(ids)
    if name in there:
        return name
    found = [one for one in there if short(one) == name.removeprefix("#")]
    return found[0] if len(found) == 1 else None


def resolve_question(name: str, calls: Mapping[str, str]) -> str | None:
    """Which question is meant by *name*, which is its own or its call's; *calls* has the call of each."""
    by_call = {call: request for request, call in calls.items()}
    call = resolve_name(name, by_call)
    return resolve_name(name, calls) if call is None else by_call[call]
