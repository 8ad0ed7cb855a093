"""The bill of a session: its own work, its title and its children, down to each model; it adds up."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import attrs
import pytest

from turnwheel import (
    Agent,
    ChildSpec,
    Limits,
    MemoryStore,
    ModelSpec,
    Price,
    Session,
    SetModel,
    tool,
)
from turnwheel.effects.config import Compaction
from turnwheel.effects.errors import JournalError, UnknownSession
from turnwheel.effects.notices import TextDelta
from turnwheel.effects.requests import CallModel, Purpose
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.inspect.costs import Costs
from turnwheel.engine.session.archive import costs
from turnwheel.performers.base import PerformContext
from turnwheel.performers.stores.base import Store
from turnwheel.testing.clocks import AutoClock
from turnwheel.testing.scripted import (
    Reply,
    ScriptedModel,
    calls,
    says,
    stalls,
)

PRICE = Price(input=Decimal(1_000_000), output=Decimal(1_000_000))
"""A dollar a token, so that sums are read at a glance."""

BIG = ModelSpec(name="big", price=PRICE)
SMALL = ModelSpec(name="small", price=Price(input=Decimal(100_000), output=Decimal(100_000)))
FREE = ModelSpec(name="free")


@tool
def pay(amount: int = 1) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(side_effect="read_only")
def look() -> str:
    """Look."""
    return "seen"


class Paid:
    """A model that answers from a script, and requests for a title at a price of their own."""

    def __init__(self, *replies: Reply) -> None:
        self.script = ScriptedModel(*replies)

    async def __call__(self, request: CallModel, scene: PerformContext) -> Any:
        """The next answer."""
        if request.purpose is Purpose.TITLE:
            return await ScriptedModel(says("A Title", usage=Usage(input=100)))(request, scene)
        return await self.script(request, scene)


def made(*replies: Reply, **settings: Any) -> Agent:
    """An agent over a script, with a store of its own unless one is given."""
    given: dict[str, Any] = {
        "model": BIG,
        "performers": {CallModel: Paid(*replies)},
        "store": MemoryStore(),
        "clock": AutoClock(100.0),
        "tools": [pay, look],
    }
    return Agent(**{**given, **settings})


def kept_by(agent: Agent) -> Store:
    """Where *agent* keeps its sessions."""
    assert agent.store is not None
    return agent.store


def spawn(kid: str = "kid") -> Reply:
    """An answer that starts a child."""
    return calls(("run_agent", {"agent": kid, "prompt": "go"}))


def by_model(bill: Costs) -> dict[str, Decimal]:
    """What each model cost, by its name."""
    return {share.model: share.spent.cost for share in bill.models}


def no_turns(spent: Spent) -> Spent:
    """*spent*, as it counts for a parent."""
    return attrs.evolve(spent, turns=0)


async def test_a_session_pays_for_its_runs() -> None:
    """All runs on all branches, at the price of who answered; that is what the session says it spent."""
    agent = made(says("one"), calls(("look", {})), says("two"), says("three"), models=[SMALL])
    async with agent.session("s") as session:
        first = (await session.run("a")).run
        await session.run("b")
        await session.branch(first)
        await session.control(SetModel(model="small"))
        await session.run("c")
        bill = await costs(kept_by(agent), "s")
        assert bill.total == bill.own == session.spent
    assert by_model(bill) == {"big": 45, "small": Decimal("1.5")}
    assert (bill.own.turns, bill.own.cost, bill.unpriced, bill.children) == (4, Decimal("46.5"), (), ())


async def test_a_title_is_on_the_bill_and_is_no_turn() -> None:
    """What it cost stands by itself, and in the sum."""
    agent = made(says("one"), titles="model")
    async with agent.session("s") as session:
        await session.run("a")
        for _ in range(50):
            await asyncio.sleep(0)
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert [bill.title_spent.cost, bill.own.cost, bill.total.cost] == [Decimal(usd) for usd in (100, 15, 115)]
    assert bill.title == "A Title"
    assert bill.total.turns == 1


async def test_a_summary_is_on_the_bill_of_who_made_it() -> None:
    """It is asked of another model here, and is no turn either."""
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
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert by_model(bill) == {"big": 800 + 1200 + 1600, "small": Decimal("1.5")}
    assert bill.total.turns == 3


async def test_children_have_bills_of_their_own() -> None:
    """The parent's own work, each child's, and their sum, which is what the parent's session says."""
    kids = [ChildSpec(name="kid", model=SMALL), ChildSpec(name="other", model=FREE)]
    agent = made(spawn(), says("found"), spawn("other"), says("found too"), says("done"), children=kids)
    async with agent.session("s") as session:
        await session.run("a")
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert (bill.own.turns, bill.own.cost) == (3, Decimal(45))
    assert by_model(bill) == {"big": bill.own.cost}
    assert [(child.agent, child.total.cost, child.total.turns) for child in bill.children] == [
        ("kid", Decimal("1.5"), 1),
        ("other", Decimal(0), 1),
    ]
    assert all(child.session.startswith("s.") for child in bill.children)
    assert (bill.total.cost, bill.total.unpriced, bill.unpriced) == (Decimal("46.5"), 15, ("free",))


