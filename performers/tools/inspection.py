"""
Looking at a call before it is judged: `Inspector` performs `InspectCall`.

Theory of operation. A path is told in each spelling by which a rule may name it: as it is written, and as
what it reaches through links, from the root and from the working directory. A rule may itself name a place
through a link, so the place is also told as the rule would.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from glob import escape
from pathlib import Path
from typing import final

from ...effects import CallInspected, InspectCall, ToolSpec
from ...effects.findings import MOST_PATHS, CommandFound, Finding, PathFound, paths_in
from ...effects.permissions import Rule, Verdict, resolved
from ...effects.secrets import PLACEHOLDER_MARK
from ...states.rules.rule_fit import below
from ...states.rules.schema import arguments_of
from ..base import PerformContext
from ..logs import FaultLog
from ..worker_pool import WorkerPool
from .paths import as_listed, roots

# Characters that make a part of a glob more than a name.
_SPECIAL = frozenset("*?[")

HAS_SECRET = "it has a secret in it, which is known only when it runs"  # noqa: S105  # a reason, and no secret


@final
class Inspector:
    """Looks at calls whose tools work in *cwd*. Raises `ConfigError` where that is no directory."""

    def __init__(self, cwd: Path | str = ".") -> None:
        self._cwd = str(roots(cwd, ())[0])
        self._pool = WorkerPool(threads=4)

    async def __call__(self, request: InspectCall, scene: PerformContext) -> CallInspected:
        """Look at what the call reaches and runs, in a thread, since a disk may be far away."""
        spec = scene.config.tool(request.tool)
        finding = Finding()
        if spec is not None:
            given = arguments_of(request.arguments) or {}
            looked = partial(_safely, scene.faults, spec, given, self._cwd, request.globs)
            finding = await self._pool.thread(looked).result()
        return CallInspected(at=scene.clock.now(), request=request.id, finding=finding)


def _safely(
    faults: FaultLog, spec: ToolSpec, arguments: Mapping[str, object], cwd: str, globs: Iterable[str]
) -> Finding:
    # What a model wrote may bring any reader down. Nothing found makes the call a question.
    try:
        return look(spec, arguments, cwd, globs)
    except Exception as error:  # noqa: BLE001  # as said
        faults.report("a call could not be looked at", error, tool=spec.name)
        return Finding()


def look(spec: ToolSpec, arguments: Mapping[str, object], cwd: str, globs: Iterable[str]) -> Finding:
    """What *arguments* of a call of *spec* reach and run in *cwd*; *globs* are those of rules for paths."""
    links = list(linked(globs, cwd))
    paths = [
        found_path(name, value, cwd, links)
        for name in spec.paths
        for value in paths_in(arguments.get(name))[:MOST_PATHS]
    ]
    return Finding(paths=tuple(paths), commands=_found_commands(spec, arguments))


def look_without_disk(spec: ToolSpec, arguments: Mapping[str, object], cwd: str, real: str = "") -> Finding:
    """What *arguments* reach and run where no path has a link in it, or where each one leads to *real*."""
    paths: list[PathFound] = []
    for name in spec.paths:
        for value in paths_in(arguments.get(name))[:MOST_PATHS]:
            plain = os.path.normpath(Path(cwd, value))
            written = tuple(dict.fromkeys([resolved(value), *spelled(plain, cwd)]))
            reached = spelled(os.path.normpath(Path(cwd, real)) if real else plain, cwd)
            paths.append(PathFound(argument=name, value=value, written=written, real=reached))
    return Finding(paths=tuple(paths), commands=_found_commands(spec, arguments))


def _found_commands(spec: ToolSpec, arguments: Mapping[str, object]) -> tuple[CommandFound, ...]:
    command = arguments.get(spec.command)
    return (_found_command(spec.command, command),) if isinstance(command, str) else ()


def _found_command(argument: str, text: str) -> CommandFound:
    from .shell import read_command  # noqa: PLC0415  # only for tools with commands that a rule names

    if PLACEHOLDER_MARK in text:
        return CommandFound(argument=argument, unread=HAS_SECRET)
    return read_command(argument, text)


def found_path(argument: str, value: str, cwd: str, links: Iterable[tuple[str, str]]) -> PathFound:
    """What *value* reaches; *links* are the places that rules name, perhaps through links, as `linked`."""
    if PLACEHOLDER_MARK in value:
        return PathFound(argument=argument, value=value, doubt=HAS_SECRET)
    try:
        whole = Path(cwd, value)
        # As the file tools find it: a name may be written as a listing shows it.
        plain, real = os.path.normpath(whole), os.path.realpath(as_listed(whole))
        doubt = _doubt(value, real)
    except (OSError, ValueError) as error:
        return PathFound(argument=argument, value=value, doubt=f"{value!r} cannot be resolved: {error}")
    named = [place + real[len(target) :] for place, target in links if is_below(real, target)]
    return PathFound(
        argument=argument,
        value=value,
        written=tuple(dict.fromkeys([resolved(value), *spelled(plain, cwd)])),
        real=tuple(dict.fromkeys([*spelled(real, cwd), *named])),
        doubt=doubt,
    )


def spelled(path: str, cwd: str) -> tuple[str, str]:
    """The absolute *path* from the root and from *cwd*."""
    return path, os.path.relpath(path, cwd)


def _doubt(value: str, real: str) -> str:
    """Why what is at *real* may have other names; empty where it has none."""
    try:
        found = Path(real).lstat()
    except OSError:  # there is nothing, so nothing has another name
        return ""
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
        return f"{value!r} is one of {found.st_nlink} names of a file (hard links)"
    return ""


def linked(globs: Iterable[str], cwd: str) -> Iterator[tuple[str, str]]:
    """The places that *globs* begin with, as they name them, and where those are."""
    for glob in globs:
        parts = resolved(glob).split("/")
        fixed = next((at for at, part in enumerate(parts) if _SPECIAL & {*part}), len(parts))
        place = "/".join(parts[:fixed])
        if place:
            yield place, os.path.realpath(Path(cwd, place))


def denied_globs(tool: str, rules: Iterable[Rule], cwd: str) -> list[str]:
    """The globs of paths that *rules* deny to *tool*, or to `read`: what it would show is no secret then."""
    globs = [resolved(glob) for _, glob in below(rules, Verdict.DENY, tool)]
    # Also where a rule names a place through a link.
    real = [escape(target) + each[len(place) :] for each in globs for place, target in linked([each], cwd)]
    return globs + real


def is_below(path: str, folder: str) -> bool:
    """Whether *path* is *folder*, or is in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
