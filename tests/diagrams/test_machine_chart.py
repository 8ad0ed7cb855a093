"""The statechart of a session: all of the table between states, with the path marked and no name made up."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from turnwheel.diagrams import chart
from turnwheel.diagrams.look import COLOURS
from turnwheel.diagrams.machine_chart import END, HUB, ROW
from turnwheel.diagrams.picture import LABELS, STATE_CLASSES, state_of
from turnwheel.effects.errors import ConfigError
from turnwheel.states.table import TABLE

SVG = "{http://www.w3.org/2000/svg}"
EDGES = {(state_of(row.state), state_of(row.target)) for row in TABLE} - {
    (name, name) for name in STATE_CLASSES
}
TAKEN = {("thinking.go", "streaming"): 3, ("streaming", "executing"): 2, ("executing", "thinking.go"): 2}


def parts(drawn: str, name: str) -> dict[str, ET.Element]:
    """The groups of *drawn* that have the attribute *name*, by its value."""
    groups = ET.fromstring(drawn).iter(f"{SVG}g")  # noqa: S314  # ours
    return {value: group for group in groups if (value := group.get(name))}


def classes(group: ET.Element) -> set[str]:
    return set(group.get("class", "").split())


def marked(drawn: str, name: str, mark: str) -> set[str]:
    return {value for value, group in parts(drawn, name).items() if mark in classes(group)}


def test_the_chart_has_each_state_each_stage_and_each_edge_between_states() -> None:
    drawn = chart()
    assert {HUB, *ROW, END} == set(parts(drawn, "data-state")) == set(STATE_CLASSES)
    assert set(parts(drawn, "data-label")) == set(LABELS) - {"done"}
    assert set(parts(drawn, "data-edge")) == {" ".join(edge) for edge in EDGES}
    for source, target in EDGES:
        title = parts(drawn, "data-edge")[f"{source} {target}"].findtext(f"{SVG}title") or ""
        rows = [row for row in TABLE if (state_of(row.state), state_of(row.target)) == (source, target)]
        assert {row.event.__name__ for row in rows} == set(title.partition(": ")[2].split(", "))


@pytest.mark.parametrize("label", LABELS)
def test_the_label_of_a_session_is_lit_and_its_state(label: str) -> None:
    drawn = chart(label)
    assert marked(drawn, "data-state", "lit") == {state_of(label)}
    assert marked(drawn, "data-label", "lit") == {label} - {"done"}
    assert f"<title>The machine, at {label}</title>" in drawn


def test_a_path_is_marked_with_its_counts() -> None:
    drawn = chart("streaming", {**TAKEN, ("thinking.retry", "streaming"): 1})
    counts = {edge: group.findtext(f"{SVG}text") for edge, group in parts(drawn, "data-edge").items()}
    assert {edge: count for edge, count in counts.items() if count} == {
        "thinking streaming": "4",
        "streaming executing": "2",
        "executing thinking": "2",
    }
    assert marked(drawn, "data-edge", "taken") == {edge for edge, count in counts.items() if count}
    assert marked(drawn, "data-state", "passed") == {"thinking", "streaming", "executing"}
    assert marked(drawn, "data-label", "passed") == {
        "thinking.go",
        "thinking.retry",
        "streaming",
        "executing",
    }
    assert "thinking to streaming 4x" in drawn


def test_the_rest_is_dim_only_beside_a_path() -> None:
    """A session that has just begun has taken no edge: all of them are dim."""
    assert [" traced" in chart("streaming", taken).partition(">")[0] for taken in (None, {}, TAKEN)] == [
        False,
        True,
        True,
    ]


def test_a_path_may_go_where_the_table_has_no_edge() -> None:
    """A run that a bug of ours has ended went straight to its end."""
    drawn = chart("done", {("executing", "done"): 1})
    assert marked(drawn, "data-state", "passed") == {"executing", "done"}
    assert marked(drawn, "data-edge", "taken") == set()


@pytest.mark.parametrize("name", ["Thinking", "thinking.nothing", "<script>", "machine"])
def test_an_unknown_name_is_refused_and_not_drawn(name: str) -> None:
    for arguments in ((name, {}), ("", {(name, "done"): 1}), ("", {("done", name): 1})):
        with pytest.raises(ConfigError, match=r"no state .* in the table; there are thinking\.start"):
            chart(*arguments)


def test_two_charts_share_a_page_in_any_scheme() -> None:
    """No ids, which would be another chart's, and each colour for a light page and for a dark one."""
    drawn = chart("streaming", TAKEN)
    assert " id=" not in drawn
    assert "url(" not in drawn
    assert drawn == chart("streaming", dict(reversed(TAKEN.items())))
    for name, pair in COLOURS.items():
        assert all(f"--tw-{name}:{colour}" in drawn for colour in pair)
        assert f"{pair[0]}" in drawn
    assert "prefers-color-scheme:dark" in drawn


def test_no_box_meets_another_and_no_line_leaves_the_chart() -> None:
    drawn = chart()
    areas = {}
    for state, group in parts(drawn, "data-state").items():
        box = group.find(f"{SVG}rect")
        assert box is not None
        x, y, width, height = [float(box.get(name, 0)) for name in ("x", "y", "width", "height")]
        areas[state] = (x, y, x + width, y + height)
    for (one, a), (other, b) in combinations(areas.items(), 2):
        assert a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1], f"{one} meets {other}"
    [*_, right, bottom] = [float(number) for number in (ET.fromstring(drawn).get("viewBox") or "").split()]  # noqa: S314  # ours
    assert right <= 1000
    for group in parts(drawn, "data-edge").values():
        for path in group.iter(f"{SVG}path"):
            numbers = [float(one) for one in path.get("d", "").translate(str.maketrans("MLQ", "   ")).split()]
            assert all(0 < x < right for x in numbers[::2])
            assert all(0 < y < bottom for y in numbers[1::2])
