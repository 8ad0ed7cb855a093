"""Summaries and titles by the host's own code, in the place of a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, final

import attrs

from ...effects import Answer, CallModel, ModelFailed, ModelFinished, Purpose, StopReason, TextPiece, Usage
from ...effects.validators import of_kind
from ..base import PerformContext, Performer


@final
@attrs.frozen(kw_only=True)
class Summarise:
    """
    Summarise the first *length* messages of `PerformContext.history`, in at most *tokens* tokens.

    Answered by the text, by `Summarised`, or by what answers `CallModel`: a `ModelFailed` is retried as that
    of a model. *instructions* are those that a model would get, with the wishes of hooks. *model* is the
    configured one, at whose price `Summarised.usage` is booked. *attempt* counts from 1.
    """

    id: str
    length: int
    tokens: int | None
    instructions: str
    model: str
    attempt: int


@final
@attrs.frozen
class Summarised:
    """
    A summary's *text*; *length* is how many of the earliest messages it stands for, None for those asked for.

    Later messages stay as they are. A summary that would part a call from its result, or leave no message, is
    not used: the attempt counts as failed. *usage* are the tokens that a model of the host used.
    """

    text: str = attrs.field(validator=of_kind(str))
    length: int | None = attrs.field(
        default=None, kw_only=True, validator=attrs.validators.optional(of_kind(int))
    )
    usage: Usage = attrs.field(default=Usage(), kw_only=True, validator=of_kind(Usage))


@final
@attrs.frozen(kw_only=True)
class MakeTitle:
    """
    Make a session's title of its first prompt, the only message of `PerformContext.history`.

    Answered by the text, of which the first line counts, or by what answers `CallModel`. *instructions* and
    *model* are as in `Summarise`.
    """

    id: str
    tokens: int | None
    instructions: str
    model: str


# What the host's code may answer with.
Written: TypeAlias = "str | Summarised | ModelFinished | ModelFailed"
TextWriter: TypeAlias = Callable[..., Awaitable[Written]]

# Performers as a host gives them to `Agent`, by type.
HostPerformers: TypeAlias = Mapping[type, "Performer[Any] | TextWriter"]


@final
@attrs.frozen
class ByPurpose:
    """
    Performs `CallModel` by *inner*, but summaries by *summarise* and titles by *make_title*, unless None.

    The machine asks for both as it would ask a model, and the journal has the answers, so a journal replays
    without the host's code.
    """

    inner: Performer[CallModel]
    summarise: TextWriter | None
    make_title: TextWriter | None

    async def __call__(self, request: CallModel, scene: PerformContext) -> Answer | None:
        """Perform *request*."""
        match request.purpose:
            case Purpose.SUMMARY if self.summarise is not None:
                write = self.summarise
                asked: Summarise | MakeTitle = Summarise(
                    id=request.id,
                    length=request.view.length,
                    tokens=request.max_output,
                    instructions=request.instructions,
                    model=request.model,
                    attempt=request.attempt,
                )
            case Purpose.TITLE if self.make_title is not None:
                write = self.make_title
                asked = MakeTitle(
                    id=request.id,
                    tokens=request.max_output,
                    instructions=request.system,
                    model=request.model,
                )
            case _:
                return await self.inner(request, scene)
        began = scene.clock.now()
        return _answer(request, await write(asked, scene), began, scene)


def with_writers(performers: Mapping[type, Any]) -> dict[type, Any]:
    """*performers*, of which those of `Summarise` and `MakeTitle` take their part of `CallModel`."""
    made = dict(performers)
    summarise, make_title = made.pop(Summarise, None), made.pop(MakeTitle, None)
    if summarise is not None or make_title is not None:
        made[CallModel] = ByPurpose(made[CallModel], summarise, make_title)
    return made


def _answer(request: CallModel, written: object, began: float, scene: PerformContext) -> Answer:
    """*written* as a model's answer to *request*."""
    if isinstance(written, ModelFinished | ModelFailed):
        return written
    if isinstance(written, str):
        written = Summarised(written)
    if not isinstance(written, Summarised):
        msg = f"performer of a {request.purpose}: answered {written!r}; return a text"
        raise TypeError(msg)
    now = scene.clock.now()
    return ModelFinished(
        at=now,
        request=request.id,
        stop=StopReason.END_TURN,
        usage=written.usage,
        pieces=(TextPiece(written.text),),
        seconds=now - began,
        covers=written.length,
    )
