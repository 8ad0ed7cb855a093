"""
Asking a model over HTTP: one request out, a stream of pieces in, one answer at the end.

Theory of operation. The dialect is a `Wire`; here are only the connection, its clocks and its faults. A fault
of the world is never raised: it is a `ModelFailed` that names what was waited for and the setting that says
how long. Pieces are handed on when the task next waits for the network: what one read brought is one event,
however many HTTP chunks were in it, and since nobody else runs before that, nothing comes later for it.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
from typing import TYPE_CHECKING, final
from weakref import WeakKeyDictionary

import attrs
import httpx

from ...errors import ConfigError
from ...events import Failure, ModelFailed, ModelFinished, ModelStreamed
from .errors import refusal
from .throttle import LIMIT, Throttle
from .wire import Broken, Complete, Ending

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...events import Answer
    from ...pieces import Piece
    from ...requests import CallModel
    from ..base import Scene
    from .throttle import Slot
    from .wire import Parser, Wire

LINGER = 0.25
"""Seconds to wait for the end of a body after its last event, so that the connection can be used again."""

MAX_REFUSAL = 64 * 1024
"""Bytes of an error's body that are read: its message stands at the front."""

REFUSAL_WAIT = 5.0
"""Seconds to wait for an error's body; its status is known already."""

LOAD = frozenset({Failure.RATE_LIMIT, Failure.OVERLOADED})
"""Failures that say that the provider has enough to do, so that others shall not ask either."""

UNAVAILABLE = 503
"""The status that says as much of a failing server."""

RENEW = 0.1
"""The share of its time in which the idle alarm is set anew, not at every chunk; it rings that much later."""


@final
@attrs.frozen(kw_only=True)
class Timeouts:
    """
    How long is waited, in seconds; None for ever.

    *connect* for a connection, *first_byte* from the start to the first byte of the answer's body, *idle*
    from any byte to the next.
    """

    connect: float | None
    first_byte: float | None
    idle: float | None

    def __attrs_post_init__(self) -> None:
        for name, value in (("connect", self.connect), ("first_byte", self.first_byte), ("idle", self.idle)):
            if value is not None and not value > 0:
                msg = f"{name}_timeout must be more than 0, or None to wait for ever; got {value!r}"
                raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Endpoint:
    """Where a model is asked: *headers* go with each request, *login* says how to mend a missing key."""

    base_url: str
    headers: Mapping[str, str]
    login: str


def key_of(given: str | None, variable: str) -> str:
    """The API key that was *given*, else that of the environment's *variable*; empty where there is none."""
    key = (os.environ.get(variable, "") if given is None else given).strip()
    if not key.isascii() or not key.isprintable():
        msg = f"the api key has characters that no header can hold; check api_key or {variable}"
        raise ConfigError(msg)
    return key


class HTTPModel:
    """
    Performs `CallModel` in the dialect *wire* at *endpoint*.

    A *client* of the caller's is used with its own settings, but for the timeouts, and never closed. Without
    one, one is made when it is first needed, and `aclose` closes it. At most *limit* requests are under way
    at a time, None for any number; others wait, and all do where the provider asks for it.
    """

    def __init__(
        self,
        wire: Wire,
        endpoint: Endpoint,
        timeouts: Timeouts,
        client: httpx.AsyncClient | None = None,
        limit: int | None = LIMIT,
    ) -> None:
        self._wire = wire
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._given = client
        self._throttle = Throttle(limit)
        self._connect = httpx.Timeout(None, connect=timeouts.connect)
        self._urls: dict[str, httpx.URL] = {}
        # Connections belong to the event loop they were opened in.
        self._own: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    async def aclose(self) -> None:
        """Close the client that was made here in this event loop; a later request makes a new one."""
        client = self._own.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    async def __call__(self, request: CallModel, scene: Scene) -> Answer:
        """Ask the model and return `ModelFinished` or `ModelFailed`; cancelling fails it as cancelled."""
        exchange = _Exchange(request, scene, self._wire.parser(scene))
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        with self._throttle.slot(request, scene) as slot:
            try:
                ending = await slot.wait() or await self._ask(exchange, slot)
            except asyncio.CancelledError:
                while task and task.cancelling() > cancels:
                    task.uncancel()
                ending = Broken(failure=Failure.CANCELLED, message="cancelled", usage=exchange.parser.usage)
            if isinstance(ending, Broken) and ending.failure is Failure.AUTH:
                ending = attrs.evolve(ending, message=f"{ending.message}; {self._endpoint.login}")
            answer = exchange.answer(ending)
            if isinstance(answer, ModelFailed) and _is_load(answer, exchange.status):
                slot.turned_away(answer)
        return answer

    async def _ask(self, exchange: _Exchange, slot: Slot) -> Ending:
        exchange.begin()
        post = self._wire.encode(exchange.request, exchange.scene)
        try:
            stream = self._client().stream(
                "POST",
                self._url(post.path),
                content=post.body,
                headers={**self._endpoint.headers, **post.headers},
                timeout=self._connect,
            )
            async with asyncio.timeout(self._timeouts.first_byte) as alarm, stream as response:
                exchange.status = response.status_code
                if not response.is_success:
                    return await _refused(response, exchange.scene.clock.now())
                exchange.accepted = True
                slot.taken_up()
                await self._read(response, exchange, alarm)
        except TimeoutError:
            return exchange.parser.end(self._late(begun=exchange.begun))
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return exchange.parser.end(self._fault(error, answered=exchange.accepted))
        return exchange.parser.end()

    async def _read(self, response: httpx.Response, exchange: _Exchange, alarm: asyncio.Timeout) -> None:
        clock, idle, parser = asyncio.get_running_loop().time, self._timeouts.idle, exchange.parser
        renew = 0.0
        plain = "content-encoding" not in response.headers
        chunks = response.aiter_raw() if plain else response.aiter_bytes()
        async for data in chunks:
            exchange.take(data)
            if (now := clock()) >= renew:
                alarm.reschedule(None if idle is None else now + idle * (1 + RENEW))
                renew = math.inf if idle is None else now + idle * RENEW
            if parser.done:
                break
        alarm.reschedule(clock() + LINGER)
        async for _ in chunks:
            pass

    def _url(self, path: str) -> httpx.URL:
        """The address of *path*, which is parsed once: there are few, and each is asked for at every turn."""
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(self._endpoint.base_url + path)
        return url

    def _client(self) -> httpx.AsyncClient:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        client = self._own.get(loop)
        if client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            client = self._own[loop] = httpx.AsyncClient(limits=limits)
        return client

    def _late(self, *, begun: bool) -> Broken:
        limit = self._timeouts.idle if begun else self._timeouts.first_byte
        name = "idle_timeout" if begun else "first_byte_timeout"
        what = "nothing more" if begun else "no answer"
        message = f"{what} from {self._endpoint.base_url} for {limit} s ({name}={limit!r})"
        return Broken(failure=Failure.TIMEOUT, message=message)

    def _fault(self, error: Exception, *, answered: bool) -> Broken:
        url, said = self._endpoint.base_url, str(error) or type(error).__name__
        match error:
            case httpx.ConnectTimeout():
                limit = self._timeouts.connect
                message = f"no connection to {url} within {limit} s (connect_timeout={limit!r})"
                return Broken(failure=Failure.TIMEOUT, message=message)
            case httpx.TimeoutException():
                return Broken(failure=Failure.TIMEOUT, message=f"the client gave up on {url}: {said}")
            case httpx.InvalidURL() | httpx.UnsupportedProtocol() | httpx.LocalProtocolError():
                return Broken(failure=Failure.BAD_REQUEST, message=f"cannot ask {url!r}: {said}")
            case _ if answered:
                return Broken(failure=Failure.CUT, message=f"the answer from {url} was cut: {said}")
            case _:
                return Broken(failure=Failure.CONNECTION, message=f"no connection to {url}: {said}")


