"""
Pictures as SVG, laid out here in whole numbers, without Graphviz and without asking for a font.

So every machine writes the same bytes. Each text carries its width in Helvetica: a viewer with other fonts
scales the letters to it. A viewer that cannot scale finds a fifth more room. All lengths are points.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import count
from math import ceil
from typing import NamedTuple, final

from .picture import KIND_WORDS, OVERVIEW, Node, NodeKind, Picture, caption_of, stage_of, state_of
from .svg import SVG

Point = tuple[int, int]
Ends = tuple[str, str]

# The colour of text.
INK = "#24292f"
# The colour of lines, and of text that is read second.
GREY = "#6a737d"


class NodeLook(NamedTuple):
    """The colours of a node. They differ in lightness too, for readers who see few colours."""

    fill: str
    line: str


NODE_LOOKS = {
    NodeKind.BOX: NodeLook("#f6f7f8", "#b3b9c0"),
    NodeKind.PASSES: NodeLook("#e6e9ed", "#8a929c"),
    NodeKind.WORLD: NodeLook("#d8e7f8", "#5b8cc2"),
    NodeKind.PERSON: NodeLook("#fde5b8", "#cc902c"),
    NodeKind.END: NodeLook("#d5eedb", "#58a06b"),
}

FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
WIDTHS = "222'ijl 278!,./:;ftI 333()-r 500ckvxyzsJ 611FTZ 667ABEKPSVXY 722CDHNRUw 778GOQ 833Mm 944W"
# How wide letters are in Helvetica, in thousandths of the font size. The others have 556.
WIDTH_OF = {" ": 278} | {letter: int(part[:3]) for part in WIDTHS.split() for letter in part[3:]}

# From one line to the next, in the rows of a card and in the events beside an arrow.
LINE_STEP, NOTE_STEP = 16, 12
# Around the picture; a short arrow; from one lane to the next.
MARGIN, STUB, LANE = 16, 26, 11
# The overview: the first state, the arrows beside it, the other states, the events of leaping arrows.
HUB_WIDTH, GAP_WIDTH, BOX_WIDTH, LEAP_WIDTH = 130, 230, 252, 112
# A detail: where a stage is entered from, the columns of a card, and the height of its head.
SOURCE_WIDTH, EVENT_WIDTH, WHY_WIDTH, HEAD_HEIGHT = 186, 120, 340, 26


def svg_of(picture: Picture) -> SVG:
    """*picture* as SVG. The same picture gives the same bytes on every machine."""
    canvas = _Canvas()
    (_draw_overview if picture.name == OVERVIEW else _draw_detail)(canvas, picture)
    return canvas.svg(picture.name)


class Face(NamedTuple):
    """How a text looks."""

    size: int
    colour: str = GREY
    bold: bool = False

    def width_of(self, text: str) -> int:
        """The width of *text* in Helvetica."""
        # Bold letters are nearly a tenth wider.
        size = self.size + self.bold
        return ceil(sum(WIDTH_OF.get(letter, 556) for letter in text) * size / 1000)

    def room_for(self, text: str) -> int:
        """The room that *text* needs in any common font."""
        # DejaVu and Verdana are the widest of them: less than a fifth wider than Helvetica.
        return ceil(1.2 * self.width_of(text))

    def lines_of(self, text: str, room: int, padding: int = 0) -> list[str]:
        """The lines of *text* where each has this *room*, of which each word takes a *padding* too."""
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and self.room_for(longer) + padding * len(longer.split()) > room:
                lines.append(word)
            else:
                lines[-1] = longer
        return lines


TITLE_FACE, HEADING_FACE, PLAIN_FACE = Face(15, INK, bold=True), Face(11, INK, bold=True), Face(11, INK)
QUIET_FACE, SMALL_FACE = Face(11), Face(10)


def line_path(points: Sequence[Point]) -> str:
    """A line through *points* with round corners, as SVG spells it."""
    path = "M{} {}".format(*points[0])
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = (
            [own + max(-6, min(6, (other - own) // 2)) for own, other in zip(corner, end, strict=True)]
            for end in (before, after)
        )
        path += "L{} {}Q{} {} {} {}".format(*enter, *corner, *leave)
    return path + "L{} {}".format(*points[-1])


@final
class _Canvas:
    """The elements drawn so far. The page grows with them."""

    def __init__(self) -> None:
        self.elements: list[str] = []
        self.right = self.bottom = 0
        # Lines to a target in the picture wait here until all boxes are drawn, and then share a lane.
        self.starts: defaultdict[str, list[Point]] = defaultdict(list)
        self.heads: dict[str, Point] = {}

    def _add(self, element: str, right: int, bottom: int) -> None:
        self.elements.append(element)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def text(self, at: Point, text: str, face: Face = PLAIN_FACE, anchor: str = "start") -> None:
        """Put *text* with its *anchor* (start, middle or end) and its base line *at* a point."""
        self._add(
            f'<text x="{at[0]}" y="{at[1]}" font-size="{face.size}" fill="{face.colour}"'
            f' font-weight="{"bold" if face.bold else "normal"}" text-anchor="{anchor}"'
            f' textLength="{face.width_of(text)}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>',
            *at,
        )

    def lines(self, at: Point, lines: Iterable[str], face: Face = SMALL_FACE, step: int = NOTE_STEP) -> int:
        """Put *lines* below a point; return where the next one would be."""
        x, y = at
        for line in lines:
            y += step
            self.text((x, y), line, face)
        return y

    def box(self, at: Point, width: int, height: int, look: NodeLook, radius: int = 4) -> None:
        """Put a box with its upper left corner *at* a point."""
        x, y = at
        self._add(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"'
            f' fill="{look.fill}" stroke="{look.line}"/>',
            x + width,
            y + height,
        )

    def chip(self, at: Point, text: str, kind: NodeKind) -> int:
        """Put a small box around *text*, with the middle of its left edge *at* a point; return its right."""
        x, y = at
        width = PLAIN_FACE.room_for(text) + 14
        self.box((x, y - 10), width, 20, NODE_LOOKS[kind], radius=10)
        self.text((x + width // 2, y + 4), text, anchor="middle")
        return x + width

    def line(self, *points: Point) -> None:
        """An arrow through *points*, with round corners."""
        path = line_path(points)
        right, bottom = (max(places) for places in zip(*points, strict=True))
        self._add(f'<path d="{path}" fill="none" stroke="{GREY}" marker-end="url(#head)"/>', right, bottom)

    def start(self, at: Point) -> None:
        """The dot where a run begins, and its arrow to the edge *at* a point."""
        x, y = at
        self.line((x - STUB, y), at)
        self._add(f'<circle cx="{x - STUB}" cy="{y}" r="6" fill="{INK}"/>', x, y)

    def lanes(self, x: int) -> None:
        """From each start a line to the head of its target. Lines to one target share a lane, from *x* on."""
        starts = {to: [y for _, y in points] for to, points in self.starts.items()}
        ends = {to: sorted([self.heads[to][1], *heights]) for to, heights in starts.items()}
        lanes: defaultdict[int, list[Point]] = defaultdict(list)
        # Short lanes come first, so that long ones go around them.
        for target in sorted(ends, key=lambda target: ends[target][-1] - ends[target][0]):
            low, high = ends[target][0] - 8, ends[target][-1] + 8
            chosen = next(n for n in count() if all(high < a or b < low for a, b in lanes[n]))
            lanes[chosen].append((low, high))
            at, head = x + chosen * LANE, self.heads[target]
            for start in self.starts[target]:
                self.line(start, (at, start[1]), (at, head[1]), head)

    def legend(self, x: int) -> None:
        """What the colours say, below everything."""
        y = self.bottom + 28
        for kind, words in KIND_WORDS.items():
            x = self.chip((x, y), words, kind) + 8

    def svg(self, title: str) -> SVG:
        """The finished picture."""
        width, height = self.right + MARGIN, self.bottom + MARGIN
        # Text would be lost on the dark page of a reader who prefers that, so the ground is white.
        opening = f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}pt" height="{height}pt" viewBox="0 0 {width} {height}"
 font-family="{FONTS}">
<title>{title}</title>
<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 1L8 4L0 7z" fill="{GREY}"/>
</marker>
<rect width="{width}" height="{height}" fill="white"/>"""
        return SVG("\n".join([opening, *self.elements, "</svg>\n"]))


