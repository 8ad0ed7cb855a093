"""
Pictures as SVG, laid out by Graphviz.

In a detail each place is a card: a head in the colour of its kind, and a band of rows for each target, from
which one arrow leaves. So no word stands on an arrow where words are many.
"""

from __future__ import annotations

import re
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import attrs

from .picture import (
    OVERVIEW,
    WORDS,
    Kind,
    Picture,
    Place,
    caption_of,
)
from .sketch import sketch
from .style import INK, LOOKS, QUIET

if TYPE_CHECKING:
    from .picture import Arrow

FONT = "Helvetica,Arial,sans-serif"
CAPTION = 34
"""The longest line of a caption, in letters: about as wide as two stages."""
STYLE = {
    "node": {"default": {"shape": "plain", "fontname": FONT, "fontsize": "11", "fontcolor": INK}},
    "edge": {
        "default": {"fontname": FONT, "fontsize": "10", "fontcolor": INK, "color": QUIET, "arrowsize": "0.7"}
    },
}
PAGE = {
    "directed": "true",
    "strict": "false",
    "bgcolor": "white",  # a dark page behind it would swallow the letters
    "pad": "0.2",
    "fontname": FONT,
    "fontsize": "11",
}


def svg_of(picture: Picture) -> str:
    """*picture* as SVG. Needs pygraphviz, which is the extra `diagrams`."""
    graph = _overview(picture) if picture.name == OVERVIEW else _detail(picture)
    return _cleaned(graph.draw(None, format="svg", prog="dot").decode())


def _overview(picture: Picture) -> Any:  # noqa: ANN401  # pygraphviz has no types
    """The states as boxes that list their stages; what happens between stages is for the details."""
    boxes = tuple([place for place in picture.places if not place.inside])
    known = {box.id for box in boxes}
    arrows = tuple([arrow for arrow in picture.arrows if {arrow.source, arrow.target} <= known])
    outer = attrs.evolve(picture, places=boxes, arrows=arrows)
    graph: Any = sketch(outer, "pygraphviz", STYLE, **PAGE, rankdir="TB", nodesep="0.6", ranksep="0.8")
    graph.graph_attr.update(label=_legend(), labelloc="b")
    for place in boxes:
        graph.get_node(place.id).attr.update(label=_box(place, picture))
    for (source, target), bundle in outer.bundles.items():
        graph.get_edge(source, target).attr.update(label=_events(bundle))
    return graph


def _detail(picture: Picture) -> Any:  # noqa: ANN401  # as above
    """Every place as a card of its rows, and an arrow from each band of them to the head of another."""
    graph: Any = sketch(picture, "pygraphviz", STYLE, **PAGE, rankdir="LR", nodesep="0.25", ranksep="0.7")
    for place in picture.places:
        graph.get_node(place.id).attr.update(label=_card(place, picture))
    order = [place.id for place in picture.places]
    for source, target in picture.bundles:
        if source == target:
            continue
        # Where two stages lead to each other, the later one's arrow goes back, so it leaves on the left.
        if (target, source) in picture.bundles and order.index(target) < order.index(source):
            ends = {"tailport": f"{target}_back:w", "headport": "head:e"}
        else:
            ends = {"tailport": f"{target}:e", "headport": "head:w"}
        graph.get_edge(source, target).attr.update(label="", **ends)
    return graph


def _cleaned(svg: str) -> str:
    """*svg* without comments: they say which Graphviz drew it, and when that was built."""
    return re.sub(r"<!--.*?-->\n?", "", svg, flags=re.DOTALL)


def _tag(name: str, inner: str, **attributes: object) -> str:
    """An element as Graphviz writes HTML."""
    settings = "".join([f' {key}="{value}"' for key, value in attributes.items()])
    return f"<{name}{settings}>{inner}</{name}>"


def _table(rows: list[str], **attributes: object) -> str:
    inner = "".join([_tag("TR", row) for row in rows])
    plain = {"BORDER": 0, "CELLBORDER": 0, "CELLSPACING": 0, "CELLPADDING": 4}
    return _tag("TABLE", inner, **(plain | attributes))


def _quiet(text: str) -> str:
    return _tag("FONT", escape(text), COLOR=QUIET)


def _chip(text: str, kind: Kind) -> str:
    look = LOOKS[kind]
    chip = _table([_tag("TD", escape(text))], BORDER=1, COLOR=look.line, BGCOLOR=look.fill, STYLE="ROUNDED")
    return _tag("TD", chip)


def _legend() -> str:
    chips = [_chip(words, kind) for kind, words in WORDS.items()]
    return f"<{_table([''.join(chips)], CELLSPACING=6, CELLPADDING=0)}>"


def _events(arrows: tuple[Arrow, ...]) -> str:
    """What stands beside an arrow, a little away from it: one event below the other."""
    rows = [_tag("TD", f"&#160;&#160;{escape(arrow.event)}", ALIGN="LEFT") for arrow in arrows]
    return f"<{_table(rows, CELLPADDING=1)}>"


def _box(place: Place, picture: Picture) -> str:
    """A state as a whole: its name, what it means, and its stages."""
    stages = [stage for stage in picture.places if stage.inside == place.id] or [place]
    chips = "".join([_chip(stage.text, stage.kind) for stage in stages])
    look = LOOKS[Kind.BOX]
    rows = [
        _tag("TD", _tag("FONT", _tag("B", escape(place.text)), **{"POINT-SIZE": 14})),
        *(_tag("TD", _quiet(line)) for line in wrap(caption_of(place.id), CAPTION)),
        _tag("TD", _table([chips], CELLSPACING=3, CELLPADDING=0)),
    ]
    return f"<{_table(rows, BORDER=1, CELLPADDING=2, COLOR=look.line, BGCOLOR=look.fill, STYLE='ROUNDED')}>"


def _card(place: Place, picture: Picture) -> str:
    """A place with its rows, in bands that share a target. Without rows it is its name alone."""
    look = LOOKS[place.kind]
    rows = [_tag("TD", _tag("B", escape(place.text)), COLSPAN=3, PORT="head", BGCOLOR=look.fill)]
    for (source, target), arrows in picture.bundles.items():
        if source == place.id:
            goal = "stays" if source == target else picture.text_of(target)
            rows += _band(arrows, _quiet(goal), target)
    return f"<{_table(rows, BORDER=1, COLOR=look.line, BGCOLOR='white')}>"


def _band(arrows: tuple[Arrow, ...], goal: str, port: str) -> list[str]:
    """The rows for *arrows*, which lead to one *goal*; its cell is the *port* that they leave from."""
    line = {"BORDER": 1, "SIDES": "T", "COLOR": LOOKS[Kind.BOX].line}
    rows: list[str] = []
    for arrow in arrows:
        # The line above the others is there, and not seen, so that all words begin at one edge.
        above = line | {"COLOR": "white"} if rows else line
        entry = {} if rows else {"PORT": f"{port}_back"}
        event = _tag("TD", escape(arrow.event), ALIGN="LEFT", **above, **entry)
        why = _tag("TD", _quiet(arrow.why), ALIGN="LEFT", **above) if arrow.why else ""
        end = "" if rows else _tag("TD", goal, ROWSPAN=len(arrows), PORT=port, ALIGN="RIGHT", **line)
        rows.append(event + why + end)
    return rows
