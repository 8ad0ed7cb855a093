"""
Asking a model over HTTP: one request out, a stream of pieces in, one answer at the end.

Theory of operation. The dialect is a `Wire`; here are only the connection, its clocks and its faults. A fault
of the world is never raised: it is a `ModelFailed` that names the server, the wait and the setting for it.
`CallAttempt` is one request under way.

The server is not trusted. An answer ends in bounded time and takes bounded memory, whatever its headers
promise. The key is in no message, though servers like to quote it.
"""

from __future__ import annotations

import asyncio
import math
import random
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from functools import cached_property
from typing import TypedDict, Unpack, assert_never, final

import attrs

from ...effects.config import ModelSpec
from ...effects.errors import ConfigError
from ...effects.events import Answer, Failure, ModelFailed, ModelFinished, ModelStreamed
from ...effects.history import CallPiece, Piece, ReasoningPiece, TextPiece
from ...effects.messages import Binary, Citation, ProviderCall
from ...effects.requests import CallModel
from ...effects.validators import MAX_CALL_ARGUMENTS
from ..base import PerformContext
from ..worker_pool import CancelShield
from .encoding import EncodingWire
from .errors import (
    ABSENT_STATUSES,
    SHORTEST,
    is_about_key,
    is_page,
    keys_in,
    login_in,
    not_there,
    page_in_place,
    redact_keys,
    refusal,
    shorten,
    without_login,
)
from .extras import variables_of
from .prompt_cache import MIN_PROMPT, PromptCache
from .throttle import MAX_CONCURRENT, Slot, Throttle
from .transport import (
    Client,
    ClientTimedOut,
    ConnectTimedOut,
    HTTPReply,
    Transport,
    TransportError,
    Unsendable,
    callers_own,
    open_transport,
)
from .wire import AnswerEnd, Broken, Complete, Parser, Wire, cut_short

# Bytes of an answer that are read, unless max_answer sets another number.
# 128k tokens, each in an event of its own, are some 45 MB at the most talkative of providers.
MAX_ANSWER = 64 * 1024 * 1024

# Characters that an answer may say, thinking and calls included. 128k tokens are half a million.
MAX_CHARACTERS = 8 * 1024 * 1024

# Pieces that an answer may come in: 128k tokens, one by one, are a quarter of that.
MAX_PIECES = 500_000

# Bytes that are unpacked at once: as many as one read of the network brings.
MAX_PART = 64 * 1024

# Seconds in which what comes right behind other pieces waits for more. An event costs as much as dozens of
# pieces do, and each of them would be one where a server sends many at once; no person sees a delay so short.
BURST = 0.002

# Seconds to wait for the end of a body after its last event, so that the connection can be used again.
LINGER = 0.25

# Bytes of an error's body that are read: its message stands at the front.
MAX_REFUSAL = 64 * 1024

# Seconds to wait for an error's body, or less where the patience is less; its status is known already.
REFUSAL_WAIT = 5.0

# Seconds that an answer may take: the longest take minutes, so a server that still talks then never ends.
ANSWER_SECONDS = 3600.0

# Asks for an answer as it is: compressing one would only hold up its bits.
IDENTITY = {"accept-encoding": "identity"}

# Failures that say that the provider has enough to do, so that others shall not ask either.
LOAD_FAILURES = frozenset({Failure.RATE_LIMIT, Failure.OVERLOADED})

# The status that says as much of a failing server.
UNAVAILABLE = 503

# Statuses of a request that may be refused for a file in it.
FILE_STATUSES = frozenset({400, 415, 422})

# Files that an error names, the latest ones.
MOST_FILES_NAMED = 3

# The share of its time in which the idle alarm is set anew, not at every chunk; it rings that much later.
RENEW = 0.1


@final
@attrs.frozen(kw_only=True)
class Endpoint:
    """
    Where a model is asked: *headers* go with each request, *login* says how to mend a missing key.

    *keyless* says that there is no key for a provider that answers none without.
    """

    base_url: str = attrs.field(repr=lambda url: repr(without_login(url)))
    headers: Mapping[str, str] = attrs.field(repr=False)
    login: str
    keyless: bool = False

    def with_plain_url(self) -> Endpoint:
        """The same one, with the login in its URL as a header: clients log the URL of each request."""
        if not (login := login_in(self.base_url)):
            return self
        # In place of a key, as clients do with such a URL.
        others = {name: value for name, value in self.headers.items() if name.lower() != "authorization"}
        headers = {**others, "authorization": login}
        return attrs.evolve(self, base_url=without_login(self.base_url), headers=headers)


