"""Secrets reach the tools that need them, and nobody else: no model, and nothing that is kept or shown."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

import attrs
import httpx
import pytest
import structlog

from turnwheel import (
    Agent,
    Approve,
    ApproveAlways,
    ChildSpec,
    Hook,
    HookAnswer,
    HookCall,
    MemoryStore,
    SQLiteStore,
    ToolContext,
    hook,
    tool,
)
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import (
    ApprovalGiven,
    Decision,
    Failure,
    HookAnswered,
    ModelFinished,
    ModelStreamed,
    TimerFired,
    ToolFinished,
)
from turnwheel.effects.history import History
from turnwheel.effects.hooks import HookSaid
from turnwheel.effects.messages import Outcome, Role, StopReason
from turnwheel.effects.notices import LoopDetected, Notice, ToolOutput
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    TextPiece,
    merged,
)
from turnwheel.effects.requests import (
    AskApproval,
    CallModel,
    Conversation,
    RunTool,
)
from turnwheel.effects.secrets import Secrets, placeholders
from turnwheel.effects.usage import Usage
from turnwheel.engine.codec import encode
from turnwheel.engine.session.archive import explain, export
from turnwheel.engine.session.redactor import Gone, RedactedModel, Redactor, SecretNames
from turnwheel.performers.base import PerformContext
from turnwheel.performers.secrets import MemoryVault, Vault
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
)

PASSWORD = "hunter2-of-old"  # noqa: S105  # of nobody
KEY = "sk-4711-0815"
NUMBER = 60_371_293


class Desk:
    """A place where one logs in, which notes what it was given; and its tools."""

    def __init__(self) -> None:
        self.given: list[Any] = []
        plain: list[Any] = [self.log_in, self.issue, self.fetch, self.note, self.fail]
        self.tools = [tool(side_effect="idempotent", approval="never")(each) for each in plain]

    def log_in(self, user: str, password: str, pin: int = 0) -> str:
        """Log in."""
        self.given.append((user, password, pin))
        return f"{user} is in"

    def issue(self) -> dict[str, str]:
        """Issue a key."""
        return {"user": "ann", "api_key": KEY}

    def fetch(self, url: str, headers: dict[str, str]) -> str:
        """Fetch a page."""
        self.given.append((url, headers))
        return f"asked with {headers}"

    def note(self, text: str) -> str:
        """Take a note."""
        self.given.append(text)
        return "noted"

    def fail(self, password: str, context: ToolContext[object]) -> str:
        """Fail, and say why in all detail."""
        context.progress(f"trying {password}")
        msg = f"{password} is wrong"
        raise ValueError(msg)


def agent_of(desk: Desk, *replies: Reply, **settings: Any) -> tuple[Agent, ScriptedModel]:
    """An agent at *desk* that says *replies*."""
    model = ScriptedModel(*replies)
    performers = {CallModel: model, **settings.pop("performers", {})}
    given: dict[str, Any] = {"model": "scripted", "tools": desk.tools, "clock": AutoClock(100.0), **settings}
    return Agent(performers=performers, **given), model


def stand_in(text: str, name: str) -> str:
    """The one placeholder for what is called *name* in *text*."""
    found = {each[0] for each in placeholders().finditer(text) if each[0].startswith(f"[secret {name} ")}
    assert len(found) == 1, text
    return found.pop()


LOGIN = calls(("log_in", {"user": "ann", "password": PASSWORD}))


# Arguments


async def test_a_tool_gets_its_secret_and_nobody_else_does() -> None:
    """The function is called with the value; history, notices and provider have a placeholder."""
    desk = Desk()
    agent, model = agent_of(desk, LOGIN, says("done"))
    session = agent.session("s")
    notices = [notice async for notice in session.stream("go")]

    assert desk.given == [("ann", PASSWORD, 0)]
    told = repr((notices, model.seen, [*session.history]))
    assert PASSWORD not in told
    (call,) = session.history[1].calls
    assert json.loads(call.arguments) == {"user": "ann", "password": stand_in(told, "password")}


async def test_equal_secrets_have_one_placeholder_and_others_another() -> None:
    """So calls can be told apart, and alike ones known again, without any value."""
    desk = Desk()
    script = [calls(("log_in", {"user": "a", "password": word})) for word in ("x1", "x2", "x1", "x1 ")]
    agent, _ = agent_of(desk, *script, says("done"))
    session = agent.session("s")
    await session.run("go")

    first, second, third, fourth = [
        json.loads(call.arguments)["password"] for message in session.history for call in message.calls
    ]
    assert first == third
    assert len({first, second, fourth}) == 3
    assert [given[1] for given in desk.given] == ["x1", "x2", "x1", "x1 "]


async def test_a_placeholder_tells_nothing_about_its_value() -> None:
    """The same value has another one in each session."""
    told: set[str] = set()
    for name in ("s", "t"):
        agent, _ = agent_of(Desk(), LOGIN, says("done"))
        session = agent.session(name)
        await session.run("go")
        told.add(stand_in(repr([*session.history]), "password"))
    assert len(told) == 2


async def test_a_model_can_pass_on_a_secret_that_it_never_saw() -> None:
    """By the placeholder that it reads: alone, in other text, and in an argument that is none itself."""
    desk, seen = Desk(), [""]

    class Clever:
        """Uses the key that it was issued in the calls it makes next."""

        async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
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

    agent, _ = agent_of(desk, performers={CallModel: Clever()})
    session = agent.session("s")
    await session.run("go")

    assert desk.given == [
        ("ann", KEY, 0),
        ("u", {"Authorization": f"Bearer {KEY}", "Accept": "*"}),
        f"it is {KEY}!",
    ]
    assert KEY not in seen[0]
    assert '"user":"ann"' in session.history[2].results[0].content
    assert json.loads(session.history[3].calls[1].arguments)["headers"]["Accept"] == "*"


async def test_a_placeholder_stands_for_a_value_of_any_type() -> None:
    """The machine takes it for the number that the schema wants; the tool gets the number."""
    desk = Desk()
    secrets = Secrets(words=("pin",))
    agent, _ = agent_of(
        desk, calls(("log_in", {"user": "a", "password": "b", "pin": NUMBER})), says("x"), secrets=secrets
    )
    session = agent.session("s")
    await session.run("go")
    assert desk.given == [("a", "b", NUMBER)]
    assert str(NUMBER) not in repr([*session.history])


async def test_a_value_that_does_not_fit_is_found_before_the_tool_runs() -> None:
    """What the machine could not see is checked when the value is put back, and is not told."""
    desk = Desk()
    arguments = {"user": "a", "password": NUMBER}
    ran: list[RunTool] = []

    async def runs(request: RunTool, _: PerformContext) -> None:
        ran.append(request)

    agent, _ = agent_of(desk, calls(("log_in", arguments)), says("x"), performers={RunTool: runs})
    session = agent.session("s")
    await session.run("go")
    (result,) = session.history[2].results
    assert (
        result.content
        == "Invalid arguments for log_in: password must be of type string. The tool was not run."
    )
    assert not ran
    assert str(NUMBER) not in repr([*session.history])


@pytest.mark.parametrize("name", ["log_in", "log_out"])
async def test_arguments_that_are_no_json_are_hidden_as_a_whole(name: str) -> None:
    """They may have it anywhere; the model still learns what was wrong, as it does of a tool there is not."""
    desk = Desk()
    broken = CallPiece(0, "w", name, f'{{"user": "a", "password": "{PASSWORD}"')
    reply = Reply(pieces=(broken,), stop=StopReason.TOOL_USE)
    agent, model = agent_of(desk, reply, says("x"))
    session = agent.session("s")
    await session.run("go")
    told = {
        "log_in": "Invalid arguments for log_in: they are no valid JSON object. The tool was not run.",
        "log_out": "Tool not found: log_out. Available: log_in, issue, fetch, note, fail.",
    }
    assert session.history[2].results[0].content == told[name]
    assert PASSWORD not in repr(([*session.history], model.seen))


async def test_a_tool_that_is_not_there_is_told_no_secret() -> None:
    """A slip in its name would else put into the history what it was meant to hide."""
    agent, _ = agent_of(Desk(), calls(("login", {"password": PASSWORD, "user": "ann"})), says("x"))
    session = agent.session("s")
    await session.run("go")
    (call,) = session.history[1].calls
    assert json.loads(call.arguments)["user"] == "ann"
    assert PASSWORD not in call.arguments


async def test_nothing_is_hidden_where_that_is_not_wanted() -> None:
    """An agent may say so; all is then as the model wrote it."""
    desk = Desk()
    agent, _ = agent_of(desk, LOGIN, calls(("issue", {})), says("x"), secrets=Secrets(redact=False))
    session = agent.session("s")
    await session.run("go")
    assert PASSWORD in session.history[1].calls[0].arguments
    assert KEY in session.history[4].results[0].content


async def test_what_was_hidden_once_is_put_back_also_where_nothing_is_hidden_any_more() -> None:
    """A session that is gone on with under other settings has placeholders in it."""
    store, vault, desk = MemoryStore(), MemoryVault(), Desk()
    _, question = await rests(store, vault)
    off = Secrets(redact=False)
    replies = [calls(("log_out", {"password": KEY})), says("x")]
    agent, _ = agent_of(desk, *replies, store=store, vault=vault, secrets=off, tools=careful(desk))
    session = agent.session("s")
    await session.approve(question)
    await session.resume()
    assert desk.given == [("ann", PASSWORD, 0)]
    assert KEY in repr([*session.history])


async def test_a_secret_around_a_placeholder_is_one_with_it() -> None:
    """Also where the value was kept by a process that is gone; and where it is gone, so is all of it."""
    shelf = Shelf()
    text = await sealer_of(shelf).arguments("fail", json.dumps({"password": PASSWORD}))
    stands = stand_in(text, "password")
    around = json.dumps({"password": f"Bearer {stands}, mine-4711"})
    other = await sealer_of(shelf).arguments("fail", around)
    assert not [word for word in (stands, "mine-4711", "Bearer") if word in other]
    opened = json.loads(await sealer_of(shelf).opened(other))
    assert opened == {"password": f"Bearer {PASSWORD}, mine-4711"}
    late = await sealer_of(MemoryVault()).arguments("fail", around)
    assert "mine-4711" not in late
    lost = Shelf()
    sealer = sealer_of(lost)
    late = await sealer.arguments("fail", around)
    with pytest.raises(Gone) as caught:
        await sealer.opened(late)
    assert caught.value.placeholders == (stands,)


async def test_what_a_vault_has_and_nobody_can_read_is_gone() -> None:
    """It is the host's, and may have anything in it."""
    shelf = Shelf()
    text = await sealer_of(shelf).arguments("fail", json.dumps({"password": PASSWORD}))
    shelf.kept = dict.fromkeys(shelf.kept, "{torn")
    with pytest.raises(Gone):
        await sealer_of(shelf).opened(text)


