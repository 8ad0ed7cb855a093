"""Permissions as data: modes and rules. What they decide together is in `states.rules.permission`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import cast, final

import attrs

from .errors import ArgumentError, Choice, ConfigError
from .spelling import hint
from .validators import as_globs, globs, not_empty, spelled


class PermissionMode(Choice):
    """
    What happens to a call that no rule and no hook speaks about, and that is not allowed by its tool.

    `DEFAULT` asks a person. `ACCEPT_EDITS` lets tools that only edit files run. `PLAN` lets nothing run that
    is not read-only. `DONT_ASK` denies what would have to be asked about. `BYPASS` lets everything run: only
    rules that deny or ask and hooks that deny still hold.
    """

    DEFAULT = "default"
    ACCEPT_EDITS = "accept_edits"
    PLAN = "plan"
    DONT_ASK = "dont_ask"
    BYPASS = "bypass"

    def within(self, ceiling: PermissionMode) -> bool:
        """Whether no call fares better in this mode than in *ceiling*: asked beats denied, allowed asked."""
        return self is ceiling or self in _NARROWER.get(ceiling, PermissionMode)


# Of two there is no order: `plan` denies a write that a rule allows, and `dont_ask` a read that is asked
# about. What is not named here is wider than all others.
_NARROWEST = frozenset({PermissionMode.PLAN, PermissionMode.DONT_ASK})
_NARROWER: dict[PermissionMode, frozenset[PermissionMode]] = {
    **dict.fromkeys(_NARROWEST, frozenset()),
    PermissionMode.DEFAULT: _NARROWEST,
    PermissionMode.ACCEPT_EDITS: _NARROWEST | {PermissionMode.DEFAULT},
}


class Verdict(Choice):
    """What a rule, a hook or a mode says about a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Basis(StrEnum):
    """What a verdict rests on."""

    # The tool says of itself when it is asked about.
    TOOL = "tool"
    MODE = "mode"
    RULE = "rule"
    # A person allowed it for good, in this session.
    GRANT = "grant"
    HOOK = "hook"
    PERSON = "person"
    # The process in which it was at work is gone, and it may have run.
    LOST = "lost"


# For each named argument a glob.
ArgumentGlobs = tuple[tuple[str, str], ...]

# A glob may hold commas itself, so only a comma before the next argument ends one.
_NEXT = re.compile(r",(?=\w+=)")


@final
@spelled
@attrs.frozen
class Rule:
    """
    A *verdict* on the calls of *tool*, a glob, whose arguments match: for each named argument a glob.

    *where* is a mapping such as ``{"path": "src/*"}``, and is kept as pairs. As text the rule is
    ``"allow write:path=src/*"``, which `as_rule` reads.

    A glob's ``*`` matches any characters, slashes too; a value that is no string matches by its JSON text.
    What a tool declares as a path is matched by what it reaches, and a shell command by the programs that it
    runs, one by one: see `docs/permissions.md`. Any other value is text, in which ``.``, ``..`` and doubled
    slashes do not hide anything: a rule that allows must match it both as it is written and with them
    resolved, one that asks or denies either.
    """

    verdict: Verdict = attrs.field(converter=Verdict)
    tool: str = attrs.field(validator=not_empty)
    where: ArgumentGlobs = attrs.field(default=(), converter=as_globs, validator=globs, kw_only=True)

    def covers(self, tool: str, arguments: Mapping[str, object]) -> bool:
        """Whether this rule speaks about a call of *tool* with *arguments*, by their text alone."""
        return fnmatchcase(tool, self.tool) and all(
            self.meets(name, glob, arguments) for name, glob in self.where
        )

    def meets(self, name: str, glob: str, arguments: Mapping[str, object]) -> bool:
        """Whether the argument *name* is among *arguments* and matches *glob* by its text alone."""
        return name in arguments and self._matches(_plain(arguments[name]), glob)

    def _matches(self, value: str, glob: str) -> bool:
        if self.verdict is Verdict.ALLOW:
            # The glob is resolved, too: no address would match otherwise, for the slashes in its ``https://``.
            return fnmatchcase(value, glob) and fnmatchcase(resolved(value), resolved(glob))
        return fnmatchcase(value, glob) or fnmatchcase(resolved(value), glob)

    def __str__(self) -> str:
        where = ",".join(f"{name}={glob}" for name, glob in self.where)
        return f"{self.verdict} {self.tool}{':' if where else ''}{where}"


def parse_globs(text: str) -> ArgumentGlobs | None:
    """The globs in ``ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for any other text."""
    parts = [part.partition("=") for part in _NEXT.split(text)]
    if not all(name and equals for name, equals, _ in parts):
        return None
    return tuple([(name, glob) for name, _, glob in parts])


def parse_rule(text: str, verdict: Verdict) -> Rule | None:
    """The rule ``TOOL`` or ``TOOL:ARGUMENT=GLOB[,ARGUMENT=GLOB]``; None for any other text."""
    tool, colon, rest = text.partition(":")
    where = parse_globs(rest) if colon else ()
    if not tool.strip() or where is None:
        return None
    return Rule(verdict, tool, where=where)


def as_rule(rule: Rule | str) -> Rule:
    """
    *rule*, or the one that a text such as ``"allow bash:command=git *"`` stands for.

    Raises `ConfigError` for a text that is not a rule, and `ArgumentError` for any other value.
    """
    given = cast("object", rule)
    if isinstance(given, Rule):
        return given
    if not isinstance(given, str):
        msg = f"a rule must be a Rule or a text; got {given!r} (write Rule('allow', 'bash') or 'allow bash')"
        raise ArgumentError(msg)
    verdict, _, rest = given.strip().partition(" ")
    if verdict not in tuple(Verdict):
        msg = f"rule {given!r}: no verdict {verdict!r}; {hint(verdict, Verdict)}"
        raise ConfigError(msg)
    if (made := parse_rule(rest.strip(), Verdict(verdict))) is None:
        msg = f"rule {given!r}: no calls are named; write '{verdict} TOOL' or '{verdict} TOOL:ARGUMENT=GLOB'"
        raise ConfigError(msg)
    return made


def runs_again(why: str) -> bool:
    """Whether *why* a question is open is that the call may have run: a yes makes it run again."""
    return why.startswith(f"{Basis.LOST}: ")


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolved(path: str) -> str:
    """*path* with ``.``, ``..`` and doubled slashes resolved, as far as its text says; links are not read."""
    if "/" not in path:
        return path
    root = "/" if path.startswith("/") else ""
    kept: list[str] = []
    for part in path.split("/"):
        if part == ".." and kept and kept[-1] != "..":
            kept.pop()
        elif part == ".." and root:
            continue
        elif part not in {"", "."}:
            kept.append(part)
    return root + "/".join(kept)
