"""What every stream of notices has: `async for`, `async with`, and errors for what it is not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn, Self, cast, final

from ...effects.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable
    from types import AsyncGeneratorType

    from ...effects.notices import Notice


class NoticeStream(ABC):
    """
    The notices of a run, for ``async for``. ``async with`` leaves the run where its block ends, as `aclose`.
    """

    __slots__ = ()

    def __aiter__(self) -> Self:
        if self.ended:
            msg = "this stream has ended, and has no more notices; call stream() again"
            raise ArgumentError(msg)
        return self

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether it was read to its end, or left."""

    @abstractmethod
    def __anext__(self) -> Awaitable[Notice]:
        """The next notice."""

    @abstractmethod
    async def aclose(self) -> None:
        """Leave the run."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Type checkers refuse both by themselves, as long as they do not see these.
    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            msg = "a stream has no plain loop; write 'async for', in an async function"
            raise ArgumentError(msg)

        def __await__(self) -> NoReturn:
            msg = "a stream is not awaited; write 'async for notice in ...', or await run()"
            raise ArgumentError(msg)


@final
class AgentStream(NoticeStream):
    """The notices of a run that has its own session; from `Agent.stream`. Leaving it ends the run."""

    __slots__ = ("_notices",)

    def __init__(self, notices: AsyncGenerator[Notice, None]) -> None:
        self._notices = notices

    @property
    def ended(self) -> bool:
        """Whether it was read to its end, or left."""
        # An asynchronous generator that is over has no frame.
        return cast("AsyncGeneratorType[Notice, None]", self._notices).ag_frame is None

    def __anext__(self) -> Awaitable[Notice]:
        # Not a coroutine of its own, which each delta would pay for.
        return self._notices.__anext__()

    async def aclose(self) -> None:
        """Leave the run; its work has stopped, and it has ended, when this returns."""
        await self._notices.aclose()
