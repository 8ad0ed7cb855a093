"""A server that means ill: whatever it does, a run has an answer or a failure with a name, and goes on."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import re
import ssl
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from provers.hostile_server.attacks import (
    SECRET,
    Attack,
    attacks,
    hello,
)
from provers.hostile_server.server import (
    END,
    STREAM,
    Answer,
    Hostile,
    Line,
    chunked,
)
from provers.streams import (
    DIALECTS,
    Dialect,
    Said,
    Wish,
    event,
)

from turnwheel import (
    Agent,
    DoneReason,
    Loops,
    Retries,
    Session,
    tool,
)
from turnwheel.effects.config import Config, ModelSpec
from turnwheel.effects.events import (
    Event,
    Failure,
    ModelFailed,
    ModelFinished,
    ModelStreamed,
)
from turnwheel.effects.history import History
from turnwheel.effects.messages import user
from turnwheel.effects.notices import AnswerDropped, Notice
from turnwheel.effects.pieces import (
    CallPiece,
    Piece,
    ReasoningPiece,
    TextPiece,
    merged,
)
from turnwheel.effects.requests import CallModel, Conversation
from turnwheel.engine.codec import encode
from turnwheel.engine.journal.fold import fold
from turnwheel.performers import Endpoint, HTTPModel
from turnwheel.performers.base import PassThroughNotice, PerformContext, SystemClock
from turnwheel.performers.models.errors import keys_in, redact_keys, without_login
from turnwheel.performers.models.http import MAX_PART, decompressor
from turnwheel.performers.models.openai import ChatParser
from turnwheel.performers.models.wire import Complete
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.retry import OVERLOADED, TRANSIENT
from turnwheel.states.rules.schema import arguments_of
from turnwheel.testing.clocks import AutoClock

MOST_TOKENS = 1_000_000_000
NO_TLS = ssl.SSLContext(
    ssl.PROTOCOL_TLS_CLIENT
)  # to make a client of its own reads all certificates there are
MOST = defaultdict(lambda: 10 * 1024 * 1024, {"the answer is larger": 2 * 1024 * 1024})
HURRY: dict[str, Any] = {"first_byte_timeout": 0.1, "idle_timeout": 0.1, "answer_timeout": 0.4}
PATIENT = 60.0
"""Seconds that any of it may take, on a machine with much to do."""


each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


@tool(side_effect="read_only")
async def look(path: str = "") -> str:
    """Look at a path."""
    return f"there is {path[:20]}"


def agent_of(url: str, dialect: Dialect, store: MemoryStore, tries: int = 1, **settings: Any) -> Agent:
    """An agent that asks at *url*, with a clock that stands still, and tries once again."""
    performer = dialect.performer(url, SECRET, **settings)
    return Agent(
        model=dialect.model,
        tools=[look],
        store=store,
        clock=AutoClock(),
        retries=Retries(overloaded=tries, failed=tries),
        loops=Loops.never(),
        performers={CallModel: performer},
    )


def outcome_of(session: Session) -> str:
    """How the run of *session* ended: the failure of its model, or the reason."""
    result = session.result()
    return result.detail.partition(":")[0] if result.reason is DoneReason.ERROR else str(result.reason)


def polite(dialect: Dialect) -> Answer:
    """Says hello."""

    async def answer(line: Line) -> None:
        await line.send(STREAM, *map(chunked, hello(dialect)), END)

    return answer


def twice(attack: Attack, dialect: Dialect) -> Answer:
    """Means ill for two requests, or one where that takes long, and then says hello."""
    ill, well = attack.answers(dialect), polite(dialect)
    count = itertools.count(int(attack.heavy))

    async def answer(line: Line) -> None:
        await (ill if next(count) < 2 else well)(line)

    return answer


async def told(session: Session, prompt: str) -> list[Notice]:
    """What a run of *session* on *prompt* showed, which took bounded time."""
    async with asyncio.timeout(PATIENT), aclosing(session.stream(prompt)) as stream:
        return [notice async for notice in stream]


def tries_of(outcome: str, notices: list[Notice]) -> int:
    """How many requests a run sends that has *outcome* and may try once again."""
    if outcome not in {str(failure) for failure in OVERLOADED | TRANSIENT}:
        return 1
    return 1 if any(isinstance(notice, AnswerDropped) for notice in notices) else 2


MEGABYTES = 200
"""How much larger a process may become, by any attack."""

SLOW = {
    "thousands of calls",
    "empty data for ever",
    "pings for ever",
    "comments for ever",
    "blank lines for ever",
    "names for ever",
    "blanks for ever",
}
"""Attacks that keep a processor busy for seconds, and whose memory is what that of others is."""


def open_files() -> int:
    """How many files and sockets this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@each_dialect
