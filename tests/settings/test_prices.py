"""Prices from a list that others keep: what they are, whose, from when, and that one's own win."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from turnwheel import Agent, ChildSpec, Limits, ModelSpec, Price
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.requests import CallModel
from turnwheel.effects.usage import Usage, cost
from turnwheel.performers import price_of
from turnwheel.performers.models.prices import priced
from turnwheel.testing.scripted import ScriptedModel, says

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
URL = "https://models.example/v1"


def mtok(**amounts: str | TieredPrices) -> ModelPrice:
    """Prices per million tokens, by their names in the list without their ending."""
    told: dict[str, Any] = {
        f"{name}_mtok": Decimal(amount) if isinstance(amount, str) else amount
        for name, amount in amounts.items()
    }
    return ModelPrice(**told)


def tiers(base: str, **dearer: str) -> TieredPrices:
    """*base*, and what is asked beyond so many thousand tokens: ``k200="3"``."""
    return TieredPrices(
        base=Decimal(base),
        tiers=[Tier(start=int(start[1:]) * 1000, price=Decimal(price)) for start, price in dearer.items()],
    )


def since(day: date, price: ModelPrice) -> ConditionalPrice:
    return ConditionalPrice(StartDateConstraint(day), prices=price)


def by_night(price: ModelPrice) -> ConditionalPrice:
    return ConditionalPrice(TimeOfDateConstraint(time(4, tzinfo=UTC), time(8, tzinfo=UTC)), prices=price)


MODELS: dict[str, ModelPrice | list[ConditionalPrice]] = {
    "plain": mtok(input="1", output="2"),
    "whole": mtok(input="1", output="2", cache_read="0.1", cache_write="1.25", output_reasoning="3"),
    "tiered": mtok(input=tiers("1", k200="2", k500="9"), output=tiers("4", k200="8"), cache_read="0.1"),
    "nightly": [
        ConditionalPrice(prices=mtok(input="4", output="4")),
        by_night(mtok(input="1", output="9")),
    ],
    "changed": [
        ConditionalPrice(prices=mtok(input="9", output="9")),
        by_night(mtok(input="8", output="8")),
        since(date(2026, 1, 1), mtok(input="2", output="2")),
        since(date(2027, 1, 1), mtok(input="1", output="1")),
    ],
    "embeds": mtok(input="1"),
    "free": mtok(input="0", output="0"),
}


@pytest.fixture
def _list() -> Iterator[None]:
    """A list of our own in the place of the one that is installed."""
    models = [ModelInfo(id=name, match=ClauseEquals(name), prices=prices) for name, prices in MODELS.items()]
    ours = [
        Provider(id="openai", name="OpenAI", api_pattern=r"https://api\.openai\.com", models=models),
        Provider(id="shop", name="Shop", api_pattern=r"https://shop\.example", models=models[:1]),
    ]
    set_custom_snapshot(DataSnapshot(providers=ours, from_auto_update=False))
    yield
    set_custom_snapshot(None)


def amounts(price: Price | None) -> tuple[str | None, ...]:
    assert price is not None
    five = (price.input, price.output, price.cached, price.cache_write, price.reasoning)
    return tuple([None if each is None else str(each) for each in five])


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("openai:plain", ("1", "2", None, None, None)),
        ("plain", ("1", "2", None, None, None)),
        ("whole", ("1", "2", "0.1", "1.25", "3")),
        ("free", ("0", "0", None, None, None)),
        # Of tiers, the highest that the window reaches: by default 200,000 tokens, and no more.
        ("tiered", ("1", "4", "0.1", None, None)),
        (ModelSpec(name="tiered", window=200_001), ("2", "8", "0.1", None, None)),
        (ModelSpec(name="tiered", window=1_000_000), ("9", "8", "0.1", None, None)),
        # By the hour, the highest of the day; by the day, the one that holds.
        ("nightly", ("4", "9", None, None, None)),
        ("changed", ("2", "2", None, None, None)),
    ],
)
def test_a_price_is_what_the_list_says_at_the_most(
    model: str | ModelSpec, told: tuple[str | None, ...]
) -> None:
    assert amounts(price_of(model, now=NOON)) == told


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize("model", ["unknown", "embeds", "anthropic:plain", "openai:shop/plain"])
def test_what_the_list_does_not_know_has_no_price(model: str) -> None:
    assert price_of(model, now=NOON) is None


@pytest.mark.usefixtures("_list")
@pytest.mark.parametrize(
    ("url", "source"),
    [
        ("https://api.openai.com/v1", "openai/plain"),
        ("https://shop.example/api", "shop/plain"),
        ("http://localhost:11434/v1", None),
    ],
)
def test_a_server_asks_for_what_its_owner_asks(url: str, source: str | None) -> None:
    price = price_of("openai:plain", url, now=NOON)
    assert (price and price.source.partition(", ")[2]) == source


@pytest.mark.usefixtures("_list")
def test_a_price_says_where_it_is_from() -> None:
    plain, tiered = price_of("plain", now=NOON), price_of(ModelSpec(name="tiered", window=300_000), now=NOON)
    assert plain is not None
    assert tiered is not None
    assert plain.source.startswith("genai-prices ")
    assert plain.source.endswith(", openai/plain")
    assert plain.date == "2026-11-21"
    assert tiered.source.endswith(", openai/tiered, the dearest of its tiers")


def test_a_list_that_was_fetched_has_its_own_date() -> None:
    model = ModelInfo(id="m", match=ClauseEquals("m"), prices=mtok(input="1", output="1"))
    openai = Provider(id="openai", name="OpenAI", api_pattern="x", models=[model])
    fetched = datetime(2026, 11, 20, tzinfo=UTC)
    set_custom_snapshot(DataSnapshot(providers=[openai], from_auto_update=True, timestamp=fetched))
    try:
        price = price_of("m", now=NOON)
    finally:
        set_custom_snapshot(None)
    assert price is not None
    assert price.date == "2026-11-20"


def test_the_list_that_is_installed_knows_what_it_says() -> None:
    gpt, claude = price_of("openai:gpt-4o", now=NOON), price_of("anthropic:claude-sonnet-4-5", now=NOON)
    assert amounts(gpt)[:3] == ("2.5", "10", "1.25")
    assert amounts(claude)[:4] == ("3", "15", "0.3", "3.75")
    assert gpt is not None
    assert cost(Usage(input=1_000_000, cached=400_000, output=100_000), gpt) == Decimal(3)


# The agent


def three_a_token(spec: ModelSpec, base_url: str | None) -> Price | None:
    """A list of one's own: it knows all models but one, and where they are asked."""
    return None if spec.name == "openai:mystery" else Price(input=3, output=3, source=base_url or "provider")


