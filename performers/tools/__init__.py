"""
Tools: functions a model can call, and how they are run.

`tool` makes one of a function, `ToolRunner` runs them, `builtin_tools` are those for files and a shell.
"""

from __future__ import annotations

from .builtin import builtin_tools
from .decorator import Tool, ToolContext, tool
from .runner import ToolRunner

__all__ = ["Tool", "ToolContext", "ToolRunner", "builtin_tools", "tool"]