async def test_a_name_that_is_plain_is_so_where_a_tool_takes_any_names() -> None:
    """In its arguments as in what it returns."""

    @tool(plain=["token"])
    def spell(words: dict[str, str]) -> str:
        """Spell."""
        return str(words)

    sealer = Redactor("s", MemoryVault(), SecretNames(Secrets(), [spell.spec], {"spell": spell.plain}))
    made = json.loads(await sealer.arguments("spell", '{"words": {"token": "the", "secret": "cat"}}'))
    assert made["words"]["token"] == "the"  # noqa: S105  # a word
    assert "cat" not in str(made)


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


def cut(pieces: tuple[Piece, ...], chance: random.Random) -> list[tuple[Piece, ...]]:
    """*pieces* in events as a network may deliver them; the last one is what comes with the end."""
    borders = sorted(chance.sample(range(len(pieces) + 1), k=chance.randint(0, 6)))
    return [pieces[start:end] for start, end in zip([0, *borders], [*borders, len(pieces)], strict=True)]


CONFIG = Agent(model="wire:m", base_url="http://localhost", tools=Desk().tools).config
ASKED = CallModel(id="r-1", model="wire:m", view=Conversation(revision=0, length=0))


def sealer_of(vault: Vault, session: str = "s") -> Redactor:
    """Who hides the secrets of the desk's tools."""
    return Redactor(session, vault, SecretNames(Secrets(), CONFIG.tools, {}))


