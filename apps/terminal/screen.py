"""
Write to a terminal or a pipe: lines, running text, and a dock below them.

Theory of operation. Written text stays and scrolls away. The *dock* below it holds rows that are drawn again
and again, such as the input line. Each write first removes the dock and puts the cursor behind the last text;
afterwards it draws the dock again. To find that place, the column of running text is counted as a terminal
counts it.
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
"""Signs before a call and its result, between facts, for yes and no; and their plain replacements."""

INDENT = "  "
"""Stands before a line that belongs to the line above."""

TAB = 8
"""Columns between two tab stops."""

# A terminal that knows these codes draws the text between them at once; others ignore them.
_TOGETHER, _DONE = "\x1b[?2026h", "\x1b[?2026l"


@final
class _Console(Console):
    """A console that raises an error if its reader has left, where rich would end the process."""

    def on_broken_pipe(self) -> None:
        """Raise the error of the write."""
        raise  # noqa: PLE0704  # rich calls this while it handles the error


@final
class _Waiting:
    """The spinner's line, computed anew for each frame."""

    def __init__(self, says: Callable[[], str], style: str) -> None:
        self._says = says
        self._style = style
        self._spinner = Spinner("dots", style=style)

    def __rich__(self) -> Spinner:
        """The line now."""
        self._spinner.update(text=Text(self._says(), style=self._style, no_wrap=True, overflow="ellipsis"))
        return self._spinner


@final
@attrs.frozen
class Dock:
    """Rows below all text, each cut to the width; the cursor is at *row* and *column*."""

    rows: tuple[Text, ...]
    row: int
    column: int


@final
class Screen:
    """
    Writes to *file*: with colours, a spinner and a width to a terminal, plainly to a pipe or file.

    Every text is cleaned of control characters. `NO_COLOR` is respected.
    """

    def __init__(self, file: TextIO) -> None:
        reconfigure = getattr(file, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a character that the encoding lacks must not end a run
        # A pipe gets no codes, even with FORCE_COLOR, since programs read it.
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
        """Whether the last row was full when the dock was drawn, so that the next text begins a row."""
        self._dock: Callable[[], Dock] | None = None
        self._docked: Dock | None = None
        self.waits_for: Callable[[], str] | None = None
        """The text function of `spin`, until `still`."""
        signs = SIGNS if _can_encode(file, "".join(SIGNS)) else PLAIN_SIGNS
        self.dot, self.elbow, self.middle, self.yes, self.no = signs

    @property
    def is_terminal(self) -> bool:
        """Whether this is a terminal."""
        return self._console.is_terminal

    @property
    def width(self) -> int:
        """Columns for a line; many if this is no terminal."""
        return self._console.width if self.is_terminal else 160

    def line(self, text: str = "", style: str = "") -> None:
        """Write *text* as a line of its own."""
        self.lines(Text(clean(text), style=style))

    def say(self, text: str, style: str = "") -> None:
        """Write *text* as `line` does, wrapped at spaces if it is wider than the screen."""
        wrap = Wrap(lambda: self.width)
        shown = clean(text)
        self.lines(Text(wrap.feed(shown) + wrap.end() if self.is_terminal else shown, style=style))

    def lines(self, *parts: Text) -> None:
        """Write the styled and cleaned *parts* as lines of their own."""
        self._stop_live()
        with self._above_the_dock():
            self._end_line()
            for part in parts:
                self._console.print(part)

    def run_on(self, text: str, style: str = "") -> None:
        """Write *text* directly after the last text."""
        self._stop_live()
        with self._above_the_dock():
            shown = clean(text)
            # Without this, a full row would be followed by an empty one.
            if self._full:
                shown = shown.removeprefix("\n")  # drawing the dock began a row already
            self._full = self._full and not shown
            self._console.print(Text(self._counted(shown), style=style), end="")
            self._console.file.flush()

    def start_of_line(self) -> None:
        """Begin a new line, unless the cursor is at the start of one."""
        with self._above_the_dock():
            self._end_line()

    def typed(self, line: str) -> None:
        """Account for *line*, which the terminal echoed itself."""
        self._column = 0 if line.endswith("\n") else 1
        self.start_of_line()

    def _end_line(self) -> None:
        self._full = False
        if self._column:
            self._console.print()
            self._column = 0

    def _counted(self, text: str) -> str:
        """*text* with tabs as spaces; updates `_column`."""
        out: list[str] = []
        for char in text:
            shown = " " * (TAB - self._column % TAB) if char == "\t" else char
            cells = cell_len(shown)
            # At the end of a row a terminal waits for the next character before it begins another row.
            beyond = self._column + cells > self.width
            self._column = 0 if char == "\n" else cells if beyond else self._column + cells
            out.append(shown)
        return "".join(out)

    # The spinner

    @property
    def can_spin(self) -> bool:
        """Whether `spin` shows anything."""
        return self.is_terminal and not self._console.is_dumb_terminal

    def spin(self, says: Callable[[], str]) -> None:
        """
        Show a spinner with the text of *says*.

        Without a dock it ends with the next text; with one it stays until `still`.
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
        """Remove the spinner."""
        self.waits_for = None
        self._stop_live()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    # The dock

    @contextmanager
    def dock(self, shows: Callable[[], Dock]) -> Generator[None]:
        """Keep the dock of *shows* below all text while the context is open."""
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
        """Draw the dock again if it has changed."""
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
        """Draw the dock anew, since another program has written to the screen."""
        self._docked, self._column = None, 0
        self.redraw()

    def control(self, codes: str) -> None:
        """Send *codes*, which draw nothing, to the terminal."""
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
        """Remove the dock; the cursor is behind the last text."""
        docked, self._docked = self._docked, None
        if docked is None:
            return
        # If the window became narrower, the terminal has wrapped the rows that no longer fit.
        above = sum([-(-max(1, cell_len(row.plain)) // self.width) for row in docked.rows[: docked.row]])
        self._write("\r" + _up(above) + "\x1b[J")
        if self._column >= self.width:
            self._column, self._full = 0, True
        elif self._column:
            self._write(_up(1) + _right(self._column))

    def _lower(self, dock: Dock) -> None:
        """Draw *dock* on rows of its own below the last text."""
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
    """*row*, which is clean, cut to *width* columns: a wrapped row would count as two."""
    fitted = row.copy()
    fitted.truncate(width, overflow="crop")
    return fitted


def timer() -> Callable[[], str]:
    """A function that returns the seconds since now as text; empty in the first second."""
    begun = time.monotonic()

    def text() -> str:
        seconds = int(time.monotonic() - begun)
        return f"{seconds} s" if seconds else ""

    return text


def _can_encode(file: TextIO, text: str) -> bool:
    try:
        text.encode(file.encoding or "utf-8")  # a file in memory has no encoding
    except (UnicodeEncodeError, LookupError):
        return False
    return os.environ.get("TERM") != "linux"  # the font of the Linux console lacks most of them
