"""
Takes the secrets of a session out of events and requests, and puts them back for its tools.

Theory of operation. A secret becomes a placeholder before the machine sees it, so no journal, notice or model
has it. The vault keeps the value under the session that made the placeholder. Another session that gets hold
of the text, from a shared file or by guessing, cannot use it. Only a tool's performer gets the value back.
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
from ...effects.requests import AskApproval, CallModel, FireHook, RunTool
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
    from ...effects.secrets import Json, Secrets
    from ...performers.base import PassThroughNotice, PerformContext, Performer
    from ...performers.secrets import Vault
    from ..driver import Performers
    from ..inspect.fork import Replacement


T = TypeVar("T")

# Random for each process: a fixed key would let a reader of a journal try passwords against the digits.
PLACEHOLDER_KEY = os.urandom(32)
"""Keys the digits of placeholders: equal values are equal here, and no value is found by trying."""

MAX_REMEMBERED = 1_000
"""The most values that are known here without asking the vault; the oldest go first."""

MAX_MASKED = 10_000
"""Characters of the longest value that is held in memory and masked in texts."""

MAX_MASKS = 200
"""The most values that are masked in the output of tools; the oldest go first."""

# A run waits for its vault: one that hangs must not hang the session.
VAULT_TIMEOUT = 5.0
"""Seconds that a vault may take for one value."""


@final
class UnknownSecrets(Exception):
    """The values of *placeholders* are not known in this process, nor to its vault."""

    def __init__(self, placeholders: Iterable[str]) -> None:
        # Never the values: the text of this error goes to the model and into the journal.
        self.placeholders = tuple(placeholders)
        super().__init__(self.placeholders)


@final
class SecretNames:
    """
    The names of secrets in the arguments and results of an agent's tools, once for all its sessions.

    *specs* say which arguments are secret, *plain* has the names that are not, for some tools.
    """

    def __init__(
        self, secrets: Secrets, specs: Iterable[ToolSpec], plain: Mapping[str, tuple[str, ...]]
    ) -> None:
        specs = tuple(specs)
        self.secrets = secrets
        self.stems = search_stems(secrets)
        # By name of tool. Empty for a tool without secrets, which is most of them.
        self.hidden = {spec.name: spec.secrets for spec in specs}
        self.schemas = {spec.name: spec.schema for spec in specs}
        # For a tool that is not known: a model may make one up, and put a password into the call.
        self.any = tuple({ANY, *[name for names in self.hidden.values() for name in names]})
        self.in_arguments = any(self.hidden.values())
        self.plain = {
            tool: attrs.evolve(secrets, plain=(*secrets.plain, *names)) for tool, names in plain.items()
        }

    def arguments(self, tool: str) -> tuple[str, ...]:
        """The names of the secret arguments of *tool*."""
        return self.hidden.get(tool, self.any)

    def of(self, tool: str) -> Secrets:
        """The secrets of *tool*, without the names that are plain there."""
        return self.plain.get(tool, self.secrets)


@final
class Redactor:
    """Moves the secrets that have *names* from *session* and its children into *vault*, and back."""

    def __init__(self, session: str, vault: Vault, names: SecretNames) -> None:
        self._session = session
        # Where values are looked up: a copy has placeholders of its origin.
        self._sessions: tuple[str, ...] = (session,)
        self._vault = vault
        self._names = names
        self.in_arguments = names.in_arguments
        # A key for each session, so that equal secrets of two sessions cannot be recognised as equal.
        self._key = hmac.digest(PLACEHOLDER_KEY, session.encode(errors="replace"), "sha256")
        self._values: dict[str, Json] = {}
        # From a value as it may stand in a text to its placeholder.
        self._shown: dict[str, str] = {}
        # Redacted, and not in the vault yet.
        self.unsaved: dict[str, str] = {}

    def passes(self, tool: str) -> bool:
        """Whether no argument of *tool* is secret."""
        return self._names.arguments(tool) == ()

    # Taking secrets out

    def redact(self, name: str, value: Json) -> str:
        """The placeholder of *value*, which is called *name*."""
        # From the value alone: a retried call gets the same placeholder, which loop detection relies on.
        text = json.dumps(value)
        digits = hmac.digest(self._key, text.encode(), "sha256").hex()[:PLACEHOLDER_DIGITS]
        stands = placeholder(name, digits)
        # A value that fell out of memory is saved once more, which changes nothing in the vault.
        if digits not in self._values:
            # Saved later, by the caller: this runs in the middle of a text, where nothing can be awaited.
            self.unsaved[digits] = text
        self._remember(digits, value, stands)
        return stands

    def _remember(self, digits: str, value: Json, stands: str) -> None:
        text = json.dumps(value, ensure_ascii=False)
        # A long value costs memory, and a search in every output. The vault has it.
        if len(text) > MAX_MASKED:
            return
        self._values[digits] = value
        plain = value if isinstance(value, str) else text
        # Not "yes" or "1": masking such a value would spoil every text and give it away.
        if is_searchable(plain):
            self._shown.setdefault(plain, stands)
            # Also as it stands in JSON: tools often return what they were given.
            self._shown.setdefault(text[1:-1] if plain is value else text, stands)
        # Bounded: a session may live for months. The vault has those that go.
        while len(self._values) > MAX_REMEMBERED:
            del self._values[next(iter(self._values))]
        while len(self._shown) > MAX_MASKS:
            del self._shown[next(iter(self._shown))]

    def _is_secret(self, tool: str) -> Callable[[str], bool]:
        """Says of the name of an argument of *tool* whether it is secret."""
        schemas = self._names.schemas
        # The schema tells arguments of the tool from keys that a nested object brings along.
        there = arguments_in(schemas[tool]) if tool in schemas else frozenset[str]()
        return secret_test(self._names.arguments(tool), self._names.of(tool), there)

    async def save(self) -> None:
        """Put the unsaved values into the vault: all of them, even if the caller is cancelled."""
        if self.unsaved:
            # Taken away first: the next value may be redacted while the vault is slow.
            unsaved, self.unsaved = self.unsaved, {}
            await _to_its_end(self._put(unsaved))

    async def _put(self, unsaved: Mapping[str, str]) -> None:
        for name, value in unsaved.items():
            try:
                async with asyncio.timeout(VAULT_TIMEOUT):
                    await self._vault.keep(self._session, name, value)
            # The run goes on: the value is known here, and lost only with this process.
            except Exception as error:  # noqa: BLE001  # a host's vault may raise anything
                self._warn("a secret was not kept", error)

    async def arguments(self, tool: str, text: str) -> str:
        """
        *text*, arguments for *tool*, with placeholders for its secrets.

        A text that is no JSON object becomes one placeholder: a secret may be anywhere in it.
        """
        names = self._names.arguments(tool) if self._names.secrets.redact else ()
        # A placeholder for the whole text stays: redacted once more, its value would be another placeholder.
        if not names or not text.strip() or is_placeholder(text):
            return text
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        if arguments is None:
            return self.redact("arguments", text)
        # A model may write more around a placeholder ("Bearer <it>"): redacted together with its value.
        stands = _digits_of(arguments)
        values = await self._known(stands) if stands else {}
        secret = redact(
            arguments,
            self._is_secret(tool),
            lambda name, value: self.redact(name, fill_in(value, values)),
        )
        await self.save()
        # Unchanged, the model's own text stays: a provider's cache compares it byte by byte.
        return text if secret == arguments else json.dumps(secret, ensure_ascii=False)

    def output(self, tool: str, text: str) -> str:
        """*text*, output of *tool*, with placeholders for known secrets and those with a secret name."""
        if not self._names.secrets.redact:
            return text
        # Known values first: they are found without a name, too. The names then find secrets that no call
        # had, such as a token in a file that the tool read.
        if self._shown:
            text = mask(text, self._shown)
        return redact_text(text, self._names.of(tool), self._names.stems, self.redact)

    async def decision(self, tool: str, decision: Decision) -> Decision:
        """*decision* on a call of *tool*, with placeholders for the secrets that the approver typed."""
        match decision:
            # Edited arguments take the place of the model's, and are journaled like them.
            case Approve(arguments=text) if text:
                return Approve(arguments=await self.arguments(tool, text))
            case ApproveAlways(where=where) if where and self._names.secrets.redact:
                # The gate compares with redacted arguments, so a glob for a secret must be redacted, too.
                secret = self._is_secret(tool)
                globs = [(name, self._glob(name, glob) if secret(name) else glob) for name, glob in where]
                await self.save()
                return ApproveAlways(where=tuple(globs))
            case _:
                return decision

    def _glob(self, name: str, glob: str) -> str:
        """The glob for the placeholder of the secret argument *name*; any for any."""
        # Any value is no secret, and the glob of a placeholder would match one value only.
        if glob == "*":
            return glob
        # A bracket is special in a glob, and every placeholder has one.
        literal = glob.replace("[[]", "[")
        return (literal if is_placeholder(literal) else self.redact(name, glob)).replace("[", "[[]")

    async def answer(self, given: ApprovalGiven, questions: Iterable[AskApproval]) -> ApprovalGiven:
        """
        The approval *given* for one of *questions*, with placeholders for the secrets in it.

        Raises `ConfigError` where the owner of the session could not look them up.
        """
        # Without the question (it was answered meanwhile) the strictest names apply: the entry is written or
        # refused by others, but must have no secret in any case.
        tool = next((each.tool for each in questions if each.id == given.request), "")
        decision = await self.decision(tool, given.decision)
        # Nothing was secret, and so the vault does not matter.
        if decision == given.decision:
            return given
        if isinstance(self._vault, MemoryVault) and not any(map(self._vault.is_local, self._sessions)):
            # The tool would run in another process, and find a placeholder without a value.
            msg = (
                f"session {self._session!r} does not run in this process; approve there, or use a persistent "
                "vault (the decision holds a secret)"
            )
            raise ConfigError(msg)
        return attrs.evolve(given, decision=decision)

    def mark_running(self) -> None:
        """Note that the session runs here, so that a vault in memory is of use to it."""
        # A persistent vault serves any process, and need not know which one runs the session.
        if isinstance(self._vault, MemoryVault):
            self._vault.mark_local(self._session)

    async def replacement(self, what: Replacement) -> Replacement:
        """*what* replaces a step in a fork, with placeholders for the secrets in it."""
        # Without the name of a tool, any name that is secret for one of them counts.
        match what:
            case str():
                what = self.output("", what)
            case Approve() | ApproveAlways():
                return await self.decision("", what)
            case ApprovalGiven():
                return attrs.evolve(what, decision=await self.decision("", what.decision))
            case ToolFinished():
                what = attrs.evolve(what, content=self.output("", what.content))
            # Merged first: a secret may be cut into several fragments.
            case ModelFinished():
                pieces = [await self._piece(each) for each in merged(what.pieces)]
                return attrs.evolve(what, pieces=tuple(pieces))
            case HookAnswered():
                answers = [await self.hook_answer("", each) for each in what.said]
                return attrs.evolve(what, said=tuple(answers))
            case _:
                pass
        await self.save()
        return what

    async def _piece(self, piece: Piece) -> Piece:
        if not isinstance(piece, CallPiece):
            return piece
        return attrs.evolve(piece, arguments=await self.arguments(piece.name, piece.arguments))

    async def hook_answer(self, tool: str, one: HookSaid) -> HookSaid:
        """The answer of *one* hook on a call of *tool*, with placeholders for the secrets in it."""
        arguments = await self.arguments(tool, one.answer.arguments)
        return attrs.evolve(one, answer=attrs.evolve(one.answer, arguments=arguments))

    # Putting secrets back

    async def fill(self, text: str) -> str:
        """*text*, arguments, with values for placeholders; raises `UnknownSecrets` where one is missing."""
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        # A text of the model may contain the mark without any placeholder.
        stands = _digits_of(arguments)
        if not stands:
            return text
        opened = fill_in(arguments, await self._known(stands))
        # Looked for in the result: a value may hold a placeholder that was unknown when it was redacted.
        if gone := _digits_of(opened):
            raise UnknownSecrets(gone.values())
        return json.dumps(opened)

    async def _known(self, stands: Mapping[str, str]) -> dict[str, Json]:
        """The values, by digits, of the placeholders in *stands* that are known."""
        values: dict[str, Json] = {}
        for digits, each in stands.items():
            if digits in self._values:
                values[digits] = self._values[digits]
            elif (found := await self._find(digits)) is not None:
                # Remembered, so that it is masked in what the tool says about it.
                values[digits] = found
                self._remember(digits, found, each)
        return values

    def add_origins(self, sessions: Iterable[str]) -> None:
        """Look up secrets of *sessions*, too: this one is a copy of them."""
        # In order and once each: the journal is read again and again, and names them every time.
        self._sessions = tuple(dict.fromkeys((*self._sessions, *sessions)))

    async def _find(self, name: str) -> Json:
        """The value that the vault has under *name*; None where it has none (null is no secret)."""
        # Its own first: a copy's later secrets are its own, the earlier ones its origin's.
        for session in self._sessions:
            try:
                async with asyncio.timeout(VAULT_TIMEOUT):
                    found = await self._vault.find(session, name)
                if found is not None:
                    return cast("Json", json.loads(found))
            # As if it were not there: the model then learns that the secret has to be given again.
            except Exception as error:  # noqa: BLE001  # a host's vault may raise anything
                self._warn("a secret was not found", error)
        return None

    def mask(self, text: str) -> str:
        """*text* with placeholders for the known secrets."""
        return mask(text, self._shown)

    def _warn(self, what: str, error: Exception) -> None:
        # The type only: the text of the error may hold the secret.
        if (log := logger(self._session)) is not None:
            log.warning(what, reason=type(error).__name__)


def _digits_of(value: Json) -> dict[str, str]:
    """The placeholders in *value* by their digits."""
    return {found[1]: found[0] for found in placeholders_in(value)}


async def _to_its_end(work: Coroutine[Any, Any, T], *, answers: bool = False) -> T:
    """
    Await *work* to its end, also when cancelled, and raise the cancellation then.

    With *answers* it is dropped: it was for a model or a tool that has ended, and whose answer is still due.
    """
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            # `wait` leaves the task alone when it is cancelled itself; awaiting the task would cancel it.
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            if not answers:
                cancelled = error
            # One for each cancel, or the answer would count as cancelled in the end.
            elif (mine := asyncio.current_task()) is not None:
                mine.uncancel()
    if cancelled is not None:
        raise cancelled
    return task.result()


def redacting(performers: Performers, redactor: Redactor, silent: frozenset[str] = frozenset()) -> Performers:
    """
    *performers*, with *redactor* around those that a secret could come through.

    *silent* names the tools that emit nothing before they end.
    """
    # A copy: the host's own mapping serves other sessions, which have redactors of their own.
    made: dict[type, Performer[Any]] = {**performers}
    # Tools always: their output may have a secret by its name, where no argument is secret.
    if RunTool in made:
        made[RunTool] = RedactedTool(made[RunTool], redactor, silent=silent)
    if redactor.in_arguments:
        # Without secret arguments no model, hook or approver can give one: most agents pay for tools only.
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
        # The stream goes on to subscribers while secret arguments are collected: they are redacted whole.
        held = _HeldCalls(request.id, scene.emit, self._redactor.passes)
        answer = await self._inner(request, attrs.evolve(scene, emit=held))
        # A failure has no calls. What was held of its stream is dropped: the machine drops that answer, too.
        if not isinstance(answer, ModelFinished):
            return answer
        last, calls = held.taken(answer.pieces), held.calls()
        # The vault may be slow, and the model has answered: a cancel now must not lose a paid answer.
        redacted = await _to_its_end(self._redacted(calls), answers=True) if calls else []
        return attrs.evolve(answer, pieces=(*last, *redacted))

    async def _redacted(self, calls: list[tuple[int, str, str]]) -> list[CallPiece]:
        # Pieces of their own behind the others: the machine joins them to the calls by their index.
        return [
            CallPiece(index, arguments=await self._redactor.arguments(name, arguments))
            for index, name, arguments in calls
        ]


@final
class _HeldCalls:
    """
    Passes the events of the answer to *request* to *emit*, and holds arguments back that may be secret.

    Arguments of a tool that *passes* go on. Of a piece that the machine ignores, they are dropped.
    """

    def __init__(
        self, request: str, emit: Callable[[Event | PassThroughNotice], None], passes: Callable[[str], bool]
    ) -> None:
        self._request = request
        self._emit = emit
        self._passes = passes
        self._count = 0
        # By index: the pieces of several calls may come in any order.
        self._names: dict[int, str] = {}
        self._fragments: dict[int, list[str]] = {}

    def __call__(self, event: Event | PassThroughNotice) -> None:
        """Pass *event* on."""
        # Counted as the machine counts: only pieces that it applies may become part of a call.
        if not isinstance(event, ModelStreamed):
            self._emit(event)
        elif not any(isinstance(piece, CallPiece) for piece in event.pieces):
            # Counted only where the machine takes it: a repeated piece would shift all that follow.
            self._count += event.count if self._is_next(event) else 0
            self._emit(event)
        elif self._is_next(event):
            self._count += event.count
            self._emit(attrs.evolve(event, pieces=self.taken(event.pieces)))
        else:
            # Passed on so that the machine sees the gap, but the arguments are in no call that counts.
            bare = [_bare(piece) if isinstance(piece, CallPiece) else piece for piece in event.pieces]
            self._emit(attrs.evolve(event, pieces=tuple(bare)))

    def _is_next(self, event: ModelStreamed) -> bool:
        """Whether the machine will take *event*."""
        return (event.request, event.before) == (self._request, self._count) and event.fits

    def taken(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """*pieces* without the arguments that are held back."""
        # As many as before: the machine checks the number of pieces for gaps.
        return tuple([self._taken(piece) if isinstance(piece, CallPiece) else piece for piece in pieces])

    def _taken(self, piece: CallPiece) -> CallPiece:
        index = piece.index
        name = self._names.get(index) or piece.name
        self._names[index] = name
        # Without a name it may be any tool's, so it waits for the name.
        if not name or not self._passes(name):
            self._fragments.setdefault(index, []).append(piece.arguments)
            return _bare(piece)
        # Some providers send the name after the first arguments: they were held, and may go on now.
        if index in self._fragments:
            before = "".join(self._fragments.pop(index))
            return attrs.evolve(piece, arguments=before + piece.arguments)
        return piece

    def calls(self) -> list[tuple[int, str, str]]:
        """The index, the tool and the arguments of each held call."""
        return [(index, self._names[index], "".join(parts)) for index, parts in self._fragments.items()]


def _bare(piece: CallPiece) -> CallPiece:
    return CallPiece(piece.index, piece.wire_id, piece.name)


@final
class RedactedTool:
    """
    Performs `RunTool` with *inner*: *redactor* fills in the values, and redacts the results.

    It is around every call of every tool, and most have no secrets: the common way does almost nothing.
    """

    def __init__(self, inner: Performer[RunTool], redactor: Redactor, silent: frozenset[str]) -> None:
        self._inner = inner
        self._redactor = redactor
        self._silent = silent

    async def __call__(self, request: RunTool, scene: PerformContext) -> Answer | None:
        """Run the tool, unless a value that it needs is unknown or does not fit."""
        redactor, tool = self._redactor, request.tool
        # A search for one character sequence is cheaper than to parse the arguments.
        if PLACEHOLDER_MARK in request.arguments:
            try:
                # A new request: the machine and the journal keep the one with placeholders.
                request = attrs.evolve(request, arguments=await redactor.fill(request.arguments))
            except UnknownSecrets as gone:
                why = model_messages.secrets_gone(tool, gone.placeholders, again=request.again)
                return _not_run(request, scene, why)
            # The machine has validated placeholders only. The fault may quote the value.
            if fault := redactor.mask(_fault(request, scene)):
                return _not_run(request, scene, fault)
        # Wrapping costs a context for each call, and most tools never emit.
        if tool not in self._silent:
            scene = attrs.evolve(scene, emit=partial(self._heard, tool, scene.emit))
        try:
            answer = await self._inner(request, scene)
        except Exception as error:
            # A tool may quote its arguments in an error. Raised as it is, the driver would journal it.
            if (text := redactor.mask(str(error))) == str(error):
                raise
            crash = f"Tool execution crashed: {type(error).__name__}: {text}"
            return _finished(request, scene, crash, Outcome.CRASHED)
        if isinstance(answer, ToolFinished):
            content = redactor.output(tool, answer.content)
            # Mostly the same text: then the answer goes on as it is, without a copy.
            answer = answer if content == answer.content else attrs.evolve(answer, content=content)
        # The tool has done its work: a cancel while the vault is slow must not turn it into a cancelled call.
        if redactor.unsaved:
            await _to_its_end(redactor.save(), answers=True)
        return answer

    def _heard(
        self, tool: str, emit: Callable[[Event | PassThroughNotice], None], event: Event | PassThroughNotice
    ) -> None:
        # Progress is shown to people and to subscribers, who see no secrets either.
        if isinstance(event, ToolProgressed):
            event = attrs.evolve(event, text=self._redactor.output(tool, event.text))
        emit(event)


def _fault(request: RunTool, scene: PerformContext) -> str:
    """The message for the model where the values in *request* do not fit the schema; empty where they do."""
    spec = scene.config.tool(request.tool)
    # A tool that is not configured any more has no schema: the performer inside reports it.
    if spec is None:
        return ""
    # The same check as the machine's, and the same words: the model cannot tell who found the fault.
    found = problem(spec.schema, arguments_of(request.arguments) or {})
    return model_messages.invalid_arguments(request.tool, found, again=request.again) if found else ""


def _not_run(request: RunTool, scene: PerformContext, why: str) -> ToolFinished:
    # The first try may have run in a process that is gone, where the values were known.
    return _finished(request, scene, why, Outcome.UNKNOWN if request.again else Outcome.ERROR)


def _finished(request: RunTool, scene: PerformContext, content: str, outcome: Outcome) -> ToolFinished:
    return ToolFinished(at=scene.clock.now(), request=request.id, content=content, outcome=outcome)


@final
class RedactedHook:
    """Performs `FireHook` with *inner*; *redactor* takes secrets out of the arguments that hooks give."""

    def __init__(self, inner: Performer[FireHook], redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def __call__(self, request: FireHook, scene: PerformContext) -> Answer | None:
        """Ask the hooks."""
        answer = await self._inner(request, scene)
        # Only a hook that rewrites arguments can put a secret into the history.
        if not isinstance(answer, HookAnswered) or not any(one.answer.arguments for one in answer.said):
            return answer
        # The request names no tool, and its payload has it for the hooks.
        tool = str(json.loads(request.payload).get("tool_name", ""))
        said = [await self._redactor.hook_answer(tool, one) for one in answer.said]
        return attrs.evolve(answer, said=tuple(said))


@final
class RedactedApprover:
    """Performs `AskApproval` with *inner*; *redactor* takes out the secrets that the approver typed."""

    def __init__(self, inner: Performer[AskApproval], redactor: Redactor) -> None:
        self._inner = inner
        self._redactor = redactor

    async def __call__(self, request: AskApproval, scene: PerformContext) -> Answer | None:
        """Ask."""
        answer = await self._inner(request, scene)
        # The question is this one: the state may not have it open any more when a slow approver answers.
        return await self._redactor.answer(answer, [request]) if isinstance(answer, ApprovalGiven) else answer


WRAPPERS: tuple[tuple[type, Callable[[Performer[Any], Redactor], Performer[Any]]], ...] = (
    (CallModel, RedactedModel),
    (FireHook, RedactedHook),
    (AskApproval, RedactedApprover),
)
"""The performers that see arguments of calls, besides the tools."""
