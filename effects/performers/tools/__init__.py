"""Tools: functions a model can call, how they are run, and the built-in ones that work on files and a shell."""

from __future__ import annotations

from .builtin import builtin_tools
from .context import ToolContext
from .define import Tool, tool
from .run import ToolRunner

__all__ = ["Tool", "ToolContext", "ToolRunner", "builtin_tools", "tool"]