async def streamed(*events: ModelStreamed, last: tuple[Piece, ...]) -> list[ModelStreamed | ModelFinished]:
    """What the machine hears of a model that streams *events* and ends with *last*."""
    heard: list[Any] = []

    async def model(request: CallModel, scene: PerformContext) -> ModelFinished:
        for event in events:
            scene.emit(event)
        return ModelFinished(
            at=1.0, request=request.id, stop=StopReason.TOOL_USE, usage=Usage(input=1), pieces=last
        )

    scene = PerformContext(
        session="s", run="r", config=CONFIG, history=History.of(), clock=AutoClock(), emit=heard.append
    )
    heard.append(await RedactedModel(model, sealer_of(MemoryVault()))(ASKED, scene))
    return heard


def in_a_row(parts: Iterable[tuple[Piece, ...]], request: str = "r-1") -> list[ModelStreamed]:
    """An event for each of *parts*, numbered as they come."""
    events: list[ModelStreamed] = []
    count = 0
    for part in filter(None, parts):
        events.append(ModelStreamed(at=1.0, request=request, before=count, count=len(part), pieces=part))
        count += len(part)
    return events


@pytest.mark.parametrize("seed", range(25))
async def test_however_an_answer_is_cut_up_it_comes_to_the_same(seed: int) -> None:
    """Calls and text keep their order, each call is whole, and no event has any of the secret."""
    *parts, last = cut(ANSWER, random.Random(seed))
    events = in_a_row(parts)
    heard = await streamed(*events, last=last)

    assert [(each.before, each.count) for each in heard if isinstance(each, ModelStreamed)] == [
        (event.before, event.count) for event in events
    ]
    log_in, fail = [found[0] for found in placeholders().finditer(repr(heard))]
    assert log_in == fail
    assert merged([piece for each in heard for piece in each.pieces]) == (
        TextPiece("I log in. "),
        CallPiece(0, "w0", "log_in", f'{{"user": "ann", "password": "{log_in}"}}'),
        CallPiece(1, "w1", "note", '{"text": "x"}'),
        TextPiece("And now"),
        CallPiece(2, "w2", "fail", f'{{"password": "{log_in}"}}'),
    )
    assert all(word not in repr(heard) for word in (PASSWORD, PASSWORD[:4], PASSWORD[4:]))


async def test_a_call_of_a_tool_without_secrets_is_not_held_back() -> None:
    """Its arguments go on as they come, also where its name comes behind the first of them."""
    pieces = (CallPiece(0, "w", "note", '{"a'), CallPiece(0, "", "", '": 1}'))
    first, _ = await streamed(*in_a_row([pieces]), last=())
    assert first.pieces == pieces
    late = (CallPiece(0, "w", "", '{"a'), CallPiece(0, "", "note", '": '), CallPiece(0, "", "", "1}"))
    first, _ = await streamed(*in_a_row([late]), last=())
    assert merged(first.pieces) == (CallPiece(0, "w", "note", '{"a": 1}'),)


async def test_what_the_machine_will_ignore_is_not_taken_for_a_part_of_the_call() -> None:
    """An event that comes twice, that has a gap before it or is for somebody else; none shows its secret."""
    one, two = in_a_row(
        [(CallPiece(0, "w", "fail", '{"password": '),), (CallPiece(0, "", "", f'"{PASSWORD}"}}'),)]
    )
    (other,) = in_a_row([(CallPiece(0, "w", "fail", PASSWORD),)], request="r-2")
    gap = attrs.evolve(two, before=7)
    empty = attrs.evolve(two, count=0)
    heard = await streamed(one, one, gap, other, empty, two, two, last=())
    assert [each.before for each in heard if isinstance(each, ModelStreamed)] == [0, 0, 7, 0, 1, 1, 1]
    last = heard[-1].pieces[-1]
    assert isinstance(last, CallPiece)
    assert json.loads(last.arguments) == {"password": stand_in(repr(heard), "password")}
    assert PASSWORD not in repr(heard)


