"""How a long run is kept going: failures of models, a context that fills up, a model that goes in circles."""

from __future__ import annotations

from typing import final

import attrs

from .checks import not_negative, positive, share
from .errors import ConfigError


@final
@attrs.frozen(kw_only=True)
class Retries:
    """
    How often a failed model call is tried again, and how long it waits, in seconds.

    The wait before try *n* is ``base * 2**(n-1)``, plus up to *jitter* of itself, and *longest* at most; a
    provider's Retry-After takes its place, unless that is longer than *longest*: then the run ends and says
    so. Where there is a fallback model, it is asked instead of a wait longer than *fallback_after*; a summary
    that nothing forces is given up instead of one.
    """

    overloaded: int = attrs.field(default=8, validator=not_negative)
    failed: int = attrs.field(default=3, validator=not_negative)
    base: float = attrs.field(default=2.0, validator=not_negative)
    jitter: float = attrs.field(default=0.2, validator=not_negative)
    longest: float | None = attrs.field(default=3600.0, validator=positive)
    fallback_after: float = attrs.field(default=10.0, validator=not_negative)


@final
@attrs.frozen(kw_only=True)
class Compaction:
    """
    How a conversation is made smaller; `Policy.compact_at` says when it is summarised.

    *keep* is the share of the window that stays as it is when the rest is summarised, or less where that
    would leave no room to go on. *model* names who summarises, empty for the model in use, in *tokens* at
    most. After *failures* in a row none is tried any more unless it must be.

    Before that, without a model: once there are more than *clear_over* tool results, the model no longer
    sees those before the latest *clear_keep*; None shows it all. Of a result longer than *result_limit*
    characters the conversation holds the beginning and the end; None holds it whole.
    """

    keep: float = attrs.field(default=0.25, validator=share)
    model: str = ""
    tokens: int = attrs.field(default=4_000, validator=positive)
    failures: int = attrs.field(default=3, validator=positive)
    clear_over: int | None = attrs.field(default=15, validator=positive)
    clear_keep: int = attrs.field(default=5, validator=not_negative)
    result_limit: int | None = attrs.field(default=20_000, validator=positive)

    def __attrs_post_init__(self) -> None:
        if self.clear_over is not None and self.clear_keep > self.clear_over:
            most = f"at most clear_over, which is {self.clear_over}"
            msg = f"Compaction.clear_keep must be {most}; got {self.clear_keep!r}"
            raise ConfigError(msg)


@final
@attrs.frozen(kw_only=True)
class Loops:
    """
    What happens to a model that goes in circles: how often it may repeat itself until then. None: never.

    What counts are calls since a person last said something: the same call, whatever came of it; calls that
    are alike and bring nothing new; and cycles of several calls. At *warn* the model is told, in that request
    only. At *withdraw* repetitions without anything new, the tools are not offered for *turns* turns. At
    *stop* the run ends; *same* calls with the same result end it, too.
    """

    warn: int | None = attrs.field(default=3, validator=positive)
    withdraw: int | None = attrs.field(default=5, validator=positive)
    stop: int | None = attrs.field(default=8, validator=positive)
    same: int | None = attrs.field(default=6, validator=positive)
    turns: int = attrs.field(default=3, validator=positive)

    @property
    def off(self) -> bool:
        """Whether nothing is looked for."""
        return self.warn is self.withdraw is self.stop is self.same is None

    @classmethod
    def never(cls) -> Loops:
        """A model may repeat itself for ever."""
        return cls(warn=None, withdraw=None, stop=None, same=None)
