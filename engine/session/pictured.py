"""What a session shows of itself: a card in a notebook, and pictures of its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...display.notebook import Card, Displayed
from ...display.rendering import line_of, spent_of, state_line

if TYPE_CHECKING:
    from ..inspect.pictures import PictureKind
    from .session_log import SessionLog


class Pictured(Displayed):
    """The pictures of a `Session`."""

    __slots__ = ()

    id: str
    _log: SessionLog

    async def picture(self, kind: PictureKind = "path") -> str:
        """
        A picture of its runs as SVG.

        "path" is the way through the machine, "sequence" who asked whom, "calls" how long each call took.

        Reads the whole journal. Raises `ConfigError` without a store.
        """
        # Most processes never ask, and the converter costs more to set up than the rest of the engine.
        from ..inspect.pictures import picture_of  # noqa: PLC0415  # see above
        from ..inspect.replay import replayed  # noqa: PLC0415  # as above

        return picture_of(replayed(await self._log.journal.load(), self.id), kind)

    def _card(self) -> Card:
        state = self._log.state
        machine = state.machine
        if machine is None:
            return Card(title="Session", beside=f"{self.id!r}: no run yet")
        lines = [f"waits for {line_of(question)}" for question in state.questions]
        lines.append(f"spent {spent_of(state.spent) or 'nothing'}")
        return Card(
            title="Session",
            beside=f"{self.id!r}: {state_line(machine.state)}",
            lines=tuple(lines),
            label=machine.state.label,
        )
