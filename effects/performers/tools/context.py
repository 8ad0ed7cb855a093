"""What a tool is told besides its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Generic, TypeVar, final

import attrs

from ...history import History
from ..base import nothing

D_co = TypeVar("D_co", covariant=True)


def _unheard(text: str) -> None:
    """Where progress goes when nobody listens."""


def _only_cwd(context: ToolContext[object]) -> tuple[Path, ...]:
    return (context.cwd,)


@final
@attrs.frozen(kw_only=True)
class ToolContext(Generic[D_co]):
    """
    Where a tool runs and for whom. A parameter annotated with it is filled in and never shown to the model.

    *directories* are all roots the file tools may touch, *cwd* among them; an absolute one is taken as it is
    and must be free of symlinks. *key* is the idempotency key: a call that is run again after a crash has the
    key it had before. *deps* is whatever the host handed to its `ToolRunner`. *history* is the conversation
    as it was when the call started, and does not change.

    *room* is how many characters of a result the conversation holds whole, None for all of them: a tool that
    can be asked for the next part returns no more. *whole* finds the whole result of a call, by its id, that
    was longer; None where there is none. A test of a tool may build one with *cwd* and *deps* alone.
    """

    cwd: Path
    deps: D_co
    directories: tuple[Path, ...] = attrs.field(default=attrs.Factory(_only_cwd, takes_self=True))
    session: str = ""
    call: str = ""
    key: str = ""
    history: History = attrs.field(factory=History.of, repr=False)
    room: int | None = None
    whole: Callable[[str], Awaitable[str | None]] = attrs.field(default=nothing, repr=False, eq=False)
    emit: Callable[[str], None] = attrs.field(default=_unheard, repr=False, eq=False)

    def progress(self, text: str) -> None:
        """
        Tell whoever watches how far the tool is; the model does not read it. Fine to call from any thread.

        What is said after the call was answered, by a tool that did not stop in time, is dropped.
        """
        self.emit(text)
