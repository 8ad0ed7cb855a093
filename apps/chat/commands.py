"""Parse a line typed in a chat: a prompt, a steer, an answer to a question, or a command."""

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
    SetThinking,
)
from ..cli.option_types import thinking, where

PROMPT = "> "
"""Stands before the line that a person types."""

AS_PROMPT = "a leading space sends the line as a prompt"
"""How to send a line that would have another meaning."""

SHOW = "/show"
"""The command that Ctrl-O enters."""

HELP = """\
TEXT            a prompt; it waits while the agent works. @PATH attaches a file
!TEXT           steer the run now: running calls are cancelled, the rest is skipped
!>TEXT          ... after running calls: the rest is skipped
!>>TEXT         ... after all calls of the batch
y [CALL]        yes to the question about a call, such as y 7 or y all
n [CALL] [WHY]  no; the model reads the reason
s [CALL] [WHY]  no, and the run stops
a [CALL]        yes, always; a [CALL] ARGUMENT=GLOB for such arguments only
e [CALL]        change the arguments first, or give them: e [CALL] {...}
v [CALL]        show all of the call
/cancel CALL    cancel one call
/model [NAME]   the models; another one, by its name or number, from the next call on
/mode [MODE]    the modes; another one: default, accept_edits, plan, dont_ask or bypass
/think N        thinking tokens; off for the provider's default
/queue          the waiting prompts; /queue drop N takes one back, /queue edit N puts it on the line
/show [CALL]    all of a result: the last one, or that of a call
/why [CALL]     why a call ran, or did not: the last one, or that of a number
/cost           what the session cost, by model and child
/sessions [ID]  the sessions of this directory; go to another one, by its id or number
/clear          a new session on an empty screen; the old one is kept
/help           this list
/quit           leave, as Ctrl-D does, and Ctrl-C without a run
Tab             complete a command, a path after @, a model, a mode, a session
Alt-Enter       another line, as Ctrl-J
Ctrl-R          search in earlier lines
Ctrl-O          all of the last result, or of the call whose number is typed
Esc, Ctrl-C     stop the run; a second Ctrl-C returns at once
A leading space sends any line as a prompt."""
"""The text of `/help`."""


COMMAND_HELP: Final = tuple(
    [
        (line.split()[0], line[len("/sessions [ID]  ") :].strip())
        for line in HELP.splitlines()
        if line.startswith("/")
    ]
)
"""Each command with its line of the help."""


@final
@attrs.frozen
class PromptLine:
    """A prompt."""

    text: str


@final
@attrs.frozen
class SteerLine:
    """A steer, read at the time *how*."""

    text: str
    how: Steering


@final
@attrs.frozen
class ChangeLine:
    """A change of a setting."""

    change: Change


@final
@attrs.frozen
class AnswerLine:
    """A *decision* on the question *name*, or on the only one if that is empty."""

    name: str
    decision: Decision


@final
@attrs.frozen
class EditLine:
    """New *arguments* for the question *name*; empty to open an editor."""

    name: str
    arguments: str


@final
@attrs.frozen
class ViewLine:
    """Show all of the question *name*."""

    name: str


@final
@attrs.frozen
class CancelLine:
    """Cancel the call *name*."""

    name: str


@final
@attrs.frozen
class ExplainLine:
    """Explain the call *name*, or the last one if that is empty."""

    name: str


@final
@attrs.frozen
class ShowLine:
    """Show all of the result of the call *name*, or of the last one if that is empty."""

    name: str


@final
@attrs.frozen
class ModelLine:
    """Switch to the model called *name*, or with that number; list the models if it is empty."""

    name: str


@final
@attrs.frozen
class ModeLine:
    """List the modes."""


@final
@attrs.frozen
class SessionsLine:
    """Go to the session called *name*, or with that number; list the sessions if it is empty."""

    name: str


@final
@attrs.frozen
class CostLine:
    """Show the cost of the session."""


@final
@attrs.frozen
class ClearLine:
    """Begin a new session on an empty screen."""


@final
@attrs.frozen
class QueueLine:
    """List the waiting prompts."""


@final
@attrs.frozen
class WithdrawLine:
    """Take back the waiting prompt with the number *name*; *edits*: put its text on the line."""

    name: str
    edits: bool


@final
@attrs.frozen
class HelpLine:
    """Show the help."""


@final
@attrs.frozen
class QuitLine:
    """Leave."""


ActionLine = (
    PromptLine
    | SteerLine
    | ChangeLine
    | AnswerLine
    | EditLine
    | ViewLine
    | CancelLine
    | ModelLine
    | WithdrawLine
)
"""Lines that act on the session."""

InfoLine = ExplainLine | QueueLine | HelpLine | ModeLine | CostLine | ShowLine
"""Lines that only show something."""

GoLine = QuitLine | ClearLine | SessionsLine
"""Lines that may end this session's part of the chat."""

