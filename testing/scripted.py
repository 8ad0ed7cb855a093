"""
A model that answers from a script, and tools from plain functions, for tests of whole agents.

>>> model = ScriptedModel(calls(("add", {"a": 1, "b": 2})), says("3"))
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, Self, cast, final

import attrs

from ..effects.config import Config
from ..effects.errors import ArgumentError
from ..effects.events import Failure, ModelFailed, ModelFinished, ModelStreamed, ToolFinished
from ..effects.history import CallPiece, Piece, TextPiece
from ..effects.messages import Message, StopReason
from ..effects.requests import CallModel, Purpose, RunTool
from ..effects.spelling import hint
from ..effects.usage import Usage
from ..performers.base import PerformContext
from ..states.rules.model_messages import count
from ..states.rules.schema import arguments_of, problem

# Characters of the text of a reply that an error shows.
_MAX_SHOWN = 40
# Replies that an error lists.
_MAX_LISTED = 5

# The usage of a reply unless a script gives another.
USAGE = Usage(input=10, output=5)


@final
@attrs.frozen(kw_only=True)
class Reply:
    """
    One scripted answer: *pieces* one by one, then *stop* or *failure*. One that *stalls* never ends.

    *wrong*: its calls may be such as no tool takes.
    """

    pieces: tuple[Piece, ...] = ()
    stop: StopReason = StopReason.END_TURN
    usage: Usage = USAGE
    failure: Failure | None = None
    retry_after: float | None = None
    stalls: bool = False
    wrong: bool = False


def says(text: str, stop: StopReason = StopReason.END_TURN, usage: Usage = USAGE) -> Reply:
    """A reply of *text*, streamed word by word."""
    if not isinstance(cast("object", text), str):
        msg = f"says: a reply must be text; got {text!r}"
        raise ArgumentError(msg)
    return Reply(pieces=tuple(map(TextPiece, re.split("(?<= )", text))), stop=stop, usage=usage)


def calls(
    *wishes: tuple[str, Mapping[str, object]], text: str = "", usage: Usage = USAGE, wrong: bool = False
) -> Reply:
    """
    A reply that calls tools, by pairs of name and arguments. *text* comes first.

    *wrong*: the test wants a call that the agent refuses, of a tool that is not offered or with arguments
    that do not fit. Without it such a call is a `ScriptMismatch`.
    """
    for wish in wishes:
        if not _is_wish(wish):
            fix = "calls(('pay', {'amount': 5}))"
            msg = f"calls: {wish!r} is not a pair of a name and arguments; write {fix}"
            raise ArgumentError(msg)
    made = [
        CallPiece(index, f"call_{index}", name, json.dumps(arguments))
        for index, (name, arguments) in enumerate(wishes)
    ]
    return Reply(pieces=(*_text(text), *made), stop=StopReason.TOOL_USE, usage=usage, wrong=wrong)


def _is_wish(wish: object) -> bool:
    match wish:
        case (str(), Mapping()):
            return True
        case _:
            return False


def fails(failure: Failure, after: str = "", retry_after: float | None = None) -> Reply:
    """A reply that fails after it has streamed *after*. *retry_after* is in seconds."""
    kinds = {each.value: each for each in Failure}
    if failure not in kinds:
        msg = f"fails: no failure {failure!r}; {hint(str(failure), kinds)}"
        raise ArgumentError(msg)
    return Reply(pieces=_text(after), failure=kinds[failure], retry_after=retry_after)


def stalls(after: str = "") -> Reply:
    """A reply that streams *after* and then waits until it is cancelled."""
    return Reply(pieces=_text(after), stalls=True)


def _text(text: str) -> tuple[Piece, ...]:
    return (TextPiece(text),) if text else ()


class ScriptEnded(AssertionError):
    """A model was called more often than its script has replies."""


class ScriptMismatch(AssertionError):
    """A script calls a tool that the request does not offer, or with arguments that do not fit its schema."""


class ScriptUnfinished(AssertionError):
    """A test ended before its model had given all replies of its script."""


@final
class ScriptedModel:
    """
    Performs `CallModel` from a script. `requests` keeps the calls in order, `seen` the messages they showed.

    Summaries are answered with *summary* and take no reply from the script. A script that is too short or too
    long, or calls what the agent would refuse, fails the test: at the end of a pytest test, at the end of a
    `with` block, or in `finish`. With *partial*, replies may be left over.
    """

    # The models made since a test began, while a test framework watches them; see `pytest_plugin`.
    watched: ClassVar[list[ScriptedModel] | None] = None

    def __init__(self, *replies: Reply, summary: str = "They talked.", partial: bool = False) -> None:
        for reply in replies:
            if not isinstance(cast("object", reply), Reply):
                given = cast("object", reply)
                fix = f"says({given!r})" if isinstance(given, str) else "says(...), calls(...), one by one"
                msg = f"ScriptedModel: {reply!r} is not a reply; write {fix}"
                raise ArgumentError(msg)
        self._replies = list(replies)
        self._summary = says(summary)
        self._partial = partial
        self._fault: AssertionError | None = None
        self.requests: list[CallModel] = []
        self.seen: list[tuple[Message, ...]] = []
        if self.watched is not None:
            self.watched.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # A test that fails already should say why in its own words.
        if kind is None:
            self.finish()

    def finish(self) -> None:
        """
        Raise what is wrong with the script.

        `ScriptEnded` if a call found no reply, `ScriptMismatch` if the agent would refuse a call of a reply,
        `ScriptUnfinished` if replies are left over.
        """
        # The engine turns what a performer raises into an event: the run ends, and the test would go on.
        if self._fault is not None:
            raise self._fault
        if self._replies and not self._partial:
            raise ScriptUnfinished(_left_over(self._replies, len(self.requests)))

    async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished | ModelFailed:
        """Perform *request* with the next reply; raises `ScriptEnded` and `ScriptMismatch`."""
        self.requests.append(request)
        self.seen.append(scene.history.slice(0, request.view.length))
        reply = self._summary if request.purpose is Purpose.SUMMARY else self._next(request, scene)
        for before, piece in enumerate(reply.pieces):
            at = scene.clock.now()
            scene.emit(ModelStreamed(at=at, request=request.id, before=before, count=1, pieces=(piece,)))
            await asyncio.sleep(0)
        failure = reply.failure
        if reply.stalls:
            await _cancelled()
            failure = Failure.CANCELLED
        at = scene.clock.now()
        if failure is None:
            return ModelFinished(at=at, request=request.id, stop=reply.stop, usage=reply.usage)
        message, wait = f"scripted: {failure}", reply.retry_after
        return ModelFailed(at=at, request=request.id, failure=failure, message=message, retry_after=wait)

    def _next(self, request: CallModel, scene: PerformContext) -> Reply:
        place = f"{request.id!r}, call {len(self.requests)} of this model"
        if not self._replies:
            self._fault = ScriptEnded(f"script: no reply is left for {place}; add a reply")
            raise self._fault
        reply = self._replies.pop(0)
        if refused := _misfit(reply, request, scene.config):
            self._fault = ScriptMismatch(
                f"script: the reply to {place}, {refused}; "
                "mend the call, or write calls(..., wrong=True) if the test wants it"
            )
            raise self._fault
        return reply


def _misfit(reply: Reply, request: CallModel, config: Config) -> str:
    """What the agent would refuse in *reply*; empty where nothing."""
    # Calls of a reply that fails do not run.
    if reply.wrong or reply.stalls or reply.failure is not None:
        return ""
    for name, text in _calls_of(reply):
        tool = config.tool(name)
        if tool is None or name not in request.tools:
            return f"calls {name!r}, which is not offered; there are: {', '.join(request.tools) or 'none'}"
        arguments = arguments_of(text)
        wrong = problem(tool.schema, arguments, tool.secrets) if arguments is not None else "they are no JSON"
        if wrong:
            return f"calls {name!r} with arguments that do not fit: {wrong}"
    return ""


def _calls_of(reply: Reply) -> list[tuple[str, str]]:
    """The names and arguments of the calls in *reply*, each of which may come in several pieces."""
    calls: dict[int, tuple[str, str]] = {}
    for piece in reply.pieces:
        if isinstance(piece, CallPiece):
            name, arguments = calls.get(piece.index, ("", ""))
            calls[piece.index] = (name or piece.name, arguments + piece.arguments)
    return [*calls.values()]


def _left_over(replies: list[Reply], answered: int) -> str:
    more = ["..."] if len(replies) > _MAX_LISTED else []
    shown = ", ".join([*map(_shown, replies[:_MAX_LISTED]), *more])
    left, them = ("1 reply is", "it") if len(replies) == 1 else (f"{len(replies)} replies are", "them")
    msg = f"script: {left} left over after {count(answered, 'call')}: {shown}"
    return f"{msg}; remove {them}, or pass partial=True"


def _shown(reply: Reply) -> str:
    """*reply* as the call that makes it, shortened."""
    text = "".join([piece.text for piece in reply.pieces if isinstance(piece, TextPiece)])
    said = repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
    if reply.stalls:
        return "stalls()"
    if reply.failure is not None:
        return f"fails({reply.failure.value!r})"
    wishes = ", ".join([name for name, _ in _calls_of(reply)])
    return f"calls({wishes})" if wishes else f"says({said})"


async def _cancelled() -> None:
    """Wait until this task is cancelled, and live on: a model answers that it was cancelled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


@final
class ScriptedTools:
    """Performs `RunTool` with plain functions from arguments to text, by the tool's name."""

    def __init__(self, **tools: Callable[[dict[str, object]], str]) -> None:
        self._tools = tools
        self.ran: list[RunTool] = []

    async def __call__(self, request: RunTool, scene: PerformContext) -> ToolFinished:
        """Perform *request* with the function of that name."""
        self.ran.append(request)
        content = self._tools[request.tool](json.loads(request.arguments or "{}"))
        return ToolFinished(at=scene.clock.now(), request=request.id, content=content)
