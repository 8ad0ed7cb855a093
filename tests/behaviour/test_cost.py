"""What a run costs: what is counted, at which price, and who may use how much."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from turnwheel import (
    ChildSpec,
    Compaction,
    DoneReason,
    Limits,
    ModelSpec,
    Price,
    price_of,
    tool,
)
from turnwheel.effects.errors import ConfigError, UnknownSession
from turnwheel.effects.events import Failure
from turnwheel.effects.notices import (
    CompactionStarted,
    TextDelta,
    ToolOutput,
    TurnEnded,
)
from turnwheel.effects.usage import Spent, Usage
from turnwheel.engine.session.archive import costs
from turnwheel.testing.scripted import calls, fails, says

if TYPE_CHECKING:
    from behaviour.conftest import Stage

PRICED = ModelSpec(name="scripted", price=Price(input=1, output=2))
"""Costs 0.00002 USD an answer, as scripts have them where nothing else is said: 10 tokens in, 5 out."""

ANSWER = Decimal("0.00002")
SCOUT = ChildSpec(name="scout")


@pytest.mark.behaviour("each-answer-is-paid-once")
@pytest.mark.parametrize("at", [ToolOutput, TurnEnded, TextDelta])
async def test_a_lost_process_makes_no_answer_cheaper_or_dearer(stage: Stage, at: type) -> None:
    """What was finished is paid once, whoever goes on; of an answer that was lost it is estimated."""
    session = stage.session(calls(("dig", {}), text="so"), says("lost"), model=PRICED)
    await stage.leave(session, "go", at)
    stage.release()

    script = (calls(("dig", {}), text="so"), says("done")) if at is TextDelta else (says("done"),)
    result = await stage.session(*script, model=PRICED).resume()
    lost = result.spent.usage.estimated
    assert (result.text, result.spent.turns) == ("done", 2)
    assert result.spent.usage.total - lost == 2 * 15
    assert bool(lost) is (at is TextDelta)


@pytest.mark.behaviour("each-answer-is-paid-once")
async def test_the_sum_is_that_of_all_answers_of_whichever_model_for_whatever(stage: Stage) -> None:
    """Turns, what was called in vain, a summary, a child and who took over, each at its own price."""
    small = ModelSpec(name="small", price=Price(input="0.1", output="0.1"))
    clerk = ModelSpec(name="clerk", price=Price(input=10, output=10))
    helper = ModelSpec(name="helper", price=Price(input=3, output=3))
    main = ModelSpec(name="scripted", window=1_000, price=Price(input=1, output=2))
    wishes = calls(("run_agent", {"agent": "scout", "prompt": "find"}), usage=Usage(input=900, output=50))
    session = stage.session(
        *(wishes, says("here"), fails(Failure.AUTH), says("done")),
        model=main,
        models=[clerk],
        fallback=helper,
        compaction=Compaction(model="clerk"),
        children=[ChildSpec(name="scout", model=small)],
    )
    result = await stage.play(session, "tell me " * 150)

    asked = [request.model for request in stage.model.requests]
    assert asked == ["scripted", "small", "clerk", "scripted", "helper"]
    assert result.spent.cost == Decimal("0.001") + Decimal("0.0000015") + 15 * Decimal("0.00001") + Decimal(
        "0.000045"
    )
    assert result.spent.usage.total == 950 + 3 * 15
    assert len(stage.seen(CompactionStarted)) == 1


@pytest.mark.behaviour("each-kind-of-token-has-its-price")
@pytest.mark.parametrize(
    ("price", "usage", "cost"),
    [
        (Price(input=3, output=15), Usage(input=1_000_000), "3"),
        (Price(input=3, output=15), Usage(output=1_000_000), "15"),
        (Price(input=3, output=15), Usage(input=2_000, output=1_000), "0.021"),
        (Price(input=3, output=15, cached="0.3"), Usage(input=1_000, cached=900), "0.00057"),
        (Price(input=3, output=15), Usage(input=1_000, cached=900), "0.003"),
        (Price(input=3, output=15, cache_write="3.75"), Usage(input=1_000, cache_write=800), "0.0036"),
        (Price(input=3, output=15, reasoning=5), Usage(output=1_000, reasoning=800), "0.007"),
        (Price(input=3, output=15), Usage(output=1_000, reasoning=800), "0.015"),
        (Price(input=0, output=0), Usage(input=1_000, output=1_000), "0"),
    ],
    ids=[
        *("input", "output", "both", "cached", "cached as input", "cache write", "reasoning"),
        *("reasoning as output", "free"),
    ],
)
async def test_what_an_answer_costs(stage: Stage, price: Price, usage: Usage, cost: str) -> None:
    """A price of its own for what was cached, written to a cache or thought, where it has one."""
    model = ModelSpec(name="scripted", price=price)
    result = await stage.session(says("done", usage=usage), model=model).run("go")
    assert (result.spent.cost, result.spent.unpriced) == (Decimal(cost), 0)


@pytest.mark.behaviour("what-has-no-price-is-told")
async def test_tokens_without_a_price_are_counted_and_said_to_have_none(stage: Stage) -> None:
    """So nobody takes the sum for the whole."""
    other = ModelSpec(name="scout's own")
    script = (calls(("run_agent", {"agent": "scout", "prompt": "find"})), says("here"), says("done"))
    children = [ChildSpec(name="scout", model=other)]
    result = await stage.session(*script, model=PRICED, children=children).run("go")
    assert result.spent == Spent(
        turns=2, usage=Usage(input=30, output=15), cost=2 * ANSWER, unpriced=15, seconds=0.0
    )


@pytest.mark.behaviour("what-has-no-price-is-told")
@pytest.mark.parametrize(
    "settings",
    [
        {"limits": Limits(usd=1)},
        {"session_limits": Limits(usd=1)},
        {"children": [ChildSpec(name="scout", limits=Limits(usd=1))]},
        {"model": PRICED, "models": ["other"], "limits": Limits(usd=1)},
        {"model": PRICED, "fallback": "other", "limits": Limits(usd=1)},
        {
            "model": PRICED,
            "children": [ChildSpec(name="s", model=ModelSpec(name="other"))],
            "limits": Limits(usd=1),
        },
    ],
    ids=["a run", "a session", "a child", "another model", "who takes over", "a child's model"],
)
def test_a_budget_of_money_needs_the_price_of_every_model(stage: Stage, settings: dict[str, Any]) -> None:
    """Else it would be spent unseen. The error names the model."""
    with pytest.raises(ConfigError, match=r"a limit in USD needs a price for '(scripted|other)'"):
        stage.agent(**settings)


@pytest.mark.behaviour("a-session-has-a-budget")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(tokens=40), DoneReason.TOKEN_BUDGET),
        (Limits(usd="0.00005"), DoneReason.MAX_BUDGET),
        (Limits(turns=3), DoneReason.MAX_TURNS),
    ],
)
async def test_the_runs_of_a_session_share_its_budget(
    stage: Stage, limits: Limits, reason: DoneReason
) -> None:
    """Over processes: a run that begins with it used up makes no call and says why."""
    script = (says("one"), says("two"), says("three"))
    async with stage.session(*script, model=PRICED, session_limits=limits) as session:
        assert [(await session.run(prompt)).text for prompt in ("a", "b", "c")] == ["one", "two", "three"]
    result = await stage.session(says("never"), model=PRICED, session_limits=limits).run("d")
    assert (result.reason, stage.asked, result.spent) == (reason, 0, Spent())

    more = Limits(tokens=1_000)
    assert (await stage.session(says("four"), model=PRICED, session_limits=more).run("e")).text == "four"


@pytest.mark.behaviour("a-session-has-a-budget")
async def test_the_account_of_a_run_is_its_own(stage: Stage) -> None:
    """Its limits count what it used, and so does its result."""
    session = stage.session(
        says("one"), calls(("look", {})), says("two"), model=PRICED, limits=Limits(tokens=31)
    )
    first, second = await session.run("a"), await session.run("b")
    assert (first.spent.usage.total, second.spent.usage.total) == (15, 30)
    assert (second.text, second.spent.cost) == ("two", 2 * ANSWER)


@pytest.mark.behaviour("a-session-has-a-budget")
async def test_what_a_session_has_left_is_all_that_its_children_get(stage: Stage) -> None:
    """A run without limits of its own is bound by it, and so are its children."""
    script = (
        *(
            says("one", usage=Usage(input=60, output=5)),
            calls(("run_agent", {"agent": "scout", "prompt": "x"})),
        ),
        *(calls(("look", {}), usage=Usage(input=15, output=10)), says("never")),
    )
    session = stage.session(*script, children=[SCOUT], session_limits=Limits(tokens=100))
    await session.run("a")
    result = await session.run("b")
    assert (result.reason, stage.asked, stage.ran) == (DoneReason.TOKEN_BUDGET, 3, [])


@pytest.mark.behaviour("a-price-says-where-it-is-from")
def test_a_price_says_where_it_is_from_and_of_when(stage: Stage) -> None:
    """For whoever checks a bill."""
    price = Price(input=1, output=2, source="https://openai.com/api/pricing", date="2026-11-01")
    agent = stage.agent(model=ModelSpec(name="scripted", price=price))
    assert (agent.model.price and agent.model.price.source, price.date) == (price.source, "2026-11-01")


@pytest.mark.behaviour("a-price-says-where-it-is-from")
@pytest.mark.parametrize("amount", ["-1", "a lot", "nan", "inf"])
@pytest.mark.parametrize("kind", ["input", "output", "cached", "cache_write", "reasoning"])
def test_a_price_is_an_amount(kind: str, amount: str) -> None:
    """What is none is refused, with what it was."""
    told: dict[str, Any] = {"input": 1, "output": 1, kind: amount}
    with pytest.raises(ConfigError, match=amount):
        Price(**told)


@pytest.mark.behaviour("a-price-says-where-it-is-from")
def test_prices_are_looked_up_where_one_asks_for_it_and_ones_own_win(stage: Stage) -> None:
    """A bill must not depend on what happens to be installed."""
    own = ModelSpec(name="openai:gpt-4o", price=Price(input=1, output=2, source="contract"))
    children = [ChildSpec(name="scout", model=ModelSpec(name="openai:gpt-4o-mini"))]
    plain = stage.agent(model="openai:gpt-4o")
    asked = stage.agent(model=own, models=["openai:gpt-4o-mini"], children=children, prices=price_of)

    assert plain.config.model.price is None
    assert asked.config.model.price == own.price
    looked_up = asked.config.models[0].price
    assert looked_up is not None
    assert asked.config.children[0].model is not None
    assert asked.config.children[0].model.price == looked_up
    assert (looked_up.input > 0, looked_up.output > looked_up.input) == (True, True)
    assert "genai-prices" in looked_up.source
    assert len(looked_up.date) == len("2026-11-01")


@pytest.mark.behaviour("a-price-says-where-it-is-from")
@pytest.mark.parametrize(
    ("model", "url"), [("openai:nobody-knows-it", None), ("openai:gpt-4o", "http://localhost:8000/v1")]
)
def test_a_model_that_the_list_does_not_know_has_no_price(model: str, url: str | None) -> None:
    """Nor one behind a server of one's own, which asks for what it likes."""
    assert price_of(model, url) is None


