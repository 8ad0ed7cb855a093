"""Models: how they are asked, how much they can read, and what they cost."""

from __future__ import annotations

from decimal import Decimal
from typing import final

import attrs

from .checks import as_money, as_money_or_none, not_empty, not_negative, positive

DEFAULT_WINDOW = 200_000
"""Context window in tokens where nothing else is known (the size most current models start at)."""

DEFAULT_OUTPUT_TOKENS = 16_384
"""Output tokens asked for per model call."""

WINDOWS: tuple[tuple[str, int], ...] = (
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("gpt-5", 272_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("claude", 200_000),
    ("gemini", 1_048_576),
    ("deepseek", 128_000),
)
"""
Input tokens that models take whose names begin so, as their providers' pages say (2026-11); the first that
fits counts. A window that is larger for a surcharge or by a header is not counted on.
"""


def window_of(name: str) -> int:
    """The context window, in tokens, of the model called *name*: from `WINDOWS`, else `DEFAULT_WINDOW`."""
    # What stands before is the wire, or whoever resells it: openai:gpt-5, openrouter's anthropic/claude-...
    bare = name.rpartition(":")[2] if name.count(":") == 1 else name
    bare = bare.rpartition("/")[2].lower()
    return next((window for prefix, window in WINDOWS if bare.startswith(prefix)), DEFAULT_WINDOW)


_known = attrs.validators.optional(not_negative)


@final
@attrs.frozen(kw_only=True)
class Price:
    """
    What a model costs, in USD per million tokens; those that are None cost what *input* or *output* do.

    *source* and *date* (YYYY-MM-DD) say where the numbers come from, for whoever checks a bill.
    """

    input: Decimal = attrs.field(converter=as_money, validator=not_negative)
    output: Decimal = attrs.field(converter=as_money, validator=not_negative)
    cached: Decimal | None = attrs.field(default=None, converter=as_money_or_none, validator=_known)
    cache_write: Decimal | None = attrs.field(default=None, converter=as_money_or_none, validator=_known)
    reasoning: Decimal | None = attrs.field(default=None, converter=as_money_or_none, validator=_known)
    source: str = ""
    date: str = ""


def _window(spec: ModelSpec) -> int:
    return window_of(spec.name)


@final
@attrs.frozen(kw_only=True)
class ModelSpec:
    """
    A model and how it is asked. *name* may begin with its wire, as ``openai:gpt-5`` does.

    *window* is how many tokens it can read, by default what is known of its name. *temperature* and
    *max_output* are sent when they are not None. *thinking* is how many tokens it may think, None for what
    the provider does by itself.
    """

    name: str = attrs.field(validator=not_empty)
    window: int = attrs.field(default=attrs.Factory(_window, takes_self=True), validator=positive)
    max_output: int | None = attrs.field(default=DEFAULT_OUTPUT_TOKENS, validator=positive)
    temperature: float | None = None
    thinking: int | None = attrs.field(default=None, validator=positive)
    price: Price | None = None
