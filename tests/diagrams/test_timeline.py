"""A run over time: who asked whom, and how long each call took."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from turnwheel.diagrams import Party, Said, Took, calls, sequence
from turnwheel.diagrams.timeline import ROWS_DRAWN

SVG = "{http://www.w3.org/2000/svg}"


def bars(drawn: str) -> list[tuple[str, float]]:
    """The bars of *drawn*: what each says, and how wide it is."""
    groups = [group for group in ET.fromstring(drawn).iter(f"{SVG}g") if "bar" in group.get("class", "")]  # noqa: S314  # ours
    found = [(group.findtext(f"{SVG}title") or "", group.find(f"{SVG}rect")) for group in groups]
    return [(title, float(box.get("width", 0))) for title, box in found if box is not None]


def test_a_sequence_has_the_parties_that_took_part_and_each_arrow() -> None:
    told = (
        Said(1.0, Party.PERSON, Party.MACHINE, "go <b>"),
        Said(1.5, Party.MACHINE, Party.MODEL, "m", asks=True),
        Said(3.0, Party.MODEL, Party.MACHINE, "a long answer " * 20),
    )
    drawn = sequence(told)
    words = [text.text for text in ET.fromstring(drawn).iter(f"{SVG}text")]  # noqa: S314  # ours
    assert words[:3] == ["person", "machine", "model"]
    assert [word for word in words if word and word.startswith("+")] == ["+0.00 s", "+0.50 s", "+2.00 s"]
    assert drawn.count("<polygon") == len(told)
    assert "tools" not in words
    assert "<b>" not in drawn


def test_bars_are_as_long_as_their_calls() -> None:
    took = (
        Took(Party.MODEL, "m", 0.0, 2.0),
        Took(Party.TOOLS, "look", 2.0, 3.0),
        Took(Party.MODEL, "m", 3.0),
    )
    (model, two), (tool, one), (last, _) = bars(calls(took))
    assert (model, tool, last) == ("model m: 2.00 s", "tools look: 1.00 s", "model m: 0.00 s so far")
    assert abs(two - 2 * one) <= 1


def test_a_night_of_waiting_for_a_person_hides_no_call() -> None:
    """It is drawn short and says its length; a tool at work is never drawn short."""
    night = 8 * 3600.0
    took = (
        Took(Party.MODEL, "m", 0.0, 4.0),
        Took(Party.PERSON, "pay", 4.0, night),
        Took(Party.TOOLS, "pay", night, night + 6),
    )
    drawn = calls(took)
    (_, asked), (title, waited), (_, paid) = bars(drawn)
    assert title == "person pay: 8.0 h"
    assert waited < asked < paid
    assert "8.0 h, drawn short" in drawn
    assert "drawn short" not in calls([*took, Took(Party.TOOLS, "long", 1.0, night)])


def test_of_a_long_run_the_newest_rows_are_shown() -> None:
    many = [Said(float(n), Party.MACHINE, Party.MODEL, f"m{n}") for n in range(ROWS_DRAWN + 5)]
    assert f"the newest {ROWS_DRAWN} of {ROWS_DRAWN + 5}" in sequence(many)
    assert ">m4<" not in sequence(many)
    assert ">m5<" in sequence(many)


def test_nothing_is_a_picture_too() -> None:
    for drawn in (sequence(()), calls(())):
        assert ET.fromstring(drawn).tag == f"{SVG}svg"  # noqa: S314  # ours
