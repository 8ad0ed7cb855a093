"""
Who takes the secrets of a session out of what comes by, and puts them back.

What a placeholder stands for is kept in a vault, by the session that the placeholder was made in: another one
that comes to have its text, by a file that both write or by a guess, cannot use it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

import attrs

from ...effects.errors import ConfigError
from ...effects.events import (
    ApprovalGiven,
    Approve,
    ApproveAlways,
    HookAnswered,
    ModelFinished,
    ModelStreamed,
    ToolFinished,
    ToolProgressed,
)
from ...effects.messages import Outcome
from ...effects.pieces import CallPiece, merged
from ...effects.requests import (
    AskApproval,
    CallModel,
    FireHook,
    RunTool,
)
from ...effects.secrets import (
    ANY,
    PLACEHOLDER_DIGITS,
    PLACEHOLDER_MARK,
    arguments_in,
    is_placeholder,
    placeholder,
)
from ...performers.secrets import (
    MemoryVault,
    fill_in,
    is_searchable,
    mask,
    placeholders_in,
    redact,
    redact_text,
    search_stems,
    secret_test,
)
from ...states.rules import model_messages
from ...states.rules.schema import arguments_of, problem
from ..driver import logger

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from ...effects.config import ToolSpec
    from ...effects.events import Answer, Decision, Event
    from ...effects.hooks import HookSaid
    from ...effects.pieces import Piece
    from ...effects.requests import AskApproval
    from ...effects.secrets import Json, Secrets
    from ...performers.base import PassThroughNotice, PerformContext, Performer
    from ...performers.secrets import Vault
    from ..driver import Performers
    from ..inspect.fork import Replacement


T = TypeVar("T")

KEY = os.urandom(32)
"""
What placeholders are made with, in this process: so they are compared, and no value is found by trying.
"""

REMEMBERED = 1_000
"""Values that are known here without asking the vault; the latest."""

LONG = 10_000
"""Characters of a value that only the vault has, and that is not looked for."""

LOOKED_FOR = 200
"""Values that are looked for in what tools say; the latest."""

PATIENCE = 5.0
"""Seconds that a vault may take."""


@final
class Gone(Exception):
    """The values of *placeholders* are not known here any more."""

    def __init__(self, placeholders: Iterable[str]) -> None:
        self.placeholders = tuple(placeholders)
        super().__init__(self.placeholders)


@final
class SecretNames:
    """
    What is secret in the arguments and results of an agent's tools: worked out once for all its sessions.

    *specs* say which of their arguments are secret, *plain* has for some of them the names that are not.
    """

    def __init__(
        self, secrets: Secrets, specs: Iterable[ToolSpec], plain: Mapping[str, tuple[str, ...]]
    ) -> None:
        specs = tuple(specs)
        self.secrets = secrets
        self.stems = search_stems(secrets)
        self.hidden = {spec.name: spec.secrets for spec in specs}
        self.schemas = {spec.name: spec.schema for spec in specs}
        self.any = tuple({ANY, *[name for names in self.hidden.values() for name in names]})
        self.in_arguments = any([spec.secrets for spec in specs])
        self.plain = {
            tool: attrs.evolve(secrets, plain=(*secrets.plain, *names)) for tool, names in plain.items()
        }


@final
class Redactor:
    """Takes the secrets that have *names* out of the session *session* and its children, into *vault*."""

    def __init__(self, session: str, vault: Vault, names: SecretNames) -> None:
        self._session = session
        self._sessions: tuple[str, ...] = (session,)
        self._vault = vault
        self._secrets = names.secrets
        self._stems = names.stems
        self._hidden = names.hidden
        self._schemas = names.schemas
        self._any = names.any
        self._plain = names.plain
        self.in_arguments = names.in_arguments
        self._key = hmac.digest(KEY, session.encode(errors="replace"), "sha256")
        self._values: dict[str, Json] = {}
        self._shown: dict[str, str] = {}
        self.fresh: dict[str, str] = {}

    def passes(self, tool: str) -> bool:
        """Whether the arguments of *tool* are let through as they are: none is secret."""
        return self._names(tool) == ()

    # Taking out

    def seal(self, name: str, value: Json) -> str:
        """The placeholder of *value*, which is called *name*."""
        text = json.dumps(value)
        digits = hmac.digest(self._key, text.encode(), "sha256").hex()[:PLACEHOLDER_DIGITS]
        stands = placeholder(name, digits)
        if digits not in self._values:
            self.fresh[digits] = text
        self._remember(digits, value, stands)
        return stands

    def _remember(self, digits: str, value: Json, stands: str) -> None:
        text = json.dumps(value, ensure_ascii=False)
        if len(text) > LONG:
            return
        self._values[digits] = value
        plain = value if isinstance(value, str) else text
        if is_searchable(plain):
            self._shown.setdefault(plain, stands)
            self._shown.setdefault(text[1:-1] if plain is value else text, stands)  # as it stands in JSON
        while len(self._values) > REMEMBERED:
            del self._values[next(iter(self._values))]
        while len(self._shown) > LOOKED_FOR:
            del self._shown[next(iter(self._shown))]

    def _names(self, tool: str) -> tuple[str, ...]:
        """The names of the secrets of *tool*; of one that is not known, those of all and any other."""
        return self._hidden.get(tool, self._any)

    def _is_named(self, tool: str) -> Callable[[str], bool]:
        """Whether an argument is secret that is given to *tool* under a name."""
        there = arguments_in(self._schemas[tool]) if tool in self._schemas else frozenset[str]()
        return secret_test(self._names(tool), self._plain.get(tool, self._secrets), there)

    async def kept(self) -> None:
        """Have the vault keep what was sealed since; all of it, also where whoever waits is cancelled."""
        if self.fresh:
            fresh, self.fresh = self.fresh, {}
            await _to_its_end(self._keep(fresh))

    async def _keep(self, fresh: Mapping[str, str]) -> None:
        for name, value in fresh.items():
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._vault.keep(self._session, name, value)
            except Exception as error:  # noqa: BLE001  # a host's: what is not kept is lost with this process
                self._warn("a secret was not kept", error)

    async def arguments(self, tool: str, text: str) -> str:
        """
        *text*, arguments for *tool*, without its secrets.

        What cannot be read may have them anywhere, so all of it goes; what is left can be read no better.
        """
        names = self._names(tool) if self._secrets.redact else ()
        if not names or not text.strip() or is_placeholder(text):
            return text
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        if arguments is None:
            return self.seal("arguments", text)
        stands = _digits_of(arguments)
        values = await self._known(stands) if stands else {}
        secret = redact(arguments, self._is_named(tool), partial(self._seal_whole, values))
        await self.kept()
        return text if secret == arguments else json.dumps(secret, ensure_ascii=False)

    def _seal_whole(self, values: Mapping[str, Json], name: str, value: Json) -> str:
        """As `seal`: a placeholder with more around it is sealed with its value."""
        return self.seal(name, fill_in(value, values))

    def said(self, tool: str, text: str) -> str:
        """*text*, which *tool* said, without the secrets that have a name in it or are known."""
        if not self._secrets.redact:
            return text
        if self._shown:
            text = mask(text, self._shown)
        return redact_text(text, self._plain.get(tool, self._secrets), self._stems, self.seal)

    async def decision(self, tool: str, decision: Decision) -> Decision:
        """*decision* on a call of *tool* without the secrets that a person put into it."""
        match decision:
            case Approve(arguments=text) if text:
                return Approve(arguments=await self.arguments(tool, text))
            case ApproveAlways(where=where) if where and self._secrets.redact:
                is_named = self._is_named(tool)
                globs = tuple(
                    [(name, self._glob(name, glob) if is_named(name) else glob) for name, glob in where]
                )
                await self.kept()
                return ApproveAlways(where=globs)
            case _:
                return decision

    def _glob(self, name: str, glob: str) -> str:
        """*glob* for an argument called *name* that is secret: one for its placeholder, or for any."""
        if glob == "*":
            return glob
        told = glob.replace("[[]", "[")
        return (told if is_placeholder(told) else self.seal(name, glob)).replace("[", "[[]")

    async def answer(self, given: ApprovalGiven, questions: Iterable[AskApproval]) -> ApprovalGiven:
        """
        The answer that was *given* to one of *questions* without the secrets in it.

        Raises `ConfigError` where nobody who goes on with the session could have them.
        """
        tool = next((each.tool for each in questions if each.id == given.request), "")
        decision = await self.decision(tool, given.decision)
        if decision == given.decision:
            return given
        if isinstance(self._vault, MemoryVault) and not any(map(self._vault.is_local, self._sessions)):
            msg = (
                "this answer has a secret, which only this process would know, and session "
                f"{self._session!r} is not run here: answer where it is, or give its agent a vault that lasts"
            )
            raise ConfigError(msg)
        return attrs.evolve(given, decision=decision)

    def drives(self) -> None:
        """A run of the session is under way here, so that what only this process knows is of use to it."""
        if isinstance(self._vault, MemoryVault):
            self._vault.mark_local(self._session)

    async def instead(self, what: Replacement) -> Replacement:
        """*what* shall happen in a copy, without the secrets in it, whichever tool's they are."""
        match what:
            case str():
                what = self.said("", what)
            case Approve() | ApproveAlways():
                return await self.decision("", what)
            case ApprovalGiven():
                return attrs.evolve(what, decision=await self.decision("", what.decision))
            case ToolFinished():
                what = attrs.evolve(what, content=self.said("", what.content))
            case ModelFinished():
                pieces = [await self._piece(each) for each in merged(what.pieces)]
                return attrs.evolve(what, pieces=tuple(pieces))
            case HookAnswered():
                return attrs.evolve(what, said=tuple([await self.heard("", each) for each in what.said]))
            case _:
                pass
        await self.kept()
        return what

    async def _piece(self, piece: Piece) -> Piece:
        if not isinstance(piece, CallPiece):
            return piece
        return attrs.evolve(piece, arguments=await self.arguments(piece.name, piece.arguments))

    async def heard(self, tool: str, one: HookSaid) -> HookSaid:
        """What *one* hook said of a call of *tool*, without the secrets that it put into that."""
        arguments = await self.arguments(tool, one.answer.arguments)
        return attrs.evolve(one, answer=attrs.evolve(one.answer, arguments=arguments))

    # Putting back

    async def opened(self, text: str) -> str:
        """
        *text*, arguments, with the values in the place of the placeholders.

        Raises `Gone` where one of them is not known here.
        """
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        stands = _digits_of(arguments)
        if not stands:
            return text
        opened = fill_in(arguments, await self._known(stands))
        if gone := _digits_of(opened):  # also those that were gone when they were sealed with what is around
            raise Gone(gone.values())
        return json.dumps(opened)

    async def _known(self, stands: Mapping[str, str]) -> dict[str, Json]:
        """The values of placeholders by their digits, which *stands* has; those that are not gone."""
        values: dict[str, Json] = {}
        for digits, each in stands.items():
            if digits in self._values:
                values[digits] = self._values[digits]
            elif (found := await self._find(digits)) is not None:
                values[digits] = found
                self._remember(digits, found, each)
        return values

    def reads(self, sessions: Iterable[str]) -> None:
        """Know the secrets of *sessions*, too: this one is a copy of what was said in them."""
        self._sessions = tuple(dict.fromkeys((*self._sessions, *sessions)))

    async def _find(self, name: str) -> Json:
        """The value that a vault has by *name*; None where it has none, since nothing is no secret."""
        for session in self._sessions:
            try:
                async with asyncio.timeout(PATIENCE):
                    found = await self._vault.find(session, name)
                if found is not None:
                    return cast("Json", json.loads(found))
            except Exception as error:  # noqa: BLE001  # a host's: what cannot be found is not there
                self._warn("a secret was not found", error)
        return None

    def hides(self, text: str) -> str:
        """*text* without the secrets that are known."""
        return mask(text, self._shown)

    def _warn(self, what: str, error: Exception) -> None:
        if (log := logger(self._session)) is not None:
            log.warning(what, reason=type(error).__name__)