def _is_load(failed: ModelFailed, status: int) -> bool:
    """Whether *failed* says that there are too many requests; *status* is the server's, or 0."""
    if status and failed.failure is Failure.SERVER:
        return failed.retry_after is not None or status == UNAVAILABLE
    return status > 0 and failed.failure in LOAD


async def _refused(response: httpx.Response, now: float) -> Broken:
    body = b""
    try:
        async with asyncio.timeout(REFUSAL_WAIT):
            async for data in response.aiter_bytes():
                body += data
                if len(body) >= MAX_REFUSAL:
                    break
    except (httpx.HTTPError, OSError):
        pass  # the status and what came of the body say enough
    return refusal(response.status_code, response.headers, body, now)


@final
class _Exchange:
    """One request under way: what came of its answer, and what of that was handed on."""

    def __init__(self, request: CallModel, scene: Scene, parser: Parser) -> None:
        self.request = request
        self.scene = scene
        self.parser = parser
        self.status = 0  # of the server's answer, once that has begun
        self.accepted = False  # and whether it is one to the request
        self.begun = False  # a byte of the answer's body has come
        self._started: float | None = None
        self._call_soon = asyncio.get_running_loop().call_soon
        self._fresh: list[Piece] = []
        self._emitted = 0

    def begin(self) -> None:
        """Count the time from now on: what was waited before was no work."""
        self._started = self.scene.clock.now()

    def take(self, data: bytes) -> None:
        """Read *data*; its pieces are emitted as soon as the task waits for more."""
        self.begun = True
        pieces = self.parser.feed(data)
        if not pieces:
            return
        if self._fresh:
            self._fresh += pieces
        else:
            self._fresh = pieces
            self._call_soon(self._flush)

    def answer(self, ending: Ending) -> ModelFinished | ModelFailed:
        """The one answer to the request, behind all that was streamed."""
        self._flush()
        now, request = self.scene.clock.now(), self.request.id
        seconds = 0.0 if self._started is None else now - self._started
        if isinstance(ending, Complete):
            return ModelFinished(
                at=now,
                request=request,
                stop=ending.stop,
                usage=ending.usage,
                pieces=ending.pieces,
                seconds=seconds,
                sequence=ending.sequence,
            )
        return ModelFailed(
            at=now,
            request=request,
            failure=ending.failure,
            message=ending.message,
            retry_after=ending.retry_after,
            jitter=random.random(),  # noqa: S311  # it spreads retries, it keeps no secret
            usage=ending.usage,
            seconds=seconds,
        )

    def _flush(self) -> None:
        if pieces := self._fresh:
            self._fresh = []
            self.scene.emit(
                ModelStreamed(
                    at=self.scene.clock.now(),
                    request=self.request.id,
                    before=self._emitted,
                    count=len(pieces),
                    pieces=tuple(pieces),
                )
            )
            self._emitted += len(pieces)
