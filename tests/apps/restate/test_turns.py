"""A session as an invocation that is done again: killed at any place, it comes to its end."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
from support.patience import PATIENCE
from support.restate_agents import agent, shape
from support.toy_restate import Kept, ShelfStore, ToyObject

from turnwheel import Agent, MemoryStore, Policy
from turnwheel.apps.restate.asks import (
    MOST_APPENDED,
    MOST_KEPT,
    Accepted,
    Append,
    Bodies,
    Conflict,
    Gone,
    KeepCheckpoint,
    Load,
)
from turnwheel.apps.restate.shelf import ANSWER_BYTES, PAGE_ENTRIES, SMALL_ENTRY, Shelf
from turnwheel.apps.restate.turn import NEWER_CODE, TurnStore, TurnWork
from turnwheel.effects.errors import ConfigError, SessionGone, StoreConflict, StoreError, UnknownRequest
from turnwheel.engine.journal.encoding import decode_entry
from turnwheel.engine.journal.entries import VERSION, RunOpened
from turnwheel.testing.store_contract import Check, Lasts, checks

PLAN = json.dumps(
    [
        [["look", {"seconds": 0}], ["look", {"seconds": 0}]],
        [["pay", {"seconds": 0}]],
        [["run_agent", {"agent": "helper", "prompt": '[[["look", {"seconds": 0}]]]'}]],
        [["ask", {"seconds": 0}]],
    ]
)


def toy(ledger: Path, dies: Iterable[int] = ()) -> ToyObject:
    """An object whose sessions are those of the agent of the tests."""
    made = agent(str(ledger))
    return ToyObject(lambda name: TurnWork(made, name, 5.0), {*dies})


async def played(store: MemoryStore | ToyObject, person: Agent) -> None:
    """One story: a prompt, a question that is answered, and the end."""
    async with person.session("s", store) as session:
        await session.send(PLAN, id="prompt")
        await (store.settled() if isinstance(store, ToyObject) else session.resume())
        await session.load()
        (question,) = session.waiting
        await session.approve(question.id)
        await (store.settled() if isinstance(store, ToyObject) else session.resume())
        await session.load()
        assert session.result().text == "done"


async def test_the_journal_is_that_of_any_other_store(tmp_path: Path) -> None:
    person, plain, kept = agent(str(tmp_path / "ledger")), MemoryStore(), toy(tmp_path / "ledger")
    await played(plain, person)
    await played(kept, person)
    # The session and its child, whose name begins with its parent's.
    names = [sorted([info.session for info in await store.list()]) for store in (kept, plain)]
    assert [len(each) for each in names] == [2, 2]
    for one, other in zip(*names, strict=True):
        assert shape(await kept.load(one)) == shape(await plain.load(other))


async def test_a_turn_that_dies_after_any_record_comes_to_its_end(tmp_path: Path) -> None:
    whole = toy(tmp_path / "whole")
    await played(whole, agent(str(tmp_path / "whole")))
    assert whole.attempts == 2
    for last in range(1, whole.records, 2):
        ledger = tmp_path / str(last)
        killed = toy(ledger, [last])
        await played(killed, agent(str(ledger)))
        assert killed.attempts == 3
        # What may have run twice, the model was told of.
        ended = Counter(line.split()[0] for line in ledger.read_text("utf-8").splitlines())
        told = b"".join(await killed.load("s")).count(b"tool_lost")
        assert ended["ended-pay"] <= 1 + told, last


async def begun(ledger: Path, what: str) -> None:
    """Return when *what* stands in the *ledger*."""
    async with asyncio.timeout(PATIENCE):
        while not ledger.exists() or what not in ledger.read_text("utf-8"):  # noqa: ASYNC110  # a file
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("dies", [(), (6,)], ids=["whole", "killed"])
async def test_a_steer_reaches_the_turn_that_goes_on(tmp_path: Path, dies: tuple[int, ...]) -> None:
    ledger = tmp_path / "ledger"
    kept, person = toy(ledger, dies), agent(str(ledger))
    async with person.session("s", kept) as session:
        await session.send(json.dumps([[["look", {"seconds": 0.2}]]]))
        await begun(ledger, "began-look")
        await session.load()
        await session.steer("steer: be quick", id="steer")
        # It came as a signal; the turn of its own finds it done.
        assert len(kept.inbox) == 1
        await kept.settled()
        assert kept.attempts == 2 + len(dies)
        await session.load()
        assert session.result().text == "done steer: be quick"


async def test_an_input_by_an_older_journal_is_sent_again_and_costs_one_turn(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    kept, person = toy(ledger), agent(str(ledger))
    async with person.session("s", kept) as session:
        await session.send(json.dumps([[["look", {"seconds": 0.2}]]]))
        await begun(ledger, "began-look")
        # Not read again: by now the journal has a run, which a steer is for.
        await session.steer("steer: be quick", id="steer")
        assert (kept.refused, len(kept.inbox)) == (1, 1)
        await kept.settled()
        await session.load()
        assert session.result().text == "done steer: be quick"
    found = [decode_entry(entry) for entry in await kept.load("s")]
    assert sum(isinstance(entry, RunOpened) for entry in found) == 1


async def test_an_append_that_would_be_refused_is_refused_with_what_came_first() -> None:
    store = ShelfStore()
    known = await store.append("s", 0, [b"one", b"two"])
    ask = partial(Append, session="s", entries=(b"new",), about=None, at=1.0)

    async def refusal(expected: int, incarnation: str = known) -> object:
        return await Shelf(store.state, str).refusal(ask(expected=expected, incarnation=incarnation))

    assert await refusal(2) is None
    assert await refusal(1) == Conflict(actual=2, entries=(b"two",))
    assert await refusal(0) == Conflict(actual=2, entries=(b"one", b"two"))
    assert await refusal(1, "") == Conflict(actual=2)
    assert await refusal(2, "another") == Gone(begun_anew=True)
    await store.append("s", 2, [b"x" * ANSWER_BYTES])
    assert await refusal(1) == Conflict(actual=3)
    await store.delete("s")
    assert await refusal(3) == Gone(begun_anew=False)
    assert await refusal(3, "") == Conflict(actual=0)


async def test_an_interrupt_reaches_the_turn_that_goes_on(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    kept, person = toy(ledger), agent(str(ledger))
    async with person.session("s", kept) as session:
        await session.send(json.dumps([[["look", {"seconds": 60}]]]))
        await begun(ledger, "began-look")
        await session.load()
        await session.interrupt()
        await kept.settled()
        await session.load()
        assert session.result().reason == "interrupted"


async def test_of_two_people_who_answer_one_question_the_second_is_told(tmp_path: Path) -> None:
    kept, person = toy(tmp_path / "ledger"), agent(str(tmp_path / "ledger"))
    async with person.session("s", kept) as one, person.session("s", kept) as other:
        await one.send(json.dumps([[["ask", {"seconds": 0}]]]))
        await kept.settled()
        await asyncio.gather(one.load(), other.load())
        (question,) = one.waiting
        await one.approve(question.id)
        with pytest.raises(UnknownRequest):
            await other.approve(question.id)
        await kept.settled()
    ended = (tmp_path / "ledger").read_text("utf-8")
    assert ended.count("ended-ask") == 1


async def test_a_question_with_a_deadline_wakes_the_session(tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger")
    kept, person = toy(tmp_path / "ledger"), agent(ledger)
    made = attrs.evolve(agent(ledger), policy=Policy(answer_within=60.0))
    kept.work = lambda name: TurnWork(made, name, 5.0)
    async with person.session("s", kept) as session:
        await session.send(json.dumps([[["ask", {"seconds": 0}]]]))
        await kept.settled()
    (wake,) = kept.wakes
    assert 50 < wake <= 60


async def test_a_caller_that_asks_for_what_cannot_be_is_told(tmp_path: Path) -> None:
    made = attrs.evolve(agent(str(tmp_path / "ledger")), performers={})
    kept = ToyObject(lambda name: TurnWork(made, name, 5.0))
    async with made.session("s", kept) as session:
        await session.send("hello")
        with pytest.raises(ConfigError, match="key"):
            await kept.settled()


async def test_a_worker_that_drains_leaves_the_run_to_the_next_one(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    made, other = agent(str(ledger)), agent(str(ledger))
    works = iter([made, other])
    kept = ToyObject(lambda name: TurnWork(next(works), name, 5.0))
    async with other.session("s", kept) as session:
        await session.send(json.dumps([[["pay", {"seconds": 0.2}]], [["pay", {"seconds": 0}]]]))
        await begun(ledger, "began-pay")
        await made.drain()
        await kept.settled()
        await session.load()
        assert session.result().text == "done"
    # The first tool came to its end, the second one was begun by the other worker: none is in doubt.
    assert ledger.read_text("utf-8").count("ended-pay") == 2
    assert kept.attempts == 2
    assert not any(b"tool_lost" in entry for entry in await kept.load("s"))


async def test_a_turn_whose_journal_is_newer_than_its_code_calls_for_another_one(
    tmp_path: Path,
) -> None:
    ledger = tmp_path / "ledger"
    kept = toy(ledger)
    async with agent(str(ledger)).session("s", kept) as session:
        await session.send(json.dumps([[["look", {"seconds": 60}]]]))
        await begun(ledger, "began-look")
        newer = b'{"v":%d,"type":"NotKnownHere"}' % (VERSION + 1)
        length = len(await kept.load("s"))
        await kept.append("s", length, [newer])
        async with asyncio.timeout(PATIENCE):
            await kept.settled()
        # The turn, and the one that the input began, in case none had taken it.
        assert set(kept.wakes) == {NEWER_CODE}
        assert [*await kept.load("s", length)] == [newer]
        assert "ended-look" not in ledger.read_text("utf-8")


# The journals in the state of an object


@pytest.mark.parametrize("check", checks(Lasts.WHILE_OPEN), ids=str)
async def test_the_store_keeps_its_promises(check: Check) -> None:
    await check(ShelfStore)


async def test_a_long_journal_is_read_in_pages() -> None:
    draw, store, written = random.Random(7), ShelfStore(), list[bytes]()
    while len(written) < 15 * PAGE_ENTRIES:
        some = [draw.randbytes(draw.choice([0, 10, 4_000, 4_001])) for _ in range(draw.choice([1, 1, 2, 70]))]
        await store.append("s", len(written), some)
        written += some
        start = draw.randrange(len(written) + 2)
        assert [*await store.load("s", start)] == written[start:]
    # One alone is large.
    alone = [key for key in store.state.values if key.startswith("entry/")]
    assert len(alone) == sum([len(entry) > SMALL_ENTRY for entry in written])
    await store.delete("s")
    assert store.state.values == {}


async def test_a_long_journal_is_read_in_few_exchanges() -> None:
    store = ShelfStore()
    await store.append("s", 0, [str(number).encode() for number in range(1_000)])
    store.state.exchanges = 0
    await store.load("s", 750)
    # How long it is, and thirty-two pages.
    assert store.state.exchanges == 3
    await store.append("s", 1_000, [bytes(SMALL_ENTRY + 1)] * 200)
    store.state.exchanges = 0
    assert len(await store.load("s", 1_000)) == 200
    # Twenty-five pages, and their entries.
    assert store.state.exchanges == 5


async def test_an_answer_ends_before_it_is_too_large_for_a_message() -> None:
    store, size = ShelfStore(), ANSWER_BYTES // 2
    written = [bytes([number]) * size for number in range(3)] + [bytes(MOST_APPENDED)] * 2
    for number, entry in enumerate(written):
        await store.append("s", number, [entry])
    answers = list[int]()
    while sum(answers) < len(written):
        found = await Shelf(store.state, str).answer(Load(session="s", start=sum(answers), incarnation=""))
        assert isinstance(found, Bodies)
        assert [*found.bodies] == written[sum(answers) : sum(answers) + len(found.bodies)]
        answers.append(len(found.bodies))
        assert found.more == (sum(answers) < len(written))
    assert answers == [2, 1, 1, 1]


async def test_an_append_of_a_turn_keeps_two_keys_and_reads_none() -> None:
    kept, entries = Kept(), [str(number).encode() for number in range(3 * PAGE_ENTRIES)]
    first, second = entries[: PAGE_ENTRIES + 2], entries[PAGE_ENTRIES + 2 :]
    for begun, turn in ((0, first), (len(first), second)):
        shelf, kept.reads, kept.changes = Shelf(kept, lambda: "made"), 0, 0
        for number, entry in enumerate(turn, begun):
            ask = Append(session="s", expected=number, entries=(entry,), about=None, incarnation="", at=0.0)
            await shelf.answer(ask)
        # How long the journal is, and the page that an earlier turn began.
        assert kept.reads == (2 if begun else 1)
        assert kept.changes == 2 * len(turn)
    found = await Shelf(kept, lambda: "none").answer(Load(session="s", start=0, incarnation=""))
    assert isinstance(found, Bodies)
    assert [*found.bodies] == entries


async def test_a_page_that_grows_while_it_is_read_is_read_as_far_as_it_was_known() -> None:
    state, written = Kept(), [str(number).encode() for number in range(PAGE_ENTRIES)]
    writer, reader = Shelf(state, lambda: "one"), Shelf(state, str)
    append = partial(Append, session="s", about=None, incarnation="", at=0.0)
    await writer.answer(append(expected=0, entries=tuple(written[:-1])))
    # It knows by now how long the journal is.
    await reader.info("s")
    await writer.answer(append(expected=PAGE_ENTRIES - 1, entries=(written[-1],)))
    found = await reader.answer(Load(session="s", start=3, incarnation=""))
    assert isinstance(found, Bodies)
    assert [*found.bodies] == written[3:-1]


async def test_an_entry_of_a_page_that_the_journal_does_not_have_is_replaced() -> None:
    """A turn that is killed between its two changes has kept the page, and not how long the journal is."""
    state = Kept()
    append = partial(Append, session="s", about=None, incarnation="", at=0.0)
    await Shelf(state, lambda: "one").answer(append(expected=0, entries=(b"0", b"1")))
    before = state.values["info/s"]
    await Shelf(state, str).answer(append(expected=2, entries=(b"lost",)))
    state.values["info/s"] = before
    after = Shelf(state, str)
    for number in (2, 3):
        await after.answer(append(expected=number, entries=(b"%d" % number,)))
    found = await Shelf(state, str).answer(Load(session="s", start=0, incarnation=""))
    assert isinstance(found, Bodies)
    assert found.bodies == (b"0", b"1", b"2", b"3")


async def test_what_is_written_at_the_same_time_is_one_step_as_far_as_a_message_may_hold_it() -> None:
    store = TurnStore()
    sizes = (MOST_APPENDED // 2, MOST_APPENDED // 2, 1, MOST_APPENDED, 1)
    appends = [
        asyncio.create_task(store.append(f"s.{number}", 0, [bytes(size)]))
        for number, size in enumerate(sizes)
    ]
    await asyncio.sleep(0)
    steps = list[int]()
    while sum(steps) < len(sizes):
        asked = await store.asked(5.0)
        steps.append(len(asked))
        store.answer([Accepted(incarnation="i")] * len(asked))
    assert steps == [2, 1, 1, 1]
    assert await asyncio.gather(*appends) == ["i"] * len(sizes)


@asynccontextmanager
async def answering(store: TurnStore, shelf: Shelf) -> AsyncGenerator[list[str]]:
    """Have *shelf* answer what *store* asks; the kinds of all asks."""
    kinds = list[str]()

    async def answer() -> None:
        while True:
            asked = await store.asked(5.0)
            kinds.extend([type(ask).__name__ for ask in asked])
            store.answer([await shelf.answer(ask) for ask in asked])

    task = asyncio.create_task(answer())
    try:
        yield kinds
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_a_session_is_opened_in_one_step_and_what_only_its_turn_writes_is_read_in_none() -> None:
    store, shelf = TurnStore(), Shelf(Kept(), lambda: "one")
    written = [b"%d" % number for number in range(12)]
    append = partial(Append, session="s", about=None, incarnation="", at=0.0)
    await shelf.answer(append(expected=0, entries=tuple(written[:10])))
    await shelf.answer(KeepCheckpoint(session="s", position=6, body=b"state", first=0, incarnation="one"))
    async with answering(store, shelf) as asked:
        assert await store.checkpoints("s") == (b"state",)
        # A reader begins with the entry that the checkpoint ends with.
        assert [*await store.load("s", 5)] == written[5:10]
        assert [*await store.load("s", 10, None, "one")] == []
        assert await store.append("s", 10, [written[10]], None, "one") == "one"
        assert [*await store.load("s", 11)] == []
        assert asked == ["LoadJournal", "Append"]
        # An input that the turn took in, which the session does not know yet.
        await shelf.answer(append(expected=11, entries=(written[11],)))
        store.wrote("s")
        assert [*await store.load("s", 11)] == written[11:]
        assert [*await store.load("s", 0)] == written
        assert asked[2:] == ["Load", "Load"]


async def test_a_part_of_a_journal_is_read_in_a_step_and_does_not_say_where_the_journal_ends() -> None:
    store, shelf = TurnStore(), Shelf(Kept(), lambda: "one")
    written = [b"%d" % number for number in range(10)]
    append = partial(Append, session="s", about=None, incarnation="", at=0.0)
    await shelf.answer(append(expected=0, entries=tuple(written)))
    async with answering(store, shelf) as asked:
        assert [*await store.load("s")] == written
        assert [*await store.load("s", 2, 4)] == written[2:4]
        assert [*await store.load("s", 4, 3)] == []
        assert [*await store.load("s", 10)] == []
        assert asked == ["Load", "Load", "Load"]
        assert await store.end(["s"], None)


async def test_a_part_of_a_journal_reads_no_other_pages() -> None:
    kept = Kept()
    written = [b"%d" % number for number in range(40 * PAGE_ENTRIES)]
    append = partial(Append, session="s", about=None, incarnation="", at=0.0)
    await Shelf(kept, lambda: "one").answer(append(expected=0, entries=tuple(written)))
    reader, kept.reads = Shelf(kept, str), 0
    part = range(3 * PAGE_ENTRIES - 1, 5 * PAGE_ENTRIES)
    found = await reader.answer(Load(session="s", start=part.start, end=part.stop, incarnation=""))
    assert isinstance(found, Bodies)
    assert [*found.bodies] == [written[number] for number in part]
    assert not found.more
    # How long the journal is, and three pages.
    assert kept.reads == 1 + 3


async def test_a_turn_asks_again_for_a_journal_of_which_it_was_refused() -> None:
    store, shelf = TurnStore(), Shelf(Kept(), lambda: "one")
    await shelf.answer(
        Append(session="s", expected=0, entries=(b"0", b"1"), about=None, incarnation="", at=0.0)
    )
    async with answering(store, shelf):
        assert [*await store.load("s", 0)] == [b"0", b"1"]
        with pytest.raises(StoreConflict):
            await store.append("s", 1, [b"2"])
        assert [*await store.load("s", 1)] == [b"1"]
        with pytest.raises(SessionGone):
            await store.load("s", 2, None, "another")
        store.leave()
        with pytest.raises(StoreError, match="the store is closed"):
            await store.load("s", 2)


async def test_a_journal_that_no_answer_holds_is_opened_in_several_steps() -> None:
    store, shelf = TurnStore(), Shelf(Kept(), lambda: "one")
    written = (bytes(ANSWER_BYTES), b"1", b"2")
    await shelf.answer(Append(session="s", expected=0, entries=written, about=None, incarnation="", at=0.0))
    async with answering(store, shelf) as asked:
        assert await store.checkpoints("s") == ()
        assert tuple(await store.load("s", 0)) == written
        assert asked == ["LoadJournal", "Load"]


async def test_a_checkpoint_that_is_too_large_for_restate_is_not_kept() -> None:
    store = ShelfStore()
    await store.append("s", 0, [b"0", b"1"])
    await store.keep_checkpoint("s", 1, bytes(MOST_KEPT), 0)
    await store.keep_checkpoint("s", 2, bytes(MOST_KEPT + 1), 0)
    assert [len(body) for body in await store.checkpoints("s")] == [MOST_KEPT]


@pytest.mark.parametrize(("size", "gone"), [(SMALL_ENTRY, "page/0/s"), (SMALL_ENTRY + 1, "entry/0/s")])
async def test_a_journal_that_is_deleted_while_it_is_read_is_told_as_changed(size: int, gone: str) -> None:
    state = Kept()
    writer, reader = Shelf(state, lambda: "one"), Shelf(state, str)
    append = Append(session="s", expected=0, entries=(bytes(size),), about=None, incarnation="", at=0.0)
    await writer.answer(append)
    await reader.info("s")
    del state.values[gone]
    with pytest.raises(StoreError, match="session 's' changed while it was read; read it again"):
        await reader.answer(Load(session="s", start=0, incarnation=""))


def test_restate_finds_the_handlers(tmp_path: Path) -> None:
    """In a folder of its own: a checkout may have the name of the SDK."""
    code = """
import asyncio, httpx
from turnwheel import Agent
from turnwheel.apps import RestateWorker
from turnwheel.effects import CallModel
async def main():
    agents = {"assistant": Agent(performers={CallModel: print})}
    app = RestateWorker(agents).app
    key = "publickeyv1_w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f"
    closed = RestateWorker(agents, identity_keys=(key,)).app
    accept = {"accept": "application/vnd.restate.endpointmanifest.v4+json"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker") as client:
        found = await client.get("/discover", headers=accept)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(closed), base_url="http://worker") as client:
        print((await client.get("/discover", headers=accept)).status_code)
    (service,) = found.json()["services"]
    print(service["name"], *sorted(f"{one['name']}:{one['ty']}" for one in service["handlers"]))
    print("at most", service["retryPolicyMaxInterval"], "ms,", service["retryPolicyMaxAttempts"], "times")
asyncio.run(main())
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    handlers = "append:SHARED ask:SHARED delete:EXCLUSIVE settle:EXCLUSIVE turn:EXCLUSIVE"
    # By itself Restate waits for longer and longer, and at last for a person.
    assert shown.stdout == f"401\nassistant {handlers}\nat most 2000 ms, 1000000 times\n"
