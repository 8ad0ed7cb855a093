"""Secrets reach the tools that need them: no model reads one, and none is kept or shown."""

from __future__ import annotations

import asyncio
import json
import random
import re
import traceback
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import attrs
import httpx
import pytest
from structlog.testing import capture_logs

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Hook,
    HookAnswer,
    HookCall,
    MemoryStore,
    Session,
    SQLiteStore,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects.errors import AnswerRefused, ConfigError
from turnwheel.effects.events import (
    ApprovalGiven,
    Failure,
    HookAnswered,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
)
from turnwheel.effects.history import CallPiece, History, Piece, TextPiece, merged
from turnwheel.effects.hooks import HookSaid
from turnwheel.effects.messages import Binary, Outcome, Role, StopReason
from turnwheel.effects.notices import LoopDetected, Notice, ToolOutput
from turnwheel.effects.requests import AskApproval, CallModel, Conversation, RunTool
from turnwheel.effects.secrets import Secrets, placeholders
from turnwheel.effects.usage import Usage
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.archive import explain, export
from turnwheel.performers.base import PerformContext
from turnwheel.performers.redactor import Redactor, SecretNames, UnknownSecrets, call_model
from turnwheel.performers.secrets import MemoryVault, Vault
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import Reply, ScriptedModel, calls, says

PASSWORD = "hunter2-of-old"  # noqa: S105  # of no account
KEY = "sk-4711-0815"
NUMBER = 60_371_293

LOGIN = calls(("log_in", {"user": "ann", "password": PASSWORD}))
APPROVE = Approve()
BOB = Approve(arguments=json.dumps({"user": "bob", "password": KEY}))
IN = ("ann", PASSWORD, 0)


