"""
Write to a terminal or a pipe: lines, running text, and a spinner.

Written text stays and scrolls away. What is drawn `Below` it, such as a prompt, is erased before each write,
and drawn again after it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol, TextIO, final

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from .sanitize import clean
from .styles import THEME
from .wrap import Wrap

SIGNS, PLAIN_SIGNS = ("●", "⎿", "·", "✓", "✗"), ("*", "|", "-", "+", "x")
"""Signs before a call and its result, between facts, for yes and no; and their plain replacements."""

INDENT = "  "
"""Stands before a line that belongs to the line above."""

TAB = 8
"""Columns between two tab stops."""


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


class Below(Protocol):
    """Rows below all text, drawn again and again."""

    def erase(self) -> None:
        """Erase the rows; the cursor is where the first of them began."""

    def draw(self) -> None:
        """Draw the rows again, now or soon."""


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
            theme=THEME,
            force_terminal=file.isatty(),
        )
        self._live: Live | None = None
        self._column = 0
        self._below: Below | None = None
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

    @property
    def height(self) -> int:
        """Rows of a terminal."""
        return self._console.height

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
        with self._above():
            self._end_line()
            for part in parts:
                self._console.print(part)

    def show(self, block: RenderableType, most: int) -> None:
        """
        Write *block*, such as Markdown or a table, in rows of at most *most* columns; each text is cleaned.

        Blank rows at its beginning and its end are left out.
        """
        options = self._console.options.update(width=min(self.width, most), height=None)
        rows = [_row_text(row) for row in self._console.render_lines(block, options, pad=False)]
        while rows and not rows[0].plain:
            del rows[0]
        while rows and not rows[-1].plain:
            del rows[-1]
        self._stop_live()
        with self._above():
            self._end_line()
            for row in rows:
                self._console.print(row)

    def run_on(self, text: str, style: str = "") -> None:
        """Write *text* directly after the last text."""
        self._stop_live()
        with self._above():
            self._console.print(Text(self._counted(clean(text)), style=style), end="")
            self._console.file.flush()

    def start_of_line(self) -> None:
        """Begin a new line, unless the cursor is at the start of one."""
        with self._above():
            self._end_line()

    def typed(self, line: str) -> None:
        """Account for *line*, which the terminal echoed itself."""
        self._column = 0 if line.endswith("\n") else 1
        self.start_of_line()

    def _end_line(self) -> None:
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

        It ends with the next text; where rows are drawn below, these show its text until `still`.
        """
        if not self.can_spin:
            return
        self.still()
        self.waits_for = says
        if self._below is not None:
            self._below.draw()
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

    # The rows below

    @contextmanager
    def above(self, below: Below) -> Generator[None]:
        """Write above the rows of *below* while the context is open."""
        self.still()
        self.start_of_line()
        self._below = below
        try:
            yield
        finally:
            self._below = None

    @contextmanager
    def _above(self) -> Generator[None]:
        if self._below is None:
            yield
            return
        self._below.erase()
        try:
            yield
        finally:
            if self._column:  # running text that has not ended: rows below begin a row of their own
                self._console.print()
                self._column = 0
            self._console.file.flush()
            self._below.draw()


def _row_text(row: list[Segment]) -> Text:
    """A rendered *row* without the blanks that pad it."""
    # Cleaned after rendering: Markdown has entities, which would bring back what was taken out before.
    text = Text.assemble(
        *[(clean(segment.text), segment.style or "") for segment in row if not segment.control]
    )
    text.rstrip()
    return text


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
