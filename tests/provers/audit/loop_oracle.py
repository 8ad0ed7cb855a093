"""
Whether a model goes in circles: the same rules as in `states.rules.loops`, told a second time in another way.

There the calls are walked through, the newest first, until something is found; here all that can be a circle
is gathered, and then what each asks for is weighed.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, final

import attrs

from turnwheel.effects.config import SideEffect
from turnwheel.effects.messages import Outcome, Role
from turnwheel.effects.notices import LoopStage
from turnwheel.states.rules.schema import arguments_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from turnwheel.effects.config import Config, Loops
    from turnwheel.effects.messages import Message
    from turnwheel.effects.records import WithdrawTool

STAGES = (LoopStage.WARNED, LoopStage.WITHDRAWN, LoopStage.STOPPED)
"""From the mildest to the hardest."""

FEWEST, LATEST, LONGEST = 2, 40, 5
"""How often a circle goes round and how many calls are looked at, at least; how long a cycle is, at most."""

PAGES = {"offset", "limit", "page"}
"""What a played model turns pages with."""


@final
@attrs.frozen
class Made:
    """A call of *tool* with the arguments *given*, as text, in an answer, and how it *ended* with what."""

    tool: str
    given: str
    answer: int
    ended: Outcome
    came: str

    @property
    def key(self) -> tuple[str, str]:
        """What is equal in calls that are the same."""
        return self.tool, _normal(self.given)


@lru_cache(maxsize=1_024)
def _normal(given: str) -> str:
    values = arguments_of(given)
    return given if values is None else json.dumps(values, sort_keys=True)


@final
@attrs.frozen
class Circle:
    """
    *tools* were repeated *count* times.

    *idle* is how often nothing new came of it, *same* how often one and the same call had the same result.
    *cycle*: these are several calls, one after the other.
    """

    tools: frozenset[str]
    count: int
    idle: int
    same: int = 0
    cycle: bool = False


@final
@attrs.frozen
class Due:
    """What a circle asks for: a *stage*, for *tools* that were repeated *count* times; or it is *done*."""

    stage: LoopStage
    tools: frozenset[str]
    count: int
    done: bool = False


def since_somebody_spoke(messages: Sequence[Message], loops: Loops) -> list[Made]:
    """The latest calls of *messages*, behind the last thing that somebody said; enough for all *loops*."""
    highest = max([each for each in (loops.warn, loops.withdraw, loops.stop, loops.same) if each], default=0)
    spoken = [index for index, message in enumerate(messages) if message.role is Role.USER]
    turn = messages[spoken[-1] + 1 :] if spoken else messages
    came = {result.call: result for message in turn for result in message.results}
    return [
        Made(call.name, call.arguments, answer, came[call.id].outcome, came[call.id].content)
        for answer, message in enumerate(turn)
        for call in message.calls
    ][-max(LATEST, LONGEST * highest) :]


def like(one: Made, other: Made) -> bool:
    """Whether calls of one tool are the same or similar; who turns pages does neither."""
    mine, theirs = arguments_of(one.given), arguments_of(other.given)
    if mine is None or theirs is None:
        return mine == theirs
    names = {*mine, *theirs}
    # What is left out is not what is null.
    news = {name for name in names if mine.get(name, names) != theirs.get(name, names)}
    if news and news <= PAGES:
        return False
    return 2 * len(news - PAGES) <= len(names - PAGES)


def circles(made: Sequence[Made], config: Config) -> Iterator[Circle]:
    """Every way in which the calls that the latest answer *made* are repetitions."""
    # Of the same calls in one answer the last one counts: what any of them brought is there then.
    latest = {one.key: index for index, one in enumerate(made) if one.answer == made[-1].answer}
    keys = Counter([one.key for one in made])
    same = Counter([(one.key, one.came) for one in made])
    idle = 0
    for index in sorted(latest.values()):
        one = made[index]
        idle = max([count for (key, _), count in same.items() if key == one.key])
        yield Circle(frozenset({one.tool}), keys[one.key], idle, same=idle)
        row = in_vain([before for before in made[: index + 1] if before.tool == one.tool], config)
        yield Circle(frozenset({one.tool}), row, row)
    # A cycle is as idle as the call it ends with.
    for tools, count in cycles([one.key for one in made]):
        yield Circle(tools, count, min(idle, count), cycle=True)


def in_vain(calls: Sequence[Made], config: Config) -> int:
    """In how many answers in a row the last of *calls*, all of one tool, was made alike to no avail."""
    spec = config.tool(calls[-1].tool)
    reads = spec is not None and spec.side_effect is SideEffect.READ_ONLY
    row = 0
    for start in range(len(calls) - 1, -1, -1):
        brought = {one.came for one in calls[start:] if one.ended is Outcome.OK}
        if not like(calls[start], calls[-1]) or len(brought) > reads:
            break
        row = len({one.answer for one in calls[start:]})
    return row


def cycles(keys: Sequence[tuple[str, str]]) -> Iterator[tuple[frozenset[str], int]]:
    """The cycles of several calls that *keys* end with: their tools, and how often they went round."""
    for length in range(2, min(LONGEST, len(keys) - 1) + 1):
        again = [keys[index] == keys[index - length] for index in range(length, len(keys))]
        repeated = len(again) - max([index + 1 for index, equal in enumerate(again) if not equal], default=0)
        if len(set(keys[-length:])) > 1:
            # The last round may have begun, and not be over.
            yield frozenset(tool for tool, _ in keys[-length:]), 1 + -(-repeated // length)


def due(
    messages: Sequence[Message], config: Config, withdrawn: Mapping[str, WithdrawTool], turns: int
) -> list[Due]:
    """
    What is to be done about *messages*, if they end with results: the hardest of what is not done yet.

    *withdrawn* are the tools that were taken away, the run has had *turns* turns.
    """
    if config.loops.off or not messages or messages[-1].role is not Role.TOOL:
        return []
    away = {name: one.count for name, one in withdrawn.items() if turns < one.until}
    found: dict[Due, tuple[int, bool, int, bool]] = {}
    for one in circles(since_somebody_spoke(messages, config.loops), config):
        for stage in _asks(one, config.loops) if one.count >= FEWEST else ():
            gone = all(away.get(tool, 0) >= one.count for tool in one.tools)
            ask = Due(stage, one.tools, one.count, done=stage is LoopStage.WITHDRAWN and gone)
            # Of a cycle all tools are named, where one of them would do.
            found[ask] = (
                STAGES.index(stage),
                not ask.done,
                one.count,
                one.cycle or found.get(ask, (0, 0, 0, False))[3],
            )
    hardest = max(found.values(), default=None)
    return [one for one, hardness in found.items() if hardness == hardest]


def _asks(one: Circle, loops: Loops) -> Iterator[LoopStage]:
    """All that the circle *one* asks for."""

    def reached(count: int, threshold: int | None) -> bool:
        return threshold is not None and count >= threshold

    if reached(one.count, loops.stop) or reached(one.same, loops.same):
        yield LoopStage.STOPPED
    if reached(one.idle, loops.withdraw):
        yield LoopStage.WITHDRAWN
    if reached(one.count, loops.warn):
        yield LoopStage.WARNED
