"""Notices of what keeps a long run going; part of the union in `notices`."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from .events import Failure


@final
@attrs.frozen(kw_only=True)
class ModelHeld:
    """
    The request is not sent before *due*, in seconds since the epoch, and why: others were told to wait.
    """

    request: str
    due: float
    reason: str


@final
@attrs.frozen(kw_only=True)
class FellBack:
    """*model* is asked for the rest of the run instead of *instead_of*, which failed; *message* says how."""

    model: str
    instead_of: str
    failure: Failure
    message: str


class LoopStage(StrEnum):
    """What was done about a model that goes in circles."""

    WARNED = "warned"
    WITHDRAWN = "withdrawn"
    STOPPED = "stopped"


@final
@attrs.frozen(kw_only=True)
class LoopDetected:
    """The model repeats itself: *tools* were called alike *count* times; *text* explains what was done."""

    stage: LoopStage
    tools: tuple[str, ...]
    count: int
    text: str


@final
@attrs.frozen(kw_only=True)
class ResultsCleared:
    """The model is no longer shown *count* old tool results, of about *tokens* tokens."""

    count: int
    tokens: int
