"""What a look at a call finds: each spelling of a path by which a rule may name it, and what it reaches."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from turnwheel.effects.config import ToolSpec
from turnwheel.effects.findings import MOST_PATHS, Finding, PathFound
from turnwheel.effects.requests import InspectCall
from turnwheel.effects.secrets import PLACEHOLDER_MARK
from turnwheel.performers.base import PerformContext
from turnwheel.performers.tools import inspection
from turnwheel.performers.tools.inspection import HAS_SECRET, Inspector, look

SECRET = f"{PLACEHOLDER_MARK} token 0123456789ab]"
SPEC = ToolSpec(
    name="look",
    schema='{"type":"object","properties":{"path":{"type":"string"},"more":{"type":"string"}}}',
    paths=("path", "more"),
    command="command",
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "in").mkdir(parents=True)
    (tmp_path / "home" / "in" / "a.txt").touch()
    (tmp_path / "home" / "link").symlink_to("in")
    (tmp_path / "alias").symlink_to("home")
    return tmp_path / "home"


def found(home: Path, value: object, *globs: str) -> PathFound:
    [path] = look(SPEC, {"path": value}, str(home), globs).paths
    return path


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ([["in/a.txt"], ["new", ["link"]]], ["in/a.txt", "new", "link"]),
        ({"in": "new", "to": {"link": [1, None, True]}}, ["in", "to", "new", "link"]),
        ([{"name": "in", "size": 2}], ["name", "size", "in"]),
        (7, []),
    ],
)
def test_each_text_in_a_path_argument_is_a_path(home: Path, value: object, paths: list[str]) -> None:
    looked = look(SPEC, {"path": value}, str(home), ()).paths
    assert sorted(path.value for path in looked) == sorted(paths)


def test_of_very_many_paths_the_first_are_looked_at(home: Path) -> None:
    values = [str(number) for number in range(MOST_PATHS + 5)]
    assert [path.value for path in look(SPEC, {"path": values}, str(home), ()).paths] == values[:MOST_PATHS]


@pytest.mark.parametrize(
    ("value", "written", "real"),
    [
        ("in/a.txt", ["in/a.txt", "{home}/in/a.txt"], ["{home}/in/a.txt", "in/a.txt"]),
        ("{home}/in", ["{home}/in", "in"], ["{home}/in", "in"]),
        ("./in/../link/a.txt", ["link/a.txt", "{home}/link/a.txt"], ["{home}/in/a.txt", "in/a.txt"]),
        ("../x", ["../x", "{root}/x"], ["{root}/x", "../x"]),
        ("new", ["new", "{home}/new"], ["{home}/new", "new"]),
    ],
)
def test_a_path_is_told_as_it_is_written_and_as_what_it_reaches(
    home: Path, value: str, written: list[str], real: list[str]
) -> None:
    def filled(text: str) -> str:
        return text.format(home=home, root=home.parent)

    path = found(home, filled(value))
    assert (path.argument, path.value, path.doubt) == ("path", filled(value), "")
    assert path.written == tuple(map(filled, written))
    assert path.real == tuple(map(filled, real))


def test_a_place_is_told_as_a_rule_names_it_through_a_link(home: Path) -> None:
    alias = home.parent / "alias"
    assert f"{alias}/in/a.txt" in found(home, "in/a.txt", f"{alias}/in/*").real
    assert "link/a.txt" in found(home, "in/a.txt", "link/[a-z]*").real
    assert "link" in found(home, "in", "link").real
    # What begins alike is another place.
    (home / "inside").mkdir()
    assert found(home, "inside", "link/*").real == (f"{home}/inside", "inside")


def test_a_name_may_be_written_as_a_listing_shows_it(home: Path) -> None:
    """As the file tools take it: what it reaches is what a rule is asked about."""
    (home / "a\nb").symlink_to("in")
    path = found(home, "a\\nb/a.txt")
    assert path.written == ("a\\nb/a.txt", f"{home}/a\\nb/a.txt")
    assert path.real == (f"{home}/in/a.txt", "in/a.txt")


def test_a_file_with_two_names_is_in_doubt(home: Path) -> None:
    (home / "other").hardlink_to(home / "in" / "a.txt")
    assert found(home, "in/a.txt").doubt == "'in/a.txt' is one of 2 names of a file (hard links)"
    assert found(home, "in").doubt == ""  # each directory has several


def test_what_holds_a_secret_or_cannot_be_resolved_is_in_doubt(home: Path) -> None:
    assert found(home, SECRET) == PathFound(argument="path", value=SECRET, doubt=HAS_SECRET)
    path = found(home, "a\0b")
    assert (path.written, path.real) == ((), ())
    assert path.doubt.startswith("'a\\x00b' cannot be resolved: ")


def test_every_text_of_each_path_is_looked_at_and_the_command(home: Path) -> None:
    given = {"path": ["a", 5, "b"], "more": "c", "other": "d", "command": "ls e"}
    seen = look(SPEC, given, str(home), ())
    assert [(path.argument, path.value) for path in seen.paths] == [
        ("path", "a"),
        ("path", "b"),
        ("more", "c"),
    ]
    assert [each.words for command in seen.commands for each in command.commands] == [("ls", "e")]
    assert look(SPEC, {"path": 5, "command": ["ls"]}, str(home), ()) == Finding()


def test_a_command_with_a_secret_in_it_is_not_read(home: Path) -> None:
    [command] = look(SPEC, {"command": f"curl {SECRET}"}, str(home), ()).commands
    assert (command.argument, command.commands, command.unread) == ("command", (), HAS_SECRET)


async def test_a_call_is_looked_at_in_the_working_directory(home: Path, scene: PerformContext) -> None:
    scene = attrs.evolve(scene, config=attrs.evolve(scene.config, tools=(SPEC,)))
    inspector = Inspector(home)
    asked = InspectCall(id="r-1", call="r-0", tool="look", arguments='{"path": "link"}', globs=())
    answer = await inspector(asked, scene)
    assert answer.request == "r-1"
    assert answer.finding == look(SPEC, {"path": "link"}, str(home), ())
    for other in (attrs.evolve(asked, tool="gone"), attrs.evolve(asked, arguments="no JSON")):
        assert (await inspector(other, scene)).finding == Finding()


async def test_a_look_that_fails_finds_nothing(
    home: Path, scene: PerformContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the call becomes a question."""

    def broken(*_: object) -> Finding:
        raise RuntimeError

    monkeypatch.setattr(inspection, "look", broken)
    scene = attrs.evolve(scene, config=attrs.evolve(scene.config, tools=(SPEC,)))
    asked = InspectCall(id="r-1", call="r-0", tool="look", arguments=f'{{"path": "{os.sep}"}}', globs=())
    assert (await Inspector(home)(asked, scene)).finding == Finding()
