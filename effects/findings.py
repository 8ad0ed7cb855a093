"""
What a look at a call found: the files that its paths reach, and the programs that its command runs.

A machine touches no file and parses no shell. So a performer does, and what it found comes in as an event,
by which the rules judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

# In a word, where a part of it is known only when the command runs. No word of a command has this character.
UNKNOWN = "\0"

# Paths of one argument that are looked at. Of more, nothing is known.
MOST_PATHS = 200


@final
@attrs.frozen(kw_only=True)
class PathFound:
    """
    A path, the *value* of *argument*: how it may be *written*, and what it reaches through links, as *real*.

    *doubt* is why there may be other names for what it reaches; empty where there are none.
    """

    argument: str
    value: str
    written: tuple[str, ...] = ()
    real: tuple[str, ...] = ()
    doubt: str = ""


@final
@attrs.frozen(kw_only=True)
class SimpleCommand:
    """
    A program and its arguments, quotes removed. *inner*: it stands in an argument of another one.

    `UNKNOWN` stands in a word for what is known only when the command runs.
    """

    words: tuple[str, ...]
    inner: bool = False


@final
@attrs.frozen(kw_only=True)
class CommandFound:
    """
    The *commands* of which a command, *argument*, is made.

    *beyond* is what it does besides running them, such as writing a file. *unread* is why it may run others
    than these. Both are empty where that is not so.
    """

    argument: str
    commands: tuple[SimpleCommand, ...] = ()
    beyond: str = ""
    unread: str = ""


@final
@attrs.frozen(kw_only=True)
class Finding:
    """What was found of a call; nothing of an argument that could not be looked at."""

    paths: tuple[PathFound, ...] = ()
    commands: tuple[CommandFound, ...] = ()

    def command(self, argument: str) -> CommandFound | None:
        """What is known of the command *argument*."""
        return next((found for found in self.commands if found.argument == argument), None)


def paths_in(value: object) -> list[str]:
    """The paths in *value*, of an argument that is declared as paths: each text in it, at any depth."""
    texts: list[str] = []
    values = [value]
    while values:
        match values.pop():
            case str() as text:
                texts.append(text)
            case list() | tuple() as items:
                values += reversed(items)
            case Mapping() as fields:
                values += [*fields.values(), *fields]
            case _:
                pass
    return texts
