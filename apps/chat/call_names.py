"""The names of the calls that a chat has shown: the numbers in their ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from ...effects.errors import ConfigError
from ...effects.messages import Message
from ..cli.option_types import short

MAX_NAMED_CALLS = 10
"""The latest calls that the error for an unknown call lists."""


@final
class CallNames:
    """The calls of one session that were shown, by their names: the numbers that all commands take."""

    def __init__(self) -> None:
        self._shown: dict[str, None] = {}

    def clear(self) -> None:
        """Forget all calls, since another session is shown."""
        self._shown.clear()

    def add(self, history: Iterable[Message]) -> None:
        """Name the calls in *history*, which were shown before."""
        for message in history:
            for call in message.calls:
                self.name(call.id)

    def name(self, call: str) -> str:
        """The name of *call*, which is shown."""
        self._shown.setdefault(call)
        return short(call)

    @property
    def last(self) -> str | None:
        """The call that was first shown last; None before the first one."""
        return next(reversed(self._shown), None)

    def find(self, name: str, among: Iterable[str] | None = None) -> str:
        """
        The call that *name* means, an id or a name: one of *among*, or the latest of all.

        Raises `ConfigError` with the names there are.
        """
        calls = tuple(self._shown if among is None else among)
        wanted = name.removeprefix("#")
        meant = [call for call in calls if wanted in {call, short(call)}]
        # An ambiguous name is an error where the call is acted on: that cannot be undone.
        if meant and (among is None or len(meant) == 1):
            return meant[-1]
        names = [f"#{short(call)}" for call in calls[-MAX_NAMED_CALLS:]]
        listed = ", ".join([*["..."][: len(calls) > MAX_NAMED_CALLS], *names]) or "none"
        msg = f"no call {name!r}{'' if among is None else ' under way'}; there are: {listed}"
        raise ConfigError(msg)