class Desk:
    """A place where one logs in, which notes the arguments that it was given; and its tools."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        plain: list[Any] = [self.log_in, self.issue, self.fetch, self.note, self.fail]
        self.tools = [tool(side_effect="idempotent", approval="never")(each) for each in plain]
        self.asked = [tool(each.function) for each in self.tools]
        """The same, of which a person is asked about each."""

    def log_in(self, user: str, password: str, pin: int = 0) -> str:
        self.given.append((user, password, pin))
        return f"{user} is in"

    def issue(self) -> dict[str, str]:
        return {"user": "ann", "api_key": KEY}

    def fetch(self, url: str, headers: dict[str, str]) -> str:
        self.given.append((url, headers))
        return f"asked with {headers}"

    def note(self, text: str) -> str:
        self.given.append(text)
        return "noted"

    def fail(self, password: str, context: ToolContext[object]) -> str:
        context.progress(f"trying {password}")
        msg = f"{password} is wrong"
        raise ValueError(msg)

    def agent(self, *replies: Reply, **settings: Any) -> Agent:
        performers = {CallModel: ScriptedModel(*replies), **settings.pop("performers", {})}
        given: dict[str, Any] = {
            "model": "scripted",
            "tools": self.tools,
            "clock": AutoClock(100.0),
            "store": MemoryStore(),
        }
        return Agent(performers=performers, **{**given, **settings})

    async def ran(self, *replies: Reply, name: str = "s", **settings: Any) -> Session:
        session = self.agent(*replies, **settings).session(name)
        await session.run("go")
        return session

    async def rests(self, store: Any, vault: Vault) -> tuple[str, str]:
        """The placeholder, and the question whether to log in, on which a run in *store* rests."""
        async with self.agent(LOGIN, store=store, vault=vault, tools=self.asked).session("s") as session:
            (question,) = (await session.run("go")).waiting
            return stand_in(question.arguments, "password"), question.id

    async def approved(
        self, question: str, *replies: Reply, decision: Any = APPROVE, **settings: Any
    ) -> Session:
        session = self.agent(*(replies or (says("x"),)), tools=self.asked, **settings).session("s")
        await session.approve(question, decision)
        await session.resume()
        return session


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def history(session: Session) -> str:
    return repr([*session.history])


def stand_in(text: str, name: str) -> str:
    found = {each[0] for each in placeholders().finditer(text) if each[0].startswith(f"[secret {name} ")}
    assert len(found) == 1, text
    return found.pop()


async def kept(session: str, store: Any) -> str:
    """The journal of *session*, in which neither the password nor the key stands."""
    text = repr(await store.load(session))
    assert [word for word in (PASSWORD, KEY) if word in text] == []
    return text


class Shelf:
    """A vault that lasts: each process finds the values in *kept*. It may *fails* to keep or find."""

    def __init__(self, kept: dict[tuple[str, str], str] | None = None, *, fails: str = "") -> None:
        self.kept = {} if kept is None else kept
        self._fails = fails

    async def keep(self, session: str, name: str, value: str) -> None:
        await asyncio.sleep(0)
        if self._fails == "keep":
            msg = f"no place for {value}"
            raise OSError(msg)
        self.kept[session, name] = value

    async def find(self, session: str, name: str) -> str | None:
        await asyncio.sleep(0)
        if self._fails == "find":
            raise OSError
        return self.kept.get((session, name))


class SlowShelf(Shelf):
    """One that takes its time to keep a value, until *go_on*."""

    def __init__(self, kept: dict[tuple[str, str], str] | None = None) -> None:
        super().__init__(kept)
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()

    async def keep(self, session: str, name: str, value: str) -> None:
        self.begun.set()
        await self.go_on.wait()
        await super().keep(session, name, value)


# Arguments


async def test_equal_secrets_have_one_placeholder_and_others_another(desk: Desk) -> None:
    words = ["x1", "x2", "x1", "x1 "]
    script = [calls(("log_in", {"user": "a", "password": word})) for word in words]
    session = await desk.ran(*script, says("done"))
    first, second, third, fourth = [
        json.loads(call.arguments)["password"] for message in session.history for call in message.calls
    ]
    assert (first == third, len({first, second, fourth})) == (True, 3)
    assert [given[1] for given in desk.given] == words


async def test_a_placeholder_tells_nothing_about_its_value(desk: Desk) -> None:
    sessions = [await desk.ran(LOGIN, says("done"), name=name) for name in "st"]
    assert len({stand_in(history(session), "password") for session in sessions}) == 2


async def test_a_model_can_pass_on_a_secret_that_it_never_saw(desk: Desk) -> None:
    """By the placeholder that it reads: alone, in other text, and in an argument that is no secret."""
    seen = [""]

    async def clever(request: CallModel, scene: PerformContext) -> ModelFinished:
        said = scene.history.slice(0, request.view.length)
        pieces: tuple[Piece, ...] = (CallPiece(0, "w", "issue", "{}"),)
        if len(said) == 3:
            key = stand_in(repr(said), "api_key")
            wishes: list[tuple[str, Mapping[str, object]]] = [
                ("log_in", {"user": "ann", "password": key}),
                ("fetch", {"url": "u", "headers": {"Authorization": f"Bearer {key}", "Accept": "*"}}),
                ("note", {"text": f"it is {key}!"}),
            ]
            pieces = calls(*wishes).pieces
        seen[0] += repr(said)
        stop = StopReason.TOOL_USE if len(said) < 5 else StopReason.END_TURN
        last = pieces if len(said) < 5 else (TextPiece("done"),)
        return ModelFinished(at=1.0, request=request.id, stop=stop, usage=Usage(input=1), pieces=last)

    session = await desk.ran(performers={CallModel: clever})
    headers = {"Authorization": f"Bearer {KEY}", "Accept": "*"}
    assert desk.given == [("ann", KEY, 0), ("u", headers), f"it is {KEY}!"]
    assert KEY not in seen[0]
    assert '"user":"ann"' in session.history[2].results[0].content
    assert json.loads(session.history[3].calls[1].arguments)["headers"]["Accept"] == "*"


async def test_a_placeholder_stands_for_a_value_of_any_type(desk: Desk) -> None:
    """The machine takes it for the number that the schema wants; the tool gets the number."""
    login = calls(("log_in", {"user": "a", "password": "b", "pin": NUMBER}))
    session = await desk.ran(login, says("x"), secrets=Secrets(words=("pin",)))
    assert desk.given == [("a", "b", NUMBER)]
    assert str(NUMBER) not in history(session)


SHORT = {  # by its value: what the call itself says, and what of that is kept
    "4711": ("your pin is 4711, not 47110", "your pin is [secret pin X], not 47110"),
    "letmein": ("'letmein' is no good", "'[secret pin X]' is no good"),
    "a.b": ("a.b, axb", "[secret pin X], axb"),
    "secret": ("your pin is secret, [secret pin 0123456789ab]", "your pin is [secret pin X], [secret pin X]"),
    "no": ("no: no", "no: no"),
    "x" * 10_001: ("null", "null"),
}


@pytest.mark.parametrize("pin", SHORT)
async def test_a_short_secret_is_redacted_in_what_its_own_call_says(pin: str) -> None:
    says_it, kept = SHORT[pin]

    @tool(secrets=["pin"], approval="never")
    def open_door(pin: str, context: ToolContext[object]) -> str:  # noqa: ARG001  # it says it as in SHORT
        context.progress(says_it)
        if context.deps:
            raise ValueError(says_it)
        return says_it

    @tool(approval="never")
    def note() -> str:
        return says_it

    for deps in (0, 1):
        wishes = calls(("open_door", {"pin": pin})), calls(("note", {})), says("x")
        model = ScriptedModel(*wishes)
        agent = Agent(model="m", performers={CallModel: model}, tools=[open_door, note], deps=deps)
        async with agent.session() as session:
            told = [each.text async for each in session.stream("go") if isinstance(each, ToolOutput)]
            results = [message.results[0].content for message in session.history if message.results]
        shown = [re.sub(" [0-9a-f]{12}]", " X]", each) for each in (*told, *results)]
        assert (shown[0], shown[1][-len(kept) :]) == (kept, kept)
        # Elsewhere such a value is a word like any other.
        assert shown[2] == says_it.replace("0123456789ab", "X")


PICTURE = b"\x89PNG" + PASSWORD.encode() + b"\0"


async def test_files_of_a_result_hold_no_known_secret_in_name_or_content() -> None:
    @tool(approval="never")
    def shoot(password: str) -> list[Binary | str]:
        return [
            "two pictures",
            Binary(media_type="image/png", data=PICTURE, name=f"{password}.png"),
            Binary(media_type="image/png", data=b"plain", name=f"of {password}.png"),
            Binary(media_type="text/plain", data=b"as it is", name="a.txt"),
        ]

    for secrets, kept in ((Secrets(), 2), (Secrets(redact=False), 3)):
        model = ScriptedModel(calls(("shoot", {"password": PASSWORD})), says("x"))
        agent = Agent(model="m", performers={CallModel: model}, tools=[shoot], secrets=secrets)
        async with agent.session() as session:
            await session.run("go")
            result = session.history[-2].results[0]
        assert len(result.files) == kept
        assert (PASSWORD in repr(result), result.files[-1].name) == (kept == 3, "a.txt")
        *_, last = re.sub("[0-9a-f]{12}", "X", result.content).splitlines()
        withheld = "[file '[secret password X].png' is withheld: it holds [secret password X]]"
        assert (last == withheld) == (kept == 2)


BAD, HALF = "Invalid arguments for log_in: ", f'{{"user": "{PASSWORD}", "pass'
WRONG = {  # by what is wrong: the tool, its arguments, and what the model reads first
    "does_not_fit": (
        "log_in",
        f'{{"user": "a", "password": {NUMBER}}}',
        f"{BAD}password must be of type string.",
    ),
    "no_json": ("log_in", HALF, f"{BAD}they are no valid JSON object. The tool was not run."),
    "no_json for a tool there is not": ("log_out", HALF, "Tool not found: log_out. Available: "),
    "no tool": (
        "login",
        f'{{"user": "ann", "password": "{PASSWORD}"}}',
        "Tool not found: login. Available: ",
    ),
    "a name that its_tool_does_not_have": ("log_in", f'{{"user": "a", "Password": "{PASSWORD}"}}', BAD),
    "one more": ("log_in", f'{{"user": "ann", "password": "x", "api_key": "{KEY}"}}', BAD),
}


@pytest.mark.parametrize(("name", "arguments", "content"), WRONG.values(), ids=WRONG)
async def test_arguments_that_are_wrong_are_hidden_all_the_same(
    desk: Desk, name: str, arguments: str, content: str
) -> None:
    """A slip in a name would else show the value; the model still reads why the call failed."""
    ran: list[RunTool] = []

    async def runs(request: RunTool, _: PerformContext) -> None:
        ran.append(request)

    reply = Reply(pieces=(CallPiece(0, "w", name, arguments),), stop=StopReason.TOOL_USE, wrong=True)
    session = await desk.ran(reply, says("x"), performers={RunTool: runs})
    assert session.history[2].results[0].content.startswith(content)
    assert ran == []
    assert [word for word in (PASSWORD, KEY, str(NUMBER)) if word in history(session)] == []


async def test_nothing_is_hidden_where_an_agent_says_so(desk: Desk) -> None:
    session = await desk.ran(LOGIN, calls(("issue", {})), says("x"), secrets=Secrets(redact=False))
    assert PASSWORD in session.history[1].calls[0].arguments
    assert KEY in session.history[4].results[0].content


async def test_a_placeholder_is_filled_also_where_nothing_is_hidden_any_more(
    desk: Desk, store: MemoryStore
) -> None:
    vault, off = MemoryVault(), Secrets(redact=False)
    _, question = await desk.rests(store, vault)
    replies = [calls(("log_out", {"password": KEY}), wrong=True), says("x")]
    session = await desk.approved(question, *replies, store=store, vault=vault, secrets=off)
    assert desk.given == [IN]
    assert KEY in history(session)


CONFIG = Agent(model="wire:m", base_url="http://localhost", tools=Desk().tools).config


def sealer_of(vault: Vault, session: str = "s") -> Redactor:
    return Redactor(session, vault, SecretNames(Secrets(), CONFIG.tools, {}))


async def test_arguments_that_are_no_object_are_in_the_vault_at_once() -> None:
    """The process may end before it meets another secret."""
    shelf = Shelf()
    await sealer_of(shelf).arguments("fail", HALF)
    assert [*shelf.kept.values()] == [json.dumps(HALF)]


async def test_a_secret_around_a_placeholder_is_one_with_it() -> None:
    """Also where the value was kept by a process that is gone; and where it is gone, so is all of it."""
    shelf, lost = Shelf(), Shelf()
    text = await sealer_of(shelf).arguments("fail", json.dumps({"password": PASSWORD}))
    stands = stand_in(text, "password")
    around = json.dumps({"password": f"Bearer {stands}, mine-4711"})
    other = await sealer_of(shelf).arguments("fail", around)
    assert [word for word in (stands, "mine-4711", "Bearer") if word in other] == []
    opened = json.loads(await sealer_of(shelf).fill(other))
    assert opened == {"password": f"Bearer {PASSWORD}, mine-4711"}
    sealer = sealer_of(lost)
    late = await sealer.arguments("fail", around)
    assert "mine-4711" not in late
    with pytest.raises(UnknownSecrets) as caught:
        await sealer.fill(late)
    assert caught.value.placeholders == (stands,)


async def test_a_value_of_a_vault_that_cannot_be_read_is_gone() -> None:
    """The vault is the host's, and may have anything in it; no traceback has a value in it."""
    shelf = Shelf()
    sealer = sealer_of(shelf)
    text = await sealer.arguments("log_in", json.dumps({"user": "a", "password": PASSWORD}))
    for vault in (Shelf(dict.fromkeys(shelf.kept, "{torn")), MemoryVault()):
        with pytest.raises(UnknownSecrets) as caught:
            await sealer_of(vault).fill(text)
        words = "".join(traceback.format_exception(caught.value))
        assert stand_in(text, "password") in words
        assert PASSWORD not in words + repr(sealer)


