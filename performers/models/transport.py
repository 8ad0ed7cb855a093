"""
How a request reaches a server: bytes out; a status, headers and chunks of bytes in.

Theory of operation. A `Transport` sends one POST at a time for as many sessions as there are, and says in
words of its own what went wrong. Nothing above it knows by which library that is. A caller's client is used
as it is. Otherwise each request has a connection to itself, taken from those that rest, so that no request
pays for the connections of others: the pool of httpx looks through all of them for each.

No clock runs here but that of a new connection; `HTTPModel` has the others, and cancels.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from functools import cache, cached_property
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib.util import find_spec
from sys import modules
from typing import TYPE_CHECKING, Any, Literal, Protocol, final
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import attrs
import httpx

from ...effects.errors import ConfigError

if TYPE_CHECKING:
    import asyncio
    import ssl
    from types import ModuleType

    import aiohttp
    import yarl
    from httpcore import AsyncHTTPConnection

# Seconds for which a connection that rests is kept: as long as httpx keeps one.
KEPT = 5.0

# The kinds of addresses that the environment may name a proxy for.
PROXIED = ("http", "https", "all")

# Bytes of one header of an answer that aiohttp reads; httpcore has a bound for all of them together.
MAX_HEADER = 64 * 1024


class TransportError(Exception):
    """There is no connection, or it broke: it was refused, closed, or no speech of HTTP or TLS."""


@final
class ConnectTimedOut(TransportError):
    """There was no connection within the time for one."""


@final
class ClientTimedOut(TransportError):
    """A clock of the caller's own client ran out: for a read, or for a place in its pool."""


@final
class Unsendable(TransportError):
    """The request cannot be sent as it is: its address or a header of it is none."""


@final
@attrs.frozen(kw_only=True)
class HTTPReply:
    """
    The beginning of an answer, whose body comes in *chunks*.

    *coding* is how they are packed, empty where they are not.
    """

    status: int
    headers: Mapping[str, str]
    coding: str
    chunks: AsyncIterator[bytes]

    @property
    def is_success(self) -> bool:
        """Whether the request was taken."""
        return 200 <= self.status < 300  # noqa: PLR2004  # 2xx


