"""
What a server can do to whoever asks it, and what that has to come to: an answer, or a failure with a name.

`attacks` lists them. Those of `http` are about connections, heads and lengths, those of
`body` about what an answer says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import final

import attrs

from provers.hostile_server.server import (
    END,
    STREAM,
    Answer,
    Line,
    chunked,
)
from provers.streams import Dialect, Said
from turnwheel.effects.events import Failure

PART = 64 * 1024
"""Bytes that are sent at once."""

SHOWN = 40
"""Characters of what stands in the name of an attack."""

HELLO = Said(text=("Hello", ", you"))
"""What a server says that says what it should."""

ANSWER = "end_turn"
"""The end of a run whose model answered."""

SECRET = "sk-proj-f00dfeed0123456789abcdefABCDEF"  # noqa: S105  # it opens nothing
"""The key that these servers are asked with. Some of them quote it."""


Attacker = Callable[[Dialect], Answer]
"""Who answers in a dialect."""


@final
@attrs.frozen(kw_only=True)
class Attack:
    """
    What a server does: it *answers* so in a dialect, and a run that is answered so must *end* in such a way.

    *limit*: the setting of the performer that ends it, so that one is short and no other. *heavy*: it takes
    a second. *says* is a part of what is told where it fails.
    """

    name: str
    answers: Attacker
    ends: frozenset[str]
    says: str = ""
    limit: str = ""
    heavy: bool = False


def attack(
    name: str,
    answers: Attacker,
    *ends: Failure | str,
    says: str = "",
    limit: str = "",
    heavy: bool = False,
) -> Attack:
    """The attack *name*, which may come to any of *ends*."""
    outcomes = frozenset(str(end) for end in ends)
    return Attack(name=name, answers=answers, ends=outcomes, says=says, limit=limit, heavy=heavy)


Say = Callable[[Dialect], Iterable[bytes]]
"""What is said in a dialect, in parts."""

Then = Callable[[Line], object]
"""What is done when all is said: hang up, reset, or nothing."""


def keep(_: Line) -> None:
    """Wait for the next request."""


def raw(say: Say | bytes, then: Then = Line.close, *, stalls: bool = False) -> Attacker:
    """Send what is to be said as it is, and *then* hang up; or say nothing more."""

    def answers(dialect: Dialect) -> Answer:
        async def answer(line: Line) -> None:
            await line.send_all([say] if isinstance(say, bytes) else say(dialect))
            if stalls:
                await line.stall()
            then(line)

        return answer

    return answers


def body(
    say: Say, then: Then = keep, *, head: bytes = STREAM, end: bytes = END, stalls: bool = False
) -> Attacker:
    """Send what is to be said, in chunks, between *head* and *end*, and *then* keep the connection."""

    def parts(dialect: Dialect) -> Iterator[bytes]:
        yield head
        yield from map(chunked, say(dialect))
        yield end

    return raw(parts, then, stalls=stalls)


def called(value: object) -> str:
    """*value*, short enough for a name."""
    text = value.decode("latin-1") if isinstance(value, bytes) else str(value)
    shown = repr(text[:SHOWN]) if isinstance(value, str | bytes) else text[:SHOWN]
    return shown if len(text) <= SHOWN else f"{shown}... ({len(text)})"


def hello(dialect: Dialect) -> list[bytes]:
    """All events of an answer that says hello."""
    return dialect.events(HELLO)


def begun(dialect: Dialect) -> list[bytes]:
    """The events of the same answer up to its last words."""
    return dialect.events(HELLO)[:-3]


def silent(dialect: Dialect) -> list[bytes]:
    """Those before its first word."""
    return dialect.events(HELLO)[:-5]


def last(dialect: Dialect) -> list[bytes]:
    """Those behind its last word."""
    return dialect.events(HELLO)[-3:]


def for_ever(part: bytes, before: Say = silent) -> Say:
    """*part* for ever, in parts of a good size, behind what was said *before*."""
    many = part * max(1, PART // len(part))
    return lambda dialect: itertools.chain(before(dialect), itertools.repeat(many))


def large(part: bytes, size: int) -> Iterator[bytes]:
    """About *size* bytes of *part*."""
    many = part * max(1, PART // len(part))
    return itertools.repeat(many, size // len(many) + 1)


def attacks() -> tuple[Attack, ...]:
    """All of them."""
    from provers.hostile_server.body import BODIES  # noqa: PLC0415  # they are made of what stands above
    from provers.hostile_server.http import CONNECTIONS  # noqa: PLC0415  # as above

    return (*CONNECTIONS, *BODIES)
