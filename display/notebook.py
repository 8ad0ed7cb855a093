"""
What a notebook shows of a value: a card with lines, and the statechart where the value is at a state.

The lines are those of `rendering`, so notebooks, `replay` and scenarios use the same words. Everything in
a card is escaped, since models and tools choose most of the texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from html import escape
from typing import final

import attrs

# A page with all of a long conversation could not be scrolled; the newest messages are what a reader wants.
# Lines of a card that are shown.
LINES_SHOWN = 200

# Fonts of the page, and no colours: a card is read on light and on dark pages.
CARD = "font-size:13px;line-height:1.5;margin:4px 0;overflow-wrap:anywhere"
PRE = "margin:4px 0;padding:0;white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;background:none"


@final
@attrs.frozen(kw_only=True)
class Card:
    """
    A *title*, what is said beside it, and *lines*, which a person opens where they are *folded*.

    *label* is the state that a statechart shows lit; empty for no chart.
    """

    title: str
    beside: str = ""
    lines: tuple[str, ...] = ()
    folded: str = ""
    label: str = ""


class Displayed(ABC):
    """What a notebook shows as a card. Everywhere else it is its `repr`."""

    __slots__ = ()

    @abstractmethod
    def _card(self) -> Card: ...

    def _repr_html_(self) -> str:
        return html_of(self._card())


def html_of(card: Card) -> str:
    """*card* as HTML."""
    # Only a notebook draws, so only it loads what draws.
    from ..diagrams import chart  # noqa: PLC0415  # see above

    parts = [f"<b>{escape(card.title)}</b> <span>{escape(card.beside)}</span>"]
    if card.label:
        parts.append(chart(card.label)._repr_html_())  # pyright: ignore[reportPrivateUsage]  # as a notebook
    if card.lines:
        text = pre_html(card.lines)
        parts.append(folded_html(card.folded, text) if card.folded else text)
    return f'<div class="tw-card" style="{CARD}">{"".join(parts)}</div>'


def pre_html(lines: Sequence[str]) -> str:
    """*lines* as HTML, one below the other; of many the last ones."""
    return f'<pre style="{PRE}">{escape(chr(10).join(_newest(lines)))}</pre>'


def folded_html(summary: str, html: str, *, is_open: bool = False) -> str:
    """*html* behind the text *summary*, on which a person clicks to open and to close it."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{html}</details>"


def _newest(lines: Sequence[str]) -> list[str]:
    left_out = len(lines) - LINES_SHOWN
    return [f"({left_out} earlier ones)", *lines[left_out:]] if left_out > 0 else [*lines]