class Transport(Protocol):
    """Sends requests of any number of sessions in one event loop."""

    def ask(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[HTTPReply]:
        """
        POST *body* and give the answer, while it is entered; leaving early closes the connection.

        Follows no redirect. Raises `TransportError`, also for what goes wrong while the body is read.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections that were opened here."""
        ...


class HTTPClient(Protocol):
    """What is used of an `AsyncClient`, which may be httpx's, httpx2's or made of one of them."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What it sends with each request."""
        ...

    @property
    def build_request(self) -> Callable[..., Any]:
        """Makes a request of it."""
        ...

    @property
    def send(self) -> Callable[..., Awaitable[Any]]:
        """Sends a request."""
        ...


# What a caller asks with: a client of its own, a library by name, or None for the quickest that is there.
Client = HTTPClient | Literal["httpx", "aiohttp"] | None


def callers_own(client: Client) -> HTTPClient | None:
    """The *client* of the caller's; None where it names a library. Raises `ConfigError` for any other."""
    if client == "aiohttp" and find_spec("aiohttp") is None:
        msg = "client='aiohttp': aiohttp is not installed; pip install 'turnwheel[fast]'"
        raise ConfigError(msg)
    if client is None or client in ("httpx", "aiohttp"):
        return None
    if isinstance(client, str) or not (hasattr(client, "build_request") and hasattr(client, "aclose")):
        msg = f"client must be an AsyncClient of httpx or httpx2, 'httpx', 'aiohttp' or None; got {client!r}"
        raise ConfigError(msg)
    return client


def open_transport(client: Client, connect_timeout: float | None) -> Transport:
    """A transport for *client* in the running event loop; *connect_timeout* is the time for a connection."""
    if (own := callers_own(client)) is not None:
        return ClientTransport(own, connect_timeout)
    proxies = getproxies()
    proxied = any(proxies.get(kind) for kind in PROXIED)
    if client == "aiohttp" or (client is None and not proxied and find_spec("aiohttp") is not None):
        return AiohttpTransport(connect_timeout)
    if not proxied:
        return HttpcoreTransport(connect_timeout)
    # The throttle bounds the requests. A bound here would make them wait where no clock of ours runs. And a
    # cookie of one session's answer would go along with the requests of all others.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
    made = httpx.AsyncClient(limits=limits, cookies=no_cookies)
    return ClientTransport(made, connect_timeout, made.aclose)


def _address(url: str) -> tuple[httpx.URL, Mapping[str, str]]:
    """*url* without the name and the password in it, and the header that has them instead."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise Unsendable(str(error)) from error
    if not parsed.userinfo:
        return parsed, {}
    # Here, so that no library writes them to its log.
    token = b64encode(unquote(parsed.userinfo.decode()).encode()).decode()
    return parsed.copy_with(userinfo=b""), {"authorization": f"Basic {token}"}


def _absolute(url: str) -> tuple[httpx.URL, Mapping[str, str]]:
    address, login = _address(url)
    if address.scheme not in {"http", "https"} or not address.host:
        msg = "the address is no http:// or https:// of a host"
        raise Unsendable(msg)
    return address, login


def _merged(*headers: Mapping[str, str]) -> dict[str, str]:
    """All *headers* by their names in small letters, the later ones in the place of the earlier."""
    return {name.lower(): value for each in headers for name, value in each.items()}


def _certificates() -> ssl.SSLContext:
    """The certificates that httpx trusts, by ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` too, for any library."""
    context = httpx.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _explained(error: Exception, library: Any) -> TransportError:  # noqa: ANN401  # its classes, by their names
    """The *error* of *library*, which is httpx, httpx2 or httpcore, in words of ours."""
    said = str(error) or type(error).__name__
    match error:
        case library.ConnectTimeout():
            return ConnectTimedOut(said)
        case library.TimeoutException():
            return ClientTimedOut(said)
        case library.UnsupportedProtocol() | library.LocalProtocolError():
            return Unsendable(said)
        case _:
            return TransportError(said)


@final
class ClientTransport:
    """Sends with *client*, by its settings and its pool; *close* is for one that was made here."""

    def __init__(
        self, client: HTTPClient, connect_timeout: float | None, close: Callable[[], Any] | None = None
    ) -> None:
        self._client = client
        self._close = close
        self._library = library = _library_of(client)
        self._timeout = library.Timeout(None, connect=connect_timeout)
        # Parsed once: there are few, and each is asked for at every turn.
        self._target = cache(self._target_of)

    def _target_of(self, url: str) -> tuple[Any, Mapping[str, str]]:
        address, login = _address(url)
        return self._library.URL(str(address)), login

    @asynccontextmanager
    async def ask(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[HTTPReply]:
        """Let the client send it, with its own headers, log-in and hooks."""
        library, client = self._library, self._client
        try:
            address, login = self._target(url)
            told = _merged(headers, login)
            request = client.build_request("POST", address, content=body, headers=told, timeout=self._timeout)
            # No redirects: the key would go along to a host that no person has named.
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                # A client may have read and unpacked it, as event hooks and caches do.
                read = response.is_stream_consumed
                coding = "" if read else response.headers.get("content-encoding", "")
                async with aclosing(response.aiter_bytes() if read else response.aiter_raw()) as chunks:
                    yield HTTPReply(
                        status=response.status_code, headers=response.headers, coding=coding, chunks=chunks
                    )
            finally:
                await response.aclose()
        except library.InvalidURL as error:
            raise Unsendable(str(error)) from error
        except (library.HTTPError, OSError) as error:
            raise _explained(error, library) from error

    async def aclose(self) -> None:
        """Close the client, unless it is the caller's."""
        if self._close is not None:
            await self._close()


def _library_of(client: HTTPClient) -> ModuleType:
    """The library that *client* is of: httpx, or another one of the same shape."""
    # By its class, since httpx2 need not be installed, and a caller's class may be made of theirs.
    roots = [kind.__module__.partition(".")[0] for kind in type(client).__mro__]
    return modules[next((root for root in roots if root in {"httpx", "httpx2"}), "httpx")]


@final
class HttpcoreTransport:
    """
    Sends by httpcore, which httpx itself sends by, and leaves out the pool and the client above it.

    They are half of what a request costs, and more where there are many.
    """

    def __init__(self, connect_timeout: float | None) -> None:
        import httpcore  # noqa: PLC0415  # 12 ms; httpx imports it with the first client, too

        self._httpcore = httpcore
        self._timeouts = {"timeout": {"connect": connect_timeout}}
        self._errors = (
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.UnsupportedProtocol,
            OSError,
        )
        # The last one that was used is the first to be used again, so that the others can grow old.
        self._resting: deque[AsyncHTTPConnection] = deque()
        self._open: set[AsyncHTTPConnection] = set()
        self._target = cache(self._target_of)

    _tls = cached_property(lambda _: _certificates())

    def _target_of(self, url: str) -> tuple[Any, Mapping[str, str], Mapping[str, str]]:
        address, login = _absolute(url)
        parts = address.raw_scheme, address.raw_host, address.port, address.raw_path
        target = self._httpcore.URL(scheme=parts[0], host=parts[1], port=parts[2], target=parts[3])
        always = {
            "host": address.netloc.decode(),
            "accept": "*/*",
            "connection": "keep-alive",
            "user-agent": f"python-httpx/{httpx.__version__}",
        }
        return target, always, login

    @asynccontextmanager
    async def ask(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[HTTPReply]:
        """Send it by a connection that rests, or by a new one."""
        target, always, login = self._target(url)
        told = _merged(always, headers, login, {"content-length": str(len(body))})
        try:
            encoded = [(name.encode("ascii"), value.encode("ascii")) for name, value in told.items()]
        except UnicodeEncodeError as error:
            raise Unsendable(str(error)) from error
        request = self._httpcore.Request(
            "POST", target, headers=encoded, content=body, extensions=self._timeouts
        )
        connection = await self._connection(target.origin)
        try:
            response: Any = await connection.handle_async_request(request)
            try:
                answered = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                async with aclosing(response.stream.__aiter__()) as chunks:
                    yield HTTPReply(
                        status=response.status,
                        headers=answered,
                        coding=answered.get("content-encoding", ""),
                        chunks=chunks,
                    )
            finally:
                await response.aclose()
        except self._errors as error:
            raise _explained(error, self._httpcore) from error
        finally:
            if connection.is_available():  # its answer was read to the end
                self._resting.append(connection)
            else:
                # A cancelled task may have been cancelled again where httpcore was about to.
                await self._hang_up(connection)

    async def _connection(self, origin: Any) -> AsyncHTTPConnection:  # noqa: ANN401  # of httpcore
        resting = self._resting
        # The oldest one, at each request, so that those of a busy hour do not stay open for ever.
        if len(resting) > 1 and resting[0].has_expired():
            await self._hang_up(resting.popleft())
        while resting:
            connection = resting.pop()
            if not connection.has_expired():
                return connection
            await self._hang_up(connection)
        context = self._tls if origin.scheme == b"https" else None
        connection = self._httpcore.AsyncHTTPConnection(origin, context, keepalive_expiry=KEPT)
        self._open.add(connection)
        return connection

    async def _hang_up(self, connection: AsyncHTTPConnection) -> None:
        self._open.discard(connection)
        await connection.aclose()

    async def aclose(self) -> None:
        """Close all connections; an answer that is being read is cut."""
        self._resting.clear()
        while self._open:
            await self._hang_up(next(iter(self._open)))


@final
class AiohttpTransport:
    """Sends by aiohttp, whose parser is in C and whose pool is not looked through."""

    def __init__(self, connect_timeout: float | None) -> None:
        import aiohttp  # noqa: PLC0415  # 0.1 s, for those only who use it
        import yarl  # noqa: PLC0415  # comes with it

        self._aiohttp, self._yarl = aiohttp, yarl
        # Over all of a connection: the search for the host, TCP and TLS.
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=MAX_HEADER,
            max_field_size=MAX_HEADER,
        )
        self._target = cache(self._target_of)
        # The last body of each connection, by the future of its end.
        self._bodies: dict[asyncio.Future[None], aiohttp.StreamReader] = {}

    _tls = cached_property(lambda _: _certificates())

    def _target_of(self, url: str) -> tuple[yarl.URL, Mapping[str, str], str | None]:
        address, login = _absolute(url)
        proxies = getproxies()
        proxy = proxies.get(address.scheme) or proxies.get("all")
        if proxy and proxy_bypass(address.host):
            proxy = None
        return self._yarl.URL(str(address), encoded=True), login, proxy

    @asynccontextmanager
    async def ask(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[HTTPReply]:
        """Send it by a connection of the session's."""
        aiohttp = self._aiohttp
        target, login, proxy = self._target(url)
        try:
            try:
                response = await self._session.post(
                    target,
                    data=io.BytesIO(body),  # bytes of more than a megabyte it warns of
                    headers=_merged(headers, login),
                    proxy=proxy,
                    timeout=self._timeout,
                    ssl=self._tls if target.scheme == "https" else True,
                    allow_redirects=False,
                )
            except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
                raise Unsendable(str(error)) from error
            except (aiohttp.ClientError, OSError):
                raise  # a certificate that is refused is a ValueError, too
            except ValueError as error:
                raise Unsendable(str(error)) from error
            try:
                if response.status < 200:  # noqa: PLR2004  # no answer, and another protocol at most
                    msg = f"the answer has the status {response.status}"
                    raise TransportError(msg)
                self._watch(response)
                yield HTTPReply(
                    status=response.status,
                    headers=response.headers,
                    coding=response.headers.get("content-encoding", ""),
                    chunks=response.content.iter_any(),
                )
            finally:
                response.close()  # one that was read to its end has given its connection back by now
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectTimedOut(str(error)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise TransportError(str(error) or type(error).__name__) from error

    def _watch(self, response: aiohttp.ClientResponse) -> None:
        """Have the end of the connection be the end of the body of *response*, too."""
        # Where a chunk is malformed, aiohttp hangs up and tells no reader, who would wait for more.
        protocol = response.connection.protocol if response.connection is not None else None
        ended = protocol.closed if protocol is not None else None
        if ended is not None:
            if ended not in self._bodies:
                ended.add_done_callback(self._ended)
            self._bodies[ended] = response.content

    def _ended(self, end: asyncio.Future[None]) -> None:
        body = self._bodies.pop(end)
        error = None if end.cancelled() else end.exception()
        if body.exception() is None and not body.is_eof():
            body.set_exception(error or self._aiohttp.ClientPayloadError("the answer is malformed"))

    async def aclose(self) -> None:
        """Close the session."""
        await self._session.close()

    def __del__(self) -> None:
        # A loop that ended took its connections along, and there is nothing left to wait for. Left alone,
        # aiohttp would log that as a mistake.
        if not self._session.closed:
            with suppress(StopIteration, RuntimeError):
                self._session.close().send(None)