@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
async def test_an_attack_ends_in_an_answer_or_a_failure_with_a_name(
    attack: Attack, dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told by what may be done about it, the conversation stays valid, and the key is not told."""
    files, tasks = open_files(), asyncio.all_tasks()
    store, retries = MemoryStore(), 0 if attack.heavy else 1
    async with Hostile(twice(attack, dialect)) as server, httpx.AsyncClient(verify=NO_TLS) as client:
        settings = HURRY if attack.hurried else {"max_answer": MOST[attack.says]}
        session = agent_of(server.url, dialect, store, retries, client=client, **settings).session("s")
        notices = await told(session, "hi")
        outcome, detail = outcome_of(session), session.result().detail
        assert outcome in attack.ends
        assert attack.says in detail
        assert (
            len(server.asked) == (tries_of(outcome, notices) if retries else 1) or not session.result().detail
        )
        check_kept(session, await store.load("s"))
        check_hidden(notices, await store.load("s"), caplog.text)

        server.answer = polite(dialect)
        await told(session, "again")
        assert (session.result().reason, session.result().text) == (DoneReason.END_TURN, "Hello, you")
        check_kept(session, await store.load("s"))
        await session.close()
    assert asyncio.all_tasks() == tasks
    assert open_files() <= files  # those of others may be closed meanwhile


def check_kept(session: Session, entries: Sequence[bytes]) -> None:
    """The conversation of *session* is valid, its account can be, and its *entries* lead to the same."""
    assert session.machine is not None
    memory = session.machine.memory
    assert history_faults(list(memory.history)) == []
    counts = attrs.astuple(memory.spent.usage)
    assert all(0 <= count <= MOST_TOKENS * (1 + memory.spent.turns) for count in counts)
    folded = fold(entries, "s")
    assert folded.machine is not None
    assert folded.machine.snapshot() == session.machine.snapshot()
    assert list(folded.machine.memory.history) == list(memory.history)


def check_hidden(notices: list[Notice], entries: Sequence[bytes], logged: str) -> None:
    """Nowhere is the key, nor most of it."""
    for part in (SECRET, SECRET[:20]):
        assert not any(part.encode() in encode(notice, Notice) for notice in notices)
        assert not any(part.encode() in entry for entry in entries)
        assert part not in logged


HEAVY = [
    attack.name for attack in attacks() if attack.heavy and attack.name not in {"letters for ever", *SLOW}
]


@pytest.mark.parametrize("dialect", ["anthropic", "openai"])
def test_an_attack_takes_bounded_memory(dialect: str) -> None:
    """Whatever of these is sent, a process that is asked for it grows by less than so many megabytes."""
    command = [sys.executable, str(Path(__file__).parent / "hostile_child.py"), dialect, *HEAVY]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    grown = {name: float(height) for height, name in re.findall(r"([\d.]+) MB  (.*?):", ended.stdout)}
    assert sorted(grown) == sorted(HEAVY)
    assert max(grown.values()) < MEGABYTES, ended.stdout


# One request, asked by the performer alone


def scene_of(dialect: Dialect, emit: Callable[[Event | PassThroughNotice], None]) -> PerformContext:
    """A scene with one user message."""
    config = Config(model=ModelSpec(name=dialect.model))
    history = History.of(user("hi"))
    return PerformContext(
        session="s", run="r", config=config, history=history, clock=SystemClock(), emit=emit
    )


async def ask(model: HTTPModel, dialect: Dialect) -> tuple[list[Piece], ModelFinished | ModelFailed]:
    """All pieces that *model* answers with, which count themselves, and how the answer ended."""
    pieces: list[Piece] = []

    def emit(event: Event | PassThroughNotice) -> None:
        assert isinstance(event, ModelStreamed)
        assert (event.before, event.count) == (len(pieces), len(event.pieces))
        pieces.extend(event.pieces)

    request = CallModel(id="r-1", model=dialect.model, view=Conversation(revision=0, length=1))
    answer = await model(request, scene_of(dialect, emit))
    assert isinstance(answer, ModelFinished | ModelFailed)
    return [*pieces, *(answer.pieces if isinstance(answer, ModelFinished) else ())], answer


SAID = Said(
    thinking=("Let me ", "see."), signature="c2ln", text=("It is 😀",), calls=(Wish(arguments=("{", "}")),)
)


def said_of(pieces: Iterable[Piece]) -> tuple[str, str, str]:
    """The text, the thinking and the arguments in *pieces*."""
    found = list(pieces)
    return (
        "".join([piece.text for piece in found if isinstance(piece, TextPiece)]),
        "".join([piece.text for piece in found if isinstance(piece, ReasoningPiece)]),
        "".join([piece.arguments for piece in found if isinstance(piece, CallPiece)]),
    )


@each_dialect
async def test_a_stream_may_be_cut_at_any_byte(dialect: Dialect) -> None:
    """What came before is what it is; it is an answer only where the stream had said why it was over."""
    stream = dialect.stream(SAID)
    whole = said_of(dialect.parser().feed(stream))
    parts: list[bytes] = []

    async def answer(line: Line) -> None:
        await line.send(STREAM, *parts)
        line.close()

    async with Hostile(answer) as server, httpx.AsyncClient(verify=NO_TLS) as client:
        for cut in [*range(0, len(stream), 9), len(stream)]:
            parts[:] = [chunked(stream[:cut])]
            pieces, ended = await ask(dialect.performer(server.url, SECRET, client), dialect)
            parser = dialect.parser()
            assert said_of(pieces) == said_of(parser.feed(stream[:cut]))
            assert all(full.startswith(part) for full, part in zip(whole, said_of(pieces), strict=True))
            assert isinstance(ended, ModelFinished) is isinstance(parser.end(), Complete)
            assert isinstance(ended, ModelFinished) or ended.failure is Failure.CUT


@each_dialect
async def test_a_redirect_is_not_followed(dialect: Dialect) -> None:
    """Not even where the caller's client follows them: the key would go along."""
    async with Hostile(polite(dialect)) as other:

        async def answer(line: Line) -> None:
            said = f"HTTP/1.1 307 There\r\nlocation: {other.url}/x\r\ncontent-length: 0\r\n\r\n"
            await line.send(said.encode())

        async with (
            Hostile(answer) as server,
            httpx.AsyncClient(verify=NO_TLS, follow_redirects=True) as client,
        ):
            _, ended = await ask(dialect.performer(server.url, SECRET, client), dialect)
        assert isinstance(ended, ModelFailed)
        assert ended.failure is Failure.BAD_REQUEST
        assert ended.message == f"http 307: redirected to '{other.url}/x'; give that as the base URL"
        assert other.asked == []


@each_dialect
async def test_a_cookie_is_not_kept(dialect: Dialect) -> None:
    """Many sessions ask through one client: what a server tells one, it must not hear from another."""

    async def answer(line: Line) -> None:
        head = STREAM.replace(b"\r\n", b"\r\nset-cookie: a=b; path=/\r\n", 1)
        await line.send(head, *map(chunked, hello(dialect)), END)

    async with Hostile(answer) as server:
        model = dialect.performer(server.url, SECRET)
        for _ in range(2):
            assert isinstance((await ask(model, dialect))[1], ModelFinished)
        await model.aclose()
    assert [asked.header("cookie") for asked in server.asked] == ["", ""]


@each_dialect
async def test_nothing_is_asked_to_be_packed(dialect: Dialect) -> None:
    """So what comes packed was packed for a reason of its own."""
    async with Hostile(polite(dialect)) as server, httpx.AsyncClient(verify=NO_TLS) as client:
        await ask(dialect.performer(server.url, SECRET, client), dialect)
    assert server.asked[0].header("accept-encoding") == "identity"


@each_dialect
async def test_a_server_that_speaks_no_tls_is_told_as_such(dialect: Dialect) -> None:
    """Whether it says so or waits for more."""

    def refuses(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Plain\r\n\r\n")
        writer.close()

    async def failure_at(authority: str) -> Failure:
        model = dialect.performer(f"https://{authority}", SECRET, client, connect_timeout=0.2)
        _, ended = await ask(model, dialect)
        assert isinstance(ended, ModelFailed)
        return ended.failure

    async with (
        Hostile(polite(dialect)) as server,
        await asyncio.start_server(refuses, "127.0.0.1", 0) as other,
        httpx.AsyncClient(verify=NO_TLS) as client,
    ):
        assert await failure_at(server.authority) is Failure.TIMEOUT
        assert await failure_at(f"127.0.0.1:{other.sockets[0].getsockname()[1]}") is Failure.CONNECTION


# The key


KEY = "sk-ant/api03+0123456789=="


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"no {KEY}!", "no [hidden]!"),
        (f"Bearer {KEY}{KEY}", "Bearer [hidden][hidden]"),
        ("?key=sk-ant%2Fapi03%2B0123456789%3D%3D&x", "?key=[hidden]&x"),
        (f"{KEY[:12]}... (9999 characters)", "[hidden]... (9999 characters)"),
        (f"{KEY[:7]}... and {KEY[:12]} say little", f"{KEY[:7]}... and {KEY[:12]} say little"),
        ("no key here", "no key here"),
    ],
)
def test_a_key_is_hidden(said: str, told: str) -> None:
    """Wherever it stands, as it is or as a URL has it, and where it was cut."""
    assert redact_keys(said, [KEY]) == told


