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
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, cast, final

import attrs

from ..effects import events
from ..effects.errors import ConfigError
from ..effects.events import Answer, ApprovalGiven, Event, HookAnswered, ModelStreamed, ToolProgressed
from ..effects.history import CallPiece, Piece, merged
from ..effects.hooks import HookAnswer
from ..effects.messages import Binary, Outcome
from ..effects.requests import AskApproval, CallModel, FireHook, RunTool
from ..effects.secrets import (
    ANY,
    PLACEHOLDER_DIGITS,
    PLACEHOLDER_MARK,
    Json,
    Secrets,
    arguments_in,
    is_placeholder,
    placeholder,
)
from ..states.rules import model_messages
from ..states.rules.schema import arguments_of, problem
from . import secrets
from .base import PassThroughNotice, PerformContext, Performer, Performers, noop
from .logs import warn
from .secrets import MemoryVault, Vault
from .worker_pool import finish

if TYPE_CHECKING:
    from ..effects.config import ToolSpec

T = TypeVar("T")
Emit = Callable[["Event | PassThroughNotice"], None]

# Keys the digits of placeholders, so that equal values are equal here. It is random for each process: a fixed
# key would let a reader of a journal try passwords against the digits.
PLACEHOLDER_KEY = os.urandom(32)

# The most values that are known here without asking the vault; the oldest go first.
MAX_REMEMBERED = 1_000

# Characters of the longest value that is held in memory and masked in texts.
MAX_MASKED = 10_000

# The most values that are masked in the output of tools; the oldest go first.
MAX_MASKS = 200

# Seconds that a vault may take for one value: the run waits for it, and one that hangs must not hang the
# session.
VAULT_TIMEOUT = 5.0

