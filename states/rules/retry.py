"""Whether and when a failed model call is tried again."""

from __future__ import annotations

from ...effects.config import Config, Retries
from ...effects.events import Failure, ModelFailed
from ...effects.notices import AnswerFailed, FallbackUsed, RetryScheduled
from ...effects.records import UseFallback
from ...effects.requests import SetTimer
from ...effects.usage import Spent

# The provider asks for patience: it is given more tries.
OVERLOADED = frozenset({Failure.RATE_LIMIT, Failure.OVERLOADED})

# May go better the next time. Everything else fails the same way again.
TRANSIENT = frozenset({Failure.SERVER, Failure.TIMEOUT, Failure.CONNECTION, Failure.CUT})

# May go better with another model.
HELPED_BY_FALLBACK = OVERLOADED | TRANSIENT | {Failure.NOT_FOUND, Failure.AUTH}

# After so many a wait is longer than a life, and what is doubled further is no number any more.
DOUBLINGS = 60


def may_fall_back(config: Config, model: str, failed: ModelFailed, delay: float | None) -> bool:
    """
    Whether the fallback model is asked instead of *model*, which *failed*.

    *delay* is how long would be waited otherwise, None where it would not be tried again.
    """
    if config.fallback in {"", model} or failed.failure not in HELPED_BY_FALLBACK:
        return False
    # A short wait is cheaper than another model, which reads the whole conversation without a cache.
    return delay is None or delay > config.retries.fallback_after


def answer_failed(failed: ModelFailed, spent: Spent) -> AnswerFailed:
    """The notice that a model call *failed*, for which *spent* was paid."""
    return AnswerFailed(
        at=failed.at,
        request=failed.request,
        failure=failed.failure,
        message=failed.message,
        usage=spent.usage,
        cost=spent.known_cost,
        seconds=spent.seconds,
    )


def not_waited_for(request: str, at: float) -> ModelFailed:
    """The end of the model call *request* for a person who interrupted it twice."""
    return ModelFailed(at=at, request=request, failure=Failure.CANCELLED, message="interrupted twice")


def fall_back(config: Config, model: str, failed: ModelFailed) -> tuple[UseFallback, FallbackUsed]:
    """The fallback model is asked from now on instead of *model*, which *failed*."""
    return (
        UseFallback(model=config.fallback),
        FallbackUsed(
            model=config.fallback,
            instead_of=model,
            failure=failed.failure,
            message=failed.message,
            at=failed.at,
        ),
    )


def try_later(timer: str, due: float, failed: ModelFailed, attempt: int) -> tuple[SetTimer, RetryScheduled]:
    """What *failed* is tried again at *due*, as attempt number *attempt*: *timer* is the id of the wait."""
    # The wait is a request of its own and not a sleep in the driver, so it survives the process, a person can
    # end it, and a test need not sit it out.
    return (
        SetTimer(id=timer, due=due),
        RetryScheduled(
            at=failed.at,
            request=failed.request,
            attempt=attempt,
            due=due,
            failure=failed.failure,
            message=failed.message,
        ),
    )


def allowed_retries(retries: Retries, failed: ModelFailed) -> int:
    """How many new attempts a failure like *failed* is given."""
    # A provider knows better than a table of kinds whether the same may go better.
    if failed.should_retry is False:
        return 0
    if failed.failure in OVERLOADED:
        # An overload passes, and each try is refused at no cost. A server that fails may fail after it has
        # worked, and is paid for.
        return retries.overloaded
    return retries.failed if failed.should_retry or failed.failure in TRANSIENT else 0


def asked_wait(retries: Retries, failed: ModelFailed) -> float | None:
    """How many seconds the provider asked to wait, no less than our own first wait; None where it did not."""
    # A provider that says "at once", or a moment ago, says nothing: all tries would be spent before it could
    # have become better. The same holds of a wish of a few milliseconds.
    if failed.retry_after is None or failed.retry_after <= 0:
        return None
    return max(failed.retry_after, _bounded(retries, retries.base))


def _bounded(retries: Retries, delay: float) -> float:
    return delay if retries.longest is None else min(delay, retries.longest)


def retry_delay(retries: Retries, failed: ModelFailed, attempt: int) -> float | None:
    """How long to wait, in seconds, after the failure of attempt number *attempt*; None: do not try again."""
    # A lost answer is asked for again at once: it was not refused, and a worker chose to go on. How often,
    # recovery says, which knows of the workers before.
    if failed.failure is Failure.LOST:
        return None if failed.should_retry is False else 0.0
    if attempt > allowed_retries(retries, failed):
        return None
    if (asked := asked_wait(retries, failed)) is not None:
        # The provider knows best, and to ask sooner makes some of them wait longer. But a wait over the
        # longest is an answer by itself: the run ends and says so, instead of hanging until tomorrow.
        return asked if retries.longest is None or asked <= retries.longest else None
    # The jitter is drawn by the performer and comes with the event, since a transition draws nothing.
    backoff = retries.base * 2.0 ** min(attempt - 1, DOUBLINGS) * (1.0 + retries.jitter * failed.jitter)
    return _bounded(retries, backoff)