def _draw_overview(canvas: _Canvas, picture: Picture) -> None:
    """
    The state where a run begins as a tall box, the others in a column beside it.

    So arrows join the first state with each other one, and neighbours in the column. An arrow that leaps over
    a neighbour takes a lane on the right. What happens between stages is for the details.
    """
    hub, *column = [node for node in picture.nodes if not node.inside]
    events = {ends: [arrow.event for arrow in arrows] for ends, arrows in picture.bundles.items()}
    left, y = MARGIN + 2 * STUB, MARGIN
    x = left + HUB_WIDTH + GAP_WIDTH
    for index, node in enumerate(column):
        canvas.heads[node.id] = (x + BOX_WIDTH, y + 16)
        beside, port = y + 4, y + 22
        for ends in ((hub.id, node.id), (node.id, hub.id)):
            if ends in events:
                lines = SMALL_FACE.lines_of(", ".join(events[ends]), GAP_WIDTH - 30)
                beside = canvas.lines((left + HUB_WIDTH + 14, beside), lines) + 6
                arrow = [(left + HUB_WIDTH, beside), (x, beside)]
                canvas.line(*(arrow if ends[0] == hub.id else arrow[::-1]))
        for other in column[: max(index - 1, 0)] + column[index + 2 :]:
            if names := events.get((node.id, other.id)):
                lines = SMALL_FACE.lines_of(", ".join(names), LEAP_WIDTH)
                port = canvas.lines((x + BOX_WIDTH + 8, port), lines) + 6
                canvas.starts[other.id].append((x + BOX_WIDTH, port))
        y = _draw_state(canvas, (x, y), picture, node, (BOX_WIDTH, max(beside, port) + 10 - y))
        for below in column[index + 1 : index + 2]:
            y = _draw_between(canvas, (x, y), events, (node.id, below.id))
    _draw_state(canvas, (left, MARGIN), picture, hub, (HUB_WIDTH, y - MARGIN))
    canvas.start((left, MARGIN + 18))
    canvas.lanes(x + BOX_WIDTH + LEAP_WIDTH + 16)
    canvas.legend(left)


