"""What came of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from ..effects.messages import Role
from ..effects.notices import DoneReason
from ..effects.requests import AskApproval
from ..effects.usage import Spent
from ..states.state import Done

if TYPE_CHECKING:
    from .machine import Machine


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