async def test_an_answer_that_failed_has_told_nothing() -> None:
    """What was held back of it is dropped, as all of its calls are."""
    desk = Desk()
    partial = Reply(pieces=(CallPiece(0, "w", "fail", f'{{"password": "{PASSWORD}'),), failure=Failure.CUT)
    agent, _ = agent_of(desk, partial, store=MemoryStore())
    session = agent.session("s")
    notices = [notice async for notice in session.stream("go")]
    assert agent.store is not None
    assert PASSWORD not in repr((notices, await agent.store.load("s")))


# Results


async def test_what_a_tool_says_of_its_secret_is_hidden() -> None:
    """In its error, and while it runs."""
    agent, model = agent_of(Desk(), calls(("fail", {"password": PASSWORD})), says("x"))
    session = agent.session("s")
    notices = [notice async for notice in session.stream("go")]
    stands = stand_in(repr(notices), "password")
    assert [each.text for each in notices if isinstance(each, ToolOutput)] == [f"trying {stands}"]
    assert session.history[2].results[0].content == f"Tool raised an exception: {stands} is wrong"
    assert PASSWORD not in repr((notices, model.seen))


async def test_a_host_that_fails_with_a_secret_in_its_words_does_not_tell_it() -> None:
    """Whoever performs a tool is given the value, and may raise with it."""

    async def runs(request: RunTool, _: PerformContext) -> None:
        msg = f"cannot run {request.arguments}"
        raise OSError(msg)

    agent, _ = agent_of(Desk(), LOGIN, says("x"), performers={RunTool: runs})
    session = agent.session("s")
    await session.run("go")
    (result,) = session.history[2].results
    assert result.outcome is Outcome.CRASHED
    assert result.content.startswith("Tool execution crashed: OSError: cannot run {")
    assert PASSWORD not in result.content


async def test_a_host_that_fails_without_one_is_told_as_ever() -> None:
    """Where nothing is to be hidden nothing changes."""

    async def runs(*_: object) -> None:
        msg = "no more tools"
        raise OSError(msg)

    agent, _ = agent_of(Desk(), calls(("issue", {})), says("x"), performers={RunTool: runs})
    session = agent.session("s")
    await session.run("go")
    assert session.history[2].results[0].content == "Tool execution crashed: OSError: no more tools"


async def test_a_secret_that_is_known_is_found_in_any_text() -> None:
    """Once it was issued, it is hidden wherever a tool shows it."""
    desk = Desk()

    @tool(side_effect="read_only")
    def show() -> str:
        """Show what was written down somewhere."""
        return f"export THE_KEY={KEY}; # {json.dumps(KEY)}"

    agent, _ = agent_of(desk, calls(("issue", {})), calls(("show", {})), says("x"), tools=[*desk.tools, show])
    session = agent.session("s")
    await session.run("go")
    stands = stand_in(repr([*session.history]), "api_key")
    assert session.history[4].results[0].content == f'export THE_KEY={stands}; # "{stands}"'


async def test_a_tool_says_which_of_its_keys_are_no_secrets() -> None:
    """Whoever splits a text into tokens has each under that name."""

    @tool(side_effect="read_only", plain=["token"])
    def split() -> list[dict[str, str]]:
        """Split a text."""
        return [{"token": "the", "secret": "cat"}]

    agent, _ = agent_of(Desk(), calls(("split", {})), says("x"), tools=[split])
    session = agent.session("s")
    await session.run("go")
    content = session.history[2].results[0].content
    assert json.loads(content)[0] == {"token": "the", "secret": stand_in(content, "secret")}


# Whoever takes part


class Shelf:
    """A vault that lasts: what is kept in *kept* is found by every process."""

    def __init__(self, kept: dict[tuple[str, str], str] | None = None, *, fails: str = "") -> None:
        self.kept = {} if kept is None else kept
        self._fails = fails

    async def keep(self, session: str, name: str, value: str) -> None:
        """Keep it; or fail, as a network does."""
        await asyncio.sleep(0)
        if self._fails == "keep":
            msg = f"no place for {value}"
            raise OSError(msg)
        self.kept[session, name] = value

    async def find(self, session: str, name: str) -> str | None:
        """Find it; or fail."""
        await asyncio.sleep(0)
        if self._fails == "find":
            raise OSError
        return self.kept.get((session, name))


def careful(desk: Desk) -> list[Any]:
    """The desk's tools, of which a person is asked about each."""
    return [tool(each.function) for each in desk.tools]


async def rests(store: Any, vault: Vault) -> tuple[str, str]:
    """The placeholder, and the question whether to log in, on which the run of a session in *store* rests."""
    desk = Desk()
    agent, _ = agent_of(desk, LOGIN, store=store, vault=vault, tools=careful(desk))
    async with agent.session("s") as session:
        result = await session.run("go")
        assert not desk.given
        (question,) = result.waiting
        return stand_in(question.arguments, "password"), question.id


async def test_a_run_goes_on_in_another_process_with_a_vault_that_lasts() -> None:
    """The value is found by its placeholder."""
    store, shelf, desk = MemoryStore(), Shelf(), Desk()
    stands, question = await rests(store, shelf)
    agent, _ = agent_of(desk, LOGIN, says("x"), store=store, vault=Shelf(shelf.kept), tools=careful(desk))
    session = agent.session("s")
    await session.approve(question)
    await session.resume()
    assert desk.given == [("ann", PASSWORD, 0)]
    assert stand_in(repr([*session.history]), "password") == stands


