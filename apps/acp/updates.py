"""What an editor is told: notices and messages of a session as updates of ACP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from acp import schema
from acp.helpers import (
    SessionUpdate,
    ToolCallContentVariant,
    start_tool_call,
    text_block,
    tool_content,
    tool_diff_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_current_mode,
    update_tool_call,
    update_user_message_text,
)

from ...effects import notices
from ...effects.messages import Message, Outcome, Reasoning, Role, Text, ToolCall
from ...effects.notices import DoneReason, Notice, ReasoningDelta, TextDelta
from ...effects.records import SetMode
from ...projections.run_view import RunView
from ...states.rules.schema import arguments_of

KINDS: dict[str, schema.ToolKind] = {
    **dict.fromkeys(("read",), "read"),
    **dict.fromkeys(("write", "edit"), "edit"),
    **dict.fromkeys(("ls", "glob", "grep"), "search"),
    "bash": "execute",
}

# How a turn ended; every other reason is an end like any other, and the last message tells it.
ACP_STOPS: dict[DoneReason, schema.StopReason] = {
    DoneReason.MAX_TOKENS: "max_tokens",
    DoneReason.MAX_TURNS: "max_turn_requests",
    DoneReason.REFUSAL: "refusal",
    DoneReason.INTERRUPTED: "cancelled",
    DoneReason.ABORTED: "cancelled",
}

# Characters of a file up to which a change is shown as a diff.
MOST_DIFFED = 200_000


def updates_of(notice: Notice, before: RunView, cwd: Path) -> Iterator[SessionUpdate]:
    """The updates of *notice*, by what was told *before* it."""
    match notice:
        case TextDelta(text=text):
            yield update_agent_message_text(text)
        case ReasoningDelta(text=text):
            yield update_agent_thought_text(text)
        case notices.TurnEnded(message=message, calls=calls):
            # A server may answer without a stream. What was seen of an answer cannot be taken back here.
            if message.text and not before.answer.characters:
                yield update_agent_message_text(message.text)
            yield from [call_update(call, cwd) for call in calls]
        case notices.ToolStarted(call=call) | notices.AgentStarted(call=call):
            yield update_tool_call(call, status="in_progress")
        case notices.CallSettled(call=call, outcome=outcome, content=content):
            yield _settled(call, content, fine=outcome is Outcome.OK)
        case notices.SettingChanged(change=SetMode(mode=mode)):
            yield update_current_mode(mode.value)
        case notices.RunEnded(reason=reason, detail=detail) if reason not in {
            *ACP_STOPS,
            DoneReason.END_TURN,
        }:
            yield update_agent_message_text(f"\n\n[{detail or reason.value}]")
        case _:
            pass


def updates_of_history(messages: Iterable[Message], cwd: Path) -> Iterator[SessionUpdate]:
    """The updates that show *messages*, as an editor wants them that loads a session."""
    for message in messages:
        for part in message.parts:
            match part:
                case Text(text=text) if message.role is Role.USER:
                    yield update_user_message_text(text)
                case Text(text=text) if message.role is Role.ASSISTANT:
                    yield update_agent_message_text(text)
                case Reasoning(text=text) if text:
                    yield update_agent_thought_text(text)
                case ToolCall():
                    yield call_update(part, cwd)
                case _:
                    pass
        for result in message.results:
            yield _settled(result.call, result.content, fine=not result.is_error)


def call_update(call: ToolCall, cwd: Path) -> schema.ToolCallStart:
    """*call*, which waits for what is decided about it; a change of a file as a diff."""
    arguments = arguments_of(call.arguments) or {}
    path = arguments.get("path")
    place = cwd / path if isinstance(path, str) else None
    about = path if place is not None else arguments.get("command", arguments.get("pattern"))
    return start_tool_call(
        call.id,
        f"{call.name} {about}" if isinstance(about, str) else call.name,
        kind=KINDS.get(call.name, "other"),
        status="pending",
        content=[*_diff(call.name, arguments, place)] if place is not None else None,
        locations=None if place is None else [schema.ToolCallLocation(path=str(place))],
        raw_input=arguments,
    )


def _diff(tool: str, arguments: dict[str, object], place: Path) -> Iterator[ToolCallContentVariant]:
    """What a `write` or `edit` with *arguments* would make of the file at *place*."""
    match tool, arguments:
        case "write", {"content": str(content)}:
            yield tool_diff_content(str(place), content, _text(place))
        case "edit", {"old": str(old), "new": str(new)}:
            before = _text(place)
            if before is None or old not in before:
                yield tool_diff_content(str(place), new, old)
            else:
                count = -1 if arguments.get("all") is True else 1
                yield tool_diff_content(str(place), before.replace(old, new, count), before)
        case _:
            pass


def _text(place: Path) -> str | None:
    """The text of the file at *place*; None where there is none, or none that could be shown."""
    try:
        with place.open(encoding="utf-8") as file:
            text = file.read(MOST_DIFFED + 1)
    except (OSError, ValueError):
        return None
    return text if len(text) <= MOST_DIFFED else None


def _settled(call: str, content: str, *, fine: bool) -> schema.ToolCallProgress:
    shown = [tool_content(text_block(content))]
    return update_tool_call(call, status="completed" if fine else "failed", content=shown)
