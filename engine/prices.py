"""
What models cost, from a list that others keep: `price_of`.

The list comes with the package `genai_prices`, which the extra ``prices`` installs. It is read from there:
nothing is fetched over the network, so the same version of it always says the same of the same day.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from ..effects.config import ModelSpec, Price
from ..effects.errors import ConfigError
from ..performers.models.router import DEFAULT_WIRE, wire_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice


PriceList = Callable[[ModelSpec, str | None], Price | None]
"""What a model costs that is asked at a base URL (None: at its provider's own); None where nobody knows."""

DEAREST = "the dearest of its tiers"
"""Said in a price's source where the provider asks for more at times."""


def price_of(
    model: str | ModelSpec, base_url: str | None = None, *, now: datetime | None = None
) -> Price | None:
    """
    What *model* costs by the list of `genai_prices`, or None where the list has no such model.

    It is looked for at the provider that the name begins with, or at whoever is at *base_url*: a server of
    one's own asks for what it likes, so there None is the answer. The price is the one that holds at *now*,
    by default the present; its `source` names the version of the list and its `date` is that day.

    A provider may ask for more where the context is long, or by the time of day, and a `Price` is one number:
    it is the highest that the model's window and the day allow. So a bill may be too high, and a budget ends
    a run too early, never too late; give the model a `Price` of its own to have it otherwise. What is stored
    in a cache for an hour, searches, pictures and sound are not in it.

    Raises `ConfigError` where the package is not installed.
    """
    spec = model if isinstance(model, ModelSpec) else ModelSpec(name=model)
    known = _list()
    at = datetime.now(UTC) if now is None else now
    wire = wire_of(spec.name)
    name, provider = spec.name.removeprefix(f"{wire}:"), wire or DEFAULT_WIRE
    try:
        found, info = known.snapshot.find_provider_model(
            name, None, provider if base_url is None else None, base_url
        )
    except LookupError:
        return None
    holding = list(_holding(info, at))
    rates = {key: rate for key, unit in UNITS.items() if (rate := _rate(holding, unit, spec.window))}
    if not {"input", "output"} <= rates.keys():
        return None
    said = [f"genai-prices {known.version}", f"{found.id}/{info.id}"]
    if any(rate.varies for rate in rates.values()):
        said.append(DEAREST)
    date = known.snapshot.timestamp if known.snapshot.from_auto_update else at
    amounts = {key: rate.amount for key, rate in rates.items()}
    return Price(**amounts, source=", ".join(said), date=date.date().isoformat())


def priced(spec: ModelSpec, prices: PriceList | None, first: str, base_url: str | None) -> ModelSpec:
    """
    *spec* with a price: its own, else the one that *prices* knows, if there is such a list.

    *first* is the name of the agent's first model, which is asked at *base_url*.
    """
    if spec.price is not None or prices is None:
        return spec
    # A model of another provider is asked at that provider's own URL, whatever the first one's is.
    wire = wire_of(first) or DEFAULT_WIRE
    ours = (wire_of(spec.name) or wire) == wire
    return attrs.evolve(spec, price=prices(spec, base_url if ours else None))


UNITS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "reasoning": "output_reasoning_mtok",
}
"""What a `Price` calls a rate, and what the list does."""


@final
class _List(NamedTuple):
    version: str
    snapshot: DataSnapshot


@final
class _Rate(NamedTuple):
    """The *amount* asked for; *varies*: it is the highest of several."""

    amount: Decimal
    varies: bool


def _list() -> _List:
    try:
        import genai_prices  # noqa: PLC0415  # an extra, and slow to import
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "genai_prices":
            raise
        msg = "prices are read from genai_prices: pip install 'turnwheel[prices]', or give models a Price"
        raise ConfigError(msg) from error
    return _List(genai_prices.__version__, get_snapshot())


def _holding(info: ModelInfo, at: datetime) -> Iterator[ModelPrice]:
    """The prices of a model that may hold on the day of *at*: the latest, and those for some of its hours."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint  # noqa: PLC0415  # as above

    if isinstance(info.prices, ModelPrice):
        yield info.prices
        return
    for each in reversed(info.prices):
        if isinstance(each.constraint, TimeOfDateConstraint):
            yield each.prices
        elif each.constraint is None or each.constraint.active(at):
            yield each.prices
            return


def _rate(holding: list[ModelPrice], unit: str, window: int) -> _Rate | None:
    """What is asked for *unit*, at the most, of a model that reads *window* tokens; None where it is not."""
    from genai_prices.types import TieredPrices  # noqa: PLC0415  # as above

    asked: set[Decimal] = set()
    for price in holding:
        amount = getattr(price, unit)
        if isinstance(amount, TieredPrices):
            asked |= {amount.base, *(tier.price for tier in amount.tiers if tier.start < window)}
        elif amount is not None:
            asked.add(amount)
    return _Rate(max(asked), len(asked) > 1) if asked else None