# The stream

ANSWER: tuple[Piece, ...] = (
    TextPiece("I log "),
    TextPiece("in. "),
    CallPiece(0, "w0", "log_in", '{"us'),
    CallPiece(1, "w1", "note", '{"te'),
    CallPiece(0, "", "", f'er": "ann", "password": "{PASSWORD[:4]}'),
    TextPiece("And now"),
    CallPiece(1, "", "", 'xt": "x"}'),
    CallPiece(0, "", "", f'{PASSWORD[4:]}"}}'),
    CallPiece(2, "w2", "", '{"password": '),
    CallPiece(2, "", "fail", f'"{PASSWORD}"}}'),
)
ASKED = CallModel(id="r-1", model="wire:m", view=Conversation(revision=0, length=0))


def cut(pieces: tuple[Piece, ...], chance: random.Random) -> list[tuple[Piece, ...]]:
    """*pieces* in events as a network may deliver them; the last ones come with the end."""
    borders = sorted(chance.sample(range(len(pieces) + 1), k=chance.randint(0, 6)))
    return [pieces[start:end] for start, end in zip([0, *borders], [*borders, len(pieces)], strict=True)]


async def streamed(*events: ModelStreamed, last: tuple[Piece, ...] = ()) -> list[Any]:
    """The events that the machine gets of a model that streams *events* and ends with *last*."""
    heard: list[Any] = []

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
        for event in events:
            scene.emit(event)
        stop = StopReason.TOOL_USE
        return ModelFinished(at=1.0, request=request.id, stop=stop, usage=Usage(input=1), pieces=last)

    scene = PerformContext(
        session="s", run="r", config=CONFIG, history=History.of(), clock=AutoClock(), emit=heard.append
    )
    heard.append(await call_model(model, sealer_of(MemoryVault()), ASKED, scene))
    return heard