@pytest.mark.parametrize(
    ("headers", "keys"),
    [
        ({"authorization": f"Bearer {KEY}"}, (KEY,)),
        ({"x-api-key": KEY, "anthropic-version": "2023-06-01"}, (KEY,)),
        ({"Api-Key": KEY, "X-Auth-Token": "0123456789"}, (KEY, "0123456789")),
        ({"Subscription-Key": KEY, "x-author": "Anna Smith", "x-monkey": "Chimpanzee"}, (KEY,)),
        ({"authorization": "Bearer key", "x-api-key": ""}, ()),
    ],
)
def test_keys_are_known_by_the_names_of_headers(headers: dict[str, str], keys: tuple[str, ...]) -> None:
    """What is too short to open anything is none."""
    assert keys_in(headers) == keys


def test_a_login_in_an_address_is_not_shown() -> None:
    """Nor is the key, by whoever shows an agent or an endpoint."""
    url = "http://me:pa55@w0rd1@host:1/v1"
    assert without_login(url) == "http://host:1/v1"
    assert without_login("http://host/a@b") == "http://host/a@b"
    endpoint = Endpoint(base_url=url, headers={"x-api-key": KEY}, login="no")
    agent = Agent(base_url=url, api_key=KEY)
    assert not [part for part in (KEY, "w0rd1") if part in f"{endpoint!r} {agent!r}"]


