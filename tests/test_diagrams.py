"""The pictures and the page show the table: all of it, nothing else, and the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from turnwheel.diagrams import mermaid
from turnwheel.diagrams.__main__ import main
from turnwheel.diagrams.files import (
    MARK,
    drawings,
    stale,
    texts,
    write,
)
from turnwheel.diagrams.page import page
from turnwheel.diagrams.picture import (
    EVENTS,
    LABELS,
    STATES,
    Arrow,
    Kind,
    Picture,
    Place,
    detail,
    id_of,
    kind_of,
    labels_of,
    overview,
    pictures,
    state_of,
)
from turnwheel.diagrams.text import text_of
from turnwheel.effects.errors import ConfigError
from turnwheel.effects.events import Event
from turnwheel.states.state import State
from turnwheel.states.table import IGNORED, TABLE, Row

ROOT = Path(__file__).resolve().parent.parent


def name_of(row: Row) -> str:
    """How a test's own name tells of *row*."""
    return f"{row.state}-{row.event.__name__}-{row.target}"


BETWEEN = tuple([row for row in TABLE if state_of(row.state) != state_of(row.target)])
"""The rows that lead from one state to another."""

TOLD = tuple([row for row in TABLE if not row.welcome])
each_row = pytest.mark.parametrize("row", TOLD, ids=name_of)
each_label = pytest.mark.parametrize("label", LABELS)


