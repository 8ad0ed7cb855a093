"""
Performers behind which no secret comes out: what they say is sealed before the machine sees it.

Theory of operation. A model's calls come in fragments, and a fragment of a secret is not known as one. So the
arguments of calls that may have secrets are held back: their pieces go on without them, and with the end of
the answer comes all that was held back, sealed. Where a tool runs, the values are put back, the schema is
looked up for them, and what it says is sealed. Hooks and people see placeholders, and what they put in their
place is sealed, too.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs

from ...effects.events import (
    ApprovalGiven,
    HookAnswered,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    ToolProgressed,
)
from ...effects.messages import Outcome
from ...effects.pieces import CallPiece
from ...effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    RunTool,
)
from ...effects.secrets import PLACEHOLDER_MARK
from ...states.rules import model_messages
from ...states.rules.schema import arguments_of, problem
from .redactor import Gone

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ...effects.config import Config
    from ...effects.events import Answer, Event
    from ...effects.pieces import Piece
    from ...performers.base import PassThroughNotice, PerformContext, Performer
    from ..driver.driver import Performers
    from .redactor import Redactor

T = TypeVar("T")


def redacting(
    performers: Performers, sealer: Redactor, config: Config, silent: frozenset[str] = frozenset()
) -> Performers:
    """
    *performers* of an agent with *config*, behind *sealer*: those behind which a secret could come.

    *silent* are the tools that say nothing before they end.
    """
    wrapped: dict[type, Callable[[Performer[Any], Redactor], Performer[Any]]] = {
        RunTool: partial(RedactedTool, silent=silent)
    }
    if any(tool.secrets for tool in config.tools):
        wrapped |= {CallModel: RedactedModel, FireHook: RedactedHook, AskApproval: RedactedApprover}
    made = {kind: wrap(performers[kind], sealer) for kind, wrap in wrapped.items() if kind in performers}
    return {**performers, **made}


@final
class RedactedModel:
    """Performs `CallModel` with *inner*; *sealer* takes the secrets out of the calls."""

    def __init__(self, inner: Performer[CallModel], sealer: Redactor) -> None:
        self._inner = inner
        self._sealer = sealer

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer | None:
        """Ask the model."""
        held = _Held(request.id, scene.emit, self._sealer.passes)
        answer = await self._inner(request, attrs.evolve(scene, emit=held))
        if not isinstance(answer, ModelFinished):
            return answer
        last, calls = held.taken(answer.pieces), held.calls()
        sealed = await _all_the_same(self._sealed(calls)) if calls else []
        return attrs.evolve(answer, pieces=(*last, *sealed))

    async def _sealed(self, calls: list[tuple[int, str, str]]) -> list[CallPiece]:
        return [
            CallPiece(index, arguments=await self._sealer.arguments(name, arguments))
            for index, name, arguments in calls
        ]


@final
class _Held:
    """
    Hands events of the answer to *request* on to *emit*, without arguments that may be secret.

    Those of a tool that *passes* go on. What the machine will ignore is not held back either.
    """

    def __init__(
        self, request: str, emit: Callable[[Event | PassThroughNotice], None], passes: Callable[[str], bool]
    ) -> None:
        self._request = request
        self._emit = emit
        self._passes = passes
        self._count = 0
        self._names: dict[int, str] = {}
        self._fragments: dict[int, list[str]] = {}

    def __call__(self, event: Event | PassThroughNotice) -> None:
        """Hand *event* on."""
        if not isinstance(event, ModelStreamed):
            self._emit(event)
        elif not any(isinstance(piece, CallPiece) for piece in event.pieces):
            self._count += event.count if self._is_next(event) else 0
            self._emit(event)
        elif self._is_next(event):
            self._count += event.count
            self._emit(attrs.evolve(event, pieces=self.taken(event.pieces)))
        else:
            bare = [_bare(piece) if isinstance(piece, CallPiece) else piece for piece in event.pieces]
            self._emit(attrs.evolve(event, pieces=tuple(bare)))

    def _is_next(self, event: ModelStreamed) -> bool:
        """Whether the machine will take *event*."""
        return (event.request, event.before) == (self._request, self._count) and event.fits

    def taken(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """*pieces* without what is held back of them; as many, so that whoever counts them counts right."""
        return tuple([self._taken(piece) if isinstance(piece, CallPiece) else piece for piece in pieces])

    def _taken(self, piece: CallPiece) -> CallPiece:
        index = piece.index
        name = self._names.get(index) or piece.name
        self._names[index] = name
        if not name or not self._passes(name):
            self._fragments.setdefault(index, []).append(piece.arguments)
            return _bare(piece)
        if index in self._fragments:  # its name came behind the first of its arguments
            before = "".join(self._fragments.pop(index))
            return attrs.evolve(piece, arguments=before + piece.arguments)
        return piece

    def calls(self) -> list[tuple[int, str, str]]:
        """The index, the tool and the arguments of each call that was held back."""
        return [(index, self._names[index], "".join(parts)) for index, parts in self._fragments.items()]


def _bare(piece: CallPiece) -> CallPiece:
    return CallPiece(piece.index, piece.wire_id, piece.name)


@final
class RedactedTool:
    """
    Performs `RunTool` with *inner*, whom *sealer* gives the values, and whose results it seals.

    Most tools have no secrets, and this stands around each of their calls: so nothing is done here that need
    not be.
    """

    def __init__(self, inner: Performer[RunTool], sealer: Redactor, silent: frozenset[str]) -> None:
        self._inner = inner
        self._sealer = sealer
        self._silent = silent

    async def __call__(self, request: RunTool, scene: PerformContext) -> Answer | None:
        """Run the tool, unless a value that it needs is gone or does not fit."""
        sealer, tool = self._sealer, request.tool
        if PLACEHOLDER_MARK in request.arguments:
            try:
                request = attrs.evolve(request, arguments=await sealer.opened(request.arguments))
            except Gone as gone:
                why = model_messages.secrets_gone(tool, gone.placeholders, again=request.again)
                return _not_run(request, scene, why)
            if fault := sealer.hides(_fault(request, scene)):
                return _not_run(request, scene, fault)

        if tool not in self._silent:
            scene = attrs.evolve(scene, emit=partial(self._heard, tool, scene.emit))
        try:
            answer = await self._inner(request, scene)
        except Exception as error:
            # Whoever made it may have put into it what it was given.
            if (said := sealer.hides(str(error))) == str(error):
                raise
            return _crashed(request, scene, f"{type(error).__name__}: {said}")
        if isinstance(answer, ToolFinished):
            content = sealer.said(tool, answer.content)
            answer = answer if content == answer.content else attrs.evolve(answer, content=content)
        if sealer.fresh:
            await _all_the_same(sealer.kept())
        return answer

    def _heard(
        self, tool: str, emit: Callable[[Event | PassThroughNotice], None], event: Event | PassThroughNotice
    ) -> None:
        if isinstance(event, ToolProgressed):
            event = attrs.evolve(event, text=self._sealer.said(tool, event.text))
        emit(event)


def _fault(request: RunTool, scene: PerformContext) -> str:
    """What is wrong with the values in *request*, where the machine has seen placeholders only."""
    spec = scene.config.tool(request.tool)
    if spec is None:
        return ""
    found = problem(spec.schema, arguments_of(request.arguments) or {})
    return model_messages.invalid_arguments(request.tool, found, again=request.again) if found else ""


def _not_run(request: RunTool, scene: PerformContext, why: str) -> ToolFinished:
    outcome = Outcome.UNKNOWN if request.again else Outcome.ERROR
    return ToolFinished(at=scene.clock.now(), request=request.id, content=why, outcome=outcome)


def _crashed(request: RunTool, scene: PerformContext, why: str) -> ToolFinished:
    content = f"Tool execution crashed: {why}"
    return ToolFinished(at=scene.clock.now(), request=request.id, content=content, outcome=Outcome.CRASHED)


async def _all_the_same(work: Coroutine[Any, Any, T]) -> T:
    """
    Await *work* to its end, whoever cancels us.

    They want a model or a tool to stop, and that is over; its answer is still to be given.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            if (mine := asyncio.current_task()) is not None:
                mine.uncancel()
    return task.result()


@final
class RedactedHook:
    """Performs `FireHook` with *inner*; *sealer* takes secrets out of the arguments that hooks give."""

    def __init__(self, inner: Performer[FireHook], sealer: Redactor) -> None:
        self._inner = inner
        self._sealer = sealer

    async def __call__(self, request: FireHook, scene: PerformContext) -> Answer | None:
        """Ask the hooks."""
        answer = await self._inner(request, scene)
        if not isinstance(answer, HookAnswered) or not any(one.answer.arguments for one in answer.said):
            return answer
        tool = str(json.loads(request.payload).get("tool_name", ""))
        said = [await self._sealer.heard(tool, one) for one in answer.said]
        return attrs.evolve(answer, said=tuple(said))


@final
class RedactedApprover:
    """Performs `AskApproval` with *inner*; *sealer* takes out the secrets that a person put into a call."""

    def __init__(self, inner: Performer[AskApproval], sealer: Redactor) -> None:
        self._inner = inner
        self._sealer = sealer

    async def __call__(self, request: AskApproval, scene: PerformContext) -> Answer | None:
        """Ask."""
        answer = await self._inner(request, scene)
        return await self._sealer.answer(answer, [request]) if isinstance(answer, ApprovalGiven) else answer
