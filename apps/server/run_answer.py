"""
A run as the answer to one request: what protocols of front ends expect of a post.

Theory of operation. What a client posts is applied as on any other path, and the answer tells what follows in
the words of its protocol: from the beginning of the stream that is under way, to the end of one behind which
nothing comes before people act again. A post that leads to nothing new, as a repeated one, is answered with
the last stream. A reader that leaves ends nothing: the run goes on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, final

import attrs
from starlette.responses import Response

from ...effects.errors import UnknownSession
from ...effects.notices import notices_in
from ...engine.inspect.archive import replay
from ...engine.inspect.listing import described
from ...engine.journal.summary import SessionStatus
from ...projections import to_sse
from ...projections.json_events import Events, JsonEvent
from ...projections.posted import ClientPost
from ...projections.streamed import StreamedProjection
from .bodies import SESSION_ID
from .event_stream import EventStream, is_cut, telling
from .problems import Refused
from .questions import approve_all

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from .feed import Heard
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

    async def answer(self, call: HttpCall, post: ClientPost) -> Response | EventStream:
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
            waiting = {asked.id for asked in one.session.waiting}
            # A prompt behind a question waits for its answer.
            answers = any(request in waiting for request, _ in post.answers)
            begins = answers or (post.input is not None and not waiting)
            async with self.opens.place(call.names, one, begins=begins):
                await approve_all(one.session, post.answers, call.caller)
                if post.input is not None:
                    given = post.input
                    await one.session.send(given.text, files=given.files, id=given.id, sender=call.caller)
                await self.opens.wake(call.names, one)
            if await self._at_rest(one, known):
                return await self._replayed(one, post)
        return self._following(call, self.opens.begin(call.names, agent, name), known, post)

    async def resumed(self, call: HttpCall, name: str) -> Response | EventStream:
        """The stream of the session *name* that is under way, from its beginning; no content without one."""
        async with self.opens.use(call.names, name) as one:
            known = await self._length(one)
            if await self._at_rest(one, known):
                return Response(status_code=HTTPStatus.NO_CONTENT)
        return self._following(call, self.opens.use(call.names, name), known, ClientPost(session=name))

    async def _length(self, one: LiveSession) -> int:
        info = await self.opens.store.info(one.name)
        return 0 if info is None else info.length

    async def _at_rest(self, one: LiveSession, known: int) -> bool:
        """Whether nothing follows the *known* entries before people act again."""
        if one.session.resting or not one.unfinished:
            return True
        if one.session.running:
            return False
        # At another server or a worker, or at none: then its row says whether it waits for people.
        row = await described(self.opens.store, one.name)
        rests = row is not None and row.about.state is SessionStatus.RESTING
        return rests and await self._length(one) == known

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
        opened: AbstractAsyncContextManager[LiveSession],
        known: int,
        post: ClientPost,
    ) -> EventStream:
        """What follows the *known* entries, as it happens."""
        return EventStream(
            telling(opened, lambda one: _RunTeller(one, self.protocol, known, post), self.streams.beat),
            streams=self.streams,
            tenant=call.names.tenant,
            ending=self.opens.draining,
            headers=self.protocol.headers,
        )


@final
@attrs.define
class _RunTeller:
    """What follows the *known* entries of *one*, as *protocol* has it, until nothing comes by itself."""

    one: LiveSession
    protocol: Protocol
    known: int
    post: ClientPost
    since: int | str = 0
    over: Callable[[], Awaitable[bool]] | None = None
    _seen: Events = ()
    _vocabulary: StreamedProjection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._vocabulary = self.protocol.vocabulary(self.one.id)

    @property
    def tail(self) -> bytes:
        """What the protocol has behind the last event."""
        return self.protocol.tail

    def take(self, heard: Heard) -> bytes:
        """The frames of *heard*, with the stream before it that it goes on with."""
        vocabulary, self.over = self._vocabulary, None
        made = vocabulary.take(heard.notice)
        if heard.id and heard.at[0] < self.known:
            self._seen = vocabulary.last_stream(self._seen, made)
            return b""
        if not made:
            return b""
        before = self._seen if is_cut(vocabulary, self._seen, made) else ()
        self._seen = ()
        self.over = self._over if made[-1]["type"] in vocabulary.ends else None
        return b"".join([to_sse(_named(event, self.post)) for event in (*before, *made)])

    async def _over(self) -> bool:
        """Whether nothing comes behind the end of a stream: other questions of the same step may."""
        # Another process may be the one that goes on with the run.
        await self.one.session.load()
        waits_for = {question.request for _, question in self._vocabulary.told.waits_for}
        if waits_for:
            return waits_for == {asked.id for asked in self.one.session.waiting}
        return not self.one.unfinished


def _named(event: JsonEvent, post: ClientPost) -> JsonEvent:
    """*event* with the name that the client has for the run."""
    return {**event, "runId": post.run} if post.run and "runId" in event else event
