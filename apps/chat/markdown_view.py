"""Markdown for a terminal: no frames, no centred headings, and colours for dark and light backgrounds."""

from __future__ import annotations

from typing import ClassVar, Final, final

from markdown_it import MarkdownIt
from pygments.token import string_to_tokentype
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.style import Style
from rich.syntax import ANSISyntaxTheme, Syntax
from rich.text import Text

from ..terminal.styles import CODE_STYLES

_CODE_THEME: Final = ANSISyntaxTheme(
    {string_to_tokentype(kind): Style.parse(style) for kind, style in CODE_STYLES.items()}
)

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
"""Without HTML, which rich would leave out: so a person sees it as it was written."""


@final
class _LeftHeading(Heading):
    """A heading that stands where text does; its level shows by its style."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The heading as a line of text."""
        del console, options
        text = self.text.copy()
        text.stylize(Style(bold=True, underline=self.tag in {"h1", "h2"}))
        text.justify = "left"
        yield text


@final
class _BareCode(CodeBlock):
    """Code without a frame, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The code, highlighted and set in."""
        del console, options
        code = Syntax(str(self.text).rstrip("\n"), self.lexer_name, theme=_CODE_THEME, word_wrap=True)
        yield Padding(code, (0, 0, 0, 2), expand=False)


@final
class ChatMarkdown(Markdown):
    """A block of Markdown. *markup* is rendered as it was written where it is HTML."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _BareCode,
        "code_block": _BareCode,
    }

    def __init__(self, markup: str) -> None:
        # An address is shown beside its text: a link that only a click reveals could lead anywhere.
        super().__init__("", hyperlinks=False)
        self.markup = markup
        self.parsed = _PARSER.parse(markup)


def thought(text: str) -> Text:
    """A block of a model's thinking."""
    return Text(text, style="thought")
