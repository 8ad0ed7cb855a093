"""
The conversation by reference: an append-only log that many values share.

Theory of operation. A `History` is a log and how much of it belongs to this value. Appending to the value
that owns the end of the log writes in place and costs the same at message 10 and at message 10,000;
appending to a value whose log has already moved on copies first. So a value never changes, and two
successors of one value never see each other, although they share all that came before them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, final

import attrs

from .messages import Message, Part, ToolResult

T = TypeVar("T")


@final
class Log(Generic[T]):
    """
    The shared storage. Its identity names a prefix for good: what lies below any length never changes.

    A wire may therefore keep what it encoded under the log's identity (it can be weakly referenced).
    """

    __slots__ = ("__weakref__", "items")

    def __init__(self, items: list[T]) -> None:
        self.items = items


@final
@attrs.frozen(eq=False, repr=False)
class History:  # noqa: PLW1641  # equal by content, which no hash should walk
    """
    An immutable sequence of messages. *revision* counts the rewrites (compactions) it has been through.

    Two histories are equal when revision and messages are.
    """

    log: Log[Message]
    length: int = 0
    revision: int = 0

    @classmethod
    def of(cls, *messages: Message, revision: int = 0) -> History:
        """A new history of *messages*."""
        return cls(Log(list(messages)), len(messages), revision)

    def append(self, message: Message) -> History:
        """This history and *message*; what this value holds stays as it is."""
        log = self.log
        if len(log.items) != self.length:
            log = Log(log.items[: self.length])
        log.items.append(message)
        return History(log, self.length + 1, self.revision)

    def replace(self, head: tuple[Message, ...], keep: int) -> History:
        """*head* and the messages from index *keep* on, as the next revision."""
        kept = [*head, *self.log.items[keep : self.length]]
        return History(Log(kept), len(kept), self.revision + 1)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Message:
        if not -self.length <= index < self.length:
            msg = f"message {index} of a history of {self.length}"
            raise IndexError(msg)
        return self.log.items[index if index >= 0 else self.length + index]

    def slice(self, start: int, stop: int) -> tuple[Message, ...]:
        """The messages from index *start* up to *stop*, both within this history."""
        return tuple(self.log.items[start : min(stop, self.length)])

    def __iter__(self) -> Iterator[Message]:
        return iter(self.log.items[: self.length])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        return (self.length, self.revision) == (other.length, other.revision) and (
            self.log is other.log or list(self) == list(other)
        )

    def __repr__(self) -> str:
        return f"<History of {self.length} messages, revision {self.revision}>"


# What a model is shown of a conversation: a view at the time of a request, never a rewrite.


# What stands for a tool result that is not shown any more.
CLEARED = "[Old tool result left out. Call the tool again if you need it.]"

# Characters of a tool result that is shown however old it is: to leave it out would save next to nothing.
SHORT = 500


def placeholder_for(part: Part) -> bool:
    """Whether *part*, being old, is left out: a tool result that is long or has files."""
    return isinstance(part, ToolResult) and (len(part.content) > SHORT or bool(part.files))


def clear_results(message: Message) -> Message:
    """*message* as it is shown when it is old: its calls and results stay, the long ones without a body."""
    if not any(placeholder_for(part) for part in message.parts):
        return message
    parts = [
        attrs.evolve(part, content=CLEARED, files=())
        if isinstance(part, ToolResult) and placeholder_for(part)
        else part
        for part in message.parts
    ]
    return attrs.evolve(message, parts=tuple(parts))