def in_a_row(parts: Iterable[tuple[Piece, ...]], request: str = "r-1") -> list[ModelStreamed]:
    events: list[ModelStreamed] = []
    count = 0
    for part in filter(None, parts):
        events.append(ModelStreamed(at=1.0, request=request, before=count, count=len(part), pieces=part))
        count += len(part)
    return events


async def test_however_an_answer_is_cut_up_it_comes_to_the_same() -> None:
    for seed in range(25):
        *parts, last = cut(ANSWER, random.Random(seed))
        events = in_a_row(parts)
        heard = await streamed(*events, last=last)
        numbers = [(each.before, each.count) for each in heard if isinstance(each, ModelStreamed)]
        assert numbers == [(event.before, event.count) for event in events], seed
        log_in, fail = [found[0] for found in placeholders().finditer(repr(heard))]
        assert log_in == fail
        assert merged([piece for each in heard for piece in each.pieces]) == (
            TextPiece("I log in. "),
            CallPiece(0, "w0", "log_in", f'{{"user": "ann", "password": "{log_in}"}}'),
            CallPiece(1, "w1", "note", '{"text": "x"}'),
            TextPiece("And now"),
            CallPiece(2, "w2", "fail", f'{{"password": "{log_in}"}}'),
        ), seed
        assert all(word not in repr(heard) for word in (PASSWORD, PASSWORD[:4], PASSWORD[4:])), seed


async def test_a_call_of_a_tool_without_secrets_is_not_held_back() -> None:
    pieces = (CallPiece(0, "w", "note", '{"a'), CallPiece(0, "", "", '": 1}'))
    first, _ = await streamed(*in_a_row([pieces]))
    assert first.pieces == pieces
    late = (CallPiece(0, "w", "", '{"a'), CallPiece(0, "", "note", '": '), CallPiece(0, "", "", "1}"))
    first, _ = await streamed(*in_a_row([late]))
    assert merged(first.pieces) == (CallPiece(0, "w", "note", '{"a": 1}'),)


async def test_an_event_that_the_machine_will_ignore_is_not_taken_for_a_part_of_the_call() -> None:
    """One that comes twice, that has a gap before it or is for another request; none shows its secret."""
    one, two = in_a_row(
        [(CallPiece(0, "w", "fail", '{"password": '),), (CallPiece(0, "", "", f'"{PASSWORD}"}}'),)]
    )
    (other,) = in_a_row([(CallPiece(0, "w", "fail", PASSWORD),)], request="r-2")
    heard = await streamed(one, one, attrs.evolve(two, before=7), other, attrs.evolve(two, count=0), two, two)
    assert [each.before for each in heard if isinstance(each, ModelStreamed)] == [0, 0, 7, 0, 1, 1, 1]
    last = heard[-1].pieces[-1]
    assert json.loads(last.arguments) == {"password": stand_in(repr(heard), "password")}
    assert PASSWORD not in repr(heard)


