"""Names and globs of tools in rules, hooks, children and settings: one that fits nothing is a mistake."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape

from ...effects import Config, ConfigError, ToolKind, ToolSpec
from ...effects.config import AUTO_CHOICE, NO_CHOICE, REQUIRED_CHOICE
from ...effects.spelling import hint


def misfit(tool: str, specs: Sequence[ToolSpec], where: Iterable[tuple[str, str]] = ()) -> str:
    """Why the glob *tool*, with globs for arguments in *where*, fits no call of *specs*; empty if it does."""
    fitting = [spec for spec in specs if fnmatchcase(spec.name, tool)]
    if not fitting:
        # All tools, of which there may be none.
        return "" if tool == "*" else f"no tool {tool!r}; {hint(tool, [spec.name for spec in specs])}"
    if not (named := [name for name, _ in where]):
        return ""
    schemas = [json.loads(spec.schema) for spec in fitting]
    # A schema takes any other argument, too, unless it says that it does not.
    if any(schema.get("additionalProperties") is not False for schema in schemas):
        return ""
    takes = list(dict.fromkeys(name for schema in schemas for name in schema.get("properties", ())))
    wrong = [name for name in named if name not in takes]
    return f"no argument {wrong[0]!r} of {tool!r}; {hint(wrong[0], takes)}" if wrong else ""


def check_names(config: Config, retired: Iterable[str]) -> None:
    """Raise `ConfigError` where a name in *config* fits no tool, not even a *retired* one."""
    # A misspelt name would protect nothing, or give a child no tools, and say so nowhere.
    own = [spec for spec in config.tools if spec.kind is not ToolKind.AGENT]
    named = [
        *[(f"rule {str(rule)!r}", rule.tool, rule.where, config.tools) for rule in config.rules],
        *[(f"hook {hook.name!r}", hook.tool, hook.where, config.tools) for hook in config.hooks],
        *[
            (f"tools of agent {one.name!r}", tool, (), own)
            for one in config.children
            for tool in one.tools or ()
        ],
        *[
            (f"tool_choice of {spec.name!r}", escape(spec.tool_choice), (), config.tools)
            for spec in (config.model, *config.models, *[one.model for one in config.children if one.model])
            if spec.tool_choice not in {"", AUTO_CHOICE, NO_CHOICE, REQUIRED_CHOICE}
        ],
    ]
    for place, tool, where, specs in named:
        problem = misfit(tool, specs, where)
        if problem and not any(fnmatchcase(name, tool) for name in retired):
            msg = f"{place}: {problem}"
            raise ConfigError(msg)
