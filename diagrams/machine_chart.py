"""
The statechart of a session: the whole machine as one SVG, the present state lit and the path marked.

A page may change it without drawing it anew. Each state is a `g` with `data-state`, each stage one with
`data-label`, each edge one with `data-edge`: two states with a blank between them. Their classes are `lit`
where the session is, `passed` where it has been, and `taken` for an edge, whose `text` has the count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import final

from ..effects.errors import ConfigError
from .drawing import Face, Point
from .look import Box, arrow, page, rect, rule, text
from .picture import (
    KIND_WORDS,
    LABELS,
    STATE_CLASSES,
    Node,
    caption_of,
    overview,
    stage_of,
    state_of,
)
from .svg import SVG

# From one state or label to another.
Edge = tuple[str, str]

# Where a run begins, what stands in a row below, and where it ends. In this order, all edges but one pair of
# them join neighbours.
HUB, ROW, END = "thinking", ("compacting", "streaming", "executing", "confirming", "dispatching"), "done"
# Lengths, in points: around the chart, the first arrow, between states, from one lane to the next.
MARGIN, STUB, GAP, LANE = 14, 26, 46, 24
# The first state, the way down from it, and the least width of a state.
HUB_HEIGHT, DROP, LEAST = 76, 62, 120
# A stage, from one row of stages to the next, and how many make a state wide: its stages share one row.
CHIP, CHIP_STEP, MANY = 21, 26, 6
# From a line to its count.
BESIDE = 5

TITLE, CAPTION, STAGE, COUNT = Face(15, bold=True), Face(11), Face(12), Face(13, bold=True)


def chart(lit: str = "", taken: Mapping[Edge, int] | None = None) -> SVG:
    """
    The whole machine as SVG, with the state or label *lit* standing out.

    *taken* says how often each edge was taken, between states or between labels; the others are dim. With
    None, none is. The same arguments give the same bytes. Raises `ConfigError` for an unknown name.
    """
    for name in {lit, *[end for edge in taken or () for end in edge]} - {""}:
        if name not in LABELS and name not in STATE_CLASSES:
            msg = f"no state {name!r} in the table; there are {', '.join(LABELS)}"
            raise ConfigError(msg)
    return _Chart(lit, taken).svg()


@final
class _Chart:
    """The chart while it is drawn."""

    def __init__(self, lit: str, taken: Mapping[Edge, int] | None) -> None:
        self.lit, self.traced = lit, taken is not None
        # Both names of each end: a path from label to label passes their states, too.
        self.passed = {name for edge in taken or () for end in edge for name in (end, state_of(end))}
        self.counts: defaultdict[Edge, int] = defaultdict(int)
        for (source, target), times in (taken or {}).items():
            self.counts[state_of(source), state_of(target)] += times
        picture = overview()
        self.kinds = {node.id: node.kind for node in picture.nodes if not node.inside}
        self.stages = {
            state: [node for node in picture.nodes if node.inside == state] for state in self.kinds
        }
        # Between states only. A path inside a state shows at its stages.
        self.edges = {
            ends: ", ".join([arrow.event for arrow in arrows])
            for ends, arrows in picture.bundles.items()
            if self.kinds.keys() >= set(ends)
        }
        self.boxes = self._placed()
        self.elements: list[str] = []
        # Lanes below the row until now, and at each state the arrows that join one.
        self.lanes, self.ports = 0, dict.fromkeys(ROW, 0)

    def svg(self) -> SVG:
        """The finished chart."""
        for ends in self.edges:
            self._edge(ends, self._route(*ends))
        for state in self.boxes:
            self._state(state)
        self._start()
        self._legend()
        width = self.boxes[END].right + MARGIN
        height = self.boxes[HUB].bottom + DROP + self.boxes[ROW[0]].height + 18 + LANE * max(2, self.lanes)
        return page(
            self.elements, (width, height), self._told(), CHART_RULES, mark=" traced" if self.traced else ""
        )

    def _told(self) -> str:
        """The chart in words, for readers who do not see it."""
        ways = [f"{' to '.join(ends)} {self.counts[ends]}x" for ends in self.edges if ends in self.counts]
        where = f"The machine, at {self.lit}" if self.lit else "The machine"
        return f"{where}; taken: {', '.join(ways)}" if ways else where

    def _placed(self) -> dict[str, Box]:
        """The box of each state: the first above a row of others, the last on its right."""
        left, y = MARGIN + STUB, MARGIN + HUB_HEIGHT + DROP
        rows = {state: self._rows(state) for state in ROW}
        height = 66 + CHIP_STEP * max(map(len, rows.values()))
        boxes: dict[str, Box] = {}
        x = left
        for state in ROW:
            inside = max(sum([_chip_width(chip) + 6 for chip in row]) for row in rows[state])
            boxes[state] = Box(x, y, max(LEAST, inside + 18), height)
            x = boxes[state].right + GAP
        # The first box ends above the middle of the row's last one: the end stands over the other half.
        middle = (boxes[ROW[-1]].x + boxes[ROW[-1]].right) // 2
        boxes[HUB] = Box(left, MARGIN, middle - left, HUB_HEIGHT)
        boxes[END] = Box(middle + GAP, MARGIN, 92, HUB_HEIGHT)
        return boxes

    def _rows(self, state: str) -> list[list[Node]]:
        """The stages of *state* in rows: two stand below each other, more in pairs, and many in one row."""
        stages = self.stages[state]
        beside = len(stages) if len(stages) >= MANY else 1 + (len(stages) > 2)  # noqa: PLR2004  # a pair
        return [stages[n : n + beside] for n in range(0, len(stages), beside)] if stages else []

    # Edges

    def _route(self, source: str, target: str) -> list[Point]:
        """The corners of the arrow from *source* to *target*."""
        one, other = self.boxes[source], self.boxes[target]
        # Two arrows between the same states stand side by side.
        apart = 15 if (target, source) in self.edges else 0
        if END in {source, target}:
            y = one.y + HUB_HEIGHT // 2
            return [(one.right, y), (other.x, y)]
        if HUB in {source, target}:
            below = other if source == HUB else one
            x = min((below.x + below.right) // 2, self.boxes[HUB].right - 14)
            x += -apart if source == HUB else apart
            ends = [(x, self.boxes[HUB].bottom), (x, below.y)]
            return ends if source == HUB else ends[::-1]
        if abs(ROW.index(source) - ROW.index(target)) == 1:
            forward = one.x < other.x
            y = one.y + 48 + (-apart if forward else apart)
            return [(one.right, y), (other.x, y)] if forward else [(one.x, y), (other.right, y)]
        self.lanes += 1
        y = one.bottom + LANE * self.lanes
        start, end = self._port(source, target), self._port(target, source)
        return [(start, one.bottom), (start, y), (end, y), (end, other.bottom)]

    def _port(self, state: str, other: str) -> int:
        """Where the next lane to *other* meets *state*: later ones farther out, so that none cross."""
        box, self.ports[state] = self.boxes[state], self.ports[state] + 1
        outward = -1 if self.boxes[other].x > box.x else 1
        return (box.x + box.right) // 2 + outward * (20 * self.ports[state] - 30)

    def _edge(self, ends: Edge, points: list[Point]) -> None:
        """An arrow through *points* with its count, and for a reader who points at it with its events."""
        times = self.counts.get(ends, 0)
        before, after = points[(len(points) - 1) // 2], points[len(points) // 2]
        x, y = (before[0] + after[0]) // 2, (before[1] + after[1]) // 2
        if before[0] != after[0]:
            at, anchor = (x, y - BESIDE), "middle"
        # Of two side by side, each has its count on the outer side.
        elif ends[0] == HUB:
            at, anchor = (x - BESIDE, y + 5), "end"
        else:
            at, anchor = (x + BESIDE, y + 5), "start"
        path = arrow(points)
        self.elements.append(
            f'<g class="edge{" taken" if times else ""}" data-edge="{" ".join(ends)}">'
            f"<title>{' to '.join(ends)}: {self.edges[ends]}</title>{path}"
            f'<text class="count" x="{at[0]}" y="{at[1]}" text-anchor="{anchor}">{times or ""}</text></g>'
        )

    def _start(self) -> None:
        """The dot where a run begins."""
        x, y = self.boxes[HUB].x, self.boxes[HUB].y + HUB_HEIGHT // 2
        dot = f'<circle cx="{x - STUB + 6}" cy="{y}" r="6"/>'
        self.elements.append(f'<g class="start">{arrow([(x - STUB + 6, y), (x, y)])}{dot}</g>')

    # States

    def _state(self, state: str) -> None:
        """A state with its meaning and its stages."""
        box, kind, rows = self.boxes[state], self.kinds[state], self._rows(state)
        marks = self._marks(state, state_of(self.lit))
        self.elements.append(f'<g class="state {kind}{marks}" data-state="{state}">{rect(box, 8)}')
        self._put((box.x + 12, box.y + 23), state, TITLE, "title")
        # In a state that is wide its meaning stands beside its name.
        beside = TITLE.room_for(state) + 8 if state == HUB else 0
        x, y = box.x + 12 + beside, box.y + (23 if beside else 40)
        for n, line in enumerate(CAPTION.lines_of(caption_of(state), box.width - 22 - beside)):
            self._put((x, y + 14 * n), line, CAPTION, "quiet")
        for n, row in enumerate(rows):
            x, y = box.x + 12, box.y + (40 if beside else 64 + CHIP_STEP * n)
            for stage in row:
                x = self._stage((x, y), stage) + 6
        self.elements.append("</g>")

    def _marks(self, name: str, lit: str) -> str:
        """The classes of a state or a label: whether it was passed, and whether the session is there."""
        return (" passed" if name in self.passed else "") + (" lit" if name == lit else "")

    def _stage(self, at: Point, stage: Node) -> int:
        """A stage with its upper left corner *at* a point; return its right edge."""
        box = Box(*at, _chip_width(stage), CHIP)
        self.elements.append(
            f'<g class="stage {stage.kind}{self._marks(stage.text, self.lit)}" data-label="{stage.text}">'
            f"<title>{stage.text}: {KIND_WORDS[stage.kind]}</title>{rect(box, CHIP // 2)}"
        )
        self._put(((box.x + box.right) // 2, box.y + 15), stage_of(stage.text), STAGE, "word", "middle")
        self.elements.append("</g>")
        return box.right

    def _put(self, at: Point, said: str, face: Face, kind: str, anchor: str = "start") -> None:
        self.elements.append(text(at, said, face, kind, anchor))

    def _legend(self) -> None:
        """What the colours say, below the states that no lane joins."""
        corner = self.boxes[ROW[0]]
        for n, (kind, words) in enumerate(KIND_WORDS.items()):
            x, y = corner.x + 150 * (n // 2), corner.bottom + 26 + 20 * (n % 2)
            self.elements.append(f'<g class="key {kind}">{rect(Box(x, y - 9, 10, 10), 5)}</g>')
            self._put((x + 16, y), words, CAPTION, "quiet")


def _chip_width(stage: Node) -> int:
    return STAGE.room_for(stage_of(stage.text)) + 14


CHART_RULES = (
    rule(".state>rect", fill="box", stroke="box-line"),
    rule(".start circle", fill="ink"),
    rule(".count", fill="path", font_size="13px", font_weight="bold"),
    rule(".taken .way", stroke="path", stroke_width="2"),
    rule(".taken polygon", fill="path"),
    ".tw-chart.traced .edge:not(.taken),.tw-chart.traced .state:not(.passed):not(.lit){opacity:.6}",
    ".tw-chart.traced .passed .stage:not(.passed):not(.lit){opacity:.6}",
    rule(".state.lit>rect", fill="lit-fill", stroke="lit", stroke_width="2.5"),
    rule(".state.lit>.title", fill="lit"),
    rule(".stage.lit>rect", fill="lit", stroke="lit"),
    rule(".stage.lit>.word", fill="lit-ink", font_weight="bold"),
)
