"""Parse option values: rules, hooks, prices, amounts, times, and the names of calls and questions."""

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
from ...effects.permissions import ArgumentGlobs, Rule, Verdict, parse_globs, parse_rule

ALL = "all"
"""Names all open questions at once."""

_NUMBERS = re.compile(r"(?:-[0-9]+)+$")
"""The end of an id: one number, or two for a call of a child, whose run is named after a call."""

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
"""Seconds of each unit of time."""


@final
@attrs.frozen(kw_only=True)
class HookOption:
    """
    A hook from the command line: the *command* to run *at* an event, for calls of tools that match *tool*.
    """

    at: Hook
    command: tuple[str, ...]
    tool: str = "*"

    def __str__(self) -> str:
        tool = f":{self.tool}" if self.tool != "*" else ""
        return f"{self.at}{tool}={shlex.join(self.command)}"


def rule(text: str, verdict: Verdict = Verdict.ALLOW) -> Rule:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; raises `ValueError` for anything else."""
    made = parse_rule(text, verdict)
    if made is None:
        msg = f"invalid rule {text!r}; write TOOL or TOOL:ARGUMENT=GLOB"
        raise ValueError(msg)
    return made


def where(text: str) -> ArgumentGlobs:
    """The arguments of ``ARGUMENT=GLOB[,ARGUMENT=GLOB]``; raises `ValueError` for anything else."""
    pairs = parse_globs(text)
    if pairs is None:
        msg = f"invalid argument pattern {text!r}; write ARGUMENT=GLOB, such as path=docs/*.md"
        raise ValueError(msg)
    return pairs


def hook(text: str) -> HookOption:
    """The hook ``EVENT[:TOOL]=COMMAND``; raises `ValueError` for anything else."""
    event, equals, words = text.partition("=")
    at, colon, tool = event.partition(":")
    try:
        command = tuple(shlex.split(words))
    except ValueError as error:  # an unclosed quote
        msg = f"the command of {text!r} cannot be parsed: {error}"
        raise ValueError(msg) from error
    if not equals or not command or (colon and not tool):
        msg = f"invalid hook {text!r}; write EVENT=COMMAND or EVENT:TOOL=COMMAND"
        raise ValueError(msg)
    if at not in tuple(Hook):
        msg = f"unknown hook event {at!r}; there are: {', '.join(Hook)}"
        raise ValueError(msg)
    if colon and Hook(at) not in ABOUT_TOOLS:
        msg = f"{at!r} is not about a tool call; leave out :{tool}"
        raise ValueError(msg)
    return HookOption(at=Hook(at), command=command, tool=tool or "*")


def price(text: str) -> Price:
    """The price ``IN,OUT`` in USD per million tokens; raises `ValueError` for anything else."""
    try:
        input_price, output_price = (Decimal(part) for part in text.split(","))
    except (ValueError, InvalidOperation):
        input_price = output_price = Decimal("nan")
    if not (input_price.is_finite() and output_price.is_finite() and min(input_price, output_price) >= 0):
        msg = f"invalid price {text!r}; write IN,OUT in USD per million tokens, such as 1.25,10"
        raise ValueError(msg)
    return Price(input=input_price, output=output_price)


def priced_model(text: str) -> ModelSpec:
    """The model ``NAME`` or ``NAME=IN,OUT`` with its price; raises `ValueError` for anything else."""
    name, equals, cost = text.partition("=")
    if not name.strip():
        msg = f"no model name in {text!r}; write NAME or NAME=IN,OUT"
        raise ValueError(msg)
    return ModelSpec(name=name.strip(), price=price(cost) if equals else None)


def fallback(text: str) -> tuple[ModelSpec, ...]:
    """As `priced_model`; an empty *text* means no fallback model."""
    return (priced_model(text),) if text else ()


def amount(text: str) -> float:
    """A number above 0; raises `ValueError` for anything else."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        msg = f"invalid amount {text!r}; write a number above 0"
        raise ValueError(msg)
    return number


def span(text: str) -> float:
    """The seconds of a time such as ``30d``; raises `ValueError` for anything else."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})\s*([smhdw])", text.strip())
    if match is None:
        msg = f"invalid time {text!r}; write a number and s, m, h, d or w, such as 30d"
        raise ValueError(msg)
    return float(match[1]) * SECONDS[match[2]]


def thinking(text: str) -> int | None:
    """
    A number of thinking tokens, or None for ``off``, the provider's default; raises `ValueError` otherwise.
    """
    if text == "off":
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        msg = f"invalid number of thinking tokens {text!r}; write one above 0, or off"
        raise ValueError(msg)
    return int(text)


def short(name: str) -> str:
    """The name of a call or question on screen: the numbers at the end of its id."""
    match = _NUMBERS.search(name)
    return name.rpartition("-")[2] if match is None else match[0].removeprefix("-")


def resolve_name(name: str, ids: Iterable[str]) -> str | None:
    """The one of *ids* that *name* is, as an id or as shown on screen; None if none or several match."""
    there = tuple(ids)
    if name in there:
        return name
    found = [one for one in there if short(one) == name.removeprefix("#")]
    # An ambiguous number is an error, since an answer to the wrong call cannot be undone.
    return found[0] if len(found) == 1 else None


def resolve_question(name: str, calls: Mapping[str, str]) -> str | None:
    """The question that *name* means, by its own id or by its call; *calls* maps questions to calls."""
    by_call = {call: request for request, call in calls.items()}
    call = resolve_name(name, by_call)
    if call is not None:
        return by_call[call]
    # No screen shows the number of a question: a number that names no call here is a mistake.
    return name if name in calls else None