@pytest.mark.parametrize(
    "vault", [MemoryVault(), Shelf(), Shelf(fails="find")], ids=["new", "empty", "broken"]
)
async def test_a_tool_whose_secret_is_gone_does_not_run(vault: Vault) -> None:
    """It would be given a placeholder for a password; the model is told what to do instead."""
    store, desk = MemoryStore(), Desk()
    stands, question = await rests(store, Shelf())
    agent, _ = agent_of(desk, says("x"), store=store, vault=vault, tools=careful(desk))
    session = agent.session("s")
    await session.approve(question)
    await session.resume()
    assert not desk.given
    (result,) = session.history[2].results
    assert result.outcome is Outcome.ERROR
    assert result.content.startswith(f"log_in was not run: {stands} is not known here any more.")
    assert result.content.endswith("Ask for it or read it again, and pass it anew.")


async def lost_at_work(store: Any) -> list[tuple[str, int]]:
    """What was charged, and under which key, by a process that was lost before it could say so."""
    charged, begun = list[tuple[str, int]](), asyncio.Event()

    @tool(side_effect="idempotent", approval="never")
    async def charge(api_key: str, cents: int, context: ToolContext[object]) -> str:
        """Charge a card, and never come back."""
        charged.append((context.key, cents))
        begun.set()
        await asyncio.Event().wait()
        return api_key

    agent, _ = agent_of(Desk(), CHARGE, store=store, tools=[charge])
    session = agent.session("s")
    going = asyncio.ensure_future(session.run("go"))
    await begun.wait()
    going.cancel()
    await asyncio.wait([going])
    await session.close()
    return charged


CHARGE = calls(("charge", {"api_key": KEY, "cents": 999}))


@pytest.mark.parametrize("what", ["gone", "no number"])
async def test_a_tool_that_may_have_run_is_never_said_not_to_have(what: str) -> None:
    """Its secret is gone with the process, or fits no more; the model would pass it anew, and pay twice."""
    store = MemoryStore()
    charged = await lost_at_work(store)
    ((key, _),) = charged

    @tool(side_effect="idempotent", approval="never")
    def charge(api_key: int, cents: int) -> str:
        """Charge a card that has a number by now."""
        charged.append((str(api_key), cents))
        return "charged"

    journal = b"".join(await store.load("s")).decode()
    (found,) = {each[1] for each in placeholders().finditer(journal)}
    shelf = Shelf({("s", found): json.dumps(KEY)} if what == "no number" else {})
    agent, _ = agent_of(Desk(), says("x"), store=store, vault=shelf, tools=[charge])
    session = agent.session("s")
    await session.resume()
    (result,) = session.history[2].results
    assert result.outcome is Outcome.UNKNOWN
    assert "it may have run" in result.content
    assert "was not run" not in result.content.replace("was not run again", "")
    assert KEY not in result.content
    assert charged == [(key, 999)]


@pytest.mark.parametrize("fails", ["keep", "find"])
async def test_a_vault_that_fails_costs_nothing_but_its_use(fails: str) -> None:
    """In this process the values are known all the same."""
    desk = Desk()
    agent, _ = agent_of(desk, LOGIN, says("x"), vault=Shelf(fails=fails))
    session = agent.session("s")
    await session.run("go")
    assert desk.given == [("ann", PASSWORD, 0)]
    assert PASSWORD not in repr([*session.history])


async def test_a_placeholder_of_another_session_opens_nothing() -> None:
    """It may have come to its model by a file that both have; the secret is another customer's."""
    vault, desk = MemoryVault(), Desk()
    agent, _ = agent_of(desk, LOGIN, says("x"), vault=vault)
    session = agent.session("s")
    await session.run("go")
    stands = stand_in(repr([*session.history]), "password")
    for name in ("t", "s.t"):
        thief, _ = agent_of(desk, calls(("note", {"text": stands})), says("x"), vault=vault)
        other = thief.session(name)
        await other.run("go")
        assert "is not known here any more" in other.history[2].results[0].content
    assert desk.given == [("ann", PASSWORD, 0)]


async def test_a_session_that_is_opened_again_here_knows_its_secrets() -> None:
    """Its agent's vault outlives the session object."""
    vault, store, desk = MemoryVault(), MemoryStore(), Desk()
    _, question = await rests(store, vault)
    agent, _ = agent_of(desk, says("x"), store=store, vault=vault, tools=careful(desk))
    session = agent.session("s")
    await session.approve(question)
    await session.resume()
    assert desk.given == [("ann", PASSWORD, 0)]


async def test_what_a_person_puts_into_a_call_is_hidden_before_it_is_kept() -> None:
    """Also where somebody else drives the run, and where it is no JSON."""
    store, vault, desk = MemoryStore(), MemoryVault(), Desk()
    _, question = await rests(store, vault)
    agent, _ = agent_of(desk, says("x"), store=store, vault=vault, tools=careful(desk))
    session = agent.session("s")
    await session.approve(question, Approve(arguments=json.dumps({"user": "bob", "password": KEY})))
    assert KEY not in repr(await store.load("s"))
    await session.resume()
    assert desk.given == [("bob", KEY, 0)]
    assert KEY not in repr(await store.load("s"))


