"""The styles of the terminal can be read on a dark and on a light background."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.color import Color
from rich.console import Console
from rich.style import Style

from turnwheel import apps
from turnwheel.apps.chat.markdown_view import ChatMarkdown
from turnwheel.apps.terminal import styles
from turnwheel.apps.terminal.styles import CODE_STYLES, PROMPT_STYLES, READABLE, SIGN_STYLES, STYLES, THEME

BLACK, WHITE = "#000000", "#ffffff"
XTERM = {"red": "#cd0000", "magenta": "#cd00cd", "yellow": "#cdcd00", "cyan": "#00cdcd", "blue": "#0000ee"}
PALETTES = {
    "xterm, dark": (XTERM, BLACK),
    "xterm, light": (XTERM, WHITE),
    "VS Code, dark": ({"red": "#cd3131", "magenta": "#bc3fbc"}, "#1e1e1e"),
    "VS Code, light": ({"red": "#cd3131", "magenta": "#bc05bc"}, WHITE),
}


def luminance(color: str) -> float:
    parts = [value / 255 for value in Color.parse(color).triplet or ()]
    red, green, blue = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG defines it: from 1 to 21."""
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("palette", PALETTES)
def test_each_colour_for_text_has_a_contrast_of_three(palette: str) -> None:
    colors, background = PALETTES[palette]
    assert {name: contrast(colors[name], background) >= 3 for name in READABLE} == dict.fromkeys(
        READABLE, True
    )


def test_the_colours_that_are_left_out_cannot_be_read_everywhere() -> None:
    assert contrast(XTERM["yellow"], WHITE) < 2
    assert contrast(XTERM["cyan"], WHITE) < 2
    assert contrast(XTERM["blue"], BLACK) < 2.5


@pytest.mark.parametrize("table", [STYLES, CODE_STYLES], ids=["text", "code"])
def test_text_has_a_readable_colour_or_the_terminals_own(table: Mapping[str, str]) -> None:
    text = {name: Style.parse(style) for name, style in table.items() if name not in SIGN_STYLES}
    colored = {name: style.color.name for name, style in text.items() if style.color is not None}
    assert {name for name in colored if colored[name] not in READABLE} == set()
    assert [name for name, style in text.items() if style.bgcolor is not None] == []


def test_the_rows_of_the_prompt_have_no_colour() -> None:
    assert [name for name, style in PROMPT_STYLES.items() if "fg:" in style or "bg:" in style] == []


def test_markdown_and_its_code_are_shown_in_these_styles_only() -> None:
    markup = (
        "# A `b`\n\n- [c](http://d)\n\n1. e\n\n> f\n\n| g |\n|---|\n| `h` |\n\n"
        "```py\n@i\ndef j(k: int = 1):\n    return len('l')  # m\n```\n\n```diff\n+ n\n- o\n```\n\n---\n"
    )
    console = Console(theme=THEME, width=80, force_terminal=True, color_system="standard")
    segments = list(console.render(ChatMarkdown(markup)))
    colors = {
        s.style.color.name for s in segments if s.style and s.style.color and not s.style.color.is_default
    }
    assert colors <= READABLE


def test_no_other_module_names_a_colour() -> None:
    own = Path(styles.__file__).resolve()
    color = re.compile(
        r'"(?:bold |dim )?(?:red|green|yellow|blue|magenta|cyan|bright_\w+)(?: \w+)?"|fg:ansi[a-z]'
    )
    modules = Path(apps.__file__).resolve().parent.rglob("*.py")
    texts = {path.name: path.read_text("utf-8") for path in modules if path.resolve() != own}
    assert [name for name, text in texts.items() if color.search(text)] == []