# The bill


@pytest.mark.behaviour("a-bill-is-per-session-child-and-model")
async def test_a_report_says_what_each_model_and_each_child_used(stage: Stage) -> None:
    """On every branch; the total is what the session says, and what it is without its children is said."""
    small = ModelSpec(name="small", price=Price(input="0.1", output="0.1"))
    script = (
        *(calls(("run_agent", {"agent": "scout", "prompt": "find"})), calls(("look", {})), says("here")),
        *(says("done"), says("more"), says("other")),
    )
    children = [ChildSpec(name="scout", model=small)]
    session = stage.session(*script, model=PRICED, children=children)
    first = await session.run("go")
    await session.run("and?")
    await session.branch(first.run)
    await session.run("or?")

    bill = await costs(stage.store, "s")
    assert (bill.session, bill.title, bill.total) == ("s", "go", session.spent)
    assert (bill.own.turns, bill.own.usage.total, bill.own.cost) == (4, 60, 4 * ANSWER)
    assert [(share.model, share.spent.usage.total) for share in bill.models] == [("scripted", 60)]
    [child] = bill.children
    assert (child.agent, child.own.turns, child.own.cost) == ("scout", 2, Decimal("0.000003"))
    assert [share.model for share in child.models] == ["small"]
    assert bill.total.cost == bill.own.cost + child.own.cost


@pytest.mark.behaviour("a-bill-is-per-session-child-and-model")
async def test_time_that_tools_took_is_no_models(stage: Stage) -> None:
    """It is what is left of a session's own account."""

    @tool(side_effect="read_only")
    async def slow() -> str:
        """Take a minute."""
        stage.clock.move(60.0)
        return "at last"

    await stage.session(calls(("slow", {})), says("done"), tools=[slow]).run("go")
    bill = await costs(stage.store, "s")
    assert (bill.own.seconds, [share.spent.seconds for share in bill.models]) == (60.0, [0.0])


@pytest.mark.behaviour("a-bill-is-per-session-child-and-model")
async def test_a_report_names_the_models_without_a_price(stage: Stage) -> None:
    """And what the title has cost."""
    session = stage.session(says("done"), says("A title"), titles="model")
    await session.run("go")
    for _ in range(30):
        await asyncio.sleep(0)
    bill = await costs(stage.store, "s")
    assert (bill.unpriced, bill.title_spent.usage.total, bill.total.unpriced) == (("scripted",), 15, 30)
    with pytest.raises(UnknownSession):
        await costs(stage.store, "nowhere")