class HTTPOptions(TypedDict, total=False):
    """
    Settings that all wires share: timeouts in seconds, and bounds.

    At most *limit* requests are under way at a time, None for any number. Of an answer, at most *max_answer*
    bytes are read.
    """

    connect_timeout: float | None
    first_byte_timeout: float | None
    idle_timeout: float | None
    answer_timeout: float | None
    limit: int | None
    max_answer: int


@final
@attrs.frozen(kw_only=True)
class HTTPSettings:
    """
    What `HTTPOptions` come to. Waits are in seconds, None for ever.

    *connect_timeout* is for a connection, *first_byte_timeout* from the start to the first byte of the
    answer's body, *idle_timeout* from any byte to the next, *answer_timeout* from the start to the end of the
    answer.
    """

    connect_timeout: float | None = 10.0
    # A reasoning model may think for minutes before its first byte, and Anthropic's API does not ping before
    # it has read the whole conversation.
    first_byte_timeout: float | None = 300.0
    # Some servers are silent while a model thinks between two calls, and proxies swallow pings.
    idle_timeout: float | None = 120.0
    answer_timeout: float | None = ANSWER_SECONDS
    limit: int | None = MAX_CONCURRENT
    max_answer: int = MAX_ANSWER

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if name.endswith("_timeout") and value is not None and not value > 0:
                msg = f"{name} must be more than 0, or None to wait for ever; got {value!r}"
                raise ConfigError(msg)
        if self.max_answer < 1:
            msg = f"max_answer must be at least 1 byte; got {self.max_answer!r}"
            raise ConfigError(msg)


