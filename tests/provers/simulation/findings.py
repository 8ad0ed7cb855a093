"""What a look at a call of a played world finds: mostly what is written, and all that can be in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from provers.choices import Choices, chance, weighted
from turnwheel.effects.findings import (
    UNKNOWN,
    CommandFound,
    Finding,
    PathFound,
    SimpleCommand,
)
from turnwheel.states.rules.schema import arguments_of

if TYPE_CHECKING:
    from turnwheel.effects.requests import InspectCall

PATHS, COMMAND = "write", "note"
"""The tool of which `path` is a path, and the one of which it is a command."""


def found(choices: Choices, request: InspectCall) -> Finding:
    """What is found of the call of *request*; now and then nothing."""
    value = (arguments_of(request.arguments) or {}).get("path")
    if not isinstance(value, str) or chance(choices, 8):
        return Finding()
    if request.tool == COMMAND:
        return Finding(commands=(_command(choices, value),))
    reached = weighted(choices, {value: 70, "secret": 15, "elsewhere": 15})
    doubt = weighted(choices, {"": 85, "it has two names": 15})
    path = PathFound(argument="path", value=value, written=(value,), real=(reached,), doubt=doubt)
    return Finding(paths=(path,))


def caught(about: Finding) -> Finding:
    """As *about*, but each path leads to a secret, which a rule may deny."""
    return attrs.evolve(about, paths=tuple([attrs.evolve(path, real=("secret",)) for path in about.paths]))


def _command(choices: Choices, value: str) -> CommandFound:
    runs = weighted(choices, {value: 70, "secret": 15, f"a{UNKNOWN}": 15})
    commands = [SimpleCommand(words=(value,)), SimpleCommand(words=(runs,), inner=chance(choices, 20))]
    return CommandFound(
        argument="path",
        commands=tuple(commands[choices.below(2) :]),
        beyond=weighted(choices, {"": 80, "it writes": 20}),
        unread=weighted(choices, {"": 85, "it cannot be read": 15}),
    )
