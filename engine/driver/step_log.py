"""One log line per step, for whoever configured structlog; silence for everybody else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, final

from ...effects.events import ModelStreamed

if TYPE_CHECKING:
    from ...effects import Effect
    from ...effects.events import Event
    from ..machine import Machine


def logger(session: str) -> Any:  # noqa: ANN401  # whatever structlog was configured with
    """
    Where to write about *session*, or None.

    A library that nobody told where to log does not log: without `structlog.configure` there is no line.
    """
    # Who has not imported structlog has not configured it either, and need not wait for its import.
    structlog = sys.modules.get("structlog")
    if structlog is None or not structlog.is_configured():
        return None
    return structlog.get_logger("turnwheel").bind(session=session)


@final
class StepLog:
    """
    Writes the steps of one run, bound to its session and run.

    Pieces of a stream are told at debug level, everything else at info.
    """

    __slots__ = ("_log", "_machine", "_number")

    def __init__(self, session: str, machine: Machine) -> None:
        self._machine = machine
        self._number = 0
        self._log = logger(session)
        if self._log is not None:
            self._log = self._log.bind(run=machine.memory.run)

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
