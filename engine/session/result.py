"""What came of a run."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, final

import attrs

from ...effects.messages import Role
from ...effects.notices import (
    DoneReason,
    InputBlocked,
    InputTaken,
    RunEnded,
)
from ...effects.requests import AskApproval
from ...effects.usage import Spent
from ...states.state import Done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ...effects.notices import Notice
    from ..machine import Machine


@final
@attrs.frozen(kw_only=True)
class Result:
    """
    A run that is over, or rests.

    *text* is the last answer. *reason* is why it ended, or None where it is not over; *waiting* are the
    questions it then rests on. *spent* is its account (turns, tokens, USD, seconds). *detail* says more
    where *reason* is not enough, such as the provider's words of an error.
    """

    session: str
    run: str
    text: str
    reason: DoneReason | None
    spent: Spent
    waiting: tuple[AskApproval, ...] = ()
    detail: str = ""

    @classmethod
    def of(cls, session: str, machine: Machine, waiting: tuple[AskApproval, ...]) -> Result:
        """The result of *machine*'s run, as far as it has come."""
        over = machine.state if isinstance(machine.state, Done) else None
        return cls(
            session=session,
            run=machine.memory.run,
            text=_last_answer(machine),
            reason=None if over is None else over.reason,
            # A session that went back stands at the end of a run whose bill was closed long ago.
            spent=machine.memory.spent if over is None else over.spent,
            waiting=waiting,
            detail="" if over is None else over.detail,
        )


def _last_answer(machine: Machine) -> str:
    """The text of the last assistant message since the last prompt."""
    history = machine.memory.history
    for index in range(len(history) - 1, -1, -1):
        message = history[index]
        if message.role is Role.ASSISTANT:
            return message.text
        if message.role is Role.USER:
            break
    return ""


async def result_for(
    sender: str | None, stream: AsyncGenerator[Notice, None], result: Callable[[], Result]
) -> Result | None:
    """
    Let *stream* come to its end; the *result* when that run was over which took the prompt of *sender*.

    None where no run took it.
    """
    mine: Result | None = None
    taken = False
    async with aclosing(stream) as notices:
        async for notice in notices:
            if isinstance(notice, InputTaken | InputBlocked):
                taken = taken or sender in notice.ids
            elif isinstance(notice, RunEnded) and taken and mine is None:
                mine = result()
    return mine