def _digits_of(value: Json) -> dict[str, str]:
    """The placeholders in *value* by their digits."""
    return {found[1]: found[0] for found in placeholders_in(value)}


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await *work* to its end; whoever cancels us meanwhile is heeded then."""
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


def redacting(performers: Performers, redactor: Redactor, silent: frozenset[str] = frozenset()) -> Performers:
    """
    *performers* with those behind *redactor* that a secret could come through.

    *silent* are the tools that emit nothing before they end.
    """
    made: dict[type, Performer[Any]] = {**performers}
    if RunTool in made:
        made[RunTool] = RedactedTool(made[RunTool], redactor, silent=silent)
    if redactor.in_arguments:
        # Without secret arguments no model, hook or approver can come to have one.
        for kind, wrap in WRAPPERS:
            if kind in made:
                made[kind] = wrap(made[kind], redactor)
    return made


@final
class RedactedModel:
    """Performs `CallModel` with *inner*; *redactor* takes the secrets out of the calls."""

    def __init__(self, inner: Performer[CallModel], redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer | None:
        """Ask the model."""
        held = _Held(request.id, scene.emit, self._redactor.passes)
        answer = await self._inner(request, attrs.evolve(scene, emit=held))
        if not isinstance(answer, ModelFinished):
            return answer
        last, calls = held.taken(answer.pieces), held.calls()
        sealed = await _all_the_same(self._sealed(calls)) if calls else []
        return attrs.evolve(answer, pieces=(*last, *sealed))

    async def _sealed(self, calls: list[tuple[int, str, str]]) -> list[CallPiece]:
        return [
            CallPiece(index, arguments=await self._redactor.arguments(name, arguments))
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
    Performs `RunTool` with *inner*, whom *redactor* gives the values, and whose results it seals.

    Most tools have no secrets, and this stands around each of their calls: so nothing is done here that need
    not be.
    """

    def __init__(self, inner: Performer[RunTool], redactor: Redactor, silent: frozenset[str]) -> None:
        self._inner = inner
        self._redactor = redactor
        self._silent = silent

    async def __call__(self, request: RunTool, scene: PerformContext) -> Answer | None:
        """Run the tool, unless a value that it needs is gone or does not fit."""
        redactor, tool = self._redactor, request.tool
        if PLACEHOLDER_MARK in request.arguments:
            try:
                request = attrs.evolve(request, arguments=await redactor.opened(request.arguments))
            except Gone as gone:
                why = model_messages.secrets_gone(tool, gone.placeholders, again=request.again)
                return _not_run(request, scene, why)
            if fault := redactor.hides(_fault(request, scene)):
                return _not_run(request, scene, fault)

        if tool not in self._silent:
            scene = attrs.evolve(scene, emit=partial(self._heard, tool, scene.emit))
        try:
            answer = await self._inner(request, scene)
        except Exception as error:
            # Whoever made it may have put into it what it was given.
            if (said := redactor.hides(str(error))) == str(error):
                raise
            return _crashed(request, scene, f"{type(error).__name__}: {said}")
        if isinstance(answer, ToolFinished):
            content = redactor.said(tool, answer.content)
            answer = answer if content == answer.content else attrs.evolve(answer, content=content)
        if redactor.fresh:
            await _all_the_same(redactor.kept())
        return answer

    def _heard(
        self, tool: str, emit: Callable[[Event | PassThroughNotice], None], event: Event | PassThroughNotice
    ) -> None:
        if isinstance(event, ToolProgressed):
            event = attrs.evolve(event, text=self._redactor.said(tool, event.text))
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
    """Performs `FireHook` with *inner*; *redactor* takes secrets out of the arguments that hooks give."""

    def __init__(self, inner: Performer[FireHook], redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def __call__(self, request: FireHook, scene: PerformContext) -> Answer | None:
        """Ask the hooks."""
        answer = await self._inner(request, scene)
        if not isinstance(answer, HookAnswered) or not any(one.answer.arguments for one in answer.said):
            return answer
        tool = str(json.loads(request.payload).get("tool_name", ""))
        said = [await self._redactor.heard(tool, one) for one in answer.said]
        return attrs.evolve(answer, said=tuple(said))


@final
class RedactedApprover:
    """Performs `AskApproval` with *inner*; *redactor* takes out the secrets that a person put into a call."""

    def __init__(self, inner: Performer[AskApproval], redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def __call__(self, request: AskApproval, scene: PerformContext) -> Answer | None:
        """Ask."""
        answer = await self._inner(request, scene)
        return await self._redactor.answer(answer, [request]) if isinstance(answer, ApprovalGiven) else answer


WRAPPERS: tuple[tuple[type, Callable[[Performer[Any], Redactor], Performer[Any]]], ...] = (
    (CallModel, RedactedModel),
    (FireHook, RedactedHook),
    (AskApproval, RedactedApprover),
)
"""The performers that see arguments of calls, besides the tools."""