async def test_an_answer_that_failed_shows_none_of_its_calls(desk: Desk, store: MemoryStore) -> None:
    half = CallPiece(0, "w", "fail", f'{{"password": "{PASSWORD}')
    session = desk.agent(Reply(pieces=(half,), failure=Failure.CUT), store=store).session("s")
    assert PASSWORD not in repr([notice async for notice in session.stream("go")])
    await kept("s", store)


# Results


@pytest.mark.parametrize("secret", [True, False])
async def test_a_host_that_fails_with_a_secret_in_its_words_shows_none(desk: Desk, *, secret: bool) -> None:
    """It performs the tool with the value. Where there is none its words stand as they are."""

    async def runs(request: RunTool, _: PerformContext) -> None:
        msg = f"cannot run {request.arguments}"
        raise OSError(msg)

    session = await desk.ran(LOGIN if secret else calls(("issue", {})), says("x"), performers={RunTool: runs})
    (result,) = session.history[2].results
    assert result.outcome is Outcome.CRASHED
    assert result.content.startswith("Tool execution crashed: OSError: cannot run {")
    assert result.content.endswith("{}") is not secret
    assert PASSWORD not in result.content


async def test_a_secret_that_is_known_is_found_in_any_text(desk: Desk) -> None:
    @tool(side_effect="read_only")
    def show() -> str:
        return f"export THE_KEY={KEY}; # {json.dumps(KEY)}"

    script = [calls(("issue", {})), calls(("show", {})), says("x")]
    session = await desk.ran(*script, tools=[*desk.tools, show])
    stands = stand_in(history(session), "api_key")
    assert session.history[4].results[0].content == f'export THE_KEY={stands}; # "{stands}"'


@pytest.mark.parametrize("secret", ['pässwörd "of" 3', "correct horse\nbattery", "päss-wörd-17"])
def test_a_secret_is_found_in_a_text_however_json_writes_it(secret: str) -> None:
    """As it is, with quotes and lines escaped, and with all but ASCII escaped, as many tools write."""
    redactor = sealer_of(MemoryVault())
    stands = redactor.redact("password", secret)
    forms = (secret, *[json.dumps(secret, ensure_ascii=ascii_)[1:-1] for ascii_ in (False, True)])
    assert [redactor.output("show", f"it is {form}!") for form in forms] == [f"it is {stands}!"] * 3


async def test_a_tool_says_which_of_its_names_are_no_secrets(desk: Desk) -> None:
    """In the results of one that splits a text into tokens, as in arguments that may have any names."""

    @tool(side_effect="read_only", plain=["token"])
    def split(words: dict[str, str]) -> list[dict[str, str]]:
        return [words]

    wish = calls(("split", {"words": {"token": "the", "secret": "cat"}}))
    session = await desk.ran(wish, says("x"), tools=[split])
    (call,), content = session.history[1].calls, session.history[2].results[0].content
    expected = {"token": "the", "secret": stand_in(content, "secret")}
    assert (json.loads(content), json.loads(call.arguments)["words"]) == ([expected], expected)


# Other processes


@pytest.mark.parametrize("lasts", [True, False])
async def test_a_run_goes_on_in_another_process_with_a_vault_that_lasts(
    desk: Desk, store: MemoryStore, *, lasts: bool
) -> None:
    shelf, memory = Shelf(), MemoryVault()
    stands, question = await desk.rests(store, shelf if lasts else memory)
    vault = Shelf(shelf.kept) if lasts else memory
    session = await desk.approved(question, store=store, vault=vault)
    assert desk.given == [IN]
    assert stand_in(history(session), "password") == stands


@pytest.mark.parametrize(
    "vault", [MemoryVault(), Shelf(), Shelf(fails="find")], ids=["new", "empty", "broken"]
)
async def test_a_tool_whose_secret_is_gone_does_not_run(desk: Desk, store: MemoryStore, vault: Vault) -> None:
    """It would be given a placeholder for a password; the model reads how to go on instead."""
    stands, question = await desk.rests(store, Shelf())
    session = await desk.approved(question, store=store, vault=vault)
    assert desk.given == []
    (result,) = session.history[2].results
    assert result.outcome is Outcome.ERROR
    assert result.content.startswith(f"log_in was not run: {stands} is not known here any more.")
    assert result.content.endswith("Ask for it or read it again, and pass it anew.")


@pytest.mark.parametrize("what", ["gone", "no number"])
async def test_a_tool_that_may_have_run_is_never_said_not_to_have(
    desk: Desk, store: MemoryStore, what: str
) -> None:
    """Its secret is gone with the process, or fits no more; the model would pass it anew, and pay twice."""
    charged, begun = list[tuple[str, int]](), asyncio.Event()

    @tool(side_effect="idempotent", approval="never")
    async def charge(api_key: str, cents: int, context: ToolContext[object]) -> str:
        """Charge a card, and never come back."""
        charged.append((context.key, cents))
        begun.set()
        await asyncio.Event().wait()
        return api_key

    wish = calls(("charge", {"api_key": KEY, "cents": 999}))
    session = desk.agent(wish, store=store, tools=[charge]).session("s")
    going = asyncio.ensure_future(session.run("go"))
    await begun.wait()
    going.cancel()
    await asyncio.wait([going])
    await session.close()
    before = list(charged)

    @tool(side_effect="idempotent", approval="never")
    def charge_a_number(api_key: int, cents: int) -> str:
        charged.append((str(api_key), cents))
        return "charged"

    (found,) = {each[1] for each in placeholders().finditer(await kept("s", store))}
    shelf = Shelf({("s", found): json.dumps(KEY)} if what == "no number" else {})
    later = attrs.evolve(charge_a_number, spec=attrs.evolve(charge_a_number.spec, name="charge"))
    session = desk.agent(says("x"), store=store, vault=shelf, tools=[later]).session("s")
    await session.resume()
    (result,) = session.history[2].results
    assert (result.outcome, "it may have run" in result.content) == (Outcome.UNKNOWN, True)
    assert "was not run" not in result.content.replace("was not run again", "")
    assert KEY not in result.content
    assert charged == before