@pytest.mark.parametrize(
    "decision",
    [
        Approve(arguments=json.dumps({"user": "bob", "password": KEY})),
        Approve(arguments="no JSON"),
        ApproveAlways(where=(("password", KEY),)),
    ],
    ids=["arguments", "no JSON", "always"],
)
async def test_a_secret_that_would_be_lost_on_its_way_is_refused(decision: Any) -> None:
    """The question is answered in a process that runs nothing, which alone would know the value."""
    store, desk = MemoryStore(), Desk()
    stands, question = await rests(store, MemoryVault())
    agent, _ = agent_of(desk, says("x"), store=store, tools=careful(desk))
    session = agent.session("s")
    with pytest.raises(ConfigError, match="give its agent a vault that lasts") as caught:
        await session.approve(question, decision)
    assert KEY not in str(caught.value)
    assert [each.id for each in session.waiting] == [question]
    given = json.dumps({"user": "bob", "password": stands})
    await session.approve(question, Approve(arguments=given))  # nothing in it is new
    assert not session.waiting


async def test_a_secret_is_taken_where_its_vault_lasts() -> None:
    """Whoever runs the session finds it there, which may be another process."""
    store, shelf, desk = MemoryStore(), Shelf(), Desk()
    _, question = await rests(store, shelf)
    agent, _ = agent_of(desk, store=store, vault=Shelf(shelf.kept), tools=careful(desk))
    decision = Approve(arguments=json.dumps({"user": "bob", "password": KEY}))
    await agent.session("s").approve(question, decision)
    agent, _ = agent_of(desk, says("x"), store=store, vault=Shelf(shelf.kept), tools=careful(desk))
    await agent.session("s").resume()
    assert desk.given == [("bob", KEY, 0)]


@pytest.mark.parametrize("how", ["timeout", "cancel", "fork"])
async def test_whoever_gives_up_is_not_kept_by_a_slow_vault(how: str) -> None:
    """What they asked for does not happen; the vault has all of what it was given, or none."""
    store, shelf, desk = MemoryStore(), Shelf(), Desk()
    _, question = await rests(store, shelf)
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Shelf):
        """Takes its time."""

        async def keep(self, session: str, name: str, value: str) -> None:
            begun.set()
            await go_on.wait()
            await super().keep(session, name, value)

    slow = Slow(shelf.kept)
    agent, _ = agent_of(desk, store=store, vault=slow, tools=careful(desk))
    session = await agent.session("s").load()
    decision = Approve(arguments=json.dumps({"user": "bob", "password": KEY, "pin": NUMBER}))

    async def work() -> None:
        async with asyncio.timeout(0.01 if how == "timeout" else None):
            if how == "fork":
                at = len(await store.load("s"))
                await session.fork("t", at=at, instead=decision)
            else:
                await session.approve(question, decision)

    task = asyncio.ensure_future(work())
    await begun.wait()
    if how == "timeout":
        await asyncio.sleep(0.02)
    else:
        task.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(TimeoutError if how == "timeout" else asyncio.CancelledError):
        await task
    assert [each.id for each in session.waiting] == [question]
    assert not await store.load("t")
    assert sum(KEY in value for value in slow.kept.values()) == 1


async def test_a_name_that_its_tool_does_not_have_is_hidden_all_the_same() -> None:
    """A model writes names as it likes; the call fails, and what was in it is not kept."""
    desk, store = Desk(), MemoryStore()
    one = calls(("log_in", {"user": "ann", "Password": PASSWORD}))
    two = calls(("log_in", {"user": "ann", "password": "x", "api_key": KEY}))
    agent, _ = agent_of(desk, one, two, says("x"), store=store)
    await agent.session("s").run("go")
    told = repr(await store.load("s"))
    assert not [word for word in (PASSWORD, KEY) if word in told]


async def test_a_rule_that_a_person_grants_is_for_the_value_and_does_not_say_it() -> None:
    """The glob is one for the placeholder: the same value is not asked about again, another one is."""
    store, vault, desk = MemoryStore(), MemoryVault(), Desk()
    _, question = await rests(store, vault)
    again = calls(("log_in", {"user": "bob", "password": PASSWORD}))
    other = calls(("log_in", {"user": "bob", "password": KEY}))
    agent, _ = agent_of(desk, again, other, store=store, vault=vault, tools=careful(desk))
    session = agent.session("s")
    await session.approve(question, ApproveAlways(where=(("password", PASSWORD), ("user", "*"))))
    result = await session.resume()
    assert desk.given == [("ann", PASSWORD, 0), ("bob", PASSWORD, 0)]
    assert len(result.waiting) == 1
    assert PASSWORD not in repr(await store.load("s"))


async def test_an_approver_sees_placeholders_and_may_put_in_a_secret() -> None:
    """What it says goes the same way as what a model says."""
    desk, asked = Desk(), list[AskApproval]()

    async def approver(question: AskApproval) -> Decision:
        asked.append(question)
        return Approve(arguments=json.dumps({"user": "eve", "password": KEY}))

    agent, _ = agent_of(desk, LOGIN, says("x"), approver=approver, tools=careful(desk), store=MemoryStore())
    session = agent.session("s")
    await session.run("go")
    assert desk.given == [("eve", KEY, 0)]
    assert agent.store is not None
    told = repr((asked, await agent.store.load("s")))
    assert not [word for word in (PASSWORD, KEY) if word in told]


