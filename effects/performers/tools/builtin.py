"""
The built-in tools, all of them.

They are made with `tool` like anybody's, and know no more of the library than their `ToolContext`.
"""

from __future__ import annotations

from typing import Any

from .define import Tool


def builtin_tools() -> tuple[Tool[..., Any], ...]:
    """
    The tools `read`, `write`, `edit`, `ls`, `glob`, `grep` and `bash`, which need a POSIX system.

    And `read_result`, which reads on where a result of any tool was too long for the conversation.
    """
    # Imported here: making them is a twentieth of importing this library, and many agents use none.
    from .files import edit, read, write  # noqa: PLC0415  # as said above
    from .find import glob, grep, ls  # noqa: PLC0415  # as said above
    from .shell import bash  # noqa: PLC0415  # as said above
    from .whole import read_result  # noqa: PLC0415  # as said above

    return (read, write, edit, ls, glob, grep, bash, read_result)
