"""The names of calls in a chat: numbers that count through all of its runs."""

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
    """
    The names of the calls of one session, as they are shown.

    If *counts*, the calls are numbered 1, 2, 3 in the order in which they are first named. The number in the
    id of a call is not enough then: it begins anew with each run. Programs read ids, so for them it is the
    name.
    """

    def __init__(self, *, counts: bool) -> None:
        self._counts = counts
        self._names: dict[str, str] = {}

    def clear(self) -> None:
        """Forget all calls, since another session is shown."""
        self._names.clear()

    def add(self, history: Iterable[Message]) -> None:
        """Name the calls in *history*, which were shown before."""
        for message in history:
            for call in message.calls:
                self.name(call.id)

    def name(self, call: str) -> str:
        """The name of *call*; the next number if it has none yet."""
        return self._names.setdefault(call, str(len(self._names) + 1) if self._counts else short(call))

    @property
    def last(self) -> str | None:
        """The call that was named last; None before the first one."""
        return next(reversed(self._names), None)

    def find(self, name: str, among: Iterable[str] | None = None) -> str:
        """
        The call that *name* means, an id or a name: one of *among*, or the latest of all.

        Raises `ConfigError` with the names there are.
        """
        calls = tuple(self._names if among is None else among)
        wanted = name.removeprefix("#")
        meant = [call for call in calls if wanted in {call, self.name(call)}]
        # An ambiguous name is an error where the call is acted on: that cannot be undone.
        if meant and (among is None or len(meant) == 1):
            return meant[-1]
        names = [f"#{self.name(call)}" for call in calls[-MAX_NAMED_CALLS:]]
        listed = ", ".join([*["..."][: len(calls) > MAX_NAMED_CALLS], *names]) or "none"
        msg = f"no call {name!r}{'' if among is None else ' under way'}; there are: {listed}"
        raise ConfigError(msg)
