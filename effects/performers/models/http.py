"""
Asking a model over HTTP: one request out, a stream of pieces in, one answer at the end.

Theory of operation. The dialect is a `Wire`; here are only the connection, its clocks and its faults. A fault
of the world is never raised: it is a `ModelFailed` that names what was waited for and the setting that says
how long. What came of an answer is an `Exchange`.

Whoever answers is not trusted. An answer ends in bounded time and takes bounded memory, whatever it says of
itself: nothing is unpacked at once, redirects are not followed, since the key would go along, cookies are not
kept, and the key is in no message, though servers like to quote it.
"""

from __future__ import annotations

import asyncio
import math
import os
import zlib
from contextlib import aclosing, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, final
from weakref import WeakKeyDictionary

import attrs
import httpx

from ...errors import ConfigError
from ...events import Failure, ModelFailed
from .errors import refusal, shorten
from .exchange import MAX_ANSWER, Exchange
from .hiding import hidden, keys_in, without_login
from .throttle import LIMIT, Throttle
from .unpack import as_it_is, unpacked, unpacking
from .wire import Broken, Ending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ...events import Answer
    from ...requests import CallModel
    from ..base import Scene
    from .throttle import Slot
    from .unpack import Unpack
    from .wire import Wire

LINGER = 0.25
"""Seconds to wait for the end of a body after its last event, so that the connection can be used again."""

MAX_REFUSAL = 64 * 1024
"""Bytes of an error's body that are read: its message stands at the front."""

REFUSAL_WAIT = 5.0
"""Seconds to wait for an error's body, or less where the patience is less; its status is known already."""

WHOLE = 3600.0
"""Seconds that an answer may take: the longest take minutes, so who still talks then never ends."""

