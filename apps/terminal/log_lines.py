"""Shows the warnings of the log on a screen that the conversation is on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import final

from ...performers.logs import LOGGER
from .sanitize import one_line

# Fields of records about what notices show: a call that failed, a hook, a question.
NOTICED = ("tool", "hook", "request")

# Characters of a warning on the screen.
MAX_WARNING = 300


@final
class _ScreenHandler(logging.Handler):
    """
    Shows a record as one line by *show*, which takes text and style, without its traceback.

    A record about what a notice shows is left out.
    """

    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = show
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        """Show *record*, from any thread."""
        # Outside a run there are no notices: the hooks of a session's end have none.
        if hasattr(record, "run") and any(hasattr(record, field) for field in NOTICED):
            return
        show = partial(self._show, one_line(record.getMessage(), MAX_WARNING))
        with suppress(RuntimeError):  # the loop is closed, and with it the screen
            self._loop.call_soon_threadsafe(show)

    def _show(self, text: str) -> None:
        with suppress(OSError):  # a closed terminal takes no message
            self._write(text, "warning")


@contextmanager
def log_lines(show: Callable[[str, str], None]) -> Generator[None]:
    """Show warnings by *show*, where Python would print them with tracebacks in the middle of a screen."""
    handler = _ScreenHandler(show)
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