async def test_a_run_costs_what_the_list_says() -> None:
    agent = Agent(
        model="openai:a",
        limits=Limits(usd=1),
        prices=three_a_token,
        performers={CallModel: ScriptedModel(says("ok"))},
    )
    result = await agent.run("go")
    assert result.spent.cost == Decimal("0.000045")
    # The list is asked for the others too: models, the fallback and children's, at the address there is.
    agent = Agent(
        model=ModelSpec(name="openai:a", price=Price(input=1, output=1)),
        models=["openai:b", "openai:mystery"],
        fallback="anthropic:c",
        children=[ChildSpec(name="x", model=ModelSpec(name="d")), ChildSpec(name="y")],
        base_url="http://here",
        prices=three_a_token,
    )
    sources = [spec.price and spec.price.source for spec in (agent.config.model, *agent.config.models)]
    assert sources == ["", "http://here", None, "provider"]
    child, other = (each.model for each in agent.config.children)
    assert (child and child.price and child.price.source, other) == ("http://here", None)
    with pytest.raises(ConfigError, match="a limit in USD needs a price for 'openai:mystery'"):
        Agent(model="openai:mystery", limits=Limits(usd=1), prices=three_a_token)


# Weight


def test_the_list_is_imported_when_it_is_asked_only_and_fetches_nothing() -> None:
    code = (
        "import sys, turnwheel\n"
        "turnwheel.Agent()\n"
        "print('genai_prices' in sys.modules)\n"
        "sys.addaudithook(lambda event, _: event.startswith('socket.connect') and sys.exit(3))\n"
        "from turnwheel.performers import price_of; print(price_of('openai:gpt-5') is not None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "False\nTrue\n"


def test_without_the_list_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("genai_prices")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ValueError, match=r"prices: genai_prices is not installed; pip install 'turnwheel\[prices\]', or"
    ):
        price_of("gpt-5")


def test_a_list_that_is_installed_and_broken_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("genai_prices")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ModuleNotFoundError, match="pydantic"):
        price_of("gpt-5")


@pytest.mark.parametrize(
    ("first", "name", "asked"),
    [
        # The wire of a name without one is that of the first model, or else OpenAI's.
        ("anthropic:a", "b", URL),
        ("anthropic:a", "anthropic:b", URL),
        ("anthropic:a", "openai:b", None),
        ("a", "openai:b", URL),
        ("a", "anthropic:b", None),
        ("a", "b", URL),
    ],
)
def test_a_price_is_that_of_the_url_at_which_the_model_is_asked(first: str, name: str, asked: str) -> None:
    urls: list[str | None] = []
    priced(ModelSpec(name=name), lambda _, url: urls.append(url), first, URL)
    assert urls == [asked]
