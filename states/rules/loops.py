"""Whether a model goes in circles."""

# Theory of operation. What the latest answer called is compared with the calls before it, back to where
# a person last said something: a model that has gone on to something else is not in a circle any more.
# Three things are repetitions:
#
# - The same call: a tool with equal arguments, whatever stands between and whatever came of it.
# - A similar call that brings nothing new, again and again: at least half of its arguments are equal, and it
#   failed each time or read the same.
# - A cycle: the same few calls over and over. Each of them is the same call, too; here all of them are named.
#
# A summary is no word of a person's. The calls that it stands for are remembered beside it, and count on.
#
# A call that differs only in where a page begins or ends is no repetition but reading on. A model is told
# of any repetition, but a tool is only taken away for those that bring nothing new: to run the tests again
# after each change is work.

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import final

import attrs

from ...effects.config import Config, Loops, SideEffect
from ...effects.history import History
from ...effects.messages import Message, Outcome, Part, Role, ToolCall, ToolResult
from ...effects.notices import LoopDetected, LoopStage
from ...effects.records import WithdrawTool
from .model_messages import count
from .schema import arguments_of

# When two calls of one tool are alike, by their arguments.


# The share of the arguments that are equal in calls that are similar.
SHARE = 0.5

# Characters of arguments that are read; longer ones are only compared as they stand.
# They are contents rather than parameters, and what is read is remembered.
LONG_ARGUMENTS = 1_000

# Arguments that turn pages.
PAGES = frozenset(
    {
        *("offset", "limit", "page", "start_line", "end_line", "cursor", "after", "before"),
        *("next_page_token", "page_token", "skip"),
    }
)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


# Made once: `json.dumps` would make one for every value.
_encode = json.JSONEncoder(sort_keys=True).encode
_with_whole_numbers = json.JSONDecoder(parse_float=_number).decode


def alike(one: str, other: str) -> bool:
    """Whether calls with these arguments are the same or similar; turning pages is neither."""
    # Similar they are by what else they are told: many a call has the same limit.
    if one == other:
        return True
    if len(one) > LONG_ARGUMENTS or len(other) > LONG_ARGUMENTS:
        return False
    mine, theirs = _values(one), _values(other)
    if mine is None or theirs is None:
        return mine is theirs  # neither is what a tool takes
    names = mine.keys() | theirs.keys()
    differing = {name for name in names if mine.get(name) != theirs.get(name)}
    # Equal but for the page: reading on, however often. Equal in all: the same call, written in another
    # order.
    if differing <= PAGES:
        return not differing
    names -= PAGES
    return len(names - differing) >= SHARE * len(names)


@lru_cache(maxsize=1_024)
def canonical(arguments: str) -> str:
    """*arguments*, which are not `LONG_ARGUMENTS`, in a form in which those that mean the same are equal."""
    values = _values(arguments)
    return arguments if values is None else repr(sorted(values.items()))


@lru_cache(maxsize=1_024)
def _values(arguments: str) -> Mapping[str, str] | None:
    """The JSON text of each of *arguments*; None where they are no JSON object."""
    # The same texts come by at each turn.
    values = arguments_of(arguments)
    if values is None:
        return None
    # Read once more for its numbers: 3.0 and 3 are one argument.
    return {name: _encode(value) for name, value in _with_whole_numbers(_encode(values)).items()}


# Calls that are looked at, at least.
WINDOW = 40

# Calls of the longest cycle that is looked for.
LONGEST_CYCLE = 5

# Repetitions below which nothing is one.
FEWEST = 2

# What may be done, the hardest first.
HARDEST = (LoopStage.STOPPED, LoopStage.WITHDRAWN, LoopStage.WARNED)

# A call that was made, and the message with the results of its answer.
Made = tuple[ToolCall, Message]

# A tool and its arguments, of which those that mean the same are equal.
CallKey = tuple[str, str]


@final
@attrs.frozen(kw_only=True)
class Repeated:
    """
    *tools* were called alike *count* times.

    *idle* is how often nothing new came of it, and *same* how often the very same call had the same result.
    """

    tools: tuple[str, ...]
    count: int
    idle: int
    same: int = 0


@final
@attrs.frozen(kw_only=True)
class Loop:
    """
    A loop, and what is done about it, as watchers learn it from *notice*.

    *done* says that it was done when this count was reached: the tools are away.
    """

    notice: LoopDetected
    done: bool = False

    @property
    def acts(self) -> bool:
        """Whether something is to be done about it now, besides telling the model."""
        return not self.done and self.notice.stage is not LoopStage.WARNED


