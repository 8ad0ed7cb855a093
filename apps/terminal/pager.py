"""Show a long text in a pager."""

from __future__ import annotations

import asyncio


async def run_pager(text: str, command: str) -> None:
    """Show *text*, which is clean, in the pager *command* until the person leaves it."""
    process = await asyncio.create_subprocess_exec(command, "-S", stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(text.encode(errors="replace"))
    finally:
        if process.returncode is None:  # this task was cancelled
            process.terminate()
            await process.wait()