async def test_hooks_see_placeholders_and_may_put_in_a_secret() -> None:
    """Before a call, and behind it."""
    seen: list[HookCall] = []

    @hook(Hook.PRE_TOOL_USE)
    def change(call: HookCall) -> HookAnswer:
        seen.append(call)
        return HookAnswer(arguments=json.dumps({"user": "eve", "password": KEY}))

    @hook(Hook.POST_TOOL_USE)
    def look(call: HookCall) -> None:
        seen.append(call)

    desk = Desk()
    agent, _ = agent_of(desk, LOGIN, says("x"), hooks=[change, look], store=MemoryStore())
    session = agent.session("s")
    await session.run("go")
    assert desk.given == [("eve", KEY, 0)]
    assert len(seen) == 2
    assert agent.store is not None
    told = repr((seen, await agent.store.load("s")))
    assert not [word for word in (PASSWORD, KEY) if word in told]


async def test_a_child_is_given_its_parents_secrets_by_their_placeholders() -> None:
    """It reads the placeholder in its task, and its tool is given the value."""
    desk = Desk()

    class Parent:
        """Is issued a key and has a child use it."""

        async def __call__(self, request: CallModel, scene: PerformContext) -> ModelFinished:
            said = scene.history.slice(0, request.view.length)
            key = [found[0] for found in placeholders().finditer(repr(said))]
            wish: Mapping[str, object] = {"agent": "helper", "prompt": f"log in with {key[:1]}"}
            script = [calls(("issue", {})), calls(("run_agent", wish)), says("done")]
            if scene.config.agent:
                script = [calls(("log_in", {"user": "kid", "password": key[0]})), says("done")]
            reply = script[len([each for each in said if each.role is Role.ASSISTANT])]
            return ModelFinished(
                at=1.0, request=request.id, stop=reply.stop, usage=Usage(input=1), pieces=reply.pieces
            )

    helper = ChildSpec(name="helper", tools=("log_in",))
    agent, _ = agent_of(desk, performers={CallModel: Parent()}, children=[helper], store=MemoryStore())
    await agent.session("s").run("go")
    assert desk.given == [("kid", KEY, 0)]


async def test_calls_with_secrets_that_go_in_circles_are_found() -> None:
    """Placeholders are compared as the values would be."""
    desk = Desk()
    agent, _ = agent_of(desk, *([LOGIN] * 30))
    notices = [notice async for notice in agent.session("s").stream("go")]
    assert any(isinstance(notice, LoopDetected) for notice in notices)


async def test_a_journal_with_secrets_folds_to_the_machine_that_wrote_it() -> None:
    """Nothing is taken out when it is written: the machine never had it."""
    store, desk = MemoryStore(), Desk()
    agent, _ = agent_of(desk, LOGIN, calls(("issue", {})), says("x"), store=store)
    session = agent.session("s")
    await session.run("go")
    again, _ = agent_of(desk, store=store)
    assert (await again.session("s").load()).machine == session.machine


