"""Readers of a session begin at its checkpoints, and tell what they tell where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwheel import MemoryStore
from turnwheel.effects import Effect
from turnwheel.effects.errors import ConfigError, UnknownSession
from turnwheel.engine.core.codec import encode
from turnwheel.engine.inspect.archive import explain, replay
from turnwheel.engine.inspect.explain import Wishes, account, find_wish
from turnwheel.engine.inspect.replay import ReplayedStep
from turnwheel.engine.journal import fold
from turnwheel.engine.journal.checkpoints import checkpoint
from turnwheel.engine.journal.entries import VERSION, Entry
from turnwheel.engine.journal.fold import SessionState, apply_entry, initial_state, read
from turnwheel.engine.journal.summary import SessionKind, SessionSummary, summarize
from turnwheel.performers import Entries, Store
from turnwheel.performers.slices import Slices
from turnwheel.testing import StoreOver

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
JOURNALS = sorted(GOLDEN.glob("v*/*.jsonl"))
NAMES = [f"{path.parent.name}/{path.stem}" for path in JOURNALS]

EVERY = 10
"""Entries between two checkpoints here."""


async def stored(entries: Sequence[bytes], every: int = EVERY) -> MemoryStore:
    """A store with the session ``s`` of *entries*, its checkpoints and its summary."""
    store, chain = MemoryStore(), None
    await store.append("s", 0, entries)
    state = initial_state(entries)
    for number, _ in enumerate(read(entries, "s", state), 1):
        if number % every == 0:
            body, chain = checkpoint(state, number, entries[number - 1], chain)
            await store.keep_checkpoint("s", number, body, chain.first)
    await store.append("s", len(entries), [], encode(summarize(state, "s"), SessionSummary))
    return store


async def page(store: Store, since: int = 0, limit: int | None = None) -> list[ReplayedStep]:
    return [step async for step in replay(store, "s", since, limit)]


async def test_a_page_of_no_steps_is_empty() -> None:
    assert await page(await stored(JOURNALS[0].read_bytes().splitlines()), 0, 0) == []


@pytest.mark.parametrize("path", JOURNALS, ids=NAMES)
async def test_pages_and_accounts_are_what_a_replay_of_all_has_there(path: Path) -> None:
    """Anywhere, also across branches and forks; a call by its full id, and by an end that only it has."""
    entries = path.read_bytes().splitlines()
    store = await stored(entries)
    told = await page(store)
    assert [step.number for step in told] == [*range(len(entries))]
    # Made again of where the step began, which equal steps do not compare.
    ways = [step.way for step in told]
    third = 1 + len(entries) // 3
    pages = [
        (0, 5),
        *[(since, limit) for since in range(third, len(entries) + 1, third) for limit in (5, None)],
    ]
    for since, limit in pages:
        found = await page(store, since, limit)
        assert found == told[since:][:limit]
        assert [step.way for step in found] == ways[since:][:limit]
    wishes = Wishes()
    for step in told:
        wishes.follow(step)
    for call, number in [*wishes.calls.items()][-1:]:
        assert find_wish(entries, call) == number
        assert find_wish(entries, f"{call.rpartition('-')[0]}-x") is None
        explained = await explain(store, "s", call)
        assert explained == await account(Slices(told[number:]), call, "s")
        end = call.rpartition("-")[2]
        if len(wishes.named(end)) == 1:
            assert await explain(store, "s", end) == explained


async def test_a_page_is_read_from_the_checkpoint_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no further than its end."""
    store = await stored((GOLDEN / f"v{VERSION}" / "approvals.s.jsonl").read_bytes().splitlines())
    seen: list[int] = []

    def counted(state: SessionState, entry: Entry, number: int, session: str) -> tuple[Effect, ...]:
        seen.append(number)
        return apply_entry(state, entry, number, session)

    monkeypatch.setattr(fold, "apply_entry", counted)
    steps = await page(store, EVERY + 6, 3)
    assert [step.number for step in steps] == [16, 17, 18]
    assert seen == [*range(EVERY, EVERY + 9)]


class Counting(StoreOver):
    """A store that notes how many entries each read gave."""

    def __init__(self, kept: Store) -> None:
        super().__init__(kept)
        self.given: list[int] = []

    async def load(
        self, session: str, start: int = 0, end: int | None = None, incarnation: str = ""
    ) -> Entries:
        entries = await super().load(session, start, end, incarnation)
        self.given.append(len(entries))
        return entries


@pytest.mark.parametrize(
    ("since", "read"), [(2, 2 + 3), (EVERY + 6, 1 + 6 + 3)], ids=["from the beginning", "from a checkpoint"]
)
async def test_a_page_reads_no_entries_behind_its_end(since: int, read: int) -> None:
    """The entry before a checkpoint is read, too: it says whether the two go together."""
    store = Counting(await stored((GOLDEN / f"v{VERSION}" / "approvals.s.jsonl").read_bytes().splitlines()))
    steps = await page(store, since, 3)
    assert steps == (await page(store))[since : since + 3]
    assert store.given[0] == read


@pytest.mark.parametrize("about", [SessionSummary(kind=SessionKind.FORK, runs=1), SessionSummary()])
async def test_a_page_of_what_may_be_a_fork_is_read_to_the_end(about: SessionSummary) -> None:
    """Behind its entries may stand whose they are."""
    entries = (GOLDEN / f"v{VERSION}" / "approvals.s.jsonl").read_bytes().splitlines()
    store = Counting(await stored(entries))
    await store.append("s", len(entries), [], encode(about, SessionSummary))
    await page(store, EVERY + 6, 3)
    assert store.given == [len(entries) - EVERY + 1]


async def test_a_page_behind_the_end_is_empty_and_one_of_no_session_is_refused() -> None:
    store = await stored((GOLDEN / f"v{VERSION}" / "approvals.s.jsonl").read_bytes().splitlines())
    assert await page(store, 1_000) == []
    with pytest.raises(UnknownSession):
        await page(MemoryStore(), 3, 1)
    for since, limit in ((-1, None), (0, -1)):
        with pytest.raises(ConfigError, match="must be at least 0; got"):
            await page(store, since, limit)
