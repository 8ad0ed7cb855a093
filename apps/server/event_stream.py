"""
Server-sent events: a session's notices as a stream that a reader can leave and take up again.

Theory of operation. A feed gives the notices of the journal, each with an id that no restart changes, and
then goes on with what happens. Each is a frame, and all frames that wait for a reader go out in one write.
Between them a comment goes out now and then, so that proxies and readers know that the stream lives. Only
frames that the journal can give again carry an id. A vocabulary is a fold over all notices, so its frames
behind an id are found by beginning at the beginning. A notice with an id that leads to no event is a frame
with the id alone, which a reader notes and does not see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, final

import attrs
from starlette.types import Message, Receive, Scope, Send

from ...effects.errors import ConfigError, TurnwheelError
from ...effects.notices import Notice
from ...engine.session.watching import position
from ...projections import (
    AgentEvents,
    AgUiEvents,
    SdkMessages,
    SseEvents,
    TurnEvents,
    UiMessageChunks,
    to_sse,
)
from ...projections.json_events import Events
from ...projections.streamed import StreamedProjection
from .feed import BEAT, FeedReader, Heard, id_line

if TYPE_CHECKING:
    from ...engine.session.session import Session
    from ...engine.session.subscription import Position
    from .limits import Streams
    from .open_sessions import LiveSession


class Vocabulary(Protocol):
    """Turns the notices of a session, in order, into events."""

    def take(self, notice: Notice) -> Events:
        """The events of *notice*."""
        ...


VOCABULARIES: Mapping[str, Callable[[str], Vocabulary]] = {
    "sdk": SdkMessages.of,
    "sse": SseEvents.of,
    "turns": TurnEvents.of,
    "agent_events": AgentEvents.of,
    "ag-ui": AgUiEvents.of,
    "ui-messages": UiMessageChunks.of,
}

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    # A proxy that collects an answer would hold back what is to be seen at once.
    (b"x-accel-buffering", b"no"),
]


def projected_frames(heard: Heard, events: Events) -> Iterator[bytes]:
    """*events*, which *heard* led to, as frames; the last one has its id."""
    for event in events[:-1]:
        yield to_sse(event)
    # The id alone where there is no event: what was seen of the answer decides about that, and live and
    # replayed streams have the same ids.
    if events:
        yield to_sse(events[-1], heard.id)
    elif heard.id:
        yield id_line(heard.id) + b"\n"


def is_cut(vocabulary: StreamedProjection, seen: Events, events: Events) -> bool:
    """Whether *events* go on with the stream that was *seen*."""
    return bool(seen) and seen[-1]["type"] not in vocabulary.ends and events[0]["type"] != vocabulary.begins


class Teller(Protocol):
    """Says in bytes what a session does."""

    @property
    def since(self) -> int | str:
        """Where in the session it begins."""
        ...

    @property
    def over(self) -> Callable[[], Awaitable[bool]] | None:
        """What says whether nothing follows; None where it need not be asked."""
        ...

    @property
    def tail(self) -> bytes:
        """What is written behind the last event."""
        ...

    def take(self, heard: Heard) -> bytes:
        """The frames of *heard*."""
        ...


@final
@attrs.define
class OwnWords:
    """Each notice as it is."""

    since: int | str
    over: None = None
    tail: bytes = b""

    def take(self, heard: Heard) -> bytes:
        """The frame of *heard*, the same for all readers."""
        return heard.frame


@final
@attrs.define
class Projected:
    """
    A *vocabulary*, of which a reader has seen all up to the position *behind*.

    A fold has to begin at the beginning. Where a stream of parts is under way there, it comes from its
    beginning, and what was seen without an id.
    """

    vocabulary: Vocabulary
    behind: Position
    since: int | str = 0
    over: None = None
    tail: bytes = b""
    _seen: Events = ()

    def take(self, heard: Heard) -> bytes:
        """The frames of *heard*, if it is not behind."""
        vocabulary = self.vocabulary
        # What it saw of this answer has no id. Only a stream of parts comes from its beginning again.
        if heard.earlier and heard.at <= self.behind and not isinstance(vocabulary, StreamedProjection):
            return b""
        made = vocabulary.take(heard.notice)
        if heard.id and heard.at <= self.behind:
            if isinstance(vocabulary, StreamedProjection):
                self._seen = vocabulary.last_stream(self._seen, made)
            return b""
        frames: list[bytes] = []
        if made:
            if isinstance(vocabulary, StreamedProjection) and is_cut(vocabulary, self._seen, made):
                frames += [to_sse(event) for event in self._seen]
            self._seen = ()
        return b"".join([*frames, *projected_frames(heard, made)])


def teller_of(since: str, vocabulary: str) -> Callable[[LiveSession], Teller]:
    """What tells a session behind the id *since*, in a *vocabulary* or in our own words."""
    behind = position(since) if since else (-1, -1)
    if not vocabulary:
        return lambda _: OwnWords(since or 0)
    if vocabulary not in VOCABULARIES:
        known = ", ".join(VOCABULARIES)
        msg = f"vocabulary must be one of {known}, or left out; got {vocabulary[:50]!r}"
        raise ConfigError(msg)
    return lambda one: Projected(VOCABULARIES[vocabulary](one.id), behind)


class StreamSource(Protocol):
    """What an event stream is made of."""

    def parts(self) -> AsyncGenerator[bytes, None]:
        """What is to be written, as it comes, until the end."""
        ...

    def end(self) -> None:
        """Let `parts` end soon."""
        ...


@final
@attrs.frozen
class SessionSource:
    """What *teller* tells to *reader* of *session*, all that waits together."""

    session: Session
    reader: FeedReader
    teller: Teller

    def end(self) -> None:
        """Tell no more."""
        self.reader.end()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        """The frames, and what the teller has behind the last one."""
        teller = self.teller
        async with aclosing(self.reader.follow(teller.since)) as parts:
            async for part in parts:
                frames: list[bytes] = [] if part else [BEAT]
                for heard in part:
                    frames.append(teller.take(heard))
                    if teller.over is not None and await teller.over():
                        yield b"".join([*frames, teller.tail])
                        return
                if data := b"".join(frames):
                    yield data


@asynccontextmanager
async def telling(
    opened: AbstractAsyncContextManager[LiveSession], tells: Callable[[LiveSession], Teller], beat: float
) -> AsyncGenerator[SessionSource, None]:
    """The session that is *opened*, as *tells* tells it."""
    async with opened as one, one.feed.reader(beat) as reader:
        yield SessionSource(one.session, reader, tells(one))


@final
@attrs.define(eq=False)
class EventStream:
    """
    An answer that goes on: what the source that is *opened* has, over one of *streams*.

    It ends when its reader leaves, when the server is *ending*, and when the source does: the session was
    closed or deleted, or there is no more to tell.
    """

    opened: AbstractAsyncContextManager[StreamSource]
    streams: Streams
    tenant: str
    ending: asyncio.Event
    headers: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # Before the answer begins: behind its head there is no status to refuse it with.
        self.streams.check(self.tenant)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, until one side ends it."""
        headers = [*STREAM_HEADERS, *[(name.encode(), text.encode()) for name, text in self.headers.items()]]
        with self.streams.place(self.tenant):
            async with self.opened as source:
                # A reader that has left, before the head or behind it, takes nothing more.
                with suppress(OSError):
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    # Who asks for the head alone waits for no event.
                    if scope["method"] != "HEAD" and not self.ending.is_set():
                        await self._stream(source, receive, send)
                    await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, source: StreamSource, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(_gone(receive, source))
        try:
            # At once: a reader of a session without events learns that the stream is open.
            await send(_chunk(BEAT))
            # Where the store fails or the session is gone, the reader comes again behind its last id.
            with suppress(TurnwheelError):
                async with aclosing(source.parts()) as parts:
                    async for data in parts:
                        await send(_chunk(data))
        finally:
            leaving.cancel()
            await asyncio.wait({leaving})


def _chunk(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _gone(receive: Receive, source: StreamSource) -> None:
    """End *source* when its connection does."""
    while (await receive())["type"] != "http.disconnect":
        pass
    source.end()