async def test_a_child_that_is_not_over_is_on_the_bill_already() -> None:
    """Its parent counts it when it comes back; until then the bill knows more than the parent."""
    agent = made(
        spawn(),
        calls(("pay", {})),
        says("paid"),
        says("done"),
        children=[ChildSpec(name="kid", tools=("pay",))],
    )
    async with agent.session("s") as session:
        await session.run("a")
        bill = await costs(kept_by(agent), "s")
        assert session.spent.cost == bill.own.cost == bill.total.cost / 2 == 15
        for question in session.waiting:
            await session.approve(question.id)
        await session.resume()
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
        assert bill.total.cost == 60


async def test_a_child_that_nobody_waits_for_any_more_is_paid_for() -> None:
    """Interrupted twice, its parent counts what it had told; that is none of the parent's own work."""
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

    agent = made(spawn(), calls(("look", {})), calls(("hang", {})), children=[kid], tools=[look, hang])
    store = kept_by(agent)
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


async def test_a_child_whose_journal_is_gone_is_on_its_parents_bill() -> None:
    """What it came to is known; by which model is not."""
    agent = made(spawn(), says("found"), says("done"), children=[ChildSpec(name="kid", model=SMALL)])
    store = kept_by(agent)
    async with agent.session("s") as session:
        await session.run("a")
        before = await costs(store, "s")
        await store.delete(before.children[0].session)
        bill = await costs(store, "s")
        assert bill.total == before.total == session.spent
    (child,) = bill.children
    assert (child.agent, child.own, child.models) == ("kid", no_turns(before.children[0].own), ())


async def test_a_fork_pays_for_what_it_did_itself() -> None:
    """What was copied, children included, is on the bill of the session it is a fork of."""
    agent = made(
        *(spawn(), says("found"), says("done"), spawn(), says("found"), says("done")),
        children=[ChildSpec(name="kid", model=SMALL)],
        titles="model",
    )
    async with agent.session("s") as session:
        await session.run("a")
        for _ in range(50):
            await asyncio.sleep(0)
        whole = await costs(kept_by(agent), "s")
        fork = await session.fork("t")
        assert (await costs(kept_by(agent), "t")).total == fork.spent == Spent()
        await fork.run("b")
        bill = await costs(kept_by(agent), "t")
        assert bill.total == fork.spent
        assert await costs(kept_by(agent), "s") == whole
    assert [child.session.partition(".")[0] for child in bill.children] == ["t"]
    assert (bill.total.cost, bill.title_spent) == (Decimal("31.5"), Spent())


async def test_a_run_that_was_left_or_interrupted_is_paid_for() -> None:
    """What was streamed is estimated where nobody told, and stands with the model that said it."""
    agent = made(stalls("half an answer"), stalls("and again"), says("done"))
    async with agent.session("s") as session:
        async for notice in session.stream("a"):
            if isinstance(notice, TextDelta):
                await session.interrupt()
                await session.interrupt()
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert bill.total.usage.estimated > 0
    assert by_model(bill) == {"big": bill.total.cost}


async def test_the_time_of_tools_is_of_no_model() -> None:
    """It is in the session's own account, and in no model's."""
    clock = AutoClock(100.0)

    @tool(side_effect="read_only")
    async def wait() -> str:
        """Wait."""
        clock.move(7.0)
        return "waited"

    agent = made(calls(("wait", {})), says("done"), tools=[wait], clock=clock)
    async with agent.session("s") as session:
        await session.run("a")
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert (bill.own.seconds, bill.models[0].spent.seconds) == (7.0, 0.0)


async def test_a_budget_over_all_runs_is_what_the_bill_says() -> None:
    """The limit of a session stops where the bill has reached it."""
    agent = made(*[says("x")] * 5, session_limits=Limits(usd=Decimal(30)))
    async with agent.session("s") as session:
        reasons = [str((await session.run("a")).reason) for _ in range(3)]
        bill = await costs(kept_by(agent), "s")
        assert bill.total == session.spent
    assert (reasons, bill.total.cost) == (["end_turn", "end_turn", "max_budget"], Decimal(30))


async def test_there_is_no_bill_of_nothing() -> None:
    """A session that is not there, or that cannot be read, is an error and no empty bill."""
    store = MemoryStore()
    with pytest.raises(UnknownSession):
        await costs(store, "s")
    await store.append("s", 0, [b"no json"])
    with pytest.raises(JournalError, match="entry 0 of session 's'"):
        await costs(store, "s")


async def test_what_a_session_spent_is_known_without_a_store() -> None:
    """The live session counts all of its runs; a new one has spent nothing."""
    agent = made(says("one"), says("two"), store=None)
    session: Session
    async with agent.session("s") as session:
        assert session.spent == Spent()
        first = await session.run("a")
        second = await session.run("b")
        assert session.spent == first.spent + second.spent
