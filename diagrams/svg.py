"""A picture as the text of an SVG file, which shows itself in a notebook."""

from __future__ import annotations

from html import unescape
from typing import Final, final

# The captions have 11 points and the names 15: below 6 and 8 pixels they cannot be read.
# The least pixels that a point of the picture takes in a notebook. In a narrower cell the picture scrolls.
LEAST_SCALE: Final = 0.55

# A page with all of a long sequence could not be read past.
# The most pixels of a picture's height that a notebook shows at once.
TALLEST: Final = 640

BOX_STYLE: Final = f"max-width:100%;max-height:{TALLEST}px;overflow:auto"
# Some systems hide the bar of what scrolls.
# A frame around a picture of which a part is hidden.
FRAME: Final = ";border:1px solid #8884"


@final
class SVG(str):
    """
    The text of an SVG file: ``Path("session.svg").write_text(picture, "utf-8")`` writes it.

    A notebook shows the picture, at most as wide as the cell. One that would be too small to read there, or
    is taller than a screen, scrolls.
    """

    __slots__ = ()

    @property
    def size(self) -> tuple[int, int]:
        """Its width and height, in points of the picture."""
        width, height = self._between('viewBox="0 0 ', '"').split()
        return int(width), int(height)

    def __repr__(self) -> str:
        what = unescape(self._between("<title>", "</title>"))
        # Behind the semicolon stands all of the path.
        return "<SVG {}x{}: {}>".format(*self.size, what.partition(";")[0])

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction]  # notebooks call it
        width, height = self.size
        style = f"display:block;max-width:100%;height:auto;min-width:{round(width * LEAST_SCALE)}px"
        box = f"{BOX_STYLE}{FRAME}" if height > TALLEST else BOX_STYLE
        drawn = self.replace("<svg ", f'<svg style="{style}" ', 1)
        return f'<div class="tw-picture" style="{box}">{drawn}</div>'

    def _between(self, before: str, after: str) -> str:
        return self.partition(before)[2].partition(after)[0]