@pytest.mark.parametrize("fails", ["keep", "find"])
async def test_a_vault_that_fails_costs_nothing_but_its_use(desk: Desk, fails: str) -> None:
    session = await desk.ran(LOGIN, says("x"), vault=Shelf(fails=fails))
    assert desk.given == [IN]
    assert PASSWORD not in history(session)


async def test_a_placeholder_of_another_session_opens_nothing(desk: Desk) -> None:
    """It may have come to its model by a file that both have; the secret is another customer's."""
    vault = MemoryVault()
    session = await desk.ran(LOGIN, says("x"), vault=vault)
    wish = calls(("note", {"text": stand_in(history(session), "password")}))
    for name in ("t", "s.t"):
        other = await desk.ran(wish, says("x"), vault=vault, name=name)
        assert "is not known here any more" in other.history[2].results[0].content
    assert desk.given == [IN]


async def test_a_tool_that_ran_is_not_forgotten_while_its_secret_is_kept(desk: Desk) -> None:
    """An interrupt comes while a slow vault keeps a value of the result: the tool did run."""
    slow = SlowShelf()
    session = desk.agent(calls(("issue", {})), vault=slow).session("s")
    run = asyncio.ensure_future(session.run("go"))
    await slow.begun.wait()
    await session.interrupt()
    for _ in range(10):
        await asyncio.sleep(0)
    slow.go_on.set()
    await run
    (result,) = session.history[2].results
    assert result.outcome is Outcome.OK
    assert stand_in(result.content, "api_key")


# People, hooks and children


@pytest.mark.parametrize("lasts", [True, False])
async def test_a_secret_that_a_person_puts_into_a_call_is_hidden_before_it_is_kept(
    desk: Desk, store: MemoryStore, *, lasts: bool
) -> None:
    shelf, memory = Shelf(), MemoryVault()
    _, question = await desk.rests(store, shelf if lasts else memory)
    vault = Shelf(shelf.kept) if lasts else memory
    session = desk.agent(says("x"), store=store, vault=vault, tools=desk.asked).session("s")
    await session.approve(question, BOB)
    await kept("s", store)
    if lasts:
        vault = Shelf(shelf.kept)
        session = desk.agent(says("x"), store=store, vault=vault, tools=desk.asked).session("s")
    await session.resume()
    assert desk.given == [("bob", KEY, 0)]
    await kept("s", store)


@pytest.mark.parametrize(
    "decision",
    [BOB, ApproveAlways(where=(("password", KEY),))],
    ids=["arguments", "always"],
)
async def test_a_secret_that_would_be_lost_on_its_way_is_refused(
    desk: Desk, store: MemoryStore, decision: Any
) -> None:
    """The question is answered in a process that runs nothing, which alone would know the value."""
    stands, question = await desk.rests(store, MemoryVault())
    session = desk.agent(says("x"), store=store, tools=desk.asked).session("s")
    with pytest.raises(ConfigError, match="the decision holds a secret") as caught:
        await session.approve(question, decision)
    assert KEY not in str(caught.value)
    assert [each.id for each in session.waiting] == [question]
    given = json.dumps({"user": "bob", "password": stands})
    await session.approve(question, Approve(arguments=given))  # nothing in it is new
    assert not session.waiting


@pytest.mark.parametrize("given", [{"user": "bob", "password": KEY, "pin": "x4711"}, {"pasword": KEY}])
async def test_a_secret_that_does_not_fit_is_refused_before_a_vault_has_it(
    desk: Desk, store: MemoryStore, given: dict[str, object]
) -> None:
    """A placeholder would fit where the secret does not, and the error tells no value."""
    shelf = Shelf()
    _, question = await desk.rests(store, shelf)
    before = dict(shelf.kept)
    session = desk.agent(store=store, vault=shelf, tools=desk.asked).session("s")
    with pytest.raises(AnswerRefused, match="invalid arguments for 'log_in'") as caught:
        await session.approve(question, Approve(arguments=given))
    assert KEY not in str(caught.value)
    assert "x4711" not in str(caught.value)
    assert ([each.id for each in session.waiting], shelf.kept) == ([question], before)


