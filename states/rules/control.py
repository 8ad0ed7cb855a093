"""Whether a setting can be changed while a run is under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...effects.records import SetModel, SetThinking

if TYPE_CHECKING:
    from ...effects.config import Config
    from ...effects.records import Change


def refusal(config: Config, change: Change) -> str:
    """Why *change* cannot be made under *config*; empty where it can."""
    if isinstance(change, SetModel):
        if not change.model.strip():
            return "a model has a name"
        paid = config.limits.usd is not None or config.session_limits.usd is not None
        if paid and config.spec(change.model).price is None:
            return f"the limit in USD needs a price for {change.model!r}: configure it among the models"
    if isinstance(change, SetThinking) and change.tokens is not None and change.tokens <= 0:
        return f"a budget to think is a number of tokens above 0, or None; got {change.tokens!r}"
    return ""
