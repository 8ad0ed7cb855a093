"""
The styles of all that a terminal shows, by their names.

What must be read has the terminal's default colour, or one that can be read on black and on white: red and
magenta are such colours in the usual palettes; yellow, cyan, green and blue are not.
"""

from __future__ import annotations

from typing import Final

from rich.theme import Theme

READABLE: Final = frozenset({"red", "magenta"})
"""Colours of the terminal's palette for text: a contrast of at least 3 on black and on white."""

SIGN_STYLES: Final = {"sign": "green", "sign.added": "bold green", "sign.removed": "bold red"}
"""Styles of single signs, which say the same without their colour."""

STYLES: Final = {
    **SIGN_STYLES,
    "error": "red",
    "warning": "magenta",
    "setting": "bold",
    "success": "bold",
    "prompted": "bold",
    "question": "bold magenta",
    "key": "bold reverse",
    "removed": "red",
    "step": "magenta",
    "thought": "dim italic",
    "markdown.block_quote": "italic",
    "markdown.code": "magenta",
    "markdown.code_block": "none",
    "markdown.h1": "bold",
    "markdown.h2": "bold",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "bold",
    "markdown.h6": "bold",
    "markdown.h7": "bold",
    "markdown.item.bullet": "bold",
    "markdown.item.number": "bold",
    "markdown.kbd": "bold",
    "markdown.link": "underline",
    "markdown.link_url": "underline",
    "markdown.list": "none",
    "markdown.table.border": "dim",
    "markdown.table.header": "bold",
}
"""Each style as rich writes it."""

THEME: Final = Theme(STYLES)
"""The styles, beside those of rich."""

CODE_STYLES: Final = {
    "Comment": "italic dim",
    "Keyword": "magenta",
    "Operator.Word": "magenta",
    "Name.Function": "bold",
    "Name.Class": "bold",
    "Name.Decorator": "magenta",
    "Name.Tag": "bold",
    "String": "red",
    "Generic.Inserted": "bold",
    "Generic.Deleted": "red",
    "Generic.Heading": "bold underline",
}
"""The style of each kind of token in code, as pygments names them."""

PROMPT_STYLES: Final = {
    "hint": "dim",
    "prompt": "bold",
    "completion-menu": "noinherit",
    "completion-menu.completion": "noinherit",
    "completion-menu.completion.current": "noinherit reverse",
    "completion-menu.meta.completion": "noinherit dim",
    "completion-menu.meta.completion.current": "noinherit reverse",
    "scrollbar.background": "noinherit",
    "scrollbar.button": "noinherit reverse",
    "bottom": "dim",
}
"""The styles of the rows around a prompt, as prompt_toolkit writes them."""
