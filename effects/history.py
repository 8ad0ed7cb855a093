"""
The conversation, and the answer that streams into it, by reference: append-only logs that many values share.

Theory of operation. A `History` is a log and how much of it belongs to this value. Appending to the value
that owns the end of the log writes in place and costs the same at message 10 and at message 10,000;
appending to a value whose log has already moved on copies first. So a value never changes, and two
successors of one value never see each other, although they share all that came before them.

A `Rope` is the same for the pieces of an answer. A wire turns bytes into pieces. Pieces fold: one by one, in
batches or merged, the result is the same, so a network chunk can be one step and a journal can keep one
merged event for a whole stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar, final, overload

import attrs

from .messages import Citation, Message, Part, ProviderCall, ToolResult

T = TypeVar("T")


class Items(Protocol[T]):
    """What a log needs of its list."""

    __slots__ = ()

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, at: int, /) -> T: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[T]: ...

    def append(self, item: T, /) -> None:
        """Add *item*."""
        ...

    def extend(self, items: Iterable[T], /) -> None:
        """Add *items*."""
        ...


@final
class DeferredItems(Items[T]):
    """
    The list of a log whose beginning is in *chunks*: a long conversation opens without reading it.

    A chunk is a number of items, and a function that makes them when one is looked at.
    """

    __slots__ = ("_items", "_unread")

    def __init__(self, chunks: Iterable[tuple[int, Callable[[], Iterable[T]]]]) -> None:
        self._items: list[Any] = []
        # Where each begins and ends that is not read yet.
        self._unread: dict[tuple[int, int], Callable[[], Iterable[T]]] = {}
        for count, read in chunks:
            self._unread[len(self._items), len(self._items) + count] = read
            self._items += [None] * count

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, at: int, /) -> T: ...
    @overload
    def __getitem__(self, at: slice, /) -> list[T]: ...
    def __getitem__(self, at: int | slice, /) -> T | list[T]:
        if self._unread:
            wanted = range(len(self._items))[at]
            self._read(range(wanted, wanted + 1) if isinstance(wanted, int) else wanted)
        found: T | list[T] = self._items[at]
        return found

    def _read(self, wanted: range) -> None:
        for (begin, end), read in list(self._unread.items()):
            # Read before it is forgotten: where that fails, the next look fails, too.
            if begin < wanted.stop and wanted.start < end:
                self._items[begin:end] = read()
                del self._unread[begin, end]

    def copy(self, length: int) -> DeferredItems[T]:
        """A list of the first *length* items, which are still read when one is looked at."""
        for begin, end in self._unread:
            if begin < length < end:
                self._read(range(begin, end))
                break
        copied = DeferredItems[T](())
        copied._items = self._items[:length]
        copied._unread = {part: read for part, read in self._unread.items() if part[1] <= length}
        return copied

    def append(self, item: T, /) -> None:
        """Add *item*."""
        self._items.append(item)

    def extend(self, items: Iterable[T], /) -> None:
        """Add *items*."""
        self._items.extend(items)


@final
class Log(Generic[T]):
    """
    The shared storage. Its identity names a prefix for good: what lies below any length never changes.

    A wire may therefore keep what it encoded under the log's identity (it can be weakly referenced).
    """

    __slots__ = ("__weakref__", "items")

    def __init__(self, items: Items[T]) -> None:
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
        log, items = self.log, self.log.items
        if len(items) != self.length:
            log = Log(items.copy(self.length) if isinstance(items, DeferredItems) else items[: self.length])
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


def is_cleared_when_old(part: Part) -> bool:
    """Whether *part*, being old, is left out: a tool result that is long or has files."""
    return isinstance(part, ToolResult) and (len(part.content) > SHORT or bool(part.files))


def clear_results(message: Message) -> Message:
    """*message* as it is shown when it is old: its calls and results stay, the long ones without a body."""
    if not any(is_cleared_when_old(part) for part in message.parts):
        return message
    parts = [
        attrs.evolve(part, content=CLEARED, files=())
        if isinstance(part, ToolResult) and is_cleared_when_old(part)
        else part
        for part in message.parts
    ]
    return attrs.evolve(message, parts=tuple(parts))


# Pieces of a streamed answer, and the rope that gathers them.


@final
@attrs.frozen
class TextPiece:
    """A bit of text. *begins*: of another text than the one before."""

    text: str
    begins: bool = False


@final
@attrs.frozen
class ReasoningPiece:
    """A bit of thinking, the *signature* that closes it, or *redacted* or *opaque* thinking, whole."""

    text: str = ""
    signature: str = ""
    redacted: str = ""
    opaque: str = ""


@final
@attrs.frozen
class CallPiece:
    """
    A bit of the tool call number *index* of this answer, counted from 0 by the wire's parser.

    *wire_id* and *name* stand in its first piece, *arguments* is appended, *opaque* stands in any one piece.
    """

    index: int
    wire_id: str = ""
    name: str = ""
    arguments: str = ""
    opaque: str = ""


# Everything a wire's parser can say while an answer streams.
Piece = TextPiece | ReasoningPiece | CallPiece | ProviderCall | Citation


def _close(run: list[Piece]) -> Piece:
    """One piece for a *run* of neighbours that belong together, joined once and not pairwise."""
    first = run[0]
    if len(run) == 1:
        return first
    if isinstance(first, TextPiece):
        text = "".join([piece.text for piece in run if isinstance(piece, TextPiece)])
        return TextPiece(text, first.begins)
    if isinstance(first, ReasoningPiece):
        thoughts = [piece for piece in run if isinstance(piece, ReasoningPiece)]
        return ReasoningPiece("".join([piece.text for piece in thoughts]), thoughts[-1].signature)
    calls = [piece for piece in run if isinstance(piece, CallPiece)]
    return CallPiece(
        calls[0].index,
        _first([piece.wire_id for piece in calls]),
        _first([piece.name for piece in calls]),
        "".join([piece.arguments for piece in calls]),
        _first([piece.opaque for piece in calls]),
    )


def _first(texts: list[str]) -> str:
    """The first of *texts* that is not empty; empty where all are."""
    return next(filter(None, texts), "")


def _same_part(old: Piece, new: Piece) -> bool:
    if isinstance(old, ReasoningPiece):
        closed = old.signature or old.redacted or old.opaque
        return isinstance(new, ReasoningPiece) and not (closed or new.redacted or new.opaque)
    return isinstance(old, TextPiece) and isinstance(new, TextPiece) and not new.begins


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """
    The shortest tuple of pieces that folds to the same answer: neighbours joined, calls gathered.

    A call's pieces are gathered where the call began, so calls whose pieces arrive interleaved come out
    whole. Merging what is merged changes nothing.
    """
    runs: list[list[Piece]] = []
    calls: dict[int, list[Piece]] = {}
    for piece in pieces:
        if isinstance(piece, CallPiece) and piece.index in calls:
            calls[piece.index].append(piece)
        elif runs and _same_part(runs[-1][-1], piece):
            runs[-1].append(piece)
        else:
            runs.append([piece])
            if isinstance(piece, CallPiece):
                calls[piece.index] = runs[-1]
    return tuple([_close(run) for run in runs])


@final
@attrs.frozen(eq=False, repr=False)
class Rope:  # noqa: PLW1641  # equal by content, which no hash should walk
    """
    The pieces of one answer so far, by reference as `History` is; *count* is how many have arrived.

    *count* is what the wire sent, not what is kept: a merged piece stands for many. Two ropes are equal
    when they arrived at the same count and fold to the same pieces.
    """

    log: Log[Piece]
    length: int = 0
    count: int = 0

    @classmethod
    def of(cls, pieces: Iterable[Piece] = (), count: int = 0) -> Rope:
        """A new rope of *pieces* that stand for *count* arrived ones."""
        kept = list(pieces)
        return cls(Log(kept), len(kept), count)

    def extend(self, pieces: tuple[Piece, ...], count: int) -> Rope:
        """This rope and *pieces*, which stand for *count* arrived ones."""
        log = self.log
        if len(log.items) != self.length:
            log = Log(log.items[: self.length])
        log.items.extend(pieces)
        return Rope(log, self.length + len(pieces), self.count + count)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The merged pieces."""
        return merged(self.log.items[: self.length])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rope):
            return NotImplemented
        return self.count == other.count and self.pieces == other.pieces

    def __repr__(self) -> str:
        return f"<Rope of {self.count} pieces>"