PLAIN = {"accept-encoding": "identity"}
"""Asks for an answer as it is: compressing one would only hold up its bits."""

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
    from any byte to the next, *answer* from the start to the end of the answer.
    """

    connect: float | None
    first_byte: float | None
    idle: float | None
    answer: float | None = WHOLE

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value is not None and not value > 0:
                msg = f"{name}_timeout must be more than 0, or None to wait for ever; got {value!r}"
                raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Endpoint:
    """Where a model is asked: *headers* go with each request, *login* says how to mend a missing key."""

    base_url: str = attrs.field(repr=lambda url: repr(without_login(url)))
    headers: Mapping[str, str] = attrs.field(repr=False)
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
    at a time, None for any number; others wait, and all do where the provider asks for it. Of an answer, at
    most *max_answer* bytes are read.
    """

    def __init__(
        self,
        wire: Wire,
        endpoint: Endpoint,
        timeouts: Timeouts,
        client: httpx.AsyncClient | None = None,
        limit: int | None = LIMIT,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        if max_answer < 1:
            msg = f"max_answer must be at least 1 byte; got {max_answer!r}"
            raise ConfigError(msg)
        self._wire = wire
        self._endpoint = endpoint
        self._shown = without_login(endpoint.base_url)
        self._timeouts = timeouts
        self._max_answer = max_answer
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
        exchange = Exchange(request, scene, self._wire.parser(scene), self._max_answer)
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        with self._throttle.slot(request, scene) as slot:
            try:
                ending = await slot.wait() or await self._ask(exchange, slot)
            except asyncio.CancelledError:
                while task and task.cancelling() > cancels:
                    task.uncancel()
                ending = Broken(failure=Failure.CANCELLED, message="cancelled", usage=exchange.parser.usage)
            answer = exchange.answer(self._told(ending))
            if isinstance(answer, ModelFailed) and _is_load(answer, exchange.status):
                slot.turned_away(answer)
        return answer

    def _told(self, ending: Ending) -> Ending:
        """*ending* as it is told: what it says of a failure says how to mend it, and holds no key."""
        if not isinstance(ending, Broken):
            return ending
        given = {} if self._given is None else self._given.headers
        message = hidden(ending.message, (*keys_in(self._endpoint.headers), *keys_in(given)))
        if ending.failure is Failure.AUTH:
            message = f"{message}; {self._endpoint.login}"
        return attrs.evolve(ending, message=message)

    async def _ask(self, exchange: Exchange, slot: Slot) -> Ending:
        exchange.begin()
        post = self._wire.encode(exchange.request, exchange.scene)
        latest = _sum(asyncio.get_running_loop().time(), self._timeouts.answer)
        try:
            stream = self._client().stream(
                "POST",
                self._url(post.path),
                content=post.body,
                headers={**PLAIN, **self._endpoint.headers, **post.headers},
                timeout=self._connect,
                follow_redirects=False,
            )
            async with asyncio.timeout(self._first()) as alarm, stream as response:
                exchange.status = response.status_code
                unpack = _unpacking(response)
                if not response.is_success:
                    alarm.reschedule(None)
                    wait = min(REFUSAL_WAIT, self._timeouts.idle or math.inf)
                    return await _refused(response, unpack, wait, exchange.scene.clock.now())
                slot.taken_up()
                if unpack is None:
                    return self._packed(response)
                exchange.accepted = True
                chunks = _chunks(response)
                if unpack is as_it_is:
                    await self._read(chunks, exchange, alarm, latest)
                else:
                    async with aclosing(unpacked(chunks, unpack)) as parts:
                        await self._read(parts, exchange, alarm, latest)
                if exchange.parser.done:
                    alarm.reschedule(asyncio.get_running_loop().time() + LINGER)
                    async for _ in chunks:
                        pass
        except TimeoutError:
            return exchange.end(self._late(exchange, latest))
        except (httpx.HTTPError, httpx.InvalidURL, OSError, zlib.error) as error:
            return exchange.end(self._fault(error, answered=exchange.accepted))
        return exchange.end()

    def _first(self) -> float | None:
        """Seconds until the answer has to have begun, or to be over."""
        waits = [wait for wait in (self._timeouts.first_byte, self._timeouts.answer) if wait is not None]
        return min(waits, default=None)

    async def _read(
        self, parts: AsyncIterator[bytes], exchange: Exchange, alarm: asyncio.Timeout, latest: float
    ) -> None:
        """Read *parts* until nothing more is wanted; *alarm* ends it where they stop, and at *latest*."""
        clock, idle = asyncio.get_running_loop().time, self._timeouts.idle
        renew = -math.inf
        async for data in parts:
            over = exchange.take(data)
            if (now := clock()) >= renew:
                due = min(_sum(now, idle and idle * (1 + RENEW)), latest)
                alarm.reschedule(None if due == math.inf else due)
                renew = _sum(now, idle and idle * RENEW)
            if over:
                break

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
            no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
            client = self._own[loop] = httpx.AsyncClient(limits=limits, cookies=no_cookies)
        return client

    def _late(self, exchange: Exchange, latest: float) -> Broken:
        waits, url = self._timeouts, self._shown
        if asyncio.get_running_loop().time() >= latest:
            message = (
                f"no end of the answer from {url} for {waits.answer} s (answer_timeout={waits.answer!r})"
            )
        elif exchange.begun:
            message = f"nothing more from {url} for {waits.idle} s (idle_timeout={waits.idle!r})"
        else:
            limit = waits.first_byte
            message = f"no answer from {url} for {limit} s (first_byte_timeout={limit!r})"
        return Broken(failure=Failure.TIMEOUT, message=message)

    def _packed(self, response: httpx.Response) -> Broken:
        how = shorten(response.headers["content-encoding"])
        message = f"the answer from {self._shown} is encoded as {how!r}, which nobody asked for"
        return Broken(failure=Failure.BAD_REQUEST, message=message)

    def _fault(self, error: Exception, *, answered: bool) -> Broken:
        url, said = self._shown, shorten(str(error)) or type(error).__name__
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


async def _refused(response: httpx.Response, unpack: Unpack | None, wait: float, now: float) -> Broken:
    body = bytearray()
    if unpack is not None:
        # The status and what came of the body say enough.
        with suppress(httpx.HTTPError, OSError, zlib.error):
            async with asyncio.timeout(wait):
                await _begin(body, _chunks(response), unpack)
    return refusal(response.status_code, response.headers, bytes(body[:MAX_REFUSAL]), now)


def _unpacking(response: httpx.Response) -> Unpack | None:
    """How the body of *response* is read; None where nobody here can. What was read is unpacked already."""
    if response.is_stream_consumed:
        return as_it_is
    return unpacking(response.headers.get("content-encoding", ""))


def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """The body of *response* as it comes; some clients of the caller's have read it before."""
    return response.aiter_bytes() if response.is_stream_consumed else response.aiter_raw()


async def _begin(body: bytearray, chunks: AsyncIterator[bytes], unpack: Unpack) -> None:
    """Add the beginning of what *chunks* unpack to, to *body*."""
    async with aclosing(unpacked(chunks, unpack)) as parts:
        async for part in parts:
            body += part
            if len(body) >= MAX_REFUSAL:
                return


def _sum(now: float, seconds: float | None) -> float:
    """When so many *seconds* are over; None are never."""
    return math.inf if seconds is None else now + seconds
