"""Pictures in a notebook: as wide as the cell at most, never too small to read, and plain text elsewhere."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from turnwheel.diagrams import SVG, Party, Said, calls, chart, detail, overview, sequence, svg_of
from turnwheel.diagrams.svg import FRAME, LEAST_SCALE, TALLEST

EVIL = "<script>alert(1)</script>"
LONG = [Said(float(n), Party.PERSON, Party.MACHINE, f"{n} {EVIL}") for n in range(60)]

each_picture = pytest.mark.parametrize(
    "picture",
    [chart("done"), sequence(LONG), calls([]), svg_of(overview()), svg_of(detail("streaming"))],
    ids=["chart", "sequence", "calls", "overview", "detail"],
)


def html_of(picture: SVG) -> str:
    return picture._repr_html_()  # pyright: ignore[reportPrivateUsage]  # as a notebook does


def styles_in(html: str) -> list[dict[str, str]]:
    """The styles of the box and of the picture in it."""
    box, svg = re.findall(r'<(?:div|svg)[^>]* ?style="([^"]*)"', html)
    return [dict([one.split(":", 1) for one in style.split(";")]) for style in (box, svg)]


@each_picture
def test_a_picture_fits_its_cell_and_scrolls_before_it_is_too_small(picture: SVG) -> None:
    box, svg = styles_in(html_of(picture))
    assert (box["max-width"], box["overflow"], box["max-height"]) == ("100%", "auto", f"{TALLEST}px")
    assert (svg["max-width"], svg["height"]) == ("100%", "auto")
    assert svg["min-width"] == f"{round(picture.size[0] * LEAST_SCALE)}px"


@each_picture
def test_a_picture_needs_no_script_and_nothing_from_elsewhere(picture: SVG) -> None:
    html = html_of(picture)
    assert "<script" not in html
    assert not re.findall(r'(?:href|src)="', html)


def test_only_a_picture_that_is_taller_than_its_box_has_a_frame() -> None:
    assert FRAME in html_of(sequence(LONG))
    assert FRAME not in html_of(chart())


def test_a_picture_is_the_text_of_its_file(tmp_path: Path) -> None:
    picture = chart("done")
    file = tmp_path / "done.svg"
    file.write_text(picture, "utf-8")
    assert file.read_text("utf-8") == picture == str(picture) == pickle.loads(pickle.dumps(picture))  # noqa: S301  # ours
    assert type(str(picture)) is str
    assert picture.startswith("<svg ")
    assert picture == chart("done") != chart("streaming")


def test_the_repr_is_short() -> None:
    width, height = chart().size
    taken = {("thinking", "streaming"): 2}
    assert repr(chart("streaming", taken)) == f"<SVG {width}x{height}: The machine, at streaming>"
    assert repr(sequence(LONG * 10)).endswith(": Who asked whom>")
