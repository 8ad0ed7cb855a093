"""
A run as the answer to one request: what protocols of front ends expect of a post.

Theory of operation. What a client posts is applied as on any other path, and the answer tells what follows in
the words of its protocol: from the beginning of the stream that is under way, to the end of one behind which
nothing comes before people act again. A post that leads to nothing new, as a repeated one, is answered with
the last stream. A reader that leaves ends nothing: the run goes on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, final

import attrs
from starlette.responses import Response, StreamingResponse

from ...effects.errors import TurnwheelError, UnknownSession
from ...effects.notices import notices_in
from ...engine.session.archive import replay
from ...engine.session.watching import position
from ...projections import to_sse
from ...projections.json_events import Events, JsonEvent
from ...projections.posted import ClientPost
from ...projections.streamed import StreamedProjection
from .bodies import SESSION_ID
from .event_stream import is_cut
from .problems import Refused
from .questions import approve_all

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from .limits import Streams
    from .open_sessions import LiveSession, OpenSessions
    from .operations import HttpCall


@final
@attrs.frozen(kw_only=True)
class Protocol:
    """How a front end is answered: its *vocabulary*, *headers*, and the *tail* behind the last event."""

    vocabulary: Callable[[str], StreamedProjection]
    headers: Mapping[str, str] = attrs.field(factory=dict)
    tail: bytes = b""


@final
@attrs.frozen
class RunAnswers:
    """Answers posts of a *protocol* by the sessions that it *opens*, each over one of *streams*."""

    opens: OpenSessions
    streams: Streams
    protocol: Protocol

    async def answer(self, call: HttpCall, post: ClientPost) -> Response:
        """Do what *post* says, and answer with what follows."""
        agent, name = call.request.path_params["agent"], post.session
        if re.match(SESSION_ID, name) is None:
            detail = f"the id of a session has up to 200 letters, digits or ._~:@+=,-; got {name[:50]!r}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        if agent not in self.opens.agents:
            raise Refused(HTTPStatus.NOT_FOUND, f"no agent {agent[:100]!r} here")
        with suppress(UnknownSession):
            there, _ = await self.opens.find(call.names, name)
            if there != agent:
                raise Refused(HTTPStatus.CONFLICT, f"session {name!r} is one of agent {there!r}")
        if post.input is not None:
            self.opens.check_room()
        elif not post.answers:
            # Nothing is begun by looking.
            await self.opens.find(call.names, name)
        async with self.opens.begin(call.names, agent, name) as one:
            known = await self._length(one)
            await approve_all(one.session, post.answers, call.caller)
            if post.input is not None:
                given = post.input
                await one.session.send(given.text, files=given.files, id=given.id, sender=call.caller)
            await self.opens.wake(call.names, one)
            if await self._at_rest(one, known):
                return await self._replayed(one, post)
        return self._following(call, lambda: self.opens.begin(call.names, agent, name), known, post)

    async def resumed(self, call: HttpCall, name: str) -> Response:
        """The stream of the session *name* that is under way, from its beginning; no content without one."""
        async with self.opens.use(call.names, name) as one:
            known = await self._length(one)
            if await self._at_rest(one, known):
                return Response(status_code=HTTPStatus.NO_CONTENT)
        return self._following(
            call, lambda: self.opens.use(call.names, name), known, ClientPost(session=name)
        )

    async def _length(self, one: LiveSession) -> int:
        info = await self.opens.store.info(one.name)
        return 0 if info is None else info.length

    async def _at_rest(self, one: LiveSession, known: int) -> bool:
        """Whether nothing follows the *known* entries before people act again."""
        if self.opens.turns is None or not one.unfinished:
            return one.session.resting or not one.unfinished
        # Of a run elsewhere the journal tells it: there are open questions, and nothing came behind them.
        return bool(one.session.waiting) and await self._length(one) == known

    async def _replayed(self, one: LiveSession, post: ClientPost) -> Response:
        """The last stream of the journal."""
        vocabulary = self.protocol.vocabulary(one.id)
        last: Events = ()
        async for step in replay(self.opens.store, one.name):
            for notice in notices_in(step.effects):
                last = vocabulary.last_stream(last, vocabulary.take(notice))
        data = b"".join([to_sse(_named(event, post)) for event in last]) + self.protocol.tail
        return Response(data, media_type="text/event-stream", headers=dict(self.protocol.headers))

    def _following(
        self,
        call: HttpCall,
        opens: Callable[[], AbstractAsyncContextManager[LiveSession]],
        known: int,
        post: ClientPost,
    ) -> Response:
        """What follows the *known* entries, as it happens."""
        tenant = call.names.tenant
        self.streams.enter(tenant)

        async def body() -> AsyncGenerator[bytes, None]:
            ending = asyncio.create_task(self.opens.draining.wait())
            try:
                async with opens() as one, aclosing(self._events(one, known)) as events:
                    with suppress(TurnwheelError, OSError):
                        async for event in events:
                            yield to_sse(_named(event, post))
                            if ending.done():
                                return
                yield self.protocol.tail
            finally:
                ending.cancel()
                self.streams.leave(tenant)

        return StreamingResponse(body(), media_type="text/event-stream", headers=dict(self.protocol.headers))

    async def _events(self, one: LiveSession, known: int) -> AsyncGenerator[JsonEvent, None]:
        vocabulary = self.protocol.vocabulary(one.id)
        seen: Events = ()
        async with aclosing(one.session.watch(0)) as watching:
            async for watched in watching:
                made = vocabulary.take(watched.notice)
                if watched.id and position(watched.id)[0] < known:
                    seen = vocabulary.last_stream(seen, made)
                    continue
                if not made:
                    continue
                for event in (*(seen if is_cut(vocabulary, seen, made) else ()), *made):
                    yield event
                seen = ()
                if made[-1]["type"] in vocabulary.ends and await self._over(one, vocabulary):
                    return

    async def _over(self, one: LiveSession, vocabulary: StreamedProjection) -> bool:
        """Whether nothing comes behind the end of a stream: other questions of the same step may."""
        # A run elsewhere is known as far as it was read.
        await one.session.load()
        waits_for = {question.request for _, question in vocabulary.told.waits_for}
        if waits_for:
            return waits_for == {asked.id for asked in one.session.waiting}
        return not one.unfinished


def _named(event: JsonEvent, post: ClientPost) -> JsonEvent:
    """*event* with the name that the client has for the run."""
    return {**event, "runId": post.run} if post.run and "runId" in event else event