def _draw_between(canvas: _Canvas, at: Point, events: Mapping[Ends, list[str]], ends: Ends) -> int:
    """The arrows between two neighbours, the upper one's lower left corner *at* a point; return their end."""
    x, y = at
    arrows = [pair for pair in (ends, (ends[1], ends[0])) if pair in events]
    end = y + max([20 + NOTE_STEP * len(events[pair]) for pair in arrows], default=20)
    for index, pair in enumerate(arrows):
        middle = x + 30 + index * BOX_WIDTH // 2
        arrow = [(middle, y), (middle, end)]
        canvas.line(*(arrow if pair == ends else arrow[::-1]))
        canvas.lines((middle + 8, y + 4), events[pair])
    return end


def _draw_state(canvas: _Canvas, at: Point, picture: Picture, node: Node, size: Point) -> int:
    """A state as a whole, at least of *size*: its name, its meaning and its stages; return its lower edge."""
    x, y = at
    width, height = size
    stages = {stage_of(stage.text): stage.kind for stage in picture.nodes if stage.inside == node.id}
    # In a tall box each stage has a row of its own.
    room = 0 if height > 2 * width else width - 16
    rows = PLAIN_FACE.lines_of(" ".join(stages), room, padding=17) if stages else []
    caption = QUIET_FACE.lines_of(caption_of(node.id), width - 24)
    text = 30 + LINE_STEP * len(caption)
    height = max(height, text + 8 + 26 * len(rows))
    canvas.box(at, width, height, NODE_LOOKS[node.kind], radius=8)
    canvas.text((x + 12, y + 22), node.text, TITLE_FACE)
    canvas.lines((x + 12, y + 40 - LINE_STEP), caption, QUIET_FACE, LINE_STEP)
    for index, row in enumerate(rows):
        middle = y + text + (2 * index + 1) * (height - text) // (2 * len(rows))
        right = x + 12
        for stage in row.split():
            right = canvas.chip((right, middle), stage, stages[stage]) + 6
    return y + height


