"""
The `agent_events`: what a host with one agent and many channels hears of it.

Three types: each run ends in one `response` or `error`, which is done; a `compact` may come before it. Every
event has the same five fields besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from ..effects.messages import Message, Part, Reasoning, Text, ToolCall
from ..effects.notices import Compacted, CompactionFailed, Notice, RunEnded
from .json_events import NATURAL, STOPPED, WORDS, Events, Plain
from .run_view import RunView, tell

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
class AgentEvents:
    """The `agent_events` of one session: feed `take` its notices, in order."""

    def __init__(self, told: RunView) -> None:
        self.told = told

    @classmethod
    def of(cls, session: str) -> AgentEvents:
        """Events of *session*."""
        return cls(RunView(session=session))

    def take(self, notice: Notice) -> Events:
        """The events that *notice* is."""
        self.told, events = project(self.told, notice)
        return events


def project(told: RunView, notice: Notice) -> tuple[RunView, Events]:
    """What has been *told* with *notice*, and the events that it is."""
    return tell(told, notice, _say, ())


def _say(_: RunView, notice: Notice, after: RunView) -> Iterator[Plain]:
    match notice:
        case Compacted():
            yield _event("compact", after)
        case CompactionFailed(reason=reason):
            yield _event("compact", after, error=reason)
        case RunEnded(reason=reason):
            message = _last(after, WORDS[reason].finish)
            if reason in NATURAL | STOPPED:
                yield _event("response", after, message=message, done=True)
            else:
                why = notice.detail or reason.value
                yield _event("error", after, message=message, error=why, done=True)
        case _:
            pass


def _event(
    name: str, told: RunView, *, message: Plain | None = None, error: str | None = None, done: bool = False
) -> Plain:
    return {"type": name, "session_id": told.session, "message": message, "error": error, "done": done}


def _last(told: RunView, finish: str) -> Plain | None:
    """The last answer of the run, or None; why it ended is told by how the run did."""
    answer = told.last_answer
    return None if answer is None else _message(answer, told.session, finish)


def _message(message: Message, session: str, finish: str) -> Plain:
    parts = [plain for part in message.parts for plain in _part(part)]
    return {
        "role": message.role.value,
        "session_id": session,
        "model": message.model,
        "parts": [*parts, {"type": "finish", "reason": finish}],
    }


def _part(part: Part) -> Iterator[Plain]:
    match part:
        case Text(text=text):
            yield {"type": "text", "text": text}
        case Reasoning(text=text):
            yield {"type": "reasoning", "thinking": text}
        case ToolCall(id=name, name=tool, arguments=arguments):
            yield {"type": "tool_call", "id": name, "name": tool, "input": arguments, "finished": True}
        case _:
            pass
