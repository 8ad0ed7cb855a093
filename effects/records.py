"""Records: effects that change the memory of a run and nothing else. The memory is their fold."""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from .config import Grant, PermissionMode
from .messages import Message
from .usage import Spent


@final
@attrs.frozen(kw_only=True)
class AppendMessage:
    """Add *message* at the end of the history."""

    message: Message


@final
@attrs.frozen(kw_only=True)
class AddUsage:
    """
    Add *spent* to the account. *context* is the size of the conversation in tokens where a model told it.
    """

    spent: Spent
    context: int = 0


@final
@attrs.frozen(kw_only=True)
class ReplaceHistory:
    """Put *head* in place of all messages before index *keep*."""

    head: tuple[Message, ...]
    keep: int


class Lane(StrEnum):
    """Where mail waits: `PROMPT` for the next run, `STEER` for this one."""

    PROMPT = "prompt"
    STEER = "steer"


@final
@attrs.frozen(kw_only=True)
class TakeMail:
    """Take everything that waits in *lane* out of the mail."""

    lane: Lane


@final
@attrs.frozen(kw_only=True)
class SetModel:
    """Use *model* from the next model call on."""

    model: str


@final
@attrs.frozen(kw_only=True)
class SetMode:
    """Use permission *mode* from the next tool call on."""

    mode: PermissionMode


@final
@attrs.frozen(kw_only=True)
class GrantRule:
    """Answer approvals that *grant* covers from now on, in this run and the ones after it."""

    grant: Grant


@final
@attrs.frozen(kw_only=True)
class AddContext:
    """Keep *text* for the instructions of the next model call."""

    text: str


@final
@attrs.frozen(kw_only=True)
class ClearContext:
    """Drop the pending context: a model has seen it and answered."""


@final
@attrs.frozen(kw_only=True)
class CountCompaction:
    """
    Set the compaction counters: *attempts* since the last completed response, *failures* in a row.
    """

    attempts: int
    failures: int


@final
@attrs.frozen(kw_only=True)
class UseIds:
    """Ids below *next* are in use."""

    next: int


Record = (
    AppendMessage
    | AddUsage
    | ReplaceHistory
    | TakeMail
    | SetModel
    | SetMode
    | GrantRule
    | AddContext
    | ClearContext
    | CountCompaction
    | UseIds
)
"""Every effect that changes the memory."""
