"""
Pictures of a run over time: who asked whom, and how long each call took.

They draw values, and know no journal: `turnwheel.engine.picture_of` makes the values of a session's steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from html import escape
from itertools import pairwise
from typing import final

import attrs

from .drawing import Face, Point
from .look import Box, arrow, page, rect, rule, text
from .svg import SVG

# A browser is slow beyond this, and no person reads it; the newest say what a run does now.
# Rows of a picture.
ROWS_DRAWN = 400

MARGIN, ROW_STEP, LANE_STEP = 16, 34, 200
# Beside a sequence stands the time; beside a bar the call, and behind it how long it took.
TIME_WIDTH, CALL_WIDTH, BARS_WIDTH, TOOK_WIDTH = 62, 230, 560, 70
# Units of time in seconds, from the longest.
TIME_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
# How long waiting for people alone may be drawn, as a share of the rest; it may take days.
IDLE_SHARE = 0.2

NAME, SAID, SMALL = Face(13, bold=True), Face(11), Face(10)

TIMELINE_RULES = (
    rule(".life", stroke="box-line", stroke_dasharray="3 4"),
    rule(".who>rect", fill="box", stroke="box-line"),
    rule(".asks .way", stroke="path"),
    rule(".asks polygon", fill="path"),
    rule(".grid", stroke="box-line"),
    rule(".idle", fill="box"),
    *[rule(f".bar.{kind}>rect", fill=f"{kind}-line") for kind in ("passes", "world", "person", "end")],
    rule(".bar.model>rect", fill="path", stroke="path"),
)


class Party(StrEnum):
    """Who takes part in a run."""

    PERSON = "person"
    MACHINE = "machine"
    MODEL = "model"
    TOOLS = "tools"
    CHILDREN = "children"
    HOOKS = "hooks"


@final
@attrs.frozen
class Said:
    """What one party says to another *at* a time in seconds. *asks* is whether it wants an answer."""

    at: float
    source: Party
    target: Party
    text: str
    asks: bool = False


@final
@attrs.frozen
class Took:
    """The work of *party* on the call *name*, from *begin* to *end* in seconds; None while it goes on."""

    party: Party
    name: str
    begin: float
    end: float | None = None


def sequence(told: Sequence[Said]) -> SVG:
    """Who asked whom in a run, from above to below, as SVG."""
    newest = told[-ROWS_DRAWN:]
    there = {party for one in newest for party in (one.source, one.target)} | {Party.PERSON, Party.MACHINE}
    lanes = [party for party in Party if party in there]
    places = {party: MARGIN + TIME_WIDTH + LANE_STEP // 2 + LANE_STEP * n for n, party in enumerate(lanes)}
    bottom = MARGIN + 52 + ROW_STEP * len(newest)
    elements: list[str] = []
    for party, x in places.items():
        box = Box(x - 52, MARGIN, 104, 26)
        elements += [
            f'<line class="life" x1="{x}" y1="{box.bottom}" x2="{x}" y2="{bottom}"/>',
            f'<g class="who">{rect(box, 6)}{text((x, MARGIN + 17), party, NAME, "word", "middle")}</g>',
        ]
    for n, one in enumerate(newest):
        y = MARGIN + 62 + ROW_STEP * n
        ends = (places[one.source], y), (places[one.target], y)
        elements += _saying(one, ends, since(one.at, told[0].at))
    width = MARGIN * 2 + TIME_WIDTH + LANE_STEP * len(lanes)
    return page(
        elements, (width, bottom + MARGIN), _title("Who asked whom", len(told), len(newest)), TIMELINE_RULES
    )


def _saying(one: Said, ends: tuple[Point, Point], time: str) -> list[str]:
    """An arrow with its text and its time."""
    (x1, y), (x2, _) = ends
    # Between two lanes that are not neighbours there is more room, and the text stands beside the speaker.
    sign = 1 if x2 > x1 else -1
    middle = x1 + sign * LANE_STEP // 2
    return [
        text((MARGIN, y + 4), time, SMALL, "quiet"),
        f'<g class="{"asks" if one.asks else "tells"}"><title>{escape(one.text)}</title>',
        arrow([(x1, y), (x2, y)]),
        text((middle, y - 6), fitting(one.text, LANE_STEP - 24), SAID, "word", "middle"),
        "</g>",
    ]


def calls(took: Sequence[Took]) -> SVG:
    """How long each request of a run was open, as SVG. Long waits for people alone are drawn short."""
    newest = took[-ROWS_DRAWN:]
    now = max([moment for one in newest for moment in (one.begin, one.end or one.begin)], default=0.0)
    scale = _Scale(newest, now)
    left, top = MARGIN + CALL_WIDTH, MARGIN + 34
    bottom = top + 24 * len(newest)
    elements = [
        f'<rect class="idle" x="{left + scale.of(a)}" y="{top}" width="{scale.of(b) - scale.of(a)}"'
        f' height="{bottom - top}"><title>{escape(lasting(b - a))}, drawn short</title></rect>'
        for a, b in scale.shortened
    ]
    for moment in scale.ticks():
        x = left + scale.of(moment)
        elements.append(f'<line class="grid" x1="{x}" y1="{top}" x2="{x}" y2="{bottom}"/>')
        elements.append(text((x, top - 8), since(moment, scale.first), SMALL, "quiet", "middle"))
    for n, one in enumerate(newest):
        elements += _bar(one, (left, top + 24 * n), scale, now)
    size = (left + BARS_WIDTH + TOOK_WIDTH + MARGIN, bottom + MARGIN)
    return page(elements, size, _title("How long calls took", len(took), len(newest)), TIMELINE_RULES)


COLOUR_OF = {
    Party.PERSON: "person",
    Party.MACHINE: "passes",
    Party.MODEL: "model",
    Party.TOOLS: "world",
    Party.CHILDREN: "end",
    Party.HOOKS: "passes",
}


def _bar(one: Took, at: Point, scale: _Scale, now: float) -> list[str]:
    """The row of one call."""
    x, y = at
    end = now if one.end is None else one.end
    begin, wide = x + scale.of(one.begin), max(2, scale.of(end) - scale.of(one.begin))
    took = lasting(end - one.begin) + (" so far" if one.end is None else "")
    label = f"{one.party} {one.name}" if one.name else str(one.party)
    return [
        text((MARGIN, y + 16), fitting(label, CALL_WIDTH - 12), SAID, "word"),
        f'<g class="bar {COLOUR_OF[one.party]}"><title>{escape(f"{label}: {took}")}</title>',
        f"{rect(Box(begin, y + 5, wide, 14), 3)}</g>",
        text((begin + wide + 6, y + 16), took, SMALL, "quiet"),
    ]


@final
class _Scale:
    """From seconds to points. Waits for people alone are drawn no longer than a share of the rest."""

    def __init__(self, took: Iterable[Took], now: float) -> None:
        bars = [(one, now if one.end is None else one.end) for one in took]
        moments = sorted({moment for one, end in bars for moment in (one.begin, end)}) or [0.0]
        self.first = moments[0]
        spans = [
            (a, b, any(one.begin <= a and end >= b and one.party is not Party.PERSON for one, end in bars))
            for a, b in pairwise(moments)
        ]
        worked = sum([b - a for a, b, busy in spans if busy])
        most = max(1.0, IDLE_SHARE * worked)
        self.shortened = [(a, b) for a, b, busy in spans if not busy and b - a > most]
        # Where each moment stands, in seconds that are drawn.
        self.places = {self.first: 0.0}
        for a, b, busy in spans:
            self.places[b] = self.places[a] + (b - a if busy else min(b - a, most))
        self.whole = max(self.places.values()) or 1.0

    def of(self, moment: float) -> int:
        """The place of *moment*, in points."""
        return round(BARS_WIDTH * self.places[moment] / self.whole)

    def ticks(self) -> list[float]:
        """Moments to name: those that stand apart enough for their words."""
        ticks: list[float] = []
        for moment in self.places:
            if not ticks or self.of(moment) - self.of(ticks[-1]) >= 76:  # noqa: PLR2004  # the words' room
                ticks.append(moment)
        return ticks


def since(moment: float, first: float) -> str:
    """*moment* as the time since the *first*."""
    return f"+{lasting(moment - first)}"


def lasting(seconds: float) -> str:
    """*seconds* as people say them."""
    # Two units, since the rows of a picture that are hours from its first are seconds from each other.
    whole = round(seconds)
    for size, unit, smaller, other in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {other}"
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004  # two digits are enough


def fitting(said: str, room: int) -> str:
    """The beginning of *said* that has *room*."""
    if SAID.room_for(said) <= room:
        return said
    while said and SAID.room_for(f"{said}...") > room:
        said = said[:-1]
    return f"{said}..."


def _title(what: str, there: int, shown: int) -> str:
    return what if there == shown else f"{what}; the newest {shown} of {there}"
