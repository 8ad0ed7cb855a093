"""The span of a model call that no run makes, such as the one for the title of a session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from opentelemetry.context import attach
from opentelemetry.trace import set_span_in_context

from ...effects import AnswerFailed, Failure, ModelCalled, ModelFinished, SummaryEnded, Usage
from . import conventions as words
from .chat_spans import ChatSpans

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.context import Context
    from opentelemetry.util.types import AttributeValue

    from ...effects import CallModel, ModelFailed, Spent
    from ..base import PerformContext
    from .instruments import Instruments


@final
class SideCall:
    """
    The span of one model call, which *instruments* make with the attributes *shared*.

    It is part of the span in *within*. No notices tell of such a call, so those that `ChatSpans` takes are
    made here.
    """

    def __init__(
        self, instruments: Instruments, shared: dict[str, AttributeValue], within: Context | None
    ) -> None:
        self._chats = ChatSpans(instruments, shared)
        self._within = within
        self._outbox = instruments.outbox

    def began(self, request: CallModel, scene: PerformContext) -> None:
        """Begin the span of *request* now. It is the current one for the rest of the calling task."""
        at = scene.clock.now()
        called = ModelCalled(
            at=at,
            request=request.id,
            model=request.model,
            attempt=1,
            purpose=request.purpose,
            max_output=request.max_output,
        )
        with self._guarded():
            self._chats.asks(called)
            span = self._chats.span(request, scene, self._within)
            if span is not None:
                attach(set_span_in_context(span))

    def ended(self, answer: ModelFinished | ModelFailed, spent: Spent) -> None:
        """End the span with the *answer*, which cost what was *spent*."""
        usage, cost = spent.usage, spent.known_cost
        with self._guarded():
            if isinstance(answer, ModelFinished):
                # As a summary: of that, too, the notice has no text.
                self._chats.answered(
                    SummaryEnded(
                        at=answer.at,
                        request=answer.request,
                        usage=usage,
                        cost=cost,
                        stop=answer.stop,
                        model=answer.model,
                        response=answer.response,
                        first_piece=answer.first_piece,
                    )
                )
                return
            self._failed(
                AnswerFailed(
                    at=answer.at,
                    request=answer.request,
                    failure=answer.failure,
                    message=answer.message,
                    usage=usage,
                    cost=cost,
                )
            )

    def raised(self, request: str, at: float) -> None:
        """End the span of *request* *at* that time, if it is open: its performer raised an error."""
        # Without the text of the error, in which no secrets have been replaced.
        failed = AnswerFailed(
            at=at, request=request, failure=Failure.INTERNAL, message="", usage=Usage(), cost=None
        )
        with self._guarded():
            self._failed(failed)

    def left(self, at: float) -> None:
        """End the span *at* that time, if it is open: the call was cancelled, as the session is closed."""
        with self._guarded():
            self._chats.close(at, {words.RESTING: True})

    def _failed(self, notice: AnswerFailed) -> None:
        self._chats.failed(notice)
        self._chats.settle()

    @contextmanager
    def _guarded(self) -> Generator[None]:
        """Log an error of the block instead of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # the host's tracer is any code
            self._outbox.failed(error)
