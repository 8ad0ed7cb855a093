"""
Split Markdown that arrives in pieces into blocks, each of which can be shown once it is complete.

The time is linear in the length of the text: a line is looked at once, and a block is handed out once. So a
block that never ends is handed out in parts of `MOST_BLOCK_LINES`.
"""

from __future__ import annotations

import re
from typing import Final, final

MOST_BLOCK_LINES = 200
"""Lines after which a block is handed out though it goes on."""

_FENCE: Final = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})(?P<info>.*)")
_CLOSING: Final = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*")
_ITEM: Final = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_HEADING: Final = re.compile(r" {0,3}#{1,6}(?:\s|$)")


@final
class MarkdownBlocks:
    """The blocks of one text. A list goes on over blank lines, and a fence until it is closed."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._rest: list[str] = []
        self._fence = ""
        self._goes_on = False
        """Whether the fence was opened again, for the next part of a long code."""
        self._blank = False
        """Whether the line before was a blank one in a list."""

    def feed(self, text: str) -> list[str]:
        """The blocks that are complete now that *text* has come."""
        *whole, rest = text.split("\n")
        blocks: list[str] = []
        for line in whole:
            self._rest.append(line)
            blocks += self._take("".join(self._rest))
            self._rest = []
        if rest:
            self._rest.append(rest)
        return blocks

    def end(self) -> list[str]:
        """The last block, complete or not."""
        rest = "".join(self._rest)
        self._rest = []
        blocks = self._take(rest) if rest else []
        blocks += self._cut()
        self._fence = ""
        return blocks

    def tail(self, characters: int) -> str:
        """The end of the block in progress, of at most so many *characters*."""
        parts: list[str] = []
        left = characters
        for part in (*reversed(self._rest), *(f"{line}\n" for line in reversed(self._lines))):
            if left <= 0:
                break
            parts.append(part[-left:])
            left -= len(part)
        return "".join(reversed(parts))

    def _take(self, line: str) -> list[str]:
        """Add *line*; returns the blocks that it ends."""
        if self._fence:
            return self._in_fence(line)
        if not line.strip():
            return self._after_blank()
        blocks = self._cut() if self._ends_list(line) else []
        self._blank = False
        if (fence := _FENCE.fullmatch(line)) is not None and "`" not in fence["info"]:
            blocks += self._cut()
            self._fence = fence["marks"]
            self._lines.append(line)
        elif _HEADING.match(line):
            blocks += [*self._cut(), line]
        else:
            self._lines.append(line)
            if len(self._lines) >= MOST_BLOCK_LINES:
                blocks += self._cut()
        return blocks

    def _in_fence(self, line: str) -> list[str]:
        self._lines.append(line)
        closing = _CLOSING.fullmatch(line)
        if closing is not None and closing["marks"].startswith(self._fence):
            self._fence = ""
            return self._cut()
        if len(self._lines) > MOST_BLOCK_LINES:
            # The next part is code of the same language.
            opening = self._lines[0]
            self._lines.append(self._fence)
            blocks = self._cut()
            self._lines, self._goes_on = [opening], True
            return blocks
        return []

    def _after_blank(self) -> list[str]:
        if self._lines and _ITEM.match(self._lines[0]):
            self._lines.append("")
            self._blank = True
            return []
        return self._cut()

    def _ends_list(self, line: str) -> bool:
        """Whether *line* comes after the blank line that ends a list."""
        return self._blank and not line.startswith((" ", "\t")) and not _ITEM.match(line)

    def _cut(self) -> list[str]:
        """The block so far, if there is one; the next one begins."""
        lines, self._lines, self._blank = self._lines, [], False
        goes_on, self._goes_on = self._goes_on, False
        if goes_on and all(_CLOSING.fullmatch(line) for line in lines[1:]):
            return []  # the code ended with its part
        while lines and not lines[-1].strip():
            lines.pop()
        return ["\n".join(lines)] if lines else []
