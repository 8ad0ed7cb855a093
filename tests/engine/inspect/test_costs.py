"""The bill of a session: its own work, its title and its children, down to each model; it adds up."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

import attrs
import pytest

from turnwheel import ChildSpec, MemoryStore, ModelSpec, Price, Session, SetModel, tool
from turnwheel.effects.config import Compaction
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.notices import TextDelta
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.inspect.archive import costs
from turnwheel.engine.inspect.costs import Costs, ModelCosts
from turnwheel.testing.scripted import Reply, calls, says, stalls

if TYPE_CHECKING:
    from engine.inspect.conftest import Made

PRICE = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))
BIG = ModelSpec(name="big", price=PRICE)
SMALL = ModelSpec(name="small", price=Price(input=Decimal(100_000), output=Decimal(100_000)))
FREE = ModelSpec(name="free")


def spawn(kid: str = "kid") -> Reply:
    return calls(("run_agent", {"agent": kid, "prompt": "go"}))


async def billed(made: Made, session: Session) -> Costs:
    """The bill of *session*, which comes to what the session itself says."""
    bill = await costs(made.store, session.id)
    assert bill.total == session.spent
    return bill


def by_model(bill: Costs) -> dict[str, Decimal]:
    return {share.model: share.spent.cost for share in bill.models}


async def test_a_session_pays_for_its_runs(made: Made) -> None:
    agent = made(says("one"), calls(("look", {})), says("two"), says("three"), models=[SMALL])
    async with agent.session("s") as session:
        first = (await session.run("a")).run
        await session.run("b")
        await session.branch(first)
        await session.control(SetModel(model="small"))
        await session.run("c")
        bill = await billed(made, session)
        assert bill.total == bill.own
    assert by_model(bill) == {"big": 45, "small": Decimal("1.5")}
    assert (bill.own.turns, bill.own.cost, bill.unpriced, bill.children) == (4, Decimal("46.5"), (), ())


async def test_a_summary_is_on_the_bill_of_who_made_it(made: Made) -> None:
    replies = [says("word " * 300, usage=Usage(input=400 * turn, output=400)) for turn in (1, 2, 3)]
    agent = made(
        *replies,
        model=ModelSpec(name="big", price=PRICE, window=1_500),
        models=[SMALL],
        compaction=Compaction(keep=0.3, model="small"),
    )
    async with agent.session("s") as session:
        for prompt in "abc":
            await session.run(prompt)
        assert session.history.revision == 1
        bill = await billed(made, session)
    assert by_model(bill) == {"big": 800 + 1200 + 1600, "small": Decimal("1.5")}
    assert bill.total.turns == 3


async def test_children_have_bills_of_their_own(made: Made) -> None:
    kids = [ChildSpec(name="kid", model=SMALL), ChildSpec(name="other", model=FREE)]
    agent = made(spawn(), says("found"), spawn("other"), says("found too"), says("done"), children=kids)
    async with agent.session("s") as session:
        await session.run("a")
        bill = await billed(made, session)
        # Of a child whose journal is gone it is known what it came to; by which model is not.
        await made.store.delete(bill.children[0].session)
        (less,) = [child for child in (await billed(made, session)).children if child.agent == "kid"]
        assert (less.own, less.models) == (attrs.evolve(bill.children[0].own, turns=0), ())
    assert (bill.own.turns, bill.own.cost) == (3, Decimal(45))
    assert by_model(bill) == {"big": bill.own.cost}
    assert [(child.agent, child.total.cost, child.total.turns) for child in bill.children] == [
        ("kid", Decimal("1.5"), 1),
        ("other", Decimal(0), 1),
    ]
    assert all(child.session.startswith("s.") for child in bill.children)
    assert (bill.total.cost, bill.total.unpriced, bill.unpriced) == (Decimal("46.5"), 15, ("free",))


def test_a_model_without_a_price_is_named_once_in_the_order_of_use() -> None:
    used = Spent(unpriced=5)

    def bill(*models: str, children: tuple[Costs, ...] = ()) -> Costs:
        shares = tuple([ModelCosts(model=model, spent=used) for model in models])
        return Costs(
            session="s",
            title="",
            agent="",
            own=used,
            title_spent=Spent(),
            models=shares,
            children=children,
        )

    assert bill("b", "a", children=(bill("c", "b"), bill("d", "c"))).unpriced == ("b", "a", "c", "d")


async def test_a_child_that_is_not_over_is_on_the_bill_already(made: Made) -> None:
    agent = made(
        spawn(),
        calls(("pay", {})),
        says("paid"),
        says("done"),
        children=[ChildSpec(name="kid", tools=("pay",))],
    )
    async with agent.session("s") as session:
        await session.run("a")
        bill = await costs(made.store, "s")
        assert session.spent.cost == bill.own.cost == bill.total.cost / 2 == 15
        for question in session.waiting:
            await session.approve(question.id)
        await session.resume()
        bill = await billed(made, session)
        assert bill.total.cost == 60


async def test_a_child_that_was_given_up_is_paid_for(made: Made) -> None:
    kid = ChildSpec(name="kid", tools=("look", "hang"), model=SMALL)
    hanging = asyncio.Event()

    @tool(side_effect="read_only", timeout=None)
    async def hang() -> str:
        """Never end."""
        hanging.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()  # it does not stop before it is told twice
        return ""

    agent = made(spawn(), calls(("look", {})), calls(("hang", {})), children=[kid], tools=[*made.tools, hang])
    store = made.store
    async with agent.session("s") as session:
        running = asyncio.ensure_future(session.run("a"))
        await hanging.wait()
        await session.interrupt()
        await session.interrupt()
        await running
        before = await costs(store, "s")
        assert (before.own.cost, by_model(before)) == (Decimal(15), {"big": Decimal(15)})
        assert before.total.cost == session.spent.cost == Decimal(18)
        await store.delete(before.children[0].session)
        assert (await costs(store, "s")).total == session.spent


async def test_a_fork_pays_for_what_it_did_itself(made: Made) -> None:
    agent = made(
        *(spawn(), says("found"), says("done"), spawn(), says("found"), says("done")),
        children=[ChildSpec(name="kid", model=SMALL)],
        titles="model",
    )
    async with agent.session("s") as session:
        await session.run("a")
        for _ in range(50):
            await asyncio.sleep(0)
        whole = await costs(made.store, "s")
        fork = await session.fork("t")
        assert (await billed(made, fork)).total == Spent()
        await fork.run("b")
        bill = await billed(made, fork)
        assert await costs(made.store, "s") == whole
    assert [child.session.partition(".")[0] for child in bill.children] == ["t"]
    assert (bill.total.cost, bill.title_spent) == (Decimal("31.5"), Spent())


async def test_a_run_that_was_left_or_interrupted_is_paid_for(made: Made) -> None:
    agent = made(stalls("half an answer"), stalls("and again"), says("done"))
    async with agent.session("s") as session:
        async for notice in session.stream("a"):
            if isinstance(notice, TextDelta):
                await session.interrupt()
                await session.interrupt()
        bill = await billed(made, session)
    assert bill.total.usage.estimated > 0
    assert by_model(bill) == {"big": bill.total.cost}


async def test_there_is_no_bill_of_nothing() -> None:
    store = MemoryStore()
    with pytest.raises(UnknownSession):
        await costs(store, "s")
    await store.append("s", 0, [b"no json"])
    with pytest.raises(JournalError, match="entry 0 of session 's'"):
        await costs(store, "s")


async def test_what_a_session_spent_is_known_without_a_store(made: Made) -> None:
    agent = made(says("one"), says("two"), store=None)
    session: Session
    async with agent.session("s") as session:
        assert session.spent == Spent()
        first = await session.run("a")
        second = await session.run("b")
        assert session.spent == first.spent + second.spent