class HTTPModel:
    """
    Performs `CallModel` in the dialect *wire* at *endpoint*.

    *client* is an `AsyncClient` of httpx or httpx2, used with its own settings, but for the timeouts, and
    never closed; or the library to ask by, ``"httpx"`` or ``"aiohttp"``; by default aiohttp, where it is
    installed. `aclose` closes the connections that were opened here. At most *limit* requests are under way
    at a time, None for any number; others wait, and all do where the provider asks for it. Of an answer, at
    most *max_answer* bytes are read.
    """

    def __init__(
        self, wire: Wire, endpoint: Endpoint, client: Client = None, **options: Unpack[HTTPOptions]
    ) -> None:
        self._wire = wire
        self._endpoint = endpoint = endpoint.with_plain_url()
        self._shown = endpoint.base_url
        self._settings = settings = HTTPSettings(**options)
        self._idle = settings.idle_timeout or math.inf
        self._longest = settings.answer_timeout or math.inf
        self._client: Client = client
        self._given = callers_own(client)
        self._throttle = Throttle(settings.limit, lambda: self.account)
        self._cache = PromptCache()
        # Connections belong to the event loop they were opened in, and `run_sync` opens one loop after
        # another.
        self._transports: dict[asyncio.AbstractEventLoop, Transport] = {}

    async def aclose(self) -> None:
        """Close the connections that were opened here in this event loop; a later request opens new ones."""
        transport = self._transports.pop(asyncio.get_running_loop(), None)
        if transport is not None:
            await transport.aclose()

    @cached_property
    def account(self) -> str:
        """Tells this provider and key from others, in all processes; the key cannot be found from it."""
        from hashlib import sha256  # noqa: PLC0415  # it imports OpenSSL, which takes 20 ms, and few need it

        headers = [f"{name.lower()}: {value}" for name, value in self._endpoint.headers.items()]
        return sha256("\n".join([self._shown, *sorted(headers)]).encode()).hexdigest()[:16]

    def ready(self, model: str = "", *, other: bool = False) -> None:
        """
        Raise `ConfigError` where every request for *model* would be refused: the key is missing.

        *other*: an agent has one *base_url*, and that is for models of another provider.
        """
        # A caller's own client may log in by itself.
        if self._endpoint.keyless and self._given is None:
            whose = f"{model!r} at {self._shown}" if model else self._shown
            way = "leave that model out" if other else "the base_url (--base-url) of another server"
            msg = f"no API key for {whose}; {self._endpoint.login}, or {way}"
            raise ConfigError(msg)

    def check(self, spec: ModelSpec) -> None:
        """Raise `ConfigError` where requests to the model of *spec* cannot have one of its settings."""
        if isinstance(self._wire, EncodingWire):  # another wire knows its own settings
            self._wire.check(spec)

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer:
        """Ask the model and return `ModelFinished` or `ModelFailed`; cancelling fails it as cancelled."""
        attempt = CallAttempt(request, scene, self._wire.parser(scene), self._settings.max_answer)
        shield = CancelShield()
        with self._throttle.slot(request, scene) as slot:
            try:
                ending = await slot.wait() or await self._ask(attempt, slot)
            except asyncio.CancelledError:
                # The tokens so far were used and are paid for, so a cancelled call has an answer, too.
                shield.absorb()
                attempt.parse()
                ending = Broken(failure=Failure.CANCELLED, message="cancelled", usage=attempt.parser.usage)
            except ConfigError as error:  # an environment variable that only this process lacks
                ending = Broken(failure=Failure.BAD_REQUEST, message=str(error))
            answer = attempt.answer(self._explained(ending, attempt, scene.config.spec(request.model)))
            failed: ModelFailed | None = None
            if isinstance(answer, ModelFailed):
                failed = answer if _is_load(answer, attempt.status) else None
            elif answer.usage.input >= MIN_PROMPT:
                self._cache.look(request, scene, attempt.started or answer.at, answer.usage)
            if failed is not None and slot.turned_away(failed):
                # There is an answer, so it is too late to cancel it.
                with suppress(asyncio.CancelledError):
                    await slot.share()
                shield.absorb()
        return answer

    def _explained(self, ending: AnswerEnd, attempt: CallAttempt, spec: ModelSpec) -> AnswerEnd:
        """*ending* of *attempt* without a key in its message, and with the way to mend a wrong one."""
        if not isinstance(ending, Broken):
            return ending
        given = {} if self._given is None else self._given.headers
        named = [value for value in variables_of(spec) if len(value) >= SHORTEST]
        keys = (*keys_in(self._endpoint.headers), *keys_in(given), *named)
        message = redact_keys(ending.message, keys)
        # An account without money has a key that is right.
        if ending.failure is Failure.AUTH and (not keys or is_about_key(attempt.status, ending.message)):
            message = f"{message}; {self._endpoint.login}"
        # A file stays in the conversation, so each later request would be refused for it.
        if ending.failure is Failure.BAD_REQUEST and attempt.status in FILE_STATUSES:
            message += files_hint(attempt.request, attempt.scene)
        return attrs.evolve(ending, message=message)

    async def _ask(  # noqa: PLR0912  # a call of its own for a part of it is paid for with each request
        self, attempt: CallAttempt, slot: Slot
    ) -> AnswerEnd:
        attempt.started = attempt.scene.clock.now()
        post, clock = self._wire.encode(attempt.request, attempt.scene), asyncio.get_running_loop().time
        first_byte = min(self._settings.first_byte_timeout or math.inf, self._longest)
        attempt.latest = clock() + self._longest
        headers = {**IDENTITY, **self._endpoint.headers, **post.headers}
        stream = self._transport().ask(self._endpoint.base_url + post.path, headers, post.body)
        reply: HTTPReply | None = None
        refused, cut = bytearray(), None
        try:
            async with asyncio.timeout(first_byte) as alarm, stream as reply:
                attempt.status, parts = reply.status, _parts(reply)
                if not reply.is_success:
                    # The status is known, so its message is worth a short wait of its own and no longer one.
                    alarm.reschedule(clock() + min(REFUSAL_WAIT, self._idle))
                    if parts is not None:
                        await _begin(refused, parts)
                else:
                    slot.accepted()
                    if slot.permit:
                        await slot.pass_on()
                    if parts is None:
                        cut = self._unreadable(reply)
                    else:
                        await self._read(parts, attempt, alarm)
        except TimeoutError:
            # The parser decides: an answer that was complete when its time ran out is one.
            cut = self._late(attempt)
        except (TransportError, zlib.error) as error:
            cut = self._fault(error, attempt.status)
        if reply is not None and not reply.is_success:
            # What came of its body says enough, whatever happened to the rest.
            body = bytes(refused[:MAX_REFUSAL])
            told = refusal(reply.status, reply.headers, body, attempt.scene.clock.now())
            return not_there(told, self._shown, post.path) if reply.status in ABSENT_STATUSES else told
        ending = attempt.end(cut)
        match ending:
            case Broken(failure=Failure.CUT) if reply and attempt.silent and is_page(reply.headers):
                return page_in_place(reply.headers, self._shown, post.path)
            case _:
                return ending

    async def _read(self, parts: _Parts, attempt: CallAttempt, alarm: asyncio.Timeout) -> None:
        """Read *parts* until nothing more is wanted; *alarm* ends it where they stop, and at the latest."""
        clock, idle, renewal = asyncio.get_running_loop().time, self._idle, -math.inf

        def renew() -> None:
            nonlocal renewal
            now = clock()
            if alarm.expired():
                return
            if attempt.over:
                # A connection can be used again only when its body was read to the end, which is a few bytes
                # away. A server that never sends them costs the connection and not the answer.
                alarm.reschedule(now + LINGER)
            elif now >= renewal:
                # Rescheduling costs a heap entry each time, and chunks come by the hundred per second.
                alarm.reschedule(min(now + idle * (1 + RENEW), attempt.latest))
                renewal = now + idle * RENEW

        attempt.watch = renew
        try:
            async with parts as chunks:
                async for data in chunks:
                    if attempt.take(data):
                        break
                if attempt.parser.done:
                    renew()
                    async for _ in chunks:
                        pass
        finally:
            attempt.watch = _do_nothing  # it may be called once more, when the alarm is off

    def _transport(self) -> Transport:
        loop = asyncio.get_running_loop()
        if loop not in self._transports:
            for ended in [each for each in list(self._transports) if each.is_closed()]:
                self._transports.pop(ended, None)  # with connections that cannot be used any more
            self._transports[loop] = open_transport(self._client, self._settings.connect_timeout)
        return self._transports[loop]

    def _late(self, attempt: CallAttempt) -> Broken:
        if asyncio.get_running_loop().time() >= attempt.latest:
            what, setting = "no end of the answer", "answer_timeout"
        elif attempt.read:
            what, setting = "nothing more", "idle_timeout"
        else:
            what, setting = "no answer", "first_byte_timeout"
        seconds = getattr(self._settings, setting)
        message = f"{what} from {self._shown} for {seconds} s ({setting}={seconds!r})"
        return Broken(failure=Failure.TIMEOUT, message=message)

    def _unreadable(self, reply: HTTPReply) -> Broken:
        how = shorten(reply.coding)
        message = f"the answer from {self._shown} is encoded as {how!r}, which was not asked for"
        return Broken(failure=Failure.BAD_REQUEST, message=message)

    def _fault(self, error: Exception, status: int) -> Broken:
        url, said = self._shown, shorten(str(error))
        failure, limit = Failure.TIMEOUT, self._settings.connect_timeout
        match error:
            case ConnectTimedOut():
                message = f"no connection to {url} within {limit} s (connect_timeout={limit!r})"
            case ClientTimedOut():
                message = f"the client gave up on {url}: {said}"
            case Unsendable():
                failure, message = Failure.BAD_REQUEST, f"cannot ask {url!r}: {said}"
            case _ if status:
                failure, message = Failure.CUT, f"the answer from {url} was cut: {said}"
            case _:
                failure, message = Failure.CONNECTION, f"no connection to {url}: {said}"
        return Broken(failure=failure, message=message)


