"""The spans of the model calls of a run: one for each call with all its tries."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, final

import attrs

from ...effects import (
    AnswerFailed,
    CallModel,
    Conversation,
    ModelCalled,
    Purpose,
    RetryScheduled,
    SummaryEnded,
    TurnEnded,
    Usage,
    clear_results,
)
from ..models.providers import PROVIDERS
from ..models.router import wire_of
from . import conventions as words
from .instruments import nanoseconds, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from ..base import PerformContext
    from .instruments import Instruments


@attrs.define
class _OpenChat:
    """
    A model is asked since *at*: *called* says how the latest try was.

    *usage*, and *cost* as far as it is known, are those of all tries. *failed* is how the latest ended, where
    it did; *waits*: there will be another one.
    """

    span: Span
    at: float
    called: ModelCalled
    usage: Usage = Usage()
    cost: Decimal | None = None
    failed: AnswerFailed | None = None
    waits: bool = False

    def pays(self, notice: TurnEnded | SummaryEnded | AnswerFailed) -> None:
        """Count what a try used."""
        self.usage += notice.usage
        if notice.cost is not None:
            self.cost = notice.cost + (self.cost or 0)


@final
class ChatSpans:
    """Makes the spans of model calls by *instruments*; *shared* are the attributes that all spans have."""

    def __init__(self, instruments: Instruments, shared: dict[str, AttributeValue]) -> None:
        self.count = 0
        self._instruments = instruments
        self._shared = shared
        self._open: _OpenChat | None = None
        # Those that no performer has begun yet, by request.
        self._called = dict[str, ModelCalled]()

    def asks(self, notice: ModelCalled) -> None:
        """A model is going to be asked, perhaps once more."""
        self._called[notice.request] = notice
        chat = self._open
        if chat is None:
            return
        again = (chat.called.model, chat.called.purpose) == (notice.model, notice.purpose)
        if again and notice.attempt > 1:
            chat.called, chat.failed, chat.waits = notice, None, False
        else:
            self.close(notice.at)

    def span(self, request: CallModel, scene: PerformContext, within: Context | None) -> Span | None:
        """The span of *request*, part of the one in *within*; None for a request that was not noticed."""
        called = self._called.pop(request.id, None)
        if called is not None and self._open is None:
            attributes = {
                **self._shared,
                **model(called.model),
                **_asked_for(called),
                words.OPERATION: words.ASK_MODEL,
                words.OUTPUT_TYPE: "text" if request.output is None else "json",
            }
            # A summary reads what it is going to replace.
            if request.view.revision and isinstance(request.view, Conversation):
                attributes[words.COMPACTED] = True
            name = f"{words.ASK_MODEL} {attributes[words.REQUEST_MODEL]}"
            span = self._instruments.start(name, attributes, called.at, within)
            self._open, self.count = _OpenChat(span, called.at, called), self.count + 1
            if self._instruments.content:
                _show(span, request, scene)
        return None if self._open is None else self._open.span

    def answered(self, notice: TurnEnded | SummaryEnded) -> None:
        """The model answered."""
        chat = self._of(notice.request)
        if chat is None:
            return
        chat.pays(notice)
        chat.failed = None
        about: dict[str, AttributeValue | None] = {
            words.RESPONSE_ID: notice.response,
            words.RESPONSE_MODEL: notice.model,
            words.FINISH_REASONS: [str(notice.stop)],
            words.FIRST_CHUNK: notice.first_piece,
        }
        if self._instruments.content and isinstance(notice, TurnEnded):
            about[words.OUTPUT_MESSAGES] = words.messages_json([notice.message], str(notice.stop))
        self.close(notice.at, told(about), notice.first_piece)

    def failed(self, notice: AnswerFailed) -> None:
        """A try failed."""
        if (chat := self._of(notice.request)) is not None:
            chat.pays(notice)
            chat.failed = notice

    def retried(self, notice: RetryScheduled) -> None:
        """There will be another try."""
        if (chat := self._of(notice.request)) is not None:
            chat.waits = True
            about: dict[str, AttributeValue] = {
                words.ERROR_TYPE: str(notice.failure),
                words.ATTEMPT: notice.attempt,
            }
            chat.span.add_event("turnwheel.retry", about, nanoseconds(notice.at))

    def settle(self) -> None:
        """End the call that failed in this step, and is not tried again."""
        chat = self._open
        if chat is not None and chat.failed is not None and not chat.waits:
            self.close(chat.failed.at)

    def close(
        self,
        at: float,
        attributes: Mapping[str, AttributeValue] | None = None,
        first_piece: float | None = None,
    ) -> None:
        """
        End the open span, if there is one, *at* that time with these *attributes*.

        *first_piece* is the seconds to the first piece of the answer, where it had one.
        """
        chat, self._open = self._open, None
        if chat is None:
            return
        # Where it waited for its next try, it ended with the last one.
        error, message = (str(chat.failed.failure), chat.failed.message) if chat.failed else ("", "")
        used, about = words.tokens(chat.usage), self._measured(chat)
        failed = about | {words.ERROR_TYPE: error} if error else about
        measured = [(words.CHAT_DURATION[0], max(0.0, at - chat.at), failed)]
        if first_piece is not None:
            measured.append((words.CHAT_FIRST_CHUNK[0], first_piece, about))
        if chat.usage.total:
            measured.append((words.CHAT_INPUT[0], chat.usage.input, failed))
            measured.append((words.CHAT_OUTPUT[0], chat.usage.output, failed))
            self._instruments.count(chat.usage, about)
        ended: dict[str, AttributeValue] = {**used, **(attributes or {})}
        if chat.cost is not None:
            ended[words.COST] = float(chat.cost)
        self._instruments.end(chat.span, at, ended, measured, error=error, message=message)

    def _of(self, request: str) -> _OpenChat | None:
        """The open call, where its latest try is *request*."""
        return self._open if self._open is not None and self._open.called.request == request else None

    def _measured(self, chat: _OpenChat) -> dict[str, AttributeValue]:
        names = (words.PROVIDER, words.AGENT_NAME)
        shared = {name: self._shared[name] for name in names if name in self._shared}
        return {**shared, **model(chat.called.model), words.OPERATION: words.ASK_MODEL}


@lru_cache
def model(name: str) -> Mapping[str, AttributeValue]:
    """The model *name*, and its provider where the name begins with one, as attributes."""
    # What stands before a colon may be a part of the model's own name, as in `qwen3:8b`.
    prefix = wire_of(name, PROVIDERS)
    if prefix is None:
        return {words.REQUEST_MODEL: name}
    own_name = name.removeprefix(f"{prefix}:")
    return {words.REQUEST_MODEL: own_name, words.PROVIDER: words.provider_name(prefix)}


def _asked_for(called: ModelCalled) -> dict[str, AttributeValue]:
    """The settings that a model was *called* with."""
    return told(
        {
            words.REQUEST_STREAM: True,
            words.MAX_TOKENS: called.max_output,
            words.TEMPERATURE: called.temperature,
            words.TOP_P: called.top_p,
            words.SEED: called.seed,
            words.THINKING_TOKENS: called.thinking,
            words.PURPOSE: None if called.purpose is Purpose.TURN else str(called.purpose),
        }
    )


def _show(span: Span, request: CallModel, scene: PerformContext) -> None:
    """Put what the model is told by *request* into its *span*."""
    shown = scene.history.slice(0, request.view.length)
    if isinstance(request.view, Conversation):
        cleared = request.view.cleared
        shown = (*map(clear_results, shown[:cleared]), *shown[cleared:])
    span.set_attribute(words.INPUT_MESSAGES, words.messages_json(shown))
    if request.system or request.instructions:
        texts = words.instructions_json(request.system, request.instructions)
        span.set_attribute(words.SYSTEM_INSTRUCTIONS, texts)
