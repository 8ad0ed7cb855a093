"""The built-in tool that runs commands: `bash`."""

from __future__ import annotations

import shutil
import signal
from typing import Annotated

import msgspec

from .context import ToolContext
from .define import tool
from .process import run
from .result import MAX_OUTPUT

SECONDS = 120.0
"""How long a command may take unless told."""

MAX_SECONDS = 600.0

_MARGIN = 10.0
"""How much longer the tool may take than its command: time to end it, and to return what it said."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


@tool(side_effect="unsafe", timeout=MAX_SECONDS + _MARGIN)
async def bash(context: ToolContext[object], command: str, timeout: Seconds | None = None) -> str:  # noqa: ASYNC109  # the model's word
    """
    Run a command in a shell, in the working directory. What it leaves in the background is ended with it.

    Args:
        command: What to run; it has no input to read.
        timeout: Seconds after which it is ended, 120 unless told.
    """
    shell = shutil.which("bash") or "/bin/sh"
    seconds = timeout or SECONDS
    ended = await run((shell, "-c", command), cwd=context.cwd, seconds=seconds, keep=MAX_OUTPUT)
    output = ended.output if ended.output.endswith("\n") or not ended.output else f"{ended.output}\n"
    if ended.code is None:
        msg = f"the command was ended after {seconds:g} s; until then it said:\n{output}"
        raise TimeoutError(msg)
    return f"{output}[exit code {ended.code}{_signal(ended.code)}]"


def _signal(code: int) -> str:
    """The name of the signal that ended a process, as its exit code tells."""
    try:
        return f", {signal.Signals(-code).name}" if code < 0 else ""
    except ValueError:  # a real-time one
        return ""
