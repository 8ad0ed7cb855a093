"""
What the suite asks of a host: workers that can be killed, one way in for clients, and journals to read.

To add one, implement `Host` and add it to `HOSTS` of `hosts.known`. Workers make their agent with
`make_agent`, so that all hosts play the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias, final

import attrs


@final
@attrs.frozen
class Prompt:
    """A prompt under the sender's own *id*."""

    id: str
    text: str


@final
@attrs.frozen
class Steer:
    """A steer, read after the call that runs, under the sender's own *id*."""

    id: str
    text: str


@final
@attrs.frozen
class Answer:
    """An answer to the question *request*: yes, perhaps with other *arguments*, or no."""

    request: str
    yes: bool = True
    arguments: Mapping[str, str] | None = None


@final
@attrs.frozen
class Interrupt:
    """Stop the run."""


@final
@attrs.frozen
class Think:
    """Change a setting: how many *tokens* the model may think."""

    tokens: int


@final
@attrs.frozen
class Cancel:
    """Give up one *call*."""

    call: str


Input: TypeAlias = Prompt | Steer | Answer | Interrupt | Think | Cancel


@final
@attrs.frozen
class Look:
    """A session from outside: whether it is *over*, and its open *questions*."""

    over: bool
    questions: tuple[str, ...] = ()


class Harm(StrEnum):
    """What is done while sessions are at work: to a worker, to the server that keeps them, or between."""

    KILL = "kill"
    FREEZE = "freeze"
    CRASH = "crash"
    CUT = "cut"


class Host(Protocol):
    """Sessions over several worker processes."""

    @property
    def name(self) -> str: ...

    async def start(self, folder: Path, workers: int, pace: float, harm: Harm | None = None) -> None:
        """
        Begin; what it keeps goes into *folder*, and a tool takes *pace* seconds.

        It is to bear *harm*: others go on soon. Where there is none, it is patient with what is slow.
        """
        ...

    async def stop(self) -> None: ...

    def kill(self, worker: int) -> int:
        """End the process of *worker* with -9; its pid."""
        ...

    async def begin(self, worker: int) -> None:
        """Begin a new process in the place of *worker*."""
        ...

    async def upgrade(self, worker: int) -> None:
        """Begin a process of the next version in the place of *worker*, as the host's page says."""
        ...

    def freeze(self, worker: int) -> int:
        """Stop the process of *worker* where it is; its pid."""
        ...

    def thaw(self, worker: int) -> None: ...

    async def crash(self) -> None:
        """End the server that keeps the sessions as a crash does, where there is one, and start it again."""
        ...

    async def cut(self, worker: int, seconds: float, *, resets: bool) -> None:
        """
        Cut the network of *worker* for so many *seconds*: what is sent waits.

        With *resets* connections break instead, and new ones do.
        """
        ...

    async def held(self, worker: int) -> Sequence[str]:
        """The sessions that *worker* is at work on."""
        ...

    async def put(self, session: str, given: Input) -> None:
        """Put *given* in, as a client that tries again until it is taken; a prompt may begin the session."""
        ...

    async def look(self, session: str) -> Look: ...

    async def at_rest(self, prefix: str) -> Collection[str]:
        """The sessions whose names begin with *prefix* and that do not go on by themselves now."""
        ...

    async def journals(self, session: str) -> Mapping[str, Sequence[bytes]]:
        """The journal of *session* and those of its children, by name."""
        ...
