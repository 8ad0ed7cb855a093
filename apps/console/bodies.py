"""What the console is told beyond the answers of the server; docs/console.md is about these."""

from __future__ import annotations

from typing import Any, final

import msgspec

from ..server.bodies import SpendBody


@final
class OutlineStep(msgspec.Struct, kw_only=True):
    """
    A step in a few words, so that thousands of them are one small answer.

    *posted* is an input that was received, and is applied by a later step. *way* are the labels it went
    through, *seconds* how long its request took, *request* and *call* what it is about, *spend* the account
    of the session until then. *about* is the call's tool, or the child that it began, by agent and prompt.
    *setting* is the model or the mode that a person chose with it.
    """

    number: int
    at: float
    event: str
    title: str
    posted: bool
    state: str
    way: tuple[str, ...]
    run: str
    model: str
    mode: str
    seconds: float | None
    request: str
    call: str
    about: str
    spend: SpendBody
    setting: dict[str, str]


@final
class NoticeBody(msgspec.Struct, kw_only=True):
    """A notice of the journal, as an event of the session has it: its *id*, its *name*, and its *data*."""

    id: str
    name: str
    data: dict[str, Any]


@final
class MomentBody(msgspec.Struct, kw_only=True):
    """What happened to a call *at* a time."""

    at: float
    what: str
    text: str


@final
class WhyBody(msgspec.Struct, kw_only=True):
    """The story of a call, from wish to result."""

    session: str
    call: str
    tool: str
    arguments: str
    moments: list[MomentBody]


@final
class WrittenFileBody(msgspec.Struct, kw_only=True):
    """
    The file that a call writes if it is approved, as it is now; *path* is free of symlinks.

    All are null where the call is not one of the built-in ``write`` or ``edit``, or may not touch the file.
    *size* is in bytes, null for a file that is not there yet. *before* is the text, with secrets redacted;
    null where it is no text, or too large to be shown. *problem* is why the file could not be read; empty
    where it was, or where there is none.
    """

    path: str | None = None
    size: int | None = None
    before: str | None = None
    problem: str = ""


@final
class FamilyBody(msgspec.Struct, kw_only=True):
    """
    A session with its bill and its *children*, at all depths; *call* is the one that began it.

    *state* is ``done``, ``confirming`` where it waits for a person, or ``unfinished`` in the middle of a run.
    *reason* is how the last run ended.
    """

    id: str
    call: str
    agent: str
    title: str
    state: str
    reason: str | None
    spend: SpendBody
    children: list[FamilyBody]


@final
class PartingStep(msgspec.Struct, kw_only=True):
    """The step at which a session parts from another one: its *event*, and the labels around it."""

    number: int
    event: str
    before: str
    state: str


@final
class DifferenceBody(msgspec.Struct, kw_only=True):
    """
    The first step at which two sessions differ, as each has it; both are null where they do not.

    One is null where its session has ended before; *where* are the fields that differ.
    """

    one: PartingStep | None
    other: PartingStep | None
    where: tuple[str, ...]