def _draw_detail(canvas: _Canvas, picture: Picture) -> None:
    """
    The stages of one state as cards below each other.

    On the left of a card stands where its stage is entered from, on the right where its rows lead. A lane
    joins a target that has a card here to this card.
    """
    cards = [node for node in picture.nodes if state_of(node.text) == picture.name]
    x, y = MARGIN + SOURCE_WIDTH + 2 * STUB, MARGIN
    for card in cards:
        canvas.heads[card.id] = (x + EVENT_WIDTH + WHY_WIDTH, y + HEAD_HEIGHT // 2)
        if card.id == picture.start:
            canvas.start((x, y + HEAD_HEIGHT // 2))
        sources = _draw_sources(canvas, (x, y), picture, card)
        y = max(sources, _draw_card(canvas, (x, y), picture, card)) + 26
    canvas.lanes(canvas.right + 10)
    canvas.legend(x)


def _draw_sources(canvas: _Canvas, at: Point, picture: Picture, card: Node) -> int:
    """Which other states lead to the *card* *at* a point, and on which events; return the lower edge."""
    x, y = at
    head = (x, y + HEAD_HEIGHT // 2)
    for (source, target), arrows in picture.bundles.items():
        origin = picture.node(source)
        if target == card.id and origin.kind is NodeKind.BOX:
            lines = SMALL_FACE.lines_of(", ".join([arrow.event for arrow in arrows]), SOURCE_WIDTH - 16)
            canvas.box((MARGIN, y), SOURCE_WIDTH, 26 + NOTE_STEP * len(lines), NODE_LOOKS[origin.kind])
            canvas.text((MARGIN + 8, y + 16), origin.text, HEADING_FACE)
            middle = y + HEAD_HEIGHT // 2
            canvas.line((MARGIN + SOURCE_WIDTH, middle), (x - STUB, middle), (x - STUB, head[1]), head)
            y = canvas.lines((MARGIN + 8, y + 18), lines) + 16
    return y


def _draw_card(canvas: _Canvas, at: Point, picture: Picture, card: Node) -> int:
    """The rows of one stage, in a band for each target; return the lower edge."""
    x, y = at
    right = x + EVENT_WIDTH + WHY_WIDTH
    bands = {
        target: [(arrow.event, QUIET_FACE.lines_of(arrow.why, WHY_WIDTH - 20)) for arrow in arrows]
        for (source, target), arrows in picture.bundles.items()
        if source == card.id
    }
    lengths = {target: sum(len(lines) for _, lines in rows) for target, rows in bands.items()}
    height = HEAD_HEIGHT + sum(12 + LINE_STEP * length for length in lengths.values())
    canvas.box(at, right - x, height, NodeLook("white", NODE_LOOKS[card.kind].line))
    canvas.box(at, right - x, HEAD_HEIGHT, NODE_LOOKS[card.kind])
    canvas.text((x + 10, y + 17), card.text, HEADING_FACE)
    canvas.text((right - 10, y + 17), KIND_WORDS[card.kind], QUIET_FACE, anchor="end")
    y += HEAD_HEIGHT
    for target, rows in bands.items():
        _draw_target(canvas, (right, y + 6 + LINE_STEP * lengths[target] // 2), picture.node(target), card)
        y += 2
        for event, lines in rows:
            canvas.text((x + 10, y + LINE_STEP), event)
            y = canvas.lines((x + EVENT_WIDTH, y), lines, QUIET_FACE, LINE_STEP)
        y += 10
    return y


def _draw_target(canvas: _Canvas, at: Point, target: Node, card: Node) -> None:
    """The arrow from the edge of a *card* *at* a point to its *target*."""
    x, y = at
    if target == card:
        canvas.line((x, y - 5), (x + STUB - 8, y - 5), (x + STUB - 8, y + 5), (x, y + 5))
        canvas.text((x + STUB, y + 4), "stays", QUIET_FACE)
        return
    canvas.line((x, y), (x + STUB, y))
    right = canvas.chip((x + STUB, y), target.text, target.kind)
    if state_of(target.text) == state_of(card.text):
        canvas.starts[target.id].append((right, y))
