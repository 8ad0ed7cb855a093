"""
The app: operations on a path each, with the checks that come before every one of them.

Theory of operation. A request is looked at from the outside in: its host and origin, its token, the size of
its body, its fields. Only then does its operation see it. What goes wrong is answered in one place, as
problem details. Sessions live in `OpenSessions`, and not in requests: a reader that leaves ends nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast, final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ...effects.errors import ConfigError, SessionGone, StoreConflict, TurnwheelError
from ...engine.agent import Agent
from ...engine.session.watching import position
from ...performers.logs import warn
from ...performers.stores.base import checked_store
from ..console.routes import ConsoleRoutes
from .access import Access, Namespace, words
from .docs.routes import DocsRoutes
from .event_stream import VOCABULARIES, EventStream, teller_of, telling
from .keys import KeyedAnswers
from .limits import RequestRates, ServerLimits, Streams
from .list_feed import ListFeed
from .metrics import UNANSWERED, Metrics
from .open_sessions import OpenSessions, Turns
from .operations import ONE_SESSION, HttpCall, Operation, Parameter, operation, operations_of
from .problems import Refused, problem, refusal_of
from .protocol_routes import ProtocolRoutes
from .request_body import body_of
from .session_routes import SessionRoutes
from .step_routes import StepRoutes
from .takeovers import Takeovers

if TYPE_CHECKING:
    from ...performers.stores.base import Store

HttpAnswer = TypeVar("HttpAnswer", Response, ASGIApp)

# As `Session.watch` takes it; an empty one is none.
POSITION = {"type": "string", "pattern": r"^([0-9]{1,18}(\.[0-9]{1,18})?)?$"}
LIST_POSITION = {"type": "string", "pattern": r"^([0-9]{1,18})?$"}
SINCE_SAYS = "as Last-Event-ID, for those who cannot send that"
LIST_EVENT_PARAMETERS = (
    Parameter(name="since", about=SINCE_SAYS, schema=LIST_POSITION),
    Parameter(
        name="Last-Event-ID", about="the id behind which to begin", place="header", schema=LIST_POSITION
    ),
)
EVENT_PARAMETERS = (
    Parameter(
        name="vocabulary",
        about="the words of the events; else our own",
        schema={"enum": [*VOCABULARIES, ""]},
    ),
    Parameter(name="since", about=SINCE_SAYS, schema=POSITION),
    Parameter(name="Last-Event-ID", about="the id behind which to begin", place="header", schema=POSITION),
)

NOSNIFF = "X-Content-Type-Options"

# How often an input is tried again that another process was quicker than, and the seconds in between.
CONFLICTS, CONFLICT_PAUSE = 15, 0.1

# Seconds in which running work may end before it is cut off.
DRAIN_WITHIN = 10.0


@final
class AgentServer:
    """
    The sessions of *agents* over HTTP, as `create_app` makes it.

    An async context manager: it begins to look for runs that were left in the middle, and drains at the end.
    An app that is mounted into another one gets no lifespan: enter ``app.state.server`` in that of the other
    one.
    """

    def __init__(  # noqa: PLR0913  # as `create_app` has them
        self,
        agents: Mapping[str, Agent],
        store: Store,
        *,
        access: Access,
        limits: ServerLimits,
        beat: float,
        resume: bool,
        turns: Turns | None,
    ) -> None:
        if not agents:
            msg = "a server needs an agent; pass agents={'default': agent}"
            raise ConfigError(msg)
        words("an agent", agents)
        self.access = access
        self.limits = limits
        self._resume = resume
        self._resuming: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[NoReturn] | None = None
        self.opens = OpenSessions(agents, store, limits=limits, turns=turns)
        self.keys = KeyedAnswers(self.opens)
        self.streams = Streams(limits, beat)
        self.rates = RequestRates(limits, store)
        self.metrics = Metrics(self.opens, self.streams)
        self.lists = ListFeed(self.opens)
        sessions, steps = SessionRoutes(self.opens, self.lists, limits.attached), StepRoutes(self.opens)
        protocols = ProtocolRoutes(self.opens, self.streams)
        parts = (sessions, steps, protocols, ConsoleRoutes(self.opens), self)
        operations = [each for routes in parts for each in operations_of(routes)]
        docs = DocsRoutes(operations, secured=bool(access.tokens))
        self.operations = [*operations, *operations_of(docs)]

    def names(self, tenant: str) -> Namespace:
        """The names of the sessions of *tenant*."""
        return Namespace(tenant, tuple(self.opens.agents))

    async def __aenter__(self) -> AgentServer:
        self._measuring = asyncio.create_task(self.metrics.measure())
        if self.opens.turns is not None:
            # The workers see to what was left, as to all else.
            return self
        names = [self.names(tenant) for tenant in dict.fromkeys(self.access.tokens.values()) or [""]]
        self._looking = asyncio.create_task(Takeovers(self.opens, names, dead=self._resume).run())
        if self._resume:
            # Beside the requests: a store may have a hundred thousand sessions.
            self._resuming = asyncio.create_task(self._go_on(names))
            # A store in memory that has none is done with in one turn.
            await asyncio.sleep(0)
        return self

    async def _go_on(self, names: Sequence[Namespace]) -> None:
        try:
            for each in names:
                await self.opens.go_on(each)
        except TurnwheelError as error:
            warn("not all sessions could be looked at for unfinished runs", error)

    async def __aexit__(self, *_: object) -> None:
        await self.drain()

    async def drain(self, within: float | None = DRAIN_WITHIN) -> None:
        """End all streams, let running work end and close; every run can be resumed. Twice is fine."""
        # A session that has been taken up is drained with the others; one that was only claimed lapses.
        for task in (self._resuming, self._looking, self._measuring):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        self.lists.end()
        await self.opens.drain(within)

    # Operations of its own

    @operation("GET", f"{ONE_SESSION}/events", gives="text/event-stream", parameters=EVENT_PARAMETERS)
    async def get_events(self, call: HttpCall) -> EventStream:
        """What happens in a session, as server-sent events."""
        query = call.request.query_params
        since = call.request.headers.get("last-event-id") or query.get("since", "")
        # Before the answer begins: behind its head there is no status to say it with.
        _, name = await self.opens.find(call.names, call.session)
        if since and await self._is_of_another(since, name):
            since = ""
        tells = teller_of(since, query.get("vocabulary", ""))
        return EventStream(
            telling(self.opens.use(call.names, call.session), tells, self.streams.beat),
            streams=self.streams,
            tenant=call.names.tenant,
            ending=self.opens.draining,
        )

    @operation("GET", "/api/events", gives="text/event-stream", parameters=LIST_EVENT_PARAMETERS)
    async def get_list_events(self, call: HttpCall) -> EventStream:
        """Which sessions change, as server-sent events: each with its row, as in the list."""
        since = call.request.headers.get("last-event-id") or call.request.query_params.get("since", "")
        if since and not re.fullmatch(r"[0-9]{1,18}", since):
            detail = f"since must be the id of an event of this stream; got {since[:50]!r}"
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return EventStream(
            self.lists.reader(call.names, since, self.streams.beat),
            streams=self.streams,
            tenant=call.names.tenant,
            ending=self.opens.draining,
        )

    async def _is_of_another(self, since: str, name: str) -> bool:
        """Whether the id *since* cannot be of the session *name*, but of one that had its name before."""
        entry, place = position(since)
        info = await self.opens.store.info(name)
        # Without a place it is the number of an entry, which may come yet.
        return place >= 0 and info is not None and entry >= info.length

    @operation("GET", "/healthz", gives="application/json", open=True)
    async def get_health(self, call: HttpCall) -> Response:
        """Whether the process lives."""
        del call
        return Response('{"status":"ok"}', media_type="application/json")

    @operation(
        "GET",
        "/readyz",
        gives="application/json",
        open=True,
        refuses=(HTTPStatus.SERVICE_UNAVAILABLE,),
    )
    async def get_ready(self, call: HttpCall) -> Response:
        """Whether the server takes work; *resuming* while it looks for runs that were left in the middle."""
        del call
        if self.opens.draining.is_set():
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server is ending; ask another one")
        await self.opens.store.list(1)
        if self._resuming is not None and not self._resuming.done():
            return Response('{"status":"ok","resuming":true}', media_type="application/json")
        return Response('{"status":"ok"}', media_type="application/json")

    @operation("GET", "/metrics", gives="text/plain")
    async def get_metrics(self, call: HttpCall) -> Response:
        """Numbers for Prometheus."""
        del call
        return self.metrics.answer()

    # From a request to an answer

    def endpoint(self, operation: Operation) -> Callable[[Request], Awaitable[ASGIApp]]:
        """The endpoint of *operation*: it checks a request, answers it, and counts the answer."""

        async def answer(request: Request) -> ASGIApp:
            names, status = self.names(""), int(HTTPStatus.INTERNAL_SERVER_ERROR)
            try:
                self.access.check_page(request, request.method)
                names = self.names("" if operation.open else self.access.tenant(request))
                if not operation.open:
                    await self.rates.enter(names.tenant)
                body = await body_of(operation, request, self.limits.body)
                given = await self._given(operation, HttpCall(request=request, names=names, body=body))
                status = operation.status
                return _json(given, operation.status) if isinstance(given, bytes) else given
            except asyncio.CancelledError:
                status = UNANSWERED
                raise
            except ClientDisconnect:
                # No fault of the server; the caller does not hear of it any more.
                status = UNANSWERED
                return problem(HTTPStatus.BAD_REQUEST, "the connection ended before the body did")
            except Exception as error:  # noqa: BLE001  # each becomes an answer, or is raised again there
                refused = refusal_of(error)
                status = refused.status
                return problem(refused.status, names.hidden(refused.detail), refused.headers)
            finally:
                self.metrics.count(operation.method, operation.path, status)

        return answer

    async def _given(self, operation: Operation, call: HttpCall) -> bytes | Response | EventStream:
        """The answer to *call* in JSON, or one of its own form."""

        async def plain() -> bytes:
            return msgspec.json.encode(await _done(operation, call))

        if operation.keyed:
            return await (self.keys.once(operation, call, plain) if call.key else plain())
        given = await _done(operation, call)
        return given if isinstance(given, Response | EventStream) else msgspec.json.encode(given)

    def routes(self) -> list[Route]:
        """All routes; those of one path are one, so that it knows its methods."""
        by_path: dict[str, dict[str, Callable[[Request], Awaitable[ASGIApp]]]] = {}
        for each in self.operations:
            by_path.setdefault(each.path, {})[each.method] = self.endpoint(each)
        # A sender's own id may have a slash, which is decoded before a route is looked for.
        routes = {path.replace("{input}", "{input:path}"): methods for path, methods in by_path.items()}
        return [Route(path, _by_method(methods), methods=[*methods]) for path, methods in routes.items()]


def _with_nosniff(answer: HttpAnswer) -> HttpAnswer:
    """*answer*, which a browser takes for nothing but its media type."""
    if isinstance(answer, Response):
        answer.headers[NOSNIFF] = "nosniff"
    return answer


def _json(data: bytes, status: HTTPStatus) -> Response:
    return Response(data, status, media_type="application/json")


async def _done(operation: Operation, call: HttpCall) -> Any:  # noqa: ANN401  # as the operation gives it
    """What *operation* gives; done again where another process took or deleted the session meanwhile."""
    for _ in range(CONFLICTS):
        # Nothing was written. The run here finds out at its next look at the store, and the input goes by way
        # of the journal then. Of a session that was deleted, another one may have the name by now.
        with suppress(StoreConflict, SessionGone):
            return await operation.handler(call)
        await asyncio.sleep(CONFLICT_PAUSE)
    return await operation.handler(call)


def _by_method(
    methods: Mapping[str, Callable[[Request], Awaitable[ASGIApp]]],
) -> Callable[[Request], Awaitable[Any]]:
    async def endpoint(request: Request) -> ASGIApp:
        return _with_nosniff(await methods["GET" if request.method == "HEAD" else request.method](request))

    return endpoint


async def _refuse(request: Request, error: Exception) -> Response:
    """The answer where no operation is: an unknown path, or a method that it has not."""
    del request
    if isinstance(error, HTTPException):
        headers = None if error.headers is None else dict(error.headers)
        return _with_nosniff(problem(HTTPStatus(error.status_code), str(error.detail), headers))
    warn("a request failed", error, level=logging.ERROR)
    return _with_nosniff(problem(HTTPStatus.INTERNAL_SERVER_ERROR, "a fault of the server; its log has more"))


def _check_store(store: object) -> None:
    """Raise `ConfigError` where *store* is none that is open."""
    if store is None or isinstance(store, str | Path):
        example = "MemoryStore()" if store is None else f"SQLiteStore({str(store)!r:.200})"
        msg = f"store: {store!r:.200} is not an open store; write create_app(agents, {example})"
        raise ConfigError(msg)
    checked_store(cast("Store", store))


def _check_agents(agents: Mapping[str, object]) -> None:
    """Raise `ConfigError` where one of *agents* is none."""
    for agent in agents.values():
        if not isinstance(agent, Agent):
            msg = f"agents: {type(agent).__name__} is not an Agent; write agents={{'default': Agent(...)}}"
            raise ConfigError(msg)


def create_app(  # noqa: PLR0913  # settings, each with a default
    agents: Mapping[str, Agent] | Agent,
    store: Store,
    *,
    tokens: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    limits: ServerLimits = ServerLimits(),  # noqa: B008  # a frozen value
    heartbeat: float = 15.0,
    resume: bool = True,
    turns: Turns | None = None,
) -> Starlette:
    """
    An ASGI app that serves *agents*, by their names, with the sessions of *store*.

    The first agent is that of sessions which name none. *tokens* are bearer tokens, each with its tenant;
    without any, only callers that reach this machine's own addresses are served, and *hosts* are its other
    names. *origins* are pages of other servers that may call it. A comment goes down each event stream every
    *heartbeat* seconds. With *resume*, it goes on with the runs that were left in the middle.
    With *turns*, such as a `TurnQueue`, it drives no run: it queues turns, and workers take them.

    Mounted into another app, it needs that app's lifespan: ``async with app.state.server: yield``.
    """
    _check_store(store)
    by_name = agents if isinstance(agents, Mapping) else {"default": agents}
    _check_agents(by_name)
    access = Access(tokens=tokens or {}, hosts=hosts, origins=origins)
    server = AgentServer(
        by_name, store, access=access, limits=limits, beat=heartbeat, resume=resume, turns=turns
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        async with server:
            yield

    allowed = list(access.origins)
    cors = [Middleware(CORSMiddleware, allow_origins=allowed, allow_methods=["*"], allow_headers=["*"])]
    app = Starlette(
        routes=server.routes(),
        lifespan=lifespan,
        middleware=cors if allowed else [],
        exception_handlers={HTTPException: _refuse, Exception: _refuse},
    )
    # A path with one slash more is none of ours: a redirect would come before any check.
    app.router.redirect_slashes = False
    app.state.server = server
    return app