@pytest.mark.parametrize("how", ["timeout", "cancel", "fork"])
async def test_a_caller_who_gives_up_is_not_kept_by_a_slow_vault(
    desk: Desk, store: MemoryStore, how: str
) -> None:
    """The decision does not come in; the vault has all values that it was given, or none."""
    shelf = Shelf()
    _, question = await desk.rests(store, shelf)
    slow = SlowShelf(shelf.kept)
    session = await desk.agent(store=store, vault=slow, tools=desk.asked).session("s").load()
    decision = Approve(arguments=json.dumps({"user": "bob", "password": KEY, "pin": NUMBER}))

    limits = list[asyncio.Timeout]()

    async def work() -> None:
        async with asyncio.timeout(None) as limit:
            limits.append(limit)
            if how == "fork":
                at = len(await store.load("s"))
                await session.fork("t", at=at, instead=decision)
            else:
                await session.approve(question, decision)

    task = asyncio.ensure_future(work())
    await slow.begun.wait()
    if how == "timeout":
        limits[0].reschedule(0.0)
        await asyncio.sleep(0)
    else:
        task.cancel()
    await asyncio.sleep(0)
    slow.go_on.set()
    with pytest.raises(TimeoutError if how == "timeout" else asyncio.CancelledError):
        await task
    assert [each.id for each in session.waiting] == [question]
    assert not await store.load("t")
    assert sum(KEY in value for value in slow.kept.values()) == 1


async def test_a_rule_that_a_person_grants_is_for_the_value_and_does_not_say_it(
    desk: Desk, store: MemoryStore
) -> None:
    vault = MemoryVault()
    _, question = await desk.rests(store, vault)
    wishes = [calls(("log_in", {"user": "bob", "password": word})) for word in (PASSWORD, KEY)]
    always = ApproveAlways(where=(("password", PASSWORD), ("user", "*")))
    session = await desk.approved(question, *wishes, decision=always, store=store, vault=vault)
    assert desk.given == [IN, ("bob", PASSWORD, 0)]
    assert len(session.waiting) == 1
    await kept("s", store)


async def test_an_approver_sees_placeholders_and_may_put_in_a_secret(desk: Desk, store: MemoryStore) -> None:
    asked: list[AskApproval] = []

    async def approver(question: AskApproval) -> Approve:
        asked.append(question)
        return BOB

    await desk.ran(LOGIN, says("x"), approver=approver, tools=desk.asked, store=store)
    assert desk.given == [("bob", KEY, 0)]
    assert PASSWORD not in repr(asked)
    await kept("s", store)


async def test_a_child_is_given_its_parents_secrets_by_their_placeholders(desk: Desk) -> None:
    async def parent(request: CallModel, scene: PerformContext) -> ModelFinished:
        said = scene.history.slice(0, request.view.length)
        key = [found[0] for found in placeholders().finditer(repr(said))]
        wish: Mapping[str, object] = {"agent": "helper", "prompt": f"log in with {key[:1]}"}
        script = [calls(("issue", {})), calls(("run_agent", wish)), says("done")]
        if scene.config.agent:
            script = [calls(("log_in", {"user": "kid", "password": key[0]})), says("done")]
        reply = script[len([each for each in said if each.role is Role.ASSISTANT])]
        usage = Usage(input=1)
        return ModelFinished(at=1.0, request=request.id, stop=reply.stop, usage=usage, pieces=reply.pieces)

    helper = ChildSpec(name="helper", tools=("log_in",))
    await desk.ran(performers={CallModel: parent}, children=[helper])
    assert desk.given == [("kid", KEY, 0)]


async def test_repeated_calls_with_secrets_are_found(desk: Desk) -> None:
    session = desk.agent(*([LOGIN] * 30)).session("s")
    assert any([isinstance(notice, LoopDetected) async for notice in session.stream("go")])


# Copies of a session


async def test_a_copy_of_a_session_knows_the_secrets_of_the_first(desk: Desk, store: MemoryStore) -> None:
    vault = MemoryVault()
    stands, question = await desk.rests(store, vault)
    agent = desk.agent(says("x"), store=store, vault=vault, tools=desk.asked)
    for name, copy in (("s", "t"), ("t", "u")):
        await (await agent.session(name).fork(copy, at=len(await store.load(name)))).close()
    session = agent.session("u")
    await session.approve(question)
    await session.resume()
    assert desk.given == [IN]
    assert stand_in(history(session), "password") == stands


@pytest.mark.parametrize(
    "instead",
    [BOB, ApproveAlways(where=(("password", KEY),)), json.dumps({"api_key": KEY})],
    ids=["approve", "always", "text"],
)
async def test_a_replacement_in_a_copy_has_no_secret(desk: Desk, store: MemoryStore, instead: Any) -> None:
    vault = MemoryVault()
    await desk.rests(store, vault)
    agent = desk.agent(says("x"), store=store, vault=vault, tools=desk.asked)
    at = len(await store.load("s")) - isinstance(instead, str)
    await agent.session("s").fork("t", at=at, instead=instead)
    assert "[secret " in await kept("t", store)


PASSED = json.dumps({"password": KEY})