ParsedLine = ActionLine | InfoLine | GoLine
"""Every kind of line."""

_STEER_SIGNS = (("!>>", Steering.WHEN_DONE), ("!>", Steering.AFTER_TOOL), ("!", Steering.NOW))

_ANSWER = re.compile(
    r"(?P<key>y|yes|n|no|a|always|s|stop|e|edit|v|view)(?:\s+#?(?P<name>\d+(?:-\d+)*|all)(?=\s|$))?(?:\s+(?P<rest>.+))?",
    re.DOTALL,
)


_YES_OR_NO = re.compile(r"(?:yes|y|no|n)\b", re.IGNORECASE)
"""The beginning of a sentence that is meant as an answer."""


def parse_line(line: str, *, asked: bool) -> ParsedLine:
    """
    Parse *line*. Only if *asked* can it be an answer.

    Raises `ConfigError` for an invalid command, and for what looks like an answer and is none: a prompt that
    is sent by mistake costs money.
    """
    if line.startswith("/"):
        return _parse_command(line)
    for sign, how in _STEER_SIGNS:
        if line.startswith(sign):
            return SteerLine(_required(line.removeprefix(sign), sign), how)
    text = line.strip()
    # A leading space makes any line a prompt, so that a person can send "y" to the model.
    if line[0].isspace():
        return PromptLine(text)
    match = _ANSWER.fullmatch(text) if asked else None
    if match is not None and (answer := _parse_answer(match)) is not None:
        return answer
    if asked and (begun := _YES_OR_NO.match(text)):
        msg = f"a question is open: did you mean {begun[0][0].lower()}? {AS_PROMPT}"
        raise ConfigError(msg)
    if text in {"y", "n"}:
        msg = f"no question is open; {AS_PROMPT}"
        raise ConfigError(msg)
    return PromptLine(text)


def is_answer(line: str) -> bool:
    """Whether *line* answers a question, if one is open."""
    try:
        return isinstance(parse_line(line, asked=True), AnswerLine | EditLine | ViewLine)
    except ConfigError:
        return False


def _parse_answer(match: re.Match[str]) -> ParsedLine | None:
    """The answer in *match*, or None if it is a sentence after all: one may begin with an a."""
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
        case "v" if not rest:
            return ViewLine(name)
        case _:
            return None


def _required(text: str, command: str) -> str:
    if not text.strip():
        msg = f"{command} has no text; write one after it"
        raise ConfigError(msg)
    return text.strip()


def _mode(text: str) -> ChangeLine | ModeLine:
    if not text:
        return ModeLine()
    if text not in tuple(PermissionMode):
        msg = f"unknown mode {text!r}; there are: {', '.join(PermissionMode)}"
        raise ConfigError(msg)
    return ChangeLine(SetMode(mode=PermissionMode(text)))


def _queue(text: str) -> QueueLine | WithdrawLine:
    if not text:
        return QueueLine()
    what, _, name = text.partition(" ")
    if what not in {"drop", "edit"} or not name.strip():
        msg = f"/queue takes drop N or edit N, or nothing; got {text!r}"
        raise ConfigError(msg)
    return WithdrawLine(name.strip(), edits=what == "edit")


def _think(text: str) -> ChangeLine:
    try:
        return ChangeLine(SetThinking(tokens=thinking(text)))
    except ValueError as error:
        raise ConfigError(str(error)) from error


_WITH_TEXT: Final[Mapping[str, Callable[[str], ParsedLine]]] = {
    "/cancel": CancelLine,
    "/think": _think,
}
_WITH_OR_WITHOUT: Final[Mapping[str, Callable[[str], ParsedLine]]] = {
    "/mode": _mode,
    "/model": ModelLine,
    "/queue": _queue,
    "/sessions": SessionsLine,
    SHOW: ShowLine,
    "/why": ExplainLine,
}
_ALONE: Final[Mapping[str, Callable[[], ParsedLine]]] = {
    "/clear": ClearLine,
    "/cost": CostLine,
    "/help": HelpLine,
    "/quit": QuitLine,
}


def _parse_command(line: str) -> ParsedLine:
    name, _, rest = line.strip().partition(" ")
    if name in _WITH_TEXT:
        return _WITH_TEXT[name](_required(rest, name))
    if name in _WITH_OR_WITHOUT:
        return _WITH_OR_WITHOUT[name](rest.strip())
    if name in _ALONE and not rest.strip():
        return _ALONE[name]()
    if name in _ALONE:
        msg = f"{name} takes no argument; got {rest.strip()!r}"
    else:
        there = ", ".join(sorted((*_WITH_TEXT, *_WITH_OR_WITHOUT, *_ALONE)))
        msg = f"unknown command {name!r}; there are: {there}; {AS_PROMPT}"
    raise ConfigError(msg)
