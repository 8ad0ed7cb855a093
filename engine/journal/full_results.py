"""
Where the whole results are of which a conversation holds the beginning and the end.

Theory of operation. What a call brought is told when it ends and enters the history when all calls of its
answer have; where the two differ, the history's was cut. Kept is then the number of the entry that says what
came, since the journal has it whole, or what came itself, where there is no journal or the entry does not say
it. So it is found again after a summary, a restart and a branch, and in another process, and what is kept
here stays small. It is about text: the files of a result are not cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ...effects.events import AgentFinished, ToolFinished
from ...effects.messages import Role
from ...effects.notices import CallSettled
from ...effects.records import AppendMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...effects import Effect
    from ...effects.events import Event
    from ...effects.messages import Message

MOST_HELD = 50_000_000
"""Characters of results that are kept here, where no journal has them; the oldest go first."""

ResultPlace = int | str
"""The number of an entry, or the result itself."""


@final
@attrs.define
class FullResults:
    """
    Where the whole of each result of a session is that was cut, by the id of its call.

    At *most* so many characters of what no journal has are kept.
    """

    most: int = MOST_HELD
    _cut: dict[str, ResultPlace] = attrs.field(factory=dict)
    _ended: dict[str, tuple[ResultPlace, str]] = attrs.field(factory=dict)
    _held: int = 0

    def note(self, event: Event, effects: Iterable[Effect], number: int | None) -> None:
        """Note what the machine said to *event*, which is entry *number*, None where it is not journaled."""
        for effect in effects:
            if isinstance(effect, CallSettled):
                where: ResultPlace = effect.content
                if number is not None and said_in(event) == effect.content:
                    where = number
                self._ended[effect.call] = (where, effect.content)
            elif isinstance(effect, AppendMessage) and effect.message.role is Role.TOOL:
                self._enter(effect.message)

    def _enter(self, message: Message) -> None:
        """*message* is what the history holds of the calls that ended."""
        for result in message.results:
            ended = self._ended.get(result.call)
            if ended is not None and ended[1] != result.content:
                self._cut[result.call] = ended[0]
                self._held += _length(ended[0])
        self._ended.clear()
        if self._held > self.most:
            self._let_go()

    def _let_go(self) -> None:
        for call, where in list(self._cut.items()):
            if self._held <= self.most:
                break
            if isinstance(where, str):
                del self._cut[call]
                self._held -= len(where)

    def where(self, call: str) -> ResultPlace | None:
        """Where the whole result of *call* is; None where it was not cut, or is not kept."""
        return self._cut.get(call)


def _length(where: ResultPlace) -> int:
    return len(where) if isinstance(where, str) else 0


def said_in(event: Event) -> str | None:
    """What came of a call, as *event* says it; None where it does not."""
    return event.content if isinstance(event, ToolFinished | AgentFinished) else None
