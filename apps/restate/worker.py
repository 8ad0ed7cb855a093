"""
A worker: an ASGI app that Restate calls, with a virtual object for each session.

Theory of operation. The key of an object is the id of its session. One exclusive handler takes the turns, one
after the other. What another process writes comes by a shared handler: as a signal to the turn that goes on
now, and as a turn of its own, in case none does or that one ends. Both are the same compare-and-set, so only
the first counts, and the sender waits for its answer.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast, final

import attrs
import msgspec
import restate
from restate.serde import BytesSerde, Serde
from restate.server import install_shutdown_hook

from ...effects.errors import CallerError, StoreError
from ...performers.logs import warn
from . import asks
from .asks import AskAnswer, Given
from .shelf import Shelf
from .turn import TurnWork, take_turn

if TYPE_CHECKING:
    from restate.server_types import RestateAppT

    from ...engine.agent import Agent

# Seconds between two signs of life of a turn in which nothing happens.
LIFE_SIGN = 20.0

# Seconds after which an input is signalled again, where another turn goes on by then.
AGAIN = 1.0

# A lost worker is followed soon. Restate would end the tries after some, and have the turn wait for a person.
INVOCATION_RETRIES = restate.InvocationRetryPolicy(
    initial_interval=timedelta(seconds=0.1),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=2),
    max_attempts=1_000_000,
)

_BYTES = BytesSerde()
_KIND = "application/octet-stream"


@final
@attrs.define(eq=False)
class RestateWorker:
    """
    Runs the sessions of *agents*, by the names of their services, for a server of Restate.

    The agents' own stores are not used: Restate keeps the journals, which a `RestateStore` reads. Where
    nothing happens for long, a turn gives a sign of life each *beat* seconds. After two without one Restate
    asks it to end, and after a third it gives the turn to another worker. With *identity_keys*, the server's
    public keys, requests of others are refused.
    """

    agents: Mapping[str, Agent]
    beat: float = LIFE_SIGN
    identity_keys: tuple[str, ...] = ()
    _drains: bool = attrs.field(default=False, init=False)

    @cached_property
    def app(self) -> RestateAppT:
        """The ASGI app that Restate calls, best over HTTP/2; `serve` serves it."""
        services = [_service(name, self._work(agent), self.beat) for name, agent in self.agents.items()]
        return restate.app(services, identity_keys=[*self.identity_keys] or None)

    def _work(self, agent: Agent) -> Callable[[str], TurnWork]:
        def work(session: str) -> TurnWork:
            if self._drains:
                msg = "this worker ends; Restate tries another one"
                raise StoreError(msg)
            return TurnWork(agent, session, self.beat)

        return work

    async def serve(self, bind: str = "127.0.0.1:9080", *, drain: float = 10.0) -> None:
        """
        Serve at *bind* until SIGTERM or SIGINT, and then drain for at most *drain* seconds.

        Several processes of one machine may serve at the same address; Restate's connections are shared out.
        """
        # Kept out of the module, so that an app can be mounted elsewhere without it.
        from hypercorn.asyncio import serve  # noqa: PLC0415  # see above
        from hypercorn.config import Config  # noqa: PLC0415  # see above

        loop, stopped, drained = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        # By the hook of the SDK, which would put its own handler in the place of any other.
        for each in (signal.SIGTERM, signal.SIGINT):
            install_shutdown_hook(loop, stopped.set, each)

        async def over() -> None:
            await stopped.wait()
            await self.drain(drain)
            drained.set()

        config = Config()
        # It is hypercorn's to close.
        config.bind = [f"fd://{_listening(bind).detach()}"]
        # Each turn that goes on is a stream of its own, and may wait for hours.
        config.h2_max_concurrent_streams = 2**31 - 1
        try:
            await serve(self.app, config, shutdown_trigger=over)
        except Exception as error:
            if not drained.is_set():
                raise
            # The turns were left to others by then: the failure of a connection that is closed loses nothing.
            warn("the restate worker closed a connection badly as it ended", error)

    async def drain(self, within: float | None = None) -> None:
        """Let running tools end, and leave the turns to other workers; see `Agent.drain`."""
        self._drains = True
        await asyncio.gather(*[agent.drain(within) for agent in self.agents.values()])


def _listening(bind: str) -> socket.socket:
    host, _, port = bind.rpartition(":")
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((host.strip("[]"), int(port)))
        made.listen()
    except BaseException:
        made.close()
        raise
    return made


def _service(name: str, work: Callable[[str], TurnWork], beat: float) -> restate.VirtualObject:
    made = restate.VirtualObject(
        name,
        # A session of a thousand rounds begins a turn with the few keys it needs.
        state_preload=False,
        inactivity_timeout=timedelta(seconds=2 * beat),
        abort_timeout=timedelta(seconds=beat),
        invocation_retry_policy=INVOCATION_RETRIES,
    )
    handler = partial(made.handler, accept=_KIND, content_type=_KIND, input_serde=_BYTES, output_serde=_BYTES)

    @handler("turn")
    async def turn(context: restate.ObjectContext, body: bytes) -> bytes:
        """Take an input in, and do what follows from it."""
        given = _read(asks.decode_input, body)
        context.set("turn", context.request().id)
        await take_turn(_Invocation(context, turn), _shelf(context), work(context.key()), given)
        return b""

    @handler("append", kind="shared")
    async def append(context: restate.ObjectSharedContext, body: bytes) -> bytes:
        """Hand an input to the turn that goes on, and to one of its own; its answer."""
        put = _read(asks.decode_input, body)
        refusal = await _refusal(context, put)
        return await _hand_over(context, turn, put) if refusal is None else asks.encode(refusal)

    @handler("ask", kind="shared")
    async def ask(context: restate.ObjectSharedContext | restate.ObjectContext, body: bytes) -> bytes:
        """Answer a look at the journals."""
        try:
            answer = await Shelf(_State(context), str).answer(_read(asks.decode_look, body))
        except StoreError as error:
            # Restate keeps what was read, so that another try of this call would find the same.
            raise restate.TerminalError(str(error), 409) from error
        return asks.encode(answer)

    @handler("delete")
    async def delete(context: restate.ObjectContext, body: bytes) -> bytes:
        """Delete a journal, when the turns before are over."""
        return asks.encode(await _shelf(context).answer(_read(asks.decode_delete, body)))

    @handler("settle")
    async def settle(context: restate.ObjectContext, body: bytes) -> bytes:
        """Answer a look when the turns before are over."""
        return await ask(context, body)

    return made


Turn: TypeAlias = Callable[[restate.ObjectContext, bytes], Awaitable[bytes]]


async def _hand_over(context: restate.ObjectSharedContext, turn: Turn, put: Given) -> bytes:
    """Have the turn that goes on, or one of its own, take *put* in; its answer."""
    awakeable, answered = context.awakeable(_BYTES)
    given = asks.encode(msgspec.structs.replace(put, answer=awakeable))
    context.object_send(turn, context.key(), given)
    rung = None
    while True:
        running = await context.get("turn", type_hint=str)
        if running is not None and running != rung:
            context.resolve_signal(running, "input", given, _BYTES)
            rung = running
        later = context.sleep(timedelta(seconds=AGAIN))
        who, _ = await restate.select(answered=answered, later=later)
        if who == "answered":
            return await answered


async def _refusal(context: restate.ObjectSharedContext, put: Given) -> AskAnswer | None:
    """How *put* is refused before it is handed to a turn, which would cost ten times this look."""
    if put.append is None:
        return None
    try:
        return await Shelf(_State(context), str).refusal(put.append)
    except StoreError:
        # The journal was changed while it was read.
        return None


T = TypeVar("T")


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        # The same bytes come again: not to be tried again.
        msg = f"the body of the request: {error}; send it by a RestateStore of the same version"
        raise restate.TerminalError(msg, 400) from error


def _shelf(context: restate.ObjectContext) -> Shelf:
    return Shelf(_State(context), lambda: str(context.uuid()))


@final
@attrs.frozen
class _State:
    """The state of the object, in its *context*."""

    _context: restate.ObjectContext | restate.ObjectSharedContext

    async def read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """What is kept under *keys*, in one exchange with the server."""
        asked = [self._context.get(key, cast("Serde[bytes | None]", _BYTES)) for key in keys]
        return [await one for one in asked]

    async def keys(self) -> Sequence[str]:
        """The keys under which something is kept."""
        return await self._context.state_keys()

    def keep(self, key: str, value: bytes | None) -> None:
        """Keep *value* under *key*; None for nothing."""
        # A shared handler has no such methods, and is given looks only.
        context = cast("restate.ObjectContext", self._context)
        if value is None:
            context.clear(key)
        else:
            context.set(key, value, _BYTES)


@final
@attrs.define(eq=False)
class _Invocation:
    """A turn, in its *context*; *turn* is the handler that takes the next ones."""

    _context: restate.ObjectContext
    _turn: Turn
    # What is waited for, until it has come.
    _step: restate.RestateDurableFuture[bytes] | None = attrs.field(default=None, init=False)
    _signal: restate.RestateDurableFuture[bytes] | None = attrs.field(default=None, init=False)

    async def next(self, step: Callable[[], Awaitable[bytes]]) -> bytes | Given:
        """The result of *step*, or an input that came before it."""

        async def taken() -> bytes:
            try:
                return await step()
            except CallerError as error:
                # It would be refused again, so the turn ends; the run stays as it is journaled.
                raise restate.TerminalError(str(error), 400) from error

        if self._step is None:
            self._step = self._context.run_typed("step", taken, restate.RunOptions(serde=_BYTES))
        if self._signal is None:
            self._signal = self._context.signal("input", _BYTES)
        # And not by `select`, which leaves a generator behind for the event loop to close.
        done, _ = await restate.wait_completed(self._step, self._signal)
        came: bytes = await done[0]
        if done[0] is self._signal:
            self._signal = None
            return asks.decode_input(came)
        self._step = None
        return came

    def reply(self, awakeable: str, answer: AskAnswer) -> None:
        """Give *answer* to the handler that waits for *awakeable*."""
        self._context.resolve_awakeable(awakeable, asks.encode(answer), _BYTES)

    def wake(self, seconds: float) -> None:
        """Have the session go on in so many *seconds*."""
        body, later = asks.encode(Given()), timedelta(seconds=seconds)
        self._context.object_send(self._turn, self._context.key(), body, send_delay=later)
