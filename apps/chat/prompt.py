"""
The prompt at the bottom of a terminal: the rows above it, the keys, the completions and the status line.

prompt_toolkit draws these rows and reads the keys; this module says which rows and keys there are. The
conversation is written above them by `Screen`, which asks to `erase` and `draw` them.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, final

from prompt_toolkit.application import Application
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition, has_completions, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent, merge_key_bindings
from prompt_toolkit.key_binding.defaults import load_key_bindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    CompletionsMenu,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.processors import (
    AfterInput,
    ConditionalProcessor,
    HighlightIncrementalSearchProcessor,
)
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar
from rich.console import Console
from rich.style import Style as RichStyle
from rich.text import Text

from ..terminal.keyboard import typed_ahead
from ..terminal.styles import PROMPT_STYLES, THEME
from .commands import PROMPT, SHOW
from .piped_lines import Typed

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

HINT = "ask for something, or /help"
"""Shown on an empty line while no run works."""

MOST_ROWS = 8
"""The most rows shown of a long input, around the cursor."""

MOST_LIVE_ROWS = 12
"""The most rows of work in progress above the prompt."""

ESCAPE_SECONDS = 0.1
"""Seconds after which Escape counts as a key of its own, and not as the beginning of another one."""

CALL_NUMBER: Final = re.compile(r"\d+(?:-\d+)*")
"""The number of a call, as it stands behind its tool."""


class Surroundings(Protocol):
    """What stands around the input, and what its keys do."""

    def live(self, width: int, rows: int) -> list[Text]:
        """The work in progress, in at most so many *rows* of *width* columns."""
        ...

    def status(self) -> Text | None:
        """The row above the input, or None."""
        ...

    def bottom(self, width: int) -> Text:
        """The last row of all, in *width* columns."""
        ...

    def escaped(self) -> None:
        """Handle Escape."""

    def ctrl_c(self) -> None:
        """Handle Ctrl-C."""

    def remembers(self, text: str) -> bool:
        """Whether *text*, which was just entered, goes into the history."""
        ...

    def pasted(self, text: str) -> str:
        """What to insert for the pasted *text*."""
        ...


@final
class ChatPrompt:
    """
    The prompt among its *surroundings*. Completions come from *completer*, earlier lines from *history*.

    *keys* and *output* are the terminal, unless given.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        completer: Completer,
        history: History,
        keys: Input | None = None,
        output: Output | None = None,
    ) -> None:
        self._surroundings = surroundings
        self._lines: asyncio.Queue[Typed | None] = asyncio.Queue()
        self._started = 0.0
        self._recalled = 0
        self._empty = True
        self._lent = False
        self._takes_early = keys is None
        self._console = Console(
            width=1_000, color_system="standard", force_terminal=True, legacy_windows=False, theme=THEME
        )
        self._buffer = Buffer(
            completer=completer, history=history, multiline=True, on_text_changed=self._changed
        )
        self._app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=merge_key_bindings([load_key_bindings(), self._keys()]),
            style=Style.from_dict(PROMPT_STYLES),
            include_default_pygments_style=False,
            erase_when_done=True,
            terminal_size_polling_interval=None,
            input=create_input(sys.stdin) if keys is None else keys,
            # Without requests for the position of the cursor: not every terminal answers them.
            output=output or Vt100_Output(sys.stdout, _size, os.environ.get("TERM"), enable_cpr=False),
        )
        self._app.ttimeoutlen = self._app.timeoutlen = ESCAPE_SECONDS

    # Lines

    async def read(self) -> AsyncGenerator[Typed, None]:
        """The lines as they are entered, until Ctrl-D; raises `EOFError` if the terminal is closed."""
        running = asyncio.ensure_future(self._run())
        try:
            while (typed := await self._lines.get()) is not None:
                if typed.text.strip():
                    yield typed
        finally:
            if self._app.is_running and not self._app.is_done:
                self._app.exit()
            await running

    async def _run(self) -> None:
        """Draw and read keys until the end; only then does `read` end."""
        if self._takes_early:
            self._take_early(sys.stdin.fileno())
        try:
            with self._continued():
                await self._app.run_async(set_exception_handler=False, handle_sigint=False)
        finally:
            self._lines.put_nowait(None)

    def _take_early(self, terminal: int) -> None:
        """Put keys from before the prompt was there on the line, where the person sees them."""
        with suppress(termios.error, OSError):
            with self._app.input.raw_mode():
                text = typed_ahead(terminal)
            self._buffer.insert_text(text)
            # No question was on screen then, so this text can answer none without a look at it.
            self._started = float("-inf")

    @contextmanager
    def _continued(self) -> Generator[None]:
        """Within the context, take the terminal again when the process goes on after a stop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCONT, self._again)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGCONT)

    def _again(self) -> None:
        if not self._app.is_running or self._lent:
            return
        # The shell has changed the mode. The application itself restores the first one at its end.
        with ExitStack() as mode, suppress(OSError):
            mode.enter_context(self._app.input.raw_mode())
            mode.pop_all()
        self._app.renderer.reset()
        self._app.invalidate()

    @property
    def text(self) -> str:
        """The line that is being typed."""
        return self._buffer.text

    @property
    def earlier(self) -> int:
        """How many earlier lines, which are loaded bit by bit, stand before the one that is typed."""
        return self._buffer.working_index

    def clear(self) -> bool:
        """Clear the line; returns whether it had text."""
        begun = bool(self._buffer.text)
        self._buffer.reset()
        self._changed(self._buffer)
        self.draw()
        return begun

    def begin(self, text: str, caret: int | None = None) -> None:
        """Put *text* on the line for the person to change, with the cursor at *caret*, or at its end."""
        self._buffer.reset()
        self._buffer.insert_text(text)
        self._buffer.cursor_position = len(text) if caret is None else caret
        self.draw()

    def _changed(self, buffer: Buffer) -> None:
        # Who picks an earlier line does so now, so it may answer a question that is open now.
        if (self._empty and buffer.text) or buffer.working_index != self._recalled:
            self._started = asyncio.get_running_loop().time()
        self._empty, self._recalled = not buffer.text, buffer.working_index

    def _enter(self) -> None:
        text = self._buffer.text
        if text.strip() and self._surroundings.remembers(text):
            self._buffer.append_to_history()
        self._lines.put_nowait(Typed(text, self._started))
        self._buffer.reset()
        self._changed(self._buffer)

    # The rows below the conversation

    def erase(self) -> None:
        """Erase the rows; the cursor is where the first of them began."""
        if self._app.is_running and not self._lent:
            self._app.renderer.erase()

    def draw(self) -> None:
        """Draw the rows again, soon."""
        if self._app.is_running and not self._lent:
            self._app.invalidate()

    def bell(self) -> None:
        """Ring the bell of the terminal."""
        if not self._lent:
            self._app.output.bell()
            self._app.output.flush()

    def clear_screen(self) -> None:
        """Clear the screen, and draw the rows at its top."""
        self._app.renderer.clear()

    @asynccontextmanager
    async def lent(self) -> AsyncGenerator[None, None]:
        """Leave the keyboard and the screen to another program."""
        self._lent = True
        try:
            async with in_terminal():
                yield
        finally:
            self._lent = False

    def _layout(self) -> Layout:
        search = SearchToolbar()
        hint = ConditionalProcessor(
            AfterInput([("class:hint", HINT)]),
            Condition(lambda: not self.text and not self._status()) & ~is_searching,
        )
        control = BufferControl(
            self._buffer,
            search_buffer_control=search.control,
            input_processors=[HighlightIncrementalSearchProcessor(), hint],
            preview_search=True,
        )
        entered = Window(
            control,
            height=Dimension(min=1, max=MOST_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=_line_prefix,
        )
        rows = HSplit(
            [
                self._rows(self._live),
                self._rows(self._status),
                entered,
                search,
                ConditionalContainer(CompletionsMenu(max_height=MOST_ROWS), has_completions),
                self._rows(self._bottom),
            ],
            align=VerticalAlign.TOP,
        )
        return Layout(rows, focused_element=entered)

    @staticmethod
    def _rows(text: Callable[[], StyleAndTextTuples]) -> ConditionalContainer:
        window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=False)
        return ConditionalContainer(window, Condition(lambda: bool(text())))

    def _live(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        most = max(1, min(MOST_LIVE_ROWS, size.rows - MOST_ROWS - 3))
        return self._fragments(*self._surroundings.live(size.columns - 1, most))

    def _status(self) -> StyleAndTextTuples:
        status = self._surroundings.status()
        return [] if status is None else self._fragments(status)

    def _bottom(self) -> StyleAndTextTuples:
        return self._fragments(self._surroundings.bottom(self._app.output.get_size().columns - 1))

    def _fragments(self, *rows: Text) -> StyleAndTextTuples:
        """*rows* as prompt_toolkit has them."""
        parts: StyleAndTextTuples = []
        for row in rows:
            if parts:
                parts.append(("", "\n"))
            line = row.copy()
            line.no_wrap, line.end = True, ""
            line.stylize_before(row.style)
            parts += [
                (_style(segment.style), segment.text)
                for segment in line.render(self._console)
                if segment.text
            ]
        return parts

    # Keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        editing = Condition(lambda: self._app.layout.has_focus(self._buffer))
        keys.add("enter", filter=editing)(lambda _: self._enter())
        keys.add("escape", "enter", filter=editing)(_newline)
        keys.add("c-j", filter=editing)(_newline)
        keys.add("escape", filter=editing & ~has_completions)(lambda _: self._surroundings.escaped())
        keys.add("escape", filter=editing & has_completions)(lambda _: self._buffer.cancel_completion())
        keys.add("c-c", filter=editing)(lambda _: self._surroundings.ctrl_c())
        keys.add("c-d", filter=editing)(self._ctrl_d)
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        keys.add("c-u", filter=editing & Condition(lambda: "\n" in self.text))(self._clear_lines)
        keys.add("c-o", filter=editing)(lambda _: self._unfold())
        keys.add(Keys.BracketedPaste, filter=editing)(self._paste)
        return keys

    def _ctrl_d(self, event: KeyPressEvent) -> None:
        if self._buffer.text:
            self._buffer.delete()
        else:
            event.app.exit()

    def _clear_lines(self, event: KeyPressEvent) -> None:
        """Clear an input of several lines, such as a long paste, at once; Ctrl-Y brings it back."""
        event.app.clipboard.set_text(self._buffer.text)
        self._buffer.text = ""

    def _unfold(self) -> None:
        """Show a result in full: that of the call whose number is on the line, or the last one."""
        call = self.text.strip().removeprefix("#")
        if CALL_NUMBER.fullmatch(call):
            self.clear()
        else:
            call = ""
        self._lines.put_nowait(Typed(f"{SHOW} {call}".rstrip(), asyncio.get_running_loop().time()))

    def _paste(self, event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        self._buffer.insert_text(self._surroundings.pasted(text))


def _size() -> Size:
    """Rows and columns of the terminal."""
    columns, rows = shutil.get_terminal_size()
    return Size(rows=rows, columns=columns)


def _newline(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)


def _line_prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return [("class:prompt", " " * len(PROMPT) if line or wrapped else PROMPT)]


def _style(style: RichStyle | None) -> str:
    """*style* as prompt_toolkit writes one."""
    if style is None:
        return ""
    words = [word for word in ("bold", "dim", "italic", "underline", "reverse") if getattr(style, word)]
    if style.color is not None and not style.color.is_default:
        words.append(f"fg:ansi{style.color.name.replace('_', '')}")
    return " ".join(words)
