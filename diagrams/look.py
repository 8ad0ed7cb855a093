"""How pictures on a page look: colours for light and dark pages, rules of CSS, texts, boxes and arrows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from .drawing import FONTS, Face, Point, line_path
from .picture import KIND_WORDS
from .svg import SVG

# Colours by name, for a light page and for a dark one. A page may set `--tw-NAME` itself.
COLOURS: Mapping[str, tuple[str, str]] = {
    "ground": ("#ffffff", "#14181d"),
    "ink": ("#1f2328", "#e8ecf1"),
    "quiet": ("#59636e", "#9aa6b2"),
    "line": ("#8d96a0", "#6b7683"),
    "path": ("#0b62c4", "#62b0ff"),
    "lit": ("#c8325a", "#ff5c86"),
    "lit-fill": ("#fff2f5", "#2c1620"),
    "lit-ink": ("#ffffff", "#1d0a10"),
    "box": ("#f6f8fa", "#1c2229"),
    "box-line": ("#c3cad1", "#3d4651"),
    "passes": ("#e6e9ed", "#343c46"),
    "passes-line": ("#8a929c", "#7b8794"),
    "world": ("#d8e7f8", "#1d3a5c"),
    "world-line": ("#5b8cc2", "#5b96d6"),
    "person": ("#fde5b8", "#54390a"),
    "person-line": ("#cc902c", "#d99f3e"),
    "end": ("#d5eedb", "#1d4128"),
    "end-line": ("#58a06b", "#5cb377"),
}

# Of the head of an arrow the length and half the width.
HEAD, WING = 8, 4


class Box(NamedTuple):
    """The area of a box."""

    x: int
    y: int
    width: int
    height: int

    @property
    def right(self) -> int:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> int:
        """Its lower edge."""
        return self.y + self.height


def text(at: Point, said: str, face: Face, kind: str, anchor: str = "start") -> str:
    """The text *said* with its *anchor* and its base line *at* a point."""
    weight = ' font-weight="bold"' if face.bold else ""
    return (
        f'<text class="{kind}" x="{at[0]}" y="{at[1]}" font-size="{face.size}"{weight}'
        f' text-anchor="{anchor}" textLength="{face.width_of(said)}" lengthAdjust="spacingAndGlyphs">'
        f"{escape(said)}</text>"
    )


def rect(box: Box, radius: int) -> str:
    """A box with round corners."""
    return f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="{radius}"/>'


def arrow(points: Sequence[Point]) -> str:
    """An arrow through *points*, with round corners."""
    # No marker: its id could be another picture's on the same page, and it would not take a class.
    (x1, y1), (x2, y2) = points[-2:]
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    base = (x2 - HEAD * dx, y2 - HEAD * dy)
    path = line_path([*points[:-1], base])
    wings = [(base[0] + side * WING * dy, base[1] + side * WING * dx) for side in (1, -1)]
    head = " ".join([f"{x},{y}" for x, y in ((x2, y2), *wings)])
    # The first line is wide and cannot be seen: a thin one is hard to point at.
    return f'<path class="reach" d="{path}"/><path class="way" d="{path}"/><polygon points="{head}"/>'


def rule(where: str, **properties: str) -> str:
    """A rule of CSS. A colour stands twice, for programs that do not know custom properties."""
    parts: list[str] = []
    for name, value in properties.items():
        spelled = name.replace("_", "-")
        if value in COLOURS:
            parts += [f"{spelled}:{COLOURS[value][0]}", f"{spelled}:var(--tw-{value})"]
        else:
            parts.append(f"{spelled}:{value}")
    return f".tw-chart {where}{{{';'.join(parts)}}}"


def page(elements: Iterable[str], size: Point, title: str, rules: Iterable[str], *, mark: str = "") -> SVG:
    """The SVG with these *elements* and *rules*; *mark* adds to its classes."""
    width, height = size
    style = "\n".join([*COMMON, *rules])
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tw-chart{mark}" role="img" width="{width}"'
        f' height="{height}" viewBox="0 0 {width} {height}" font-family="{FONTS}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}\n</style>"
    )
    ground = f'<rect class="ground" width="{width}" height="{height}"/>'
    return SVG("\n".join([opening, ground, *elements, "</svg>\n"]))


def _scheme(column: int) -> str:
    return ";".join([f"--tw-{name}:{pair[column]}" for name, pair in COLOURS.items()])


def _on(*pages: str) -> str:
    return ", ".join([f"{each} .tw-chart" for each in pages])


# What all pictures share. The schemes of pages stand behind that of the system: a person chose them.
COMMON = (
    f".tw-chart{{{_scheme(0)};max-width:100%;height:auto}}",
    f"@media (prefers-color-scheme:dark){{.tw-chart{{{_scheme(1)}}}}}",
    _on('[data-theme="dark"]', '[data-jp-theme-light="false"]', ".vscode-dark") + f"{{{_scheme(1)}}}",
    _on('[data-theme="light"]', '[data-jp-theme-light="true"]', ".vscode-light") + f"{{{_scheme(0)}}}",
    rule(".ground", fill="ground"),
    rule("text", fill="ink"),
    rule("text.quiet", fill="quiet"),
    *[rule(f".{kind}>rect", fill=kind, stroke=f"{kind}-line") for kind in KIND_WORDS],
    rule(".way", fill="none", stroke="line", stroke_width="1.3"),
    rule(".reach", fill="none", stroke="transparent", stroke_width="12"),
    rule("polygon", fill="line"),
)