def files_hint(request: CallModel, scene: PerformContext) -> str:
    """Which files go with *request*, for an error that one of them may be the cause of; empty for none."""
    messages = scene.history.slice(0, request.view.length)
    parts = [part for message in messages for part in message.parts]
    files = [part for part in parts if isinstance(part, Binary) and not part.media_type.startswith("text/")]
    if not files:
        return ""
    named = [f"{file.name} ({file.media_type})" if file.name else file.media_type for file in files]
    shown = shorten(", ".join(dict.fromkeys(named[-MOST_FILES_NAMED:])))
    return (
        f"; files are in the conversation: {shown}; if the model takes none such, branch to the run before it"
    )


def _is_load(failed: ModelFailed, status: int) -> bool:
    """Whether *failed* says that there are too many requests; *status* is the server's, or 0."""
    # A 500 is one request's bad luck. A 503, or any that asks to wait, is the state of the whole server.
    if failed.failure is Failure.SERVER:
        return status == UNAVAILABLE or (status > 0 and failed.retry_after is not None)
    return status > 0 and failed.failure in LOAD_FAILURES


# A body as it comes, unpacked, once it is entered.
_Parts = AbstractAsyncContextManager[AsyncIterator[bytes]]


async def _begin(body: bytearray, parts: _Parts) -> None:
    """Read *parts* into *body*, and no more than is read of a refusal."""
    async with parts as chunks:
        async for data in chunks:
            body += data
            if len(body) >= MAX_REFUSAL:
                break


