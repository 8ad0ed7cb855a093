"""
A terminal or a pipe as a place to write: lines, running text, and what stands below them all.

Theory of operation. What is written stays where it is and scrolls away. Below it there may be a *dock*: rows
that are drawn again and again, such as the line that a person types. Before anything is written the dock is
taken away and the cursor put behind what was written last; afterwards the dock is drawn again. So that the
cursor can be put there, the column that running text has reached is counted as a terminal counts it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO, final

import attrs
from rich.cells import cell_len
from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from .sanitize import clean
from .wrap import Wrap

SIGNS, PLAIN_SIGNS = ("●", "⎿", "·", "✓", "✗"), ("*", "|", "-", "+", "x")
"""Before a call and its result, between facts, for yes and no; and where they cannot be drawn."""

INDENT = "  "
"""Before what belongs to the line above."""

TAB = 8
"""Columns between two stops of a tabulator."""

# A terminal that knows them shows everything between them at once; the others pass over them.
_TOGETHER, _DONE = "\x1b[?2026h", "\x1b[?2026l"


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
@attrs.frozen
class Dock:
    """Rows below all that is written, each cut to the width there is; the cursor is at *row* and *column*."""

    rows: tuple[Text, ...]
    row: int
    column: int


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
        self._column = 0
        self._full = False
        """Whether the last row was full when the dock was drawn, so that what comes begins a row."""
        self._dock: Callable[[], Dock] | None = None
        self._docked: Dock | None = None
        self.waits_for: Callable[[], str] | None = None
        """What `spin` was told, until `still`."""
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

    def say(self, text: str, style: str = "") -> None:
        """Write *text* as `line` does, broken at its spaces where it is wider than the screen."""
        wrap = Wrap(lambda: self.width)
        shown = clean(text)
        self.lines(Text(wrap.feed(shown) + wrap.end() if self.is_terminal else shown, style=style))

    def lines(self, *parts: Text) -> None:
        """Write the styled *parts*, which have been cleaned, as lines of their own."""
        self._stop_live()
        with self._above_the_dock():
            self._end_line()
            for part in parts:
                self._console.print(part)

    def run_on(self, text: str, style: str = "") -> None:
        """Write *text* behind what was written last."""
        self._stop_live()
        with self._above_the_dock():
            shown = clean(text)
            if self._full:
                shown = shown.removeprefix("\n")  # the dock has begun a row already
            self._full = self._full and not shown
            self._console.print(Text(self._counted(shown), style=style), end="")
            self._console.file.flush()

    def start_of_line(self) -> None:
        """Go to the start of a line, if not there already."""
        with self._above_the_dock():
            self._end_line()

    def typed(self, line: str) -> None:
        """A person typed *line*, which the terminal showed by itself."""
        self._column = 0 if line.endswith("\n") else 1
        self.start_of_line()

    def _end_line(self) -> None:
        self._full = False
        if self._column:
            self._console.print()
            self._column = 0

    def _counted(self, text: str) -> str:
        """*text* without tabulators, after which the cursor is where `_column` says."""
        out: list[str] = []
        for char in text:
            shown = " " * (TAB - self._column % TAB) if char == "\t" else char
            cells = cell_len(shown)
            # At the end of a row a terminal waits for the next character before it begins another one.
            beyond = self._column + cells > self.width
            self._column = 0 if char == "\n" else cells if beyond else self._column + cells
            out.append(shown)
        return "".join(out)

    # While something is waited for

    @property
    def can_spin(self) -> bool:
        """Whether `spin` shows something."""
        return self.is_terminal and not self._console.is_dumb_terminal

    def spin(self, says: Callable[[], str]) -> None:
        """
        Show that something goes on, in the words of *says*.

        Without a dock that is until something else is written, with one until `still`.
        """
        if not self.can_spin:
            return
        self.still()
        self.waits_for = says
        if self._dock is not None:
            self.redraw()
            return
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
        self.waits_for = None
        self._stop_live()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # The dock

    @contextmanager
    def dock(self, shows: Callable[[], Dock]) -> Generator[None]:
        """Keep what *shows* says below all that is written."""
        self.still()
        self._dock = shows
        self.redraw()
        try:
            yield
        finally:
            self._lift()
            self._dock = None
            self._console.file.flush()

    def redraw(self) -> None:
        """Draw the dock as it is now."""
        if self._dock is not None and self._dock() != self._docked:
            with self._above_the_dock():
                pass

    @contextmanager
    def undocked(self) -> Generator[None]:
        """Within `dock`: leave the screen to another program."""
        shows = self._dock
        self._lift()
        self._dock = None
        self._console.file.flush()
        try:
            yield
        finally:
            self._dock = shows
            self.redraw()

    def redraw_all(self) -> None:
        """Another program has written meanwhile: what was drawn is no longer where it was."""
        self._docked, self._column = None, 0
        self.redraw()

    def control(self, codes: str) -> None:
        """Tell the terminal *codes*, which draw nothing."""
        self._write(codes)
        self._console.file.flush()

    @contextmanager
    def _above_the_dock(self) -> Generator[None]:
        if self._dock is None:
            yield
            return
        self._write(_TOGETHER)
        self._lift()
        try:
            yield
        finally:
            self._lower(self._dock())
            self._write(_DONE)
            self._console.file.flush()

    def _lift(self) -> None:
        """Take the dock away; the cursor is behind what was written last."""
        docked, self._docked = self._docked, None
        if docked is None:
            return
        # Where the window has become narrower since, a terminal has broken the rows that no longer fit.
        above = sum([-(-max(1, cell_len(row.plain)) // self.width) for row in docked.rows[: docked.row]])
        self._write("\r" + _up(above) + "\x1b[J")
        if self._column >= self.width:
            self._column, self._full = 0, True
        elif self._column:
            self._write(_up(1) + _right(self._column))

    def _lower(self, dock: Dock) -> None:
        """Draw *dock* on rows of its own, below what was written last."""
        if self._column:
            self._write("\n")
        for number, row in enumerate(dock.rows):
            self._write("\n" if number else "")
            self._console.print(_fitted(row, self.width - 1), end="")
        self._write("\r" + _up(len(dock.rows) - 1 - dock.row) + _right(dock.column))
        self._docked = dock

    def _write(self, codes: str) -> None:
        self._console.file.write(codes)


def _up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows else ""


def _right(columns: int) -> str:
    return f"\x1b[{columns}C" if columns else ""


def _fitted(row: Text, width: int) -> Text:
    """*row*, which has been cleaned, in at most *width* columns: one that a terminal breaks would be two."""
    fitted = row.copy()
    fitted.truncate(width, overflow="crop")
    return fitted


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