def found(
    history: History,
    config: Config,
    withdrawn: Sequence[WithdrawTool],
    turns: int,
    at: float,
    summarised: Sequence[Message] = (),
) -> Loop | None:
    """
    What the calls at the end of *history* repeat, and what is done about the worst of it; None for nothing.

    The run has had *turns* turns, and *withdrawn* were taken away in some of them. The notice of it is of the
    time *at*. *summarised* is what `remembered` gave for the summary that *history* begins with.
    """
    loops = config.loops
    # Looked for only right behind results. After a person's words the model deserves a fresh start.
    if loops.off or not history.length or history[-1].role is not Role.TOOL:
        return None
    judged: list[Loop] = []
    for each in repeated(latest(history, window(loops), summarised), config):
        stage = stage_of(each, loops)
        if stage is not None:
            done = stage is LoopStage.WITHDRAWN and _are_away(each, withdrawn, turns)
            text = explained(each, stage, loops)
            notice = LoopDetected(stage=stage, tools=each.tools, count=each.count, text=text, at=at)
            judged.append(Loop(notice=notice, done=done))
    # What is done about one of them is not all that is to be done.
    return min(judged, key=lambda loop: (HARDEST.index(loop.notice.stage), loop.done), default=None)


# What is repeated


def window(loops: Loops) -> int:
    """How many calls are looked at: so many that the longest cycle fits as often as any threshold says."""
    # This is done at each turn, so it is written to be quick.
    highest = max(loops.warn or 0, loops.withdraw or 0, loops.stop or 0, loops.same or 0)
    return max(WINDOW, LONGEST_CYCLE * highest)


def latest(history: History, window: int, summarised: Sequence[Message] = ()) -> list[Made]:
    """
    The latest calls since a person said something, *window* at most, the newest first.

    Where *history* begins with a summary of such calls, *summarised* are those that `remembered` kept.
    """
    # This is done at each turn, so it is written to be quick.
    length = history.length
    said = history.slice(max(0, length - 2 * window), length)
    if summarised and length <= 2 * window:
        said = _unsummarised(said, summarised)
    # Between two things that a person says each answer has calls, or it would be the last; behind each are
    # its results. Only an answer that was paused has none.
    behind = said[::-2]
    roles = [message.role for message in behind]
    if Role.USER in roles:
        behind = behind[: roles.index(Role.USER)]
        roles = roles[: roles.index(Role.USER)]
    if Role.ASSISTANT in roles:
        said = tuple([message for message in said if message.role is not Role.ASSISTANT or message.calls])
        behind = tuple(takewhile(lambda message: message.role is Role.TOOL, said[::-2]))
    made = [
        (part, results)
        for answer, results in zip(said[-2::-2], behind, strict=False)
        for part in reversed(answer.parts)
        # By exact type, since the classes are final.
        if type(part) is ToolCall
    ]
    return made[:window]


def remembered(old: Sequence[Message], loops: Loops, summarised: Sequence[Message]) -> tuple[Message, ...]:
    """
    What is to be remembered of *old*, which a summary takes the place of, so that its calls count on.

    *summarised* is what an earlier summary left, if *old* begins with one.
    """
    said = _unsummarised(old, summarised) if summarised else tuple(map(_compared, old))
    kept: list[Message] = []
    calls, most = 0, window(loops)
    for message in reversed(said):
        # Only as many as are ever looked at: what is remembered does not grow with the conversation.
        if message.role is Role.USER or calls >= most:
            break
        if parts := tuple([part for part in message.parts if isinstance(part, ToolCall | ToolResult)]):
            kept.append(attrs.evolve(message, parts=parts))
        calls += len(message.calls)
    return tuple(reversed(kept))


def _unsummarised(said: Sequence[Message], summarised: Sequence[Message]) -> tuple[Message, ...]:
    """The messages *said* as they are compared, with those that were *summarised* for the summary."""
    return (*summarised, *map(_compared, said[1:]))


def _compared(message: Message) -> Message:
    """*message*, of which long texts are cut, and still differ where they did."""
    parts = tuple(map(_cut, message.parts))
    # Most are short, and this is done at each turn behind a summary.
    return message if parts == message.parts else attrs.evolve(message, parts=parts)


def _cut(part: Part) -> Part:
    match part:
        case ToolCall(arguments=text) if len(text) > LONG_ARGUMENTS:
            return attrs.evolve(part, arguments=_short(text))
        case ToolResult(content=text) if len(text) > LONG_ARGUMENTS:
            return attrs.evolve(part, content=_short(text))
        case _:
            return part


def _short(text: str) -> str:
    # Still longer than what is read, so it is compared as it stands.
    return text[:LONG_ARGUMENTS] + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def repeated(made: Sequence[Made], config: Config) -> list[Repeated]:
    """What the latest answer of those that *made* calls repeats, most first; of equals, a cycle is first."""
    keys = [
        (call.name, canonical(text) if len(text := call.arguments) <= LONG_ARGUMENTS else text)
        for call, _ in made
    ]
    found: list[Repeated] = []
    for place, (_, results) in enumerate(made):
        if results is not made[0][1]:
            break
        if keys[place] not in keys[:place]:
            found += _same(made, keys, place)
            found += _similar(made, place, config)
    if not found:
        return found
    return sorted([*_cycle(keys, found[0].idle), *found], key=lambda each: -each.count)


