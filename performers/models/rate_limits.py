"""
Rate limits of the caller's own wish: so many requests and tokens a minute for a model.

Theory of operation. Each limit is a token bucket in a meter, which all processes on one store share. A
request takes its turn and the tokens that it may need before it is sent, in advance where they are not there
yet, and waits until they are. What it really used is known with its answer; the difference is taken or given
back. A wait that is longer than the loop's own patience is none, as in the throttle.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, final

import attrs

from ...effects.errors import WorldError
from ...effects.events import Answer, Failure, ModelFailed, ModelFinished
from ...effects.notices import RequestDelayed
from ...effects.requests import CallModel, Transcript
from ...effects.validators import not_empty, positive, spelled
from ...states.rules.token_estimates import CHARACTERS_PER_TOKEN, history_size
from ..base import PerformContext, Performer
from ..meters import Bucket, MeterChange, change, meters_of, own_meters, taking, taking_after
from ..worker_pool import CancelShield
from .throttle import patience_of

if TYPE_CHECKING:
    from ..stores.base import Store

T = TypeVar("T")

# Tokens that an answer is taken to have before it is known.
EXPECTED_OUTPUT = 500


@final
@spelled
@attrs.frozen
class RateLimit:
    """How many *requests* a *model* gets in a minute, and how many *tokens*, input and output."""

    model: str = attrs.field(validator=not_empty)
    requests: int | None = attrs.field(default=None, validator=positive, kw_only=True)
    tokens: int | None = attrs.field(default=None, validator=positive, kw_only=True)

    @property
    def buckets(self) -> Mapping[str, Bucket]:
        """A bucket for each that is limited."""
        given = {"requests": self.requests, "tokens": self.tokens}
        return {name: Bucket.of_minute(most) for name, most in given.items() if most is not None}


@final
class RateLimiter:
    """Sends requests no faster than *limits* say."""

    def __init__(self, limits: Iterable[RateLimit]) -> None:
        self._buckets = {limit.model: limit.buckets for limit in limits}
        self._own: Store | None = None

    async def ask(
        self, inner: Performer[CallModel], account: str, request: CallModel, scene: PerformContext
    ) -> Answer | None:
        """Perform *request* by *inner* when its turn has come; *account* tells its provider from others."""
        buckets = self._buckets.get(request.model)
        if not buckets:
            return await inner(request, scene)
        name = f"rate {account} {request.model}"
        wants: dict[str, float] = {"requests": 1, "tokens": _estimate(request, scene)}
        shield, taken = CancelShield(), False
        try:
            most = patience_of(request, scene.config)
            wait = await self._change(scene, name, taking(buckets, wants, most))
            if wait > most:
                return _unsent(request, scene, Failure.RATE_LIMIT, f"not sent, since {_REASON}", wait)
            if taken := wait > 0:
                now = scene.clock.now()
                due = now + wait
                scene.emit(RequestDelayed(at=now, request=request.id, due=due, reason=_REASON))
                await scene.clock.sleep_until(due)
        except asyncio.CancelledError:
            shield.absorb()
            if taken:
                back = {what: -amount for what, amount in wants.items()}
                await self._change(scene, name, taking_after(buckets, back))
            return _unsent(request, scene, Failure.CANCELLED, "cancelled")
        answer = await inner(request, scene)
        if "tokens" in buckets:
            more = {"tokens": _used(answer) - wants["tokens"]}
            # The answer is there, so a cancellation comes too late for it.
            with suppress(asyncio.CancelledError):
                await self._change(scene, name, taking_after(buckets, more))
            shield.absorb()
        return answer

    async def _change(self, scene: PerformContext, name: str, work: MeterChange[T]) -> T:
        meters = meters_of(scene.store)
        if meters is not None:
            with suppress(WorldError):
                return await change(meters, name, work)
        # A store that fails ends no run here: this process counts for itself meanwhile.
        if self._own is None:
            self._own = own_meters(scene.clock)
        return await change(self._own, name, work)


_REASON = "the model's own limits allow no more in a minute"


def _estimate(request: CallModel, scene: PerformContext) -> int:
    """How many tokens *request* may use: what it shows and an answer."""
    if isinstance(request.view, Transcript):
        shown = request.view.limit
    elif scene.memory is None:
        shown = history_size(scene.history)
    else:
        shown = scene.memory.conversation.size
    return shown + len(request.system) // CHARACTERS_PER_TOKEN + EXPECTED_OUTPUT


def _used(answer: Answer | None) -> int:
    """How many tokens *answer* used."""
    told = answer.usage if isinstance(answer, ModelFinished | ModelFailed) else None
    return 0 if told is None else told.total


def _unsent(
    request: CallModel, scene: PerformContext, failure: Failure, message: str, wait: float | None = None
) -> ModelFailed:
    """The answer to a *request* that was not sent."""
    return ModelFailed(
        at=scene.clock.now(),
        request=request.id,
        failure=failure,
        message=message,
        retry_after=wait,
        jitter=random.random(),  # noqa: S311  # it spreads retries, it keeps no secret
    )