async def test_a_tool_that_ran_is_not_forgotten_while_its_secret_is_kept() -> None:
    """Somebody interrupts while a slow vault keeps what the tool said: it did run, and that is told."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Shelf):
        """Takes its time."""

        async def keep(self, session: str, name: str, value: str) -> None:
            begun.set()
            await go_on.wait()
            await super().keep(session, name, value)

    agent, _ = agent_of(Desk(), calls(("issue", {})), vault=Slow())
    session = agent.session("s")
    run = asyncio.ensure_future(session.run("go"))
    await begun.wait()
    await session.interrupt()
    for _ in range(10):
        await asyncio.sleep(0)
    go_on.set()
    await run
    (result,) = session.history[2].results
    assert result.outcome is Outcome.OK
    assert stand_in(result.content, "api_key")


# Nowhere


class Provider:
    """A provider of chat completions on which *script* is played; what it was sent is in *bodies*."""

    def __init__(self, *script: tuple[str, Mapping[str, object]]) -> None:
        self._script = list(script)
        self.bodies: list[bytes] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """The next answer, in small pieces."""
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


KEPT = ("issue", "fetch", "fail")
"""Tools of the desk that nobody is asked about."""


def plain(notice: Notice) -> bytes:
    """*notice* as it is sent to whoever watches."""
    return encode(notice, Notice)


def watched(seen: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
    """Hooks that note what they are asked, one of which puts in a secret; and tools that note the same."""

    @hook(Hook.PRE_TOOL_USE, tool="note")
    def change(call: HookCall) -> HookAnswer:
        seen.append(call)
        return HookAnswer(arguments=json.dumps({"text": "t", "headers": {"cookie": "hooked-4711"}}))

    @hook(Hook.POST_TOOL_USE)
    def look(call: HookCall) -> None:
        seen.append(call)

    @tool(approval="never")
    def note(text: str, headers: dict[str, str]) -> str:
        """Take a note."""
        given.append((text, headers))
        return f"noted {headers}"

    return [change, look], [note]


async def acted(agent: Agent, store: SQLiteStore) -> list[Any]:
    """All that is shown of a session of *agent* in which a person puts a secret into a call."""
    shown: list[Any] = []
    async with agent.session("s") as session:
        shown += [notice async for notice in session.stream("go")]
        (question,) = session.waiting
        shown += [question, session, agent, session.machine]
        await session.approve(
            question.id, Approve(arguments=json.dumps({"user": "bob", "password": "edited-4711"}))
        )
        shown += [notice async for notice in session.stream()]
        shown += [session.machine, [*session.history], agent.vault, agent]
        shown.append(await explain(store, "s", session.history[1].calls[0].id))
    return shown


async def test_a_secret_is_nowhere_but_with_its_tool(tmp_path: Path) -> None:
    """Not in a byte of the store, a notice, a log line, a request, what a hook or person sees, or a repr."""
    desk, seen = Desk(), list[Any]()
    hooks, more = watched(seen, desk.given)
    provider = Provider(
        ("log_in", {"user": "ann", "password": PASSWORD}),
        ("issue", {}),
        ("note", {"text": "x", "headers": {}}),
        ("fail", {"password": PASSWORD}),
        ("run_agent", {"agent": "helper", "prompt": "go"}),
        ("fetch", {"url": "u", "headers": {"X-Api-Key": "child-4711"}}),
    )
    store = SQLiteStore(tmp_path / "s.db")
    agent = Agent(
        model="openai:m",
        api_key="sk-of-the-provider",
        client=httpx.AsyncClient(transport=httpx.MockTransport(provider)),
        tools=[tool(desk.log_in), *[each for each in desk.tools if each.spec.name in KEPT], *more],
        hooks=hooks,
        children=[ChildSpec(name="helper", tools=("fetch",))],
        store=store,
    )
    try:
        with structlog.testing.capture_logs() as lines:
            structlog.configure(processors=structlog.get_config()["processors"])
            shown = await acted(agent, store)
    finally:
        structlog.reset_defaults()

    words = [PASSWORD, KEY, "edited-4711", "hooked-4711", "child-4711"]
    assert [word for word in words if word not in repr(desk.given)] == [PASSWORD, KEY]
    assert (len(provider.bodies), len(seen)) == (8, 6)
    assert len(lines) > 20
    files = b"".join([path.read_bytes() for path in tmp_path.iterdir()])
    notices = b"".join([plain(each) for each in shown if type(each) in get_args(Notice)])
    told = [files, notices, *provider.bodies, await export(store, "s"), repr((shown, seen, lines)).encode()]
    assert all(len(part) > 100 for part in told)
    hidden = [*words, "sk-of-the-provider"]
    assert [word for word in hidden for part in told if word.encode() in part] == []
    await store.close()
    await agent.aclose()


async def test_a_traceback_of_a_secret_that_is_gone_names_the_placeholder_only() -> None:
    """What is raised inside on the way has no value in it either."""
    sealer = sealer_of(MemoryVault())
    text = await sealer.arguments("log_in", json.dumps({"user": "a", "password": PASSWORD}))
    with pytest.raises(Gone) as caught:
        await sealer_of(MemoryVault()).opened(text)
    told = "".join(traceback.format_exception(caught.value))
    assert stand_in(text, "password") in told
    assert PASSWORD not in told + repr(sealer)


# Copies of a session


async def test_a_copy_of_a_session_knows_the_secrets_of_what_it_is_a_copy_of() -> None:
    """Also a copy of a copy, and where it is opened anew; but what it hides itself is its own."""
    store, vault, desk = MemoryStore(), MemoryVault(), Desk()
    stands, question = await rests(store, vault)
    agent, _ = agent_of(desk, says("x"), store=store, vault=vault, tools=careful(desk))
    await (await agent.session("s").fork("t", at=len(await store.load("s")))).close()
    await (await agent.session("t").fork("u", at=len(await store.load("t")))).close()
    session = agent.session("u")
    await session.approve(question)
    await session.resume()
    assert desk.given == [("ann", PASSWORD, 0)]
    assert stand_in(repr([*session.history]), "password") == stands


@pytest.mark.parametrize(
    "instead",
    [
        Approve(arguments=json.dumps({"user": "eve", "password": KEY, "pin": 1})),
        ApproveAlways(where=(("password", KEY),)),
        json.dumps({"api_key": KEY}),
    ],
    ids=["approve", "always", "text"],
)
async def test_what_happens_instead_in_a_copy_has_no_secret_either(instead: Any) -> None:
    """A decision or a text that somebody puts in the place of another one."""
    store, vault, desk = MemoryStore(), MemoryVault(), Desk()
    await rests(store, vault)
    agent, _ = agent_of(desk, says("x"), store=store, vault=vault, tools=careful(desk))
    at = len(await store.load("s")) - isinstance(instead, str)
    await agent.session("s").fork("t", at=at, instead=instead)
    copied = b"".join(await store.load("t"))
    assert b"[secret " in copied
    assert KEY.encode() not in copied


@pytest.mark.parametrize(
    "instead",
    [
        ToolFinished(at=1.0, request="r", content=json.dumps({"api_key": KEY})),
        ApprovalGiven(at=1.0, request="r", decision=Approve(arguments=json.dumps({"password": KEY}))),
        ModelFinished(
            at=1.0,
            request="r",
            stop="tool_use",
            usage=Usage(),
            pieces=(CallPiece(0, "w", "log_in", '{"password": '), CallPiece(0, "", "", f'"{KEY}"}}')),
        ),
        HookAnswered(
            at=1.0,
            request="r",
            said=(HookSaid(name="h", answer=HookAnswer(arguments=json.dumps({"password": KEY}))),),
        ),
        TimerFired(at=1.0, request="r"),
    ],
    ids=lambda event: type(event).__name__,
)
async def test_an_event_that_happens_instead_has_no_secret(instead: Any) -> None:
    """Whatever kind it is of."""
    told = repr(await sealer_of(MemoryVault()).instead(instead))
    assert KEY not in told
    assert ("[secret " in told) is not isinstance(instead, TimerFired)