async def test_a_login_in_an_address_is_in_no_message() -> None:
    """Nobody listens there."""
    dialect = DIALECTS["openai"]
    async with Hostile(polite(dialect)) as server:
        url = server.url.replace("//", "//me:password1@")
    model = dialect.performer(url, SECRET)
    _, ended = await ask(model, dialect)
    await model.aclose()
    assert isinstance(ended, ModelFailed)
    assert ended.message.startswith("no connection to http://127.0.0.1:")
    assert "password1" not in ended.message


# What takes longer the more of it there is


def test_a_name_that_is_repeated_with_every_bit_costs_no_more_than_once() -> None:
    """Whether the arguments are whole is asked with each, and each looks at its own bit."""
    parser = ChatParser()
    bits = ['{"a": "', *["}"] * 20_000, '"}']
    chunks = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": bit}}]} for bit in bits
    ]
    begun = time.thread_time()
    pieces = parser.feed(b"".join([event({"choices": [{"delta": delta}]}) for delta in chunks]))
    assert time.thread_time() - begun < 5
    assert merged(pieces) == (CallPiece(0, "a", "f", "".join(bits)),)


def test_a_long_text_in_arguments_takes_no_memory_of_its_own() -> None:
    """How deep they are nested is looked up without remembering what was read."""
    text = json.dumps({"content": "a line\n" * 200_000, "brackets": "[" * 200})
    tracemalloc.start()
    try:
        assert arguments_of(text) is not None
        _, height = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert height < 4 * len(text)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_packed_body_is_unpacked_in_small_parts(coding: str) -> None:
    """However little of it makes much."""
    unpack = decompressor(coding)
    assert unpack is not None
    packed = gzip.compress(bytes(50_000_000)) if coding == "gzip" else zlib.compress(bytes(50_000_000))
    sizes = [len(part) for at in range(0, len(packed), 5_000) for part in unpack(packed[at : at + 5_000])]
    assert (sum(sizes), max(sizes)) == (50_000_000, MAX_PART)
