"""A terminal or a pipe as a place to write: lines, running text, and a spinner that never stays behind."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO, final

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from .plain import clean

SIGNS, PLAIN_SIGNS = ("●", "⎿", "·", "✓", "✗"), ("*", "|", "-", "+", "x")
"""Before a call and its result, between facts, for yes and no; and where they cannot be drawn."""

INDENT = "  "
"""Before what belongs to the line above."""


@final
class _Console(Console):
    """A console that says that nobody reads it any more, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Leave it to whoever writes."""
        raise  # noqa: PLE0704  # rich calls this while it handles the error


@final
class _Waiting:
    """What the spinner's line says, asked again for each picture of it."""

    def __init__(self, says: Callable[[], str], style: str) -> None:
        self._says = says
        self._style = style
        self._spinner = Spinner("dots", style=style)

    def __rich__(self) -> Spinner:
        """The line as it is now."""
        self._spinner.update(text=Text(self._says(), style=self._style, no_wrap=True, overflow="ellipsis"))
        return self._spinner


@final
class Screen:
    """
    Writes to *file*: with colours, a spinner and its width where that is a terminal, plainly where it is not.

    Everything written is cleaned of what a terminal would obey. `NO_COLOR` is respected.
    """

    def __init__(self, file: TextIO) -> None:
        reconfigure = getattr(file, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a character that the encoding lacks must not end a run
        # Whatever FORCE_COLOR and its kin say, a pipe gets no codes.
        self._console = _Console(
            file=file,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=True,
            force_terminal=file.isatty(),
        )
        self._live: Live | None = None
        self._at_start = True
        signs = SIGNS if _can_encode(file, "".join(SIGNS)) else PLAIN_SIGNS
        self.dot, self.elbow, self.middle, self.yes, self.no = signs

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at this."""
        return self._console.is_terminal

    @property
    def width(self) -> int:
        """Columns for a line; generous where nobody looks."""
        return self._console.width if self.is_terminal else 160

    def line(self, text: str = "", style: str = "") -> None:
        """Write *text* as a line of its own."""
        self.lines(Text(clean(text), style=style))

    def lines(self, *parts: Text) -> None:
        """Write the styled *parts*, which have been cleaned, as lines of their own."""
        self.still()
        self.start_of_line()
        for part in parts:
            self._console.print(part)

    def run_on(self, text: str, style: str = "") -> None:
        """Write *text* behind what was written last."""
        self.still()
        shown = clean(text)
        self._console.print(Text(shown, style=style), end="")
        self._console.file.flush()
        self._at_start = shown.endswith("\n") if shown else self._at_start

    def start_of_line(self) -> None:
        """Go to the start of a line, if not there already."""
        if not self._at_start:
            self._console.print()
            self._at_start = True

    def typed(self, line: str) -> None:
        """A person typed *line*, which the terminal showed by itself."""
        self._at_start = line.endswith("\n")
        self.start_of_line()

    @property
    def can_spin(self) -> bool:
        """Whether `spin` shows something."""
        return self.is_terminal and not self._console.is_dumb_terminal

    def spin(self, says: Callable[[], str]) -> None:
        """Show that something goes on, in the words of *says*, until something else is written."""
        if not self.can_spin:
            return
        self.still()
        self.start_of_line()
        self._live = Live(
            _Waiting(says, "dim"),
            console=self._console,
            transient=True,
            refresh_per_second=12.5,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def still(self) -> None:
        """Take the spinner away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def timer() -> Callable[[], str]:
    """Says how many seconds have passed since it was made; nothing in the first."""
    begun = time.monotonic()

    def says() -> str:
        seconds = int(time.monotonic() - begun)
        return f"{seconds} s" if seconds else ""

    return says


def _can_encode(file: TextIO, text: str) -> bool:
    try:
        text.encode(file.encoding or "utf-8")  # what is only kept in memory has none
    except (UnicodeEncodeError, LookupError):
        return False
    return os.environ.get("TERM") != "linux"  # its font has few of them
