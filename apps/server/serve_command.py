"""`turnwheel serve`: serve the agent of this directory over HTTP, until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Generator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, final

import attrs
import click

from ...effects.errors import ConfigError
from ...engine.agent import Agent
from ...performers.stores.postgres.address import DatabaseAddress
from ..cli.build_settings import agent_for
from ..cli.exit_codes import Exit
from ..cli.options import for_serve, run_options_of
from ..cli.run_options import RunOptions
from ..cli.workspace import enter_model, enter_store
from ..extras import needing
from ..stand_in.server import CLI_PACE

if TYPE_CHECKING:
    from ...performers.stores.base import Store
    from ..absurd.turn_queue import TurnQueue
    from .app import AgentServer

# What one session has and a server of many has not, as `run` has it by default.
NOT_SERVED = {
    **dict.fromkeys(("newest", "takeover", "yes", "verbose", "json_lines"), False),
    **dict.fromkeys(("title", "prompt", "session", "resume")),
}

TOKEN = "TURNWHEEL_SERVER_TOKEN"  # noqa: S105  # the name of the variable, no secret

# New objects until the youngest are looked at, and looks until older ones are: all are with each two
# millions.
COLLECTED = 10_000, 10, 20

# Seconds for the answers under way, once the streams have ended and the work is over.
LAST_ANSWERS = 2


def tenants_of(given: tuple[str, ...]) -> dict[str, str]:
    """The tokens that were *given*, as ``TENANT:SECRET`` or as the secret of the tenant ``default``."""
    found: dict[str, str] = {}
    for each in given:
        tenant, colon, secret = each.partition(":")
        found[secret if colon else each] = tenant if colon else "default"
    return found


@final
@attrs.frozen(kw_only=True)
class _Site:
    """Where the server listens, and who may call: the tenant of each of *tokens*, and pages of *origins*."""

    host: str
    port: int
    tokens: dict[str, str]
    origins: tuple[str, ...]


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=0, type=click.IntRange(0, 65_535), show_default=True, help="0 takes any free one."
)
@click.option(
    "--token",
    "secrets",  # `tokens` are those that a run may use
    metavar="[TENANT:]SECRET",
    multiple=True,
    envvar=TOKEN,
    default=(),
    help=f"A bearer token, with its tenant; may be repeated. [default: ${TOKEN}]",
)
@click.option(
    "--origin",
    "origins",
    metavar="URL",
    multiple=True,
    help="Pages of this origin may call, such as https://app.example.com; may be repeated.",
)
@click.option("--resume/--no-resume", "resumes", default=True, help="Go on with the runs that were left.")
@click.option("--turns", is_flag=True, help="Drive no run; queue turns for workers in the store's database.")
@for_serve
def serve(host: str, port: int, secrets: tuple[str, ...], origins: tuple[str, ...], **options: Any) -> Exit:  # noqa: ANN401  # as click has it
    """
    Serve one agent, `default`, over HTTP, with the built-in tools and the settings that `run` would have.

    Prints its address when it listens. SIGTERM lets open work end; every run can be resumed.
    """
    resumes: bool = options.pop("resumes")
    turns: bool = options.pop("turns")
    by_secret = tenants_of(secrets)
    chosen = run_options_of({**NOT_SERVED, **options})
    with needing("server", "turnwheel serve"):
        # All that serving imports, so that a missing package is found before anything begins.
        from . import app, connections  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # see above
        from .access import is_loopback  # noqa: PLC0415  # the extra may be missing
    if not by_secret and not is_loopback(host):
        msg = f"--host {host!r} lets other machines in without a token; pass --token SECRET or set ${TOKEN}"
        raise ConfigError(msg)
    site = _Site(host=host, port=port, tokens=by_secret, origins=origins)
    return asyncio.run(_serve(chosen, site, resumes=resumes, turns=turns))


def _turn_queue(options: RunOptions, agents: Mapping[str, Agent], store: Store) -> TurnQueue:
    """The queue in the database of *options*."""
    if not (isinstance(options.store, DatabaseAddress) and options.settings.session.persist):
        msg = "--turns: workers share the sessions of a database; pass its address, --store postgresql://..."
        raise ConfigError(msg)
    with needing("absurd", "turnwheel serve --turns"):
        from ..absurd.turn_queue import TurnQueue  # noqa: PLC0415  # as above
    return TurnQueue(options.store.dsn, agents, store)


async def _serve(options: RunOptions, site: _Site, *, resumes: bool, turns: bool) -> Exit:
    from .app import create_app  # noqa: PLC0415  # as above

    async with AsyncExitStack() as stack:
        store = enter_store(options, stack)
        url = await enter_model(options, None, stack, CLI_PACE)
        agent = agent_for(options, None, base_url=url, store=store, performers={})
        await stack.enter_async_context(agent)
        agents = {"default": agent}
        queue = await stack.enter_async_context(_turn_queue(options, agents, store)) if turns else None
        app = create_app(agents, store, tokens=site.tokens, origins=site.origins, resume=resumes, turns=queue)
        spare_collector()
        # Listened on before the address is told, and queued by the system until the server accepts.
        listening = _listen(site.host, site.port)
        stack.callback(listening.close)
        address, number = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        return await _until_signal(app, app.state.server, listening, f"http://{shown}:{number}")


def spare_collector() -> None:
    """
    Look for garbage less often, and not in what is there now, which is mostly code.

    With a thousand open streams, a look at everything holds up all of them for a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind, protocol)
    # A server that is started again at once finds its port in a state of the one before.
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
    except OSError as error:
        made.close()
        msg = f"cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigError(msg) from error
    made.listen(1024)
    return made


async def _until_signal(app: Any, served: AgentServer, listening: socket.socket, url: str) -> Exit:  # noqa: ANN401  # an ASGI app
    """Serve *app* until a signal: then streams end, work drains, and the answers under way go out."""
    import uvicorn  # noqa: PLC0415  # the extra may be missing

    from .connections import BoundedHeads  # noqa: PLC0415  # as above

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if not self.should_exit:
                click.echo(f"turnwheel serves at {url}")

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            """Leave the signals to the handlers here: an open stream would keep the server for ever."""
            yield

    server = Server(
        uvicorn.Config(
            app,
            http=BoundedHeads,
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=LAST_ANSWERS,
        )
    )
    ended_by: list[Exit] = []
    draining: list[asyncio.Task[None]] = []

    async def drain() -> None:
        await served.drain()
        server.should_exit = True

    def end(code: Exit) -> None:
        ended_by.append(code)
        if draining:
            # The second one does not wait for the work.
            server.should_exit = server.force_exit = True
        else:
            draining.append(asyncio.create_task(drain()))

    loop = asyncio.get_running_loop()
    codes = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED, signal.SIGHUP: Exit.HUNG_UP}
    for number, code in codes.items():
        loop.add_signal_handler(number, end, code)
    try:
        await server.serve([listening])
    finally:
        for number in codes:
            loop.remove_signal_handler(number)
    return ended_by[0] if ended_by else Exit.FAILED
