"""
Server-sent events: a session's notices as a stream that a reader can leave and take up again.

Theory of operation. `Session.watch` gives the notices of the journal, each with an id that no restart
changes, and then goes on with what happens. Each goes out as one frame. Between the frames a comment goes out
now and then, so that proxies and readers know that the stream lives. Only frames that the journal can give
again carry an id. A vocabulary is a fold over all notices, so its frames behind an id are found by beginning
at the beginning. A notice with an id that leads to no event is a frame with the id alone, which a reader
notes and does not see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from typing import TYPE_CHECKING, Protocol, final

import attrs
from starlette.types import Message, Receive, Scope, Send

from ...effects.errors import ConfigError, TurnwheelError
from ...effects.notices import Notice
from ...engine.codec import encode
from ...engine.session.watching import position
from ...projections import AgentEvents, SdkMessages, SseEvents, TurnEvents, to_sse
from ...projections.json_events import Events

if TYPE_CHECKING:
    from ...engine.session.watching import Watched
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
}

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # A proxy that collects an answer would hold back what is to be seen at once.
    (b"x-accel-buffering", b"no"),
]

BEAT = b": still here\n\n"


def _id_line(watched: Watched) -> bytes:
    return f"id: {watched.id}\n".encode() if watched.id else b""


def notice_frame(watched: Watched) -> bytes:
    """*watched* as a frame: the name of its class as the event, its fields as the data."""
    name = type(watched.notice).__name__.encode()
    # JSON has no line break in it, so it is one line of data.
    return b"%sevent: %s\ndata: %s\n\n" % (_id_line(watched), name, encode(watched.notice, Notice))


def projected_frames(watched: Watched, events: Events) -> Iterator[bytes]:
    """*events*, which *watched* led to, as frames; the last one has its id."""
    for event in events[:-1]:
        yield to_sse(event)
    # The id alone where there is no event: what was seen of the answer decides about that, and live and
    # replayed streams have the same ids.
    last = to_sse(events[-1]) if events else b"\n"
    if events or watched.id:
        yield _id_line(watched) + last


async def frames(
    notices: AsyncGenerator[Watched, None], vocabulary: Vocabulary | None, since: str
) -> AsyncGenerator[bytes, None]:
    """The frames of *notices*, in *vocabulary* those behind the id *since*, or in our own words all."""
    behind = position(since) if since else (-1, -1)
    async with aclosing(notices):
        async for watched in notices:
            if vocabulary is None:
                yield notice_frame(watched)
                continue
            made = vocabulary.take(watched.notice)
            if watched.id and position(watched.id) <= behind:
                continue
            for frame in projected_frames(watched, made):
                yield frame


@final
@attrs.define(eq=False)
class EventStream:
    """
    The events of the session that *opens* opens, behind the id *since*, in a *vocabulary* or our own words.

    A comment goes out every *beat* seconds. It ends when its reader leaves, when *ending* is set, and when
    the session is closed or deleted.
    """

    opens: Callable[[], AbstractAsyncContextManager[LiveSession]]
    since: str
    vocabulary: str
    beat: float
    ending: asyncio.Event
    left: Callable[[], None]

    def __attrs_post_init__(self) -> None:
        if self.since:
            position(self.since)
        if self.vocabulary and self.vocabulary not in VOCABULARIES:
            known = ", ".join(VOCABULARIES)
            msg = f"vocabulary must be one of {known}, or left out; got {self.vocabulary[:50]!r}"
            raise ConfigError(msg)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, until one side ends it."""
        try:
            async with self.opens() as one:
                await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
                # Who asks for the head alone waits for no event.
                if scope["method"] != "HEAD":
                    await self._stream(one, receive, send)
                # A reader that has left takes no end any more.
                with suppress(OSError):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.left()

    async def _stream(self, one: LiveSession, receive: Receive, send: Send) -> None:
        # The frames have a task of their own: the next notice must not be waited for anew at each beat, which
        # would cost every frame more than it costs to send it.
        work = (self._frames(one, send), self._beats(send), _gone(receive), self.ending.wait())
        tasks = [asyncio.ensure_future(part) for part in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _frames(self, one: LiveSession, send: Send) -> None:
        vocabulary = VOCABULARIES[self.vocabulary](one.id) if self.vocabulary else None
        # A fold has to begin at the beginning.
        watching = one.session.watch(0 if vocabulary or not self.since else self.since)
        # Where the store fails or the session is gone, the reader comes again behind its last id.
        with suppress(TurnwheelError, OSError):
            async with aclosing(frames(watching, vocabulary, self.since)) as made:
                async for frame in made:
                    await send(_chunk(frame))

    async def _beats(self, send: Send) -> None:
        with suppress(OSError):
            # At once, too: a reader of a session without events learns that the stream is open.
            while True:
                await send(_chunk(BEAT))
                await asyncio.sleep(self.beat)


def _chunk(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
