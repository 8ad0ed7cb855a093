"""One log line per step, for whoever configured structlog; silence for everybody else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, final

from ..effects.events import ModelStreamed

if TYPE_CHECKING:
    from ..effects import Effect
    from ..effects.events import Event
    from .machine import Machine


@final
class StepLog:
    """
    Writes the steps of one run, bound to its session and run.

    A library that nobody told where to log does not log: without `structlog.configure` there is no line.
    Pieces of a stream are told at debug level, everything else at info.
    """

    __slots__ = ("_log", "_machine", "_number")

    def __init__(self, session: str, machine: Machine) -> None:
        self._machine = machine
        self._number = 0
        self._log: Any = None
        # Who has not imported structlog has not configured it either, and need not wait for its import.
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            self._log = structlog.get_logger("turnwheel").bind(session=session, run=machine.memory.run)

    def step(self, event: Event, effects: tuple[Effect, ...]) -> None:
        """Write that *event* was applied and gave *effects*."""
        self._number += 1
        if self._log is None:
            return
        say = self._log.debug if isinstance(event, ModelStreamed) else self._log.info
        say(
            "step",
            step=self._number,
            event_type=type(event).__name__,
            state=self._machine.state.label,
            effects=[type(effect).__name__ for effect in effects],
        )