def _parts(reply: HTTPReply) -> _Parts | None:
    """The body of *reply*; None where it cannot be read here."""
    coding = reply.coding.strip().lower()
    # An asynchronous generator around every chunk takes its time, so the usual answer goes without.
    if coding in {"", "identity"}:
        return nullcontext(reply.chunks)
    unpack = decompressor(coding)
    return None if unpack is None else aclosing(_unpacked(reply.chunks, unpack))


def _do_nothing() -> None:
    pass


@final
@attrs.define(eq=False)
class CallAttempt:
    """
    *request*, asked in *scene*, whose answer *parser* reads; *most* bytes of it are.

    *started* is when it was sent: what was waited before was no work. *latest* is when it
    has to be over, by the loop's clock. *status* is of the server's answer, once that has begun, and *read*
    counts the bytes of its body. *first* is when its first piece came. It is *over* when nothing more of it
    is wanted. *watch* is called whenever some of it was read.
    """

    request: CallModel
    scene: PerformContext
    parser: Parser
    most: int
    started: float | None = None
    first: float | None = None
    latest: float = math.inf
    status: int = 0
    read: int = 0
    over: bool = False
    watch: Callable[[], None] = _do_nothing
    _said: int = 0
    _arguments: dict[int, int] = attrs.Factory(dict)
    _fault: Broken | None = None  # more was said than is taken
    _error: Exception | None = None  # the parser's own
    _loop: asyncio.AbstractEventLoop = attrs.Factory(asyncio.get_running_loop)
    _due: float = -math.inf  # when what is taken next is parsed at the earliest
    _taken: list[bytes] = attrs.Factory(list)  # but not parsed
    _parsed: int = 0
    _emitted: int = 0

    def take(self, data: bytes) -> bool:
        """
        Take *data* of the body, which is parsed when the task waits for more, or a moment later in a burst.

        True: nothing more of it is wanted, whatever comes.
        """
        self.read += len(data)
        if self.read > self.most:
            return True
        # One read of the network brings hundreds of chunks, and a burst many reads. To parse them one by one,
        # and to tell of each by an event, would cost several times as much as to read them together.
        if not self._taken:
            if self._loop.time() >= self._due:
                self._loop.call_soon(self._look)
            else:
                self._loop.call_at(self._due, self._look)
        self._taken.append(data)
        if self.read - self._parsed >= MAX_PART:
            self.parse()
        return self.over

    def parse(self) -> None:
        """Parse what was taken, and emit its pieces."""
        data, self._taken, self._parsed = b"".join(self._taken), [], self.read
        if data and (pieces := tuple(self.parser.feed(data))):
            self._weigh(pieces)
            at, before, count = self.scene.clock.now(), self._emitted, len(pieces)
            if self.first is None:
                self.first = at
            self._emitted += count
            request = self.request.id
            self.scene.emit(ModelStreamed(at=at, request=request, before=before, count=count, pieces=pieces))
        self.over = self.parser.done or self._fault is not None

    def _look(self) -> None:
        self._due = self._loop.time() + BURST
        try:
            self.parse()
        except Exception as error:  # noqa: BLE001  # a host's parser; it is raised again where there is a task
            self._error, self.over = error, True
        self.watch()

    def _weigh(self, pieces: Collection[Piece]) -> None:
        """Note a fault where *pieces* and those before are more than an answer may have."""
        for piece in pieces:
            match piece:
                case TextPiece():
                    self._said += len(piece.text)
                case ReasoningPiece():
                    self._said += len(piece.text) + len(piece.signature) + len(piece.redacted + piece.opaque)
                case CallPiece():
                    size = self._arguments.get(piece.index, 0) + len(piece.arguments)
                    self._arguments[piece.index] = size
                    self._said += len(piece.arguments + piece.wire_id + piece.name + piece.opaque)
                    if size > MAX_CALL_ARGUMENTS:
                        message = f"the arguments of a call have more than {MAX_CALL_ARGUMENTS} characters"
                        self._fault = cut_short(message)
                case ProviderCall() | Citation():
                    texts = [value for value in attrs.astuple(piece) if isinstance(value, str)]
                    self._said += sum(map(len, texts))
                case _:
                    assert_never(piece)
        if self._emitted + len(pieces) > MAX_PIECES:
            self._fault = cut_short(f"the answer came in more than {MAX_PIECES} pieces")
        if self._said > MAX_CHARACTERS:
            self._fault = cut_short(f"the answer says more than {MAX_CHARACTERS} characters")

    @property
    def silent(self) -> bool:
        """Whether nothing of an answer was understood."""
        return self._emitted == 0

    def end(self, cut: Broken | None = None) -> AnswerEnd:
        """How the answer ended; *cut* is why its bytes stopped, where that was not their end."""
        self.parse()
        if self._error is not None:
            raise self._error
        if self.read > self.most:
            cut = cut_short(f"the answer is larger than {self.most} bytes")
        ending = self.parser.end(cut)
        if isinstance(ending, Complete):
            self._weigh(ending.pieces)
        return ending if self._fault is None else attrs.evolve(self._fault, usage=self.parser.usage)

    def answer(self, ending: AnswerEnd) -> ModelFinished | ModelFailed:
        """The one answer to the request, behind all that was streamed."""
        now, request = self.scene.clock.now(), self.request.id
        seconds = 0.0 if self.started is None else now - self.started
        told = attrs.asdict(ending, recurse=False)
        if isinstance(ending, Complete):
            # A clock that was set back makes no negative wait.
            first = None if self.started is None or self.first is None else self.first - self.started
            first = first if first is None or first > 0 else 0.0
            return ModelFinished(at=now, request=request, seconds=seconds, first_piece=first, **told)
        # Drawn here and stored in the event: the machine draws nothing, and a replay waits as long.
        jitter = random.random()  # noqa: S311  # it spreads retries, it keeps no secret
        return ModelFailed(at=now, request=request, seconds=seconds, jitter=jitter, **told)