@pytest.mark.parametrize(
    "instead",
    [
        ToolFinished(at=1.0, request="r", content=json.dumps({"api_key": KEY})),
        ApprovalGiven(at=1.0, request="r", decision=Approve(arguments=PASSED)),
        ModelFinished(
            at=1.0,
            request="r",
            stop="tool_use",
            usage=Usage(),
            pieces=(CallPiece(0, "w", "log_in", PASSED[:13]), CallPiece(0, "", "", PASSED[13:])),
        ),
        HookAnswered(at=1.0, request="r", said=(HookSaid(name="h", answer=HookAnswer(arguments=PASSED)),)),
        TimerFired(at=1.0, request="r"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_a_replacement_of_any_kind_has_no_secret(instead: Any) -> None:
    words = repr(await sealer_of(MemoryVault()).redacted(instead))
    assert KEY not in words
    assert ("[secret " in words) is not isinstance(instead, TimerFired)


# Nowhere


class Provider:
    """A provider of chat completions on which *script* is played; *bodies* are the requests."""

    def __init__(self, *script: tuple[str, Mapping[str, object]]) -> None:
        self._script = list(script)
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        deltas: list[dict[str, Any]] = [{"content": "fine"}]
        if self._script:
            name, arguments = self._script.pop(0)
            deltas = [{"index": 0, "id": "w", "function": {"name": name, "arguments": ""}}]
            deltas += [{"index": 0, "function": {"arguments": bit}} for bit in json.dumps(arguments)]
            deltas = [{"tool_calls": [each]} for each in deltas]
        end = "tool_calls" if len(deltas) > 1 else "stop"
        choices: list[dict[str, Any]] = [{"index": 0, "delta": each} for each in deltas]
        choices.append({"index": 0, "delta": {}, "finish_reason": end})
        lines = [f"data: {json.dumps({'choices': [each]})}\n\n" for each in choices]
        body = "".join([*lines, "data: [DONE]\n\n"]).encode()
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(body))


class Body(httpx.AsyncByteStream):
    """A body that comes in small pieces."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._data), 50):
            await asyncio.sleep(0)
            yield self._data[start : start + 50]


def watched(seen: list[Any], given: list[Any]) -> dict[str, list[Any]]:
    """Hooks that note their questions, one of which puts in a secret; and a tool that notes its arguments."""

    @hook(Hook.PRE_TOOL_USE, tool="note")
    def change(call: HookCall) -> HookAnswer:
        seen.append(call)
        return HookAnswer(arguments=json.dumps({"text": "t", "headers": {"cookie": "hooked-4711"}}))

    @hook(Hook.POST_TOOL_USE)
    def look(call: HookCall) -> None:
        seen.append(call)

    @tool(approval="never")
    def note(text: str, headers: dict[str, str]) -> str:
        given.append((text, headers))
        return f"noted {headers}"

    return {"hooks": [change, look], "tools": [note]}


async def acted(agent: Agent, store: SQLiteStore) -> list[Any]:
    """All that is shown of a session of *agent* in which a person puts a secret into a call."""
    shown: list[Any] = []
    edited = Approve(arguments=json.dumps({"user": "bob", "password": "edited-4711"}))
    async with agent.session("s") as session:
        shown += [notice async for notice in session.stream("go")]
        (question,) = session.waiting
        shown += [question, session, agent, session.machine]
        await session.approve(question.id, edited)
        shown += [notice async for notice in session.stream()]
        shown += [session.machine, [*session.history], agent.vault, agent]
        shown.append(await explain(store, "s", session.history[1].calls[0].id))
    return shown


async def test_a_secret_is_nowhere_else_than_with_its_tool(desk: Desk, tmp_path: Path) -> None:
    """Not in a byte of the store, a notice, a log line, a request, a question, or a repr."""
    seen = list[Any]()
    more = watched(seen, desk.given)
    provider = Provider(
        ("log_in", {"user": "ann", "password": PASSWORD}),
        ("issue", {}),
        ("note", {"text": "x", "headers": {}}),
        ("fail", {"password": PASSWORD}),
        ("run_agent", {"agent": "helper", "prompt": "go"}),
        ("fetch", {"url": "u", "headers": {"X-Api-Key": "child-4711"}}),
    )
    store = SQLiteStore(tmp_path / "s.db")
    unasked = [each for each in desk.tools if each.spec.name in {"issue", "fetch", "fail"}]
    agent = Agent(
        model="openai:m",
        api_key="sk-of-the-provider",
        client=httpx.AsyncClient(transport=httpx.MockTransport(provider)),
        tools=[tool(desk.log_in), *unasked, *more["tools"]],
        hooks=more["hooks"],
        children=[ChildSpec(name="helper", tools=("fetch",))],
        store=store,
    )
    with capture_logs() as lines:
        shown = await acted(agent, store)

    words = [PASSWORD, KEY, "edited-4711", "hooked-4711", "child-4711"]
    assert [word for word in words if word not in repr(desk.given)] == [PASSWORD, KEY]
    assert (len(provider.bodies), len(seen)) == (8, 6)
    assert len(lines) > 20
    files = b"".join([path.read_bytes() for path in tmp_path.iterdir()])
    notices = b"".join([encode(each, Notice) for each in shown if type(each) in get_args(Notice)])
    parts = [files, notices, *provider.bodies, await export(store, "s"), repr((shown, seen, lines)).encode()]
    assert all(len(part) > 100 for part in parts)
    hidden = [*words, "sk-of-the-provider"]
    assert [word for word in hidden for part in parts if word.encode() in part] == []
    await store.close()
    await agent.aclose()
