"""What a model is shown of a conversation: a view at the time of a request, never a rewrite."""

from __future__ import annotations

import attrs

from .messages import Message, Part, ToolResult

CLEARED = "[Old tool result left out. Call the tool again if you need it.]"
"""What stands for a tool result that is not shown any more."""

SHORT = 500
"""Characters of a tool result that is shown however old it is: to leave it out would save next to nothing."""


def left_out(part: Part) -> bool:
    """Whether *part*, being old, is left out: a tool result that is long or has files."""
    return isinstance(part, ToolResult) and (len(part.content) > SHORT or bool(part.files))


def cleared(message: Message) -> Message:
    """*message* as it is shown when it is old: its calls and results stay, the long ones without a body."""
    if not any(left_out(part) for part in message.parts):
        return message
    parts = [
        attrs.evolve(part, content=CLEARED, files=())
        if isinstance(part, ToolResult) and left_out(part)
        else part
        for part in message.parts
    ]
    return attrs.evolve(message, parts=tuple(parts))