def _same(made: Sequence[Made], keys: Sequence[CallKey], place: int) -> list[Repeated]:
    """The call at *place* of *made*, where it was made before; *keys* are those of all."""
    key = keys[place]
    count = keys.count(key)
    if count < FEWEST:
        return []
    came = [_result(*each) for each, other in zip(made, keys, strict=True) if other == key]
    # Results are compared as text. A clock in one of them makes it new, which is why `stop` has a count of
    # its own.
    same = max(Counter([result.content for result in came if result is not None]).values(), default=0)
    return [Repeated(tools=key[:1], count=count, idle=same, same=same)]


def _similar(made: Sequence[Made], place: int, config: Config) -> list[Repeated]:
    """The call at *place* of *made*, where the answers before it made it alike, each of them in vain."""
    (first, at), count = made[place], 1
    brought: set[str] = set()
    for call, results in made[place:]:
        if call.name != first.name:
            continue
        if not alike(call.arguments, first.arguments) or not _in_vain(call, results, brought, config):
            break
        # By answers and not by calls: ten reads in one answer are one decision of the model.
        count, at = count + (results is not at), results
    return [Repeated(tools=(first.name,), count=count, idle=count)] if count >= FEWEST else []


def _in_vain(call: ToolCall, results: Message, brought: set[str], config: Config) -> bool:
    """Whether *call* failed, or only read and *brought* the same as the others, which is noted there."""
    result = _result(call, results)
    if result is None or result.outcome is not Outcome.OK:
        return True
    spec = config.tool(call.name)
    brought.add(result.content)
    return spec is not None and spec.side_effect is SideEffect.READ_ONLY and len(brought) == 1


def _result(call: ToolCall, results: Message) -> ToolResult | None:
    """The result of *call* among *results*."""
    for part in results.parts:
        if isinstance(part, ToolResult) and part.call == call.id:
            return part
    return None


def _cycle(keys: Sequence[CallKey], idle: int) -> list[Repeated]:
    """
    The cycles of several calls that *keys*, the newest first, come from.

    *idle* is how often nothing new came of the newest.
    """
    found: list[Repeated] = []
    for length in range(2, min(LONGEST_CYCLE, len(keys) - 1) + 1):
        span = length
        while span < len(keys) and keys[span] == keys[span - length]:
            span += 1
        count = -(-span // length)  # one that has begun counts: its first calls were made once more
        if count >= FEWEST and len(set(keys[:length])) > 1:
            first = reversed(keys[span - length : span])
            tools = tuple(dict.fromkeys([name for name, _ in first]))
            found.append(Repeated(tools=tools, count=count, idle=min(idle, count)))
    return found


# What is done about it


def stage_of(repeats: Repeated, loops: Loops) -> LoopStage | None:
    """What is done about it; None for nothing."""
    if _reached(repeats.count, loops.stop) or _reached(repeats.same, loops.same):
        return LoopStage.STOPPED
    if _reached(repeats.idle, loops.withdraw):
        return LoopStage.WITHDRAWN
    return LoopStage.WARNED if _reached(repeats.count, loops.warn) else None


def _reached(count: int, threshold: int | None) -> bool:
    return threshold is not None and count >= threshold


def _are_away(repeats: Repeated, withdrawn: Sequence[WithdrawTool], turns: int) -> bool:
    """Whether the repeated tools are away, for having been repeated so often."""
    gone = {one.tool: one.count for one in withdrawn if turns < one.until}
    return all(gone.get(tool, 0) >= repeats.count for tool in repeats.tools)


def away(withdrawn: Sequence[WithdrawTool], turns: int) -> frozenset[str]:
    """The tools that are not offered in the turn after *turns* turns."""
    return frozenset(one.tool for one in withdrawn if turns < one.until)


def explained(repeats: Repeated, stage: LoopStage, loops: Loops) -> str:
    """What was seen and what is done about it, for the model and for watchers."""
    names = " and ".join(repeats.tools)
    one = len(repeats.tools) == 1
    alike = f"{names} {'was' if one else 'were'} called alike {repeats.count} times"
    match stage:
        case LoopStage.WARNED:
            unless = "" if repeats.idle == repeats.count else " unless something new comes of it"
            return (
                f"{alike}. Do not repeat it{unless}: use what you have, try another way, "
                "or say what is missing."
            )
        case LoopStage.WITHDRAWN:
            return (
                f"{alike}, so {names} {'is' if one else 'are'} not offered for {count(loops.turns, 'turn')}. "
                "Try another way, or say what is missing."
            )
        case LoopStage.STOPPED:
            same = f", {repeats.same} times with the same result" * (repeats.same > 1)
            return f"{alike}{same}; the run was stopped"
