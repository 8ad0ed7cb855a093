"""
A conversation of 1,000 turns, with a window that holds a few dozen of them.

What a user relies on: what was said early is still known, nothing is sent that a provider would refuse or
that does not fit, the bill is the sum of the answers, and the last turns cost what the first ones did.
"""

from __future__ import annotations

import gc
import re
import sys
import tracemalloc
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import final

import pytest

from turnwheel import Agent, Compaction, MemoryStore, ModelSpec, Price, Session, SQLiteStore, tool
from turnwheel.effects import events, history, messages, notices, requests
from turnwheel.effects.usage import Usage, cost
from turnwheel.performers.base import PerformContext
from turnwheel.states.rules.history_check import history_faults
from turnwheel.states.rules.token_estimates import history_size

WINDOW, NARROW = 32_000, 10_000
PROMPTS, TURNS = 200, 5
"""Each prompt takes four reads and an answer."""

PRICE = Price(input="1.25", output=10, cached="0.125")
PAGES = 97
"""Of the book that is read, from its beginning again and again: what was seen lately is remembered."""

FACT = re.compile(r"the code of room (\d+) is (\d+)")
PAGE = "what the page says, line for line\n" * 70
"""What a read brings: about 600 tokens."""


@tool(side_effect="read_only")
async def read_page(number: int) -> str:
    """A page of a book."""
    return f"page {number}\n{PAGE}"


@contextmanager
def counted() -> Generator[list[int]]:
    """How many functions are called meanwhile: what a step costs, whatever the machine it runs on."""
    counts = [0]

    def count(_: object, event: str, __: object) -> None:
        if event in {"call", "c_call"}:
            counts[0] += 1

    sys.setprofile(count)
    try:
        yield counts
    finally:
        sys.setprofile(None)


@contextmanager
def uncounted() -> Generator[None]:
    counting = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(counting)


@final
class Clerk:
    """
    A model that knows only what it is shown.

    It reads pages, answers questions about codes from what it sees, and copies the codes into its summaries.
    It keeps what it should have been paid.
    """

    def __init__(self) -> None:
        self.due = Decimal(0)
        self.turns = 0
        self.summaries = 0
        self.faults: list[str] = []
        self.largest = 0

    async def __call__(self, request: requests.CallModel, scene: PerformContext) -> events.ModelFinished:
        with uncounted():
            return self._answer(request, scene)

    def _answer(self, request: requests.CallModel, scene: PerformContext) -> events.ModelFinished:
        shown = scene.history.slice(0, request.view.length)
        if isinstance(request.view, requests.Conversation):
            if self.turns % 10 == 0:
                self.faults += history_faults(shown)
            before = request.view.cleared
            shown = (*map(history.clear_results, shown[:before]), *shown[before:])
        size = history_size(shown)
        self.largest = max(self.largest, size if isinstance(request.view, requests.Conversation) else 0)
        pieces = self._summary(shown) if request.purpose is requests.Purpose.SUMMARY else self._turn(shown)
        usage = Usage(input=size, output=40, cached=size // 2)
        self.due += cost(usage, PRICE)
        calls = any(isinstance(piece, history.CallPiece) for piece in pieces)
        stop = messages.StopReason.TOOL_USE if calls else messages.StopReason.END_TURN
        at = scene.clock.now()
        return events.ModelFinished(at=at, request=request.id, stop=stop, usage=usage, pieces=pieces)

    def _summary(self, shown: Sequence[messages.Message]) -> tuple[history.Piece, ...]:
        self.summaries += 1
        known = "\n".join(f"the code of room {room} is {code}" for room, code in codes(shown).items())
        return (history.TextPiece(f"Key data:\n{known}\nNext steps: read on."),)

    def _turn(self, shown: Sequence[messages.Message]) -> tuple[history.Piece, ...]:
        self.turns += 1
        since = next(n for n, message in enumerate(reversed(shown)) if message.role is messages.Role.USER)
        asked = shown[len(shown) - 1 - since].text
        if question := re.search(r"what is the code of room (\d+)\?", asked):
            return (history.TextPiece(codes(shown).get(question[1], "I was not told")),)
        if since < 2 * (TURNS - 1):
            return (history.CallPiece(0, "call_0", "read_page", f'{{"number": {self.turns % PAGES}}}'),)
        return (history.TextPiece("I have read four pages. " * 40),)


def codes(shown: Sequence[messages.Message]) -> dict[str, str]:
    return dict(match for message in shown for match in FACT.findall(message.text))


@final
class Talk:
    """A session that is kept talking; its notices are counted and not kept."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.prompts = 0
        self.compacted: list[notices.Compacted] = []
        self.left_out = 0

    async def go_on(self, prompts: int) -> None:
        for _ in range(prompts):
            told = f" By the way, the code of room {self.prompts} is {self.prompts + 7_000}."
            text = f"Read on.{told if self.prompts < 10 else ''}"
            async for notice in self.session.stream(text):
                self._seen(notice)
            assert self.session.result().reason is notices.DoneReason.END_TURN
            self.prompts += 1

    def _seen(self, notice: notices.Notice) -> None:
        if isinstance(notice, notices.Compacted):
            self.compacted.append(notice)
        elif isinstance(notice, notices.ResultsCleared):
            self.left_out += notice.count


def agent(clerk: Clerk, store: MemoryStore | SQLiteStore | None = None, window: int = WINDOW) -> Agent:
    """An agent with a small window, of which a tenth stays when the rest is summarised."""
    return Agent(
        model=ModelSpec(name="scripted", window=window, price=PRICE),
        tools=[read_page],
        compaction=Compaction(keep=0.1),
        performers={requests.CallModel: clerk},
        store=store,
    )


async def test_a_thousand_turns_lose_nothing(tmp_path: Path) -> None:
    clerk, store = Clerk(), SQLiteStore(tmp_path / "long.db", "process")
    async with agent(clerk, store).session("long") as session:
        talk = Talk(session)
        await talk.go_on(PROMPTS)
        assert clerk.turns == PROMPTS * TURNS == 1_000
        for room in range(10):
            assert (await session.run(f"what is the code of room {room}?")).text == str(7_000 + room)
        assert (await session.run("what is the code of room 99?")).text == "I was not told"

        assert clerk.faults == []
        assert clerk.largest < WINDOW
        assert clerk.summaries == len(talk.compacted) > 3
        assert talk.left_out > 500
        machine = session.machine
        assert machine is not None
        spent = machine.memory.earlier + machine.memory.spent
        assert (spent.cost, spent.turns, spent.unpriced) == (clerk.due, 1_011, 0)

    async with agent(clerk, store).session("long") as again:
        assert again.machine is not None
        assert again.machine.memory == machine.memory
    await store.close()


async def test_a_turn_costs_the_same_however_many_came_before() -> None:
    async with agent(Clerk(), window=NARROW).session("long") as session:
        talk = Talk(session)
        work: list[int] = []
        for _ in range(10):
            with counted() as calls:
                await talk.go_on(8)
            work.append(calls[0] // (8 * TURNS))
    # Some of these stretches have a summary in them, which is work too.
    assert min(work[5:]) < 1.1 * min(work[:5])
    assert max(work[5:]) < 1.1 * max(work[:5])


@pytest.mark.prover
async def test_what_is_held_does_not_grow() -> None:
    async with agent(Clerk(), window=NARROW).session("long") as session:
        talk = Talk(session)
        await talk.go_on(10)
        tracemalloc.start()
        try:
            held: list[int] = []
            for _ in range(10):
                await talk.go_on(4)
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert len(talk.compacted) > 2
    assert max(held[5:]) < 1.5 * max(held[:5])
