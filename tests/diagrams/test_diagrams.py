"""The pictures and the pages show the table: every row, nothing else, and the same on every machine."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from turnwheel import diagrams
from turnwheel.diagrams.__main__ import CHECKOUT_MARK, contents, main, stale, write
from turnwheel.diagrams.picture import LABELS, STATE_CLASSES, id_of, kind_of, labels_of, state_of
from turnwheel.effects.errors import ConfigError
from turnwheel.states.table import IGNORED, TABLE

ROOT = Path(__file__).resolve().parent.parent.parent


ROWS = [row for row in TABLE if not row.welcome]
each_state = pytest.mark.parametrize("state", STATE_CLASSES)
each_label = pytest.mark.parametrize("label", LABELS)
each_picture = pytest.mark.parametrize("picture", diagrams.pictures(), ids=lambda picture: picture.name)


def lines(text: str) -> list[str]:
    return [line.strip().replace("#59;", ";").replace("#58;", ":") for line in text.splitlines()]


def run(code: str, **environment: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], env=os.environ | environment, text=True)


def test_the_committed_files_are_what_the_table_says() -> None:
    """After a change of the table, `make diagrams` writes them again: the SVG files too, byte for byte."""
    assert stale(ROOT) == []


def test_no_picture_is_committed_that_nothing_draws() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "diagrams").glob("*.[ms][mv][dg]")}
    assert found == {path for path in contents() if path.startswith("diagrams/")}


def test_the_files_are_the_same_in_every_process_and_without_fonts() -> None:
    code = "from turnwheel.diagrams.__main__ import contents; print(contents())"
    assert run(code, PYTHONHASHSEED="1") == run(code, PYTHONHASHSEED="2", FONTCONFIG_PATH="/nowhere")


SVG = "{http://www.w3.org/2000/svg}"
EMS = {0.34: " ,.;:'ijlI", 0.42: "ftr-()", 0.61: "sckvxyzFLP", 0.82: "wNHGOQUCRD", 1.0: "mMW"}
WIDEST = {letter: em for em, letters in EMS.items() for letter in letters}
"""No less than the widths of letters in DejaVu Sans, the widest common font. The others have 0.69."""

Area = tuple[float, float, float, float]
"""The left, upper, right and lower end."""


def box_area(box: ET.Element) -> Area:
    x, y, width, height = [float(box.get(name, 0)) for name in ("x", "y", "width", "height")]
    return x, y, x + width, y + height


def text_area(text: ET.Element) -> Area:
    """The area of *text* in the widest font, where no viewer scales it to its `textLength`."""
    x, y, size = [float(text.get(name, 0)) for name in ("x", "y", "font-size")]
    weight = 1.1 if text.get("font-weight") == "bold" else 1
    width = sum(WIDEST.get(letter, 0.69) for letter in text.text or "") * size * weight
    left = x - {"start": 0, "middle": width / 2, "end": width}[text.get("text-anchor", "start")]
    return left, y - 0.76 * size, left + width, y + 0.24 * size


def holds(outer: Area, inner: Area) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def elements(picture: diagrams.Picture, name: str) -> list[ET.Element]:
    return list(ET.fromstring(diagrams.svg_of(picture)).iter(f"{SVG}{name}"))  # noqa: S314  # ours


@each_picture
def test_every_text_fits_its_box(picture: diagrams.Picture) -> None:
    boxes = [box_area(box) for box in elements(picture, "rect")]
    areas: list[tuple[str, Area]] = []
    for text in elements(picture, "text"):
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        around = [box for box in boxes if holds(box, (x, y, x, y))]
        smallest = min(around, key=lambda box: (box[2] - box[0]) * (box[3] - box[1]))
        areas.append((text.text or "", text_area(text)))
        assert holds(smallest, text_area(text)), text.text
        assert text.get("textLength"), text.text
    for (one, first), (other, second) in combinations(areas, 2):
        apart = first[2] < second[0] or second[2] < first[0] or first[3] < second[1] or second[3] < first[1]
        assert apart, f"{one} meets {other}"


@each_picture
def test_no_picture_is_wider_than_a_page(picture: diagrams.Picture) -> None:
    """A page has a thousand points, and holds all boxes."""
    [svg] = elements(picture, "svg")
    *_, width, height = [float(number) for number in svg.get("viewBox", "").split()]
    assert svg.get("width") == f"{width:g}pt"
    assert width <= 1000
    assert all(holds((0, 0, width, height), box_area(box)) for box in elements(picture, "rect"))


@each_picture
def test_an_svg_shows_every_node_event_and_reason(picture: diagrams.Picture) -> None:
    words = " ".join([text.text or "" for text in elements(picture, "text")])
    stages = picture.name == "machine"
    assert all((node.text.rpartition(".")[2] if stages else node.text) in words for node in picture.nodes)
    between = [arrow for arrow in picture.arrows if not stages or "_" not in arrow.source]
    assert all(arrow.event in words and arrow.why in words for arrow in between)
    assert not set("*`") & set(words)
    arrows = [path for path in elements(picture, "path") if path.get("marker-end")]
    assert len(arrows) >= len({(arrow.source, arrow.target) for arrow in between})


@each_picture
def test_a_dot_shows_where_a_run_begins(picture: diagrams.Picture) -> None:
    """An arrow leads from the dot to the box of the first state, or of its first stage."""
    dots = [(dot.get("cx"), dot.get("cy")) for dot in elements(picture, "circle")]
    assert len(dots) == (picture.name in {"machine", "thinking"})
    for x, y in dots:
        paths = [path.get("d", "") for path in elements(picture, "path")]
        [end] = [path.rpartition("L")[2].split() for path in paths if path.startswith(f"M{x} {y}L")]
        begun = [box_area(box) for box in elements(picture, "rect") if box.get("x") == end[0]]
        assert any(box[1] <= float(end[1]) <= box[3] for box in begun)


@each_state
def test_a_detail_has_the_rows_of_its_state_and_those_that_lead_there(state: str) -> None:
    """With the event, the target and the reason of each; a row from elsewhere has its reason there."""
    drawn = lines(diagrams.mermaid_of(diagrams.detail(state)))
    for row in ROWS:
        goal = "stays" if row.state == row.target else f"→ {row.target}"
        if state_of(row.state) == state:
            assert f"{id_of(row.state)}: {row.event.__name__} {goal} ({row.why})" in drawn
            assert (f"{id_of(row.state)} --> {id_of(row.target)}" in drawn) == (goal != "stays")
        elif state_of(row.target) == state:
            assert f"from_{state_of(row.state)}: {row.event.__name__} {goal}" in drawn
            assert f"from_{state_of(row.state)} --> {id_of(row.target)}" in drawn


@each_state
def test_the_overview_has_each_move(state: str) -> None:
    drawn = lines(diagrams.mermaid())
    for row in [row for row in ROWS if state_of(row.state) == state and row.state != row.target]:
        source, target = state_of(row.state), state_of(row.target)
        pair = (id_of(row.state), id_of(row.target)) if source == target else (source, target)
        [found] = [line for line in drawn if line.startswith(f"{pair[0]} --> {pair[1]}: ")]
        assert row.event.__name__ in found.partition(": ")[2].split("<br/>")


@each_label
def test_the_overview_has_each_label(label: str) -> None:
    """Under its own name, in the colour of its kind."""
    node = id_of(label) if len(labels_of(state_of(label))) > 1 else label
    drawn = [line.lower() for line in lines(diagrams.mermaid())]
    assert f'state "{label}" as {node}' in drawn
    assert f"class {node} s_{kind_of(label)}" in drawn
    assert f"[*] --> {state_of(LABELS[0])}" in drawn


@each_picture
def test_every_arrow_joins_two_nodes_and_every_id_is_unique(picture: diagrams.Picture) -> None:
    """Mermaid would draw a node of its own for an unknown id, and wants its settings in front."""
    assert diagrams.mermaid_of(picture).startswith("---\nconfig:\n  theme: neutral\n---\nstateDiagram-v2\n")
    ids = [node.id for node in picture.nodes]
    assert len(ids) == len(set(ids))
    assert {end for arrow in picture.arrows for end in (arrow.source, arrow.target)} <= set(ids)
    assert {node.inside for node in picture.nodes} - {""} <= set(ids)


def test_the_kind_of_a_label_follows_from_its_rows() -> None:
    assert [label for label in LABELS if kind_of(label) is diagrams.NodeKind.PERSON] == [
        "confirming",
        "confirming.stopping",
    ]
    assert [label for label in LABELS if kind_of(label) is diagrams.NodeKind.END] == ["done"]
    assert [kind_of(label) for label in ("thinking.go", "compacting.weigh")] == [diagrams.NodeKind.PASSES] * 2
    assert [kind_of(label) for label in ("thinking.retry", "streaming", "dispatching")] == [
        diagrams.NodeKind.WORLD
    ] * 3


def test_a_reason_cannot_end_a_line_of_mermaid() -> None:
    node = diagrams.Node("go", "go", diagrams.NodeKind.PASSES)
    arrow = diagrams.Arrow("go", "go", "Entered", "so: this; that")
    picture = diagrams.Picture("go", (node,), (arrow,))
    assert "  go: Entered stays (so#58; this#59; that)\n" in diagrams.mermaid_of(picture)


@each_label
def test_the_current_label_stands_out(label: str) -> None:
    plain, live = lines(diagrams.mermaid()), lines(diagrams.mermaid(label))
    assert live[: len(plain)] == plain
    look, chosen = live[len(plain) :]
    assert look.startswith("classDef current ")
    _, chosen_id, name = chosen.split()
    node = diagrams.overview().node(chosen_id)
    assert (node.text, name) == (label, "current")
    assert node.kind is not diagrams.NodeKind.BOX


@pytest.mark.parametrize("name", ["", "Thinking", "dreaming", "thinking.go\nclass done current"])
def test_an_unknown_name_cannot_be_drawn(name: str) -> None:
    """The errors show it and name what there is; nothing of it gets into a picture."""
    with pytest.raises(ConfigError, match=r"no state .*; there are thinking, "):
        diagrams.detail(name)
    with pytest.raises(ConfigError, match=r"no state .* in the table; there are thinking\.start, "):
        diagrams.mermaid(name)


def test_a_program_that_draws_nothing_loads_no_renderer() -> None:
    """The import takes time, and a machine draws only when a notebook shows it."""
    assert run("import sys, turnwheel.engine.core.machine; print('transitions' in sys.modules)") == "False\n"


@each_label
def test_the_page_has_each_row_and_each_ignored_event(label: str) -> None:
    section = diagrams.states_page().partition(f"\n### `{label}`\n")[2].partition("\n##")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    known = [row for row in ROWS if row.state == label]
    assert [(f"`{row.event.__name__}`", row.why) for row in known] == [(row[0], row[2]) for row in rows]
    goals = ["stays" if row.target == label else row.target for row in known]
    assert [goal if goal == "stays" else goal.split("`")[1] for _, goal, _ in rows] == goals
    ignored = section.partition("Ignored: ")[2].strip().rstrip(".")
    names = sorted(event.__name__ for event in IGNORED[label])
    assert sorted(ignored.replace("`", "").split(", ")) == (["everything"] if label == "done" else names)


def test_the_page_shows_the_overview_and_has_no_dead_link() -> None:
    text = diagrams.states_page()
    assert f"```mermaid\n{diagrams.mermaid()}```\n" in text
    headings = {line.strip("#` ").replace(".", "") for line in text.splitlines() if line.startswith("#")}
    anchors = {part.partition(")")[0] for part in text.split("](#")[1:]}
    assert anchors <= headings
    shown = [part.partition(")")[0] for part in text.split("](../")[1:]]
    assert shown == [f"diagrams/{state}.svg" for state in STATE_CLASSES]


def test_the_controls_page_has_each_input_in_each_state() -> None:
    """A cell has the targets in the order of the table, or a dash."""
    head, _, *rows = [
        line.strip("|").split("|") for line in diagrams.controls_page().splitlines() if line[:1] == "|"
    ]
    for cells in rows[: len(LABELS)]:
        label = cells[0].strip(" `")
        for event, cell in zip(head[1:], cells[1:], strict=True):
            goals = [
                row.target for row in TABLE if (row.state, row.event.__name__) == (label, event.strip(" `"))
            ]
            assert cell.replace("`", "").replace("stays", label).strip() == (", ".join(goals) or "-")


def test_the_check_names_stale_files_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CHECKOUT_MARK).parent.mkdir()
    (tmp_path / CHECKOUT_MARK).touch()
    assert write(tmp_path) == list(contents())
    with chdir(tmp_path):
        assert main(["--check"]) == 0
    (tmp_path / "diagrams/done.svg").unlink()
    (tmp_path / "docs/states.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    with chdir(tmp_path):
        assert main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == ["stale: diagrams/done.svg", "stale: docs/states.md"]
    assert not (tmp_path / "diagrams/done.svg").exists()
    assert (tmp_path / "docs/states.md").read_text(encoding="utf-8") == "old"
    with chdir(tmp_path):
        assert main([]) == 0
    assert stale(tmp_path) == []


def test_outside_a_checkout_the_command_draws_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chdir(tmp_path), pytest.raises(SystemExit, match="2"):
        main([])
    assert "has no states/table.py; run this in a checkout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