# Most calls have no secret of their own.
NO_VALUES: Mapping[str, str] = MappingProxyType({})


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

    *specs* say which arguments are secret, *plain* has the names that are not, for some tools. *silent* names
    the tools that emit nothing before they end.
    """

    def __init__(
        self,
        hidden: Secrets,
        specs: Iterable[ToolSpec],
        plain: Mapping[str, tuple[str, ...]],
        silent: frozenset[str] = frozenset(),
    ) -> None:
        specs = tuple(specs)
        self.secrets = hidden
        self.silent = silent
        self.stems = secrets.search_stems(hidden)
        # By name of tool. Empty for a tool without secrets, which is most of them.
        self.hidden = {spec.name: spec.secrets for spec in specs}
        self.schemas = {spec.name: spec.schema for spec in specs}
        # For a tool that is not known: a model may make one up, and put a password into the call.
        self.any = tuple({ANY, *[name for names in self.hidden.values() for name in names]})
        self.in_arguments = any(self.hidden.values())
        # Whether anything is a secret: an argument of a tool, or what has a secret's name in a text.
        self.used = self.in_arguments or hidden.redact
        self.plain = {
            tool: attrs.evolve(hidden, plain=(*hidden.plain, *names)) for tool, names in plain.items()
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

    # Each session has one for as long as it is known, and thousands may be.
    __slots__ = ("_session", "_sessions", "_shown", "_values", "_vault", "names", "unsaved")

    def __init__(self, session: str, vault: Vault, names: SecretNames) -> None:
        self._session = session
        # Where values are looked up: a copy has placeholders of its origin.
        self._sessions: tuple[str, ...] = (session,)
        self._vault = vault
        self.names = names
        self._values: dict[str, Json] = {}
        # From a value as it may stand in a text to its placeholder.
        self._shown: dict[str, str] = {}
        # Redacted, and not in the vault yet.
        self.unsaved: dict[str, str] = {}

    def passes(self, tool: str) -> bool:
        """Whether no argument of *tool* is secret."""
        return self.names.arguments(tool) == ()

    # Taking secrets out

    def redact(self, name: str, value: Json) -> str:
        """The placeholder of *value*, which is called *name*."""
        # From the value alone: a retried call gets the same placeholder, which loop detection relies on.
        text = json.dumps(value)
        # A key for each session, so that equal secrets of two sessions cannot be recognised as equal. It is
        # made here, since most sessions have no secret.
        key = hmac.digest(PLACEHOLDER_KEY, self._session.encode(errors="replace"), "sha256")
        digits = hmac.digest(key, text.encode(), "sha256").hex()[:PLACEHOLDER_DIGITS]
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
        if secrets.is_searchable(plain):
            self._shown.setdefault(plain, stands)
            # Also as it stands in JSON, where all but ASCII may be escaped: tools often return what they were
            # given.
            for written in (text, json.dumps(value)):
                self._shown.setdefault(written[1:-1] if plain is value else written, stands)
        # Bounded: a session may live for months. The vault has those that go.
        while len(self._values) > MAX_REMEMBERED:
            del self._values[next(iter(self._values))]
        while len(self._shown) > MAX_MASKS:
            del self._shown[next(iter(self._shown))]

    def _is_secret(self, tool: str) -> Callable[[str], bool]:
        """Says of the name of an argument of *tool* whether it is secret."""
        schemas = self.names.schemas
        # The schema tells arguments of the tool from keys that a nested object brings along.
        there = arguments_in(schemas[tool]) if tool in schemas else frozenset[str]()
        return secrets.secret_test(self.names.arguments(tool), self.names.of(tool), there)

    async def save(self) -> None:
        """Put the unsaved values into the vault: all of them, even if the caller is cancelled."""
        if self.unsaved:
            # Taken away first: the next value may be redacted while the vault is slow.
            unsaved, self.unsaved = self.unsaved, {}
            await finish(self._put(unsaved))

    async def _put(self, unsaved: Mapping[str, str]) -> None:
        for name, value in unsaved.items():
            # Where it fails, the run goes on: the value is known here, and lost only with this process.
            async with self._asking("a secret was not kept"):
                await self._vault.keep(self._session, name, value)

    @asynccontextmanager
    async def _asking(self, fault: str) -> AsyncGenerator[None, None]:
        """Around a call of the vault, which ends in time and raises nothing: *fault* is logged."""
        try:
            async with asyncio.timeout(VAULT_TIMEOUT):
                yield
        except Exception as error:  # noqa: BLE001  # a host's vault may raise anything
            # Without its text, which may hold the secret that is not known to this redactor any more.
            warn(fault, error, session=self._session)

    async def arguments(self, tool: str, text: str) -> str:
        """
        *text*, arguments for *tool*, with placeholders for its secrets.

        A text that is no JSON object becomes one placeholder: a secret may be anywhere in it.
        """
        names = self.names.arguments(tool) if self.names.secrets.redact else ()
        # A placeholder for the whole text stays: redacted once more, its value would be another placeholder.
        if not names or is_placeholder(text):
            return text
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        if arguments is None:
            hidden = self.redact("arguments", text)
        else:
            # A model may write more around a placeholder ("Bearer <it>"): redacted together with its value.
            known = await self._known(_digits_of(arguments))
            replaced = secrets.redact(
                arguments,
                self._is_secret(tool),
                lambda name, value: self.redact(name, secrets.fill_in(value, known)),
            )
            # Unchanged, the model's own text stays: a provider's cache compares it byte by byte.
            hidden = text if replaced == arguments else json.dumps(replaced, ensure_ascii=False)
        await self.save()
        return hidden

    def output(self, tool: str, text: str, own: Mapping[str, str] = NO_VALUES) -> str:
        """
        *text*, output of *tool*, with placeholders for known secrets and those with a secret name.

        *own* are those of the call that are too short to be known anywhere else; see `echoes`.
        """
        if not self.names.secrets.redact:
            return text
        # Known values first: they are found without a name, too. The names then find secrets that no call
        # had, such as a token in a file that the tool read.
        if self._shown or own:
            text = self.mask(text, own)
        return secrets.redact_text(text, self.names.of(tool), self.names.stems, self.redact)

    def logged(self, text: str, own: Mapping[str, str] = NO_VALUES) -> str:
        """
        *text* for a log, without the known secrets and those with a secret name; *own* as for `output`.

        Unlike `output` it remembers nothing, and may be called from any thread: a line of source such as
        ``token = ask()`` is no secret that the session would have to mask from now on.
        """
        if not self.names.secrets.redact:
            return text
        # A copy, since the event loop may add to it meanwhile.
        text = secrets.mask(text, dict(self._shown))
        text = secrets.mask_words(text, own) if own else text
        return secrets.redact_text(text, self.names.secrets, self.names.stems, lambda name, _: f"[{name}]")

    def with_files(
        self, tool: str, answer: events.ToolFinished, own: Mapping[str, str] = NO_VALUES
    ) -> events.ToolFinished:
        """*answer* of *tool* without the files that hold a known secret; the names of others as texts."""
        files, notes = list[Binary](), list[str]()
        for file in answer.files:
            name = self.output(tool, file.name, own)
            if held := self._held(file.data):
                # A placeholder inside would break a picture, and the model cannot use half a file.
                notes.append(f"[file {name!r} is withheld: it holds {held}]")
            else:
                files.append(file if name == file.name else attrs.evolve(file, name=name))
        content = "\n".join(filter(None, [answer.content, *notes]))
        return attrs.evolve(answer, content=content, files=tuple(files))

    def _held(self, data: bytes) -> str:
        """The placeholder of a known secret in *data*; empty where there is none, or nothing is redacted."""
        if not self.names.secrets.redact:
            return ""
        shown = self._shown.items()
        return next((stands for value, stands in shown if value.encode(errors="surrogatepass") in data), "")

    async def redacted(self, what: T, tool: str = "") -> T:
        """
        *what*, which concerns a call of *tool*, with placeholders for the secrets in it.

        Without the name of a tool, any name that is secret for one of them counts.
        """
        made: object = what
        match made:
            case str():
                made = self.output(tool, made)
            case events.ToolFinished():
                made = self.with_files(tool, attrs.evolve(made, content=self.output(tool, made.content)))
            case ApprovalGiven():
                made = attrs.evolve(made, decision=await self.redacted(made.decision, tool))
            # Edited arguments take the place of the model's, and are journaled like them.
            case events.Approve() | HookAnswer():
                made = attrs.evolve(made, arguments=await self.arguments(tool, made.arguments))
            case CallPiece():
                made = attrs.evolve(made, arguments=await self.arguments(made.name, made.arguments))
            # The gate compares with redacted arguments, so a glob for a secret must be redacted, too.
            case events.ApproveAlways() if self.names.secrets.redact:
                secret = self._is_secret(tool)
                where = [(key, self._glob(key, glob) if secret(key) else glob) for key, glob in made.where]
                made = events.ApproveAlways(where=tuple(where))
            # Merged first: a secret may be cut into several fragments.
            case events.ModelFinished():
                pieces = [await self.redacted(piece) for piece in merged(made.pieces)]
                made = attrs.evolve(made, pieces=tuple(pieces))
            case HookAnswered():
                said = [attrs.evolve(one, answer=await self.redacted(one.answer, tool)) for one in made.said]
                made = attrs.evolve(made, said=tuple(said))
            case _:
                pass
        await self.save()
        return cast("T", made)

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
        redacted = await self.redacted(given, tool)
        # Nothing was secret, and so the vault does not matter.
        if redacted == given:
            return given
        if isinstance(self._vault, MemoryVault) and not any(map(self._vault.is_local, self._sessions)):
            # The tool would run in another process, and find a placeholder without a value.
            msg = (
                f"session {self._session!r} does not run in this process; approve there, or use a persistent "
                "vault (the decision holds a secret)"
            )
            raise ConfigError(msg)
        return redacted

    def mark_running(self) -> None:
        """Note that the session runs here, so that a vault in memory is of use to it."""
        # A persistent vault serves any process, and need not know which one runs the session.
        if isinstance(self._vault, MemoryVault):
            self._vault.mark_local(self._session)

    # Putting secrets back

    async def fill(self, text: str) -> str:
        """*text*, arguments, with values for placeholders; raises `UnknownSecrets` where one is missing."""
        arguments = cast("dict[str, Json] | None", arguments_of(text))
        # A text of the model may contain the mark without any placeholder.
        stands = _digits_of(arguments)
        if not stands:
            return text
        opened = secrets.fill_in(arguments, await self._known(stands))
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
            # As if it were not there where it fails: the model learns that it has to be given again.
            async with self._asking("a secret was not found"):
                found = await self._vault.find(session, name)
                if found is not None:
                    return cast("Json", json.loads(found))
        return None

    def echoes(self, arguments: str) -> dict[str, str]:
        """
        The secrets in *arguments* that are too short to be looked for in every text, by their placeholders.

        What their own call says may well repeat them; anywhere else, such a value is a word like any other.
        """
        if not self.names.secrets.redact:
            return {}
        stands = _digits_of(cast("dict[str, Json] | None", arguments_of(arguments)))
        # One that is too long to be held in memory is none of them.
        values = [(self._values[digits], each) for digits, each in stands.items() if digits in self._values]
        plain = [(value if isinstance(value, str) else json.dumps(value), each) for value, each in values]
        return {value: each for value, each in plain if secrets.is_echoed(value)}

    def mask(self, text: str, own: Mapping[str, str] = NO_VALUES) -> str:
        """*text* with placeholders for the known secrets, and for those of its *own* call."""
        masked = secrets.mask(text, self._shown)
        return secrets.mask_words(masked, own) if own else masked


def _digits_of(value: Json) -> dict[str, str]:
    """The placeholders in *value* by their digits."""
    return {found[1]: found[0] for found in secrets.placeholders_in(value)}


# Around performers. Each function here performs its request with *inner*.


def redacting(performers: Performers, redactor: Redactor) -> Performers:
    """*performers*, with *redactor* around those that a secret could come through."""
    names = redactor.names
    # A copy: the host's own mapping serves other sessions, which have redactors of their own.
    made: dict[type, Performer[Any]] = {**performers}
    # Without secret arguments no model, hook or approver can give one: most agents pay for tools only.
    for kind, around in WRAPPERS.items() if names.in_arguments else ():
        if kind in made:
            made[kind] = partial(around, made[kind], redactor)
    # Tools are wrapped even where no argument is secret: a result may have a field with a secret name, such
    # as `password`.
    if RunTool in made:
        inner = made[RunTool]
        made[RunTool] = partial(run_tool, inner, redactor, names.silent)
        if not names.used:
            made[RunTool] = partial(run_as_is, inner, made[RunTool])  # pyright: ignore[reportArgumentType]  # async
    return made


async def call_model(
    inner: Performer[CallModel], redactor: Redactor, request: CallModel, scene: PerformContext
) -> Answer | None:
    """Ask the model; *redactor* takes the secrets out of the calls of tools in its answer."""
    # The output is for the caller, who could do nothing with placeholders. It is an answer like a text.
    output = scene.config.output
    output_tool = "" if output is None else output.tool_for(request.model)

    def passes(tool: str) -> bool:
        return (tool == output_tool and tool != "") or redactor.passes(tool)

    # The stream goes on to subscribers while secret arguments are collected: they are redacted whole.
    held = _HeldCalls(request.id, scene.emit, passes)
    answer = await inner(request, attrs.evolve(scene, emit=held))
    # A failure has no calls. What was held of its stream is dropped: the machine drops that answer, too.
    if not isinstance(answer, events.ModelFinished):
        return answer
    last = held.taken(answer.pieces)
    # The vault may be slow, and the model has answered: a cancel now must not lose a paid answer.
    calls = await finish(held.redacted(redactor), noop) if held.fragments else []
    return attrs.evolve(answer, pieces=(*last, *calls))


@final
class _HeldCalls:
    """
    Passes the events of the answer to *request* to *emit*, and holds arguments back that may be secret.

    Arguments of a tool that *passes* go on. Of a piece that the machine ignores, they are dropped.
    """

    def __init__(self, request: str, emit: Emit, passes: Callable[[str], bool]) -> None:
        # By index: the pieces of several calls may come in any order.
        self.fragments: dict[int, list[str]] = {}
        self._names: dict[int, str] = {}
        self._request = request
        self._emit = emit
        self._passes = passes
        self._count = 0

    def __call__(self, event: Event | PassThroughNotice) -> None:
        """Pass *event* on."""
        if isinstance(event, ModelStreamed):
            # As the machine counts: only pieces that it applies may become part of a call, and a repeated
            # piece would shift all that follow.
            is_next = (event.request, event.before) == (self._request, self._count) and event.fits
            self._count += event.count if is_next else 0
            if any(isinstance(piece, CallPiece) for piece in event.pieces):
                # Without the arguments the machine still sees the gap before a piece that it ignores.
                pieces = self.taken(event.pieces) if is_next else _each(_bare, event.pieces)
                event = attrs.evolve(event, pieces=pieces)
        self._emit(event)

    def taken(self, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
        """*pieces* without the arguments that are held back."""
        return _each(self._taken, pieces)

    def _taken(self, piece: CallPiece) -> CallPiece:
        index = piece.index
        name = self._names.get(index) or piece.name
        self._names[index] = name
        # Without a name it may be any tool's: that of no tool does not pass, and waits for the name.
        if not self._passes(name):
            self.fragments.setdefault(index, []).append(piece.arguments)
            return _bare(piece)
        # Some providers send the name after the first arguments: they were held, and may go on now.
        if index in self.fragments:
            before = "".join(self.fragments.pop(index))
            return attrs.evolve(piece, arguments=before + piece.arguments)
        return piece

    async def redacted(self, redactor: Redactor) -> list[CallPiece]:
        """The held arguments of each call, with placeholders for the secrets in them."""
        # Pieces of their own behind the others: the machine joins them to the calls by their index.
        return [
            CallPiece(index, arguments=await redactor.arguments(self._names[index], "".join(parts)))
            for index, parts in self.fragments.items()
        ]


def _each(change: Callable[[CallPiece], CallPiece], pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    # As many as before: the machine checks the number of pieces for gaps.
    return tuple([change(piece) if isinstance(piece, CallPiece) else piece for piece in pieces])


def _bare(piece: CallPiece) -> CallPiece:
    return attrs.evolve(piece, arguments="")


def run_as_is(
    inner: Performer[RunTool], filling: Performer[RunTool], request: RunTool, scene: PerformContext
) -> Coroutine[Any, Any, Answer | None]:
    """Run a tool of an agent that redacts nothing; with *filling* where earlier ones did."""
    # A journal may have placeholders from before redaction was switched off, which no tool can use.
    perform = filling if PLACEHOLDER_MARK in request.arguments else inner
    return perform(request, scene)


async def run_tool(
    inner: Performer[RunTool],
    redactor: Redactor,
    silent: frozenset[str],
    request: RunTool,
    scene: PerformContext,
) -> Answer | None:
    """
    Run the tool with the values that *redactor* fills in, unless one is unknown or does not fit.

    It is around every call of every tool, and most have no secrets: the common way does almost nothing.
    """
    tool, own = request.tool, NO_VALUES
    # A search for one character sequence is cheaper than parsing the arguments.
    if PLACEHOLDER_MARK in request.arguments:
        try:
            filled = await redactor.fill(request.arguments)
            own = redactor.echoes(request.arguments)
            # A new request: the machine and the journal keep the one with placeholders.
            request = attrs.evolve(request, arguments=filled)
            # The machine has validated placeholders only. The fault may quote the value.
            why = redactor.mask(_fault(request, scene), own)
        except UnknownSecrets as gone:
            why = model_messages.secrets_gone(tool, gone.placeholders, again=request.again)
        if why:
            # The first try may have run in a process that is gone, where the values were known.
            return _finished(request, scene, why, Outcome.UNKNOWN if request.again else Outcome.ERROR)
    if own:
        faults = attrs.evolve(scene.faults, redact=partial(redactor.logged, own=own))
        scene = attrs.evolve(scene, faults=faults)
    # Wrapping costs a context for each call, and most tools never emit.
    if tool not in silent:
        scene = attrs.evolve(scene, emit=partial(_emit_progress, redactor, tool, own, scene.emit))
    try:
        answer = await inner(request, scene)
    except Exception as error:
        # A tool may quote its arguments in an error. Raised as it is, the driver would journal it.
        if (text := redactor.mask(str(error), own)) == str(error):
            raise
        about = {"request": "RunTool", "tool": tool, "call": request.call}
        scene.faults.raised("a performer raised", error, **about)
        crash = f"Tool execution crashed: {type(error).__name__}: {text}"
        return _finished(request, scene, crash, Outcome.CRASHED)
    if isinstance(answer, events.ToolFinished):
        content = redactor.output(tool, answer.content, own)
        # Mostly the same text: then the answer goes on as it is, without a copy.
        answer = answer if content == answer.content else attrs.evolve(answer, content=content)
        answer = redactor.with_files(tool, answer, own) if answer.files else answer
    # The tool has done its work: a cancel while the vault is slow must not turn it into a cancelled call.
    if redactor.unsaved:
        await finish(redactor.save(), noop)
    return answer


def _emit_progress(
    redactor: Redactor, tool: str, own: Mapping[str, str], emit: Emit, event: Event | PassThroughNotice
) -> None:
    # Progress is shown to people and to subscribers, who see no secrets either.
    if isinstance(event, ToolProgressed):
        event = attrs.evolve(event, text=redactor.output(tool, event.text, own))
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


def _finished(request: RunTool, scene: PerformContext, content: str, outcome: Outcome) -> events.ToolFinished:
    return events.ToolFinished(at=scene.clock.now(), request=request.id, content=content, outcome=outcome)


async def ask(
    inner: Performer[Any], redactor: Redactor, request: FireHook | AskApproval, scene: PerformContext
) -> Answer | None:
    """Ask the hooks or the approver; *redactor* takes out the secrets that they put into arguments."""
    answer = await inner(request, scene)
    if isinstance(request, FireHook):
        # Only a hook that rewrites arguments can put a secret into the history.
        if not isinstance(answer, HookAnswered) or not any(one.answer.arguments for one in answer.said):
            return answer
        # The request names no tool, and its payload has it for the hooks.
        tool = str(json.loads(request.payload).get("tool_name", ""))
    else:
        tool = request.tool
    return await redactor.redacted(answer, tool)


# What goes around the performers that see arguments of calls, besides the tools.
WRAPPERS: dict[type, Callable[..., Any]] = {CallModel: call_model, FireHook: ask, AskApproval: ask}
