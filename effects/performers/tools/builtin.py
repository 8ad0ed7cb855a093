"""
The built-in tools, all of them.

They are made with `tool` like anybody's, and know no more of the library than their `ToolContext`.
"""

from __future__ import annotations

from typing import Any

from .define import Tool
from .files import edit, read, write
from .find import glob, grep, ls
from .shell import bash


def builtin_tools() -> tuple[Tool[..., Any], ...]:
    """The tools `read`, `write`, `edit`, `ls`, `glob`, `grep` and `bash`, which need a POSIX system."""
    return (read, write, edit, ls, glob, grep, bash)