# A compressed answer is unpacked a part at a time, so that a small body never becomes a large one at once.


_AUTO = 32 + zlib.MAX_WBITS  # takes what begins as gzip does, and what begins as zlib does
_RAW = -zlib.MAX_WBITS

# Content-encodings that can be read here.
PACKED = frozenset({"gzip", "x-gzip", "deflate"})


def decompressor(coding: str) -> _Inflater | None:
    """What unpacks a body with the content-encoding *coding*, None where it cannot be read here."""
    return _Inflater(may_be_raw=coding == "deflate") if coding in PACKED else None


async def _unpacked(chunks: AsyncIterator[bytes], unpack: _Inflater) -> AsyncGenerator[bytes]:
    async for data in chunks:
        for number, part in enumerate(unpack(data)):
            if number:
                # One chunk may become a thousand parts, and the other sessions of the loop get a turn
                # between.
                await asyncio.sleep(0)
            yield part


@final
class _Inflater:
    """Unpacks one stream; raises `zlib.error` for bytes that are none."""

    def __init__(self, *, may_be_raw: bool) -> None:
        self._head = b"" if may_be_raw else None  # of which is not known yet what follows it
        self._stream = zlib.decompressobj(_AUTO)

    def __call__(self, data: bytes) -> Iterator[bytes]:
        """The parts that *data* is unpacked to, one by one, so that the rest can be left packed."""
        if self._head is not None:
            # "deflate" is zlib's by the standard, but some servers send it without the two bytes of its head.
            data = self._head = self._head + data
            if len(data) < 2:  # noqa: PLR2004  # the head, a number that 31 divides
                return
            self._head = None
            if data[0] & 0x0F != zlib.DEFLATED or int.from_bytes(data[:2]) % 31:
                self._stream = zlib.decompressobj(_RAW)
        stream = self._stream
        while not stream.eof:
            part = stream.decompress(data, MAX_PART)
            data = stream.unconsumed_tail
            if part:
                yield part
            if len(part) < MAX_PART and not data:
                break
