"""
Messages and their parts: what a conversation is made of.

Every class here is a frozen value. A call's identity is ours (`ToolCall.id`, made from the run and a
counter); the id a provider gave it stands beside it in `wire_id` and is used on the wire only, because
providers send duplicate, empty and reused ids.
"""

from __future__ import annotations

from enum import StrEnum
from typing import final

import attrs

from .errors import ArgumentError


class Role(StrEnum):
    """Who speaks. A message of role `tool` holds all results of one batch, in call order."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


def _content(data: object) -> bytes:
    """*data* as bytes that no caller can change."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, bytearray | memoryview):
        # Without the value: a file may be long, or a secret.
        fix = "encode it" if isinstance(data, str) else "read it first"
        msg = f"Binary.data must be bytes; got {type(data).__name__} ({fix})"
        raise ArgumentError(msg)
    return bytes(data)


class StopReason(StrEnum):
    """
    Why a model's answer ended. The first four are what every provider has.

    `PAUSED`: the provider stopped in the middle of work with its own tools; the answer goes on when the model
    is asked again.
    """

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    PAUSED = "paused"
    UNKNOWN = "unknown"
    INTERRUPTED = "interrupted"


class Outcome(StrEnum):
    """How a tool call ended. Everything but `OK` is an error in the eyes of the model."""

    OK = "ok"
    ERROR = "error"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    DENIED = "denied"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    # It was started, and whether it finished is not known: it may have run.
    UNKNOWN = "unknown"


@final
@attrs.frozen(kw_only=True)
class Text:
    """Plain text of any role."""

    text: str


@final
@attrs.frozen(kw_only=True)
class Reasoning:
    """
    A model's thinking. *signature* is the provider's proof, sent back verbatim, or empty.

    *redacted* is thinking that the provider hides, as it sent it: it goes back in the text's place.
    *opaque* are fields of the provider's own, as a JSON object. They go back verbatim to the model that made
    them, and to no other.
    """

    text: str
    signature: str = ""
    redacted: str = ""
    opaque: str = ""


@final
@attrs.frozen(kw_only=True)
class ToolCall:
    """
    A model's wish to run a tool. *arguments* is the JSON text exactly as the model wrote it.

    *opaque* is as in `Reasoning`.
    """

    id: str
    wire_id: str
    name: str
    arguments: str
    opaque: str = ""


@final
@attrs.frozen(kw_only=True)
class Binary:
    """A picture or a file: *data* is its content, *media_type* such as ``image/png``."""

    media_type: str
    data: bytes = attrs.field(converter=_content)
    name: str = ""


@final
@attrs.frozen(kw_only=True)
class ToolResult:
    """The one answer to a tool call; *call* is the `ToolCall.id` it answers, *files* belong to it."""

    call: str
    wire_id: str
    name: str
    content: str
    outcome: Outcome = Outcome.OK
    files: tuple[Binary, ...] = ()

    @property
    def is_error(self) -> bool:
        """What the wire calls an error: anything but success."""
        return self.outcome is not Outcome.OK


@final
@attrs.frozen(kw_only=True)
class Finish:
    """
    The last part of an assistant message: why it ended.

    *sequence* is the matched stop sequence, *detail* why the provider refused, where it told.
    """

    reason: StopReason
    sequence: str = ""
    detail: str = ""


@final
@attrs.frozen(kw_only=True)
class ProviderCall:
    """
    A call of one of the provider's own tools, which the provider ran: it is over when it is seen here.

    *status* is the provider's word for how it ended. *arguments* and *result* are JSON texts, empty where the
    provider shows none; a long result is cut. *opaque* is as in `Reasoning`.
    """

    id: str
    name: str
    arguments: str = ""
    status: str = ""
    result: str = ""
    opaque: str = ""


@final
@attrs.frozen(kw_only=True)
class Citation:
    """
    A source that an answer names, for the characters *start* to *end* of its text.

    *quote* is what the source says. *opaque* is as in `Reasoning`.
    """

    url: str
    title: str = ""
    start: int = 0
    end: int = 0
    quote: str = ""
    opaque: str = ""


# Everything a message can hold.
Part = Text | Reasoning | ToolCall | ToolResult | Binary | ProviderCall | Citation | Finish


@final
@attrs.frozen(kw_only=True)
class Message:
    """One message of the conversation; *at* is when it was made, in seconds since the epoch."""

    role: Role
    parts: tuple[Part, ...]
    at: float = 0.0
    model: str = ""

    @property
    def text(self) -> str:
        """All text parts joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in this message, in the model's order."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def provider_calls(self) -> tuple[ProviderCall, ...]:
        """The calls of the provider's own tools, in the order in which they ended."""
        return tuple([part for part in self.parts if isinstance(part, ProviderCall)])

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The sources that the answer names, in its order."""
        return tuple([part for part in self.parts if isinstance(part, Citation)])

    @property
    def stop(self) -> StopReason | None:
        """The reason for which this answer of a model ended; None for any other message."""
        last = self.parts[-1] if self.parts else None
        return last.reason if isinstance(last, Finish) else None

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in this message, in call order."""
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])


def user(text: str, at: float = 0.0, files: tuple[Binary, ...] = ()) -> Message:
    """A user message of *text* and the *files* that came with it."""
    return Message(role=Role.USER, parts=(Text(text=text), *files), at=at)
