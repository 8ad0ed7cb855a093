"""
The `agent_events`, for a host with one agent and many channels.

Each run ends in one `response` or `error`, which is done. A `compact` may come before it. Besides their type,
all events have the same fields: *ids* are those of the inputs that the run has read so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from ..effects.messages import ToolCall
from ..effects.notices import Compacted, CompactionFailed, Notice, RunEnded
from ..states.thinking import NATURAL_ENDS
from .json_events import ERROR_ENDS, REASON_WORDS, WANTED_ENDS, JsonEvent
from .run_view import Projection, RunView, blocks


@final
class AgentEvents(Projection):
    """The `agent_events` events of one session: feed `take` its notices, in order."""

    def events(self, before: RunView, notice: Notice, after: RunView) -> Iterator[JsonEvent]:
        """The events of *notice*."""
        match notice:
            case Compacted():
                yield _event("compact", before)
            case CompactionFailed(reason=reason):
                yield _event("compact", before, error=reason)
            case RunEnded(reason=reason):
                message = _last(after, REASON_WORDS[reason].finish, notice.at)
                if reason in (NATURAL_ENDS | WANTED_ENDS) - ERROR_ENDS:
                    yield _event("response", after, message=message, done=True)
                else:
                    why = notice.detail or reason.value
                    yield _event("error", after, message=message, error=why, done=True)
            case _:
                pass


def _event(name: str, told: RunView, **fields: object) -> JsonEvent:
    empty: JsonEvent = {"message": None, "error": None, "done": False}
    return {"type": name, "session_id": told.session, "ids": list(told.inputs), **empty, **fields}


def _last(told: RunView, finish: str, ended: float) -> JsonEvent | None:
    """The last answer of the run, which *ended* then, or None; its finish reason is that of the run."""
    answer = told.last_answer
    if answer is None:
        return None
    return {
        "id": told.answered,
        "role": answer.role.value,
        "session_id": told.session,
        "model": answer.model,
        "parts": [*blocks(answer, "reasoning", _tool_call), {"type": "finish", "reason": finish}],
        "created_at": answer.at or ended,
        "updated_at": ended,
    }


def _tool_call(call: ToolCall) -> JsonEvent:
    what: JsonEvent = {"id": call.id, "name": call.name, "input": call.arguments}
    return {"type": "tool_call", **what, "finished": True}
