"""`turnwheel chat`: its options, and the session that it opens."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import click

from ..cli.exit_codes import Exit
from ..cli.options import for_chat, run_options_of
from ..cli.workspace import resolve_newest, session_exists
from .chat import ChatCommand
from .commands import HELP


@click.command(epilog=f"\b\nWhat can be typed:\n{HELP}")
@for_chat
def chat(**options: Any) -> Exit:  # noqa: ANN401  # as click has it
    """
    Talk to an agent, in the new or stored session ID.

    You can type while it works: a line waits for its turn, and a line that begins with ! is read now. Lines
    may also come from a pipe, and --json prints notices for programs.
    """
    return asyncio.run(_chat(options))


async def _chat(options: dict[str, Any]) -> Exit:
    chosen = await resolve_newest(run_options_of(options))
    if chosen.session is not None and await session_exists(chosen.store, chosen.session):
        chosen = attrs.evolve(chosen, resume=chosen.session, session=None)
    return await ChatCommand(chosen).do()
