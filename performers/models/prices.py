"""
Prices of models, from the list in the package `genai_prices` (the extra ``prices``).

Nothing is fetched over the network: one version of the list gives one price for a model and a day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import attrs

from ...effects.config import ModelSpec, Price
from ...effects.errors import ConfigError
from .providers import PROVIDERS
from .router import DEFAULT_WIRE, wire_of

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice


# The price of a model at a base URL (None: its provider's own); None where the list has no price.
PriceList = Callable[[ModelSpec, str | None], Price | None]

# Marks the source of a price where the provider has several and this is the highest.
DEAREST = "the dearest of its tiers"


def price_of(
    model: str | ModelSpec, base_url: str | None = None, *, now: datetime | None = None
) -> Price | None:
    """
    The price of *model* in the list of `genai_prices`, or None where the list has no such model.

    The provider is the one that the name begins with, or the one at *base_url*; a private server is not in
    the list. The price is the one valid at *now*, by default the present. Its `source` names the version of
    the list, its `date` that day.

    Where a provider has tiers or hours, the price is the highest that the model's window and the day allow.
    So a budget ends a run too early, never too late; give the model a `Price` to override it. One-hour
    caches, searches, pictures and sound are not included.

    Raises `ConfigError` where the package is not installed.
    """
    # A bare name has the default window, and so the price of the tiers below it.
    spec = model if isinstance(model, ModelSpec) else ModelSpec(name=model)
    version, snapshot = _list()
    at = datetime.now(UTC) if now is None else now
    # The list names models as providers do, without the prefix that chooses a wire here.
    wire = wire_of(spec.name)
    name = spec.name.removeprefix(f"{wire}:")
    # A base URL replaces the provider: a name alone would give the provider's price to a private server.
    provider = PROVIDERS[wire or DEFAULT_WIRE].prices if base_url is None else None
    if provider == "":  # a server of the caller's own, or a proxy with models of any provider
        return None
    try:
        found, info = snapshot.find_provider_model(name, None, provider, base_url)
    except LookupError:
        # No price and not an error: a new model can be used before the list knows it.
        return None
    # Several where the day has cheaper hours; the highest of each rate is taken below.
    holding = list(_holding(info, at))
    rates = {key: rate for key, unit in UNITS.items() if (rate := _rate(holding, unit, spec.window))}
    # Without one of the two rates the cost would be too low. So there is no price, and a run with a budget in
    # USD refuses this model.
    if not {"input", "output"} <= rates.keys():
        return None
    source = [f"genai-prices {version}", f"{found.id}/{info.id}"]
    if any(varies for _, varies in rates.values()):
        source.append(DEAREST)
    # A list that updated itself is newer than its package: its own date tells which prices these are.
    date = snapshot.timestamp if snapshot.from_auto_update else at
    amounts = {key: amount for key, (amount, _) in rates.items()}
    return Price(**amounts, source=", ".join(source), date=date.date().isoformat())


def priced(spec: ModelSpec, prices: PriceList | None, first: str, base_url: str | None) -> ModelSpec:
    """
    *spec* with a price: its own, else the one in *prices*.

    *first* is the name of the agent's first model, which is asked at *base_url*.
    """
    # No list is looked up unless the host passed one: a bill must not depend on what happens to be installed.
    if spec.price is not None or prices is None:
        return spec
    # A model of another provider is asked at that provider's own URL, whatever the first one's is.
    wire = wire_of(first) or DEFAULT_WIRE
    same_wire = (wire_of(spec.name) or wire) == wire
    return attrs.evolve(spec, price=prices(spec, base_url if same_wire else None))


# The rates of a `Price`, and their names in the list.
UNITS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
    "reasoning": "output_reasoning_mtok",
}


def _list() -> tuple[str, DataSnapshot]:
    """The version of the list, and its data."""
    try:
        import genai_prices  # noqa: PLC0415  # an extra, and slow to import
        from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415  # as above
    except ModuleNotFoundError as error:
        # A module that is missing inside the package is a broken installation: the hint would mislead.
        if not str(error.name).startswith("genai_prices"):
            raise
        msg = "prices: genai_prices is not installed; pip install 'turnwheel[prices]', or give models a Price"
        raise ConfigError(msg) from error
    return genai_prices.__version__, get_snapshot()


def _holding(info: ModelInfo, at: datetime) -> Iterator[ModelPrice]:
    """The prices of a model that may apply on the day of *at*: the latest, and those by the hour."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint  # noqa: PLC0415  # as above

    if isinstance(info.prices, ModelPrice):
        yield info.prices
        return
    # Prices for certain hours are kept even if they do not hold now: the run may still go on in those hours.
    for each in reversed(info.prices):
        if isinstance(each.constraint, TimeOfDateConstraint):
            yield each.prices
        elif each.constraint is None or each.constraint.active(at):
            yield each.prices
            return


def _rate(holding: list[ModelPrice], unit: str, window: int) -> tuple[Decimal, bool] | None:
    """The highest price of *unit* for *window* tokens, and whether it has others; None where it has none."""
    from genai_prices.types import TieredPrices  # noqa: PLC0415  # as above

    amounts: set[Decimal] = set()
    for price in holding:
        amount = getattr(price, unit)
        if isinstance(amount, TieredPrices):
            # A tier that begins beyond the window is never reached.
            amounts |= {amount.base, *(tier.price for tier in amount.tiers if tier.start < window)}
        # None is a rate that the provider does not charge apart.
        elif amount is not None:
            amounts.add(amount)
    return (max(amounts), len(amounts) > 1) if amounts else None
