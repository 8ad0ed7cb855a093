"""
What a wire is: how a request becomes bytes and how bytes become pieces, without touching the network.

The HTTP part knows only this. A dialect is one `Wire` and one `Parser`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, final

import attrs

from ...effects.events import Failure
from ...effects.history import Piece
from ...effects.messages import StopReason
from ...effects.requests import CallModel
from ...effects.usage import Usage
from ..base import PerformContext


@final
@attrs.frozen(kw_only=True)
class Complete:
    """
    An answer came to its end. *pieces* are those that only the end brought, *sequence* the stop sequence met.

    *response* is the provider's id of it, *model* its name of the model, *detail* why it refused; each is
    empty where it told none.
    """

    stop: StopReason
    usage: Usage = Usage()
    sequence: str = ""
    pieces: tuple[Piece, ...] = ()
    response: str = ""
    model: str = ""
    detail: str = ""


@final
@attrs.frozen(kw_only=True)
class Broken:
    """An answer failed; what else is known of it is as in `ModelFailed`."""

    failure: Failure
    message: str
    retry_after: float | None = None
    should_retry: bool | None = None
    max_output: int | None = None
    usage: Usage | None = None


def cut_short(message: str) -> Broken:
    """An answer that stopped before its end, as *message* says."""
    return Broken(failure=Failure.CUT, message=message)


# How an answer ended.
AnswerEnd = Complete | Broken


@final
@attrs.frozen(kw_only=True)
class HTTPRequest:
    """A request to send: *path* is added to the wire's base URL."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class Parser(Protocol):
    """
    Reads one answer. No bytes make it raise, and how they were cut makes no difference to what it reads.

    Its pieces are final. A call's pieces have the call's number, from 0 in the order the calls began,
    whatever the wire calls them. It makes nothing up: a stream that stopped without a reason is `Broken`.
    """

    @property
    def done(self) -> bool:
        """Whether nothing more is read: the stream has reached its end, or it has failed."""
        ...

    @property
    def usage(self) -> Usage | None:
        """The usage that the answer reported so far, or None."""
        ...

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that *data*, the next bytes of the body, completes, as early as can be."""
        ...

    def end(self, cut: Broken | None = None) -> AnswerEnd:
        """How the answer ended; *cut* is why its bytes stopped, where that was not their end."""
        ...


class Wire(Protocol):
    """A dialect that models are spoken to in. One wire serves any number of sessions at a time."""

    def encode(self, request: CallModel, scene: PerformContext) -> HTTPRequest:
        """
        The HTTP request that asks for the answer to *request*, streamed.

        It shows the first ``request.view.length`` messages of the scene's history, those before index
        ``cleared`` as `clear_results` gives them, or all as a text of at most ``limit`` tokens; and the tools
        that the request names. Its settings are those of ``scene.config.spec(request.model)``, but for what
        the request says itself.
        """
        ...

    def parser(self, scene: PerformContext) -> Parser:
        """A new parser for one answer."""
        ...
