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
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from provers.hostile_server.attacks import SECRET, Attack, attacks, called, hello
from provers.hostile_server.server import END, STREAM, Answer, Hostile, Line, chunked
from provers.streams import DIALECTS, Dialect, event

from turnwheel import Agent, DoneReason, Loops, Retries, Session, tool
from turnwheel.effects.history import CallPiece, merged
from turnwheel.effects.notices import Notice, TextDelta
from turnwheel.effects.requests import CallModel
from turnwheel.engine.core.codec import encode
from turnwheel.engine.journal.fold import fold
from turnwheel.performers.models.http import MAX_PART, HTTPModel, decompressor
from turnwheel.performers.models.openai import ChatParser
from turnwheel.performers.models.transport import Client
from turnwheel.performers.stores.memory import MemoryStore
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.retry import OVERLOADED, TRANSIENT
from turnwheel.states.rules.schema import arguments_of
from turnwheel.testing.clocks import AutoClock

MOST_TOKENS = 1_000_000_000
OPEN = Path("/proc/self/fd")  # the files and sockets of this process
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a client of its own would read all certificates there are
MOST = defaultdict(lambda: 10 * 1024 * 1024, {"the answer is larger": 512 * 1024})
SHORT = 0.1
PATIENT = 60.0
"""Seconds that any of it may take, on a machine with much to do."""


each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))


@tool(side_effect="read_only")
async def look(path: str = "") -> str:
    """Look at a path."""
    return f"there is {path[:20]}"


def agent_of(performer: HTTPModel, dialect: Dialect, store: MemoryStore, tries: int = 1) -> Agent:
    """An agent that asks by *performer*, with a clock that stands still, and tries once again."""
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
    result = session.result()
    return result.detail.partition(":")[0] if result.reason is DoneReason.ERROR else str(result.reason)


def polite(dialect: Dialect) -> Answer:
    async def answer(line: Line) -> None:
        await line.send(STREAM, *map(chunked, hello(dialect)), END)

    return answer


def twice(attack: Attack, dialect: Dialect) -> Answer:
    ill, well = attack.answers(dialect), polite(dialect)
    count = itertools.count(int(attack.heavy))

    async def answer(line: Line) -> None:
        await (ill if next(count) < 2 else well)(line)

    return answer


async def told(session: Session, prompt: str) -> list[Notice]:
    async with asyncio.timeout(PATIENT), aclosing(session.stream(prompt)) as stream:
        return [notice async for notice in stream]


def tries_of(outcome: str, notices: list[Notice]) -> int:
    if outcome not in {str(failure) for failure in OVERLOADED | TRANSIENT}:
        return 1
    return 1 if any(isinstance(one, TextDelta) and not one.text.isspace() for one in notices) else 2


MEGABYTES = 200
"""How much larger a process may become, by any attack."""

ENDLESS = ("empty data", "pings", "comments", "blank lines", "names", "blanks")
SLOW = {"thousands of calls", *(f"{what} for ever" for what in ENDLESS)}
"""Attacks that keep a processor busy for seconds, and whose memory is what that of others is."""


NAMES = [attack.name for attack in attacks()]
AIOHTTP = {
    **dict.fromkeys(
        ["many headers", "many cookies", "junk behind the end", "a length and chunks", "a length too short"],
        frozenset({"connection"}),
    ),
    "a length of nothing": frozenset({"connection"}),
    "the transfer is x": frozenset({"end_turn"}),
    "the transfer is identity": frozenset({"end_turn"}),
}
"""Where it is stricter or milder than httpx, which takes more headers, and what stands behind an answer."""

LAST_EVENT = {"a hundred names of a megabyte", f"{called('9' * 5_000)} tokens"}
"""What voids an event that is too large or has such a number: of Responses the one that ends the answer."""


@each_dialect
@pytest.mark.parametrize("attack", attacks(), ids=lambda attack: attack.name)
async def test_an_attack_ends_in_an_answer_or_a_failure_with_a_name(
    attack: Attack, dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    files, tasks = len([*OPEN.iterdir()]), asyncio.all_tasks()
    store, retries = MemoryStore(), 0 if attack.heavy else 1
    async with Hostile(twice(attack, dialect)) as server, httpx.AsyncClient(verify=NO_TLS) as passed:
        clients: list[Client] = [passed, "httpx", "aiohttp"]
        client = clients[(NAMES.index(attack.name) + list(DIALECTS).index(dialect.name)) % 3]
        settings: dict[str, Any] = (
            {attack.limit: SHORT} if attack.limit else {"max_answer": MOST[attack.says]}
        )
        performer = dialect.performer(server.url, SECRET, client=client, **settings)
        session = agent_of(performer, dialect, store, retries).session("s")
        notices = await told(session, "hi")
        outcome, detail = outcome_of(session), session.result().detail
        told_apart = AIOHTTP.get(attack.name, frozenset()) if client == "aiohttp" else frozenset()
        if dialect.name == "openai-responses" and attack.name in LAST_EVENT:
            told_apart = frozenset({"cut"})
        assert outcome in attack.ends | told_apart
        assert attack.says in detail or told_apart
        tries = tries_of(outcome, notices) if retries else 1
        # A busy server may not have read a request yet when its time is over.
        least = 1 if attack.limit else tries
        assert not detail or least <= len(server.asked) <= tries
        check_kept(session, await store.load("s"))
        check_hidden(notices, await store.load("s"), caplog.text)

        if attack.limit:  # the answer of a polite server may take longer, too, on a busy machine
            await session.close()
            await performer.aclose()
            performer = dialect.performer(server.url, SECRET, client=client)
            session = agent_of(performer, dialect, store, retries).session("s")
        server.answer = polite(dialect)
        await told(session, "again")
        assert (session.result().reason, session.result().text) == (DoneReason.END_TURN, "Hello, you")
        check_kept(session, await store.load("s"))
        await session.close()
        await performer.aclose()
    assert asyncio.all_tasks() == tasks
    assert len([*OPEN.iterdir()]) <= files  # those of others may be closed meanwhile


def check_kept(session: Session, entries: Sequence[bytes]) -> None:
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
    for part in (SECRET, SECRET[:20]):
        assert not any(part.encode() in encode(notice, Notice) for notice in notices)
        assert not any(part.encode() in entry for entry in entries)
        assert part not in logged


HEAVY = [
    attack.name for attack in attacks() if attack.heavy and attack.name not in {"letters for ever", *SLOW}
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_attack_takes_bounded_memory(dialect: str) -> None:
    command = [sys.executable, str(Path(__file__).parent / "hostile_child.py"), dialect, *HEAVY]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    grown = {name: float(height) for height, name in re.findall(r"([\d.]+) MB  (.*?):", ended.stdout)}
    assert sorted(grown) == sorted(HEAVY)
    assert max(grown.values()) < MEGABYTES, ended.stdout


# What takes longer the more of it there is


def test_a_name_that_is_repeated_with_every_bit_costs_no_more_than_once() -> None:
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
    # How deep they are nested is looked up without remembering what was read.
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
    unpack = decompressor(coding)
    assert unpack is not None
    packed = gzip.compress(bytes(50_000_000)) if coding == "gzip" else zlib.compress(bytes(50_000_000))
    sizes = [len(part) for at in range(0, len(packed), 5_000) for part in unpack(packed[at : at + 5_000])]
    assert (sum(sizes), max(sizes)) == (50_000_000, MAX_PART)
