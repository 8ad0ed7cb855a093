"""What a line typed in a chat means: a prompt, something said into the run, an answer, or a command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, final

import attrs

from ...effects.config import Steering
from ...effects.errors import ConfigError
from ...effects.events import (
    Approve,
    ApproveAlways,
    Decision,
    Deny,
)
from ...effects.permissions import PermissionMode
from ...effects.records import (
    Change,
    SetMode,
    SetModel,
    SetThinking,
)
from ..cli.option_types import thinking, where

HELP = """\
TEXT            a prompt; while the agent is at work it waits for its turn
!TEXT           said into the run now: what runs is cancelled, the rest is skipped
!>TEXT          ... after what runs: the rest is skipped
!>>TEXT         ... when all that the model asked for is done
y [CALL]        yes to the question about a call, such as y 7; of several name one, or all
n [CALL] [WHY]  no; the model reads why
s [CALL] [WHY]  no, and the run stops
a [CALL]        yes, always; a [CALL] ARGUMENT=GLOB for such arguments only
e [CALL]        change the arguments first; e [CALL] {...} says them at once
/cancel CALL    give up one call
/model NAME     another model, from its next call on
/mode MODE      default, accept_edits, plan, dont_ask or bypass
/think N        how many tokens the model may think; off for its own way
/queue          the prompts that wait
/why CALL       why a call ran, or did not
/help           this
/quit           leave; Ctrl-D and, where nothing goes on, Ctrl-C do the same
Ctrl-C          stops the run; once more waits for nothing
A space in front sends a line as a prompt, whatever it says."""
"""What `/help` says."""


@final
@attrs.frozen
class PromptLine:
    """A prompt."""

    text: str


@final
@attrs.frozen
class SteerLine:
    """Something said into the run, to be read when *how* says."""

    text: str
    how: Steering


@final
@attrs.frozen
class ChangeLine:
    """Another setting."""

    change: Change


@final
@attrs.frozen
class AnswerLine:
    """A *decision* on the question called *name*; empty: on the one there is."""

    name: str
    decision: Decision


@final
@attrs.frozen
class EditLine:
    """Change the arguments of the question called *name*, to *arguments* where those are said."""

    name: str
    arguments: str


@final
@attrs.frozen
class CancelLine:
    """Give up the call called *name*."""

    name: str


@final
@attrs.frozen
class ExplainLine:
    """Say why the call called *name* ran, or did not."""

    name: str


@final
@attrs.frozen
class QueueLine:
    """Say which prompts wait."""


@final
@attrs.frozen
class HelpLine:
    """Say what can be typed."""


@final
@attrs.frozen
class QuitLine:
    """Leave."""


ActionLine = PromptLine | SteerLine | ChangeLine | AnswerLine | EditLine | CancelLine
"""What is done to the session."""

InfoLine = ExplainLine | QueueLine | HelpLine
"""What is only told."""

ParsedLine = ActionLine | InfoLine | QuitLine
"""What a line can mean."""

_STEER_SIGNS = (("!>>", Steering.WHEN_DONE), ("!>", Steering.AFTER_TOOL), ("!", Steering.NOW))

_ANSWER = re.compile(
    r"(?P<key>y|yes|n|no|a|always|s|stop|e|edit)(?:\s+#?(?P<name>\d+(?:-\d+)*|all)(?=\s|$))?(?:\s+(?P<rest>.+))?",
    re.DOTALL,
)


def parse_line(line: str, *, asked: bool) -> ParsedLine:
    """
    What *line* means; *asked*: it may answer a question. Raises `ConfigError` where it means nothing.
    """
    if line.startswith("/"):
        return _parse_command(line)
    for sign, how in _STEER_SIGNS:
        if line.startswith(sign):
            return SteerLine(_required(line.removeprefix(sign), sign), how)
    text = line.strip()
    match = _ANSWER.fullmatch(text) if asked and not line[0].isspace() else None
    return (None if match is None else _parse_answer(match)) or PromptLine(text)


def _parse_answer(match: re.Match[str]) -> ParsedLine | None:
    """The answer that *match* found, or None where it is none after all: a sentence may begin with an a."""
    key, name, rest = match["key"][0], match["name"] or "", match["rest"] or ""
    match key:
        case "n" | "s":
            return AnswerLine(name, Deny(message=rest, interrupt=key == "s"))
        case "y" if not rest:
            return AnswerLine(name, Approve())
        case "a" if not rest or re.match(r"\w+=", rest):
            return AnswerLine(name, ApproveAlways(where=where(rest) if rest else ()))
        case "e" if not rest or rest.startswith("{"):
            return EditLine(name, rest)
        case _:
            return None


def _required(text: str, command: str) -> str:
    if not text.strip():
        msg = f"{command} says nothing; write what it shall say behind it"
        raise ConfigError(msg)
    return text.strip()


def _mode(text: str) -> ChangeLine:
    if text not in tuple(PermissionMode):
        msg = f"there is no mode {text!r}; there are: {', '.join(PermissionMode)}"
        raise ConfigError(msg)
    return ChangeLine(SetMode(mode=PermissionMode(text)))


def _think(text: str) -> ChangeLine:
    try:
        return ChangeLine(SetThinking(tokens=thinking(text)))
    except ValueError as error:
        raise ConfigError(str(error)) from error


_WITH_TEXT: Final[Mapping[str, Callable[[str], ParsedLine]]] = {
    "/cancel": CancelLine,
    "/mode": _mode,
    "/model": lambda text: ChangeLine(SetModel(model=text)),
    "/think": _think,
    "/why": ExplainLine,
}
_ALONE: Final[Mapping[str, Callable[[], ParsedLine]]] = {
    "/help": HelpLine,
    "/queue": QueueLine,
    "/quit": QuitLine,
}


def _parse_command(line: str) -> ParsedLine:
    name, _, rest = line.strip().partition(" ")
    if name in _WITH_TEXT:
        return _WITH_TEXT[name](_required(rest, name))
    if name in _ALONE and not rest.strip():
        return _ALONE[name]()
    if name in _ALONE:
        msg = f"{name} stands alone; got {rest.strip()!r}"
    else:
        there = ", ".join(sorted((*_WITH_TEXT, *_ALONE)))
        msg = f"no command {name!r}; there are: {there}; to send such a line, put a space in front"
    raise ConfigError(msg)