def lines(text: str) -> list[str]:
    """The lines of a Mermaid *text* as a reader sees them."""
    return [line.strip().replace("#59;", ";").replace("#58;", ":") for line in text.splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like a checkout, in which nothing is drawn yet."""
    (tmp_path / MARK).parent.mkdir()
    (tmp_path / MARK).touch()
    return tmp_path


def run(code: str, **environment: str) -> str:
    """What a new Python prints that runs *code*."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, check=True, env=os.environ | environment, text=True)
    return done.stdout


# What is committed


def test_the_committed_texts_are_what_the_table_says() -> None:
    """After a change of the table somebody has to run `make diagrams`."""
    assert stale(ROOT) == []


def test_each_picture_is_committed_as_svg_too() -> None:
    """Their bytes are up to fonts, so only that they are there is held."""
    missing = [
        picture.name for picture in pictures() if not (ROOT / f"diagrams/{picture.name}.svg").is_file()
    ]
    assert missing == []


def test_no_picture_is_committed_that_nothing_draws() -> None:
    """A state that is renamed does not leave its old picture behind."""
    drawn = {picture.name for picture in pictures()}
    found = {path.stem for path in (ROOT / "diagrams").iterdir() if path.suffix in {".mmd", ".svg"}}
    assert found == drawn


# The pictures


def test_there_is_an_overview_and_a_picture_of_each_state() -> None:
    """The names of the states come from their union, those of the labels from the table."""
    assert [picture.name for picture in pictures()] == ["machine", *STATES]
    assert [state.__name__.lower() for state in get_args(State)] == list(STATES)
    assert set(LABELS) == set(IGNORED)


@each_row
def test_each_row_is_told_in_the_picture_of_its_state(row: Row) -> None:
    """With its event, where it leads and why, and an arrow unless it stays."""
    drawn = lines(text_of(detail(state_of(row.state))))
    goal = "stays" if row.state == row.target else f"→ {row.target}"
    assert f"{id_of(row.state)}: {row.event.__name__} {goal} ({row.why})" in drawn
    assert (f"{id_of(row.state)} --> {id_of(row.target)}" in drawn) == (row.state != row.target)


@pytest.mark.parametrize("row", BETWEEN, ids=name_of)
def test_each_row_is_told_where_it_leads(row: Row) -> None:
    """Without its reason: that stands in the picture of the state it comes from."""
    source, target = state_of(row.state), state_of(row.target)
    drawn = lines(text_of(detail(target)))
    assert f"from_{source}: {row.event.__name__} → {row.target}" in drawn
    assert f"from_{source} --> {id_of(row.target)}" in drawn


@each_row
def test_each_move_is_on_the_overview(row: Row) -> None:
    """Between two states from box to box, within one from stage to stage, with the event in its list."""
    source, target = state_of(row.state), state_of(row.target)
    pair = (id_of(row.state), id_of(row.target)) if source == target else (source, target)
    found = [line for line in lines(mermaid()) if line.startswith(f"{pair[0]} --> {pair[1]}: ")]
    if row.state == row.target:
        assert found == []
    else:
        assert row.event.__name__ in found[0].partition(": ")[2].split("<br/>")


@each_label
def test_each_label_is_on_the_overview(label: str) -> None:
    """Under its own name, in the colour of what it waits for."""
    place = id_of(label) if len(labels_of(state_of(label))) > 1 else label
    drawn = [line.lower() for line in lines(mermaid())]
    assert f'state "{label}" as {place}' in drawn
    assert f"class {place} s_{kind_of(label)}" in drawn


@pytest.mark.parametrize("name", ["machine", *STATES])
def test_every_arrow_joins_two_places_and_no_id_is_there_twice(name: str) -> None:
    """Mermaid would draw a place of its own for an id it has not heard of."""
    picture = {picture.name: picture for picture in pictures()}[name]
    ids = [place.id for place in picture.places]
    assert len(ids) == len(set(ids))
    assert {end for arrow in picture.arrows for end in (arrow.source, arrow.target)} <= set(ids)
    assert {place.inside for place in picture.places} - {""} <= set(ids)


@pytest.mark.parametrize(
    ("label", "kind"),
    [
        ("thinking.go", Kind.PASSES),
        ("thinking.retry", Kind.WORLD),
        ("streaming", Kind.WORLD),
        ("executing", Kind.WORLD),
        ("confirming", Kind.PERSON),
        ("confirming.stopping", Kind.PERSON),
        ("dispatching", Kind.WORLD),
        ("compacting.weigh", Kind.PASSES),
        ("done", Kind.END),
    ],
)
def test_the_kind_of_a_label_follows_from_its_rows(label: str, kind: Kind) -> None:
    """So that nobody has to say it of a new one."""
    assert kind_of(label) == kind


def test_a_state_that_is_none_cannot_be_drawn() -> None:
    """The error names those there are."""
    with pytest.raises(ConfigError, match="no state 'dreaming'; there are thinking, "):
        detail("dreaming")


def test_what_would_end_a_line_of_mermaid_is_an_entity() -> None:
    """A reason may have a colon or a semicolon in it."""
    place = Place("go", "go", Kind.PASSES)
    picture = Picture("go", (place,), (Arrow("go", "go", "Entered", "so: this; that"),))
    assert "  go: Entered stays (so#58; this#59; that)\n" in text_of(picture)


def test_the_texts_are_the_same_in_every_process() -> None:
    """No set or hash decides an order."""
    code = "from turnwheel.diagrams.files import texts; print(texts())"
    assert run(code, PYTHONHASHSEED="1") == run(code, PYTHONHASHSEED="2")


# Where a session is


@each_label
def test_the_current_label_is_set_off(label: str) -> None:
    """The picture stays as it is, and one place of it gets the loud colour."""
    plain, live = lines(mermaid()), lines(mermaid(label))
    assert live[: len(plain)] == plain
    look, chosen = live[len(plain) :]
    assert look.startswith("classDef current ")
    texts_by_id = {place.id: place.text for place in overview().places}
    kinds_by_id = {place.id: place.kind for place in overview().places}
    _, place, name = chosen.split()
    assert (texts_by_id[place], name) == (label, "current")
    assert kinds_by_id[place] is not Kind.BOX


@pytest.mark.parametrize("current", ["", "thinking", "dreaming", "thinking.go\nclass done current"])
def test_a_label_that_is_none_cannot_be_current(current: str) -> None:
    """The error shows it; nothing of it gets into a picture."""
    with pytest.raises(ConfigError, match=r"no state .* in the table; there are thinking\.start, "):
        mermaid(current)


def test_a_machine_that_is_not_looked_at_loads_no_renderer() -> None:
    """Whoever imports the live picture pays for it when it is drawn."""
    code = "import sys, turnwheel.diagrams; print('transitions' in sys.modules, 'pygraphviz' in sys.modules)"
    assert run(code).split() == ["False", "False"]


# The page


@each_label
def test_the_page_has_each_row_and_each_ignored_event(label: str) -> None:
    """A label's section has its rows in the order of the table, then what it ignores."""
    section = page().partition(f"\n### `{label}`\n")[2].partition("\n##")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    expected = [row for row in TOLD if row.state == label]
    assert [(event.strip("`"), why) for event, _, why in rows] == [
        (row.event.__name__, row.why) for row in expected
    ]
    assert ["stays" if goal == "stays" else goal.split("`")[1] for _, goal, _ in rows] == [
        "stays" if row.target == label else row.target for row in expected
    ]
    ignored = section.partition("Ignored: ")[2].strip().rstrip(".")
    names = EVENTS if ignored == "everything" else tuple(ignored.replace("`", "").split(", "))
    assert set(names) == {event.__name__ for event in IGNORED[label]}


def test_the_page_shows_the_overview_and_links_what_is_there() -> None:
    """A link to a picture or a heading that is not there would be dead."""
    text = page()
    assert f"```mermaid\n{mermaid()}```\n" in text
    headings = {line.strip("#` ").replace(".", "") for line in text.splitlines() if line.startswith("#")}
    anchors = {part.partition(")")[0] for part in text.split("](#")[1:]}
    assert anchors <= headings
    shown = [part.partition(")")[0] for part in text.split("](../")[1:]]
    assert shown == [f"diagrams/{state}.svg" for state in STATES]


def test_the_order_of_events_is_that_of_their_union() -> None:
    """A new event gets its place wherever events are listed."""
    assert [event.__name__ for event in get_args(Event)] == list(EVENTS)


# The command


def test_the_check_names_what_is_stale_and_writes_nothing(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is missing is stale, and so is one that says something else."""
    for path, text in texts().items():
        (checkout / path).parent.mkdir(exist_ok=True)
        (checkout / path).write_text(text, encoding="utf-8")
    with chdir(checkout):
        assert main(["--check"]) == 0
    (checkout / "diagrams/done.mmd").unlink()
    (checkout / "docs/states.md").write_text("old", encoding="utf-8")
    capsys.readouterr()
    with chdir(checkout):
        assert main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == ["stale: diagrams/done.mmd", "stale: docs/states.md"]
    assert not (checkout / "diagrams/done.mmd").exists()
    assert (checkout / "docs/states.md").read_text(encoding="utf-8") == "old"


@pytest.mark.parametrize("arguments", [[], ["--check"]])
def test_outside_a_checkout_nothing_is_drawn(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it missed and where it should run."""
    with chdir(tmp_path):
        assert main(arguments) == 2
    assert "has no states/table.py: run this in a checkout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_its_renderer_nothing_is_written(checkout: Path) -> None:
    """It names the extra to install, and no half of the files is new."""
    code = (
        "import sys; sys.modules['pygraphviz'] = None; "
        "from turnwheel.diagrams import main; sys.stderr = sys.stdout; print(main([]))"
    )
    with chdir(checkout):
        said, code_of_exit = run(code).splitlines()
    assert said == "svg is drawn by pygraphviz, which is missing: pip install 'turnwheel[diagrams]'"
    assert code_of_exit == "2"
    assert [path.name for path in checkout.iterdir()] == ["states"]


def test_what_was_written_is_current(checkout: Path) -> None:
    """Each picture is an SVG too, which is XML, tells every row and has no trace of who drew it."""
    pytest.importorskip("pygraphviz")
    written = write(checkout)
    assert written == [*texts(), *drawings()]
    assert stale(checkout) == []
    for picture in pictures():
        svg = (checkout / f"diagrams/{picture.name}.svg").read_text(encoding="utf-8")
        root = ET.fromstring(svg)  # noqa: S314  # ours
        words = {element.text for element in root.iter()}
        assert {place.text for place in picture.places} <= words
        assert {arrow.why for arrow in picture.arrows if arrow.why} <= words
        assert "<!--" not in svg
        assert str(Path.home()) not in svg
