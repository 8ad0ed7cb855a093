"""A compose file as compose reads it, as far as ours goes: values of the environment, commands, times."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import attrs
import yaml

# $$, ${NAME}, ${NAME:-default} or ${NAME:?what is missing}
VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(?::([-?])([^}]*))?\})")


def interpolated(value: Any, given: Mapping[str, str]) -> Any:
    """*value* of a compose file with what is *given* for its variables; `LookupError` for a needed one."""
    if isinstance(value, Mapping):
        return {name: interpolated(each, given) for name, each in value.items()}
    if isinstance(value, list):
        return [interpolated(each, given) for each in value]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        if name is None:
            return "$"
        if kind == "?" and not given.get(name):
            msg = f"{name}: {rest}"
            raise LookupError(msg)
        return given.get(name) or (rest if kind == "-" else "")

    return VARIABLE.sub(found, value)


def seconds(duration: str) -> float:
    """*duration* as compose has it, of one unit."""
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", duration).groups()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # another form fails here
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


@final
@attrs.frozen
class Service:
    """A service of a compose file."""

    name: str
    keys: Mapping[str, Any]

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.keys.get("environment", {}).items()}

    @property
    def command(self) -> list[str]:
        given: str | list[str] = self.keys["command"]
        return shlex.split(given) if isinstance(given, str) else given

    @property
    def health_check(self) -> list[str]:
        test: list[str] = self.keys["healthcheck"]["test"]
        return {"CMD": test[1:], "CMD-SHELL": ["/bin/sh", "-c", *test[1:]]}[test[0]]

    @property
    def grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL."""
        return seconds(self.keys["stop_grace_period"])


def plain_of(path: Path) -> dict[str, Any]:
    """The compose file at *path*, with its anchors resolved."""
    plain: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return plain


def services_of(plain: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Service]:
    """The services of a *plain* file, by name, with what is *given* as environment."""
    services = interpolated(plain["services"], given)
    return {name: Service(name, keys) for name, keys in services.items()}
