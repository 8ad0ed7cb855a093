"""`turnwheel acp`: serve the agent of this directory to an editor, over stdin and stdout."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any, cast

import click

from ..cli.exit_codes import Exit
from ..cli.options import for_serve, run_options_of
from ..cli.run_options import RunOptions
from ..cli.workspace import enter_model, enter_store
from ..extras import needing
from ..server.serve_command import NOT_SERVED
from ..stand_in.server import CLI_PACE


@click.command()
@for_serve
def acp(**options: Any) -> Exit:  # noqa: ANN401  # as click has it
    """
    Serve the agent to an editor that speaks the Agent Client Protocol, over stdin and stdout.

    It has the settings that `run` would have, in the directory that the editor names. Sessions are kept in
    the same store. It ends when the editor closes stdin; every run can be resumed.
    """
    chosen = run_options_of({**NOT_SERVED, **options})
    with needing("acp", "turnwheel acp"):
        from . import acp_agent  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # it needs the extra
    return asyncio.run(_serve(chosen))


async def _serve(options: RunOptions) -> Exit:
    from acp import Agent, run_agent  # noqa: PLC0415  # the extra may be missing

    from .acp_agent import AcpAgent  # noqa: PLC0415  # as above

    async with AsyncExitStack() as stack:
        store = enter_store(options, stack)
        url = await enter_model(options, None, stack, CLI_PACE)
        # The methods of the protocol that it lacks are answered as unknown.
        await run_agent(cast("Agent", cast("object", AcpAgent(options, store, url, stack))))
    return Exit.ENDED
