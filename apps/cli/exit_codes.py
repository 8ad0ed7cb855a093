"""The table of exit codes, which `--help` and docs/cli.md show, and options in the words of errors."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, final

from ...effects.errors import CallerError


@final
class Exit(IntEnum):
    """The exit code of a command. From 128 on, it is 128 plus the number of the equivalent signal."""

    ENDED = 0
    FAILED = 1
    USAGE = 2
    RESTING = 3
    MAX_TURNS = 4
    BUDGET = 5
    MAX_TOKENS = 6
    LOOP = 7
    BLOCKED = 8
    DIFFERS = 9
    REFUSED = 10
    OUTPUT_INVALID = 12
    HUNG_UP = 129
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


MEANINGS: Final[Mapping[Exit, str]] = {
    Exit.ENDED: "the run ended by itself",
    Exit.FAILED: "an error of the model, the store or turnwheel",
    Exit.USAGE: "the command cannot be done as given",
    Exit.RESTING: "the run is not over: it rests on a question, or was left; it can be resumed",
    Exit.MAX_TURNS: "--max-turns is used up",
    Exit.BUDGET: "--max-usd, --max-tokens or --max-seconds is used up",
    Exit.MAX_TOKENS: "the model's answers were cut at its output limit",
    Exit.LOOP: "the model repeated itself and was stopped",
    Exit.BLOCKED: "a hook did not let the prompt in",
    Exit.DIFFERS: "bisect: the sessions differ",
    Exit.REFUSED: "the model refused to answer",
    Exit.OUTPUT_INVALID: "the model gave no output that is right",
    Exit.HUNG_UP: "the terminal was closed; the run can be resumed",
    Exit.INTERRUPTED: "interrupted; the text so far is kept",
    Exit.BROKEN_PIPE: "the reader of the output left; the run can be resumed",
    Exit.TERMINATED: "terminated by SIGTERM; the run can be resumed",
}
"""The meaning of each code."""


def exit_for_error(error: Exception) -> Exit:
    """The code for *error*: 2 if the caller can fix it, else 1."""
    return Exit.USAGE if isinstance(error, CallerError) else Exit.FAILED


def table() -> str:
    """The codes and their meanings, one line each."""
    return "\n".join(f"{code.value:>3}  {meaning}" for code, meaning in MEANINGS.items())


# Advice of the library in an error, with arguments of `Agent`, and the same with options.
OPTIONS_FOR: Mapping[str, str] = {
    " or pass api_key": "",
    "the base_url (--base-url) of another server": "pass --base-url with the address of another server",
    "pass tokens={'the secret': 'the tenant'}": "pass --token SECRET or --token TENANT:SECRET",
    "or pass base_url": "or pass --base-url",
    "or give the base_url of another server": "or pass --base-url with the address of another server",
    "send() to it, or call resume(takeover=True)": "turnwheel send reaches it; --takeover takes it over",
    "approve() each, then call resume()": "turnwheel approve or deny each, then turnwheel run --resume",
    "left unfinished; call resume()": "left unfinished; go on with it by turnwheel run --resume",
}


def in_options(text: str) -> str:
    """*text* of the library with options and commands in place of arguments and methods."""
    for argument, option in OPTIONS_FOR.items():
        text = text.replace(argument, option)
    return text
