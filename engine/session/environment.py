"""What a session works with: its configuration, its performers, its clock, and how it gets a title."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self, final

import attrs

from ...performers.base import noop
from .delivery import Delivery

if TYPE_CHECKING:
    from ...effects.config import Config
    from ...effects.events import Decision
    from ...effects.history import History
    from ...effects.notices import DoneReason, Notice
    from ...effects.records import Change
    from ...effects.requests import AskApproval
    from ...effects.usage import Spent
    from ...performers.base import Clock
    from ...performers.stores.base import Store
    from ...states.context import Mail
    from ..driver import Performers
    from ..inputs import Input
    from ..machine import Machine
    from .redactor import Redactor


class Titles(StrEnum):
    """
    How sessions get their titles: not at all, from the first line of the first prompt, or from a model.

    A model is asked once, after the first run, in the background. Where it gives none, there is none.
    """

    OFF = "off"
    INLINE = "inline"
    MODEL = "model"


class Drainable(Protocol):
    """A runner of a session, as an agent sees it that drains."""

    async def drain(self, within: float | None) -> None:
        """Let the work that is under way end, and let go."""
        ...


@final
@attrs.frozen(kw_only=True)
class Environment:
    """
    What a session works with: its *config* and *clock*, and its *performers*.

    *ended* is called with the session's id and the reason of its last run when the session is closed.
    *titles* says how it gets its title; a child gets none. *watch* says what subscribers see. Every *poll*
    seconds the store is read for what other processes posted to a run that is under way here. *redactor*
    takes secrets out of approvals. *at_work* are the sessions of an agent that are run here. Of a child,
    *task* is its first prompt, and *rested* is called when it waits for people and for nothing else.
    """

    config: Config
    performers: Performers
    clock: Clock
    new_id: Callable[[], str]
    ended: Callable[[str, str], Awaitable[None]] | None = None
    poll: float = 0.5
    titles: Titles = Titles.OFF
    watch: Delivery = Delivery()
    task: Input | None = None
    redactor: Redactor | None = None
    at_work: set[Drainable] = attrs.field(factory=set)
    rested: Callable[[], None] = noop


class ChildResult(Protocol):
    """The result of a child's run, as its parent reads it."""

    @property
    def text(self) -> str:  # noqa: D102  # as Result
        ...

    @property
    def detail(self) -> str:  # noqa: D102  # as Result
        ...

    @property
    def reason(self) -> DoneReason | None:  # noqa: D102  # as Result
        ...


class ChildSession(Protocol):
    """
    A session as its parent uses it.

    Children are sessions and sessions have children: a protocol keeps the two modules apart.
    """

    id: str

    @property
    def machine(self) -> Machine | None:  # noqa: D102  # as Session
        ...

    @property
    def history(self) -> History:  # noqa: D102  # as Session
        ...

    @property
    def unfinished(self) -> bool:  # noqa: D102  # as Session
        ...

    @property
    def resting(self) -> bool:  # noqa: D102  # as Session
        ...

    @property
    def waiting(self) -> tuple[AskApproval, ...]:  # noqa: D102  # as Session
        ...

    @property
    def queue(self) -> tuple[Mail, ...]:  # noqa: D102  # as Session
        ...

    @property
    def spent(self) -> Spent:  # noqa: D102  # as Session
        ...

    def result(self) -> ChildResult:  # noqa: D102  # as Session
        ...

    async def load(self) -> Self:  # noqa: D102  # as Session
        ...

    def stream(  # noqa: D102  # as Session
        self,
        prompt: str | None = None,
        *,
        id: str | None = None,
        wait: bool = False,  # noqa: A002  # as Session
    ) -> AsyncGenerator[Notice, None]: ...

    async def approve(self, request: str, decision: Decision = ..., *, by: str = "") -> None:  # noqa: D102  # as Session
        ...

    async def control(self, change: Change) -> None:  # noqa: D102  # as Session
        ...

    async def interrupt(self) -> None:  # noqa: D102  # as Session
        ...

    async def drain(self, within: float | None = None) -> None:  # noqa: D102  # as Session
        ...

    async def close(self) -> None:  # noqa: D102  # as Session
        ...


OpenSession = Callable[["str", Environment, "Store | None"], Any]
"""Makes the session of a child: `Session` itself."""
